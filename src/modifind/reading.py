"""From what the user passed to data that every part can rely on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind.columns.codes import warn_codes
from modifind.columns.inputs import as_column, as_frame, check_same_order, recorded_names
from modifind.columns.leaks import refuse_leaks
from modifind.columns.many_levels import MOST_INDICATORS
from modifind.columns.missing import Dropped, complete_rows
from modifind.columns.rare_levels import pool_rare_levels
from modifind.columns.support import Outside, outside_levels
from modifind.features import (
    FeatureTable,
    Treatment,
    adjusted_columns,
    check_length,
    check_rows,
    read_features,
    read_outcome,
    read_treatment,
)
from modifind.kernels import Array
from modifind.rows.clusters import check_clusters, read_clusters, read_weights
from modifind.rows.strata import Strata, read_strata, with_strata
from modifind.rows.weights import effective_size


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
        if self.weights is not None:
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
    sample_weight: Any = None,
    clusters: Any = None,
    strata: Any = None,
    adjust_for: Any = None,
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
    sample_weight, clusters, strata : array of shape (n,), optional
        Weights, cluster labels and strata of the rows. Rows of weight 0 are left out, with a warning.
    adjust_for : names, positions or a mask, optional
        Columns of X that are not tested.

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
    weights = read_weights(columns["sample_weight"], len(frame)) if "sample_weight" in columns else None
    kept, dropped = _kept_rows(frame, columns, weights, missing)
    if kept is not None:
        frame = frame.loc[kept]
        columns = {name: column[kept].reset_index(drop=True) for name, column in columns.items()}
        weights = None if weights is None else weights[kept]
    table = read_features(frame, discrete_features, "category" if missing == "category" else "error")
    check_rows(table.n_rows)
    adjusted = adjusted_columns(table.names, adjust_for)
    outcome = read_outcome(columns.get("y"), table.n_rows)
    labels = read_treatment(columns.get("treatment"), table.n_rows, treated)
    codes = read_clusters(columns["clusters"], table.n_rows) if "clusters" in columns else None
    if codes is not None:
        check_clusters(codes)
    refuse_leaks(table, outcome, labels.arms, codes)
    warn_codes(table, outcome)
    outside = outside_levels(table, labels.arms)
    whole, (table, left_out) = table, pool_rare_levels(table, labels.arms)
    pooled = [m for m in range(table.n_features) if whole.n_levels(m) > table.n_levels(m) > MOST_INDICATORS]
    unpooled = tuple(whole.values[:, m] for m in pooled)
    found = read_strata(columns["strata"], table, labels.arms) if "strata" in columns else None
    if weights is not None:
        weights = weights / weights.max()
        weights = weights / weights.mean()
    names = recorded_names(columns["y"], columns["treatment"])
    return Data(
        table, outcome, labels, weights, codes, found, kept, dropped, left_out, names, unpooled, outside, adjusted
    )


def _kept_rows(
    frame: pd.DataFrame, columns: dict[str, pd.Series[Any]], weights: Array | None, missing: str
) -> tuple[NDArray[np.bool_] | None, Dropped]:
    """Which rows count and, with missing="drop", have no missing value; None for all of them."""
    kept, dropped = np.ones(len(frame), dtype=bool), Dropped()
    if weights is not None and (weights == 0).any():
        kept &= weights > 0
        warnings.warn(
            f"{int((~kept).sum())} of {len(frame)} rows have sample_weight 0 and are left out",
            UserWarning,
            stacklevel=4,
        )
    if missing == "drop" and {"y", "treatment"} <= set(columns):
        complete, dropped = complete_rows(frame.loc[kept], columns["y"][kept], columns["treatment"][kept])
        dropped.refuse_all()
        dropped.warn()
        kept[kept] = complete
    return (None if kept.all() else kept), dropped
