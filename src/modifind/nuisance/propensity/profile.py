"""Propensity scores of all rows as one feature moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
        index = self.index(x, np, np.arange(x.size), lambda codes: codes.astype(np.intp))
        return np.clip(expit(index), *self.clip)

    def index(self, x: Any, xp: Any, rows: Any, whole: Callable[[Any], Any]) -> Any:
        """Logit scores, by numpy or by torch, whose own arrays all are; `whole` makes indices of codes."""
        table, grid = self.table, self.grid
        if table is None:
            index = self.offset if self.slope is None else self.offset + self.slope * x
        elif grid is None:
            index = table[rows, whole(x)]
        elif len(grid) == 1:  # a constant column
            index = table[:, 0]
        else:
            right = xp.searchsorted(grid, x).clip(1, len(grid) - 1)
            left = right - 1
            share = ((x - grid[left]) / (grid[right] - grid[left])).clip(0.0, 1.0)
            index = (1 - share) * table[rows, left] + share * table[rows, right]
        return index if self.missing is None else xp.where(xp.isnan(x), self.missing, index)
