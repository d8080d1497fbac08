"""What each feature changes: the mean, the spread or the shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from modifind.charts.base import Display
from modifind.charts.labels import row_height, tick_labels
from modifind.charts.style import INK, PLAIN_TEXT, SELECTED, SHAPE, SPREAD, Look, stroke, trim

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from modifind.result.selection_result import SelectionResult

PARTS = {"mean": Look(SELECTED), "spread": Look(SPREAD, marker="s"), "shape": Look(SHAPE, marker="^")}
LEVEL = Look(INK, (0, (4, 1.5)), width=1.0)
SMALLEST = 1e-6  # smaller p-values are drawn here


class ChangesDisplay(Display):
    """Adjusted p-values of what each feature changes, on a log scale: mean, spread, and shape beyond both.

    Parameters
    ----------
    changes : DataFrame
        `mean_adjusted`, `spread_adjusted` and `shape_adjusted` by feature, in drawing order.
    alpha : float, default=0.05
        Level, drawn as a dashed line.

    Attributes
    ----------
    figure_, ax_ : Figure, Axes
        What `plot` drew on.

    Examples
    --------
    >>> import pandas as pd
    >>> row = {"mean_adjusted": 0.001, "spread_adjusted": 0.4, "shape_adjusted": 1e-30}
    >>> display = ChangesDisplay(pd.DataFrame([row], index=["age"])).plot()
    >>> [float(line.get_xdata()[0]) for line in display.ax_.lines[:3]]
    [0.001, 0.4, 1e-06]
    """

    def __init__(self, changes: pd.DataFrame, *, alpha: float = 0.05) -> None:
        self.changes = changes
        self.alpha = alpha

    @classmethod
    def from_result(cls, result: SelectionResult, *, max_features: int = 30) -> ChangesDisplay:
        """The `max_features` features of a result that change most."""
        columns = [f"{part}_adjusted" for part in PARTS]
        known = result.changes[result.changes[columns].notna().any(axis=1)] if len(result.changes) else result.changes
        if not len(known):
            raise ValueError("this result does not say what features change; fit again to have it tested")
        order = known[columns].min(axis=1).sort_values(kind="stable").index[:max_features]
        return cls(known.loc[order, columns], alpha=float(result.settings.get("alpha", 0.05)))

    def plot(self, ax: Axes | None = None) -> ChangesDisplay:
        """Draw on `ax`, or on a new figure."""
        n = len(self.changes)
        labels = tick_labels(self.changes.index)
        (ax,) = self._axes(None if ax is None else [ax], 1, height=0.85 + row_height(labels, 0.24) * n)
        places = np.arange(n, dtype=float)
        for k, (part, look) in enumerate(PARTS.items()):
            p_values = np.maximum(self.changes[f"{part}_adjusted"].to_numpy(dtype=float), SMALLEST)
            ax.plot(
                p_values,
                places + 0.2 * (k - 1),
                color=look.colour,
                marker=look.marker,
                markersize=4.5,
                linestyle="none",
            )
        ax.axvline(self.alpha, color=LEVEL.colour, linestyle=LEVEL.line, linewidth=LEVEL.width, zorder=0.5)
        ax.hlines(places[1:] - 0.5, 0, 1, transform=ax.get_yaxis_transform(), color=INK, alpha=0.12, linewidth=0.6)
        ax.set_xscale("log")
        ax.set_xlim(1.6, 0.6 * SMALLEST)
        trim(ax)
        ax.set_xticks([1.0, 0.01, 1e-4, SMALLEST], ["1", "0.01", "0.0001", "≤ 1e-6"])
        ax.minorticks_off()
        ax.set_yticks(places, labels, **PLAIN_TEXT)
        ax.set_ylim(n - 0.45, -0.55)
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("adjusted p-value")
        entries = [(stroke(look, marker=True), part) for part, look in PARTS.items()]
        self._legend(ax, [*entries, (stroke(LEVEL), f"level {self.alpha:g}")], n_columns=4)
        self.ax_ = ax
        return self
