"""Columns that the user did not name and that no model should condition on: dates, identifiers, free text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from modifind._typing import Array
from modifind.data.column_types import PROBED, dated, loses_digits, mostly_numbers, plain_column, unfit_kind
from modifind.data.feature_matrix import FeatureTable
from modifind.data.time_names import is_identifier_name
from modifind.data.wording import refuse_any, warn_of_any

MIN_NUMBERED_ROWS = 20
UNLIKELY = 14.0  # the logarithm of one in a million


def unusable(frame: pd.DataFrame) -> dict[str, str]:
    """What is wrong with columns that hold dates, identifiers or text of mostly distinct values; others are left out.

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
    if dated(distinct[:PROBED]).mean() > 0.5:
        return "dates"
    mostly_distinct = 2 * len(distinct) > len(values) and not mostly_numbers(distinct[:PROBED])
    return f"text with {len(distinct)} distinct values in {len(values)} rows" if mostly_distinct else ""


def _is_identifier(values: pd.Series[Any], name: str) -> bool:
    """Whether numbers count the rows or name them, or are so large that floats cannot tell them apart."""
    numbers = values.to_numpy(dtype=np.float64)
    return counts_rows(numbers) or names_rows(numbers, name) or loses_digits(values)


def counts_rows(numbers: Array) -> bool:
    """Whether whole numbers rise or fall from row to row."""
    steps = np.diff(numbers)
    return bool((numbers == np.rint(numbers)).all() and ((steps > 0).all() or (steps < 0).all()))


def names_rows(numbers: Array, name: str) -> bool:
    """Whether whole numbers in no order are identifiers: all differ, by their name or more often than chance allows.

    Numbers that are drawn from a range repeat: n of them all differ with a chance of at most exp(-n^2 / 2 range).

    Examples
    --------
    >>> shuffled = np.random.default_rng(0).permutation(np.arange(100.0))
    >>> names_rows(shuffled, "x"), names_rows(shuffled / 3, "x"), names_rows(1e9 * shuffled, "x")
    (True, False, False)
    """
    if numbers.size < MIN_NUMBERED_ROWS or counts_rows(numbers):
        return False
    if not (numbers == np.rint(numbers)).all() or np.unique(numbers).size < numbers.size:
        return False
    return is_identifier_name(name) or bool(numbers.size**2 / (2 * np.ptp(numbers)) > UNLIKELY)


def refuse_row_identifiers(table: FeatureTable) -> None:
    """Refuse numbers that are identifiers, as far as the rows at hand show; those in row order may mean time."""
    ids = [name for name, column in _continuous(table) if names_rows(column[~np.isnan(column)], name)]
    refuse_any(
        ids,
        "{}: looks like an identifier (whole numbers in no order that never repeat), which is no feature; exclude it, "
        "or divide it by the number of rows if it is a rank",
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
    """Refuse identifiers and free text that an argument names: of these nothing would be tested or adjusted for."""
    for m, column in enumerate(map(str, frame.columns)):
        reason = _reason(frame.iloc[:, m], column)
        if reason.startswith("text") or (reason and names_rows(_floats(frame.iloc[:, m]), column)):
            raise ValueError(
                f"{argument} names {column!r}, which cannot be a feature ({reason}); leave it out, or put its values "
                "into fewer categories"
            )


def _floats(column: pd.Series[Any]) -> Array:
    values = plain_column(column.dropna())
    return values.to_numpy(dtype=np.float64) if pd.api.types.is_numeric_dtype(values) else np.empty(0)
