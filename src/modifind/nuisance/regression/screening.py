"""Screening: which columns are associated with a variable, and what structure remains in residuals of a model.

Every choice is made on the rows to which the model is fitted, never on those where it is evaluated. The quick tests of
`Misfit` decide whether a richer model is worth trying. Those of `Leftover` name the columns, detect structure that
leaves no trace along single columns or in products of two, and have p-values that hold far in the tail.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from scipy.spatial import cKDTree
from scipy.special import chdtrc, ndtr
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.regression.penalised import bin_edges, product_sums, random_rows
from modifind.nuisance.regression.terms import bend

FEW_COLUMNS = 60
MIN_ROWS_PER_COLUMN = 8
ROWS_PER_SCREENED = 20
MIN_SCREENED = 20


def has_many_columns(n_rows: int, n_columns: int) -> bool:
    """Whether there are too many columns to model at once: above 60, and above an eighth of the rows."""
    return n_columns > max(FEW_COLUMNS, n_rows / MIN_ROWS_PER_COLUMN)


class Association:
    """Strength of association of columns with other variables; computations common to all variables are shared.

    The measure is the largest correlation between the column or its square and a variable or its square, so that a
    column also counts if it affects only the spread of a variable, or affects it nonlinearly.

    Parameters
    ----------
    columns : array of shape (n, p)
        Columns to choose from.
    weights : Weights, optional
        How much each row counts.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 4))
    >>> Association(x).order(x[:, 2:3] ** 2 + 0.1 * x[:, :1])[:1]
    array([2])
    """

    def __init__(self, columns: Array, weights: Weights | None = None) -> None:
        self.weights = weights = Weights.of(weights, columns.shape[0])
        lines = columns - weights.mean(columns)
        self.shapes = []
        for shape in (lines, lines**2):
            squares = np.einsum("ij,ij->j", weights.times(shape), shape) - weights.total(shape) ** 2 / weights.sum
            self.shapes.append((shape, np.where(squares > 1e-12, np.sqrt(np.maximum(squares, 1e-12)), np.inf)))

    def order(self, targets: Array) -> NDArray[np.intp]:
        """Positions of the columns, sorted by association with any of the variables, shape (n, q), strongest first."""
        centred = targets - self.weights.mean(targets)
        sides = np.column_stack((centred, centred**2 - self.weights.mean(centred**2)))
        sides /= np.maximum(np.sqrt(self.weights.total(sides**2)), np.finfo(float).tiny)
        sides = self.weights.times(sides)
        strength = [np.abs(shape.T @ sides).max(axis=1) / norm for shape, norm in self.shapes]
        return np.argsort(-np.maximum(*strength), kind="stable")


class ScreenedLogistic(LogisticRegression):
    """Ridge-penalised logistic regression on the columns most associated with the label, one for every 20 rows.

    The columns are chosen when the model is fitted, on the rows that it is fitted to; the others get a slope of zero.
    """

    def fit(self, X: Array, y: ArrayLike, sample_weight: Any = None) -> ScreenedLogistic:
        """Choose the columns and fit their slopes."""
        labels = np.asarray(y)
        treated = (labels == labels.max())[:, None].astype(np.float64)
        order = Association(X, Weights.of(sample_weight, labels.size)).order(treated)
        kept = np.sort(order[: max(labels.size // ROWS_PER_SCREENED, MIN_SCREENED)])
        super().fit(X[:, kept], labels, sample_weight)
        slopes: Array = np.zeros((1, X.shape[1]))
        slopes[:, kept] = self.coef_
        self.coef_: Array = slopes
        self.n_features_in_: int = X.shape[1]
        return self


CURVE_BINS = 10
MANY_COLUMNS = 100
N_NEIGHBOURS = 60
NO_COLUMNS = slice(0, 0)


class Misfit:
    """Tests of residuals against bins of each column and against products of two columns.

    They detect departures far weaker than those that justify a richer model. With more than 100 columns, products are
    formed only of the 60 most associated with the residuals.

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

    def curve(self, residual: Array, variance: Array, predicted: Array, without: slice = NO_COLUMNS) -> float:
        """Bonferroni p-value of sums over the bins of each column or of the predicted value."""
        residual, variance = self._weighted(residual, variance)
        terms = _squared_ratio(self.bins @ residual, self.bins @ variance)
        statistics = np.add.reduceat(terms, np.cumsum(self.n_bins) - self.n_bins)
        codes = _bin_codes(predicted)
        terms = _squared_ratio(*(np.bincount(codes, weights=x).astype(np.float64) for x in (residual, variance)))
        statistics = np.append(np.delete(statistics, without), terms.sum())
        freedom = np.append(np.delete(self.n_bins, without), terms.size) - 1
        p_values = chdtrc(np.maximum(freedom, 1), statistics)
        return float(min(p_values.min() * p_values.size, 1.0))

    def product(self, residual: Array, variance: Array, without: slice = NO_COLUMNS) -> float:
        """Bonferroni p-value of products of two columns, or of one and the square of another."""
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
        """Terms of a weighted sum over rows, and their variances."""
        return self.weights.times(residual), self.weights.times(self.weights.times(variance))


def _bin_codes(column: Array) -> NDArray[np.intp]:
    """Bin of each row; none is empty."""
    return np.unique(np.searchsorted(bin_edges(column, CURVE_BINS), column), return_inverse=True)[1]


def _squared_ratio(sums: Array, variance: Array) -> Array:
    """Squared sums in units of their variance; zero if the variance is zero."""
    return sums**2 / np.where(variance > 0, variance, np.inf)


MIN_CELL = 40  # rows in a cell of a grid, on average
GRID_BINS = (6, 12)
MIN_VARIANCE = 2.0  # of the sum over a cell, for it to count
MAX_CROSSED = 40  # columns in products and grids
MIN_NEIGHBOURS, MAX_NEIGHBOURS = 10, 40
N_NEAREST = 4  # neighbours whose residuals are compared with a row's
MAX_NEARBY_ROWS = 10_000
MAX_NEARBY_COLUMNS = 10
MIN_VALUES = 20  # of a column whose neighbouring rows are compared


@dataclass(frozen=True)
class Trace:
    """Evidence of structure in residuals.

    Attributes
    ----------
    p_value : float
        Under no structure of this kind, corrected for the number of sets of columns examined.
    columns : tuple of int
        The columns where the structure is clearest.
    """

    p_value: float
    columns: tuple[int, ...] = ()

    @classmethod
    def clearest(cls, traces: list[Trace]) -> Trace:
        """The trace with the smallest p-value, Bonferroni corrected, with the columns of the first that names any."""
        ordered = sorted(traces, key=lambda trace: trace.p_value) or [NO_TRACE]
        columns = next((trace.columns for trace in ordered if trace.columns), ())
        return cls(min(ordered[0].p_value * len(ordered), 1.0), columns)


NO_TRACE = Trace(1.0)


class Leftover:
    """Tests of residuals that have mean zero at every row under a correct model.

    Parameters
    ----------
    columns : array of shape (n, p)
        Columns. If there are more than 40, grids and products use the first 40 in `order`.
    order : array of int, optional
        Columns, most important first.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, flips = rng.normal(size=(1000, 5)), rng.choice([-0.5, 0.5], 1000)
    >>> leftover = Leftover(x)
    >>> leftover.clearest(flips, np.full(1000, 0.25)).p_value > 0.01
    True
    >>> flips = np.sign(x[:, 0] * x[:, 2] * x[:, 3]) * rng.choice([-0.5, 0.5], 1000, p=[0.3, 0.7])
    >>> leftover.clearest(flips, np.full(1000, 0.25)).columns
    (0, 2, 3)
    """

    def __init__(self, columns: Array, order: Ints | None = None) -> None:
        order = np.arange(columns.shape[1]) if order is None else order
        self.varying = np.array([j for j in order if np.ptp(columns[:, j]) > 0], dtype=np.int64)
        self.columns = columns[:, self.varying]
        self.ranks = _standardised(rankdata(self.columns[:, :MAX_CROSSED], axis=0))

    def clearest(self, residual: Array, variance: Array) -> Trace:
        """The most significant structure of any kind."""
        return Trace.clearest(self.traces(residual, variance))

    def traces(self, residual: Array, variance: Array) -> list[Trace]:
        """The most significant structure of each kind."""
        if not self.varying.size:
            return [NO_TRACE]
        return [kind(residual, variance) for kind in (self.curve, self.pair, self.triple, self.grid)]

    def curve(self, residual: Array, variance: Array) -> Trace:
        """Structure along bins of one column."""
        return self._named(along_bins(self.columns, residual, variance))

    def pair(self, residual: Array, variance: Array) -> Trace:
        """Structure along the product of two columns' ranks, or of one column's rank and another's squared rank."""
        ranks, n = self.ranks, self.ranks.shape[1]
        both = np.column_stack((ranks, _standardised(bend(ranks))))
        p = _products_p(both, ranks, residual, variance)
        p[:n][np.triu_indices(n, 1)] = 1.0  # each product once
        first, second = np.unravel_index(np.argmin(p), p.shape)
        n_products = n * (n + 1) // 2 + n * n
        return self._named(Trace(min(float(p.min()) * n_products, 1.0), tuple({int(first) % n, int(second)})))

    def triple(self, residual: Array, variance: Array) -> Trace:
        """Structure along the product of three columns' ranks, or of the signs of these centred ranks."""
        factors = self.ranks, _standardised(np.sign(self.ranks))
        return self._named(Trace.clearest([_triples(columns, residual, variance) for columns in factors]))

    def grid(self, residual: Array, variance: Array) -> Trace:
        """Structure over the cells of a grid of two columns' bins."""
        n_bins = int(np.clip(np.sqrt(residual.size / MIN_CELL) // 2 * 2, *GRID_BINS))
        codes = [_bins(column, n_bins) for column in self.columns[:, :MAX_CROSSED].T]
        pairs = combinations(range(len(codes)), 2)
        cells = [Trace(_cells_p(codes[j] * n_bins + codes[k], residual, variance), (j, k)) for j, k in pairs]
        return self._named(Trace.clearest(cells))

    def nearby(self, residual: Array, variance: Array) -> Trace:
        """Whether neighbouring rows in two columns have residuals of the same sign, at any scale of the pattern."""
        rows = random_rows(residual.size, MAX_NEARBY_ROWS)
        columns, residual, variance = self.columns[rows], residual[rows], variance[rows]
        continuous = (j for j, column in enumerate(columns.T) if np.unique(column).size > MIN_VALUES)
        pairs = combinations(islice(continuous, MAX_NEARBY_COLUMNS), 2)
        neighbours = [Trace(_nearest_p(columns[:, pair], residual, variance), pair) for pair in pairs]
        return self._named(Trace.clearest(neighbours))

    def _named(self, trace: Trace) -> Trace:
        return Trace(trace.p_value, tuple(sorted(int(self.varying[j]) for j in trace.columns)))


def along_bins(columns: Array, residual: Array, variance: Array) -> Trace:
    """The most significant structure along bins of one column."""
    bins = (_bins(column, CURVE_BINS) for column in columns.T)
    return Trace.clearest([Trace(_cells_p(codes, residual, variance), (j,)) for j, codes in enumerate(bins)])


def _triples(columns: Array, residual: Array, variance: Array) -> Trace:
    """The most significant product of three columns."""
    clearest, n_products = NO_TRACE, 0
    for j in range(columns.shape[1] - 2):
        first, others = columns[:, j], columns[:, j + 1 :]
        p = _products_p(others, others, residual * first, variance * first**2, np.abs(first).max())
        p[np.tril_indices(p.shape[0])] = 1.0
        k, m = np.unravel_index(np.argmin(p), p.shape)
        if p[k, m] < clearest.p_value:
            clearest = Trace(float(p[k, m]), (j, j + 1 + int(k), j + 1 + int(m)))
        n_products += p.shape[0] * (p.shape[0] - 1) // 2
    return Trace(min(clearest.p_value * max(n_products, 1), 1.0), clearest.columns)


def _products_p(left: Array, right: Array, residual: Array, variance: Array, factor: float = 1.0) -> Array:
    """P-values of sums of residuals times the product of a column of each matrix; residuals may hold a `factor`."""
    sums, variances = product_sums(left, right, residual, variance)
    return bernstein_p(sums, variances, factor * np.outer(np.abs(left).max(axis=0), np.abs(right).max(axis=0)))


def bernstein_p(sums: Array | float, variance: Array | float, largest: Array | float) -> Array:
    """Bernstein's two-sided bound for a sum of independent terms, none larger than `largest`."""
    sums = np.asarray(sums)
    return np.minimum(2.0 * np.exp(-(sums**2) / np.maximum(2.0 * (variance + largest * np.abs(sums) / 3.0), 1e-300)), 1)


def _cells_p(codes: Ints, residual: Array, variance: Array) -> float:
    """P-value of the sums over all cells with enough rows."""
    sums, variances = np.bincount(codes, residual), np.bincount(codes, variance)
    enough = variances >= MIN_VARIANCE
    if enough.sum() < 2:
        return 1.0
    return float(chdtrc(enough.sum() - 1.0, (sums[enough] ** 2 / variances[enough]).sum()))


def _bins(column: Array, n_bins: int) -> Ints:
    """Bin of each row."""
    return np.searchsorted(bin_edges(column, n_bins), column).astype(np.int64)


def _standardised(columns: Array) -> Array:
    """Columns of mean zero and variance one; constant ones are zero."""
    centred = columns - columns.mean(axis=0)
    spread = centred.std(axis=0)
    return centred / np.where(spread > 0, spread, np.inf)


def neighbours_mean(columns: Array, target: Array) -> Array:
    """Mean of a target over the nearest neighbours of each row by ranks of some columns, excluding the row itself."""
    count = int(np.clip(np.sqrt(target.size) / 4.0, MIN_NEIGHBOURS, MAX_NEIGHBOURS))
    near = _nearest(columns, count)
    return (target[near].sum(axis=1) - target) / max(near.shape[1] - 1, 1)


def _nearest(columns: Array, count: int) -> Ints:
    """Each row's position and those of its nearest rows, by ranks of some columns."""
    ranks = rankdata(columns, axis=0) + np.random.default_rng(0).random(columns.shape)  # ties are slow to search
    return cKDTree(ranks).query(ranks, min(count + 1, len(columns)))[1].astype(np.int64)


def _nearest_p(columns: Array, residual: Array, variance: Array) -> float:
    """P-value of the sum of products of residuals of neighbouring rows."""
    near = _nearest(columns, N_NEAREST)[:, 1:]
    mutual = (near[near] == np.arange(residual.size)[:, None, None]).any(axis=2)
    total = float((residual[:, None] * residual[near]).sum())
    spread = float((variance[:, None] * variance[near] * (1.0 + mutual)).sum())
    return float(bernstein_p(total, spread, 2.0 * np.abs(residual).max() ** 2)) if total > 0 else 1.0
