"""Distributions of categories: classifiers for a few levels, and a shrunken model for many.

Many levels differ in the other features and in how often they are treated along a few directions (`data.levels`). The
log-odds of a level are linear in these, with an intercept of its own and slopes that have a normal prior with a
variance like that between levels: a multinomial logistic regression with few, shrunken coefficients. It starts from the
discriminant functions of normal columns and continues with Newton steps, one level at a time, towards the point where
the rows of every level have their expected means.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from modifind._typing import Array, Ints
from modifind.data.features import FeatureTable
from modifind.data.levels import Directions
from modifind.data.weights import Weights
from modifind.nuisance.conditional.contract import Calibration, Rows, category_score, discrete_calibration
from modifind.nuisance.conditional.distributions import CategoricalConditional, Distribution, code_grid
from modifind.nuisance.conditional.sampler import BaseSampler, CategoryRule, Conditioning, LearnedRule
from modifind.nuisance.regression.penalised import random_rows

MAX_ROWS = 50_000  # that decide a few coefficients of each level
BLOCK_CELLS = 2**20
N_STEPS = 6
N_CHECK_STEPS = 3
CLOSE = 0.02  # of the standard error of a level's mean is near enough
MAX_MOVE = 2.0  # of a coefficient in one step
WIDE = 4.0  # times the variance between levels: that rows balance matters more than that slopes are precise
NAME = "levels"
# Classifiers, probabilities of the rows, and those from other folds.
Classified: TypeAlias = tuple[tuple[Any, ...], Array, Array]


@dataclass(frozen=True)
class LevelModel:
    """Log-odds of levels as straight lines in a few directions.

    Attributes
    ----------
    directions : Directions
        From columns to directions.
    intercepts : array of shape (levels,)
        Log-odds at zero.
    slopes : array of shape (levels, k)
        Slopes.
    """

    directions: Directions
    intercepts: Array
    slopes: Array

    @classmethod
    def of(
        cls, inputs: Array, codes: NDArray[np.intp], n_levels: int, weights: Weights, n_steps: int = N_STEPS
    ) -> LevelModel:
        """Fit the model to rows; weights add up to their effective number."""
        rows = random_rows(codes.size, MAX_ROWS)
        inputs, codes, weights = inputs[rows], codes[rows], weights[rows]
        directions = Directions.of(inputs, codes, n_levels, weights)
        counts = np.maximum(np.bincount(codes, weights.values, minlength=n_levels), 1e-3)
        intercepts = np.log(counts / counts.sum()) - 0.5 * (directions.means**2).sum(axis=1)
        model = cls(directions, intercepts, directions.means)
        if not directions.variances.size:
            return model
        return model._polished(directions(inputs), codes, weights.values, counts, n_steps)

    def _polished(
        self, scores: Array, codes: NDArray[np.intp], weights: Array, counts: Array, n_steps: int
    ) -> LevelModel:
        """Take Newton steps towards the posterior mode."""
        terms = np.column_stack((np.ones(codes.size), scores))
        width = terms.shape[1]
        products = (terms[:, :, None] * terms[:, None]).reshape(codes.size, -1)
        sums = np.stack([np.bincount(codes, weights * t, minlength=counts.size) for t in terms.T], axis=1)
        prior = np.concatenate(([1e-6], 1.0 / (WIDE * self.directions.variances)))
        lines = np.column_stack((self.intercepts, self.slopes))
        best, before, length = lines, -np.inf, 1.0
        move = np.zeros(lines.shape)
        for _ in range(n_steps + 1):
            trial = lines + length * move
            likelihood, expected, information = 0.0, np.zeros(lines.shape), np.zeros((counts.size, width * width))
            for rows in _blocks(codes.size, counts.size):
                chances = softmax(terms[rows] @ trial.T, axis=1)
                observed = chances[np.arange(len(chances)), codes[rows]]
                likelihood += float(weights[rows] @ np.log(np.maximum(observed, 1e-300)))
                chances *= weights[rows, None]
                expected += chances.T @ terms[rows]
                information += chances.T @ products[rows]
            objective = likelihood - 0.5 * float((prior * trial**2).sum())
            if objective < before - 1e-9 * abs(before):
                length /= 2
                continue
            lines, best, before, length = trial, trial, objective, min(2 * length, 1.0)
            gradient = sums - expected - prior * lines
            far = np.abs(np.column_stack((gradient, (sums - expected)[:, 0]))) / np.sqrt(counts)[:, None]
            if far.max() < CLOSE and length == 1.0:
                break
            # With many levels each has a small chance, and chance * (1 - chance) is the chance itself.
            matrix = information.reshape(-1, width, width) + np.diag(prior + 1e-9)
            move = np.linalg.solve(matrix, gradient[:, :, None])[:, :, 0]
            move *= np.minimum(1.0, MAX_MOVE / np.maximum(np.abs(move).max(axis=1, keepdims=True), 1e-12))
        return LevelModel(self.directions, best[:, 0], best[:, 1:])

    def chances(self, scores: Array) -> Array:
        """Probabilities of the levels for rows at `scores` along the directions, shape (n, levels)."""
        if not scores.shape[1]:
            return np.broadcast_to(softmax(self.intercepts[None], axis=1), (len(scores), self.intercepts.size))
        return softmax(scores @ self.slopes.T + self.intercepts, axis=1)

    def log_score(self, scores: Array, codes: NDArray[np.intp]) -> Array:
        """Log-probability of each row's level."""
        blocks = _blocks(codes.size, self.intercepts.size)
        return np.concatenate([category_score(codes[rows], self.chances(scores[rows])) for rows in blocks])


@dataclass(frozen=True)
class LevelConditional(Distribution):
    """Probabilities of levels, computed on demand because their full table would be large.

    Attributes
    ----------
    model : LevelModel
        The model.
    scores : array of shape (n, k)
        Where the rows stand in its directions.
    """

    model: LevelModel
    scores: Array
    calibration: Calibration

    def __len__(self) -> int:
        return len(self.scores)

    def quantiles(self, levels: Array) -> Array:
        """Codes at levels between 0 and 1, shape (k, n)."""
        codes = np.empty(levels.shape)
        for rows in _blocks(len(self), self.model.intercepts.size):
            steps = np.cumsum(self.model.chances(self.scores[rows]), axis=1)[:, :-1]
            # One ascending sequence of all rows' steps: a search in it finds the level of every draw.
            n_rows, n_steps = steps.shape
            shift = 2.0 * np.arange(n_rows)
            reached = np.searchsorted((np.minimum(steps, 1.0) + shift[:, None]).ravel(), levels[:, rows] + shift)
            codes[:, rows] = reached - n_steps * np.arange(n_rows)
        return codes

    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """The codes and their probabilities."""
        return code_grid(self.model.chances(self.scores[rows]))


@dataclass(frozen=True)
class LevelRule(LearnedRule):
    """Rule of a category with many levels."""

    inputs: Conditioning
    model: LevelModel

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> LevelConditional:
        """The distribution of some rows."""
        return LevelConditional(self.model, self.model.directions(self.inputs(table, treatment)), self.calibration)


def fit_level_rule(
    conditioning: Conditioning,
    inputs: Array,
    column: Array,
    n_levels: int,
    folds: Ints,
    weights: Weights,
) -> tuple[LevelRule, Array]:
    """Rule of a category with many levels, and its held-out log-score by row.

    Models of the rows in even and in odd folds score each other's rows.
    """
    codes = column.astype(np.intp)
    effective = weights.effective
    score = np.empty(codes.size)
    for half in (0, 1):
        out = folds % 2 == half
        if out.all() or not out.any():
            score[:] = np.log(weights.shares(codes, n_levels)[codes])
            break
        model = LevelModel.of(inputs[~out], codes[~out], n_levels, effective[~out], N_CHECK_STEPS)
        score[out] = model.log_score(model.directions(inputs[out]), codes[out])
    model = LevelModel.of(inputs, codes, n_levels, effective)
    calibration = discrete_calibration(NAME, column, score, weights)
    fitted = LevelConditional(model, model.directions(inputs), calibration)
    return LevelRule(conditioning, model, calibration=calibration, fitted=fitted), score


def _blocks(n_rows: int, n_levels: int) -> Iterator[slice]:
    step = max(1, BLOCK_CELLS // n_levels)
    return (slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step))


class ScoredSampler(BaseSampler):
    """Base class of samplers whose rules have held-out log-scores, so that the best can be chosen.

    Subclasses implement `_number_rule` and `_classify`, and choose the folds.
    """

    learns = True

    def rule(self, feature: int) -> Any:
        """Learn the distribution of one feature; rows of other tables are scored by the models of one fold."""
        return self._scored_rule(feature)[0]

    def _scored_rule(self, feature: int) -> tuple[Any, Array]:
        """Rule of one feature and its held-out log-score by row."""
        conditioning, levels = Conditioning.of(self, feature), self.table_.n_levels(feature)
        if not levels:
            return self._number_rule(feature, conditioning)
        inputs, codes = conditioning(self.table_, self.treatment_), self.table_.values[:, feature]
        folds = self._folds_of(feature)
        if feature in self.table_.level_columns:
            return fit_level_rule(conditioning, inputs, codes, levels, folds, self.weights_)
        models, probabilities, held = self._classify(inputs, codes, levels, folds)
        score = category_score(codes, held)
        calibration = discrete_calibration(self.name, codes, score, self.weights_)
        fitted, frequencies = CategoricalConditional(probabilities, calibration), self.weights_.shares(codes, levels)
        return CategoryRule(conditioning, models, frequencies, calibration=calibration, fitted=fitted), score

    @abstractmethod
    def _folds_of(self, feature: int) -> Ints:
        """Fold of each row in the cross-fitting of one feature."""

    @abstractmethod
    def _number_rule(self, feature: int, conditioning: Conditioning) -> tuple[Any, Array]:
        """Rule of a continuous feature and its held-out log-score by row."""

    @abstractmethod
    def _classify(self, inputs: Array, codes: Array, levels: int, folds: Ints) -> Classified:
        """Classifiers of a discrete feature."""

    def _with_treatment(self, chosen: NDArray[np.intp], inputs: Array) -> NDArray[np.intp]:
        """Ascending positions of the chosen inputs, plus the treatment (last) if it is an input."""
        given = [inputs.shape[1] - 1] if self.condition_on_treatment else []
        return np.union1d(chosen, given).astype(np.intp)


def fit_classifier(
    fit: Callable[[Array, Array, Weights], Any], inputs: Array, codes: Array, at: Array, levels: int, weights: Weights
) -> tuple[Array, Any]:
    """Category probabilities at new rows, and the model; None if only frequencies can be learned.

    Categories absent from the training rows get probability zero.
    """
    present = np.unique(codes).astype(np.intp)
    probabilities = np.zeros((at.shape[0], levels))
    if present.size == 1 or not inputs.any():
        probabilities[:, present] = weights.shares(codes, levels)[present]
        return probabilities, None
    model = fit(inputs, codes, weights)
    if at.size:
        probabilities[:, present] = model.predict_proba(at)
    return probabilities, model
