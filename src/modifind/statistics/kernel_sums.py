"""Fast sums of weighted rows around every row, by a Gaussian kernel on one column or within categories."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.statistics.kernels import (
    MAX_DENSE_RANGE,
    NODES_PER_BANDWIDTH,
    QUADRATURE_WEIGHT,
    dense_nodes,
    root_kernel,
)

Sources: TypeAlias = Sequence[tuple[slice, Array]]

# Beyond the range that one dense grid serves, the grid is cut into cells.
CELL_NODES = 17
CELL_WIDTH = CELL_NODES / NODES_PER_BANDWIDTH
# Sums whose total weight is below this may be dominated by rows outside the cells in reach; see `nearest_weights`.
NEGLIGIBLE_WEIGHT = 1e-10
MANY_LEVELS = 50
ROW_BLOCK = 500  # rows whose sums stay in cache
MANY_CELLS = 2.0**52  # from zero: further out, neighbouring numbers are further apart than a cell is wide


class LocalSums(ABC):
    """Sums of weighted rows around every row; what a conditional expectation given one feature needs.

    The work is done in two steps, so that the second can go through the rows in blocks that stay in cache: `collect`
    adds up all rows of each ``(slice of rows, weights of those rows)`` source, `at` evaluates the sums at some rows.

    Attributes
    ----------
    reaches_all : bool
        Whether sums are right however far apart rows are.
    """

    reaches_all: ClassVar[bool] = True

    @abstractmethod
    def collect(self, sources: Sources) -> list[Any]:
        """Sums of each source, as `at` needs them."""

    @abstractmethod
    def at(self, collected: list[Any], rows: slice) -> list[Array]:
        """Sums at a slice of rows, one array per source, which the caller may overwrite."""

    @property
    def block_rows(self) -> int:
        """Number of rows that `at` should be asked for at a time."""
        return ROW_BLOCK

    def sums(self, sources: Sources) -> list[Array]:
        """Sums at every row, one array per source."""
        return self.at(self.collect(sources), slice(None))


@dataclass(frozen=True)
class GroupSums(LocalSums):
    """Sums over the rows of the same category."""

    codes: NDArray[np.intp]
    n_levels: int

    def collect(self, sources: Sources) -> list[Any]:
        """Totals of each category."""
        return [self._totals(self.codes[rows], values) for rows, values in sources]

    def at(self, collected: list[Any], rows: slice) -> list[Array]:
        """Sums at a slice of rows, one array per source."""
        return [totals[self.codes[rows]] for totals in collected]

    def _totals(self, codes: NDArray[np.intp], values: Array) -> Array:
        if self.n_levels <= MANY_LEVELS:  # a product with the indicator matrix is fastest while that is thin
            return (codes == np.arange(self.n_levels)[:, None]).astype(np.float64) @ values
        totals = np.zeros((self.n_levels, values.shape[1]))
        np.add.at(totals, codes, values)
        return totals


@dataclass(frozen=True)
class DenseSums(LocalSums):
    """Kernel sums by the full n x n matrix: quadratic, kept as the published computation."""

    gram: Array

    reaches_all = False  # kernel values of far rows vanish

    def collect(self, sources: Sources) -> list[Any]:
        """Sums at all rows: the published computation has no blocks."""
        return [self.gram[:, rows] @ values for rows, values in sources]

    def at(self, collected: list[Any], rows: slice) -> list[Array]:
        """Sums at a slice of rows, one array per source."""
        return [sums[rows] for sums in collected]


@dataclass(frozen=True)
class CellSums:
    """Sums at the nodes of numbered cells, which add up over sets of rows.

    Attributes
    ----------
    numbers : array of shape (cells,)
        Numbers of the cells in ascending order: those with rows, and their neighbours.
    nodes : array of shape (cells, CELL_NODES, columns)
        The sums.
    """

    numbers: Array
    nodes: Array

    def __add__(self, other: CellSums) -> CellSums:
        """The sums of both sets of rows."""
        numbers = np.union1d(self.numbers, other.numbers)
        nodes = np.zeros((numbers.size, *self.nodes.shape[1:]))
        for sums in (self, other):
            nodes[np.searchsorted(numbers, sums.numbers)] += sums.nodes
        return CellSums(numbers, nodes)


@dataclass(frozen=True)
class GridSums(LocalSums):
    """Kernel sums ``S_i = sum_j k(x_i, x_j) W_j`` by the nodes of one dense grid, in time linear in the number of rows.

    All terms of the quadrature are positive, so that small sums keep their relative accuracy.

    Attributes
    ----------
    roots : array of shape (n, nodes)
        What rows add to nodes.
    """

    roots: Array

    def collect(self, sources: Sources) -> list[Any]:
        """Sums at the nodes."""
        return [QUADRATURE_WEIGHT * (self.roots[rows].T @ values) for rows, values in sources]

    def at(self, collected: list[Any], rows: slice) -> list[Array]:
        """Sums at a slice of rows, one array per source."""
        return [self.roots[rows] @ nodes for nodes in collected]


@dataclass(frozen=True)
class CellGridSums(LocalSums):
    """The same for heavy tails, by a grid that is cut into cells; rows see those of neighbouring cells only.

    Attributes
    ----------
    roots : array of shape (n, nodes)
        What rows, in their order along the column, add to the nodes of three cells.
    order : int array of shape (n,)
        That order.
    cells : tuple
        First row and end of each cell that has rows.
    numbers : array of shape (cells,)
        The numbers of these cells.
    """

    roots: Array
    order: NDArray[np.intp]
    cells: tuple[tuple[int, int], ...]
    numbers: Array

    reaches_all = False

    @classmethod
    def of(cls, values: Array, bandwidth: float) -> CellGridSums:
        """The cells of a column."""
        number, offset = _cells(values, CELL_WIDTH * bandwidth)
        order = np.argsort(number, kind="stable")
        number = number[order]
        nodes = bandwidth / NODES_PER_BANDWIDTH * np.arange(-CELL_NODES, 2 * CELL_NODES, dtype=np.float64)
        starts = np.flatnonzero(np.diff(number, prepend=-np.inf))
        stops = np.append(starts, number.size)[1:]
        cells = tuple(zip(starts.tolist(), stops.tolist(), strict=True))
        return cls(root_kernel(offset[order], bandwidth, nodes), order, cells, number[starts])

    @property
    def block_rows(self) -> int:
        """All rows: cells do not follow the order of rows."""
        return max(self.order.size, 1)

    def collect(self, sources: Sources) -> list[Any]:
        """Sums at the nodes of cells."""
        return [self._at_nodes(rows, values) for rows, values in sources]

    def at(self, collected: list[Any], rows: slice) -> list[Array]:
        """Sums at a slice of rows, one array per source."""
        return [self._at_rows(sums)[rows] for sums in collected]

    def _at_nodes(self, rows: slice, values: Array) -> CellSums:
        ordered = np.zeros((self.order.size, values.shape[1]))
        ordered[rows] = QUADRATURE_WEIGHT * values
        ordered = ordered[self.order]
        numbers = np.unique(np.concatenate((_next(self.numbers, -1.0), self.numbers, _next(self.numbers, 1.0))))
        nodes = np.zeros((numbers.size, CELL_NODES, values.shape[1]))
        for start, stop, cell in self._placed(numbers):
            nodes[cell : cell + 3] += (self.roots[start:stop].T @ ordered[start:stop]).reshape(3, CELL_NODES, -1)
        return CellSums(numbers, nodes)

    def _at_rows(self, sums: CellSums) -> Array:
        nodes = sums.nodes.reshape(-1, sums.nodes.shape[2])
        values = np.empty((self.order.size, nodes.shape[1]))
        for start, stop, cell in self._placed(sums.numbers):
            values[self.order[start:stop]] = self.roots[start:stop] @ nodes[cell * CELL_NODES : (cell + 3) * CELL_NODES]
        return values

    def _placed(self, numbers: Array) -> list[tuple[int, int, int]]:
        """First row and end of each cell, and the index of the cell before it among numbered ones."""
        before = np.searchsorted(numbers, _next(self.numbers, -1.0)).tolist()
        return [(*rows, cell) for rows, cell in zip(self.cells, before, strict=True)]


def kernel_sums(values: Array, bandwidth: float, limits: tuple[float, float] | None = None) -> LocalSums:
    """Prepare one column: a dense grid for ordinary ranges, numbered cells for heavy tails.

    Where the rows are some of a table, `limits` of the whole column make the sums of all parts add up.
    """
    low, high = limits or (float(values.min()), float(values.max()))
    if high - low > MAX_DENSE_RANGE * bandwidth:
        return CellGridSums.of(values, bandwidth)
    return GridSums(root_kernel(values, bandwidth, dense_nodes(low, high, bandwidth)))


def _cells(values: Array, width: float) -> tuple[Array, Array]:
    """Number of the cell of every value, and how far into it the value is."""
    with np.errstate(over="ignore"):
        number, offset = np.divmod(values, width)
    # Beyond MANY_CELLS floats skip whole numbers, so that a cell there is that of a single value.
    return number, np.where(np.abs(number) < MANY_CELLS, offset, width / 2)


def _next(numbers: Array, step: float) -> Array:
    """Numbers of neighbouring cells."""
    return np.where(np.abs(numbers) < MANY_CELLS, numbers + step, np.nextafter(numbers, step * np.inf))


def nearest_weights(point: float, ordered: Array, bandwidth: float) -> tuple[slice, Array]:
    """Kernel weights at `point`, scaled so that the largest is one, over the rows of a sorted column that matter.

    Far from all rows every kernel value underflows; their ratios do not. Rows whose weight is below ``exp(-40)`` of
    the largest are left out.
    """
    at = int(np.searchsorted(ordered, point))
    nearest = int(nearest_rows(np.array([point]), ordered)[0])
    reach = np.hypot((ordered[nearest] - point) / bandwidth, np.sqrt(40.0)) * bandwidth
    start, stop = np.searchsorted(ordered, (point - reach, point + reach))
    # At far points `reach` may round to the nearest gap itself; both neighbours stay in whatever happens.
    window = slice(max(min(int(start), at - 1), 0), max(int(stop), at + 1))
    return window, np.exp(relative_exponent(ordered[window], ordered[nearest], point, bandwidth))


def nearest_rows(points: Array, ordered: Array) -> NDArray[np.intp]:
    """Position in a sorted column of the value nearest to each point."""
    right = np.minimum(np.searchsorted(ordered, points), ordered.size - 1)
    left = np.maximum(right - 1, 0)
    # Beyond the ends there is one neighbour only: at a far point both distances round to the same.
    inside = (points > ordered[left]) & (points < ordered[right])
    closer_left = inside & (points - ordered[left] <= ordered[right] - points)
    return np.where(closer_left | (points <= ordered[left]), left, right)


def relative_kernel(points: Array, rows: Array, bandwidth: float) -> Array:
    """Kernel between points and rows, relative to the row nearest to each point: where all underflow, ratios do not."""
    ordered = np.sort(rows)
    nearest = ordered[nearest_rows(points, ordered), None]
    return np.exp(relative_exponent(rows, nearest, points[:, None], bandwidth))


def relative_exponent(rows: Array, nearest: Array | float, point: Array | float, bandwidth: float) -> Array:
    """Logarithm of ``k(row, point) / k(nearest, point)``, factorised so that a far point does not round it away."""
    return -((rows - nearest) / bandwidth) * ((rows - point) / bandwidth + (nearest - point) / bandwidth)
