"""Rows of a table in pieces with their scores, and columns of them: as observed, or resampled.

Resampled values follow from the seed, the feature, the number of the resample and the number of the row, so that they
do not depend on how the table is cut and who works on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.data.pieces import Block, Piece, Schema
from modifind.data.row_plan import RowPlan, row_uniforms, row_words
from modifind.nuisance.conditional import ConditionalRule
from modifind.nuisance.conditional.grid import quantiles_of_rows
from modifind.nuisance.propensity.scores import FittedPropensity
from modifind.statistics.contract import Column

BLOCK_ROWS = 8192
MARGIN = 3.0  # bandwidths beyond the range of a feature that resampled values may reach
OBSERVED = 0  # number of the column as it is; resamples are counted from 1


@dataclass(frozen=True)
class Scored:
    """Rows that have been read, with their folds for every repeat of the cross-fitting and their scores."""

    block: Block
    folds: list[NDArray[np.int64]]
    propensity: FittedPropensity


@dataclass(frozen=True)
class Scoring:
    """How pieces are read, and their rows scored.

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
    cluster_folds: tuple[NDArray[np.int64], ...] = ()

    def blocks(self, piece: Piece) -> Iterator[Scored]:
        """The rows of a piece, some at a time."""
        for start in range(0, len(piece.X), BLOCK_ROWS):
            part = piece.take(slice(start, start + BLOCK_ROWS))
            block = self.schema.read(replace(part, start=piece.start + start))
            folds = self.rows.folds(block.numbers)
            if block.clusters is not None:  # rows of a cluster share a fold
                folds = [own[block.clusters] for own in self.cluster_folds]
            known = block.table, block.treatment, folds[0], block.scores, block.weights
            yield Scored(block, folds, self.propensity.at(*known))


@dataclass(frozen=True)
class Measured:
    """How the columns of one feature are measured.

    Attributes
    ----------
    feature, n_levels, bandwidth, limits
        As of `Column`.
    rule : ConditionalRule, optional
        Distribution that it is resampled from; without one it is measured as it is, by the scores of the rows.
    key : int
        Random key of its resamples.
    follows : bool
        Whether scores follow resampled values.
    profile : array, optional
        Values that scores along it are a table of.
    """

    feature: int
    n_levels: int
    bandwidth: float
    limits: tuple[float, float] | None
    rule: ConditionalRule | None = None
    key: int = 0
    follows: bool = False
    profile: Array | None = None

    def resampled(self, rule: ConditionalRule, key: int, *, follows: bool, profile: Array | None) -> Measured:
        """The same for resampled columns too, whose values reach a little further."""
        limits = None
        if self.limits is not None:
            limits = self.limits[0] - MARGIN * self.bandwidth, self.limits[1] + MARGIN * self.bandwidth
        return replace(self, limits=limits, rule=rule, key=key, follows=follows, profile=profile)

    def columns(self, rows: Scored, numbers: list[int]) -> Iterator[Column]:
        """The column as it is and resampled ones, by their numbers, for some rows."""
        table, scores = rows.block.table, rows.propensity.scores
        profile = rows.propensity.profile(self.feature, values=self.profile) if self.follows else None
        for values in self._values(rows, numbers):
            followed = scores if profile is None else profile(values)
            yield Column(self.feature, values, followed, table.n_levels(self.feature), self.bandwidth, self.limits)

    def _values(self, rows: Scored, numbers: list[int]) -> Iterator[Array]:
        block = rows.block
        drawn: Iterator[Array] = iter(())
        resamples = [number for number in numbers if number != OBSERVED]
        if self.rule is not None and resamples:
            conditional = self.rule.conditional(block.table, block.treatment, rows.folds[0])
            keys = tuple(row_words(np.array(resamples), self.key).tolist())
            values = quantiles_of_rows(conditional, row_uniforms(block.numbers, keys).T)
            drawn = iter(values if self.limits is None or self.n_levels else np.clip(values, *self.limits))
        for number in numbers:
            yield block.table.values[:, self.feature] if number == OBSERVED else next(drawn)
