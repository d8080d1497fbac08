"""Parquet files, with or without the index that pandas has stored in them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from modifind.data.files.text import readable
from modifind.data.wording import listed, repeated


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file; `open_parquet` makes one.

    An index that has a name is a column like others, and one that has none is left out.

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
        """Some of the columns, so many rows at a time."""
        start = 0
        with readable(self.path):
            # A counted index is as long as the others are, so that one of them is read in any case.
            used = [self.stored[name] for name in columns if name in self.stored] or list(self.stored.values())[:1]
            for batch in _opened(self.path).iter_batches(n_rows, columns=used):
                yield self._frame(batch, columns, start)
                start += batch.num_rows

    def _frame(self, rows: Any, columns: Sequence[str], start: int) -> pd.DataFrame:
        """Rows of the file as pandas has them, types of its own included, without an index of their own."""
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
    """Look at the columns of a Parquet file."""
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
    """Names of the levels of an index that are stored row by row, and what they are called in the file."""
    shown = {column.get("field_name"): column.get("name") for column in metadata.get("columns", [])}
    levels = [level for level in metadata.get("index_columns", []) if isinstance(level, str)]
    return [(str(shown[level]), level) for level in levels if shown.get(level) is not None]


def _opened(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ValueError(f'reading {path} needs pyarrow: pip install "modifind[parquet]"') from None
    return pyarrow.parquet.ParquetFile(path, pre_buffer=False)
