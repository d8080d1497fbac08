"""Importance of every feature with its adjusted p-value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modifind.charts.base import SingleDisplay
from modifind.charts.spec import Bars, Caption, Figure, Panel, Places, Texts
from modifind.result.selection_result import SelectionResult, p_text


@dataclass(eq=False, repr=False)
class ImportanceDisplay(SingleDisplay):
    """Bars of importance, most important first, selected features in colour.

    Parameters
    ----------
    names : list of str
        Features, in drawing order.
    importance, p_adjusted : array
        What is drawn and what is written beside it.
    selected : array of bool
        Which bars are coloured.

    Examples
    --------
    >>> import numpy as np
    >>> selected, p = np.array([True, False]), np.array([0.001, 0.4])
    >>> display = ImportanceDisplay(["age", "bmi"], np.array([0.3, 0.1]), p, selected).plot()
    >>> [float(bar.get_width()) for bar in display.ax_.patches[:2]]
    [0.3, 0.1]
    """

    names: list[str]
    importance: NDArray[np.float64]
    p_adjusted: NDArray[np.float64]
    selected: NDArray[np.bool_]

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

    def spec(self) -> Figure:
        """Bars with p-values beside them."""
        places = Places.listed(self.names)
        roles = tuple("selected" if chosen else "plain" for chosen in self.selected)
        stars = ["★ " if chosen else "" for chosen in self.selected]
        texts = tuple(f"{star}{p_text(p)}" for star, p in zip(stars, self.p_adjusted, strict=True))
        marks = (Bars("plain", self.importance, width=0.7, roles=roles), Texts("note", self.importance, texts))
        span = (0.0, 1.38 * (float(self.importance.max(initial=0.0)) or 1.0))
        caption = Caption("Importance", about="Importance of each feature, with adjusted p-values")
        panel = Panel(places, marks, "importance (variance of D²)", span=span, caption=caption)
        return Figure((panel,), places.height())
