"""Which of two labels of a treatment means treated: read where it is unmistakable, asked for where it is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modifind.data.wording import listed

# docs/quickstart.md lists these for users.
CONTROL_WORDS = frozenset(
    (
        *("control", "controls", "control arm", "control group", "placebo", "sham", "vehicle", "none", "no", "off"),
        *("untreated", "not treated", "no treatment", "no intervention", "nothing"),
        *("usual care", "care as usual", "treatment as usual", "standard care", "standard of care"),
    )
)
# Control and treated, where the control would say nothing beside another label.
PAIRS = frozenset((("0", "1"), ("n", "y"), ("f", "t"), ("c", "t")))
NEGATIONS = ("no ", "not ", "non-", "non ", "non", "un", "without ", "never ")


def first_treated(labels: Sequence[Any], treated: Any, name: str = "treatment") -> bool:
    """Whether the first of two labels, in their natural order, is the treated one.

    Parameters
    ----------
    labels : sequence of two
        The labels.
    treated : object or None
        The label that the user named. Case and blanks do not matter, and 1, "1", 1.0 and True are the same.
    name : str, default="treatment"
        What messages call the column.

    Raises
    ------
    ValueError
        There are not two labels, none of them is `treated`, or nothing says which is.

    Examples
    --------
    >>> first_treated(("drug", "Placebo "), None), first_treated(("exposed", "unexposed"), None)
    (True, True)
    >>> first_treated(("new", "old"), "NEW")
    True
    >>> first_treated(("new", "old"), None)
    Traceback (most recent call last):
    ...
    ValueError: treatment has the labels 'new' and 'old', and nothing says which of them means treated; name it with \
treated=
    """
    if len(labels) != 2:
        alike = len({_plain(label) for label in labels}) == 2
        more = ". Some differ in capitals or blanks only; write these alike" * alike
        raise ValueError(f"{name} must have exactly two values; found {len(labels)}: {listed(labels, most=5)}{more}")
    if treated is not None:
        return _named(labels, treated, name)
    words = [_plain(label) for label in labels]
    if (words[0], words[1]) in PAIRS:
        return False
    if (words[1], words[0]) in PAIRS:
        return True
    controls = [_is_control(*words), _is_control(*words[::-1])]
    if controls[0] == controls[1]:
        raise ValueError(
            f"{name} has the labels {labels[0]!r} and {labels[1]!r}, and nothing says which of them means treated; "
            "name it with treated="
        )
    return controls[1]


def _named(labels: Sequence[Any], treated: Any, name: str) -> bool:
    """Whether the user named the first label; the same in every letter counts before the same but for case."""
    for form in (str, _plain):
        matches = [form(label) == form(treated) for label in labels]
        if sum(matches) == 1:
            return matches[0]
    raise ValueError(f"treated={treated!r} is not a value of {name}: {labels[0]!r}, {labels[1]!r}")


def _is_control(word: str, other: str) -> bool:
    """Whether a label means control beside the other one."""
    return word in CONTROL_WORDS or any(word == negation + other for negation in NEGATIONS)


def _plain(label: Any) -> str:
    """A label without case and blanks, a whole number and a truth value as the same digit.

    Examples
    --------
    >>> [_plain(label) for label in (1, "1", 1.0, "1.0", True, "true", " Usual  care")]
    ['1', '1', '1', '1', '1', '1', 'usual care']
    """
    text = " ".join(str(label).split()).casefold()
    if text in ("false", "true"):
        return str(int(text == "true"))
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else str(number)
