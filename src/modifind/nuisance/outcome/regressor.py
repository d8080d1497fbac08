"""Any scikit-learn regressor or classifier as a model of the outcome in two arms."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import cross_val_predict

from modifind._typing import Array, Ints
from modifind.data.weights import Weights, check_takes_weights
from modifind.nuisance.regression.chances import predict_chances

N_SCALE_FOLDS = 5


class RegressorLearner(BaseEstimator):
    """One regressor per arm for the location, and the size of its held-out residuals for the scale.

    Parameters
    ----------
    regressor : estimator
        Any scikit-learn regressor; for an outcome of 0 and 1 a classifier with `predict_proba`.
    spread : regressor, optional
        Predicts the logarithm of squared residuals, so that the scale follows the features. Without it each arm has
        one scale.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, a = rng.normal(size=(300, 2)), np.arange(300) % 2
    >>> y = a * X[:, 0] + rng.normal(size=300)
    >>> learner = RegressorLearner(RandomForestRegressor(min_samples_leaf=10, random_state=0))
    >>> location, scale = learner.fit(X, a, y).predict(X)
    >>> location.shape, scale.shape
    ((300, 2), (300, 2))
    """

    def __init__(self, regressor: Any, spread: Any = None) -> None:
        self.regressor = regressor
        self.spread = spread

    def fit(self, X: Array, a: Ints, y: Array, sample_weight: Array | None = None) -> RegressorLearner:
        """Fit each arm separately."""
        weights = Weights.of(sample_weight, y.size)
        for estimator in (self.regressor, self.spread):
            if estimator is not None and not weights.uniform:
                check_takes_weights(estimator, "learner")
        arms = ((X[a == arm], y[a == arm], weights[a == arm]) for arm in (0, 1))
        self.arms_: list[Any] = [
            (self._fit_classifier if is_classifier(self.regressor) else self._fit_arm)(*arm) for arm in arms
        ]
        return self

    def _fit_classifier(self, X: Array, y: Array, weights: Weights) -> Any:
        one_class = (y == y[0]).all()  # which many classifiers refuse
        return (DummyClassifier() if one_class else clone(self.regressor)).fit(X, y, **weights.argument())

    def _fit_arm(self, X: Array, y: Array, weights: Weights) -> tuple[Any, Any, float]:
        """Models of an arm's location and, optionally, of its spread, and the scale of the remaining residuals."""
        arguments, spread = weights.argument(), None
        location = clone(self.regressor).fit(X, y, **arguments)
        held_out = cross_val_predict(clone(self.regressor), X, y, cv=N_SCALE_FOLDS, params=arguments or None)
        squares = (y - held_out) ** 2
        if self.spread is not None:
            least = max(float(np.median(squares)), np.finfo(np.float64).tiny) * 1e-3
            spread = clone(self.spread).fit(X, np.log(np.maximum(squares, least)), **arguments)
            squares = squares / np.exp(spread.predict(X))
        return location, spread, float(np.sqrt(weights.mean(squares)))

    @property
    def stands_for(self) -> Any:
        """The estimator of the user, which messages name."""
        return self.regressor

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Location and scale of both arms."""
        if is_classifier(self.regressor):
            chance = np.column_stack([predict_chances(model, X) @ (model.classes_ == 1.0) for model in self.arms_])
            return chance, np.sqrt(chance * (1.0 - chance))
        locations, scales = [], []
        for location, spread, scale in self.arms_:
            locations.append(location.predict(X))
            scales.append(scale * (np.ones(len(X)) if spread is None else np.exp(spread.predict(X) / 2)))
        return np.column_stack(locations), np.column_stack(scales)
