"""The test of one feature: contributions of rows along its distribution, their sums, and the tail of the sums.

A statistic with an analytic tail gives the contribution of every row at the observed value of a feature and at the
points of its distribution (`statistics.contract.Terms`). These are added: over the rows of a table in memory, which are
kept so that the tail is exact, or over the blocks of a longer one. A statistic that can say what a feature *changes*
has further sums: for the mean, where only the difference of the arms' locations follows the feature and the ratio of
their scales keeps the row's own value; for the spread, with these roles exchanged; and for the shape of residuals whose
location and scale follow the feature.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from modifind._typing import Array, Ints
from modifind.data.clusters import Clusters, unit_sums
from modifind.data.features import Feature, Unit, columns_of, encode, members_of
from modifind.data.summary import sum_of
from modifind.engine.passes import RowPass, ScoredRows
from modifind.engine.record import failure_of
from modifind.engine.resampling import OBSERVED, ColumnMeasure
from modifind.inference import AnalyticOutcome, CRTOutcome, RowSums, sums_test
from modifind.inference.direct_sums import DirectSums
from modifind.inference.sums import cauchy_combination, cluster_terms
from modifind.nuisance.conditional import ConditionalRule
from modifind.nuisance.conditional.contract import RowGrid
from modifind.nuisance.conditional.joint import JointRule, rule_grid, set_variance
from modifind.nuisance.propensity.scores import FittedPropensity, OverlapSums
from modifind.statistics.contract import PreparedTerms, Terms
from modifind.statistics.direct import DirectTerms
from modifind.statistics.prepared_wcmmd import ColumnSums, PreparedWCMMD
from modifind.statistics.row_terms import Reuse

Outcome: TypeAlias = CRTOutcome | AnalyticOutcome
NAN = float("nan")
NO_REUSE: Mapping[str, Reuse] = {}


@dataclass(frozen=True)
class Changes:
    """P-values of what one feature changes, NaN if there is nothing to test.

    Each hypothesis concerns the distribution of the outcome given all features and the treatment: the difference
    between the arms' locations does not depend on the feature, though the scale may; the ratio of their scales does
    not, though the locations may; their standardised residuals differ alike at all values of the feature. All are
    centred, as the main test is, if the arms do not differ or the outcome does not depend on the feature. If only
    another component differs, errors of the models remain: a location that misses a curvature of the feature's effect
    in one arm looks like spread there.

    Attributes
    ----------
    mean, spread, shape : float
        P-values, not adjusted for the number of features.
    """

    mean: float
    spread: float
    shape: float

    @classmethod
    def none(cls, has_scale: bool) -> Changes:
        """Changes of a feature that models do not use and that has no direct signal."""
        return cls(1.0, 1.0, 1.0) if has_scale else cls(1.0, NAN, NAN)


@dataclass(frozen=True)
class PartSums:
    """Sums over rows for one test of a feature.

    Attributes
    ----------
    rows : RowSums
        What rows add.
    per_fold : array of shape (repeats, folds)
        Null variances by fold of the rows that models were fitted to.
    scatter : float
        What drawn points of a group of columns add to the variance.
    """

    rows: RowSums
    per_fold: Array
    scatter: float

    def __add__(self, other: PartSums) -> PartSums:
        """Add the sums of other rows."""
        return PartSums(self.rows + other.rows, self.per_fold + other.per_fold, self.scatter + other.scatter)

    def excess_variance(self, reuse: Reuse | None) -> float:
        """Variance of the sum in excess of that of independent rows."""
        return self.scatter + (0.0 if reuse is None else reuse.variance(list(self.per_fold)))


@dataclass(frozen=True)
class UnitSums:
    """Sums over rows for the tests of one feature, or of a group tested as one.

    Attributes
    ----------
    parts : mapping of PartSums
        By name, that of the test itself being "test"; see `Terms`.
    directions : mapping of DirectSums
        Of the direct component, by the test that they join.
    failure : str
        Why there are no sums, empty where there are.
    """

    parts: Mapping[str, PartSums] = field(default_factory=dict)
    directions: Mapping[str, DirectSums] = field(default_factory=dict)
    failure: str = ""

    @classmethod
    def of(
        cls, terms: Terms, rows: ScoredRows, *, grouped: bool = False, draws: Ints | None = None, keep: bool = False
    ) -> UnitSums:
        """Sum the contributions of rows.

        Parameters
        ----------
        terms : Terms
            What they add.
        rows : ScoredRows
            Their folds and clusters.
        grouped : bool, default=False
            Whether the points are those of several columns, drawn in two sets.
        draws : int array of shape (n,), optional
            Clusters 0, 1, ... whose rows share one draw of the feature.
        keep : bool, default=False
            Whether these are all rows, so that the tail can be exact.
        """
        _check(terms, rows)
        each = {"test": (terms.observed, terms.values), **terms.parts}
        parts = {name: _part_sums(*pair, terms.weights, rows, grouped, draws, keep) for name, pair in each.items()}
        clusters = (draws, 0) if rows.block.clusters.of_rows else (rows.block.clusters.codes, rows.n_clusters)
        directions = {name: DirectTerms.of(given) for name, given in terms.directions.items()}
        return cls(parts, {name: DirectSums.of(along, *clusters) for name, along in directions.items()})

    def __add__(self, other: UnitSums) -> UnitSums:
        """Add the sums of other rows."""
        for failed in (self, other):
            if failed.failure:
                return failed
        return UnitSums(_added(self.parts, other.parts), _added(self.directions, other.directions))


def _check(terms: Terms, rows: ScoredRows) -> None:
    """Refuse terms without a null distribution, which would pass for a feature without effect."""
    n_rows = rows.block.y.size
    if terms.observed.shape != (n_rows,) or terms.values.shape[:1] != (n_rows,) or terms.values.ndim != 2:
        raise ValueError(
            f"what rows add must have the shapes ({n_rows},) and ({n_rows}, points); found {terms.observed.shape} and "
            f"{terms.values.shape}"
        )
    if not np.isfinite(terms.observed.sum() + terms.values.sum()):
        raise ValueError("what rows add must be finite numbers")
    if not np.allclose(terms.weights.sum(axis=-1), 1.0, atol=1e-6):
        raise ValueError("the weights of the points must sum to 1 in every row")


def _added(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return dict(zip(one, map(operator.add, one.values(), other.values()), strict=True))


def _part_sums(
    observed: Array, values: Array, weights: Array, rows: ScoredRows, grouped: bool, draws: Ints | None, keep: bool
) -> PartSums:
    clusters = rows.block.clusters
    together = (None, 0) if draws is not None else (clusters.given, rows.n_clusters)
    sums, variances = RowSums.of(observed, values, weights, *together, keep=keep and draws is None)
    taught = variances * rows.sampled
    per_fold = np.array([np.bincount(folds, taught, rows.n_folds) for folds in rows.folds])
    if draws is not None:  # what is independent of each other is such a cluster, or a larger one around it
        first = np.unique(draws, return_index=True)[1]
        units = Clusters.rows(first.size) if clusters.of_rows else clusters[first]
        whole, _ = RowSums.of(*cluster_terms(observed, values, weights, draws), units.codes, keep=keep)
        per_fold *= whole.second / sums.second if sums.second > 0 else 1.0
        sums = replace(whole, n_rows=sums.n_rows)
    return PartSums(sums, per_fold, set_variance(values) if grouped else 0.0)


def outcome_of(
    sums: UnitSums,
    reuse: Mapping[str, Reuse] = NO_REUSE,
    freedom: float = np.inf,
    *,
    two_sided: bool = False,
    **check: Any,
) -> AnalyticOutcome:
    """Test one feature by its sums.

    Parameters
    ----------
    sums : UnitSums
        Sums over all rows.
    reuse : mapping of Reuse
        What folds share about it, for the test and its parts.
    freedom : float
        Degrees of freedom that the weights of rows leave.
    two_sided : bool
        Whether a sum far below its null mean counts, too.
    **check
        Settings of `sums_test` for a check by resampling.
    """
    part = sums.parts["test"]
    below = two_sided and part.rows.excess < 0
    outcome = sums_test(-part.rows if below else part.rows, part.excess_variance(reuse.get("test")), **check)
    if two_sided:
        doubled = min(2 * outcome.p_value, 1.0)
        outcome = replace(
            outcome,
            statistic=-outcome.statistic if below else outcome.statistic,
            p_value=doubled,
            likelihood_p_value=doubled,
            normal_p_value=min(2 * outcome.normal_p_value, 1.0),
        )
    if "outcome" in sums.parts:
        prognosis = sums.parts["outcome"]
        followed = sums_test(prognosis.rows, prognosis.excess_variance(reuse.get("outcome")))
        outcome = replace(outcome, prognostic_p_value=followed.p_value)
    direct = sums.directions.get("test")
    return outcome if direct is None else outcome.with_direct(direct.p_value(_freedom(direct, freedom)), direct.weight)


def changes_of(sums: UnitSums, reuse: Mapping[str, Reuse], freedom: float, has_scale: bool) -> Changes:
    """Test what a feature changes by its sums; arguments as in `outcome_of`.

    An outcome without a scale, such as a binary one, has a mean only.
    """
    p_values = {"mean": 1.0, "spread": 1.0 if has_scale else NAN, "shape": NAN}
    for name in p_values.keys() & sums.parts.keys():
        part = sums.parts[name]
        p_values[name] = sums_test(part.rows, part.excess_variance(reuse.get(name))).p_value
    for name in p_values.keys() & sums.directions.keys():
        direct = sums.directions[name]
        p_value = direct.p_value(_freedom(direct, freedom))
        if name == "shape":
            p_values[name] = p_value
        elif not np.isnan(p_value):
            each, shares = (p_values[name], p_value), (1 - direct.weight, direct.weight)
            p_values[name] = float(cauchy_combination(each, shares))
    return Changes(**p_values)


def _freedom(sums: DirectSums, freedom: float) -> float:
    return freedom if sums.clusters is None else min(freedom, sums.n_rows - 1.0)


@dataclass(frozen=True)
class OverlapConditional:
    r"""Distribution of a feature given the others and treatment, tilted by the probability of the other arm.

    A row counts with ``a - e(x)`` in a comparison of the arms, and e may follow the feature. With p the distribution of
    the feature given the others alone, its distribution in an arm is proportional to p times e or 1 - e, and tilted by
    the other of the two it is ``p e (1 - e)`` in both arms. A mean under it is the same for treated and control rows,
    so that what both arms have in common cancels in ``(a - e)(h(x) - mean of h)``; and given the arm, ``(a - e(V))(h(V)
    - mean of h)`` has mean zero, so that a feature on which the outcome does not depend is centred too. The untilted
    distribution achieves only the latter, and only for weights that do not follow the feature. If e does not depend on
    the feature, nothing changes.

    Attributes
    ----------
    distribution : RowGrid
        The distribution.
    propensity : FittedPropensity
        Scores of the rows, also with other values of the feature.
    feature : int or tuple of int
        Place of the feature, or of the columns of a group.
    weights : array of shape (n, g), optional
        Weights of the points of all rows, where they are known.
    """

    conditional: RowGrid
    propensity: FittedPropensity
    feature: Feature
    weights: Array | None = None

    def at(self, rows: Ints) -> tuple[Array, Array]:
        """Points and weights of the tilted distribution."""
        points, weights = self.conditional.at(rows)
        if self.weights is not None:
            return points, self.weights[rows]
        if not self.propensity.models:
            return points, weights
        table = self.propensity.table
        tilted = self.propensity.along(rows, columns_of(table, self.feature), encode(table, self.feature, points))
        np.abs(np.subtract(tilted, self.propensity.treatment[rows, None], out=tilted), out=tilted)
        tilted *= weights
        tilted /= tilted.sum(axis=1, keepdims=True)
        return points, tilted

    def with_tilt(self, weights: Array) -> OverlapConditional:
        """The same with weights precomputed for all rows, unless levels are combined."""
        gathered = any(m in self.propensity.table.level_columns for m in members_of(self.feature))
        return self if gathered else replace(self, weights=weights)


@dataclass(frozen=True)
class Sums:
    """All sums over rows."""

    overlap: OverlapSums
    features: tuple[UnitSums, ...]  # of what is tested
    columns: tuple[ColumnSums, ...]  # of its columns, for their importance
    beyond: Array | None = None  # treatment less score, summed over clusters, shape (clusters, 1)

    def __add__(self, other: Sums) -> Sums:
        """Add the sums of other rows."""
        features = tuple(map(operator.add, self.features, other.features))
        columns = tuple(map(operator.add, self.columns, other.columns))
        return Sums(self.overlap + other.overlap, features, columns, sum_of(self.beyond, other.beyond))

    @property
    def n_rows(self) -> int:
        """Number of rows in the sums."""
        return int(self.overlap.n_rows.sum())

    @property
    def overlap_of_clusters(self) -> OverlapSums:
        """Overlap of the arms, with the number of treated rows varying by cluster."""
        if self.beyond is None:
            return self.overlap
        treated, expected, variance = self.overlap.treated
        most = max(variance, float((self.beyond**2).sum()))
        return replace(self.overlap, treated=np.array([treated, expected, most]))


@dataclass(frozen=True)
class Plan(RowPass):
    """Fitted models that workers need to add up rows.

    Attributes
    ----------
    statistic : PreparedTerms, optional
        The statistic, without rows; None where features are resampled.
    units : tuple of Unit
        What is tested.
    rules : tuple
        Distribution of each of these, None where it is not tested.
    importance : PreparedWCMMD
        What the importance of their columns is the value of, without rows.
    columns : dict of ColumnMeasure
        How the columns are measured, by place.
    """

    statistic: PreparedTerms | None
    units: tuple[Unit, ...]
    rules: tuple[ConditionalRule | JointRule | None, ...]
    importance: PreparedWCMMD
    columns: dict[int, ColumnMeasure]

    def block_sums(self, rows: ScoredRows) -> Sums:
        """Sums over a block of rows: for the tests, for importance, and for overlap."""
        block, given = rows.block, rows.nuisances
        statistic = None if self.statistic is None else self.statistic.at(given)
        each = zip(self.units, self.rules, strict=True)
        features = tuple(_unit_sums(unit, rule, rows, statistic) for unit, rule in each)
        importance = self.importance.at(given)
        measured = self.columns.values()
        columns = tuple(importance.sums(next(column.columns(rows, [OBSERVED]))) for column in measured)
        beyond = None
        if not block.clusters.of_rows:
            residual = block.weights.times(block.treatment - rows.propensity.raw)
            beyond = unit_sums(residual[:, None], block.clusters.codes, rows.n_clusters)
        return Sums(OverlapSums.of(rows.propensity), features, columns, beyond)


def _unit_sums(
    unit: Unit, rule: ConditionalRule | JointRule | None, rows: ScoredRows, statistic: PreparedTerms | None
) -> UnitSums:
    """Sums for one unit; a rule that fails on these rows fails the feature, not the run."""
    if rule is None or statistic is None:
        return UnitSums()
    block = rows.block
    try:
        conditional = rule_grid(rule, block.table, block.treatment, rows.folds[0], block.numbers)
        terms = statistic.terms(unit.feature, OverlapConditional(conditional, rows.propensity, unit.feature))
        return UnitSums.of(terms, rows, grouped=len(unit.members) > 1)
    except Exception as error:
        return UnitSums(failure=failure_of(error, unit.name))
