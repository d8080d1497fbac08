"""Categories of many levels in propensity scores: log-odds of every level instead of an indicator each.

Classifiers see shrunken log-odds. What shrinking leaves open would be confounding wherever a level is good for the
outcome and treated often, since models of the outcome shrink too: both would err in the same levels, and alike. So
scores are shifted in the end until in every level as many rows are treated as the scores say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.propensity.models import both_chances, log_odds_along
from modifind.nuisance.regression.chances import predict_chances
from modifind.nuisance.regression.level_sums import Coded, LevelSums, LevelTables, inner_folds

N_ROUNDS = 3
N_STEPS = 12
LEVEL_EDGE = 1e-9
PRIOR_VARIANCE = 10.0
MIN_CHANCE = 1e-4  # how near to 0 or 1 a score may come on the way


def level_odds(coded: Coded, X: Array, treatment: Ints, weights: Weights) -> tuple[LevelTables, Array]:
    """Log-odds that levels add, from rows; also the columns of these rows, each with what the others of its level show.

    They stand in the place of codes.
    """
    if not coded:
        return LevelTables(), X
    places = [columns.start for columns, _ in coded]
    others = np.delete(X, places, axis=1)
    index = np.full(treatment.size, logit(float(weights.mean(treatment.astype(np.float64)))))
    if others.shape[1]:
        model = LogisticRegression(C=1.0, max_iter=1000).fit(others, treatment, **weights.argument())
        index = model.decision_function(others)
    folds, alone = inner_folds(treatment.size), np.zeros(treatment.size, dtype=np.intp)
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
    """A fitted classifier that is given log-odds of levels in the place of their codes.

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
        chances = predict_chances(self.model, self.odds(X))
        return both_chances(logit(np.clip(chances[:, 1], LEVEL_EDGE, 1 - LEVEL_EDGE)) + self.shifts.total(X))

    def log_odds_along(self, X: Array, columns: slice, points: Array) -> Array:
        """Log-odds, shape (n, g), when some columns take the values `points`, (n, g, width)."""
        moved = log_odds_along(self.model, self.odds(X), columns, self.odds(points, columns.start))
        still = self.shifts.total(X) - self.shifts.total(X[:, columns], columns.start)
        return moved + still[:, None] + self.shifts.total(points, columns.start)


def fit_classifier(template: Any, X: Array, treatment: Ints, weights: Weights, coded: Coded) -> Any:
    """Fit an unfitted classifier to rows with or without columns of codes."""
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
    """Classifiers and scores, shifted until in every level as many rows are treated as the scores say.

    Rare levels that were pooled are levels of their own here: `unpooled` has their codes, and the rows keep this part
    of their shift whatever level they are given. A weak prior keeps shifts finite where a level lacks an arm.
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
