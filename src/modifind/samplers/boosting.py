"""Boosting sampler: histogram gradient boosting for the mean, resampled residuals around it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import Ridge, RidgeCV

from modifind.kernels import Array
from modifind.rows.weights import effective_weights, fit_weights, shares_of, some
from modifind.samplers.base import (
    MANY_COLUMNS,
    N_NEIGHBOURS,
    BaseSampler,
    Calibration,
    CategoricalLaw,
    FeatureLaw,
    PoolLaw,
    binned_log_score,
    category_score,
    column_atoms,
    continuous_calibration,
    discrete_calibration,
    marginal_log_score,
    value_bins,
)
from modifind.samplers.level_law import LevelRule, fit_level_law
from modifind.samplers.rules import CategoryRule, Conditioning, LawRule, ResidualRule, Selected
from modifind.screening import Association, has_many_columns

N_WINDOWS = 50
MANY_ROWS = 50_000
PENALTIES: Array = np.logspace(0, 5, 6)


class BoostingSampler(BaseSampler):
    """X_m given the rest as a boosted mean plus a residual drawn from rows with a similar predicted mean.

    Residuals are drawn from the half of the rows nearest in predicted mean, rescaled to the local spread.

    The trees start from a ridge regression, which they need not relearn. Means and residuals are out of fold, so that
    trees that follow the noise do not shrink the residuals. Columns with an atom (a value that rows pile up on, such
    as zero cigarettes) draw the *values* of similar rows instead, which keeps the atom. Discrete features use
    out-of-fold class probabilities.

    Above 100 columns the trees see the 60 that go most with the feature in the rows they are grown on, and the
    treatment. So does the ridge regression where columns are many for the rows; else it sees all.

    Parameters
    ----------
    condition_on_treatment : bool, default=True
        Whether the treatment is among the conditioning variables.
    max_iter : int, default=40
        Number of boosting rounds.
    n_folds : int, optional
        Folds of the out-of-fold predictions; 4, or 2 above 50,000 rows, half of which teach trees of this size as much.
    """

    name = "boosting"

    def __init__(self, *, condition_on_treatment: bool = True, max_iter: int = 40, n_folds: int | None = None) -> None:
        super().__init__(condition_on_treatment=condition_on_treatment)
        self.max_iter = max_iter
        self.n_folds = n_folds

    def law(self, feature: int) -> FeatureLaw:
        """Fit the law of one feature."""
        return self.scored_law(feature)[0]

    def scored_law(self, feature: int) -> tuple[FeatureLaw, Array]:
        """The law of one feature and its held-out log-score row by row."""
        return self._fit(feature)[:2]

    def rule(self, feature: int, calibration: Calibration | None = None) -> LawRule:
        """The fitted law for other rows; a row is scored by the trees of one fold."""
        rule = self._fit(feature)[2]
        return rule if calibration is None else replace(rule, calibration=calibration)

    def _fit(self, feature: int) -> tuple[FeatureLaw, Array, ResidualRule | CategoryRule | LevelRule]:
        inputs = self._inputs(feature)
        column = self.table_.values[:, feature]
        rng = np.random.default_rng(self.seeds_[feature])
        n_folds = self.n_folds or (4 if column.size <= MANY_ROWS else 2)
        folds = self._folds(n_folds, rng)
        levels = self.table_.n_levels(feature)
        if inputs.shape[1] == 0:
            inputs = np.zeros((column.size, 1))
        conditioning = Conditioning.of(self, feature)
        if feature in self.table_.level_columns:
            known, score = fit_level_law(inputs, column, levels, folds, self.weights_)
            return known, score, LevelRule(conditioning, known.model, known.calibration)
        if levels:
            return self._categorical_law(conditioning, inputs, column, levels, folds)
        return self._residual_law(conditioning, inputs, column, folds, n_folds)

    def _settings(self) -> dict[str, object]:
        return {
            "max_iter": self.max_iter,
            "learning_rate": 0.12,
            "max_leaf_nodes": 8,
            "max_bins": 64,
            "early_stopping": False,
            "random_state": 0,  # no subsampling and no binning sample below 10,000 rows: nothing is random
        }

    def _neighbours(self, inputs: Array, targets: Array, weights: Array | None) -> NDArray[np.intp] | slice:
        """The inputs that trees see: of many those that go most with the feature, and the treatment, which is last."""
        if inputs.shape[1] <= MANY_COLUMNS:
            return np.s_[:]
        return self._with_treatment(Association(inputs, weights).order(targets)[:N_NEIGHBOURS], inputs)

    def _residual_law(
        self, conditioning: Conditioning, inputs: Array, column: Array, folds: NDArray[np.int64], n_folds: int
    ) -> tuple[FeatureLaw, Array, ResidualRule]:
        mean = np.empty(column.size)
        models = {}
        weights = effective_weights(self.weights_)
        for fold in np.unique(folds):
            out = folds == fold
            train, test = inputs[~out], inputs[out]
            part = some(weights, ~out)
            near = seen = self._neighbours(train, column[~out, None], part)
            linear: Any = Ridge(alpha=1.0)
            few = has_many_columns(*train.shape)
            if few:
                train, test, near = train[:, near], test[:, near], np.s_[:]
                linear = RidgeCV(PENALTIES)  # chosen columns fit their rows too well: shrink them
            linear.fit(train, column[~out], **fit_weights(part))
            rest = column[~out] - linear.predict(train)
            trees = HistGradientBoostingRegressor(**self._settings()).fit(train[:, near], rest, part)
            mean[out] = linear.predict(test) + trees.predict(test[:, near])
            models[fold] = (Selected.of(linear, seen if few else np.s_[:]), Selected.of(trees, seen))
        # The rule finds a row's model by the number of its fold; rows of a fold without values may have any.
        by_fold = tuple(models.get(fold, models[folds[0]]) for fold in range(n_folds))
        order = np.argsort(mean, kind="stable")
        rank = np.empty(column.size, dtype=np.int64)
        rank[order] = np.arange(column.size)
        piled = column_atoms(column).size > 0
        if piled:
            shift, scale = np.zeros(column.size), np.ones(column.size)
            width = int(np.clip(column.size // 10, 50, 500))
        else:
            shift, scale = mean, _local_scale(column - mean, order, rank, weights)
            width = column.size // 2
        width = min(max(width, 2), column.size)
        # Neighbouring rows share a window, so that scoring the law sorts a few windows and not one per row.
        step = max(1, column.size // N_WINDOWS)
        centre = rank // step * step + step // 2
        start = np.clip(centre - width // 2, 0, column.size - width)
        pool = ((column - shift) / scale)[order]
        unknown = Calibration(self.name, 0.0, 0.0, 0.0)
        law = PoolLaw(
            pool, start, np.full(column.size, width), unknown, shift, scale, weights=some(self.weights_, order)
        )
        pit, score, edges = _window_scores(column, law, self.weights_)
        marginal = marginal_log_score(column, edges, self.weights_)
        calibration = continuous_calibration(self.name, pit, score, marginal, self.weights_)
        law = replace(law, calibration=calibration)
        return law, score, ResidualRule.of(conditioning, by_fold, mean, law, shifted=not piled)

    def _categorical_law(
        self, conditioning: Conditioning, inputs: Array, codes: Array, levels: int, folds: NDArray[np.int64]
    ) -> tuple[FeatureLaw, Array, CategoryRule]:
        held = np.zeros((codes.size, levels))
        models: list[Any] = []
        known = []
        weights = effective_weights(self.weights_)
        for fold in np.unique(folds):
            out = folds == fold
            present = np.unique(codes[~out]).astype(np.intp)
            known.append(present)
            if present.size == 1:
                held[np.ix_(out, present)] = 1.0
                models.append(None)
                continue
            part = some(weights, ~out)
            near = self._neighbours(inputs[~out], (codes[~out, None] == present).astype(np.float64), part)
            model = HistGradientBoostingClassifier(**self._settings()).fit(inputs[~out][:, near], codes[~out], part)
            held[np.ix_(out, present)] = model.predict_proba(inputs[out][:, near])
            models.append(Selected.of(model, near))
        score = category_score(codes, held)
        calibration = discrete_calibration(self.name, codes, score, self.weights_)
        frequencies = shares_of(codes, levels, self.weights_)
        rule = CategoryRule(conditioning, tuple(models), tuple(known), frequencies, calibration)
        return CategoricalLaw.of(held, calibration), score, rule


def _local_scale(
    residual: Array, order: NDArray[np.intp], rank: NDArray[np.int64], weights: Array | None = None
) -> Array:
    """Root mean square of the residuals of a tenth of the rows around each row's predicted mean."""
    width = min(residual.size, int(np.clip(residual.size // 10, 50, 2000)))
    squares = residual[order] ** 2
    size: Array | int = width
    start = np.clip(rank - width // 2, 0, residual.size - width)
    if weights is not None:
        squares = squares * weights[order]
        size = _window_totals(weights[order], start, width)
    return np.sqrt(np.maximum(_window_totals(squares, start, width) / size, np.finfo(float).tiny))


def _window_totals(terms: Array, start: NDArray[np.int64], width: int) -> Array:
    """Sums of `width` terms from each start on."""
    total = _steps(terms)
    return total[start + width] - total[start]


def _window_scores(column: Array, law: PoolLaw, weights: Array | None = None) -> tuple[Array, Array, Array]:
    """PIT and binned log-score of each row under its window of the pool, the row itself left out."""
    if law.weights is not None:
        assert weights is not None
        return _weighted_window_scores(column, law, law.weights, weights)
    edges = value_bins(column)
    prior = np.searchsorted(np.sort(column), edges, side="right") / column.size
    pit, score = np.empty((column.size, 2)), np.empty(column.size)
    for start in np.unique(law.start):
        rows = np.flatnonzero(law.start == start)
        window = np.sort(law.pool[start : start + law.size[rows[0]]])
        own = ((column[rows] - law.shift[rows]) / law.scale[rows])[:, None]
        at_edges = (edges - law.shift[rows, None]) / law.scale[rows, None]
        n_others = window.size - 1
        below = np.searchsorted(window, own, side="left")
        ties = np.searchsorted(window, own, side="right") - below - 1
        # The rows of the window that share the value share its probability; a value of its own has one place.
        pit[rows] = (below + np.where(ties > 0, [0.0, 1.0], 0.5) * (ties + 1)) / (n_others + 1.0)
        # One pseudo-row spread over the bins: a window says little about a bin it has no row in.
        within = np.searchsorted(window, at_edges, side="right") - (own <= at_edges)
        score[rows] = binned_log_score(column[rows], edges, (within + prior) / (n_others + 1.0))
    return pit, score, edges


def _weighted_window_scores(
    column: Array, law: PoolLaw, pool_weights: Array, weights: Array
) -> tuple[Array, Array, Array]:
    """The same where rows have weights: counts of rows become sums of weights, the pseudo-row has the mean weight."""
    edges = value_bins(column)
    order = np.argsort(column, kind="stable")
    prior = _steps(weights[order])[np.searchsorted(column[order], edges, side="right")] / weights.sum()
    pit, score = np.empty((column.size, 2)), np.empty(column.size)
    for start in np.unique(law.start):
        rows = np.flatnonzero(law.start == start)
        part = slice(start, start + law.size[rows[0]])
        order = np.argsort(law.pool[part], kind="stable")
        window, steps = law.pool[part][order], _steps(pool_weights[part][order])
        own = ((column[rows] - law.shift[rows]) / law.scale[rows])[:, None]
        at_edges = (edges - law.shift[rows, None]) / law.scale[rows, None]
        mine, typical = weights[rows, None], steps[-1] / window.size
        total = np.maximum(steps[-1] - mine, 0.0) + typical
        below = steps[np.searchsorted(window, own, side="left")]
        ties = steps[np.searchsorted(window, own, side="right")] - below - mine
        shared = ties > 1e-9 * typical
        pit[rows] = np.clip((below + np.where(shared, [0.0, 1.0], 0.5) * (ties + typical)) / total, 0.0, 1.0)
        within = steps[np.searchsorted(window, at_edges, side="right")] - mine * (own <= at_edges)
        score[rows] = binned_log_score(column[rows], edges, (within + typical * prior) / total)
    return pit, score, edges


def _steps(weights: Array) -> Array:
    """Cumulative sums that begin at zero."""
    return np.concatenate(([0.0], np.cumsum(weights)))
