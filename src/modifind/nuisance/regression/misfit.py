"""Quick score tests of a model's residuals: do they follow bins or products of columns?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import chdtrc, ndtr

from modifind._typing import Array
from modifind.data.weights import Weights
from modifind.nuisance.regression.blocks import bin_edges, product_sums
from modifind.nuisance.regression.screening import Association
from modifind.nuisance.regression.terms import bend

CURVE_BINS = 10
MANY_COLUMNS = 100
N_NEIGHBOURS = 60
NOTHING = slice(0, 0)


class Misfit:
    """Tests of residuals against bins of each column and against products of two columns.

    They detect departures far weaker than those that make a richer model worth its noise. With more than 100 columns,
    products are formed only of the 60 most associated with the residuals.

    Parameters
    ----------
    columns : array of shape (n, p)
        Columns.
    weights : Weights, optional
        How much each row counts.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, noise = rng.normal(size=(400, 3)), rng.normal(size=400)
    >>> tests = Misfit(x)
    >>> residual, one = x[:, 0] * x[:, 2] + noise, np.ones(400)
    >>> tests.product(residual, one) < 0.01, tests.product(noise, one) < 0.01
    (True, False)
    """

    def __init__(self, columns: Array, weights: Weights | None = None) -> None:
        self.weights = weights = Weights.of(weights, columns.shape[0])
        self.columns = columns - weights.mean(columns)
        bends = bend(self.columns / np.maximum(self.columns.std(axis=0), np.finfo(float).tiny))
        self.bends = bends - weights.mean(bends)
        self.association = Association(self.columns, weights) if columns.shape[1] > MANY_COLUMNS else None
        codes = np.column_stack([_bin_codes(column) for column in self.columns.T])
        self.n_bins = codes.max(axis=0) + 1
        indicators = codes + np.cumsum(self.n_bins) - self.n_bins
        ends = np.arange(0, indicators.size + 1, indicators.shape[1])
        shape = (columns.shape[0], int(self.n_bins.sum()))
        self.bins = csr_matrix((np.ones(indicators.size), indicators.ravel(), ends), shape=shape).T.tocsr()

    def curve(self, residual: Array, variance: Array, predicted: Array, without: slice = NOTHING) -> float:
        """Smallest p-value of sums over the bins of a column or of the predicted value, times their number."""
        residual, variance = self._weighted(residual, variance)
        terms = _squared_ratio(self.bins @ residual, self.bins @ variance)
        statistics = np.add.reduceat(terms, np.cumsum(self.n_bins) - self.n_bins)
        codes = _bin_codes(predicted)
        terms = _squared_ratio(*(np.bincount(codes, weights=x).astype(np.float64) for x in (residual, variance)))
        statistics = np.append(np.delete(statistics, without), terms.sum())
        freedom = np.append(np.delete(self.n_bins, without), terms.size) - 1
        p_values = chdtrc(np.maximum(freedom, 1), statistics)
        return float(min(p_values.min() * p_values.size, 1.0))

    def product(self, residual: Array, variance: Array, without: slice = NOTHING) -> float:
        """Smallest p-value of a product of two columns, or of one and another's bend, times their number."""
        kept = np.ones(self.columns.shape[1], dtype=bool)
        kept[without] = False
        columns, bends = self.columns, self.bends
        if self.association is not None:  # all products would cost the square of their number for every residual
            order = self.association.order(residual[:, None])
            near = order[kept[order]][:N_NEIGHBOURS]
            columns, bends, kept = columns[:, near], bends[:, near], kept[near]
        residual, variance = self._weighted(residual, variance)
        ratios = _squared_ratio(*product_sums(np.column_stack((columns, bends)), columns, residual, variance))
        largest = ratios[np.ix_(np.tile(kept, 2), kept)].max(initial=0.0)
        n_pairs = max(kept.sum() * (3 * kept.sum() + 1) / 2, 1.0)
        return float(min(2.0 * ndtr(-np.sqrt(largest)) * n_pairs, 1.0))

    def _weighted(self, residual: Array, variance: Array) -> tuple[Array, Array]:
        """Terms of a sum over rows, and their variances."""
        return self.weights.times(residual), self.weights.times(self.weights.times(variance))


def _bin_codes(column: Array) -> NDArray[np.intp]:
    """Bin of each row; none is empty."""
    return np.unique(np.searchsorted(bin_edges(column, CURVE_BINS), column), return_inverse=True)[1]


def _squared_ratio(sums: Array, variance: Array) -> Array:
    """Sums squared, in units of their variance; nothing where the variance is zero."""
    return sums**2 / np.where(variance > 0, variance, np.inf)
