"""What each feature changes: the mean, the spread or the shape."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace

import numpy as np
import pandas as pd

from modifind.charts.base import SingleDisplay
from modifind.charts.spec import Caption, Figure, Key, Line, Panel, Places, Rule, values_of
from modifind.result.selection_result import PARTS, SelectionResult

ROLES = {"mean": "average", "spread": "spread", "shape": "shape"}
SMALLEST = 1e-6  # smaller p-values are drawn here


@dataclass(eq=False, repr=False)
class ChangesDisplay(SingleDisplay):
    """Adjusted p-values of what each feature changes, on a log scale: mean, spread, and shape beyond both.

    Parameters
    ----------
    changes : DataFrame
        `mean_adjusted`, `spread_adjusted` and `shape_adjusted` by feature, in drawing order.
    alpha : float, default=0.05
        Level, drawn as a dashed line.

    Examples
    --------
    >>> import pandas as pd
    >>> row = {"mean_adjusted": 0.001, "spread_adjusted": 0.4, "shape_adjusted": 1e-30}
    >>> display = ChangesDisplay(pd.DataFrame([row], index=["age"])).plot()
    >>> [float(line.get_xdata()[0]) for line in display.ax_.lines[:3]]
    [0.001, 0.4, 1e-06]
    """

    changes: pd.DataFrame
    _: KW_ONLY
    alpha: float = 0.05

    @classmethod
    def from_result(cls, result: SelectionResult, *, max_features: int = 30) -> ChangesDisplay:
        """The `max_features` features of a result that change most."""
        columns = [f"{part}_adjusted" for part in PARTS]
        known = result.changes[result.changes[columns].notna().any(axis=1)] if len(result.changes) else result.changes
        if not len(known):
            raise ValueError("this result does not say what features change; fit again to have it tested")
        order = known[columns].min(axis=1).sort_values(kind="stable").index[:max_features]
        return cls(known.loc[order, columns], alpha=float(result.settings.get("alpha", 0.05)))

    def spec(self) -> Figure:
        """Three points for every feature."""
        places = Places.listed(self.changes.index)
        lines = [
            Line(ROLES[part], np.maximum(values_of(self.changes, f"{part}_adjusted"), SMALLEST), shift=0.2 * (k - 1))
            for k, part in enumerate(PARTS)
        ]
        apart = [Rule("separator", k - 0.5, place=True) for k in places.at[1:]]
        keys = (*(Key(ROLES[part], part, "point") for part in PARTS), Key("level", f"level {self.alpha:g}"))
        ticks = ((1.0, "1"), (0.01, "0.01"), (1e-4, "0.0001"), (SMALLEST, "≤ 1e-6"))
        caption = Caption("What each feature changes", about="Adjusted p-values of what each feature changes")
        marks = (*lines, Rule("level", self.alpha), *apart)
        panel = Panel(places, marks, "adjusted p-value", keys=keys, ticks=ticks, log=True, caption=caption)
        return Figure((replace(panel, span=(1.6, 0.6 * SMALLEST)),), places.height(), legend_columns=4)
