"""The baseline of outcome models: the distribution of each arm without features."""

from __future__ import annotations

import numpy as np

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.outcome.contract import Likelihood


def marginal_log_likelihood(
    y: Array, a: Ints, folds: Ints, *, family: Likelihood, least_scale: float = 0.0, weights: Weights | None = None
) -> Array:
    """Held-out log-likelihood of every row under the distribution of its arm in the other folds.

    Parameters
    ----------
    y : array of shape (n,)
        Outcome, as the family takes it.
    a, folds : array of shape (n,)
        Arm and fold of each row.
    family : Likelihood
        Whose location, scale and shape each arm has.
    least_scale : float, default=0.0
        Smallest scale, for arms with a constant outcome.
    weights : Weights, optional
        How much each row counts; values that stand for the weighted ones are then fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.statistics.families import StudentT
    >>> y, a, folds = np.random.default_rng(0).normal(size=400), np.tile([0, 1], 200), np.repeat([0, 1], 200)
    >>> round(float(marginal_log_likelihood(y, a, folds, family=StudentT()).mean()), 2)
    -1.43
    """
    log_likelihood, counts = np.empty(y.size), Weights.of(weights, y.size)
    for fold in np.unique(folds):
        for arm in (0, 1):
            inside, outside = (folds == fold) & (a == arm), (folds != fold) & (a == arm)
            seen = counts[outside].representative(y[outside], int(outside.sum()))
            location, scale, shape = family.marginal(seen, least_scale)
            fitted = family.fitted(seen, np.full(seen.size, location), np.full(seen.size, scale))
            log_likelihood[inside] = fitted.log_density(y[inside], location, scale, shape)
    return log_likelihood
