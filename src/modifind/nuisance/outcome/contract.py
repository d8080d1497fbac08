"""Contracts of outcome learners and likelihoods, validated predictions, and the marginal baseline."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Protocol

import numpy as np
from sklearn.base import BaseEstimator

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.regression.smooth import check_probabilities

TINY = np.finfo(np.float64).tiny


class OutcomeLearner(Protocol):
    """Location and scale of the outcome in both arms.

    For a binary outcome the location is a probability; the scale is checked but not used. A learner may also have
    ``along(X, columns, points)``, which gives the same two arrays, of shape (n, g, 2), when the columns take other
    values; otherwise `predict` is called with the rows repeated. With ``index(X)`` beside it, its value for the rows as
    they are is computed once and handed to ``along(..., index)`` for every feature. One that leaves some columns out
    may say so by ``looks_at(columns)``. One that wraps another has that as `stands_for`, which messages name. Tables
    with sample weights need ``fit(X, a, y, sample_weight=None)``.

    Examples
    --------
    >>> import numpy as np
    >>> class ArmMeans:
    ...     def fit(self, X, a, y):
    ...         self.location = [y[a == arm].mean() for arm in (0, 1)]
    ...         self.scale = [y[a == arm].std() for arm in (0, 1)]
    ...         return self
    ...     def predict(self, X):
    ...         return np.tile(self.location, (len(X), 1)), np.tile(self.scale, (len(X), 1))
    >>> X, a, y = np.zeros((4, 1)), np.array([0, 0, 1, 1]), np.array([1.0, 3.0, 5.0, 9.0])
    >>> location, scale = ArmMeans().fit(X, a, y).predict(X[:1])
    >>> location.tolist(), scale.tolist()
    ([[2.0, 7.0]], [[1.0, 2.0]])
    """

    def fit(self, X: Array, a: Ints, y: Array) -> Any:
        """Learn from features as a numeric matrix, arms 0 and 1, and the outcome."""

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Location and scale, each of shape (n, 2) with one column per arm."""


class Likelihood(Protocol):
    """Likelihood of outcomes given predicted locations and scales, by which models are compared.

    `statistics.families` has the families of outcomes, of which this is the part that models use.

    Attributes
    ----------
    name : str
        How results call the density.
    kind : str
        What messages call the outcome; learners given by name are those for the kind.
    chances : bool
        Whether locations are probabilities.
    """

    name: ClassVar[str]
    kind: ClassVar[str]
    chances: ClassVar[bool] = False

    def fitted(self, y: Array, location: Array, scale: Array, weights: Weights | None = None) -> Likelihood:
        """The same family with common parameters fitted, such as the dispersion of counts."""

    def as_number(self, y: Array) -> Array:
        """The outcome as a number whose mean varies with the columns and levels that matter."""

    @abstractmethod
    def log_density(self, y: Array, location: Array | float, scale: Array | float, shape: Array | float) -> Array:
        """Log-density of every row; scale and shape are 1 and infinite if a family has none."""

    @abstractmethod
    def residual(self, y: Array, location: Array, scale: Array | float) -> Array:
        """Outcome minus location, in units of the scale."""

    def best_shape(self, residual: Array, weights: Weights | None = None) -> float:
        """The shape of maximum likelihood."""

    def origin(self, y: Array) -> tuple[float, float]:
        """Centre and unit of outcomes, to which the weights of a stack must be invariant."""

    @abstractmethod
    def marginal(self, y: Array, least_scale: float) -> tuple[float, float, float]:
        """Location, scale and shape of the marginal distribution of outcomes."""


class ScreenedLearner(BaseEstimator):
    """Base class of this package's learners, which get a subset of the columns if there are many."""


def predict_arms(model: OutcomeLearner, X: Array, *, chances: bool = False) -> tuple[Array, Array]:
    """Validated location and scale of both arms; with `chances`, locations must be probabilities."""
    return _checked(model, "predict", model.predict(X), (X.shape[0], 2), chances)


def predict_along(
    model: OutcomeLearner, X: Array, columns: slice, points: Array, index: Array | None = None, *, chances: bool = False
) -> tuple[Array, Array]:
    """Location and scale, shape (n, g, 2) each, when `columns` take the values `points` of shape (n, g, width)."""
    n, g = points.shape[:2]
    if hasattr(model, "along"):
        predicted = model.along(X, columns, points) if index is None else model.along(X, columns, points, index)
        return _checked(model, "along", predicted, (n, g, 2), chances)
    rows = np.repeat(X, g, axis=0)
    rows[:, columns] = points.reshape(n * g, -1)
    location, scale = predict_arms(model, rows, chances=chances)
    return location.reshape(n, g, 2), scale.reshape(n, g, 2)


def index_of(model: OutcomeLearner, X: Array) -> Any:
    """Values that a learner can reuse for every feature; None if it has no `index`."""
    return model.index(X) if hasattr(model, "index") else None


def without_rows(model: Any) -> Any:
    """A fitted learner without the training rows from which other learners start."""
    return model.without_rows() if hasattr(model, "without_rows") else model


def observed_arm(both: Array, a: Ints) -> Array:
    """Of predictions for both arms, those for the observed arm of each row."""
    return both[np.arange(a.size), a]


def looks_at(model: OutcomeLearner, columns: slice) -> bool:
    """Whether a learner's predictions can depend on any of the columns."""
    return bool(model.looks_at(columns)) if hasattr(model, "looks_at") else True


def check_along(model: OutcomeLearner, X: Array) -> None:
    """Refuse a learner whose `along` disagrees with its `predict`: the test compares the two."""
    columns = slice(0, 1)
    direct, along = predict_arms(model, X), predict_along(model, X, columns, X[:, None, columns])
    for name, first, second in zip(("location", "scale"), direct, along, strict=True):
        if not np.allclose(first, second[:, 0], rtol=1e-3, atol=1e-6 * float(np.abs(first).max())):
            raise ValueError(f"{type(model).__name__}.along and .predict give different values of the {name}")


def _caller(model: Any, method: str) -> str:
    while hasattr(model, "stands_for"):
        model = model.stands_for
    return f"{type(model).__name__}.{method if hasattr(model, method) else 'predict'}"


def _checked(model: Any, method: str, predicted: Any, shape: tuple[int, ...], chances: bool) -> tuple[Array, Array]:
    caller = _caller(model, method)
    if not isinstance(predicted, tuple | list) or len(predicted) != 2:
        raise ValueError(f"{caller} must return a pair (location, scale); found {type(predicted).__name__}")
    location, scale = (np.asarray(values, dtype=np.float64) for values in predicted)
    for name, values in (("location", location), ("scale", scale)):
        if values.shape != shape:
            raise ValueError(
                f"{caller} must return (location, scale) of shape {shape}, the last axis being the arms; its {name} "
                f"has shape {values.shape}"
            )
        if not np.isfinite(values).all():
            raise ValueError(f"{caller} returned a {name} that is not finite")
    if (scale < 0).any():
        raise ValueError(f"{caller} returned a negative scale")
    if chances:
        check_probabilities(location, caller)
    return location, np.maximum(scale, TINY)


def marginal_log_likelihood(
    y: Array, a: Ints, folds: Ints, *, family: Likelihood, least_scale: float = 0.0, weights: Weights | None = None
) -> Array:
    """Held-out log-likelihood of every row under the distribution of its arm in the other folds.

    Parameters
    ----------
    y : array of shape (n,)
        Outcome, as the family takes it.
    a, folds : array of shape (n,)
        Arm and fold of each row.
    family : Likelihood
        Whose location, scale and shape each arm has.
    least_scale : float, default=0.0
        Smallest scale, for arms with a constant outcome.
    weights : Weights, optional
        How much each row counts; values that stand for the weighted ones are then fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.statistics.families import StudentT
    >>> y, a, folds = np.random.default_rng(0).normal(size=400), np.tile([0, 1], 200), np.repeat([0, 1], 200)
    >>> round(float(marginal_log_likelihood(y, a, folds, family=StudentT()).mean()), 2)
    -1.43
    """
    log_likelihood, counts = np.empty(y.size), Weights.of(weights, y.size)
    for fold in np.unique(folds):
        for arm in (0, 1):
            inside, outside = (folds == fold) & (a == arm), (folds != fold) & (a == arm)
            seen = counts[outside].representative(y[outside], int(outside.sum()))
            location, scale, shape = family.marginal(seen, least_scale)
            fitted = family.fitted(seen, np.full(seen.size, location), np.full(seen.size, scale))
            log_likelihood[inside] = fitted.log_density(y[inside], location, scale, shape)
    return log_likelihood
