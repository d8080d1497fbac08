"""The user's names as they are written on axes: plain text, wrapped or shortened where they are long."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from modifind.data.population import SHORT_NAMES
from modifind.data.wording import printable

if TYPE_CHECKING:
    from modifind.result.selection_result import SelectionResult

MISSING = "missing"
LARGE = 1e4  # numbers from here on have no decimals
TAIL = 9  # letters kept of the end of a long name, which often tells it from its neighbours


def shown(name: Any, width: int = 26, lines: int = 2) -> str:
    """A name on at most `lines` lines of about `width` letters; the middle of a longer one is left out.

    Examples
    --------
    >>> shown("age")
    'age'
    >>> print(shown("secondary school, no degree or not known", width=16))
    secondary
    school, no…known
    """
    text = printable(str(name))
    if len(text) <= width:
        return text
    # The last word where it is short enough, else the last letters.
    tail = next((end for end in re.findall(r"(?=[\s_](\w{3,})$)", text) if len(end) <= TAIL), text[-TAIL:].lstrip())
    room = lines * width
    for size in range(room, room // 2, -1):
        short = text if len(text) <= size else f"{text[: size - len(tail) - 1].rstrip()}…{tail}"
        wrapped = wrap(short, width)
        if wrapped.count("\n") < lines:
            break
    return wrapped


def wrap(text: str, width: int) -> str:
    r"""Text on lines of at most `width` letters, broken at spaces and after signs such as the underscore.

    Examples
    --------
    >>> wrap("baseline_blood_pressure", 16)
    'baseline_blood_\npressure'
    """
    lines = [""]
    for word in re.split(r"(?<=[\s_/.,;:)-])", text):
        if lines[-1] and len(lines[-1]) + len(word.rstrip()) > width:
            lines.append("")
        lines[-1] += word
        while len(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return "\n".join(line.strip() for line in lines)


def tick_labels(values: Iterable[Any], width: int = 26) -> list[str]:
    """Labels of categories in their order, told apart by a number where shortening makes them the same.

    Examples
    --------
    >>> tick_labels(["no", "yes", None, 2.0])
    ['no', 'yes', 'missing', '2']
    """
    labels: list[str] = []
    seen: dict[str, int] = {}
    for value in values:
        label = shown(value_text(value), width)
        seen[label] = seen.get(label, 0) + 1
        labels.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return labels


def row_height(labels: Iterable[str], height: float) -> float:
    """Inches for each of some labels one below the other: more where one has two lines."""
    return max(height, 0.29) if any("\n" in label for label in labels) else height


def value_text(value: Any) -> str:
    """A value of a feature in words: a category's name, a number in few digits, or "missing"."""
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return MISSING
    if isinstance(value, float):
        return f"{value:.0f}" if LARGE <= abs(value) < 1e9 else f"{value:.4g}"
    return str(value)


def p_text(p_value: float) -> str:
    """A p-value beside a picture.

    Examples
    --------
    >>> p_text(0.03), p_text(1e-7)
    ('p = 0.030', 'p < 0.001')
    """
    return f"p = {p_value:.3f}" if p_value >= 0.001 else "p < 0.001"


@dataclass(frozen=True)
class Words:
    """What the arms, the outcome and those whom effects are about are called on axes and in legends."""

    treated: str = "treated"
    control: str = "control"
    outcome: str = "outcome"
    whom: str = "all rows"

    @classmethod
    def of(cls, result: SelectionResult) -> Words:
        """The words of a result."""
        settings = result.settings
        treated, control = (shown(settings.get(f"{arm}_label", arm), 14, lines=1) for arm in ("treated", "control"))
        outcome = shown(settings.get("outcome_name") or "outcome", 24, lines=1)
        outcome = f"log {outcome}" if settings.get("outcome_transform") == "log" else outcome
        return cls(treated, control, outcome, SHORT_NAMES[settings.get("population") or "all"])

    @property
    def difference(self) -> str:
        """What an effect is."""
        return f"{self.treated} minus {self.control}"
