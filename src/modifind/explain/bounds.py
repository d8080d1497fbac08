"""Bounds on what the data do not identify: how the effect varies between units that share the value of a feature.

The joint distribution of the potential outcomes is not identified, but the distribution of each arm around a value of
the feature bounds it. `effect_bounds` gives the bounds with bands, `bounds_test` tests whether they change along the
feature, `effect_distribution_bounds` bounds the share of units whose effect is at most d, and `BoundDraws` serves all
three from the same bootstrap draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from modifind._typing import Array
from modifind.data.clusters import Clusters
from modifind.data.weights import Weights, population_weights
from modifind.explain.local import curve_points, local_bandwidth
from modifind.explain.local_distributions import (
    ALL,
    EDGES,
    ENDS,
    MAX_DRAWN,
    QUANTITIES,
    RANGES,
    SHARES,
    LocalDistribution,
    Measure,
    WeightedRows,
    bootstrap,
)
from modifind.explain.rows import ArmRows, GivenFeature, GivenRows, check_draws
from modifind.result.presentation import N_DRAWS
from modifind.statistics.kernels import gaussian_gram

# Points with fewer effective rows than this in an arm are flagged.
MIN_BOUND_SUPPORT = 30.0
# Tests leave out more: maxima are found too high where rows are few, and that is no change along the feature.
MIN_TEST_SUPPORT = 60.0
# A spread of draws below this share of the size of the bounds is rounding.
ROUNDING = 1e-10


def effect_bounds(
    x: ArrayLike,
    y: ArrayLike,
    treatment: ArrayLike,
    propensity: ArrayLike,
    *,
    discrete: bool = False,
    points: ArrayLike | None = None,
    bandwidth: float | None = None,
    weights: ArrayLike | None = None,
    higher_is_better: bool = True,
    n_bootstrap: int = 200,
    level: float = 0.95,
    random_state: Any = None,
) -> pd.DataFrame:
    """Sharp bounds on the distribution of the effect Y1 - Y0 along the values of a feature.

    Parameters
    ----------
    x : array-like of shape (n,)
        The feature.
    y, treatment, propensity : array-like of shape (n,)
        Outcome, treatment (0 or 1) and P(treatment = 1) given all features; a single propensity for a trial.
    discrete : bool, default=False
        Whether x is a category, with bounds for each value. Otherwise rows are weighted by a Gaussian kernel.
    points : array-like, optional
        Where to evaluate the bounds; by default the points of the effect curves: every category, or up to 25 quantiles.
    bandwidth : float, optional
        Bandwidth h of the kernel exp(-(u - v)^2 / h^2); see `local_bandwidth` for the default.
    weights : array-like of shape (n,), optional
        Weights of the rows.
    higher_is_better : bool, default=True
        Whether a treatment that raises the outcome is a benefit.
    n_bootstrap : int, default=200
        Draws of the weighted bootstrap that bands come from.
    level : float, default=0.95
        Level of the bands, point by point.
    random_state : int, SeedSequence or Generator, optional
        Seed.

    Returns
    -------
    DataFrame
        One row per point: `value`; the lower and upper bound (`_low`, `_high`) of `var`, the variance of the effect,
        `sd`, its root, `corr`, the correlation of Y0 and Y1, `benefit`, the share who benefit, and `no_harm`, the share
        who benefit or are left as they are; for each bound a confidence interval (`_ci_low`, `_ci_high`); the effective
        rows of each arm, `support_treated` and `support_control`; and `low_support`, true where one of them is below
        30. Missing where an arm has no rows; `corr` also where the outcome of an arm is constant.

    Examples
    --------
    >>> x, y, a = ["p", "p", "p", "p", "q", "q", "q", "q"], [-1, 1, -1, 1, 0, 2, 0, 0], [0, 0, 1, 1, 0, 0, 1, 1]
    >>> table = effect_bounds(x, y, a, 0.5, discrete=True, random_state=0)
    >>> table[["value", "var_low", "var_high", "benefit_low", "benefit_high"]].round(2)
      value  var_low  var_high  benefit_low  benefit_high
    0     p      0.0       4.0          0.0           0.5
    1     q      1.0       1.0          0.0           0.0
    """
    given = GivenRows(x, y, treatment, propensity, discrete, points, bandwidth, weights)
    return BoundDraws.of(given, higher_is_better, n_bootstrap, random_state).table(level)


def bounds_test(
    x: ArrayLike,
    y: ArrayLike,
    treatment: ArrayLike,
    propensity: ArrayLike,
    *,
    discrete: bool = False,
    points: ArrayLike | None = None,
    bandwidth: float | None = None,
    weights: ArrayLike | None = None,
    higher_is_better: bool = True,
    n_bootstrap: int = 200,
    random_state: Any = None,
) -> pd.DataFrame:
    """Test whether bounds on the distribution of the effect change along a feature.

    Parameters
    ----------
    x, y, treatment, propensity, discrete, points, bandwidth, weights, higher_is_better, n_bootstrap, random_state
        As in `effect_bounds`.

    Returns
    -------
    DataFrame
        One row for the `midpoint` and one for the `width` of the interval between the bounds (column `part`) of each
        `quantity`: `statistic`, the largest distance of a point from the average over points in standard
        errors, its `p_value`, and `n_points`, the number of points with 60 effective rows in each arm. Missing with
        fewer than two.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, a = rng.integers(0, 2, size=1000), np.arange(1000) % 2
    >>> y = rng.normal(size=1000) * (1 + a * x)
    >>> table = bounds_test(x, y, a, 0.5, discrete=True, random_state=0)
    >>> table.loc[table["quantity"] == "var", ["part", "p_value"]].round(3)
           part  p_value
    0  midpoint    0.005
    1     width    0.005
    """
    given = GivenRows(x, y, treatment, propensity, discrete, points, bandwidth, weights)
    return BoundDraws.of(given, higher_is_better, n_bootstrap, random_state).test()


@dataclass(frozen=True)
class BoundDraws:
    """Bounds at points of a feature and their bootstrap draws.

    Parameters
    ----------
    values : array of shape (points,)
        Feature values.
    estimates : array of shape (points, bounds)
        Bounds, in the order of `ENDS`.
    shifts : array of shape (draws, points, bounds)
        Bounds of every draw less the bounds without reweighting.
    off_edge : array of shape (draws, points, bounds)
        How far from the edge of its range chance puts a bound that belongs there.
    support : array of shape (points, 2)
        Effective rows, treated and control.
    measure : Measure
        Which of the bounds these are.
    """

    values: NDArray[Any]
    estimates: Array
    shifts: Array
    off_edge: Array
    support: Array
    measure: Measure = ALL

    @classmethod
    def of(
        cls, given: GivenRows, higher_is_better: bool = True, n_bootstrap: int = 200, random_state: Any = None
    ) -> BoundDraws:
        """Compute bounds and draws; parameters are those of `effect_bounds`."""
        check_draws(n_bootstrap)
        rows = given.arm_rows()
        kernels, values = feature_kernels(given.feature(gaps=False), rows.weights, given.bandwidth)
        sorted_rows, rng = WeightedRows.of(rows), np.random.default_rng(random_state)
        return cls.near([sorted_rows], kernels, values, higher_is_better, n_bootstrap, rng, rows.clusters)

    @classmethod
    def near(
        cls,
        copies: Sequence[WeightedRows],
        kernels: Iterable[Array],
        values: NDArray[Any],
        higher_is_better: bool,
        n_bootstrap: int,
        rng: np.random.Generator,
        clusters: Clusters,
        measure: Measure = ALL,
    ) -> BoundDraws:
        """Bounds and draws of validated rows, or of copies of them; `kernels` weight the rows at each value."""
        priority = None if clusters.codes.size <= MAX_DRAWN else rng.permutation(clusters.count)[clusters.codes]
        distributions = [
            LocalDistribution.of(rows, kernel, higher_is_better, priority=priority, measure=measure)
            for kernel in kernels
            for rows in copies
        ]
        shifts, off_edge = bootstrap(distributions, clusters, n_bootstrap, higher_is_better, rng, measure)
        estimates = np.array([distribution.estimate for distribution in distributions])
        support = np.array([distribution.support for distribution in distributions])
        return cls(np.repeat(values, len(copies)), estimates, shifts, off_edge, support, measure)

    def columns(self, level: float) -> dict[str, Array]:
        """Every bound with its confidence interval, by name.

        Each interval is the union of the normal interval and the reflected one, which is shifted by the bias that the
        draws show. Bounds are biased where the difference of two distributions attains its extreme at several points. A
        bound near the edge of its range keeps the edge in its interval if chance alone can explain the distance.
        """
        tail, edges, ranges = (1.0 - level) / 2, EDGES[self.measure.ends], RANGES[self.measure.ends]
        lower, upper = np.quantile(self.shifts, (tail, 1.0 - tail), axis=0)
        reach = norm.isf(tail) * self.shifts.std(axis=0)
        low, high = self.estimates - np.maximum(upper, reach), self.estimates + np.maximum(-lower, reach)
        at_edge = np.abs(self.estimates - edges) <= np.quantile(self.off_edge, 1.0 - tail, axis=0)
        low, high = np.where(at_edge, np.minimum(low, edges), low), np.where(at_edge, np.maximum(high, edges), high)
        sides = {"": self.estimates, "_ci_low": np.clip(low, *ranges.T), "_ci_high": np.clip(high, *ranges.T)}
        names = ENDS[self.measure.ends]
        return {f"{name}{side}": shown[:, k] for k, name in enumerate(names) for side, shown in sides.items()}

    @property
    def support_columns(self) -> dict[str, Array]:
        """Effective rows of each arm, and whether either arm has too few."""
        treated, control = self.support.T
        low = np.any(self.support < MIN_BOUND_SUPPORT, axis=1)
        return {"support_treated": treated, "support_control": control, "low_support": low}

    def table(self, level: float = 0.95) -> pd.DataFrame:
        """Bounds with their bands; see `effect_bounds` for the columns."""
        check_draws(level=level)
        shown: dict[str, Any] = {"value": self.values}
        for name, bound in self.columns(level).items():
            if name == "corr_low":
                shown |= {f"sd{key[3:]}": np.sqrt(variance) for key, variance in shown.items() if key.startswith("var")}
            shown[name] = bound
        return pd.DataFrame({**shown, **self.support_columns})

    def test(self) -> pd.DataFrame:
        """Test whether the bounds change along the feature; see `bounds_test` for the table."""
        records = []
        for k, name in enumerate(QUANTITIES):
            low, high = 2 * k, 2 * k + 1
            for part, of_low, of_high in (("midpoint", 0.5, 0.5), ("width", -1.0, 1.0)):
                curve = of_low * self.estimates[:, low] + of_high * self.estimates[:, high]
                shifts = of_low * self.shifts[:, :, low] + of_high * self.shifts[:, :, high]
                used = np.all(self.support >= MIN_TEST_SUPPORT, axis=1) & np.isfinite(curve)
                statistic, p_value = _largest_deviation(curve[used], shifts[:, used], self.support[used])
                records.append((name, part, statistic, p_value, int(used.sum())))
        return pd.DataFrame(records, columns=["quantity", "part", "statistic", "p_value", "n_points"])


def _largest_deviation(curve: Array, shifts: Array, support: Array) -> tuple[float, float]:
    """Largest deviation from the average over points in standard errors, and its bootstrap p-value."""
    if curve.size < 2:
        return np.nan, np.nan
    # Points count by their rows, and errors are taken to fall with the root of the rows. Errors of single points
    # go along with the bounds, variances above all, and would reject too often.
    rows = support[:, 0] * support[:, 1] / support.sum(axis=1)
    share = rows / rows.sum()
    deviation = curve - share @ curve
    moved = shifts - (shifts @ share)[:, None]
    error = np.sqrt(np.mean(moved.var(axis=0) * rows) / rows)
    # What is rounding counts as nothing.
    rounding = max(ROUNDING * np.abs(curve).max(), np.finfo(np.float64).tiny)
    error = np.maximum(error, rounding)
    deviation[np.abs(deviation) < rounding] = 0.0
    statistic = float(np.max(np.abs(deviation) / error))
    drawn = np.max(np.abs(moved) / error, axis=1)
    return statistic, float((1 + np.sum(drawn >= statistic)) / (1 + drawn.size))


def feature_kernels(
    feature: GivenFeature, weights: Weights, bandwidth: float | None = None, most: int | None = None
) -> tuple[Iterator[Array], NDArray[Any]]:
    """Kernel weights of the rows at each point of a feature, and the points as displayed.

    Of more than `most` points of a continuous feature, `most` evenly spaced ones are kept, including the first and the
    last; the last point is NaN if there are missing values.
    """
    column = feature.column
    if feature.labels is not None:
        codes = curve_points(column, feature.n_levels) if feature.points is None else feature.points
        return near_points(column, codes, 0.0), feature.named(codes)
    seen = ~np.isnan(column)
    points = curve_points(column[seen], 0, weights[seen]) if feature.points is None else feature.points
    if most is not None and points.size > most:
        points = points[np.round(np.linspace(0, points.size - 1, most)).astype(np.intp)]
    kernels = near_points(column, points, bandwidth or local_bandwidth(column[seen], weights[seen]))
    if seen.all():
        return kernels, points
    gaps = (~seen).astype(np.float64)
    return chain((np.where(seen, near, 0.0) for near in kernels), (gaps,)), np.append(points, np.nan)


def near_points(column: Array, points: Array, bandwidth: float) -> Iterator[Array]:
    """Kernel weights of the rows at each point; only rows of exactly that value count if `bandwidth` is 0."""
    for point in points:
        if bandwidth:
            yield gaussian_gram(np.array([point]), column, bandwidth)[0]
        else:
            yield (column == point).astype(np.float64)


DEFAULT_LEVELS = np.array([0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9])


def effect_distribution_bounds(
    x: ArrayLike,
    y: ArrayLike,
    treatment: ArrayLike,
    propensity: ArrayLike,
    *,
    effects: ArrayLike | None = None,
    discrete: bool = False,
    points: ArrayLike | None = None,
    bandwidth: float | None = None,
    weights: ArrayLike | None = None,
    n_bootstrap: int = 200,
    level: float = 0.95,
    random_state: Any = None,
) -> pd.DataFrame:
    """Sharp bounds on the distribution function of the effect, P(Y1 - Y0 <= d), along the values of a feature.

    Parameters
    ----------
    x, y, treatment, propensity, discrete, points, bandwidth, weights, n_bootstrap, level, random_state
        As in `effect_bounds`.
    effects : array-like, optional
        The effects d; by default 0 and eight differences between a quantile of the treated and the opposite quantile of
        the control, all rows together.

    Returns
    -------
    DataFrame
        One row per point and effect: `value`, `effect`, the lower and upper bound `probability_low` and
        `probability_high`, each with a confidence interval (`_ci_low`, `_ci_high`), and `support_treated`,
        `support_control` and `low_support` as in `effect_bounds`. Bounds are sharp for each effect by itself.

    Examples
    --------
    >>> x, y, a = ["p", "p", "p", "p", "q", "q", "q", "q"], [-1, 1, -1, 1, 0, 2, 0, 0], [0, 0, 1, 1, 0, 0, 1, 1]
    >>> table = effect_distribution_bounds(x, y, a, 0.5, effects=[-2, 0], discrete=True, random_state=0)
    >>> table[["value", "effect", "probability_low", "probability_high"]]
      value  effect  probability_low  probability_high
    0     p    -2.0              0.0               0.5
    1     p     0.0              0.5               1.0
    2     q    -2.0              0.5               0.5
    3     q     0.0              1.0               1.0
    """
    check_draws(n_bootstrap, level)
    given = GivenRows(x, y, treatment, propensity, discrete, points, bandwidth, weights)
    rows = given.arm_rows()
    kernels, values = feature_kernels(given.feature(gaps=False), rows.weights, bandwidth)
    sorted_rows, rng = WeightedRows.of(rows), np.random.default_rng(random_state)
    shown = _default_effects(sorted_rows) if effects is None else _read_effects(effects)
    # Y1 - Y0 <= d where Y1 <= Y0 + d: who is not harmed by a treatment that should lower the outcome.
    moved = [sorted_rows.shifted(effect) for effect in shown.tolist()]
    draws = BoundDraws.near(moved, kernels, values, False, n_bootstrap, rng, rows.clusters, SHARES)
    bounds = {name.replace("no_harm", "probability"): bound for name, bound in draws.columns(level).items()}
    probabilities = {name: bound for name, bound in bounds.items() if name.startswith("probability")}
    columns: dict[str, Any] = {"value": draws.values, "effect": np.tile(shown, len(values))}
    return pd.DataFrame({**columns, **probabilities, **draws.support_columns})


def _default_effects(rows: WeightedRows) -> Array:
    """Zero, and effects under opposite ranks: from the largest losses to the largest gains."""
    high, low = (
        Weights.of(rows.weights[arm]).quantiles(rows.y[arm], levels)
        for arm, levels in ((rows.treated, DEFAULT_LEVELS), (~rows.treated, DEFAULT_LEVELS[::-1]))
    )
    return np.unique(np.append(high - low, 0.0))


def _read_effects(effects: ArrayLike) -> Array:
    try:
        shown = np.asarray(effects, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        raise ValueError("effects must be numbers") from None
    if shown.size == 0 or not np.all(np.isfinite(shown)):
        raise ValueError("effects must be finite numbers, at least one")
    return np.unique(shown)


# Bounds take far longer than curves, and half the points of a curve show how they go.
MAX_BOUND_POINTS = 13


@dataclass(frozen=True)
class Bounds:
    """Bounds along a column from `effect_bounds`, and their test from `bounds_test`."""

    table: pd.DataFrame
    tests: pd.DataFrame


def explain_bounds(feature: GivenFeature, rows: ArmRows, seed: np.random.SeedSequence) -> Bounds:
    """Bounds on the distribution of the effect along one column.

    Parameters
    ----------
    feature : GivenFeature
        The column, and where to look; by default at the points of its curve, at most at 13 of a number.
    rows : ArmRows
        Its rows; those of a cluster are drawn together.
    seed : SeedSequence
        For the bootstrap.

    Returns
    -------
    Bounds
        Where values of a number are missing, the last row, with a `value` of NaN, is that of the rows without one.
    """
    weights = population_weights(rows.scores, rows.population, rows.weights)
    kernels, values = feature_kernels(feature, weights, most=MAX_BOUND_POINTS)
    sorted_rows, rng = WeightedRows.of(rows), np.random.default_rng(seed)
    draws = BoundDraws.near([sorted_rows], kernels, values, True, N_DRAWS, rng, rows.clusters)
    return Bounds(draws.table().assign(value=list(values)), draws.test())
