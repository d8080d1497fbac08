"""What every worker needs to know, and what it makes of a piece of the table."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from modifind._typing import Array
from modifind.data.pieces import Block, Piece, Schema
from modifind.data.row_plan import RowPlan
from modifind.data.summary import sum_of
from modifind.engine.importance_sums import BinnedRows, FeatureView, OutcomeBins, ViewSums
from modifind.engine.overlap_conditional import OverlapConditional
from modifind.inference import RowSums
from modifind.nuisance.conditional import ConditionalGrid, ConditionalRule
from modifind.nuisance.propensity.overlap import OverlapSums
from modifind.nuisance.propensity.scores import FittedPropensity
from modifind.statistics.likelihood_terms import OUTCOME, WHOLE
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood
from modifind.statistics.shape import TailSums, ValueFunctions, tail_terms, unit_sums

BLOCK_ROWS = 8192


@dataclass(frozen=True)
class FeatureSums:
    """Sums over rows for one feature.

    Attributes
    ----------
    test : RowSums or None
        For its p-value; None where it is not tested, or no model looks at it.
    tails : TailSums or None
        For the component for tails and shape; None where there is none.
    prognosis : RowSums or None
        For whether the outcome follows it.
    per_fold : array of shape (2, repeats, folds)
        Null variances of the sample's rows by fold, for the test and for the prognosis.
    view : ViewSums
        For its importance.
    units : array of shape (clusters, 2 + directions) or None
        What clusters of rows add to the test, to the prognosis and to the directions of the component for tails.
    """

    test: RowSums | None
    tails: TailSums | None
    prognosis: RowSums | None
    per_fold: Array
    view: ViewSums
    units: Array | None = None

    def __add__(self, other: FeatureSums) -> FeatureSums:
        """The sums of both sets of rows; what one of them lacks the other lacks too."""
        return FeatureSums(*(sum_of(getattr(self, own.name), getattr(other, own.name)) for own in fields(self)))


@dataclass(frozen=True)
class Sums:
    """Everything that is added up over rows."""

    overlap: OverlapSums
    features: tuple[FeatureSums, ...]
    beyond: Array | None = None  # treatment less score, summed over clusters, shape (clusters, 1)

    def __add__(self, other: Sums) -> Sums:
        """The sums of both sets of rows."""
        pairs = zip(self.features, other.features, strict=True)
        features = tuple(mine + theirs for mine, theirs in pairs)
        return Sums(self.overlap + other.overlap, features, sum_of(self.beyond, other.beyond))

    @property
    def overlap_of_clusters(self) -> OverlapSums:
        """How comparable the arms are; the number of treated rows varies as that of clusters does."""
        if self.beyond is None:
            return self.overlap
        treated, expected, variance = self.overlap.treated
        most = max(variance, float((self.beyond**2).sum()))
        return replace(self.overlap, treated=np.array([treated, expected, most]))


@dataclass(frozen=True)
class Plan:
    """Fitted nuisance models and where features are looked at.

    Attributes
    ----------
    schema : Schema
        How pieces are read.
    rows : RowPlan
        Sample and folds.
    propensity : FittedPropensity
        Models of the treatment, without rows.
    outcome : PreparedEffectLikelihood
        Models of the outcome, without rows.
    rules : tuple
        Distribution of each feature, None where it is not tested.
    functions : tuple
        What the component for tails looks at along each feature, None where it does not.
    views : tuple of FeatureView
        Where each feature is looked at for its importance.
    bins : OutcomeBins
        Bins of the outcome.
    cluster_folds : tuple of int arrays
        Fold of every cluster, for each repeat of the cross-fitting.
    """

    schema: Schema
    rows: RowPlan
    propensity: FittedPropensity
    outcome: PreparedEffectLikelihood
    rules: tuple[ConditionalRule | None, ...]
    functions: tuple[ValueFunctions | None, ...]
    views: tuple[FeatureView, ...]
    bins: OutcomeBins
    cluster_folds: tuple[NDArray[np.int64], ...] = ()

    def sums(self, piece: Piece) -> Sums:
        """Sums over the rows of a piece, by one thread, in blocks that bound memory."""
        with threadpool_limits(limits=1):
            return reduce(operator.add, map(self._block_sums, self._blocks(piece)))

    def _blocks(self, piece: Piece) -> Iterator[Block]:
        for start in range(0, len(piece.X), BLOCK_ROWS):
            part = piece.take(slice(start, start + BLOCK_ROWS))
            yield self.schema.read(replace(part, start=piece.start + start))

    def _block_sums(self, block: Block) -> Sums:
        folds, sampled = self.folds(block), self.rows.sampled(block.numbers)
        propensity = self.propensity.at(block.table, block.treatment, folds[0], block.scores, block.weights)
        y = (block.y > self.bins.middle).astype(np.float64) if self.schema.binary else block.y
        outcome = self.outcome.at(block.table, y, block.treatment, propensity.scores, folds, block.weights)
        arms = BinnedRows.of(self.bins, block.y, block.treatment, propensity.scores, block.weights)
        features = tuple(
            self._feature_sums(feature, block, outcome, propensity, folds, sampled, arms)
            for feature in range(block.table.n_features)
        )
        beyond = (block.treatment - propensity.raw) * (1.0 if block.weights is None else block.weights)
        return Sums(OverlapSums.of(propensity), features, self._units(block, beyond))

    def folds(self, block: Block) -> list[NDArray[np.int64]]:
        """Fold of each row, for every repeat: that of its cluster, where there are clusters."""
        if block.clusters is None:
            return self.rows.folds(block.numbers)
        return [own[block.clusters] for own in self.cluster_folds]

    def _feature_sums(
        self,
        feature: int,
        block: Block,
        outcome: PreparedEffectLikelihood,
        propensity: FittedPropensity,
        folds: list[NDArray[np.int64]],
        sampled: NDArray[np.bool_],
        arms: tuple[BinnedRows, BinnedRows],
    ) -> FeatureSums:
        column, n_bins = block.table.values[:, feature], self.bins.centre.size
        view = self.views[feature].sums(column, arms, n_bins, block.weights)
        per_fold = np.zeros((2, len(folds), self.rows.n_folds))
        rule = self.rules[feature]
        if rule is None:
            return FeatureSums(None, None, None, per_fold, view)
        conditional = ConditionalGrid(rule.conditional(block.table, block.treatment, folds[0]), block.y.size)
        grid = OverlapConditional(conditional, propensity, feature)
        functions = self.functions[feature]
        excess = None if functions is None else functions.excess(block.table, grid)
        if not outcome.looks_at(feature):
            shape = None if excess is None else tail_terms(outcome.tail_scores, excess)
            nothing = np.zeros((block.y.size, 2))
            tails = None if shape is None else TailSums.of_terms(shape)
            return FeatureSums(None, tails, None, per_fold, view, self._units(block, nothing, shape))
        (terms, own), weights = outcome.terms(feature, grid, WHOLE, OUTCOME)
        shape = None if excess is None else tail_terms(terms.tails, excess)
        test, variances, beyond = RowSums.of(terms.observed, terms.values, weights)
        prognosis, more, followed = RowSums.of(own.observed, own.values, weights)
        for part, per_row in enumerate((variances, more)):
            for repeat, fold in enumerate(folds):
                per_fold[part, repeat] = np.bincount(fold, per_row * sampled, minlength=self.rows.n_folds)
        tails = None if shape is None else TailSums.of_terms(shape)
        return FeatureSums(test, tails, prognosis, per_fold, view, self._units(block, beyond, followed, shape))

    def _units(self, block: Block, *terms: Array | None) -> Array | None:
        """Sums over clusters of what rows add; None where rows are independent."""
        if block.clusters is None:
            return None
        columns = np.column_stack([own for own in terms if own is not None])
        return unit_sums(columns, block.clusters, self.schema.n_clusters)
