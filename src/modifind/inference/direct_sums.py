"""Tail of a quadratic form: a sum of squared normal variables with different, possibly estimated, variances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import f as fisher

from modifind._typing import Array, Ints
from modifind.data.clusters import unit_sums
from modifind.inference.sums import cauchy_combination

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
    """Root of an increasing function of the tilt; the lower end may be far away."""
    start = max(low, -1.0)
    while slope(start) > 0 and start > low:
        start = max(2.0 * start, low)
    return float(brentq(slope, start, high, xtol=1e-14, rtol=1e-12))


MIN_FREEDOM = 5
MAX_LEVERAGE = 0.5
MIN_SHARE = 1e-12  # of a direction's size; what varies less is rounding


class Summands(Protocol):
    """Contributions of rows to every direction, see `statistics.direct.DirectTerms`."""

    @property
    def terms(self) -> Array:
        """Contribution of each row to each direction, shape (n, k)."""

    @property
    def slopes(self) -> Array:
        """Derivative of these contributions by an effect along the direction, up to a common factor, shape (n, k)."""

    @property
    def blocks(self) -> tuple[int, ...]:
        """Sizes of the blocks of successive directions that are tested jointly."""

    @property
    def weights(self) -> tuple[float, ...]:
        """Weight of each block in the combination of p-values."""

    @property
    def weight(self) -> float:
        """Weight of all blocks relative to the likelihood."""


@dataclass(frozen=True)
class DirectSums:
    """Sums over rows for the direct component of the test of one feature.

    Attributes
    ----------
    n_rows : int
        Number of rows, or of clusters of them.
    total : array of shape (2 k,)
        Sum of each direction, and of its slopes.
    cross : array of shape (2 k, 2 k)
        Sums of products.
    clusters : array of shape (n_rows, 2 k), optional
        What each cluster adds; None where rows are independent of each other.
    blocks, weights, weight
        As in `Summands`.
    """

    n_rows: int
    total: Array
    cross: Array
    clusters: Array | None = None
    blocks: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    weight: float = 1.0

    @classmethod
    def of(cls, directions: Summands, clusters: Ints | None = None, n_clusters: int = 0) -> DirectSums:
        """Sum the contributions of rows to every direction."""
        each = np.concatenate((directions.terms, directions.slopes), axis=1)
        units = each if clusters is None else unit_sums(each, clusters, n_clusters)
        together = None if clusters is None else units
        how = directions.blocks, directions.weights, directions.weight
        return cls(len(units), units.sum(axis=0), units.T @ units, together, *how)

    def __add__(self, other: DirectSums) -> DirectSums:
        """Add the sums of other rows."""
        n_rows, total, cross = self.n_rows + other.n_rows, self.total + other.total, self.cross + other.cross
        together = None
        if self.clusters is not None and other.clusters is not None:
            together = self.clusters + other.clusters
            n_rows, cross = len(together), together.T @ together
        return replace(self, n_rows=n_rows, total=total, cross=cross, clusters=together)

    @property
    def covariance(self) -> Array:
        """Covariance matrix of the sums, centred at the effect along each direction that explains its sum.

        This is the centring of a Wald test; centred at zero, an effect would count as its own noise. Deviations are
        inflated because the effect is fitted to the row itself, as in HC3 errors.
        """
        k = self.total.size // 2
        slopes = self.total[k:]
        effect = np.divide(self.total[:k], slopes, out=np.zeros(k), where=slopes > 0)
        about = np.concatenate((np.eye(k), -np.diag(effect)), axis=1)
        factor = 1.0 / (1.0 - np.minimum(1.0 / self.effective_rows, MAX_LEVERAGE))
        return about @ self.cross @ about.T * np.outer(factor, factor)

    @property
    def effective_rows(self) -> Array:
        """Effective number of rows, or clusters, behind the effect along each direction."""
        slopes, squares = self.total[self.total.size // 2 :], np.diag(self.cross)[self.total.size // 2 :]
        return np.divide(slopes**2, squares, out=np.ones(slopes.size), where=squares > 0)

    def p_value(self, freedom: float = np.inf) -> float:
        """Two-sided p-value of all directions, by Student's t and F.

        The degrees of freedom are the effective number of rows minus one, at most those given; joint tests use those of
        Welch's test of several means. NaN if nothing varies, and below five degrees of freedom, where a few rows have
        nearly all the weight.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> noise, line = rng.normal(size=(500, 1)), rng.uniform(-1, 1, size=(500, 1))
        >>> from modifind.statistics.direct import DirectTerms
        >>> [round(DirectSums.of(DirectTerms.of(score * line)).p_value(), 2) for score in (noise, noise + 0.3 * line)]
        [0.34, 0.0]
        """
        covariance, (total, total_slopes) = self.covariance, np.split(self.total, 2)
        freedoms = np.minimum(self.effective_rows - 1.0, freedom)
        varies = np.diag(covariance) > MIN_SHARE * np.diag(self.cross)[: total.size]
        varies &= freedoms >= MIN_FREEDOM
        p_values, weights = [], []
        for end, size, weight in zip(np.cumsum(self.blocks), self.blocks, self.weights, strict=True):
            block = np.arange(end - size, end)
            block = block[varies[block]]
            if not block.size:
                continue
            deviation = np.sqrt(np.diag(covariance)[block])
            z = total[block] / deviation
            correlation = covariance[np.ix_(block, block)] / np.outer(deviation, deviation)
            together = min(_welch_freedom(freedoms[block], total_slopes[block]), freedom)
            p_values.append(quadratic_tail(float(z @ z), np.linalg.eigvalsh(correlation), together))
            weights.append(weight)
        return float(cauchy_combination(p_values, weights)) if p_values else float("nan")


def _welch_freedom(freedoms: Array, sizes: Array) -> float:
    """Joint degrees of freedom of several standardised sums, each with its own variance estimate."""
    if freedoms.size == 1:
        return float(freedoms[0])
    unequal = float(((1.0 - sizes / sizes.sum()) ** 2 / freedoms).sum())
    return (freedoms.size**2 - 1.0) / (3.0 * unequal) if unequal > 0 else np.inf
