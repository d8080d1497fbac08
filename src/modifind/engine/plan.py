"""What every worker needs to know, and what it makes of a piece of the table."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from modifind._typing import Array
from modifind.data.pieces import Block, Piece, Schema
from modifind.data.row_plan import RowPlan
from modifind.engine.importance_sums import BinnedRows, FeatureView, OutcomeBins, ViewSums
from modifind.engine.overlap_conditional import OverlapConditional
from modifind.inference import RowSums
from modifind.nuisance.conditional import ConditionalGrid, ConditionalRule
from modifind.nuisance.propensity.overlap import OverlapSums
from modifind.nuisance.propensity.scores import FittedPropensity
from modifind.statistics.likelihood_terms import OUTCOME, WHOLE
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood
from modifind.statistics.shape import TailSums, ValueFunctions

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
    """

    test: RowSums | None
    tails: TailSums | None
    prognosis: RowSums | None
    per_fold: Array
    view: ViewSums

    def __add__(self, other: FeatureSums) -> FeatureSums:
        """The sums of both sets of rows."""
        test = None if self.test is None or other.test is None else self.test + other.test
        tails = None if self.tails is None or other.tails is None else self.tails + other.tails
        prognosis = None if self.prognosis is None or other.prognosis is None else self.prognosis + other.prognosis
        return FeatureSums(test, tails, prognosis, self.per_fold + other.per_fold, self.view + other.view)


@dataclass(frozen=True)
class Sums:
    """Everything that is added up over rows."""

    overlap: OverlapSums
    features: tuple[FeatureSums, ...]

    def __add__(self, other: Sums) -> Sums:
        """The sums of both sets of rows."""
        pairs = zip(self.features, other.features, strict=True)
        return Sums(self.overlap + other.overlap, tuple(mine + theirs for mine, theirs in pairs))


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
    """

    schema: Schema
    rows: RowPlan
    propensity: FittedPropensity
    outcome: PreparedEffectLikelihood
    rules: tuple[ConditionalRule | None, ...]
    functions: tuple[ValueFunctions | None, ...]
    views: tuple[FeatureView, ...]
    bins: OutcomeBins

    def sums(self, piece: Piece) -> Sums:
        """Sums over the rows of a piece, by one thread, in blocks that bound memory."""
        with threadpool_limits(limits=1):
            return reduce(operator.add, map(self._block_sums, self._blocks(piece)))

    def _blocks(self, piece: Piece) -> Iterator[Block]:
        for start in range(0, len(piece.X), BLOCK_ROWS):
            part = piece.take(slice(start, start + BLOCK_ROWS))
            yield self.schema.read(replace(part, start=piece.start + start))

    def _block_sums(self, block: Block) -> Sums:
        numbers = np.arange(block.start, block.start + block.y.size)
        folds, sampled = self.rows.folds(numbers), self.rows.sampled(numbers)
        propensity = self.propensity.at(block.table, block.treatment, folds[0], block.scores)
        y = (block.y > self.bins.middle).astype(np.float64) if self.schema.binary else block.y
        outcome = self.outcome.at(block.table, y, block.treatment, propensity.scores, folds)
        arms = BinnedRows.of(self.bins, block.y, block.treatment, propensity.scores)
        features = tuple(
            self._feature_sums(feature, block, outcome, propensity, folds, sampled, arms)
            for feature in range(block.table.n_features)
        )
        return Sums(OverlapSums.of(propensity), features)

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
        view = self.views[feature].sums(block.table.values[:, feature], arms, self.bins.centre.size)
        per_fold = np.zeros((2, len(folds), self.rows.n_folds))
        rule = self.rules[feature]
        if rule is None:
            return FeatureSums(None, None, None, per_fold, view)
        conditional = ConditionalGrid(rule.conditional(block.table, block.treatment, folds[0]), block.y.size)
        grid = OverlapConditional(conditional, propensity, feature)
        functions = self.functions[feature]
        excess = None if functions is None else functions.excess(block.table, grid)
        if not outcome.looks_at(feature):
            tails = None if excess is None else TailSums.of(outcome.tail_scores, excess)
            return FeatureSums(None, tails, None, per_fold, view)
        (terms, own), weights = outcome.terms(feature, grid, WHOLE, OUTCOME)
        tails = None if excess is None else TailSums.of(terms.tails, excess)
        test, variances = RowSums.of(terms.observed, terms.values, weights)
        prognosis, more = RowSums.of(own.observed, own.values, weights)
        for part, per_row in enumerate((variances, more)):
            for repeat, fold in enumerate(folds):
                per_fold[part, repeat] = np.bincount(fold, per_row * sampled, minlength=self.rows.n_folds)
        return FeatureSums(test, tails, prognosis, per_fold, view)
