"""Bounds on what no data identify, along the values of one feature."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np
import pandas as pd

from modifind.charts.base import Display, caption_along, column_of
from modifind.charts.labels import PLAIN_WORDS, Words, number, percent
from modifind.charts.spec import Band, Figure, Key, Line, Mark, Panel, Places, values_of
from modifind.result.selection_result import SelectionResult, p_text

SD = (
    "How much effects differ between persons",
    "Standard deviation of the effect between persons with the same value.",
)
VARIANCE = ("Variance of effects between persons", "Variance of the effect between persons with the same value.")
CORRELATION = (
    "Do both outcomes of a person go together?",
    "Correlation between a person's outcomes under {treated} and under {control}.",
)
OTHERS = "Share of persons whose outcome is "
BENEFIT = ("Share with a {higher} outcome", f"{OTHERS}{{higher}} under {{treated}} than under {{control}}.")
NO_HARM = ("Share without a {lower} outcome", f"{OTHERS}not {{lower}} under {{treated}} than under {{control}}.")
# Name of the axis, its limits, heading and how to read it.
QUANTITIES = {
    "sd": ("sd of the effect\non {outcome}", (0.0, math.inf), *SD),
    "var": ("variance of the effect\non {outcome}", (0.0, math.inf), *VARIANCE),
    "corr": ("correlation of the\npotential outcomes", (-1.0, 1.0), *CORRELATION),
    "benefit": ("share with a {higher}\n{outcome} if treated", (0.0, 1.0), *BENEFIT),
    "no_harm": ("share without a {lower}\n{outcome} if treated", (0.0, 1.0), *NO_HARM),
}
BINARY = "Share of persons who have the outcome under {treated} and would not under {control}."
PARTS = {"midpoint": "middle of the range", "width": "width"}
SHORT = 12  # letters of categories that leave room for three axes beside each other
DEFAULT = ("sd", "corr", "benefit")


@dataclass(eq=False, repr=False)
class BoundsDisplay(Display):
    """Sharp bounds on the spread of the effect, the correlation of both outcomes and the share who benefit.

    The truth lies anywhere between the lower and the upper bound, and no amount of data can say where; outer bars or
    lines are 95% limits of the bounds.

    Parameters
    ----------
    feature : str
        Name of the feature.
    bounds : DataFrame
        Output of `effect_bounds`.
    discrete : bool
        Whether the feature has categories.
    tests : DataFrame, optional
        Output of `bounds_test`; its p-values are written above the axes.
    quantities : sequence of {"sd", "var", "corr", "benefit", "no_harm"}
        What is drawn, one axes each.
    higher_is_better : bool, default=True
        Whether higher outcomes are a benefit; the bounds of a result always assume so.
    words : Words, optional
        What the outcome is called.

    Examples
    --------
    >>> from modifind.explain import effect_bounds
    >>> x, y, a = ["no", "yes"] * 40, [0, 1, 2, 5] * 20, [0, 0, 1, 1] * 20
    >>> bounds = effect_bounds(x, y, a, 0.5, discrete=True, random_state=0)
    >>> display = BoundsDisplay("smoker", bounds, discrete=True, quantities=["sd"]).plot()
    >>> [label.get_text() for label in display.axes_[0].get_xticklabels()]
    ['no', 'yes']
    """

    feature: str
    bounds: pd.DataFrame
    _: KW_ONLY
    discrete: bool
    tests: pd.DataFrame | None = None
    quantities: Sequence[str] = DEFAULT
    higher_is_better: bool = True
    words: Words = PLAIN_WORDS

    def __post_init__(self) -> None:
        unknown = [name for name in self.quantities if name not in QUANTITIES]
        if unknown or not self.quantities:
            raise ValueError(f"quantities must be some of {', '.join(QUANTITIES)}, not {unknown or 'none'}")

    @classmethod
    def from_result(
        cls, result: SelectionResult, feature: str, *, quantities: Sequence[str] = DEFAULT
    ) -> BoundsDisplay:
        """The bounds along one feature of a result; of a group, along one of its columns."""
        column = column_of(result, feature, "bounds")
        if column not in result.bounds:
            there = ", ".join(map(repr, result.bounds)) or "none"
            raise ValueError(
                f"no bounds of {column!r}; available: {there}. A fit bounds the effects along features whose "
                "p-value is at most alpha; for others call modifind.explain.effect_bounds"
            )
        bounds, tests, words = result.bounds[column].copy(), result.bound_tests.get(column), Words.of(result)
        discrete = result.kind(column) == "discrete"
        return cls(feature, bounds, discrete=discrete, tests=tests, quantities=quantities, words=words)

    def spec(self) -> Figure:
        """A panel for each quantity, one below the other; beside each other where categories have short names."""
        places = Places.along(self.feature, self.bounds, discrete=self.discrete)
        longest = max((len(line) for label in places.ticked for line in label.split("\n")), default=0)
        stacked = 1 if places.sideways and longest <= SHORT else len(self.quantities)
        panels = tuple(self._panel(places, name) for name in self.quantities)
        return Figure(panels, stacked * places.height(1.75) + 0.3, columns=len(panels) // stacked)

    def _panel(self, places: Places, name: str) -> Panel:
        label, within, title, note = QUANTITIES[name]
        if self.words.binary and name == "benefit" and self.higher_is_better:
            note = BINARY
        higher, lower = ("higher", "lower") if self.higher_is_better else ("lower", "higher")
        words = {"higher": higher, "lower": lower, "treated": self.words.treated, "control": self.words.control}
        ends = ("low", "high", "low_ci_low", "high_ci_high")
        low, high, outer_low, outer_high = limits = [values_of(self.bounds, f"{name}_{end}") for end in ends]
        marks: list[Mark] = [Band("bounds", low, high, box=0.5)]
        marks += [Line("bounds", low, points=False), Line("bounds", high, points=False)]
        keys = [Key("bounds", "consistent with the data", "box")]
        if np.isfinite(outer_low).any():
            marks += [Band("limits", outer_low, low), Band("limits", high, outer_high)]
            keys.append(Key("limits", "with 95% limits", "box"))
        shares = within == (0.0, 1.0)
        texts = [self._text(ends, shares) for ends in zip(*limits, strict=True)]
        caption = caption_along(places, title.format(**words), f"{note.format(**words)}{self._varies(name)}", texts)
        axis = label.format(outcome=self.words.short.outcome, **words)
        panel = Panel(places, tuple(marks), axis, remark=self._remark(name), keys=tuple(keys), caption=caption)
        return replace(panel, holds=tuple(filter(math.isfinite, within)), within=within, percent=shares)

    @staticmethod
    def _text(limits: tuple[float, ...], shares: bool) -> str:
        low, high, outer_low, outer_high = (percent(end, 0) if shares else number(end) for end in limits)
        outer = "" if math.isnan(limits[2]) else f" (95% limits {outer_low} to {outer_high})"
        return f"between {low} and {high}{outer}"

    def _p_values(self, name: str) -> dict[str, float]:
        """P-values of whether midpoint and width of the bounds change along the feature."""
        if self.tests is None or "quantity" not in self.tests:
            return {}
        rows = self.tests[self.tests["quantity"] == ("var" if name == "sd" else name)]
        return {str(part): float(p) for part, p in zip(rows["part"], rows["p_value"], strict=True) if p == p}

    def _remark(self, name: str) -> str:
        texts = [f"{part} {p_text(p)}" for part, p in self._p_values(name).items()]
        return f"change: {', '.join(texts)}" if texts else ""

    def _varies(self, name: str) -> str:
        parts = [f"{PARTS.get(part, part)} {p_text(p)}" for part, p in self._p_values(name).items()]
        return f" Does it change along the feature? {', '.join(parts).capitalize()}." if parts else ""
