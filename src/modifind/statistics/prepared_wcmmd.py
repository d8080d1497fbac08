"""The weighted conditional MMD of one outcome and treatment, to be evaluated at any column of feature values."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.statistics.contract import Column, Nuisances
from modifind.statistics.kernel_sums import (
    NEGLIGIBLE,
    DenseSums,
    GroupSums,
    KernelSums,
    RowSums,
    nearest_rows,
    relative_exponent,
)
from modifind.statistics.kernels import SpectralMap, gaussian_gram
from modifind.statistics.wcmmd_sums import ColumnSums, D2Moments, FarSums

Scores = TypeVar("Scores", bound=Any)
WITH_VALUE, WITHOUT = "value", "missing"
_EXACT_BLOCK = 256


@dataclass(frozen=True)
class PreparedWCMMD:
    """The statistic for one outcome and treatment, to be evaluated at any column of feature values.

    `row_weights` have mean 1. `weight_cap` is the largest inverse probability
    weight in `value` and `sums`, which is what is tested, and `arm_caps` are those of control and of treated rows;
    `curve` and `importance` have no cap. `spectral` is the map of outcomes for any rows, where these are some of a
    table in pieces.
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
    # Rows are handled with the control arm first, so that each arm is a slice and nothing is gathered.
    _order: NDArray[np.intp] = field(init=False, repr=False)
    _arms: tuple[tuple[slice, Array], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        order = np.argsort(self.treatment, kind="stable")
        n_control = int((self.treatment == 0).sum())
        columns = np.ones((order.size, 1))
        if self.outcome_map is not None:
            columns = np.concatenate((columns, self.outcome_map[order]), axis=1)
        arms = tuple((rows, columns[rows]) for rows in (slice(0, n_control), slice(n_control, None)))
        object.__setattr__(self, "_order", order)
        object.__setattr__(self, "_arms", arms)

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
        if not n_levels and np.isnan(x).any():
            return self._curve_with_gaps(x, scores, bandwidth)
        if self.outcome_map is None:
            return self._exact_curve(x, scores, bandwidth, n_levels)
        x, sources, own = self._sources(x, scores)
        sums = self._row_sums(x, bandwidth, n_levels)
        d2, smallest = self._distances(sums, self._collected(sums, sources, own), own.size)
        far = np.flatnonzero(smallest < NEGLIGIBLE)
        if far.size and not sums.reaches_all:
            arms = [(x[rows], columns) for rows, columns in sources]
            d2[far] = FarSums.of(x[far], bandwidth, arms).d2
        curve = np.empty(x.size)
        curve[self._order] = d2
        return curve

    def _sources(self, x: Array, scores: Array) -> tuple[Array, list[tuple[slice, Array]], Array]:
        """Values in the order of the arms, what each arm is summed over, and the rows' own weights."""
        x, scores = x[self._order], scores[self._order]
        own = self.row_weights.values[self._order]
        chances = (1.0 - scores, scores)
        sources = [(rows, columns * (own / chances[arm])[rows, None]) for arm, (rows, columns) in enumerate(self._arms)]
        return x, sources, own

    def _row_sums(
        self, x: Array, bandwidth: float, n_levels: int, limits: tuple[float, float] | None = None
    ) -> RowSums:
        if n_levels:
            return GroupSums(x.astype(np.intp), n_levels)
        return DenseSums(gaussian_gram(x, x, bandwidth)) if self.direct else KernelSums.of(x, bandwidth, limits)

    def _collected(self, sums: RowSums, sources: list[tuple[slice, Array]], own: Array) -> list[Any]:
        """Sums of both arms, and those of all rows where conditional means are divided by these."""
        return sums.collect(sources if self.weighting == "hajek" else [*sources, (slice(None), own[:, None])])

    def _distances(self, sums: RowSums, collected: list[Any], n_rows: int) -> tuple[Array, Array]:
        """D2 at every row, and the smaller of the arms' total weights around it."""
        hajek = self.weighting == "hajek"
        d2, smallest = np.empty(n_rows), np.ones(n_rows)
        for start in range(0, n_rows, sums.block_rows):
            rows = slice(start, start + sums.block_rows)
            control, treated, *total = sums.at(collected, rows)
            if hajek:
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

    def _curve_with_gaps(self, x: Array, scores: Array, bandwidth: float) -> Array:
        """Rows whose value is missing are a category of their own: like each other, and unlike all others."""
        missing = np.isnan(x)
        curve = np.full(x.size, np.nan)
        for rows in (~missing, missing):
            arms = self.treatment[rows]
            if not rows.any() or (self.weighting == "hajek" and arms.min() == arms.max()):
                continue
            values, levels = (np.zeros(arms.size), 1) if missing[rows][0] else (x[rows], 0)
            curve[rows] = self._of_rows(rows).curve(values, scores[rows], bandwidth=bandwidth, n_levels=levels)
        return curve

    def _of_rows(self, rows: NDArray[np.bool_]) -> PreparedWCMMD:
        """The same for some of the rows."""
        return replace(
            self,
            treatment=self.treatment[rows],
            outcome_map=None if self.outcome_map is None else self.outcome_map[rows],
            outcome_gram=None if self.outcome_gram is None else self.outcome_gram[np.ix_(rows, rows)],
            row_weights=self.row_weights[rows],
        )

    def _exact_curve(self, x: Array, scores: Array, bandwidth: float, n_levels: int) -> Array:
        """The double sum over rows, by blocks of evaluation points."""
        assert self.outcome_gram is not None
        if n_levels:
            points, place = np.unique(x, return_inverse=True)
        else:
            points, place = x, np.arange(x.size)
        own = self.row_weights.values
        weights = np.where(self.treatment == 1, own / scores, own / (1.0 - scores))
        sign = np.where(self.treatment == 1, 1.0, -1.0)
        d2 = np.empty(points.size)
        for start in range(0, points.size, _EXACT_BLOCK):
            block = points[start : start + _EXACT_BLOCK, None]
            if self.weighting == "horvitz_thompson":
                kernel = np.equal(block, x).astype(np.float64) if n_levels else gaussian_gram(block[:, 0], x, bandwidth)
                omega = kernel * (sign * weights) / (kernel @ own)[:, None]
            else:
                omega = np.empty((block.size, x.size))
                for arm in (0, 1):
                    rows = np.flatnonzero(self.treatment == arm)
                    if n_levels:
                        kernel = np.equal(block, x[rows]).astype(np.float64)
                    else:  # ratios of kernel values survive where the values themselves underflow
                        ordered = np.sort(x[rows])
                        nearest = ordered[nearest_rows(block[:, 0], ordered), None]
                        kernel = np.exp(relative_exponent(x[rows], nearest, block, bandwidth))
                    kernel *= weights[rows]
                    with np.errstate(invalid="ignore"):
                        omega[:, rows] = sign[rows] * kernel / kernel.sum(axis=1, keepdims=True)
            d2[start : start + _EXACT_BLOCK] = np.einsum("ij,ij->i", omega @ self.outcome_gram, omega)
        return d2[place]

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
            return ColumnSums({name: tuple(own._first_sums(part)) for name, (own, part) in parts.items()})
        if len(known) == 1:
            moments = [own._moments(part, known[0].parts[name]) for name, (own, part) in parts.items()]
            return reduce(operator.add, moments)
        own, part = parts[WITH_VALUE]
        x, sources, _ = own._sources(part.values, own.capped(part.scores))
        return FarSums.of(known[1].far[:, 0], part.bandwidth, [(x[rows], columns) for rows, columns in sources])

    def value_of(self, known: tuple[Any, ...]) -> float | None:
        """The value of a column from the sums of all rows, one for each pass; None where another pass is needed."""
        if len(known) == 1:
            return None
        moments = known[1]
        if moments.far is None or not len(moments.far):
            return moments.variance
        return moments.with_far(known[2].d2).variance if len(known) == 3 else None

    def _parts(self, column: Column) -> dict[str, tuple[PreparedWCMMD, Column]]:
        """Rows that have a value, and those that have none as one category."""
        missing = np.isnan(column.values)
        if column.n_levels or not missing.any():
            return {WITH_VALUE: (self, column)}
        found = {}
        for name, rows, levels in ((WITH_VALUE, ~missing, 0), (WITHOUT, missing, 1)):
            values = np.zeros(int(rows.sum())) if levels else column.values[rows]
            found[name] = (
                self._of_rows(rows),
                replace(column, values=values, scores=column.scores[rows], n_levels=levels),
            )
        return found

    def _first_sums(self, column: Column) -> list[Any]:
        x, sources, own = self._sources(column.values, self.capped(column.scores))
        return self._collected(self._row_sums(x, column.bandwidth, column.n_levels, column.limits), sources, own)

    def _moments(self, column: Column, collected: tuple[Any, ...]) -> D2Moments:
        """Moments of D2 over these rows, from the first sums over all rows."""
        x = column.values[self._order]
        own = self.row_weights.values[self._order]
        sums = self._row_sums(x, column.bandwidth, column.n_levels, column.limits)
        d2, smallest = self._distances(sums, list(collected), x.size)
        if sums.reaches_all:
            return D2Moments.of(d2, own)
        far = smallest < NEGLIGIBLE
        return D2Moments.of(d2[~far], own[~far], np.column_stack((x[far], np.ones(int(far.sum())), own[far])))


def curve_variance(curve: Array, weights: Weights | None = None) -> float:
    """Sample variance of D2 over rows, whose weights have mean 1; rows where D2 is undefined count as average."""
    defined = ~np.isnan(curve)
    known, own = curve[defined], Weights.of(weights, curve.size)[defined]
    if known.size < 2:
        return 0.0
    deviation = known - own.mean(known)
    return float(own.times(deviation) @ deviation / (curve.size - 1))
