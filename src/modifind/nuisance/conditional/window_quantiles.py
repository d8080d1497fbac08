"""Distributions of windows of values: as weighted points, and as quantile functions to draw rows from.

Drawn again and again, the values themselves would repeat, and no drawn row of a long tail would lie as far from all
others as the observed ones do. So values between two neighbours are drawn, too, unless one of them repeats: what piles
up on a value, or is rounded, stays there. So does what lies beside a value that hardly counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.data.weights import Weights
from modifind.nuisance.conditional.grid import code_grid, window_grid

NEGLIGIBLE = 0.1  # of the weight of its neighbour
N_END_VALUES, N_MIDDLE_VALUES = 100, 800  # values of a window that are kept: at each end, and in between


@dataclass(frozen=True)
class Windows:
    """The distributions of some windows of values.

    Attributes
    ----------
    points, weights : arrays of shape (windows, g)
        Weighted points of each window.
    functions : tuple of pairs of arrays
        For each window levels between 0 and 1 and the values there, straight lines in between; empty where values are
        not drawn, or where the points tell all.
    pools : tuple of (values, Weights)
        The values of each window and how much they count; empty where they are left behind.
    discrete : bool
        Whether values are codes.
    """

    points: Array
    weights: Array
    functions: tuple[tuple[Array, Array], ...] = ()
    pools: tuple[tuple[Array, Weights], ...] = ()
    discrete: bool = False

    @classmethod
    def from_pools(cls, pools: Iterable[tuple[Array, Weights]], n_levels: int = 0) -> Windows:
        """Summarise the values of each window; `n_levels` is the number of codes, 0 for numbers."""
        pools = tuple(pools)
        if n_levels:
            points, weights = code_grid(np.stack([counts.shares(codes, n_levels) for codes, counts in pools]))
        else:
            points, weights = map(np.stack, zip(*(window_grid(*pool) for pool in pools), strict=True))
        return cls(points, weights, pools=pools, discrete=n_levels > 0)

    @cached_property
    def drawable(self) -> Windows:
        """These windows with quantile functions in the place of the pools."""
        step = _code_steps if self.discrete else _table
        return replace(self, pools=(), functions=tuple(step(values, counts.values) for values, counts in self.pools))

    def quantiles(self, window: NDArray[np.intp], levels: Array) -> Array:
        """Values at levels of shape (k, n), by the window of each of the n rows.

        Examples
        --------
        >>> pool, alike = np.array([0.0, 1.0, 5.0, 5.0]), Weights.alike(2)
        >>> two = Windows.from_pools([(pool[:2], alike), (pool[2:], alike)]).drawable
        >>> two.quantiles(np.array([0, 1]), np.array([[0.5, 0.5], [0.25, 0.9]])).tolist()
        [[0.5, 5.0], [0.0, 5.0]]
        """
        values = np.empty(levels.shape)
        for k in np.unique(window):
            rows = window == k
            values[:, rows] = np.interp(levels[:, rows], *self.functions[k])
        return values


def _code_steps(codes: Array, weights: Array) -> tuple[Array, Array]:
    """Codes in the order of their rows."""
    ends = np.cumsum(weights) / weights.sum()
    return np.concatenate(([0.0], np.repeat(ends[:-1], 2), [1.0])), np.repeat(codes, 2)


def _table(values: Array, weights: Array) -> tuple[Array, Array]:
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    ends = np.cumsum(weights) / weights.sum()
    levels = ends - weights / (2 * weights.sum())
    same = values[1:] == values[:-1]
    tied = np.concatenate((same, [False])) | np.concatenate(([False], same))
    kept = np.arange(values.size)
    if values.size > 2 * N_END_VALUES + N_MIDDLE_VALUES:
        middle = np.linspace(N_END_VALUES, values.size - N_END_VALUES - 1, N_MIDDLE_VALUES).astype(np.intp)
        kept = np.concatenate((kept[:N_END_VALUES], middle, kept[-N_END_VALUES:]))
    levels, values, tied, weights = levels[kept], values[kept], tied[kept], weights[kept]
    apart = np.minimum(weights[1:], weights[:-1]) < NEGLIGIBLE * np.maximum(weights[1:], weights[:-1])
    steps = np.flatnonzero((tied[1:] | tied[:-1] | apart) & (values[1:] != values[:-1]))
    between = np.where(kept[steps + 1] == kept[steps] + 1, ends[kept[steps]], (levels[steps] + levels[steps + 1]) / 2)
    cuts = np.repeat(steps + 1, 2)
    both = np.column_stack((values[steps], values[steps + 1])).ravel()
    return np.insert(levels, cuts, np.repeat(between, 2)), np.insert(values, cuts, both)
