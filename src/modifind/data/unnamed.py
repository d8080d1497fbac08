"""Columns that the user did not name and that no model should condition on: dates, identifiers, free text."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from modifind.data.column_types import PROBED, dated, loses_digits, mostly_numbers, plain_column, unfit_kind

LEAST_ROWS = 20
_ID = re.compile(r"(?:^|[^A-Za-z])(?:id|ids|seqn|uuid|identifier)(?:[^A-Za-z]|$)|[a-z](?:ID|Id)$", re.ASCII)


def unusable(frame: pd.DataFrame) -> dict[str, str]:
    """What is wrong with columns that hold dates, identifiers or text of mostly distinct values; others are left out.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"id": range(7, 107), "day": ["2020-01-31"] * 100, "age": [30, 41] * 50})
    >>> unusable(frame.assign(note=[f"came {k} times" for k in range(100)]))
    {'id': 'identifier', 'day': 'dates', 'note': 'text with 100 distinct values in 100 rows'}
    """
    found = {str(name): _reason(frame.iloc[:, m], str(name)) for m, name in enumerate(frame.columns)}
    return {name: reason for name, reason in found.items() if reason}


def _reason(column: pd.Series[Any], name: str) -> str:
    values, types = plain_column(column.dropna()), pd.api.types
    if kind := unfit_kind(values):
        return kind.removesuffix(" or times")
    if len(values) < LEAST_ROWS or types.is_bool_dtype(values) or isinstance(values.dtype, pd.CategoricalDtype):
        return ""
    if types.is_numeric_dtype(values):
        return "identifier" * _is_identifier(values, name)
    distinct = pd.Series(values.unique() if types.is_string_dtype(values) else [], dtype=object)
    if dated(distinct[:PROBED]).mean() > 0.5:
        return "dates"
    mostly_distinct = 2 * len(distinct) > len(values) and not mostly_numbers(distinct[:PROBED])
    return f"text with {len(distinct)} distinct values in {len(values)} rows" if mostly_distinct else ""


def _is_identifier(values: pd.Series[Any], name: str) -> bool:
    """Whether numbers count the rows, or are so large that floats cannot tell them apart."""
    numbers = values.to_numpy(dtype=np.float64)
    if (numbers != np.rint(numbers)).any():
        return False
    steps = np.diff(numbers)
    in_order = bool((steps > 0).all() or (steps < 0).all())
    return (values.is_unique and (in_order or _named(name))) or loses_digits(values)


def _named(name: str) -> bool:
    """Whether a name says identifier.

    Examples
    --------
    >>> [_named(name) for name in ("id", "patient_id", "PatientID", "SEQN", "paid", "acid")]
    [True, True, True, True, False, False]
    """
    return bool(_ID.search(name) or _ID.search(name.lower()))
