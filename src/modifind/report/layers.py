"""Pictures along the values of a feature: layers drawn over numbers from left to right, or over categories in rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.report.svg import Drawing, Scale, number, shortened, spanning, spread_apart, text_width

WIDTH, HEIGHT = 380.0, 236.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 12.0, 12.0, 40.0
ROW = 26.0
MISSING_ROOM = 52.0
MOST_NAME = 128.0
MOST_ROWS = 30
MISSING = "missing"
MOST_UNSURE = 0.25  # of the range of points with enough rows


@dataclass(frozen=True)
class Line:
    """One number at every value: a line, or a point in every row.

    Parameters
    ----------
    values : array
        The numbers; NaN where not known.
    style : str
        Class of the style sheet.
    shape : str
        Mark in the rows of categories, see `Drawing.mark`.
    label : str
        Text at the end of the line.
    """

    values: Array
    style: str
    shape: str = "dot"
    label: str = ""


@dataclass(frozen=True)
class Band:
    """The range between two numbers at every value."""

    low: Array
    high: Array
    style: str
    thickness: float = 5.0


@dataclass(frozen=True)
class Rule:
    """A number to compare with."""

    at: float
    style: str


Layer = Line | Band | Rule


@dataclass(frozen=True)
class Points:
    """Values of a feature that something is known at.

    Parameters
    ----------
    labels : tuple of str
        The values as text.
    places : array
        The values of a number; NaN for rows without one.
    discrete : bool
        Whether the values are categories.
    low_support : array of bool
        Where there are too few rows to say anything.
    """

    labels: tuple[str, ...]
    places: Array
    discrete: bool
    low_support: NDArray[np.bool_]

    @classmethod
    def of(cls, frame: pd.DataFrame, *, discrete: bool) -> Points:
        """The points of a curve or of bounds."""
        low = np.zeros(len(frame), dtype=bool)
        if "low_support" in frame:
            low = frame["low_support"].to_numpy(dtype=bool)
        labels = tuple(value_text(value) for value in frame["value"])
        places = np.arange(len(frame), dtype=float)
        if not discrete:
            places = pd.to_numeric(frame["value"], errors="coerce").to_numpy(dtype=float)
        return cls(labels, places, discrete, low)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which point stands for the rows without a value."""
        return np.isnan(self.places)


@dataclass(frozen=True)
class Chart:
    """A picture and what is said when a place in it is pointed at.

    Parameters
    ----------
    title, note : str
        Heading, and one sentence on how to read it.
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


@dataclass(frozen=True)
class Picture:
    """What is needed to draw along a feature."""

    name: str
    points: Points
    layers: Sequence[Layer]
    said: Sequence[str]
    label: str
    within: tuple[float, float] | None = None
    text: Callable[[float], str] | None = None

    def draw(self) -> tuple[Markup, dict[str, Any]]:
        """The picture and its readout."""
        return _rows(self) if self.points.discrete else _curve(self)

    def scale(self, start: float, stop: float) -> Scale:
        """A scale that all layers fit in; points with too few rows count as far as they do not dwarf the others."""
        sure, unsure = ~self.points.low_support, self.points.low_support
        values = [layer.at for layer in self.layers if isinstance(layer, Rule)]
        beyond: list[float] = []
        for layer in self.layers:
            if not isinstance(layer, Rule):
                sides = [layer.values] if isinstance(layer, Line) else [layer.low, layer.high]
                values += [float(v) for side in sides for v in side[sure] if math.isfinite(v)]
                beyond += [float(v) for side in sides for v in side[unsure] if math.isfinite(v)]
        if not sure.any():
            values += beyond
        elif values:
            low, high = min(values), max(values)
            reach = MOST_UNSURE * (high - low)
            values += [min(max(v, low - reach), high + reach) for v in beyond]
        return spanning(values, start, stop, within=self.within)

    def ticks(self, scale: Scale, most: int) -> list[tuple[float, str]]:
        """Ticks of the scale of the layers."""
        found = scale.ticks(most)
        return found if self.text is None else [(value, self.text(value)) for value, _ in found]

    def readout(self, axis: str, at: Array, box: tuple[float, ...], marks: list[list[float]]) -> dict[str, Any]:
        """Where the points are and what is said there."""
        order = np.argsort(at, kind="stable")
        return {
            "axis": axis,
            "box": [round(side, 1) for side in box],
            "at": [round(float(at[k]), 1) for k in order],
            "marks": [marks[k] for k in order],
            "name": shortened(self.name, MOST_NAME),
            "labels": [self.points.labels[k] for k in order],
            "texts": [self.said[k] + ("; too few rows to rely on" * bool(self.points.low_support[k])) for k in order],
        }


def value_text(value: Any) -> str:
    """A value of a feature as text.

    Examples
    --------
    >>> value_text(54.321987), value_text(2.0), value_text("yes"), value_text(float("nan"))
    ('54.32', '2', 'yes', 'missing')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    if isinstance(value, bool | np.bool_ | str):
        return str(value)
    if isinstance(value, int | np.integer):
        return str(value).replace("-", "\u2212")
    if isinstance(value, np.floating):
        value = float(value)
    if isinstance(value, float):
        text = f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
        return text.replace("-", "\u2212")
    return str(value)


def with_limits(value: float, low: float, high: float, text: Callable[[float], str] = number) -> str:
    """A number with its limits where these are known."""
    if math.isnan(low) or math.isnan(high):
        return text(value)
    return f"{text(value)} ({text(low)} to {text(high)})"


def _curve(picture: Picture) -> tuple[Markup, dict[str, Any]]:
    """Over the values of a number, from left to right."""
    points, gaps = picture.points, picture.points.missing
    drawing = Drawing(WIDTH, HEIGHT)
    labelled = any(isinstance(layer, Line) and layer.label for layer in picture.layers)
    top, bottom = TOP, HEIGHT - BOTTOM
    y = picture.scale(bottom, top)
    ticks = picture.ticks(y, 5)
    left = max(LEFT - 14, 14 + max((text_width(text) for _, text in ticks), default=0.0))
    names = 28.0 * labelled  # room for those of the lines
    right = WIDTH - RIGHT - names - (MISSING_ROOM if gaps.any() else 0.0)
    x = spanning(points.places, left + 6, right - 6, pad=0.0)
    at = np.array([WIDTH - RIGHT - 22 if gap else x(place) for place, gap in zip(points.places, gaps, strict=True)])
    for start, stop in _low_spans(at, points.low_support, gaps, left, right):
        drawing.rect(start, top, stop - start, bottom - top, "unsure")
    for value, text in ticks:
        drawing.line(left, y(value), WIDTH - RIGHT, y(value), "grid")
        drawing.text(left - 6, y(value) + 4, text, "tick", anchor="end")
    for value, text in x.ticks(5):
        drawing.line(x(value), bottom, x(value), bottom + 4, "axis")
        drawing.text(x(value), bottom + 16, text, "tick", anchor="middle")
    if gaps.any():
        drawing.line(right + names + 2, top, right + names + 2, bottom, "gap")
        drawing.text(WIDTH - RIGHT - 22, bottom + 16, MISSING, "tick", anchor="middle")
    drawing.line(left, bottom, right, bottom, "axis")
    drawing.text((left + right) / 2, HEIGHT - 6, picture.name, "axis-name", anchor="middle", room=right - left)
    marks: list[list[float]] = [[] for _ in points.labels]
    ends: list[tuple[float, float, Line]] = []
    for layer in picture.layers:
        if isinstance(layer, Rule):
            drawing.line(left, y(layer.at), WIDTH - RIGHT, y(layer.at), layer.style)
        elif isinstance(layer, Band):
            _area(drawing, layer, points, at, y)
        else:
            heights = _stroke(drawing, layer, points, at, y)
            for k in np.flatnonzero(np.isfinite(heights)):
                marks[k].append(round(float(heights[k]), 1))
            known = np.flatnonzero(np.isfinite(heights) & ~gaps)
            if layer.label and known.size:
                ends.append((at[known[-1]], heights[known[-1]], layer))
    for (end, _, line), place in zip(ends, spread_apart([e[1] for e in ends], 12.0, top, bottom), strict=True):
        drawing.text(end + 5, place + 4, line.label, f"end {line.style}-end")
    return drawing.svg(picture.label), picture.readout("x", at, (left, top, WIDTH - RIGHT, bottom), marks)


def _area(drawing: Drawing, band: Band, points: Points, at: Array, y: Scale) -> None:
    """A band over numbers; of rows without a value, a bar."""
    low, high = (np.clip([y(v) for v in side], TOP, HEIGHT - BOTTOM) for side in (band.low, band.high))
    known = np.isfinite(low) & np.isfinite(high)
    for run, unsure in _runs(known & ~points.missing, points.low_support):
        edge = [*zip(at[run], high[run], strict=True), *zip(at[run][::-1], low[run][::-1], strict=True)]
        drawing.path(edge, _style(band.style, unsure), closed=True)
    half = max(band.thickness / 2, 2.0)
    for k in np.flatnonzero(_alone(known, points.missing)):
        style = _style(band.style, points.low_support[k])
        drawing.rect(at[k] - half, high[k], 2 * half, low[k] - high[k], style)


def _stroke(drawing: Drawing, line: Line, points: Points, at: Array, y: Scale) -> Array:
    """A line over numbers, and marks where no line can be; gives the heights."""
    heights = np.clip([y(v) for v in line.values], TOP, HEIGHT - BOTTOM)
    known = np.isfinite(heights)
    for run, unsure in _runs(known & ~points.missing, points.low_support):
        drawing.path(zip(at[run], heights[run], strict=True), _style(line.style, unsure))
    for k in np.flatnonzero(_alone(known, points.missing)):
        drawing.mark(at[k], heights[k], _style(f"{line.style}-mark", points.low_support[k]), line.shape)
    return heights


def _style(style: str, unsure: bool | np.bool_) -> str:
    return f"{style} low" if unsure else style


def _rows(picture: Picture) -> tuple[Markup, dict[str, Any]]:
    """Over categories, one below the other."""
    points = picture.points
    names = [shortened(label, MOST_NAME, middle=True) for label in points.labels]  # ends often tell them apart
    left = 16 + max((text_width(name) for name in names), default=0.0)
    height = TOP + ROW * max(len(names), 2) + BOTTOM
    drawing = Drawing(WIDTH, height)
    top, bottom, right = TOP, height - BOTTOM, WIDTH - RIGHT
    x = picture.scale(left + 4, right - 4)
    at = np.array([top + ROW * (k + 0.5) for k in range(len(names))]) + (bottom - top - ROW * len(names)) / 2
    for value, text in picture.ticks(x, 4):
        drawing.line(x(value), top, x(value), bottom, "grid")
        drawing.text(x(value), bottom + 16, text, "tick", anchor="middle")
    for label, place, unsure in zip(points.labels, at, points.low_support, strict=True):
        if unsure:
            drawing.rect(left, place - ROW / 2 + 1, right - left, ROW - 2, "unsure")
        drawing.text(left - 8, place + 4, label, "category", anchor="end", room=MOST_NAME, middle=True)
    drawing.line(left, bottom, right, bottom, "axis")
    drawing.text((left + right) / 2, height - 6, picture.name, "axis-name", anchor="middle", room=right - left)
    marks: list[list[float]] = [[] for _ in names]

    def within(value: float) -> float:
        return min(max(x(value), left), right)

    for layer in picture.layers:
        if isinstance(layer, Rule):
            drawing.line(x(layer.at), bottom, x(layer.at), top, layer.style)
            continue
        for k, place in enumerate(at):
            unsure = points.low_support[k]
            if isinstance(layer, Band):
                start, stop = sorted((layer.low[k], layer.high[k]))
                if math.isfinite(start + stop):
                    size, begin, end = layer.thickness, within(start), within(stop)
                    box = (begin, place - size / 2, max(end - begin, 1.5), size)
                    drawing.rect(*box, _style(layer.style, unsure), radius=size / 4)
            elif math.isfinite(layer.values[k]):
                drawing.mark(within(layer.values[k]), place, _style(f"{layer.style}-mark", unsure), layer.shape)
                marks[k].append(round(within(layer.values[k]), 1))
    return drawing.svg(picture.label), picture.readout("y", at, (left, top, right, bottom), marks)


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


def _alone(known: NDArray[np.bool_], gaps: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Points that no line reaches: that of missing values, and those between unknown neighbours."""
    line = known & ~gaps
    beside = np.zeros_like(line)
    beside[1:] |= line[:-1]
    beside[:-1] |= line[1:]
    return known & (gaps | ~beside)


def _low_spans(
    at: Array, low: NDArray[np.bool_], gaps: NDArray[np.bool_], left: float, right: float
) -> list[tuple[float, float]]:
    """Where to shade: from a point with enough rows to the next one, or to the edge."""
    places = at[~gaps]
    unsure = low[~gaps]
    spans: list[tuple[float, float]] = []
    for k in np.flatnonzero(unsure):
        start = float(places[k - 1]) if k > 0 else left
        stop = float(places[k + 1]) if k + 1 < places.size else right
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], stop)
        else:
            spans.append((start, stop))
    spans += [(float(place) - 18, float(place) + 18) for place in at[gaps & low]]
    return spans
