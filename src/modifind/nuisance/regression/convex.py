"""Weights of a mixture of models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from modifind._typing import Array

FTOL = 2.2204460492503131e-09  # scipy's own


def convex_weights(
    loss: Callable[[Array], float], n_parts: int, negligible: float, *, step: float = 0.0, ftol: float = FTOL
) -> Array:
    """Weights of least loss that are not negative and add up to 1; negligible ones are dropped.

    Parameters
    ----------
    loss : callable
        Of the weights.
    n_parts : int
        Number of weights.
    negligible : float
        What is less becomes 0.
    step : float, default=0.0
        Weights are rounded to multiples of this, where it is not 0.
    ftol : float
        Relative change of the loss that ends the search.

    Examples
    --------
    >>> convex_weights(lambda weights: float((weights[0] - 0.3) ** 2), 2, 0.1).round(2).tolist()
    [0.3, 0.7]
    """
    # Start from the best of the candidates and the even mix; the search is over log-odds, which keeps weights convex.
    starts = [np.zeros(n_parts), *(np.where(np.arange(n_parts) == k, 3.0, 0.0) for k in range(n_parts))]
    start = min(starts, key=lambda free: loss(_softmax(free)))
    settings = {"method": "L-BFGS-B", "bounds": [(-8.0, 8.0)] * n_parts, "options": {"ftol": ftol}}
    weights = _softmax(minimize(lambda free: loss(_softmax(free)), start, **settings).x)
    weights = np.round(weights / step) * step if step else weights
    weights[weights < negligible] = 0.0
    return weights / weights.sum()


def _softmax(free: Array) -> Array:
    odds = np.exp(free - free.max())
    return odds / odds.sum()
