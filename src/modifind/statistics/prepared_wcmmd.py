"""The weighted conditional MMD of one outcome and treatment, to be evaluated at any column of feature values."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.statistics.contract import Column, Nuisances
from modifind.statistics.kernel_sums import (
    NEGLIGIBLE_WEIGHT,
    DenseSums,
    GroupSums,
    LocalSums,
    kernel_sums,
    relative_kernel,
)
from modifind.statistics.kernels import SpectralMap, gaussian_gram
from modifind.statistics.wcmmd_sums import ColumnSums, D2Moments, FarSums

Scores = TypeVar("Scores", bound=Any)
WITH_VALUE, WITHOUT = "value", "missing"
EXACT_BLOCK = 256  # points at which the double sum is evaluated at a time


@dataclass(frozen=True)
class PreparedWCMMD:
    """The statistic for one outcome and treatment, to be evaluated at any column of feature values.

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
        """Rows with the control arm first, so that each arm is a slice and nothing is gathered."""
        return np.argsort(self.treatment, kind="stable")

    @cached_property
    def columns(self) -> Array:
        """What is summed over rows in that order: ones, and the map of the outcomes."""
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
        """Rows that have a value, and as a category of their own those that have none."""
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
        """The same for some of the rows."""
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
        """Values in the order of the arms, and the slice of each arm with what its rows add."""
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
        """Sums of both arms, and those of all rows where conditional means are divided by these."""
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
        """Scores, array or tensor, as they enter the test: moved to where no weight exceeds its cap."""
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
        """The importance of a column, under capped weights."""
        scores = self.capped(column.scores)
        return self.importance(column.values, scores, bandwidth=column.bandwidth, n_levels=column.n_levels)

    def importance(self, x: Array, scores: Array, *, bandwidth: float, n_levels: int = 0) -> float:
        """Variance of D2 over rows."""
        return curve_variance(self.curve(x, scores, bandwidth=bandwidth, n_levels=n_levels), self.row_weights)

    def at(self, rows: Nuisances) -> PreparedWCMMD:
        """The same for other rows of the table."""
        assert self.spectral is not None
        outcome_map = self.spectral(rows.outcome)
        return replace(self, treatment=rows.arms, outcome_map=outcome_map, row_weights=rows.weights)

    def sums(self, column: Column, known: tuple[Any, ...] = ()) -> Any:
        """What these rows add to the value of a column in the first pass, or in the one after those that are known."""
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
        """The value of a column from the sums of all rows, one for each pass; None where another pass is needed."""
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
        """Moments of D2 over these rows, from the first sums over all rows."""
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
