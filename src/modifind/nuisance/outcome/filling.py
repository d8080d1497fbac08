"""Missing values filled in by means of the rows that a learner is fitted to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modifind._typing import Array


@dataclass(frozen=True)
class Filling:
    """Values in place of the missing ones of some columns.

    Attributes
    ----------
    columns : tuple of int
        Columns of values; the column after each indicates which of them are missing.
    means : tuple of float
        The values in place of missing ones.
    """

    columns: tuple[int, ...] = ()
    means: tuple[float, ...] = ()

    @classmethod
    def from_rows(cls, X: Array, columns: tuple[int, ...]) -> Filling:
        """Learn the mean of the known values of each column; 0 where none is known."""
        known = [X[X[:, j + 1] == 0, j] for j in columns]
        return cls(columns, tuple(float(values.mean()) if values.size else 0.0 for values in known))

    def __call__(self, X: Array, first: int = 0) -> Array:
        """Rows, of any shape, whose last axis has all columns, or neighbouring ones from `first` on, filled in."""
        X = X.copy() if self.columns else X
        for j, mean in zip(self.columns, self.means, strict=True):
            if first <= j < first + X.shape[-1] - 1:
                values, missing = X[..., j - first], X[..., j + 1 - first] > 0
                X[..., j - first] = np.where(missing, mean, values)
        return X
