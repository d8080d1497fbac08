"""Local averages around values of a feature and their weighted bootstrap.

Rows are first binned into cells of neighbouring values, or into their categories. An average then needs only sums over
the rows of each cell, so that two hundred bootstrap draws cost little more than one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from modifind._typing import Array, Ints
from modifind.data.weights import GivenWeights, Weights
from modifind.explain.rows import PseudoOutcomes

MAX_CURVE_POINTS = 25
MAX_CURVE_CELLS = 100
# Rows beyond so many are put into as many random groups within cells, which are then reweighted as one.
MAX_UNITS = 4000
DRAW_BLOCK = 25
BLOCK_ENTRIES = 2_000_000
MAX_ROW_SHARE = 0.3  # share of an average that a row or cluster is taken to have
MIN_LEFT_VARIANCE = 0.02  # share of the expected variance that errors of the model can leave
# Points whose neighbours have less than this share of the spread of an even neighbourhood are averaged without a slope.
MIN_SLOPED_SPREAD = 1e-3


def curve_points(column: Array, n_levels: int, weights: Weights | None = None) -> Array:
    """Points at which a curve is evaluated: all categories, or up to 25 quantiles of a continuous column."""
    if n_levels:
        return np.arange(n_levels, dtype=np.float64)
    return np.unique(Weights.of(weights, column.size).quantiles(column, np.linspace(0.02, 0.98, MAX_CURVE_POINTS)))


def local_bandwidth(column: Array, weights: Weights | None = None) -> float:
    """Bandwidth h of the kernel exp(-(u - v)^2 / h^2) for local averages.

    The kernel's standard deviation is n^(-1/4) times that of the column, or times its interquartile range in normal
    units if that is smaller: slightly less than optimal for a mean, so that the bias is small relative to the standard
    error.

    Examples
    --------
    >>> round(local_bandwidth(np.arange(10_000.0)) / 10_000, 3)
    0.041
    """
    weights = Weights.of(weights, column.size)
    centre = weights.mean(column)
    spread = float(np.sqrt(weights.mean((column - centre) ** 2)))
    low, high = weights.quantiles(column, np.array([0.25, 0.75]))
    scale = min(spread, (high - low) / 1.349) if high > low else spread
    return float(np.sqrt(2.0) * scale * weights.effective_size**-0.25) or 1.0


@dataclass(frozen=True)
class Neighbourhoods:
    """Points of a feature and the cells of rows around them.

    Attributes
    ----------
    points : array of shape (p,)
        Values or codes; the last is NaN where values of a continuous feature are missing.
    cell : int array of shape (n,)
        The cell of each row.
    kernel, offsets : array of shape (p, cells)
        How much a cell counts at a point, and how far away it is; 0 for categories.
    near : array of shape (cells, cells)
        How much one cell counts at another.
    levels : int array of shape (p,), optional
        The cell of each point where points are categories, of which none counts at another.
    """

    points: Array
    cell: NDArray[np.intp]
    kernel: Array
    offsets: Array
    near: Array
    levels: NDArray[np.intp] | None = None

    @classmethod
    def of(
        cls,
        column: Array,
        n_levels: int,
        weights: GivenWeights = None,
        *,
        points: Array | None = None,
        bandwidth: float | None = None,
    ) -> Neighbourhoods:
        """Points and cells of a column of codes, or of values that are NaN where missing."""
        counts = Weights.of(weights, column.size)
        if (counts.values == counts.values[0]).all():
            counts = Weights.alike(column.size)
        if n_levels:
            points = curve_points(column, n_levels) if points is None else points
            kernel = np.equal(points[:, None], np.arange(n_levels)).astype(np.float64)
            still = np.zeros(kernel.shape)
            return cls(points, column.astype(np.intp), kernel, still, np.eye(n_levels), points.astype(np.intp))
        gaps = np.isnan(column)
        seen = column[~gaps]
        weights_seen = counts[~gaps]
        points = curve_points(seen, 0, weights_seen) if points is None else points
        width = bandwidth or local_bandwidth(seen, weights_seen)
        inner, centres = _cells(seen, weights_seen)
        offsets = centres - points[:, None]
        kernel = np.exp(-((offsets / width) ** 2))
        near = np.exp(-(((centres - centres[:, None]) / width) ** 2))
        cell = np.full(column.size, centres.size)
        cell[~gaps] = inner
        if gaps.any():
            points = np.append(points, np.nan)
            kernel, offsets, near = (np.pad(part, (0, 1)) for part in (kernel, offsets, near))
            kernel[-1, -1] = near[-1, -1] = 1.0
        return cls(points, cell, kernel, offsets, near)

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return self.kernel.shape[1]

    def average(self, design: Array, sums: Array) -> Array:
        """Local-linear averages at the points.

        Parameters
        ----------
        design : array of shape (draws, cells)
            Weight of the rows of each cell.
        sums : array of shape (draws, cells, k)
            Weighted sums over the rows of each cell.

        Returns
        -------
        array of shape (draws, p, k)
            NaN where no row counts.
        """
        if self.levels is not None:
            mass = design[:, self.levels, None]
            return np.where(mass > 0, sums[:, self.levels] / np.where(mass > 0, mass, 1.0), np.nan)
        near, slope = self.kernel, self.kernel * self.offsets
        s0, s1, s2 = (design @ part.T for part in (near, slope, slope * self.offsets))
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = s2 / s0 - (s1 / s0) ** 2
            even = np.where(s0 > 0, s2 / s0, 0.0)
            sloped = spread > MIN_SLOPED_SPREAD * np.maximum(even, np.finfo(np.float64).tiny)
            level = np.where(sloped, s2 / s0 / spread, 1.0) / s0
            tilt = np.where(sloped, s1 / s0 / spread, 0.0) / s0
            weights = level[..., None] * near - tilt[..., None] * slope
        weights[s0 <= 0] = np.nan
        return weights @ sums

    def leverage(self, outcomes: PseudoOutcomes, source: NDArray[np.intp]) -> Array:
        """Share of one source's rows in the average of their arm around themselves, ignoring the slope.

        For a row that is its own source this is its weight divided by that of the rows around it. Rows of a cluster
        whose values are far apart do not add up: each affects only the averages near it.
        """
        top, bottom = np.zeros((2, int(source.max()) + 1))
        for arm in (0, 1):
            mass = self._mass(outcomes.arm_weights * (outcomes.arms == arm), source)
            around = np.maximum(mass.sum(axis=0) @ self.near, np.finfo(np.float64).tiny)
            for block in self._blocks(mass):
                rows = mass[block]
                share = rows if self.levels is not None else rows @ self.near
                top[block] += rows.multiply(share / around).sum(axis=1)
                bottom[block] += rows.sum(axis=1)
        return top / np.maximum(bottom, np.finfo(np.float64).tiny)

    def support(self, weights: Array, source: Ints | None = None) -> Array:
        """Effective number of rows around each point, or of sources if they are given."""
        first = np.bincount(self.cell, weights, minlength=self.n_cells)
        if source is None:
            bottom = self.kernel**2 @ np.bincount(self.cell, weights**2, minlength=self.n_cells)
        else:
            mass = self._mass(weights, source)
            bottom = np.sum([((mass[part] @ self.kernel.T) ** 2).sum(axis=0) for part in self._blocks(mass)], axis=0)
        top = (self.kernel @ first) ** 2
        return np.divide(top, bottom, out=np.zeros(top.size), where=bottom > 0)

    def _mass(self, weights: Array, source: Ints) -> Any:
        """Weight of every source in every cell."""
        return sparse.csr_array((weights, (source, self.cell)), shape=(int(source.max()) + 1, self.n_cells))

    def _blocks(self, mass: Any) -> Iterator[slice]:
        """Blocks of sources whose table by cells is small."""
        step = max(1, BLOCK_ENTRIES // self.n_cells)
        return (slice(start, start + step) for start in range(0, mass.shape[0], step))


def _cells(column: Array, weights: Weights) -> tuple[NDArray[np.intp], Array]:
    """Cell of every value and the means of the cells."""
    distinct = np.unique(column)
    if distinct.size > MAX_CURVE_CELLS:
        # Every cell has about as many rows; a value that many rows share is a cell of its own.
        edges = np.unique(np.quantile(column, np.linspace(0.0, 1.0, MAX_CURVE_CELLS + 1)[1:-1]))
        cell = np.searchsorted(edges, column, side="left")
        cell = np.unique(cell, return_inverse=True)[1].reshape(-1)
    else:
        cell = np.searchsorted(distinct, column)
    mass = np.bincount(cell, weights.values)
    # Rows may have no weight left; the cell then counts for nothing, wherever it is.
    return cell, np.bincount(cell, weights.times(column)) / np.where(mass > 0, mass, 1.0)


@dataclass(frozen=True)
class Averages:
    """Averages of functions of the outcome in both arms: of the table, and of its bootstrap draws.

    Attributes
    ----------
    estimate : array of shape (p, 2, k)
        At every point, of control and treated.
    draws : array of shape (b, p, 2, k)
        The same for every draw.
    """

    estimate: Array
    draws: Array

    @classmethod
    def of(cls, places: Neighbourhoods, outcomes: PseudoOutcomes, n_draws: int, rng: np.random.Generator) -> Averages:
        """Averages around the points of a feature; `places` are the neighbourhoods of the rows in `outcomes`."""
        units = _Units.of(places, outcomes, rng)
        estimate = units.averages(places, np.ones((1, units.n_weights)))[0]
        draws = np.empty((n_draws, *estimate.shape))
        for start in range(0, n_draws, DRAW_BLOCK):
            size = min(DRAW_BLOCK, n_draws - start)
            weights = rng.standard_exponential((size, units.n_weights)) - 1.0
            draws[start : start + size] = units.averages(places, 1.0 + units.stretch * weights)
        return cls(estimate, draws)


@dataclass(frozen=True)
class _Units:
    """Sums over the units of the bootstrap: a row, a random group of rows of a cell, or a cluster's rows in a cell.

    Units are sorted by cell; those of cell c are ``starts[c]`` to ``starts[c + 1]``. `source` is the index of a unit's
    random weight. Columns of `sums` are the rows' weight, that of each arm, the predictions for both arms and the
    weighted errors of both arms.

    `stretch` scales how far random weights move from 1. A row with much of the weight in the average around it pulls
    the average towards itself, so that its residual is smaller than that of a new row; its weight is perturbed more to
    compensate.
    """

    starts: NDArray[np.intp]
    source: NDArray[np.intp]
    stretch: Array
    sums: Array

    @classmethod
    def of(cls, places: Neighbourhoods, outcomes: PseudoOutcomes, rng: np.random.Generator) -> _Units:
        n_rows = places.cell.size
        source = outcomes.clusters.codes
        if outcomes.clusters.of_rows and n_rows > MAX_UNITS:
            # Every cell gets groups in proportion to its rows, filled in random order.
            order = np.lexsort((rng.random(n_rows), places.cell))
            source = np.empty(n_rows, dtype=np.intp)
            source[order] = np.arange(n_rows) * MAX_UNITS // n_rows
        pairs, unit = np.unique(places.cell * np.int64(n_rows + 1) + source, return_inverse=True)
        gather = sparse.csr_matrix((np.ones(n_rows), (unit.reshape(-1), np.arange(n_rows))), shape=(pairs.size, n_rows))
        in_arm = outcomes.arm_weights[:, None] * np.equal(outcomes.arms[:, None], [0, 1])
        parts = [
            outcomes.weights[:, None],
            in_arm,
            outcomes.weights[:, None] * outcomes.expected.reshape(n_rows, -1),
            in_arm[:, :1] * outcomes.errors,
            in_arm[:, 1:] * outcomes.errors,
        ]
        starts = np.searchsorted(pairs, np.arange(places.n_cells + 1) * np.int64(n_rows + 1))
        sums = np.column_stack([gather @ part for part in parts])
        leverage = np.minimum(places.leverage(outcomes, source), MAX_ROW_SHARE)
        return cls(starts, pairs % (n_rows + 1), 1.0 / (1.0 - leverage), sums)

    @property
    def n_weights(self) -> int:
        """Number of random weights."""
        return self.stretch.size

    def averages(self, places: Neighbourhoods, weights: Array) -> Array:
        """Averages under weights of the sources, shape (draws, sources); shape (draws, p, 2, k)."""
        of_units = weights[:, self.source]
        cells = np.empty((weights.shape[0], places.n_cells, self.sums.shape[1]))
        for c in range(places.n_cells):
            part = slice(self.starts[c], self.starts[c + 1])
            cells[:, c] = of_units[:, part] @ self.sums[part]
        k = (self.sums.shape[1] - 3) // 4
        expected = places.average(cells[..., 0], cells[..., 3 : 3 + 2 * k])
        errors = [
            places.average(cells[..., 1 + arm], cells[..., 3 + (2 + arm) * k : 3 + (3 + arm) * k]) for arm in (0, 1)
        ]
        expected = expected.reshape(*expected.shape[:2], 2, k)
        averages = expected + np.stack(errors, axis=2)
        # Errors of large weight can leave less than no variance.
        least = MIN_LEFT_VARIANCE * (expected[..., 1] - expected[..., 0] ** 2)
        averages[..., 1] = np.maximum(averages[..., 1], averages[..., 0] ** 2 + np.maximum(least, 0.0))
        return averages
