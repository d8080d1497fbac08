"""Baseline values of the outcome among the features: what a trial does well to adjust for."""

from __future__ import annotations

import re

from modifind.data.feature_matrix import FeatureTable

EARLY = frozenset(("baseline", "base", "bl", "pre", "pretest", "before", "initial", "start", "screening", "0"))
LATE = frozenset(
    (
        *("post", "posttest", "after", "final", "end", "followup", "fu", "endpoint", "last", "outcome", "visit"),
        *("week", "weeks", "wk", "w", "month", "months", "mo", "m", "day", "days", "d", "year", "years", "y"),
    )
)
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


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
    return [name for name in numeric if _is_baseline_of(name, outcome)]


def _is_baseline_of(name: str, outcome: str) -> bool:
    """Whether a name is that of the outcome with a word for an early measurement.

    Examples
    --------
    >>> [_is_baseline_of(name, "sbp_week12") for name in ("sbp_0", "baselineSBP", "sbp", "dbp_0", "sbp_week4")]
    [True, True, False, False, False]
    """
    words, others = (WORD.findall(text) for text in (name, outcome))
    words, others = [word.lower() for word in words], [word.lower() for word in others]
    stem = [word for word in words if word not in EARLY]
    return bool(stem) and len(stem) < len(words) and stem == _without_time(others)


def _without_time(words: list[str]) -> list[str]:
    """The words of an outcome that do not say when it was measured."""
    kept = [word for word in words if word not in LATE]
    while len(kept) > 1 and kept[-1].isdigit():
        kept = kept[:-1]
    return kept
