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
from modifind.data.pieces import Block, Piece
from modifind.data.row_plan import RowPlan, row_uniforms, row_words
from modifind.data.schema import Schema
from modifind.nuisance.conditional import ConditionalRule
from modifind.nuisance.conditional.grid import quantiles_of_rows
from modifind.nuisance.propensity.scores import FittedPropensity
from modifind.statistics.contract import Column, Nuisances

BLOCK_ROWS = 8192
MARGIN = 3.0  # bandwidths beyond the range of a feature that resampled values may reach
NO_SEED = np.random.SeedSequence(0)  # nothing is random once a statistic is prepared
OBSERVED = 0  # number of the column as it is; resamples are counted from 1


@dataclass(frozen=True)
class ScoredRows:
    """Rows that have been read, with their scores and how they belong together.

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
    folds: tuple[NDArray[np.int64], ...]
    propensity: FittedPropensity
    sampled: NDArray[np.bool_]
    n_folds: int
    n_clusters: int

    @property
    def nuisances(self) -> Nuisances:
        """The rows as a prepared statistic takes them."""
        block = self.block
        known = self.propensity.scores, NO_SEED, self.folds, block.weights, block.clusters
        return Nuisances(block.table, block.y, block.treatment, *known)

    @property
    def freedom(self) -> float:
        """Degrees of freedom that the weights of the rows leave; infinite where rows count alike."""
        return self.block.weights.freedom

    def part(self, rows: NDArray[np.intp]) -> ScoredRows:
        """Some of the rows; clusters are numbered anew."""
        block, table = self.block, self.block.table.part(rows)
        arms, weights, clusters = block.treatment[rows], block.weights[rows], block.clusters[rows]
        scores = None if block.scores is None else block.scores[rows]
        folds = tuple(fold[rows] for fold in self.folds)
        propensity = self.propensity.at(table, arms, folds[0], self.propensity.raw[rows], weights)
        chosen = Block(0, table, block.y[rows], arms, scores, weights, clusters)
        return ScoredRows(chosen, folds, propensity, self.sampled[rows], self.n_folds, clusters.count)


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

    def blocks(self, piece: Piece) -> Iterator[ScoredRows]:
        """The rows of a piece, some at a time."""
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

    def columns(self, rows: ScoredRows, numbers: list[int]) -> Iterator[Column]:
        """The column as it is and resampled ones, by their numbers, for some rows."""
        table, scores = rows.block.table, rows.propensity.scores
        profile = rows.propensity.profile(self.feature, values=self.profile) if self.follows else None
        for values in self._values(rows, numbers):
            followed = scores if profile is None else profile(values)
            yield Column(self.feature, values, followed, table.n_levels(self.feature), self.bandwidth, self.limits)

    def _values(self, rows: ScoredRows, numbers: list[int]) -> Iterator[Array]:
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
