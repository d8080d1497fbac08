"""What systems do in ways of their own, and what is said in place of their words."""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path

WINDOWS = sys.platform == "win32"
WAITS = (0.05, 0.1, 0.2, 0.4, 0.8)  # seconds, for whoever has the file open: another reader, a scanner of viruses


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
