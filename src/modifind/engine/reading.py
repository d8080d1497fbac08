"""From what the user passed to data that every part can rely on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.data.clusters import (
    WeightSums,
    check_clusters,
    read_clusters,
    read_weights,
    treated_as_one,
    weight_numbers,
)
from modifind.data.codes import warn_codes
from modifind.data.column_types import outcome_name
from modifind.data.containers import as_column, as_frame, check_same_order, recorded_names
from modifind.data.feature_matrix import (
    FeatureTable,
    Treatment,
    adjusted_columns,
    check_length,
    check_rows,
    read_features,
    read_outcome,
    read_treatment,
)
from modifind.data.leaks import refuse_leaks
from modifind.data.many_levels import MOST_INDICATORS
from modifind.data.missing import Dropped, complete_rows
from modifind.data.rare_levels import pool_rare_levels
from modifind.data.several_arms import in_arms
from modifind.data.strata import Strata, read_strata, with_strata
from modifind.data.support import Outside, outside_levels
from modifind.data.survey import effective_size
from modifind.data.suspicious import refuse_censored
from modifind.nuisance.observation import Unseen, told, weigh_observed


@dataclass(frozen=True)
class Given:
    """A table as the user passes it; these are the arguments of `ModifierSelector.fit`."""

    X: Any
    y: Any = None
    treatment: Any = None
    treated: Any = None
    adjust_for: Any = None
    sample_weight: Any = None
    clusters: Any = None
    strata: Any = None
    reference: Any = None
    arms: Any = None

    @property
    def per_row(self) -> dict[str, Any]:
        """What is known of the rows besides outcome and treatment, by its name; None where it was not passed."""
        return {name: getattr(self, name) for name in ("sample_weight", "clusters", "strata")}


@dataclass(frozen=True)
class Data:
    """Features, outcome and treatment of the same rows, checked and encoded.

    Attributes
    ----------
    weights : array of shape (n,), optional
        Weight of each row, with mean 1.
    clusters : int array of shape (n,), optional
        Which rows belong together.
    strata : Strata, optional
        Where the treatment was randomised.
    kept : array of bool, optional
        Which of the rows that the user passed these are; None for all of them.
    dropped : Dropped
        A count of rows that were left out for missing values.
    left_out : frozenset of int
        Features of which pooling rare levels has left one level; the user has been told.
    names : dict
        What the columns of outcome and treatment are called, as far as they have names.
    unpooled : tuple of arrays of shape (n,)
        Codes before rare levels were pooled, of categories that have many levels left.
    outside : dict
        Rows at levels that one arm has hardly any rows of, by column, before rare levels were pooled.
    adjusted : tuple of str
        Columns that everything conditions on and that are not tested.
    outcome_weights : dict
        What is recorded of weights for rows without an outcome; nothing where there are none.
    """

    table: FeatureTable
    y: Array
    treatment: Treatment
    weights: Array | None = None
    clusters: NDArray[np.int64] | None = None
    strata: Strata | None = None
    kept: NDArray[np.bool_] | None = None
    dropped: Dropped = field(default_factory=Dropped)
    left_out: frozenset[int] = frozenset()
    names: dict[str, str] = field(default_factory=dict)
    unpooled: tuple[Array, ...] = ()
    outside: dict[str, Outside] = field(default_factory=dict)
    adjusted: tuple[str, ...] = ()
    outcome_weights: dict[str, Any] = field(default_factory=dict)

    @property
    def arms(self) -> NDArray[Any]:
        """0 or 1 for every row."""
        return self.treatment.arms

    @property
    def conditioned(self) -> FeatureTable:
        """What models and samplers see: the features and, where there are strata, the stratum as the last column."""
        return self.table if self.strata is None else with_strata(self.table, self.strata)

    @property
    def settings(self) -> dict[str, Any]:
        """What a result records of names, weights, clusters, strata and adjustment; nothing where there is none."""
        found: dict[str, Any] = dict(self.names)
        if self.adjusted:
            found["adjust_for"] = list(self.adjusted)
        if self.outcome_weights:
            found["outcome_weights"] = self.outcome_weights
        elif self.weights is not None:
            found["sample_weight"] = {"effective_rows": effective_size(self.weights)}
        if self.clusters is not None:
            found["clusters"] = {"n_clusters": int(np.unique(self.clusters).size)}
        if self.strata is not None:
            found["n_strata"] = len(self.strata.labels)
        return found


@dataclass(frozen=True)
class _Rows:
    """Some of the rows that were passed, as `kept` says: features, other columns by their argument, and weights."""

    frame: pd.DataFrame
    columns: dict[str, pd.Series[Any]]
    kept: NDArray[np.bool_]
    weights: Array | None = None

    @classmethod
    def of(cls, given: Given) -> _Rows:
        """All rows, or those of the arms that are compared."""
        passed = {"y": given.y, "treatment": given.treatment, **given.per_row}
        passed = {name: values for name, values in passed.items() if values is not None}
        check_same_order(given.X, **passed)
        frame = as_frame(given.X)
        columns = {name: as_column(values, name) for name, values in passed.items()}
        for name, column in columns.items():
            check_length(name, len(column), len(frame))
        rows = cls(frame, columns, np.ones(len(frame), dtype=bool))
        compared = given.arms is not None and "treatment" in columns
        return rows.take(in_arms(columns["treatment"], given.arms)) if compared else rows

    def take(self, chosen: NDArray[np.bool_]) -> _Rows:
        """Some of these rows."""
        if chosen.all():
            return self
        kept = self.kept.copy()
        kept[kept] = chosen
        columns = {name: column[chosen].reset_index(drop=True) for name, column in self.columns.items()}
        return _Rows(self.frame.loc[chosen], columns, kept, None if self.weights is None else self.weights[chosen])

    @property
    def clusters(self) -> NDArray[np.int64] | None:
        """Numbers of the clusters, where there are any."""
        return read_clusters(self.columns["clusters"], len(self.frame)) if "clusters" in self.columns else None


@dataclass(frozen=True)
class Reading:
    """How a table is checked and encoded.

    Attributes
    ----------
    discrete_features : "auto", names, positions, a mask, or AlsoDiscrete
        See `read_features`.
    missing : {"error", "category", "drop"}, default="error"
        What becomes of missing values; "drop" leaves out the rows that have any, with a warning.
    missing_outcome : {"error", "drop", "weight"}, default="error"
        What becomes of rows without an outcome; see `ModifierSelector`.
    n_folds, seed : int
        Of the models by which rows stand for those without an outcome.
    weigh : bool, default=True
        Whether these models are fitted; otherwise such rows count alike.

    Examples
    --------
    >>> data = Reading().read(Given([[k % 7, k % 13] for k in range(60)], range(60), ["drug", "placebo"] * 30))
    >>> data.table.names, data.treatment.treated
    (('x0', 'x1'), 'drug')
    """

    discrete_features: Any = "auto"
    missing: str = "error"
    missing_outcome: str = "error"
    n_folds: int = 5
    seed: int = 0
    weigh: bool = True

    def read(self, given: Given) -> Data:
        """Check and encode a table; rare levels are pooled, and what looks odd is warned of.

        Rows of weight 0 are left out, with a warning.

        Raises
        ------
        ValueError
            Names the column and the remedy.
        """
        compared = _Rows.of(given)
        rows, dropped = self._complete(compared)
        dropped = replace(dropped, n_other_arms=int((~compared.kept).sum()))
        sampled, unseen = rows.weights is not None, None
        if self.missing_outcome == "weight" and "y" in rows.columns and rows.columns["y"].isna().any():
            rows, unseen = self._weighed(rows, given.treated)
        columns, weights = rows.columns, rows.weights
        whole = self._features(rows)
        check_rows(whole.n_rows)
        adjusted = adjusted_columns(whole.names, given.adjust_for)
        outcome = read_outcome(columns.get("y"), whole.n_rows)
        labels = read_treatment(columns.get("treatment"), whole.n_rows, given.treated)
        clusters = rows.clusters
        if clusters is not None:
            check_clusters(np.unique(clusters).size)
        refuse_leaks(whole, outcome, labels.arms, clusters)
        refuse_censored(whole, outcome, columns["y"].name)
        warn_codes(whole, outcome, outcome_name(columns["y"]))
        outside = outside_levels(whole, labels.arms, treated_as_one(labels.arms, clusters))
        table, left_out = pool_rare_levels(whole, labels.arms)
        strata = read_strata(columns["strata"], table, labels.arms) if "strata" in columns else None
        outcome_weights: dict[str, Any] = {}
        if weights is not None:
            weights = weights / weights.max()
            weights = weights / weights.mean()
            outcome_weights = {} if unseen is None else unseen.settings(WeightSums.of(weights), sampled=sampled)
        return Data(
            table,
            outcome,
            labels,
            weights,
            clusters,
            strata,
            None if rows.kept.all() else rows.kept,
            dropped,
            left_out,
            names=recorded_names(columns["y"], columns["treatment"]),
            unpooled=_unpooled(whole, table),
            outside=outside,
            adjusted=adjusted,
            outcome_weights=outcome_weights,
        )

    def _features(self, rows: _Rows) -> FeatureTable:
        return read_features(rows.frame, self.discrete_features, "category" if self.missing == "category" else "error")

    def _complete(self, rows: _Rows) -> tuple[_Rows, Dropped]:
        """The rows that count and have what they must have, and a count of the others."""
        kept, dropped, weights = np.ones(len(rows.frame), dtype=bool), Dropped(), None
        weighed = rows.columns.get("sample_weight")
        if "drop" in (self.missing, self.missing_outcome) and {"y", "treatment"} <= set(rows.columns):
            what = "outcomes" if self.missing != "drop" else "inputs" if self.missing_outcome == "weight" else "rows"
            counted = kept if weighed is None else weight_numbers(weighed) != 0
            some = rows.take(counted)
            others = {name: column for name, column in some.columns.items() if name not in ("y", "treatment")}
            complete, dropped = complete_rows(
                some.frame, some.columns["y"], some.columns["treatment"], others, what=what
            )
            dropped.refuse_all()
            kept[counted] = complete
        if weighed is not None:
            weights = np.zeros(kept.size)
            weights[kept] = read_weights(weighed[kept], int(kept.sum()))
            nothing = int((weights[kept] == 0).sum())
            dropped = replace(dropped, n_rows=kept.size - nothing, n_weightless=nothing)
            kept &= weights > 0
        dropped.warn()
        return replace(rows, weights=weights).take(kept), dropped

    def _weighed(self, rows: _Rows, treated: Any) -> tuple[_Rows, Unseen]:
        """The rows that have an outcome, with weights by which they stand for the others as well."""
        columns, clusters = rows.columns, rows.clusters
        observed = columns["y"].notna().to_numpy()
        arms = read_treatment(columns.get("treatment"), observed.size, treated).arms
        features = self._features(rows)
        if "strata" in columns and columns["strata"].notna().all():
            sites, labels = pd.factorize(columns["strata"].astype(str))
            features = with_strata(features, Strata(sites.astype(np.int64), tuple(labels)))
        unseen = weigh_observed(
            features,
            arms,
            observed,
            n_folds=self.n_folds,
            seed=self.seed,
            weights=rows.weights,
            clusters=clusters,
            fit=self.weigh,
        )
        if self.weigh:
            warnings.warn(told(unseen), UserWarning, stacklevel=4)
        rows = rows.take(observed)
        weights = unseen.weights if rows.weights is None else unseen.weights * rows.weights
        return replace(rows, weights=weights), unseen


def _unpooled(whole: FeatureTable, table: FeatureTable) -> tuple[Array, ...]:
    """Codes before rare levels were pooled, of categories that have many levels left."""
    pooled = (m for m in range(table.n_features) if whole.n_levels(m) > table.n_levels(m) > MOST_INDICATORS)
    return tuple(whole.values[:, m] for m in pooled)
