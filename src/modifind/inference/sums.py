"""Test of a sum over rows that are independent under the null hypothesis, by a saddlepoint tail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm
from scipy.stats import t as student

from modifind._typing import Array, Ints

MAX_STEPS = 60
BLOCK_ROWS = 2048  # what is made of so many rows stays in the cache
MAX_EXPONENT = 300.0
SMALLEST = 1e-300
LARGEST_COMBINED = 0.9  # p-value: one near 1 must not undo a small one
# From a tilt to the cumulant generating function of a centred sum and its first two derivatives.
Cumulants: TypeAlias = Callable[[float], tuple[float, float, float]]


@dataclass(frozen=True)
class AnalyticOutcome:
    """Result of the analytic test of one feature.

    Attributes
    ----------
    statistic : float
        The sum less its null mean, in null standard deviations.
    p_value : float
        Of all that was tested.
    likelihood_p_value : float
        Of the sum alone, by its saddlepoint tail.
    normal_p_value : float
        Of all that was tested, with the normal tail of the sum.
    gain, gain_low, gain_high : float
        Mean excess per row over the null mean, with a 95% interval.
    check_p_value, checked_p_value : float
        Resampled p-value, NaN when not asked for, and the tail that it is to be compared with.
    n_resamples, n_exceeding : int
        Resamples drawn for the check, and those that reached the observed sum.
    direct_p_value : float
        Of the direct component (`statistics.direct`), NaN where there is none.
    prognostic_p_value : float
        Of whether the outcome follows the feature, in whichever arm.
    conditional_p_value : float
        Of whether the contrasts' excess over their means under the distribution follows other features; NaN where it
        does not matter.
    n_repeats : int
        Cross-fits that were averaged because the first one was near the cut.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.inference import analytic_test
    >>> heads = np.repeat([1.0, 0.0], [60, 40])
    >>> outcome = analytic_test(heads, np.tile([0.0, 1.0], (100, 1)), np.full((100, 2), 0.5))
    >>> round(outcome.gain, 2), outcome.n_resamples
    (0.1, 0)
    """

    statistic: float
    p_value: float
    likelihood_p_value: float
    normal_p_value: float
    gain: float
    gain_low: float
    gain_high: float
    check_p_value: float = float("nan")
    checked_p_value: float = float("nan")
    n_resamples: int = 0
    n_exceeding: int = 0
    direct_p_value: float = float("nan")
    prognostic_p_value: float = float("nan")
    conditional_p_value: float = float("nan")
    n_repeats: int = 1

    def with_direct(self, p_value: float, weight: float) -> AnalyticOutcome:
        """The same combined with the p-value of the direct component, with its weight relative to the likelihood."""
        if np.isnan(p_value):
            return self
        shares = (1 - weight, weight)
        both, normal = (
            float(cauchy_combination((tail, p_value), shares))
            for tail in (self.likelihood_p_value, self.normal_p_value)
        )
        return replace(self, p_value=both, normal_p_value=normal, direct_p_value=p_value)


def cauchy_combination(p_values: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
    """Combined p-value of several tests by the Cauchy combination of Liu and Xie (2020).

    Small p-values are valid under any dependence of the tests. Tests that agree cost each other nothing; a single
    significant one pays the inverse of its share of the weights.

    Examples
    --------
    >>> round(float(cauchy_combination((0.001, 0.5))), 4), round(float(cauchy_combination((0.001, 0.001))), 4)
    (0.002, 0.001)
    """
    shares = np.full(len(p_values), 1.0) if weights is None else np.asarray(weights, dtype=np.float64)
    each = (1.0 / np.tan(np.pi * np.clip(p, SMALLEST, LARGEST_COMBINED)) for p in p_values)
    mean = sum(share * own for share, own in zip(shares / shares.sum(), each, strict=True))
    return np.arctan2(1.0, mean) / np.pi


# Of a feature that the statistic does not look at.
UNSEEN = AnalyticOutcome(0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, prognostic_p_value=1.0)


def is_rounding(variance: float, size: float, n_rows: int) -> bool:
    """Whether a variance is no more than rounding error of rows whose absolute values sum to `size`."""
    return not variance > (1e-12 * (size + n_rows)) ** 2


def tail(cumulants: Cumulants, excess: float, variance: float, shared_variance: float) -> tuple[float, float]:
    """Saddlepoint and normal tail of a centred sum of independent rows plus an independent normal variable.

    Parameters
    ----------
    cumulants : callable
        Of the sum, without the normal variable.
    excess, variance : float
        The sum less its mean, and its variance.
    shared_variance : float
        Variance of the normal variable.

    Returns
    -------
    p_value, normal_p_value : float
        By the saddlepoint approximation of Lugannani and Rice, and by the normal distribution with the sum's mean and
        variance. Near the mean, where the former is a ratio of small numbers, both are the latter. Both are for sums
        without large equal steps; where few equal terms decide, they are close to the mid-p-value.

    Examples
    --------
    >>> import numpy as np
    >>> def coins(tilt):  # 100 fair ones
    ...     half = tilt / 2
    ...     return 100 * np.log(np.cosh(half)), 50 * np.tanh(half), 25 / np.cosh(half) ** 2
    >>> p_value, normal = tail(coins, 15.0, 25.0, 0.0)
    >>> round(p_value, 5), round(normal, 5)
    (0.00128, 0.00135)
    """
    if not variance > 0:
        return (1.0, 1.0)
    spread = np.sqrt(variance + shared_variance)
    normal = max(float(norm.sf(excess / spread)), SMALLEST)
    if abs(excess) < 0.5 * spread:
        return normal, normal
    point = _saddlepoint(cumulants, excess, spread, shared_variance)
    if point is None:
        return normal, normal
    tilt, cumulant, curvature = point
    root = np.sign(tilt) * np.sqrt(max(2.0 * (tilt * excess - cumulant), 0.0))
    scaled = tilt * np.sqrt(curvature)
    if root == 0.0 or scaled == 0.0:
        return normal, normal
    p_value = float(ndtr(-root) + norm.pdf(root) * (1.0 / scaled - 1.0 / root))
    if not 0.0 < p_value <= 1.0:  # far out: the leading term of the same formula
        p_value = float(np.exp(min(log_ndtr(-abs(root)), 0.0))) if root > 0 else normal
    return max(p_value, SMALLEST), normal


def _saddlepoint(
    cumulants: Cumulants, excess: float, spread: float, shared_variance: float
) -> tuple[float, float, float] | None:
    """Tilt at which the tilted mean is `excess`, with the cumulant generating function and its second derivative."""
    low, high = (0.0, np.inf) if excess > 0 else (-np.inf, 0.0)
    tilt = excess / spread**2
    for _ in range(MAX_STEPS):
        cumulant, slope, curvature = cumulants(tilt)
        cumulant += 0.5 * shared_variance * tilt**2
        slope += shared_variance * tilt
        curvature += shared_variance
        gap = slope - excess
        if abs(gap) < 1e-7 * spread:
            return tilt, cumulant, curvature
        low, high = (tilt, high) if gap < 0 else (low, tilt)
        step = tilt - gap / curvature if curvature > 0 else np.nan
        if not low < step < high:  # Newton left the bracket
            step = 2.0 * tilt if not np.isfinite(low + high) else 0.5 * (low + high)
        if abs(step) * spread > 1e3:  # beyond what the variables can reach
            return None
        tilt = step
    return None


def exact_cumulants(centred: Array, weights: Array, tilt: float) -> tuple[float, float, float]:
    """Cumulant generating function of a sum of rows, and its first two derivatives."""
    cumulant = slope = curvature = 0.0
    weights = np.broadcast_to(weights, centred.shape)
    for start in range(0, len(centred), BLOCK_ROWS):
        own = centred[start : start + BLOCK_ROWS]
        tilted = tilt * own
        top = tilted.max(axis=1) if np.abs(tilted).max() > MAX_EXPONENT else np.zeros(len(own))
        if top.any():
            tilted -= top[:, None]
        np.exp(tilted, out=tilted)
        tilted *= weights[start : start + BLOCK_ROWS]
        total = tilted.sum(axis=1)
        tilted *= own
        mean = tilted.sum(axis=1) / total
        square = np.einsum("ij,ij->i", tilted, own) / total
        cumulant += float(np.sum(np.log(total) + top))
        slope += float(mean.sum())
        curvature += float(np.sum(np.maximum(square - mean**2, 0.0)))
    return cumulant, slope, curvature


@dataclass(frozen=True)
class RowSums:
    """Sums over rows for the test of one feature.

    Attributes
    ----------
    n_rows : int
        Number of rows.
    size : float
        Sum of the absolute observed values, which bounds rounding.
    excess, square : float
        Sums of the observed values less their null means, and of the squares.
    second, third, fourth : float
        Sums of the rows' cumulants under the null hypothesis.
    clusters : array, optional
        Sums of the excess over clusters of rows; None where rows are independent of each other.
    rows : tuple of two arrays, optional
        Centred values and weights of rows that are at hand, for the exact tail.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.inference import RowSums
    >>> fair = np.tile([0.0, 1.0], (2, 1)), np.full((2, 2), 0.5)
    >>> heads, _ = RowSums.of(np.array([1.0, 1.0]), *fair)
    >>> mixed, _ = RowSums.of(np.array([0.0, 1.0]), *fair)
    >>> (heads + mixed).n_rows, (heads + mixed).excess
    (4, 1.0)
    """

    n_rows: int
    size: float
    excess: float
    square: float
    second: float
    third: float
    fourth: float
    clusters: Array | None = None
    rows: Any = None

    @classmethod
    def of(
        cls,
        observed: Array,
        values: Array,
        weights: Array,
        clusters: Ints | None = None,
        n_clusters: int = 0,
        *,
        keep: bool = False,
    ) -> tuple[RowSums, Array]:
        """Sum rows, with the null variance of each.

        Parameters
        ----------
        observed, values, weights, clusters
            As in `analytic_test`.
        n_clusters : int, default=0
            Number of clusters of all rows, where these are some.
        keep : bool, default=False
            Whether these are all rows, and the tail is to be exact.
        """
        mean = np.einsum("ij,ij->i", values, weights)
        excess = observed - mean
        centred = np.empty(values.shape) if keep else None
        weights = np.broadcast_to(weights, values.shape)
        second, third, fourth = np.empty(mean.size), 0.0, 0.0
        for start in range(0, mean.size, BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            apart = values[block] - mean[block, None]
            if centred is not None:
                centred[block] = apart
            power = weights[block] * apart
            power *= apart
            second[block] = power.sum(axis=1)
            power *= apart
            third += float(power.sum())
            fourth += float(np.einsum("ij,ij->", power, apart))
        fourth -= 3.0 * float(second @ second)
        totals = float(excess.sum()), float(excess @ excess), float(second.sum()), third, fourth
        together = None if clusters is None else np.bincount(clusters, excess, n_clusters).astype(np.float64)
        rows = None if centred is None else (centred, weights)
        return cls(observed.size, float(np.abs(observed).sum()), *totals, together, rows), second

    def __add__(self, other: RowSums) -> RowSums:
        """Add the sums of other rows."""
        pairs = ((field.name, getattr(self, field.name), getattr(other, field.name)) for field in fields(self)[:-1])
        added: dict[str, Any] = {name: None if one is None else one + two for name, one, two in pairs}
        return RowSums(**added)

    def __neg__(self) -> RowSums:
        """The sums of the negated contributions."""
        together = None if self.clusters is None else -self.clusters
        rows = None if self.rows is None else (-self.rows[0], self.rows[1])
        return replace(self, excess=-self.excess, third=-self.third, clusters=together, rows=rows)

    @property
    def spread(self) -> float:
        """Empirical variance of the sum, over rows or clusters."""
        if self.clusters is not None:
            return self.clusters.size * float(self.clusters.var(ddof=1))
        return max(self.square - self.excess**2 / self.n_rows, 0.0) * self.n_rows / (self.n_rows - 1)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of `spread` over clusters; infinite for rows."""
        return np.inf if self.clusters is None else self.clusters.size - 1.0

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        """Cumulant generating function of the centred sum and its first two derivatives."""
        if self.rows is not None:
            centred, weights = self.rows
            return exact_cumulants(centred, weights, tilt)
        value = tilt**2 * (self.second / 2 + tilt * (self.third / 6 + tilt * self.fourth / 24))
        slope = tilt * (self.second + tilt * (self.third / 2 + tilt * self.fourth / 6))
        return value, slope, self.second + tilt * (self.third + tilt * self.fourth / 2)


def sums_test(
    sums: RowSums, shared_variance: float = 0.0, *, check_resamples: int = 0, rng: Any = None
) -> AnalyticOutcome:
    """Compare a sum over rows with its null distribution.

    If rows vary more than that distribution implies, because of unequal weights or because the feature predicts the
    outcome in both arms, the difference is added like `shared_variance`, which grows in proportion. With clusters the
    p-value is at least that of Student's t with one degree of freedom less than there are clusters.

    Parameters
    ----------
    sums : RowSums
        Sums over all rows.
    shared_variance : float, default=0.0
        Variance of the sum beyond that of independent rows, as of a normal variable added to it.
    check_resamples : int, default=0
        Also draw the sum this often, where rows are at hand; the p-value of the draws must agree with the tail.
    rng : Generator, optional
        For the draws.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> heads = rng.integers(0, 2, 10_000).astype(float)
    >>> half, _ = RowSums.of(heads[:4000], np.tile([0.0, 1.0], (4000, 1)), np.full((4000, 2), 0.5))
    >>> rest, _ = RowSums.of(heads[4000:], np.tile([0.0, 1.0], (6000, 1)), np.full((6000, 2), 0.5))
    >>> round(sums_test(half + rest).p_value, 3)
    0.274
    """
    if is_rounding(sums.second, sums.size, sums.n_rows):
        return UNSEEN
    spread = sums.spread
    shared_variance *= max(spread / sums.second, 1.0)
    observed_variance = spread + shared_variance
    added = shared_variance + max(spread - sums.second, 0.0)
    p_value, normal = tail(sums.cumulants, sums.excess, sums.second, added)
    limit = float(norm.ppf(0.975))
    if np.isfinite(sums.freedom) and observed_variance > 0:
        p_value = max(p_value, float(student.sf(sums.excess / np.sqrt(observed_variance), sums.freedom)))
        limit = float(student.ppf(0.975, sums.freedom))
    gain, half = sums.excess / sums.n_rows, limit * float(np.sqrt(observed_variance)) / sums.n_rows
    statistic = float(sums.excess / np.sqrt(sums.second + added))
    outcome = AnalyticOutcome(statistic, p_value, p_value, normal, gain, gain - half, gain + half)
    if not check_resamples:
        return outcome
    exceeding = _n_exceeding(sums, added, check_resamples, np.random.default_rng(rng))
    return replace(
        outcome,
        check_p_value=(1 + exceeding) / (1 + check_resamples),
        checked_p_value=p_value,
        n_resamples=check_resamples,
        n_exceeding=exceeding,
    )


def _n_exceeding(sums: RowSums, added_variance: float, n_draws: int, rng: np.random.Generator) -> int:
    """Number of drawn sums that reach the observed one."""
    values, weights = sums.rows
    limits = sums.excess - np.sqrt(added_variance) * rng.standard_normal(n_draws)
    edges = np.cumsum(weights, axis=1)[:, :-1]
    rows = np.arange(values.shape[0])
    exceeding = 0
    for limit in limits:
        chosen = (rng.random((rows.size, 1)) > edges).sum(axis=1)
        exceeding += float(values[rows, chosen].sum()) >= limit
    return int(exceeding)


def analytic_test(
    observed: Array,
    values: Array,
    weights: Array,
    *,
    shared_variance: float = 0.0,
    clusters: Ints | None = None,
    check_resamples: int = 0,
    rng: np.random.Generator | None = None,
) -> AnalyticOutcome:
    """Compare a sum over rows at hand with its null distribution; see `sums_test`.

    Parameters
    ----------
    observed : array of shape (n,)
        What each row adds to the statistic.
    values, weights : array of shape (n, g)
        What it would add under the null hypothesis, with which probability.
    clusters : int array of shape (n,), optional
        Rows that are not independent of each other.
    shared_variance, check_resamples, rng
        As in `sums_test`.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.inference import analytic_test
    >>> heads = np.repeat([1.0, 0.0], [60, 40])
    >>> outcome = analytic_test(heads, np.tile([0.0, 1.0], (100, 1)), np.full((100, 2), 0.5))
    >>> round(outcome.statistic, 2), round(outcome.p_value, 2)
    (2.0, 0.02)
    """
    codes = None if clusters is None else np.unique(clusters, return_inverse=True)[1].reshape(-1)
    sums, _ = RowSums.of(observed, values, weights, codes, keep=True)
    return sums_test(sums, shared_variance, check_resamples=check_resamples, rng=rng)


def cluster_terms(observed: Array, values: Array, weights: Array, clusters: Ints) -> tuple[Array, Array, Array]:
    """Contribution of each cluster whose rows share one draw of the feature: sums of rows, with mean-zero values.

    Points are those of any of its rows, and their weights the mean over the rows.
    """
    size = int(clusters.max()) + 1
    counts = np.bincount(clusters).astype(np.float64)
    shares = np.stack([np.bincount(clusters, column, size) / counts for column in weights.T], axis=1)
    sums = np.stack([np.bincount(clusters, column, size) for column in values.T], axis=1)
    totals = np.bincount(clusters, observed, size).astype(np.float64)
    return totals, sums - np.einsum("ij,ij->i", sums, shares)[:, None], shares
