"""One run at a time in a folder."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from modifind import _system
from modifind.result.writing import make_folder

LOCK_FILE = ".lock"
TAKEN = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_mine = threading.local()


@contextmanager
def held(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Keep other runs out of a checkpoint's folder, as long as this process lives at most.

    The system takes the lock back when the process ends, however it ends. A fit within a fit has the folder already.

    Parameters
    ----------
    folder : path, optional
        The folder, which is made; nothing is locked where there is none.

    Raises
    ------
    ValueError
        Another run is at work there.
    """
    if folder is None:
        yield
        return
    path = Path(folder).absolute()
    held_here: set[Path] = _mine.__dict__.setdefault("folders", set())
    if path in held_here:
        yield
        return
    made = not path.exists()
    make_folder(path)
    handle = _taken(path / LOCK_FILE, folder)
    held_here.add(path)
    try:
        yield
    finally:
        held_here.remove(path)
        if _system.WINDOWS:  # where an open file is not removed, ours or another's
            os.close(handle)
        with suppress(OSError):  # elsewhere while it is still ours, so that nobody else's is removed
            (path / LOCK_FILE).unlink()
        if not _system.WINDOWS:
            os.close(handle)
        if made:
            with suppress(OSError):  # something was saved
                path.rmdir()


def _taken(path: Path, folder: str | os.PathLike[str]) -> int:
    """The lock file, opened and locked, and still the one that others would open."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise ValueError(f"checkpoint {folder} cannot be written to: {error.strerror}") from None
        try:
            _lock(handle)
            if _system.WINDOWS or os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        except FileNotFoundError:  # the last run has just removed it
            pass
        except OSError as error:
            if error.errno not in TAKEN:
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
