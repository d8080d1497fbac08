"""The scale on which the arms are compared: the function of a location whose difference between the arms is the effect.

``eta = link(location)``. A difference of locations is one on the identity, a ratio of means one of logarithms, an odds
ratio one of log-odds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit, logit

from modifind._typing import Array


@dataclass(frozen=True)
class Link:
    """From locations to the scale of effects, and back.

    Attributes
    ----------
    scale : str
        The name of the scale, as users give it.
    eta : callable
        The location on the scale of effects.
    location : callable
        The location that belongs to eta.
    slope : callable
        Derivative of the location by eta, at a location.

    Examples
    --------
    >>> LINKS["ratio"].eta(np.array([1.0, np.e])).tolist()
    [0.0, 1.0]
    """

    scale: str
    eta: Callable[[Array], Array] = field(repr=False)
    location: Callable[[Array], Array] = field(repr=False)
    slope: Callable[[Array], Any] = field(repr=False)


def _same(location: Array) -> Array:
    return location


def _one(location: Array) -> float:
    return 1.0


def _coin_variance(probability: Array) -> Array:
    return probability * (1 - probability)


IDENTITY = Link("difference", _same, _same, _one)
LOG, LOGIT = Link("ratio", np.log, np.exp, _same), Link("odds_ratio", logit, expit, _coin_variance)
LINKS = {link.scale: link for link in (IDENTITY, LOG, LOGIT)}
