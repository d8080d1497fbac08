"""Which model of the treatment: logistic lines, splines and products, trees, or a mixture of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from modifind._typing import Array, Ints
from modifind.data.clusters import Clusters, cluster_folds, treated_as_one
from modifind.data.weights import Weights
from modifind.nuisance.regression.chances import predict_chances
from modifind.nuisance.regression.convex import convex_weights
from modifind.nuisance.regression.leftover import Leftover, Trace
from modifind.nuisance.regression.misfit import Misfit
from modifind.nuisance.regression.screening import ScreenedLogistic, has_many_columns
from modifind.nuisance.regression.smooth import SmoothClassifier, called_for

PENALTY_STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 1.0, 10.0)
SMOOTH_STRENGTHS = (0.1, 1.0, 10.0)
TREES = ((30, 8), (100, 16))  # rounds and leaves; the larger where a grid or a product of three calls for them
MISFIT_LEVEL = 0.01
CHOICE_ROWS = 20_000
MIN_ARM_ROWS = 500  # of an arm, where it has so many
NEGLIGIBLE = 0.05
EDGE = 1e-6


class StackedScores(ClassifierMixin, BaseEstimator):
    """A mean of the log-odds of several classifiers.

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
        return both_chances(total)

    def log_odds_along(self, X: Array, columns: slice, points: Array) -> Array:
        """Log-odds, shape (n, g), when some columns take the values `points`, (n, g, width)."""
        members = zip(self.weights, self.fitted_, strict=True)
        return np.sum([weight * log_odds_along(member, X, columns, points) for weight, member in members], axis=0)


class CalledTrees(ClassifierMixin, BaseEstimator):
    """Boosted trees on the columns that the residuals of a logistic regression follow, alone or in a product.

    Trees that look for the product of two steps among many columns begin with splits by chance.

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

    def fit(self, X: Array, y: Ints, sample_weight: Array | None = None) -> CalledTrees:
        """Fit lines, look at the residuals, and grow trees."""
        self.classes_ = np.unique(y)
        lines = LogisticRegression(C=self.C, max_iter=1000).fit(X, y, sample_weight)
        residual = y - lines.predict_proba(X)[:, 1]
        terms = called_for(X, [residual], Weights.of(sample_weight, y.size), sign=MISFIT_LEVEL / X.shape[1])
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


def described(model: Any) -> str:
    """A model in words."""
    if isinstance(model, StackedScores):
        members = zip(model.members, model.weights, strict=True)
        names = ", ".join(f"{described(member)} ({weight:.2f})" for member, weight in members)
        return f"mean log-odds of {names}" if len(model.members) > 1 else described(model.members[0])
    if isinstance(model, CalledTrees):
        return "boosted trees"
    kind = "splines and products" if isinstance(model, SmoothClassifier) else "logistic regression"
    screened = " on the columns most associated with the treatment" * isinstance(model, ScreenedLogistic)
    return f"{kind}, ridge penalty C = {model.C:g}{screened}"


def held_out_scores(model: Any, design: Array, treatment: Ints, folds: Ints, weights: Weights) -> Array:
    """Scores of every row by a model of the other folds."""
    scores = np.empty(treatment.size)
    for fold in np.unique(folds):
        out = folds == fold
        fitted = clone(model).fit(design[~out], treatment[~out], **weights[~out].argument())
        scores[out] = predict_chances(fitted, design[out])[:, 1]
    return scores


def log_odds(chances: Array) -> Array:
    """Log-odds of the second class, with chances kept off 0 and 1."""
    return logit(np.clip(chances[:, 1], EDGE, 1.0 - EDGE))


def both_chances(log_odds: Array) -> Array:
    """Chances of both classes, shape (n, 2)."""
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
        moved[:, k] = log_odds(predict_chances(model, X))
    return moved


def arm_folds(treatment: Ints, n_folds: int, seed: int, clusters: Clusters | None = None) -> Ints:
    """Fold of each row; every fold holds both arms, also where this makes fewer, and rows of a cluster share one."""
    clusters = Clusters.of(clusters, treatment.size)
    if not clusters.of_rows and n_folds > 1:
        return cluster_folds(treatment, clusters.codes, n_folds, seed)
    folds = np.zeros(treatment.size, dtype=np.int64)
    if n_folds > 1:
        splits = StratifiedKFold(min(n_folds, int(np.bincount(treatment).min())), shuffle=True, random_state=seed)
        for fold, (_, out) in enumerate(splits.split(treatment[:, None], treatment)):
            folds[out] = fold
    return folds


def chosen_model(
    design: Array, treatment: Ints, seed: int, weights: Weights, clusters: Clusters, encoded: Sequence[int] = ()
) -> Any:
    """The model of least held-out log-loss, not fitted yet.

    Logistic regression on lines comes first. Where its held-out residuals follow bins or products of columns, products
    of three or grids of two, splines and products are tried, and trees. The candidates are mixed on the scale of
    log-odds as held-out rows have it. The mixture is taken where it is better than lines alone by more than one
    standard error. Where whole clusters were treated, lines are all that is tried: rows are too few for more, however
    many. Columns that are `encoded` by the treatment of other rows have no part in grids and products of three.

    A penalty is a normal prior with variance C of every coefficient. The best C tells how large the coefficients are,
    whatever the number of rows: it is chosen on at most 20,000 of them and used on all as it is.
    """
    if treatment.size > CHOICE_ROWS:
        drawn = np.random.default_rng(seed).permutation(treatment.size)
        arms = [drawn[treatment[drawn] == arm] for arm in (0, 1)]  # a small arm is taken as a whole
        rows = np.concatenate([r[: max(CHOICE_ROWS * r.size // treatment.size, MIN_ARM_ROWS)] for r in arms])
        design, treatment, weights, clusters = design[rows], treatment[rows], weights[rows], clusters[rows]
    folds = arm_folds(treatment, 4, seed, clusters)

    def held_out(model: Any) -> Array:
        return held_out_scores(model, design, treatment, folds, weights)

    def loss(chances: Array) -> Array:
        chances = np.clip(chances, EDGE, 1.0 - EDGE)
        return -np.where(treatment == 1, np.log(chances), np.log1p(-chances))

    def best(kind: Any, strengths: tuple[float, ...]) -> tuple[Any, Array]:
        models = [kind(C=strength) for strength in strengths]
        candidates = [(model, held_out(model)) for model in models]
        return min(candidates, key=lambda candidate: weights.mean(loss(candidate[1])))

    def logistic(C: float) -> Any:
        return (ScreenedLogistic if has_many_columns(*design.shape) else LogisticRegression)(C=C, max_iter=1000)

    lines, chances = best(logistic, PENALTY_STRENGTHS)
    if not treated_as_one(treatment, clusters).of_rows or has_many_columns(*design.shape):
        return lines
    residual, variance = treatment - chances, chances * (1.0 - chances)
    called = _crossed(design, weights.times(residual), weights.times(weights.times(variance)), encoded)
    tests = Misfit(design, weights)
    strays = min(tests.curve(residual, variance, chances), tests.product(residual, variance)) < MISFIT_LEVEL
    if not strays and not called:
        return lines
    smooth, by_smooth = best(SmoothClassifier, SMOOTH_STRENGTHS)
    trees = [CalledTrees(lines.C, called, *size) for size in TREES[: 1 + bool(called)]]
    candidates = [lines, smooth, *trees]
    predicted = np.stack((chances, by_smooth, *map(held_out, trees)))
    index = logit(np.clip(predicted, EDGE, 1.0 - EDGE))
    mixed = convex_weights(lambda shares: float(weights.mean(loss(expit(shares @ index)))), len(index), NEGLIGIBLE)
    gain = loss(chances) - loss(expit(mixed @ index))
    error = float(gain.std() / np.sqrt(gain.size))
    if weights.mean(gain) <= error:
        return lines
    kept = np.flatnonzero(mixed)
    return StackedScores([candidates[k] for k in kept], [float(mixed[k]) for k in kept])


def _crossed(design: Array, residual: Array, variance: Array, encoded: Sequence[int]) -> tuple[int, ...]:
    """Columns whose grid, or product of three, residuals follow."""
    leftover = Leftover(design, np.setdiff1d(np.arange(design.shape[1]), np.asarray(encoded, dtype=np.int64)))
    trace = Trace.clearest([leftover.triple(residual, variance), leftover.grid(residual, variance)])
    return trace.columns if trace.p_value < MISFIT_LEVEL else ()
