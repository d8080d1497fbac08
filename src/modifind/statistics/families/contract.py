"""What a family of outcomes must have, so that effects on outcomes of its kind can be tested.

A family is one class, named in `FAMILIES` of this package (`choice` says which takes an outcome), or an object of the
user's, ``ModifierSelector(outcome=MyFamily())``. Models of the outcome (`nuisance.outcome`) predict a location and a
scale of both arms; what these mean for an outcome is the family's to say, and nothing else asks which family it is.

*The scale of effects.* Only the difference between the arms moves along a feature; what they share is held still. Both
are taken of ``eta = link(location)``: a difference of locations is one on the identity, a ratio of means one of
logarithms, an odds ratio one of log-odds. With s the treated arm's share of the Fisher information on eta, at a value
v of the feature a row has

    eta(v) = b + (a - s) (eta_1(v) - eta_0(v)),    b = (1 - s) eta_0 + s eta_1.

Where the arms' etas differ by the same everywhere, nothing modifies the effect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from scipy.special import expit, logit

from modifind._typing import Array
from modifind.data.weights import Weights
from modifind.data.words import counted
from modifind.nuisance.outcome.contract import Likelihood


@dataclass(frozen=True)
class Link:
    """Maps locations to the effect scale, and back.

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


Origin: TypeAlias = tuple[float, float]  # centre and unit
UNBOUNDED = (-np.inf, np.inf)


class Family(Likelihood, ABC):
    """Base class of families: the likelihood that compares models, and what a contrast of the arms needs.

    A family without a scale, such as that of binary outcomes or counts, is best derived from `MeanFamily`. With a
    scale, the defaults assume a location-scale family: ``(y - location) / scale`` has one fixed density.

    Attributes
    ----------
    name : str
        How results call the density.
    kind : str
        "numeric", "binary", "count", "ordinal" or "amount": how messages and reports speak of the outcome.
    learners : str
        Kind of outcomes whose learners, where they are given by name, predict its location and scale; by default the
        family's own kind. Locations of "numeric" are any numbers, of "count" means above zero, of "binary" chances.
    link : Link
        The scale of effects.
    scales : tuple of str
        The scales of effects that it has by its name; the first is its own.
    has_scale : bool
        Whether outcomes have a scale beside their location.
    has_shape : bool
        Whether tails and skewness of standardised residuals are tested as well.
    """

    kind: ClassVar[str] = "numeric"
    learners: ClassVar[str] = ""
    scales: ClassVar[tuple[str, ...]] = ("difference",)
    has_scale: ClassVar[bool] = False
    has_shape: ClassVar[bool] = False
    link: Link = IDENTITY

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds of locations."""
        return UNBOUNDED

    @classmethod
    def of(cls, y: Array, link: Link) -> Self:
        """The family for an outcome on an effect scale; not called for an object passed by the user.

        Raises
        ------
        ValueError
            The outcome is not one of the family, or has no effects on the scale.
        """
        return cls()

    def coded(self, y: Array) -> Array:
        """The outcome as densities take it; raises a ValueError for one that the family does not cover."""
        return y

    def as_number(self, y: Array) -> Array:
        """The coded outcome."""
        return y

    def fitted(self, y: Array, location: Array, scale: Array, weights: Weights | None = None) -> Self:
        """The same family: most have no parameters besides location and scale."""
        return self

    def residual(self, y: Array, location: Array, scale: Array | float) -> Array:
        """Outcome minus location, in units of the scale if there is one."""
        return (y - location) / scale if self.has_scale else y - location

    def best_shape(self, residual: Array, weights: Weights | None = None) -> float:
        """Infinity: most families have no shape parameter."""
        return np.inf

    def origin(self, y: Array) -> Origin:
        """Zero and one: most outcomes have a natural origin and unit."""
        return 0.0, 1.0

    def marginal(self, y: Array, least_scale: float) -> tuple[float, float, float]:
        """The mean, for a family with neither scale nor shape."""
        return float(np.clip(y.mean(), *self.bounds)), 1.0, np.inf

    @abstractmethod
    def expected(
        self, location: Array, scale: Array, shape: float, marks: Array, y: Array, weights: Array, origin: Origin
    ) -> Array:
        """Expectation of the outcome, of its square and of being at most each of the `marks`, shape (n, 2 + marks).

        `marks`, the outcomes `y` of the rows and the expectations are ``(outcome - centre) / unit`` of the `origin`;
        location and scale are as predicted. `weights` select the rows of the arm in question.
        """

    def eta(self, location: Array) -> Array:
        """The location on the effect scale."""
        return location if self.link == IDENTITY else self.link.eta(np.clip(location, *self.bounds))

    def location(self, eta: Array) -> Array:
        """The location at eta, kept within its bounds."""
        return np.clip(self.link.location(eta), *self.bounds)

    @abstractmethod
    def variance(self, location: Array, scale: Array) -> Array:
        """The inverse of the Fisher information on eta, up to a factor."""

    def unit_of_contrasts(self, y: Array) -> float:
        """A difference of eta that is not small."""
        return float(y.std()) if self.link == IDENTITY else 1.0

    def rebased(self, y: Array, eta: Array, scale: Array) -> tuple[Array, Array | float, float]:
        """Outcome and eta in units suitable for optimisation, relative to eta if densities have no origin; the unit."""
        return y, eta, 1.0

    def log_density_and_scores(
        self, y: Array, eta: Array, log_scale: Array, shape: float
    ) -> tuple[Array, tuple[Array, ...]]:
        """Log-density with its derivatives by eta and, if there is one, by the log-scale."""
        location, scale = self.location(eta), np.exp(log_scale) if self.has_scale else np.ones(eta.shape)
        residual = self.residual(y, location, scale)
        unit, u = self.on_eta(y, eta, scale, residual)
        score = self.weight(u, shape) * unit * u / self.variance(location, scale)
        scale_scores = (self.scale_score(residual, shape),) if self.has_scale else ()
        return self.log_density(y, location, scale, shape), (score, *scale_scores)

    def on_eta(self, y: Array, eta: Array, unit: Array | float, residual: Array) -> tuple[Array | float, Array]:
        """Change of eta per unit of a residual u, and u itself, from the `residual` and `unit` of the location.

        The score of eta is ``weight * unit * u`` divided by the variance.
        """
        return (unit if self.has_scale else 1.0) / self.link.slope(self.location(eta)), residual

    def weight(self, residual: Array, shape: float) -> Array | float:
        """Weight of a residual of eta, which may be reduced in the tails."""
        return 1.0

    def scores_of_scale(self, scores: Array, location: Array) -> Array:
        """Probability of treatment among the rows that a scale describes, at calibrated locations of both arms."""
        return scores

    def scale_information(self, location: Array, scores: Array) -> Array | None:
        """Information of rows on a contrast of scales, by locations of both arms; None if equal for all."""
        return None

    def scale_score(self, residual: Array, shape: float) -> Array:
        """Derivative of the log-density with respect to the log-scale."""
        return self.weight(residual, shape) * residual**2 - 1.0 if self.has_scale else np.zeros(residual.shape)

    def scale_ratio(self, residual: Array, contrast: Array, shape: float) -> Array:
        """Log-density of residuals in the treated arm minus that in the control arm, log-scales `contrast` apart.

        The scales are symmetric around 1, so that the ratio is odd in the contrast.
        """
        wide, narrow = (self.log_density(residual, 0.0, np.exp(side * contrast / 2), shape) for side in (1, -1))
        return wide - narrow


class MeanFamily(Family):
    """Base class of families determined by their mean, with the score ``(y - mean) / variance``.

    Binary outcomes, counts and waiting times are of this kind, as is any one-parameter exponential family. The location
    is the mean.

    Examples
    --------
    >>> from scipy.special import gammaincc, gammaln
    >>> class Poisson(MeanFamily):
    ...     name, kind = "poisson", "count"
    ...     def log_density(self, y, location, scale, shape):
    ...         return y * np.log(location) - location - gammaln(y + 1)
    ...     def outcome_variance(self, location):
    ...         return location
    ...     def at_most(self, marks, location):
    ...         return np.where(marks >= 0, gammaincc(np.floor(np.maximum(marks, 0)) + 1, location), 0.0)
    >>> Poisson().marginal(np.array([1.0, 4.0]), 0.0)
    (2.5, 1.0, inf)
    """

    @abstractmethod
    def outcome_variance(self, location: Array) -> Array:
        """Variance of the outcome, given its mean."""

    @abstractmethod
    def at_most(self, marks: Array, location: Array) -> Array:
        """Distribution function at the marks, for means of shape (n, 1)."""

    def variance(self, location: Array, scale: Array) -> Array:
        """Variance of the outcome divided by the squared slope."""
        mean = np.clip(location, *self.bounds)
        return self.outcome_variance(mean) / self.link.slope(mean) ** 2

    def expected(
        self, location: Array, scale: Array, shape: float, marks: Array, y: Array, weights: Array, origin: Origin
    ) -> Array:
        """Expectations from the mean, the variance and the distribution function."""
        mean = np.clip(location, *self.bounds)
        below = self.at_most(origin[0] + origin[1] * marks, mean[:, None])
        return in_origin(mean, self.outcome_variance(mean) + mean**2, below, origin)


def in_origin(mean: Array, square: Array, below: Array, origin: Origin) -> Array:
    """Expectations of ``(outcome - centre) / unit`` from those of the outcome; `below` is unchanged."""
    centre, unit = origin
    return np.column_stack(((mean - centre) / unit, (square - 2 * centre * mean + centre**2) / unit**2, below))


def refuse_negative(y: Array, needs: str, remedy: str = "") -> None:
    """Refuse negative outcomes; `needs` says what is required instead."""
    low = int((y < 0).sum())
    if low:
        raise ValueError(f"{needs}; {counted(low, 'value of y is', 'values of y are')} below 0{remedy}")
