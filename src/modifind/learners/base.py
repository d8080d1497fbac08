"""What outcome learners have in common, and how any of them is followed along one feature."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from modifind.kernels import Array

TINY = np.finfo(np.float64).tiny


class OutcomeLearner(Protocol):
    """Location and scale of the outcome in both arms.

    For a binary outcome the location is a probability and the scale is not used. A learner may also have
    ``along(X, columns, points)``, which gives the same two arrays, of shape (n, g, 2), when the columns take other
    values; one that has not is called with the rows repeated. With ``index(X)`` beside it, what that gives for the rows
    as they are is computed once and handed to ``along(..., index)`` for every feature.
    """

    def fit(self, X: Array, a: NDArray[np.int64], y: Array) -> Any:
        """Learn from features as a numeric matrix, arms 0 and 1, and the outcome."""

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Location and scale, each of shape (n, 2) with one column per arm."""


def predict_arms(model: OutcomeLearner, X: Array) -> tuple[Array, Array]:
    """Location and scale of both arms, checked."""
    location, scale = (np.asarray(part, dtype=np.float64) for part in model.predict(X))
    for name, part in (("location", location), ("scale", scale)):
        if part.shape != (X.shape[0], 2):
            raise ValueError(
                f"{type(model).__name__}.predict must return (location, scale) of shape ({X.shape[0]}, 2), one column "
                f"per arm; its {name} has shape {part.shape}"
            )
        if not np.isfinite(part).all():
            raise ValueError(f"{type(model).__name__}.predict returned a {name} that is not finite")
    if (scale < 0).any():
        raise ValueError(f"{type(model).__name__}.predict returned a negative scale")
    return location, np.maximum(scale, TINY)


def predict_along(
    model: OutcomeLearner, X: Array, columns: slice, points: Array, index: Array | None = None
) -> tuple[Array, Array]:
    """Location and scale, shape (n, g, 2) each, when `columns` take the values `points` of shape (n, g, width)."""
    if hasattr(model, "along"):
        return model.along(X, columns, points) if index is None else model.along(X, columns, points, index)
    n, g = points.shape[:2]
    rows = np.repeat(X, g, axis=0)
    rows[:, columns] = points.reshape(n * g, -1)
    location, scale = predict_arms(model, rows)
    return location.reshape(n, g, 2), scale.reshape(n, g, 2)
