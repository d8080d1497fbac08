"""What is wrong with a CSV file, in words that say what to do."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

LONGEST_SHOWN = 60


def check_header(path: Path) -> None:
    """Refuse a CSV file whose first line has a name twice, is one field only or is no UTF-8 text.

    pandas would rename the second of two columns and read other separators as part of one name.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            names = next((row for row in csv.reader(lines) if row), [])
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise ValueError(f"cannot read {path}: {reason(error)}") from None
    if not names:
        raise ValueError(f"cannot read {path}: it is empty")
    if len(names) == 1:
        shown = names[0] if len(names[0]) <= LONGEST_SHOWN else names[0][:LONGEST_SHOWN] + "..."
        raise ValueError(
            f"{path} has one column, {shown!r}; fields must be separated by commas and numbers have decimal points "
            "(pandas.read_csv(sep=..., decimal=...) reads others)"
        )
    twice = [name for name, count in Counter(names).items() if count > 1 and name.strip()]
    if twice:
        raise ValueError(f"{path} has several columns called {', '.join(map(repr, twice))}; rename all but one")


def reason(error: Exception) -> str:
    """Why a file cannot be read."""
    if isinstance(error, UnicodeDecodeError):
        byte = error.object[error.start]
        return f"it is not UTF-8 text (byte 0x{byte:02x}); save it as UTF-8"
    return str(error)
