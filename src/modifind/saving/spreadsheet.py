"""Tables as CSV that a spreadsheet shows and does not run."""

from __future__ import annotations

from typing import Any

import pandas as pd

RUNS = ("=", "+", "-", "@", "\t", "\r", "\n")


def safe_cell(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula, with an apostrophe before it; anything else as it is.

    Examples
    --------
    >>> safe_cell("=SUM(A1:A9)"), safe_cell("age"), safe_cell(-1.5)
    ("'=SUM(A1:A9)", 'age', -1.5)
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(RUNS) else value


def safe_csv(frame: pd.DataFrame, *, index: bool = True, **options: Any) -> str:
    """A DataFrame as CSV text whose names, labels and texts no spreadsheet runs; numbers stay numbers."""
    shown = frame.copy()
    for place, kind in enumerate(frame.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            shown.isetitem(place, [safe_cell(value) for value in frame.iloc[:, place]])
    shown.columns = pd.Index([safe_cell(name) for name in frame.columns])
    shown.index = pd.Index([safe_cell(label) for label in frame.index], name=safe_cell(frame.index.name))
    return shown.to_csv(index=index, **options)
