"""Outcome distributions of both arms at values of one feature, and where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from modifind.charts.base import Display, column_of
from modifind.charts.labels import Words, shown, value_text
from modifind.charts.style import (
    CONTROL,
    FAINT,
    INK,
    LABEL_SIZE,
    PLAIN_TEXT,
    SHAPE,
    TREATED,
    WEAK_HATCH,
    Look,
    stroke,
    swatch,
    trim,
)
from modifind.charts.value_axis import FEW_ROWS
from modifind.data.wording import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from modifind.result.selection_result import SelectionResult

ARMS = {"treated": Look(TREATED, width=1.5), "control": Look(CONTROL, (0, (4, 1.5)), width=1.5)}
WITNESS = Look(SHAPE, width=1.5)
DEFAULT_NUMBERS = 3  # values of a continuous feature that are shown unless the user chooses
MOST_COLUMNS = 3
MOST_LEVELS = 6
TITLES, TITLE = {1: 40, 2: 22, 4: 22}, 14  # letters above axes by the number of values, and above three in a row


class DensityDisplay(Display):
    """Outcome densities of both arms at chosen values of a feature, each with the witness function beneath.

    Where the witness function is above zero, outcomes are more common under treatment. Of an outcome with few distinct
    values, shares are drawn as bars.

    Parameters
    ----------
    feature : str
        Name of the feature.
    densities : DataFrame
        What `SelectionResult.density` gives, at the values that are to be drawn.
    levels : bool, default=False
        Whether the outcome has few distinct values, so that shares are drawn.
    words : Words, optional
        What arms and outcome are called.

    Attributes
    ----------
    values_ : list
        Values of the feature, in drawing order; NaN or None stands for rows without a value.
    figure_, axes_ : Figure, list of Axes
        What `plot` drew on: the densities of every value, then the witness functions of every value.
    """

    def __init__(
        self, feature: str, densities: pd.DataFrame, *, levels: bool = False, words: Words | None = None
    ) -> None:
        self.feature = feature
        self.densities = densities
        self.levels = levels
        self.words = words or Words()
        self.values_ = _distinct(densities["value"])

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
        places = _default(densities, numbers) if values is None else _chosen(densities, numbers, values, feature)
        known = _distinct(densities["value"])
        parts = [densities[_is(densities["value"], known[place])] for place in places]
        levels = bool(result.settings.get("outcome_levels", False))
        return cls(feature, pd.concat(parts, ignore_index=True), levels=levels, words=Words.of(result))

    def plot(self, axes: Sequence[Axes] | None = None) -> DensityDisplay:
        """Draw on twice as many axes as there are values, or on a new figure."""
        n = len(self.values_)
        upper, lower = self._panels(axes, n)
        parts = [self.densities[_is(self.densities["value"], value)] for value in self.values_]
        for k, (value, part) in enumerate(zip(self.values_, parts, strict=True)):
            weak = bool(part["low_support"].any()) if "low_support" in part else False
            draw = self._draw_bars if self.levels else self._draw_lines
            draw(upper[k], part, ARMS, weak)
            draw(lower[k], part, {"witness": WITNESS}, weak)
            lower[k].axhline(0.0, color=INK, linewidth=0.7, zorder=0.5)
            upper[k].set_title(self._title(value), fontsize=LABEL_SIZE, color=FAINT if weak else INK, **PLAIN_TEXT)
            for ax in (upper[k], lower[k]):
                trim(ax)
                if not self.levels:
                    ax.locator_params(axis="x", nbins=3 if n > 1 else 5)
                ax.locator_params(axis="y", nbins=4)
        self._share_limits(upper, lower)
        self.axes_ = [*upper, *lower]
        return self

    def _panels(self, axes: Sequence[Axes] | None, n: int) -> tuple[list[Axes], list[Axes]]:
        if axes is not None:
            given = self._axes(axes, 2 * n, height=0.0)
            return given[:n], given[n:]
        columns = n if n <= MOST_COLUMNS else (2 if n == 4 else MOST_COLUMNS)
        blocks = -(-n // columns)
        self._axes(None, 0, height=0.35 + blocks * 2.6)
        grid = self.figure_.subplots(
            2 * blocks, columns, squeeze=False, gridspec_kw={"height_ratios": [1.5, 1.0] * blocks}
        )
        upper, lower = list(grid[::2].ravel()), list(grid[1::2].ravel())
        for spare in (*upper[n:], *lower[n:]):
            spare.remove()
        return upper[:n], lower[:n]

    def _title(self, value: Any) -> str:
        """The feature and its value, on two lines where one is too short for any; of long categories the name alone."""
        name, letters = printable(str(self.feature)), TITLES.get(len(self.values_), TITLE)
        longest = max(len(value_text(own)) for own in self.values_)
        if len(name) + 3 + longest <= letters:
            return f"{name} = {value_text(value)}"
        if longest + 2 <= letters:
            return f"{shown(name, letters - 2, lines=1)}\n= {value_text(value)}"
        return shown(value_text(value), letters - 2)

    def _draw_lines(self, ax: Axes, part: pd.DataFrame, looks: dict[str, Look], weak: bool) -> None:
        x = part["outcome"].to_numpy(dtype=float)
        for name, look in looks.items():
            colour = FAINT if weak else look.colour
            ax.plot(x, part[name], color=colour, linestyle=look.line, linewidth=look.width, zorder=3)
            if f"{name}_low" in part:
                low, high = part[f"{name}_low"].to_numpy(dtype=float), part[f"{name}_high"].to_numpy(dtype=float)
                area: dict[str, Any] = (
                    {"facecolor": "none", "edgecolor": FAINT, "hatch": WEAK_HATCH, "alpha": 0.5}
                    if weak
                    else {"color": colour, "alpha": look.shade}
                )
                ax.fill_between(x, low, high, linewidth=0, zorder=2, **area)

    def _draw_bars(self, ax: Axes, part: pd.DataFrame, looks: dict[str, Look], weak: bool) -> None:
        outcome = part["outcome"].to_numpy(dtype=float)
        x = np.arange(outcome.size, dtype=float)
        wide = 0.8 / len(looks)
        for k, (name, look) in enumerate(looks.items()):
            at = x + (k - (len(looks) - 1) / 2) * wide
            colour = FAINT if weak else look.colour
            hatch = WEAK_HATCH if weak else ("....." if name == "control" else None)
            fill: dict[str, Any] = {"facecolor": "none"} if weak else {"facecolor": colour, "alpha": 0.55}
            ax.bar(at, part[name], width=0.92 * wide, edgecolor=colour, hatch=hatch, linewidth=0.8, **fill)
            if f"{name}_low" in part:
                line = ":" if weak else "-"
                low, high = part[f"{name}_low"], part[f"{name}_high"]
                ax.vlines(at, low, high, color=FAINT if weak else INK, linestyle=line, linewidth=1.1, zorder=3)
        ax.set_xticks(x, [f"{level:g}" for level in outcome])
        if outcome.size > MOST_LEVELS:
            ax.locator_params(axis="x", nbins=MOST_LEVELS)

    def _share_limits(self, upper: list[Axes], lower: list[Axes]) -> None:
        """The same scales at all values, so that pictures beside each other compare."""
        words, bars = self.words, self.levels
        for panels, label in ((upper, "share" if bars else "density"), (lower, "witness\n(difference)")):
            limits = np.array([ax.get_ylim() for ax in panels])
            low = 0.0 if panels is upper else limits[:, 0].min()
            for ax in panels:
                ax.set_ylim(low, limits[:, 1].max())
                ax.set_xlim(upper[0].get_xlim())
                if _is_left(ax):
                    ax.set_ylabel(label)
                elif self._own_figure:
                    ax.set_yticklabels([])
                if panels is lower:
                    ax.set_xlabel(words.outcome, **PLAIN_TEXT)
                elif self._own_figure and not bars:
                    ax.set_xticklabels([])
        entries: list[tuple[Any, str]] = [(stroke(look), getattr(words, arm)) for arm, look in ARMS.items()]
        if bars:
            entries = [(swatch(TREATED, 0.55), words.treated), (swatch(CONTROL, hatch="....."), words.control)]
        if "low_support" in self.densities and self.densities["low_support"].any():
            entries.append((swatch(FAINT, hatch=WEAK_HATCH), FEW_ROWS))
        self._legend(upper[0], entries)
        self._align([*upper, *lower])


def _is_left(ax: Axes) -> bool:
    place = ax.get_subplotspec()
    return place is None or place.is_first_col()


def _distinct(values: pd.Series[Any]) -> list[Any]:
    return list(values.drop_duplicates())


def _is(values: pd.Series[Any], value: Any) -> pd.Series[bool]:
    missing = value_text(value) == "missing" and not isinstance(value, str)
    return values.isna() if missing else values == value


def _default(densities: pd.DataFrame, numbers: bool) -> list[int]:
    """All categories; of numbers the lowest, the middle and the highest with enough rows, and rows without one."""
    known = _distinct(densities["value"])
    if not numbers:
        return list(range(len(known)))
    there = [k for k, value in enumerate(known) if not pd.isna(value)]
    weak = densities.get("low_support", pd.Series(False, index=densities.index))
    strong = [k for k in there if not weak[_is(densities["value"], known[k])].any()] or there
    places = np.unique(np.linspace(0, len(strong) - 1, DEFAULT_NUMBERS).round().astype(int)) if strong else ()
    return [strong[place] for place in places] + [k for k in range(len(known)) if k not in there]


def _chosen(densities: pd.DataFrame, numbers: bool, values: Sequence[Any], feature: str) -> list[int]:
    """Places of the values that the user asks for."""
    known = _distinct(densities["value"])
    texts = [value_text(value) for value in known]
    places = []
    for value in [values] if isinstance(values, str) else values:
        if numbers and value_text(value) != "missing":
            there = [k for k, own in enumerate(known) if not pd.isna(own)]
            try:
                place = min(there, key=lambda k: abs(known[k] - float(value)))
            except (TypeError, ValueError):
                raise ValueError(f"{feature!r} has numbers; {value!r} is none") from None
        elif value_text(value) in texts:
            place = texts.index(value_text(value))
        else:
            raise ValueError(f"no densities of {feature!r} at {value!r}; there are those at {', '.join(texts)}")
        if place not in places:
            places.append(place)
    if not places:
        raise ValueError(f"values must name at least one value of {feature!r}: {', '.join(texts)}")
    return places
