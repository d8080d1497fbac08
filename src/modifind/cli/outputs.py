"""Output files: checked before the work starts, and each attempted at its end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from modifind._system import file_in_the_way

MIN_FREE_BYTES = 2**19  # bytes; results of small tables and their reports take about half of it


def check_outputs(wanted: Mapping[str, tuple[Path | None, tuple[str, ...]]], inputs: Iterable[Path] = ()) -> None:
    """Refuse files that could not be written, or that would replace what is read.

    Parameters
    ----------
    wanted : mapping
        The path, if one is given, and the endings that it may have, by option.
    inputs : iterable of Path
        Files that must stay as they are.

    Raises
    ------
    ValueError
        It names the option and the path.

    Examples
    --------
    >>> check_outputs({"--out": (Path("result.txt"), (".json", ".csv"))})
    Traceback (most recent call last):
        ...
    ValueError: --out must end in .json or .csv; found 'result.txt'
    """
    owners = [(path, f"the input {path}") for path in inputs]
    for option, (path, endings) in wanted.items():
        if path is None:
            continue
        if path.suffix.lower() not in endings:
            raise ValueError(f"{option} must end in {' or '.join(endings)}; found {str(path)!r}")
        if path.is_dir():
            raise ValueError(f"{option}: {path} is a folder; name a file")
        for other, owner in owners:
            if _same_file(path, other):
                raise ValueError(f"{option}: {path} would replace {owner}; choose another name")
        owners.append((path, option))
        _check_place(option, path, path.parent)


def check_folders(wanted: Mapping[str, str | os.PathLike[str] | None]) -> None:
    """Refuse folders that could not be made or written to; by option, None where none is asked for.

    Examples
    --------
    >>> check_folders({"--figures": __file__})
    Traceback (most recent call last):
        ...
    ValueError: --figures: ... is a file; name a folder
    """
    for option, folder in wanted.items():
        if folder is None or not os.fspath(folder):
            continue
        path = Path(folder)
        if path.is_file():
            raise ValueError(f"{option}: {path} is a file; name a folder")
        _check_place(option, path, path)


def _same_file(one: Path, other: Path) -> bool:
    """Whether two paths are of one file, or will be when both are written."""
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them is not there
        here, there = os.path.realpath(one), os.path.realpath(other)
        return here == there or (here.casefold() == there.casefold() and _ignores_case(Path(here).parent))


def _ignores_case(folder: Path) -> bool:
    """Whether the folder's file system ignores case, which only an attempt can tell."""
    try:
        with tempfile.TemporaryDirectory(prefix="Case", dir=_existing(folder)) as made:
            return os.path.samefile(made, Path(made).with_name(Path(made).name.swapcase()))
    except OSError:
        return False


def _existing(folder: Path) -> Path:
    """The folder, or its nearest existing parent."""
    return next((one for one in (folder, *folder.parents) if one.exists()), folder)


def _check_place(option: str, path: Path, parent: Path) -> None:
    """Refuse a `path` whose folder `parent` cannot be written to or has too little room."""
    if blocking := file_in_the_way(parent):
        raise ValueError(f"{option}: cannot write {path}: {blocking} is a file")
    folder = _existing(parent.absolute())
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        raise ValueError(f"{option}: cannot write {path}: {error.strerror}") from None
    if path.exists() and not os.access(path, os.W_OK):
        raise ValueError(f"{option}: cannot write {path}: the file is write-protected")
    if free < MIN_FREE_BYTES:
        raise ValueError(
            f"{option}: cannot write {path}: {free // 1024} KB are free there, {MIN_FREE_BYTES // 1024} KB are needed; "
            "make room or choose another folder"
        )


def write_outputs(writers: Mapping[str, tuple[Path | None, Callable[[Path], None]]]) -> list[str]:
    """Write every requested file, even if others fail.

    Parameters
    ----------
    writers : mapping
        The path, if one is given, and what writes it, by option.

    Returns
    -------
    list of str
        What could not be written, and why.
    """
    from modifind._system import make_folder

    failures = []
    for option, (path, write) in writers.items():
        if path is None:
            continue
        try:
            make_folder(path.absolute().parent)
            write(path)
        except (OSError, ValueError) as error:
            failures.append(f"{option}: {error}")
    return failures
