"""What a family of outcomes must have, so that effects on outcomes of its kind can be tested.

A family is one file with one class, named in `FAMILIES` of this package, where the first that accepts an outcome takes
it. Models of the outcome (`nuisance.outcome`) predict a location and a scale of both arms; what these mean for an
outcome is the family's to say, and nothing else asks which family it is.

*The scale of effects.* Only the difference between the arms moves along a feature; what they share is held still. Both
are taken of ``eta``, a function of the location that is the location itself in the families here: with s the treated
arm's share of the Fisher information on eta, at a value v of the feature a row has

    eta(v) = b + (a - s) (eta_1(v) - eta_0(v)),    b = (1 - s) eta_0 + s eta_1.

A family whose effects are ratios of means, or of odds, has the logarithm or the logit for `Family.eta`, the way back
for `Family.location`, and `Family.variance` and the scores are those of eta.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from modifind._typing import Array
from modifind.nuisance.outcome.contract import Likelihood


class Family(Likelihood, ABC):
    """Base of the families: what models are weighed by (`Likelihood`), and what a contrast of the arms needs.

    In a family without a scale of its own, such as coins or counts, residuals are in units of the outcome, only the
    location can follow a feature, and there is neither spread nor shape to test. Its subclasses need not define what
    is said below of scales.

    Attributes
    ----------
    has_scale : bool
        Whether outcomes have a scale, and a shape, beside their location.
    """

    has_scale: ClassVar[bool] = False

    @abstractmethod
    def accepts(self, y: Array) -> bool:
        """Whether an outcome is one of this family's."""

    def coded(self, y: Array) -> Array:
        """The outcome as densities take it."""
        return y

    def in_units(self, location: Array, scale: Array, centre: float, unit: float) -> tuple[Array, Array]:
        """Location and scale of ``(y - centre) / unit``, where those of y are in units of the outcome."""
        return location, scale

    @abstractmethod
    def expected(self, location: Array, scale: Array, shape: float, marks: Array, y: Array, weights: Array) -> Array:
        """Expectation of the outcome, of its square and of being at most each of the `marks`, shape (n, 2 + marks).

        `y` are outcomes of the rows as they were read, and `weights` say which of them are of the arm in question.
        """

    def eta(self, location: Array) -> Array:
        """The location on the scale of effects."""
        return location

    def location(self, eta: Array) -> Array:
        """The location that belongs to eta, kept where locations can be."""
        return eta

    @abstractmethod
    def variance(self, location: Array, scale: Array) -> Array:
        """The inverse of the Fisher information on eta, up to a factor."""

    def rebased(self, y: Array, eta: Array, unit: float) -> tuple[Array, Array | float]:
        """Outcome and eta in other units; about eta itself, where densities know no origin."""
        return y, eta

    @abstractmethod
    def log_density_and_scores(
        self, y: Array, eta: Array, log_scale: Array, shape: float
    ) -> tuple[Array, tuple[Array, ...]]:
        """Log-density with its derivatives by eta and, if there is one, by the log-scale."""

    def weight(self, residual: Array, shape: float) -> Array | float:
        """What counts of a residual u: the score of eta is ``weight * u`` over the variance."""
        return 1.0

    def scale_score(self, residual: Array, shape: float) -> Array:
        """Derivative of the log-density by the log-scale."""
        return np.zeros(residual.shape)

    def scale_ratio(self, residual: Array, contrast: Array, shape: float) -> Array:
        """Log-density of residuals in the treated arm less that in the control arm, log-scales `contrast` apart.

        The scales lie evenly on either side of 1, so that the ratio is odd in the contrast.
        """
        return np.zeros(contrast.shape)
