"""Tails without resampling: of a sum over rows, each row independent under the null hypothesis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from modifind._typing import Array

MAX_STEPS = 60
BLOCK_ROWS = 2048  # what is made of so many rows stays in the cache
MOST_EXPONENT = 300.0
SMALLEST = 1e-300
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
        """The same combined with the p-value of the direct component, which has some weight beside the likelihood."""
        if np.isnan(p_value):
            return self
        shares = (1 - weight, weight)
        both, normal = (
            float(cauchy_combination((tail, p_value), shares))
            for tail in (self.likelihood_p_value, self.normal_p_value)
        )
        return replace(self, p_value=both, normal_p_value=normal, direct_p_value=p_value)


def cauchy_combination(p_values: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
    """P-value of several tests at once, by the Cauchy combination of Liu and Xie (2020).

    Small p-values hold whatever the dependence of the tests. Tests that agree cost each other nothing; one that alone
    sees something pays the inverse of its share of the weights.

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
    """Whether a variance is no more than rounding makes of rows whose absolute values sum to `size`."""
    return not variance > (1e-12 * (size + n_rows)) ** 2


def tail(cumulants: Cumulants, excess: float, variance: float, shared_variance: float) -> tuple[float, float]:
    """Saddlepoint and normal tail of a centred sum of independent rows, plus a normal variable of its own variance.

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
    """The cumulant generating function of a sum of rows, and its first two derivatives."""
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
