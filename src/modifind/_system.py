"""Operating system services: memory, threads, files and locks."""

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
RETRY_SECONDS = (
    0.05,
    0.1,
    0.2,
    0.4,
    0.8,
)  # seconds, for whoever has the file open: another reader, a scanner of viruses
LOCK_FILE = ".lock"
LOCKED_BY_OTHERS = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_held_by_thread = threading.local()


def replace_file(source: str | os.PathLike[str], target: Path) -> None:
    """Rename a file, replacing any existing file of that name.

    Windows refuses while another process has either file open, usually only for a moment, so this retries.
    """
    for wait in RETRY_SECONDS if WINDOWS else ():
        try:
            os.replace(source, target)
        except PermissionError:
            time.sleep(wait)
        else:
            return
    os.replace(source, target)


def blocking_file(folder: Path) -> Path | None:
    """The existing file, if any, at the path of a folder or one of its parents."""
    return next((one for one in (folder, *folder.parents) if one.is_file()), None)


def is_broken_pipe(error: OSError) -> bool:
    """Whether writing failed because the reader closed the pipe, for which Windows has no distinct error.

    Examples
    --------
    >>> is_broken_pipe(BrokenPipeError()), is_broken_pipe(OSError(errno.ENOSPC, "No space left on device"))
    (True, False)
    """
    return isinstance(error, BrokenPipeError) or (WINDOWS and error.errno == errno.EINVAL)


def make_folder(path: str | os.PathLike[str]) -> None:
    """Create a folder and its parents, or raise an error that explains why it cannot be created."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        blocking = blocking_file(Path(path))
        reason = f"{blocking} is a file" if blocking else error.strerror
        raise ValueError(f"cannot make the folder {path}: {reason}") from None


@contextmanager
def locked_folder(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Lock a checkpoint folder against other runs while this process is alive.

    The operating system releases the lock when the process ends, for whatever reason. A nested fit shares the lock.

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
    """Open and lock the file, making sure that it has not been replaced in the meantime."""
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
    """Lock a file for this process; raises an OSError if another process holds the lock."""
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
BYTES_PER_PROCESS = 220 * 2**20
TABLE_COPIES = 48  # of the table, in models, distributions and their bases; workers share them


def estimated_memory(n_rows: int, n_columns: int, n_processes: int = 1) -> int:
    """Estimated peak memory in bytes of a fit with the default statistic, over all processes, to about a fifth.

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
    return n_all * BYTES_PER_PROCESS + TABLE_COPIES * 8 * n_rows * n_columns


def free_memory(where: str = "/proc/meminfo") -> int | None:
    """Bytes available without swapping; None if unknown."""
    try:
        lines = Path(where).read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


def warn_of_memory(n_rows: int, n_columns: int, n_processes: int) -> None:
    """Warn if a fit probably needs more memory than is available."""
    needed, free = estimated_memory(n_rows, n_columns, n_processes), free_memory()
    if free is not None and needed > free:
        warn(
            f"this fit needs about {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free; {REMEDIES}",
        )


@contextmanager
def memory_advice() -> Iterator[None]:
    """Add advice to any MemoryError raised in this context."""
    try:
        yield
    except MemoryError as error:
        raise out_of_memory(error) from error


def out_of_memory(error: MemoryError) -> MemoryError:
    """The same error with advice added, once.

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
    """Context in which BLAS and OpenMP use one thread.

    Libraries are looked up again only after new imports, because the search takes longer than fitting a small model.
    """
    return _controller(len(sys.modules)).limit(limits=1)


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
