"""SVG renderer, with texts shown on hover.

Colours come from the style sheet of the page by class, so that one drawing serves light, dark and printed pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from markupsafe import Markup

from modifind.charts.frame import Drawing, Frame, Scale, runs
from modifind.charts.labels import MISSING, shortened, text_width
from modifind.charts.spec import Line, Panel, Places, Rule, TextColumn, spanning

WIDTH, HEIGHT = 380.0, 236.0
LEFT, RIGHT, TOP, BOTTOM = 32.0, 12.0, 12.0, 40.0
STOP = WIDTH - RIGHT
STACKED, BETWEEN = (120.0, 64.0), 26.0  # heights of panels one below the other, and the room between
ROW = 26.0
LISTED_ROW, MAX_COLUMN_WIDTH = 22.0, 170.0
MISSING_ROOM = 52.0
MAX_LABEL_WIDTH = 128.0
MAX_CHART_ROWS = 30

Ticks = Sequence[tuple[float, str]]


@dataclass(frozen=True)
class Chart:
    """A figure and its hover texts.

    Parameters
    ----------
    title, note : str
        Heading, and how to read it.
    svg : Markup
        The figure.
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


def chart(*panels: Panel, height: float = HEIGHT - TOP - BOTTOM) -> Chart:
    """A figure of one panel, or of stacked panels that share their positions."""
    first = _largest(panels[0])
    if first.places.discrete:
        drawing, readout = _rows(first)
    else:
        drawing, readout = _over_numbers(panels, STACKED if len(panels) > 1 else (height,))
    caption = first.caption
    return Chart(caption.title, caption.note, drawing.svg(caption.about), readout, _keys(panels), unsure=first.weak)


def row_chart(panel: Panel, width: float, *, narrow: bool = False) -> Chart:
    """A figure of rows with columns of text; if `narrow`, only the most important columns."""
    columns = [column for column in panel.columns if column.narrow or not narrow]
    drawing, readout = _listed_rows(panel, columns, width)
    caption = panel.caption
    return Chart(caption.title, caption.note, drawing.svg(caption.about), readout, _keys([panel]))


def small_chart(panel: Panel, width: float = 160.0, height: float = 64.0) -> Markup:
    """A figure of bars without axes."""
    drawing, x = Drawing(width, height), Scale(0.0, 1.0, 0.0, width)
    Frame(drawing, panel, x.at(panel.places.at), x, Scale(*panel.reach, height - 6, 4.0), (0.0, width)).draw()
    return drawing.svg(panel.caption.about)


def _keys(panels: Sequence[Panel]) -> tuple[tuple[str, str], ...]:
    """Class and text of legend entries, except for lines with a label at their end."""
    first = panels[0]
    named = set() if first.places.discrete else {mark.label for mark in first.marks if isinstance(mark, Line)}
    keys = [key for panel in panels for key in panel.all_keys if key.text not in named]
    entries = [("key-band" if key.form == "band" else f"key-{key.role}", key.long or key.text) for key in keys]
    return tuple(dict.fromkeys(entries))


@dataclass
class _Across:
    """Horizontal axis of numbers, with a position for missing values after them.

    `left` is where panels begin, `names` the room for names of lines.
    """

    places: Places
    left: float
    names: float

    def __post_init__(self) -> None:
        self.gap = bool(self.places.missing.any())
        self.right = STOP - self.names - MISSING_ROOM * self.gap
        ends = spanning([*self.places.at, *self.places.holds], pad=0.0)
        self.scale = Scale(*ends, self.left + 6, self.right - 6)
        self.at = np.where(self.places.missing, STOP - 22, self.scale.at(self.places.at))

    def ground(self, drawing: Drawing, panel: Panel, y: Scale, ticks: Ticks) -> None:
        """Background of a panel: shading for weak support, grid lines and their labels."""
        for start, end in [(self.left, STOP)] if panel.weak else self._weak_spans():
            drawing.rect(start, y.stop, end - start, y.start - y.stop, "unsure")
        for value, text in ticks:
            drawing.line(self.left, y(value), STOP, y(value), "grid")
            drawing.text(self.left - 6, y(value) + 4, text, "tick", anchor="end")
        if panel.remark and y.stop > TOP:  # below another panel
            drawing.text(self.left, y.stop - 6, panel.remark, "note", room=STOP - self.left)
        if self.gap:
            edge = self.right + self.names + 2
            drawing.line(edge, y.stop, edge, y.start, "gap")

    def axis(self, drawing: Drawing, bottom: float) -> None:
        """Tick and axis labels below all panels."""
        for value, text in self.places.ticks or self.scale.ticks(5):
            drawing.line(self.scale(value), bottom, self.scale(value), bottom + 4, "axis")
            drawing.text(self.scale(value), bottom + 16, text, "tick", anchor="middle")
        if self.gap:
            drawing.text(STOP - 22, bottom + 16, MISSING, "tick", anchor="middle")
        _name_axis(drawing, self.places.name, self.left, self.right, bottom)

    def _weak_spans(self) -> list[tuple[float, float]]:
        """Ranges to shade: from a well-supported point to the next one, or to the edge."""
        gaps, few = self.places.missing, self.places.weak
        edges, weak = [self.left, *self.at[~gaps], self.right], np.array([False, *few[~gaps], False])
        stretches = runs(np.ones(weak.size, bool), weak)
        spans = [(edges[run.start], edges[run.stop - 1]) for run, unsure in stretches if unsure]
        return spans + [(place - 18, place + 18) for place in self.at[gaps & few]]


def _over_numbers(panels: Sequence[Panel], heights: Sequence[float]) -> tuple[Drawing, dict[str, Any]]:
    """Stacked panels over the values of a number, left to right."""
    tops = [TOP + sum(heights[:k]) + BETWEEN * k for k in range(len(panels))]
    scales = [Scale(*panel.reach, top + high, top) for panel, top, high in zip(panels, tops, heights, strict=True)]
    ticks = [_ticks(panel, y, 5 if high > 150 else 3) for panel, y, high in zip(panels, scales, heights, strict=True)]
    widest = max((text_width(text) for panel_ticks in ticks for _, text in panel_ticks), default=0.0)
    labelled = any(isinstance(mark, Line) and mark.label for mark in panels[0].marks)
    across, bottom = _Across(panels[0].places, max(LEFT, 14 + widest), 28.0 * labelled), scales[-1].start
    drawing, frames = Drawing(WIDTH, bottom + BOTTOM), []
    for panel, y, panel_ticks in zip(panels, scales, ticks, strict=True):
        across.ground(drawing, panel, y, panel_ticks)
        frames.append(Frame(drawing, panel, across.at, across.scale, y, (across.left, STOP)))
        frames[-1].draw()
    across.axis(drawing, bottom)
    return drawing, _readout(frames, "x", (across.left, TOP, STOP, bottom))


def _rows(panel: Panel) -> tuple[Drawing, dict[str, Any]]:
    """Panels over stacked categories."""
    places = panel.places
    names = [shortened(label, MAX_LABEL_WIDTH, middle=True) for label in places.labels]  # ends often tell them apart
    left = 16 + max(map(text_width, names), default=0.0)
    row = ROW + 5 * max(len({mark.shift for mark in panel.marks if isinstance(mark, Line)}) - 1, 0)
    room = row * max(len(names), 2)
    bottom = TOP + room
    drawing = Drawing(WIDTH, bottom + BOTTOM)
    x = Scale(*panel.reach, left + 4, STOP - 4, panel.log)
    first = TOP + (room - row * (len(names) - 1)) / 2
    y = Scale(0.0, 1.0, first, first + row)
    at = y.at(places.at)
    for value, text in _ticks(panel, x, 4):
        drawing.line(x(value), TOP, x(value), bottom, "grid")
        drawing.text(x(value), bottom + 16, text, "tick", anchor="middle")
    for label, place, unsure in zip(places.labels, at, places.weak, strict=True):
        if unsure:
            drawing.rect(left, place - row / 2 + 1, STOP - left, row - 2, "unsure")
        drawing.text(left - 8, place + 4, label, "category", anchor="end", room=MAX_LABEL_WIDTH, middle=True)
    # The name is that of what is measured: categories stand beside the rows.
    _name_axis(drawing, panel.label or places.name, left, STOP, bottom)
    frame = Frame(drawing, panel, at, y, x, (TOP, bottom), turned=True)
    frame.draw()
    return drawing, _readout([frame], "y", (left, TOP, STOP, bottom))


def _listed_rows(panel: Panel, columns: Sequence[TextColumn], width: float) -> tuple[Drawing, dict[str, Any]]:
    """Left-aligned rows with headings, and columns of text before and after the drawing."""
    places, bottom = panel.places, TOP + LISTED_ROW * (len(panel.places.labels) + 1)
    drawing = Drawing(width, bottom + BOTTOM + (16 if panel.unit else 0))
    widths = [min(max(map(text_width, (column.title, *column.texts))) + 14, MAX_COLUMN_WIDTH) for column in columns]
    left = 4 + min(max(map(text_width, places.labels), default=0.0) + 10, MAX_LABEL_WIDTH)
    right = width - sum(room for column, room in zip(columns, widths, strict=True) if not column.before)
    ends = {True: left, False: right}
    y = Scale(0.0, 1.0, TOP + 1.5 * LISTED_ROW, TOP + 2.5 * LISTED_ROW)
    at = y.at(places.at)
    for column, room in zip(columns, widths, strict=True):
        for place, text in ((TOP + LISTED_ROW / 2, column.title), *zip(at, column.texts, strict=True)):
            drawing.text(ends[column.before] + 8, place + 4, text, "note", room=room - 6)
        ends[column.before] += room
    x = Scale(*panel.reach, ends[True] + 10, right - 6, panel.log)
    for value, text in _ticks(panel, x, 4):
        drawing.line(x(value), TOP + LISTED_ROW, x(value), bottom, "grid")
        drawing.text(x(value), bottom + 16, text, "tick", anchor="middle")
    for label, place, head in zip(places.labels, at, places.heads, strict=True):
        style, indent = ("heading", 0) if head else ("category", 12)
        drawing.text(indent, place + 4, label.strip(), style, room=left - indent, middle=True)
    _name_axis(drawing, panel.label, x.start, x.stop, bottom, room=width)
    sides = next((x(mark.at) for mark in panel.marks if isinstance(mark, Rule)), (x.start + x.stop) / 2)  # of no effect
    drawing.text(sides, bottom + 50, panel.unit, "note", anchor="middle")
    frame = Frame(drawing, panel, at, y, x, (TOP + LISTED_ROW, bottom), turned=True)
    frame.draw()
    return drawing, _readout([frame], "y", (x.start, TOP, x.stop, bottom))


def _name_axis(
    drawing: Drawing, name: str, left: float, right: float, bottom: float, room: float | None = None
) -> None:
    drawing.line(left, bottom, right, bottom, "axis")
    fits = text_width(name) <= right - left
    middle = (left + right) / 2 if room is None or fits else room / 2
    drawing.text(middle, bottom + 34, name, "axis-name", anchor="middle", room=room or right - left)


def _readout(frames: Sequence[Frame], axis: str, box: tuple[float, ...]) -> dict[str, Any]:
    """Positions of the points and their hover texts."""
    at, panel, said = frames[0].at, frames[0].panel, _said(frames[0].panel)
    words, order = panel.caption.words, np.argsort(at, kind="stable")
    spots = [[*chain(*pixels)] for pixels in zip(*(frame.spots() for frame in frames), strict=True)]
    return {
        "axis": axis,
        "box": [round(side, 1) for side in box],
        "at": [round(float(at[k]), 1) for k in order],
        "marks": [spots[k] for k in order],
        "name": "outcome" if words else shortened(panel.places.name, MAX_LABEL_WIDTH),
        "labels": [panel.places.labels[k] for k in order],
        "texts": [said[k] for k in order],
        **({"words": list(words)} if words else {}),
    }


def _said(panel: Panel) -> Sequence[Any]:
    """Hover text at each position."""
    texts, weak = panel.caption.texts or ("",) * len(panel.places.labels), panel.places.weak.tolist()
    if panel.caption.words:
        return texts
    return [f"{text}{'; too few rows' * few}" for text, few in zip(texts, weak, strict=True)]


def _largest(panel: Panel) -> Panel:
    """The categories with the most rows, in order, if there are very many."""
    n = len(panel.places.labels)
    if not panel.places.discrete or n <= MAX_CHART_ROWS or not panel.caption.texts:
        return panel
    cut = panel.take(panel.places.largest(MAX_CHART_ROWS))
    note = f" The {MAX_CHART_ROWS} largest of {n} categories; the numbers below have all."
    return replace(cut, caption=replace(cut.caption, note=f"{cut.caption.note}{note}"))


def _ticks(panel: Panel, scale: Scale, most: int) -> Ticks:
    """Tick labels of the value axis."""
    if panel.ticks:
        return panel.ticks
    ticks = scale.ticks(most)
    return [(value, panel.share(value)) for value, _ in ticks] if panel.percent else ticks
