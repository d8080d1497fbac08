"""Bounds on what no data identify, along the values of one feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from modifind.charts.base import Display, column_of
from modifind.charts.labels import Words, p_text
from modifind.charts.style import INK, NOTE_SIZE, SELECTED, SHAPE, SPREAD, Look, stroke, swatch
from modifind.charts.value_axis import ValueAxis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from modifind.result.selection_result import SelectionResult

QUANTITIES = {
    "sd": ("sd of the effect\non {outcome}", SPREAD, (0.0, None)),
    "var": ("variance of the effect\non {outcome}", SPREAD, (0.0, None)),
    "corr": ("correlation of the\npotential outcomes", SHAPE, (-1.0, 1.0)),
    "benefit": ("share with a {higher}\n{outcome} if treated", SELECTED, (0.0, 1.0)),
    "no_harm": ("share without a {lower}\n{outcome} if treated", SELECTED, (0.0, 1.0)),
}
LIMITS = (0, (3, 1.5))
SHORT = 12  # letters of categories that leave room for three axes beside each other
DEFAULT = ("sd", "corr", "benefit")


class BoundsDisplay(Display):
    """Sharp bounds on the spread of the effect, the correlation of both outcomes and the share who benefit.

    The truth lies anywhere between the lower and the upper bound, and no amount of data can tell where; outer bars or
    lines are 95% limits of the bounds.

    Parameters
    ----------
    feature : str
        Name of the feature.
    bounds : DataFrame
        What `effect_bounds` gives.
    discrete : bool
        Whether the feature has categories.
    tests : DataFrame, optional
        What `bounds_test` gives; its p-values are written above the axes.
    quantities : sequence of {"sd", "var", "corr", "benefit", "no_harm"}
        What is drawn, one axes each.
    higher_is_better : bool, default=True
        What the bounds take for a benefit; those of a result always count higher outcomes as one.
    words : Words, optional
        What the outcome is called.

    Attributes
    ----------
    figure_, axes_ : Figure, list of Axes
        What `plot` drew on.
    """

    def __init__(
        self,
        feature: str,
        bounds: pd.DataFrame,
        *,
        discrete: bool,
        tests: pd.DataFrame | None = None,
        quantities: Sequence[str] = DEFAULT,
        higher_is_better: bool = True,
        words: Words | None = None,
    ) -> None:
        unknown = [name for name in quantities if name not in QUANTITIES]
        if unknown or not quantities:
            raise ValueError(f"quantities must be some of {', '.join(QUANTITIES)}, not {unknown or 'none'}")
        self.feature = feature
        self.bounds = bounds
        self.discrete = discrete
        self.tests = tests
        self.quantities = tuple(quantities)
        self.higher_is_better = higher_is_better
        self.words = words or Words()

    @classmethod
    def from_result(
        cls, result: SelectionResult, feature: str, *, quantities: Sequence[str] = DEFAULT
    ) -> BoundsDisplay:
        """The bounds along one feature of a result; of a group, along one of its columns."""
        column = column_of(result, feature, "bounds")
        if column not in result.bounds:
            there = ", ".join(map(repr, result.bounds)) or "none"
            raise ValueError(
                f"no bounds of {column!r}; there are those of {there}. A fit bounds the effects along features whose "
                "p-value is at most alpha; for others call modifind.explain.effect_bounds"
            )
        return cls(
            feature,
            result.bounds[column].copy(),
            discrete=result.kind(column) == "discrete",
            tests=result.bound_tests.get(column),
            quantities=quantities,
            words=Words.of(result),
        )

    def plot(self, axes: Sequence[Axes] | None = None) -> BoundsDisplay:
        """Draw on one axes for each quantity, or on a new figure."""
        places = ValueAxis.of(self.feature, self.bounds, discrete=self.discrete)
        n = len(self.quantities)
        beside = places.sideways and places.longest <= SHORT
        stacked, narrow = (1 if beside else n), beside and axes is None and n > 1
        panels = self._axes(axes, n, height=stacked * places.height(1.75) + 0.3, n_columns=n // stacked)
        for k, (ax, name) in enumerate(zip(panels, self.quantities, strict=True)):
            self._draw(ax, places, name, narrow)
            if narrow and k:
                ax.set_yticklabels([])
                ax.set_ylabel("")
        entries: list[tuple[Any, str]] = [
            (swatch(INK, 0.3), "between the bounds"),
            (stroke(Look(INK, "-" if places.discrete else LIMITS, width=0.9)), "95% limits"),
        ]
        self._legend(panels[0], entries + places.notes(hatched=True))
        self._align(panels)
        self.axes_ = panels
        return self

    def _draw(self, ax: Axes, places: ValueAxis, name: str, narrow: bool) -> None:
        label, colour, (least, most) = QUANTITIES[name]
        bounds = self.bounds
        low, high = bounds[f"{name}_low"], bounds[f"{name}_high"]
        places.between(ax, low, high, colour=colour, shade=0.35)
        edge = Look(colour, marker="", width=1.6, shade=0.0)
        for end in (low, high):
            places.draw(ax, end, look=edge)
        limits = Look(colour, LIMITS, marker="", width=0.9, shade=0.12)
        if f"{name}_low_ci_low" in bounds:
            self._draw_limits(ax, places, name, limits)
        ends = ("higher", "lower") if self.higher_is_better else ("lower", "higher")
        text = label.format(outcome=self.words.outcome, higher=ends[0], lower=ends[1])
        places.finish(ax, text, letters=14 if narrow else 30)
        (ax.set_xlim if places.sideways else ax.set_ylim)(least, most)
        note = self._note(name)
        if note and not narrow:
            ax.text(1.0, 1.0, note, transform=ax.transAxes, ha="right", va="bottom", fontsize=NOTE_SIZE, color=INK)

    def _draw_limits(self, ax: Axes, places: ValueAxis, name: str, look: Look) -> None:
        bounds, nothing = self.bounds, np.full(len(self.bounds), np.nan)
        outer = ((f"{name}_low_ci_low", f"{name}_low"), (f"{name}_high_ci_high", f"{name}_high"))
        for limit, bound in outer:
            places.draw(ax, bounds[limit] if not places.discrete else nothing, look=look)
            places.draw(ax, nothing, bounds[limit], bounds[bound], look=look, hatch=False)

    def _note(self, name: str) -> str:
        """Do midpoint and width of the bounds change along the feature?"""
        if self.tests is None:
            return ""
        rows = self.tests[self.tests["quantity"] == ("var" if name == "sd" else name)]
        found = zip(rows["part"], rows["p_value"].to_numpy(dtype=float), strict=True)
        texts = [f"{part} {p_text(p_value)}" for part, p_value in found if not np.isnan(p_value)]
        return f"change: {', '.join(texts)}" if texts else ""
