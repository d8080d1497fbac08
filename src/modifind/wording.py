"""Words that messages are made of."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def counted(number: int, thing: str, things: str = "") -> str:
    """A number and what it counts, in the singular for one.

    Examples
    --------
    >>> counted(1, "value does", "values do"), counted(3, "row")
    ('1 value does', '3 rows')
    """
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"


def meant(word: str, known: Iterable[str]) -> str:
    """A question that asks for the most similar of some words; empty if none is.

    Examples
    --------
    >>> meant("HorTh", ["age", "horTh"])
    "; did you mean 'horTh'?"
    """
    by_lower = {other.lower(): other for other in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.7)
    return f"; did you mean {by_lower[close[0]]!r}?" if close else ""
