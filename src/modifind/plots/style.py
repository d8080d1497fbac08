"""Colours that stay apart for colour-blind readers and in grey print, and axes that they are drawn on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SELECTED = "#0072B2"
PLAIN = "#B4B9C0"
SPREAD = "#D55E00"
INK = "#333A42"
# Names are the user's text: a dollar sign is no formula, and nothing in them is a command.
PLAIN_TEXT: dict[str, Any] = {"parse_math": False, "usetex": False}


def make_figure(n_columns: int = 1, *, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure that belongs to no window, so that nothing is left open and any backend will do."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(1, n_columns, k + 1) for k in range(n_columns)]
    return figure, axes


def tidy(axes: Axes) -> None:
    """Keep only the lines that carry information."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=INK, labelsize=9)
    axes.title.set_fontsize(10)
