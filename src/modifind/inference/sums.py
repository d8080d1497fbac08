"""The same test from sums over rows alone: rows may be anywhere, and are looked at once.

The saddlepoint needs the cumulant generating function of the sum. With very many rows each is tilted so little that
its first four cumulants give it, and those are sums.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from modifind._typing import Array
from modifind.inference.tails import UNSEEN, AnalyticOutcome, compared, is_rounding


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

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.inference import RowSums
    >>> fair = np.tile([0.0, 1.0], (2, 1)), np.full((2, 2), 0.5)
    >>> heads, _, _ = RowSums.of(np.array([1.0, 1.0]), *fair)
    >>> mixed, _, _ = RowSums.of(np.array([0.0, 1.0]), *fair)
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

    @classmethod
    def of(cls, observed: Array, values: Array, weights: Array) -> tuple[RowSums, Array, Array]:
        """Sums of rows, and the null variance and the excess of each; arguments as in `analytic_test`."""
        mean = np.einsum("ij,ij->i", values, weights)
        centred = values - mean[:, None]
        weighted = weights * centred
        weighted *= centred
        second = weighted.sum(axis=1)
        weighted *= centred
        third = float(weighted.sum())
        fourth = float(np.einsum("ij,ij->", weighted, centred)) - 3.0 * float(second @ second)
        excess = observed - mean
        size = float(np.abs(observed).sum())
        total, square = float(excess.sum()), float(excess @ excess)
        return cls(observed.size, size, total, square, float(second.sum()), third, fourth), second, excess

    def __add__(self, other: RowSums) -> RowSums:
        """The sums of both sets of rows."""
        return RowSums(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


def sums_test(sums: RowSums, shared_variance: float = 0.0, units: Array | None = None) -> AnalyticOutcome:
    """Compare a sum over rows with its null distribution, as `analytic_test` does.

    Parameters
    ----------
    sums : RowSums
        Sums over all rows.
    shared_variance : float, default=0.0
        Variance of the sum beyond that of independent rows.
    units : array, optional
        Sums over clusters of rows of what `excess` is the sum of, where rows are not independent of each other.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> heads = rng.integers(0, 2, 10_000).astype(float)
    >>> half = RowSums.of(heads[:4000], np.tile([0.0, 1.0], (4000, 1)), np.full((4000, 2), 0.5))[0]
    >>> rest = RowSums.of(heads[4000:], np.tile([0.0, 1.0], (6000, 1)), np.full((6000, 2), 0.5))[0]
    >>> round(sums_test(half + rest).p_value, 3)
    0.274
    """
    if is_rounding(sums.second, sums.size, sums.n_rows):
        return UNSEEN

    def cumulants(tilt: float) -> tuple[float, float, float]:
        value = tilt**2 * (sums.second / 2 + tilt * (sums.third / 6 + tilt * sums.fourth / 24))
        slope = tilt * (sums.second + tilt * (sums.third / 2 + tilt * sums.fourth / 6))
        return value, slope, sums.second + tilt * (sums.third + tilt * sums.fourth / 2)

    spread, freedom = max(sums.square - sums.excess**2 / sums.n_rows, 0.0) * sums.n_rows / (sums.n_rows - 1), np.inf
    if units is not None:
        spread, freedom = units.size * float(units.var(ddof=1)), units.size - 1.0
    return compared(
        cumulants, sums.excess, sums.second, sums.n_rows, spread, shared_variance=shared_variance, freedom=freedom
    )[0]
