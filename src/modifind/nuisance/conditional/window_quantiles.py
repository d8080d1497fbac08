"""Quantile functions of windows of values, to draw rows from that are many more than the values.

Drawn again and again, the values themselves would repeat, and no drawn row of a long tail would lie as far from all
others as the observed ones do. So values between two neighbours are drawn, too, unless one of them repeats: what piles
up on a value, or is rounded, stays there. So does what lies beside a value that hardly counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.weights import Weights

HARDLY = 0.1  # of the weight of its neighbour
ENDS, BETWEEN = 100, 800  # values of a window that are kept: at each end, and in between


@dataclass(frozen=True)
class WindowQuantiles:
    """For each window, levels between 0 and 1 and the values there, straight lines in between."""

    tables: tuple[tuple[Array, Array], ...]

    @classmethod
    def of(cls, pool: Array, start: Ints, size: Ints, weights: Weights) -> WindowQuantiles:
        """Of windows of a pool, whose values count by weights."""
        tables = []
        for first, length in zip(start.tolist(), size.tolist(), strict=True):
            rows = slice(first, first + length)
            tables.append(_table(pool[rows], weights.values[rows]))
        return cls(tuple(tables))

    def __call__(self, window: NDArray[np.intp], levels: Array) -> Array:
        """Values at levels of shape (k, n), by the window of each of the n rows.

        Examples
        --------
        >>> pool, alike = np.array([0.0, 1.0, 5.0, 5.0]), Weights.alike(4)
        >>> two = WindowQuantiles.of(pool, np.array([0, 2]), np.array([2, 2]), alike)
        >>> two(np.array([0, 1]), np.array([[0.5, 0.5], [0.25, 0.9]])).tolist()
        [[0.5, 5.0], [0.0, 5.0]]
        """
        found = np.empty(levels.shape)
        for own in np.unique(window):
            rows = window == own
            found[:, rows] = np.interp(levels[:, rows], *self.tables[own])
        return found


def _table(values: Array, weights: Array) -> tuple[Array, Array]:
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    ends = np.cumsum(weights) / weights.sum()
    levels = ends - weights / (2 * weights.sum())
    same = values[1:] == values[:-1]
    tied = np.concatenate((same, [False])) | np.concatenate(([False], same))
    kept = np.arange(values.size)
    if values.size > 2 * ENDS + BETWEEN:
        middle = np.linspace(ENDS, values.size - ENDS - 1, BETWEEN).astype(np.intp)
        kept = np.concatenate((kept[:ENDS], middle, kept[-ENDS:]))
    levels, values, tied, weights = levels[kept], values[kept], tied[kept], weights[kept]
    apart = np.minimum(weights[1:], weights[:-1]) < HARDLY * np.maximum(weights[1:], weights[:-1])
    steps = np.flatnonzero((tied[1:] | tied[:-1] | apart) & (values[1:] != values[:-1]))
    between = np.where(kept[steps + 1] == kept[steps] + 1, ends[kept[steps]], (levels[steps] + levels[steps + 1]) / 2)
    place = np.repeat(steps + 1, 2)
    both = np.column_stack((values[steps], values[steps + 1])).ravel()
    return np.insert(levels, place, np.repeat(between, 2)), np.insert(values, place, both)
