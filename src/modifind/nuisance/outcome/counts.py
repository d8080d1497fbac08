"""Additive models of counts in two arms."""

from __future__ import annotations

import numpy as np

from modifind._typing import Array
from modifind.data.weights import Weights
from modifind.nuisance.outcome.linked import AdditiveIndex

BELOW, ABOVE = 8.0, 1.0  # how far the index may lie below the log of the mean count and above that of the largest
MIN_MEAN = 1e-3
MAX_DISPERSION = 20.0


class AdditiveCounts(AdditiveIndex):
    """Mean count in each arm: the exponential of smooth functions of single columns.

    `AdditiveIndex` has the parameters. The variance is that of a negative binomial variable,
    ``mean + dispersion * mean ** 2``, with one dispersion for both arms.

    Attributes
    ----------
    dispersion_ : float
        0 for Poisson counts.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.nuisance.outcome import AdditiveCounts
    >>> rng = np.random.default_rng(0)
    >>> X, a = rng.normal(size=(400, 2)), np.arange(400) % 2
    >>> y = rng.poisson(3 * np.exp(a * X[:, 0])).astype(float)
    >>> mean, _ = AdditiveCounts().fit(X, a, y).predict(np.array([[0.0, 0.0]]))
    >>> mean.round().tolist()  # of the control and of the treated
    [[3.0, 3.0]]
    """

    rounds = 6

    def _constant_index(self, y: Array, counts: Weights) -> float:
        return float(np.log(max(counts.mean(y), MIN_MEAN)))

    def _fit_shared(self, y: Array, index: Array, counts: Weights) -> None:
        """Dispersion by the method of moments; the mean may exceed the largest count by a little."""
        mean = np.exp(index)
        excess = counts.mean((y - mean) ** 2 - mean)
        self.dispersion_ = float(np.clip(excess / counts.mean(mean**2), 0.0, MAX_DISPERSION))
        self.limits_ = self._constant_index(y, counts) - BELOW, float(np.log(max(y.max(), 1.0))) + ABOVE

    def _score_and_information(self, y: Array, index: Array) -> tuple[Array, Array]:
        mean = np.exp(index)
        inflation = 1.0 + self.dispersion_ * mean
        return (y - mean) / inflation, mean / inflation

    def _location_and_scale(self, index: Array) -> tuple[Array, Array]:
        """Mean, from its logarithm, and the standard deviation that follows from it."""
        mean = np.exp(index)
        return mean, np.sqrt(mean + self.dispersion_ * mean**2)
