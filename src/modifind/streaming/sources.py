"""Tables that come in pieces: a frame in memory, or files larger than memory."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from modifind.columns.inputs import as_column, check_same_order
from modifind.columns.missing import Dropped, complete_rows
from modifind.csv_files import check_header, reason
from modifind.propensity import is_known
from modifind.streaming.schema import Piece

PIECE_ROWS = 65_536
SUFFIXES = (".csv", ".parquet")


class Source(Protocol):
    """Rows in pieces, as often as asked for, in the same order every time."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows, where it is known beforehand."""

    def pieces(self) -> Iterator[Piece]:
        """The pieces, one after the other."""


@dataclass(frozen=True)
class FrameSource:
    """A table in memory."""

    X: pd.DataFrame
    y: pd.Series[Any]
    treatment: pd.Series[Any]
    scores: pd.Series[Any] | None = None
    piece_rows: int = PIECE_ROWS

    @classmethod
    def of(cls, X: pd.DataFrame, y: Any, treatment: Any, propensity: Any = None) -> FrameSource:
        """From what the user passed; a propensity of one score per row comes along."""
        if y is None or treatment is None:
            raise ValueError("y and treatment are required: the outcome and one value of two for each row")
        check_same_order(X, y=y, treatment=treatment)
        columns = {"y": as_column(y, "y"), "treatment": as_column(treatment, "treatment")}
        if has_row_scores(propensity):
            columns["propensity"] = as_column(getattr(propensity, "estimator", propensity), "propensity")
        for name, column in columns.items():
            if len(column) != len(X):
                raise ValueError(f"{name} has {len(column)} rows but X has {len(X)}")
        return cls(X, columns["y"], columns["treatment"], columns.get("propensity"))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.X)

    def pieces(self) -> Iterator[Piece]:
        """Slices of the rows."""
        whole = Piece(0, self.X, self.y, self.treatment, self.scores)
        for start in range(0, self.n_rows, self.piece_rows):
            part = whole.take(slice(start, start + self.piece_rows))
            yield Piece(start, part.X, part.y, part.treatment, part.scores)


class CompleteRows:
    """A source without the rows that have a missing feature, outcome or treatment.

    Rows are numbered as if the others had never been there.

    Parameters
    ----------
    source : Source
        All rows.
    what : {"rows", "outcomes"}
        Whether all columns must have a value or the outcome alone.

    Attributes
    ----------
    dropped : Dropped
        A count of the rows left out, after the pieces have been read.
    """

    n_rows = None

    def __init__(self, source: Source, what: str = "rows") -> None:
        self.source = source
        self.what = what
        self.dropped = Dropped()

    def pieces(self) -> Iterator[Piece]:
        """The complete rows of every piece."""
        self.dropped, start = Dropped(), 0
        for piece in self.source.pieces():
            own, dropped = complete_piece(piece, start, self.what)
            self.dropped = self.dropped + dropped
            start += len(own.X)
            yield own
        self.dropped.refuse_all()


def complete_piece(piece: Piece, start: int, what: str = "rows") -> tuple[Piece, Dropped]:
    """The complete rows of a piece, numbered from `start` on, and a count of the others."""
    kept, dropped = complete_rows(piece.X, piece.y, piece.treatment, what=what)
    return replace(piece.take(kept), start=start), dropped


@dataclass(frozen=True)
class FileSource:
    """CSV or Parquet files, read in batches.

    Attributes
    ----------
    paths : tuple of Path
        Files with the same columns; their rows follow one another.
    features : tuple of str
        Columns that are features.
    outcome, treatment : str
        The other columns.
    scores : str, optional
        Column of known propensity scores.
    n_rows : int, optional
        Number of rows, which Parquet files tell.
    """

    paths: tuple[Path, ...]
    features: tuple[str, ...]
    outcome: str
    treatment: str
    scores: str | None = None
    n_rows: int | None = None
    piece_rows: int = PIECE_ROWS

    def pieces(self) -> Iterator[Piece]:
        """Batches of rows; only the columns asked for are read."""
        used = list(dict.fromkeys([*self.features, self.outcome, self.treatment, *filter(None, [self.scores])]))
        start = 0
        for path in self.paths:
            for frame in _batches(path, used, self.piece_rows):
                yield self.piece(start, frame)
                start += len(frame)

    def piece(self, start: int, frame: pd.DataFrame) -> Piece:
        """A frame of rows as a piece."""
        scores = None if self.scores is None else frame[self.scores]
        return Piece(start, frame[list(self.features)], frame[self.outcome], frame[self.treatment], scores)


def _batches(path: Path, columns: list[str], n_rows: int) -> Iterator[pd.DataFrame]:
    try:
        if path.suffix.lower() == ".csv":
            # All columns, because pandas overlooks rows of too many fields where it is told which to read.
            with pd.read_csv(path, chunksize=n_rows) as reader:
                for frame in reader:
                    yield frame[columns]
        else:
            for batch in _parquet_file(path).iter_batches(n_rows, columns=columns):
                yield batch.to_pandas()
    except (ValueError, OSError) as error:
        raise ValueError(f"cannot read {path}: {reason(error)}") from None


def _parquet_file(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ValueError('reading Parquet needs pyarrow: pip install "modifind[parquet]"') from None
    try:
        return pyarrow.parquet.ParquetFile(path, pre_buffer=False)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None


def find_files(pattern: str) -> tuple[Path, ...]:
    """The files that a path or a pattern such as ``part-*.parquet`` names, in the order of their names."""
    found = sorted(map(Path, glob.glob(pattern))) if not Path(pattern).is_file() else [Path(pattern)]
    if not found:
        raise ValueError(f"no file {pattern}")
    wrong = [path for path in found if path.suffix.lower() not in SUFFIXES or not path.is_file()]
    if wrong:
        raise ValueError(f"data files must end in {' or '.join(SUFFIXES)}; found {str(wrong[0])!r}")
    return tuple(found)


def column_names(path: Path) -> list[str]:
    """Names of the columns of a file."""
    if path.suffix.lower() == ".csv":
        check_header(path)
        return [str(name) for name in pd.read_csv(path, nrows=0).columns]
    return [str(name) for name in _parquet_file(path).schema_arrow.names]


def open_files(
    pattern: str, features: Sequence[str], outcome: str, treatment: str, scores: str | None = None
) -> FileSource:
    """Files as a source of rows.

    Parameters
    ----------
    pattern : str
        A CSV or Parquet file, or a pattern that several match.
    features : sequence of str
        Columns that are features.
    outcome, treatment : str
        The other columns.
    scores : str, optional
        Column of known propensity scores.

    Returns
    -------
    FileSource
    """
    paths = find_files(pattern)
    used = [*features, outcome, treatment, *filter(None, [scores])]
    n_rows = 0
    for path in paths:
        missing = sorted(set(used) - set(column_names(path)))
        if missing:
            raise ValueError(f"{path} has no column {', '.join(map(repr, missing))}")
        if path.suffix.lower() == ".parquet":
            n_rows += int(_parquet_file(path).metadata.num_rows)
    known = all(path.suffix.lower() == ".parquet" for path in paths)
    return FileSource(paths, tuple(features), outcome, treatment, scores, n_rows if known else None)


def has_row_scores(propensity: Any) -> bool:
    """Whether a propensity, or the `PropensityModel` around it, is one known score per row."""
    return is_known(propensity) and np.ndim(getattr(propensity, "estimator", propensity)) > 0
