"""From what the user passed to data that every part can rely on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind.features import (
    FeatureTable,
    Treatment,
    as_frame,
    check_length,
    read_features,
    read_outcome,
    read_treatment,
)
from modifind.kernels import Array
from modifind.missing import Dropped, complete_rows


@dataclass(frozen=True)
class Data:
    """Features, outcome and treatment of the same rows, checked and encoded.

    Attributes
    ----------
    kept : array of bool or None
        Which of the rows that the user passed these are; None for all of them.
    dropped : Dropped
        A count of the others.
    """

    table: FeatureTable
    y: Array
    treatment: Treatment
    kept: NDArray[np.bool_] | None = None
    dropped: Dropped = field(default_factory=Dropped)

    @property
    def arms(self) -> NDArray[Any]:
        """0 or 1 for every row."""
        return self.treatment.arms

    def cut(self, values: Any, what: str) -> Any:
        """One value per row that the user passed, as an array of the rows that are left."""
        if self.kept is None:
            return values
        values = np.asarray(values)
        check_length(what, len(values), self.kept.size)
        return values[self.kept]


def read_data(
    X: Any,
    y: Any,
    treatment: Any,
    *,
    treated: Any = None,
    discrete_features: Any = "auto",
    missing: str = "error",
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
    missing : {"error", "category", "drop"}, default="error"
        What becomes of missing values; "drop" leaves out the rows that have any.

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
    kept, dropped = None, Dropped()
    if missing == "drop" and y is not None and treatment is not None:
        frame = as_frame(X)
        columns = {"y": _series(y), "treatment": _series(treatment)}
        for name, column in columns.items():
            check_length(name, len(column), len(frame))
        kept, dropped = complete_rows(frame, columns["y"], columns["treatment"])
        dropped.refuse_all()
        X, y, treatment = frame.loc[kept], columns["y"][kept], columns["treatment"][kept]
    table = read_features(X, discrete_features, missing if missing == "category" else "error")
    outcome = read_outcome(y, table.n_rows)
    return Data(table, outcome, read_treatment(treatment, table.n_rows, treated), kept, dropped)


def _series(values: Any) -> pd.Series[Any]:
    return values if isinstance(values, pd.Series) else pd.Series(np.asarray(values).ravel())
