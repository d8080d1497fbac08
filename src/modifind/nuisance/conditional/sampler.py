"""The base of samplers: how they are fitted, and which columns they condition on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from modifind._typing import Array, Ints
from modifind.data.feature_matrix import FeatureTable
from modifind.data.weights import GivenWeights, Weights
from modifind.nuisance.conditional.contract import ConditionalRule, fitted_conditional
from modifind.nuisance.regression.level_sums import LevelSums, LevelTables


class BaseSampler(BaseEstimator, ABC):
    """Base of the samplers. Subclasses implement `rule`, and `_prepare` if features share work.

    Parameters
    ----------
    condition_on_treatment : bool, default=True
        Whether the treatment is among the conditioning variables. The null hypothesis that ignorability gives is
        "Y independent of X_m given the other features and the treatment", so it should be; the paper leaves it out.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.data.feature_matrix import FeatureTable
    >>> from modifind.nuisance.conditional import BaseSampler, Calibration
    >>> from modifind.nuisance.conditional.base import NormalConditional
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
        """Take the data; the work per feature is done by `rule`.

        With `weights`, one number per row of mean 1, distributions are those of the population that the weighted rows
        stand for.
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
        """The table as the sampler needs it."""
        return table

    def _prepare(self, seed: np.random.SeedSequence) -> None:
        """Do what all features share."""

    @abstractmethod
    def rule(self, feature: int) -> ConditionalRule:
        """Learn the distribution of one feature, for any rows.

        Parameters
        ----------
        feature : int
            Position of the feature.
        """

    def conditional(self, feature: int) -> Any:
        """The distribution of the rows that the sampler was fitted to: the rule of a feature, applied to them."""
        return fitted_conditional(self.rule(feature), self.table_, self.treatment_)

    def assign_folds(self, folds: Ints, *, whole_clusters: bool = False) -> None:
        """Cross-fit distributions by these folds at the next `fit`, so that a rule scores no row by what has seen it.

        With `whole_clusters` they keep together what belongs together, and a sample of the rows must do so too.
        """
        self.assigned_folds_ = folds
        self.whole_clusters_ = whole_clusters

    def _folds(self, n_folds: int, rng: np.random.Generator) -> Ints:
        """Fold of each row: drawn, or as assigned for these rows unless all of them lie in one."""
        drawn = row_folds(self.table_.n_rows, n_folds, rng)
        if self.assigned_folds_ is None or self.assigned_folds_.size != drawn.size:
            return drawn
        folds = self.assigned_folds_ % n_folds
        return folds if (folds != folds[0]).any() else drawn


def row_folds(n_rows: int, n_folds: int, rng: np.random.Generator) -> Ints:
    """Fold number of each row; folds differ by at most one row."""
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

    The sampler may be the user's own: it is given folds if it takes them, and weights where rows do not count alike.
    """
    fresh = clone(sampler, safe=False)
    if settings:
        fresh.set_params(**settings)
    if folds is not None and hasattr(fresh, "assign_folds"):
        fresh.assign_folds(folds, whole_clusters=whole_clusters)
    return fresh.fit(table, treatment, seed, **weights.argument("weights"))


@dataclass(frozen=True)
class Conditioning:
    """The columns that a feature is predicted from.

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
        """Model columns of some rows; a column of zeros where there is nothing to predict from."""
        extra: Array | None = None if self.mean_treatment is None else np.subtract(treatment, self.mean_treatment)
        inputs = table.design_without(self.feature, extra, self.level_shares)
        return inputs if inputs.shape[1] else np.zeros((table.n_rows, 1))


def level_shares(table: FeatureTable, treatment: Ints | None, weights: Weights) -> LevelTables:
    """Shrunken shares of treated rows, standardised, in the place of the codes of levels.

    Beside the code the design has what the rows of a level have in common in other features. Given the treatment, other
    features may depend on the level also by way of how it is assigned there. Shares are zero without a treatment, where
    it is not conditioned on.
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
    """A model of some of the columns, to be called with all of them."""

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
