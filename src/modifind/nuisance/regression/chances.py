"""Class probabilities from a classifier, which may be one of the user's."""

from __future__ import annotations

from typing import Any

import numpy as np

from modifind._typing import Array

ROUNDING = 1e-6


def check_chances(chances: Array, caller: str) -> None:
    """Refuse values that are not probabilities; `caller` names the learner and the method that returned them."""
    bad = ~((chances >= -ROUNDING) & (chances <= 1.0 + ROUNDING))
    if bad.any():
        raise ValueError(f"{caller} must give probabilities between 0 and 1; found {chances[bad][0]:g}")


def predict_chances(model: Any, X: Array) -> Array:
    """Class probabilities of rows, shape (n, classes), checked.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> predict_chances(DummyClassifier().fit([[0], [0]], [0, 1]), np.zeros((1, 1)))
    array([[0.5, 0.5]])
    """
    caller = f"{type(model).__name__}.predict_proba"
    chances = np.asarray(model.predict_proba(X), dtype=np.float64)
    if chances.ndim != 2 or len(chances) != len(X):
        raise ValueError(
            f"{caller} must return one row per row of X and one column per class; found shape {chances.shape}"
        )
    check_chances(chances, caller)
    return chances
