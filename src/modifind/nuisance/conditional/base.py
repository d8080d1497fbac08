"""Distributions that samplers fit, each for the rows of a table.

Draws come one resample after the other from one random stream, so that the number of resamples asked for at a time
never changes them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.conditional.contract import Calibration, Rows
from modifind.nuisance.conditional.grid import NORMAL_POINTS, NORMAL_WEIGHTS, Distribution, code_grid
from modifind.nuisance.conditional.window_quantiles import Windows


@dataclass(frozen=True)
class NormalConditional(Distribution):
    """Normal with a mean per row and one standard deviation."""

    mean: Array
    scale: float
    calibration: Calibration

    def __len__(self) -> int:
        return self.mean.size

    def quantiles(self, levels: Array) -> Array:
        """Values at levels between 0 and 1, shape (k, n)."""
        return self.mean + self.scale * ndtri(np.maximum(levels, 2.0**-54))

    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """Equally spaced normal scores."""
        points = self.mean[rows, None] + self.scale * NORMAL_POINTS
        return points, np.broadcast_to(NORMAL_WEIGHTS, points.shape)


@dataclass(frozen=True)
class CategoricalConditional(Distribution):
    """Category probabilities per row, shape (n, k)."""

    probabilities: Array
    calibration: Calibration

    def __len__(self) -> int:
        return len(self.probabilities)

    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """The codes and their probabilities."""
        cumulative = np.cumsum(self.probabilities[rows], axis=1)[:, :-1]
        # Rounding may carry a cumulative sum beyond 1.
        return code_grid(np.maximum(np.diff(cumulative, axis=1, prepend=0.0, append=1.0), 0.0))


@dataclass(frozen=True)
class WindowConditional(Distribution):
    """Every row has the distribution of one of a few windows of values, times `scale` plus `shift`."""

    windows: Windows
    window: NDArray[np.intp]
    shift: Array
    scale: Array
    calibration: Calibration

    def __len__(self) -> int:
        return self.window.size

    def draw(self, rng: np.random.Generator, n_draws: int) -> Array:
        """Resampled columns; of numbers, values between neighbours of a window too."""
        levels = rng.random((n_draws, len(self)))
        if not self.windows.pools:
            return self.quantiles(levels)
        return self.shift + self.scale * self.windows.drawable.quantiles(self.window, levels)

    def quantiles(self, levels: Array) -> Array:
        """Values at levels between 0 and 1, shape (k, n): by quantile functions, or else of the points."""
        if not self.windows.functions:
            return super().quantiles(levels)
        return self.shift + self.scale * self.windows.quantiles(self.window, levels)

    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """Atoms and cell means of each row's window, or the codes and their frequencies in it."""
        window = self.window[rows]
        points = self.shift[rows, None] + self.scale[rows, None] * self.windows.points[window]
        return points, self.windows.weights[window]


class PoolConditional(WindowConditional):
    """Draws from a window of a pool of values, `size` of them from `start` on, times `scale` plus `shift`.

    A pool of codes says by `n_levels` how many there are. Values are drawn in proportion to `weights`.
    """

    def __init__(
        self,
        pool: Array,
        start: Ints,
        size: Ints,
        calibration: Calibration,
        shift: Array,
        scale: Array,
        weights: Weights,
        n_levels: int = 0,
    ) -> None:
        _, first, window = np.unique(np.stack((start, size)), axis=1, return_index=True, return_inverse=True)
        spans = [slice(start[row], start[row] + size[row]) for row in first]
        windows = Windows.from_pools([(pool[span], weights[span]) for span in spans], n_levels)
        super().__init__(windows, window.ravel(), shift, scale, calibration)
