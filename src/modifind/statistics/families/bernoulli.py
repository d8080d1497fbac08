"""Outcomes of two values. The location is the probability of the larger one; effects are differences of risks, risk
ratios or odds ratios.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from modifind._typing import Array
from modifind.statistics.families.contract import Family, Origin
from modifind.statistics.families.links import IDENTITY, Link

EDGE = 1e-3  # probabilities are kept this far from 0 and 1
RATIO_EDGE = 1e-4  # the same where their ratios matter


@dataclass(frozen=True)
class Bernoulli(Family):
    """A coin, which has no scale; as densities take it, 1 is the larger value.

    Attributes
    ----------
    link : Link
        Of effects.
    middle : float
        What lies between the two values.

    Examples
    --------
    >>> coin = Bernoulli.of(np.array([2.0, 1.0]))
    >>> coin.coded(np.array([2.0, 1.0])).tolist(), coin.variance(np.array([0.5]), np.ones(1)).tolist()
    ([1.0, 0.0], [0.25])
    """

    link: Link = IDENTITY
    middle: float = 0.5

    name = "bernoulli"
    kind = "binary"
    chances = True
    scales = ("difference", "ratio", "odds_ratio")

    @classmethod
    def of(cls, y: Array, link: Link = IDENTITY) -> Self:
        """Of outcomes with two values."""
        low, high = float(y.min()), float(y.max())
        if not ((y == low) | (y == high)).all():
            raise ValueError(f"outcome='binary' needs an outcome of two values; found {np.unique(y).size} in y")
        return cls(link, low + (high - low) / 2)

    def coded(self, y: Array) -> Array:
        """1 for the larger value, and 0."""
        return (y > self.middle).astype(np.float64)

    def eta(self, location: Array) -> Array:
        """Of a probability that has one."""
        return location if self.link == IDENTITY else self.link.eta(np.clip(location, RATIO_EDGE, 1 - RATIO_EDGE))

    def location(self, eta: Array) -> Array:
        """A probability."""
        edge = EDGE if self.link == IDENTITY else RATIO_EDGE
        return np.clip(self.link.location(eta), edge, 1 - edge)

    def log_density(self, y: Array, location: Array | float, scale: Array | float, shape: Array | float) -> Array:
        """That of the row's side of the coin."""
        edge = EDGE if self.link == IDENTITY else RATIO_EDGE
        probability = np.clip(location, edge, 1 - edge)
        return np.where(y > 0.5, np.log(probability), np.log1p(-probability))

    def residual(self, y: Array, location: Array, scale: Array | float) -> Array:
        """Outcome less probability."""
        return y - location

    def marginal(self, y: Array, least_scale: float) -> tuple[float, float, float]:
        """The frequency."""
        return float(np.clip(y.mean(), EDGE, 1 - EDGE)), 1.0, np.inf

    def expected(
        self, location: Array, scale: Array, shape: float, marks: Array, y: Array, weights: Array, origin: Origin
    ) -> Array:
        """From the two values of y."""
        low, high = y.min(), y.max()
        mean = low + (high - low) * location
        square = low**2 + (high**2 - low**2) * location
        return np.column_stack((mean, square, np.where(marks < high, 1.0 - location[:, None], 1.0)))

    def variance(self, location: Array, scale: Array) -> Array:
        """P (1 - p), over the square of the slope."""
        probability = self.location(self.eta(location))
        return probability * (1 - probability) / self.link.slope(probability) ** 2

    def log_density_and_scores(
        self, y: Array, eta: Array, log_scale: Array, shape: float
    ) -> tuple[Array, tuple[Array, ...]]:
        """The only score is that of the risk on the scale of effects."""
        probability = self.location(eta)
        score = (y - probability) / (probability * (1 - probability)) * self.link.slope(probability)
        return self.log_density(y, probability, 1.0, shape), (score,)
