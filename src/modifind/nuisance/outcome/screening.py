"""Learners of the outcome where columns are many: which columns they are fitted to, and how they answer for all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.outcome.additive import AdditiveLearner
from modifind.nuisance.outcome.binary import AdditiveClassifier
from modifind.nuisance.regression.density import centre_and_unit, student_weight
from modifind.nuisance.regression.screening import has_many_columns

MOST_COLUMNS = 250  # more than this an additive model does not take, however many rows there are
ROWS_PER_COLUMN = 16
LEAST_KEPT, MOST_KEPT = 30, 150
ROUNDS = (0.2, 0.5, 1.0)  # share of the columns that have been taken after each look
SHAPE = 6.0
N_KNOTS = 5


@dataclass(frozen=True)
class KeptColumns:
    """Some of all columns: the outcome is taken not to depend on the others.

    Attributes
    ----------
    kept : array of int
        Their positions, in ascending order.
    """

    kept: Ints

    def __call__(self, X: Array, first: int = 0) -> Array:
        """Those of rows, of any shape, whose last axis has all columns, or neighbouring ones from `first` on."""
        return X[..., self.kept[self.place(slice(first, first + X.shape[-1]))] - first]

    def place(self, columns: slice) -> slice:
        """Where the kept ones of neighbouring columns lie among all that are kept."""
        start, stop = np.searchsorted(self.kept, (columns.start, columns.stop))
        return slice(int(start), int(stop))


def is_screened(n_rows: int, n_columns: int) -> bool:
    """Whether so many columns are screened."""
    return has_many_columns(n_rows, n_columns) or n_columns > MOST_COLUMNS


def screened_columns(X: Array, a: Ints, y: Array, *, binary: bool, weights: Weights) -> KeptColumns | None:
    """The columns that a learner of these rows should be given; None where they are few enough for all.

    Columns are ranked by score tests of lines and parabolas: for the location common to both arms, for its difference
    between them and for the scale of each arm, and those taken that stand high in any of the rankings. The first look
    takes a few. The others are tested on what an additive model of those leaves over, so that strong columns do not
    hide weak ones.

    Parameters
    ----------
    X : array of shape (n, p)
        Columns of the rows that the learner will be fitted to, and of no others.
    a, y : array of shape (n,)
        Arms and outcome.
    binary : bool
        Whether the outcome is 0 or 1; its scale is then no matter of its own.
    weights : Weights
        How much each row counts, by which scores are multiplied.
    """
    n_rows, n_columns = X.shape
    if not is_screened(n_rows, n_columns):
        return None
    n_kept = int(np.clip(n_rows // ROWS_PER_COLUMN, LEAST_KEPT, MOST_KEPT))
    rows = [np.flatnonzero(a == arm) for arm in (0, 1)]
    bases = _Shapes.of(X)
    kept = np.empty(0, dtype=np.int64)
    for share in ROUNDS:
        scores = (_binary_scores if binary else _scores)(X[:, kept], a, y, weights)
        if not weights.uniform:
            scores = [weights.times(score - weights.mean(score)) for score in scores]
        strength = bases.strength(scores, rows)
        strength[:, kept] = np.inf
        place = np.argsort(np.argsort(-strength, axis=1, kind="stable"), axis=1)
        order = np.lexsort((-strength.max(axis=0), place.min(axis=0)))
        kept = np.union1d(kept, order[: max(int(share * n_kept), 1)])
    return KeptColumns(kept)


def _scores(X: Array, a: Ints, y: Array, weights: Weights) -> list[Array]:
    """Derivatives of every row's log-likelihood by its location and its log-scale, given a model of some columns."""
    if X.shape[1]:
        model = AdditiveLearner(N_KNOTS, products=False).fit(X, a, y, weights.given)
        return [model.weight_ * model.residual_, model.weight_ * model.residual_**2]
    standardised = np.empty(y.size)
    for arm in (0, 1):
        own = y[a == arm]
        centre, unit = centre_and_unit(own)
        standardised[a == arm] = (own - centre) / unit
    weight = student_weight(standardised, SHAPE)
    return [weight * standardised, weight * standardised**2]


def _binary_scores(X: Array, a: Ints, y: Array, weights: Weights) -> list[Array]:
    """The same for a binary outcome, which has no scale of its own."""
    if not X.shape[1]:
        return [y - weights.mean(y)]
    index = AdditiveClassifier(0, products=False).fit(X, a, y, weights.given).index(X)
    return [y - expit(index[np.arange(y.size), a])]


@dataclass(frozen=True)
class _Shapes:
    """A line and a parabola of every column, of mean zero and free of each other, and how far scores follow them."""

    lines: Array
    parabolas: Array

    @classmethod
    def of(cls, X: Array) -> _Shapes:
        """Parabolas of indicators are lines, and are left at zero."""
        lines = X - X.mean(axis=0)
        spread = lines.std(axis=0)
        lines /= np.where(spread > 0, spread, 1.0)
        parabolas = lines**2
        parabolas -= parabolas.mean(axis=0)
        parabolas -= lines * (parabolas * lines).mean(axis=0)
        parabolas[:, parabolas.std(axis=0) < 1e-6] = 0.0
        return cls(lines, parabolas)

    def strength(self, scores: list[Array], rows: list[NDArray[np.intp]]) -> Array:
        """How far each column goes with each kind of score, one row per kind: both arms, their difference, each arm.

        The first kind of score is that of the location, the second, where there is one, that of the scale.
        """
        found: list[Array] = []
        for shape in (self.lines, self.parabolas):
            per_arm = [_standardised_sums(shape[r], np.stack([score[r] for score in scores], axis=1)) for r in rows]
            control, treated = per_arm
            kinds = [treated[:, 0] + control[:, 0], treated[:, 0] - control[:, 0]]
            if len(scores) > 1:
                kinds += [np.sqrt(2) * control[:, 1], np.sqrt(2) * treated[:, 1]]
            found.append(np.abs(np.stack(kinds)))
        return np.maximum(*found)


def _standardised_sums(columns: Array, scores: Array) -> Array:
    """Sums of columns times scores, in units of their standard deviation, shape (p, kinds)."""
    scores = scores - scores.mean(axis=0)
    variance = (columns**2).T @ scores**2
    return columns.T @ scores / np.sqrt(np.maximum(variance, 1e-12))
