"""Effect at the quantiles of the outcome along the values of one feature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from modifind.charts.base import Display, column_of
from modifind.charts.labels import Words
from modifind.charts.style import INK, SELECTED, SPREAD, Look, stroke
from modifind.charts.value_axis import ValueAxis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from modifind.result.selection_result import SelectionResult

LOOKS = {
    "q10_effect": ("10%", Look(SPREAD, (0, (1, 1)), "v", 1.6, 0.13)),
    "q25_effect": ("25%", Look("#E69F00", (0, (4, 1.5)), "<", 1.4, 0.13)),
    "q50_effect": ("median", Look(INK, "-", "o", 2.0, 0.13)),
    "q75_effect": ("75%", Look("#56B4E9", (0, (4, 1.2, 1, 1.2)), ">", 1.4, 0.15)),
    "q90_effect": ("90%", Look(SELECTED, (0, (7, 1.5)), "^", 1.6, 0.13)),
}


class QuantileDisplay(Display):
    """Effects at the 10, 25, 50, 75 and 90% quantiles of the outcome along one feature: a fan where spread changes.

    Parameters
    ----------
    feature : str
        Name of the feature.
    curve : DataFrame
        What `SelectionResult.curve` gives: `value`, `q10_effect`, ... and, where known, their 95% bands.
    discrete : bool
        Whether the feature has categories.
    words : Words, optional
        What arms and outcome are called.

    Attributes
    ----------
    figure_, ax_ : Figure, Axes
        What `plot` drew on.

    Examples
    --------
    >>> import pandas as pd
    >>> effects = {f"q{q}_effect": [0.0, q / 50 - 1] for q in (10, 25, 50, 75, 90)}
    >>> display = QuantileDisplay("age", pd.DataFrame({"value": [40.0, 60.0], **effects}), discrete=False).plot()
    >>> [round(float(line.get_ydata()[1]), 2) for line in display.ax_.lines[:5]]
    [-0.8, -0.5, 0.0, 0.5, 0.8]
    """

    def __init__(self, feature: str, curve: pd.DataFrame, *, discrete: bool, words: Words | None = None) -> None:
        self.feature = feature
        self.curve = curve
        self.discrete = discrete
        self.words = words or Words()

    @classmethod
    def from_result(cls, result: SelectionResult, feature: str) -> QuantileDisplay:
        """The quantile effects along one feature of a result; of a group, along one of its columns."""
        column = column_of(result, feature, "quantile effects")
        discrete = result.kind(column) == "discrete"
        return cls(feature, result.curve(column), discrete=discrete, words=Words.of(result))

    def plot(self, ax: Axes | None = None) -> QuantileDisplay:
        """Draw on `ax`, or on a new figure."""
        places = ValueAxis.of(self.feature, self.curve, discrete=self.discrete)
        (ax,) = self._axes(None if ax is None else [ax], 1, height=1.3 * places.height(2.1))
        curve, entries = self.curve, []
        looks = {name: of for name, of in LOOKS.items() if name in curve}
        for k, (name, (label, look)) in enumerate(looks.items()):
            low, high = curve.get(f"{name}_low"), curve.get(f"{name}_high")
            places.draw(ax, curve[name], low, high, look=look, shift=0.14 * (k - 2), hatch=False)
            entries.append((stroke(look, marker=places.discrete), label))
        lows, highs = ([f"{name}_{end}" for name in looks if f"{name}_{end}" in curve] for end in ("low", "high"))
        if lows and highs:
            places.hatch(ax, curve[lows].min(axis=1), curve[highs].max(axis=1))
        places.reference(ax, 0.0)
        places.finish(ax, f"quantile effect on {self.words.outcome}\n({self.words.difference})")
        self._legend(ax, entries + places.notes())
        self.ax_ = ax
        return self
