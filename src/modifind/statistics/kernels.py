"""Gaussian kernels in one dimension: bandwidths, feature maps and fast kernel sums.

One convention holds everywhere: ``k(u, v) = exp(-(u - v)^2 / h^2)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array

Sources: TypeAlias = Sequence[tuple[slice, Array]]

# Trapezoidal nodes per bandwidth, and how far beyond a point its nodes reach. The Gaussian is its own convolution
# square, exp(-(u-v)^2/h^2) = c * integral exp(-2(u-t)^2/h^2) exp(-2(v-t)^2/h^2) dt, and the trapezoidal rule on that
# integral has *relative* error 2 exp(-(pi/2 * NODES_PER_BANDWIDTH)^2): about 2e-9 here.
NODES_PER_BANDWIDTH = 2.9
# What the rule multiplies its terms by: c * spacing with c = sqrt(4 / pi) / h; the bandwidth cancels.
QUADRATURE_WEIGHT = float(np.sqrt(4.0 / np.pi) / NODES_PER_BANDWIDTH)
REACH = 2.2
# Up to this many bandwidths of range one dense grid serves all rows; beyond it the grid is cut into cells.
MAX_DENSE_RANGE = 24.0
CELL_NODES = 17
CELL_WIDTH = CELL_NODES / NODES_PER_BANDWIDTH
# Sums whose total weight is below this may be dominated by rows outside the cells in reach; see `nearest_weights`.
NEGLIGIBLE = 1e-10
MANY_LEVELS = 50


def median_bandwidth(
    values: Array, *, random_state: int | np.random.Generator | None = 0, max_rows: int = 1000
) -> float:
    """Median distance between distinct rows, or 0.0 for a constant column.

    Parameters
    ----------
    values : array of shape (n,)
        One column.
    random_state : int or Generator, default=0
        Seeds the subsample that is used above `max_rows` rows.
    max_rows : int, default=1000
        Largest number of rows whose pairs are all looked at.

    Returns
    -------
    float
        The median of ``|u_i - u_j|`` over pairs ``i < j``. When more than half of the pairs are ties
        (zero-inflated columns) the median of the non-zero distances is taken instead.

    Examples
    --------
    >>> import numpy as np
    >>> median_bandwidth(np.array([0.0, 1.0, 3.0]))
    2.0
    >>> median_bandwidth(np.array([0.0, 0.0, 0.0, 0.0, 5.0]))
    5.0
    >>> median_bandwidth(np.ones(4))
    0.0
    """
    values = np.asarray(values, dtype=np.float64)
    if values.size > max_rows:
        rng = np.random.default_rng(random_state)
        sample = np.sort(values[rng.choice(values.size, max_rows, replace=False)])
        if sample[0] == sample[-1]:  # nearly all rows tie: look at the distinct values instead
            sample = np.unique(values)
            if sample.size > max_rows:
                sample = np.sort(rng.choice(sample, max_rows, replace=False))
    else:
        sample = np.sort(values)
    n_pairs = sample.size * (sample.size - 1) // 2
    if n_pairs == 0 or sample[0] == sample[-1]:
        return 0.0
    median = _median_distance(sample, 0)
    return median if median > 0 else _median_distance(sample, _pairs_within(sample, 0.0))


def _median_distance(ordered: Array, n_skipped: int) -> float:
    """Median pairwise distance of a sorted column, the `n_skipped` smallest left out."""
    n_left = ordered.size * (ordered.size - 1) // 2 - n_skipped
    low = _ranked_distance(ordered, n_skipped + (n_left + 1) // 2)
    high = low if n_left % 2 else _ranked_distance(ordered, n_skipped + n_left // 2 + 1)
    return (low + high) / 2


def _pairs_within(ordered: Array, distance: float) -> int:
    ends = np.searchsorted(ordered, ordered + distance, side="right")
    return int(ends.sum()) - ordered.size * (ordered.size + 1) // 2


def _ranked_distance(ordered: Array, rank: int) -> float:
    """The `rank`-th smallest pairwise distance of a sorted column: bisection, then the pairs that are left."""
    if rank <= _pairs_within(ordered, 0.0):
        return 0.0
    rows = np.arange(ordered.size)
    high = float(ordered[-1] - ordered[0])
    low, first, last = 0.0, rows + 1, np.full(ordered.size, ordered.size)
    # Pair (i, j) is left when first[i] <= j < last[i]. Counting and listing by the same two arrays keeps ties together
    # even where ordered + distance rounds.
    while (last - first).sum() > 4 * ordered.size:
        middle = (low + high) / 2
        if middle in (low, high):
            return high
        ends = np.maximum(np.searchsorted(ordered, ordered + middle, side="right"), rows + 1)
        if (ends - rows - 1).sum() >= rank:
            high, last = middle, ends
        else:
            low, first = middle, ends
    counts = np.maximum(last - first, 0)
    left = np.repeat(rows, counts)
    right = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + first[left]
    below = int((first - rows - 1).sum())
    return float(np.sort(ordered[right] - ordered[left])[rank - below - 1])


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
    """Rotate a feature map onto its numerical rank; directions that move no inner product by `tolerance` are cut.

    A thousand random Fourier features of one variable span some thirty directions. Inner products are all a
    kernel statistic sees, so the rotated and cut map gives the same number at a fraction of the cost.
    """
    _, vectors = np.linalg.eigh(features.T @ features)
    rotated = features @ vectors
    return np.ascontiguousarray(rotated[:, np.square(rotated).max(axis=0) > tolerance])


def spectral_map(
    values: Array, bandwidth: float, *, reduce: bool = True, tolerance: float = 1e-10, max_components: int = 1000
) -> Array:
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
    if values.max() - values.min() <= MAX_DENSE_RANGE * bandwidth:
        features = np.sqrt(QUADRATURE_WEIGHT) * _root_kernel(values, bandwidth, _dense_nodes(values, bandwidth))
        return reduce_map(features, tolerance=tolerance) if reduce else features
    return _pivoted_cholesky(values, bandwidth, tolerance, max_components)


def _pivoted_cholesky(values: Array, bandwidth: float, tolerance: float, max_components: int) -> Array:
    # |K - UU'|_ij <= sqrt(residual_i residual_j), so stopping on the largest residual bounds every entry.
    residual = np.ones(values.size)
    columns = np.empty((max_components, values.size))
    for k in range(max_components):
        pivot = int(np.argmax(residual))
        if residual[pivot] < tolerance:
            return np.ascontiguousarray(columns[:k].T)
        kernel = np.exp(-(((values - values[pivot]) / bandwidth) ** 2))
        columns[k] = (kernel - columns[:k, pivot] @ columns[:k]) / np.sqrt(residual[pivot])
        residual -= columns[k] ** 2
    return np.ascontiguousarray(columns.T)


def _dense_nodes(values: Array, bandwidth: float) -> Array:
    spacing = bandwidth / NODES_PER_BANDWIDTH
    low, high = values.min() - REACH * bandwidth, values.max() + REACH * bandwidth
    return low + spacing * np.arange(int(np.ceil((high - low) / spacing)) + 1)


def _root_kernel(values: Array, bandwidth: float, nodes: Array) -> Array:
    scaled = (values[:, None] - nodes) * (np.sqrt(2.0) / bandwidth)
    np.multiply(scaled, scaled, out=scaled)
    np.negative(scaled, out=scaled)
    return np.exp(scaled, out=scaled)


class RowSums(ABC):
    """Sums of weighted rows around every row; what a conditional expectation given one feature needs.

    The work is done in two steps, so that the second can go through the rows in blocks that stay in cache: `collect`
    adds up all rows of each ``(slice of rows, weights of those rows)`` source, `at` evaluates the sums at some rows.
    """

    @abstractmethod
    def collect(self, sources: Sources) -> list[Any]:
        """What `at` needs to know of each source."""

    @abstractmethod
    def at(self, collected: list[Any], rows: slice) -> list[Array]:
        """Sums at a slice of rows, one array per source, which the caller may overwrite."""

    def sums(self, sources: Sources) -> list[Array]:
        """Sums at every row, one array per source."""
        return self.at(self.collect(sources), slice(None))


@dataclass(frozen=True)
class GroupSums(RowSums):
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
class DenseSums(RowSums):
    """Kernel sums by the full n x n matrix: quadratic, kept as the published computation."""

    gram: Array

    def collect(self, sources: Sources) -> list[Any]:
        """All sums: the published computation has no blocks."""
        return [self.gram[:, rows] @ values for rows, values in sources]

    def at(self, collected: list[Any], rows: slice) -> list[Array]:
        """Sums at a slice of rows, one array per source."""
        return [sums[rows] for sums in collected]


@dataclass(frozen=True)
class KernelSums(RowSums):
    """Sums ``S_i = sum_j k(x_i, x_j) W_j`` over rows, in time linear in the number of rows.

    Built once per column `x`; `sums` may then be called with several sources. All terms of the quadrature are positive,
    so small sums keep their relative accuracy as long as the grid reaches them.
    """

    values: Array
    bandwidth: float
    roots: Array
    order: NDArray[np.intp] | None = None
    cells: tuple[tuple[int, int, int], ...] = ()
    n_slots: int = 0

    @classmethod
    def of(cls, values: Array, bandwidth: float) -> KernelSums:
        """Prepare one column: a dense grid for ordinary ranges, cells that follow the data for heavy tails."""
        if values.max() - values.min() <= MAX_DENSE_RANGE * bandwidth:
            return cls(values, bandwidth, _root_kernel(values, bandwidth, _dense_nodes(values, bandwidth)))
        width = CELL_WIDTH * bandwidth
        order = np.argsort(values, kind="stable")
        # Cells are counted along the sorted rows, gaps of more than four counting as four: far apart is far apart,
        # and the count stays small whatever the range.
        with np.errstate(over="ignore"):
            gaps = np.minimum(np.diff(values[order]) / width, 4.0)
        place = np.concatenate(([0.0], np.cumsum(gaps)))
        index = np.floor(place)
        offset = (place - index) * width
        spacing = bandwidth / NODES_PER_BANDWIDTH
        nodes = spacing * np.arange(-CELL_NODES, 2 * CELL_NODES, dtype=np.float64)
        roots = _root_kernel(offset, bandwidth, nodes)
        starts = np.flatnonzero(np.concatenate(([True], index[1:] != index[:-1])))
        stops = np.append(starts[1:], place.size)
        # A slot holds the nodes of one cell. Occupied cells need their own slot and both neighbours'.
        occupied = index[starts]
        wanted = np.unique(np.concatenate((occupied - 1, occupied, occupied + 1)))
        slots = np.searchsorted(wanted, occupied - 1)
        cells = tuple(zip(starts.tolist(), stops.tolist(), slots.tolist(), strict=True))
        return cls(values, bandwidth, roots, order, cells, wanted.size)

    def collect(self, sources: Sources) -> list[Any]:
        """Sums at the nodes of a dense grid; where there are cells, the sums at all rows."""
        weight = QUADRATURE_WEIGHT
        if self.order is None:
            return [weight * (self.roots[rows].T @ values) for rows, values in sources]
        return [self._cell_sums(rows, values, weight) for rows, values in sources]

    def at(self, collected: list[Any], rows: slice) -> list[Array]:
        """Sums at a slice of rows, one array per source."""
        if self.order is None:
            return [self.roots[rows] @ moments for moments in collected]
        return [sums[rows] for sums in collected]

    def _cell_sums(self, rows: slice, values: Array, weight: float) -> Array:
        assert self.order is not None
        spread = np.zeros((self.values.size, values.shape[1]))
        spread[rows] = weight * values
        spread = spread[self.order]
        nodes = np.zeros((self.n_slots, CELL_NODES, values.shape[1]))
        flat = nodes.reshape(-1, values.shape[1])
        for start, stop, slot in self.cells:
            at = slot * CELL_NODES
            flat[at : at + 3 * CELL_NODES] += self.roots[start:stop].T @ spread[start:stop]
        out = np.empty_like(spread)
        for start, stop, slot in self.cells:
            at = slot * CELL_NODES
            out[self.order[start:stop]] = self.roots[start:stop] @ flat[at : at + 3 * CELL_NODES]
        return out


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


def relative_exponent(rows: Array, nearest: Array | float, point: Array | float, bandwidth: float) -> Array:
    """Logarithm of ``k(row, point) / k(nearest, point)``, factorised so that a far point does not round it away."""
    return -((rows - nearest) / bandwidth) * ((rows - point) / bandwidth + (nearest - point) / bandwidth)
