"""Additive logistic models of a binary outcome in two arms."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from modifind._typing import Array
from modifind.data.weights import Weights
from modifind.nuisance.outcome.linked import AdditiveIndex


class AdditiveClassifier(AdditiveIndex):
    """Probability of the outcome in each arm: a logistic function of smooth functions of single columns.

    `AdditiveIndex` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.nuisance.outcome import AdditiveClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, a = rng.normal(size=(400, 2)), np.arange(400) % 2
    >>> y = (rng.random(400) < np.where(a == 1, 0.5 + 0.4 * np.tanh(X[:, 0]), 0.5)).astype(float)
    >>> chance, _ = AdditiveClassifier().fit(X, a, y).predict(np.array([[-2.0, 0.0], [2.0, 0.0]]))
    >>> (chance[:, 1] > chance[:, 0]).tolist()
    [False, True]
    """

    def _constant_index(self, y: Array, counts: Weights) -> float:
        share = float(np.clip(counts.mean(y), 1e-3, 1 - 1e-3))
        return float(np.log(share / (1 - share)))

    def _score_and_information(self, y: Array, index: Array) -> tuple[Array, Array]:
        mean = expit(index)
        return y - mean, mean * (1 - mean)

    def _location_and_scale(self, index: Array) -> tuple[Array, Array]:
        """Probability, from its log-odds, and the standard deviation that follows from it."""
        probability = expit(index)
        return probability, np.sqrt(probability * (1 - probability))
