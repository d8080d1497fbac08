"""Treatment models: known scores as a function of the features, networks, trees, mixtures, and levels.

Classifiers see categories with many levels as shrunken log-odds. The unadjusted remainder would confound if a level is
good for the outcome and often treated, since outcome models shrink too: both would err in the same levels, in the same
direction. So scores are finally shifted until the expected number of treated rows matches in every level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_predict
from sklearn.neural_network import MLPClassifier

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.regression.levels import Coded, LevelSums, LevelTables, level_folds
from modifind.nuisance.regression.smooth import predict_probabilities, suggested_terms

EDGE = 1e-6
TREE_SIGN = 0.01  # p-value at which trees are given a column, over the number of columns


class KnownScores(BaseEstimator):
    """Known scores as a function of the features, so that they can follow a resampled one.

    Linear on the logit scale (assignment by a logistic rule, or by strata), plus trees where those predict held-out
    scores better.
    """

    def fit(self, X: Array, scores: Array, sample_weight: Array | None = None, coded: Coded = ()) -> KnownScores:
        """Learn the assignment rule from its scores; for `coded` categories the mean of every level."""
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
        return both_probabilities(index)


class EarlyStoppedMLP(ClassifierMixin, BaseEstimator):
    """Feed-forward network that stops at the best held-out log-loss.

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
        """Train on four fifths of the rows, monitor the rest, keep the best weights."""
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


class StackedScores(ClassifierMixin, BaseEstimator):
    """Weighted mean of the log-odds of several classifiers.

    Parameters
    ----------
    members : list of classifiers
        The classifiers.
    weights : list of float
        Their weights.
    """

    def __init__(self, members: list[Any], weights: list[float]) -> None:
        self.members = members
        self.weights = weights

    def fit(self, X: Array, y: Ints, sample_weight: Array | None = None) -> StackedScores:
        """Fit every classifier."""
        arguments = Weights.of(sample_weight, y.size).argument()
        self.classes_ = np.unique(y)
        self.fitted_ = [clone(member).fit(X, y, **arguments) for member in self.members]
        return self

    def predict_proba(self, X: Array) -> Array:
        """Both class probabilities."""
        members = zip(self.weights, self.fitted_, strict=True)
        total = np.sum([weight * log_odds(member.predict_proba(X)) for weight, member in members], axis=0)
        return both_probabilities(total)

    def log_odds_along(self, X: Array, columns: slice, points: Array) -> Array:
        """Log-odds, shape (n, g), when some columns take the values `points`, (n, g, width)."""
        members = zip(self.weights, self.fitted_, strict=True)
        return np.sum([weight * log_odds_along(member, X, columns, points) for weight, member in members], axis=0)


class ScreenedTrees(ClassifierMixin, BaseEstimator):
    """Boosted trees on the columns that residuals of a logistic regression depend on, alone or in a product.

    Trees that search for the product of two steps among many columns make their first splits by chance.

    Parameters
    ----------
    C : float, default=1.0
        Inverse of the penalty of the logistic regression.
    columns : tuple of int, default=()
        Columns that are called whatever the residuals say.
    rounds, leaves : int, default=30, 8
        Number of trees, and of the leaves of each.
    """

    def __init__(self, C: float = 1.0, columns: tuple[int, ...] = (), rounds: int = 30, leaves: int = 8) -> None:
        self.C = C
        self.columns = columns
        self.rounds = rounds
        self.leaves = leaves

    def fit(self, X: Array, y: Ints, sample_weight: Array | None = None) -> ScreenedTrees:
        """Fit a linear model, screen columns by its residuals, and grow trees."""
        self.classes_ = np.unique(y)
        lines = LogisticRegression(C=self.C, max_iter=1000).fit(X, y, sample_weight)
        residual = y - lines.predict_proba(X)[:, 1]
        terms = suggested_terms(X, [residual], Weights.of(sample_weight, y.size), sign=TREE_SIGN / X.shape[1])
        called = {k for k, basis in enumerate(terms.bases) if basis.width > 1}
        called |= {factor % X.shape[1] for pair in terms.pairs for factor in pair} | set(self.columns)
        self.columns_ = np.array(sorted(called) or range(X.shape[1]), dtype=np.int64)
        self.trees_ = HistGradientBoostingClassifier(
            max_iter=self.rounds,
            learning_rate=0.1,
            max_leaf_nodes=self.leaves,
            min_samples_leaf=max(20, y.size // 200),
            early_stopping=False,
            random_state=0,
        ).fit(X[:, self.columns_], y, sample_weight)
        return self

    def predict_proba(self, X: Array) -> Array:
        """Both class probabilities."""
        return self.trees_.predict_proba(X[:, self.columns_])

    def log_odds_along(self, X: Array, columns: slice, points: Array) -> Array:
        """Log-odds, shape (n, g), when some columns take the values `points`, (n, g, width)."""
        moving = [(k, j - columns.start) for k, j in enumerate(self.columns_) if columns.start <= j < columns.stop]
        if not moving:
            return np.repeat(log_odds(self.predict_proba(X))[:, None], points.shape[1], axis=1)
        rows = np.repeat(X[:, self.columns_], points.shape[1], axis=0)
        for k, j in moving:
            rows[:, k] = points[..., j].ravel()
        return log_odds(self.trees_.predict_proba(rows)).reshape(points.shape[:2])


def log_odds(chances: Array) -> Array:
    """Log-odds of the second class, with probabilities bounded away from 0 and 1."""
    return logit(np.clip(chances[:, 1], EDGE, 1.0 - EDGE))


def both_probabilities(log_odds: Array) -> Array:
    """Probabilities of both classes, shape (n, 2)."""
    treated = expit(log_odds)
    return np.stack((1.0 - treated, treated), axis=1)


def log_odds_along(model: Any, X: Array, columns: slice, points: Array) -> Array:
    """Log-odds of a classifier, shape (n, g), when some columns take the values `points`, (n, g, width)."""
    if isinstance(model, LogisticRegression):
        moved = np.einsum("igk,k->ig", points - X[:, columns][:, None], model.coef_[0, columns])
        return model.decision_function(X)[:, None] + moved
    if hasattr(model, "log_odds_along"):
        return model.log_odds_along(X, columns, points)
    X, moved = X.copy(), np.empty(points.shape[:2])
    for k in range(points.shape[1]):
        X[:, columns] = points[:, k]
        moved[:, k] = log_odds(predict_probabilities(model, X))
    return moved


def _variance(values: Array, weights: Weights) -> Any:
    """Variance over rows."""
    return weights.mean((values - weights.mean(values)) ** 2)


N_ROUNDS = 3
N_STEPS = 12
LEVEL_EDGE = 1e-9
PRIOR_VARIANCE = 10.0
MIN_CHANCE = 1e-4  # how near to 0 or 1 a score may come on the way


def level_odds(coded: Coded, X: Array, treatment: Ints, weights: Weights) -> tuple[LevelTables, Array]:
    """Log-odds contributed by levels, and these rows' columns, each estimated from the other rows of its level.

    They replace the codes.
    """
    if not coded:
        return LevelTables(), X
    places = [columns.start for columns, _ in coded]
    others = np.delete(X, places, axis=1)
    index = np.full(treatment.size, logit(float(weights.mean(treatment.astype(np.float64)))))
    if others.shape[1]:
        model = LogisticRegression(C=1.0, max_iter=1000).fit(others, treatment, **weights.argument())
        index = model.decision_function(others)
    folds, alone = level_folds(treatment.size), np.zeros(treatment.size, dtype=np.intp)
    tables, columns = [], X.copy()
    for code_column, n_levels in coded:
        codes = X[:, code_column.start].astype(np.intp)
        table, outside = np.zeros(n_levels), np.zeros((int(folds.max()) + 1, n_levels))
        for _ in range(N_ROUNDS):
            start = outside[folds, codes]  # where the others' effects are, of Newton's steps towards the mode
            chance = np.clip(expit(index + start), MIN_CHANCE, 1 - MIN_CHANCE)
            weight = chance * (1 - chance)
            residual = start + (treatment - chance) / weight
            sums = LevelSums.of(codes, n_levels, alone, folds, weights.times(weight), residual, n_arms=1)
            table, outside = (effects[..., 0] for effects in sums.effects())
        index = index + outside[folds, codes]
        columns[:, code_column.start] = outside[folds, codes]
        tables.append(table)
    return LevelTables(tuple(places), tuple(tables)), columns


@dataclass(frozen=True)
class LevelClassifier:
    """A fitted classifier that sees log-odds of levels in place of their codes.

    Attributes
    ----------
    model : classifier
        The classifier.
    odds : LevelTables
        What it is given.
    shifts : LevelTables
        What is added to the log-odds in the end.
    """

    model: Any
    odds: LevelTables
    shifts: LevelTables

    def predict_proba(self, X: Array) -> Array:
        """Class probabilities of rows."""
        chances = predict_probabilities(self.model, self.odds(X))
        return both_probabilities(logit(np.clip(chances[:, 1], LEVEL_EDGE, 1 - LEVEL_EDGE)) + self.shifts.total(X))

    def log_odds_along(self, X: Array, columns: slice, points: Array) -> Array:
        """Log-odds, shape (n, g), when some columns take the values `points`, (n, g, width)."""
        moved = log_odds_along(self.model, self.odds(X), columns, self.odds(points, columns.start))
        still = self.shifts.total(X) - self.shifts.total(X[:, columns], columns.start)
        return moved + still[:, None] + self.shifts.total(points, columns.start)


def fit_classifier(template: Any, X: Array, treatment: Ints, weights: Weights, coded: Coded) -> Any:
    """Fit a classifier to rows with or without columns of codes."""
    if not coded:
        return template.fit(X, treatment, **weights.argument())
    odds, columns = level_odds(coded, X, treatment, weights)
    shifts = LevelTables(odds.columns, tuple(np.zeros(n_levels) for _, n_levels in coded))
    return LevelClassifier(template.fit(columns, treatment, **weights.argument()), odds, shifts)


def balanced(
    models: Sequence[Any],
    scores: Array,
    X: Array,
    treatment: Ints,
    weights: Weights,
    coded: Coded,
    unpooled: tuple[Array, ...] = (),
) -> tuple[list[Any], Array]:
    """Shift classifiers and scores until the expected number of treated rows matches in every level.

    Pooled rare levels count as levels of their own here: `unpooled` has their codes, and the rows keep this part of
    their shift whatever level they are given. A weak prior keeps shifts finite if a level lacks an arm.
    """
    if not coded:
        return list(models), scores
    index = logit(np.clip(scores, LEVEL_EDGE, 1 - LEVEL_EDGE))
    places = [(X[:, columns.start].astype(np.intp), n_levels) for columns, n_levels in coded]
    places += [(codes.astype(np.intp), int(codes.max()) + 1) for codes in unpooled]
    shifts = [np.zeros(n_levels) for _, n_levels in places]
    for _ in range(N_ROUNDS if len(places) > 1 else 1):
        for shift, (codes, n_levels) in zip(shifts, places, strict=True):
            for _ in range(N_STEPS):
                chance = expit(index)
                terms = weights.times(treatment - chance), weights.times(chance * (1 - chance))
                excess, slope = (np.bincount(codes, term, minlength=n_levels) for term in terms)
                step = np.clip((excess - shift / PRIOR_VARIANCE) / (slope + 1 / PRIOR_VARIANCE), -1.0, 1.0)
                shift += step
                index += step[codes]
    tables = LevelTables(models[0].odds.columns, tuple(shifts[: len(coded)]))
    return [replace(model, shifts=tables) for model in models], expit(index)


def is_linear(model: Any) -> bool:
    """Whether the log-odds of a classifier are a sum over columns."""
    return isinstance(_inner(model), LogisticRegression)


def slopes_of(model: Any) -> Array:
    """Slopes of a linear classifier."""
    return _inner(model).coef_[0]


def _inner(model: Any) -> Any:
    return model.model if isinstance(model, LevelClassifier) else model


def linear_tables(models: Sequence[LevelClassifier], columns: slice, levels: Array) -> Array:
    """Contribution of each level of a category to the log-odds of linear classifiers, shape (models, levels)."""
    start = columns.start
    return np.stack([m.shifts.total(levels, start) + m.odds(levels, start) @ slopes_of(m)[columns] for m in models])
