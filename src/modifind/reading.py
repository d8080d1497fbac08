"""From what the user passed to data that every part can rely on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind.codes import warn_codes
from modifind.features import (
    FeatureTable,
    Treatment,
    check_rows,
    read_features,
    read_outcome,
    read_treatment,
)
from modifind.inputs import check_same_order
from modifind.kernels import Array
from modifind.leaks import refuse_leaks
from modifind.rare_levels import pool_rare_levels


@dataclass(frozen=True)
class Data:
    """Features, outcome and treatment of the same rows, checked and encoded.

    Attributes
    ----------
    left_out : frozenset of int
        Features of which pooling rare levels has left one level; the user has been told.
    """

    table: FeatureTable
    y: Array
    treatment: Treatment
    left_out: frozenset[int] = frozenset()

    @property
    def arms(self) -> NDArray[Any]:
        """0 or 1 for every row."""
        return self.treatment.arms

    @property
    def conditioned(self) -> FeatureTable:
        """What models and samplers see: the features and, where there are strata, the stratum as the last column."""
        return self.table if self.strata is None else with_strata(self.table, self.strata)

def read_data(X: Any, y: Any, treatment: Any, *, treated: Any = None, discrete_features: Any = "auto") -> Data:
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
    strata : array of shape (n,), optional
        Strata that the treatment was randomised in.

    Raises
    ------
    ValueError
        Names the column and the remedy.

    Examples
    --------
    >>> rows = [[k % 3, k % 13] for k in range(60)]
    >>> data = read_data(rows, [k * k % 59 for k in range(60)], ["drug", "placebo"] * 30)
    >>> data.table.names, data.treatment.treated
    (('x0', 'x1'), 'drug')
    """
    check_same_order(X, y=y, treatment=treatment)
    table = read_features(X, discrete_features)
    check_rows(table.n_rows)
    outcome = read_outcome(y, table.n_rows)
    labels = read_treatment(treatment, table.n_rows, treated)
    refuse_leaks(table, outcome, labels.arms)
    warn_codes(table, outcome)
    table, left_out = pool_rare_levels(table, labels.arms)
    return Data(table, outcome, labels, left_out)
