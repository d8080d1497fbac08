"""Generalised linear models of the scale of residuals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy.special import expit

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.regression.blocks import scaled_gram
from modifind.nuisance.regression.density import student_log_density, student_scores
from modifind.nuisance.regression.evidence import solve_ridge, updated_penalties

LINKS = ("exp", "softplus")
PENALTY_START = 100.0
MAX_MOVE = 3.0
MAX_SCALE_INDEX = 7.0
MAX_HALVINGS = 6
MIN_UNIT = 1e-3  # of the outcome's spread: a fit that is exact leaves no scale
MIN_QUARTILE_SHARE = 0.1  # of the upper quartile: where residuals pile up, any smaller scale would fit better

State: TypeAlias = tuple[Array, Array, float]  # index and scale of rows, and their log-likelihood


class ScaleModel:
    """Student-t scale with ``scale = unit * exp(index)`` or ``unit * (floor + softplus(index))``.

    The first link is for spreads that multiply (a gamma model of the variance with a logarithmic link, made robust),
    the second for spreads that rise from a floor in proportion to a score. Coefficients are found by Fisher scoring,
    penalties by evidence.

    Parameters
    ----------
    link : {"exp", "softplus"}
        From index to scale.
    groups : array of int
        Penalty group of each term, 0 for those without.
    """

    def __init__(self, link: str, groups: Ints) -> None:
        self.link = link
        self.groups = groups
        self.penalties = np.where(np.arange(int(groups.max()) + 1) > 0, PENALTY_START, 0.0)
        self.coefficients: Array = np.zeros(groups.size)
        self.log_floor = float(np.log(0.5))
        if link == "softplus":  # floor and softplus share the start alike
            self.coefficients[0] = np.log(np.expm1(0.5))
        self.unit = 0.0
        self.least = 0.0
        self.criterion = np.inf

    def at_index(self, index: Array, log_floor: float | None = None) -> Array:
        """Scale at values of the index."""
        if self.link == "exp":
            return np.maximum(self.unit * np.exp(np.clip(index, -MAX_SCALE_INDEX, MAX_SCALE_INDEX)), self.least)
        # log(1 + exp(index)), in half the time of np.logaddexp
        softplus = np.log1p(np.exp(-np.abs(index))) + np.maximum(index, 0.0)
        scale = self.unit * (np.exp(self.log_floor if log_floor is None else log_floor) + softplus)
        return np.maximum(scale, self.least)

    def at(self, terms: Array) -> Array:
        """Scale of rows given their terms."""
        return self.at_index(terms @ self.coefficients)

    def fit(self, terms: Array, residual: Array, shape: float, n_steps: int, weights: Weights) -> ScaleModel:
        """Take some steps of Fisher scoring from the present coefficients; `criterion` is AIC / 2, to compare links."""
        if not self.unit:
            middle, upper, far = np.quantile(np.abs(residual), (0.5, 0.75, 0.95))
            self.unit = max(float(middle) / 0.6745, 0.05 * float(far), MIN_UNIT)
            self.least = MIN_QUARTILE_SHARE * float(upper) / 1.1503
        with_floor, size, root = self.link == "softplus", self.groups.size, weights.root
        groups = np.append(self.groups, 0) if with_floor else self.groups
        plain = None  # Gram matrix of the exponential link, the same at every step
        if not with_floor:
            plain = terms.T @ terms if weights.uniform else scaled_gram(terms, root.values)

        def at(index: Array, log_floor: float) -> tuple[Array, Array, float]:
            scale = self.at_index(index, log_floor)
            return index, scale, float(weights.total(student_log_density(residual / scale, shape) - np.log(scale)))

        state = at(terms @ self.coefficients, self.log_floor)
        for step in range(n_steps):
            index, scale, _ = state
            score = weights.times(student_scores(residual / scale, shape)[1])
            if plain is None:
                gradient, gram = self._floor_derivatives(terms, index, scale, score, root)
            else:
                gradient, gram = terms.T @ score, plain
            gradient[:size] -= self.penalties[self.groups] * self.coefficients
            fisher = 2 * shape / (shape + 3) * gram
            move, inverse = solve_ridge(fisher, gradient, self.penalties, groups)
            state = self._advance(state, move, terms @ move[:size], at)
            penalties, freedom = updated_penalties(
                self.coefficients, inverse[:size, :size], np.diag(fisher)[:size], self.penalties, self.groups
            )
            if step < n_steps - 1:
                self.penalties = penalties
        self.criterion = freedom + with_floor - state[2]
        return self

    def _floor_derivatives(
        self, terms: Array, index: Array, scale: Array, score: Array, root: Weights
    ) -> tuple[Array, Array]:
        """Gradient of the log-likelihood and the Gram matrix of the log-scale's slopes, the floor's coming last.

        Weights are in the scores already; the matrix takes their square roots.
        """
        slope = self.unit * expit(index) / scale
        floor = self.unit * np.exp(self.log_floor) / scale
        gradient = np.append(terms.T @ (slope * score), floor @ score)
        slope, floor = root.times(slope), root.times(floor)
        mixed = terms.T @ (slope * floor)
        return gradient, np.block([[scaled_gram(terms, slope), mixed[:, None]], [mixed, floor @ floor]])

    def _advance(self, start: State, move: Array, shift: Array, at: Callable[[Array, float], State]) -> State:
        """Step as far as the penalised likelihood improves; `shift` is what the whole move adds to the index."""
        penalty, change = self.penalties[self.groups], move[: self.groups.size]
        length = min(1.0, MAX_MOVE / max(float(np.abs(shift).max()), 1e-12))
        before = start[2] - 0.5 * float(penalty @ self.coefficients**2)
        for _ in range(MAX_HALVINGS):
            coefficients, log_floor = self.coefficients + length * change, self.log_floor
            if self.link == "softplus":
                log_floor += float(np.clip(length * move[-1], -1.0, 1.0))
            state = at(start[0] + length * shift, log_floor)
            if state[2] - 0.5 * float(penalty @ coefficients**2) >= before:
                self.coefficients, self.log_floor = coefficients, log_floor
                return state
            length /= 2
        return start
