"""Chances that a classifier gives, which may be one of the user's."""

from __future__ import annotations

from typing import Any

import numpy as np

from modifind._typing import Array

ROUNDING = 1e-6


def check_chances(found: Array, caller: str) -> None:
    """Refuse what is no chance; `caller` is the learner and the method that gave it."""
    bad = ~((found >= -ROUNDING) & (found <= 1.0 + ROUNDING))
    if bad.any():
        raise ValueError(f"{caller} must give probabilities between 0 and 1; found {found[bad][0]:g}")


def predict_chances(model: Any, X: Array) -> Array:
    """Class probabilities of rows, shape (n, classes), checked.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> predict_chances(DummyClassifier().fit([[0], [0]], [0, 1]), np.zeros((1, 1)))
    array([[0.5, 0.5]])
    """
    caller = f"{type(model).__name__}.predict_proba"
    found = np.asarray(model.predict_proba(X), dtype=np.float64)
    if found.ndim != 2 or len(found) != len(X):
        raise ValueError(
            f"{caller} must return one row per row of X and one column per class; found shape {found.shape}"
        )
    check_chances(found, caller)
    return found
