"""Distributions of features that are the same for all rows of a cluster: one value is known per cluster.

The distribution of such a feature is fitted to one row per cluster, which has the means of the other features and of
the treatment, and every row of a cluster has the same distribution and the same draw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from modifind._typing import Array, Ints
from modifind.data.clusters import is_within
from modifind.data.feature_matrix import FeatureTable
from modifind.data.weights import Weights
from modifind.nuisance.conditional.contract import Conditional, Rows, fitted_conditional
from modifind.nuisance.conditional.grid import ConditionalGrid, Distribution
from modifind.nuisance.conditional.rules import LearnedRule
from modifind.nuisance.conditional.sampler import BaseSampler, fit_copy


@dataclass(frozen=True)
class ClusterConditional(Distribution):
    """A distribution of clusters, for their rows.

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
    """The distribution of a feature of clusters, for the rows of these clusters alone."""

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> ClusterConditional:
        """Other rows are in clusters that nothing is known of."""
        raise LookupError("a distribution of clusters is that of their rows alone")


class ClusterSampler(BaseSampler):
    """A sampler for tables in which some features are the same for all rows of a cluster.

    Other features are left to the sampler as they are, and so is one that the means of others determine in clusters:
    the share of girls of a school, beside the sex of its pupils, says nothing that these do not say of the school, but
    more than a single pupil does.

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
        """Learn the distribution of one feature; rows that are not in the table are in clusters that are not."""
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
    """A table of clusters, for the distribution of one feature that is the same for all rows of a cluster.

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
