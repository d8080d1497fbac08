"""What every worker needs to know, and what it makes of a piece of the table."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce

import numpy as np

from modifind._threads import one_thread
from modifind._typing import Array
from modifind.data.feature_groups import Unit
from modifind.data.pieces import Block, Piece, Schema
from modifind.data.summary import sum_of
from modifind.data.survey import unit_sums
from modifind.engine.assemble import failure_of
from modifind.engine.overlap_conditional import OverlapConditional
from modifind.engine.scored import OBSERVED, Measured, Scored, Scoring
from modifind.inference import AnalyticOutcome, RowSums, sums_test
from modifind.nuisance.conditional import ConditionalRule
from modifind.nuisance.conditional.joint import JointRule, rule_grid, set_variance
from modifind.nuisance.propensity.overlap import OverlapSums
from modifind.statistics.direct import DirectSums, ValueFunctions, direct_terms
from modifind.statistics.likelihood_terms import OUTCOME, WHOLE
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood
from modifind.statistics.prepared_wcmmd import PreparedWCMMD
from modifind.statistics.wcmmd_sums import ColumnSums


@dataclass(frozen=True)
class FeatureSums:
    """Sums over rows for one feature, or for a group that is tested as one.

    Attributes
    ----------
    test : RowSums or None
        For its p-value; None where it is not tested, or no model looks at it.
    direct : DirectSums or None
        For the direct component; None where there is none.
    prognosis : RowSums or None
        For whether the outcome follows it.
    per_fold : array of shape (2, repeats, folds) or None
        Null variances of the sample's rows by fold, for the test and for the prognosis.
    scatter : array of shape (2,) or None
        What the drawn points of a group add to the variance of both.
    units : array of shape (clusters, 2 + directions) or None
        What clusters of rows add to the test, to the prognosis and to the directions of the direct component.
    failure : str
        Why there are no sums, empty where there are.
    """

    test: RowSums | None = None
    direct: DirectSums | None = None
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
    columns: tuple[ColumnSums, ...]  # of its columns, for their importance
    beyond: Array | None = None  # treatment less score, summed over clusters, shape (clusters, 1)

    def __add__(self, other: Sums) -> Sums:
        """The sums of both sets of rows."""
        features = tuple(map(operator.add, self.features, other.features))
        columns = tuple(map(operator.add, self.columns, other.columns))
        return Sums(self.overlap + other.overlap, features, columns, sum_of(self.beyond, other.beyond))

    @property
    def n_rows(self) -> int:
        """Rows that were added up."""
        return int(self.overlap.n_rows.sum())

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
    scoring : Scoring
        How pieces are read and scored.
    outcome : PreparedEffectLikelihood, optional
        Models of the outcome, without rows; None where features are not tested by them.
    units : tuple of Unit
        What is tested.
    rules : tuple
        Distribution of each of these, None where it is not tested.
    functions : tuple
        What the direct component looks at along each, None where it does not.
    importance : PreparedWCMMD
        What the importance of their columns is the value of, without rows.
    columns : dict of Measured
        How the columns are measured, by place.
    """

    scoring: Scoring
    outcome: PreparedEffectLikelihood | None
    units: tuple[Unit, ...]
    rules: tuple[ConditionalRule | JointRule | None, ...]
    functions: tuple[ValueFunctions | None, ...]
    importance: PreparedWCMMD
    columns: dict[int, Measured]

    @property
    def schema(self) -> Schema:
        """How pieces are read."""
        return self.scoring.schema

    def sums(self, piece: Piece) -> Sums:
        """Sums over the rows of a piece, by one thread, in blocks that bound memory."""
        with one_thread():
            return reduce(operator.add, map(self._block_sums, self.scoring.blocks(piece)))

    def _block_sums(self, rows: Scored) -> Sums:
        block, propensity = rows.block, rows.propensity
        outcome = None
        if self.outcome is not None:
            y = self.outcome.family.coded(block.y)
            outcome = self.outcome.at(block.table, y, block.treatment, propensity.scores, rows.folds, block.weights)
        features = tuple(self._feature_sums(place, rows, outcome) for place in range(len(self.units)))
        importance = self.importance.at(block.y, block.treatment, block.weights)
        columns = tuple(importance.sums(next(own.columns(rows, [OBSERVED]))) for own in self.columns.values())
        beyond = (block.treatment - propensity.raw) * (1.0 if block.weights is None else block.weights)
        return Sums(OverlapSums.of(propensity), features, columns, self._units(block, beyond))

    def _feature_sums(self, place: int, rows: Scored, outcome: PreparedEffectLikelihood | None) -> FeatureSums:
        """Sums for one of the units; a rule that fails for these rows fails for the feature, not for the run."""
        rule, feature = self.rules[place], self.units[place].feature
        if rule is None or outcome is None:
            return FeatureSums()
        block, folds, propensity = rows.block, rows.folds, rows.propensity
        sampled = self.scoring.rows.sampled(block.numbers)
        try:
            conditional = rule_grid(rule, block.table, block.treatment, folds[0], block.numbers)
            grid = OverlapConditional(conditional, propensity, feature)
            functions = self.functions[place]
            if not outcome.looks_at(feature):
                excess = None if functions is None else functions.excess(block.table, grid)
                direct = None if excess is None else direct_terms(outcome.direct_scores, excess)
                nothing = np.zeros((block.y.size, 2))
                return FeatureSums(direct=_direct_sums(direct), units=self._units(block, nothing, direct))
            both, weights = outcome.terms(feature, grid, WHOLE, OUTCOME)
            excess = None if functions is None else functions.excess(block.table, grid.swept(weights), both[0].informed)
        except Exception as error:
            return FeatureSums(failure=failure_of(error, self.units[place].name))
        direct = None if excess is None else direct_terms(both[0].direct, excess)
        (test, *of_test), (prognosis, *of_prognosis) = (RowSums.of(t.observed, t.values, weights) for t in both)
        variances, beyond = zip(of_test, of_prognosis, strict=True)
        per_fold = [
            [np.bincount(fold, own * sampled, minlength=self.scoring.rows.n_folds) for fold in folds]
            for own in variances
        ]
        scatter = np.array([set_variance(t.values) for t in both]) if isinstance(feature, tuple) else None
        units = self._units(block, *beyond, direct)
        return FeatureSums(test, _direct_sums(direct), prognosis, np.array(per_fold), scatter, units)

    def _units(self, block: Block, *terms: Array | None) -> Array | None:
        """Sums over clusters of what rows add; None where rows are independent."""
        if block.clusters is None:
            return None
        columns = np.column_stack([own for own in terms if own is not None])
        return unit_sums(columns, block.clusters, self.schema.n_clusters)


def _direct_sums(terms: Array | None) -> DirectSums | None:
    return None if terms is None else DirectSums.of_terms(terms)
