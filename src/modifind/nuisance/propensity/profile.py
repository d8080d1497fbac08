"""Propensity scores of all rows as one feature moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from modifind._typing import Array


@dataclass(frozen=True)
class ScoreProfile:
    """Logit scores of all rows along one feature: ``offset + slope * x``, or a table over categories or grid values.

    Where the feature may be missing, `missing` has the logit scores of the rows without it.
    """

    clip: tuple[float, float]
    offset: Array
    slope: Array | None = None
    table: Array | None = None
    grid: Array | None = None
    missing: Array | None = None

    def __call__(self, x: Array) -> Array:
        """Clipped scores of all rows when the feature takes the values `x`, shape (n,)."""
        if self.table is not None:
            rows = np.arange(x.size)
            if self.grid is None:
                index = self.table[rows, x.astype(np.intp)]
            elif self.grid.size == 1:  # a constant column
                index = self.table[:, 0]
            else:
                right = np.clip(np.searchsorted(self.grid, x), 1, self.grid.size - 1)
                left = right - 1
                share = np.clip((x - self.grid[left]) / (self.grid[right] - self.grid[left]), 0.0, 1.0)
                index = (1 - share) * self.table[rows, left] + share * self.table[rows, right]
        elif self.slope is not None:
            index = self.offset + self.slope * x
        else:
            index = self.offset
        if self.missing is not None:
            index = np.where(np.isnan(x), self.missing, index)
        return np.clip(expit(index), *self.clip)
