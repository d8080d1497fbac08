r"""Tail probabilities and confidence intervals of a normal that is known to lie in an interval.

Everything is kept as the log-odds of the mass above the observed value against the mass below it,

    L = log P(z <= Z <= z + above) - log P(z - below <= Z <= z),

from which ``P(Z >= z) = expit(L)``. Both masses are taken relative to the density near z, so that nothing underflows
or cancels however far out the interval lies.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import erf, erfcx, expit, log_ndtr

FARTHEST = 1e100  # standard deviations; beyond this a limit is called infinite
NARROW = 1e-5  # standard deviations
_ROOT_TWO = math.sqrt(2.0)


def tail_log_odds(z: float, below: float, above: float) -> float:
    """Log-odds of a standard normal in ``[z - below, z + above]`` to exceed z rather than not.

    Examples
    --------
    >>> tail_log_odds(0.0, 2.0, 2.0)
    0.0
    >>> round(tail_log_odds(1000.0, 0.001, math.inf), 4)  # far out the distribution is exponential: log 1/(e - 1)
    -0.5413
    """
    if below <= 0 or above <= 0:
        return 0.0 if below <= 0 and above <= 0 else (math.inf if below <= 0 else -math.inf)
    if z < 0:
        return -tail_log_odds(-z, above, below)
    beyond = _log_one_minus_exp(_log_tail_ratio(z, above))  # log of the mass above, less log P(Z > z)
    if z > below:
        ratio = _log_tail_ratio(z - below, below)
        return beyond + ratio - _log_one_minus_exp(ratio)
    # z - below is negative, so the mass below contains zero and is no smaller than its width says.
    return float(log_ndtr(-z)) + beyond - math.log(0.5 * float(erf(z / _ROOT_TWO) + erf((below - z) / _ROOT_TWO)))


def tail_p_value(log_odds: float, sided: str) -> float:
    """P(Z >= z), or twice the smaller tail."""
    return float(expit(log_odds)) if sided == "one" else 2.0 * float(expit(-abs(log_odds)))


def mean_interval(z: float, below: float, above: float, alpha: float) -> tuple[float, float]:
    """Equal-tailed interval for the mean of a normal with unit variance, observed at z in ``[z - below, z + above]``.

    Examples
    --------
    >>> low, high = mean_interval(0.0, math.inf, math.inf, 0.05)
    >>> round(low, 6), round(high, 6)
    (-1.959964, 1.959964)
    """
    tail = math.log(alpha / 2) - math.log1p(-alpha / 2)
    low = _mean_with_log_odds(tail, z, below, above, -1.0)
    high = _mean_with_log_odds(-tail, z, below, above, 1.0)
    return low, high


def _mean_with_log_odds(wanted: float, z: float, below: float, above: float, side: float) -> float:
    """The mean at which z has the log-odds `wanted`; infinite on the given side when no float is."""

    def excess(distance: float) -> float:  # the mean is z + distance, so z stands at -distance
        return tail_log_odds(-distance, below, above) - wanted

    # The log-odds grow with the mean. Towards which side the root lies is seen at the observed value itself.
    start = excess(0.0)
    if not math.isfinite(start):
        return side * math.inf
    if start == 0.0:
        return z
    towards = -1.0 if start > 0 else 1.0
    near, far = 0.0, towards
    while towards * excess(far) < 0:
        near, far = far, 2.0 * far
        if abs(far) > FARTHEST:
            return side * math.inf
    return z + float(brentq(excess, near, far, xtol=1e-14, rtol=1e-14, maxiter=500))


def _log_tail_ratio(u: float, width: float) -> float:
    """Log of P(Z > u + width) / P(Z > u) for u >= 0; takes the width itself, which the difference of two ends loses."""
    if math.isinf(width):
        return -math.inf
    if width < NARROW:  # the quotient below would be 1 and a rounding error; the hazard at the middle is exact enough
        return -width * math.sqrt(2 / math.pi) / float(erfcx((u + 0.5 * width) / _ROOT_TWO))
    return math.log(float(erfcx((u + width) / _ROOT_TWO)) / float(erfcx(u / _ROOT_TWO))) - width * (u + 0.5 * width)


def _log_one_minus_exp(value: float) -> float:
    """Log of 1 - exp(value) for value <= 0."""
    if value >= 0:
        return -math.inf
    return math.log(-math.expm1(value)) if value > -0.7 else math.log1p(-math.exp(value))
