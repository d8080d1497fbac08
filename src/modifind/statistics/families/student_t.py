"""Numbers whose noise is like Student's t: near normal in the middle, with tails in which no single row decides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from modifind._typing import Array
from modifind.nuisance.regression.density import (
    SHAPES,
    best_shape,
    centre_and_unit,
    robust_spread,
    student_log_density,
    student_weight,
)
from modifind.statistics.families.contract import Family

N_STEPS = 50


@dataclass(frozen=True)
class StudentT(Family):
    """Location, scale and degrees of freedom; effects are differences of locations and ratios of scales.

    Examples
    --------
    >>> t = StudentT()
    >>> t.residual(np.array([3.0]), np.array([1.0]), np.array([2.0])).tolist(), t.weight(np.array([1.0]), 3.0).tolist()
    ([1.0], [1.0])
    """

    name = "student-t"
    kind = "numeric"
    has_scale = True

    def accepts(self, y: Array) -> bool:
        """Any number."""
        return True

    def in_units(self, location: Array, scale: Array, centre: float, unit: float) -> tuple[Array, Array]:
        """Both are in units of the outcome."""
        return (location - centre) / unit, scale / unit

    def log_density(self, y: Array, location: Array | float, scale: Array | float, shape: Array | float) -> Array:
        """Student's t."""
        return student_log_density((y - location) / scale, shape) - np.log(scale)

    def residual(self, y: Array, location: Array, scale: Array | float) -> Array:
        """In units of the scale."""
        return (y - location) / scale

    def best_shape(self, residual: Array, weights: Array | None = None) -> float:
        """Degrees of freedom, at most 30."""
        return best_shape(residual, weights)

    def origin(self, y: Array) -> tuple[float, float]:
        """Median and robust spread."""
        return centre_and_unit(y)

    def marginal(self, y: Array, least_scale: float) -> tuple[float, float, float]:
        """Of greatest likelihood, degrees of freedom from the few that models may have."""
        best, found = -np.inf, (0.0, 1.0, SHAPES[-1])
        least_scale = max(least_scale, np.finfo(float).tiny)
        for shape in SHAPES:
            location, scale = float(np.median(y)), max(robust_spread(y), least_scale)
            for _ in range(N_STEPS):
                weight = student_weight((y - location) / scale, shape)
                moved = float(weight @ y / weight.sum())
                spread = max(float(np.sqrt(weight @ (y - moved) ** 2 / y.size)), least_scale)
                still = abs(moved - location) + abs(spread - scale) < 1e-6 * scale
                location, scale = moved, spread
                if still:
                    break
            value = float(np.sum(student_log_density((y - location) / scale, shape))) - y.size * np.log(scale)
            if value > best:
                best, found = value, (location, scale, shape)
        return found

    def expected(self, location: Array, scale: Array, shape: float, marks: Array, y: Array, weights: Array) -> Array:
        """The variance in units of the scale is that of the rows."""
        spread = float(weights @ ((y - location) / scale) ** 2 / weights.sum())
        u = (marks - location[:, None]) / scale[:, None]
        return np.column_stack((location, location**2 + spread * scale**2, stdtr(shape, u)))

    def variance(self, location: Array, scale: Array) -> Array:
        """The square of the scale."""
        return scale**2

    def rebased(self, y: Array, eta: Array, unit: float) -> tuple[Array, Array | float]:
        """Residuals, about zero."""
        return (y - eta) / unit, 0.0

    def log_density_and_scores(
        self, y: Array, eta: Array, log_scale: Array, shape: float
    ) -> tuple[Array, tuple[Array, ...]]:
        """Scores of location and log-scale."""
        per_unit = np.exp(-log_scale)
        u = (y - eta) * per_unit
        weight = student_weight(u, shape)
        return student_log_density(u, shape) - log_scale, (weight * u * per_unit, weight * u**2 - 1.0)

    def weight(self, residual: Array, shape: float) -> Array:
        """Less than 1 in the tails."""
        return student_weight(residual, shape)

    def scale_score(self, residual: Array, shape: float) -> Array:
        """W u^2 - 1."""
        return self.weight(residual, shape) * residual**2 - 1.0

    def scale_ratio(self, residual: Array, contrast: Array, shape: float) -> Array:
        """The constants of both densities cancel."""
        square, factor = residual**2 / shape, np.exp(contrast)
        return (shape + 1) / 2 * (np.log1p(square * factor) - np.log1p(square / factor)) - contrast
