"""The paper's synthetic data (sections 4.2 and E.1): five modifiers among d Gaussian features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.utils import Bunch

from modifind._typing import Array

KINDS = ("LinMean", "NonlinMean", "LinVar", "NonlinVar", "LinCovar", "NonlinCovar")
N_MODIFIERS = 5
ARM_MEAN = 0.2
NEIGHBOUR_CORRELATION = 0.2


def _linear(x: Array) -> Array:
    return x[:, :N_MODIFIERS] @ np.array([4.0, 2.0, 1.0, 2.0, 4.0])


def _nonlinear(x: Array) -> Array:
    first = x[:, :N_MODIFIERS]
    return ((first - 0.5) ** 3).sum(axis=1) + 3.0 * first.sum(axis=1) - 6.0


def make_modifiers(
    kind: str = "LinMean", n_samples: int = 1000, n_features: int = 30, random_state: Any = None
) -> Bunch:
    r"""Simulate one of the paper's data sets.

    A ~ Bernoulli(1/2), X | A ~ N(-0.2, S) or N(+0.2, S) with ``S_ij = 0.2^|i-j|``. With ``f = 4 X1 + 2 X2 + X3 + 2 X4
    + 4 X5``, ``g = sum (X_j - 0.5)^3 + 3 sum X_j - 6`` and ``h(v) = max(v, 1)``:

    ============  =======================================================================
    LinMean       Y0 ~ N(-f, 1), Y1 ~ N(f, 1); NonlinMean with g
    LinVar        Y0 ~ N(-5, 1), Y1 ~ N(0, h(f)^2); NonlinVar with g
    LinCovar      means -5 and 0, variances 1, correlation 1 - 1/h(f); NonlinCovar with g
    ============  =======================================================================

    Parameters
    ----------
    kind : str, default="LinMean"
        LinMean, NonlinMean, LinVar, NonlinVar, LinCovar or NonlinCovar, in any case.
    n_samples : int, default=1000
        Number of rows.
    n_features : int, default=30
        Number of features, at least 5. The first five are the modifiers.
    random_state : int or Generator, optional
        Seed.

    Returns
    -------
    Bunch
        `X` (DataFrame with columns X1, X2, ...), `treatment`, `y`, `modifiers` (names of the true ones; in the Covar
        kinds they move only the correlation of Y0 and Y1, which no data show), `y0`, `y1` and `propensity`, the true
        P(A=1|X).

    Examples
    --------
    >>> data = make_modifiers("LinVar", n_samples=200, random_state=0)
    >>> data.X.shape, data.modifiers
    ((200, 30), ['X1', 'X2', 'X3', 'X4', 'X5'])
    """
    by_lower = {name.lower(): name for name in KINDS}
    if not isinstance(kind, str) or kind.lower() not in by_lower:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    kind = by_lower[kind.lower()]
    if n_features < N_MODIFIERS:
        raise ValueError(f"n_features must be at least {N_MODIFIERS}, not {n_features}")
    if n_samples < 2:
        raise ValueError(f"n_samples must be at least 2, not {n_samples}")
    rng = np.random.default_rng(random_state)
    covariance = NEIGHBOUR_CORRELATION ** np.abs(np.subtract.outer(np.arange(n_features), np.arange(n_features)))
    treatment = rng.integers(0, 2, size=n_samples)
    shift = np.where(treatment == 1, ARM_MEAN, -ARM_MEAN)[:, None]
    x = shift + rng.standard_normal((n_samples, n_features)) @ np.linalg.cholesky(covariance).T
    noise = rng.standard_normal((2, n_samples))
    score = _nonlinear(x) if kind.startswith("Nonlin") else _linear(x)
    scale = np.maximum(score, 1.0)
    if kind.endswith("Mean"):
        y0, y1 = -score + noise[0], score + noise[1]
    elif kind.endswith("Covar"):
        correlation = 1.0 - 1.0 / scale
        y0 = -5.0 + noise[0]
        y1 = correlation * noise[0] + np.sqrt(1.0 - correlation**2) * noise[1]
    else:
        y0, y1 = -5.0 + noise[0], scale * noise[1]
    names = [f"X{j}" for j in range(1, n_features + 1)]
    # log of the density ratio of the two Gaussians, whose means are opposite
    log_odds = 2.0 * x @ np.linalg.solve(covariance, np.full(n_features, ARM_MEAN))
    return Bunch(
        X=pd.DataFrame(x, columns=names),
        treatment=treatment,
        y=np.where(treatment == 1, y1, y0),
        modifiers=names[:N_MODIFIERS],
        y0=y0,
        y1=y1,
        propensity=expit(log_odds),
        kind=kind,
    )
