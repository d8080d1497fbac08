"""Tables as CSV without text that a spreadsheet would run as a formula."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

# What a spreadsheet takes for the beginning of a formula: the first character that it shows of a cell, or of a part
# that another separator than the comma makes a cell of. Signs of full width count where such are typed.
UNSEEN = r"\s\0-\x1f\x7f-\xa0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff'\""
FORMULA = re.compile(rf"(^|[;|\t\r\n])(?=[{UNSEEN}]*[=+\-@\uff1d\uff0b\uff0d\uff20])")
MOVES = ("\t", "\r", "\n")


def safe_cell(value: Any) -> Any:
    """Prefix text that a spreadsheet would take for a formula with an apostrophe; return anything else unchanged.

    Examples
    --------
    >>> safe_cell("=SUM(A1:A9)"), safe_cell("age"), safe_cell(-1.5), safe_cell("x;=1+1")
    ("'=SUM(A1:A9)", 'age', -1.5, "x;'=1+1")
    """
    if not isinstance(value, str):
        return value
    safe = FORMULA.sub(r"\1'", value)
    return f"'{safe}" if safe.startswith(MOVES) else safe


def safe_csv(frame: pd.DataFrame, *, index: bool = True, **options: Any) -> str:
    """A DataFrame as CSV text whose names, labels and texts no spreadsheet runs; numbers stay numbers."""
    shown = frame.copy()
    for position, kind in enumerate(frame.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            shown.isetitem(position, [safe_cell(value) for value in frame.iloc[:, position]])
    shown.columns = pd.Index([safe_cell(name) for name in frame.columns])
    shown.index = pd.Index([safe_cell(label) for label in frame.index], name=safe_cell(frame.index.name))
    return shown.to_csv(index=index, lineterminator="\n", **options)
