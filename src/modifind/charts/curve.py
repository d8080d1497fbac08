"""Effect along the values of one feature."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from modifind.charts.base import AlongDisplay, caption_along
from modifind.charts.labels import Words, number, shortened, with_limits
from modifind.charts.spec import Band, Figure, Key, Line, Mark, Panel, Rule, limits_of, values_of
from modifind.result.selection_result import SelectionResult


@dataclass(eq=False, repr=False)
class CurveDisplay(AlongDisplay):
    """Mean effect, and the ratio of standard deviations, along one feature, with 95% bands.

    For an outcome of 0 and 1 only the mean effect, which determines the ratio.

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
        """The curve of one feature of a result; of a group, one of its columns."""
        return replace(super().from_result(result, feature), overall=result.overall)

    def spec(self) -> Figure:
        """The average above the spread, if there is one; beside each other where categories stand in rows."""
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
        """With the curve, its band and the effect in all rows."""
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
    """What a ratio of the arms is, in one sentence."""
    outcome, arms = shortened(words.outcome, 200), f"under {words.treated} divided by that under {words.control}"
    what = {
        "risk ratio": "Share with the outcome",
        "odds ratio": "Odds of the outcome",
        "common odds ratio": f"Odds of a higher level of {outcome}, on average over levels,",
        "rate ratio": f"Average count of {outcome}",
    }.get(words.effect, f"Average {outcome}")
    return f"{what} {arms}: 1 where the arms do not differ."
