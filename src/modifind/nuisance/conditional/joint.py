"""Joint distribution of several features given all others, as points drawn feature by feature.

The first feature is drawn from its distribution given the features outside the group, the second from its distribution
given those and the first, and so on. Every distribution is a sampler's rule (module `contract`), fitted to a table
without the later features and applied to rows in which the earlier ones hold drawn values.

Two kinds of features are not drawn. One determined by features outside the group has no distribution of its own: it
keeps its value. One determined by others in the group (a square, the last of a set of dummies, other units) follows
them: it takes the value of the row that is nearest in these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.stats import qmc, rankdata

from modifind._typing import Array, Ints
from modifind.data.clusters import row_uniforms
from modifind.data.determined import find_determined
from modifind.data.features import FeatureTable, part_of
from modifind.data.weights import Weights
from modifind.nuisance.conditional.contract import (
    Calibration,
    ConditionalRule,
    RowGrid,
    check_conditional,
    without_rows,
)
from modifind.nuisance.conditional.distributions import ConditionalGrid, NormalConditional, point_quantiles
from modifind.nuisance.conditional.sampler import BaseSampler, LearnedRule, fit_copy, row_folds
from modifind.nuisance.conditional.special_columns import ClusterSampler

N_SETS = 2
SET_POINTS = 32
N_POINTS = N_SETS * SET_POINTS
BLOCK_CELLS = 2**21  # numbers in the rows that are drawn at a time
N_PARTS = 20  # every number of folds that samplers use divides it
FOLLOWS = 0.005
CATEGORY_DISTANCE = 10.0  # distance of two categories; values of continuous columns differ by 1 at most


@dataclass(frozen=True)
class Step:
    """How one feature is drawn.

    Attributes
    ----------
    feature : int
        The feature.
    columns : list of int
        The columns of the table that the rule knows, the feature's own last.
    known : FeatureTable
        Those columns, without rows.
    rule : ConditionalRule
        Its distribution given the others.
    """

    feature: int
    columns: list[int]
    known: FeatureTable
    rule: ConditionalRule

    def table(self, values: Array) -> FeatureTable:
        """Columns used by the rule, for some rows of the whole table."""
        return replace(self.known, values=np.take(values, self.columns, axis=1))


@dataclass(frozen=True)
class JointRule(LearnedRule):
    """How several features are drawn jointly, for any rows.

    Attributes
    ----------
    members : tuple of int
        The features.
    steps : tuple of Step
        Those that are drawn, in this order; none where the features outside the group determine all of them.
    leaders, followers : list of int
        Features that no others of the group determine, and those that these determine.
    nearest : NearestRow
        The row, of those that the rule was fitted to, that is nearest in the leaders.
    followed : array of shape (rows, followers)
        What the followers are in these rows.
    keys : tuple of int
        Keys of the random numbers that shift a row's points, for every set and step.
    calibration : Calibration
        How well the steps' rules predict rows they were not fitted on, the worst of them.
    """

    members: tuple[int, ...]
    steps: tuple[Step, ...]
    leaders: list[int]
    followers: list[int]
    nearest: NearestRow
    followed: Array
    keys: tuple[int, ...]

    @property
    def determined(self) -> bool:
        """Whether no feature is left to draw."""
        return not self.steps

    def conditional(
        self,
        table: FeatureTable,
        treatment: Ints,
        parts: Ints,
        numbers: Ints | None = None,
    ) -> JointConditional:
        """Distribution of rows identified by their numbers: 0, 1, ... for None."""
        numbers = np.arange(table.n_rows) if numbers is None else numbers
        shifts = row_uniforms(numbers, self.keys).reshape(numbers.size, N_SETS, len(self.steps))
        return JointConditional(self, table, treatment, parts, shifts)


@dataclass(frozen=True)
class JointConditional:
    """Points of the joint distribution of several features, reproducible for each row.

    Each row has two sets of 32 evenly spread points, shifted at random by an amount of its own. Every point has the
    distribution of the features, and the difference between the two sets shows how far their mean is from that of the
    distribution.

    Attributes
    ----------
    rule : JointRule
        How points are drawn.
    table : FeatureTable
        All features.
    treatment, parts : array of shape (n,)
        Arm, and the fold whose models have not seen the row.
    shifts : array of shape (n, sets, steps)
        Shifts of each row's points.
    """

    rule: JointRule
    table: FeatureTable
    treatment: Ints
    parts: Ints
    shifts: Array

    def at(self, rows: Ints) -> tuple[Array, Array]:
        """Points of shape (rows, g, members) and weights of shape (rows, g)."""
        points = np.empty((rows.size, N_POINTS, len(self.rule.members)))
        step = max(1, BLOCK_CELLS // (N_POINTS * self.table.n_features))
        for start in range(0, rows.size, step):
            block = rows[start : start + step]
            points[start : start + step] = self._draw(block).reshape(block.size, N_POINTS, -1)
        return points, np.full(points.shape[:2], 1.0 / N_POINTS)

    @cached_property
    def _spread(self) -> Array:
        """Evenly spread points of the unit cube, shape (points of a set, steps)."""
        return qmc.Sobol(len(self.rule.steps), scramble=False).random_base2(SET_POINTS.bit_length() - 1)

    def _draw(self, rows: Ints) -> Array:
        rule = self.rule
        values = np.repeat(self.table.values[rows], N_POINTS, axis=0)
        treatment, parts = (np.repeat(column[rows], N_POINTS) for column in (self.treatment, self.parts))
        uniform = (self._spread + self.shifts[rows][:, :, None]) % 1.0
        uniform = uniform.reshape(values.shape[0], -1)
        for step, level in zip(rule.steps, uniform.T, strict=True):
            conditional = step.rule.conditional(step.table(values), treatment, parts)
            values[:, step.feature] = _quantiles(conditional, level)
        if rule.followers:
            values[:, rule.followers] = rule.followed[rule.nearest(values[:, rule.leaders])]
        return values[:, rule.members]


def joint_rule(
    sampler: BaseSampler,
    table: FeatureTable,
    treatment: Ints,
    members: tuple[int, ...],
    limits: dict[str, float],
    seed: np.random.SeedSequence,
    parts: Ints | None = None,
    weights: Weights | None = None,
) -> JointRule:
    """Learn to draw several features jointly given all others and the treatment.

    Parameters
    ----------
    sampler : BaseSampler
        Its settings are used; fresh ones are fitted, to some of the columns.
    table : FeatureTable
        All features.
    treatment : array of shape (n,)
        0 or 1.
    members : tuple of int
        The features.
    limits : dict
        Held-out share, for continuous and for discrete features, above which a feature counts as determined.
    seed : SeedSequence
        For samplers and points.
    parts : array of shape (n,), optional
        Folds of the rows; those that the sampler has been told, or else drawn, if not given.
    weights : Weights, optional
        How much each row counts.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.data.schema import read_features
    >>> from modifind.nuisance.conditional import GaussianSampler
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 3)) @ np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]])
    >>> table, arms = read_features(x), rng.integers(0, 2, size=300)
    >>> limits = {"continuous": 0.65, "discrete": 0.9}
    >>> rule = joint_rule(GaussianSampler(), table, arms, (0, 1), limits, np.random.SeedSequence(0))
    >>> points, weights = rule.fitted.at(np.arange(300))
    >>> points.shape, float(np.corrcoef(points[..., 0].ravel(), points[..., 1].ravel())[0, 1].round(1))
    ((300, 64, 2), 0.7)
    """
    if parts is None:
        random = row_folds(table.n_rows, N_PARTS, np.random.default_rng(seed.spawn(1)[0]))
        assigned = getattr(sampler, "assigned_folds_", None)
        parts = random if assigned is None else assigned
    point_seed, sampler_seed = seed.spawn(2)
    rest = sorted(set(range(table.n_features)) - set(members))
    leaders, followers = _leaders(table, members)
    fit = _Steps(sampler, table, treatment, parts, limits, sampler_seed, Weights.of(weights, table.n_rows))
    steps: list[Step] = []
    held: list[Step] = []  # what lies outside the group determines these
    for feature in leaders:
        drawn = [step.feature for step in steps]
        known = [*rest, *(step.feature for step in held)]
        step = fit(feature, [*known, *drawn])
        if fit.is_determined(step):
            # By what lies outside the group, or with the help of what has been drawn?
            outside = fit(feature, known) if drawn else step
            if not drawn or fit.is_determined(outside):
                held.append(outside)
                continue
        steps.append(step)
    worst = _worst([step.rule.calibration for step in steps or held])
    nearest, followed = NearestRow.of(table, leaders), table.values[:, followers]
    keys = tuple(int(word) for word in point_seed.generate_state(N_SETS * len(steps), np.uint64)) if steps else ()
    rule = JointRule(members, tuple(steps), leaders, followers, nearest, followed, keys, calibration=worst)
    return replace(rule, fitted=rule.conditional(table, treatment, parts))


@dataclass(frozen=True)
class _Steps:
    """Fits the distribution of each feature in turn; the fields are those of `joint_rule`."""

    sampler: BaseSampler
    table: FeatureTable
    treatment: Ints
    parts: Ints
    limits: dict[str, float]
    seed: np.random.SeedSequence
    weights: Weights

    def __call__(self, feature: int, given: list[int]) -> Step:
        known = part_of(self.table, [*given, feature])
        # Clusters are those of columns of the whole table.
        settings: dict[str, Any] = {"clusters": {}} if isinstance(self.sampler, ClusterSampler) else {}
        rows = known, self.treatment, self.seed.spawn(1)[0], self.weights
        whole_clusters = getattr(self.sampler, "whole_clusters_", False)
        sampler = fit_copy(self.sampler, *rows, self.parts, whole_clusters, **settings)
        empty = replace(known, values=known.values[:0], reference=known.scaling)
        return Step(feature, [*given, feature], empty, without_rows(sampler.rule(len(given))))

    def is_determined(self, step: Step) -> bool:
        """Whether the others determine a feature."""
        limit = self.limits[self.table.kind(step.feature)]
        if step.rule.calibration.explained_share > limit:
            return True
        return len(step.columns) - 1 in find_determined(step.table(self.table.values)).features


def rule_grid(
    rule: ConditionalRule | JointRule,
    table: FeatureTable,
    treatment: Ints,
    parts: Ints,
    numbers: Ints,
) -> RowGrid:
    """Points of the distribution of numbered rows under a rule, of one feature or several jointly."""
    if isinstance(rule, JointRule):
        return rule.conditional(table, treatment, parts, numbers)
    conditional: Any = rule.conditional(table, treatment, parts)
    check_conditional(conditional, rule, "grid")
    return ConditionalGrid(conditional, table.n_rows)


def set_variance(values: Array) -> float:
    """Variance that points add to a sum over rows, in excess of the variance that they show.

    Let m be the mean of a row's g values l(V_k), v their variance under the distribution and w the variance of m. The
    row's observed value minus m has variance v + w under the null hypothesis, while the mean square of the values about
    m is v - w on average: each V_k has the distribution, however they depend on each other. So 2w is missing. The two
    sets of points are independent, hence (m_1 - m_2)^2 / 4 is w on average.

    Parameters
    ----------
    values : array of shape (n, g)
        Values at the points of `JointConditional.at`.
    """
    means = values.reshape(values.shape[0], N_SETS, -1).mean(axis=2)
    return float(((means[:, 0] - means[:, 1]) ** 2).sum()) / 2


@dataclass(frozen=True)
class NearestRow:
    """Finds the nearest row in some columns: first by equal categories, then by ranks of continuous columns.

    Attributes
    ----------
    columns : tuple
        Distinct values and their ranks for every continuous column, None for a discrete one.
    tree : cKDTree
        The distinct places of rows: a tree of many equal ones would be slow.
    place : array of shape (n,)
        Place of each row.
    first : array
        The first row of each place.
    """

    columns: tuple[tuple[Array, Array] | None, ...]
    tree: Any
    place: NDArray[np.intp]
    first: NDArray[np.intp]

    @classmethod
    def of(cls, table: FeatureTable, features: Sequence[int]) -> NearestRow:
        """Index the rows of a table."""
        columns = tuple(None if table.n_levels(m) else _ranks(table.values[:, m]) for m in features)
        places = _places(columns, table.values[:, list(features)])
        distinct, first, place = np.unique(places, axis=0, return_index=True, return_inverse=True)
        return cls(columns, cKDTree(distinct), place.ravel(), first)

    def __call__(self, values: Array) -> NDArray[np.intp]:
        """Nearest rows."""
        return self.first[self.tree.query(_places(self.columns, values))[1]]

    def other_rows(self) -> NDArray[np.intp]:
        """For every row of the table the nearest other one: the next at the same point, or at the nearest point."""
        order, counts = np.argsort(self.place, kind="stable"), np.bincount(self.place)
        first, size = (numbers[self.place[order]] for numbers in (np.cumsum(counts) - counts, counts))
        others = np.empty(order.size, dtype=np.intp)
        others[order] = order[first + (np.arange(order.size) - first + 1) % size]
        alone = counts[self.place] == 1
        if alone.any() and counts.size > 1:
            near = self.tree.query(self.tree.data[self.place[alone]], k=2)[1][:, 1]
            others[alone] = self.first[near]
        return others


def _ranks(column: Array) -> tuple[Array, Array]:
    """Distinct values and their ranks, from 0 to 1."""
    distinct, counts = np.unique(column, return_counts=True)
    return distinct, (np.cumsum(counts) - counts / 2) / column.size


def _places(columns: tuple[tuple[Array, Array] | None, ...], values: Array) -> Array:
    known = zip(columns, values.T, strict=True)
    return np.stack([CATEGORY_DISTANCE * x if ranks is None else np.interp(x, *ranks) for ranks, x in known], axis=1)


def _leaders(table: FeatureTable, members: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Features that must be drawn, and those that they determine; none is constant."""
    leaders, followers = [m for m in members if not table.is_constant(m)], []
    for feature in reversed(leaders):
        others = [m for m in leaders if m != feature]
        if others and _is_function(table, feature, others):
            leaders = others
            followers.append(feature)
    return leaders, followers


def _is_function(table: FeatureTable, feature: int, others: list[int]) -> bool:
    """Whether rows that are near in the others hardly differ in the feature, relative to random pairs."""
    nearest = NearestRow.of(table, others).other_rows()
    column = table.values[:, feature]
    if table.n_levels(feature):
        shares = np.bincount(column.astype(np.intp)) / column.size
        return float((column != column[nearest]).mean()) < FOLLOWS * float(1 - shares @ shares)
    ranks = rankdata(column)
    return float(((ranks - ranks[nearest]) ** 2).mean()) < FOLLOWS * 2 * float(ranks.var())


def _quantiles(conditional: Any, levels: Array) -> Array:
    """Quantile of each row's distribution at its own level: exact if normal, otherwise from the points."""
    levels = np.clip(levels, 2.0**-54, 1 - 2.0**-53)[None]
    if isinstance(conditional, NormalConditional):
        return conditional.quantiles(levels)[0]
    points, weights = conditional.grid(slice(None))
    return point_quantiles(points, weights, levels)[0]


def _worst(calibrations: list[Calibration]) -> Calibration:
    """Combined calibration of several features: the worst fit, the total gain, the least explained."""
    if not calibrations:
        return Calibration("none", float("nan"), float("nan"), float("nan"))
    nothing = Calibration("", float("nan"), float("nan"), 0.0)
    fits = [c for c in calibrations if not np.isnan(c.pit_p_value)]
    worst = max(fits, key=lambda c: c.pit_distance, default=nothing)
    return replace(
        worst,
        sampler="+".join(dict.fromkeys(c.sampler for c in calibrations)),
        pit_p_value=min([1.0, *(len(fits) * c.pit_p_value for c in fits)]) if fits else float("nan"),
        log_score_gain=sum(c.log_score_gain for c in calibrations),
        explained_share=min(c.explained_share for c in calibrations),
        n_clusters=0,
    )
