"""Base class of samplers, their rules, and the simplest sampler, the marginal one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from modifind._typing import Array, Ints
from modifind.data.features import FeatureTable
from modifind.data.weights import GivenWeights, Weights
from modifind.nuisance.conditional.contract import Calibration, ConditionalRule, fitted_conditional
from modifind.nuisance.conditional.distributions import (
    CategoricalConditional,
    NormalConditional,
    WindowConditional,
    Windows,
)
from modifind.nuisance.regression.levels import LevelSums, LevelTables


class BaseSampler(BaseEstimator, ABC):
    """Base class of samplers. Subclasses implement `rule`, and `_prepare` if features share work.

    Parameters
    ----------
    condition_on_treatment : bool, default=True
        Whether the treatment is among the conditioning variables. The null hypothesis that ignorability gives is
        "Y independent of X_m given the other features and the treatment", so it should be; the paper leaves it out.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.data.features import FeatureTable
    >>> from modifind.nuisance.conditional import BaseSampler, Calibration
    >>> from modifind.nuisance.conditional.distributions import NormalConditional
    >>> class Standard:
    ...     calibration = Calibration("known", float("nan"), float("nan"), 0.0)
    ...     def conditional(self, table, treatment, parts):
    ...         return NormalConditional(np.zeros(table.n_rows), 1.0, self.calibration)
    >>> class StandardNormal(BaseSampler):  # features that are standard normal variables, whatever the others are
    ...     def rule(self, feature):
    ...         return Standard()
    >>> table = FeatureTable(("x",), np.zeros((5, 1)), (None,))
    >>> sampler = StandardNormal().fit(table, np.array([0, 1, 0, 1, 0]), np.random.SeedSequence(0))
    >>> sampler.conditional(0).draw(np.random.default_rng(0), 2).shape
    (2, 5)
    """

    name: str
    condition_on_treatment = True
    learns = False  # what it knows of a feature comes from the table alone, so that any columns will do
    assigned_folds_: Ints | None = None
    whole_clusters_ = False

    def __init__(self, *, condition_on_treatment: bool = True) -> None:
        self.condition_on_treatment = condition_on_treatment

    def fit(
        self, table: FeatureTable, treatment: Ints, seed: np.random.SeedSequence, weights: GivenWeights = None
    ) -> BaseSampler:
        """Store the data; the work for each feature is done by `rule`.

        With `weights`, one number per row of mean 1, distributions are those of the population that the weighted rows
        represent.
        """
        self.table_ = self._read(table)
        self.weights_ = Weights.of(weights, table.n_rows)
        self.treatment_ = treatment
        self.seeds_ = seed.spawn(table.n_features)
        arms = treatment if self.condition_on_treatment else None
        self.level_shares_ = level_shares(self.table_, arms, self.weights_)
        self._prepare(seed)
        return self

    def _read(self, table: FeatureTable) -> FeatureTable:
        """Convert the table to the form that the sampler needs."""
        return table

    def _prepare(self, seed: np.random.SeedSequence) -> None:
        """Do the work shared by all features."""

    @abstractmethod
    def rule(self, feature: int) -> ConditionalRule:
        """Learn the distribution of one feature, for any rows.

        Parameters
        ----------
        feature : int
            Position of the feature.
        """

    def conditional(self, feature: int) -> Any:
        """Distribution of the fitted rows: the rule of a feature applied to them."""
        return fitted_conditional(self.rule(feature), self.table_, self.treatment_)

    def assign_folds(self, folds: Ints, *, whole_clusters: bool = False) -> None:
        """Use these folds for cross-fitting at the next `fit`, so that no row is scored by a rule that has seen it.

        With `whole_clusters` they keep clusters together, and subsamples of the rows must do so too.
        """
        self.assigned_folds_ = folds
        self.whole_clusters_ = whole_clusters

    def _folds(self, n_folds: int, rng: np.random.Generator) -> Ints:
        """Fold of each row: drawn, or as assigned unless all of these rows share one."""
        drawn = row_folds(self.table_.n_rows, n_folds, rng)
        if self.assigned_folds_ is None or self.assigned_folds_.size != drawn.size:
            return drawn
        folds = self.assigned_folds_ % n_folds
        return folds if (folds != folds[0]).any() else drawn


def row_folds(n_rows: int, n_folds: int, rng: np.random.Generator) -> Ints:
    """Fold number of each row; fold sizes differ by at most one."""
    return rng.permutation(np.arange(n_rows) % n_folds)


def fit_copy(
    sampler: Any,
    table: FeatureTable,
    treatment: Ints,
    seed: np.random.SeedSequence,
    weights: Weights,
    folds: Ints | None = None,
    whole_clusters: bool = False,
    **settings: Any,
) -> Any:
    """Fit a copy of a sampler, with other settings, to a table.

    The sampler may be the user's own: it gets folds if it supports them, and weights if rows are weighted.
    """
    fresh = clone(sampler, safe=False)
    if settings:
        fresh.set_params(**settings)
    if folds is not None and hasattr(fresh, "assign_folds"):
        fresh.assign_folds(folds, whole_clusters=whole_clusters)
    return fresh.fit(table, treatment, seed, **weights.argument("weights"))


@dataclass(frozen=True)
class Conditioning:
    """The columns from which a feature is predicted.

    Attributes
    ----------
    feature : int
        The feature, whose own columns are left out.
    mean_treatment : float or None
        What the treatment, which is the last column, is centred at; None where it is not conditioned on.
    level_shares : LevelTables
        What is seen of categories of many levels.
    """

    feature: int
    mean_treatment: float | None
    level_shares: LevelTables = field(default_factory=LevelTables)

    @classmethod
    def of(cls, sampler: BaseSampler, feature: int) -> Conditioning:
        """The columns that a fitted sampler conditions on."""
        mean = float(sampler.treatment_.mean()) if sampler.condition_on_treatment else None
        return cls(feature, mean, sampler.level_shares_)

    def __call__(self, table: FeatureTable, treatment: Ints) -> Array:
        """Model columns of some rows; a column of zeros if there is nothing to predict from."""
        extra: Array | None = None if self.mean_treatment is None else np.subtract(treatment, self.mean_treatment)
        inputs = table.design_without(self.feature, extra, self.level_shares)
        return inputs if inputs.shape[1] else np.zeros((table.n_rows, 1))


def level_shares(table: FeatureTable, treatment: Ints | None, weights: Weights) -> LevelTables:
    """Shrunken, standardised treated shares in place of the codes of levels.

    Beside the code the design has the means of other features within a level. Given the treatment, other features may
    depend on the level also through how it is assigned there. Shares are zero without a treatment, if it is not
    conditioned on.
    """
    columns, tables = [], []
    for m in sorted(table.level_columns):
        codes, levels = table.values[:, m].astype(np.intp), table.n_levels(m)
        share = np.zeros(levels)
        if treatment is not None:
            excess = treatment - weights.mean(treatment.astype(np.float64))
            weight = weights.effective.values / max(float(excess.var()), 1e-12)
            none = np.zeros(codes.size, dtype=np.intp)
            share = LevelSums.of(codes, levels, none, none, weight, excess, n_arms=1).effects()[0][:, 0]
            spread = float(share[codes].std())
            share = (share - share[codes].mean()) / (spread or 1.0)
        columns.append(table.encoding[m].start)
        tables.append(share)
    return LevelTables(tuple(columns), tuple(tables))


@dataclass(frozen=True)
class ColumnModel:
    """A model of some of the columns, called with all of them."""

    model: Any
    columns: NDArray[np.intp] | slice

    @property
    def classes_(self) -> Array:
        """The classes of a classifier."""
        return self.model.classes_

    def predict(self, X: Array) -> Any:
        """Predictions of rows."""
        return self.model.predict(X[:, self.columns])

    def predict_proba(self, X: Array) -> Array:
        """Class probabilities of rows."""
        return self.model.predict_proba(X[:, self.columns])


N_STEPS = 4096


@dataclass(frozen=True, kw_only=True)
class LearnedRule:
    """A rule with the distribution of its training rows, until these are dropped."""

    calibration: Calibration
    fitted: Any = None


@dataclass(frozen=True)
class NormalRule(LearnedRule):
    """Linear mean, from one or several predictors, and a constant standard deviation.

    Attributes
    ----------
    slopes : array of shape (lines, inputs)
        Slopes of each line.
    shifts : array of shape (lines,)
        Their intercepts.
    """

    inputs: Conditioning
    slopes: Array
    shifts: Array
    scale: float

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> NormalConditional:
        """The distribution of some rows."""
        means = self.shifts + self.inputs(table, treatment) @ self.slopes.T
        mean = means[np.arange(table.n_rows), parts % self.shifts.size]
        return NormalConditional(mean, self.scale, self.calibration)


@dataclass(frozen=True)
class CategoryRule(LearnedRule):
    """Category probabilities from one or several classifiers.

    Attributes
    ----------
    models : tuple
        Classifiers; None stands for a constant distribution.
    constant : array of shape (levels,)
        Frequencies of the codes.
    """

    inputs: Conditioning
    models: tuple[Any, ...]
    constant: Array

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> CategoricalConditional:
        """The distribution of some rows."""
        inputs = self.inputs(table, treatment)
        probabilities = np.tile(self.constant, (table.n_rows, 1))
        for rows, model in _rows_by_model(parts, self.models):
            if model is not None:
                probabilities[rows] = 0.0
                probabilities[np.ix_(rows, model.classes_.astype(np.intp))] = model.predict_proba(inputs[rows])
        return CategoricalConditional(probabilities, self.calibration)


@dataclass(frozen=True)
class ResidualRule(LearnedRule):
    """A predicted mean plus residuals from rows with a similar mean.

    Attributes
    ----------
    models : tuple
        Models of mean and spread, one for each fold.
    edges : array
        Predicted means at which the window, or the local scale, may change.
    window, scale : arrays of shape (edges + 1,)
        Window, and scale in units of the model's spread, between them.
    windows : Windows
        The residuals of each window, or the values themselves where `shifted` is false.
    """

    inputs: Conditioning
    models: tuple[Any, ...]
    edges: Array
    window: NDArray[np.intp]
    scale: Array
    windows: Windows
    shifted: bool

    @classmethod
    def from_fitted(
        cls,
        inputs: Conditioning,
        models: tuple[Any, ...],
        mean: Array,
        local: Array,
        fitted: WindowConditional,
        shifted: bool,
    ) -> ResidualRule:
        """Keep the windows of a fitted distribution and its `local` scale at some thousands of predicted means."""
        order = np.argsort(mean, kind="stable")
        chosen = order[np.unique(np.linspace(0, mean.size - 1, min(N_STEPS, mean.size)).astype(np.int64))]
        edges = (mean[chosen][1:] + mean[chosen][:-1]) / 2
        steps = edges, fitted.window[chosen], local[chosen], replace(fitted.windows, pools=())
        return cls(inputs, models, *steps, shifted, calibration=fitted.calibration, fitted=fitted)

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> WindowConditional:
        """The distribution of some rows."""
        inputs = self.inputs(table, treatment)
        mean, spread = np.empty(table.n_rows), np.empty(table.n_rows)
        for rows, model in _rows_by_model(parts, self.models):
            mean[rows], spread[rows] = model.predict(inputs[rows])
        step = np.searchsorted(self.edges, mean)
        shift, scale = (mean, self.scale[step] * spread) if self.shifted else (np.zeros(mean.size), np.ones(mean.size))
        return WindowConditional(self.windows, self.window[step], shift, scale, self.calibration)


@dataclass(frozen=True)
class ArmRule(LearnedRule):
    """One distribution for all rows, or for all rows of an arm."""

    windows: Windows
    by_arm: bool

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> WindowConditional:
        """The distribution of some rows."""
        window = treatment.astype(np.intp) if self.by_arm else np.zeros(table.n_rows, dtype=np.intp)
        return WindowConditional(self.windows, window, np.zeros(window.size), np.ones(window.size), self.calibration)


def _rows_by_model(parts: Ints, models: tuple[Any, ...]) -> Iterator[tuple[NDArray[np.intp], Any]]:
    """Non-empty sets of rows that each model scores, with the model."""
    for k, model in enumerate(models):
        rows = np.flatnonzero(parts % len(models) == k)
        if rows.size:
            yield rows, model


class MarginalSampler(BaseSampler):
    """Draws X_m from its empirical distribution, within arms when `condition_on_treatment`.

    Values between two neighbouring ones are drawn too: otherwise draws from a long tail would repeat, and none would be
    as far from all others as the observed one.

    It breaks the dependence of X_m on the other features, so its p-values are valid only for independent features. It
    is the baseline that shows why the conditional distribution matters.

    Parameters
    ----------
    condition_on_treatment : bool, default=True
        Draw from the rows of the same arm. The paper's Naive does not.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.data.features import FeatureTable
    >>> from modifind import MarginalSampler
    >>> table = FeatureTable(("age",), np.array([[40.0], [50.0], [60.0], [70.0]]), (None,))
    >>> sampler = MarginalSampler().fit(table, np.array([0, 0, 1, 1]), np.random.SeedSequence(0))
    >>> draws = sampler.conditional(0).draw(np.random.default_rng(0), 3)
    >>> draws.shape, bool(draws[:, :2].max() < draws[:, 2:].min())  # each arm by itself
    ((3, 4), True)
    """

    name = "marginal"
    learns = True

    def rule(self, feature: int) -> ConditionalRule:
        """Use the column's own values as the distribution."""
        column, levels = self.table_.values[:, feature], self.table_.n_levels(feature)
        arms = self.treatment_ if self.condition_on_treatment else np.zeros_like(self.treatment_)
        samples = [arms == arm for arm in range(int(arms.max()) + 1)]
        windows = Windows.from_pools([(column[rows], self.weights_[rows]) for rows in samples], levels)
        calibration = Calibration(self.name, float("nan"), float("nan"), 0.0)  # it is the marginal distribution
        rule = ArmRule(windows, self.condition_on_treatment, calibration=calibration)
        fitted = rule.conditional(self.table_, self.treatment_, self.treatment_)
        return replace(rule, windows=replace(windows, pools=()), fitted=fitted)
