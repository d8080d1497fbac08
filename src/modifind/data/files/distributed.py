"""Files as Dask DataFrames, on disk or in a store that fsspec knows."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, cast

import pandas as pd

from modifind.data.files.opening import ENDINGS, DataFile, read_alike
from modifind.data.files.parquet import open_parquet
from modifind.data.files.text import COMPRESSIONS, Dialect, TextFile, kind_of, open_text
from modifind.data.wording import listed


def import_dask() -> Any:
    """The distributed module, or what to do without it."""
    try:
        import distributed
    except ImportError:
        raise ImportError('tables on a cluster need dask: pip install "modifind[dask]"') from None
    return distributed


def read_table(pattern: str, dialect: Dialect | None = None) -> Any:
    """A Dask DataFrame of the files that a pattern names, on disk or in a store that fsspec knows.

    Text on a disk is looked at first; of text elsewhere the dialect says all that is known.
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
    """Parquet files, with an index that has a name as the last column."""
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
    """Refuse files that differ in their columns: Dask reads all of them like the first."""
    for first, file in product(files[:1], files[1:]):
        if absent := [name for name in first.names if name not in file.names]:
            raise ValueError(f"{file.path} has no column {listed(absent)}, which {first.path} has")
        if not (isinstance(first, TextFile) and isinstance(file, TextFile)):
            continue
        if (file.header, file.encoding) != (first.header, first.encoding):
            raise ValueError(f"{file.path} and {first.path} differ in the order of their columns or in their encoding")
