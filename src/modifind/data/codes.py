"""Numbers that look like codes for missing values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.data.feature_matrix import FeatureTable
from modifind.data.wording import warn_of_any

MAX_MISSING_CODES = 3
LARGE_CODES = frozenset(float(digit * k) for digit in "789" for k in range(2, 8))  # 77, 88, 99, 777, ...
LOW_CODES = frozenset(-code for code in LARGE_CODES) | {-7.0, -8.0, -9.0}
SMALL_CODES = frozenset((7.0, 8.0, 9.0))
COMMON_ROWS = 5


def warn_of_codes(table: FeatureTable, y: Array, outcome: str = "the outcome y") -> None:
    """Warn of values that look like codes for missing ones.

    Parameters
    ----------
    table : FeatureTable
        Features, before rare levels are pooled.
    y : array of shape (n,)
        Outcome.
    outcome : str
        What it is called.
    """
    numbers = {m: column for m in range(table.n_features) if (column := table.numbers(m)) is not None}
    shown = {repr(table.names[m]): column for m, column in numbers.items()} | {outcome: y}
    advice = "If so, write these as missing values; if they are measured, ignore this"
    coded = [_shown(name, column, codes) for name, column in shown.items() if (codes := missing_codes(column))]
    warn_of_any(coded, f"looks like a code for missing: {{}}. {advice}", between="; ", most=len(coded))


def missing_codes(column: Array) -> list[float]:
    """Values of a numeric column that look like codes for missing ones: 999, -9, 7 and 9 after 1 and 2, ...

    Such a value lies at an end of the column, with a gap to the other values that is larger than their whole range. Two
    more patterns count: the only negative values of a column are such codes, and 7 and 9 follow a gapless scale that
    ends at 5 or below.

    Examples
    --------
    >>> missing_codes(np.array([34.0, 51.0, 28.0, 999.0, 47.0, 999.0]))
    [999.0]
    >>> missing_codes(np.arange(100.0))
    []
    """
    values, rows = np.unique(column[np.isfinite(column)], return_counts=True)
    for n_codes in range(_n_codes(values[::-1], LARGE_CODES | SMALL_CODES), 0, -1):
        rest, high = values[:-n_codes], values[-n_codes:]
        if _may_be_codes(rest, rows[-n_codes:], rows) and _are_high_codes(rest, high):
            return high.tolist()
    for n_codes in range(_n_codes(values, LOW_CODES), 0, -1):
        low, rest = values[:n_codes], values[n_codes:]
        # A single digit below zero must come often to be no measurement, unless the rest is positive.
        often = low[0] <= -77 or rows[:n_codes].sum() > COMMON_ROWS or rest[:1].min(initial=1.0) > 0
        if _may_be_codes(rest, rows[:n_codes], rows) and (_is_wide(rest, low[-1]) or (rest[0] >= 0 and often)):
            return low.tolist()
    return []


def _are_high_codes(rest: Array, high: Array) -> bool:
    """Whether the largest values lie far above the rest, single digits only above a scale without gaps."""
    wide = _is_wide(rest, high[0])
    if high[0] > max(SMALL_CODES):
        return wide
    refused, unknown = 7.0 in high, 9.0 in high
    is_scale = rest[0] in (0.0, 1.0) and bool((np.diff(rest) == 1).all())
    return is_scale and ((wide and (refused or unknown)) or (rest[-1] <= 5 and refused and unknown))


def _is_wide(rest: Array, nearest: float) -> bool:
    """Whether the gap between the nearest code and the rest is larger than the range of the rest."""
    return bool(min(abs(nearest - rest[0]), abs(nearest - rest[-1])) > np.ptp(rest))


def _n_codes(values: Array, codes: frozenset[float]) -> int:
    """How many of the first values are codes, one after the other."""
    n_codes = 0
    while n_codes < min(MAX_MISSING_CODES, values.size) and values[n_codes] in codes:
        n_codes += 1
    return n_codes


def _may_be_codes(rest: Array, code_rows: NDArray[Any], rows: NDArray[Any]) -> bool:
    """Whether there are other values to compare codes with, and more rows of those."""
    return bool(rest.size > 1 and 2 * code_rows.sum() <= rows.sum())


def _shown(name: str, column: Array, codes: list[float]) -> str:
    values = ", ".join(f"{value:g}" for value in codes)
    return f"{values} in {name} ({int(np.isin(column, codes).sum())} of {column.size} rows)"
