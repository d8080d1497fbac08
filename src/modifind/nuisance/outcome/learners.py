"""Outcome learners by name or as passed by the user: learners, or any scikit-learn regressor or classifier."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import cross_val_predict

from modifind._typing import Array, Ints
from modifind.data.weights import Weights, check_takes_weights
from modifind.data.words import check_part
from modifind.nuisance.outcome.additive import AdditiveLearner, BoostingLearner
from modifind.nuisance.outcome.contract import OutcomeLearner
from modifind.nuisance.outcome.generalised import AdditiveAmounts, AdditiveClassifier, AdditiveCounts, AdditiveOrdinal
from modifind.nuisance.outcome.neural import NeuralLearner
from modifind.nuisance.regression.smooth import predict_probabilities

N_SCALE_FOLDS = 5


class RegressorLearner(BaseEstimator):
    """One regressor per arm for the location, with the scale from its held-out residuals.

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
        """The user's estimator, for messages."""
        return self.regressor

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Location and scale of both arms."""
        if is_classifier(self.regressor):
            chance = np.column_stack(
                [predict_probabilities(model, X) @ (model.classes_ == 1.0) for model in self.arms_]
            )
            return chance, np.sqrt(chance * (1.0 - chance))
        locations, scales = [], []
        for location, spread, scale in self.arms_:
            locations.append(location.predict(X))
            scales.append(scale * (np.ones(len(X)) if spread is None else np.exp(spread.predict(X) / 2)))
        return np.column_stack(locations), np.column_stack(scales)


# The additive model of each kind of outcome, and the learners beside it: from the device to a learner.
ADDITIVE: dict[str, Any] = {
    "numeric": AdditiveLearner,
    "binary": AdditiveClassifier,
    "count": AdditiveCounts,
    "ordinal": AdditiveOrdinal,
    "amount": AdditiveAmounts,
}
OTHERS: dict[str, dict[str, Callable[[str], OutcomeLearner]]] = {
    "numeric": {"boosting": lambda device: BoostingLearner(), "neural": lambda device: NeuralLearner(device=device)}
}
SINGLE_MODEL_KINDS = ("numeric", "binary", "count")  # kinds of outcomes that one regressor or classifier is a model of


def resolve_learners(learner: Any, kind: str, *, device: str = "cpu") -> dict[str, OutcomeLearner]:
    """Candidates by name from what the user passed: "auto", a name, an object, or a list of those.

    Names stand for learners of outcomes of the `kind`, and networks are trained on `device`.
    """
    known = {
        "linear": lambda device: ADDITIVE[kind](0, products=False),
        "splines": lambda device: ADDITIVE[kind](),
        **OTHERS.get(kind, {}),
    }
    if learner == "auto":
        learner = [name for name in known if name != "neural" or find_spec("torch") is not None]
    chosen: dict[str, OutcomeLearner] = {}
    for item in learner if isinstance(learner, list | tuple) else [learner]:
        name = item if isinstance(item, str) else type(item).__name__
        if isinstance(item, str) and item not in known:
            names, article = ", ".join(map(repr, known)), "an" if kind[0] in "ao" else "a"
            raise ValueError(f"learner for {article} {kind} outcome must be 'auto', {names}, not {item!r}")
        made = known[item](device) if isinstance(item, str) else _users_learner(item, kind, tuple(known))
        chosen[f"{name} {len(chosen) + 1}" if name in chosen else name] = made
    if not chosen:
        raise ValueError("learner must not be an empty list")
    return chosen


def _users_learner(item: Any, kind: str, known: tuple[str, ...]) -> OutcomeLearner:
    """The user's learner, or one that wraps a scikit-learn estimator; refused if it does not suit the outcome."""
    check_part("learner", item, "fit", "predict")
    if not isinstance(item, BaseEstimator) or not (is_regressor(item) or is_classifier(item)):
        return item
    if kind not in SINGLE_MODEL_KINDS:
        raise ValueError(
            f"learner {type(item).__name__} predicts averages, which do not model an outcome of kind {kind!r}; "
            f"use {' or '.join(map(repr, known))}"
        )
    lacks = (
        "an outcome of two values" if kind != "binary" else "" if hasattr(item, "predict_proba") else "predict_proba"
    )
    if lacks and is_classifier(item):
        raise ValueError(f"learner {type(item).__name__} is a classifier, which needs {lacks}")
    return RegressorLearner(item)
