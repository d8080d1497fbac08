"""Spline sampler: smooth functions for mean and spread, resampled residuals around them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeCV

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.conditional.base import (
    MANY_COLUMNS,
    N_NEIGHBOURS,
    BaseSampler,
    CategoricalConditional,
    PoolConditional,
    binned_log_score,
    category_score,
    column_atoms,
    continuous_calibration,
    discrete_calibration,
    value_bins,
)
from modifind.nuisance.conditional.contract import Calibration, ConditionalRule
from modifind.nuisance.conditional.level_conditional import LevelRule, fit_level_rule
from modifind.nuisance.conditional.rules import CategoryRule, Conditioning, ResidualRule, Selected
from modifind.nuisance.regression.screening import Association, has_many_columns
from modifind.nuisance.regression.smooth import SmoothClassifier, SmoothRegression

N_WINDOWS = 50
MANY_ROWS = 50_000
PENALTIES: Array = np.logspace(0, 5, 6)


class SplineSampler(BaseSampler):
    """X_m given the rest as a smooth mean plus a residual of smooth spread, drawn from rows with a similar mean.

    Mean and log-spread are sums of lines, of penalised curves and of products of two other features, each where
    residuals call for it. Residuals are drawn, in units of the spread, from the half of the rows nearest in predicted
    mean. Predictions are out of fold. Columns with an atom (a value that rows pile up on, such as zero cigarettes)
    draw the *values* of similar rows instead, which keeps the atom. Discrete features use out-of-fold class
    probabilities of a logistic regression on the same functions.

    Above 100 columns the model sees the 60 most strongly associated with the feature in the rows it is fitted to, and
    the treatment. With many columns for the number of rows, it is a ridge regression, and the spread follows the mean.

    Parameters
    ----------
    condition_on_treatment : bool, default=True
        Whether the treatment is among the conditioning variables.
    n_folds : int, optional
        Folds of the out-of-fold predictions; 4, or 2 above 50,000 rows, half of which teach as much.

    Examples
    --------
    >>> from modifind import EffectLikelihood, SplineSampler, ModifierSelector
    >>> from modifind.datasets import make_modifiers
    >>> data = make_modifiers("LinMean", n_samples=300, n_features=6, random_state=0)
    >>> selector = ModifierSelector(EffectLikelihood("linear"), SplineSampler(n_folds=2), explain=False, random_state=0)
    >>> sorted(selector.fit(data.X, data.y, treatment=data.treatment).result_.selected)
    ['X1', 'X2', 'X3', 'X4', 'X5']
    """

    name = "splines"
    learns = True

    def __init__(self, *, condition_on_treatment: bool = True, n_folds: int | None = None) -> None:
        super().__init__(condition_on_treatment=condition_on_treatment)
        self.n_folds = n_folds

    def rule(self, feature: int) -> ConditionalRule:
        """Learn the distribution of one feature; rows of other tables are scored by the models of one fold."""
        return self.scored_rule(feature)[0]

    def scored_rule(self, feature: int) -> tuple[ResidualRule | CategoryRule | LevelRule, Array]:
        """The rule of one feature and its held-out log-score row by row."""
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
            return fit_level_rule(conditioning, inputs, column, levels, folds, self.weights_)
        if levels:
            return self._categorical(conditioning, inputs, column, levels, folds)
        return self._residual_rule(conditioning, inputs, column, folds, n_folds)

    def _neighbours(self, inputs: Array, targets: Array, weights: Weights) -> NDArray[np.intp] | slice:
        """The inputs that are looked at: of many those that go most with the feature, and the treatment, the last."""
        if inputs.shape[1] <= MANY_COLUMNS:
            return np.s_[:]
        return self._with_treatment(Association(inputs, weights).order(targets)[:N_NEIGHBOURS], inputs)

    def _grow(self, inputs: Array, rest: Array, weights: Weights) -> Any:
        """A model of what smooth functions leave over, in units of the spread; None for none."""
        return None

    def _classifier(self, inputs: Array, codes: Array, weights: Weights) -> Any:
        """A classifier of a discrete feature."""
        return SmoothClassifier().fit(inputs, codes, weights.given)

    def _residual_rule(
        self, conditioning: Conditioning, inputs: Array, column: Array, folds: Ints, n_folds: int
    ) -> tuple[ResidualRule, Array]:
        weights, few = self.weights_.effective, has_many_columns(*inputs.shape)
        models, mean, spread = self._cross_fit(inputs, column, folds, weights)
        # The rule finds a row's model by the number of its fold; rows of a fold without values may have any.
        by_fold = tuple(models.get(fold, models[folds[0]]) for fold in range(n_folds))
        order = np.argsort(mean, kind="stable")
        rank = np.empty(column.size, dtype=np.int64)
        rank[order] = np.arange(column.size)
        piled = column_atoms(column).size > 0
        local = np.ones(column.size)
        if piled:
            shift, scale = np.zeros(column.size), local
            width = int(np.clip(column.size // 10, 50, 500))
        else:
            local = _local_scale((column - mean) / spread, order, rank, weights) if few else local
            shift, scale = mean, spread * local
            width = column.size // 2
        width = min(max(width, 2), column.size)
        # Neighbouring rows share a window, so that scoring the distribution sorts a few windows and not one per row.
        step = max(1, column.size // N_WINDOWS)
        centre = rank // step * step + step // 2
        start_row = np.clip(centre - width // 2, 0, column.size - width)
        pool = ((column - shift) / scale)[order]
        unknown = Calibration(self.name, 0.0, 0.0, 0.0)
        conditional = PoolConditional(
            pool, start_row, np.full(column.size, width), unknown, shift, scale, self.weights_[order]
        )
        pit, score, edges = _window_scores(column, conditional, self.weights_.values)
        calibration = continuous_calibration(self.name, pit, score, column, edges, self.weights_)
        conditional = replace(conditional, calibration=calibration)
        return ResidualRule.of(conditioning, by_fold, mean, local, conditional, shifted=not piled), score

    def _cross_fit(
        self, inputs: Array, column: Array, folds: Ints, weights: Weights
    ) -> tuple[dict[int, tuple[Any, Any]], Array, Array]:
        """A model of each fold's outside, with trees or None, and the mean and the spread that it gives the inside."""
        mean, spread = np.empty(column.size), np.empty(column.size)
        models = {}
        few, smooth = has_many_columns(*inputs.shape), None
        if not few and inputs.shape[1] <= MANY_COLUMNS:
            smooth = SmoothRegression().fit(inputs, column, weights)
        for fold in np.unique(folds):
            out = folds == fold
            own = weights[~out]
            seen = self._neighbours(inputs[~out], column[~out, None], own)
            train, test = inputs[~out][:, seen], inputs[out][:, seen]
            fit = _Line.of if few else SmoothRegression().fit if smooth is None else smooth.refit
            start: Any = fit(train, column[~out], own)
            located, unit = start.predict(train)
            trees = self._grow(train, (column[~out] - located) / unit, own)
            models[fold] = (Selected.of(start, seen), None if trees is None else Selected.of(trees, seen))
            mean[out], spread[out] = start.predict(test)
            if trees is not None:
                mean[out] += spread[out] * trees.predict(test)
        return models, mean, spread

    def _categorical(
        self, conditioning: Conditioning, inputs: Array, codes: Array, levels: int, folds: Ints
    ) -> tuple[CategoryRule, Array]:
        held = np.zeros((codes.size, levels))
        models: list[Any] = []
        known = []
        weights = self.weights_.effective
        for fold in np.unique(folds):
            out = folds == fold
            present = np.unique(codes[~out]).astype(np.intp)
            known.append(present)
            if present.size == 1:
                held[np.ix_(out, present)] = 1.0
                models.append(None)
                continue
            part = weights[~out]
            near = self._neighbours(inputs[~out], (codes[~out, None] == present).astype(np.float64), part)
            model = self._classifier(inputs[~out][:, near], codes[~out], part)
            held[np.ix_(out, present)] = model.predict_proba(inputs[out][:, near])
            models.append(Selected.of(model, near))
        score = category_score(codes, held)
        calibration = discrete_calibration(self.name, codes, score, self.weights_)
        frequencies = self.weights_.shares(codes, levels)
        fitted = CategoricalConditional.of(held, calibration)
        return CategoryRule(conditioning, tuple(models), tuple(known), frequencies, calibration, fitted), score


@dataclass(frozen=True)
class _Line:
    """A ridge regression of a spread of 1: chosen columns fit their rows too well, and are shrunk."""

    model: RidgeCV

    @classmethod
    def of(cls, inputs: Array, column: Array, weights: Weights) -> _Line:
        return cls(RidgeCV(PENALTIES).fit(inputs, column, **weights.argument()))

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean and spread."""
        return self.model.predict(X), np.ones(X.shape[0])


def _local_scale(residual: Array, order: NDArray[np.intp], rank: Ints, weights: Weights) -> Array:
    """Root mean square of the residuals of a tenth of the rows around each row's predicted mean."""
    width = min(residual.size, int(np.clip(residual.size // 10, 50, 2000)))
    start = np.clip(rank - width // 2, 0, residual.size - width)
    terms = weights.times(residual**2), weights.values
    squares, size = (_window_totals(own[order], start, width) for own in terms)
    return np.sqrt(np.maximum(squares / size, np.finfo(float).tiny))


def _window_totals(terms: Array, start: Ints, width: int) -> Array:
    """Sums of `width` terms from each start on."""
    total = _steps(terms)
    return total[start + width] - total[start]


def _window_scores(column: Array, conditional: PoolConditional, weights: Array) -> tuple[Array, Array, Array]:
    """PIT and binned log-score of each row under its window of the pool, the row itself left out; and the bins' edges.

    Counts of rows are sums of weights, and the pseudo-row below has the mean weight.
    """
    edges = value_bins(column)
    order = np.argsort(column, kind="stable")
    prior = _steps(weights[order])[np.searchsorted(column[order], edges, side="right")] / weights.sum()
    pit, score = np.empty((column.size, 2)), np.empty(column.size)
    for start in np.unique(conditional.start):
        rows = np.flatnonzero(conditional.start == start)
        part = slice(start, start + conditional.size[rows[0]])
        order = np.argsort(conditional.pool[part], kind="stable")
        window, steps = conditional.pool[part][order], _steps(conditional.weights.values[part][order])
        own = ((column[rows] - conditional.shift[rows]) / conditional.scale[rows])[:, None]
        at_edges = (edges - conditional.shift[rows, None]) / conditional.scale[rows, None]
        mine, typical = weights[rows, None], steps[-1] / window.size
        total = np.maximum(steps[-1] - mine, 0.0) + typical
        below = steps[np.searchsorted(window, own, side="left")]
        ties = steps[np.searchsorted(window, own, side="right")] - below - mine
        # The rows of the window that share the value share its probability; a value of its own has one place.
        shared = ties > 1e-9 * typical
        pit[rows] = np.clip((below + np.where(shared, [0.0, 1.0], 0.5) * (ties + typical)) / total, 0.0, 1.0)
        # One pseudo-row spread over the bins: a window says little about a bin it has no row in.
        within = steps[np.searchsorted(window, at_edges, side="right")] - mine * (own <= at_edges)
        score[rows] = binned_log_score(column[rows], edges, (within + typical * prior) / total)
    return pit, score, edges


def _steps(weights: Array) -> Array:
    """Cumulative sums that begin at zero."""
    return np.concatenate(([0.0], np.cumsum(weights)))
