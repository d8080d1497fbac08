"""From what the user passed to data that every part can rely on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from modifind.features import (
    FeatureTable,
    Treatment,
    read_features,
    read_outcome,
    read_treatment,
)
from modifind.kernels import Array
from modifind.strata import Strata, read_strata, with_strata


@dataclass(frozen=True)
class Data:
    """Features, outcome and treatment of the same rows, checked and encoded."""

    table: FeatureTable
    y: Array
    treatment: Treatment
    strata: Strata | None = None

    @property
    def arms(self) -> NDArray[Any]:
        """0 or 1 for every row."""
        return self.treatment.arms

    @property
    def conditioned(self) -> FeatureTable:
        """What models and samplers see: the features and, where there are strata, the stratum as the last column."""
        return self.table if self.strata is None else with_strata(self.table, self.strata)


def read_data(
    X: Any, y: Any, treatment: Any, *, treated: Any = None, discrete_features: Any = "auto", strata: Any = None
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
    table = read_features(X, discrete_features)
    outcome = read_outcome(y, table.n_rows)
    labels = read_treatment(treatment, table.n_rows, treated)
    return Data(table, outcome, labels, None if strata is None else read_strata(strata, table, labels.arms))
