"""What a model of the outcome must beat: each arm's own distribution, with no feature in it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.data.survey import representative_values
from modifind.nuisance.regression.density import SHAPES, robust_spread, student_log_density, student_weight

N_STEPS = 50
EDGE = 1e-3  # probabilities are kept this far from 0 and 1, as those of the model are


def marginal_log_likelihood(
    y: Array,
    a: NDArray[np.int64],
    folds: NDArray[np.int64],
    *,
    binary: bool,
    least_scale: float = 0.0,
    weights: Array | None = None,
) -> Array:
    """Held-out log-likelihood of every row under its arm's distribution in the other folds.

    Parameters
    ----------
    y : array of shape (n,)
        Outcome, 0 or 1 where `binary`.
    a, folds : array of shape (n,)
        Arm and fold of each row.
    binary : bool
        Bernoulli with the arm's frequency; otherwise Student-t with the arm's location, scale and degrees of freedom.
    least_scale : float, default=0.0
        Smallest scale, for arms with a constant outcome.
    weights : array of shape (n,), optional
        How much each row counts; values that stand for the weighted ones are then fitted.

    Examples
    --------
    >>> import numpy as np
    >>> y, a, folds = np.random.default_rng(0).normal(size=400), np.tile([0, 1], 200), np.repeat([0, 1], 200)
    >>> round(float(marginal_log_likelihood(y, a, folds, binary=False).mean()), 2)
    -1.43
    """
    found = np.empty(y.size)
    for fold in np.unique(folds):
        for arm in (0, 1):
            inside, outside = (folds == fold) & (a == arm), (folds != fold) & (a == arm)
            seen = y[outside]
            if weights is not None:
                seen = representative_values(seen, weights[outside], seen.size)
            if binary:
                share = float(np.clip(seen.mean(), EDGE, 1 - EDGE))
                found[inside] = np.where(y[inside] > 0.5, np.log(share), np.log1p(-share))
            else:
                location, scale, shape = _student(seen, max(least_scale, np.finfo(float).tiny))
                found[inside] = student_log_density((y[inside] - location) / scale, shape) - np.log(scale)
    return found


def _student(y: Array, least_scale: float) -> tuple[float, float, float]:
    """Location, scale and degrees of freedom of greatest likelihood, the latter from the few that models may have."""
    best, found = -np.inf, (0.0, 1.0, SHAPES[-1])
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
