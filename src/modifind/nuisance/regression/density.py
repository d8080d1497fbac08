"""Student-t log-densities, whose heavy tails bound the influence of single rows."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from modifind._typing import Array
from modifind.data.weights import Weights

SHAPES = (2.5, 3.0, 4.0, 6.0, 10.0, 30.0)
MAX_LEVERAGE = 0.9


def student_log_density(standardised: Array, shape: Array | float) -> Array:
    """Log-density of Student's t with `shape` degrees of freedom at residuals in units of the scale."""
    constant = gammaln((shape + 1) / 2) - gammaln(shape / 2) - 0.5 * np.log(shape * np.pi)
    return constant - (shape + 1) / 2 * np.log1p(standardised**2 / shape)


def student_weight(standardised: Array, shape: Array | float) -> Array:
    """Weight w of a row at standardised residual u: the location's score is w u, that of the log-scale w u^2 - 1."""
    return (shape + 1) / (shape + standardised**2)


def student_scores(standardised: Array, shape: Array | float) -> tuple[Array, Array]:
    """Derivatives of the log-density with respect to the location, in units of the scale, and to the log-scale."""
    weight = student_weight(standardised, shape)
    return weight * standardised, weight * standardised**2 - 1.0


def left_out(residual: Array, leverage: Array) -> Array:
    """Leave-one-out residuals from residuals and leverages."""
    return residual / (1.0 - np.clip(leverage, 0.0, MAX_LEVERAGE))


def robust_spread(values: Array) -> float:
    """Standard deviation by the quartiles, or the plain one where these coincide."""
    low, high = np.quantile(values, (0.25, 0.75))
    return float((high - low) / 1.349) or float(values.std())


def centre_and_unit(values: Array) -> tuple[float, float]:
    """Median and robust spread (1 for a constant), by which outcomes are standardised before models are fitted."""
    return float(np.median(values)), robust_spread(values) or 1.0


def best_shape(standardised: Array, weights: Weights | None = None) -> float:
    """Degrees of freedom of the best of a few t densities, at most 30 so that no single row can decide."""
    counts = Weights.of(weights, standardised.size)
    fits = [counts.total(student_log_density(standardised, shape)) for shape in SHAPES]
    return SHAPES[int(np.argmax(fits))]
