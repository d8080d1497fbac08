"""Tail of a sum of squares of normal variables with different variances, which may themselves be estimates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import f as fisher

from modifind._typing import Array

SMALLEST = 1e-300
NEGLIGIBLE = 1e-9  # share of the largest variance
NEAR_MEAN = 1e-4  # signed root below which the saddlepoint formula is a ratio of small numbers


def quadratic_tail(value: float, variances: Array, freedom: float = np.inf) -> float:
    """P(sum of variances_k Z_k^2 >= value) for independent standard normal Z, by a saddlepoint approximation.

    Parameters
    ----------
    value : float
        The observed sum of squares.
    variances : array
        Eigenvalues of the covariance matrix of what is squared.
    freedom : float, default=inf
        Degrees of freedom of the estimated covariance matrix: the sum is compared with `value` times an independent
        chi-square variable over its degrees of freedom, as Fisher's F does.

    Examples
    --------
    >>> import numpy as np
    >>> round(quadratic_tail(7.815, np.ones(3)), 3), round(quadratic_tail(3.841, np.ones(1)), 3)
    (0.05, 0.05)
    """
    kept = variances[variances > NEGLIGIBLE * max(float(variances.max(initial=0.0)), 0.0)]
    if not kept.size or not value > 0:
        return 1.0
    if kept.size == 1:
        return max(float(fisher.sf(value / kept[0], 1, min(freedom, 1e9))), SMALLEST)
    # The event is that a sum of chi-square variables, one of them with a negative weight, lies above zero.
    scale = float(kept.max())
    spread, limit = kept / scale, value / scale
    found = _saddlepoint(spread, limit, min(freedom, 1e9))
    return min(max(found, SMALLEST), 1.0)


def _saddlepoint(spread: Array, limit: float, freedom: float) -> float:
    """Lugannani and Rice's formula at zero."""
    shrink = 2.0 * limit / freedom

    def slope(tilt: float) -> float:
        return float(np.sum(spread / (1.0 - 2.0 * tilt * spread)) - limit / (1.0 + tilt * shrink))

    low, high = -(1.0 - 1e-12) / shrink, 0.5 * (1.0 - 1e-12)
    tilt = _root(slope, low, high)
    cumulant = -0.5 * float(np.log1p(-2.0 * tilt * spread).sum()) - 0.5 * freedom * float(np.log1p(tilt * shrink))
    bend = float(np.sum(2.0 * (spread / (1.0 - 2.0 * tilt * spread)) ** 2))
    bend += limit * shrink / (1.0 + tilt * shrink) ** 2
    root = np.sign(tilt) * np.sqrt(max(-2.0 * cumulant, 0.0))
    if abs(root) < NEAR_MEAN:
        third = float(np.sum(8.0 * spread**3)) - 2.0 * limit * shrink**2
        return 0.5 - third / (6.0 * np.sqrt(2.0 * np.pi) * bend**1.5)
    scaled = tilt * np.sqrt(bend)
    return float(ndtr(-(root + np.log(scaled / root) / root)))


def _root(slope: Callable[[float], float], low: float, high: float) -> float:
    """Where an increasing function of the tilt is zero; the lower end may be far away."""
    start = max(low, -1.0)
    while slope(start) > 0 and start > low:
        start = max(2.0 * start, low)
    return float(brentq(slope, start, high, xtol=1e-14, rtol=1e-12))
