"""Sums over rows that the weighted conditional MMD of one column is made of; those of sets of rows add up.

A first pass over the rows finds what each arm has at the nodes of a grid (`ColumnSums`). A second evaluates D2 at every
row and finds its moments (`D2Moments`). A row of a long-tailed column may be so far from all rows of an arm that the
nodes do not tell; those take a third pass, for the nearest rows of each arm (`FarSums`).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from modifind._typing import Array
from modifind.statistics.kernel_sums import CellSums, nearest_rows, nearest_weights, relative_exponent

MAX_FAR_VALUES = 10_000  # of rows far from an arm; where there are more, D2 is undefined there


@dataclass(frozen=True)
class ColumnSums:
    """Sums of every source at nodes or in categories, for rows with a value and for those without."""

    parts: Mapping[str, tuple[Array | CellSums, ...]]

    def __add__(self, other: ColumnSums) -> ColumnSums:
        """The sums of both sets of rows."""
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
        """The moments of some rows; `far` has further rows as (value, 1, weight)."""
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
        """The moments of both sets of rows."""
        known = self.known + other.known
        total, gap = known[1], other.mean - self.mean
        share = other.known[1] / total if total > 0 else 0.0
        squares = self.squares + other.squares + gap**2 * self.known[1] * share
        far = None
        if self.far is not None and other.far is not None:
            far = _grouped(np.concatenate((self.far, other.far))) if other.far.size else self.far
        return D2Moments(self.rows + other.rows, known, self.mean + share * gap, squares, far)

    def with_far(self, d2: Array) -> D2Moments:
        """The same with D2 of the far rows."""
        assert self.far is not None
        defined = ~np.isnan(d2)
        moments = D2Moments.of(d2[defined], self.far[defined, 2])
        moments = replace(moments, rows=np.zeros(2), known=self.far[defined, 1:].sum(axis=0))
        return replace(self, far=np.empty((0, 3))) + moments

    @property
    def variance(self) -> float:
        """Sample variance over rows, whose weights are scaled to mean 1; where D2 is undefined rows are average."""
        if self.known[0] < 2:
            return 0.0
        n_rows, total = self.rows
        return self.squares * (n_rows / total) / (n_rows - 1)


def _grouped(far: Array) -> Array | None:
    """Number and weight of the rows of each value; None where there are too many values."""
    values, group = np.unique(far[:, 0], return_inverse=True)
    if values.size > MAX_FAR_VALUES:
        return None
    return np.column_stack((values, *(np.bincount(group, column, values.size) for column in far[:, 1:].T)))


@dataclass(frozen=True)
class FarSums:
    """Kernel sums at points that are far from all rows, as multiples of the kernel at the nearest one.

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
        """The sums of some rows, given as values and columns of each arm."""
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
        """The sums of both sets of rows, as multiples of the kernel at the nearer of their nearest rows."""
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
        """D2 at the points; NaN where an arm has no row."""
        with np.errstate(invalid="ignore", divide="ignore"):
            control, treated = self.sums / self.sums[..., :1]
        return ((treated - control) ** 2).sum(axis=1)
