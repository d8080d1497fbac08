"""Sources of tables in pieces, in memory or on disk; the pieces are raw (`Piece`) or encoded (`Block`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Protocol

import numpy as np
import pandas as pd

from modifind._typing import Array, Bools, Ints
from modifind.data.clusters import Clusters, label_texts, stratum_name
from modifind.data.containers import as_column, row_scores
from modifind.data.features import FeatureTable
from modifind.data.files.opening import DataFile, open_matching, read_alike
from modifind.data.files.text import Dialect
from modifind.data.missing import DroppedRows, complete_rows
from modifind.data.treatment import in_arms
from modifind.data.weights import Weights, weight_numbers
from modifind.data.words import counted, listed, meant, repeated

OPTIONAL_COLUMNS = (
    "propensity",
    "sample_weight",
    "clusters",
    "strata",
)  # what rows may have beside features, outcome, treatment


@dataclass(frozen=True)
class Piece:
    """Raw rows: features, outcome, treatment and optional per-row arguments.

    Attributes
    ----------
    start : int
        Number of the first row in the whole table.
    propensity, sample_weight, clusters, strata : Series, optional
        Known scores, weights, labels of clusters and of strata.
    """

    start: int
    X: pd.DataFrame
    y: pd.Series[Any]
    treatment: pd.Series[Any]
    propensity: pd.Series[Any] | None = None
    sample_weight: pd.Series[Any] | None = None
    clusters: pd.Series[Any] | None = None
    strata: pd.Series[Any] | None = None

    @property
    def more(self) -> dict[str, pd.Series[Any]]:
        """Per-row arguments besides features, outcome and treatment."""
        columns = {name: getattr(self, name) for name in OPTIONAL_COLUMNS}
        return {name: column for name, column in columns.items() if column is not None}

    @cached_property
    def conditioned(self) -> pd.DataFrame:
        """Columns that models condition on: the features and, with strata, the stratum as the last column."""
        if self.strata is None:
            return self.X
        return pd.concat([self.X, label_texts(self.strata).rename(stratum_name(self.X.columns))], axis=1)

    def take(self, rows: Bools | slice) -> Piece:
        """A subset of the rows; `start` is kept."""
        some = {name: column.iloc[rows] for name, column in self.more.items()}
        return Piece(self.start, self.X.iloc[rows], self.y.iloc[rows], self.treatment.iloc[rows], **some)

    def some(self, rows: Bools) -> Piece:
        """Rows selected by a mask; the piece itself if all are."""
        return self if rows.all() else self.take(rows)

    @property
    def numbers(self) -> Ints:
        """Row numbers in the whole table."""
        return np.arange(self.start, self.start + len(self.X))


def joined(pieces: Sequence[Piece]) -> Piece:
    """Concatenate pieces into one that starts at 0."""
    every: list[dict[str, Any]] = [
        {"X": piece.X, "y": piece.y, "treatment": piece.treatment, **piece.more} for piece in pieces
    ]
    return Piece(0, **{name: pd.concat([columns[name] for columns in every], ignore_index=True) for name in every[0]})


@dataclass(frozen=True)
class Block:
    """Encoded rows: numbers and codes.

    Attributes
    ----------
    start : int
        Number of the first row in the whole table.
    scores : array of shape (n,), optional
        Known propensity scores, those of the strata among them.
    weights : Weights
        How much each row counts, of mean 1 over the sample.
    clusters : Clusters
        Which rows belong together, by codes of all rows.
    """

    start: int
    table: FeatureTable
    y: Array
    treatment: Ints
    scores: Array | None
    weights: Weights
    clusters: Clusters

    @property
    def numbers(self) -> Ints:
        """Row numbers in the whole table."""
        return np.arange(self.start, self.start + self.y.size)


PIECE_ROWS = 65_536


class Source(Protocol):
    """Rows in pieces that can be iterated repeatedly, always in the same order."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows, if known in advance."""

    def pieces(self) -> Iterator[Piece]:
        """Iterate over the pieces."""


@dataclass(frozen=True)
class FrameSource:
    """A table in memory."""

    X: pd.DataFrame
    y: pd.Series[Any]
    treatment: pd.Series[Any]
    more: Mapping[str, pd.Series[Any]] = field(default_factory=dict)
    piece_rows: int = PIECE_ROWS

    @classmethod
    def of(
        cls, X: pd.DataFrame, y: Any, treatment: Any, propensity: Any = None, per_row: Mapping[str, Any] | None = None
    ) -> FrameSource:
        """Make a source from the arguments of `fit`, including per-row scores, weights, clusters and strata."""
        if y is None:
            raise ValueError("y is required: the outcome of each row")
        if treatment is None:
            raise ValueError("treatment is required: pass treatment=, one of two values per row")
        scores = row_scores(propensity)
        if scores is not None and np.shape(scores) != (len(X),):
            raise ValueError(f"propensity array must have one score per row ({len(X)}); found shape {np.shape(scores)}")
        given = {"y": y, "treatment": treatment, **(per_row or {}), "propensity": scores}
        columns = {name: as_column(values, name) for name, values in given.items() if values is not None}
        for name, column in columns.items():
            if len(column) != len(X):
                raise ValueError(f"{name} has {counted(len(column), 'row')} but X has {len(X)}")
        if not X.index.equals(pd.RangeIndex(len(X))):
            X = X.reset_index(drop=True)
        return cls(X, columns.pop("y"), columns.pop("treatment"), columns)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.X)

    @property
    def whole(self) -> Piece:
        """All rows."""
        return Piece(0, self.X, self.y, self.treatment, **self.more)

    @property
    def at_once(self) -> FrameSource:
        """The same source in one piece."""
        return replace(self, piece_rows=max(self.n_rows, 1))

    def pieces(self) -> Iterator[Piece]:
        """Slices of the rows."""
        for start in range(0, self.n_rows, self.piece_rows):
            rows = slice(start, start + self.piece_rows)
            yield self.whole if self.piece_rows >= self.n_rows else replace(self.whole.take(rows), start=start)


@dataclass(frozen=True)
class RowFilter:
    """Filter of rows: those of some arms, without missing values, and with non-zero weight.

    Attributes
    ----------
    complete : {"rows", "inputs", "outcomes", ""}
        Whether all columns must have a value, all but the outcome, the outcome alone, or none, so that missing values
        are left to be refused.
    arms : tuple, optional
        Labels of the arms; None for all.
    """

    complete: str = ""
    arms: tuple[Any, ...] | None = None

    def of(self, piece: Piece, start: int) -> tuple[Piece, DroppedRows]:
        """Rows of a piece to keep, renumbered from `start`, and a count of the others."""
        sizes = [len(piece.X)]
        if self.arms is not None:
            piece = piece.some(in_arms(piece.treatment, self.arms))
        sizes.append(len(piece.X))
        if piece.sample_weight is not None:
            piece = piece.some(weight_numbers(piece.sample_weight) != 0)
        sizes.append(len(piece.X))
        dropped = DroppedRows(sizes[-1])
        if self.complete:
            complete, dropped = complete_rows(piece.X, piece.y, piece.treatment, piece.more, what=self.complete)
            piece = piece.some(complete)
        others, weightless = (before - after for before, after in pairwise(sizes))
        return replace(piece, start=start), replace(dropped, n_weightless=weightless, n_other_arms=others)


ALL_ROWS = RowFilter()


class FilteredRows:
    """A source restricted to the rows kept by a filter, renumbered consecutively.

    Parameters
    ----------
    source : Source
        All rows.
    kept : RowFilter
        Which are kept.

    Attributes
    ----------
    dropped : DroppedRows
        A count of the rows left out, after the pieces have been read.
    """

    n_rows = None

    def __init__(self, source: Source, kept: RowFilter) -> None:
        self.source = source
        self.kept = kept
        self.dropped = DroppedRows()

    def pieces(self) -> Iterator[Piece]:
        """The rows kept of every piece."""
        self.dropped, start = DroppedRows(), 0
        for piece in self.source.pieces():
            kept, dropped = self.kept.of(piece, start)
            self.dropped += dropped
            start += len(kept.X)
            yield kept
        self.dropped.refuse_all()


@dataclass(frozen=True)
class MappedRows:
    """A source whose pieces are made from those of another by a function; rows are renumbered."""

    source: Source
    function: Callable[[Piece], Piece]
    n_rows: None = None

    def pieces(self) -> Iterator[Piece]:
        """Apply the function to every piece."""
        start = 0
        for piece in self.source.pieces():
            mapped = replace(self.function(piece), start=start)
            start += len(mapped.X)
            yield mapped


@dataclass(frozen=True)
class FileSource:
    """Files of text or Parquet, read in batches.

    Attributes
    ----------
    files : tuple of DataFile
        Files that have the columns; their rows follow one another.
    features : tuple of str
        Columns that are features.
    outcome, treatment : str
        The other columns.
    more : mapping
        Columns of known scores ("propensity"), weights ("sample_weight"), clusters and strata, those that there are.
    """

    files: tuple[DataFile, ...]
    features: tuple[str, ...]
    outcome: str
    treatment: str
    more: Mapping[str, str] = field(default_factory=dict)
    piece_rows: int = PIECE_ROWS

    def __post_init__(self) -> None:
        """Refuse a missing or repeated column."""
        if twice := repeated(os.path.realpath(file.path) for file in self.files):
            raise ValueError(f"{listed(twice)} is named twice; its rows would count twice")
        for file in self.files:
            if missing := [name for name in self.columns if name not in file.names]:
                raise ValueError(f"{file.path} has no column {listed(missing)}{meant(missing[0], file.names)}")

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        return list(dict.fromkeys([*self.features, self.outcome, self.treatment, *self.more.values()]))

    @property
    def n_rows(self) -> int | None:
        """Number of rows, which only Parquet files tell."""
        known = [file.n_rows for file in self.files if file.n_rows is not None]
        return sum(known) if len(known) == len(self.files) else None

    def pieces(self) -> Iterator[Piece]:
        """Batches of rows with the requested columns only."""
        start = 0
        for file in self.files:
            for frame in file.batches(self.columns, self.piece_rows):
                yield self.piece(start, frame)
                start += len(frame)

    def piece(self, start: int, frame: pd.DataFrame) -> Piece:
        """Convert a frame of rows to a piece."""
        more = {name: frame[column] for name, column in self.more.items()}
        return Piece(start, frame[list(self.features)], frame[self.outcome], frame[self.treatment], **more)


def open_files(
    pattern: str,
    features: Sequence[str],
    outcome: str,
    treatment: str,
    more: Mapping[str, str] | None = None,
    dialect: Dialect | None = None,
) -> FileSource:
    """Open files as a source of rows.

    Parameters
    ----------
    pattern : str
        A file of text or Parquet, or a pattern that several match.
    features : sequence of str
        Columns that are features.
    outcome, treatment : str
        The other columns.
    more : mapping, optional
        Columns of known scores ("propensity"), weights ("sample_weight"), "clusters" and "strata".
    dialect : modifind.data.files.text.Dialect, optional
        How text is read: separators, decimals, letters, names of rows.

    Returns
    -------
    FileSource
    """
    return FileSource(open_matching(pattern, dialect), tuple(features), outcome, treatment, more or {})


def is_source(X: Any) -> bool:
    """Whether a table is a source of pieces; a column named pieces does not make it one."""
    return callable(getattr(X, "pieces", None))


def is_files(X: Any) -> bool:
    """Whether a table is a path, a pattern, several of them, or opened files."""
    return bool(_paths(X)) and all(isinstance(path, str | os.PathLike) or _is_open(path) for path in _paths(X))


def _paths(X: Any) -> Sequence[Any]:
    return X if isinstance(X, list | tuple) else [X]


def _is_open(file: Any) -> bool:
    return callable(getattr(file, "batches", None))


def opened_files(X: Any) -> tuple[DataFile, ...]:
    """Open the files recognised by `is_files`."""
    opened = ((path,) if _is_open(path) else open_matching(os.fspath(path)) for path in _paths(X))
    files = read_alike([*chain.from_iterable(opened)])
    refuse_more_columns(files)
    return files


def refuse_more_columns(files: Sequence[DataFile]) -> None:
    """Refuse a file with a column that the first lacks: whether it is a feature would depend on file order."""
    for file in files[1:]:
        if more := [name for name in file.names if name not in files[0].names]:
            raise ValueError(
                f"{file.path} has a column {listed(more)} that {files[0].path} lacks; all files of a table need the "
                "same columns"
            )
