"""Whether propensity scores fit: what structure the arms less the scores have left.

Where scores miss structure that models of the outcome miss as well, differences between rows look like an effect of the
treatment. So the check looks for more than the learners do, and also where residuals of the outcome lead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from modifind._typing import Array, Ints
from modifind.data.feature_matrix import FeatureTable
from modifind.data.weights import Weights
from modifind.nuisance.regression.blocks import random_rows
from modifind.nuisance.regression.leftover import Leftover, Trace, along_bins, bernstein_p, neighbours_mean

CHECKED_ROWS = 50_000
N_TREES = 20
MIN_LEAF = 20
GROWN_ROWS = 10_000
MAX_NAMED = 3
CLEAR = 0.01  # structure of the target
N_ROUNDS = 10
EDGE = 1e-6
MAX_RESIDUAL = 4.0  # robust standard deviations of the outcome


@dataclass(frozen=True)
class ScoreCheck:
    """Rows, and their scores, that are looked at.

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
    scores : array of shape (n, 1)
        Scores of the rows.
    has_levels : bool
        Whether there are categories of many levels, of which scores are balanced.
    """

    columns: Array
    places: Ints
    residual: Array
    variance: Array
    rows: Ints | slice
    scores: Array
    has_levels: bool

    @classmethod
    def of(cls, table: FeatureTable, treatment: Ints, scores: Array, weights: Weights) -> ScoreCheck:
        """Take at most 50,000 rows, and off their residuals what scores were fitted to: lines and levels.

        What is left is the score of a model that was fitted to these very rows, as far as lines and levels go. So
        errors of the models' coefficients, and shares of levels that were balanced, are not mistaken for misfit.
        """
        rows = random_rows(treatment.size, CHECKED_ROWS)
        chance = np.clip(scores[rows], EDGE, 1.0 - EDGE)
        design, starts = table.design, [columns.start for columns, _ in table.coded]
        places = np.setdiff1d(np.arange(design.shape[1]), starts)
        columns, given = design[rows][:, places], weights[rows].values
        codes = [design[rows, start].astype(np.int64) for start in starts]
        variance = chance * (1.0 - chance)
        residual = _refitted(treatment[rows] - chance, variance, given, columns, codes)
        return cls(columns, places, given * residual, given**2 * variance, rows, chance[:, None], bool(codes))

    def trace(self) -> Trace:
        """The clearest structure along features, combinations of them and the scores themselves."""
        kinds = [Leftover(self.columns).clearest(self.residual, self.variance), self.along_trees(self.residual)]
        return self._named(Trace.clearest([*kinds, self.along(self.scores)]))

    def beside_outcome(self, residual: Array, guides: Array) -> Trace:
        """Structure where residuals of the outcome have some, too, and along bins of what models say of it."""
        return self._named(Trace.clearest([self.along_outcome(residual[self.rows]), self.along(guides[self.rows])]))

    def along(self, guides: Array) -> Trace:
        """Along bins of functions of the features, shape (n, k), that may not rest on levels' shares of the arms."""
        if self.has_levels:
            return Trace(1.0)
        return replace(along_bins(guides, self.residual, self.variance), columns=())

    def along_outcome(self, target: Array) -> Trace:
        """Whether arms less scores follow what residuals of the outcome are in other rows nearby.

        Near are rows that are alike in the columns along which those residuals have clear structure; where they have
        none, rows that trees put together.
        """
        centred = target - target.mean()
        kinds = Leftover(self.columns).traces(centred, centred**2)
        places = {trace.columns for trace in kinds if trace.p_value < CLEAR}
        if not places:
            return self.along_trees(centred)
        nearby = [(neighbours_mean(self.columns[:, place], centred), place) for place in map(list, sorted(places))]
        return Trace.clearest([self._toward(direction - direction.mean(), set(place)) for direction, place in nearby])

    def along_trees(self, target: Array) -> Trace:
        """Whether they follow what trees say of a target that were grown on the other half of the rows."""
        halves = np.random.default_rng(0).permutation(target.size) % 2
        direction, importance = np.zeros(target.size), np.zeros(self.columns.shape[1])
        for half in (0, 1) if importance.size else ():
            inside = halves == half
            trees = _grown(self.columns[~inside], target[~inside])
            predicted = trees.predict(self.columns[inside])
            direction[inside] = predicted - predicted.mean()
            importance += trees.feature_importances_
        return self._toward(direction, set(np.argsort(-importance)[:MAX_NAMED].tolist()))

    def _toward(self, direction: Array, named: set[int]) -> Trace:
        """Whether the residuals go along with one function of the features."""
        spread = direction**2 @ self.variance
        p_value = float(bernstein_p(direction @ self.residual, spread, np.abs(direction).max(initial=0.0)))
        return Trace(p_value, tuple(sorted(named)))

    def _named(self, trace: Trace) -> Trace:
        return Trace(trace.p_value, tuple(int(self.places[j]) for j in trace.columns))


def _grown(columns: Array, target: Array) -> ExtraTreesRegressor:
    rows = random_rows(target.size, GROWN_ROWS)
    trees = ExtraTreesRegressor(N_TREES, min_samples_leaf=MIN_LEAF, max_features=0.5, n_jobs=1, random_state=0)
    return trees.fit(columns[rows], target[rows])


def _refitted(residual: Array, variance: Array, weights: Array, columns: Array, codes: Sequence[Ints]) -> Array:
    """Residuals after one step of a refit of the log-odds to lines and levels."""
    lines = np.column_stack((np.ones(residual.size), columns))
    scaled = lines * (weights * variance)[:, None]
    gram = scaled.T @ lines
    gram[np.diag_indices_from(gram)] += 1e-9 * np.maximum(np.diag(gram), 1e-9)
    for _ in range(N_ROUNDS if codes else 1):
        residual = residual - variance * (lines @ np.linalg.solve(gram, lines.T @ (weights * residual)))
        for own in codes:
            size = np.bincount(own, weights * variance)
            residual = residual - variance * (np.bincount(own, weights * residual) / np.maximum(size, 1e-300))[own]
    return residual


def outcome_residual(y: Array, common: Array) -> Array:
    """Outcomes less the mean of both arms' predictions, with extreme ones drawn in."""
    residual = y - common
    spread = np.median(np.abs(residual - np.median(residual))) / 0.6745 or residual.std()
    return np.clip(residual, -MAX_RESIDUAL * spread, MAX_RESIDUAL * spread)


def common_location(location: Array, scores: Array) -> Array:
    """What the models of both arms say of a row, whichever arm it is in."""
    return (1.0 - scores) * location[:, 0] + scores * location[:, 1]
