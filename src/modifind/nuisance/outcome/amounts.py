"""Two-part models of amounts that are often zero: whether there is any, and how much."""

from __future__ import annotations

from typing import Self

import numpy as np

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.outcome.additive import AdditiveLearner
from modifind.nuisance.outcome.binary import AdditiveClassifier
from modifind.nuisance.outcome.contract import ScreenedLearner


class AdditiveAmounts(ScreenedLearner):
    """Probability of a positive amount in each arm, and the typical positive amount: two additive models.

    The location is the probability, the scale the geometric mean of positive amounts.

    Parameters
    ----------
    n_knots : int, default=12
        Knots of curves; 0 leaves straight lines.
    products : bool, default=True
        Whether products of two columns may enter.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.nuisance.outcome import AdditiveAmounts
    >>> rng = np.random.default_rng(0)
    >>> X, a = rng.normal(size=(400, 2)), np.arange(400) % 2
    >>> y = (rng.random(400) < 0.4 + 0.4 * a) * np.exp(3 + 0.1 * rng.normal(size=400))
    >>> chance, amount = AdditiveAmounts().fit(X, a, y).predict(np.array([[0.0, 0.0]]))
    >>> chance.round(1).tolist(), (amount / np.exp(3)).round().tolist()
    ([[0.4, 0.8]], [[1.0, 1.0]])
    """

    def __init__(self, n_knots: int = 12, *, products: bool = True) -> None:
        self.n_knots = n_knots
        self.products = products

    def fit(self, X: Array, a: Ints, y: Array, sample_weight: Array | None = None) -> Self:
        """Fit both models, the second to rows with a positive amount."""
        has_any, weights = y > 0, Weights.of(sample_weight, y.size)
        self.any_ = AdditiveClassifier(self.n_knots, products=self.products)
        self.any_.fit(X, a, has_any.astype(np.float64), weights.given)
        logs, amount = np.log(y[has_any]), AdditiveLearner(self.n_knots, products=self.products)
        self.amount_ = amount.fit(X[has_any], a[has_any], logs, weights[has_any].given).without_rows()
        self.limits_ = float(logs.min()), float(logs.max())
        return self

    def index(self, X: Array) -> tuple[Array, Array]:
        """Sums of terms of both models, which `along` can reuse for every feature."""
        return self.any_.index(X), self.amount_.index(X)

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Probability of a positive amount, and the typical one, shape (n, 2) each."""
        return self.any_.predict(X)[0], self._typical(self.amount_.predict(X)[0])

    def along(
        self, X: Array, columns: slice, points: Array, index: tuple[Array | None, Array | None] = (None, None)
    ) -> tuple[Array, Array]:
        """The same, shape (n, g, 2) each, when some columns take the values `points`, (n, g, width)."""
        chance, _ = self.any_.along(X, columns, points, index[0])
        logs, _ = self.amount_.along(X, columns, points, index[1])
        return chance, self._typical(logs)

    def _typical(self, logs: Array) -> Array:
        """Amounts within the range of those in the training rows."""
        return np.exp(np.clip(logs, *self.limits_))
