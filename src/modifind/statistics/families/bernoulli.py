"""Outcomes of two values. The location is the probability of the larger one; effects are differences of risks, risk
ratios or odds ratios.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from modifind._typing import Array
from modifind.statistics.families.contract import MeanFamily, Origin
from modifind.statistics.families.links import IDENTITY, Link

MIN_RISK = 1e-3  # probabilities are kept this far from 0 and 1
MIN_RATIO_RISK = 1e-4  # the same where their ratios matter


@dataclass(frozen=True)
class Bernoulli(MeanFamily):
    """A coin, which has no scale; as densities take it, 1 is the larger value.

    Attributes
    ----------
    link : Link
        Of effects.
    middle : float
        A number between the two values.

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

    @property
    def bounds(self) -> tuple[float, float]:
        """Zero and one, less a margin."""
        margin = MIN_RISK if self.link == IDENTITY else MIN_RATIO_RISK
        return margin, 1 - margin

    @classmethod
    def of(cls, y: Array, link: Link = IDENTITY) -> Self:
        """The coin of outcomes with two values."""
        low, high = float(y.min()), float(y.max())
        if not ((y == low) | (y == high)).all():
            raise ValueError(f"outcome='binary' needs an outcome of two values; found {np.unique(y).size} in y")
        return cls(link, low + (high - low) / 2)

    def coded(self, y: Array) -> Array:
        """1 for the larger value, and 0."""
        return (y > self.middle).astype(np.float64)

    def log_density(self, y: Array, location: Array | float, scale: Array | float, shape: Array | float) -> Array:
        """Logarithm of the probability of the observed value."""
        probability = np.clip(location, *self.bounds)
        return np.where(y > 0.5, np.log(probability), np.log1p(-probability))

    def outcome_variance(self, location: Array) -> Array:
        """P (1 - p)."""
        return location * (1 - location)

    def at_most(self, marks: Array, location: Array) -> Array:
        """The probability of 0, and from 1 on certainty."""
        return np.where(marks < 1, 1.0 - location, 1.0)

    def expected(
        self, location: Array, scale: Array, shape: float, marks: Array, y: Array, weights: Array, origin: Origin
    ) -> Array:
        """Expectations from the two values of y, which is not coded here."""
        low, high = y.min(), y.max()
        mean = low + (high - low) * location
        square = low**2 + (high**2 - low**2) * location
        return np.column_stack((mean, square, self.at_most((marks >= high).astype(np.float64), location[:, None])))
