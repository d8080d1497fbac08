"""Learners of the outcome where values are missing: filled in by the mean of the rows that a learner is fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.nuisance.outcome.contract import looks_at, predict_along, predict_arms


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

    columns: tuple[int, ...]
    means: tuple[float, ...]

    @classmethod
    def of(cls, X: Array, columns: tuple[int, ...]) -> Filling:
        """Means of the rows in which each column is not missing; 0 where it is in all."""
        means = []
        for j in columns:
            own = X[X[:, j + 1] == 0, j]
            means.append(float(own.mean()) if own.size else 0.0)
        return cls(columns, tuple(means))

    def __call__(self, X: Array, first: int = 0) -> Array:
        """Rows, of any shape, whose last axis has all columns, or neighbouring ones from `first` on, filled in."""
        places = [(j - first, mean) for j, mean in zip(self.columns, self.means, strict=True)]
        places = [(j, mean) for j, mean in places if j >= 0 and j + 1 < X.shape[-1]]
        if not places:
            return X
        X = X.copy()
        for j, mean in places:
            X[..., j] = np.where(X[..., j + 1] > 0, mean, X[..., j])
        return X


class FilledLearner:
    """A learner that is given filled columns.

    Parameters
    ----------
    model : learner
        The learner.
    filling : Filling
        Made from the rows that it is fitted to, and from no others.
    """

    def __init__(self, model: Any, filling: Filling) -> None:
        self.model = model
        self.filling = filling

    def fit(self, X: Array, a: Ints, y: Array, **given: Any) -> FilledLearner:
        """Fit the learner."""
        self.model.fit(self.filling(X), a, y, **given)
        return self

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Location and scale of every row in both arms, shape (n, 2) each."""
        return predict_arms(self.model, self.filling(X))

    def index(self, X: Array) -> Array | None:
        """What the learner can reuse from feature to feature."""
        return self.model.index(self.filling(X)) if hasattr(self.model, "index") else None

    def looks_at(self, columns: slice) -> bool:
        """Whether the learner looks at any of some columns."""
        return looks_at(self.model, columns)

    def alike(self, columns: slice) -> NDArray[np.intp] | None:
        """Groups of levels that the learner cannot tell apart."""
        return self.model.alike(columns) if hasattr(self.model, "alike") else None

    def along(self, X: Array, columns: slice, points: Array, index: Array | None = None) -> tuple[Array, Array]:
        """Location and scale, shape (n, g, 2) each, when some columns take the values `points`, (n, g, width)."""
        return predict_along(self.model, self.filling(X), columns, self.filling(points, columns.start), index)
