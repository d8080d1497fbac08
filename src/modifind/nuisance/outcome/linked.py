"""Generalised additive models of outcomes in two arms, fitted by iterated weighted least squares."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.outcome.additive import AdditiveArms, ArmLocations
from modifind.nuisance.regression.terms import AdditiveTerms


class AdditiveIndex(AdditiveArms):
    """Base of learners of outcomes that depend on one index in each arm, a sum of smooth functions of single columns.

    As in `AdditiveLearner`, there is a part common to both arms and a difference between them, every line and every
    curve has its own penalty, and products of two columns enter where residuals call for them.

    Parameters
    ----------
    n_knots : int, default=12
        Knots of the curves of the common part; 0 leaves straight lines.
    contrast_curves : int, default=5
        Number of curves that the arms' difference may use.
    products : bool, default=True
        Whether products of two columns may enter.
    """

    rounds: ClassVar[int] = 4
    limits_: tuple[float, float] = (-8.0, 8.0)  # of the index

    def __init__(self, n_knots: int = 12, *, contrast_curves: int = 5, products: bool = True) -> None:
        self.n_knots = n_knots
        self.contrast_curves = contrast_curves
        self.products = products

    @abstractmethod
    def _constant_index(self, y: Array, counts: Weights) -> float:
        """Index of an arm whose outcome depends on no column."""

    @abstractmethod
    def _score_and_information(self, y: Array, index: Array) -> tuple[Array, Array]:
        """Derivative of every row's log-likelihood with respect to its index, and the Fisher information."""

    @abstractmethod
    def _location_and_scale(self, index: Array) -> tuple[Array, Array]:
        """Predictions at values of the index."""

    def _fit_shared(self, y: Array, index: Array, counts: Weights) -> None:
        """Fit the parameters beside the index, which both arms share."""

    def fit(self, X: Array, a: Ints, y: Array, sample_weight: Array | None = None) -> Self:
        """Iterated weighted least squares, with penalties updated by evidence on the way.

        Weights are scaled to sum to the effective sample size.
        """
        rows = [np.flatnonzero(a == arm) for arm in (0, 1)]
        arms = slice(0, rows[0].size), slice(rows[0].size, None)  # of rows in the order of their arms
        order = np.concatenate(rows)
        y, counts = y[order], Weights.of(sample_weight, y.size).effective[order]
        index = np.concatenate([np.full(y[arm].size, self._constant_index(y[arm], counts[arm])) for arm in arms])
        self.terms_ = AdditiveTerms.of(X, self.n_knots)
        terms: list[Array] = []
        locations = self._use(X, rows, terms)
        for turn in range(self.rounds):
            self._fit_shared(y, index, counts)
            score, information = self._score_and_information(y, index)
            if turn == 1 and self.products:
                weighted = counts.times(score)
                self.terms_ = self.terms_.with_products(X, [[weighted[arm] for arm in arms]], rows)
                if self.terms_.pairs:
                    locations = self._use(X, rows, terms)
            working, weight = index + score / information, counts.times(information)
            locations.fit_least_squares(
                [(terms[k], working[arm], weight[arm]) for k, arm in enumerate(arms)], n_steps=4
            )
            fitted = [design @ coefficients for design, coefficients in zip(terms, locations.coefficients, strict=True)]
            index = np.clip(np.concatenate(fitted), *self.limits_)
        self._fit_shared(y, index, counts)
        self.coefficients_ = np.stack(locations.coefficients, axis=1)
        return self

    def _use(self, X: Array, rows: list[NDArray[np.intp]], terms: list[Array]) -> ArmLocations:
        """Evaluate the terms of each arm's rows, and start with new penalties."""
        terms.clear()  # they fill most of the memory: never twice
        terms += (self.terms_(X[r]) for r in rows)
        return ArmLocations(self.terms_.groups, np.flatnonzero(self.terms_.degree <= self.contrast_curves))

    def _outputs(self, total: Array) -> tuple[Array, Array]:
        return self._location_and_scale(np.clip(total, *self.limits_))
