"""Passes over the pieces of a table: a first one that summarises columns and samples rows, and passes that add sums.

Digests show whether the rows are those of an earlier run, and rows are scored block by block.
"""

from __future__ import annotations

import hashlib
import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from itertools import islice
from typing import Any, Protocol

import numpy as np
import pandas as pd
from joblib import delayed
from numpy.typing import NDArray

from modifind._system import one_thread
from modifind._typing import Ints
from modifind._workers import Progress, results_of
from modifind.data.clusters import RowPlan, generous_limit
from modifind.data.features import FeatureTable
from modifind.data.missing import DroppedRows
from modifind.data.schema import Schema
from modifind.data.sources import Block, FilteredRows, MappedRows, Piece, Source, joined
from modifind.data.summary import Summary
from modifind.nuisance.propensity.scores import FittedPropensity
from modifind.statistics.contract import Nuisances

SIZE = 16


def digest(*texts: bytes) -> str:
    """Hexadecimal digest of bytes.

    Examples
    --------
    >>> digest(b"age") == digest(b"age"), digest(b"age") == digest(b"sex")
    (True, False)
    """
    hasher = hashlib.blake2b(digest_size=SIZE)
    for text in texts:
        hasher.update(len(text).to_bytes(8, "little"))
        hasher.update(text)
    return hasher.hexdigest()


def table_digests(table: FeatureTable) -> dict[str, str]:
    """A digest of every column: its kind, its labels and its values."""
    digests = {}
    for m, name in enumerate(table.names):
        labels = json.dumps([[type(label).__name__, str(label)] for label in table.categories[m] or ()])
        values = np.ascontiguousarray(table.values[:, m]).tobytes()
        digests[name] = digest(table.kind(m).encode(), labels.encode(), values)
    return digests


def row_digests(**rows: Any) -> dict[str, str]:
    """A digest of every per-row argument; None is left out.

    Examples
    --------
    >>> list(row_digests(y=[1.0, 2.0], treatment=["a", "b"], propensity=None))
    ['y', 'treatment']
    """
    return {name: digest(_row_bytes(values)) for name, values in rows.items() if values is not None}


def _row_bytes(values: Any) -> bytes:
    """Bytes that represent the values, whatever their type."""
    column = values if isinstance(values, pd.Series) else pd.Series(np.asarray(values).ravel())
    return pd.util.hash_pandas_object(column, index=False).to_numpy(dtype="<u8").tobytes()


def piece_digests(piece: Piece) -> dict[str, dict[str, str]]:
    """A digest of every column of a piece, and of every per-row argument."""
    rows = {field.name: getattr(piece, field.name) for field in fields(piece)}
    return {
        "columns": row_digests(**{str(name): piece.X[name] for name in piece.X.columns}),
        "rows": row_digests(**{name: column for name, column in rows.items() if isinstance(column, pd.Series)}),
    }


def joined_digests(pieces: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Digests of columns from those of their pieces, which depend on how the table is divided.

    Examples
    --------
    >>> whole, halves = [row_digests(y=[1, 2])], [row_digests(y=[1]), row_digests(y=[2])]
    >>> joined_digests(halves) == joined_digests(halves), joined_digests(whole) == joined_digests(halves)
    (True, False)
    """
    names = dict.fromkeys(name for digests in pieces for name in digests)
    return {name: digest(*(digests[name].encode() for digests in pieces if name in digests)) for name in names}


@dataclass(frozen=True)
class FirstPassSums:
    """Result of the first pass: a summary of the columns, the sampled rows and, if requested, digests."""

    summary: Summary
    parts: tuple[tuple[Ints, Piece], ...]
    digests: tuple[dict[str, dict[str, str]], ...] = ()

    @classmethod
    def of_piece(
        cls, piece: Piece, rows: RowPlan, discrete_features: Any, *, digests: bool = False, whole: bool = False
    ) -> FirstPassSums:
        """Summarise one piece, or a whole table, and keep its sampled rows."""
        chosen = rows.sampled(piece.numbers)
        sampled = (piece.numbers[chosen], piece.some(chosen))
        summary = Summary.of(piece, discrete_features, whole=whole)
        return cls(summary, (sampled,), (piece_digests(piece),) if digests else ())

    def __add__(self, other: FirstPassSums) -> FirstPassSums:
        """Merge with the results for other rows."""
        return FirstPassSums(self.summary + other.summary, self.parts + other.parts, self.digests + other.digests)

    @property
    def n_sampled(self) -> int:
        """Number of rows kept."""
        return sum(numbers.size for numbers, _ in self.parts)

    def pruned(self, rows: RowPlan, n_sample: int) -> tuple[FirstPassSums, RowPlan]:
        """Keep the rows with the `n_sample` smallest random words; also the plan with that limit."""
        if self.n_sampled <= n_sample:
            return self, rows
        words = np.concatenate([rows.words(numbers) for numbers, _ in self.parts])
        rows = rows.limited(int(np.partition(words, n_sample - 1)[n_sample - 1]))
        kept = []
        for numbers, piece in self.parts:
            chosen = rows.sampled(numbers)
            kept.append((numbers[chosen], piece.take(chosen)))
        return replace(self, parts=tuple(kept)), rows

    def sample(self) -> tuple[Ints, Piece]:
        """The rows kept, in order, with their row numbers."""
        numbers, pieces = zip(*((numbers, piece) for numbers, piece in self.parts if numbers.size), strict=True)
        if len(pieces) == 1:
            return numbers[0], replace(pieces[0], start=0)
        return np.concatenate(numbers), joined(list(pieces))


class TablePieces(Protocol):
    """Interface of a table in pieces and the workers that process them."""

    @property
    def dropped(self) -> DroppedRows:
        """Rows dropped for missing values so far."""

    def look(self, rows: RowPlan, discrete_features: Any, n_sample: int) -> tuple[FirstPassSums, RowPlan]:
        """Summarise every piece; the sample has at most `n_sample` rows."""

    def observed(self, rule: Callable[[Piece], Piece]) -> TablePieces:
        """Apply a rule for rows to every piece; the resulting rows are renumbered."""

    def sums(self, work: RowPass, n_rows: int, advance: Progress, *, saved: bool = True) -> Any:
        """Sums of a pass over all pieces, added in order; `saved` says whether a checkpoint keeps them."""


class NullCheckpoint:
    """Stands in for a checkpoint and saves nothing.

    Attributes
    ----------
    notes : list of str
        What the user should be warned of.
    """

    wants_digests = False

    def __init__(self) -> None:
        self.notes: list[str] = []

    def open(self, pieces: Sequence[Mapping[str, Mapping[str, str]]]) -> None:
        """There is nothing to continue."""

    def load(self) -> Any:
        """There are no saved sums."""

    def save(self, n_pieces: int, sums: Any, *, now: bool = False) -> None:
        """Discard the sums."""


@dataclass(frozen=True)
class LocalPieces:
    """Pieces of a source, processed on this machine or any joblib backend.

    With a checkpoint the sums are saved from time to time, and an interrupted pass continues from there. A `whole`
    source has all rows of a table in memory in one piece.
    """

    source: Source
    n_jobs: int | None = None
    checkpoint: NullCheckpoint = field(default_factory=NullCheckpoint)
    whole: bool = False

    @property
    def dropped(self) -> DroppedRows:
        """Rows dropped for missing values so far."""
        return self.source.dropped if isinstance(self.source, FilteredRows) else DroppedRows()

    def observed(self, rule: Callable[[Piece], Piece]) -> LocalPieces:
        """Apply a rule for rows to every piece; the resulting rows are renumbered."""
        return replace(self, source=MappedRows(self.source, rule))

    def look(self, rows: RowPlan, discrete_features: Any, n_sample: int) -> tuple[FirstPassSums, RowPlan]:
        """Summarise every piece; the sample is pruned on the way if the number of rows is unknown."""
        if self.source.n_rows is not None:
            rows = rows.limited(generous_limit(self.source.n_rows, n_sample))
        first: FirstPassSums | None = None
        for piece in self._filled():
            seen = 0 if first is None else first.summary.n_rows
            if piece.start != seen:
                raise ValueError(f"a piece of the source starts at row {piece.start}, after {seen} rows")
            digests = self.checkpoint.wants_digests and not self.whole
            more = FirstPassSums.of_piece(piece, rows, discrete_features, digests=digests, whole=self.whole)
            first = more if first is None else first + more
            if first.n_sampled > 2 * n_sample:
                first, rows = first.pruned(rows, n_sample)
        if first is None or not first.summary.n_rows:
            raise ValueError("the table has no rows")
        if self.source.n_rows not in (None, first.summary.n_rows):
            raise ValueError(f"the source has {first.summary.n_rows} rows but says {self.source.n_rows}")
        if first.summary.n_rows > n_sample:
            self.checkpoint.open(first.digests)
        return first.pruned(rows, n_sample)

    def sums(self, work: RowPass, n_rows: int, advance: Progress, *, saved: bool = True) -> Any:
        """Sums over all rows; pieces are read here and handed to workers as they become free."""

        def parts(n_done: int) -> Generator[Any, None, None]:
            jobs = (delayed(work.sums)(piece) for piece in islice(self._counted(n_rows), n_done, None))
            return results_of(jobs, self.n_jobs, shared=False, doing="adding up rows")

        return add_up(parts, self.checkpoint if saved else NullCheckpoint(), n_rows, advance)

    def _filled(self) -> Iterator[Piece]:
        """The non-empty pieces."""
        return (piece for piece in self.source.pieces() if len(piece.X))

    def _counted(self, n_rows: int) -> Iterator[Piece]:
        n_read = 0
        for piece in self._filled():
            n_read += len(piece.X)
            yield piece
        check_unchanged(n_rows, n_read)


def add_up(
    parts: Callable[[int], Generator[Any, None, None]],
    checkpoint: NullCheckpoint,
    n_rows: int,
    advance: Progress,
) -> Any:
    """Sum all parts of a table in order, continuing from a checkpoint.

    `parts` takes the number of parts already saved and yields the sums of the others.
    """
    saved = checkpoint.load()
    total, n_done = (None, 0) if saved is None else (saved.sums, saved.n_pieces)
    try:
        advance(0 if total is None else total.n_rows, n_rows)
        with closing(parts(n_done)) as added:
            for sums in added:
                total, n_done = sums if total is None else total + sums, n_done + 1
                checkpoint.save(n_done, total)
                advance(total.n_rows, n_rows)
    finally:
        if total is not None:  # also when Ctrl-C ends the pass
            checkpoint.save(n_done, total, now=True)
    assert total is not None
    return total


def check_unchanged(n_rows: int, n_read: int) -> None:
    """Refuse a table whose number of rows has changed since the first pass."""
    if n_read != n_rows:
        raise ValueError(f"the table had {n_rows} rows at first and {n_read} when read again; it must not change")


BLOCK_ROWS = 8192
NO_SEED = np.random.SeedSequence(0)  # nothing is random once a statistic is prepared


@dataclass(frozen=True)
class ScoredRows:
    """Encoded rows with scores, clusters and folds.

    Attributes
    ----------
    block : Block
        The rows.
    folds : tuple of int arrays
        Fold of each row, for every repeat of the cross-fitting.
    propensity : FittedPropensity
        Scores of the rows, also with other values of a feature.
    sampled : array of bool of shape (n,)
        Which of them models were fitted to.
    n_folds, n_clusters : int
        Number of folds, and of clusters of all rows.
    """

    block: Block
    folds: tuple[Ints, ...]
    propensity: FittedPropensity
    sampled: NDArray[np.bool_]
    n_folds: int
    n_clusters: int

    @property
    def nuisances(self) -> Nuisances:
        """The rows as input of a prepared statistic."""
        block = self.block
        known = self.propensity.scores, NO_SEED, self.folds, block.weights, block.clusters
        return Nuisances(block.table, block.y, block.treatment, *known)

    @property
    def freedom(self) -> float:
        """Degrees of freedom given the weights; infinite if uniform."""
        return self.block.weights.freedom

    def part(self, rows: NDArray[np.intp]) -> ScoredRows:
        """A subset of the rows, with clusters renumbered."""
        block, table = self.block, self.block.table.part(rows)
        arms, weights, clusters = block.treatment[rows], block.weights[rows], block.clusters[rows]
        scores = None if block.scores is None else block.scores[rows]
        folds = tuple(fold[rows] for fold in self.folds)
        propensity = self.propensity.at(table, arms, folds[0], self.propensity.raw[rows], weights)
        chosen = Block(0, table, block.y[rows], arms, scores, weights, clusters)
        return ScoredRows(chosen, folds, propensity, self.sampled[rows], self.n_folds, clusters.count)


@dataclass(frozen=True)
class Scoring:
    """How pieces are encoded and their rows scored.

    Attributes
    ----------
    schema : Schema
        How pieces are read.
    rows : RowPlan
        Sample and folds.
    propensity : FittedPropensity
        Models of the treatment, without rows.
    cluster_folds : tuple of int arrays
        Fold of every cluster, for each repeat of the cross-fitting.
    """

    schema: Schema
    rows: RowPlan
    propensity: FittedPropensity
    cluster_folds: tuple[Ints, ...] = ()

    def blocks(self, piece: Piece) -> Iterator[ScoredRows]:
        """Rows of a piece in blocks."""
        for start in range(0, len(piece.X), BLOCK_ROWS):
            rows = piece.take(slice(start, start + BLOCK_ROWS))
            block = self.schema.read(replace(rows, start=piece.start + start))
            folds = tuple(self.rows.folds(block.numbers))
            if not block.clusters.of_rows:  # rows of a cluster share a fold
                folds = tuple(of_clusters[block.clusters.codes] for of_clusters in self.cluster_folds)
            scores = self.propensity.at(block.table, block.treatment, folds[0], block.scores, block.weights)
            sampled = self.rows.sampled(block.numbers)
            yield ScoredRows(block, folds, scores, sampled, self.rows.n_folds, self.schema.n_clusters)


@dataclass(frozen=True)
class RowPass(ABC):
    """One pass over the rows of a longer table that adds up sums of any kind.

    Attributes
    ----------
    scoring : Scoring
        How pieces are read, and their rows scored.
    """

    scoring: Scoring

    @abstractmethod
    def block_sums(self, rows: ScoredRows) -> Any:
        """Sums over a block of rows, which can be added to those of other blocks."""

    def sums(self, piece: Piece) -> Any:
        """Sums over the rows of a piece, in one thread and in blocks that limit memory."""
        with one_thread():
            return reduce(operator.add, map(self.block_sums, self.scoring.blocks(piece)))
