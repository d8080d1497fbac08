"""The test of a sum over rows: what rows add, which adds up over blocks, and the tail of the total.

Rows are independent under the null hypothesis, each with a known distribution on a few points. The saddlepoint needs
the cumulant generating function of the sum. Where the rows are at hand it is exact; with very many rows each is tilted
so little that its first four cumulants give it, and those are sums.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student

from modifind._typing import Array, Ints
from modifind.inference.tails import BLOCK_ROWS, UNSEEN, AnalyticOutcome, exact_cumulants, is_rounding, tail


@dataclass(frozen=True)
class RowSums:
    """What some rows add to the test of one feature.

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
        """Sums of rows, and the null variance of each.

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
        """The sums of both sets of rows."""
        pairs = ((field.name, getattr(self, field.name), getattr(other, field.name)) for field in fields(self)[:-1])
        added: dict[str, Any] = {name: None if one is None else one + two for name, one, two in pairs}
        return RowSums(**added)

    def __neg__(self) -> RowSums:
        """The sums of minus what rows add."""
        together = None if self.clusters is None else -self.clusters
        rows = None if self.rows is None else (-self.rows[0], self.rows[1])
        return replace(self, excess=-self.excess, third=-self.third, clusters=together, rows=rows)

    @property
    def spread(self) -> float:
        """Variance of the sum as rows, or clusters of them, tell it."""
        if self.clusters is not None:
            return self.clusters.size * float(self.clusters.var(ddof=1))
        return max(self.square - self.excess**2 / self.n_rows, 0.0) * self.n_rows / (self.n_rows - 1)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of `spread` where clusters tell it; infinite for rows."""
        return np.inf if self.clusters is None else self.clusters.size - 1.0

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        """The cumulant generating function of the centred sum and its first two derivatives."""
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

    Where rows vary more than that distribution says, as those of a sample with unequal weights do, or those about a
    feature that predicts the outcome in both arms, the difference is added like `shared_variance`, which grows in
    proportion. With clusters the p-value is at least that of Student's t, with one degree of freedom less than there
    are clusters.

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
    """How many drawn sums reach the observed one."""
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
    """Compare a sum over rows that are all at hand with its null distribution; see `sums_test`.

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
    """What each cluster adds where its rows share one draw of the feature: sums of rows, whose values have mean zero.

    Points are those of any of its rows, and their weights the mean over the rows.
    """
    size = int(clusters.max()) + 1
    counts = np.bincount(clusters).astype(np.float64)
    shares = np.stack([np.bincount(clusters, column, size) / counts for column in weights.T], axis=1)
    sums = np.stack([np.bincount(clusters, column, size) for column in values.T], axis=1)
    totals = np.bincount(clusters, observed, size).astype(np.float64)
    return totals, sums - np.einsum("ij,ij->i", sums, shares)[:, None], shares
