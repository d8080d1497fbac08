"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from modifind._system import replace_file


def write_text(path: str | os.PathLike[str], text: str, *, keep: bool = False) -> None:
    """Write to a temporary file beside `path`, then rename: readers see the old file or the whole new one.

    With `keep` a file that is there already stays as it is.
    """
    write_bytes(path, text.encode("utf-8"), keep=keep)


def write_bytes(path: str | os.PathLike[str], content: bytes, *, keep: bool = False) -> None:
    """Write to a temporary file beside `path`, then rename; see `write_text`."""
    target = Path(path)
    if not target.parent.is_dir():
        raise ValueError(f"cannot write {target}: no folder {target.parent}")
    if target.is_dir():
        raise ValueError(f"cannot write {target}: it is a folder")
    try:
        _write_and_rename(target, content, keep)
    except OSError as error:  # which names the temporary file
        raise OSError(f"cannot write {target}: {error.strerror or error}") from error


def _write_and_rename(target: Path, content: bytes, keep: bool) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # else a crash could leave the new name on an empty file
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        if keep:
            _link(temporary, target)
        else:
            replace_file(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _link(temporary: str, target: Path) -> None:
    """Give a file its name unless it is taken; of two attempts at once, one succeeds."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        pass
    except (OSError, AttributeError):  # a file system or a Python without links
        if not target.exists():
            replace_file(temporary, target)
    Path(temporary).unlink(missing_ok=True)
