"""Figures as data: panels, their marks and texts, which `matplotlib` and `svg` draw.

Marks name the role of what they show ("effect", "treated", "null"), and each renderer has a style for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.charts.labels import MINUS, number, shown, tick_labels, value_text

MAX_UPRIGHT = 6  # categories beside each other
HALF_PAGE = 3.4  # inches; figures are made as wide, so that points of text are points on paper
ROOM = 38  # letters that fit under axes of half a page
LETTER = 0.066  # inches, about, of a letter beside axes
MAX_WEAK_EXCESS = 0.25  # of the range of points with enough rows


@dataclass(frozen=True)
class Mark:
    """Base class of marks along the positions of a panel.

    Parameters
    ----------
    role : str
        What is shown, which says how it looks.
    """

    role: str

    def take(self, kept: list[int]) -> Self:
        """The mark at some of the positions."""
        sides: dict[str, Any] = {name: side[kept] for name, side in vars(self).items() if isinstance(side, np.ndarray)}
        return replace(self, **sides)


@dataclass(frozen=True)
class Line(Mark):
    """One value per position: a line over numbers, points over categories.

    `label` is written at its end; `shift`, as a fraction of a position's width, puts points of a category side by side;
    without `points` categories have none.
    """

    values: Array
    label: str = ""
    shift: float = 0.0
    points: bool = True


@dataclass(frozen=True)
class Band(Mark):
    """A range of values per position: an area over numbers, bars or boxes over categories.

    `marks_weak` says whether weak support is drawn differently.
    """

    low: Array
    high: Array
    box: float = 0.0
    shift: float = 0.0
    marks_weak: bool = True


@dataclass(frozen=True)
class Bars(Mark):
    """Bars from zero with limits; `width` and `shift` are in units of the positions, `roles` has one per bar."""

    values: Array
    low: Array | None = None
    high: Array | None = None
    width: float = 1.0
    shift: float = 0.0
    roles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule(Mark):
    """A line across the panel at a reference value, or at a position; with `half`, a strip."""

    at: float
    place: bool = False
    half: float = 0.0


@dataclass(frozen=True)
class Texts(Mark):
    """Texts next to values."""

    values: Array
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Key:
    """A legend entry: the look of a `role` as a "line", "point", "band" or "box", and its meaning.

    `long` replaces `text` if there is room.
    """

    role: str
    text: str
    form: str = "line"
    long: str = ""


@dataclass(frozen=True)
class Places:
    """Positions along the first axis: values of a feature, or rows below each other.

    Parameters
    ----------
    name : str
        What stands at the axis.
    at : array
        Numbers, NaN for rows without one; categories are counted from 0.
    labels : tuple of str
        Each of them in words.
    discrete : bool
        Whether they are categories.
    weak : array of bool
        Where there are too few rows to say anything.
    ticks : tuple of (float, str), optional
        What is written at the axis, unless it follows from the numbers.
    rows : bool
        Whether they stand one below the other in any case.
    holds : tuple of float
        Numbers that the axis has room for, whatever is drawn.
    support : array, optional
        Rows of each category.
    heads : tuple of bool
        Which rows are headings of those below them.
    """

    name: str
    at: Array
    labels: tuple[str, ...]
    discrete: bool
    weak: NDArray[np.bool_]
    ticks: tuple[tuple[float, str], ...] = ()
    rows: bool = False
    holds: tuple[float, ...] = ()
    support: Array | None = None
    heads: tuple[bool, ...] = ()

    @classmethod
    def along(cls, name: str, frame: pd.DataFrame, *, discrete: bool) -> Places:
        """Positions from the column `value`; the column `low_support`, if there is one, marks weak support."""
        n = len(frame)
        weak = frame["low_support"].to_numpy(dtype=bool) if "low_support" in frame else np.zeros(n, dtype=bool)
        numbers = np.arange(n) if discrete else pd.to_numeric(frame["value"], errors="coerce")
        at = np.asarray(numbers, dtype=float)
        support = values_of(frame, "rows_treated") + values_of(frame, "rows_control")
        return cls(name, at, tuple(map(value_text, frame["value"])), discrete, weak, support=support)

    @classmethod
    def listed(cls, names: Iterable[Any]) -> Places:
        """Positions of names below each other."""
        labels = tuple(value_text(label) for label in names)
        n = len(labels)
        return cls("", np.arange(n, dtype=float), labels, True, np.zeros(n, dtype=bool), rows=True)

    @classmethod
    def numbers(cls, name: str, at: Array, holds: Sequence[float], ticks: Sequence[tuple[float, str]] = ()) -> Places:
        """Positions of plain numbers."""
        labels = tuple(map(number, at.tolist()))
        return cls(name, at, labels, False, np.zeros(at.size, dtype=bool), tuple(ticks), holds=tuple(holds))

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Mask of the position for missing values."""
        return np.isnan(self.at)

    @cached_property
    def sideways(self) -> bool:
        """Whether the names of categories are so many or so long that they are listed below each other."""
        lines = [len(line) for label in tick_labels(self.labels, width=12) for line in label.split("\n")]
        n = len(self.labels)
        return self.rows or (self.discrete and (n > MAX_UPRIGHT or n * (max(lines, default=0) + 2) > ROOM))

    @cached_property
    def ticked(self) -> list[str]:
        """Tick labels of categories, on two lines if long."""
        if self.heads:  # the same level may be one of several features
            return [shown(label, 40, lines=1) for label in self.labels]
        return tick_labels(self.labels, width=26 if self.rows else 20 if self.sideways else 12)

    @property
    def _stacked(self) -> float:
        """Height in inches of categories below each other."""
        return sum(0.12 + 0.115 * (1 + label.count("\n")) for label in self.ticked)

    def height(self, upright: float = 2.3) -> float:
        """Height in inches of the axes."""
        return 0.95 + self._stacked if self.sideways else upright

    @property
    def tall(self) -> int:
        """Number of characters that fit beside stacked categories without touching the legend."""
        return min(22, int(self._stacked / LETTER))

    def largest(self, most: int) -> list[int]:
        """Positions of the categories with the most rows, in order; the first ones if row numbers are unknown."""
        support = np.zeros(len(self.labels)) if self.support is None else np.nan_to_num(self.support)
        return sorted(np.argsort(-support, kind="stable")[:most].tolist())

    def take(self, kept: list[int]) -> Places:
        """A subset of the categories."""
        labels = tuple(self.labels[k] for k in kept)
        return replace(self, at=np.arange(len(kept), dtype=float), labels=labels, weak=self.weak[kept])


@dataclass(frozen=True)
class TextColumn:
    """A column of text beside the rows of a panel, with a title.

    Parameters
    ----------
    title : str
        Heading.
    texts : sequence of str
        One for every row.
    before : bool
        Whether it stands between the names of the rows and what is drawn, or after that.
    narrow : bool
        Whether it is kept where there is little room.
    """

    title: str
    texts: Sequence[str]
    before: bool = False
    narrow: bool = False


@dataclass(frozen=True)
class Caption:
    """Text beside a panel, for pages with room for it.

    Parameters
    ----------
    title, note : str
        Heading, and how to read the figure.
    about : str
        What stands for the figure where it is not seen.
    texts : tuple
        What is said at each place; where `words` are given, the numbers that follow each of them.
    words : tuple of str
        Words that all places share.
    """

    title: str = ""
    note: str = ""
    about: str = ""
    texts: tuple[Any, ...] = ()
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Panel:
    """One plot: marks over positions, and the axis of values.

    Parameters
    ----------
    places : Places
        Along which things are drawn.
    marks : tuple of Mark
        What is drawn, the first at the bottom.
    label, unit : str
        Name of the axis of numbers, and what they are in.
    title, remark : str
        What stands above, in the middle and in the corner.
    keys : tuple of Key
        The legend; that of few rows follows from the places.
    holds : tuple of float
        Numbers that the axis has room for, whatever is drawn.
    within : pair of float
        Limits that the margins of the axis do not cross.
    span : pair of float, optional
        Ends of the axis, unless they follow from what is drawn.
    ticks : tuple of (float, str), optional
        What is written at the axis of numbers, unless it follows from them.
    percent, mirrored, log : bool
        Whether numbers are shares, whether those below zero are written as those above, and whether their axis is a
        log scale that falls.
    weak : bool
        Whether all of it rests on too few rows.
    joined : bool
        Whether the panel below has the names of the places.
    caption : Caption
        Words beside it.
    columns : tuple of TextColumn
        Texts beside rows.
    """

    places: Places
    marks: tuple[Mark, ...]
    label: str = ""
    unit: str = ""
    title: str = ""
    remark: str = ""
    keys: tuple[Key, ...] = ()
    holds: tuple[float, ...] = ()
    within: tuple[float, float] = (-math.inf, math.inf)
    span: tuple[float, float] | None = None
    ticks: tuple[tuple[float, str], ...] = ()
    percent: bool = False
    mirrored: bool = False
    log: bool = False
    weak: bool = False
    joined: bool = False
    caption: Caption = Caption()
    columns: tuple[TextColumn, ...] = ()

    @property
    def values(self) -> tuple[list[float], list[float]]:
        """Finite values with enough rows, and those with too few."""
        drawn = [getattr(mark, name, None) for mark in self.marks for name in ("values", "low", "high")]
        known, weak = [side for side in drawn if side is not None], self.places.weak
        sides = np.reshape(np.array(known, dtype=float), (len(known), weak.size))
        return sides[np.isfinite(sides) & ~weak].tolist(), sides[np.isfinite(sides) & weak].tolist()

    @cached_property
    def reach(self) -> tuple[float, float]:
        """Ends of the value axis; points with too few rows extend it only as far as they do not dwarf the others."""
        if self.span is not None:
            return self.span
        sure, weak = self.values
        rules = [mark.at for mark in self.marks if isinstance(mark, Rule) and not mark.place]
        values = [*sure, *rules, *self.holds]
        if not sure:
            values += weak
        elif weak:
            low, high = min(values), max(values)
            room = MAX_WEAK_EXCESS * (high - low)
            values += [min(max(value, low - room), high + room) for value in weak]
        return spanning(values, within=self.within)

    def share(self, value: float) -> str:
        """A share as written at the axis."""
        return f"{100 * (abs(value) if self.mirrored else value):.3g}%".replace("-", MINUS)

    @property
    def all_keys(self) -> tuple[Key, ...]:
        """The legend, including the look of weak support if it occurs."""
        if not (self.weak or self.places.weak.any()):
            return self.keys
        boxes = self.weak or not self.places.discrete or any(isinstance(m, Band) and m.box for m in self.marks)
        return (*self.keys, Key("unsure", "few rows", "box" if boxes else "point", "too few rows"))

    def take(self, kept: list[int]) -> Panel:
        """The panel for a subset of the categories."""
        caption = replace(self.caption, texts=tuple(self.caption.texts[k] for k in kept))
        marks = tuple(mark.take(kept) for mark in self.marks)
        return replace(self, places=self.places.take(kept), marks=marks, caption=caption)


@dataclass(frozen=True)
class Figure:
    """Panels in columns, and in stacks that belong together.

    Parameters
    ----------
    panels : tuple of Panel
        In order; of stacks, first the upper ones.
    height : float
        Inches.
    columns : int
        Panels, or stacks, beside each other.
    ratios : tuple of float
        Heights of the panels of a stack.
    legend_columns : int
        Entries of the legend beside each other.
    width : float
        Inches: half a printed page, if nothing else is said.
    """

    panels: tuple[Panel, ...]
    height: float
    columns: int = 1
    ratios: tuple[float, ...] = (1.0,)
    legend_columns: int = 3
    width: float = HALF_PAGE


def spanning(
    values: Iterable[float], *, pad: float = 0.06, within: tuple[float, float] = (-math.inf, math.inf)
) -> tuple[float, float]:
    """Limits that contain all finite values, with a margin that does not exceed `within`.

    Examples
    --------
    >>> spanning([0.0, 1.0], within=(0.0, 1.0)), spanning([])
    ((0.0, 1.0), (-0.06, 1.06))
    """
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = float(min(finite)), float(max(finite))
    flat = high - low < 1e-12 * max(abs(low), abs(high), 1e-290)
    margin = (abs(low) / 2 or 1.0) if flat else pad * (high - low)
    bottom, top = min(within[0], low), max(within[1], high)
    return max(low - margin, bottom), min(high + margin, top)


def values_of(frame: pd.DataFrame, name: str) -> Array:
    """A column of numbers; NaN if the table lacks it."""
    return frame[name].to_numpy(dtype=float) if name in frame else np.full(len(frame), np.nan)


def limits_of(frame: pd.DataFrame, name: str) -> tuple[Array, Array, Array]:
    """A column of numbers and its limits."""
    return values_of(frame, name), values_of(frame, f"{name}_low"), values_of(frame, f"{name}_high")


def beside(weak: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask of weak points and their neighbours: both ends of every line segment that leads to a weak point."""
    padded = np.concatenate(([False], weak, [False]))
    return weak | padded[:-2] | padded[2:]


def alone(drawn: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask of points without a neighbour to connect to."""
    padded = np.concatenate(([False], drawn, [False]))
    return drawn & ~padded[:-2] & ~padded[2:]
