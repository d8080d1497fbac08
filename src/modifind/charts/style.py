"""Colours that stay apart for colour-blind readers and in grey print, and axes that they are drawn on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette.
SELECTED = "#0072B2"
SPREAD = "#D55E00"
SHAPE = "#009E73"
TREATED, CONTROL = SELECTED, SPREAD
PLAIN = "#B4B9C0"
FAINT = "#8A919B"
INK = "#333A42"
# Names are the user's text: a dollar sign is no formula, and nothing in them is a command.
PLAIN_TEXT: dict[str, Any] = {"parse_math": False, "usetex": False}
# Half a printed page in inches: figures are made as wide, so that points of text are points on paper.
HALF_PAGE = 3.4
LABEL_SIZE, TICK_SIZE, NOTE_SIZE = 8.0, 7.5, 7.0
DPI = 200
WEAK_HATCH = "/////"


@dataclass(frozen=True)
class Look:
    """How one series is drawn: the line style and the marker tell it apart without its colour."""

    colour: str
    line: Any = "-"
    marker: str = "o"
    width: float = 1.8
    shade: float = 0.2


def make_figure(
    n_columns: int = 1, *, width: float, height: float, n_rows: int = 1, dpi: float | None = None
) -> tuple[Figure, list[Axes]]:
    """A figure that belongs to no window, so that nothing is left open and any backend will do."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", dpi=dpi)
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(n_rows, n_columns, k + 1) for k in range(n_rows * n_columns)]
    return figure, axes


def tidy(axes: Axes, *, tick_size: float = 9, title_size: float = 10) -> None:
    """Keep only the lines that carry information."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=INK, labelsize=tick_size)
    axes.title.set_fontsize(title_size)


def trim(axes: Axes) -> None:
    """Tidy axes of half a page: small text that can still be read, few ticks."""
    tidy(axes, tick_size=TICK_SIZE, title_size=LABEL_SIZE)
    axes.tick_params(length=2.5, pad=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_fontsize(LABEL_SIZE)
        axis.label.set_color(INK)
        axis.get_offset_text().set_fontsize(TICK_SIZE)


def legend(parent: Axes | Figure, entries: Sequence[tuple[Any, str]], *, n_columns: int = 3) -> None:
    """A legend above axes, or at the top of a figure, where it hides nothing; its words are plain text."""
    from matplotlib.figure import Figure

    if not entries:
        return
    handles = [handle for handle, _ in entries]
    whole = isinstance(parent, Figure)
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.1}
    # Labels that begin with an underscore would be left out: the words are put in afterwards.
    box = parent.legend(
        handles,
        ["-"] * len(handles),
        **({"loc": "outside upper left"} if whole else place),
        ncols=min(n_columns, len(handles)),
        frameon=False,
        fontsize=NOTE_SIZE,
        borderpad=0.2,
        handlelength=2.2,
        columnspacing=1.1,
        handletextpad=0.5,
        labelcolor=INK,
    )
    for text, (_, label) in zip(box.get_texts(), entries, strict=True):
        text.set(**PLAIN_TEXT)
        text.set_text(label)
    box.set_in_layout(whole)  # a wide legend of axes would make them narrow


def swatch(colour: str, shade: float = 1.0, hatch: str | None = None) -> Any:
    """What stands for an area in a legend."""
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Patch

    if hatch is None:
        return Patch(facecolor=to_rgba(colour, shade), linewidth=0)
    return Patch(facecolor="none", edgecolor=colour, hatch=hatch, linewidth=0)


def stroke(look: Look, *, marker: bool = False, hollow: bool = False) -> Any:
    """What stands for a line, or for points, in a legend."""
    from matplotlib.lines import Line2D

    if marker:
        fill = "white" if hollow else look.colour
        marks: dict[str, Any] = {"marker": look.marker, "linestyle": "none", "markersize": 4.5}
        return Line2D([], [], color=look.colour, markerfacecolor=fill, **marks)
    return Line2D([], [], color=look.colour, linestyle=look.line, linewidth=look.width)
