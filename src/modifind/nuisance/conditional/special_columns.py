"""Distributions of features with missing values, and of features that are constant within clusters.

The probability that a feature is missing is predicted from the other features and the treatment, by the sampler's own
distribution of a discrete feature. If it is not missing, its value follows the sampler's distribution of a continuous
feature, learned from the rows where it is observed.

The distribution of a cluster-level feature is fitted to one row per cluster, with the means of the other features and
of the treatment, and all rows of a cluster share one distribution and one draw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.clusters import is_within
from modifind.data.features import FeatureTable
from modifind.data.weights import Weights
from modifind.data.words import named
from modifind.nuisance.conditional.adaptive import AutoSampler, BoostingSampler
from modifind.nuisance.conditional.contract import (
    Calibration,
    Conditional,
    ConditionalRule,
    Rows,
    fitted_conditional,
    without_rows,
)
from modifind.nuisance.conditional.cvae import CVAESampler
from modifind.nuisance.conditional.distributions import ConditionalGrid, Distribution, quantiles_of_rows
from modifind.nuisance.conditional.gaussian import GaussianSampler
from modifind.nuisance.conditional.sampler import BaseSampler, LearnedRule, fit_copy
from modifind.nuisance.regression.screening import has_many_columns

N_PARTS = 20  # a multiple of the folds of all samplers
KNOWN_SHARE = 0.9  # of perfect prediction, above which other columns tell which values are missing
MIN_ARM_VALUES = 5  # values of an arm from which it has a say
PRESENCE = ("observed", "missing")


@dataclass(frozen=True)
class IncompleteConditional(Distribution):
    """Missing with a probability per row, otherwise drawn from the distribution of the values.

    Attributes
    ----------
    chance : array of shape (n,)
        Probability that the value is missing.
    value : Distribution
        Distribution of the value if there is one.
    """

    chance: Array
    value: Any
    calibration: Calibration

    def __len__(self) -> int:
        return self.chance.size

    def draw(self, rng: np.random.Generator, n_draws: int) -> Array:
        """Resampled columns, NaN where missing."""
        draws = np.empty((n_draws, len(self)))
        for column in draws:
            missing = rng.random(len(self)) < self.chance
            column[:] = np.where(missing, np.nan, self.value.draw(rng, 1)[0])
        return draws

    def quantiles(self, levels: Array) -> Array:
        """Values at levels between 0 and 1, shape (k, n); missing values come first."""
        missing = levels < self.chance
        left = (levels - self.chance) / np.where(self.chance < 1.0, 1.0 - self.chance, 1.0)
        return np.where(missing, np.nan, quantiles_of_rows(self.value, np.clip(left, 0.0, 1.0 - 2.0**-53)))

    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """Points of the value's distribution, and NaN with the probability of being missing."""
        points, weights = self.value.grid(rows)
        chance = self.chance[rows, None]
        points = np.concatenate((points, np.full(chance.shape, np.nan)), axis=1)
        return points, np.concatenate(((1.0 - chance) * weights, chance), axis=1)


@dataclass(frozen=True)
class IncompleteRule(LearnedRule):
    """The distribution of an incomplete feature for any rows.

    Attributes
    ----------
    feature : int
        Position of the feature.
    presence : ConditionalRule or None
        Distribution of whether the value is missing; None where that is taken as it is, because other columns tell it.
    value : ConditionalRule
        Distribution of the value if there is one.
    """

    feature: int
    presence: ConditionalRule | None
    value: ConditionalRule

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> IncompleteConditional:
        """The distribution of some rows."""
        chance = (~table.observed(self.feature)).astype(np.float64)
        if self.presence is not None:
            chance = self.presence.conditional(table, treatment, parts).grid(slice(None))[1][:, 1]
        return IncompleteConditional(chance, self.value.conditional(table, treatment, parts), self.calibration)


class IncompleteSampler(BaseSampler):
    """Sampler for tables with missing values in continuous features.

    Complete features are handled by the sampler itself, which sees an incomplete one as its value, the mean where
    missing, and an indicator. (Another constant than the mean would change the slope of the indicator and nothing else,
    up to the penalty.) With many columns, the gaussian sampler and "auto" delegate incomplete features to the boosting
    sampler, which does separate work per feature. Theirs is shared by all features of a table, but each incomplete one
    has its own set of rows.

    Parameters
    ----------
    sampler : BaseSampler
        The sampler.
    """

    name = "incomplete"

    def __init__(self, sampler: BaseSampler) -> None:
        super().__init__(condition_on_treatment=getattr(sampler, "condition_on_treatment", True))
        self.sampler = sampler

    def _prepare(self, seed: np.random.SeedSequence) -> None:
        """Fit the sampler for the complete features."""
        table = self.table_
        inner_seed, fold_seed = seed.spawn(2)
        self.parts_ = self._folds(N_PARTS, np.random.default_rng(fold_seed))
        if len(table.incomplete) < table.n_features:
            rows = table, self.treatment_, inner_seed, self.weights_.scaled
            self.complete_ = fit_copy(self.sampler, *rows, self.assigned_folds_, self.whole_clusters_)

    def rule(self, feature: int) -> ConditionalRule:
        """Learn the distribution of one feature, for any rows."""
        table = self.table_
        if feature not in table.incomplete:
            return self.complete_.rule(feature)
        observed = table.observed(feature)
        first, second = self.seeds_[feature].spawn(2)
        rest = table.incomplete - {feature}
        codes = table.values.copy()
        codes[:, feature] = ~observed
        kinds = (*table.categories[:feature], PRESENCE, *table.categories[feature + 1 :])
        coded = replace(table, values=codes, categories=kinds, incomplete=rest, reference=table.scaling)
        valued = replace(table, values=table.values[observed], incomplete=rest, reference=table.scaling)
        presence: ConditionalRule | None = self._rule_of(coded, np.ones_like(observed), feature, first)
        value = self._rule_of(valued, observed, feature, second)
        assert presence is not None
        if presence.calibration.explained_share > KNOWN_SHARE:
            presence = None
        # Held-out log-score of presence and value together; the rest is that of the value.
        gain = float(self.weights_.mean(observed.astype(np.float64)) * value.calibration.log_score_gain)
        gain += 0.0 if presence is None else presence.calibration.log_score_gain
        rule = IncompleteRule(feature, presence, value, calibration=replace(value.calibration, log_score_gain=gain))
        return replace(rule, fitted=rule.conditional(table, self.treatment_, self.parts_))

    def _rule_of(
        self, table: FeatureTable, rows: NDArray[np.bool_], feature: int, seed: np.random.SeedSequence
    ) -> ConditionalRule:
        """Rule of one feature, from a separate sampler fitted to some rows."""
        settings: dict[str, Any] = {}
        sampler, treatment = self.sampler, self.treatment_[rows]
        if has_many_columns(*table.design.shape) and isinstance(sampler, AutoSampler | GaussianSampler):
            sampler = BoostingSampler(condition_on_treatment=self.condition_on_treatment)
        if np.bincount(treatment, minlength=2).min() < MIN_ARM_VALUES and isinstance(sampler, BaseSampler):
            settings = {"condition_on_treatment": False}  # an arm of so few values says nothing of its own
        known = table, treatment, seed, self.weights_[rows].scaled, self.parts_[rows], self.whole_clusters_
        return without_rows(fit_copy(sampler, *known, **settings).rule(feature))


def with_missing_support(sampler: BaseSampler, table: FeatureTable) -> BaseSampler:
    """The sampler itself, or a wrapper that also handles missing values in continuous features."""
    if not table.incomplete:
        return sampler
    if isinstance(sampler, CVAESampler) or not getattr(sampler, "learns", False):
        gaps = named(table.names[m] for m in sorted(table.incomplete))
        raise ValueError(
            f"{type(sampler).__name__} has no distribution for continuous features with missing values ({gaps}); use "
            "sampler='auto', or missing='drop'"
        )
    return IncompleteSampler(sampler)


@dataclass(frozen=True)
class ClusterConditional(Distribution):
    """Distribution of clusters, applied to their rows.

    Attributes
    ----------
    distribution : Conditional
        The distribution, a value for each cluster.
    clusters : int array of shape (n,)
        The cluster of each row: 0, 1, ...
    points : ConditionalGrid
        The distribution's weighted points.
    """

    conditional: Conditional
    clusters: Ints
    points: ConditionalGrid

    def __len__(self) -> int:
        return self.clusters.size

    def draw(self, rng: np.random.Generator, n_draws: int) -> Array:
        """Resampled columns: one draw for all rows of a cluster."""
        return self.conditional.draw(rng, n_draws)[:, self.clusters]

    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """Points and weights, equal for all rows of a cluster."""
        return self.points.at(self.clusters[rows])


@dataclass(frozen=True)
class ClusterRule(LearnedRule):
    """Distribution of a cluster-level feature, for rows of the fitted clusters only."""

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> ClusterConditional:
        """Refuse other rows, whose clusters are unknown."""
        raise LookupError("a distribution of clusters is that of their rows alone")


class ClusterSampler(BaseSampler):
    """Sampler for tables in which some features are constant within clusters.

    Other features are handled by the sampler itself, and so is one determined by cluster means of others: the share of
    girls of a school, next to the sex of its pupils, adds nothing about the school, but more than a single pupil does.

    Parameters
    ----------
    sampler : BaseSampler
        The sampler.
    clusters : dict
        For each of these features the clusters of the rows, numbered 0, 1, ...
    most_explained : dict
        For each kind of feature the share of its distribution above which others determine it.
    """

    name = "per cluster"

    def __init__(self, sampler: BaseSampler, clusters: Mapping[int, Ints], most_explained: Mapping[str, float]) -> None:
        super().__init__(condition_on_treatment=getattr(sampler, "condition_on_treatment", True))
        self.sampler = sampler
        self.clusters = clusters
        self.most_explained = most_explained

    def _prepare(self, seed: np.random.SeedSequence) -> None:
        """Fit the sampler for the other features."""
        rows = self.table_, self.treatment_, seed, self.weights_
        self.by_row_ = fit_copy(self.sampler, *rows, self.assigned_folds_, self.whole_clusters_)

    def rule(self, feature: int) -> Any:
        """Learn the distribution of one feature; rows outside the table belong to unknown clusters."""
        if feature not in self.clusters:
            return self.by_row_.rule(feature)
        clusters = self.clusters[feature]
        by_cluster = ClusterMeans.of(self.table_, self.treatment_, clusters, feature, self.weights_)
        sampler = getattr(self.sampler, "sampler", self.sampler)  # a table of clusters has no missing values
        # Where clusters are not treated as a whole, the share treated is a column like others.
        settings: dict[str, Any] = {} if by_cluster.whole_arms else {"condition_on_treatment": False}
        rows = by_cluster.table, by_cluster.arms, self.seeds_[feature], by_cluster.weights
        sampler = fit_copy(sampler, *rows, **settings)
        rule = sampler.rule(by_cluster.feature)
        if rule.calibration.explained_share > self.most_explained[self.table_.kind(feature)]:
            return self.by_row_.rule(feature)
        conditional = fitted_conditional(rule, by_cluster.table, by_cluster.arms)
        n_clusters, levels = by_cluster.table.n_rows, self.table_.n_levels(feature)
        points = ConditionalGrid.of(conditional, n_clusters, n_levels=levels)
        calibration = replace(rule.calibration, n_clusters=n_clusters)
        return ClusterRule(calibration=calibration, fitted=ClusterConditional(conditional, clusters, points))


@dataclass(frozen=True)
class ClusterMeans:
    """A table of clusters, for the distribution of one cluster-level feature.

    Attributes
    ----------
    table : FeatureTable
        One row per cluster: features that are the same in a cluster as they are, means of the others' model columns,
        and the share treated where clusters were not treated as a whole.
    feature : int
        Place of the feature.
    arms : int array
        Arm of each cluster; zeros where clusters were not treated as a whole.
    whole_arms : bool
        Whether they were.
    weights : Weights
        Of the clusters, of mean 1; those of rows that count alike count alike.
    """

    table: FeatureTable
    feature: int
    arms: Ints
    whole_arms: bool
    weights: Weights

    @classmethod
    def of(cls, table: FeatureTable, treatment: Ints, clusters: Ints, feature: int, weights: Weights) -> ClusterMeans:
        """Means over the rows of each cluster.

        Examples
        --------
        >>> from modifind.data.schema import read_features
        >>> clusters, arms = np.repeat(np.arange(20), 3), np.tile([0, 1, 1], 20)
        >>> x = np.random.default_rng(0).normal(size=60)
        >>> table = read_features({"size": np.linspace(1, 2, 20)[clusters], "age": x})
        >>> means = ClusterMeans.of(table, arms, clusters, 0, Weights.alike(60))
        >>> means.table.names, means.table.values.shape, means.whole_arms
        (('size', 'age', 'treated'), (20, 3), False)
        """
        first = np.unique(clusters, return_index=True)[1]
        counts = np.bincount(clusters, weights.values).astype(np.float64)
        counts = np.maximum(counts, np.finfo(float).tiny)

        def means(column: Array) -> Array:
            return np.bincount(clusters, weights.times(column)).astype(np.float64) / counts

        share, whole = means(treatment.astype(np.float64)), is_within(treatment, clusters)
        columns: list[tuple[str, Array, Any]] = []  # names, values and categories
        for m, name in enumerate(table.names):
            column = table.values[:, m]
            if m == feature or (m not in table.incomplete and is_within(column, clusters)):
                seen = [(name, column[first], table.categories[m])]
            else:
                seen = [(name, means(values), None) for values in table.design[:, table.encoding[m]].T]
            columns += [] if m in table.level_columns else seen  # too many levels for so few rows
        columns += [("treated", share, None)] * (not whole)
        names, values, categories = zip(*columns, strict=True)
        by_cluster = FeatureTable(names, np.column_stack(values), categories)
        arms = np.rint(share).astype(np.int64) * whole
        of_clusters = Weights.alike(first.size) if weights.uniform else Weights.of(counts).scaled
        return cls(by_cluster, names.index(table.names[feature]), arms, whole, of_clusters)
