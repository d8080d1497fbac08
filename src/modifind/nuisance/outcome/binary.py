"""Additive logistic models of a binary outcome in two arms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator

from modifind._typing import Array
from modifind.data.survey import effective_weights, mean_of
from modifind.nuisance.outcome.additive import ArmLocations
from modifind.nuisance.regression.terms import AdditiveTerms

MAX_INDEX = 8.0
ROUNDS = 4


class AdditiveClassifier(BaseEstimator):
    """Probability of the outcome in each arm: a logistic function of smooth functions of single columns.

    The same parts as `AdditiveLearner`: common to both arms, and their difference, every line and every curve with a
    penalty of its own, and products of two columns where residuals call for them.

    Parameters
    ----------
    n_knots : int, default=12
        Knots of the curves of the common part; 0 leaves straight lines.
    contrast_curves : int, default=5
        Number of curves that the arms' difference may use.
    products : bool, default=True
        Whether products of two columns may enter.
    """

    def __init__(self, n_knots: int = 12, *, contrast_curves: int = 5, products: bool = True) -> None:
        self.n_knots = n_knots
        self.contrast_curves = contrast_curves
        self.products = products

    def fit(self, X: Array, a: NDArray[np.int64], y: Array, sample_weight: Array | None = None) -> AdditiveClassifier:
        """Iterated weighted least squares; penalties by evidence on the way.

        Weights are scaled to sum to the effective sample size.
        """
        rows = [np.flatnonzero(a == arm) for arm in (0, 1)]
        counts: list[Array | None] = [None, None]
        if sample_weight is not None:
            scaled = effective_weights(np.asarray(sample_weight, dtype=np.float64))
            counts = [scaled[r] for r in rows]
        self.terms_ = AdditiveTerms.of(X, self.n_knots)
        index = [np.full(r.size, _logit(mean_of(y[r], count))) for r, count in zip(rows, counts, strict=True)]
        for turn in range(ROUNDS):
            if turn == 1 and self.products:
                scores = [_counted(y[r] - expit(i), c) for r, i, c in zip(rows, index, counts, strict=True)]
                self.terms_ = self.terms_.with_products(X, [scores], rows, bends=True)
            if turn == 0 or (turn == 1 and self.terms_.pairs):
                contrast = np.flatnonzero(self.terms_.degree <= self.contrast_curves)
                locations = ArmLocations(self.terms_.groups, contrast)
                terms: list[Array] = []  # they fill most of the memory: never twice
                terms += (self.terms_(X[r]) for r in rows)
            means = [expit(i) for i in index]
            weights = [own * (1 - own) for own in means]
            working = [i + (y[r] - own) / weight for i, r, own, weight in zip(index, rows, means, weights, strict=True)]
            weights = [_counted(weight, count) for weight, count in zip(weights, counts, strict=True)]
            locations.fit_least_squares(list(zip(terms, working, weights, strict=True)), n_steps=4)
            index = [np.clip(terms[k] @ locations.coefficients[k], -MAX_INDEX, MAX_INDEX) for k in (0, 1)]
        self.coefficients_ = np.stack(locations.coefficients, axis=1)
        return self

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Probability of every row in both arms, and the standard deviation that it gives; shape (n, 2) each."""
        return _outputs(self.index(X))

    def index(self, X: Array) -> Array:
        """Log-odds of the rows as they are, which `along` can reuse from feature to feature."""
        return self.terms_.combine(X, self.coefficients_)

    def along(self, X: Array, columns: slice, points: Array, index: Array | None = None) -> tuple[Array, Array]:
        """The same, shape (n, g, 2) each, when some columns take the values `points`, (n, g, width)."""
        return _outputs(self.terms_.along(X, columns, points, self.coefficients_, index))


def _counted(values: Array, counts: Array | None) -> Array:
    return values if counts is None else counts * values


def _outputs(index: Array) -> tuple[Array, Array]:
    probability = expit(np.clip(index, -MAX_INDEX, MAX_INDEX))
    return probability, np.sqrt(probability * (1 - probability))


def _logit(share: float) -> float:
    share = float(np.clip(share, 1e-3, 1 - 1e-3))
    return float(np.log(share / (1 - share)))
