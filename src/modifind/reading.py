"""From what the user passed to data that every part can rely on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind.features import (
    FeatureTable,
    Treatment,
    as_frame,
    read_features,
    read_outcome,
    read_treatment,
)
from modifind.kernels import Array
from modifind.row_weights import effective_size
from modifind.strata import Strata, read_strata, with_strata
from modifind.streaming.sources import as_series
from modifind.weighting import check_groups, read_groups, read_weights


@dataclass(frozen=True)
class Data:
    """Features, outcome and treatment of the same rows, checked and encoded.

    Attributes
    ----------
    weights : array of shape (n,), optional
        How much each row counts, of mean 1.
    groups : int array of shape (n,), optional
        Which rows belong together.
    kept : int array of shape (n,), optional
        Which of the user's rows these are, where some have weight 0.
    """

    table: FeatureTable
    y: Array
    treatment: Treatment
    weights: Array | None = None
    groups: NDArray[np.int64] | None = None
    kept: NDArray[np.intp] | None = None
    strata: Strata | None = None

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
        """What a result records of weights, groups and strata; nothing where there are none."""
        found: dict[str, Any] = {}
        if self.weights is not None:
            found["sample_weight"] = {"effective_rows": effective_size(self.weights)}
        if self.groups is not None:
            found["groups"] = {"n_groups": int(np.unique(self.groups).size)}
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
    sample_weight: Any = None,
    groups: Any = None,
    strata: Any = None,
) -> Data:
    """Check and encode a table.

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
    sample_weight, groups : array of shape (n,), optional
        Weights and group labels of the rows. Rows of weight 0 are left out, with a warning.
    strata : array of shape (n,), optional
        Strata that the treatment was randomised in.

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
    weights = codes = kept = None
    if sample_weight is not None or groups is not None:
        X = as_frame(X)
        weights = None if sample_weight is None else read_weights(sample_weight, len(X))
        codes = None if groups is None else read_groups(groups, len(X))
    if weights is not None and (weights == 0).any():
        kept = np.flatnonzero(weights > 0)
        warnings.warn(
            f"{len(X) - kept.size} of {len(X)} rows have sample_weight 0 and are left out", UserWarning, stacklevel=3
        )
        y, treatment = _taken(y, "y", len(X), kept), _taken(treatment, "treatment", len(X), kept)
        strata = _taken(strata, "strata", len(X), kept)
        X, weights = X.iloc[kept], weights[kept]
        codes = None if codes is None else codes[kept]
    if codes is not None:
        check_groups(codes)
    if weights is not None:
        weights = weights / weights.max()
        weights = weights / weights.mean()
    table = read_features(X, discrete_features)
    outcome = read_outcome(y, table.n_rows)
    labels = read_treatment(treatment, table.n_rows, treated)
    blocks = None if strata is None else read_strata(strata, table, labels.arms)
    return Data(table, outcome, labels, weights, codes, kept, blocks)


def _taken(values: Any, what: str, n_rows: int, kept: NDArray[np.intp]) -> Any:
    """Some rows of a column; what is missing altogether is reported by those who read it."""
    if values is None:
        return None
    column = as_series(values)
    if len(column) != n_rows:
        raise ValueError(f"{what} has {len(column)} rows but X has {n_rows}")
    return column.iloc[kept]
