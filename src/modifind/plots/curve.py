"""Effect along the values of one feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from modifind.plots.style import INK, PLAIN_TEXT, SELECTED, SPREAD, make_figure, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from modifind.result import SelectionResult

BANDS = (("q10_effect", "q90_effect", 0.15), ("q25_effect", "q75_effect", 0.28))
MISSING_GAP = 0.12  # of the range of values


class CurveDisplay:
    """Mean effect with quantile effects, and the ratio of standard deviations, along one feature.

    Parameters
    ----------
    feature : str
        Name of the feature.
    curve : DataFrame
        What `SelectionResult.curve` gives.
    discrete : bool
        Whether the feature has categories.

    Attributes
    ----------
    figure_, axes_ : Figure, list of Axes
        What `plot` drew on.
    """

    figure_: Any

    def __init__(self, feature: str, curve: pd.DataFrame, *, discrete: bool) -> None:
        self.feature = feature
        self.curve = curve
        self.discrete = discrete

    @classmethod
    def from_result(cls, result: SelectionResult, feature: str) -> CurveDisplay:
        """The curve of one feature of a result; of a group, one of its columns."""
        columns = result.groups.get(feature, [feature])
        if len(columns) > 1:
            raise ValueError(f"{feature!r} is a group; draw the curves of its columns: {', '.join(columns)}")
        return cls(feature, result.curve(columns[0]), discrete=result.kind(columns[0]) == "discrete")

    @classmethod
    def from_estimator(cls, estimator: Any, feature: str) -> CurveDisplay:
        """The curve of one feature of a fitted `ModifierSelector`."""
        return cls.from_result(estimator.result_, feature)

    def plot(self, axes: list[Axes] | None = None) -> CurveDisplay:
        """Draw on two axes, or on a new figure."""
        if axes is None:
            _, axes = make_figure(2, width=8.2, height=3.0)
        left, right = axes
        discrete = self.discrete
        # Rows without a value of a continuous feature come last, and are drawn as a point beside its values.
        gaps = np.zeros(len(self.curve), dtype=bool) if discrete else self.curve["value"].isna().to_numpy()
        curve = self.curve[~gaps]
        x = np.arange(len(curve), dtype=float) if discrete else curve["value"].to_numpy(dtype=float)
        line = {"marker": "o", "linestyle": "none"} if discrete else {"linewidth": 2.0}
        for low, high, shade in BANDS:
            if discrete:
                left.vlines(x, curve[low], curve[high], color=SELECTED, alpha=2 * shade, linewidth=8)
            else:
                left.fill_between(x, curve[low], curve[high], color=SELECTED, alpha=shade, linewidth=0)
        left.plot(x, curve["mean_effect"], color=SELECTED, **line)
        left.axhline(0.0, color=INK, linewidth=0.7)
        left.set_title("effect: mean, and at the 10-90% and 25-75% quantiles")
        right.plot(x, curve["sd_ratio"], color=SPREAD, **line)
        right.axhline(1.0, color=INK, linewidth=0.7)
        right.set_title("standard deviation, treated / control")
        if gaps.any():
            self._plot_missing(axes, self.curve[gaps], float(x.max() + MISSING_GAP * (np.ptp(x) or 1.0)))
        for ax in axes:
            ax.set_xlabel(str(self.feature), fontsize=9, **PLAIN_TEXT)
            if discrete:
                ax.set_xticks(x, [str(v) for v in curve["value"]], **PLAIN_TEXT)
                ax.set_xlim(-0.6, len(curve) - 0.4)
            tidy(ax)
        self.axes_, self.figure_ = list(axes), left.get_figure()
        return self

    @staticmethod
    def _plot_missing(axes: list[Axes], row: pd.DataFrame, place: float) -> None:
        """The rows without a value, at a tick of their own."""
        left, right = axes
        for low, high, shade in BANDS:
            left.vlines([place], row[low], row[high], color=SELECTED, alpha=2 * shade, linewidth=8)
        left.plot([place], row["mean_effect"], marker="o", linestyle="none", color=SELECTED)
        right.plot([place], row["sd_ratio"], marker="o", linestyle="none", color=SPREAD)
        for ax in axes:
            limits = ax.get_xlim()
            ticks = [tick for tick in ax.get_xticks() if limits[0] <= tick < place - 0.5 * (limits[1] - place)]
            ax.set_xticks([*ticks, place], [*(f"{tick:g}" for tick in ticks), "missing"])
            ax.set_xlim(limits)
