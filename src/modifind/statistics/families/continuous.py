"""Numeric outcomes, and amounts with many zeros.

Numeric outcomes have Student-t noise: near normal in the centre, with tails in which no single row decides. Amounts
have two components: whether there is any, and how much if there is. Their location is the probability of any, the scale
the typical amount (a geometric mean), so that the test of location contrasts is that of the first component, and the
test of scale contrasts that of the second. Effects on the first are risk differences or risk ratios, those on the
second ratios.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import stdtr

from modifind._typing import Array
from modifind.data.weights import Weights
from modifind.nuisance.regression.penalised import (
    SHAPES,
    best_shape,
    centre_and_unit,
    robust_spread,
    student_log_density,
    student_weight,
)
from modifind.statistics.families.contract import IDENTITY, Family, Link, Origin, in_origin, refuse_negative
from modifind.statistics.families.discrete import Bernoulli

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
        """The family for any numbers; on the ratio scale, for non-negative ones."""
        if link == IDENTITY:
            return cls(link)
        refuse_negative(y, NEVER_NEGATIVE)
        return cls(link, MIN_RELATIVE_LOCATION * float(y.mean()))

    def coded(self, y: Array) -> Array:
        """The numbers; negative ones are refused on the ratio scale."""
        if self.link != IDENTITY:
            refuse_negative(y, NEVER_NEGATIVE)
        return y

    def eta(self, location: Array) -> Array:
        """The location, or its logarithm, bounded below by that of `least`."""
        return location if self.link == IDENTITY else self.link.eta(np.maximum(location, self.least))

    def location(self, eta: Array) -> Array:
        """The location at eta."""
        return self.link.location(eta)

    def log_density(self, y: Array, location: Array | float, scale: Array | float, shape: Array | float) -> Array:
        """Log-density of Student's t."""
        return student_log_density((y - location) / scale, shape) - np.log(scale)

    def best_shape(self, residual: Array, weights: Weights | None = None) -> float:
        """Degrees of freedom, at most 30."""
        return best_shape(residual, weights)

    def origin(self, y: Array) -> tuple[float, float]:
        """Median and robust standard deviation."""
        return centre_and_unit(y)

    def marginal(self, y: Array, least_scale: float) -> tuple[float, float, float]:
        """Maximum likelihood parameters; degrees of freedom are chosen from a few."""
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
        """Expectations from the distribution function; the variance in units of the scale comes from the rows."""
        centre, unit = origin
        location, scale = (location - centre) / unit, scale / unit
        spread = float(weights @ ((y - location) / scale) ** 2 / weights.sum())
        u = (marks - location[:, None]) / scale[:, None]
        return np.column_stack((location, location**2 + spread * scale**2, stdtr(shape, u)))

    def variance(self, location: Array, scale: Array) -> Array:
        """Squared scale divided by the squared slope."""
        return scale**2 if self.link == IDENTITY else (scale / np.maximum(location, self.least)) ** 2

    def rebased(self, y: Array, eta: Array, scale: Array) -> tuple[Array, Array | float, float]:
        """Outcomes minus eta, in units of the median scale; unchanged on the ratio scale."""
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
        """Closed form, because the constants of both densities cancel."""
        square, factor = residual**2 / shape, np.exp(contrast)
        return (shape + 1) / 2 * (np.log1p(square * factor) - np.log1p(square / factor)) - contrast


AMOUNTS = "outcome='amount' needs amounts of 0 or more", ". Use outcome='numeric'"
MIN_LOG_SPREAD = 1e-3
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Amount(Family):
    """A Bernoulli variable for any, and Student-t logarithms of positive amounts.

    Residuals are those of the logarithm of an amount, NaN at zero.

    Attributes
    ----------
    link : Link
        Of the chance of any.
    spread : float
        Of the logarithms, in both arms.

    Examples
    --------
    >>> y, typical = np.array([0.0, 20.0]), np.array([10.0, 10.0])
    >>> Amount(spread=0.5).residual(y, np.array([0.3, 0.3]), typical).round(2).tolist()
    [nan, 1.39]
    """

    link: Link = IDENTITY
    spread: float = 1.0

    name = "any and how much"
    kind = "amount"
    chances = True
    scales = ("difference", "ratio")
    has_scale = True

    @classmethod
    def of(cls, y: Array, link: Link = IDENTITY) -> Self:
        """The family of non-negative numbers with some zeros."""
        refuse_negative(y, *AMOUNTS)
        if not (y == 0).any() or np.unique(y).size < 3:
            raise ValueError(
                "outcome='amount' needs zeros and different amounts above them; there are none in y. Use "
                "outcome='numeric'"
            )
        return cls(link)

    def coded(self, y: Array) -> Array:
        """The amounts; negative numbers are refused."""
        refuse_negative(y, *AMOUNTS)
        return y

    @property
    def _any(self) -> Bernoulli:
        """The Bernoulli family of whether there is any amount."""
        return Bernoulli(self.link)

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds of the probability of any."""
        return self._any.bounds

    def as_number(self, y: Array) -> Array:
        """Logarithm of one plus the amount in units of its median."""
        return np.log1p(y / max(float(np.median(y[y > 0])), TINY)) if (y > 0).any() else y

    def fitted(self, y: Array, location: Array, scale: Array, weights: Weights | None = None) -> Self:
        """The same family with the fitted spread of the logarithms."""
        logs = np.log(y[y > 0] / scale[y > 0])
        return replace(self, spread=max(robust_spread(logs), MIN_LOG_SPREAD)) if logs.size else self

    def log_density(self, y: Array, location: Array | float, scale: Array | float, shape: Array | float) -> Array:
        """Log-density of both components."""
        chance = self._any.log_density((y > 0).astype(np.float64), location, 1.0, np.inf)
        u = self.residual(y, np.asarray(location), scale)
        amount = student_log_density(u, shape) - np.log(self.spread * np.maximum(y, TINY))
        return chance + np.where(y > 0, amount, 0.0)

    def residual(self, y: Array, location: Array, scale: Array | float) -> Array:
        """Log ratio of the amount to the typical one, in units of its spread; NaN at zero."""
        logs = np.log(np.maximum(y, TINY) / scale) / self.spread
        return np.where(y > 0, logs, np.nan)

    def best_shape(self, residual: Array, weights: Weights | None = None) -> float:
        """Degrees of freedom of the logarithms."""
        known = ~np.isnan(residual)
        return best_shape(residual[known], Weights.of(weights, residual.size)[known])

    def marginal(self, y: Array, least_scale: float) -> tuple[float, float, float]:
        """Share of rows with any, and their geometric mean."""
        logs = np.log(y[y > 0])
        chance = self._any.marginal((y > 0).astype(np.float64), 0.0)[0]
        if not logs.size:
            return chance, 1.0, np.inf
        typical = float(np.exp(np.median(logs)))
        family = self.fitted(y, np.empty(0), np.full(y.size, typical))
        return chance, typical, family.best_shape(family.residual(y, np.empty(0), typical))

    def expected(
        self, location: Array, scale: Array, shape: float, marks: Array, y: Array, weights: Array, origin: Origin
    ) -> Array:
        """Expectations; mean and mean square relative to the typical amount are those of the arm's amounts."""
        observed, limits = origin[0] + origin[1] * y, origin[0] + origin[1] * marks
        counted = weights * (observed > 0.5 * _smallest(observed))
        first, second = (float(counted @ (observed / scale) ** k / max(counted.sum(), TINY)) for k in (1, 2))
        with np.errstate(divide="ignore", invalid="ignore"):
            u = np.log(np.maximum(limits, 0.0) / scale[:, None]) / self.spread
        below = 1.0 - location[:, None] + location[:, None] * stdtr(shape, u)
        below = np.where(limits > -1e-9 * origin[1], below, 0.0)
        return in_origin(location * first * scale, location * second * scale**2, below, origin)

    def variance(self, location: Array, scale: Array) -> Array:
        """Inverse of the information on the probability of any."""
        return self._any.variance(location, scale)

    def on_eta(self, y: Array, eta: Array, unit: Array | float, residual: Array) -> tuple[Array | float, Array]:
        """Indicator of any minus its probability."""
        chance = self.location(eta)
        return 1.0 / self.link.slope(chance), (y > 0) - chance

    def scores_of_scale(self, scores: Array, location: Array) -> Array:
        """Probability of treatment among rows with any, in which amounts are compared."""
        treated, control = scores * location[:, 1], (1 - scores) * location[:, 0]
        return treated / (treated + control)

    def scale_information(self, location: Array, scores: Array) -> Array:
        """Information in proportion to the amounts expected in both arms."""
        return location[..., 0] * location[..., 1] / (scores * location[..., 1] + (1 - scores) * location[..., 0])

    def scale_score(self, residual: Array, shape: float) -> Array:
        """Score of a shift of the logarithms."""
        score = student_weight(residual, shape) * residual / self.spread
        return np.where(np.isnan(residual), 0.0, score)

    def scale_ratio(self, residual: Array, contrast: Array, shape: float) -> Array:
        """Log-density of logarithms shifted up minus that of logarithms shifted down."""
        half = contrast / (2 * self.spread)
        ratio = student_log_density(residual - half, shape) - student_log_density(residual + half, shape)
        return np.where(np.isnan(residual), 0.0, ratio)


def _smallest(amounts: Array) -> float:
    """Smallest amount above rounding error, in outcomes that were recentred and restored."""
    large = amounts[amounts > 1e-9 * max(float(np.abs(amounts).max()), TINY)]
    return float(large.min()) if large.size else 1.0
