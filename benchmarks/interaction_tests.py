"""The test that a statistician would run by hand: treatment times every feature in a generalised linear model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm

Array = NDArray[np.float64]
STEPS = 30


def interaction_p_values(X: Array, a: NDArray[np.int64], y: Array, kind: str, scale: str) -> Array:
    """P-values of treatment times each feature, all features and the treatment being in the model as well.

    Wald tests with a sandwich variance: of a linear model for differences, of a log-linear one (Poisson scores) for
    ratios, of a logistic one for odds ratios, of cumulative logits for ordered levels. Amounts have two models, for any
    and for the logarithm of amounts above zero, and twice the smaller of the two p-values.
    """
    if kind == "amount":
        has_any = y > 0
        first = interaction_p_values(X, a, has_any.astype(np.float64), "binary", scale)
        second = interaction_p_values(X[has_any], a[has_any], np.log(y[has_any]), "numeric", "difference")
        return np.minimum(2 * np.minimum(first, second), 1.0)
    centred = (X - X.mean(axis=0)) / X.std(axis=0)
    design = np.column_stack((np.ones(a.size), centred, a, centred * (a - a.mean())[:, None]))
    tested = slice(design.shape[1] - X.shape[1], None)
    if kind == "ordinal":
        return _cumulative(design[:, 1:], y, X.shape[1])
    return _wald(*_fitted(design, y, scale))[tested]


def _fitted(design: Array, y: Array, scale: str) -> tuple[Array, Array]:
    """Coefficients by Fisher scoring and their sandwich variances."""
    inverse: dict[str, Callable[[Array], Array]] = {
        "difference": lambda eta: eta,
        "ratio": lambda eta: np.exp(np.clip(eta, -20, 20)),
        "odds_ratio": expit,
    }
    found = np.zeros(design.shape[1])
    found[0] = {"difference": y.mean(), "ratio": np.log(y.mean()), "odds_ratio": 0.0}[scale]
    for _ in range(STEPS):
        mean = inverse[scale](design @ found)
        weight = {"difference": np.ones(y.size), "ratio": mean, "odds_ratio": mean * (1 - mean)}[scale]
        bread = np.linalg.inv(design.T @ (design * weight[:, None]))
        move = bread @ (design.T @ (y - mean))
        damped = 1.0 if scale == "difference" else min(1.0, 1.0 / max(float(np.abs(move).max()), 1e-12))
        found = found + move * damped
        if np.abs(move).max() < 1e-8 * max(1.0, float(np.abs(found).max())):
            break
    leverage = weight * np.einsum("ij,jk,ik->i", design, bread, design)
    meat = design * ((y - mean) / (1 - np.minimum(leverage, 0.9)))[:, None]
    return found, np.diag(bread @ (meat.T @ meat) @ bread)


def _cumulative(design: Array, y: Array, n_tested: int) -> Array:
    """Cumulative logits by Newton's method on thresholds and coefficients; variances by the information."""
    levels = np.unique(y)
    codes = np.searchsorted(levels, y)
    k = levels.size - 1
    shares = np.cumsum(np.bincount(codes))[:-1] / y.size
    found = np.concatenate((np.log(shares / (1 - shares)), np.zeros(design.shape[1])))
    uppers, lowers = (np.equal(codes[:, None] - shift, np.arange(k)).astype(np.float64) for shift in (0, 1))
    for _ in range(STEPS):
        ends = np.concatenate(([-60.0], found[:k], [60.0]))
        index = design @ found[k:]
        above, below = expit(ends[codes + 1] - index), expit(ends[codes] - index)
        chance = np.maximum(above - below, 1e-12)
        slopes = (above * (1 - above))[:, None], (below * (1 - below))[:, None]
        score = (slopes[0] * np.hstack((uppers, -design)) - slopes[1] * np.hstack((lowers, -design))) / chance[:, None]
        bread = np.linalg.inv(score.T @ score)
        move = bread @ score.sum(axis=0)
        found = found + move * min(1.0, 1.0 / max(float(np.abs(move).max()), 1e-12))
        if np.abs(move).max() < 1e-8:
            break
    return _wald(found, np.diag(bread))[-n_tested:]


def _wald(found: Array, variance: Array) -> Array:
    return 2 * norm.sf(np.abs(found) / np.sqrt(variance))
