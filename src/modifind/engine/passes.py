"""Passes over the pieces of a table: one that looks at the columns and keeps a sample, one that adds up sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from joblib import delayed
from numpy.typing import NDArray

from modifind._workers import results_of
from modifind.data.missing import Dropped
from modifind.data.pieces import Piece, Summary, joined
from modifind.data.row_plan import RowPlan, generous_limit
from modifind.data.sources import KeptRows, Source
from modifind.engine.plan import Plan, Sums
from modifind.engine.progress import Progress

if TYPE_CHECKING:
    from modifind.engine.checkpoint import PassCheckpoint


@dataclass(frozen=True)
class Look:
    """What one pass over the pieces finds: a summary of the columns, and the sample."""

    summary: Summary
    parts: tuple[tuple[NDArray[np.int64], Piece], ...]

    @classmethod
    def of(cls, piece: Piece, rows: RowPlan, discrete_features: Any) -> Look:
        """Look at one piece and keep the rows of it that are in the sample."""
        chosen = rows.sampled(piece.numbers)
        return cls(Summary.of(piece, discrete_features), ((piece.numbers[chosen], piece.take(chosen)),))

    def __add__(self, other: Look) -> Look:
        """What is found in both sets of rows."""
        return Look(self.summary + other.summary, self.parts + other.parts)

    @property
    def n_sampled(self) -> int:
        """Number of rows kept."""
        return sum(numbers.size for numbers, _ in self.parts)

    def pruned(self, rows: RowPlan, n_sample: int) -> tuple[Look, RowPlan]:
        """Only the rows of the `n_sample` smallest words, and the plan with that limit."""
        if self.n_sampled <= n_sample:
            return self, rows
        words = np.concatenate([rows.words(numbers) for numbers, _ in self.parts])
        rows = rows.limited(int(np.partition(words, n_sample - 1)[n_sample - 1]))
        kept = []
        for numbers, piece in self.parts:
            chosen = rows.sampled(numbers)
            kept.append((numbers[chosen], piece.take(chosen)))
        return Look(self.summary, tuple(kept)), rows

    def sample(self) -> tuple[NDArray[np.int64], Piece]:
        """The rows kept, in their order, with their numbers."""
        parts = [part for part in self.parts if part[0].size]
        return np.concatenate([numbers for numbers, _ in parts]), joined([piece for _, piece in parts])


class Pieces(Protocol):
    """A table in pieces and those who work on them."""

    @property
    def dropped(self) -> Dropped:
        """Rows left out for missing values, as far as they have been read."""

    def look(self, rows: RowPlan, discrete_features: Any, n_sample: int) -> tuple[Look, RowPlan]:
        """Look at every piece; the sample has at most `n_sample` rows, all of them if they are so few."""

    def sums(self, plan: Plan, n_rows: int, advance: Progress) -> Sums:
        """Sums over all rows, in the order of the pieces."""


class Unsaved:
    """A pass that is not saved: the checkpoint of a run without one."""

    def see(self, piece: Piece) -> None:
        """The next piece, when the table is read for the first time."""

    def open(self) -> None:
        """Continue a run; there is none."""

    def load(self) -> None:
        """The sums on file; there are none."""

    def save(self, n_pieces: int, sums: Sums, *, now: bool = False) -> None:
        """Save the sums so far, nowhere."""


@dataclass(frozen=True)
class LocalPieces:
    """Pieces of a source, worked on by the processes of this machine or any other backend of joblib.

    With a checkpoint the sums over rows are saved now and then, and a pass that was stopped goes on from there.
    """

    source: Source
    n_jobs: int | None = None
    checkpoint: PassCheckpoint | Unsaved = field(default_factory=Unsaved)

    @property
    def dropped(self) -> Dropped:
        """Rows left out for missing values, as far as they have been read."""
        return self.source.dropped if isinstance(self.source, KeptRows) else Dropped()

    def look(self, rows: RowPlan, discrete_features: Any, n_sample: int) -> tuple[Look, RowPlan]:
        """Look at every piece; the sample is pruned on the way where the number of rows is not known."""
        if self.source.n_rows is not None:
            rows = rows.limited(generous_limit(self.source.n_rows, n_sample))
        found: Look | None = None
        for piece in self._filled():
            seen = 0 if found is None else found.summary.n_rows
            if piece.start != seen:
                raise ValueError(f"a piece of the source starts at row {piece.start}, after {seen} rows")
            own = Look.of(piece, rows, discrete_features)
            self.checkpoint.see(piece)
            found = own if found is None else found + own
            if found.n_sampled > 2 * n_sample:
                found, rows = found.pruned(rows, n_sample)
        if found is None or not found.summary.n_rows:
            raise ValueError("the table has no rows")
        if self.source.n_rows not in (None, found.summary.n_rows):
            raise ValueError(f"the source has {found.summary.n_rows} rows but says {self.source.n_rows}")
        if found.summary.n_rows > n_sample:
            self.checkpoint.open()
        return found.pruned(rows, n_sample)

    def sums(self, plan: Plan, n_rows: int, advance: Progress) -> Sums:
        """Sums over all rows; pieces are read here and handed to the workers as they come free."""
        saved = self.checkpoint.load()
        total, n_pieces = (None, 0) if saved is None else (saved.sums, saved.n_pieces)
        # Sums are added in the order of the pieces, so those on file are the first and none is added twice.
        jobs = (delayed(plan.sums)(piece) for piece in islice(self._counted(n_rows), n_pieces, None))
        try:
            advance(_n_rows(total), n_rows)
            for own in results_of(jobs, self.n_jobs, shared=False, doing="adding up rows"):
                total, n_pieces = own if total is None else total + own, n_pieces + 1
                self.checkpoint.save(n_pieces, total)
                advance(_n_rows(total), n_rows)
        finally:
            if total is not None:  # also when Ctrl-C ends the pass
                self.checkpoint.save(n_pieces, total, now=True)
        assert total is not None
        return total

    def _filled(self) -> Iterator[Piece]:
        """The pieces that hold rows."""
        return (piece for piece in self.source.pieces() if len(piece.X))

    def _counted(self, n_rows: int) -> Iterator[Piece]:
        found = 0
        for piece in self._filled():
            found += len(piece.X)
            yield piece
        check_unchanged(n_rows, found)


def _n_rows(sums: Sums | None) -> int:
    return 0 if sums is None else int(sums.overlap.n_rows.sum())


def check_unchanged(n_rows: int, found: int) -> None:
    """Refuse a table that has another number of rows than when it was first read."""
    if found != n_rows:
        raise ValueError(f"the table had {n_rows} rows at first and {found} when read again; it must not change")
