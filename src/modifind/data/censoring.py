"""Right-censored times: a time beside the flag of its event is refused, whichever of them is the outcome."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from modifind._warned import warn
from modifind.data.time_names import (
    ANSWERS,
    BARE,
    CONNECTING,
    EARLIER,
    GENERIC,
    LIVING,
    SHORT_FLAGS,
    SHORT_TIMES,
    STATUS,
    UNITS,
    is_event_word,
    is_plain_flag,
    is_time_name,
    is_time_word,
    name_words,
    says_censored,
    share_stem,
)
from modifind.data.wording import refuse_any

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
    """Whether numbers can be times: none is negative, and there are more than a few."""
    return bool((values >= 0).all()) and np.unique(values).size >= MIN_TIMES


def lead(values: Any, ones: Any) -> float:
    """How far the chance that of two rows, one of `ones` and one not, the first has the larger value is from 1/2."""
    n_ones, n_rows = int(ones.sum()), values.size
    if not 0 < n_ones < n_rows:
        return 0.0
    ranks = rankdata(values)
    return float((ranks[ones].sum() - n_ones * (n_ones + 1) / 2) / (n_ones * (n_rows - n_ones)) - 0.5)


def refuse_censored(columns: pd.DataFrame, y: pd.Series[Any]) -> None:
    """Refuse a time beside the flag of its event, or the flag beside the time, where their names leave little doubt.

    Where they leave some, the column is but a caution; see `OutcomeRanks.flags_event`. A column's values are looked at
    in the rows at hand: all of a table in memory, the first or a sample of a longer one.

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
    if says_censored(set(name_words(outcome))) and _flag_codes(values) is not None:
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
    """Note that an outcome's name says time to an event, since its flag may have been left out of the table."""
    name = y.name if isinstance(y.name, str) else ""
    if (_is_plain_time(name) or "to" in name_words(name)[1:2]) and is_time_name(name) and is_time(_as_numbers(y)):
        warn(
            f"the outcome {name!r} is named like a time to an event. If the event was not seen in all rows, their "
            f"times are right-censored, which is not supported. {HORIZON}",
        )


def _flags_time(column: pd.Series[Any], name: str, values: pd.Series[float], outcome: str) -> bool:
    """Whether a column is the flag of the event whose time is the outcome."""
    if not is_time(values.dropna()):
        return False
    known, time = _flag_codes(column), is_time_name(outcome)
    if known is None:
        return False
    if time and (is_plain_flag(name) or _says_living(column, name) or share_stem(name, outcome)):
        return True
    words = set(name_words(name))
    unsaid = time or outcome.lower() in GENERIC
    bare = says_censored(words) or (unsaid and bool(words & BARE and words <= BARE | STATUS))
    short = words <= SHORT_FLAGS and set(name_words(outcome)) <= SHORT_TIMES and bool(words)
    return (bare or short) and not EARLIER & words and _leads(known, values, MIN_LEAD)


def _times_event(column: pd.Series[Any], name: str, values: pd.Series[float], outcome: str) -> bool:
    """Whether a column is the time of the event that the outcome flags, with follow-up that ends early in some rows."""
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
    """Whether a name says a time to an event, and nothing else, neither how long something lasted nor in what unit."""
    words = name_words(name)
    plain = all(is_time_word(word) or is_event_word(word) or word in CONNECTING for word in words)
    return plain and not EARLIER & set(words) and any(is_time_word(word) and word not in UNITS for word in words)


def _leads(flag: pd.Series[float], values: pd.Series[float], least: float) -> bool:
    seen = flag.notna() & values.notna()
    return abs(lead(values[seen], (flag[seen] > flag.min()).to_numpy())) >= least


def _flag_codes(column: pd.Series[Any]) -> pd.Series[float] | None:
    """Values of a column that may be a flag as numbers; None for one that holds something else."""
    distinct = _few_values(column)
    if set(_as_numbers(pd.Series(distinct, dtype=object))) <= CODES:
        return _as_numbers(column) if distinct else None
    levels = [set(name_words(str(level))) for level in distinct]
    if len(levels) == 2 and all(level & (ANSWERS | LIVING) or any(map(is_event_word, level)) for level in levels):
        return column.map({level: float(k) for k, level in enumerate(sorted(distinct, key=str))}).astype(np.float64)
    return None


def _few_values(column: pd.Series[Any]) -> list[Any]:
    """The distinct values of a column that has from two to four; none of another."""
    for rows in (column.iloc[:FIRST_ROWS], column):  # most columns show in a few rows that they have more
        try:
            distinct = rows.dropna().unique()
        except TypeError:  # lists and the like
            return []
        if len(distinct) > MAX_CODES:
            return []
    return list(distinct) if len(distinct) > 1 else []


def _as_numbers(column: pd.Series[Any]) -> pd.Series[float]:
    """Values as numbers, NaN where they are none."""
    plain = column if pd.api.types.is_numeric_dtype(column) else column.astype(object)
    return pd.to_numeric(plain, errors="coerce").astype(np.float64)


def _says_living(column: pd.Series[Any], name: str) -> bool:
    """Whether the two levels of a column are dead and alive, or the like."""
    levels = [set(name_words(str(level))) for level in _few_values(column)]
    living = [bool(level & LIVING) for level in levels]
    events = [any(map(is_event_word, level)) for level in levels]
    return not EARLIER & set(name_words(name)) and sum(living) >= 1 and any(events) and len(levels) == 2
