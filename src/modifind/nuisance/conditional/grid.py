"""Distributions as a few weighted points per row, for expectations without random draws.

A normal distribution takes the trapezoidal rule in normal scores, a discrete distribution its codes. A distribution
that is known by many values takes the means of cells of neighbouring values, which keeps the distribution's mean
exactly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.conditional.contract import Conditional, Rows

N_GRID = 25
BLOCK_ROWS = 4096
FALLBACK_DRAWS = 200
ATOM_SHARE = 0.05
NORMAL_REACH = 5.0  # standard deviations; cut at 4, the trapezoidal rule would miss 1e-3 of the variance


def _normal_rule() -> tuple[Array, Array]:
    """Trapezoidal rule of the standard normal distribution, points stretched so that the variance is 1 exactly."""
    points = np.linspace(-NORMAL_REACH, NORMAL_REACH, N_GRID)
    weights = np.exp(-0.5 * points**2)
    weights /= weights.sum()
    return points / np.sqrt(weights @ points**2), weights


NORMAL_POINTS, NORMAL_WEIGHTS = _normal_rule()


class Distribution(ABC):
    """The distribution of one feature given all else, for some rows: weighted points per row, and quantiles."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows."""

    @abstractmethod
    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """Points and weights, each of shape (rows, g); every row's weights sum to 1. Read-only views are fine."""

    def quantiles(self, levels: Array) -> Array:
        """Values at levels between 0 and 1, shape (k, n); those of the points unless more is known."""
        return point_quantiles(*self.grid(slice(None)), levels)

    def draw(self, rng: np.random.Generator, n_draws: int) -> Array:
        """Resampled columns, shape (n_draws, n)."""
        return self.quantiles(rng.random((n_draws, len(self))))


@dataclass(frozen=True)
class ConditionalGrid:
    """The estimated distribution of one feature given all else as weighted points per row, streamed in blocks of rows.

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
    >>> from modifind.nuisance.conditional.base import NormalConditional
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
        >>> from modifind.nuisance.conditional.base import NormalConditional
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
    """A user's distribution that can only draw, summarised by draws that are made once from a fixed stream."""

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
    """Values of every row's distribution at levels between 0 and 1, shape (k, n).

    A user's distribution that has no `quantiles` takes one of its weighted points.

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
    """Values of each row's weighted points, both of shape (n, g), at levels of shape (k, n)."""
    chosen = np.zeros(levels.shape, dtype=np.intp)
    for edge in np.cumsum(weights, axis=1)[:, :-1].T:
        chosen += levels > edge
    return points[np.arange(len(points)), chosen]


def cell_grid(points: Array, weights: Array, n_cells: int = N_GRID) -> tuple[Array, Array]:
    """Summarise each row's weighted points by the means and weights of cells of neighbouring points.

    All points begin as one cell. The cell that contributes most to the variance is split at its mean until there are
    `n_cells`. This keeps the mean exactly, loses about 0.5% of a normal variance with 25 cells, leaves no cell across
    the gap between two modes and spends one cell on an outlier. Up to `n_cells` distinct values are all kept; cells
    to spare have weight zero.

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
    """Points and weights, N_GRID each, of the distribution over some values, which count by weights.

    A value that holds at least 5% of them, such as zero cigarettes, is a point of its own with its exact share: the
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
