"""Which of two labels of a treatment means treated: read where it is unmistakable, asked for where it is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modifind.data.wording import listed, respelled

MAX_ARMS = 12  # a number with more values is a dose

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
    refuse_other_than_two(labels, name)
    if treated is not None:
        return match_label(labels, treated, "treated", name) == labels[0]
    refuse_alike(labels, name)
    words = [plain(label) for label in labels]
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


def refuse_other_than_two(labels: Sequence[Any], name: str) -> None:
    """Refuse labels that are not two, and say what to do about more.

    Examples
    --------
    >>> refuse_other_than_two(["a", "b", "c"], "treatment")
    Traceback (most recent call last):
    ...
    ValueError: treatment has 3 labels: 'a', 'b', 'c'; name the one that each of the others is compared with \
(reference=), or two of them (arms=)
    """
    if len(labels) == 2:
        return
    if len(labels) < 2:
        raise ValueError(f"{name} must have at least two values; found {len(labels)}: {listed(labels)}")
    refuse_doses(labels, len(labels), name)
    refuse_alike(labels, name)
    raise ValueError(
        f"{name} has {len(labels)} labels: {listed(labels, most=8)}; name the one that each of the others is compared "
        "with (reference=), or two of them (arms=)"
    )


def refuse_doses(labels: Sequence[Any], n_labels: int, name: str) -> None:
    """Refuse a treatment of many numbers, of which `labels` are some."""
    if n_labels > MAX_ARMS and all(isinstance(label, int | float) for label in labels):
        raise ValueError(
            f"{name} has more than {MAX_ARMS} distinct numbers, as a dose has, and doses are not supported; divide it "
            "into a few arms, such as none, low and high, and name the one that the others are compared with "
            "(reference=)"
        )


def refuse_alike(labels: Sequence[Any], name: str) -> None:
    """Refuse labels that are the same but for capitals, blanks and the form of letters."""
    if len({plain(label) for label in labels}) < len(labels):
        raise ValueError(
            f"{name} has {len(labels)} labels: {listed(labels, most=8)}. Some differ only in capitals, "
            "blanks or the form of letters; write these alike"
        )


def match_label(labels: Sequence[Any], wanted: Any, argument: str, name: str) -> Any:
    """The label that the user named; the same in every letter counts before the same but for case."""
    for form in (str, plain):
        matches = [label for label in labels if form(label) == form(wanted)]
        if len(matches) == 1:
            return matches[0]
    raise ValueError(f"{argument}={wanted!r} is not a value of {name}: {listed(labels, most=8)}")


def _is_control(word: str, other: str) -> bool:
    """Whether a label means control beside the other one."""
    return word in CONTROL_WORDS or any(word == negation + other for negation in NEGATIONS)


def plain(label: Any) -> str:
    """A label without case, blanks and forms of letters, a whole number and a truth value as the same digit.

    Examples
    --------
    >>> [plain(label) for label in (1, "1", 1.0, "1.0", True, "true", " Usual  care")]
    ['1', '1', '1', '1', '1', '1', 'usual care']
    """
    text = respelled(label)
    if text in ("false", "true"):
        return str(int(text == "true"))
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else str(number)
