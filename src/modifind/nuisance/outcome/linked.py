"""Additive models of outcomes in two arms whose likelihood has one index: iterated weighted least squares."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.outcome.additive import AdditiveArms, ArmLocations
from modifind.nuisance.regression.terms import AdditiveTerms


@dataclass
class IndexedRows:
    """Outcomes of one arm, the weights of its rows, and their index so far."""

    y: Array
    counts: Weights
    index: Array


def joint_weights(arms: list[IndexedRows]) -> Weights:
    """The weights of the rows of both arms."""
    return Weights(np.concatenate([arm.counts.values for arm in arms]), arms[0].counts.uniform)


class AdditiveIndex(AdditiveArms):
    """A learner whose outcome depends on one index in each arm: a sum of smooth functions of single columns.

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

    rounds: ClassVar[int] = 4

    def __init__(self, n_knots: int = 12, *, contrast_curves: int = 5, products: bool = True) -> None:
        self.n_knots = n_knots
        self.contrast_curves = contrast_curves
        self.products = products

    @abstractmethod
    def _begin(self, y: Array, counts: Weights) -> float:
        """Index of an arm that no column tells apart."""

    @abstractmethod
    def _step(self, y: Array, index: Array) -> tuple[Array, Array]:
        """Derivative of every row's log-likelihood by its index, and the Fisher information."""

    @abstractmethod
    def _kept(self, index: Array) -> Array:
        """The index, kept where it can be."""

    def _share(self, arms: list[IndexedRows]) -> None:
        """Learn what rows of both arms share beside the index."""

    def fit(self, X: Array, a: Ints, y: Array, sample_weight: Array | None = None) -> Self:
        """Iterated weighted least squares; penalties by evidence on the way.

        Weights are scaled to sum to the effective sample size.
        """
        counts = Weights.of(sample_weight, y.size).effective
        rows = [np.flatnonzero(a == arm) for arm in (0, 1)]
        arms = []
        for r in rows:
            own = counts[r]
            arms.append(IndexedRows(y[r], own, np.full(r.size, self._begin(y[r], own))))
        self.terms_ = AdditiveTerms.of(X, self.n_knots)
        terms: list[Array] = []
        locations = self._use(X, rows, terms)
        for turn in range(self.rounds):
            self._share(arms)
            if turn == 1 and self.products:
                scores = [arm.counts.times(self._step(arm.y, arm.index)[0]) for arm in arms]
                self.terms_ = self.terms_.with_products(X, [scores], rows)
                if self.terms_.pairs:
                    locations = self._use(X, rows, terms)
            locations.fit_least_squares([self._working(*own) for own in zip(terms, arms, strict=True)], n_steps=4)
            for k, arm in enumerate(arms):
                arm.index = self._kept(terms[k] @ locations.coefficients[k])
        self._share(arms)
        self.coefficients_ = np.stack(locations.coefficients, axis=1)
        return self

    def _working(self, terms: Array, arm: IndexedRows) -> tuple[Array, Array, Array]:
        """Terms, working outcomes of weighted least squares, and their weights."""
        score, information = self._step(arm.y, arm.index)
        return terms, arm.index + score / information, arm.counts.times(information)

    def _use(self, X: Array, rows: list[NDArray[np.intp]], terms: list[Array]) -> ArmLocations:
        """Fill in the terms of each arm's rows and begin anew."""
        terms.clear()  # they fill most of the memory: never twice
        terms += (self.terms_(X[r]) for r in rows)
        return ArmLocations(self.terms_.groups, np.flatnonzero(self.terms_.degree <= self.contrast_curves))
