"""Learners of the outcome where columns are many: which columns they are given, and how they predict from all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.outcome.additive import AdditiveLearner
from modifind.nuisance.outcome.binary import AdditiveClassifier
from modifind.nuisance.outcome.contract import index_of, own_arm, predict_along, predict_arms, without_rows
from modifind.nuisance.regression.density import centre_and_unit, student_scores
from modifind.nuisance.regression.screening import has_many_columns

MAX_ADDITIVE_COLUMNS = 250  # in an additive model, however many rows there are
ROWS_PER_KEPT = 16
MIN_KEPT, MAX_KEPT = 30, 150
SHARES_KEPT = (0.2, 0.5, 1.0)  # of all that are kept, after each round
EFFECT_SHAPE = 6.0
FEW_KNOTS = 5


class SubsetLearner:
    """A learner that is given some of the columns: the outcome is taken not to depend on the others.

    Parameters
    ----------
    model : learner
        The learner.
    kept : array of int
        Positions of the columns that it is given, in ascending order.
    """

    def __init__(self, model: Any, kept: Ints) -> None:
        self.model = self.stands_for = model
        self.kept = kept

    def fit(self, X: Array, a: Ints, y: Array, **arguments: Any) -> SubsetLearner:
        """Fit the learner."""
        self.model.fit(X[:, self.kept], a, y, **arguments)
        return self

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Location and scale of every row in both arms, shape (n, 2) each."""
        return predict_arms(self.model, X[:, self.kept])

    def index(self, X: Array) -> Any:
        """What the learner can reuse for every feature."""
        return index_of(self.model, X[:, self.kept])

    def without_rows(self) -> SubsetLearner:
        """The same learner without arrays over its training rows."""
        return SubsetLearner(without_rows(self.model), self.kept)

    def looks_at(self, columns: slice) -> bool:
        """Whether any of some columns is kept."""
        inside = self._inside(columns)
        return inside.stop > inside.start

    def _inside(self, columns: slice) -> slice:
        """Positions of neighbouring columns among those that are kept."""
        start, stop = np.searchsorted(self.kept, (columns.start, columns.stop))
        return slice(int(start), int(stop))

    def along(self, X: Array, columns: slice, points: Array, index: Any = None) -> tuple[Array, Array]:
        """Location and scale, shape (n, g, 2) each, when some columns take the values `points`, (n, g, width)."""
        inside, X = self._inside(columns), X[:, self.kept]
        if inside.stop > inside.start:
            return predict_along(self.model, X, inside, points[..., self.kept[inside] - columns.start], index)
        first = slice(0, 1)  # nothing moves: one point, the row as it is, stands for all
        location, scale = predict_along(self.model, X, first, X[:, None, first], index)
        shape = (*points.shape[:2], 2)
        return np.broadcast_to(location, shape), np.broadcast_to(scale, shape)


def is_screened(n_rows: int, n_columns: int) -> bool:
    """Whether so many columns are screened."""
    return has_many_columns(n_rows, n_columns) or n_columns > MAX_ADDITIVE_COLUMNS


def screened_columns(X: Array, a: Ints, y: Array, *, binary: bool, weights: Weights) -> Ints | None:
    """The columns that a learner of these rows should be given; None where they are few enough for all.

    Columns are ranked by score tests of lines and parabolas: for the location common to both arms, for its difference
    between them and for the scale of each arm. Those high in any of the rankings are kept, a few in the first round.
    The others are then tested on the residuals of an additive model of these, so that strong columns do not hide weak
    ones.

    Parameters
    ----------
    X : array of shape (n, p)
        Columns of the rows that the learner will be fitted to, and of no others.
    a, y : array of shape (n,)
        Arms and outcome.
    binary : bool
        Whether the outcome is 0 or 1, and so has no scale of its own.
    weights : Weights
        Weights of rows, by which scores are multiplied.
    """
    n_rows, n_columns = X.shape
    if not is_screened(n_rows, n_columns):
        return None
    n_kept = int(np.clip(n_rows // ROWS_PER_KEPT, MIN_KEPT, MAX_KEPT))
    rows = [np.flatnonzero(a == arm) for arm in (0, 1)]
    shapes = _lines_and_parabolas(X)
    kept = np.empty(0, dtype=np.int64)
    for share in SHARES_KEPT:
        scores = _scores(X[:, kept], a, y, binary, weights)
        if not weights.uniform:
            scores = [weights.times(score - weights.mean(score)) for score in scores]
        strength = np.maximum(*(_strength(columns, scores, rows) for columns in shapes))
        strength[:, kept] = np.inf
        rank = np.argsort(np.argsort(-strength, axis=1, kind="stable"), axis=1)
        order = np.lexsort((-strength.max(axis=0), rank.min(axis=0)))
        kept = np.union1d(kept, order[: max(int(share * n_kept), 1)])
    return kept


def _scores(X: Array, a: Ints, y: Array, binary: bool, weights: Weights) -> list[Array]:
    """Derivatives of every row's log-likelihood given a model of some columns.

    With respect to its location and, for an outcome with a scale of its own, to its log-scale.
    """
    if binary:
        if not X.shape[1]:
            return [y - weights.mean(y)]
        model = AdditiveClassifier(0, products=False).fit(X, a, y, weights.given)
        return [y - expit(own_arm(model.index(X), a))]
    if X.shape[1]:
        learner = AdditiveLearner(FEW_KNOTS, products=False).fit(X, a, y, weights.given)
        return [learner.weight_ * learner.residual_, learner.weight_ * learner.residual_**2]
    standardised = np.empty(y.size)
    for arm in (0, 1):
        centre, unit = centre_and_unit(y[a == arm])
        standardised[a == arm] = (y[a == arm] - centre) / unit
    return list(student_scores(standardised, EFFECT_SHAPE))


def _lines_and_parabolas(X: Array) -> tuple[Array, Array]:
    """A line and a parabola of every column, of mean zero and uncorrelated.

    Parabolas of indicators are lines, and are left at zero.
    """
    lines = X - X.mean(axis=0)
    spread = lines.std(axis=0)
    lines /= np.where(spread > 0, spread, 1.0)
    parabolas = lines**2
    parabolas -= parabolas.mean(axis=0)
    parabolas -= lines * (parabolas * lines).mean(axis=0)
    parabolas[:, parabolas.std(axis=0) < 1e-6] = 0.0
    return lines, parabolas


def _strength(columns: Array, scores: list[Array], rows: list[NDArray[np.intp]]) -> Array:
    """How far each column goes with each kind of score, one row per kind.

    The kinds are the location of both arms, the difference of the arms' locations and, where there are scores of it,
    the scale of each arm.
    """
    control, treated = (_standardised_sums(columns[r], np.stack([score[r] for score in scores], axis=1)) for r in rows)
    kinds = [treated[:, 0] + control[:, 0], treated[:, 0] - control[:, 0]]
    if len(scores) > 1:
        kinds += [np.sqrt(2) * control[:, 1], np.sqrt(2) * treated[:, 1]]
    return np.abs(np.stack(kinds))


def _standardised_sums(columns: Array, scores: Array) -> Array:
    """Sums of columns times scores, in units of their standard deviation, shape (p, kinds)."""
    scores = scores - scores.mean(axis=0)
    variance = (columns**2).T @ scores**2
    return columns.T @ scores / np.sqrt(np.maximum(variance, 1e-12))
