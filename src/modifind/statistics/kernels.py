"""Gaussian kernels in one dimension: feature maps, and fast sums of weighted rows around every row.

One convention holds everywhere: ``k(u, v) = exp(-(u - v)^2 / h^2)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from modifind._typing import Array

# Trapezoidal nodes per bandwidth, and how far beyond a point its nodes reach. The Gaussian is its own convolution
# square, exp(-(u-v)^2/h^2) = c * integral exp(-2(u-t)^2/h^2) exp(-2(v-t)^2/h^2) dt, and the trapezoidal rule on that
# integral has *relative* error 2 exp(-(pi/2 * NODES_PER_BANDWIDTH)^2): about 2e-9 here.
NODES_PER_BANDWIDTH = 2.9
# What the rule multiplies its terms by: c * spacing with c = sqrt(4 / pi) / h; the bandwidth cancels.
QUADRATURE_WEIGHT = float(np.sqrt(4.0 / np.pi) / NODES_PER_BANDWIDTH)
REACH = 2.2
MAX_DENSE_RANGE = 24.0  # bandwidths of range that one dense grid serves
N_LATTICE = 400  # values between the limits of a column that its map is fitted to as well
MAX_PIVOT_VALUES = 20_000  # among which pivots are looked for


def gaussian_gram(left: Array, right: Array, bandwidth: float) -> Array:
    """Matrix of ``exp(-(u - v)^2 / h^2)``."""
    scaled = (np.asarray(left)[:, None] - np.asarray(right)[None, :]) / bandwidth
    np.multiply(scaled, scaled, out=scaled)
    np.negative(scaled, out=scaled)
    return np.exp(scaled, out=scaled)


def random_fourier_map(values: Array, bandwidth: float, n_components: int, rng: np.random.Generator) -> Array:
    """Random Fourier features ``z`` with ``z(u)'z(v)`` close to the Gaussian kernel.

    Frequencies are ``N(0, 2/h^2)``, the spectrum of ``exp(-(u-v)^2/h^2)``; phases are uniform.
    """
    frequencies = rng.normal(scale=np.sqrt(2.0) / bandwidth, size=n_components)
    phases = rng.uniform(0.0, 2 * np.pi, size=n_components)
    return np.sqrt(2.0 / n_components) * np.cos(np.multiply.outer(values, frequencies) + phases)


def reduce_map(features: Array, *, tolerance: float = 1e-10) -> Array:
    """Rotate a feature map onto its numerical rank, dropping directions that change no inner product by `tolerance`.

    A thousand random Fourier features of one variable span some thirty directions. A kernel statistic depends on inner
    products only, so the reduced map gives the same number at a fraction of the cost.
    """
    return np.ascontiguousarray(features @ _rank_rotation(features, tolerance))


def _rank_rotation(features: Array, tolerance: float) -> Array:
    """Rotation of a feature map onto its numerical rank."""
    _, vectors = np.linalg.eigh(features.T @ features)
    return vectors[:, np.square(features @ vectors).max(axis=0) > tolerance]


def spectral_map(values: Array, bandwidth: float, *, reduce: bool = True) -> Array:
    """Deterministic low-rank map ``U`` with ``U U'`` equal to the Gram matrix to a few 1e-9 in every entry.

    Columns within `MAX_DENSE_RANGE` bandwidths use trapezoidal nodes, rotated onto their numerical rank when `reduce`
    (worth it from the second use on); heavier tails use a pivoted Cholesky factorisation, whose pivots follow the data.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.random.default_rng(0).normal(size=300)
    >>> U = spectral_map(y, 1.0)
    >>> bool(np.abs(U @ U.T - gaussian_gram(y, y, 1.0)).max() < 1e-8), U.shape[1] < 40
    (True, True)
    """
    values = np.asarray(values, dtype=np.float64)
    if values.max() - values.min() > MAX_DENSE_RANGE * bandwidth:
        return _pivoted_cholesky(values, bandwidth)[1]
    return SpectralMap.of(values, bandwidth, reduce=reduce)(values)


@dataclass(frozen=True)
class SpectralMap:
    """The map of `spectral_map`, built from some values of a column and applicable to all.

    Attributes
    ----------
    points : array of shape (p,)
        Trapezoidal nodes; or pivots, where the range is long.
    rotation : array of shape (p, k), optional
        From nodes onto the numerical rank.
    factor : array of shape (p, p), optional
        Cholesky factor of the pivots' Gram matrix. Values that are far from every pivot are like nothing else.
    """

    bandwidth: float
    points: Array
    rotation: Array | None = None
    factor: Array | None = None

    @classmethod
    def of(
        cls,
        values: Array,
        bandwidth: float,
        limits: tuple[float, float] | None = None,
        *,
        reduce: bool = True,
        tolerance: float = 1e-10,
    ) -> SpectralMap:
        """Build a map from values; if they are a sample of a column, it covers the range `limits`."""
        low, high = limits or (float(values.min()), float(values.max()))
        if high - low > MAX_DENSE_RANGE * bandwidth:
            candidates = _spread(values)
            pivots, columns = _pivoted_cholesky(candidates, bandwidth)
            return cls(bandwidth, candidates[pivots], factor=columns[pivots])
        plain = cls(bandwidth, dense_nodes(low, high, bandwidth))
        if not reduce:
            return plain
        features = plain(values if limits is None else np.concatenate((values, np.linspace(low, high, N_LATTICE))))
        return replace(plain, rotation=_rank_rotation(features, tolerance))

    def __call__(self, values: Array) -> Array:
        """Map values, shape (n, k)."""
        if self.factor is not None:
            near = gaussian_gram(self.points, values, self.bandwidth)
            return np.asarray(solve_triangular(self.factor, near, lower=True).T)
        features: Array = np.sqrt(QUADRATURE_WEIGHT) * root_kernel(values, self.bandwidth, self.points)
        return features if self.rotation is None else features @ self.rotation


def _spread(values: Array) -> Array:
    """The values; of very many, both ends and some in between."""
    if values.size <= MAX_PIVOT_VALUES:
        return values
    ordered, quarter = np.unique(values), MAX_PIVOT_VALUES // 4
    if ordered.size <= MAX_PIVOT_VALUES:
        return ordered
    between = ordered[quarter:-quarter]
    step = -(-between.size // (2 * quarter))
    return np.concatenate((ordered[:quarter], between[::step], ordered[-quarter:]))


def _pivoted_cholesky(
    values: Array, bandwidth: float, tolerance: float = 1e-10, max_components: int = 1000
) -> tuple[NDArray[np.intp], Array]:
    """Indices of the pivots, and columns whose products approximate the Gram matrix."""
    # |K - UU'|_ij <= sqrt(residual_i residual_j), so stopping on the largest residual bounds every entry.
    residual = np.ones(values.size)
    columns = np.empty((max_components, values.size))
    pivots: list[int] = []
    for k in range(max_components):
        pivot = int(np.argmax(residual))
        if residual[pivot] < tolerance:
            break
        kernel = np.exp(-(((values - values[pivot]) / bandwidth) ** 2))
        columns[k] = (kernel - columns[:k, pivot] @ columns[:k]) / np.sqrt(residual[pivot])
        residual -= columns[k] ** 2
        pivots.append(pivot)
    return np.array(pivots, dtype=np.intp), np.ascontiguousarray(columns[: len(pivots)].T)


def dense_nodes(low: float, high: float, bandwidth: float) -> Array:
    """Nodes of the trapezoidal rule for values between two limits."""
    spacing = bandwidth / NODES_PER_BANDWIDTH
    low, high = low - REACH * bandwidth, high + REACH * bandwidth
    return low + spacing * np.arange(int(np.ceil((high - low) / spacing)) + 1, dtype=np.float64)


def root_kernel(values: Array, bandwidth: float, nodes: Array) -> Array:
    """Kernel roots between values and nodes, whose products summed over nodes are the kernel."""
    scaled = (values[:, None] - nodes) * (np.sqrt(2.0) / bandwidth)
    np.multiply(scaled, scaled, out=scaled)
    np.negative(scaled, out=scaled)
    return np.exp(scaled, out=scaled)


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
    """Sums of weighted rows around every row, from which conditional expectations given one feature are computed.

    The work has two steps, so that the second can process rows in cache-sized blocks: `collect` adds up all rows of
    each ``(slice of rows, weights of those rows)`` source, `at` evaluates the sums at some rows.

    Attributes
    ----------
    reaches_all : bool
        Whether sums are right however far apart rows are.
    """

    reaches_all: ClassVar[bool] = True

    @abstractmethod
    def collect(self, sources: Sources) -> list[Any]:
        """Sums of each source, as input of `at`."""

    @abstractmethod
    def at(self, collected: list[Any], rows: slice) -> list[Array]:
        """Sums at a slice of rows, one array per source, which the caller may overwrite."""

    @property
    def block_rows(self) -> int:
        """Recommended number of rows per call of `at`."""
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
    """Kernel sums by the full n x n matrix: quadratic in time, kept as the published computation."""

    gram: Array

    reaches_all = False  # kernel values of far rows vanish

    def collect(self, sources: Sources) -> list[Any]:
        """Sums at all rows, because the published computation has no blocks."""
        return [self.gram[:, rows] @ values for rows, values in sources]

    def at(self, collected: list[Any], rows: slice) -> list[Array]:
        """Sums at a slice of rows, one array per source."""
        return [sums[rows] for sums in collected]


@dataclass(frozen=True)
class CellSums:
    """Sums at the nodes of numbered cells, which can be added.

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
        """Add the sums of other rows."""
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
    """Kernel sums for heavy tails, by a grid divided into cells; rows interact with neighbouring cells only.

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
        """Divide a column into cells."""
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
        """First row and end of each cell, and the index in `numbers` of the cell before it."""
        before = np.searchsorted(numbers, _next(self.numbers, -1.0)).tolist()
        return [(*rows, cell) for rows, cell in zip(self.cells, before, strict=True)]


def kernel_sums(values: Array, bandwidth: float, limits: tuple[float, float] | None = None) -> LocalSums:
    """Prepare one column: a dense grid for ordinary ranges, numbered cells for heavy tails.

    If the rows are some of a table, pass the `limits` of the whole column, so that the sums of all parts add up.
    """
    low, high = limits or (float(values.min()), float(values.max()))
    if high - low > MAX_DENSE_RANGE * bandwidth:
        return CellGridSums.of(values, bandwidth)
    return GridSums(root_kernel(values, bandwidth, dense_nodes(low, high, bandwidth)))


def _cells(values: Array, width: float) -> tuple[Array, Array]:
    """Cell number of every value, and its position within the cell."""
    with np.errstate(over="ignore"):
        number, offset = np.divmod(values, width)
    # Beyond MANY_CELLS floats skip whole numbers, so that a cell there is that of a single value.
    return number, np.where(np.abs(number) < MANY_CELLS, offset, width / 2)


def _next(numbers: Array, step: float) -> Array:
    """Numbers of the neighbouring cells."""
    return np.where(np.abs(numbers) < MANY_CELLS, numbers + step, np.nextafter(numbers, step * np.inf))


def nearest_weights(point: float, ordered: Array, bandwidth: float) -> tuple[slice, Array]:
    """Kernel weights at `point`, scaled to a maximum of one, over the relevant rows of a sorted column.

    Far from all rows every kernel value underflows, but their ratios do not. Rows whose weight is below ``exp(-40)`` of
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
    """Kernel between points and rows, relative to the row nearest to each point, which avoids underflow."""
    ordered = np.sort(rows)
    nearest = ordered[nearest_rows(points, ordered), None]
    return np.exp(relative_exponent(rows, nearest, points[:, None], bandwidth))


def relative_exponent(rows: Array, nearest: Array | float, point: Array | float, bandwidth: float) -> Array:
    """Logarithm of ``k(row, point) / k(nearest, point)``, factorised to avoid cancellation at far points."""
    return -((rows - nearest) / bandwidth) * ((rows - point) / bandwidth + (nearest - point) / bandwidth)
