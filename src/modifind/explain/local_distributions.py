"""Outcome distributions of both arms around a value of a feature, their bounds, and bootstrap draws of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from modifind._typing import Array, Ints
from modifind.data.clusters import Clusters
from modifind.data.weights import Weights, population_weights
from modifind.explain.couplings import SAME_VALUE, correlation, mean_squares, same_ranks, share_bounds
from modifind.explain.rows import ArmRows

# The variance of the effect, the correlation of Y0 and Y1, P(Y1 > Y0) and P(Y1 >= Y0).
QUANTITIES = ("var", "corr", "benefit", "no_harm")
ENDS = tuple(f"{name}_{end}" for name in QUANTITIES for end in ("low", "high"))
# Where a bound can go no further; it is there when the arms' distributions are the same in some sense, whatever the
# rest.
EDGES = np.array([0.0, np.nan, -1.0, 1.0, 0.0, 1.0, 0.0, 1.0])
# What each bound must lie in.
RANGES = np.repeat([(0.0, np.inf), (-1.0, 1.0), (0.0, 1.0), (0.0, 1.0)], 2, axis=0)
# For the bootstrap outcomes are put into about this many cells; the bounds themselves use every value.
MAX_BOUND_CELLS = 400
# And of each arm about this many rows around a point are drawn from, chosen at random.
MAX_DRAWN = 3000
# Draws at a time: what is made of them at a point stays in the processor's cache.
BLOCK_DRAWS = 50
# And no more than so many weights of rows.
BLOCK_ENTRIES = 2_000_000
# Kernel weights below this share of the largest move nothing.
NEGLIGIBLE = 1e-10


@dataclass(frozen=True)
class WeightedRows:
    """Rows sorted by outcome, with the weights of their arm; `order` has their original positions."""

    order: NDArray[np.intp]
    y: Array
    treated: NDArray[np.bool_]
    weights: Array

    @classmethod
    def of(cls, rows: ArmRows) -> WeightedRows:
        """Weight rows by their population weight times the inverse probability of their arm."""
        weights = population_weights(rows.scores, rows.population, rows.weights).values
        own_weights = weights / weights.max() * (1.0 / np.where(rows.arms == 1, rows.scores, 1.0 - rows.scores))
        order = np.argsort(rows.y, kind="stable")
        return cls(order, rows.y[order], rows.arms[order] == 1, own_weights[order])

    def shifted(self, effect: float) -> WeightedRows:
        """The rows with `effect` added to the control outcomes, equating values that differ by rounding only."""
        if not effect:
            return self
        moved = np.where(self.treated, self.y, self.y + effect)
        order = np.argsort(moved, kind="stable")
        sorted_ = moved[order]
        rounding = SAME_VALUE * max(float(np.abs(self.y).max()), abs(effect))
        first = np.diff(sorted_, prepend=-np.inf) > rounding
        value = sorted_[first][np.cumsum(first) - 1]
        return WeightedRows(self.order[order], value, self.treated[order], self.weights[order])


@dataclass(frozen=True)
class Cells:
    """Groups of neighbouring outcomes: their values in each arm and a matrix that sums the weights of rows.

    `sums` has one row per cell and arm, treated first. `single` marks the cells with a single value, where P(Y < v) and
    P(Y <= v) differ.
    """

    treated: Array
    control: Array
    single: NDArray[np.bool_]
    sums: Any
    unit: float

    @classmethod
    def exact(cls, part: LocalPart, n_rows: int) -> Cells:
        """One cell for every value."""
        value = np.cumsum(np.diff(part.y, prepend=part.y[0]) != 0)
        return cls.of(value, np.ones(value[-1] + 1, dtype=bool), part, n_rows)

    @classmethod
    def grouped(cls, part: LocalPart, n_rows: int, max_cells: int) -> Cells:
        """About `max_cells` cells."""
        value = np.cumsum(np.diff(part.y, prepend=part.y[0]) != 0)
        group, single = _group_values(np.bincount(value, part.weights / 2).astype(np.float64), max_cells)
        return cls.of(group[value], single, part, n_rows)

    @classmethod
    def of(cls, cell: NDArray[np.intp], single: NDArray[np.bool_], part: LocalPart, n_rows: int) -> Cells:
        """Cells of the rows of a local distribution; `cell` is the cell of each row."""
        n_cells = single.size
        place = cell + np.where(part.treated, 0, n_cells)
        mass = np.bincount(place, part.weights, minlength=2 * n_cells)
        # Around their means and in units of their size: neither origin nor scale costs digits.
        middle = part.y[0] / 2 + part.y[-1] / 2
        unit = float(max(part.y[-1] - middle, middle - part.y[0])) or 1.0
        total = np.bincount(place, part.weights * ((part.y - middle) / unit), minlength=2 * n_cells)
        value = np.divide(total, mass, out=np.zeros_like(total), where=mass > 0)
        treated, control = value[:n_cells], value[n_cells:]
        treated, control = treated - mass[:n_cells] @ treated, control - mass[n_cells:] @ control
        sums = sparse.csr_matrix((part.weights, (place, part.rows)), shape=(2 * n_cells, n_rows))
        return cls(treated, control, single, sums, unit)

    def bounds(self, distributions: tuple[Array, Array], higher_is_better: bool) -> Array:
        """Bounds, ordered as in `ENDS`, of distributions from `cumulative`; one row per draw."""
        shares = self.shares(distributions, higher_is_better)
        f1, f0 = distributions
        v1, f1, v0, f0 = self._occupied(f1, f0)
        mean1, variance1 = _moments(v1, f1)
        mean0, variance0 = _moments(v0, f0)
        low, high = (np.maximum(square - (mean1 - mean0) ** 2, 0.0) for square in mean_squares(v1, f1, v0, f0))
        correlations = (correlation(variance1, variance0, end) for end in (high, low))
        return np.column_stack((low * self.unit**2, high * self.unit**2, *correlations, shares))

    def shares(self, distributions: tuple[Array, Array], higher_is_better: bool) -> Array:
        """The last four of `bounds`: those of P(Y1 > Y0) and P(Y1 >= Y0)."""
        return np.column_stack(share_bounds(*self._arms(*distributions, higher_is_better)))

    def off_edge(self, distributions: tuple[Array, Array], higher_is_better: bool) -> Array:
        """Distance from `EDGES` that chance gives a bound whose true value is there; 0 for bounds without an edge.

        A draw's distribution in each arm is compared with that under equal weights, which differs from the true one in
        the same way. The distances of the two arms are added.
        """
        f1, f0 = distributions
        g1, g0 = self.equal
        shares = self.shares_off_edge(distributions, higher_is_better)
        v1, f1, v0, f0 = self._occupied(f1, f0)
        _, g1, _, g0 = self._occupied(g1, g0)
        moved1, moved0 = _moved(v1, f1, g1), _moved(v0, f0, g0)
        variance1, variance0 = _moments(v1, g1)[1], _moments(v0, g0)[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            angle = (moved1 / variance1 + moved0 / variance0) / 2
        moments = ((moved1 + moved0) * self.unit**2, np.zeros_like(moved1), angle, angle)
        return np.column_stack((*moments, shares))

    def shares_off_edge(self, distributions: tuple[Array, Array], higher_is_better: bool) -> Array:
        """The last four of `off_edge`."""
        pairs = zip(
            self._arms(*distributions, higher_is_better), self._arms(*self.equal, higher_is_better), strict=True
        )
        low_benefit, high_benefit, low_no_harm, high_no_harm = share_bounds(*(f - g for f, g in pairs))
        return np.column_stack((low_benefit, 1.0 - high_benefit, low_no_harm, 1.0 - high_no_harm))

    @cached_property
    def equal(self) -> tuple[Array, Array]:
        """The result of `cumulative` under equal weights."""
        return self._cumulative(np.asarray(self.sums.sum(axis=1)).reshape(1, -1))

    def cumulative(self, draws: Array) -> tuple[Array, Array]:
        """P(Y <= v) of treated and control at the last value of each cell, one row per draw.

        Rows are weighted by the draws, shape (n_rows, draws).
        """
        return self._cumulative((self.sums @ draws).T)

    def _cumulative(self, sums: Array) -> tuple[Array, Array]:
        f1, f0 = (np.cumsum(part, axis=1) for part in (sums[:, : self.single.size], sums[:, self.single.size :]))
        return f1 / f1[:, -1:], f0 / f0[:, -1:]

    def _arms(self, f1: Array, f0: Array, higher_is_better: bool) -> tuple[Array, Array, Array, Array]:
        """Arguments of `share_bounds`; if lower outcomes are better, the arms are swapped."""
        first, second = (f1, f0) if higher_is_better else (f0, f1)
        return first, self._before(first), second, self._before(second)

    def _before(self, f: Array) -> Array:
        """P(Y < v) at the last value v of each cell; P(Y <= v) in a cell of many values of little weight."""
        previous = np.concatenate((np.zeros((f.shape[0], 1)), f[:, :-1]), axis=1)
        return np.where(self.single, previous, f)

    def _occupied(self, f1: Array, f0: Array) -> tuple[Array, Array, Array, Array]:
        """Values and cumulative probabilities of each arm in the cells that contain rows of it."""
        filled = np.diff(self.sums.indptr) > 0
        own1, own0 = filled[: self.single.size], filled[self.single.size :]
        return self.treated[own1], f1[:, own1], self.control[own0], f0[:, own0]


class Measure(NamedTuple):
    """A subset of the bounds `ENDS` as a function of cells, and their distances from the edges under chance."""

    bounds: Callable[[Cells, tuple[Array, Array], bool], Array]
    off_edge: Callable[[Cells, tuple[Array, Array], bool], Array]
    ends: slice

    @property
    def n_ends(self) -> int:
        """Number of bounds."""
        return len(ENDS[self.ends])


ALL = Measure(Cells.bounds, Cells.off_edge, slice(None))
SHARES = Measure(Cells.shares, Cells.shares_off_edge, slice(4, None))


@dataclass(frozen=True)
class LocalPart:
    """Rows near a point, sorted by outcome; weights add up to 1 in each arm, `rows` are their positions."""

    y: Array
    treated: NDArray[np.bool_]
    weights: Array
    rows: NDArray[np.intp]

    @property
    def support(self) -> tuple[float, float]:
        """Effective number of rows, treated and control."""
        treated, control = (1.0 / float(np.square(self.weights[arm]).sum()) for arm in (self.treated, ~self.treated))
        return treated, control

    def thinned(self, priority: Ints, most: int = MAX_DRAWN) -> tuple[LocalPart, float]:
        """The first rows of each arm in `priority`, about `most`, and the ratio of standard errors, all to these.

        Errors of bounds shrink with the square root of the number of rows, or faster for a variance at its edge, so
        that draws from a subset slightly overstate them. All points use the same priority, so that rows shared by two
        points stay shared.
        """
        turn = priority[self.rows]
        kept = np.ones(turn.size, dtype=bool)
        for arm in (self.treated, ~self.treated):
            if arm.sum() > most:
                kept &= ~arm | (turn <= np.partition(turn[arm], most - 1)[most - 1])
        if kept.all():
            return self, 1.0
        treated, weights = self.treated[kept], self.weights[kept]
        weights = weights / np.where(treated, weights[treated].sum(), weights[~treated].sum())
        few = LocalPart(self.y[kept], treated, weights, self.rows[kept])
        both = [one * other / (one + other) for one, other in (few.support, self.support)]
        return few, float(np.sqrt(both[0] / both[1]))


@dataclass(frozen=True)
class LocalDistribution:
    """Bounds at one point from all values, and the cells for its bootstrap; no cells if an arm is empty.

    Draws from a subset of the rows are multiplied by `scale`.
    """

    estimate: Array
    support: tuple[float, float]
    cells: Cells | None
    scale: float = 1.0

    @classmethod
    def of(
        cls,
        data: WeightedRows,
        near: Array,
        higher_is_better: bool,
        max_cells: int = MAX_BOUND_CELLS,
        priority: Ints | None = None,
        measure: Measure = ALL,
    ) -> LocalDistribution:
        """The distribution around a point.

        Parameters
        ----------
        data : WeightedRows
            All rows.
        near : array of shape (n,)
            Kernel weights of the rows of the table.
        higher_is_better : bool
            Whether a treatment that raises the outcome is a benefit.
        max_cells : int
            About how many cells the bootstrap uses.
        priority : array of shape (n,), optional
            Which rows it draws from first, where there are many; all of them without it.
        measure : Measure
            Which bounds.
        """
        near = near[data.order]
        kept = np.flatnonzero((near > NEGLIGIBLE * near.max()) & (data.weights > 0))
        treated = data.treated[kept]
        weights = near[kept] * data.weights[kept]
        # relative to the largest, whose square does not vanish
        if kept.size:
            weights = weights / weights.max()
        totals = [float(weights[arm].sum()) for arm in (treated, ~treated)]
        if min(totals) == 0:
            support = [Weights.of(weights[arm]).effective_size if arm.any() else 0.0 for arm in (treated, ~treated)]
            return cls(np.full(measure.n_ends, np.nan), (support[0], support[1]), None)
        part = LocalPart(data.y[kept], treated, weights / np.where(treated, *totals), data.order[kept])
        n_rows = data.order.size
        exact = Cells.exact(part, n_rows)
        estimate = measure.bounds(exact, exact.equal, higher_is_better)[0]
        few, scale = (part, 1.0) if priority is None else part.thinned(priority)
        cells = exact if few is part else Cells.exact(few, n_rows)
        if cells.single.size > max_cells:
            cells = Cells.grouped(few, n_rows, max_cells)
        return cls(estimate, part.support, cells, scale)


def bootstrap(
    distributions: list[LocalDistribution],
    clusters: Clusters,
    n_draws: int,
    higher_is_better: bool,
    rng: np.random.Generator,
    measure: Measure = ALL,
) -> tuple[Array, Array]:
    """Deviations of the bounds under exponential row weights, and `Cells.off_edge`.

    Both have shape (draws, points, bounds). All points share the same weights, so that a draw is joint over the points.
    Rows of a cluster share one weight.
    """
    shifts, off_edge = (np.full((n_draws, len(distributions), measure.n_ends), np.nan) for _ in range(2))
    block = max(1, min(BLOCK_DRAWS, BLOCK_ENTRIES // clusters.codes.size))
    for start in range(0, n_draws, block):
        stop = min(start + block, n_draws)
        # One draw after the other, so that the block's size does not matter.
        draws = np.ascontiguousarray(rng.standard_exponential((stop - start, clusters.count)).T)
        draws = draws if clusters.of_rows else draws[clusters.codes]
        for k, distribution in enumerate(distributions):
            if distribution.cells is not None:
                drawn = distribution.cells.cumulative(draws)
                shifts[start:stop, k] = measure.bounds(distribution.cells, drawn, higher_is_better)
                off_edge[start:stop, k] = measure.off_edge(distribution.cells, drawn, higher_is_better)
    for k, distribution in enumerate(distributions):
        if distribution.cells is not None:
            shifts[:, k] -= measure.bounds(distribution.cells, distribution.cells.equal, higher_is_better)
            shifts[:, k] *= distribution.scale
            off_edge[:, k] *= distribution.scale
    return shifts, off_edge


def _group_values(mass: Array, max_cells: int) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Groups of neighbouring values, and which hold a single value: small in the tails, heavy values alone."""
    middle = np.cumsum(mass) - mass / 2
    level = np.floor(max_cells / np.pi * np.arccos(np.clip(1.0 - 2.0 * middle, -1.0, 1.0)))
    heavy = mass > 1.0 / max_cells
    new = (np.diff(level, prepend=-1.0) != 0) | heavy
    new[1:] |= heavy[:-1]
    group = np.cumsum(new) - 1
    return group, np.bincount(group) == 1


def _moments(values: Array, cumulative: Array) -> tuple[Array, Array]:
    probability = np.diff(cumulative, axis=1, prepend=0.0)
    mean = probability @ values
    return mean, np.maximum(probability @ values**2 - mean**2, 0.0)


def _moved(values: Array, f: Array, g: Array) -> Array:
    """Squared distance between two distributions of the same values after centring both; the second has one row."""
    apart = same_ranks(values, f, values, np.broadcast_to(g, f.shape))
    return np.maximum(apart - (_moments(values, f)[0] - _moments(values, g)[0]) ** 2, 0.0)
