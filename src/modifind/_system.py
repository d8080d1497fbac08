"""What the machine offers and operating systems do in their own ways: memory, threads, files and locks."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from modifind._warned import warn

WINDOWS = sys.platform == "win32"
WAITS = (0.05, 0.1, 0.2, 0.4, 0.8)  # seconds, for whoever has the file open: another reader, a scanner of viruses
LOCK_FILE = ".lock"
LOCKED_BY_OTHERS = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_held_by_thread = threading.local()


def replace_file(source: str | os.PathLike[str], target: Path) -> None:
    """Give a file its name, in place of the file that has it.

    Windows refuses that while another process has either of them open, which is mostly soon over.
    """
    for wait in WAITS if WINDOWS else ():
        try:
            os.replace(source, target)
        except PermissionError:
            time.sleep(wait)
        else:
            return
    os.replace(source, target)


def file_in_the_way(folder: Path) -> Path | None:
    """The file that is where a folder, or one above it, would have to be."""
    return next((one for one in (folder, *folder.parents) if one.is_file()), None)


def reader_left(error: OSError) -> bool:
    """Whether writing failed because nobody reads on, for which Windows has no error of its own.

    Examples
    --------
    >>> reader_left(BrokenPipeError()), reader_left(OSError(errno.ENOSPC, "No space left on device"))
    (True, False)
    """
    return isinstance(error, BrokenPipeError) or (WINDOWS and error.errno == errno.EINVAL)


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder and those above it, or say why not."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        blocking = file_in_the_way(Path(path))
        reason = f"{blocking} is a file" if blocking else error.strerror
        raise ValueError(f"cannot make the folder {path}: {reason}") from None


@contextmanager
def locked_folder(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Keep other runs out of a checkpoint's folder, as long as this process lives at most.

    The system takes the lock back when the process ends, however it ends. A fit within a fit has the folder already.

    Parameters
    ----------
    folder : path, optional
        The folder, which is made if need be; None locks nothing.

    Raises
    ------
    ValueError
        Another run is using it.
    """
    if folder is None:
        yield
        return
    path = Path(folder).absolute()
    held_here: set[Path] = _held_by_thread.__dict__.setdefault("folders", set())
    if path in held_here:
        yield
        return
    made = not path.exists()
    make_folder(path)
    handle = _open_locked(path / LOCK_FILE, folder)
    held_here.add(path)
    try:
        yield
    finally:
        held_here.remove(path)
        if WINDOWS:  # where an open file is not removed, ours or another's
            os.close(handle)
        with suppress(OSError):  # elsewhere while it is still ours, so that nobody else's is removed
            (path / LOCK_FILE).unlink()
        if not WINDOWS:
            os.close(handle)
        if made:
            with suppress(OSError):  # something was saved
                path.rmdir()


def _open_locked(path: Path, folder: str | os.PathLike[str]) -> int:
    """Open and lock the file, and make sure that it is still the one that others would open."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise ValueError(f"checkpoint {folder} cannot be written to: {error.strerror}") from None
        try:
            _lock(handle)
            if WINDOWS or os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        except FileNotFoundError:  # the last run has just removed it
            pass
        except OSError as error:
            if error.errno not in LOCKED_BY_OTHERS:
                return handle  # a file system without locks
            os.close(handle)
            raise ValueError(
                f"checkpoint {folder} is in use by another run; wait until that has ended, or use another folder"
            ) from None
        os.close(handle)


def _lock(handle: int) -> None:
    """Lock a file for this process alone; an OSError if another has it."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


REMEDIES = (
    "read the table in batches (from a file), fit models to fewer rows (max_train_rows), leave explanations out "
    "(explain=False) or use fewer processes (n_jobs)"
)
# Measured with the default settings: 267 MB at 5,000 rows and 20 columns, 374 MB at 20,000, one process each; 1568 MB
# at 100,000 rows and 30 columns with two workers.
BYTES_OF_A_PROCESS = 220 * 2**20
COPIES = 48  # of the table, in models, distributions and their bases; workers share them


def estimated_memory(n_rows: int, n_columns: int, n_processes: int = 1) -> int:
    """Bytes that a fit with the default statistic needs at its peak, all processes together, within about a fifth.

    Parameters
    ----------
    n_rows, n_columns : int
        Size of the table.
    n_processes : int, default=1
        Processes; more than one work for another that waits.

    Examples
    --------
    >>> round(estimated_memory(20_000, 20) / 2**20)
    366
    """
    n_all = n_processes + (n_processes > 1)
    return n_all * BYTES_OF_A_PROCESS + COPIES * 8 * n_rows * n_columns


def free_memory(where: str = "/proc/meminfo") -> int | None:
    """Bytes that can be had without swapping; None where the system does not say."""
    try:
        lines = Path(where).read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


def warn_of_memory(n_rows: int, n_columns: int, n_processes: int) -> None:
    """Warn of a fit that probably needs more memory than there is."""
    needed, free = estimated_memory(n_rows, n_columns, n_processes), free_memory()
    if free is not None and needed > free:
        warn(
            f"this fit needs about {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free; {REMEDIES}",
        )


@contextmanager
def remedies_told() -> Iterator[None]:
    """Let a MemoryError say what to do."""
    try:
        yield
    except MemoryError as error:
        raise out_of_memory(error) from error


def out_of_memory(error: MemoryError) -> MemoryError:
    """The same error with what to do, once.

    Examples
    --------
    >>> print(out_of_memory(MemoryError("no 8 GB")))
    out of memory (no 8 GB); read the table in batches (from a file), fit models to fewer rows (max_train_rows), leave \
explanations out (explain=False) or use fewer processes (n_jobs)
    """
    if REMEDIES in str(error):
        return error
    return MemoryError(f"out of memory{f' ({error})' if str(error) else ''}; {REMEDIES}")


def one_thread() -> AbstractContextManager[Any]:
    """A context in which BLAS and OpenMP take one thread.

    Libraries are looked for again only when modules have been imported since: to find them takes longer than the fit of
    a small model.
    """
    return _controller(len(sys.modules)).limit(limits=1)


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
