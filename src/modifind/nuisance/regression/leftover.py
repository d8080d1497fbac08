"""What structure residuals have left: bins, products of two and of three columns, and grids of two.

Unlike the tests of `misfit`, which decide in passing whether a richer model is worth a trial, these name the columns,
see structure that has no trace along single columns or in products of two, and have p-values that hold far out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import chdtrc
from scipy.stats import rankdata

from modifind._typing import Array, Ints
from modifind.nuisance.regression.blocks import random_rows
from modifind.nuisance.regression.terms import bend

CURVE_BINS = 10
MIN_CELL = 40  # rows of a cell of a grid, on average
GRID_BINS = (6, 12)
MIN_VARIANCE = 2.0  # of the sum over a bin that counts
MAX_COLUMNS = 40  # of products and grids
MIN_NEIGHBOURS, MAX_NEIGHBOURS = 10, 40
NEAREST = 4  # rows to each row, of at most so many rows,
PAIRED_ROWS = 10_000
MAX_PAIRED = 10  # columns, of so many values at least
MIN_VALUES = 20


@dataclass(frozen=True)
class Trace:
    """Structure that residuals may have.

    Attributes
    ----------
    p_value : float
        Of no structure of this kind; over all sets of columns that were looked at.
    columns : tuple of int
        Where it is clearest.
    """

    p_value: float
    columns: tuple[int, ...] = ()

    @classmethod
    def clearest(cls, traces: list[Trace]) -> Trace:
        """The clearest of several kinds of structure, with a p-value over all of them.

        Columns are those of the clearest that names any.
        """
        ordered = sorted(traces, key=lambda trace: trace.p_value)
        columns = next((trace.columns for trace in ordered if trace.columns), ())
        return cls(min(ordered[0].p_value * len(traces), 1.0), columns)


NO_TRACE = Trace(1.0)


class Leftover:
    """Tests of residuals that have mean zero at every row if a model is right.

    Parameters
    ----------
    columns : array of shape (n, p)
        Columns. Above 40, grids and products are formed of those that `order` names first.
    order : array of int, optional
        Columns by how much they matter.

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
        self.places = np.array([j for j in order if np.ptp(columns[:, j]) > 0], dtype=np.int64)
        self.columns = columns[:, self.places]
        self.crossed = np.sort(np.argsort(self.places[:MAX_COLUMNS]))
        self.ranks = _unit(np.column_stack([rankdata(c) for c in self.columns.T])) if self.places.size else self.columns

    def clearest(self, residual: Array, variance: Array) -> Trace:
        """The clearest structure of all kinds."""
        return Trace.clearest(self.traces(residual, variance))

    def traces(self, residual: Array, variance: Array) -> list[Trace]:
        """The clearest structure of each kind."""
        if not self.places.size:
            return [NO_TRACE]
        kinds = (self.curve, self.pair, self.triple, self.grid)
        return [kind(residual, variance) for kind in kinds]

    def curve(self, residual: Array, variance: Array) -> Trace:
        """Along bins of one column."""
        return self._named(along_bins(self.columns, residual, variance))

    def pair(self, residual: Array, variance: Array) -> Trace:
        """Along the product of two columns' ranks, or of one column's rank and another's bend."""
        ranks = self.ranks[:, self.crossed]
        bends = _unit(bend(ranks))
        both = np.column_stack((ranks, bends))
        p = _product_p(both.T @ (residual[:, None] * ranks), (both**2).T @ (variance[:, None] * ranks**2), both, ranks)
        n = ranks.shape[1]
        p[:n][np.triu_indices(n, 1)] = 1.0  # each product once
        first, second = np.unravel_index(np.argmin(p), p.shape)
        count = n * (n + 1) // 2 + n * n
        return self._named(Trace(min(float(p.min()) * count, 1.0), tuple(sorted({int(first) % n, int(second)}))))

    def triple(self, residual: Array, variance: Array) -> Trace:
        """Along the product of three columns' ranks, or of three columns' sides of their medians."""
        return self._named(Trace.clearest([_triples(x, residual, variance) for x in self._sides()]))

    def grid(self, residual: Array, variance: Array) -> Trace:
        """Over the cells of a grid of two columns' bins."""
        bins = int(np.clip(np.sqrt(residual.size / MIN_CELL) // 2 * 2, *GRID_BINS))
        codes = [_bins(self.columns[:, j], bins) for j in self.crossed]
        best, count = NO_TRACE, 0
        for j, k in combinations(range(len(codes)), 2):
            trace = Trace(_cells_p(codes[j] * bins + codes[k], residual, variance), (j, k))
            best, count = min(best, trace, key=lambda own: own.p_value), count + 1
        return self._named(Trace(min(best.p_value * max(count, 1), 1.0), best.columns))

    def nearby(self, residual: Array, variance: Array) -> Trace:
        """Whether rows next to each other in two columns have residuals of one sign, however fine the pattern is."""
        rows = random_rows(residual.size, PAIRED_ROWS)
        columns, residual, variance = self.columns[rows], residual[rows], variance[rows]
        many = (j for j in range(self.places.size) if np.unique(columns[:, j]).size > MIN_VALUES)
        best, count = NO_TRACE, 0
        for pair in combinations(islice(many, MAX_PAIRED), 2):
            trace = Trace(_nearest_p(columns[:, pair], residual, variance), pair)
            best, count = min(best, trace, key=lambda trace: trace.p_value), count + 1
        return self._named(Trace(min(best.p_value * max(count, 1), 1.0), best.columns))

    def _sides(self) -> Iterator[Array]:
        ranks = self.ranks[:, self.crossed]
        yield ranks
        yield _unit(np.sign(ranks))

    def _named(self, trace: Trace) -> Trace:
        return Trace(trace.p_value, tuple(sorted(int(self.places[j]) for j in trace.columns)))


def along_bins(columns: Array, residual: Array, variance: Array) -> Trace:
    """The clearest structure along bins of one column."""
    p = [_cells_p(_bins(column, CURVE_BINS), residual, variance) for column in columns.T]
    place = int(np.argmin(p))
    return Trace(min(p[place] * len(p), 1.0), (place,))


def _triples(x: Array, residual: Array, variance: Array) -> Trace:
    """The clearest product of three columns."""
    best, count = NO_TRACE, 0
    for j in range(x.shape[1] - 2):
        first, rest = x[:, j], x[:, j + 1 :]
        sums = rest.T @ ((residual * first)[:, None] * rest)
        size = (rest**2).T @ ((variance * first**2)[:, None] * rest**2)
        p = _product_p(sums, size, rest, rest, np.abs(first).max())
        p[np.tril_indices(p.shape[0])] = 1.0
        k, m = np.unravel_index(np.argmin(p), p.shape)
        if p[k, m] < best.p_value:
            best = Trace(float(p[k, m]), (j, j + 1 + int(k), j + 1 + int(m)))
        count += p.shape[0] * (p.shape[0] - 1) // 2
    return Trace(min(best.p_value * max(count, 1), 1.0), best.columns)


def _product_p(sums: Array, size: Array, left: Array, right: Array, factor: float = 1.0) -> Array:
    """P-values of sums over rows of residuals times products of a column of each matrix."""
    largest = factor * np.outer(np.abs(left).max(axis=0), np.abs(right).max(axis=0))
    return bernstein_p(sums, size, largest)


def bernstein_p(sums: Array | float, variance: Array | float, largest: Array | float) -> Array:
    """Bernstein's bound of the two tails of a sum of independent terms, none larger than `largest`."""
    sums = np.asarray(sums)
    return np.minimum(2.0 * np.exp(-(sums**2) / np.maximum(2.0 * (variance + largest * np.abs(sums) / 3.0), 1e-300)), 1)


def _cells_p(codes: Ints, residual: Array, variance: Array) -> float:
    """P-value of the sums over all cells that hold enough rows."""
    sums, size = np.bincount(codes, residual), np.bincount(codes, variance)
    enough = size >= MIN_VARIANCE
    if enough.sum() < 2:
        return 1.0
    return float(chdtrc(enough.sum() - 1.0, (sums[enough] ** 2 / size[enough]).sum()))


def _bins(column: Array, n_bins: int) -> Ints:
    """Bin of each row, of about equal size; rows with the same value share one."""
    edges = np.unique(np.quantile(column, np.arange(1, n_bins) / n_bins))
    return np.searchsorted(edges, column, side="left").astype(np.int64)


def _unit(columns: Array) -> Array:
    """Columns of mean zero and variance one; constant ones are zero."""
    centred = columns - columns.mean(axis=0)
    spread = centred.std(axis=0)
    return centred / np.where(spread > 0, spread, np.inf)


def neighbours_mean(columns: Array, target: Array) -> Array:
    """Mean of a target over the rows nearest to each row, without the row itself, by ranks of some columns."""
    count = int(np.clip(np.sqrt(target.size) / 4.0, MIN_NEIGHBOURS, MAX_NEIGHBOURS))
    near = _nearest(columns, count)
    return (target[near].sum(axis=1) - target) / max(near.shape[1] - 1, 1)


def _nearest(columns: Array, count: int) -> Ints:
    """Numbers of each row and of the rows nearest to it, by ranks of some columns."""
    jitter = np.random.default_rng(0).random(columns.shape)  # many rows at one place are slow to search
    ranks = np.column_stack([rankdata(column) for column in columns.T]) + jitter
    return cKDTree(ranks).query(ranks, min(count + 1, len(columns)))[1].astype(np.int64)


def _nearest_p(columns: Array, residual: Array, variance: Array) -> float:
    """P-value of the sum of products of residuals of rows that are nearest to each other."""
    near = _nearest(columns, NEAREST)[:, 1:]
    mutual = (near[near] == np.arange(residual.size)[:, None, None]).any(axis=2)
    total = float((residual[:, None] * residual[near]).sum())
    spread = float((variance[:, None] * variance[near] * (1.0 + mutual)).sum())
    return float(bernstein_p(total, spread, 2.0 * np.abs(residual).max() ** 2)) if total > 0 else 1.0
