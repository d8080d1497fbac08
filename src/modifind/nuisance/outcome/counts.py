"""Additive models of counts in two arms."""

from __future__ import annotations

import numpy as np

from modifind._typing import Array
from modifind.data.weights import Weights
from modifind.nuisance.outcome.linked import AdditiveIndex, IndexedRows, joint_weights

BELOW, ABOVE = 8.0, 1.0  # of the logarithms of the mean and of the largest count
LEAST_MEAN = 1e-3
MOST_DISPERSION = 20.0


class AdditiveCounts(AdditiveIndex):
    """Mean count in each arm: the exponential of smooth functions of single columns.

    `AdditiveIndex` has the parameters. Counts vary as a negative binomial variable does, with
    ``mean + dispersion * mean ** 2``, and with a dispersion that both arms share.

    Attributes
    ----------
    dispersion_ : float
        0 for counts that vary as a Poisson variable does.

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

    def _begin(self, y: Array, counts: Weights) -> float:
        return float(np.log(max(counts.mean(y), LEAST_MEAN)))

    def _share(self, arms: list[IndexedRows]) -> None:
        y, mean = (np.concatenate(parts) for parts in zip(*((arm.y, np.exp(arm.index)) for arm in arms), strict=True))
        counts = joint_weights(arms)
        excess = counts.mean((y - mean) ** 2 - mean)
        self.dispersion_ = float(np.clip(excess / counts.mean(mean**2), 0.0, MOST_DISPERSION))
        centre = np.log(max(float(counts.mean(y)), LEAST_MEAN))
        self.range_ = (float(centre) - BELOW, float(np.log(max(y.max(), 1.0))) + ABOVE)

    def _step(self, y: Array, index: Array) -> tuple[Array, Array]:
        mean = np.exp(index)
        inflation = 1.0 + self.dispersion_ * mean
        return (y - mean) / inflation, mean / inflation

    def _kept(self, index: Array) -> Array:
        return np.clip(index, *self.range_)

    def _outputs(self, total: Array) -> tuple[Array, Array]:
        """Mean and the standard deviation that it gives, from its logarithm."""
        mean = np.exp(self._kept(total))
        return mean, np.sqrt(mean + self.dispersion_ * mean**2)
