"""Conditional distributions of the rows of a table: weighted points, quantiles and draws.

Weighted points give expectations without random draws. Draws come from one random stream, resample by resample, so that
batch size does not change them. Redrawing the values of a window would repeat them, and no draw from a long tail would
be as far from all others as the observed value is: so values between two neighbours are drawn, too, unless one of them
repeats or has negligible weight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.conditional.contract import Calibration, Conditional, Rows

N_GRID = 25
BLOCK_ROWS = 4096
FALLBACK_DRAWS = 200
ATOM_SHARE = 0.05
NORMAL_REACH = 5.0  # standard deviations; cut at 4, the trapezoidal rule would miss 1e-3 of the variance


def _normal_rule() -> tuple[Array, Array]:
    """Trapezoidal rule of the standard normal distribution, with points scaled to a variance of exactly 1."""
    points = np.linspace(-NORMAL_REACH, NORMAL_REACH, N_GRID)
    weights = np.exp(-0.5 * points**2)
    weights /= weights.sum()
    return points / np.sqrt(weights @ points**2), weights


NORMAL_POINTS, NORMAL_WEIGHTS = _normal_rule()


class Distribution(ABC):
    """Distribution of one feature given all others, for some rows: weighted points per row, and quantiles."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows."""

    @abstractmethod
    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """Points and weights, each of shape (rows, g); the weights of every row sum to 1. Read-only views are fine."""

    def quantiles(self, levels: Array) -> Array:
        """Values at levels between 0 and 1, shape (k, n); by default those of the points."""
        return point_quantiles(*self.grid(slice(None)), levels)

    def draw(self, rng: np.random.Generator, n_draws: int) -> Array:
        """Resampled columns, shape (n_draws, n)."""
        return self.quantiles(rng.random((n_draws, len(self))))


@dataclass(frozen=True)
class ConditionalGrid:
    """Weighted points of one feature's distribution given all others, streamed in blocks of rows.

    Iterating yields ``(rows, points, weights)`` block by block: a slice of rows and two arrays of shape (rows, g).

    Attributes
    ----------
    conditional : object with `grid(rows)`
        Where points and weights come from.
    n_rows : int
        Number of rows of the table.
    block_rows : int
        Rows per block.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.nuisance.conditional import Calibration, ConditionalGrid
    >>> from modifind.nuisance.conditional.distributions import NormalConditional
    >>> known = Calibration("known", float("nan"), float("nan"), 0.0)
    >>> grid = ConditionalGrid(NormalConditional(np.array([0.0, 5.0, 9.0]), 1.0, known), n_rows=3, block_rows=2)
    >>> [(points * weights).sum(axis=1).round(6).tolist() for rows, points, weights in grid]
    [[0.0, 5.0], [9.0]]
    """

    conditional: Any
    n_rows: int
    block_rows: int = BLOCK_ROWS

    def __post_init__(self) -> None:
        if self.block_rows < 1:
            raise ValueError(f"block_rows must be at least 1, not {self.block_rows}")

    @classmethod
    def of(
        cls, conditional: Conditional, n_rows: int, *, n_levels: int = 0, block_rows: int = BLOCK_ROWS
    ) -> ConditionalGrid:
        """Grid of a fitted distribution; one that can only draw is summarised by 200 draws from a fixed stream.

        Parameters
        ----------
        conditional : Conditional
            The distribution of one feature.
        n_rows : int
            Number of rows of the table.
        n_levels : int, default=0
            Number of categories, 0 for a continuous feature.
        block_rows : int, default=4096
            Rows per block.

        Examples
        --------
        >>> import numpy as np
        >>> from modifind.nuisance.conditional import ConditionalGrid
        >>> from modifind.nuisance.conditional.distributions import NormalConditional
        >>> grid = ConditionalGrid.of(NormalConditional(np.arange(100.0), 1.0, None), n_rows=100, block_rows=60)
        >>> [(rows.start, rows.stop, points.shape) for rows, points, weights in grid]
        [(0, 60, (60, 25)), (60, 100, (40, 25))]
        >>> points, weights = grid.at(np.array([7]))
        >>> float((weights * points).sum().round(6))
        7.0
        """
        has_points = hasattr(conditional, "grid")
        return cls(conditional if has_points else DrawnConditional(conditional, n_levels), n_rows, block_rows)

    def __iter__(self) -> Iterator[tuple[slice, Array, Array]]:
        for start in range(0, self.n_rows, self.block_rows):
            rows = slice(start, min(start + self.block_rows, self.n_rows))
            points, weights = self.at(rows)
            yield rows, points, weights

    def at(self, rows: Rows) -> tuple[Array, Array]:
        """Points and weights of some rows, each of shape (rows, g)."""
        return self.conditional.grid(rows)


@dataclass(frozen=True)
class DrawnConditional:
    """A user's distribution that can only draw, summarised by draws made once from a fixed stream."""

    conditional: Conditional
    n_levels: int

    @cached_property
    def draws(self) -> Array:
        """The draws, shape (n, 200)."""
        return np.ascontiguousarray(self.conditional.draw(np.random.default_rng(0), FALLBACK_DRAWS).T)

    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """Cell means of the draws, or their category frequencies."""
        draws = self.draws[rows]
        if self.n_levels:
            return code_grid(np.stack([(draws == code).mean(axis=1) for code in range(self.n_levels)], axis=1))
        return cell_grid(draws, np.full(FALLBACK_DRAWS, 1.0 / FALLBACK_DRAWS))


def code_grid(probabilities: Array) -> tuple[Array, Array]:
    """The codes 0, 1, ... and their probabilities."""
    return np.broadcast_to(np.arange(probabilities.shape[1], dtype=np.float64), probabilities.shape), probabilities


def quantiles_of_rows(conditional: Any, levels: Array) -> Array:
    """Quantiles of every row's distribution at levels between 0 and 1, shape (k, n).

    A user's distribution without `quantiles` uses those of its weighted points.

    Examples
    --------
    >>> class Coin:
    ...     def grid(self, rows):
    ...         return np.array([[0.0, 1.0]]), np.array([[0.3, 0.7]])
    >>> quantiles_of_rows(Coin(), np.array([[0.2], [0.4]]))
    array([[0.],
           [1.]])
    """
    if hasattr(conditional, "quantiles"):
        return conditional.quantiles(levels)
    points, weights = conditional.grid(slice(None))
    return point_quantiles(points, weights, levels)


def point_quantiles(points: Array, weights: Array, levels: Array) -> Array:
    """Quantiles of each row's weighted points, both of shape (n, g), at levels of shape (k, n)."""
    chosen = np.zeros(levels.shape, dtype=np.intp)
    for edge in np.cumsum(weights, axis=1)[:, :-1].T:
        chosen += levels > edge
    return points[np.arange(len(points)), chosen]


def cell_grid(points: Array, weights: Array, n_cells: int = N_GRID) -> tuple[Array, Array]:
    """Summarise each row's weighted points by the means and weights of cells of neighbouring points.

    All points start in one cell. The cell that contributes most to the variance is split at its mean until there are
    `n_cells`. This keeps the mean exactly, loses about 0.5% of a normal variance with 25 cells, leaves no cell across
    the gap between two modes and spends one cell on an outlier. Up to `n_cells` distinct values are all kept; unused
    cells have weight zero.

    Parameters
    ----------
    points : array of shape (rows, k)
        Values, in any order.
    weights : array of shape (k,) or (rows, k)
        Their probabilities; each row's sum to 1.
    n_cells : int, default=25
        Number of cells.

    Returns
    -------
    points, weights : arrays of shape (rows, n_cells)
        Ascending means of the cells and their probabilities.

    Examples
    --------
    >>> points, weights = cell_grid(np.array([[0.0, 0.0, 1.0, 8.0, 9.0]]), np.full(5, 0.2), n_cells=3)
    >>> points, weights
    (array([[0. , 1. , 8.5]]), array([[0.4, 0.2, 0.4]]))
    """
    n_rows, n_points = points.shape
    row = np.arange(n_rows)
    order = np.argsort(points, axis=1, kind="stable")
    value = np.take_along_axis(points, order, axis=1)
    mass = np.take_along_axis(np.broadcast_to(weights, points.shape), order, axis=1)
    mean = (mass * value).sum(axis=1)
    centred = value - mean[:, None]  # sums of squares are small differences
    sums = np.zeros((3, n_rows, n_points + 1))
    for power in range(3):
        np.cumsum(mass * centred**power, axis=1, out=sums[power, :, 1:])

    first, end = np.zeros((2, n_rows, n_cells), dtype=np.int64)
    weight, point, spread = np.zeros((3, n_rows, n_cells))

    def set_cell(cell: int | NDArray[np.intp], start: Ints, stop: Ints) -> None:
        first[row, cell], end[row, cell] = start, stop
        total, moment, square = sums[:, row, stop] - sums[:, row, start]
        offset = moment / np.maximum(total, np.finfo(float).tiny)
        low, high = value[row, np.minimum(start, n_points - 1)], value[row, stop - 1]
        flat = low == high  # without rounding: a value that repeats is kept as it is
        weight[row, cell] = total
        point[row, cell] = np.where(flat, low, mean + offset)
        spread[row, cell] = np.where(flat, 0.0, np.maximum(square - moment * offset, 0.0))

    set_cell(0, np.zeros(n_rows, dtype=np.int64), np.full(n_rows, n_points))
    for cell in range(1, n_cells):
        widest = spread.argmax(axis=1)
        start, stop = first[row, widest], end[row, widest]
        cut = np.clip((value <= point[row, widest][:, None]).sum(axis=1), start, stop)
        set_cell(widest, start, cut)
        set_cell(cell, cut, stop)
    order = np.argsort(point, axis=1, kind="stable")
    return np.take_along_axis(point, order, axis=1), np.take_along_axis(weight, order, axis=1)


def window_grid(values: Array, counts: Weights) -> tuple[Array, Array]:
    """Points and weights, N_GRID each, of the distribution of weighted values.

    A value with at least 5% of the weight, such as zero cigarettes, is a point of its own with its exact share: the
    mean of a cell that mixed it with others would be a value that never occurs.
    """
    distinct, codes = np.unique(values, return_inverse=True)
    share = counts.shares(codes, distinct.size)
    atom = (share >= ATOM_SHARE) & (distinct.size > N_GRID)  # few values are points of their own anyway
    rest = share[~atom].sum()
    others, weights = cell_grid(distinct[None, ~atom], share[~atom] / rest, N_GRID - int(atom.sum()))
    points = np.concatenate((distinct[atom], others[0]))
    weights = np.concatenate((share[atom], rest * weights[0]))
    order = np.argsort(points, kind="stable")
    return points[order], weights[order]


NEGLIGIBLE = 0.1  # of the weight of its neighbour
N_END_VALUES, N_MIDDLE_VALUES = 100, 800  # values of a window that are kept: at each end, and in between


@dataclass(frozen=True)
class Windows:
    """Distributions of several windows of values.

    Attributes
    ----------
    points, weights : arrays of shape (windows, g)
        Weighted points of each window.
    functions : tuple of pairs of arrays
        For each window levels between 0 and 1 and the values there, straight lines in between; empty where values are
        not drawn, or where the points tell all.
    pools : tuple of (values, Weights)
        The values of each window and how much they count; empty where they are left behind.
    discrete : bool
        Whether values are codes.
    """

    points: Array
    weights: Array
    functions: tuple[tuple[Array, Array], ...] = ()
    pools: tuple[tuple[Array, Weights], ...] = ()
    discrete: bool = False

    @classmethod
    def from_pools(cls, pools: Iterable[tuple[Array, Weights]], n_levels: int = 0) -> Windows:
        """Summarise the values of each window; `n_levels` is the number of codes, 0 for numbers."""
        pools = tuple(pools)
        if n_levels:
            points, weights = code_grid(np.stack([counts.shares(codes, n_levels) for codes, counts in pools]))
        else:
            points, weights = map(np.stack, zip(*(window_grid(*pool) for pool in pools), strict=True))
        return cls(points, weights, pools=pools, discrete=n_levels > 0)

    @cached_property
    def drawable(self) -> Windows:
        """These windows with quantile functions in place of the pools."""
        step = _code_steps if self.discrete else _table
        return replace(self, pools=(), functions=tuple(step(values, counts.values) for values, counts in self.pools))

    def quantiles(self, window: NDArray[np.intp], levels: Array) -> Array:
        """Values at levels of shape (k, n), from the window of each of the n rows.

        Examples
        --------
        >>> pool, alike = np.array([0.0, 1.0, 5.0, 5.0]), Weights.alike(2)
        >>> two = Windows.from_pools([(pool[:2], alike), (pool[2:], alike)]).drawable
        >>> two.quantiles(np.array([0, 1]), np.array([[0.5, 0.5], [0.25, 0.9]])).tolist()
        [[0.5, 5.0], [0.0, 5.0]]
        """
        values = np.empty(levels.shape)
        for k in np.unique(window):
            rows = window == k
            values[:, rows] = np.interp(levels[:, rows], *self.functions[k])
        return values


def _code_steps(codes: Array, weights: Array) -> tuple[Array, Array]:
    """Quantile function of ordered codes as steps: cumulative shares of rows, and the codes."""
    ends = np.cumsum(weights) / weights.sum()
    return np.concatenate(([0.0], np.repeat(ends[:-1], 2), [1.0])), np.repeat(codes, 2)


def _table(values: Array, weights: Array) -> tuple[Array, Array]:
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    ends = np.cumsum(weights) / weights.sum()
    levels = ends - weights / (2 * weights.sum())
    same = values[1:] == values[:-1]
    tied = np.concatenate((same, [False])) | np.concatenate(([False], same))
    kept = np.arange(values.size)
    if values.size > 2 * N_END_VALUES + N_MIDDLE_VALUES:
        middle = np.linspace(N_END_VALUES, values.size - N_END_VALUES - 1, N_MIDDLE_VALUES).astype(np.intp)
        kept = np.concatenate((kept[:N_END_VALUES], middle, kept[-N_END_VALUES:]))
    levels, values, tied, weights = levels[kept], values[kept], tied[kept], weights[kept]
    apart = np.minimum(weights[1:], weights[:-1]) < NEGLIGIBLE * np.maximum(weights[1:], weights[:-1])
    steps = np.flatnonzero((tied[1:] | tied[:-1] | apart) & (values[1:] != values[:-1]))
    between = np.where(kept[steps + 1] == kept[steps] + 1, ends[kept[steps]], (levels[steps] + levels[steps + 1]) / 2)
    cuts = np.repeat(steps + 1, 2)
    both = np.column_stack((values[steps], values[steps + 1])).ravel()
    return np.insert(levels, cuts, np.repeat(between, 2)), np.insert(values, cuts, both)


@dataclass(frozen=True)
class NormalConditional(Distribution):
    """Normal distributions with one mean per row and a common standard deviation."""

    mean: Array
    scale: float
    calibration: Calibration

    def __len__(self) -> int:
        return self.mean.size

    def quantiles(self, levels: Array) -> Array:
        """Values at levels between 0 and 1, shape (k, n)."""
        return self.mean + self.scale * ndtri(np.maximum(levels, 2.0**-54))

    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """Equally spaced normal scores."""
        points = self.mean[rows, None] + self.scale * NORMAL_POINTS
        return points, np.broadcast_to(NORMAL_WEIGHTS, points.shape)


@dataclass(frozen=True)
class CategoricalConditional(Distribution):
    """Category probabilities per row, shape (n, k)."""

    probabilities: Array
    calibration: Calibration

    def __len__(self) -> int:
        return len(self.probabilities)

    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """The codes and their probabilities."""
        cumulative = np.cumsum(self.probabilities[rows], axis=1)[:, :-1]
        # Rounding may carry a cumulative sum beyond 1.
        return code_grid(np.maximum(np.diff(cumulative, axis=1, prepend=0.0, append=1.0), 0.0))


@dataclass(frozen=True)
class WindowConditional(Distribution):
    """For each row, the distribution of the values in one of a few windows, multiplied by `scale`, plus `shift`."""

    windows: Windows
    window: NDArray[np.intp]
    shift: Array
    scale: Array
    calibration: Calibration

    def __len__(self) -> int:
        return self.window.size

    def draw(self, rng: np.random.Generator, n_draws: int) -> Array:
        """Resampled columns; for numbers, including values between neighbours of a window."""
        levels = rng.random((n_draws, len(self)))
        if not self.windows.pools:
            return self.quantiles(levels)
        return self.shift + self.scale * self.windows.drawable.quantiles(self.window, levels)

    def quantiles(self, levels: Array) -> Array:
        """Values at levels between 0 and 1, shape (k, n), by quantile functions or else from the points."""
        if not self.windows.functions:
            return super().quantiles(levels)
        return self.shift + self.scale * self.windows.quantiles(self.window, levels)

    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """Atoms and cell means of each row's window, or the codes and their frequencies in it."""
        window = self.window[rows]
        points = self.shift[rows, None] + self.scale[rows, None] * self.windows.points[window]
        return points, self.windows.weights[window]


class PoolConditional(WindowConditional):
    """Draws from a window of a pool of values, `size` of them from `start` on, times `scale` plus `shift`.

    For a pool of codes `n_levels` is their number. Values are drawn in proportion to `weights`.
    """

    def __init__(
        self,
        pool: Array,
        start: Ints,
        size: Ints,
        calibration: Calibration,
        shift: Array,
        scale: Array,
        weights: Weights,
        n_levels: int = 0,
    ) -> None:
        _, first, window = np.unique(np.stack((start, size)), axis=1, return_index=True, return_inverse=True)
        spans = [slice(start[row], start[row] + size[row]) for row in first]
        windows = Windows.from_pools([(pool[span], weights[span]) for span in spans], n_levels)
        super().__init__(windows, window.ravel(), shift, scale, calibration)
