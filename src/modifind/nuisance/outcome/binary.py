"""Additive logistic models of a binary outcome in two arms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from modifind._typing import Array, Ints
from modifind.data.survey import effective_weights, mean_of, some
from modifind.nuisance.outcome.additive import AdditiveArms, ArmLocations
from modifind.nuisance.regression.density import counted
from modifind.nuisance.regression.terms import AdditiveTerms

MAX_INDEX = 8.0
ROUNDS = 4


class AdditiveClassifier(AdditiveArms):
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

    def fit(self, X: Array, a: Ints, y: Array, sample_weight: Array | None = None) -> AdditiveClassifier:
        """Iterated weighted least squares; penalties by evidence on the way.

        Weights are scaled to sum to the effective sample size.
        """
        counts = effective_weights(sample_weight)
        rows = [np.flatnonzero(a == arm) for arm in (0, 1)]
        arms = [_Arm(y[r], some(counts, r)) for r in rows]
        self.terms_ = AdditiveTerms.of(X, self.n_knots)
        terms: list[Array] = []
        locations = self._use(X, rows, terms)
        for turn in range(ROUNDS):
            if turn == 1 and self.products:
                scores = [counted(arm.y - expit(arm.index), arm.counts) for arm in arms]
                self.terms_ = self.terms_.with_products(X, [scores], rows)
                if self.terms_.pairs:
                    locations = self._use(X, rows, terms)
            locations.fit_least_squares([(t, *arm.working()) for t, arm in zip(terms, arms, strict=True)], n_steps=4)
            for k, arm in enumerate(arms):
                arm.index = np.clip(terms[k] @ locations.coefficients[k], -MAX_INDEX, MAX_INDEX)
        self.coefficients_ = np.stack(locations.coefficients, axis=1)
        return self

    def _use(self, X: Array, rows: list[NDArray[np.intp]], terms: list[Array]) -> ArmLocations:
        """Fill in the terms of each arm's rows and begin anew."""
        terms.clear()  # they fill most of the memory: never twice
        terms += (self.terms_(X[r]) for r in rows)
        return ArmLocations(self.terms_.groups, np.flatnonzero(self.terms_.degree <= self.contrast_curves))

    def _outputs(self, total: Array) -> tuple[Array, Array]:
        """Probability and the standard deviation that it gives, from log-odds."""
        probability = expit(np.clip(total, -MAX_INDEX, MAX_INDEX))
        return probability, np.sqrt(probability * (1 - probability))


class _Arm:
    """Outcomes of one arm, the weights of its rows, and their log-odds so far."""

    def __init__(self, y: Array, counts: Array | None) -> None:
        self.y, self.counts = y, counts
        self.index = np.full(y.size, _logit(mean_of(y, counts)))

    def working(self) -> tuple[Array, Array]:
        """Working outcomes of weighted least squares, and their weights."""
        mean = expit(self.index)
        weight = mean * (1 - mean)
        return self.index + (self.y - mean) / weight, counted(weight, self.counts)


def _logit(share: float) -> float:
    share = float(np.clip(share, 1e-3, 1 - 1e-3))
    return float(np.log(share / (1 - share)))
