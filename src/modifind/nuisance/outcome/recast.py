"""A learner that sees other columns than those it is asked about: filled in, recoded, or only some of them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.nuisance.outcome.contract import index_of, looks_at, predict_along, predict_arms, without_rows


class Recast(Protocol):
    """How columns change on their way to a learner; one that makes levels alike has ``alike(columns)`` too."""

    def __call__(self, X: Array, first: int = 0) -> Array:
        """Rows, of any shape, whose last axis has all columns, or neighbouring ones from `first` on, changed."""

    def place(self, columns: slice) -> slice:
        """Where columns are among those that the learner sees; nowhere where it sees none of them."""


class RecastLearner:
    """A learner and what stands before it.

    Parameters
    ----------
    model : learner
        The learner.
    recast : Recast
        Made from the rows that it is fitted to, and from no others.
    """

    def __init__(self, model: Any, recast: Recast) -> None:
        self.model = self.stands_for = model
        self.recast = recast

    def fit(self, X: Array, a: Ints, y: Array, **given: Any) -> RecastLearner:
        """Fit the learner."""
        self.model.fit(self.recast(X), a, y, **given)
        return self

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Location and scale of every row in both arms, shape (n, 2) each."""
        return predict_arms(self.model, self.recast(X))

    def index(self, X: Array) -> Array | None:
        """What the learner can reuse from feature to feature."""
        return index_of(self.model, self.recast(X))

    def without_rows(self) -> RecastLearner:
        """The same before a learner that keeps nothing of its training rows."""
        return RecastLearner(without_rows(self.model), self.recast)

    def looks_at(self, columns: slice) -> bool:
        """Whether the learner looks at any of some columns."""
        own = self.recast.place(columns)
        return own.stop > own.start and looks_at(self.model, own)

    def alike(self, columns: slice) -> NDArray[np.intp] | None:
        """Groups of levels that the learner cannot tell apart."""
        known = next((part for part in (self.recast, self.model) if hasattr(part, "alike")), None)
        return None if known is None else known.alike(columns)

    def along(self, X: Array, columns: slice, points: Array, index: Array | None = None) -> tuple[Array, Array]:
        """Location and scale, shape (n, g, 2) each, when some columns take the values `points`, (n, g, width)."""
        own, seen = self.recast.place(columns), self.recast(X)
        if own.stop > own.start:
            return predict_along(self.model, seen, own, self.recast(points, columns.start), index)
        first = slice(0, 1)  # nothing moves: one point, the row as it is, stands for all
        location, scale = predict_along(self.model, seen, first, seen[:, None, first], index)
        shape = (*points.shape[:2], 2)
        return np.broadcast_to(location, shape), np.broadcast_to(scale, shape)
