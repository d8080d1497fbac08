"""Outcomes of two values. The location is the probability of the larger one, and effects are differences of risks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modifind._typing import Array
from modifind.statistics.families.contract import Family

EDGE = 1e-3  # probabilities are kept this far from 0 and 1


@dataclass(frozen=True)
class Bernoulli(Family):
    """A coin, which has no scale; as densities take it, 1 is the larger value.

    Examples
    --------
    >>> coin = Bernoulli()
    >>> coin.coded(np.array([2.0, 1.0])).tolist(), coin.variance(np.array([0.5]), np.ones(1)).tolist()
    ([1.0, 0.0], [0.25])
    """

    name = "bernoulli"
    kind = "binary"

    def accepts(self, y: Array) -> bool:
        """Outcomes with two values."""
        return bool(((y == y.min()) | (y == y.max())).all())

    def coded(self, y: Array) -> Array:
        """1 for the larger value, and 0."""
        return (y == y.max()).astype(np.float64)

    def location(self, eta: Array) -> Array:
        """A probability."""
        return np.clip(eta, EDGE, 1 - EDGE)

    def log_density(self, y: Array, location: Array | float, scale: Array | float, shape: Array | float) -> Array:
        """That of the row's side of the coin."""
        probability = np.clip(location, EDGE, 1 - EDGE)
        return np.where(y > 0.5, np.log(probability), np.log1p(-probability))

    def residual(self, y: Array, location: Array, scale: Array | float) -> Array:
        """Outcome less probability."""
        return y - location

    def best_shape(self, residual: Array, weights: Array | None = None) -> float:
        """There is none to choose."""
        return np.inf

    def origin(self, y: Array) -> tuple[float, float]:
        """Probabilities have no units."""
        return 0.0, 1.0

    def marginal(self, y: Array, least_scale: float) -> tuple[float, float, float]:
        """The frequency."""
        return float(np.clip(y.mean(), EDGE, 1 - EDGE)), 1.0, np.inf

    def expected(self, location: Array, scale: Array, shape: float, marks: Array, y: Array, weights: Array) -> Array:
        """From the two values of y."""
        low, high = y.min(), y.max()
        mean = low + (high - low) * location
        square = low**2 + (high**2 - low**2) * location
        return np.column_stack((mean, square, np.where(marks < high, 1.0 - location[:, None], 1.0)))

    def variance(self, location: Array, scale: Array) -> Array:
        """P (1 - p)."""
        probability = self.location(location)
        return probability * (1 - probability)

    def log_density_and_scores(
        self, y: Array, eta: Array, log_scale: Array, shape: float
    ) -> tuple[Array, tuple[Array, ...]]:
        """The only score is that of a difference of risks."""
        probability = self.location(eta)
        return self.log_density(y, probability, 1.0, shape), ((y - probability) / (probability * (1 - probability)),)
