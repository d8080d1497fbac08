"""Baseline values of the outcome among the features: what a trial does well to adjust for."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from modifind._typing import Array
from modifind.data.feature_matrix import FeatureTable

LEAST_CORRELATION, MOST_CORRELATION = 0.5, 0.95  # of ranks with the outcome, within each arm; beyond, it is no other
LEAST_ROWS, MOST_ROWS = 20, 10_000  # of each arm, and in all, that are looked at
MOST_RATIO = 2.0  # between the standard deviations of the outcome and of its baseline value
EARLY = frozenset(("baseline", "base", "bl", "pre", "pretest", "before", "initial", "start", "screening", "0"))
LATE = frozenset(
    (
        *("post", "posttest", "after", "final", "end", "followup", "fu", "endpoint", "last", "outcome", "visit"),
        *("week", "weeks", "wk", "w", "month", "months", "mo", "m", "day", "days", "d", "year", "years", "y"),
    )
)
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def baseline_names(table: FeatureTable, y: Array, arms: NDArray[np.int64], outcome: str | None) -> list[str]:
    """Features that look like the outcome before the treatment.

    By name, such as ``weight_0``, ``weight_bl`` or ``pre_weight`` beside ``weight`` or ``weight_6m``; or because ranks
    go with those of the outcome in both arms and values are of the same size, as those in the same unit are.

    Parameters
    ----------
    table : FeatureTable
        Features that were measured before the treatment.
    y : array of shape (n,)
        Outcome.
    arms : array of shape (n,)
        0 or 1 for every row.
    outcome : str, optional
        What the outcome is called.

    Examples
    --------
    >>> from modifind.data.feature_matrix import read_features
    >>> rng = np.random.default_rng(0)
    >>> weight = rng.normal(70, 9, 80)
    >>> table = read_features({"weight_bl": weight, "age": rng.normal(50, 9, 80)})
    >>> baseline_names(table, weight + rng.normal(0, 3, 80), np.arange(80) % 2, "weight")
    ['weight_bl']
    """
    numeric = [m for m in range(table.n_features) if table.kind(m) == "continuous"]
    by_name = [m for m in numeric if outcome and _is_baseline_of(table.names[m], outcome)]
    some = slice(None, None, max(1, y.size // MOST_ROWS))
    found = by_name or [m for m in numeric if _goes_with(table.values[some, m], y[some], arms[some])]
    return [table.names[m] for m in found]


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


def _goes_with(column: Array, y: Array, arms: NDArray[np.int64]) -> bool:
    seen = ~np.isnan(column)
    spreads = float(np.std(column[seen])), float(np.std(y))
    apart = abs(float(np.mean(column[seen]) - np.mean(y)))
    if not 1 / MOST_RATIO <= spreads[0] / max(spreads[1], 1e-300) <= MOST_RATIO or apart > 2 * max(spreads):
        return False
    if min((seen & (arms == arm)).sum() for arm in (0, 1)) < LEAST_ROWS:
        return False
    found = [float(spearmanr(column[seen & (arms == arm)], y[seen & (arms == arm)])[0]) for arm in (0, 1)]
    return min(found) > LEAST_CORRELATION and max(found) < MOST_CORRELATION
