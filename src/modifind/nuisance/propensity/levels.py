"""Categories of many levels in propensity scores: log-odds of every level instead of an indicator each.

Classifiers see shrunken log-odds. What shrinking leaves open would be confounding wherever a level is good for the
outcome and treated often, since models of the outcome shrink too: both would err in the same levels, and alike. So
scores are shifted in the end until in every level as many rows are treated as the scores say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from modifind._typing import Array, Ints
from modifind.data.survey import fit_weights
from modifind.nuisance.propensity.choice import log_odds_along
from modifind.nuisance.regression.level_sums import Coded, LevelSums, inner_folds

N_ROUNDS = 3
N_STEPS = 12
EDGE = 1e-9
PRIOR_VARIANCE = 10.0
MOST = 1e-4  # how near to 0 or 1 a score may come on the way


@dataclass(frozen=True)
class LevelOdds:
    """Log-odds that every level of some categories adds, in the place of the level's code.

    Attributes
    ----------
    columns : tuple of int
        Columns of codes.
    tables : tuple of arrays of shape (levels,)
        What each level adds.
    """

    columns: tuple[int, ...]
    tables: tuple[Array, ...]

    @classmethod
    def of(cls, coded: Coded, X: Array, treatment: Ints, weights: Array | None = None) -> tuple[LevelOdds, Array]:
        """Learn from rows; also the columns of these rows, each with what the other rows of its level show."""
        places = [own.start for own, _ in coded]
        others = np.delete(X, places, axis=1)
        index = np.full(treatment.size, logit(float(np.average(treatment, weights=weights))))
        if others.shape[1]:
            model = LogisticRegression(C=1.0, max_iter=1000).fit(others, treatment, **fit_weights(weights))
            index = model.decision_function(others)
        folds, alone = inner_folds(treatment.size), np.zeros(treatment.size, dtype=np.intp)
        tables, columns = [], X.copy()
        for own, n_levels in coded:
            codes = X[:, own.start].astype(np.intp)
            table, outside = np.zeros(n_levels), np.zeros((int(folds.max()) + 1, n_levels))
            for _ in range(N_ROUNDS):
                start = outside[folds, codes]  # where the others' effects are, of Newton's steps towards the mode
                chance = np.clip(expit(index + start), MOST, 1 - MOST)
                weight = chance * (1 - chance)
                residual = start + (treatment - chance) / weight
                weight = weight if weights is None else weights * weight
                sums = LevelSums.of(codes, n_levels, alone, folds, weight, residual, n_arms=1)
                table, outside = (part[..., 0] for part in sums.effects())
            index = index + outside[folds, codes]
            columns[:, own.start] = outside[folds, codes]
            tables.append(table)
        return cls(tuple(places), tuple(tables)), columns

    def __call__(self, X: Array, first: int = 0) -> Array:
        """Rows, of any shape, whose last axis has all columns, or neighbouring ones from `first` on, with log-odds."""
        X = X.copy()
        for column, table in zip(self.columns, self.tables, strict=True):
            if first <= column < first + X.shape[-1]:
                X[..., column - first] = table[X[..., column - first].astype(np.intp)]
        return X


@dataclass(frozen=True)
class LevelClassifier:
    """A fitted classifier that is given log-odds of levels in the place of their codes.

    Attributes
    ----------
    model : classifier
        The classifier.
    odds : LevelOdds
        What it is given.
    shifts : tuple of arrays of shape (levels,)
        What is added to the log-odds in the end.
    """

    model: Any
    odds: LevelOdds
    shifts: tuple[Array, ...]

    def predict_proba(self, X: Array) -> Array:
        """Class probabilities of rows."""
        found = self.model.predict_proba(self.odds(X))
        treated = expit(logit(np.clip(found[:, 1], EDGE, 1 - EDGE)) + self.shift(X))
        return np.stack((1.0 - treated, treated), axis=1)

    def log_odds_along(self, X: Array, columns: slice, points: Array) -> Array:
        """Log-odds, shape (n, g), when some columns take the values `points`, (n, g, width)."""
        found = log_odds_along(self.model, self.odds(X), columns, self.odds(points, columns.start))
        still = self.shift(X) - self.shift(X[:, columns], columns.start)
        return found + still[:, None] + self.shift(points, columns.start)

    def shift(self, X: Array, first: int = 0) -> Array:
        """What is added for rows, of any shape, whose last axis has all columns, or neighbouring ones."""
        total = np.zeros(X.shape[:-1])
        for column, table in zip(self.odds.columns, self.shifts, strict=True):
            if first <= column < first + X.shape[-1]:
                total += table[X[..., column - first].astype(np.intp)]
        return total


def fit_classifier(template: Any, X: Array, treatment: Ints, weights: Array | None, coded: Coded) -> Any:
    """Fit an unfitted classifier to rows with or without columns of codes."""
    if not coded:
        return template.fit(X, treatment, **fit_weights(weights))
    odds, columns = LevelOdds.of(coded, X, treatment, weights)
    shifts = tuple(np.zeros(n_levels) for _, n_levels in coded)
    return LevelClassifier(template.fit(columns, treatment, **fit_weights(weights)), odds, shifts)


def balanced(
    models: Sequence[Any],
    scores: Array,
    X: Array,
    treatment: Ints,
    weights: Array | None,
    coded: Coded,
    unpooled: tuple[Array, ...] = (),
) -> tuple[list[Any], Array]:
    """Classifiers and scores, shifted until in every level as many rows are treated as the scores say.

    Rare levels that were pooled are levels of their own here: `unpooled` has their codes, and the rows keep this part
    of their shift whatever level they are given. A weak prior keeps shifts finite where a level lacks an arm.
    """
    index = logit(np.clip(scores, EDGE, 1 - EDGE))
    own = np.ones(treatment.size) if weights is None else weights
    places = [(X[:, columns.start].astype(np.intp), n_levels) for columns, n_levels in coded]
    places += [(codes.astype(np.intp), int(codes.max()) + 1) for codes in unpooled]
    shifts = [np.zeros(n_levels) for _, n_levels in places]
    for _ in range(N_ROUNDS if len(places) > 1 else 1):
        for shift, (codes, n_levels) in zip(shifts, places, strict=True):
            for _ in range(N_STEPS):
                chance = expit(index)
                excess = np.bincount(codes, own * (treatment - chance), minlength=n_levels) - shift / PRIOR_VARIANCE
                slope = np.bincount(codes, own * chance * (1 - chance), minlength=n_levels) + 1 / PRIOR_VARIANCE
                step = np.clip(excess / slope, -1.0, 1.0)
                shift += step
                index += step[codes]
    return [LevelClassifier(model.model, model.odds, tuple(shifts[: len(coded)])) for model in models], expit(index)


def is_linear(model: Any) -> bool:
    """Whether the log-odds of a classifier are a sum over columns."""
    return isinstance(model.model if isinstance(model, LevelClassifier) else model, LogisticRegression)


def slopes_of(model: Any) -> Array:
    """Slopes of a linear classifier."""
    return (model.model if isinstance(model, LevelClassifier) else model).coef_[0]


def linear_part(model: Any, columns: slice, values: Array) -> Array:
    """What some columns add to the log-odds of a linear classifier, when they take values of shape (..., width)."""
    if isinstance(model, LevelClassifier):
        shift = model.shift(values, columns.start)
        return shift + model.odds(values, columns.start) @ slopes_of(model)[columns]
    return values @ slopes_of(model)[columns]


def linear_tables(models: Sequence[Any], columns: slice, levels: Array) -> Array:
    """What each level of a category adds to the log-odds of linear classifiers, shape (models, levels)."""
    return np.stack([linear_part(model, columns, levels) for model in models])
