"""How well the distributions of the features, which the test draws from, fit held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from modifind.charts.base import Display
from modifind.charts.labels import row_height, shown, tick_labels
from modifind.charts.style import (
    FAINT,
    INK,
    LABEL_SIZE,
    PLAIN_TEXT,
    SELECTED,
    SPREAD,
    Look,
    stroke,
    swatch,
    trim,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from modifind.result.selection_result import SelectionResult

LIMIT = Look(SPREAD, (0, (4, 1.5)), width=1.2)
MOST_COLUMNS = 3
TWO_SIDED = 1.96


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

    Attributes
    ----------
    figure_, axes_ : Figure, list of Axes
        What `plot` drew on.

    Examples
    --------
    >>> import pandas as pd
    >>> display = CalibrationDisplay(pd.Series({"age": 0.01, "bmi": 0.03})).plot()
    >>> display.axes_[0].lines[0].get_xdata().tolist()
    [0.01, 0.03]
    """

    def __init__(
        self,
        distances: pd.Series[Any],
        histograms: pd.DataFrame | None = None,
        *,
        limit: float | None = None,
        n_rows: int | None = None,
    ) -> None:
        self.distances = distances
        self.histograms = histograms
        self.limit = limit
        self.n_rows = n_rows

    @classmethod
    def from_result(
        cls, result: SelectionResult, *, features: str | Sequence[str] | None = None, max_features: int = 30
    ) -> CalibrationDisplay:
        """The distributions of a result: distances of the `max_features` worst fits, or histograms of `features`."""
        found = result.diagnostics.get("pit_distance", pd.Series(dtype=float)).dropna()
        limits = result.checks.loc[result.checks["name"] == "conditional_fit", "threshold"]
        limit = float(limits.iloc[0]) if len(limits) else None
        if features is None:
            if not len(found):
                raise ValueError(
                    "this result has no calibration of distributions: no feature is continuous, or none was tested"
                )
            return cls(found.sort_values(ascending=False).head(max_features), limit=limit)
        chosen = [str(name) for name in ([features] if isinstance(features, str) else features)]
        known = result.pit_histogram.dropna()
        absent = [name for name in chosen if name not in known.index]
        if absent or not chosen:
            there = ", ".join(map(repr, known.index)) or "none"
            raise ValueError(
                f"no calibration histograms of {', '.join(map(repr, absent)) or 'no features'}; there are those of "
                f"{there} (discrete features have none)"
            )
        settings = result.settings
        n_rows = min(int(settings["n_rows"]), int(settings.get("max_train_rows") or settings["n_rows"]))
        return cls(found.reindex(chosen), known.loc[chosen], limit=limit, n_rows=n_rows)

    def plot(self, axes: Sequence[Axes] | None = None) -> CalibrationDisplay:
        """Draw on one axes, or on one for each histogram, or on a new figure."""
        if self.histograms is None:
            self.axes_ = self._plot_distances(axes)
        else:
            self.axes_ = self._plot_histograms(axes, self.histograms)
        return self

    def _plot_distances(self, axes: Sequence[Axes] | None) -> list[Axes]:
        n = len(self.distances)
        labels = tick_labels(self.distances.index)
        (ax,) = self._axes(axes, 1, height=0.95 + row_height(labels, 0.2) * n)
        places = np.arange(n)
        ax.plot(
            self.distances.to_numpy(dtype=float), places, color=SELECTED, marker="o", markersize=4.5, linestyle="none"
        )
        ax.hlines(places, 0.0, self.distances, color=SELECTED, linewidth=1.2, alpha=0.6)
        if self.limit is not None:
            ax.axvline(self.limit, color=LIMIT.colour, linestyle=LIMIT.line, linewidth=LIMIT.width)
            self._legend(ax, [(stroke(LIMIT), "beyond: look at the checks")])
        trim(ax)
        ax.set_yticks(places, labels, **PLAIN_TEXT)
        ax.set_ylim(n - 0.4, -0.6)
        ax.set_xlim(0, None)
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("distance of the distribution\nfrom held-out rows (KS)")
        return [ax]

    def _plot_histograms(self, axes: Sequence[Axes] | None, histograms: pd.DataFrame) -> list[Axes]:
        n, tenths = histograms.shape
        columns = min(n, MOST_COLUMNS)
        panels = self._axes(axes, n, height=0.5 + 1.35 * -(-n // columns), n_columns=columns)
        low = np.arange(tenths) / tenths
        reach = 1.1 * max(float(histograms.to_numpy(dtype=float).max()), 1.5 / tenths)
        for k, (ax, (name, shares)) in enumerate(zip(panels, histograms.iterrows(), strict=True)):
            ax.bar(low, shares.to_numpy(dtype=float), 1 / tenths, align="edge", color=SELECTED, alpha=0.6, linewidth=0)
            ax.axhline(1 / tenths, color=INK, linewidth=0.8)
            if self.n_rows:
                half = TWO_SIDED * np.sqrt((1 - 1 / tenths) / tenths / self.n_rows)
                ax.axhspan(1 / tenths - half, 1 / tenths + half, color=FAINT, alpha=0.35, linewidth=0)
            trim(ax)
            ax.set(xlim=(0, 1), ylim=(0, reach), xlabel="PIT")
            ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
            first, _, last = ax.get_xticklabels()
            first.set_horizontalalignment("left")
            last.set_horizontalalignment("right")
            ax.locator_params(axis="y", nbins=4)
            ax.set_title(shown(name, 12), fontsize=LABEL_SIZE, color=INK, **PLAIN_TEXT)
            if k % columns == 0:
                ax.set_ylabel("share of rows")
            elif axes is None:
                ax.set_yticklabels([])
        band = [(swatch(FAINT, 0.35), "where a right distribution lies (95%)")] if self.n_rows else []
        self._legend(panels[0], [(swatch(SELECTED, 0.6), "held-out rows"), *band])
        return panels
