"""How well the distributions of the features, which the test draws from, fit held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from modifind.charts.base import Display
from modifind.charts.labels import percent, shown
from modifind.charts.spec import Band, Bars, Caption, Figure, Key, Line, Mark, Panel, Places, Rule
from modifind.result.selection_result import SelectionResult

MAX_ABREAST = 3
TWO_SIDED = 1.96


@dataclass(eq=False, repr=False)
class CalibrationDisplay(Display):
    """Distances of the distributions of the features from held-out rows, or histograms for chosen features.

    The probability integral transform (PIT) of a feature is uniform where its estimated distribution given the other
    features is right: the Kolmogorov-Smirnov distance is then near zero, and each tenth holds a tenth of the rows.

    Parameters
    ----------
    distances : Series
        Kolmogorov-Smirnov distance of each feature, in drawing order.
    histograms : DataFrame, optional
        Shares of the rows by tenths of the PIT, one row per feature. If given, they are drawn instead of the distances.
    limit : float, optional
        Distance above which a check may fail.
    n_rows : int, optional
        Rows that the histograms are of, for the band within which a right distribution lies 95% of the time.

    Examples
    --------
    >>> import pandas as pd
    >>> display = CalibrationDisplay(pd.Series({"age": 0.01, "bmi": 0.03})).plot()
    >>> display.axes_[0].lines[0].get_xdata().tolist()
    [0.01, 0.03]
    """

    distances: pd.Series[Any]
    histograms: pd.DataFrame | None = None
    _: KW_ONLY
    limit: float | None = None
    n_rows: int | None = None

    @classmethod
    def from_result(
        cls, result: SelectionResult, *, features: str | Sequence[str] | None = None, max_features: int = 30
    ) -> CalibrationDisplay:
        """The distributions of a result: distances of the `max_features` worst fits, or histograms of `features`."""
        distances = result.diagnostics.get("pit_distance", pd.Series(dtype=float)).dropna()
        limits = result.checks.loc[result.checks["name"] == "conditional_fit", "threshold"]
        limit = float(limits.iloc[0]) if len(limits) else None
        if features is not None:
            known, settings = _histograms(result, features), result.settings
            n_rows = min(int(settings["n_rows"]), int(settings.get("max_train_rows") or settings["n_rows"]))
            return cls(distances.reindex(known.index), known, limit=limit, n_rows=n_rows)
        if not len(distances):
            raise ValueError(
                "this result has no calibration of distributions: no feature is continuous, or none was tested"
            )
        return cls(distances.sort_values(ascending=False).head(max_features), limit=limit)

    def spec(self) -> Figure:
        """One panel of distances, or one for each histogram."""
        if self.histograms is None:
            return self._distances()
        shares = self.histograms.to_numpy(dtype=float)
        n, n_tenths = shares.shape
        reach = 1.1 * max(float(np.nanmax(shares, initial=0.0)), 1.5 / n_tenths)
        named = zip(map(str, self.histograms.index), shares, strict=True)
        panels = tuple(self._histogram(name, tenths, reach) for name, tenths in named)
        columns = min(n, MAX_ABREAST)
        return Figure(panels, 0.5 + 1.35 * -(-n // columns), columns=columns)

    def _distances(self) -> Figure:
        places, distances = Places.listed(self.distances.index), self.distances.to_numpy(dtype=float)
        marks: list[Mark] = [Line("fit", distances), Band("fit", np.zeros_like(distances), distances)]
        keys: tuple[Key, ...] = ()
        if self.limit is not None:
            marks.append(Rule("limit", self.limit))
            keys = (Key("limit", "above: see the checks"),)
        about = "Distance of the conditional distribution of each feature from held-out rows"
        label, limits = "distance of the distribution\nfrom held-out rows (KS)", (0.0, np.inf)
        panel = Panel(places, tuple(marks), label, keys=keys, holds=(0.0,), within=limits)
        return Figure((replace(panel, caption=Caption("Distances", about=about)),), places.height())

    def _histogram(self, name: str, shares: Any, reach: float) -> Panel:
        tenths = shares.size
        marks: list[Mark] = [Bars("rank", shares, width=1 / tenths), Rule("neutral", 1 / tenths)]
        keys = [Key("rank", "held-out rows", "box")]
        if self.n_rows:
            marks.append(Rule("null", 1 / tenths, half=TWO_SIDED * np.sqrt((1 - 1 / tenths) / tenths / self.n_rows)))
            keys.append(Key("null", "95% range if the distribution is right", "box"))
        listed = ", ".join(map(percent, shares))
        about = f"Shares of {name} by tenths of its estimated distribution, 10% each if it is right: {listed}"
        ticks = ((0.0, "0"), (0.5, "0.5"), (1.0, "1"))
        places = Places.numbers("PIT", (np.arange(tenths) + 0.5) / tenths, (0.0, 1.0), ticks)
        panel = Panel(places, tuple(marks), "share of rows", title=shown(name, 12), keys=tuple(keys))
        return replace(panel, span=(0.0, reach), caption=Caption(name, about=about))


def _histograms(result: SelectionResult, features: str | Sequence[str]) -> pd.DataFrame:
    """Shares by tenths of the features that are asked for."""
    chosen = [features] if isinstance(features, str) else [str(name) for name in features]
    known = result.pit_histogram.dropna()
    absent = [name for name in chosen if name not in known.index]
    if absent or not chosen:
        there = ", ".join(map(repr, known.index)) or "none"
        raise ValueError(
            f"no calibration histograms of {', '.join(map(repr, absent)) or 'no features'}; available: "
            f"{there} (discrete features have none)"
        )
    return known.loc[chosen]
