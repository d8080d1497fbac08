"""Opening of table files: text, Parquet with or without an index, and Dask tables."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import pandas as pd

from modifind.data.files.text import COMPRESSIONS, Dialect, TextFile, kind_of, open_text, readable
from modifind.data.words import listed, repeated


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file; create one with `open_parquet`.

    A named index becomes a column, and an unnamed one is dropped.

    Attributes
    ----------
    path : Path
        The file.
    stored : dict
        Names of the columns and what they are called in the file.
    n_rows : int
        Number of rows.
    counted : dict
        Names, starts and steps of an index of equal steps, which is not stored row by row.
    """

    path: Path
    stored: dict[str, str]
    n_rows: int
    counted: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [*self.stored, *self.counted]

    def read(self) -> pd.DataFrame:
        """The whole table."""
        with readable(self.path):
            return self._frame(_opened(self.path).read(list(self.stored.values())), self.names, 0)

    def batches(self, columns: Sequence[str], n_rows: int) -> Iterator[pd.DataFrame]:
        """Batches of `n_rows` rows of some columns."""
        start = 0
        with readable(self.path):
            # A counted index is as long as the others are, so that one of them is read in any case.
            used = [self.stored[name] for name in columns if name in self.stored] or list(self.stored.values())[:1]
            for batch in _opened(self.path).iter_batches(n_rows, columns=used):
                yield self._frame(batch, columns, start)
                start += batch.num_rows

    def _frame(self, rows: Any, columns: Sequence[str], start: int) -> pd.DataFrame:
        """Rows of the file as a DataFrame, extension types included, with a default index."""
        metadata = dict(rows.schema.metadata or {})
        if b"pandas" in metadata:
            metadata[b"pandas"] = json.dumps(json.loads(metadata[b"pandas"]) | {"index_columns": []}).encode()
        frame = rows.replace_schema_metadata(metadata).to_pandas()
        names = {stored: name for name, stored in self.stored.items()}
        frame.columns = pd.Index([names[stored] for stored in rows.schema.names])
        for name, (first, step) in self.counted.items():
            frame[name] = first + step * np.arange(start, start + len(frame))
        return frame[list(columns)]


def open_parquet(path: Path) -> ParquetFile:
    """Read the schema of a Parquet file."""
    with readable(path):
        file = _opened(path)
        schema, n_rows = file.schema_arrow, int(file.metadata.num_rows)
        metadata = schema.pandas_metadata or {}
        index = metadata.get("index_columns", [])
        stored = [(name, name) for name in schema.names if name not in index] + _index_columns(metadata)
        counts = [level for level in index if isinstance(level, dict) and level.get("name") is not None]
        counted = {str(level["name"]): (int(level["start"]), int(level["step"])) for level in counts}
        if twice := repeated([*(name for name, _ in stored), *counted]):
            raise ValueError(f"{path} has several columns called {listed(twice)}, or an index; rename all but one")
        return ParquetFile(path, dict(stored), n_rows, counted)


def _index_columns(metadata: dict[str, Any]) -> list[tuple[str, str]]:
    """Names of the stored index levels, and their column names in the file."""
    shown = {column.get("field_name"): column.get("name") for column in metadata.get("columns", [])}
    levels = [level for level in metadata.get("index_columns", []) if isinstance(level, str)]
    return [(str(shown[level]), level) for level in levels if shown.get(level) is not None]


def _opened(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ValueError(f'reading {path} needs pyarrow: pip install "modifind[parquet]"') from None
    return pyarrow.parquet.ParquetFile(path, pre_buffer=False)


ENDINGS = f".csv, .tsv (also with {', '.join(COMPRESSIONS)}) or .parquet"


class DataFile(Protocol):
    """Interface of a table file."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def names(self) -> list[str]:
        """Names of the columns."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows, if known in advance."""

    def read(self) -> pd.DataFrame:
        """The whole table."""

    def batches(self, columns: Sequence[str], n_rows: int) -> Iterator[pd.DataFrame]:
        """Batches of `n_rows` rows of some columns."""


def open_file(path: Path, dialect: Dialect | None = None) -> DataFile:
    """Open a text or Parquet file without reading its rows.

    Files without the suffix of Parquet are text, with a delimiter given by the dialect.
    """
    _check_path(path, dialect)
    if not path.is_file():
        raise ValueError(f"no file {path}")
    return open_parquet(path) if path.suffix.lower() == ".parquet" else open_text(path, dialect)


def open_matching(pattern: str, dialect: Dialect | None = None) -> tuple[DataFile, ...]:
    """Open the files that match a path or a pattern such as ``part-*.parquet``, sorted by name."""
    paths = sorted(map(Path, glob.glob(pattern))) if not Path(pattern).is_file() else [Path(pattern)]
    if not paths:
        raise ValueError(f"no file {pattern}")
    for path in paths:
        _check_path(path, dialect)
    return read_alike([open_file(path, dialect) for path in paths])


def read_alike(files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    """The same files with consistent types: columns that hold codes in one of them are read as text in all."""
    codes = tuple(dict.fromkeys(name for file in files if isinstance(file, TextFile) for name in file.codes))
    return tuple(file.with_codes(codes) if isinstance(file, TextFile) else file for file in files)


def refuse_folder(path: Path) -> None:
    """Refuse a folder with a message that says what to pass instead."""
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


def import_dask() -> Any:
    """The distributed module; an error says how to install it."""
    try:
        import distributed
    except ImportError:
        raise ImportError('tables on a cluster need dask: pip install "modifind[dask]"') from None
    return distributed


def read_table(pattern: str, dialect: Dialect | None = None) -> Any:
    """A Dask DataFrame of the files that match a pattern, on disk or in a store supported by fsspec.

    Text on disk is inspected first; for text elsewhere only the dialect is known.
    """
    import_dask()
    dialect = dialect or Dialect()
    parquet = pattern.rstrip(f"/{os.sep}").lower().endswith(".parquet")
    if not (parquet or dialect.separator or kind_of(Path(pattern)) in (".csv", ".tsv")):
        raise ValueError(f"the data files must end in {ENDINGS}; found {pattern!r}")
    try:
        return _read_parquet(pattern) if parquet else _read_text(pattern, dialect)
    except (OSError, ImportError, pd.errors.ParserError) as error:
        raise ValueError(f"cannot read {pattern}: {error}") from None


def _read_text(pattern: str, dialect: Dialect) -> Any:
    import dask.dataframe

    files = [open_text(path, dialect) for path in sorted(map(Path, glob.glob(pattern)))]
    if not files:
        separator = dialect.separator or ("\t" if kind_of(Path(pattern)) == ".tsv" else ",")
        options = {"sep": separator, "decimal": dialect.decimal or ".", "encoding": dialect.encoding or "utf-8"}
        return dask.dataframe.read_csv(pattern, **options)
    _check_alike(files)
    first = cast("TextFile", read_alike(files)[0])
    # Bytes can be cut at line ends only where these are one byte and not compressed.
    whole = Path(pattern).suffix.lower() in COMPRESSIONS or not first.encoding.startswith(("utf-8", "latin"))
    cut = {"blocksize": None, "compression": "infer"} if whole else {}
    return dask.dataframe.read_csv(pattern, encoding=first.encoding, **first.options, **cut)[first.names]


def _read_parquet(pattern: str) -> Any:
    """Read Parquet files; a named index becomes the last column."""
    import dask.dataframe

    files = [open_parquet(path) for path in sorted(map(Path, glob.glob(pattern))) if path.is_file()]
    _check_alike(files)
    if any(file.counted for file in files):
        raise ValueError(f"{pattern} has an index that only counts rows, {listed(files[0].counted)}; leave --dask out")
    frame = dask.dataframe.read_parquet(pattern, index=False)
    if not files:
        return frame[[name for name in frame.columns if not re.fullmatch(r"__index_level_\d+__", name)]]
    stored = files[0].stored
    return frame[list(stored.values())].rename(columns={field: name for name, field in stored.items()})


def _check_alike(files: Sequence[DataFile]) -> None:
    """Refuse files with different columns, because Dask reads all of them like the first."""
    for first, file in product(files[:1], files[1:]):
        if absent := [name for name in first.names if name not in file.names]:
            raise ValueError(f"{file.path} has no column {listed(absent)}, which {first.path} has")
        if not (isinstance(first, TextFile) and isinstance(file, TextFile)):
            continue
        if (file.header, file.encoding) != (first.header, first.encoding):
            raise ValueError(f"{file.path} and {first.path} differ in the order of their columns or in their encoding")
