"""Importance of every feature with its adjusted p-value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from modifind.charts.base import Display
from modifind.charts.labels import p_text, row_height, tick_labels
from modifind.charts.style import INK, NOTE_SIZE, PLAIN, PLAIN_TEXT, SELECTED, trim

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from modifind.result.selection_result import SelectionResult


class ImportanceDisplay(Display):
    """Bars of importance, most important first, selected features in colour.

    Parameters
    ----------
    names : list of str
        Features, in drawing order.
    importance, p_adjusted : array
        What is drawn and what is written beside it.
    selected : array of bool
        Which bars are coloured.

    Attributes
    ----------
    figure_, ax_ : Figure, Axes
        What `plot` drew on.
    """

    def __init__(
        self,
        names: list[str],
        importance: NDArray[np.float64],
        p_adjusted: NDArray[np.float64],
        selected: NDArray[np.bool_],
    ) -> None:
        self.names = names
        self.importance = importance
        self.p_adjusted = p_adjusted
        self.selected = selected

    @classmethod
    def from_result(cls, result: SelectionResult, *, max_features: int = 30) -> ImportanceDisplay:
        """All selected features and the most important others, `max_features` in all; none that were not tested."""
        known = result.table[result.table["importance"].notna()]
        table = known.sort_values(["selected", "importance"], ascending=False).head(max_features)
        table = table.sort_values("importance", ascending=False)
        return cls(
            [str(name) for name in table.index],
            table["importance"].to_numpy(dtype=float),
            table["p_adjusted"].to_numpy(dtype=float),
            table["selected"].to_numpy(dtype=bool),
        )

    def plot(self, ax: Axes | None = None) -> ImportanceDisplay:
        """Draw on `ax`, or on a new figure."""
        labels = tick_labels(self.names)
        height = 0.75 + row_height(labels, 0.21) * len(labels)
        (ax,) = self._axes(None if ax is None else [ax], 1, height=height)
        places = np.arange(len(self.names))[::-1]
        ax.barh(places, self.importance, color=np.where(self.selected, SELECTED, PLAIN).tolist(), height=0.7)
        reach = float(self.importance.max(initial=0.0)) or 1.0
        for place, value, p, chosen in zip(places, self.importance, self.p_adjusted, self.selected, strict=True):
            text = f"{'★ ' if chosen else ''}{p_text(p)}"
            ax.text(value + 0.02 * reach, place, text, va="center", fontsize=NOTE_SIZE, color=INK)
        trim(ax)
        ax.set_yticks(places, labels, **PLAIN_TEXT)
        ax.set_ylim(-0.6, len(self.names) - 0.4)
        ax.tick_params(axis="y", length=0)
        ax.set_xlim(0, 1.38 * reach)
        ax.locator_params(axis="x", nbins=4)
        ax.set_xlabel("importance (variance of D²)")
        self.ax_ = ax
        return self
