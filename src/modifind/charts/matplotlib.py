"""Matplotlib renderer: figures half a printed page wide, in colours distinct for colour-blind readers and in grey."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from modifind._typing import Array
from modifind.charts import spec
from modifind.charts.labels import MISSING, shown, wrap
from modifind.charts.spec import ROOM, Band, Bars, Key, Line, Mark, Panel, Rule, Texts, alone, beside, spanning

# Okabe and Ito's palette.
SELECTED = "#0072B2"
SPREAD = "#D55E00"
SHAPE = "#009E73"
BOUND = "#CC79A7"
CONTROL = "#B06F00"
PLAIN = "#B4B9C0"
FAINT = "#8A919B"
INK = "#333A42"
# Names are the user's text: a dollar sign is no formula, and nothing in them is a command.
PLAIN_TEXT: dict[str, Any] = {"parse_math": False, "usetex": False}
LABEL_SIZE, TICK_SIZE, NOTE_SIZE = 8.0, 7.5, 7.0
LETTER_WIDTH = 3.7  # points, about, of a letter of a note
LEGEND_ROW = 10.6  # points of a row of the legend
DPI = 200
WEAK_HATCH = "/////"
WEAK: dict[str, Any] = {"facecolor": "none", "edgecolor": FAINT, "hatch": WEAK_HATCH, "alpha": 0.55, "linewidth": 0}
MISSING_GAP = 0.14  # of the range of values
TALL = 28  # letters that fit beside axes
MAX_OUTCOME_TICKS = 6  # ticks of an outcome with few values


@dataclass(frozen=True)
class RoleStyle:
    """Style of a role: line style, marker and hatch distinguish it without colour."""

    colour: str
    line: Any = "-"
    marker: str = "o"
    width: float = 1.8
    shade: float = 0.2
    hatch: str | None = None


STYLES = {
    **dict.fromkeys(("average", "selected", "fit", "rank"), RoleStyle(SELECTED)),
    "spread": RoleStyle(SPREAD, marker="s"),
    "shape": RoleStyle(SHAPE, marker="^"),
    "distance": RoleStyle(SHAPE),
    "q10": RoleStyle(SELECTED, (0, (1, 1)), "v", 1.6, 0.13),
    "q50": RoleStyle(INK, "-", "o", 2.0, 0.13),
    "q90": RoleStyle(SPREAD, (0, (7, 1.5)), "^", 1.6, 0.13),
    "treated": RoleStyle(SELECTED, width=1.5),
    "control": RoleStyle(CONTROL, (0, (4, 1.5)), width=1.5, hatch="....."),
    "witness": RoleStyle(INK, width=1.5),
    "null": RoleStyle(FAINT, shade=0.3),
    "bounds": RoleStyle(BOUND, width=1.6, shade=0.55),
    "limits": RoleStyle(BOUND, shade=0.22),
    "neutral": RoleStyle(INK, width=0.7),
    "overall": RoleStyle(INK, (0, (5, 2)), width=1.1),
    "level": RoleStyle(INK, (0, (4, 1.5)), width=1.0),
    "limit": RoleStyle(SPREAD, (0, (4, 1.5)), width=1.2),
    "clip": RoleStyle(INK, (0, (1, 1.5)), width=1.0),
    "separator": RoleStyle(PLAIN, width=0.4),
    "plain": RoleStyle(PLAIN),
    "unsure": RoleStyle(FAINT, hatch=WEAK_HATCH),
}
BAR_SHADES = {"treated": 0.75, "rank": 0.6, "witness": 0.55}


def make_figure(width: float, height: float, dpi: float | None = None) -> Figure:
    """A figure without a window, so that nothing stays open and any backend works."""
    figure = Figure(figsize=(width, height), layout="constrained", dpi=dpi)
    FigureCanvasAgg(figure)
    return figure


def tidy(axes: Axes, *, tick_size: float = 9, title_size: float = 10) -> None:
    """Remove lines that carry no information."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=INK, labelsize=tick_size)
    axes.title.set_fontsize(title_size)


def draw(figure: spec.Figure, axes: Sequence[Axes] | None = None) -> tuple[Any, list[Axes]]:
    """Draw the panels on given axes, or on a new figure; return the figure and the axes."""
    return _draw_new(figure) if axes is None else _draw_on(figure, list(axes))


def _draw_new(figure: spec.Figure) -> tuple[Figure, list[Axes]]:
    """Draw a new figure with one legend, and axis labels at its left and bottom only."""
    sheet, axes = _sheet(figure)
    for k, (ax, panel) in enumerate(zip(axes, figure.panels, strict=True)):
        _draw_panel(ax, panel, figure.columns)
        if k % (len(axes) // len(figure.ratios)) % figure.columns:
            ax.set_yticklabels([])
            ax.set_ylabel("")
        if panel.joined and not panel.places.ticks:
            ax.set_xticklabels([])
    entries, unit = _entries(figure), figure.panels[0].unit
    if figure.columns > 1 and unit:  # too long for the labels of narrow axes
        entries.append((Line2D([], [], color="none"), unit))
    _legend(sheet, entries, figure.legend_columns)
    sheet.align_ylabels(axes)
    return sheet, axes


def _draw_on(figure: spec.Figure, axes: list[Axes]) -> tuple[Any, list[Axes]]:
    """Draw on the user's axes, with the legend on the first, below any existing text."""
    entries = _entries(figure)
    rows = -(-len(entries) // figure.legend_columns)
    for k, (ax, panel) in enumerate(zip(axes, figure.panels, strict=True)):
        _draw_panel(ax, panel, lift=0.0 if k else LEGEND_ROW * rows)
    _legend(axes[0], entries, figure.legend_columns)
    return axes[0].get_figure(), axes


def _entries(figure: spec.Figure) -> list[tuple[Any, str]]:
    """Legend entries without duplicates, weak support last."""
    keys: dict[str, Key] = {}
    for key in (key for panel in figure.panels for key in panel.all_keys if key.role != "neutral"):
        keys.setdefault(key.text, key)
    return [(_handle(key), key.text) for key in sorted(keys.values(), key=lambda key: key.role == "unsure")]


def _sheet(figure: spec.Figure) -> tuple[Figure, list[Axes]]:
    """A new figure with axes for the panels, those of a stack below each other."""
    sheet, stack = make_figure(figure.width, figure.height, DPI), len(figure.ratios)
    n = len(figure.panels) // stack
    blocks = -(-n // figure.columns)
    grid = sheet.add_gridspec(stack * blocks, figure.columns, height_ratios=figure.ratios * blocks)
    places = [(stack * (k // figure.columns) + row, k % figure.columns) for row in range(stack) for k in range(n)]
    return sheet, [sheet.add_subplot(grid[place]) for place in places]


def _draw_panel(ax: Axes, panel: Panel, crowd: int = 1, lift: float = 0.0) -> None:
    """Draw one panel; `lift` is the height in points of its title and note above the axes."""
    before = (ax.get_xlim() if panel.places.sideways else ax.get_ylim()) if ax.has_data() else ()
    axis = _ValueAxis(ax, panel)
    for mark in sorted(panel.marks, key=lambda mark: isinstance(mark, Rule)):  # rules lie below, and are added last
        axis.draw(mark)
    axis.hatch()
    _trim(ax)
    reach = panel.reach if panel.log else spanning([*panel.reach, *before], pad=0.0)
    (ax.set_xlim if panel.places.sideways else ax.set_ylim)(*reach)
    axis.finish(crowd)
    if panel.title:
        style: dict[str, Any] = {"fontsize": LABEL_SIZE, "color": FAINT if panel.weak else INK, **PLAIN_TEXT}
        ax.set_title(panel.title, pad=rcParams["axes.titlepad"] + lift, **style)
    if panel.remark and crowd == 1:
        words: dict[str, Any] = {"fontsize": NOTE_SIZE, "color": INK, "ha": "right", "va": "bottom", **PLAIN_TEXT}
        ax.annotate(panel.remark, (1.0, 1.0), (0.0, lift), "axes fraction", "offset points", **words)


class _ValueAxis:
    """Draws marks along positions: numbers from left to right, categories next to or below each other."""

    def __init__(self, ax: Axes, panel: Panel) -> None:
        self.ax, self.panel, self.places = ax, panel, panel.places
        places, missing = self.places, self.places.missing
        known = places.at[~missing]
        reach = float(np.ptp(known)) if known.size else 0.0
        self.unit = 1.0 if places.discrete or not known.size else 1.5 * MISSING_GAP * (reach or 1.0)
        self.at = places.at.copy()
        if missing.any():
            self.at[missing] = known.max() + MISSING_GAP * (reach or 1.0) if known.size else 0.0
        self.along = np.zeros(missing.size, dtype=bool) if places.discrete else ~missing
        self.weak = places.weak

    def look(self, role: str) -> RoleStyle:
        """Style of a role; grey if the whole panel has weak support."""
        return replace(STYLES[role], colour=FAINT) if self.panel.weak else STYLES[role]

    def draw(self, mark: Mark) -> None:
        """Draw one mark."""
        if isinstance(mark, Line):
            self._line(mark, self.look(mark.role))
        elif isinstance(mark, Band):
            self._band(mark, self.look(mark.role))
        elif isinstance(mark, Bars):
            self._bars(mark)
        elif isinstance(mark, Rule):
            self._rule(mark, STYLES[mark.role])
        elif isinstance(mark, Texts):
            pad = 0.0145 * (self.panel.reach[1] - self.panel.reach[0])
            for at, value, text in zip(self.at, mark.values, mark.texts, strict=True):
                self.ax.text(*self._flip(at, value + pad), text, va="center", fontsize=NOTE_SIZE, color=INK)

    def _flip(self, at: Any, values: Any) -> tuple[Any, Any]:
        return (values, at) if self.places.sideways else (at, values)

    def _line(self, mark: Line, look: RoleStyle) -> None:
        """A line over numbers, points over categories, with weak support in grey."""
        if self.along.any():
            x, y, weak = self.at[self.along], mark.values[self.along], self.weak[self.along]
            single = np.flatnonzero(alone(~weak & np.isfinite(y))).tolist() if mark.points else []
            style: dict[str, Any] = {"color": look.colour, "linestyle": look.line, "linewidth": look.width}
            points: dict[str, Any] = {"marker": look.marker if single else "", "markevery": single, "markersize": 4}
            self.ax.plot(x, np.where(weak, np.nan, y), zorder=3, **style, **points)
            if weak.any():
                grey = np.where(beside(weak), y, np.nan)
                self.ax.plot(x, grey, color=FAINT, linestyle=":", linewidth=1.2, zorder=2.5)
        apart = ~self.along
        if apart.any():
            at, y, weak = self.at[apart] + mark.shift * self.unit, mark.values[apart], self.weak[apart]
            marker = look.marker if mark.points else ""
            marks: dict[str, Any] = {"linestyle": "none", "marker": marker, "markersize": 4.5, "zorder": 3.0}
            self.ax.plot(*self._flip(at, np.where(weak, np.nan, y)), color=look.colour, **marks)
            if weak.any():
                hollow = self._flip(at, np.where(weak, y, np.nan))
                self.ax.plot(*hollow, markerfacecolor="white", markeredgecolor=FAINT, **marks)

    def _band(self, mark: Band, look: RoleStyle) -> None:
        """An area over numbers; bars or boxes over categories, hatched or dotted if support is weak."""
        weak, fill = self.weak & mark.marks_weak, {"color": look.colour, "alpha": look.shade, "linewidth": 0}
        if self.along.any():
            where = (~weak[self.along]).tolist()
            self._area(mark, where=where, zorder=1 if mark.box else 2, **(WEAK if self.panel.weak else fill))
        lines = self.ax.hlines if self.places.sideways else self.ax.vlines
        for few in (False, True):
            kept = (weak == few) & ~self.along
            at, low, high = self.at[kept] + mark.shift * self.unit, mark.low[kept], mark.high[kept]
            if not kept.any():
                continue
            if mark.box:
                self._bar(at, high - low, mark.box * self.unit, low, zorder=1.0, **(WEAK if few else fill))
            else:
                colour, line = (FAINT, ":") if few else (look.colour, "-")
                lines(at, low, high, color=colour, linestyle=line, linewidth=1.5, zorder=2)

    def _area(self, band: Band, **style: Any) -> None:
        self.ax.fill_between(self.at[self.along], band.low[self.along], band.high[self.along], **style)

    def _bar(self, at: Array, size: Array, width: float, start: Array | float = 0.0, **fill: Any) -> None:
        if self.places.sideways:
            self.ax.barh(at, size, left=start, height=width, **fill)
        else:
            self.ax.bar(at, size, bottom=start, width=width, **fill)

    def _bars(self, mark: Bars) -> None:
        """Bars from zero, hatched or hollow by role, with their limits."""
        at, look = self.at + mark.shift, self.look(mark.role)
        roles = [STYLES[role].colour for role in mark.roles]
        hatch = WEAK_HATCH if self.panel.weak else look.hatch
        face = roles or to_rgba(look.colour, 0.0 if hatch else BAR_SHADES.get(mark.role, 1.0))
        edge = {"edgecolor": look.colour, "hatch": hatch, "linewidth": 0.8} if hatch else {"linewidth": 0}
        self._bar(at, mark.values, mark.width, color=face, **edge)
        if mark.low is not None and mark.high is not None:
            colour, line = (FAINT, ":") if self.panel.weak else (INK, "-")
            self.ax.vlines(at, mark.low, mark.high, color=colour, linestyle=line, linewidth=1.1, zorder=3)

    def _rule(self, mark: Rule, look: RoleStyle) -> None:
        """A line across the axes, or an area."""
        upright = mark.place != self.places.sideways
        if mark.half:
            span = self.ax.axvspan if upright else self.ax.axhspan
            span(mark.at - mark.half, mark.at + mark.half, color=look.colour, alpha=look.shade, linewidth=0)
            return
        across = self.ax.axvline if upright else self.ax.axhline
        zorder = 0.5 if mark.role in ("level", "separator") else 1.8
        across(mark.at, color=look.colour, linestyle=look.line, linewidth=look.width, zorder=zorder)

    def hatch(self) -> None:
        """Hatch the ranges of numbers with weak support, as far as the bands extend."""
        bands = [mark for mark in self.panel.marks if isinstance(mark, Band) and mark.marks_weak]
        if not bands or not self.weak[self.along].any():
            return
        low, high = np.fmin.reduce([mark.low for mark in bands]), np.fmax.reduce([mark.high for mark in bands])
        self._area(Band("unsure", low, high), where=beside(self.weak[self.along]).tolist(), zorder=1.5, **WEAK)

    def finish(self, crowd: int) -> None:
        """Ticks and labels of both axes, fewer if panels are side by side."""
        ax, panel, places = self.ax, self.panel, self.places
        label = panel.label if crowd > 1 or not panel.unit else f"{panel.label}\n({panel.unit})"
        if places.sideways:
            if panel.unit or crowd > 1:
                label = wrap(label.replace("\n", " "), 30 if crowd == 1 else 14)
            ax.set_xlabel(label, **PLAIN_TEXT)
            ax.set_ylabel(shown(places.name, places.tall), **PLAIN_TEXT)
            ax.set_yticks(places.at, places.ticked, **PLAIN_TEXT)
            ax.set_ylim(len(places.labels) - 0.4, -0.6)
            ax.tick_params(axis="y", length=0)
            self._columns()
        else:
            ax.set_ylabel("\n".join(wrap(line, TALL) for line in label.split("\n")), **PLAIN_TEXT)
            name = "" if panel.joined else shown(places.name, 42 if crowd == 1 else 28 // crowd)
            ax.set_xlabel(name, **PLAIN_TEXT)
            self._place_ticks(crowd)
        self._value_ticks(crowd)

    def _columns(self) -> None:
        """Left-aligned row names and headings, and columns of text."""
        heads = self.places.heads
        if not heads:
            return
        rooms = [LETTER_WIDTH * (3 + max(map(len, (column.title, *column.texts)))) for column in self.panel.columns]
        before = sum(room for column, room in zip(self.panel.columns, rooms, strict=True) if column.before)
        names = LETTER_WIDTH * LABEL_SIZE / NOTE_SIZE * (4 + max(map(len, self.places.ticked)))
        self.ax.set_yticks([])
        ends = {True: -before, False: 8.0}
        for label, at, head in zip(self.places.ticked, self.places.at, heads, strict=True):
            self._beside(label, at, -before - names + (0 if head else 2 * LETTER_WIDTH), LABEL_SIZE, bold=head)
        for column, room in zip(self.panel.columns, rooms, strict=True):
            for at, text in ((-1.0, column.title), *zip(self.places.at, column.texts, strict=True)):
                self._beside(text, at, ends[column.before], NOTE_SIZE, right=not column.before)
            ends[column.before] += room

    def _beside(
        self, text: str, at: float, shift: float, size: float, *, right: bool = False, bold: bool = False
    ) -> None:
        """A text next to a row, offset in points from the left or right end of the axes."""
        style: dict[str, Any] = {"fontsize": size, "color": INK, "va": "center", **PLAIN_TEXT}
        style["fontweight"] = "bold" if bold else "normal"
        place, across = (float(right), at), self.ax.get_yaxis_transform()
        self.ax.annotate(text, place, (shift, 0.0), across, "offset points", annotation_clip=False, **style)

    def _value_ticks(self, crowd: int) -> None:
        axis = self.ax.xaxis if self.places.sideways else self.ax.yaxis
        if self.panel.log:
            (self.ax.set_xscale if self.places.sideways else self.ax.set_yscale)("log")
            (self.ax.set_xlim if self.places.sideways else self.ax.set_ylim)(*self.panel.reach)
        if self.panel.ticks:
            axis.set_ticks(*map(list, zip(*self.panel.ticks, strict=True)))
            axis.minorticks_off()
            return
        most = (5 if crowd == 1 else 3) if self.places.sideways else (6 if crowd == 1 else 4)
        self.ax.locator_params(axis=axis.axis_name, nbins=most)  # type: ignore[arg-type]
        if self.panel.percent:
            axis.set_major_formatter(FuncFormatter(lambda share, _: self.panel.share(share)))

    def _place_ticks(self, crowd: int) -> None:
        ax, places = self.ax, self.places
        if places.discrete:
            ax.set_xticks(places.at, places.ticked, **PLAIN_TEXT)
            ax.set_xlim(-0.6, len(places.labels) - 0.4)
            return
        if places.holds:
            ax.set_xlim(*spanning(places.holds, pad=0.015))
        if places.ticks:
            ax.set_xticks(*map(list, zip(*places.ticks, strict=True)))
            if len(places.ticks) > MAX_OUTCOME_TICKS:
                ax.locator_params(axis="x", nbins=MAX_OUTCOME_TICKS)
        elif crowd > 1:
            ax.locator_params(axis="x", nbins=3)
        else:
            self._number_ticks()

    def _number_ticks(self) -> None:
        """As many round numbers as fit, followed by "missing"."""
        ax, known, gap = self.ax, self.at[self.along], not self.along.all()
        ticks: list[Any] = []
        if known.size:
            low, high = float(known.min()), float(known.max())
            reach = high - low or 1.0
            if gap:
                ax.set_xlim(low - 0.04 * reach, self.at.max() + 0.45 * self.unit)
                # "missing" is as wide as two numbers: those that it would touch are left out.
                high = min(high, self.at.max() - 0.17 * reach)
            locator, ticks = _round_numbers(low, high, ROOM - 10 * gap)
            if not gap:
                ax.xaxis.set_major_locator(locator)
                return
            ticks = ticks or [low]
        ax.set_xticks([*ticks, self.at.max()], [*(f"{tick:g}" for tick in ticks), MISSING])


def _round_numbers(low: float, high: float, letters: int) -> tuple[MaxNLocator, list[Any]]:
    """As many round numbers between two ends as fit into this many characters."""
    for bins in range(6, 0, -1):
        locator = MaxNLocator(nbins=bins, steps=[1, 2, 2.5, 5, 10])
        ticks = [tick for tick in locator.tick_values(low, max(low, high)) if low <= tick <= high]
        if sum(len(f"{tick:g}") + 2 for tick in ticks) <= letters:
            break
    return locator, ticks


def _trim(ax: Axes) -> None:
    """Tidy half-page axes: small legible text, few ticks."""
    tidy(ax, tick_size=TICK_SIZE, title_size=LABEL_SIZE)
    ax.tick_params(length=2.5, pad=2)
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_fontsize(LABEL_SIZE)
        axis.label.set_color(INK)
        axis.get_offset_text().set_fontsize(TICK_SIZE)


def _legend(parent: Axes | Figure, entries: Sequence[tuple[Any, str]], n_columns: int) -> None:
    """A legend above axes, or at the top of a figure, where it hides nothing; its text is plain."""
    if not entries:
        return
    handles, labels = zip(*entries, strict=True)
    whole = isinstance(parent, Figure)
    above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.1}
    place = {"loc": "outside upper left"} if whole else above
    room = {"borderpad": 0.2, "handlelength": 2.2, "columnspacing": 1.1, "handletextpad": 0.5}
    look: dict[str, Any] = {"ncols": min(n_columns, len(handles)), "frameon": False, "fontsize": NOTE_SIZE, **room}
    # Labels that begin with an underscore would be left out: the words are put in afterwards.
    box = parent.legend(handles, ["-"] * len(handles), labelcolor=INK, **place, **look)
    for text, label in zip(box.get_texts(), labels, strict=True):
        text.set(**PLAIN_TEXT)
        text.set_text(label)
    box.set_in_layout(whole)  # a wide legend of axes would make them narrow


def _handle(key: Key) -> Any:
    """Legend handle of a role."""
    look = STYLES[key.role]
    if key.form == "line":
        return Line2D([], [], color=look.colour, linestyle=look.line, linewidth=look.width)
    if key.form == "point":
        fill = "white" if key.role == "unsure" else look.colour
        marks: dict[str, Any] = {"marker": look.marker, "linestyle": "none", "markersize": 4.5}
        return Line2D([], [], color=look.colour, markerfacecolor=fill, **marks)
    if look.hatch is not None:
        return Patch(facecolor="none", edgecolor=look.colour, hatch=look.hatch, linewidth=0)
    shade = 0.35 if key.form == "band" else BAR_SHADES.get(key.role, look.shade)
    return Patch(facecolor=to_rgba(look.colour, shade), linewidth=0)
