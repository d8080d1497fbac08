"""What a family of outcomes must have, so that effects on outcomes of its kind can be tested.

A family is one file with one class, named in `FAMILIES` of this package (`choice` says which takes an outcome), or an
object of the user's, ``ModifierSelector(outcome=MyFamily())``. Models of the outcome (`nuisance.outcome`) predict a
location and a scale of both arms; what these mean for an outcome is the family's to say, and nothing else asks which
family it is.

*The scale of effects.* Only the difference between the arms moves along a feature; what they share is held still. Both
are taken of ``eta``, a function of the location that is the family's link (`links`): with s the treated arm's share of
the Fisher information on eta, at a value v of the feature a row has

    eta(v) = b + (a - s) (eta_1(v) - eta_0(v)),    b = (1 - s) eta_0 + s eta_1.

Where the arms' etas differ by the same everywhere, nothing modifies the effect: a constant difference of means, ratio
of means or odds ratio, whichever the link is of.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self, TypeAlias

import numpy as np

from modifind._typing import Array
from modifind.data.weights import Weights
from modifind.data.wording import counted
from modifind.nuisance.outcome.contract import Likelihood
from modifind.statistics.families.links import IDENTITY, Link

Origin: TypeAlias = tuple[float, float]  # centre and unit


class Family(Likelihood, ABC):
    """Base of the families: what models are weighed by (`Likelihood`), and what a contrast of the arms needs.

    In a family without a scale of its own, such as coins or counts, residuals are in units of the outcome, only the
    location can follow a feature, and there is neither spread nor shape to test. Its subclasses need not define what
    is said below of scales.

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
        Whether tails and skewness of standardised residuals are looked at.
    """

    learners: ClassVar[str] = ""
    scales: ClassVar[tuple[str, ...]] = ("difference",)
    has_scale: ClassVar[bool] = False
    has_shape: ClassVar[bool] = False
    link: Link = IDENTITY

    @classmethod
    def of(cls, y: Array, link: Link) -> Self:
        """The family of an outcome, on a scale of effects; an object that the user passes is taken as it is instead.

        Raises
        ------
        ValueError
            The outcome is none of this family's, or has no effects on the scale.
        """
        return cls()

    def coded(self, y: Array) -> Array:
        """The outcome as densities take it; a ValueError says what is wrong with one that is none of the family's."""
        return y

    def as_number(self, y: Array) -> Array:
        """The outcome as it is coded."""
        return y

    def fitted(self, y: Array, location: Array, scale: Array, weights: Weights | None = None) -> Self:
        """There is nothing else to know of most families."""
        return self

    def best_shape(self, residual: Array, weights: Weights | None = None) -> float:
        """There is none to choose."""
        return np.inf

    def origin(self, y: Array) -> Origin:
        """The outcome has a unit and an origin of its own."""
        return 0.0, 1.0

    @abstractmethod
    def expected(
        self, location: Array, scale: Array, shape: float, marks: Array, y: Array, weights: Array, origin: Origin
    ) -> Array:
        """Expectation of the outcome, of its square and of being at most each of the `marks`, shape (n, 2 + marks).

        `marks` and `y`, outcomes of the rows, are ``(outcome - centre) / unit`` of the `origin`, and so are the
        expectations; location and scale are as models predict them. `weights` say which rows are of the arm in
        question.
        """

    def eta(self, location: Array) -> Array:
        """The location on the scale of effects."""
        return self.link.eta(location)

    def location(self, eta: Array) -> Array:
        """The location that belongs to eta, kept where locations can be."""
        return self.link.location(eta)

    @abstractmethod
    def variance(self, location: Array, scale: Array) -> Array:
        """The inverse of the Fisher information on eta, up to a factor."""

    def unit_of_contrasts(self, y: Array) -> float:
        """Size of a difference of eta that is no small one."""
        return float(y.std()) if self.link == IDENTITY else 1.0

    def rebased(self, y: Array, eta: Array, scale: Array) -> tuple[Array, Array | float, float]:
        """Outcome and eta in units that a search can work in, about eta where densities know no origin; the unit."""
        return y, eta, 1.0

    @abstractmethod
    def log_density_and_scores(
        self, y: Array, eta: Array, log_scale: Array, shape: float
    ) -> tuple[Array, tuple[Array, ...]]:
        """Log-density with its derivatives by eta and, if there is one, by the log-scale."""

    def on_eta(self, y: Array, eta: Array, unit: Array | float, residual: Array) -> tuple[Array | float, Array]:
        """What a row says of its eta: a residual u, and how much of eta one unit of it is.

        The score of eta is ``weight * unit * u`` over the variance. `residual` and `unit` are those of the scale, too.
        """
        return 1.0 / self.link.slope(self.location(eta)), residual

    def weight(self, residual: Array, shape: float) -> Array | float:
        """What counts of a residual of eta."""
        return 1.0

    def scores_of_scale(self, scores: Array, location: Array) -> Array:
        """Chance to be treated of the rows that a scale is about, at calibrated locations of both arms."""
        return scores

    def scale_information(self, location: Array, scores: Array) -> Array | None:
        """How much rows tell of a contrast of scales, by locations of both arms; None where all tell as much."""
        return None

    def scale_score(self, residual: Array, shape: float) -> Array:
        """Derivative of the log-density by the log-scale."""
        return np.zeros(residual.shape)

    def scale_ratio(self, residual: Array, contrast: Array, shape: float) -> Array:
        """Log-density of residuals in the treated arm less that in the control arm, log-scales `contrast` apart.

        The scales lie evenly on either side of 1, so that the ratio is odd in the contrast.
        """
        return np.zeros(contrast.shape)


def in_origin(mean: Array, square: Array, below: Array, origin: Origin) -> Array:
    """Expectations of ``(outcome - centre) / unit`` from those of the outcome; chances to be below marks stay."""
    centre, unit = origin
    return np.column_stack(
        ((mean - centre) / unit, (square - 2 * centre * mean + centre**2) / unit**2, below),
    )


def refuse_negative(y: Array, needs: str, remedy: str = "") -> None:
    """Refuse outcomes below zero; `needs` says what is wanted instead of them."""
    low = int((y < 0).sum())
    if low:
        raise ValueError(f"{needs}; {counted(low, 'value of y is', 'values of y are')} below 0{remedy}")
