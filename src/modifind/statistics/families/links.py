"""The scale on which the arms are compared: the function of a location whose difference between the arms is the effect.

``eta = link(location)``. A difference of locations is one on the identity, a ratio of means one of logarithms, an odds
ratio one of log-odds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit, logit

from modifind._typing import Array


@dataclass(frozen=True)
class Link(ABC):
    """From locations to the scale of effects, and back.

    Attributes
    ----------
    scale : str
        What the user calls the scale.
    """

    scale: ClassVar[str]

    @abstractmethod
    def eta(self, location: Array) -> Array:
        """The location on the scale of effects."""

    @abstractmethod
    def location(self, eta: Array) -> Array:
        """The location that belongs to eta."""

    @abstractmethod
    def slope(self, location: Array) -> Array | float:
        """Derivative of the location by eta."""


class Identity(Link):
    """Effects are differences."""

    scale = "difference"

    def eta(self, location: Array) -> Array:
        """The location."""
        return location

    def location(self, eta: Array) -> Array:
        """Eta itself."""
        return eta

    def slope(self, location: Array) -> float:
        """One."""
        return 1.0


class Log(Link):
    """Effects are ratios.

    Examples
    --------
    >>> Log().eta(np.array([1.0, np.e])).tolist()
    [0.0, 1.0]
    """

    scale = "ratio"

    def eta(self, location: Array) -> Array:
        """The logarithm."""
        return np.log(location)

    def location(self, eta: Array) -> Array:
        """The exponential."""
        return np.exp(eta)

    def slope(self, location: Array) -> Array:
        """The location."""
        return location


class Logit(Link):
    """Effects on probabilities are odds ratios."""

    scale = "odds_ratio"

    def eta(self, location: Array) -> Array:
        """The log-odds."""
        return logit(location)

    def location(self, eta: Array) -> Array:
        """The probability."""
        return expit(eta)

    def slope(self, location: Array) -> Array:
        """P (1 - p)."""
        return location * (1 - location)


IDENTITY = Identity()
LINKS: dict[str, Link] = {link.scale: link for link in (IDENTITY, Log(), Logit())}
