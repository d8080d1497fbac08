"""Ordered levels. The location is the log-odds of higher levels; effects are odds ratios that all levels share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from modifind._typing import Array
from modifind.data.weights import Weights
from modifind.nuisance.outcome.ordinal import index_information, thresholds_of, up_to
from modifind.nuisance.regression.blocks import random_rows
from modifind.statistics.families.contract import Family, Origin
from modifind.statistics.families.links import LINKS, Link

MAX_OUTCOME_LEVELS = 10
MAX_FITTED_ROWS = 50_000  # that thresholds are estimated from
MIN_LEVEL_CHANCE = 1e-9


@dataclass(frozen=True)
class Ordinal(Family):
    """Cumulative logits: ``P(level <= k) = expit(c_k - location)``; as densities take them, levels are 0, 1, ...

    Attributes
    ----------
    levels : tuple of float
        Values of the outcome, ascending.
    thresholds : tuple of float
        The c_k, which both arms share.

    Examples
    --------
    >>> family = Ordinal.of(np.array([1.0, 5.0, 3.0]), LINKS["odds_ratio"])
    >>> family.coded(np.array([5.0, 1.0])).tolist()
    [2.0, 0.0]
    """

    link: Link = LINKS["odds_ratio"]
    levels: tuple[float, ...] = (0.0, 1.0)
    thresholds: tuple[float, ...] = (0.0,)

    name = "cumulative logit"
    kind = "ordinal"
    scales = ("odds_ratio",)

    @classmethod
    def of(cls, y: Array, link: Link) -> Self:
        """The family of 2 to 10 levels."""
        levels = np.unique(y)
        if levels.size > MAX_OUTCOME_LEVELS:
            raise ValueError(
                f"outcome='ordinal' takes at most {MAX_OUTCOME_LEVELS} ordered levels; found {levels.size} in y. Use "
                "outcome='numeric', or combine levels"
            )
        codes = np.searchsorted(levels, y).astype(np.float64)
        thresholds = thresholds_of(codes, np.zeros(y.size), levels.size)
        return cls(link, tuple(levels.tolist()), tuple(thresholds.tolist()))

    def coded(self, y: Array) -> Array:
        """Codes of levels: their ranks."""
        codes = np.minimum(np.searchsorted(self.levels, y), len(self.levels) - 1)
        unknown = np.array(self.levels)[codes] != y
        if unknown.any():
            raise ValueError(
                f"y has a level, {y[unknown][0]:g}, in too few rows for models to be fitted to; combine levels"
            )
        return codes.astype(np.float64)

    def fitted(self, y: Array, location: Array, scale: Array, weights: Weights | None = None) -> Self:
        """The same with the thresholds of greatest likelihood."""
        rows = random_rows(y.size, MAX_FITTED_ROWS)
        thresholds = thresholds_of(y[rows], location[rows], len(self.levels), Weights.of(weights, y.size)[rows])
        return replace(self, thresholds=tuple(thresholds.tolist()))

    def eta(self, location: Array) -> Array:
        """The location, which is in log-odds already."""
        return location

    def location(self, eta: Array) -> Array:
        """Eta itself."""
        return eta

    def log_density(self, y: Array, location: Array | float, scale: Array | float, shape: Array | float) -> Array:
        """Logarithm of the chance of the observed level."""
        above, below = up_to(y, np.asarray(location), np.array(self.thresholds))
        return np.log(np.maximum(above - below, MIN_LEVEL_CHANCE))

    def residual(self, y: Array, location: Array, scale: Array | float) -> Array:
        """The score of the location: chance of lower levels less that of higher ones."""
        return np.add(*up_to(y, location, np.array(self.thresholds))) - 1.0

    def on_eta(self, y: Array, eta: Array, unit: Array | float, residual: Array) -> tuple[Array | float, Array]:
        """The residual is a score already; a unit of it is worth the variance."""
        return self.variance(eta, np.ones(1)), residual

    def marginal(self, y: Array, least_scale: float) -> tuple[float, float, float]:
        """Zero: the thresholds alone describe such outcomes."""
        return 0.0, 1.0, np.inf

    def expected(
        self, location: Array, scale: Array, shape: float, marks: Array, y: Array, weights: Array, origin: Origin
    ) -> Array:
        """Expectations from the chances of the levels."""
        levels = (np.array(self.levels) - origin[0]) / origin[1]
        codes = np.arange(levels.size, dtype=np.float64)
        up, below = up_to(codes, location[:, None], np.array(self.thresholds))
        chances = up - below
        highest = np.searchsorted(levels, marks + 1e-9, side="right") - 1
        at_most = np.where(highest >= 0, up[:, np.maximum(highest, 0)], 0.0)
        return np.column_stack((chances @ levels, chances @ levels**2, at_most))

    def variance(self, location: Array, scale: Array) -> Array:
        """Inverse of the information on the log-odds."""
        return 1.0 / index_information(location, np.array(self.thresholds))
