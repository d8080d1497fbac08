"""Figures as SVG, with what is said when a place in them is pointed at.

Colours come from the style sheet of the page by class, so that one drawing serves light, dark and printed pages. All
text is escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.charts.labels import MINUS, MISSING, number, shortened, text_width
from modifind.charts.spec import Band, Bars, Line, Panel, Places, Rule, Texts, alone, spanning

WIDTH, HEIGHT = 380.0, 236.0
LEFT, RIGHT, TOP, BOTTOM = 32.0, 12.0, 12.0, 40.0
STACKED, BETWEEN = (120.0, 64.0), 26.0  # heights of panels one below the other, and the room between
ROW = 26.0
MISSING_ROOM = 52.0
MOST_NAME = 128.0
MOST_ROWS = 30
THIN, BOX = 5.0, 20.0  # bands of categories, and of boxes of width 1
ASIDE = 40.0  # room of the rows without a value


@dataclass(frozen=True)
class Chart:
    """A picture and what is said when a place in it is pointed at.

    Parameters
    ----------
    title, note : str
        Heading, and how to read it.
    svg : Markup
        The picture.
    readout : dict
        Where the points are and what is said there, for the script of the page.
    keys : tuple of (str, str)
        Class and text of each entry of the legend.
    id : str
        Identifier in the page.
    unsure : bool
        Whether all of it rests on too few rows.
    """

    title: str
    note: str
    svg: Markup
    readout: dict[str, Any]
    keys: tuple[tuple[str, str], ...] = ()
    id: str = ""
    unsure: bool = False


def chart(*panels: Panel, height: float | None = None) -> Chart:
    """A picture of one panel, or of panels one below the other that share their places."""
    first = panels[0]
    if first.places.discrete:
        if len(first.places.labels) > MOST_ROWS and first.told.texts:
            first = _largest(first)
        drawing, readout = _rows(first)
    else:
        heights = STACKED if len(panels) > 1 else (height or HEIGHT - TOP - BOTTOM,)
        drawing, readout = _over_numbers(panels, heights)
    labels = {mark.label for mark in first.marks if isinstance(mark, Line)} if not first.places.discrete else set()
    keys = [key for panel in panels for key in panel.all_keys if key.text not in labels]
    named = {("key-band" if key.form == "band" else f"key-{key.role}", key.long or key.text): None for key in keys}
    told = first.told
    return Chart(told.title, told.note, drawing.svg(told.about), readout, tuple(named), unsure=first.weak)


def small_chart(panel: Panel, width: float = 160.0, height: float = 64.0) -> Markup:
    """A picture of bars without axes."""
    drawing, x = Drawing(width, height), Scale(0.0, 1.0, 0.0, width)
    at = np.array([x(place) for place in panel.places.at])
    _Frame(drawing, panel, at, x, Scale(*panel.reach, height - 6, 4.0), (0.0, width)).draw()
    return drawing.svg(panel.told.about)


@dataclass(frozen=True)
class Scale:
    """A straight line from values, or from their logarithms, to places in a drawing.

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
        """Place of a value."""
        low, high, here = map(math.log, (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        return self.start + (here - low) / (high - low) * (self.stop - self.start)

    def clipped(self, values: Array) -> Array:
        """Places of values, none beyond the ends."""
        low, high = sorted((self.start, self.stop))
        return np.clip(np.array([self(value) for value in values]), low, high)

    def ticks(self, most: int = 5) -> list[tuple[float, str]]:
        """Round values within the range, with their texts.

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


class Drawing:
    """Marks of one picture, in the order of drawing."""

    def __init__(self, width: float, height: float) -> None:
        self.width = width
        self.height = height
        self._marks: list[str] = []

    def path(self, points: Iterable[tuple[float, float]], style: str, *, closed: bool = False) -> None:
        """A line through points, or the area that it encloses."""
        steps = _steps(points)
        if len(steps) > 1:
            (x, y), *others = steps
            way = " ".join(f"{_tenths(dx)} {_tenths(dy)}" for dx, dy in others).replace(" -", "-")
            end = "z" if closed else ""
            self._marks.append(f'<path class="{style}" d="M{_tenths(x)} {_tenths(y)}l{way}{end}"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        """A straight line."""
        self.path([(x1, y1), (x2, y2)], style)

    def rect(self, x: float, y: float, width: float, height: float, style: str, *, radius: float = 0.0) -> None:
        """A box."""
        corner = f' rx="{_short(radius)}"' if radius else ""
        self._marks.append(
            f'<rect class="{style}" x="{_short(x)}" y="{_short(y)}" width="{_short(max(width, 0))}" '
            f'height="{_short(max(height, 0))}"{corner}/>'
        )

    def mark(self, x: float, y: float, style: str, *, small: bool = False) -> None:
        """A point."""
        radius = 3 if small else 4
        self._marks.append(f'<circle class="{style}" cx="{_short(x)}" cy="{_short(y)}" r="{radius}"/>')

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
        """A label; where it is cut to fit the room, the whole of it shows when pointed at."""
        shown = text if room is None else shortened(text, room, middle=middle)
        title = "" if shown == " ".join(str(text).split()) else f"<title>{escape(text)}</title>"
        place = f'x="{_short(x)}" y="{_short(y)}" text-anchor="{anchor}"'
        self._marks.append(f'<text class="{style}" {place}>{title}{escape(shown)}</text>')

    def svg(self, label: str) -> Markup:
        """The picture, with a text that stands for it."""
        return Markup(
            f'<svg viewBox="0 0 {_short(self.width)} {_short(self.height)}" role="img" '
            f'aria-label="{escape(label)}">{"".join(self._marks)}</svg>'
        )


@dataclass(frozen=True)
class _Frame:
    """A panel within a drawing: pixels of its places, scales of places and of numbers, and the ends of its places.

    Categories in rows are `turned`: their numbers run from left to right.
    """

    drawing: Drawing
    panel: Panel
    at: Array
    places: Scale
    values: Scale
    sides: tuple[float, float]
    turned: bool = False

    def _turn(self, place: float, value: float) -> tuple[float, float]:
        return (value, place) if self.turned else (place, value)

    def _path(self, at: Iterable[float], values: Iterable[float], style: str, *, closed: bool = False) -> None:
        self.drawing.path([self._turn(*point) for point in zip(at, values, strict=True)], style, closed=closed)

    def _box(self, at: float, size: float, values: tuple[float, float], style: str, *, radius: float = 0.0) -> None:
        """A box in the middle of a place, between two numbers."""
        low, high = min(values), max(values)
        x, y = self._turn(at - size / 2, low)
        width, height = self._turn(size, max(high - low, 1.5 * self.turned))
        self.drawing.rect(x, y, width, height, style, radius=radius)

    def draw(self) -> list[list[float]]:
        """All marks of the panel; gives the pixels of the numbers at each place."""
        marks: list[list[float]] = [[] for _ in self.at]
        ends: list[tuple[float, float, Line]] = []
        gaps, weak = self.panel.places.missing, self.panel.places.weak | self.panel.weak
        lines = np.zeros(gaps.size, dtype=bool) if self.turned else ~gaps
        for mark in self.panel.marks:
            if isinstance(mark, Rule):
                self._rule(mark)
            elif isinstance(mark, Band):
                self._band(mark, lines, weak & mark.marks_weak)
            elif isinstance(mark, Bars):
                self._bars(mark)
            elif isinstance(mark, Texts):
                for place, value, text in zip(self.at, self.values.clipped(mark.values), mark.texts, strict=True):
                    self.drawing.text(value + 6, place + 4, text, "note")
            if isinstance(mark, Line | Bars):
                pixels = self.values.clipped(mark.values)
                known = np.isfinite(pixels)
                for k in np.flatnonzero(known):
                    marks[k].append(round(float(pixels[k]), 1))
            if isinstance(mark, Line):
                for run, unsure in _runs(known & lines, weak):
                    self._path(self.at[run], pixels[run], _style(mark.role, unsure))
                for k in np.flatnonzero((known & ~lines) | alone(known & lines)) if mark.points else ():
                    place = self._turn(self._aside(k, mark.shift), pixels[k])
                    self.drawing.mark(*place, _style(f"{mark.role}-mark", weak[k]), small=bool(mark.label))
                last = np.flatnonzero(known & lines)
                if mark.label and last.size:
                    ends.append((self.at[last[-1]], pixels[last[-1]], mark))
        apart = spread_apart([pixel for _, pixel, _ in ends], 12.0, self.values.stop, self.values.start)
        for (end, _, line), place in zip(ends, apart, strict=True):
            self.drawing.text(end + 5, place + 4, line.label, f"end {line.role}-end")
        return marks

    def _aside(self, k: Any, shift: float) -> float:
        """Where one of several points of a category, or of the rows without a value, is."""
        room = self.places(1.0) - self.places(0.0) if self.turned else ASIDE * self.panel.places.missing[k]
        return float(self.at[k] + room * shift)

    def _rule(self, mark: Rule) -> None:
        ends = (self.values.start, self.values.stop)
        if mark.place:
            self._path([self.places(mark.at)] * 2, ends, mark.role)
        elif mark.half:
            low, high = self.values(mark.at - mark.half), self.values(mark.at + mark.half)
            self._box(sum(self.sides) / 2, self.sides[1] - self.sides[0], (low, high), f"{mark.role}-band")
        else:
            self._path(self.sides, [self.values(mark.at)] * 2, mark.role)

    def _band(self, mark: Band, lines: NDArray[np.bool_], weak: NDArray[np.bool_]) -> None:
        low, high = self.values.clipped(mark.low), self.values.clipped(mark.high)
        known = np.isfinite(low) & np.isfinite(high)
        for run, unsure in _runs(known & lines, weak):
            around, edge = [*self.at[run], *self.at[run][::-1]], [*high[run], *low[run][::-1]]
            self._path(around, edge, _style(f"{mark.role}-band", unsure), closed=True)
        crowded = any(getattr(other, "shift", 0.0) for other in self.panel.marks)
        size = mark.box * BOX or (THIN / 2 if crowded else THIN)
        for k in np.flatnonzero((known & ~lines) | alone(known & lines)):
            style = _style(f"{mark.role}-band", weak[k])
            self._box(self._aside(k, mark.shift), size, (low[k], high[k]), style, radius=size / 4)

    def _bars(self, mark: Bars) -> None:
        unit = self.places(1.0) - self.places(0.0)
        for k, value in enumerate(mark.values):
            if not math.isfinite(value):
                continue
            place = self.at[k] + unit * mark.shift
            style = _style(f"{mark.roles[k] if mark.roles else mark.role}-bar", self.panel.weak)
            self._box(place, unit * mark.width - 1.6, (self.values(0.0), self.values(value)), style)
            if mark.low is not None and mark.high is not None and math.isfinite(mark.low[k] + mark.high[k]):
                self._path([place] * 2, [self.values(mark.low[k]), self.values(mark.high[k])], "whisker")


def _over_numbers(panels: Sequence[Panel], heights: Sequence[float]) -> tuple[Drawing, dict[str, Any]]:
    """Over the values of a number, from left to right; panels one below the other."""
    places = panels[0].places
    gaps = places.missing
    tops = [TOP + sum(heights[:k]) + BETWEEN * k for k in range(len(panels))]
    scales = [Scale(*panel.reach, top + high, top) for panel, top, high in zip(panels, tops, heights, strict=True)]
    ticks = [_ticks(panel, y, 5 if high > 150 else 3) for panel, y, high in zip(panels, scales, heights, strict=True)]
    left = max(LEFT, 14 + max((text_width(text) for own in ticks for _, text in own), default=0.0))
    labelled = any(isinstance(mark, Line) and mark.label for mark in panels[0].marks)
    names = 28.0 * labelled  # room for those of the lines
    stop = WIDTH - RIGHT
    right = stop - names - (MISSING_ROOM if gaps.any() else 0.0)
    x = Scale(*spanning([*places.at, *places.holds], pad=0.0), left + 6, right - 6)
    at = np.array([stop - 22 if gap else x(place) for place, gap in zip(places.at, gaps, strict=True)])
    bottom = scales[-1].start
    drawing = Drawing(WIDTH, bottom + BOTTOM)
    marks: list[list[float]] = [[] for _ in at]
    for panel, y, own in zip(panels, scales, ticks, strict=True):
        for start, end in [(left, stop)] if panel.weak else _weak_spans(at, places, left, right):
            drawing.rect(start, y.stop, end - start, y.start - y.stop, "unsure")
        for value, text in own:
            drawing.line(left, y(value), stop, y(value), "grid")
            drawing.text(left - 6, y(value) + 4, text, "tick", anchor="end")
        if panel.remark and panel is not panels[0]:
            drawing.text(left, y.stop - 6, panel.remark, "note", room=stop - left)
        if gaps.any():
            drawing.line(right + names + 2, y.stop, right + names + 2, y.start, "gap")
        found = _Frame(drawing, panel, at, x, y, (left, stop)).draw()
        marks = [before + more for before, more in zip(marks, found, strict=True)]
    for value, text in places.ticks or x.ticks(5):
        drawing.line(x(value), bottom, x(value), bottom + 4, "axis")
        drawing.text(x(value), bottom + 16, text, "tick", anchor="middle")
    if gaps.any():
        drawing.text(stop - 22, bottom + 16, MISSING, "tick", anchor="middle")
    drawing.line(left, bottom, right, bottom, "axis")
    drawing.text((left + right) / 2, bottom + 34, places.name, "axis-name", anchor="middle", room=right - left)
    return drawing, _readout(panels[0], "x", at, (left, TOP, stop, bottom), marks)


def _rows(panel: Panel) -> tuple[Drawing, dict[str, Any]]:
    """Over categories, one below the other."""
    places = panel.places
    names = [shortened(label, MOST_NAME, middle=True) for label in places.labels]  # ends often tell them apart
    left, right = 16 + max((text_width(name) for name in names), default=0.0), WIDTH - RIGHT
    row = ROW + 5 * (len({mark.shift for mark in panel.marks if isinstance(mark, Line)} or {0}) - 1)
    room = row * max(len(names), 2)
    bottom = TOP + room
    drawing = Drawing(WIDTH, bottom + BOTTOM)
    x = Scale(*panel.reach, left + 4, right - 4, panel.log)
    first = TOP + (room - row * (len(names) - 1)) / 2
    y = Scale(0.0, 1.0, first, first + row)
    at = np.array([y(place) for place in places.at])
    for value, text in _ticks(panel, x, 4):
        drawing.line(x(value), TOP, x(value), bottom, "grid")
        drawing.text(x(value), bottom + 16, text, "tick", anchor="middle")
    for label, place, unsure in zip(places.labels, at, places.weak, strict=True):
        if unsure:
            drawing.rect(left, place - row / 2 + 1, right - left, row - 2, "unsure")
        drawing.text(left - 8, place + 4, label, "category", anchor="end", room=MOST_NAME, middle=True)
    drawing.line(left, bottom, right, bottom, "axis")
    name = panel.label or places.name  # of what is measured: categories stand beside the rows
    drawing.text((left + right) / 2, bottom + 34, name, "axis-name", anchor="middle", room=right - left)
    marks = _Frame(drawing, panel, at, y, x, (TOP, bottom), turned=True).draw()
    return drawing, _readout(panel, "y", at, (left, TOP, right, bottom), marks)


def _readout(panel: Panel, axis: str, at: Array, box: tuple[float, ...], marks: list[list[float]]) -> dict[str, Any]:
    """Where the points are and what is said there."""
    order = np.argsort(at, kind="stable")
    told, weak = panel.told, panel.places.weak
    texts = list(told.texts) or [""] * at.size
    if not told.words:
        texts = [f"{text}{'; too few rows to rely on' * bool(low)}" for text, low in zip(texts, weak, strict=True)]
    return {
        "axis": axis,
        "box": [round(side, 1) for side in box],
        "at": [round(float(at[k]), 1) for k in order],
        "marks": [marks[k] for k in order],
        "name": "outcome" if told.words else shortened(panel.places.name, MOST_NAME),
        "labels": [panel.places.labels[k] for k in order],
        "texts": [texts[k] for k in order],
        **({"words": list(told.words)} if told.words else {}),
    }


def _largest(panel: Panel) -> Panel:
    """Of very many categories those with the most rows, in their order."""
    note = f" The {MOST_ROWS} largest of {len(panel.places.labels)} categories; the numbers below have all."
    cut = panel.take(panel.places.largest(MOST_ROWS))
    return replace(cut, told=replace(cut.told, note=f"{cut.told.note}{note}"))


def _ticks(panel: Panel, scale: Scale, most: int) -> Sequence[tuple[float, str]]:
    """What is written at the axis of numbers."""
    if panel.ticks:
        return panel.ticks
    found = scale.ticks(most)
    return [(value, panel.share(value)) for value, _ in found] if panel.percent else found


def _style(style: str, unsure: bool | np.bool_) -> str:
    return f"{style} low" if unsure else style


def spread_apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places of labels moved as little as it takes to be `gap` apart, and between low and high where there is room.

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
    found = [0.0] * len(moved)
    for place, k in zip(moved, order, strict=True):
        found[int(k)] = place + shift
    return found


def _runs(known: NDArray[np.bool_], low: NDArray[np.bool_]) -> list[tuple[slice, bool]]:
    """Stretches of neighbours that are known, cut where support begins or ends; a cut point belongs to both."""
    found: list[tuple[slice, bool]] = []
    for k in range(len(known) - 1):
        if not (known[k] and known[k + 1]):
            continue
        unsure = bool(low[k] or low[k + 1])
        if found and found[-1][0].stop == k + 1 and found[-1][1] == unsure:
            found[-1] = (slice(found[-1][0].start, k + 2), unsure)
        else:
            found.append((slice(k, k + 2), unsure))
    return found


def _weak_spans(at: Array, places: Places, left: float, right: float) -> list[tuple[float, float]]:
    """Where to shade: from a point with enough rows to the next one, or to the edge."""
    gaps = places.missing
    edges, weak = [left, *at[~gaps], right], np.array([False, *places.weak[~gaps], False])
    spans = [(edges[run.start], edges[run.stop - 1]) for run, unsure in _runs(np.ones(weak.size, bool), weak) if unsure]
    return spans + [(place - 18, place + 18) for place in at[gaps & places.weak]]


def _round_step(rough: float) -> float:
    size = 10.0 ** math.floor(math.log10(rough))
    return next(factor * size for factor in (1.0, 2.0, 5.0, 10.0) if factor * size >= rough * 0.999)


def _tick_text(value: float, digits: int) -> str:
    if abs(value) >= 1e7 or (value and digits > 5):
        return number(value)
    return "0" if value == 0 else f"{value:,.{digits}f}".replace("-", MINUS)


def _steps(points: Iterable[tuple[float, float]]) -> list[tuple[int, int]]:
    """Start and steps of a line in tenths; steps that go on in the same direction are one.

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


def _tenths(value: int) -> str:
    return _short(value / 10)


def _short(value: float) -> str:
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text
