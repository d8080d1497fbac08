"""Sharp bounds on the distribution of an effect Y1 - Y0 when only the distributions of Y1 and of Y0 are known.

Every function takes the outcomes of both arms, with optional weights, as two discrete distributions and returns the
smallest and largest value over all joint distributions with these margins. Ties and atoms are handled exactly; nothing
is discretised to a grid. docs/bounds.md has the formulas.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from modifind._typing import Array

Weights: TypeAlias = ArrayLike | None
# Cumulative probabilities are sums of rounded numbers. Two of them this close are the same.
SAME_PROBABILITY = 1e-12
# Outcomes and differences of outcomes this many roundings apart are the same.
SAME_VALUE = 8 * np.finfo(np.float64).eps


def variance_bounds(
    treated: ArrayLike, control: ArrayLike, *, treated_weights: Weights = None, control_weights: Weights = None
) -> tuple[float, float]:
    """Bounds on the variance of the effect.

    Parameters
    ----------
    treated, control : array-like
        Outcomes of each arm.
    treated_weights, control_weights : array-like, optional
        Weights of the outcomes, not negative; equal when not given. Only their ratios matter.

    Returns
    -------
    tuple of float
        The variance of Y1 - Y0 when both outcomes have the same ranks, and when they have opposite ranks.

    Examples
    --------
    >>> variance_bounds([-1, 1], [-1, 1])
    (0.0, 4.0)
    """
    low, high, _, _ = _coupled(treated, control, treated_weights, control_weights)
    return low, high


def sd_bounds(
    treated: ArrayLike, control: ArrayLike, *, treated_weights: Weights = None, control_weights: Weights = None
) -> tuple[float, float]:
    """Bounds on the standard deviation of the effect: square roots of `variance_bounds`.

    Examples
    --------
    >>> sd_bounds([-1, 1], [-1, 1])
    (0.0, 2.0)
    """
    low, high = variance_bounds(treated, control, treated_weights=treated_weights, control_weights=control_weights)
    return float(np.sqrt(low)), float(np.sqrt(high))


def correlation_bounds(
    treated: ArrayLike, control: ArrayLike, *, treated_weights: Weights = None, control_weights: Weights = None
) -> tuple[float, float]:
    """Bounds on the correlation of Y0 and Y1; NaN if the outcome is constant in an arm.

    Parameters are those of `variance_bounds`.

    Examples
    --------
    >>> low, high = correlation_bounds([0, 0, 1, 1], [0, 1, 1, 1])
    >>> round(low, 3), round(high, 3)
    (-0.577, 0.577)
    """
    _, _, low, high = _coupled(treated, control, treated_weights, control_weights)
    return low, high


def benefit_bounds(
    treated: ArrayLike,
    control: ArrayLike,
    *,
    ties: bool = False,
    higher_is_better: bool = True,
    treated_weights: Weights = None,
    control_weights: Weights = None,
) -> tuple[float, float]:
    """Bounds on the share who benefit, P(Y1 > Y0).

    Parameters
    ----------
    treated, control, treated_weights, control_weights : array-like
        As in `variance_bounds`.
    ties : bool, default=False
        Count those whom the treatment leaves as they are: P(Y1 >= Y0), the share who are not harmed.
    higher_is_better : bool, default=True
        False when low outcomes are good: P(Y1 < Y0), or P(Y1 <= Y0) with `ties`.

    Returns
    -------
    tuple of float
        Smallest and largest share.

    Examples
    --------
    >>> benefit_bounds([1, 2], [0, 1])
    (0.5, 1.0)
    >>> benefit_bounds([1, 2], [0, 1], ties=True)
    (1.0, 1.0)
    """
    high_distribution, low_distribution = _conditionals(treated, control, treated_weights, control_weights)
    if not higher_is_better:
        high_distribution, low_distribution = low_distribution, high_distribution
    # P(Y1 > Y0) = P(Y0 - Y1 < 0), and the same with weak inequalities.
    low, high = _below(low_distribution, high_distribution, np.zeros(1), strict=not ties)
    return float(low[0]), float(high[0])


def effect_distribution_bounds(
    treated: ArrayLike,
    control: ArrayLike,
    at: ArrayLike,
    *,
    strict: bool = False,
    treated_weights: Weights = None,
    control_weights: Weights = None,
) -> tuple[Array, Array]:
    """Bounds on the distribution function of the effect, P(Y1 - Y0 <= d), after Makarov.

    Parameters
    ----------
    treated, control, treated_weights, control_weights : array-like
        As in `variance_bounds`.
    at : array-like
        The points d.
    strict : bool, default=False
        P(Y1 - Y0 < d) instead.

    Returns
    -------
    tuple of arrays
        Smallest and largest probability at each point. The bounds are sharp point by point: no single joint
        distribution need reach them at all points.

    Examples
    --------
    >>> low, high = effect_distribution_bounds([1, 2], [0, 1], [0, 1, 2])
    >>> low.tolist(), high.tolist()
    ([0.0, 0.5, 1.0], [0.5, 1.0, 1.0])
    """
    points = _finite(at, "at")
    both = _conditionals(treated, control, treated_weights, control_weights)
    low, high = _below(*both, points.ravel(), strict=strict)
    return low.reshape(points.shape), high.reshape(points.shape)


def effect_quantile_bounds(
    treated: ArrayLike,
    control: ArrayLike,
    probabilities: ArrayLike,
    *,
    treated_weights: Weights = None,
    control_weights: Weights = None,
) -> tuple[Array, Array]:
    """Bounds on the quantiles of the effect, the inverses of `effect_distribution_bounds`.

    Parameters
    ----------
    treated, control, treated_weights, control_weights : array-like
        As in `variance_bounds`.
    probabilities : array-like
        Above 0, at most 1.

    Returns
    -------
    tuple of arrays
        Smallest and largest value of the quantile inf{d : P(Y1 - Y0 <= d) >= p}.

    Examples
    --------
    >>> low, high = effect_quantile_bounds([1, 2], [0, 1], [0.5, 1.0])
    >>> low.tolist(), high.tolist()
    ([0.0, 1.0], [1.0, 2.0])
    """
    levels = _finite(probabilities, "probabilities")
    if np.any((levels <= 0) | (levels > 1)):
        raise ValueError("probabilities must be above 0 and at most 1")
    (y1, f1), (y0, f0) = _conditionals(treated, control, treated_weights, control_weights)
    low, high = np.empty(levels.size), np.empty(levels.size)
    for k, p in enumerate(levels.ravel()):
        # Some d <= y - t has P(effect <= d) >= p for certain when P(Y1 <= y) - P(Y0 < t) >= p: take the largest such t.
        rows = f1 >= p - SAME_PROBABILITY
        place = np.searchsorted(f0, f1[rows] - p + SAME_PROBABILITY, side="right")
        high[k] = np.min(y1[rows] - y0[np.minimum(place, y0.size - 1)])
        # P(effect <= d) >= p is possible when P(Y1 <= t + d) >= P(Y0 <= t) - (1 - p) for all t.
        rows = f0 > 1.0 - p + SAME_PROBABILITY
        place = np.searchsorted(f1, f0[rows] - (1.0 - p) - SAME_PROBABILITY, side="left")
        low[k] = np.max(y1[np.minimum(place, y1.size - 1)] - y0[rows])
    return low.reshape(levels.shape), high.reshape(levels.shape)


def mean_squares(v1: Array, f1: Array, v0: Array, f0: Array) -> tuple[Array, Array]:
    """E (Y1 - Y0)^2 under equal ranks and under opposite ranks.

    Parameters
    ----------
    v1, v0 : arrays of shape (k1,) and (k0,)
        Values in rising order.
    f1, f0 : arrays of shape (draws, k1) and (draws, k0)
        Cumulative probabilities, the last one 1. A value may have probability 0.

    Returns
    -------
    tuple of arrays of shape (draws,)
        The integrals of (Q1(u) - Q0(u))^2 and (Q1(u) - Q0(1 - u))^2, exact: both are sums over the merged steps.
    """
    turned = np.concatenate((1.0 - f0[:, -2::-1], np.ones((f0.shape[0], 1))), axis=1)
    return same_ranks(v1, f1, v0, f0), same_ranks(v1, f1, v0[::-1], turned)


def same_ranks(v1: Array, f1: Array, v0: Array, f0: Array) -> Array:
    """E (Y1 - Y0)^2 under equal ranks, the first of `mean_squares`."""
    ends = np.concatenate((f1, f0), axis=1)
    order = np.argsort(ends, axis=1, kind="stable")
    steps = np.diff(np.take_along_axis(ends, order, axis=1), axis=1, prepend=0.0)
    # On the step that ends here, each quantile function is at the value whose own end comes next, or at its last.
    place = np.arange(order.shape[1])
    first = np.where(order < v1.size, order, place - order + v1.size)
    gap = np.append(v1, v1[-1])[first] - np.append(v0, v0[-1])[place - first]
    return np.einsum("ij,ij,ij->i", steps, gap, gap)


def share_bounds(f1: Array, before1: Array, f0: Array, before0: Array) -> tuple[Array, Array, Array, Array]:
    """Bounds on P(Y1 > Y0) and on P(Y1 >= Y0), from P(Y <= v) and P(Y < v) of both arms at common values v.

    Parameters
    ----------
    f1, before1, f0, before0 : arrays of shape (draws, k)
        P(Y1 <= v), P(Y1 < v), P(Y0 <= v), P(Y0 < v) at k values.

    Returns
    -------
    tuple of arrays of shape (draws,)
        Lowest and highest P(Y1 > Y0), lowest and highest P(Y1 >= Y0).
    """

    def most(gap: Array) -> Array:
        return np.maximum(gap.max(axis=1), 0.0)

    return most(f0 - f1), 1.0 - most(f1 - before0), most(f0 - before1), 1.0 - most(f1 - f0)


def _below(first: tuple[Array, Array], second: tuple[Array, Array], at: Array, *, strict: bool) -> tuple[Array, Array]:
    """Bounds on P(Y1 - Y0 <= d), or < d when `strict`."""
    (y1, f1), (y0, f0) = first, second
    f1, f0 = np.concatenate(([0.0], f1)), np.concatenate(([0.0], f0))
    largest = max(np.abs(y1).max(), np.abs(y0).max())
    low, high = np.empty(at.size), np.empty(at.size)
    for k, d in enumerate(at):
        rounding = SAME_VALUE * max(largest, abs(d)) if d else 0.0
        if strict:  # Y1 <= y and Y0 > y - d are enough; Y1 >= t + d and Y0 <= t exclude it
            left = f0[np.searchsorted(y0, y1 - d + rounding, side="right")]
            right = f1[np.searchsorted(y1, y0 + d - rounding, side="left")]
        else:  # Y1 <= y and Y0 >= y - d are enough; Y1 > t + d and Y0 <= t exclude it
            left = f0[np.searchsorted(y0, y1 - d - rounding, side="left")]
            right = f1[np.searchsorted(y1, y0 + d + rounding, side="right")]
        low[k] = max(np.max(f1[1:] - left), 0.0)
        high[k] = 1.0 - max(np.max(f0[1:] - right), 0.0)
    return low, high


def _coupled(treated: Any, control: Any, treated_weights: Any, control_weights: Any) -> tuple[float, ...]:
    """Bounds on the variance of the effect and on the correlation of the outcomes."""
    (y1, f1), (y0, f0) = _conditionals(treated, control, treated_weights, control_weights)
    # Around their means and in units of their size, so that neither origin nor scale costs digits.
    v1, v0 = _centred(y1, f1), _centred(y0, f0)
    unit = max(np.abs(v1).max(), np.abs(v0).max()) or 1.0
    v1, v0 = v1 / unit, v0 / unit
    s1, s0 = _spread(v1, f1), _spread(v0, f0)
    low, high = (float(square[0]) for square in mean_squares(v1, f1[None], v0, f0[None]))
    largest, smallest = (correlation(s1**2, s0**2, end) for end in (low, high))
    with np.errstate(over="ignore"):
        return float(low * unit**2), float(high * unit**2), float(smallest), float(largest)


def correlation(variance1: Any, variance0: Any, effect_variance: Any) -> Any:
    """Correlation of Y1 and Y0 from three variances; NaN if the variance of an arm is 0."""
    scale = 2.0 * np.sqrt(variance1 * variance0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.where(scale > 0, (variance1 + variance0 - effect_variance) / scale, np.nan)
    return np.clip(value, -1.0, 1.0)


def _centred(values: Array, cumulative: Array) -> Array:
    middle = values[0] / 2 + values[-1] / 2
    shifted = values - middle
    return shifted - np.diff(cumulative, prepend=0.0) @ shifted if values.size > 1 else np.zeros(1)


def _spread(values: Array, cumulative: Array) -> float:
    return float(np.sqrt(np.diff(cumulative, prepend=0.0) @ values**2))


def _conditionals(
    treated: ArrayLike, control: ArrayLike, treated_weights: Weights, control_weights: Weights
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    return _conditional(treated, treated_weights, "treated"), _conditional(control, control_weights, "control")


def _conditional(values: ArrayLike, weights: ArrayLike | None, name: str) -> tuple[Array, Array]:
    """Distinct values in ascending order and their cumulative probabilities."""
    outcomes = _finite(values, name).ravel()
    weighted = _finite(np.ones(outcomes.size) if weights is None else weights, f"{name}_weights").ravel()
    if weighted.size != outcomes.size:
        raise ValueError(f"{name}_weights has {weighted.size} values for {outcomes.size} outcomes; give one for each")
    if np.any(weighted < 0):
        raise ValueError(f"{name}_weights must not be negative")
    outcomes, weighted = outcomes[weighted > 0], weighted[weighted > 0]
    if outcomes.size == 0:
        raise ValueError(f"{name} has no outcome of positive weight")
    distinct, place = np.unique(outcomes, return_inverse=True)
    cumulative = np.cumsum(np.bincount(place.ravel(), weighted / weighted.max()))
    return distinct, cumulative / cumulative[-1]


def _finite(values: ArrayLike, name: str) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} has missing or infinite values; remove them first")
    return array
