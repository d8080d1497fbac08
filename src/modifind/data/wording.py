"""Words that messages are made of."""

from __future__ import annotations

import difflib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from modifind._warned import warn

MAX_SHOWN = 10  # columns that one warning names


def counted(number: int, thing: str, things: str = "") -> str:
    """A number and what it counts, in the singular for one.

    Examples
    --------
    >>> counted(1, "value does", "values do"), counted(3, "row")
    ('1 value does', '3 rows')
    """
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"


def gaps(missing: int, infinite: int) -> str:
    """How many values are missing or infinite.

    Examples
    --------
    >>> gaps(2, 0), gaps(1, 1)
    ('2 missing values', '1 missing value and 1 infinite value')
    """
    counts = (("missing", missing), ("infinite", infinite))
    return " and ".join(counted(number, f"{kind} value") for kind, number in counts if number)


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


def printable(text: str) -> str:
    r"""Text with line ends, escape sequences and the like written out.

    Examples
    --------
    >>> print(printable("dose\x1b[31m\n"))
    dose\x1b[31m\n
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def named(names: Iterable[Any], between: str = ", ") -> str:
    r"""Names in a sentence: as they are, but for what a terminal would obey, which is written out.

    Examples
    --------
    >>> print(named(["dose\x1b[31m", "age"]))
    dose\x1b[31m, age
    """
    return printable(between.join(map(str, names)))


def respelled(label: Any) -> str:
    r"""A label without what people do not see: case, blanks, and the form of its letters in Unicode.

    Examples
    --------
    >>> respelled("Usual\xa0 care ") == respelled("usual care"), respelled("Zu\u0308rich") == respelled("Z\xfcrich")
    (True, True)
    """
    text = unicodedata.normalize("NFKC", str(label)).casefold()
    seen = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", seen).split())


def listed(names: Iterable[Any], most: int | None = None) -> str:
    r"""Names in a message: each in quotation marks, and what a terminal would obey written out.

    Parameters
    ----------
    names : iterable
        The names.
    most : int, optional
        How many are shown.

    Examples
    --------
    >>> print(listed(["dose\x1b[31m", "age"]), listed("abc", most=2))
    'dose\x1b[31m', 'age' 'a', 'b', ...
    """
    quoted = [repr(name) for name in names]
    return ", ".join(quoted[:most]) + ", ..." * (most is not None and len(quoted) > most)


def shortened(names: Sequence[Any], most: int = 6, between: str = ", ") -> str:
    """The first of many names.

    Examples
    --------
    >>> shortened("abcd", 2)
    'a, b and 2 more'
    """
    more = len(names) - most
    return named(names[:most], between) + (f" and {more} more" if more > 0 else "")


def refuse_any(columns: Sequence[str], sentence: str) -> None:
    """Refuse columns if there are any: a guard is the columns that it speaks of, and the sentence that names them.

    Examples
    --------
    >>> refuse_any([], "{}: holds dates")
    >>> refuse_any(["visit"], "{}: holds dates")
    Traceback (most recent call last):
    ...
    ValueError: visit: holds dates
    """
    if columns:
        raise ValueError(sentence.replace("{}", named(columns), 1))


def warn_of_any(
    columns: Sequence[str], one: str, several: str = "", between: str = ", ", most: int = MAX_SHOWN
) -> None:
    """Warn of columns if there are any, in one sentence that has {} where they are named."""
    if columns:
        sentence = one if len(columns) == 1 else several or one
        warn(sentence.replace("{}", shortened(columns, most, between), 1))


def refuse_other(argument: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse a setting that is none of its choices.

    Examples
    --------
    >>> refuse_other("missing", "all", ("error", "drop"))
    Traceback (most recent call last):
    ...
    ValueError: missing must be one of 'error', 'drop', not 'all'
    """
    if value not in choices:
        raise ValueError(f"{argument} must be one of {listed(choices)}, not {value!r}")


def repeated(names: Iterable[str]) -> list[str]:
    """Names that occur more than once.

    Examples
    --------
    >>> repeated("abcab")
    ['a', 'b']
    """
    return [name for name, count in Counter(names).items() if count > 1]


def check_part(argument: str, part: Any, *methods: str) -> None:
    """Refuse a class that is passed for an object, and an object that lacks a method.

    Examples
    --------
    >>> check_part("sampler", 3, "fit", "conditional")
    Traceback (most recent call last):
    ...
    ValueError: sampler must be a name or have fit and conditional; int has no fit and no conditional
    """
    if isinstance(part, type):
        raise ValueError(f"{argument} must be an object, {part.__name__}(...), not the class")
    if lacks := [method for method in methods if not callable(getattr(part, method, None))]:
        raise ValueError(
            f"{argument} must be a name or have {' and '.join(methods)}; {type(part).__name__} has no "
            f"{' and no '.join(lacks)}"
        )
