"""Models of the treatment: known scores as a function of the features, and the paper's network."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_predict
from sklearn.neural_network import MLPClassifier

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.propensity.choice import both_chances
from modifind.nuisance.regression.level_sums import Coded, LevelTables


class KnownScores(BaseEstimator):
    """Known scores as a function of the features, so that they can follow a resampled one.

    Linear on the logit scale (assignment by a logistic rule, or by strata), plus trees where those predict held-out
    scores better.
    """

    def fit(self, X: Array, scores: Array, sample_weight: Array | None = None, coded: Coded = ()) -> KnownScores:
        """Learn the assignment rule from its own scores; of `coded` categories the mean of every level."""
        target, weights = logit(scores), Weights.of(sample_weight, scores.size)
        means = []
        for columns, n_levels in coded:
            codes = X[:, columns.start].astype(np.intp)
            counts = np.maximum(np.bincount(codes, minlength=n_levels), 1)
            means.append(np.bincount(codes, target, minlength=n_levels) / counts)
        self.levels_ = LevelTables(tuple(columns.start for columns, _ in coded), tuple(means))
        X = self.levels_(X)
        argument = weights.argument()
        self.linear_ = LinearRegression().fit(X, target, **argument)
        rest = target - self.linear_.predict(X)
        self.trees_ = None
        whole = _variance(target, weights)
        unexplained = _variance(rest, weights) / whole
        if unexplained > 1e-8:
            trees = HistGradientBoostingRegressor(min_samples_leaf=5, random_state=0)
            predicted = cross_val_predict(trees, X, rest, cv=5, params=argument)
            held_out = float(_variance(rest - predicted, weights) / whole)
            if held_out < unexplained:
                self.trees_, unexplained = trees.fit(X, rest, **argument), held_out
        self.r2_ = 1.0 - unexplained
        return self

    def predict_proba(self, X: Array) -> Array:
        """Both class probabilities."""
        X = self.levels_(X)
        index = self.linear_.predict(X)
        if self.trees_ is not None:
            index = index + self.trees_.predict(X)
        return both_chances(index)


class EarlyStoppedMLP(ClassifierMixin, BaseEstimator):
    """Feed-forward network that stops at its best held-out log-loss.

    Parameters
    ----------
    hidden_layer_sizes : tuple of int, default=(50, 50)
        Units of each ReLU layer; the paper's network.
    epochs : int, optional
        Train for exactly this many epochs on all rows, without early stopping. Under Horvitz-Thompson weights this
        number decides the result (see docs/reproduction.md), which is why it is not the default.
    max_epochs : int, default=200
        Upper limit with early stopping.
    patience : int, default=10
        Epochs without improvement before stopping.
    random_state : int, default=0
        Seeds the split, the initial weights and the batches.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind import EarlyStoppedMLP
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> network = EarlyStoppedMLP((20,)).fit(X, (X[:, 0] > 0).astype(int))
    >>> network.predict_proba(np.array([[-2.0, 0.0], [2.0, 0.0]]))[:, 1].round().tolist()
    [0.0, 1.0]
    """

    def __init__(
        self,
        hidden_layer_sizes: tuple[int, ...] = (50, 50),
        *,
        epochs: int | None = None,
        max_epochs: int = 200,
        patience: int = 10,
        random_state: int | None = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.epochs = epochs
        self.max_epochs = max_epochs
        self.patience = patience
        self.random_state = random_state

    def fit(self, X: Array, y: Ints, sample_weight: Array | None = None) -> EarlyStoppedMLP:
        """Train on four fifths of the rows, watch the rest, keep the best weights."""
        weights = Weights.of(sample_weight, len(y))
        self.classes_ = np.unique(y)
        rng = np.random.default_rng(self.random_state)
        self.network_ = MLPClassifier(self.hidden_layer_sizes, random_state=int(rng.integers(2**31)))
        if self.epochs:
            for _ in range(self.epochs):
                self.network_.partial_fit(X, y, classes=self.classes_, **weights.argument())
            self.n_epochs_ = self.epochs
        else:
            self._stop_early(X, y, weights, rng.permutation(len(y)) < max(len(y) // 5, 1))
        return self

    def _stop_early(self, X: Array, y: Ints, weights: Weights, held: NDArray[np.bool_]) -> None:
        network, best, self.n_epochs_ = self.network_, np.inf, 0
        for epoch in range(1, self.max_epochs + 1):
            network.partial_fit(X[~held], y[~held], classes=self.classes_, **weights[~held].argument())
            predicted = network.predict_proba(X[held])
            loss = log_loss(y[held], predicted, labels=self.classes_, sample_weight=weights[held].given)
            if loss < best:
                best, self.n_epochs_ = loss, epoch
                kept = [w.copy() for w in network.coefs_], [b.copy() for b in network.intercepts_]
            elif epoch - self.n_epochs_ >= self.patience:
                break
        network.coefs_, network.intercepts_ = kept

    def predict_proba(self, X: Array) -> Array:
        """Class probabilities."""
        return self.network_.predict_proba(X)

    def predict(self, X: Array) -> NDArray[Any]:
        """More probable class."""
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


def _variance(values: Array, weights: Weights) -> Any:
    """Variance over rows."""
    return weights.mean((values - weights.mean(values)) ** 2)
