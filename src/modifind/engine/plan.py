"""What every worker needs to know, and what it makes of a piece of the table."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from modifind._threads import one_thread
from modifind._typing import Array
from modifind.data.feature_groups import Unit
from modifind.data.pieces import Block, Piece, Schema
from modifind.data.row_plan import RowPlan
from modifind.data.summary import sum_of
from modifind.engine.assemble import failure_of
from modifind.engine.importance_sums import BinnedRows, FeatureView, OutcomeBins, ViewSums
from modifind.engine.overlap_conditional import OverlapConditional
from modifind.inference import AnalyticOutcome, RowSums, sums_test
from modifind.nuisance.conditional import ConditionalRule
from modifind.nuisance.conditional.joint import JointRule, rule_grid, set_variance
from modifind.nuisance.propensity.overlap import OverlapSums
from modifind.nuisance.propensity.scores import FittedPropensity
from modifind.statistics.likelihood_terms import OUTCOME, WHOLE
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood
from modifind.statistics.shape import TailSums, ValueFunctions, tail_terms, unit_sums

BLOCK_ROWS = 8192


@dataclass(frozen=True)
class FeatureSums:
    """Sums over rows for one feature, or for a group that is tested as one.

    Attributes
    ----------
    test : RowSums or None
        For its p-value; None where it is not tested, or no model looks at it.
    tails : TailSums or None
        For the component for tails and shape; None where there is none.
    prognosis : RowSums or None
        For whether the outcome follows it.
    per_fold : array of shape (2, repeats, folds) or None
        Null variances of the sample's rows by fold, for the test and for the prognosis.
    scatter : array of shape (2,) or None
        What the drawn points of a group add to the variance of both.
    units : array of shape (clusters, 2 + directions) or None
        What clusters of rows add to the test, to the prognosis and to the directions of the component for tails.
    failure : str
        Why there are no sums, empty where there are.
    """

    test: RowSums | None = None
    tails: TailSums | None = None
    prognosis: RowSums | None = None
    per_fold: Array | None = None
    scatter: Array | None = None
    units: Array | None = None
    failure: str = ""

    def __add__(self, other: FeatureSums) -> FeatureSums:
        """The sums of both sets of rows; what one of them lacks the other lacks too."""
        for failed in (self, other):
            if failed.failure:
                return failed
        sums = (sum_of(getattr(self, own.name), getattr(other, own.name)) for own in fields(self)[:-1])
        return FeatureSums(*sums)

    def tests(self, shared: Sequence[float]) -> tuple[AnalyticOutcome, AnalyticOutcome]:
        """The test and that of the prognosis, given the variances that folds share."""
        assert self.test is not None
        assert self.prognosis is not None
        more = np.asarray(shared) + (0.0 if self.scatter is None else self.scatter)
        units = (None, None) if self.units is None else (self.units[:, 0], self.units[:, 1])
        return sums_test(self.test, more[0], units[0]), sums_test(self.prognosis, more[1], units[1])


@dataclass(frozen=True)
class Sums:
    """Everything that is added up over rows."""

    overlap: OverlapSums
    features: tuple[FeatureSums, ...]  # of what is tested
    views: tuple[ViewSums, ...]  # of its columns, for their importance
    beyond: Array | None = None  # treatment less score, summed over clusters, shape (clusters, 1)

    def __add__(self, other: Sums) -> Sums:
        """The sums of both sets of rows."""
        features = tuple(map(operator.add, self.features, other.features))
        views = tuple(map(operator.add, self.views, other.views))
        return Sums(self.overlap + other.overlap, features, views, sum_of(self.beyond, other.beyond))

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
    units : tuple of Unit
        What is tested.
    rules : tuple
        Distribution of each of these, None where it is not tested.
    functions : tuple
        What the component for tails looks at along each, None where it does not.
    views : dict of FeatureView
        Where their columns are looked at for their importance, by place.
    bins : OutcomeBins
        Bins of the outcome.
    cluster_folds : tuple of int arrays
        Fold of every cluster, for each repeat of the cross-fitting.
    """

    schema: Schema
    rows: RowPlan
    propensity: FittedPropensity
    outcome: PreparedEffectLikelihood
    units: tuple[Unit, ...]
    rules: tuple[ConditionalRule | JointRule | None, ...]
    functions: tuple[ValueFunctions | None, ...]
    views: dict[int, FeatureView]
    bins: OutcomeBins
    cluster_folds: tuple[NDArray[np.int64], ...] = ()

    def sums(self, piece: Piece) -> Sums:
        """Sums over the rows of a piece, by one thread, in blocks that bound memory."""
        with one_thread():
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
            self._feature_sums(place, block, outcome, propensity, folds, sampled) for place in range(len(self.units))
        )
        n_bins = self.bins.centre.size
        views = tuple(
            view.sums(block.table.values[:, m], arms, n_bins, block.weights) for m, view in self.views.items()
        )
        beyond = (block.treatment - propensity.raw) * (1.0 if block.weights is None else block.weights)
        return Sums(OverlapSums.of(propensity), features, views, self._units(block, beyond))

    def folds(self, block: Block) -> list[NDArray[np.int64]]:
        """Fold of each row, for every repeat: that of its cluster, where there are clusters."""
        if block.clusters is None:
            return self.rows.folds(block.numbers)
        return [own[block.clusters] for own in self.cluster_folds]

    def _feature_sums(
        self,
        place: int,
        block: Block,
        outcome: PreparedEffectLikelihood,
        propensity: FittedPropensity,
        folds: list[NDArray[np.int64]],
        sampled: NDArray[np.bool_],
    ) -> FeatureSums:
        """Sums for one of the units; a rule that fails for these rows fails for the feature, not for the run."""
        rule, feature = self.rules[place], self.units[place].feature
        if rule is None:
            return FeatureSums()
        try:
            conditional = rule_grid(rule, block.table, block.treatment, folds[0], block.numbers)
            grid = OverlapConditional(conditional, propensity, feature)
            functions = self.functions[place]
            if not outcome.looks_at(feature):
                excess = None if functions is None else functions.excess(block.table, grid)
                shape = None if excess is None else tail_terms(outcome.tail_scores, excess)
                nothing = np.zeros((block.y.size, 2))
                return FeatureSums(tails=_tail_sums(shape), units=self._units(block, nothing, shape))
            both, weights = outcome.terms(feature, grid, WHOLE, OUTCOME)
            excess = None if functions is None else functions.excess(block.table, grid.swept(weights))
        except Exception as error:
            return FeatureSums(failure=failure_of(error, self.units[place].name))
        shape = None if excess is None else tail_terms(both[0].tails, excess)
        (test, *of_test), (prognosis, *of_prognosis) = (RowSums.of(t.observed, t.values, weights) for t in both)
        variances, beyond = zip(of_test, of_prognosis, strict=True)
        per_fold = [
            [np.bincount(fold, own * sampled, minlength=self.rows.n_folds) for fold in folds] for own in variances
        ]
        scatter = np.array([set_variance(t.values) for t in both]) if isinstance(feature, tuple) else None
        units = self._units(block, *beyond, shape)
        return FeatureSums(test, _tail_sums(shape), prognosis, np.array(per_fold), scatter, units)

    def _units(self, block: Block, *terms: Array | None) -> Array | None:
        """Sums over clusters of what rows add; None where rows are independent."""
        if block.clusters is None:
            return None
        columns = np.column_stack([own for own in terms if own is not None])
        return unit_sums(columns, block.clusters, self.schema.n_clusters)


def _tail_sums(shape: Array | None) -> TailSums | None:
    return None if shape is None else TailSums.of_terms(shape)
