"""Text of figures and reports: names as plain text, wrapped or shortened, and formatted numbers."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from modifind.data.weights import SHORT_NAMES
from modifind.data.words import printable
from modifind.result.presentation import effect_name, scale_of

if TYPE_CHECKING:
    from modifind.result.selection_result import SelectionResult

MINUS = "\u2212"
MISSING = "missing"
HYPHEN = re.compile(r"(?<![\w.)-])-(?=\.?\d)")
MIN_FIXED, MAX_FIXED = 1e-4, 1e7  # numbers that are written without a power of ten
TAIL = 9  # letters kept of the end of a long name, which often tells it from its neighbours
LETTER = 6.2  # pixels of a letter of the labels of a drawing
UNINFORMATIVE_LABELS = frozenset(
    ("yes", "no", "y", "n", "true", "false", "0", "1", "2")
)  # arms that say nothing by themselves


def shown(name: Any, width: int = 26, lines: int = 2) -> str:
    """A name on at most `lines` lines of about `width` characters, shortened in the middle if longer.

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
    r"""Wrap text to lines of at most `width` characters, at spaces and after characters such as the underscore.

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
    """Labels of categories, numbered if shortening makes them equal.

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


def shortened(text: str, room: float, *, middle: bool = False) -> str:
    """Text shortened to a width in pixels, with an ellipsis at the end or in the middle.

    Examples
    --------
    >>> shortened("kidney function", 60), shortened("clinic of the north, ward 12", 95, middle=True)
    ('kidney f…', 'clinic…ward 12')
    """
    text = " ".join(str(text).split())
    if text_width(text) <= room:
        return text
    room -= LETTER
    end = _fitting(text[::-1], room / 2)[::-1] if middle else ""
    return f"{_fitting(text, room - text_width(end)).rstrip()}…{end.lstrip()}"


def _fitting(text: str, room: float) -> str:
    """The longest prefix that fits."""
    return text[: sum(width <= room for width in accumulate(map(text_width, text)))]


def typographic(text: str) -> str:
    """Text with true minus signs instead of hyphens before numbers.

    Examples
    --------
    >>> typographic("-0.5 to 18-25, x-1")
    '−0.5 to 18-25, x-1'
    """
    return HYPHEN.sub(MINUS, text)


def text_width(text: str) -> float:
    """Approximate width in pixels of a text in a drawing."""
    return sum(2 * LETTER if unicodedata.east_asian_width(letter) in "WF" else LETTER for letter in text)


def value_text(value: Any) -> str:
    """A feature value as text: a category's name, a number in few digits, or "missing".

    Examples
    --------
    >>> value_text(54.321987), value_text(2.0), value_text("yes"), value_text(float("nan"))
    ('54.32', '2', 'yes', 'missing')
    """
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return MISSING
    if isinstance(value, float | np.floating):
        text = f"{value:,.0f}" if 1e4 <= abs(float(value)) < 1e9 else f"{value:.4g}"
        return text.replace("-", MINUS)
    return str(value).replace("-", MINUS) if isinstance(value, int | np.integer) else str(value)


def number(value: float) -> str:
    """A number for readers: three digits, separated thousands, a true minus sign.

    Examples
    --------
    >>> number(-3.14159), number(12345.6), number(0.00001234), number(float("nan"))
    ('−3.14', '12,346', '1.23e−05', 'not known')
    """
    if math.isnan(value):
        return "not known"
    if math.isinf(value):
        return "infinite" if value > 0 else "minus infinite"
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"
    return ("0" if text in ("-0", "0") else text).replace("-", MINUS)


def percent(value: float, digits: int = 1) -> str:
    """A share as a percentage."""
    return "not known" if math.isnan(value) else f"{100 * value:.{digits}f}%".replace("-", MINUS)


def with_limits(value: float, low: float, high: float, *, ratio: bool = False) -> str:
    """A number with its limits if known, all with as many decimals as their width warrants.

    Ratios have at least two decimals, as is customary.

    Examples
    --------
    >>> with_limits(-1.8612, -3.9, 0.187), with_limits(12345.6, 12001.0, 12690.2), with_limits(0.5, 0.5, 0.5)
    ('−1.9 (−3.9 to 0.2)', '12,346 (12,001 to 12,690)', '0.5 (0.5 to 0.5)')
    >>> with_limits(3.344, 2.0, 5.58, ratio=True)
    '3.34 (2.00 to 5.58)'
    """
    if math.isnan(low + high):
        return number(value)
    width = high - low
    if not (math.isfinite(width) and width > MIN_FIXED and max(abs(low), abs(high)) < MAX_FIXED):
        return f"{number(value)} ({number(low)} to {number(high)})"
    decimals = max(1 - math.floor(math.log10(width)), 2 if ratio else 0)
    # Rounded first, so that nothing is written as minus zero.
    shown = [f"{round(part, decimals) + 0.0:,.{decimals}f}".replace("-", MINUS) for part in (value, low, high)]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


@dataclass(frozen=True)
class Words:
    """Names of the arms, the outcome and the target population for use in text.

    Parameters
    ----------
    treated, control, outcome : str
        Names of the arms and of the outcome.
    log : bool
        Whether effects are differences of logarithms.
    binary, levels : bool
        Whether the outcome is 0 or 1, and whether it has few distinct values, so that shares are shown, not densities.
    population : str
        Whom effects are about.
    unit : str
        Unit of the outcome; empty where it is not known.
    better : str
        Which outcomes are better, "higher" or "lower"; empty where it is not known.
    kind, scale : str
        What the outcome is, and the scale of effects.
    """

    treated: str = "treated"
    control: str = "control"
    outcome: str = "outcome"
    log: bool = False
    binary: bool = False
    levels: bool = False
    population: str = "all"
    unit: str = ""
    better: str = ""
    kind: str = "numeric"
    scale: str = "difference"

    @classmethod
    def of(cls, result: SelectionResult) -> Words:
        """Names used by a result."""
        settings = result.settings
        few = bool(settings.get("outcome_levels"))
        two = few and any(frame["outcome"].nunique() == 2 for frame in result.densities.values())
        return cls(
            *_arms(settings),
            str(settings.get("outcome_name") or "outcome"),
            log=settings.get("outcome_transform") == "log",
            binary=two or (settings.get("model") or {}).get("likelihood") == "bernoulli",
            levels=few,
            population=str(settings.get("population") or "all"),
            unit=str(settings.get("unit") or ""),
            better=str(settings.get("better") or ""),
            **dict(zip(("kind", "scale"), scale_of(settings), strict=True)),
        )

    @property
    def short(self) -> Words:
        """Short names for axes and legends."""
        outcome = shown(self.outcome, 24, lines=1)
        return Words(
            shown(self.treated, 14, lines=1),
            shown(self.control, 14, lines=1),
            f"log {outcome}" * self.log or outcome,
            kind=self.kind,
            scale=self.scale,
        )

    @property
    def difference(self) -> str:
        """Name of a difference."""
        return f"{self.treated} minus {self.control}"

    @property
    def is_ratio(self) -> bool:
        """Whether the arms' averages are compared as a ratio."""
        return self.scale != "difference"

    @property
    def neutral(self) -> float:
        """Value of no effect."""
        return float(self.is_ratio)

    @property
    def effect(self) -> str:
        """Name of the average effect."""
        return effect_name(self.kind, self.scale) if self.is_ratio else "average effect"

    @property
    def parts(self) -> tuple[str, str, str]:
        """Names of mean, spread and shape."""
        return ("any", "how much", "shape") if self.kind == "amount" else ("average", "spread", "shape")

    @property
    def whom(self) -> str:
        """The target population, in a few words."""
        return SHORT_NAMES.get(self.population, self.population)

    @property
    def effect_label(self) -> str:
        """Axis label of average effects."""
        if self.is_ratio:
            return f"{self.short.outcome}: {self.effect}, {self.short.treated} / {self.short.control}"
        unit = f" ({shown(self.unit, 14, lines=1)})" if self.unit else ""
        return f"{self.short.outcome}{unit}: {self.short.difference}"

    @property
    def sides(self) -> str:
        """Which side of such an axis is better; empty if unknown."""
        return {"lower": "← better | worse →", "higher": "← worse | better →"}.get(self.better, "")

    def favours(self, effect: float) -> str:
        """Whether an effect is a benefit or harm; empty if the better direction is unknown."""
        if not self.better or not effect:
            return ""
        return "benefit" if (effect > 0) == (self.better == "higher") else "harm"

    @property
    def the_effect(self) -> str:
        """The object of modification: "the effect of drug compared with placebo"."""
        if (self.treated, self.control) == ("treatment", "control"):
            return "the effect of the treatment"
        return f"the effect of {shortened(self.treated, 400)} compared with {shortened(self.control, 400)}"

    @property
    def compared(self) -> str:
        """The quantity compared between arms: the outcome, its probability or its odds."""
        if self.scale == "odds_ratio":
            return f"the odds of {'a higher ' * (self.kind == 'ordinal')}{self.outcome}"
        return f"the chance of {self.outcome}" if self.binary else self.outcome

    @property
    def on_average(self) -> str:
        """The quantity that an average effect refers to."""
        return f"on {'' if self.compared.startswith('the ') else 'the average of '}{self.compared}"

    @property
    def question(self) -> str:
        """The question that the report answers, with long names shortened."""
        subject = "the treatment" if self.treated == "treatment" else shortened(self.treated, 400)
        return f"The effect of {subject} on {shortened(self.outcome, 400)}"


def _arms(settings: Mapping[str, Any]) -> tuple[str, str]:
    """Names of the arms: uninformative labels are prefixed with the name of the treatment."""
    treated, control = (str(settings.get(f"{arm}_label", arm)) for arm in ("treated", "control"))
    if treated in ("1", "1.0", "True") and control in ("0", "0.0", "False"):
        return "treatment", "control"
    if settings.get("treatment_name") and {treated.lower(), control.lower()} <= UNINFORMATIVE_LABELS:
        return f"{settings['treatment_name']} = {treated}", f"{settings['treatment_name']} = {control}"
    return treated, control


PLAIN_WORDS = Words()
