"""Baseline values of the outcome among the features: what a trial does well to adjust for."""

from __future__ import annotations

from modifind.data.feature_matrix import FeatureTable
from modifind.data.time_names import is_baseline_name


def baseline_names(table: FeatureTable, outcome: str) -> list[str]:
    """Numeric features that are called like the outcome before the treatment.

    Such as ``weight_0``, ``weight_bl`` or ``pre_weight`` beside ``weight`` or ``weight_6m``. Any strong predictor goes
    with the outcome as its baseline value does, so that numbers alone do not tell.

    Parameters
    ----------
    table : FeatureTable
        Features that were measured before the treatment.
    outcome : str
        What the outcome is called.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.data.schema import read_features
    >>> table = read_features({"weight_bl": np.linspace(60, 90, 40), "age": np.linspace(20, 80, 40)})
    >>> baseline_names(table, "weight")
    ['weight_bl']
    """
    numeric = (name for m, name in enumerate(table.names) if table.kind(m) == "continuous")
    return [name for name in numeric if is_baseline_name(name, outcome)]
