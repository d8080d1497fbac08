"""P-values without resampling: a statistic that is a sum over rows, each row independent under the null hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm
from scipy.stats import t as student

from modifind._typing import Array, Ints

MAX_STEPS = 60
BLOCK_ROWS = 2048  # what is made of so many rows stays in the cache
MOST_EXPONENT = 300.0
SMALLEST = 1e-300
LIKELIHOOD_WEIGHT = 0.6
LARGEST_COMBINED = 0.9  # p-value: one near 1 must not undo a small one
# From a tilt to the cumulant generating function of a centred sum and its first two derivatives.
Cumulants: TypeAlias = Callable[[float], tuple[float, float, float]]


@dataclass(frozen=True)
class AnalyticOutcome:
    """What the test found for one feature.

    Attributes
    ----------
    statistic : float
        The sum less its null mean, in null standard deviations.
    p_value : float
        Of all that was tested.
    likelihood_p_value, normal_p_value : float
        Saddlepoint and normal tail of the sum.
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
        Cross-fits that were averaged.
    z_spread : float
        Standard error of z over these, NaN for a single one.

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
    z_spread: float = float("nan")

    def with_direct(self, p_value: float) -> AnalyticOutcome:
        """The same with the p-value of the direct component."""
        combined = combined_p_value(self.likelihood_p_value, p_value)
        return replace(self, p_value=float(combined), direct_p_value=p_value)


def combined_p_value(likelihood: Any, direct: Any) -> Any:
    """P-value of both components; that of the likelihood where the direct one is NaN.

    By the Cauchy combination of Liu and Xie, in which the likelihood has three fifths of the weight: small p-values
    hold whatever the dependence of the two.

    Examples
    --------
    >>> round(float(combined_p_value(0.001, 0.8)), 4), round(float(combined_p_value(0.8, 0.001)), 4)
    (0.0017, 0.0025)
    """
    both = cauchy_combination(likelihood, direct, LIKELIHOOD_WEIGHT)
    return np.where(np.isnan(direct), likelihood, both)


def cauchy_combination(first: Any, second: Any, weight: float = 0.5) -> Any:
    """P-value of two tests at once, of which the first has so much of the weight (Liu and Xie 2020).

    Examples
    --------
    >>> round(float(cauchy_combination(0.001, 0.5)), 4)
    0.002
    """
    below = (np.clip(p, SMALLEST, LARGEST_COMBINED) for p in (first, second))
    one, other = (1.0 / np.tan(np.pi * p) for p in below)
    return np.arctan2(1.0, weight * one + (1 - weight) * other) / np.pi


# Of a feature that the statistic does not look at.
UNSEEN = AnalyticOutcome(0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, prognostic_p_value=1.0)


def is_rounding(variance: float, size: float, n_rows: int) -> bool:
    """Whether a variance is no more than rounding makes of rows whose absolute values sum to `size`."""
    return not variance > (1e-12 * (size + n_rows)) ** 2


def widened(spread: float, variance: float, shared_variance: float) -> tuple[float, float]:
    """Variance of a sum by the rows' own spread, and what is added to the null's where rows vary more than it says."""
    shared_variance *= max(spread / variance, 1.0)
    return spread + shared_variance, shared_variance + max(spread - variance, 0.0)


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
    """Compare a sum over rows with its null distribution.

    Where rows vary more than that distribution says, as those of a sample with unequal weights do, or those about a
    feature that predicts the outcome in both arms, the difference is added like `shared_variance`, which grows in
    proportion.

    Parameters
    ----------
    observed : array of shape (n,)
        What each row adds to the statistic.
    values, weights : array of shape (n, g)
        What it would add under the null hypothesis, with which probability.
    shared_variance : float, default=0.0
        Variance of the sum beyond that of independent rows, as of a normal variable added to it.
    clusters : int array of shape (n,), optional
        Rows that are not independent of each other. The variance is that of the clusters' sums, and the p-value is at
        least that of Student's t with one degree of freedom less than there are clusters. Where rows of a cluster
        share one draw of the feature, rows are sums over clusters already (`cluster_sums`), and a cluster each.
    check_resamples : int, default=0
        Also draw the sum this often; the p-value of the draws must agree with the tail.
    rng : Generator, optional
        For the draws.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.inference import analytic_test
    >>> heads = np.repeat([1.0, 0.0], [60, 40])
    >>> outcome = analytic_test(heads, np.tile([0.0, 1.0], (100, 1)), np.full((100, 2), 0.5))
    >>> round(outcome.statistic, 2), round(outcome.p_value, 2)
    (2.0, 0.02)
    """
    expected, centred, variance = _moments(values, weights)
    excess = observed - expected
    if is_rounding(variance, float(np.abs(observed).sum()), observed.size):
        return UNSEEN
    units = excess if clusters is None else np.bincount(clusters, excess)[np.unique(clusters)].astype(np.float64)
    found, noise = compared(
        partial(_cumulants, centred, weights),
        float(excess.sum()),
        variance,
        observed.size,
        units.size * float(units.var(ddof=1)),
        shared_variance=shared_variance,
        freedom=np.inf if clusters is None else units.size - 1.0,
    )
    if not check_resamples:
        return found
    rng = np.random.default_rng(rng)
    shifts = np.sqrt(noise) * rng.standard_normal(check_resamples)
    exceeding = _n_exceeding(values, weights, float(observed.sum()) - shifts, rng)
    return replace(
        found,
        check_p_value=(1 + exceeding) / (1 + check_resamples),
        checked_p_value=found.p_value,
        n_resamples=check_resamples,
        n_exceeding=exceeding,
    )


def compared(
    cumulants: Cumulants,
    excess: float,
    variance: float,
    n_rows: int,
    spread: float,
    *,
    shared_variance: float,
    freedom: float = np.inf,
) -> tuple[AnalyticOutcome, float]:
    """What a sum over rows comes to against its null distribution, and the variance that is added to the null's.

    Parameters
    ----------
    cumulants : callable
        Of the sum less its null mean.
    excess, variance : float
        The sum less its null mean, and its null variance.
    n_rows : int
        Number of rows.
    spread : float
        Variance of the sum as rows, or clusters of them, tell it.
    shared_variance : float
        As in `analytic_test`.
    freedom : float
        Degrees of freedom of `spread` where clusters tell it: the p-value is at least that of Student's t.
    """
    own_spread, shared_variance = widened(spread, variance, shared_variance)
    p_value, normal = tail(cumulants, excess, variance, shared_variance)
    limit = float(norm.ppf(0.975))
    if np.isfinite(freedom) and own_spread > 0:
        p_value = max(p_value, float(student.sf(excess / np.sqrt(own_spread), freedom)))
        limit = float(student.ppf(0.975, freedom))
    gain, half = excess / n_rows, limit * float(np.sqrt(own_spread)) / n_rows
    statistic = float(excess / np.sqrt(variance + shared_variance))
    return AnalyticOutcome(statistic, p_value, p_value, normal, gain, gain - half, gain + half), shared_variance


def cluster_sums(observed: Array, values: Array, weights: Array, clusters: Ints) -> tuple[Array, Array, Array]:
    """What each cluster adds where its rows share one draw of the feature: sums of rows, whose values have mean zero.

    Points are those of any of its rows, and their weights the mean over the rows.
    """
    size = int(clusters.max()) + 1
    counts = np.bincount(clusters).astype(np.float64)
    shares = np.stack([np.bincount(clusters, own, size) / counts for own in weights.T], axis=1)
    sums = np.stack([np.bincount(clusters, own, size) for own in values.T], axis=1)
    totals = np.bincount(clusters, observed, size).astype(np.float64)
    return totals, sums - np.einsum("ij,ij->i", sums, shares)[:, None], shares


def _n_exceeding(values: Array, weights: Array, limits: Array, rng: np.random.Generator) -> int:
    """How many drawn sums reach their limit."""
    edges = np.cumsum(weights, axis=1)[:, :-1]
    rows = np.arange(values.shape[0])
    exceeding = 0
    for limit in limits:
        chosen = (rng.random((rows.size, 1)) > edges).sum(axis=1)
        exceeding += float(values[rows, chosen].sum()) >= limit
    return int(exceeding)


def sum_tail(values: Array, weights: Array, observed: float, shared_variance: float = 0.0) -> tuple[float, float]:
    """P(sum of rows >= observed) when row i takes ``values[i, k]`` with probability ``weights[i, k]``.

    Parameters
    ----------
    values, weights : array of shape (n, g)
        Values of each row and their probabilities; weights may be broadcast.
    observed : float
        The sum to compare with.
    shared_variance : float, default=0.0
        Variance of a normal variable that is added to the sum.

    Returns
    -------
    p_value, normal_p_value : float
        By the saddlepoint approximation of Lugannani and Rice, and by the normal distribution with the sum's mean and
        variance. Near the mean, where the former is a ratio of small numbers, both are the latter. Both are for sums
        without large equal steps; where few equal terms decide, they are close to the mid-p-value.

    Examples
    --------
    >>> import numpy as np
    >>> coins = np.tile([0.0, 1.0], (100, 1))
    >>> p_value, normal = sum_tail(coins, np.full((100, 2), 0.5), 65.0)
    >>> round(p_value, 5), round(normal, 5)
    (0.00128, 0.00135)
    """
    mean, centred, variance = _moments(values, weights)
    return tail(partial(_cumulants, centred, weights), observed - float(mean.sum()), variance, shared_variance)


def _moments(values: Array, weights: Array) -> tuple[Array, Array, float]:
    """Mean of each row, the values less it, and the variance of the sum."""
    mean = np.einsum("ij,ij->i", values, weights)
    centred = values - mean[:, None]
    return mean, centred, float(np.einsum("ij,ij,ij->", centred, centred, weights))


def tail(cumulants: Cumulants, excess: float, variance: float, shared_variance: float) -> tuple[float, float]:
    """Saddlepoint and normal tail of a centred sum of independent rows, plus a normal variable of its own variance."""
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


def _cumulants(centred: Array, weights: Array, tilt: float) -> tuple[float, float, float]:
    cumulant = slope = curvature = 0.0
    weights = np.broadcast_to(weights, centred.shape)
    for start in range(0, len(centred), BLOCK_ROWS):
        own = centred[start : start + BLOCK_ROWS]
        tilted = tilt * own
        top = tilted.max(axis=1) if np.abs(tilted).max() > MOST_EXPONENT else np.zeros(len(own))
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
