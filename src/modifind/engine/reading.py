"""From what the user passed to data that every part can rely on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.data.clusters import check_clusters, read_clusters, read_weights, treated_as_one
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
from modifind.data.strata import Strata, read_strata, with_strata
from modifind.data.support import Outside, outside_levels
from modifind.data.survey import effective_size
from modifind.nuisance.observation import weigh_observed


@dataclass(frozen=True)
class Data:
    """Features, outcome and treatment of the same rows, checked and encoded.

    Attributes
    ----------
    weights : array of shape (n,), optional
        How much each row counts, of mean 1.
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


def read_data(
    X: Any,
    y: Any,
    treatment: Any,
    *,
    treated: Any = None,
    discrete_features: Any = "auto",
    missing: str = "error",
    missing_outcome: str = "error",
    sample_weight: Any = None,
    clusters: Any = None,
    strata: Any = None,
    adjust_for: Any = None,
    n_folds: int = 5,
    seed: int = 0,
    weigh: bool = True,
) -> Data:
    """Check and encode a table; rare levels are pooled, and what looks odd is warned of.

    Parameters
    ----------
    X : DataFrame or array of shape (n, d)
        Features.
    y, treatment : array of shape (n,)
        Outcome and treatment.
    treated : optional
        The label that means "treated".
    discrete_features : "auto", names, positions, a mask, or AlsoDiscrete
        See `read_features`.
    missing : {"error", "category", "drop"}, default="error"
        What becomes of missing values; "drop" leaves out the rows that have any, with a warning.
    missing_outcome : {"error", "drop", "weight"}, default="error"
        What becomes of rows without an outcome; see `ModifierSelector`.
    sample_weight, clusters, strata : array of shape (n,), optional
        Weights, cluster labels and strata of the rows. Rows of weight 0 are left out, with a warning.
    adjust_for : names, positions or a mask, optional
        Columns of X that are not tested.
    n_folds, seed : int
        Of the models by which rows stand for those without an outcome.
    weigh : bool, default=True
        Whether these models are fitted; otherwise such rows count alike.

    Raises
    ------
    ValueError
        Names the column and the remedy.

    Examples
    --------
    >>> data = read_data([[k % 7, k % 13] for k in range(60)], range(60), ["drug", "placebo"] * 30)
    >>> data.table.names, data.treatment.treated
    (('x0', 'x1'), 'drug')
    """
    given = {"y": y, "treatment": treatment, "sample_weight": sample_weight, "clusters": clusters, "strata": strata}
    given = {name: values for name, values in given.items() if values is not None}
    check_same_order(X, **given)
    frame = as_frame(X)
    columns = {name: as_column(values, name) for name, values in given.items()}
    for name, column in columns.items():
        check_length(name, len(column), len(frame))
    kept, dropped, weights = _kept_rows(frame, columns, missing, missing_outcome)
    frame, columns, weights = _some_rows(frame, columns, weights, kept)
    gaps = "category" if missing == "category" else "error"
    unseen, sampled = None, weights is not None
    if missing_outcome == "weight" and "y" in columns and columns["y"].isna().any():
        observed = columns["y"].notna().to_numpy()
        codes = read_clusters(columns["clusters"], len(frame)) if "clusters" in columns else None
        arms = read_treatment(columns.get("treatment"), len(frame), treated).arms
        features = read_features(frame, discrete_features, gaps)
        if "strata" in columns and columns["strata"].notna().all():
            sites, labels_of = pd.factorize(columns["strata"].astype(str))
            features = with_strata(features, Strata(sites.astype(np.int64), tuple(labels_of)))
        unseen = weigh_observed(
            features,
            arms,
            observed,
            n_folds=n_folds,
            seed=seed,
            weights=weights,
            clusters=codes,
            fit=weigh,
        )
        if weigh:
            warnings.warn(
                f"{unseen.n_missing} of {observed.size} rows have no outcome; the others stand for them by weights of "
                f"up to {unseen.weights.max():.2g}, which hold where features and treatment tell who has an outcome",
                UserWarning,
                stacklevel=4,
            )
        frame, columns, weights = _some_rows(frame, columns, weights, observed)
        weights = unseen.weights if weights is None else unseen.weights * weights
        kept[kept] = observed
    table = read_features(frame, discrete_features, gaps)
    check_rows(table.n_rows)
    adjusted = adjusted_columns(table.names, adjust_for)
    outcome = read_outcome(columns.get("y"), table.n_rows)
    labels = read_treatment(columns.get("treatment"), table.n_rows, treated)
    codes = read_clusters(columns["clusters"], table.n_rows) if "clusters" in columns else None
    if codes is not None:
        check_clusters(np.unique(codes).size)
    refuse_leaks(table, outcome, labels.arms, codes)
    warn_codes(table, outcome, outcome_name(columns["y"]))
    outside = outside_levels(table, labels.arms, treated_as_one(labels.arms, codes))
    whole, (table, left_out) = table, pool_rare_levels(table, labels.arms)
    pooled = [m for m in range(table.n_features) if whole.n_levels(m) > table.n_levels(m) > MOST_INDICATORS]
    unpooled = tuple(whole.values[:, m] for m in pooled)
    found = read_strata(columns["strata"], table, labels.arms) if "strata" in columns else None
    if weights is not None:
        weights = weights / weights.max()
        weights = weights / weights.mean()
    names = recorded_names(columns["y"], columns["treatment"])
    return Data(
        table,
        outcome,
        labels,
        weights,
        codes,
        found,
        None if kept.all() else kept,
        dropped,
        left_out,
        names,
        unpooled,
        outside,
        adjusted,
        {} if unseen is None or weights is None else unseen.settings(weights, sampled=sampled),
    )


def _some_rows(
    frame: pd.DataFrame, columns: dict[str, pd.Series[Any]], weights: Array | None, kept: NDArray[np.bool_]
) -> tuple[pd.DataFrame, dict[str, pd.Series[Any]], Array | None]:
    """Some rows of everything."""
    if kept.all():
        return frame, columns, weights
    columns = {name: column[kept].reset_index(drop=True) for name, column in columns.items()}
    return frame.loc[kept], columns, None if weights is None else weights[kept]


def _kept_rows(
    frame: pd.DataFrame, columns: dict[str, pd.Series[Any]], missing: str, missing_outcome: str
) -> tuple[NDArray[np.bool_], Dropped, Array | None]:
    """Which rows count and have what they must have, a count of the others, and the weights of all rows."""
    kept, dropped = np.ones(len(frame), dtype=bool), Dropped()
    weighed = columns.get("sample_weight")
    others = {name: column for name, column in columns.items() if name not in ("y", "treatment")}
    if (missing == "drop" or missing_outcome == "drop") and {"y", "treatment"} <= set(columns):
        what = "outcomes" if missing != "drop" else "inputs" if missing_outcome == "weight" else "rows"
        counted = kept if weighed is None else ~(weighed == 0).to_numpy(dtype=bool)
        some = {name: column[counted] for name, column in others.items()}
        complete, dropped = complete_rows(
            frame.loc[counted], columns["y"][counted], columns["treatment"][counted], some, what=what
        )
        dropped.refuse_all()
        kept[counted] = complete
    weights = None
    if weighed is not None:
        weights = np.zeros(len(frame))
        weights[kept] = read_weights(weighed[kept], int(kept.sum()))
        if (weights[kept] == 0).any():
            nothing = int((weights[kept] == 0).sum())
            dropped = replace(dropped, n_rows=len(frame) - nothing, n_weightless=nothing)
            kept &= weights > 0
    dropped.warn()
    return kept, dropped, weights
