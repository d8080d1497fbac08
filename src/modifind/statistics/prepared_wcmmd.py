"""The weighted conditional MMD of one outcome and treatment, for any column of feature values.

For a table in pieces it is computed from sums, which can be added: a first pass collects the sums of each arm at the
nodes of a grid (`ColumnSums`), a second the moments of D2 (`D2Moments`), and a third the sums for rows far from an arm
(`FarSums`).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.statistics.contract import Column, Nuisances
from modifind.statistics.kernels import (
    NEGLIGIBLE_WEIGHT,
    CellSums,
    DenseSums,
    GroupSums,
    LocalSums,
    SpectralMap,
    gaussian_gram,
    kernel_sums,
    nearest_rows,
    nearest_weights,
    relative_exponent,
    relative_kernel,
)

MAX_FAR_VALUES = 10_000  # of rows far from an arm; where there are more, D2 is undefined there


@dataclass(frozen=True)
class ColumnSums:
    """Sums of every source at nodes or in categories, for rows with a value and for rows without one."""

    parts: Mapping[str, tuple[Array | CellSums, ...]]

    def __add__(self, other: ColumnSums) -> ColumnSums:
        """Add the sums of other rows."""
        parts = {**self.parts}
        for name, sums in other.parts.items():
            parts[name] = tuple(map(operator.add, parts[name], sums)) if name in parts else sums
        return ColumnSums(parts)


@dataclass(frozen=True)
class D2Moments:
    """Moments of D2 over rows.

    Attributes
    ----------
    rows : array of shape (2,)
        Number of rows and the sum of their weights.
    known : array of shape (2,)
        The same of the rows where D2 is defined.
    mean, squares : float
        Weighted mean of D2 over these, and the sum of squares about it.
    far : array of shape (k, 3)
        Values of rows that are far from an arm, their number and the sum of their weights; None where they are too
        many.
    """

    rows: Array
    known: Array
    mean: float = 0.0
    squares: float = 0.0
    far: Array | None = field(default_factory=lambda: np.empty((0, 3)))

    @classmethod
    def of(cls, d2: Array, weights: Array, far: Array | None = None) -> D2Moments:
        """Moments over some rows; `far` collects further rows as (value, 1, weight)."""
        defined = ~np.isnan(d2)
        values, known_weights = d2[defined], weights[defined]
        total = float(known_weights.sum())
        mean = float(known_weights @ values) / total if total > 0 else 0.0
        squares = float(known_weights @ (values - mean) ** 2)
        counted = np.array([d2.size, weights.sum()])
        moments = cls(counted, np.array([values.size, total]), mean, squares)
        if far is None:
            return moments
        return replace(moments, rows=counted + far[:, 1:].sum(axis=0), far=_grouped(far))

    def __add__(self, other: D2Moments) -> D2Moments:
        """Add the moments of other rows."""
        known = self.known + other.known
        total, gap = known[1], other.mean - self.mean
        share = other.known[1] / total if total > 0 else 0.0
        squares = self.squares + other.squares + gap**2 * self.known[1] * share
        far = None
        if self.far is not None and other.far is not None:
            far = _grouped(np.concatenate((self.far, other.far))) if other.far.size else self.far
        return D2Moments(self.rows + other.rows, known, self.mean + share * gap, squares, far)

    def with_far(self, d2: Array) -> D2Moments:
        """The moments including D2 of the far rows."""
        assert self.far is not None
        defined = ~np.isnan(d2)
        moments = D2Moments.of(d2[defined], self.far[defined, 2])
        moments = replace(moments, rows=np.zeros(2), known=self.far[defined, 1:].sum(axis=0))
        return replace(self, far=np.empty((0, 3))) + moments

    @property
    def variance(self) -> float:
        """Sample variance over rows with weights scaled to mean 1; rows where D2 is undefined count as average."""
        if self.known[0] < 2:
            return 0.0
        n_rows, total = self.rows
        return self.squares * (n_rows / total) / (n_rows - 1)


def _grouped(far: Array) -> Array | None:
    """Number and weight of the rows by distinct value; None if there are too many values."""
    values, group = np.unique(far[:, 0], return_inverse=True)
    if values.size > MAX_FAR_VALUES:
        return None
    return np.column_stack((values, *(np.bincount(group, column, values.size) for column in far[:, 1:].T)))


@dataclass(frozen=True)
class FarSums:
    """Kernel sums at points far from all rows, relative to the kernel at the nearest row.

    Attributes
    ----------
    points : array of shape (k,)
        The points.
    nearest : array of shape (2, k)
        The nearest value of each arm; NaN where the arm has no row.
    sums : array of shape (2, k, columns)
        Sums of both arms.
    """

    points: Array
    bandwidth: float
    nearest: Array
    sums: Array

    @classmethod
    def of(cls, points: Array, bandwidth: float, arms: list[tuple[Array, Array]]) -> FarSums:
        """Sums over some rows, given as values and columns of each arm."""
        nearest = np.full((2, points.size), np.nan)
        sums = np.zeros((2, points.size, arms[0][1].shape[1]))
        for arm, (x, columns) in enumerate(arms):
            if not x.size:
                continue
            order = np.argsort(x, kind="stable")
            ordered, columns = x[order], columns[order]
            nearest[arm] = ordered[nearest_rows(points, ordered)]
            for k, point in enumerate(points):
                window, kernel = nearest_weights(point, ordered, bandwidth)
                sums[arm, k] = kernel @ columns[window]
        return cls(points, bandwidth, nearest, sums)

    def __add__(self, other: FarSums) -> FarSums:
        """Add the sums of other rows, relative to the kernel at the nearer of both nearest rows."""
        theirs = np.isnan(self.nearest) | (np.abs(other.nearest - self.points) < np.abs(self.nearest - self.points))
        nearest = np.where(theirs, other.nearest, self.nearest)
        sums = np.zeros(self.sums.shape)
        for far in (self, other):
            with np.errstate(invalid="ignore"):
                scale = np.exp(relative_exponent(far.nearest, nearest, self.points, self.bandwidth))
            sums += np.where(np.isnan(far.nearest), 0.0, scale)[..., None] * far.sums
        return FarSums(self.points, self.bandwidth, nearest, sums)

    @property
    def d2(self) -> Array:
        """D2 at the points; NaN if an arm has no rows."""
        with np.errstate(invalid="ignore", divide="ignore"):
            control, treated = self.sums / self.sums[..., :1]
        return ((treated - control) ** 2).sum(axis=1)


Scores = TypeVar("Scores", bound=Any)
WITH_VALUE, WITHOUT = "value", "missing"
EXACT_BLOCK = 256  # points at which the double sum is evaluated at a time


@dataclass(frozen=True)
class PreparedWCMMD:
    """The statistic prepared for one outcome and treatment, for any column of feature values.

    Attributes
    ----------
    treatment : int array of shape (n,)
        Arms of the rows.
    weighting : {"hajek", "horvitz_thompson"}
        As in `WCMMD`.
    y_bandwidth : float
        Bandwidth of the outcome.
    outcome_map : array of shape (n, k), optional
        Feature map of the outcomes; None where the double sum over rows is evaluated.
    outcome_gram : array of shape (n, n), optional
        Kernel matrix of the outcomes for the double sum.
    direct : bool
        Whether sums around rows are those of the published computation, which is quadratic.
    row_weights : Weights
        Weights of mean 1.
    weight_cap : float, optional
        Largest inverse probability weight in `value` and `sums`, which are what is tested. `curve` and `importance`
        have no cap.
    arm_caps : tuple of two floats, optional
        The same for control and for treated rows.
    spectral : SpectralMap, optional
        The map of outcomes for any rows, where these are some of a table in pieces.
    """

    treatment: Ints
    weighting: str
    y_bandwidth: float
    outcome_map: Array | None
    outcome_gram: Array | None
    direct: bool
    row_weights: Weights
    weight_cap: float | None = None
    arm_caps: tuple[float, float] | None = None
    spectral: SpectralMap | None = None

    @cached_property
    def n_control(self) -> int:
        """Number of rows in the control arm."""
        return int((self.treatment == 0).sum())

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Rows with the control arm first, so that each arm is a slice."""
        return np.argsort(self.treatment, kind="stable")

    @cached_property
    def columns(self) -> Array:
        """Columns summed over rows in that order: ones, and the map of the outcomes."""
        ones = np.ones((self.order.size, 1))
        return ones if self.outcome_map is None else np.concatenate((ones, self.outcome_map[self.order]), axis=1)

    def curve(self, x: Array, scores: Array, *, bandwidth: float, n_levels: int = 0) -> Array:
        """D2 at every row.

        Parameters
        ----------
        x : array of shape (n,)
            Feature values, NaN where missing, or codes ``0..n_levels-1`` when `n_levels` is positive.
        scores : array of shape (n,)
            Propensity scores of the rows.
        bandwidth : float
            Bandwidth of the feature; not used for discrete features.
        n_levels : int, default=0
            Number of categories, 0 for a continuous feature.

        Returns
        -------
        array of shape (n,)
            NaN at rows whose category holds only one arm (Hajek weighting): there is nothing to compare.
        """
        curve = np.full(x.size, np.nan)
        for rows, prepared, part in self._parts(Column(0, x, scores, n_levels, bandwidth)).values():
            both_arms = 0 < prepared.n_control < part.values.size
            if both_arms or (part.values.size and not self._is_hajek):
                curve[rows] = prepared._complete_curve(part)
        return curve

    @property
    def _is_hajek(self) -> bool:
        return self.weighting == "hajek"

    def _parts(self, column: Column) -> dict[str, tuple[Any, PreparedWCMMD, Column]]:
        """Rows with a value, and rows without one as a category of their own."""
        missing = np.isnan(column.values)
        if column.n_levels or not missing.any():
            return {WITH_VALUE: (slice(None), self, column)}
        parts = {}
        for name, rows, n_levels in ((WITH_VALUE, ~missing, 0), (WITHOUT, missing, 1)):
            values = np.where(missing, 0.0, column.values)[rows]
            part = replace(column, values=values, scores=column.scores[rows], n_levels=n_levels)
            parts[name] = (rows, self._of_rows(rows), part)
        return parts

    def _of_rows(self, rows: NDArray[np.bool_]) -> PreparedWCMMD:
        """The same statistic for a subset of the rows."""
        return replace(
            self,
            treatment=self.treatment[rows],
            outcome_map=None if self.outcome_map is None else self.outcome_map[rows],
            outcome_gram=None if self.outcome_gram is None else self.outcome_gram[np.ix_(rows, rows)],
            row_weights=self.row_weights[rows],
        )

    def _complete_curve(self, column: Column) -> Array:
        """D2 at every row of a column without gaps."""
        if self.outcome_map is None:
            return self._exact_curve(column)
        x, sources = self._sources(column)
        sums = self._local_sums(x, column)
        d2, smallest = self._distances(sums, self._collected(sums, sources), x.size)
        far = np.flatnonzero(smallest < NEGLIGIBLE_WEIGHT)
        if far.size and not sums.reaches_all:
            arms = [(x[rows], weighted) for rows, weighted in sources]
            d2[far] = FarSums.of(x[far], column.bandwidth, arms).d2
        curve = np.empty(x.size)
        curve[self.order] = d2
        return curve

    def _sources(self, column: Column) -> tuple[Array, list[tuple[slice, Array]]]:
        """Values ordered by arm, and the slice of each arm with the contributions of its rows."""
        x, scores = column.values[self.order], column.scores[self.order]
        row_weights = self.row_weights.values[self.order]
        arms = ((slice(0, self.n_control), 1.0 - scores), (slice(self.n_control, None), scores))
        return x, [(rows, self.columns[rows] * (row_weights / chance)[rows, None]) for rows, chance in arms]

    def _local_sums(self, x: Array, column: Column) -> LocalSums:
        """Sums around rows with values `x` of a column."""
        if column.n_levels:
            return GroupSums(x.astype(np.intp), column.n_levels)
        if self.direct:
            return DenseSums(gaussian_gram(x, x, column.bandwidth))
        return kernel_sums(x, column.bandwidth, column.limits)

    def _collected(self, sums: LocalSums, sources: list[tuple[slice, Array]]) -> list[Any]:
        """Sums of both arms, and those of all rows if conditional means are divided by these."""
        everyone = (slice(None), self.row_weights.values[self.order, None])
        return sums.collect(sources if self._is_hajek else [*sources, everyone])

    def _distances(self, sums: LocalSums, collected: list[Any], n_rows: int) -> tuple[Array, Array]:
        """D2 at every row, and the smaller of the arms' total weights around it."""
        d2, smallest = np.empty(n_rows), np.ones(n_rows)
        for start in range(0, n_rows, sums.block_rows):
            rows = slice(start, start + sums.block_rows)
            control, treated, *total = sums.at(collected, rows)
            if self._is_hajek:
                smallest[rows] = np.minimum(control[:, 0], treated[:, 0])
                with np.errstate(divide="ignore", invalid="ignore"):
                    control /= control[:, :1]
                    treated /= treated[:, :1]
                treated -= control  # column 0 becomes 1 - 1
            else:
                treated -= control
                treated /= total[0]
                treated[:, 0] = 0.0  # the difference of the weights' totals is no part of D2
            d2[rows] = np.einsum("ij,ij->i", treated, treated)
        return d2, smallest

    def _exact_curve(self, column: Column) -> Array:
        """The double sum over rows, by blocks of evaluation points."""
        assert self.outcome_gram is not None
        x, row_weights, treated = column.values, self.row_weights.values, self.treatment == 1
        points, point = np.unique(x, return_inverse=True) if column.n_levels else (x, np.arange(x.size))
        weights = row_weights / np.where(treated, column.scores, 1.0 - column.scores)
        signed = np.where(treated, weights, -weights)
        # Each group of rows is divided by its total of `divisors` around a point.
        groups, divisors = [np.flatnonzero(~treated), np.flatnonzero(treated)], weights
        if not self._is_hajek:
            groups, divisors = [np.arange(x.size)], row_weights
        d2 = np.empty(points.size)
        for start in range(0, points.size, EXACT_BLOCK):
            block = slice(start, start + EXACT_BLOCK)
            omega = np.empty((points[block].size, x.size))
            for rows in groups:
                if column.n_levels:
                    kernel = np.equal(points[block, None], x[rows]).astype(np.float64)
                else:
                    kernel = relative_kernel(points[block], x[rows], column.bandwidth)
                with np.errstate(invalid="ignore"):
                    omega[:, rows] = kernel * signed[rows] / (kernel @ divisors[rows])[:, None]
            d2[block] = np.einsum("ij,ij->i", omega @ self.outcome_gram, omega)
        return d2[point]

    def capped(self, scores: Scores) -> Scores:
        """Scores, array or tensor, bounded so that no weight exceeds its cap."""
        if self.weight_cap is not None:
            scores = scores.clip(1 / self.weight_cap, 1 - 1 / self.weight_cap)
        if self.arm_caps is None:
            return scores
        control, treated = self.arm_caps
        low, high = np.where(self.treatment == 1, 1 / treated, 0.0), np.where(self.treatment == 1, 1.0, 1 - 1 / control)
        if not isinstance(scores, np.ndarray):
            low, high = scores.new_tensor(low), scores.new_tensor(high)
        return scores.clip(low, high)

    def value(self, column: Column) -> float:
        """Importance of a column, under capped weights."""
        scores = self.capped(column.scores)
        return self.importance(column.values, scores, bandwidth=column.bandwidth, n_levels=column.n_levels)

    def importance(self, x: Array, scores: Array, *, bandwidth: float, n_levels: int = 0) -> float:
        """Variance of D2 over rows."""
        return curve_variance(self.curve(x, scores, bandwidth=bandwidth, n_levels=n_levels), self.row_weights)

    def at(self, rows: Nuisances) -> PreparedWCMMD:
        """The same statistic for other rows of the table."""
        assert self.spectral is not None
        outcome_map = self.spectral(rows.outcome)
        return replace(self, treatment=rows.arms, outcome_map=outcome_map, row_weights=rows.weights)

    def sums(self, column: Column, known: tuple[Any, ...] = ()) -> Any:
        """Contributions of these rows to the next pass, given the sums of earlier passes."""
        parts = self._parts(column)
        if not known:
            return ColumnSums({name: prepared._first_sums(part) for name, (_, prepared, part) in parts.items()})
        if len(known) == 1:
            first = known[0].parts
            moments = [prepared._moments(part, first[name]) for name, (_, prepared, part) in parts.items()]
            return reduce(operator.add, moments)
        _, prepared, part = parts[WITH_VALUE]
        x, sources = prepared._sources(prepared._capped_column(part))
        return FarSums.of(known[1].far[:, 0], part.bandwidth, [(x[rows], weighted) for rows, weighted in sources])

    def value_of(self, known: tuple[Any, ...]) -> float | None:
        """Value of a column from the sums of all rows for each pass; None if another pass is needed."""
        if len(known) == 1:
            return None
        moments = known[1]
        if moments.far is None or not len(moments.far):
            return moments.variance
        return moments.with_far(known[2].d2).variance if len(known) == 3 else None

    def _capped_column(self, column: Column) -> Column:
        return replace(column, scores=self.capped(column.scores))

    def _first_sums(self, column: Column) -> tuple[Any, ...]:
        x, sources = self._sources(self._capped_column(column))
        return tuple(self._collected(self._local_sums(x, column), sources))

    def _moments(self, column: Column, collected: tuple[Any, ...]) -> D2Moments:
        """Moments of D2 over these rows, given the first sums over all rows."""
        x, row_weights = column.values[self.order], self.row_weights.values[self.order]
        sums = self._local_sums(x, column)
        d2, smallest = self._distances(sums, list(collected), x.size)
        if sums.reaches_all:
            return D2Moments.of(d2, row_weights)
        far = smallest < NEGLIGIBLE_WEIGHT
        counts = np.ones(int(far.sum()))
        return D2Moments.of(d2[~far], row_weights[~far], np.column_stack((x[far], counts, row_weights[far])))


def curve_variance(curve: Array, weights: Weights | None = None) -> float:
    """Sample variance of D2 over rows, whose weights have mean 1; rows where D2 is undefined count as average."""
    defined = ~np.isnan(curve)
    known, row_weights = curve[defined], Weights.of(weights, curve.size)[defined]
    if known.size < 2:
        return 0.0
    deviation = known - row_weights.mean(known)
    return float(row_weights.times(deviation) @ deviation / (curve.size - 1))
