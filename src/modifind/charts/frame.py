"""Panels as SVG: scales, shapes, and the frame that maps data to pixels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.charts.labels import MINUS, number, shortened
from modifind.charts.spec import Band, Bars, Line, Panel, Rule, Texts, alone


class Drawing:
    """Shapes of one figure, in drawing order."""

    def __init__(self, width: float, height: float) -> None:
        self.width = width
        self.height = height
        self._marks: list[str] = []

    def path(self, points: Iterable[tuple[float, float]], style: str, *, closed: bool = False) -> None:
        """A polyline, or a filled polygon if `closed`."""
        steps = _steps(points)
        if len(steps) > 1:
            (x, y), *others = steps
            way = " ".join(f"{_short(dx / 10)} {_short(dy / 10)}" for dx, dy in others).replace(" -", "-")
            self._marks.append(f'<path class="{style}" d="M{_short(x / 10)} {_short(y / 10)}l{way}{"z" * closed}"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        """A straight line."""
        self.path([(x1, y1), (x2, y2)], style)

    def rect(self, x: float, y: float, width: float, height: float, style: str, *, radius: float = 0.0) -> None:
        """A rectangle."""
        corner = f' rx="{_short(radius)}"' if radius else ""
        self._marks.append(
            f'<rect class="{style}" x="{_short(x)}" y="{_short(y)}" width="{_short(max(width, 0))}" '
            f'height="{_short(max(height, 0))}"{corner}/>'
        )

    def mark(self, x: float, y: float, style: str, *, small: bool = False) -> None:
        """A point."""
        self._marks.append(f'<circle class="{style}" cx="{_short(x)}" cy="{_short(y)}" r="{4 - small}"/>')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        style: str,
        *,
        anchor: str = "start",
        room: float | None = None,
        middle: bool = False,
    ) -> None:
        """A label, shortened to the given room; the full text is shown on hover."""
        shown = text if room is None else shortened(text, room, middle=middle)
        title = "" if shown == " ".join(str(text).split()) else f"<title>{escape(text)}</title>"
        place = f'x="{_short(x)}" y="{_short(y)}" text-anchor="{anchor}"'
        self._marks.append(f'<text class="{style}" {place}>{title}{escape(shown)}</text>')

    def svg(self, label: str) -> Markup:
        """The figure as SVG, with a text alternative."""
        return Markup(
            f'<svg viewBox="0 0 {_short(self.width)} {_short(self.height)}" role="img" '
            f'aria-label="{escape(label)}">{"".join(self._marks)}</svg>'
        )


def _steps(points: Iterable[tuple[float, float]]) -> list[tuple[int, int]]:
    """Start and steps of a polyline in tenths of a pixel, with consecutive steps in one direction merged.

    Examples
    --------
    >>> _steps([(0.0, 1.0), (1.0, 1.0), (2.5, 1.0), (3.0, 2.0)])
    [(0, 10), (25, 0), (5, 10)]
    """
    steps: list[tuple[int, int]] = []
    last_x = last_y = 0
    for x, y in points:
        here_x, here_y = round(10 * x), round(10 * y)
        dx, dy = here_x - last_x, here_y - last_y
        last_x, last_y = here_x, here_y
        if len(steps) > 1:
            before_x, before_y = steps[-1]
            if before_x * dy == before_y * dx and before_x * dx + before_y * dy >= 0:
                steps[-1] = (before_x + dx, before_y + dy)
                continue
        steps.append((dx, dy))
    return steps


def _short(value: float) -> str:
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


@dataclass(frozen=True)
class Scale:
    """Linear map from values, or from their logarithms, to pixels.

    Parameters
    ----------
    low, high : float
        Values at both ends.
    start, stop : float
        Their places.
    log : bool
        Whether logarithms are drawn.
    """

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Pixel of a value."""
        low, high, here = map(math.log, (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        return self.start + (here - low) / (high - low) * (self.stop - self.start)

    def at(self, values: Array) -> Array:
        """Pixels of values."""
        return np.array([self(value) for value in values])

    def clipped(self, values: Array) -> Array:
        """Pixels of values, limited to the ends."""
        return np.clip(self.at(values), min(self.start, self.stop), max(self.start, self.stop))

    def ticks(self, most: int = 5) -> list[tuple[float, str]]:
        """Round values within the range, with their labels.

        Examples
        --------
        >>> Scale(-1.2, 3.1, 0, 100).ticks(4)
        [(0.0, '0'), (2.0, '2')]
        >>> [text for _, text in Scale(0.0, 0.12, 0, 100).ticks()]
        ['0', '0.05', '0.10']
        >>> [text for _, text in Scale(0.5, 9.3, 0, 100).ticks(4)]
        ['2', '4', '6', '8']
        """
        for count in range(max(most, 1), 2 * most + 3):  # one tick alone gives no scale
            step = _round_step((self.high - self.low) / count)
            first = math.ceil(self.low / step - 1e-9)
            last = math.floor(self.high / step + 1e-9)
            if last > first:
                break
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        return [(k * step, _tick_text(k * step, digits)) for k in range(first, last + 1)]


def _round_step(rough: float) -> float:
    size = 10.0 ** math.floor(math.log10(rough))
    return next(factor * size for factor in (1.0, 2.0, 5.0, 10.0) if factor * size >= rough * 0.999)


def _tick_text(value: float, digits: int) -> str:
    if abs(value) >= 1e7 or (value and digits > 5):
        return number(value)
    return "0" if value == 0 else f"{value:,.{digits}f}".replace("-", MINUS)


THIN, BOX = 5.0, 20.0  # bands of categories, and of boxes of width 1
MISSING_WIDTH = 40.0  # room of the rows without a value
ARROWS = {True: "← →", False: "↑ ↓"}  # to points beyond the ends of an axis from left to right, and from top to bottom


@dataclass(frozen=True)
class Frame:
    """A panel within a drawing: pixels of its positions, scales of both axes, and their ends.

    Categories in rows are `turned`: their values run from left to right.
    """

    drawing: Drawing
    panel: Panel
    at: Array
    places: Scale
    values: Scale
    sides: tuple[float, float]
    turned: bool = False

    @cached_property
    def _joined(self) -> NDArray[np.bool_]:
        """Positions that a line connects: those of numbers."""
        return ~self.panel.places.missing & (not self.turned)

    def draw(self) -> None:
        """Draw all marks of the panel, and the names of its lines."""
        for mark in self.panel.marks:
            if isinstance(mark, Line):
                self._line(mark)
            elif isinstance(mark, Band):
                self._band(mark)
            elif isinstance(mark, Bars):
                self._bars(mark)
            elif isinstance(mark, Rule):
                self._rule(mark)
            elif isinstance(mark, Texts):
                for place, value, text in zip(self.at, self.values.clipped(mark.values), mark.texts, strict=True):
                    self.drawing.text(value + 6, place + 4, text, "note")
        self._name_lines()

    def spots(self) -> list[list[float]]:
        """Pixels of the values at each position, for hovering."""
        drawn = [
            np.where(self._beyond(mark.values), np.nan, self.values.clipped(mark.values))
            for mark in self.panel.marks
            if isinstance(mark, Line | Bars)
        ]
        return [[round(float(line[k]), 1) for line in drawn if math.isfinite(line[k])] for k in range(self.at.size)]

    def _turn(self, place: float, value: float) -> tuple[float, float]:
        return (value, place) if self.turned else (place, value)

    def _path(self, at: Iterable[float], values: Iterable[float], style: str, *, closed: bool = False) -> None:
        self.drawing.path([self._turn(*point) for point in zip(at, values, strict=True)], style, closed=closed)

    def _box(self, at: float, size: float, values: tuple[float, float], style: str, *, radius: float = 0.0) -> None:
        """A box centred at a position, between two values."""
        low, high = min(values), max(values)
        x, y = self._turn(at - size / 2, low)
        width, height = self._turn(size, max(high - low, 1.5 * self.turned))
        self.drawing.rect(x, y, width, height, style, radius=radius)

    def _single(self, known: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Positions without a connecting line: categories, and numbers without a neighbour."""
        return np.flatnonzero((known & ~self._joined) | alone(known & self._joined))

    def _beyond(self, values: Array) -> Array:
        """-1 or 1 for points of too few rows below or above the ends of the axis, along which lines are drawn."""
        far = np.round(self.values.at(values) - self.values.clipped(values))
        return np.where(self._joined, 0, np.sign(np.nan_to_num(far))).astype(int)

    def _aside(self, k: Any, shift: float) -> float:
        """Position of one of several points of a category, or of the missing values."""
        room = self.places(1.0) - self.places(0.0) if self.turned else MISSING_WIDTH * self.panel.places.missing[k]
        return float(self.at[k] + room * shift)

    def _line(self, mark: Line) -> None:
        pixels, beyond = self.values.clipped(mark.values), self._beyond(mark.values)
        weak = self.panel.places.weak | self.panel.weak
        known = np.isfinite(pixels)
        for run, unsure in runs(known & self._joined, weak):
            self._path(self.at[run], pixels[run], _style(mark.role, unsure))
        for k in self._single(known) if mark.points else ():
            x, y = self._turn(self._aside(k, mark.shift), pixels[k] - 6 * beyond[k])
            if beyond[k]:
                self.drawing.text(x, y + 4, ARROWS[self.turned][1 + beyond[k]], "note", anchor="middle")
            else:
                self.drawing.mark(x, y, _style(f"{mark.role}-mark", weak[k]), small=bool(mark.label))

    def _band(self, mark: Band) -> None:
        low, high = self.values.clipped(mark.low), self.values.clipped(mark.high)
        known, weak = np.isfinite(low + high), (self.panel.places.weak | self.panel.weak) & mark.marks_weak
        for run, unsure in runs(known & self._joined, weak):
            around, edge = [*self.at[run], *self.at[run][::-1]], [*high[run], *low[run][::-1]]
            self._path(around, edge, _style(f"{mark.role}-band", unsure), closed=True)
        crowded = any(getattr(other, "shift", 0.0) for other in self.panel.marks)
        size = mark.box * BOX or (THIN / 2 if crowded else THIN)
        outside = self._beyond(mark.low) * self._beyond(mark.high) > 0
        for k in self._single(known & ~outside):
            style = _style(f"{mark.role}-band", weak[k])
            self._box(self._aside(k, mark.shift), size, (low[k], high[k]), style, radius=size / 4)

    def _bars(self, mark: Bars) -> None:
        unit = self.places(1.0) - self.places(0.0)
        for k in np.flatnonzero(np.isfinite(mark.values)):
            place = self.at[k] + unit * mark.shift
            style = _style(f"{mark.roles[k] if mark.roles else mark.role}-bar", self.panel.weak)
            self._box(place, unit * mark.width - 1.6, (self.values(0.0), self.values(mark.values[k])), style)
            if mark.low is not None and mark.high is not None and math.isfinite(mark.low[k] + mark.high[k]):
                self._path([place] * 2, [self.values(mark.low[k]), self.values(mark.high[k])], "whisker")

    def _rule(self, mark: Rule) -> None:
        ends = (self.values.start, self.values.stop)
        if mark.place:
            self._path([self.places(mark.at)] * 2, ends, mark.role)
        elif mark.half:
            low, high = self.values(mark.at - mark.half), self.values(mark.at + mark.half)
            self._box(sum(self.sides) / 2, self.sides[1] - self.sides[0], (low, high), f"{mark.role}-band")
        else:
            self._path(self.sides, [self.values(mark.at)] * 2, mark.role)

    def _name_lines(self) -> None:
        """Labels at the ends of lines, moved apart to avoid overlap."""
        ends: list[tuple[float, float, Line]] = []
        for mark in self.panel.marks:
            if isinstance(mark, Line) and mark.label:
                pixels = self.values.clipped(mark.values)
                ends += [(self.at[k], pixels[k], mark) for k in np.flatnonzero(np.isfinite(pixels) & self._joined)[-1:]]
        apart = spread_apart([pixel for _, pixel, _ in ends], 12.0, self.values.stop, self.values.start)
        for (end, _, line), place in zip(ends, apart, strict=True):
            self.drawing.text(end + 5, place + 4, line.label, f"end {line.role}-end")


def _style(style: str, unsure: bool | np.bool_) -> str:
    return f"{style} low" if unsure else style


def spread_apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions of labels, moved as little as necessary to be `gap` apart, and within low and high if there is room.

    Examples
    --------
    >>> spread_apart([10.0, 12.0, 50.0], 10.0, 0.0, 100.0)
    [6.0, 16.0, 50.0]
    """
    order = np.argsort(places, kind="stable")
    groups: list[list[float]] = []  # middle and number of the labels that touch
    for place in np.asarray(places, dtype=float)[order]:
        groups.append([float(place), 1.0])
        while len(groups) > 1 and groups[-1][0] - groups[-2][0] < gap * (groups[-1][1] + groups[-2][1]) / 2:
            middle, count = groups.pop()
            before, n_before = groups.pop()
            groups.append([(middle * count + before * n_before) / (count + n_before), count + n_before])
    moved = [middle + gap * (k - (count - 1) / 2) for middle, count in groups for k in range(int(count))]
    shift = max(low - moved[0], 0.0) + min(high - moved[-1], 0.0) if moved else 0.0
    apart = [0.0] * len(moved)
    for place, k in zip(moved, order, strict=True):
        apart[int(k)] = place + shift
    return apart


def runs(known: NDArray[np.bool_], low: NDArray[np.bool_]) -> list[tuple[slice, bool]]:
    """Runs of adjacent known points, split where support starts or ends; a split point belongs to both."""
    stretches: list[tuple[slice, bool]] = []
    for k in range(len(known) - 1):
        if not (known[k] and known[k + 1]):
            continue
        unsure = bool(low[k] or low[k + 1])
        if stretches and stretches[-1][0].stop == k + 1 and stretches[-1][1] == unsure:
            stretches[-1] = (slice(stretches[-1][0].start, k + 2), unsure)
        else:
            stretches.append((slice(k, k + 2), unsure))
    return stretches
