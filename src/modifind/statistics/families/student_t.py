"""Numbers whose noise is like Student's t: near normal in the middle, with tails in which no single row decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import stdtr

from modifind._typing import Array
from modifind.data.weights import Weights
from modifind.nuisance.regression.density import (
    SHAPES,
    best_shape,
    centre_and_unit,
    robust_spread,
    student_log_density,
    student_weight,
)
from modifind.statistics.families.contract import Family, Origin, refuse_negative
from modifind.statistics.families.links import IDENTITY, Link

MAX_MARGINAL_STEPS = 50
NEVER_NEGATIVE = "effect_scale='ratio' needs an outcome that is never negative"
MIN_RELATIVE_LOCATION = 0.02  # of the mean of an outcome whose ratios matter


@dataclass(frozen=True)
class StudentT(Family):
    """Location, scale and degrees of freedom; effects are differences or ratios of locations, and ratios of scales.

    Attributes
    ----------
    link : Link
        Of the location.
    least : float
        The smallest location whose logarithm is taken.

    Examples
    --------
    >>> t = StudentT()
    >>> t.residual(np.array([3.0]), np.array([1.0]), np.array([2.0])).tolist(), t.weight(np.array([1.0]), 3.0).tolist()
    ([1.0], [1.0])
    """

    link: Link = IDENTITY
    least: float = 0.0

    name = "student-t"
    kind = "numeric"
    scales = ("difference", "ratio")
    has_scale = has_shape = True

    @classmethod
    def of(cls, y: Array, link: Link = IDENTITY) -> Self:
        """The family of any numbers; on the scale of ratios, of numbers that are never negative."""
        if link == IDENTITY:
            return cls(link)
        refuse_negative(y, NEVER_NEGATIVE)
        return cls(link, MIN_RELATIVE_LOCATION * float(y.mean()))

    def coded(self, y: Array) -> Array:
        """The numbers; on the scale of ratios negative ones are refused."""
        if self.link != IDENTITY:
            refuse_negative(y, NEVER_NEGATIVE)
        return y

    def eta(self, location: Array) -> Array:
        """The location, or its logarithm, which no location below `least` has."""
        return location if self.link == IDENTITY else self.link.eta(np.maximum(location, self.least))

    def location(self, eta: Array) -> Array:
        """The location that belongs to eta."""
        return self.link.location(eta)

    def log_density(self, y: Array, location: Array | float, scale: Array | float, shape: Array | float) -> Array:
        """Student's t."""
        return student_log_density((y - location) / scale, shape) - np.log(scale)

    def best_shape(self, residual: Array, weights: Weights | None = None) -> float:
        """Degrees of freedom, at most 30."""
        return best_shape(residual, weights)

    def origin(self, y: Array) -> tuple[float, float]:
        """Median and robust spread."""
        return centre_and_unit(y)

    def marginal(self, y: Array, least_scale: float) -> tuple[float, float, float]:
        """The parameters of greatest likelihood; degrees of freedom are one of the few that models may have."""
        best, parameters = -np.inf, (0.0, 1.0, SHAPES[-1])
        least_scale = max(least_scale, np.finfo(float).tiny)
        for shape in SHAPES:
            location, scale = float(np.median(y)), max(robust_spread(y), least_scale)
            for _ in range(MAX_MARGINAL_STEPS):
                weight = student_weight((y - location) / scale, shape)
                moved = float(weight @ y / weight.sum())
                spread = max(float(np.sqrt(weight @ (y - moved) ** 2 / y.size)), least_scale)
                still = abs(moved - location) + abs(spread - scale) < 1e-6 * scale
                location, scale = moved, spread
                if still:
                    break
            value = float(np.sum(student_log_density((y - location) / scale, shape))) - y.size * np.log(scale)
            if value > best:
                best, parameters = value, (location, scale, shape)
        return parameters

    def expected(
        self, location: Array, scale: Array, shape: float, marks: Array, y: Array, weights: Array, origin: Origin
    ) -> Array:
        """By the distribution function; the variance in units of the scale is that of the rows."""
        centre, unit = origin
        location, scale = (location - centre) / unit, scale / unit
        spread = float(weights @ ((y - location) / scale) ** 2 / weights.sum())
        u = (marks - location[:, None]) / scale[:, None]
        return np.column_stack((location, location**2 + spread * scale**2, stdtr(shape, u)))

    def variance(self, location: Array, scale: Array) -> Array:
        """The square of the scale, over that of the slope."""
        return scale**2 if self.link == IDENTITY else (scale / np.maximum(location, self.least)) ** 2

    def rebased(self, y: Array, eta: Array, scale: Array) -> tuple[Array, Array | float, float]:
        """Outcomes less eta, in units of the median scale; as they are on the scale of ratios."""
        if self.link != IDENTITY:
            return y, eta, 1.0
        unit = float(np.median(scale))
        return (y - eta) / unit, 0.0, unit

    def log_density_and_scores(
        self, y: Array, eta: Array, log_scale: Array, shape: float
    ) -> tuple[Array, tuple[Array, ...]]:
        """Log-density, and its derivatives by eta and by the log-scale."""
        per_unit = np.exp(-log_scale)
        location = self.location(eta)
        u = (y - location) * per_unit
        weight = student_weight(u, shape)
        score = weight * u * per_unit * self.link.slope(location)
        return student_log_density(u, shape) - log_scale, (score, weight * u**2 - 1.0)

    def weight(self, residual: Array, shape: float) -> Array:
        """A weight that is less than 1 in the tails."""
        return student_weight(residual, shape)

    def scale_ratio(self, residual: Array, contrast: Array, shape: float) -> Array:
        """In closed form: the constants of both densities cancel."""
        square, factor = residual**2 / shape, np.exp(contrast)
        return (shape + 1) / 2 * (np.log1p(square * factor) - np.log1p(square / factor)) - contrast
