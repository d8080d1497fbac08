"""Which files a user means, and how each is read."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pandas as pd

from modifind.data.files.parquet import open_parquet
from modifind.data.files.text import COMPRESSIONS, Dialect, TextFile, kind_of, open_text

ENDINGS = f".csv, .tsv (also with {', '.join(COMPRESSIONS)}) or .parquet"


class DataFile(Protocol):
    """A file that holds a table."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def names(self) -> list[str]:
        """Names of the columns."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows, where it is known beforehand."""

    def read(self) -> pd.DataFrame:
        """The whole table."""

    def batches(self, columns: Sequence[str], n_rows: int) -> Iterator[pd.DataFrame]:
        """Some of the columns, so many rows at a time."""


def open_file(path: Path, dialect: Dialect | None = None) -> DataFile:
    """A file of either kind, looked at and not read yet.

    Files of other endings are text where the dialect says what separates their fields.
    """
    _check_path(path, dialect)
    if not path.is_file():
        raise ValueError(f"no file {path}")
    return open_parquet(path) if path.suffix.lower() == ".parquet" else open_text(path, dialect)


def open_matching(pattern: str, dialect: Dialect | None = None) -> tuple[DataFile, ...]:
    """The files that a path or a pattern such as ``part-*.parquet`` names, in the order of their names."""
    paths = sorted(map(Path, glob.glob(pattern))) if not Path(pattern).is_file() else [Path(pattern)]
    if not paths:
        raise ValueError(f"no file {pattern}")
    for path in paths:
        _check_path(path, dialect)
    return read_alike([open_file(path, dialect) for path in paths])


def read_alike(files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    """The same files, with columns read as text that hold codes in one of them."""
    codes = tuple(dict.fromkeys(name for file in files if isinstance(file, TextFile) for name in file.codes))
    return tuple(file.with_codes(codes) if isinstance(file, TextFile) else file for file in files)


def refuse_folder(path: Path) -> None:
    """Say what to pass in place of a folder."""
    if path.is_dir():
        kinds = [file.suffix.lower() for file in sorted(path.iterdir())]
        kind = next((kind for kind in kinds if kind in (".csv", ".tsv", ".parquet")), ".csv")
        raise ValueError(
            f"{path} is a folder; pass a file of it, a pattern such as '{path / f'*{kind}'}', or a list of files"
        )


def _check_path(path: Path, dialect: Dialect | None) -> None:
    refuse_folder(path)
    is_text = kind_of(path) in (".csv", ".tsv") or (dialect is not None and dialect.separator is not None)
    if path.suffix.lower() != ".parquet" and not is_text:
        raise ValueError(f"the data file must end in {ENDINGS} (any text, with --separator); found {str(path)!r}")
