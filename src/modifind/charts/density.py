"""Outcome distributions of both arms at values of one feature, and where they differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from modifind._typing import Array
from modifind.charts.base import Display, column_of
from modifind.charts.labels import MISSING, PLAIN_WORDS, Words, number, percent, shortened, shown, value_text
from modifind.charts.spec import Band, Bars, Caption, Figure, Key, Line, Mark, Panel, Places, Rule, limits_of
from modifind.data.wording import printable
from modifind.result.selection_result import SelectionResult

ARMS = ("treated", "control")
DEFAULT_NUMBERS = 3  # values of a continuous feature that are shown unless the user chooses
MAX_ABREAST = 3
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
        """Densities at values of one feature of a result; of a group, of one of its columns.

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
        """For every value the densities, and the witness function beneath; the same scales for all."""
        n = len(self.values_)
        columns = n if n <= MAX_ABREAST else (2 if n == 4 else MAX_ABREAST)
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
        """Lines or bars with the same scale at all values."""
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
        """Lines over their bands, or bars beside each other."""
        known = {name: limits_of(part, name) for name in names}
        if self.words.levels:
            wide = 0.8 / len(names)
            shifts = [(k - (len(names) - 1) / 2) * wide for k in range(len(names))]
            pairs = zip(known.items(), shifts, strict=True)
            return tuple(Bars(name, *limits, width=0.92 * wide, shift=shift) for (name, limits), shift in pairs)
        bands = [Band(name, low, high) for name, (_, low, high) in known.items() if np.isfinite(low).any()]
        return (*bands, *(Line(name, values) for name, (values, _, _) in known.items()))

    def _title(self, value: Any) -> str:
        """The feature and its value, on two lines where one is too short for any; of long categories the name alone."""
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
    """All categories; of numbers the lowest, the middle and the highest with enough rows, and rows without one."""
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
    """The values that the user asks for, each once."""
    known = list(densities["value"].drop_duplicates())
    asked = [values] if isinstance(values, str) else values
    places = dict.fromkeys(_place(known, value, numbers, feature) for value in asked)
    if not places:
        raise ValueError(f"values must name at least one value of {feature!r}: {', '.join(map(value_text, known))}")
    return [known[place] for place in places]


def _place(known: list[Any], value: Any, numbers: bool, feature: str) -> int:
    """Place of the nearest number, or of the category."""
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
