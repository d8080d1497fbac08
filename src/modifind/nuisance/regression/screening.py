"""Screening of many columns: when columns are many, and which of them a model of one variable uses.

Every choice is made on the rows that the model is fitted to, and never on those it is evaluated on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression

from modifind._typing import Array
from modifind.data.weights import Weights

FEW_COLUMNS = 60
MIN_ROWS_PER_COLUMN = 8
ROWS_PER_SCREENED = 20
MIN_SCREENED = 20


def has_many_columns(n_rows: int, n_columns: int) -> bool:
    """Whether columns are too many for a model of all of them at once: above 60, and above an eighth of the rows."""
    return n_columns > max(FEW_COLUMNS, n_rows / MIN_ROWS_PER_COLUMN)


class Association:
    """How strongly columns are associated with other variables; what all variables share is computed once.

    The measure is the largest correlation between the column or its square and a variable or its square, so that a
    column counts too if it affects only the spread of a variable, or affects it in a curve.

    Parameters
    ----------
    columns : array of shape (n, p)
        Columns to choose from.
    weights : Weights, optional
        How much each row counts.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 4))
    >>> Association(x).order(x[:, 2:3] ** 2 + 0.1 * x[:, :1])[:1]
    array([2])
    """

    def __init__(self, columns: Array, weights: Weights | None = None) -> None:
        self.weights = weights = Weights.of(weights, columns.shape[0])
        lines = columns - weights.mean(columns)
        self.shapes = []
        for shape in (lines, lines**2):
            squares = np.einsum("ij,ij->j", weights.times(shape), shape) - weights.total(shape) ** 2 / weights.sum
            self.shapes.append((shape, np.where(squares > 1e-12, np.sqrt(np.maximum(squares, 1e-12)), np.inf)))

    def order(self, targets: Array) -> NDArray[np.intp]:
        """Positions of the columns, most associated with any of the variables, shape (n, q), first."""
        centred = targets - self.weights.mean(targets)
        sides = np.column_stack((centred, centred**2 - self.weights.mean(centred**2)))
        sides /= np.maximum(np.sqrt(self.weights.total(sides**2)), np.finfo(float).tiny)
        sides = self.weights.times(sides)
        strength = [np.abs(shape.T @ sides).max(axis=1) / norm for shape, norm in self.shapes]
        return np.argsort(-np.maximum(*strength), kind="stable")


class ScreenedLogistic(LogisticRegression):
    """Ridge-penalised logistic regression on the columns most associated with the label, one for every 20 rows.

    The columns are chosen when the model is fitted, on the rows that it is fitted to; the others get a slope of zero.
    """

    def fit(self, X: Array, y: ArrayLike, sample_weight: Any = None) -> ScreenedLogistic:
        """Choose the columns and fit their slopes."""
        labels = np.asarray(y)
        treated = (labels == labels.max())[:, None].astype(np.float64)
        order = Association(X, Weights.of(sample_weight, labels.size)).order(treated)
        kept = np.sort(order[: max(labels.size // ROWS_PER_SCREENED, MIN_SCREENED)])
        super().fit(X[:, kept], labels, sample_weight)
        slopes: Array = np.zeros((1, X.shape[1]))
        slopes[:, kept] = self.coef_
        self.coef_: Array = slopes
        self.n_features_in_: int = X.shape[1]
        return self
