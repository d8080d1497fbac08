"""The two-sided test of sums in several directions: some are judged together, and p-values are combined."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from modifind._typing import Array, Ints
from modifind.data.clusters import unit_sums
from modifind.inference.quadratic import quadratic_tail
from modifind.inference.tails import cauchy_combination

MIN_FREEDOM = 5
MAX_LEVERAGE = 0.5
MIN_SHARE = 1e-12  # of a direction's size; what varies less is rounding


class Summands(Protocol):
    """What rows add to every direction, see `statistics.direct.DirectTerms`."""

    @property
    def terms(self) -> Array:
        """What each row adds to each direction, shape (n, k)."""

    @property
    def slopes(self) -> Array:
        """How much of that an effect along the direction adds, up to a factor that rows share, shape (n, k)."""

    @property
    def blocks(self) -> tuple[int, ...]:
        """Sizes of the sets of successive directions that are judged together."""

    @property
    def weights(self) -> tuple[float, ...]:
        """Weight of each of these sets in the combination of their p-values."""

    @property
    def weight(self) -> float:
        """Weight of all of them beside the likelihood."""


@dataclass(frozen=True)
class DirectSums:
    """What some rows add to the test of one feature.

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
        """From what rows add to every direction."""
        each = np.concatenate((directions.terms, directions.slopes), axis=1)
        units = each if clusters is None else unit_sums(each, clusters, n_clusters)
        together = None if clusters is None else units
        how = directions.blocks, directions.weights, directions.weight
        return cls(len(units), units.sum(axis=0), units.T @ units, together, *how)

    def __add__(self, other: DirectSums) -> DirectSums:
        """The sums of both sets of rows."""
        n_rows, total, cross = self.n_rows + other.n_rows, self.total + other.total, self.cross + other.cross
        together = None
        if self.clusters is not None and other.clusters is not None:
            together = self.clusters + other.clusters
            n_rows, cross = len(together), together.T @ together
        return replace(self, n_rows=n_rows, total=total, cross=cross, clusters=together)

    @property
    def covariance(self) -> Array:
        """Covariance matrix of the sums, about the effect along each direction that would make its sum.

        That is what a Wald test takes; about zero, an effect would be part of its own noise. Deviations are raised for
        the row that an effect is fitted to being one of few, as HC3 errors are.
        """
        k = self.total.size // 2
        slopes = self.total[k:]
        effect = np.divide(self.total[:k], slopes, out=np.zeros(k), where=slopes > 0)
        about = np.concatenate((np.eye(k), -np.diag(effect)), axis=1)
        factor = 1.0 / (1.0 - np.minimum(1.0 / self.effective_rows, MAX_LEVERAGE))
        return about @ self.cross @ about.T * np.outer(factor, factor)

    @property
    def effective_rows(self) -> Array:
        """Number of rows, or clusters, that an effect along each direction rests on."""
        slopes, squares = self.total[self.total.size // 2 :], np.diag(self.cross)[self.total.size // 2 :]
        return np.divide(slopes**2, squares, out=np.ones(slopes.size), where=squares > 0)

    def p_value(self, freedom: float = np.inf) -> float:
        """P-value of all directions, two-sided, by Student's t and F.

        There is one degree of freedom less than rows that an effect along a direction rests on, and no more than are
        given; what is judged together has those of Welch's test of several means. NaN where nothing varies, and below
        five degrees of freedom, where a few rows have nearly all the weight.

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
    """Degrees of freedom of several standardised sums together, each of which has its own estimate of its variance."""
    if freedoms.size == 1:
        return float(freedoms[0])
    unequal = float(((1.0 - sizes / sizes.sum()) ** 2 / freedoms).sum())
    return (freedoms.size**2 - 1.0) / (3.0 * unequal) if unequal > 0 else np.inf
