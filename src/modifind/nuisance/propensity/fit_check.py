"""Fit of propensity scores: tests for structure in treatment minus scores.

If scores miss structure that outcome models miss as well, differences between rows look like an effect of the
treatment. So this check searches for more than the learners do, in particular where residuals of the outcome have
structure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logit
from sklearn.ensemble import ExtraTreesRegressor

from modifind._typing import Array, Ints
from modifind.data.features import FeatureTable
from modifind.data.weights import Weights
from modifind.nuisance.regression.penalised import random_rows
from modifind.nuisance.regression.screening import (
    Association,
    Leftover,
    Trace,
    along_bins,
    bernstein_p,
    neighbours_mean,
)

CHECKED_ROWS = 50_000
N_TREES = 20
MIN_LEAF = 20
GROWN_ROWS = 10_000
MAX_NAMED = 3
CLEAR = 0.01  # structure of the target
N_ROUNDS = 10
MAX_LINES = 300
EDGE = 1e-6
MAX_RESIDUAL = 4.0  # robust standard deviations of the outcome


@dataclass(frozen=True)
class ScoreCheck:
    """The rows, and their scores, to check.

    Attributes
    ----------
    columns : array of shape (n, p)
        Columns of the features; codes of many levels are not among them.
    places : array of int
        Where they are in the design.
    residual, variance : arrays of shape (n,)
        Arms less scores, and their variances, times the weights of the rows.
    rows : array of int, or slice
        Which rows these are.
    log_odds, index : arrays of shape (n,)
        Log-odds of the scores, and the part of them that is a line in the columns.
    has_levels : bool
        Whether there are categories of many levels, to which scores were balanced.
    """

    columns: Array
    places: Ints
    residual: Array
    variance: Array
    rows: Ints | slice
    log_odds: Array
    index: Array
    has_levels: bool

    @classmethod
    def of(cls, table: FeatureTable, treatment: Ints, scores: Array, weights: Weights) -> ScoreCheck:
        """Take at most 50,000 rows, and project out of their residuals the lines and levels of the scores.

        The result is the score of a model fitted to these very rows, as far as lines and levels go. So errors of the
        models' coefficients, and treated shares of levels that were balanced, are not mistaken for misfit.
        """
        rows = random_rows(treatment.size, CHECKED_ROWS)
        chance = np.clip(scores[rows], EDGE, 1.0 - EDGE)
        design, starts = table.design, [columns.start for columns, _ in table.coded]
        places = np.setdiff1d(np.arange(design.shape[1]), starts)
        columns, given = design[rows][:, places], weights[rows].values
        codes = [design[rows, start].astype(np.int64) for start in starts]
        variance, rest = chance * (1.0 - chance), treatment[rows] - chance
        lines = LineFit.of(columns, rest, given * variance)
        residual, log_odds = lines.refitted(rest, variance, given, codes), logit(chance)
        index = lines.projected(log_odds)
        return cls(columns, places, given * residual, given**2 * variance, rows, log_odds, index, bool(codes))

    def trace(self) -> Trace:
        """The most significant structure along features, combinations of them and the scores themselves."""
        order = Association(self.columns).order(self.residual[:, None])
        leftover = Leftover(self.columns, order)
        kinds = [leftover.clearest(self.residual, self.variance), leftover.nearby(self.residual, self.variance)]
        kinds += [self.along_trees(self.residual, rising=True), self.along(self.index[:, None]), self.along_scores()]
        return self._named(Trace.clearest(kinds))

    def beside_outcome(self, residual: Array, guides: Array) -> Trace:
        """Structure where outcome residuals also have some, and along bins of the outcome models' predictions."""
        return self._named(Trace.clearest([self.along_outcome(residual[self.rows]), self.along(guides[self.rows])]))

    def along(self, guides: Array) -> Trace:
        """Structure along bins of functions of the features, shape (n, k), without levels' treated shares."""
        if self.has_levels:
            return Trace(1.0)
        return replace(along_bins(guides, self.residual, self.variance), columns=())

    def along_scores(self) -> Trace:
        """Whether scores vary too little; held-out scores that vary too much do so by chance alone."""
        beyond = self.log_odds - self.index
        return Trace(1.0) if self.has_levels else self._toward(beyond - beyond.mean(), set(), rising=True)

    def along_outcome(self, target: Array) -> Trace:
        """Whether treatment residuals follow outcome residuals of nearby rows.

        Nearby rows are similar in the columns along which outcome residuals have clear structure; without any, rows in
        the same leaves of trees.
        """
        centred = target - target.mean()
        kinds = Leftover(self.columns).traces(centred, centred**2)
        places = {trace.columns for trace in kinds if trace.p_value < CLEAR}
        if not places:
            return self.along_trees(centred)
        nearby = [(neighbours_mean(self.columns[:, list(chosen)], centred), set(chosen)) for chosen in sorted(places)]
        return Trace.clearest([self._toward(direction - direction.mean(), named) for direction, named in nearby])

    def along_trees(self, target: Array, *, rising: bool = False) -> Trace:
        """Whether treatment residuals follow predictions of a target by trees grown on the other half of the rows."""
        halves = np.random.default_rng(0).permutation(target.size) % 2
        direction, importance = np.zeros(target.size), np.zeros(self.columns.shape[1])
        for half in (0, 1) if importance.size else ():
            inside = halves == half
            trees = _grown(self.columns[~inside], target[~inside])
            predicted = trees.predict(self.columns[inside])
            direction[inside] = predicted - predicted.mean()
            importance += trees.feature_importances_
        return self._toward(direction, set(np.argsort(-importance)[:MAX_NAMED].tolist()), rising=rising)

    def _toward(self, direction: Array, named: set[int], *, rising: bool = False) -> Trace:
        """Whether treatment residuals follow a function of the features, or only whether they rise with it."""
        total, spread = direction @ self.residual, direction**2 @ self.variance
        if rising and total <= 0:
            return Trace(1.0)
        p_value = float(bernstein_p(total, spread, np.abs(direction).max(initial=0.0)))
        return Trace(p_value, tuple(sorted(named)))

    def _named(self, trace: Trace) -> Trace:
        return Trace(trace.p_value, tuple(int(self.places[j]) for j in trace.columns))


def _grown(columns: Array, target: Array) -> ExtraTreesRegressor:
    rows = random_rows(target.size, GROWN_ROWS)
    trees = ExtraTreesRegressor(N_TREES, min_samples_leaf=MIN_LEAF, max_features=0.5, n_jobs=1, random_state=0)
    return trees.fit(columns[rows], target[rows])


@dataclass(frozen=True)
class LineFit:
    """Weighted least squares on columns; above 300, on those most related to the residuals."""

    terms: Array
    weights: Array
    gram: Array

    @classmethod
    def of(cls, columns: Array, residual: Array, weights: Array) -> LineFit:
        """Prepare a fit to these columns, given the weights of rows."""
        if columns.shape[1] > MAX_LINES:
            columns = columns[:, np.argsort(-np.abs(columns.T @ residual))[:MAX_LINES]]
        terms = np.column_stack((np.ones(residual.size), columns))
        gram = (terms * weights[:, None]).T @ terms
        gram[np.diag_indices_from(gram)] += 1e-9 * np.maximum(np.diag(gram), 1e-9)
        return cls(terms, weights, gram)

    def projected(self, target: Array) -> Array:
        """Linear projection of a target on the columns."""
        return self.terms @ np.linalg.solve(self.gram, self.terms.T @ (self.weights * target))

    def refitted(self, residual: Array, variance: Array, given: Array, codes: Sequence[Ints]) -> Array:
        """Treatment residuals after one step of refitting the log-odds to lines and levels."""
        for _ in range(N_ROUNDS if codes else 1):
            residual = residual - variance * self.projected(residual / variance)
            for levels in codes:
                size = np.maximum(np.bincount(levels, given * variance), 1e-300)
                residual = residual - variance * (np.bincount(levels, given * residual) / size)[levels]
        return residual


def outcome_residual(y: Array, common: Array) -> Array:
    """Outcomes minus the mean of both arms' predictions, winsorised."""
    residual = y - common
    spread = np.median(np.abs(residual - np.median(residual))) / 0.6745 or residual.std()
    return np.clip(residual, -MAX_RESIDUAL * spread, MAX_RESIDUAL * spread)


def common_location(location: Array, scores: Array) -> Array:
    """Prediction for a row whatever its arm: the mean of both arms weighted by their probabilities."""
    return (1.0 - scores) * location[:, 0] + scores * location[:, 1]
