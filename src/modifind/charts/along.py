"""Figures along the values of one feature: effects, distances, quantiles and outcome distributions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from modifind._typing import Array
from modifind.charts.displays import AlongDisplay, Display, SingleDisplay, caption_along, column_of
from modifind.charts.labels import (
    MISSING,
    PLAIN_WORDS,
    Words,
    number,
    percent,
    shortened,
    shown,
    value_text,
    with_limits,
)
from modifind.charts.spec import Band, Bars, Caption, Figure, Key, Line, Mark, Panel, Places, Rule, limits_of, values_of
from modifind.data.words import printable
from modifind.result.selection_result import SelectionResult


@dataclass(eq=False, repr=False)
class CurveDisplay(AlongDisplay):
    """Mean effect, and the ratio of standard deviations, along one feature, with 95% bands.

    For a binary outcome only the mean effect, which determines the ratio.

    Parameters
    ----------
    feature : str
        Name of the feature.
    curve : DataFrame
        Output of `SelectionResult.curve`. Bands are drawn where it has columns for them, and points marked in its
        column `low_support` are drawn in grey.
    discrete : bool
        Whether the feature has categories.
    overall : mapping, optional
        `mean_effect` and `sd_ratio` of all rows together, drawn as dashed lines.
    words : Words, optional
        What arms and outcome are called.

    Examples
    --------
    >>> import pandas as pd
    >>> curve = pd.DataFrame({"value": ["no", "yes"], "mean_effect": [0.1, 1.2], "sd_ratio": [1.0, 1.4]})
    >>> display = CurveDisplay("smoker", curve, discrete=True).plot()
    >>> [label.get_text() for label in display.axes_[0].get_xticklabels()]
    ['no', 'yes']
    """

    overall: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    what: ClassVar[str] = "curves"

    @classmethod
    def from_result(cls, result: SelectionResult, feature: str) -> Self:
        """Curve of one feature of a result, or of one column of a group."""
        return replace(super().from_result(result, feature), overall=result.overall)

    def spec(self) -> Figure:
        """The mean above the spread, if there is one; side by side if categories are listed in rows."""
        short, places = self.words.short, self.places
        average = Panel(places, (Rule("neutral", 0.0),), f"mean effect on {short.outcome}", short.difference)
        if short.is_ratio:
            compared = f"{short.treated} / {short.control}"
            average = Panel(places, (Rule("neutral", 1.0),), f"{short.effect}, {short.outcome}", compared)
            average = replace(average, within=(0.0, math.inf))
        average = replace(average, keys=(Key("neutral", "no effect"),))
        panels = [self._drawn(average, "mean_effect", "average", self._average_note())]
        if not self.words.binary:  # whose spread follows from its average
            spread = Panel(places, (Rule("neutral", 1.0),), "ratio of standard deviations")
            spread = replace(spread, unit=f"{short.treated} / {short.control}", keys=(Key("neutral", "equal spread"),))
            note = f"How much outcomes vary under {self.words.treated} relative to {self.words.control}: above 1 they "
            note += "vary more (ratio of standard deviations)."
            panels.append(self._drawn(replace(spread, within=(0.0, math.inf)), "sd_ratio", "spread", note))
        if places.sideways:
            return Figure(tuple(panels), places.height(), columns=len(panels), legend_columns=2)
        return Figure(tuple(panels), len(panels) * places.height())

    def _average_note(self) -> str:
        words = self.words
        if words.is_ratio:
            return _ratio_note(words)
        note = f"Average {shortened(words.outcome, 200)} under {words.treated} minus that under {words.control}"
        if words.binary:
            note = f"Share with the outcome under {words.treated} minus the share under {words.control}"
        return note + "; logarithms, so that 0.1 is about 10% more and \u22120.7 half as much" * words.log + "."

    def _drawn(self, panel: Panel, name: str, role: str, note: str) -> Panel:
        """Panel with the curve, its band and the overall effect."""
        values, low, high = limits_of(self.curve, name)
        marks: list[Mark] = [*panel.marks]
        keys = [*panel.keys]
        whole = float(self.overall.get(name, math.nan))
        if np.isfinite(low).any():
            marks.append(Band(role, low, high))
            keys.append(Key(role, "95% band", "band"))
        if math.isfinite(whole):
            marks.append(Rule("overall", whole))
            keys.append(Key("overall", self.words.whom, long=f"{self.words.whom}, {number(whole)}"))
        title = {"average": self.words.effect.capitalize(), "spread": "Spread"}[role]
        rows = zip(values_of(self.curve, "rows_treated"), values_of(self.curve, "rows_control"), strict=True)
        near = ["" if math.isnan(a + b) else f"; about {a:,.0f} + {b:,.0f} rows" for a, b in rows]
        texts = [
            f"{title.lower()} {with_limits(*known)}{rows}" for *known, rows in zip(values, low, high, near, strict=True)
        ]
        caption = caption_along(panel.places, title, note, texts)
        return replace(panel, marks=(*marks, Line(role, values)), keys=tuple(keys), caption=caption)


def _ratio_note(words: Words) -> str:
    """Explanation of a ratio of the arms, in one sentence."""
    outcome, arms = shortened(words.outcome, 200), f"under {words.treated} divided by that under {words.control}"
    what = {
        "risk ratio": "Share with the outcome",
        "odds ratio": "Odds of the outcome",
        "common odds ratio": f"Odds of a higher level of {outcome}, on average over levels,",
        "rate ratio": f"Average count of {outcome}",
    }.get(words.effect, f"Average {outcome}")
    return f"{what} {arms}: 1 where the arms do not differ."


class D2Display(AlongDisplay, SingleDisplay):
    """Squared distance (MMD) between the outcome distributions of both arms along one feature.

    Parameters
    ----------
    feature : str
        Name of the feature.
    curve : DataFrame
        Output of `SelectionResult.curve`: `value`, `d2` and, where known, its 95% band (`d2_low`, `d2_high`) and the
        null band (`d2_null_low`, `d2_null_high`), where the curve would lie if the feature modified nothing.
    discrete : bool
        Whether the feature has categories.
    words : Words, optional
        What the arms are called.

    Examples
    --------
    >>> import pandas as pd
    >>> curve = pd.DataFrame({"value": [40.0, 50.0, 60.0], "d2": [0.02, 0.03, 0.09]})
    >>> D2Display("age", curve, discrete=False).plot().ax_.get_xlabel()
    'age'
    """

    what: ClassVar[str] = "distances"

    def spec(self) -> Figure:
        """The distance, over the range expected if the feature changed nothing."""
        places, marks, keys = self.places, list[Mark](), list[Key]()
        values, low, high = limits_of(self.curve, "d2")
        _, null_low, null_high = limits_of(self.curve, "d2_null")
        note = f"How far apart outcomes under {self.words.treated} and under {self.words.control} are in any respect"
        note += " (squared kernel distance)."
        if np.isfinite(null_low).any():
            marks.append(Band("null", null_low, null_high, box=0.6, marks_weak=False))
            keys.append(Key("null", "if it changed nothing", "box"))
            note += " A curve that leaves the hatched range suggests a change."
        if np.isfinite(low).any():
            marks.append(Band("distance", low, high))
            keys.append(Key("distance", "95% band", "band"))
        texts = [
            f"distance {with_limits(*known)}"
            + ("" if math.isnan(start) else f"; if it changed nothing {number(start)} to {number(stop)}")
            for *known, start, stop in zip(values, low, high, null_low, null_high, strict=True)
        ]
        caption = caption_along(places, "Distance between the arms", note, texts)
        marks.append(Line("distance", values))
        label, limits = "distance of the\narms' outcomes (D²)", (0.0, math.inf)
        panel = Panel(places, tuple(marks), label, keys=tuple(keys), holds=(0.0,), within=limits, caption=caption)
        return Figure((panel,), places.height(2.5))


QUANTILES = (10, 50, 90)
NOTE = (
    "Effect on low (10%), middle (50%) and high (90%) outcomes. Lines that run together mean a shift of the whole "
    "distribution, lines that fan out a change in spread or shape."
)


class QuantileDisplay(AlongDisplay, SingleDisplay):
    """Effects at the 10, 50 and 90% quantiles of the outcome along one feature, which fan out if the spread changes.

    Parameters
    ----------
    feature : str
        Name of the feature.
    curve : DataFrame
        Output of `SelectionResult.curve`: `value`, `q10_effect`, ... and, where known, their 95% bands.
    discrete : bool
        Whether the feature has categories.
    words : Words, optional
        What arms and outcome are called.

    Examples
    --------
    >>> import pandas as pd
    >>> effects = {f"q{q}_effect": [0.0, q / 50 - 1] for q in (10, 50, 90)}
    >>> display = QuantileDisplay("age", pd.DataFrame({"value": [40.0, 60.0], **effects}), discrete=False).plot()
    >>> [round(float(line.get_ydata()[1]), 2) for line in display.ax_.lines[:3]]
    [-0.8, 0.0, 0.8]
    """

    what: ClassVar[str] = "quantile effects"

    def spec(self) -> Figure:
        """Three lines with their bands; for categories, three points side by side."""
        known = {q: limits_of(self.curve, f"q{q}_effect") for q in QUANTILES if f"q{q}_effect" in self.curve}
        marks: list[Mark] = [Rule("neutral", 0.0)]
        for k, (q, (values, low, high)) in enumerate(known.items()):
            shift = 0.2 * (k - 1)
            if np.isfinite(low).any():
                marks.append(Band(f"q{q}", low, high, shift=shift))
            marks.append(Line(f"q{q}", values, f"{q}%", shift))
        texts = ["; ".join(parts) for parts in zip(*(_said(q, limits) for q, limits in known.items()), strict=True)]
        caption = caption_along(self.places, "Low, middle and high outcomes", NOTE, texts)
        lines = [Key(f"q{q}", f"{q}%", "point" if self.discrete else "line") for q in known]
        label, unit = f"quantile effect on {self.words.short.outcome}", self.words.short.difference
        keys = (Key("neutral", "no effect"), *lines)
        panel = Panel(self.places, tuple(marks), label, unit, keys=keys, caption=caption)
        return Figure((panel,), 1.3 * self.places.height(2.1))


def _said(q: int, limits: tuple[Array, ...]) -> list[str]:
    """Hover text of a quantile at each point."""
    return [f"{q}%: {with_limits(*row)}" for row in zip(*limits, strict=True)]


ARMS = ("treated", "control")
DEFAULT_NUMBERS = 3  # values of a continuous feature that are shown unless the user chooses
MAX_SIDE_BY_SIDE = 3
MAX_LEVEL_TICKS = 12
TITLES, TITLE = {1: 40, 2: 22, 4: 22}, 14  # letters above axes by the number of values, and above three in a row


@dataclass(eq=False, repr=False)
class DensityDisplay(Display):
    """Outcome densities of both arms at chosen values of a feature, each with the witness function beneath.

    Where the witness function is above zero, outcomes are more common under treatment. For an outcome with few distinct
    values, shares are drawn as bars.

    Parameters
    ----------
    feature : str
        Name of the feature.
    densities : DataFrame
        Output of `SelectionResult.density`, at the values that are to be drawn.
    words : Words, optional
        What arms and outcome are called, and whether the outcome has few distinct values, so that shares are drawn.

    Attributes
    ----------
    values_ : list
        Values of the feature, in drawing order; NaN or None stands for rows without a value.
    figure_, axes_ : Figure, list of Axes
        What `plot` drew on: the densities of every value, then the witness functions of every value.

    Examples
    --------
    >>> from modifind.datasets import load_trial
    >>> from modifind import EffectLikelihood, ModifierSelector
    >>> trial = load_trial()
    >>> selector = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", random_state=0)
    >>> result = selector.fit(trial.X[["age", "smoker"]], trial.y, treatment=trial.treatment).result_
    >>> DensityDisplay.from_result(result, "smoker").values_
    ['no', 'yes']
    """

    feature: str
    densities: pd.DataFrame
    _: KW_ONLY
    words: Words = PLAIN_WORDS

    def __post_init__(self) -> None:
        self.values_ = list(self.densities["value"].drop_duplicates())

    @classmethod
    def from_result(
        cls, result: SelectionResult, feature: str, *, values: Sequence[Any] | None = None
    ) -> DensityDisplay:
        """Densities at values of one feature of a result, or of one column of a group.

        Parameters
        ----------
        result : SelectionResult
            A result whose fit explained the feature.
        feature : str
            Name of the feature.
        values : sequence, optional
            Which of the values that the result has densities at: for a number the nearest one, for a category that
            one, for "missing" the rows without a value. By default all categories, or three numbers.
        """
        column = column_of(result, feature, "densities")
        densities = result.density(column)
        numbers = result.kind(column) != "discrete"
        drawn = _default(densities, numbers) if values is None else _chosen(densities, numbers, values, feature)
        parts = [densities[_is(densities["value"], value)] for value in drawn]
        return cls(feature, pd.concat(parts, ignore_index=True), words=Words.of(result))

    def spec(self) -> Figure:
        """For every value the densities, with the witness function below; all on the same scales."""
        n = len(self.values_)
        columns = n if n <= MAX_SIDE_BY_SIDE else (2 if n == 4 else MAX_SIDE_BY_SIDE)
        parts = [self.densities[_is(self.densities["value"], value)] for value in self.values_]
        upper = [self._upper(value, part) for value, part in zip(self.values_, parts, strict=True)]
        lower = [self._lower(part) for part in parts]
        height = 0.35 + 2.6 * -(-n // max(columns, 1))
        return Figure((*upper, *lower), height, columns=columns, ratios=(1.5, 1.0))

    def _upper(self, value: Any, part: pd.DataFrame) -> Panel:
        words, short = self.words, self.words.short
        (treated, _, _), (control, _, _), (witness, _, _) = (limits_of(part, name) for name in (*ARMS, "witness"))
        write = percent if self.words.levels else number
        peaks = [number(_peak(part["outcome"].to_numpy(dtype=float), arm)) for arm in (treated, control)]
        about = f"Outcomes of both arms where {self.feature} is {value_text(value)}. Most common near {peaks[0]} under "
        about += f"{words.treated} and near {peaks[1]} under {words.control}."
        # Very many points say the same words: these are kept once.
        what = "share " if self.words.levels else "density "
        said = (what, f" under {words.treated}, ", f" under {words.control}; difference ")
        rows = zip(treated, control, witness, strict=True)
        texts = tuple((write(t), write(c), f"{'+' * bool(w > 0)}{write(w)}") for t, c, w in rows)
        form = "box" if self.words.levels else "line"
        keys = tuple(Key(arm, getattr(short, arm), form, getattr(words, arm)) for arm in ARMS)
        panel = self._panel(part, ARMS, what.strip(), title=self._title(value), keys=keys, joined=True)
        return replace(panel, within=(0.0, math.inf), caption=Caption(about=about, words=said, texts=texts))

    def _panel(self, part: pd.DataFrame, names: Sequence[str], label: str, **words: Any) -> Panel:
        """Panel of lines or bars, on the same scale at all values."""
        held = [0.0, *(float(height) for name in names for side in limits_of(self.densities, name) for height in side)]
        known = [value for value in held if math.isfinite(value)]
        words |= {"holds": (min(known), max(known)), "percent": self.words.levels}
        weak = "low_support" in part and bool(part["low_support"].any())
        return Panel(self._places(part), self._marks(part, names), label, weak=weak, **words)

    def _lower(self, part: pd.DataFrame) -> Panel:
        remark = f"more common under {shortened(self.words.treated, 100)} ↑"
        panel = self._panel(part, ("witness",), "witness\n(difference)", remark=remark)
        return replace(panel, marks=(Rule("neutral", 0.0), *panel.marks))

    def _places(self, part: pd.DataFrame) -> Places:
        outcome = part["outcome"].to_numpy(dtype=float)
        name = self.words.short.outcome
        if not self.words.levels:
            return Places.numbers(name, outcome, (self.densities["outcome"].min(), self.densities["outcome"].max()))
        steps = slice(None, None, -(-outcome.size // MAX_LEVEL_TICKS))
        ticks = [(float(k), number(level)) for k, level in enumerate(outcome)][steps]
        places = Places.numbers(name, np.arange(outcome.size, dtype=float), (-0.5, outcome.size - 0.5), ticks)
        return replace(places, labels=tuple(map(number, outcome)))

    def _marks(self, part: pd.DataFrame, names: Sequence[str]) -> tuple[Mark, ...]:
        """Lines over their bands, or bars side by side."""
        known = {name: limits_of(part, name) for name in names}
        if self.words.levels:
            wide = 0.8 / len(names)
            shifts = [(k - (len(names) - 1) / 2) * wide for k in range(len(names))]
            pairs = zip(known.items(), shifts, strict=True)
            return tuple(Bars(name, *limits, width=0.92 * wide, shift=shift) for (name, limits), shift in pairs)
        bands = [Band(name, low, high) for name, (_, low, high) in known.items() if np.isfinite(low).any()]
        return (*bands, *(Line(name, values) for name, (values, _, _) in known.items()))

    def _title(self, value: Any) -> str:
        """The feature and its value, on two lines if necessary; only the name of long categories."""
        name, letters = printable(str(self.feature)), TITLES.get(len(self.values_), TITLE)
        longest = max(len(value_text(shown_value)) for shown_value in self.values_)
        if len(name) + 3 + longest <= letters:
            return f"{name} = {value_text(value)}"
        if longest + 2 <= letters:
            return f"{shown(name, letters - 2, lines=1)}\n= {value_text(value)}"
        return shown(value_text(value), letters - 2)


def _peak(outcome: Array, density: Array) -> float:
    return float(outcome[int(np.nanargmax(density))]) if np.isfinite(density).any() else math.nan


def _is(values: pd.Series[Any], value: Any) -> pd.Series[bool]:
    missing = value_text(value) == MISSING and not isinstance(value, str)
    return values.isna() if missing else values == value


def _default(densities: pd.DataFrame, numbers: bool) -> list[Any]:
    """All categories; for numbers the lowest, middle and highest with enough rows, and missing values."""
    values = densities["value"].drop_duplicates()
    if not numbers:
        return list(values)
    weak = densities["low_support"] if "low_support" in densities else np.zeros(len(densities), dtype=bool)
    few = values.isin(densities["value"][weak])
    there = values[values.notna()]
    strong = list(there[~few[there.index]]) or list(there)
    places = np.linspace(0, max(len(strong) - 1, 0), DEFAULT_NUMBERS).round().astype(int)
    return [*(strong[place] for place in np.unique(places) if strong), *values[values.isna()]]


def _chosen(densities: pd.DataFrame, numbers: bool, values: Sequence[Any], feature: str) -> list[Any]:
    """Positions of the values requested by the user, without duplicates."""
    known = list(densities["value"].drop_duplicates())
    asked = [values] if isinstance(values, str) else values
    places = dict.fromkeys(_place(known, value, numbers, feature) for value in asked)
    if not places:
        raise ValueError(f"values must name at least one value of {feature!r}: {', '.join(map(value_text, known))}")
    return [known[place] for place in places]


def _place(known: list[Any], value: Any, numbers: bool, feature: str) -> int:
    """Position of the nearest number, or of the category."""
    texts = [*map(value_text, known)]
    if numbers and value_text(value) != MISSING:
        try:
            there = [k for k, number in enumerate(known) if not pd.isna(number)]
            return min(there, key=lambda k: abs(known[k] - float(value)))
        except (TypeError, ValueError):
            raise ValueError(f"{feature!r} has numbers; {value!r} is not one") from None
    if value_text(value) not in texts:
        raise ValueError(f"no densities of {feature!r} at {value!r}; available: {', '.join(texts)}")
    return texts.index(value_text(value))
