"""Learners of the outcome where values are missing: filled in by the mean of the rows that a learner is fitted to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modifind._typing import Array


@dataclass(frozen=True)
class Filling:
    """What missing values of some columns are filled in by.

    Attributes
    ----------
    columns : tuple of int
        Columns of values; the column after each indicates which of them are missing.
    means : tuple of float
        What those get.
    """

    columns: tuple[int, ...] = ()
    means: tuple[float, ...] = ()

    @classmethod
    def from_rows(cls, X: Array, columns: tuple[int, ...]) -> Filling:
        """Means of the rows in which each column is not missing; 0 where it is in all."""
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
