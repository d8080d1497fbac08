r"""The direct component of the test: functions of a feature that are known beforehand, times scores of the rows.

The likelihood of `effect_likelihood` follows a feature as models have learned it from other rows. Here nothing about
the feature is learned. With e a row's propensity score and V drawn from the distribution of the feature given the other
features and the treatment, a direction of the test is

    sum_i (a_i - e_i) g_i (h(x_im) - E h(V_i))

for each of two scores g of the row and each of a few functions h of the feature: its rank and a ramp about its median,
or indicators of its levels.

*Numbers* have a shape that neither a location nor a scale shows, and the likelihood weighs down the very rows that rare
severe events make. Their scores are the square of the standardised residual at the models' contrasts of the arms, for
tails, and its cube (as a Hermite polynomial) for skewness, both cut off far out, less the mean of the row's arm. Means
are taken over rows weighted by the chance to be in the other arm.

*Coins, counts, levels and amounts* have none. Their scores are those of the contrasts themselves, of the location and,
for amounts, of the scale, at the contrasts' null values; E h(V) is then weighted by the information on the contrast, so
that an error that all rows share drops out. What a line or a threshold in the middle shows is found with
the power of the interaction test that one would do by hand, where learning it on one part of the rows and testing it on
another loses some.

*The null hypothesis* is that of the main test. Where the treatment does nothing, residuals of both arms have one
distribution given x and ``a - e`` has mean zero: what changes alike in both arms is not found. Where the outcome is
independent of X_m given the rest, h(x) - E h(V) has mean zero. The variance is that of the rows themselves,
or of clusters of rows, so that no noise is too heavy for the level. The p-value is that of the largest direction, by
Hunter's bound for correlated normal variables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, owens_t
from scipy.stats import norm
from scipy.stats import t as student

from modifind._typing import Array, Ints
from modifind.data.clusters import unit_sums
from modifind.data.feature_groups import Feature, members_of
from modifind.data.feature_matrix import FeatureTable
from modifind.nuisance.conditional.contract import RowGrid

MOST_SQUARE = 100.0
MOST_CUBED = 4.0  # residuals whose cube is taken as it is
N_SCORES = 2
MOST_LEVELS = 5
LEAST_LEVEL_ROWS = 20  # in either arm
RAMP = 4.0  # times the rank
MOST_RANKS = 1001  # values whose ranks are kept
BLOCK_ROWS = 4096
LEAST_FREEDOM = 5
LEAST_SHARE = 1e-12  # of a direction's size; what varies less is rounding


def residual_scores(residual: Array) -> Array:
    """The square and the cubic Hermite polynomial of residuals, both cut off, on a last axis."""
    near = np.clip(residual, -MOST_CUBED, MOST_CUBED)
    return np.stack((np.minimum(residual**2, MOST_SQUARE), near**3 - 3 * near), axis=-1)


@dataclass(frozen=True)
class _Ranked:
    """The rank of a value, from -1 to 1, and a ramp between -1 and 1 about the median; 0 where the value is missing.

    The ramp is for thresholds. A step would do for the data, but its mean under a distribution that is known by 25
    points jumps.
    """

    values: Array
    ranks: Array
    width = 2

    @classmethod
    def of(cls, values: Array) -> _Ranked:
        distinct, counts = np.unique(values, return_counts=True)
        ranks = 2 * (np.cumsum(counts) - counts / 2) / counts.sum() - 1
        kept = np.unique(np.linspace(0, distinct.size - 1, MOST_RANKS).astype(np.int64))
        return cls(distinct[kept], ranks[kept])

    def __call__(self, values: Array) -> Array:
        rank = np.interp(values, self.values, self.ranks)
        found = np.stack((rank, np.clip(RAMP * rank, -1.0, 1.0)), axis=-1)
        found[np.isnan(values)] = 0.0
        return found


@dataclass(frozen=True)
class _Level:
    """Whether a feature has a level, on a last axis of one; NaN stands for a missing value."""

    level: float
    width = 1

    def __call__(self, values: Array) -> Array:
        found = np.isnan(values) if np.isnan(self.level) else values == self.level
        return found[..., None].astype(np.float64)


@dataclass(frozen=True)
class ValueFunctions:
    """The functions h of one feature, or of the columns of a group.

    Attributes
    ----------
    columns : tuple of int
        Places of the columns in the table.
    parts : tuple
        For each function or pair of functions the place of its column in `columns`, and the function.
    """

    columns: tuple[int, ...]
    parts: tuple[tuple[int, _Ranked | _Level], ...]

    @classmethod
    def of(cls, table: FeatureTable, treatment: Ints, feature: Feature) -> ValueFunctions:
        """Those that the rows of a table can tell."""
        columns = members_of(feature)
        found: list[tuple[int, _Ranked | _Level]] = []
        for place, member in enumerate(columns):
            column = table.values[:, member]
            if table.is_constant(member):
                continue
            if table.n_levels(member):
                found += [(place, _Level(level)) for level in _told_levels(column, treatment)]
                continue
            seen = ~np.isnan(column)
            found.append((place, _Ranked.of(column[seen])))
            if _is_common(~seen, treatment):
                found.append((place, _Level(float("nan"))))
        return cls(columns, tuple(found))

    @property
    def width(self) -> int:
        """Number of functions."""
        return sum(own.width for _, own in self.parts)

    def __call__(self, values: Array) -> Array:
        """The functions at values whose last axis is that of the columns."""
        return np.concatenate([own(values[..., place]) for place, own in self.parts], axis=-1)

    def excess(
        self, table: FeatureTable, grid: RowGrid | None, informed: Array | None = None, known: Array | None = None
    ) -> Array:
        """Functions of every row's own values less their mean under the distribution, or as they are without one.

        `known` are weights of the points, shape (n, g), where they have been evaluated before.

        An error of a contrast that all rows share counts in each as much as there is information on it. With `informed`
        weights of the points, shape (s, n, g), it drops out: means are taken under these, one set for each score, and
        the result has shape (n, s, h) instead of (n, h).
        """
        observed = self(table.values[:, list(self.columns)])
        if grid is None:
            return observed
        if informed is not None:
            observed = np.repeat(observed[:, None], len(informed), axis=1)
        for start in range(0, table.n_rows, BLOCK_ROWS):
            rows = np.arange(start, min(start + BLOCK_ROWS, table.n_rows))
            points, weights = grid.at(rows)
            found = self(points[..., None] if points.ndim == 2 else points)
            if informed is None:
                observed[rows] -= np.einsum("ij,ijh->ih", weights if known is None else known[rows], found)
            else:
                observed[rows] -= np.einsum("sij,ijh->ish", informed[:, rows], found)
        return observed


def _told_levels(codes: Array, treatment: Ints) -> list[float]:
    """The most common levels, less the one that the others are compared with."""
    levels, counts = np.unique(codes, return_counts=True)
    ordered = levels[np.argsort(-counts, kind="stable")]
    return [float(level) for level in ordered[1:] if _is_common(codes == level, treatment)][:MOST_LEVELS]


def _is_common(rows: NDArray[np.bool_], treatment: Ints) -> bool:
    return bool(min(np.count_nonzero(rows & (treatment == arm)) for arm in (0, 1)) >= LEAST_LEVEL_ROWS)


def direct_terms(scores: Array, excess: Array) -> Array:
    """What rows add to every direction, shape (n, k); the excess of functions may be another one for each score."""
    return (scores[:, :, None] * (excess if excess.ndim == 3 else excess[:, None])).reshape(len(scores), -1)


@dataclass(frozen=True)
class DirectSums:
    """What some rows add to the test of one feature.

    Attributes
    ----------
    n_rows : int
        Number of rows, or of clusters of them.
    total : array of shape (k,)
        Sum of each direction.
    cross : array of shape (k, k)
        Sums of products.
    clusters : array of shape (n_rows, k), optional
        What each cluster adds; None where rows are independent of each other.
    """

    n_rows: int
    total: Array
    cross: Array
    clusters: Array | None = None

    @classmethod
    def of(cls, terms: Array, clusters: Ints | None = None, n_clusters: int = 0) -> DirectSums:
        """From what rows add to every direction, shape (n, k); see `direct_terms`."""
        together = None if clusters is None else unit_sums(terms, clusters, n_clusters)
        independent = terms if together is None else together
        return cls(len(independent), independent.sum(axis=0), independent.T @ independent, together)

    def __add__(self, other: DirectSums) -> DirectSums:
        """The sums of both sets of rows."""
        if self.clusters is not None and other.clusters is not None:
            together = self.clusters + other.clusters
            return DirectSums(len(together), together.sum(axis=0), together.T @ together, together)
        return DirectSums(self.n_rows + other.n_rows, self.total + other.total, self.cross + other.cross)

    def p_value(self, freedom: float = np.inf) -> float:
        """P-value of the largest direction, two-sided; that of Student's t where degrees of freedom are given.

        NaN where nothing varies, and below five degrees of freedom, where a few rows have nearly all the weight.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> scores, excess = rng.normal(size=(500, 2)), rng.uniform(-1, 1, size=(500, 1))
        >>> [round(DirectSums.of(direct_terms(own, excess)).p_value(), 2) for own in (scores, scores + 0.3 * excess)]
        [0.27, 0.0]
        """
        covariance = self.cross - np.outer(self.total, self.total) / self.n_rows
        variance = np.diag(covariance)
        told = variance > LEAST_SHARE * np.diag(self.cross)
        if not told.any() or freedom < LEAST_FREEDOM:
            return float("nan")
        deviation = np.sqrt(variance[told])
        z = float(np.abs(self.total[told] / deviation).max())
        if np.isfinite(freedom):
            z = float(norm.isf(student.sf(z, freedom)))
        return largest_tail(z, covariance[np.ix_(told, told)] / np.outer(deviation, deviation))


def largest_tail(z: float, correlation: Array) -> float:
    """An upper bound on the chance that the largest of some normal variables is beyond z in absolute value.

    Hunter's: the sum of the chances of each, less those of pairs along the tree of largest correlations.

    Examples
    --------
    >>> round(largest_tail(2.0, np.eye(1)), 4), round(largest_tail(2.0, np.eye(2)), 4)
    (0.0455, 0.0889)
    >>> round(largest_tail(2.0, np.ones((3, 3))), 4)
    0.0455
    """
    size = len(correlation)
    strength = np.abs(np.clip(correlation, -1.0, 1.0))
    bound = 2.0 * size * float(ndtr(-z))
    nearest = strength[0].copy()  # of each variable to the tree
    outside = np.arange(size) > 0
    for _ in range(size - 1):
        following = int(np.argmax(np.where(outside, nearest, -1.0)))
        bound -= _both(z, float(nearest[following]))
        outside[following] = False
        nearest = np.maximum(nearest, strength[following])
    return float(np.clip(bound, 2.0 * ndtr(-z), 1.0))


def _both(z: float, correlation: float) -> float:
    """The chance that two normal variables are both beyond z in absolute value."""
    ratio = np.sqrt((1.0 - correlation) / (1.0 + correlation))
    alike = ndtr(-z) - 2.0 * owens_t(z, ratio)
    apart = ndtr(-z) - 2.0 * owens_t(z, 1.0 / ratio) if ratio > 0 else 0.0
    return float(2.0 * max(alike + apart, 0.0))
