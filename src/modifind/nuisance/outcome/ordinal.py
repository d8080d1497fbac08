"""Additive models of ordered levels in two arms: cumulative logits."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from modifind._typing import Array
from modifind.data.weights import Weights
from modifind.nuisance.outcome.linked import AdditiveIndex

BEYOND = 60.0  # beyond any threshold
MIN_LEVEL_SHARE = 1e-6


def thresholds_of(levels: Array, index: Array, n_levels: int, counts: Weights | None = None) -> Array:
    """Thresholds c such that the mean over rows of ``expit(c_k - index)`` is the share of levels up to k.

    Each is the intercept of greatest likelihood of a logistic model, the index being given; they rise with the level.
    The last level has none.

    Examples
    --------
    >>> thresholds_of(np.array([0.0, 1.0, 1.0, 2.0]), np.zeros(4), 3).round(2).tolist()
    [-1.1, 1.1]
    """
    thresholds, counts = [], Weights.of(counts, levels.size)
    for k in range(n_levels - 1):
        share = float(np.clip(counts.mean((levels <= k).astype(np.float64)), MIN_LEVEL_SHARE, 1 - MIN_LEVEL_SHARE))
        thresholds.append(
            brentq(lambda c, share=share: counts.mean(expit(c - index)) - share, -BEYOND, BEYOND, xtol=1e-8)
        )
    return np.array(thresholds)


def up_to(levels: Array, index: Array, thresholds: Array) -> tuple[Array, Array]:
    """Probability of at most a row's level, and of a lower level."""
    ends = np.concatenate(([-BEYOND], thresholds, [BEYOND]))
    codes = levels.astype(np.intp)
    return expit(ends[codes + 1] - index), expit(ends[codes] - index)


def index_information(index: Array, thresholds: Array) -> Array:
    """Fisher information on the index."""
    total, below = np.zeros(np.shape(index)), np.zeros(np.shape(index))
    for threshold in (*thresholds, BEYOND):
        above = expit(threshold - index)
        total += (above - below) * (above + below - 1.0) ** 2
        below = above
    return np.maximum(total, 1e-6)


class AdditiveOrdinal(AdditiveIndex):
    """Log-odds of higher levels in each arm: smooth functions of single columns; `AdditiveIndex` has the parameters.

    With codes 0, 1, ... of the levels, ``P(level <= k) = expit(c_k - index)``: proportional odds. The location is the
    index, whose mean over rows, weighted by the information, is about zero.

    Attributes
    ----------
    thresholds_ : array
        The thresholds c_k of both arms.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.nuisance.outcome import AdditiveOrdinal
    >>> rng = np.random.default_rng(0)
    >>> X, a = rng.normal(size=(400, 2)), np.arange(400) % 2
    >>> y = np.digitize(2 * a * X[:, 0] + rng.logistic(size=400), [-1.0, 1.0]).astype(float)
    >>> log_odds, _ = AdditiveOrdinal().fit(X, a, y).predict(np.array([[-2.0, 0.0], [2.0, 0.0]]))
    >>> (log_odds[:, 1] > log_odds[:, 0]).tolist()
    [False, True]
    """

    rounds = 6

    def _constant_index(self, y: Array, counts: Weights) -> float:
        return 0.0

    def _fit_shared(self, y: Array, index: Array, counts: Weights) -> None:
        self.thresholds_ = thresholds_of(y, index, int(y.max()) + 1, counts)

    def _score_and_information(self, y: Array, index: Array) -> tuple[Array, Array]:
        return np.add(*up_to(y, index, self.thresholds_)) - 1.0, index_information(index, self.thresholds_)

    def _location_and_scale(self, index: Array) -> tuple[Array, Array]:
        return index, np.ones(index.shape)
