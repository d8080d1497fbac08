"""Guards against unsuitable columns: censored times, identifiers, dates and free text, row numbers, missing codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from modifind._typing import Array
from modifind._warned import warn
from modifind.data.column_types import MAX_PROBED_TEXTS, dated, loses_digits, mostly_numbers, plain_column, unfit_kind
from modifind.data.features import FeatureTable
from modifind.data.words import (
    ANSWER_WORDS,
    BARE_FLAGS,
    CONNECTING,
    EARLIER_WORDS,
    GENERIC,
    SHORT_FLAGS,
    SHORT_TIMES,
    STATUS,
    SURVIVAL_WORDS,
    UNITS,
    is_event_word,
    is_identifier_name,
    is_plain_flag,
    is_time_name,
    is_time_word,
    means_censored,
    name_words,
    refuse_any,
    share_stem,
    warn_of_any,
)

MIN_TIMES = 13  # distinct values; an outcome of fewer is no time
MIN_LEAD = 0.1  # how far the chance that a row with the flag has the larger time is from one half,
MIN_EVENT_LEAD = 0.15  # and where the flag is the outcome and the column may be how long something had lasted before
MAX_LOST = 0.02  # share of rows whose follow-up may end early
CODES, MAX_CODES = frozenset((-1.0, 0.0, 1.0, 2.0, 3.0)), 4
FIRST_ROWS = 1000
HORIZON = (
    "Choose a horizon before which at most 2% of each arm were lost, and analyse whether the event has happened by "
    "then, as 0 or 1; without such a horizon, use a survival method. Leaving out rows that were lost earlier biases "
    "the answer, and missing_outcome='weight' does not correct that"
)


def is_time(values: Any) -> bool:
    """Whether numbers can be times: none is negative, and more than a few are distinct."""
    return bool((values >= 0).all()) and np.unique(values).size >= MIN_TIMES


def lead(values: Any, ones: Any) -> float:
    """Distance from 1/2 of the AUC of `values` for `ones`."""
    n_ones, n_rows = int(ones.sum()), values.size
    if not 0 < n_ones < n_rows:
        return 0.0
    ranks = rankdata(values)
    return float((ranks[ones].sum() - n_ones * (n_ones + 1) / 2) / (n_ones * (n_rows - n_ones)) - 0.5)


def refuse_censored(columns: pd.DataFrame, y: pd.Series[Any]) -> None:
    """Refuse a time next to its event indicator, or the indicator next to its time, if their names make that clear.

    If the names leave doubt, the column gets only a caution; see `OutcomeRanks.flags_event`. Only the rows at hand are
    examined: all of a table in memory, the first or a sample of a longer one.

    Parameters
    ----------
    columns : DataFrame
        Columns as they came, features or not.
    y : Series
        Outcome as it came; its name is what the outcome is called.

    Raises
    ------
    ValueError
        Names the column and what can be analysed instead.
    """
    outcome = y.name if isinstance(y.name, str) else ""
    values, columns = _as_numbers(y.reset_index(drop=True)), columns.reset_index(drop=True)
    time = f"the time {outcome!r}" if outcome else "the outcome"
    refuse_any(
        [str(name) for name in columns if _flags_time(columns[name], str(name), values, outcome)],
        f"{{}}: looks like the event indicator of {time}, and right-censored times are not supported. {HORIZON}. "
        "Rename the column if it is something else",
    )
    if means_censored(set(name_words(outcome))) and _flag_codes(values) is not None:
        raise ValueError(
            f"the outcome {outcome!r} says whether a time is censored, which is no outcome. {HORIZON}. Rename the "
            "outcome if it is something else"
        )
    refuse_any(
        [str(name) for name in columns if _times_event(columns[name], str(name), values, outcome)],
        f"{{}}: looks like the time of the event {outcome!r}, or how long rows without it were followed, which differs "
        f"between rows. {HORIZON}. Call that outcome otherwise ('{outcome}_by_365', for instance)",
    )


def warn_of_time_name(y: pd.Series[Any]) -> None:
    """Warn if the outcome's name suggests a time to event, because the event indicator may have been left out."""
    name = y.name if isinstance(y.name, str) else ""
    if (_is_plain_time(name) or "to" in name_words(name)[1:2]) and is_time_name(name) and is_time(_as_numbers(y)):
        warn(
            f"the outcome {name!r} is named like a time to an event. If the event was not seen in all rows, their "
            f"times are right-censored, which is not supported. {HORIZON}",
        )


def _flags_time(column: pd.Series[Any], name: str, values: pd.Series[float], outcome: str) -> bool:
    """Whether a column is the event indicator of the time that is the outcome."""
    if not is_time(values.dropna()):
        return False
    known, time = _flag_codes(column), is_time_name(outcome)
    if known is None:
        return False
    if time and (is_plain_flag(name) or _means_survival(column, name) or share_stem(name, outcome)):
        return True
    words = set(name_words(name))
    unsaid = time or outcome.lower() in GENERIC
    bare = means_censored(words) or (unsaid and bool(words & BARE_FLAGS and words <= BARE_FLAGS | STATUS))
    short = words <= SHORT_FLAGS and set(name_words(outcome)) <= SHORT_TIMES and bool(words)
    return (bare or short) and not EARLIER_WORDS & words and _leads(known, values, MIN_LEAD)


def _times_event(column: pd.Series[Any], name: str, values: pd.Series[float], outcome: str) -> bool:
    """Whether a column is the time of the event that is the outcome, with follow-up that ends early in some rows."""
    paired, known = share_stem(outcome, name), _flag_codes(values)
    if known is None or not (is_plain_flag(outcome) or paired) or not is_time_name(name):
        return False
    times = _as_numbers(column)
    if not is_time(times.dropna()):
        return False
    event = known > known.min()
    lost = (~event & (times < times[event].max())).mean()
    return lost > MAX_LOST and (paired or _is_plain_time(name) or _leads(known, times, MIN_EVENT_LEAD))


def _is_plain_time(name: str) -> bool:
    """Whether a name denotes a time to event, rather than a duration or a unit of time."""
    words = name_words(name)
    plain = all(is_time_word(word) or is_event_word(word) or word in CONNECTING for word in words)
    return plain and not EARLIER_WORDS & set(words) and any(is_time_word(word) and word not in UNITS for word in words)


def _leads(flag: pd.Series[float], values: pd.Series[float], least: float) -> bool:
    seen = flag.notna() & values.notna()
    return abs(lead(values[seen], (flag[seen] > flag.min()).to_numpy())) >= least


def _flag_codes(column: pd.Series[Any]) -> pd.Series[float] | None:
    """Numeric values of a column that may be an indicator; None for other columns."""
    distinct = _few_values(column)
    if set(_as_numbers(pd.Series(distinct, dtype=object))) <= CODES:
        return _as_numbers(column) if distinct else None
    levels = [set(name_words(str(level))) for level in distinct]
    if len(levels) == 2 and all(
        level & (ANSWER_WORDS | SURVIVAL_WORDS) or any(map(is_event_word, level)) for level in levels
    ):
        return column.map({level: float(k) for k, level in enumerate(sorted(distinct, key=str))}).astype(np.float64)
    return None


def _few_values(column: pd.Series[Any]) -> list[Any]:
    """The distinct values of a column with two to four of them; None otherwise."""
    for rows in (column.iloc[:FIRST_ROWS], column):  # most columns show in a few rows that they have more
        try:
            distinct = rows.dropna().unique()
        except TypeError:  # lists and the like
            return []
        if len(distinct) > MAX_CODES:
            return []
    return list(distinct) if len(distinct) > 1 else []


def _as_numbers(column: pd.Series[Any]) -> pd.Series[float]:
    """Values as numbers, NaN where that fails."""
    plain = column if pd.api.types.is_numeric_dtype(column) else column.astype(object)
    return pd.to_numeric(plain, errors="coerce").astype(np.float64)


def _means_survival(column: pd.Series[Any], name: str) -> bool:
    """Whether the two levels of a column mean dead and alive, or the like."""
    levels = [set(name_words(str(level))) for level in _few_values(column)]
    living = [bool(level & SURVIVAL_WORDS) for level in levels]
    events = [any(map(is_event_word, level)) for level in levels]
    return not EARLIER_WORDS & set(name_words(name)) and sum(living) >= 1 and any(events) and len(levels) == 2


MIN_NUMBERED_ROWS = 20
MIN_LOG_IMPROBABILITY = 14.0  # the logarithm of one in a million


def unusable(frame: pd.DataFrame) -> dict[str, str]:
    """Problems of columns that hold dates, identifiers or free text, by name; usable columns are omitted.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"id": range(7, 107), "day": ["2020-01-31"] * 100, "age": [30, 41] * 50})
    >>> unusable(frame.assign(note=[f"came {k} times" for k in range(100)]))
    {'id': 'identifier', 'day': 'dates', 'note': 'text with 100 distinct values in 100 rows'}
    """
    reasons = {str(name): _reason(frame.iloc[:, m], str(name)) for m, name in enumerate(frame.columns)}
    return {name: reason for name, reason in reasons.items() if reason}


def _reason(column: pd.Series[Any], name: str) -> str:
    values, types = plain_column(column.dropna()), pd.api.types
    if kind := unfit_kind(values):
        return kind.removesuffix(" or times")
    if len(values) < MIN_NUMBERED_ROWS or types.is_bool_dtype(values) or isinstance(values.dtype, pd.CategoricalDtype):
        return ""
    if types.is_numeric_dtype(values):
        return "identifier" * _is_identifier(values, name)
    distinct = pd.Series(values.unique() if types.is_string_dtype(values) else [], dtype=object)
    if dated(distinct[:MAX_PROBED_TEXTS]).mean() > 0.5:
        return "dates"
    mostly_distinct = 2 * len(distinct) > len(values) and not mostly_numbers(distinct[:MAX_PROBED_TEXTS])
    return f"text with {len(distinct)} distinct values in {len(values)} rows" if mostly_distinct else ""


def _is_identifier(values: pd.Series[Any], name: str) -> bool:
    """Whether numbers count or identify the rows, or exceed the precision of floats."""
    numbers = values.to_numpy(dtype=np.float64)
    return counts_rows(numbers) or identifies_rows(numbers, name) or loses_digits(values)


def counts_rows(numbers: Array) -> bool:
    """Whether whole numbers increase or decrease from row to row."""
    steps = np.diff(numbers)
    return bool((numbers == np.rint(numbers)).all() and ((steps > 0).all() or (steps < 0).all()))


def identifies_rows(numbers: Array, name: str) -> bool:
    """Whether unordered whole numbers are identifiers: all distinct, by their name or more often than by chance.

    Random draws from a range repeat: n of them are all distinct with probability at most exp(-n^2 / 2 range).

    Examples
    --------
    >>> shuffled = np.random.default_rng(0).permutation(np.arange(100.0))
    >>> identifies_rows(shuffled, "x"), identifies_rows(shuffled / 3, "x"), identifies_rows(1e9 * shuffled, "x")
    (True, False, False)
    """
    if numbers.size < MIN_NUMBERED_ROWS or counts_rows(numbers):
        return False
    if not (numbers == np.rint(numbers)).all() or np.unique(numbers).size < numbers.size:
        return False
    return is_identifier_name(name) or bool(numbers.size**2 / (2 * np.ptp(numbers)) > MIN_LOG_IMPROBABILITY)


def refuse_row_identifiers(table: FeatureTable) -> None:
    """Refuse numeric identifiers, judged by the rows at hand; those in row order may mean time."""
    ids = [name for name, column in _continuous(table) if identifies_rows(column[~np.isnan(column)], name)]
    refuse_any(
        ids,
        "{}: looks like an identifier (unordered whole numbers that never repeat), which cannot be a feature; exclude "
        "it, or divide it by the number of rows if it is a rank",
    )


def warn_of_row_numbers(table: FeatureTable) -> None:
    """Warn of columns that look like row numbers, which may mean time."""
    row_numbers = [name for name, column in _continuous(table) if counts_rows(column)]
    what = "(whole numbers in row order, all distinct): {}. Exclude"
    one, several = (
        f"looks like a row number {what} it unless it means",
        f"look like row numbers {what} them unless they mean",
    )
    warn_of_any(row_numbers, f"{one} time", f"{several} time", most=len(row_numbers))


def _continuous(table: FeatureTable) -> list[tuple[str, Array]]:
    return [(name, table.values[:, m]) for m, name in enumerate(table.names) if table.categories[m] is None]


def refuse_unusable(frame: pd.DataFrame, argument: str) -> None:
    """Refuse identifiers and free text named by an argument: nothing in them could be tested or adjusted for."""
    for m, column in enumerate(map(str, frame.columns)):
        reason = _reason(frame.iloc[:, m], column)
        if reason.startswith("text") or (reason and identifies_rows(_floats(frame.iloc[:, m]), column)):
            raise ValueError(
                f"{argument} names {column!r}, which cannot be a feature ({reason}); leave it out, or put its values "
                "into fewer categories"
            )


def _floats(column: pd.Series[Any]) -> Array:
    values = plain_column(column.dropna())
    return values.to_numpy(dtype=np.float64) if pd.api.types.is_numeric_dtype(values) else np.empty(0)


MAX_MISSING_CODES = 3
LARGE_CODES = frozenset(float(digit * k) for digit in "789" for k in range(2, 8))  # 77, 88, 99, 777, ...
LOW_CODES = frozenset(-code for code in LARGE_CODES) | {-7.0, -8.0, -9.0}
SMALL_CODES = frozenset((7.0, 8.0, 9.0))
COMMON_ROWS = 5


def warn_of_codes(table: FeatureTable, y: Array, outcome: str = "the outcome y") -> None:
    """Warn of values that look like codes for missing values.

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
    advice = "If so, write these as missing values; if they are real values, ignore this"
    coded = [_shown(name, column, codes) for name, column in shown.items() if (codes := missing_codes(column))]
    warn_of_any(coded, f"looks like a code for missing: {{}}. {advice}", between="; ", most=len(coded))


def missing_codes(column: Array) -> list[float]:
    """Values of a numeric column that look like missing codes: 999, -9, 7 and 9 after 1 and 2, ...

    Such a value lies at an end of the column, separated from the other values by a gap larger than their range. Two
    further patterns count: the only negative values of a column are such codes, and 7 and 9 follow a gapless scale that
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
    """Whether the largest values lie far above the rest; single digits only above a scale without gaps."""
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
    """Number of leading values that are codes."""
    n_codes = 0
    while n_codes < min(MAX_MISSING_CODES, values.size) and values[n_codes] in codes:
        n_codes += 1
    return n_codes


def _may_be_codes(rest: Array, code_rows: NDArray[Any], rows: NDArray[Any]) -> bool:
    """Whether there are other values to compare codes with, in more rows than the codes."""
    return bool(rest.size > 1 and 2 * code_rows.sum() <= rows.sum())


def _shown(name: str, column: Array, codes: list[float]) -> str:
    values = ", ".join(f"{value:g}" for value in codes)
    return f"{values} in {name} ({int(np.isin(column, codes).sum())} of {column.size} rows)"
