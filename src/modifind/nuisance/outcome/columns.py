"""Columns as outcome learners see them: missing values imputed, levels replaced by effects, many columns screened.

A category with many levels gets a shrunken effect of each level instead of indicators. From the training rows of a
learner, each level gets its effect on the location of both arms, on the difference between them and, for a numeric
outcome, the same two on the log-scale. Effects are posterior means under normal priors whose variances maximise the
evidence, after adjusting for other columns. Training rows get the effects estimated from the *other* rows of their
level, so that a learner does not trust them too much.

Above 100 levels, levels with similar effects are grouped. Neither a learner nor a test that uses it can distinguish the
levels of a group, so that only the probabilities of groups need be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.cluster import KMeans

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.outcome.additive import AdditiveLearner
from modifind.nuisance.outcome.contract import index_of, observed_arm, predict_along, predict_arms, without_rows
from modifind.nuisance.outcome.generalised import AdditiveClassifier
from modifind.nuisance.regression.levels import LARGE_EFFECT, Coded, LevelSums, level_folds
from modifind.nuisance.regression.penalised import centre_and_unit, student_scores, student_weight
from modifind.nuisance.regression.screening import has_many_columns


@dataclass(frozen=True)
class Filling:
    """Imputed values for the missing ones of some columns.

    Attributes
    ----------
    columns : tuple of int
        Columns of values; the column after each indicates which of them are missing.
    means : tuple of float
        The values in place of missing ones.
    """

    columns: tuple[int, ...] = ()
    means: tuple[float, ...] = ()

    @classmethod
    def from_rows(cls, X: Array, columns: tuple[int, ...]) -> Filling:
        """Learn the mean of the observed values of each column; 0 if there are none."""
        known = [X[X[:, j + 1] == 0, j] for j in columns]
        return cls(columns, tuple(float(values.mean()) if values.size else 0.0 for values in known))

    def __call__(self, X: Array, first: int = 0) -> Array:
        """Impute rows of any shape, whose last axis has all columns, or adjacent ones from `first` on."""
        X = X.copy() if self.columns else X
        for j, mean in zip(self.columns, self.means, strict=True):
            if first <= j < first + X.shape[-1] - 1:
                values, missing = X[..., j - first], X[..., j + 1 - first] > 0
                X[..., j - first] = np.where(missing, mean, values)
        return X


MAX_GROUPS = 100
FEW_KNOTS = 5
EFFECT_SHAPE = 6.0


@dataclass(frozen=True)
class LevelEffects:
    """Effects of the levels of some categories on an outcome, as columns that replace the codes.

    Attributes
    ----------
    columns : tuple of slice
        Columns of each category, of which the first holds codes.
    tables : tuple of arrays of shape (levels, k)
        The effects, which take the place of these columns.
    """

    columns: tuple[slice, ...] = ()
    tables: tuple[Array, ...] = ()

    @classmethod
    def from_rows(
        cls, coded: Coded, X: Array, a: Ints, y: Array, *, binary: bool, weights: Weights
    ) -> tuple[LevelEffects, Array]:
        """Learn effects from rows; also return these rows' columns, each with the effects shown by the other rows."""
        if not coded:
            return cls(), X
        folds, counts = level_folds(y.size), weights.effective
        residual, weight, scale = _without_levels(coded, X, a, y, binary, weights)
        weight = counts.times(weight)
        tables, columns = [], []
        for category, n_levels in coded:
            codes = X[:, category.start].astype(np.intp)
            table, outside = LevelSums.of(codes, n_levels, a, folds, weight, residual).effects()
            held_out, unit = outside[folds, codes], float(np.sqrt(weight.mean()))
            residual = residual - held_out[:, 0] - (a - 0.5) * held_out[:, 1]
            units = [unit, unit / 2]
            if not binary:
                score, information = _scale_scores(residual / scale, a)
                informations = counts.times(np.full(y.size, information))
                by_level, outside = LevelSums.of(codes, n_levels, a, folds, informations, score).effects()
                table, held_out = np.hstack((table, by_level)), np.hstack((held_out, outside[folds, codes]))
                units += [float(np.sqrt(information)), float(np.sqrt(information)) / 2]
            table = _grouped(table, np.array(units), np.bincount(codes, minlength=n_levels))
            centre, spread = held_out.mean(axis=0), held_out.std(axis=0)
            spread = np.where(spread > 0, spread, 1.0)
            tables.append((table - centre) / spread)
            columns.append((held_out - centre) / spread)
        effects = cls(tuple(category for category, _ in coded), tuple(tables))
        return effects, effects._replace(X, columns)

    def __call__(self, X: Array, first: int = 0) -> Array:
        """Insert effects into rows of any shape, whose last axis has all columns, or adjacent ones from `first` on."""
        inside = self._inside(X, first)
        if not inside:
            return X
        effects = [table[X[..., category.start - first].astype(np.intp)] for category, table in inside]
        return self._replace(X, effects, first)

    def _inside(self, X: Array, first: int) -> list[tuple[slice, Array]]:
        pairs = zip(self.columns, self.tables, strict=True)
        return [pair for pair in pairs if first <= pair[0].start < first + X.shape[-1]]

    def _replace(self, X: Array, effects: Sequence[Array], first: int = 0) -> Array:
        """Replace codes and their companion columns by columns of effects."""
        pieces, last = [], 0
        for (category, _), columns in zip(self._inside(X, first), effects, strict=True):
            pieces += [X[..., last : category.start - first], columns]
            last = category.stop - first
        return np.concatenate([*pieces, X[..., last:]], axis=-1)

    def place(self, columns: slice) -> slice:
        """Positions of columns after effects are inserted."""
        start, stop = columns.start, columns.stop
        for category, table in zip(self.columns, self.tables, strict=True):
            change = table.shape[1] - (category.stop - category.start)
            start += change * (category.start < columns.start)
            stop += change * (category.start < columns.stop)
        return slice(start, stop)

    def alike(self, columns: slice) -> NDArray[np.intp] | None:
        """Group of every level of a category, with equal effects within groups; None for other columns."""
        if columns not in self.columns:
            return None
        table = self.tables[self.columns.index(columns)]
        return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)


def _without_levels(
    coded: Coded, X: Array, a: Ints, y: Array, binary: bool, weights: Weights
) -> tuple[Array, Array, Array]:
    """Residuals of a model without the levels, the information on a shift of them, and their scale.

    The model includes the level means of other columns, whose effect is thus removed from the residuals.
    """
    codes = [category.start for category, _ in coded]
    means = np.concatenate([np.arange(category.start + 1, category.stop) for category, _ in coded])
    means = np.searchsorted(np.delete(np.arange(X.shape[1]), codes), means)
    others = np.delete(X, codes, axis=1)
    if not others.shape[1]:
        others = np.zeros((y.size, 1))
    still = others.copy()
    still[:, means] = others[:, means].mean(axis=0)
    if binary:
        model = AdditiveClassifier(0, products=False).fit(others, a, y, weights.given)
        chance = expit(observed_arm(model.index(still), a))
        weight = chance * (1 - chance)
        return (y - chance) / weight, weight, np.ones(y.size)
    learner = AdditiveLearner(FEW_KNOTS, products=False).fit(others, a, y, weights.given)
    location, scale = learner.predict(others)
    moved = observed_arm(location, a) - observed_arm(learner.predict(still)[0], a) if means.size else 0.0
    return learner.residual_ + moved, learner.weight_, observed_arm(scale, a)


def _scale_scores(standardised: Array, a: Ints) -> tuple[Array, float]:
    """Relative errors of the squared residuals of each arm, as shifts of the log-scale, and their information."""
    square = student_weight(standardised, EFFECT_SHAPE) * standardised**2
    for arm in (0, 1):
        square[a == arm] /= max(float(square[a == arm].mean()), 1e-12)
    return square - 1.0, 1.0 / max(float(square.var()), 1e-12)


def _grouped(table: Array, units: Array, counts: NDArray[np.intp]) -> Array:
    """Effects of levels, reduced to at most 100 distinct ones.

    Levels are close if they differ little, in units of their spread, in the effects that distinguish the arms, and in
    those common to both arms as far as these matter to the likelihood, in whose `units` they are measured.
    """
    if len(table) <= MAX_GROUPS:
        return table
    share = counts / counts.sum()
    spread = np.maximum(np.sqrt(share @ (table - share @ table) ** 2), 1e-300)
    common = np.minimum(spread * units / LARGE_EFFECT, 1.0)
    scaled = table / spread * np.where(np.arange(units.size) % 2 == 0, common, 1.0)
    weight = counts + 1e-3
    groups = KMeans(MAX_GROUPS, n_init=1, max_iter=30, random_state=0).fit(scaled, sample_weight=weight).labels_
    sums = [np.bincount(groups, weight * column, minlength=MAX_GROUPS) for column in table.T]
    total = np.bincount(groups, weight, minlength=MAX_GROUPS)
    return (np.stack(sums, axis=1) / np.maximum(total, 1e-300)[:, None])[groups]


@dataclass(frozen=True)
class Recast:
    """Transformation of columns for the learners of a fold, learned from their training rows.

    Attributes
    ----------
    filling : Filling
        Values in place of missing ones.
    effects : LevelEffects
        Effects of levels in place of their codes.
    """

    filling: Filling = field(default_factory=Filling)
    effects: LevelEffects = field(default_factory=LevelEffects)

    def __call__(self, X: Array, first: int = 0) -> Array:
        """Transform rows of any shape, whose last axis has all columns, or adjacent ones from `first` on."""
        return self.effects(self.filling(X, first), first)

    def place(self, columns: slice) -> slice:
        """Positions of columns among those that learners see."""
        return self.effects.place(columns)


MAX_ADDITIVE_COLUMNS = 250  # in an additive model, however many rows there are
ROWS_PER_KEPT = 16
MIN_KEPT, MAX_KEPT = 30, 150
SHARES_KEPT = (0.2, 0.5, 1.0)  # of all that are kept, after each round


class SubsetLearner:
    """A learner on a subset of the columns: the outcome is assumed not to depend on the others.

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
        """Values that the learner can reuse for every feature."""
        return index_of(self.model, X[:, self.kept])

    def without_rows(self) -> SubsetLearner:
        """The same learner without its training rows."""
        return SubsetLearner(without_rows(self.model), self.kept)

    def looks_at(self, columns: slice) -> bool:
        """Whether any of the columns is in the subset."""
        inside = self._inside(columns)
        return inside.stop > inside.start

    def _inside(self, columns: slice) -> slice:
        """Positions of adjacent columns within the subset."""
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
    """Whether there are so many columns that they are screened."""
    return has_many_columns(n_rows, n_columns) or n_columns > MAX_ADDITIVE_COLUMNS


def screened_columns(X: Array, a: Ints, y: Array, *, binary: bool, weights: Weights) -> Ints | None:
    """Columns to give to a learner of these rows; None if there are few enough to give all.

    Columns are ranked by score tests of lines and parabolas: for the location common to both arms, for its difference
    between them and for the scale of each arm. Those ranked high by any of these are kept, a few in the first round.
    The others are then tested on the residuals of an additive model of these, so that strong columns do not mask weak
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
        return [y - expit(observed_arm(model.index(X), a))]
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

    Parabolas of indicators are lines, and are set to zero.
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
    """Strength of the association of each column with each kind of score, one row per kind.

    The kinds are the location of both arms, the difference of the arms' locations and, if there are scores of it, the
    scale of each arm.
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
