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

N_FOLDS = 5


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
        """Fit both arms, each by itself."""
        weights = Weights.of(sample_weight, y.size)
        for part in (self.regressor, self.spread):
            if part is not None and not weights.uniform:
                check_takes_weights(part, "learner")
        self.locations_: list[Any] = []
        self.spreads_: list[Any] = []
        self.scales_: list[float] = []
        for arm in (0, 1):
            self._fit_arm(X[a == arm], y[a == arm], weights[a == arm])
        return self

    def _fit_arm(self, X: Array, y: Array, weights: Weights) -> None:
        own = weights.argument()
        if is_classifier(self.regressor):
            one_class = (y == y[0]).all()  # which many classifiers refuse
            model = DummyClassifier() if one_class else clone(self.regressor)
            self.locations_.append(model.fit(X, y, **own))
            return
        self.locations_.append(clone(self.regressor).fit(X, y, **own))
        squares = (y - cross_val_predict(clone(self.regressor), X, y, cv=N_FOLDS, params=own or None)) ** 2
        spread = None
        if self.spread is not None:
            least = max(float(np.median(squares)), np.finfo(np.float64).tiny) * 1e-3
            spread = clone(self.spread).fit(X, np.log(np.maximum(squares, least)), **own)
            squares = squares / np.exp(spread.predict(X))
        self.spreads_.append(spread)
        self.scales_.append(float(np.sqrt(weights.mean(squares))))

    @property
    def stands_for(self) -> Any:
        """What the user made."""
        return self.regressor

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Location and scale of both arms."""
        if is_classifier(self.regressor):
            chance = np.column_stack([predict_chances(model, X) @ (model.classes_ == 1.0) for model in self.locations_])
            return chance, np.sqrt(chance * (1.0 - chance))
        location = np.column_stack([model.predict(X) for model in self.locations_])
        scale = [
            own * (np.ones(len(X)) if spread is None else np.exp(spread.predict(X) / 2))
            for own, spread in zip(self.scales_, self.spreads_, strict=True)
        ]
        return location, np.column_stack(scale)
