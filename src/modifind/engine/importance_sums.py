"""Importance of a feature from sums over rows.

Around each of some points of a feature, and in each arm, the weighted outcomes are added up in bins of the outcome.
Such histograms give the squared distance D2 between the arms. The points follow the feature's quantiles in the sample,
so that D2 between them is nearly a straight line, and its variance over all rows, the importance, follows from how the
rows lie between points.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.data.feature_matrix import FeatureTable
from modifind.explain.local import curve_points
from modifind.statistics.kernels import gaussian_gram, median_bandwidth

MOST_BINS, LEAST_BINS = 256, 32
ALL_BINS = 25_600  # of all features: sums are sent, so many features have fewer bins each
TAIL_LEVELS = (0.0, 0.001, 0.005, 0.01, 0.99, 0.995, 0.999, 1.0)


@dataclass(frozen=True)
class OutcomeBins:
    """Bins of the outcome.

    Attributes
    ----------
    edges : array
        Inner edges; an edge belongs to the bin below it.
    centre : array of one entry per bin
        Mean of the sample's outcomes in it.
    bandwidth : float
        Of the kernel on outcomes.
    """

    edges: Array
    centre: Array
    bandwidth: float

    @classmethod
    def of(cls, y: Array, seed: np.random.SeedSequence, n_features: int = 1) -> OutcomeBins:
        """Bins of about equal numbers of rows; a value that repeats often has one of its own."""
        n_bins = int(np.clip(ALL_BINS // n_features, LEAST_BINS, MOST_BINS))
        edges = np.unique(np.quantile(y, np.arange(1, n_bins) / n_bins, method="inverted_cdf"))
        place = np.searchsorted(edges, y, side="left")
        kept = np.unique(place)
        edges = edges[kept[:-1]]
        place = np.searchsorted(edges, y, side="left")
        order = np.argsort(y, kind="stable")
        starts = np.searchsorted(place[order], np.arange(edges.size + 1))
        ordered = y[order]
        counts = np.diff(np.append(starts, y.size))
        bandwidth = median_bandwidth(y, random_state=np.random.default_rng(seed)) or 1.0
        centre = np.add.reduceat(ordered, starts) / counts
        return cls(edges, centre, bandwidth)


@dataclass(frozen=True)
class BinnedRows:
    """Rows of one arm, ordered by the bin of their outcome."""

    rows: NDArray[np.intp]
    weights: Array
    bins: NDArray[np.intp]
    starts: NDArray[np.intp]

    @classmethod
    def of(
        cls,
        bins: OutcomeBins,
        y: Array,
        treatment: NDArray[np.int64],
        scores: Array,
        weights: Array | None = None,
    ) -> tuple[BinnedRows, BinnedRows]:
        """Both arms of some rows, which count by `weights`."""
        place = np.searchsorted(bins.edges, y, side="left")
        arms = []
        for arm in (0, 1):
            rows = np.flatnonzero(treatment == arm)
            rows = rows[np.argsort(place[rows], kind="stable")]
            occupied, starts = np.unique(place[rows], return_index=True)
            inverse = 1.0 / (scores[rows] if arm else 1.0 - scores[rows])
            arms.append(cls(rows, inverse if weights is None else weights[rows] * inverse, occupied, starts))
        return arms[0], arms[1]


@dataclass(frozen=True)
class ViewSums:
    """Sums over rows for one feature.

    Attributes
    ----------
    histogram : array of shape (2, points, bins)
        Weights of each arm around each point, by bin of the outcome.
    cells : array of shape (3, points)
        Rows between a point and the next: their number, the sum of their places in between, and of the squares. For
        a discrete feature, rows of each category.
    """

    histogram: Array
    cells: Array

    def __add__(self, other: ViewSums) -> ViewSums:
        """The sums of both sets of rows."""
        return ViewSums(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


@dataclass(frozen=True)
class FeatureView:
    """Where one feature is looked at.

    Attributes
    ----------
    points : array
        Values of a continuous feature in ascending order, and NaN where some are missing; or the codes.
    bandwidth : float
        Of the kernel on a continuous feature.
    n_levels : int
        Number of categories, 0 when continuous.
    """

    points: Array
    bandwidth: float
    n_levels: int

    @classmethod
    def of(cls, table: FeatureTable, feature: int, seed: np.random.SeedSequence) -> FeatureView:
        """From the rows of the sample."""
        column, levels = table.values[:, feature], table.n_levels(feature)
        column = column[table.observed(feature)] if table.observed(feature).any() else np.zeros(1)
        points = curve_points(column, levels)
        if levels:
            return cls(points, 1.0, levels)
        bandwidth = median_bandwidth(column, random_state=np.random.default_rng(seed)) or 1.0
        points = np.unique(np.concatenate((points, np.quantile(column, TAIL_LEVELS))))
        return cls(np.append(points, np.nan) if feature in table.incomplete else points, bandwidth, 0)

    @property
    def has_gaps(self) -> bool:
        """Whether values may be missing; the last point is then theirs."""
        return bool(np.isnan(self.points[-1]))

    def sums(
        self, column: Array, arms: tuple[BinnedRows, BinnedRows], n_bins: int, weights: Array | None = None
    ) -> ViewSums:
        """Sums over some rows."""
        histogram = np.zeros((2, self.points.size, n_bins))
        for arm, own in enumerate(arms):
            if not own.rows.size:
                continue
            values = column[own.rows]
            near = self._near(values)
            near *= own.weights
            histogram[arm][:, own.bins] = np.add.reduceat(near, own.starts, axis=1)
        return ViewSums(histogram, self._cells(column, np.ones(column.size) if weights is None else weights))

    def _near(self, values: Array) -> Array:
        """Kernel between points and rows; missing values are near each other and far from all others."""
        if self.n_levels:
            return np.equal(self.points[:, None], values).astype(np.float64)
        if not self.has_gaps:
            return gaussian_gram(self.points, values, self.bandwidth)
        missing = np.isnan(values)
        near = np.zeros((self.points.size, values.size))
        near[:-1, ~missing] = gaussian_gram(self.points[:-1], values[~missing], self.bandwidth)
        near[-1] = missing
        return near

    def _values(self) -> FeatureView:
        """The same without the point of missing values."""
        return FeatureView(self.points[:-1], self.bandwidth, self.n_levels)

    def _cells(self, column: Array, weights: Array) -> Array:
        if self.has_gaps:
            missing = np.isnan(column)
            own = np.array([[weights[missing].sum()], [0.0], [0.0]])
            return np.concatenate((self._values()._cells(column[~missing], weights[~missing]), own), axis=1)
        size = self.points.size
        cells = np.zeros((3, size))
        if self.n_levels or size == 1:
            codes = column.astype(np.intp) if self.n_levels else np.zeros(column.size, np.intp)
            cells[0] = np.bincount(codes, weights, size)
            return cells
        left = np.clip(np.searchsorted(self.points, column) - 1, 0, size - 2)
        share = np.clip((column - self.points[left]) / np.diff(self.points)[left], 0.0, 1.0)
        for power in range(3):
            cells[power] = np.bincount(left, weights * share**power, minlength=size)
        return cells

    def importance(self, sums: ViewSums, bins: OutcomeBins) -> float:
        """Importance of the feature from the sums over all rows."""
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = sums.histogram / sums.histogram.sum(axis=2)[..., None]
        difference = shares[1] - shares[0]
        d2 = np.einsum("ij,jk,ik->i", difference, gaussian_gram(bins.centre, bins.centre, bins.bandwidth), difference)
        return self._variance(d2, sums.cells)

    def _variance(self, d2: Array, cells: Array) -> float:
        """Variance over rows of D2, a straight line between points; where it is undefined rows count as average."""
        if self.has_gaps:
            return self._gapped_variance(d2, cells)
        n_rows, known = float(cells[0].sum()), ~np.isnan(d2)
        if known.sum() < 2:
            return 0.0
        if self.n_levels:
            counts = np.where(known, cells[0], 0.0)
            values = np.where(known, d2, 0.0)
            mean = counts @ values / counts.sum()
            return float(counts @ (values - mean) ** 2 / (n_rows - 1))
        d2 = np.interp(self.points, self.points[known], d2[known])
        d2 = d2 - d2.mean()  # variances are small differences
        left, right = d2[:-1], d2[1:]
        count, place, square = cells[:, :-1]
        mean = float((left * (count - place) + right * place).sum()) / n_rows
        moment = left**2 * (count - 2 * place + square) + 2 * left * right * (place - square) + right**2 * square
        return max(float(moment.sum()) - n_rows * mean**2, 0.0) / (n_rows - 1)

    def _gapped_variance(self, d2: Array, cells: Array) -> float:
        """The same where the last point is that of missing values: within the others, and between both."""
        values, at, own = self._values(), d2[:-1], cells[:, :-1]
        n_values, n_missing = float(own[0].sum()), float(cells[0, -1])
        squares = values._variance(at, own) * (n_values - 1)
        known = ~np.isnan(at)
        if known.any() and not np.isnan(d2[-1]):
            at = np.interp(values.points, values.points[known], at[known])
            right = np.append(at[1:], at[-1])
            mean = float((at * (own[0] - own[1]) + right * own[1]).sum()) / n_values
            squares += n_values * n_missing / (n_values + n_missing) * (float(d2[-1]) - mean) ** 2
        return squares / (n_values + n_missing - 1)
