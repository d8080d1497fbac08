"""Adaptive samplers: smooth functions, boosted trees on their residuals, and the choice among samplers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV

from modifind._typing import Array, Ints
from modifind.data.features import FeatureTable
from modifind.data.weights import Weights
from modifind.nuisance.conditional.categories import Classified, ScoredSampler, fit_classifier
from modifind.nuisance.conditional.contract import (
    Calibration,
    ConditionalRule,
    binned_log_score,
    column_atoms,
    continuous_calibration,
    value_bins,
)
from modifind.nuisance.conditional.distributions import (
    CategoricalConditional,
    NormalConditional,
    WindowConditional,
    Windows,
)
from modifind.nuisance.conditional.gaussian import GaussianSampler
from modifind.nuisance.conditional.sampler import BaseSampler, ColumnModel, Conditioning, ResidualRule, fit_copy
from modifind.nuisance.regression.screening import Association, Misfit, has_many_columns
from modifind.nuisance.regression.smooth import SmoothClassifier, SmoothRegression

N_WINDOWS = 50
MANY_ROWS = 50_000
LINE_PENALTIES: Array = np.logspace(0, 5, 6)
MANY_COLUMNS = 100
N_NEIGHBOURS = 60  # columns that are looked at where there are more than that


class SplineSampler(ScoredSampler):
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

    def __init__(self, *, condition_on_treatment: bool = True, n_folds: int | None = None) -> None:
        super().__init__(condition_on_treatment=condition_on_treatment)
        self.n_folds = n_folds

    def _folds_of(self, feature: int) -> Ints:
        return self._folds(self._n_folds, np.random.default_rng(self.seeds_[feature]))

    @property
    def _n_folds(self) -> int:
        return self.n_folds or (4 if self.table_.n_rows <= MANY_ROWS else 2)

    def _neighbours(self, inputs: Array, targets: Array, weights: Weights) -> NDArray[np.intp] | slice:
        """The inputs used: of many, those most associated with the feature, and the treatment last."""
        if inputs.shape[1] <= MANY_COLUMNS:
            return np.s_[:]
        return self._with_treatment(Association(inputs, weights).order(targets)[:N_NEIGHBOURS], inputs)

    def _refine(self, model: Any, inputs: Array, column: Array, weights: Weights) -> Any:
        """Hook to improve a model of mean and spread, given the rows it was fitted to."""
        return model

    def _classifier(self, inputs: Array, codes: Array, weights: Weights) -> Any:
        """A classifier of a discrete feature."""
        return SmoothClassifier().fit(inputs, codes, weights.given)

    def _number_rule(self, feature: int, conditioning: Conditioning) -> tuple[ResidualRule, Array]:
        inputs, column = conditioning(self.table_, self.treatment_), self.table_.values[:, feature]
        weights, folds = self.weights_.effective, self._folds_of(feature)
        models, mean, spread = self._cross_fit(inputs, column, folds, weights)
        # The rule finds a row's model by the number of its fold; rows of a fold without values may have any.
        by_fold = tuple(models.get(fold, models[folds[0]]) for fold in range(self._n_folds))
        order = np.argsort(mean, kind="stable")
        rank = np.empty(column.size, dtype=np.int64)
        rank[order] = np.arange(column.size)
        piled = column_atoms(column).size > 0
        local = np.ones(column.size)
        if piled:
            shift, scale = np.zeros(column.size), local
            width = int(np.clip(column.size // 10, 50, 500))
        else:
            if has_many_columns(*inputs.shape):
                local = _local_scale((column - mean) / spread, order, rank, weights)
            shift, scale = mean, spread * local
            width = column.size // 2
        width = min(max(width, 2), column.size)
        # Neighbouring rows share a window, so that scoring the distribution sorts a few windows and not one per row.
        step = max(1, column.size // N_WINDOWS)
        centre = rank // step * step + step // 2
        starts, window = np.unique(np.clip(centre - width // 2, 0, column.size - width), return_inverse=True)
        pool, counts = ((column - shift) / scale)[order], self.weights_[order]
        windows = Windows.from_pools((pool[start : start + width], counts[start : start + width]) for start in starts)
        fitted = WindowConditional(windows, window, shift, scale, Calibration(self.name, 0.0, 0.0, 0.0))
        pit, score, edges = _window_scores(column, fitted, self.weights_.values)
        calibration = continuous_calibration(self.name, pit, score, column, edges, self.weights_)
        fitted = replace(fitted, calibration=calibration)
        return ResidualRule.from_fitted(conditioning, by_fold, mean, local, fitted, shifted=not piled), score

    def _cross_fit(
        self, inputs: Array, column: Array, folds: Ints, weights: Weights
    ) -> tuple[dict[int, ColumnModel], Array, Array]:
        """A model for each fold fitted outside it, and its mean and spread inside the fold."""
        mean, spread = np.empty(column.size), np.empty(column.size)
        models = {}
        few, smooth = has_many_columns(*inputs.shape), None
        if not few and inputs.shape[1] <= MANY_COLUMNS:
            smooth = SmoothRegression().fit(inputs, column, weights)
        for fold in np.unique(folds):
            out = folds == fold
            counts = weights[~out]
            near = self._neighbours(inputs[~out], column[~out, None], counts)
            rows = inputs[~out][:, near], column[~out], counts
            fit = _Line.fit if few else SmoothRegression().fit if smooth is None else smooth.refit
            models[fold] = ColumnModel(self._refine(fit(*rows), *rows), near)
            mean[out], spread[out] = models[fold].predict(inputs[out])
        return models, mean, spread

    def _classify(self, inputs: Array, codes: Array, levels: int, folds: Ints) -> Classified:
        held = np.empty((codes.size, levels))
        models, weights = [], self.weights_.effective
        for fold in np.unique(folds):
            out = folds == fold
            known, counts = codes[~out], weights[~out]
            near = self._neighbours(inputs[~out], (known[:, None] == np.unique(known)).astype(np.float64), counts)
            columns = inputs[~out][:, near], known, inputs[out][:, near]
            held[out], model = fit_classifier(self._classifier, *columns, levels, counts)
            models.append(None if model is None else ColumnModel(model, near))
        return tuple(models), held, held


@dataclass(frozen=True)
class _Line:
    """Ridge regression for a spread of 1; shrunk, because columns chosen on these rows overfit them."""

    model: RidgeCV

    @classmethod
    def fit(cls, inputs: Array, column: Array, weights: Weights) -> _Line:
        return cls(RidgeCV(LINE_PENALTIES).fit(inputs, column, **weights.argument()))

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean and spread."""
        return self.model.predict(X), np.ones(X.shape[0])


def _local_scale(residual: Array, order: NDArray[np.intp], rank: Ints, weights: Weights) -> Array:
    """Root mean square of the residuals in the tenth of the rows nearest to each row's predicted mean."""
    width = min(residual.size, int(np.clip(residual.size // 10, 50, 2000)))
    start = np.clip(rank - width // 2, 0, residual.size - width)
    totals = (_steps(terms[order]) for terms in (weights.times(residual**2), weights.values))
    squares, size = (total[start + width] - total[start] for total in totals)
    return np.sqrt(np.maximum(squares / size, np.finfo(float).tiny))


def _window_scores(column: Array, conditional: WindowConditional, weights: Array) -> tuple[Array, Array, Array]:
    """PIT and binned log-score of each row under its window of the pool without the row itself, and the bin edges.

    Counts of rows are sums of weights, and the pseudo-row below has the mean weight.
    """
    edges = value_bins(column)
    order = np.argsort(column, kind="stable")
    prior = _steps(weights[order])[np.searchsorted(column[order], edges, side="right")] / weights.sum()
    pit, score = np.empty((column.size, 2)), np.empty(column.size)
    for k, (window, counts) in enumerate(conditional.windows.pools):
        rows = np.flatnonzero(conditional.window == k)
        order = np.argsort(window, kind="stable")
        window, steps = window[order], _steps(counts.values[order])
        observed = ((column[rows] - conditional.shift[rows]) / conditional.scale[rows])[:, None]
        at_edges = (edges - conditional.shift[rows, None]) / conditional.scale[rows, None]
        mine, typical = weights[rows, None], steps[-1] / window.size
        total = np.maximum(steps[-1] - mine, 0.0) + typical
        below = steps[np.searchsorted(window, observed, side="left")]
        ties = steps[np.searchsorted(window, observed, side="right")] - below - mine
        # The rows of the window that share the value share its probability; a value of its own has one place.
        shared = ties > 1e-9 * typical
        pit[rows] = np.clip((below + np.where(shared, [0.0, 1.0], 0.5) * (ties + typical)) / total, 0.0, 1.0)
        # One pseudo-row spread over the bins: a window says little about a bin it has no row in.
        within = steps[np.searchsorted(window, at_edges, side="right")] - mine * (observed <= at_edges)
        score[rows] = binned_log_score(column[rows], edges, (within + typical * prior) / total)
    return pit, score, edges


def _steps(weights: Array) -> Array:
    """Cumulative sums starting at zero."""
    return np.concatenate(([0.0], np.cumsum(weights)))


class BoostingSampler(SplineSampler):
    """X_m given the rest as in `SplineSampler`, with boosted trees on the residuals of its smooth functions.

    Discrete features use out-of-fold class probabilities of trees alone.

    Parameters
    ----------
    condition_on_treatment : bool, default=True
        Whether the treatment is among the conditioning variables.
    max_iter : int, default=40
        Number of boosting rounds.
    n_folds : int, optional
        Folds of the out-of-fold predictions; 4, or 2 above 50,000 rows, half of which teach trees of this size as much.

    Examples
    --------
    >>> from modifind import EffectLikelihood, BoostingSampler, ModifierSelector
    >>> from modifind.datasets import make_modifiers
    >>> data = make_modifiers("LinMean", n_samples=300, n_features=6, random_state=0)
    >>> sampler = BoostingSampler(max_iter=10)
    >>> selector = ModifierSelector(EffectLikelihood("linear"), sampler, explain=False, random_state=0)
    >>> sorted(selector.fit(data.X, data.y, treatment=data.treatment).result_.selected)
    ['X1', 'X2', 'X3', 'X4', 'X5']
    """

    name = "boosting"

    def __init__(self, *, condition_on_treatment: bool = True, max_iter: int = 40, n_folds: int | None = None) -> None:
        super().__init__(condition_on_treatment=condition_on_treatment, n_folds=n_folds)
        self.max_iter = max_iter

    def _refine(self, model: Any, inputs: Array, column: Array, weights: Weights) -> RefinedByTrees:
        mean, spread = model.predict(inputs)
        trees = HistGradientBoostingRegressor(**self._settings())
        return RefinedByTrees(model, trees.fit(inputs, (column - mean) / spread, weights.given))

    def _classifier(self, inputs: Array, codes: Array, weights: Weights) -> Any:
        return HistGradientBoostingClassifier(**self._settings()).fit(inputs, codes, weights.given)

    def _settings(self) -> dict[str, Any]:
        return {
            "max_iter": self.max_iter,
            "learning_rate": 0.12,
            "max_leaf_nodes": 8,
            "max_bins": 64,
            "early_stopping": False,
            "random_state": 0,  # no subsampling and no binning sample below 10,000 rows: nothing is random
        }


@dataclass(frozen=True)
class RefinedByTrees:
    """A model of mean and spread, with trees on its standardised residuals."""

    model: Any
    trees: HistGradientBoostingRegressor

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean and spread."""
        mean, spread = self.model.predict(X)
        return mean + spread * self.trees.predict(X), spread


KINDS: tuple[type[ScoredSampler], ...] = (GaussianSampler, SplineSampler, BoostingSampler)  # the plainest comes first
MISFIT_LEVEL = 0.01
SHAPE_LEVEL = 0.05
SCREEN_LEVEL = 0.01
CHOICE_ROWS = 10_000
MAX_CHOICE_ROWS = 20_000  # beyond, the choice is made on CHOICE_ROWS


class AutoSampler(BaseSampler):
    """The gaussian, spline or boosting sampler, whichever predicts held-out rows of the feature best.

    A richer distribution is chosen if its held-out log-score is better by more than one standard error of the
    difference, or if the plainer distribution fails its own held-out calibration test at 1% and the richer one passes:
    a wrong shape costs little log-score but makes p-values too small.

    Splines are fitted only if they could win: if the column has an atom, if the residuals of the gaussian distribution
    are not normal, or if tests of those residuals against bins and products of the other features find a curve, an
    interaction or a varying spread. Trees are grown only if the same tests find structure in the residuals of the
    splines. These tests detect far weaker departures than those that justify a richer distribution. Above 20,000 rows
    the choice is made on a random 10,000 of them, and the chosen distribution is fitted on all. Above 100 columns,
    products are formed only of the 60 columns most associated with the residuals.

    Parameters
    ----------
    condition_on_treatment : bool, default=True
        Whether the treatment is among the conditioning variables.

    Examples
    --------
    >>> from modifind.data.schema import read_features
    >>> x = np.random.default_rng(0).normal(size=(400, 4))
    >>> x[:, 3] += x[:, 1] + x[:, 2] ** 2
    >>> sampler = AutoSampler().fit(read_features(x), np.arange(400) % 2, np.random.SeedSequence(0))
    >>> [sampler.conditional(m).calibration.sampler for m in (0, 3)]
    ['gaussian', 'splines']
    """

    name = "auto"
    learns = True

    def _prepare(self, seed: np.random.SeedSequence) -> None:
        """Fit the candidates' shared parts."""
        table, treatment, weights = self.table_, self.treatment_, self.weights_
        first, second = seed.spawn(2)
        self.candidates_ = self._fitted(table, treatment, first, weights, self.assigned_folds_)
        self.trial_ = self.candidates_
        if table.n_rows > MAX_CHOICE_ROWS:
            rows_seed, second = second.spawn(2)
            rows = np.sort(np.random.default_rng(rows_seed).choice(table.n_rows, CHOICE_ROWS, replace=False))
            table, treatment = replace(table, values=table.values[rows]), treatment[rows]
            weights = weights[rows].scaled
            folds = self.assigned_folds_[rows] if self.whole_clusters_ and self.assigned_folds_ is not None else None
            self.trial_ = self._fitted(table, treatment, second, weights, folds)
        self.screen_ = _Screen(self.trial_[0])

    def _fitted(
        self, table: FeatureTable, treatment: Ints, seed: np.random.SeedSequence, weights: Weights, folds: Ints | None
    ) -> tuple[ScoredSampler, ...]:
        """The candidates, from the plainest to the richest."""
        blank = [kind(condition_on_treatment=self.condition_on_treatment) for kind in KINDS]
        return tuple(
            fit_copy(sampler, table, treatment, child, weights, folds, self.whole_clusters_)
            for sampler, child in zip(blank, seed.spawn(len(KINDS)), strict=True)
        )

    def rule(self, feature: int) -> ConditionalRule:
        """Learn the distribution that fits the feature best; for many levels all candidates are the same."""
        if feature in self.table_.level_columns:
            return self.candidates_[0].rule(feature)
        k, chosen = self._choose(feature)
        return chosen if self.trial_ is self.candidates_ else self.candidates_[k].rule(feature)

    def _choose(self, feature: int) -> tuple[int, ConditionalRule]:
        """Index of the best candidate, and its rule for the rows on which the choice was made."""
        chosen, score = self.trial_[0]._scored_rule(feature)
        best, last = 0, chosen
        for k in range(1, len(self.trial_)):
            if not self.screen_.suspects(feature, last):
                break
            last, richer = self.trial_[k]._scored_rule(feature)
            gain, error = self.trial_[0].weights_.mean_and_error(richer - score)
            failed = chosen.calibration.pit_p_value < MISFIT_LEVEL <= last.calibration.pit_p_value
            if gain > error or failed:
                best, chosen, score = k, last, richer
        return best, chosen


class _Screen:
    """Score tests of a distribution's residuals, to decide whether a richer distribution is worth fitting.

    Parameters
    ----------
    sampler : ScoredSampler
        The fitted sampler whose distributions are tested; its ridge regressions have the columns.
    """

    def __init__(self, sampler: Any) -> None:
        self.table = sampler.table_
        self.weights = sampler.weights_
        self.misfit = Misfit(sampler.ridge_.columns, self.weights)

    def suspects(self, feature: int, rule: Any) -> bool:
        """Whether a feature's distribution shows any sign of misfit."""
        column, conditional = self.table.values[:, feature], rule.fitted
        if isinstance(conditional, NormalConditional):
            residual = (column - conditional.mean) / conditional.scale
            shape = rule.calibration.pit_p_value < SHAPE_LEVEL or column_atoms(column).size
            shape = shape or _normality(residual, self.weights) < SCREEN_LEVEL
            return bool(shape) or self._depends_on_columns(feature, conditional.mean, residual)
        if isinstance(conditional, WindowConditional):
            if not conditional.shift.any():  # values of similar rows: their mean is all that there is to test
                return True
            return self._depends_on_columns(
                feature, conditional.shift, (column - conditional.shift) / conditional.scale
            )
        assert isinstance(conditional, CategoricalConditional)
        chances = conditional.grid(slice(None))[1].T
        # With two categories the second residual is the first with its sign changed.
        shown = enumerate(chances[:1] if len(chances) == 2 else chances)
        return any(self._depends_on_bins(feature, p, (column == code) - p, p * (1.0 - p)) for code, p in shown)

    def _depends_on_columns(self, feature: int, predicted: Array, residual: Array) -> bool:
        """Whether standardised residuals, or their size, depend on other columns."""
        residual = residual - self.weights.mean(residual)
        spread = np.abs(residual) - self.weights.mean(np.abs(residual))
        variances = [np.full(residual.size, self.weights.mean(terms**2)) for terms in (residual, spread)]
        columns = self.table.encoding[feature]
        return (
            self._depends_on_bins(feature, predicted, residual, variances[0])
            or self.misfit.curve(spread, variances[1], predicted, columns) < SCREEN_LEVEL
        )

    def _depends_on_bins(self, feature: int, predicted: Array, residual: Array, variance: Array) -> bool:
        """Whether residuals depend on bins or products of other columns."""
        columns = self.table.encoding[feature]
        return (
            self.misfit.curve(residual, variance, predicted, columns) < SCREEN_LEVEL
            or self.misfit.product(residual, variance, columns) < SCREEN_LEVEL
        )


def _normality(residual: Array, weights: Weights) -> float:
    """P-value of the Jarque-Bera test, with the effective number of rows."""
    centred = residual - weights.mean(residual)
    variance, third, fourth = (weights.mean(centred**power) for power in (2, 3, 4))
    statistic = weights.effective_size / 6 * (third**2 / variance**3 + (fourth / variance**2 - 3) ** 2 / 4)
    return float(chdtrc(2, statistic))
