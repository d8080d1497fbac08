"""Distance between the arms' outcome distributions along the values of one feature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from modifind.charts.base import Display, column_of
from modifind.charts.style import FAINT, SELECTED, Look, swatch
from modifind.charts.value_axis import ValueAxis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from modifind.result.selection_result import SelectionResult

DISTANCE = Look(SELECTED)
NULL_SHADE = 0.3


class D2Display(Display):
    """Squared distance (MMD) between the outcome distributions of both arms along one feature.

    Parameters
    ----------
    feature : str
        Name of the feature.
    curve : DataFrame
        What `SelectionResult.curve` gives: `value`, `d2` and, where known, its 95% band (`d2_low`, `d2_high`) and the
        null band (`d2_null_low`, `d2_null_high`), where the curve would lie if the feature modified nothing.
    discrete : bool
        Whether the feature has categories.

    Attributes
    ----------
    figure_, ax_ : Figure, Axes
        What `plot` drew on.

    Examples
    --------
    >>> import pandas as pd
    >>> curve = pd.DataFrame({"value": [40.0, 50.0, 60.0], "d2": [0.02, 0.03, 0.09]})
    >>> D2Display("age", curve, discrete=False).plot().ax_.get_xlabel()
    'age'
    """

    def __init__(self, feature: str, curve: pd.DataFrame, *, discrete: bool) -> None:
        self.feature = feature
        self.curve = curve
        self.discrete = discrete

    @classmethod
    def from_result(cls, result: SelectionResult, feature: str) -> D2Display:
        """The distances along one feature of a result; of a group, along one of its columns."""
        column = column_of(result, feature, "distances")
        return cls(feature, result.curve(column), discrete=result.kind(column) == "discrete")

    def plot(self, ax: Axes | None = None) -> D2Display:
        """Draw on `ax`, or on a new figure."""
        places = ValueAxis.of(self.feature, self.curve, discrete=self.discrete)
        (ax,) = self._axes(None if ax is None else [ax], 1, height=places.height(2.5))
        curve, entries = self.curve, []
        places.draw(ax, curve["d2"], curve.get("d2_low"), curve.get("d2_high"), look=DISTANCE)
        if "d2_low" in curve:
            entries.append((swatch(SELECTED, 0.35), "95% band"))
        if "d2_null_low" in curve:
            low, high = curve["d2_null_low"], curve["d2_null_high"]
            places.between(ax, low, high, colour=FAINT, shade=NULL_SHADE, wide=0.6, mark_weak=False)
            entries.append((swatch(FAINT, NULL_SHADE), "if it modified nothing"))
        places.finish(ax, "distance of the\narms' outcomes (D²)")
        (ax.set_xlim if places.sideways else ax.set_ylim)(0, None)
        self._legend(ax, entries + places.notes())
        self.ax_ = ax
        return self
