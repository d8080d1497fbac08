"""Effect along the values of one feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from modifind.charts.base import Display, column_of
from modifind.charts.labels import Words
from modifind.charts.style import HALF_PAGE, INK, SELECTED, SPREAD, Look, stroke, swatch
from modifind.charts.value_axis import ValueAxis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from modifind.result.selection_result import SelectionResult

MEAN, RATIO = Look(SELECTED), Look(SPREAD, marker="s")
OVERALL = Look(INK, (0, (5, 2)), width=1.1)


class CurveDisplay(Display):
    """Mean effect, and the ratio of standard deviations, along one feature, with 95% bands.

    Parameters
    ----------
    feature : str
        Name of the feature.
    curve : DataFrame
        What `SelectionResult.curve` gives. Bands are drawn where it has columns for them, and points marked in its
        column `low_support` are drawn in grey.
    discrete : bool
        Whether the feature has categories.
    overall : mapping, optional
        `mean_effect` and `sd_ratio` of all rows together, drawn as dashed lines.
    words : Words, optional
        What arms and outcome are called.

    Attributes
    ----------
    figure_, axes_ : Figure, list of Axes
        What `plot` drew on.

    Examples
    --------
    >>> import pandas as pd
    >>> curve = pd.DataFrame({"value": ["no", "yes"], "mean_effect": [0.1, 1.2], "sd_ratio": [1.0, 1.4]})
    >>> display = CurveDisplay("smoker", curve, discrete=True).plot()
    >>> [label.get_text() for label in display.axes_[0].get_xticklabels()]
    ['no', 'yes']
    """

    def __init__(
        self,
        feature: str,
        curve: pd.DataFrame,
        *,
        discrete: bool,
        overall: Mapping[str, float] | None = None,
        words: Words | None = None,
    ) -> None:
        self.feature = feature
        self.curve = curve
        self.discrete = discrete
        self.overall = dict(overall or {})
        self.words = words or Words()

    @classmethod
    def from_result(cls, result: SelectionResult, feature: str) -> CurveDisplay:
        """The curve of one feature of a result; of a group, one of its columns."""
        column = column_of(result, feature, "curves")
        discrete = result.kind(column) == "discrete"
        return cls(feature, result.curve(column), discrete=discrete, overall=result.overall, words=Words.of(result))

    def plot(self, axes: Sequence[Axes] | None = None) -> CurveDisplay:
        """Draw on two axes, or on a new figure."""
        places = ValueAxis.of(self.feature, self.curve, discrete=self.discrete)
        columns, rows = (2, 1) if places.sideways else (1, 2)
        panels = self._axes(axes, 2, height=rows * places.height(), n_columns=columns, width=HALF_PAGE)
        words, curve = self.words, self.curve
        above, below = panels
        # Names of the arms are too long for the labels of two narrow axes: there the legend has them.
        narrow = places.sideways and axes is None
        difference, quotient = f"\n({words.difference})", f"\n({words.treated} / {words.control})"
        for ax, name, look, none, label in (
            (above, "mean_effect", MEAN, 0.0, f"mean effect on {words.outcome}{'' if narrow else difference}"),
            (below, "sd_ratio", RATIO, 1.0, f"ratio of standard deviations{'' if narrow else quotient}"),
        ):
            places.draw(ax, curve[name], curve.get(f"{name}_low"), curve.get(f"{name}_high"), look=look)
            places.reference(ax, none)
            if name in self.overall:
                places.reference(ax, self.overall[name], look=OVERALL)
            places.finish(ax, label, letters=15 if narrow else 30)
        if narrow:
            below.set_yticklabels([])
            below.set_ylabel("")
        self._legend(above, self._entries(places, narrow), n_columns=2 if narrow else 3)
        self._align(panels)
        self.axes_ = panels
        return self

    def _entries(self, places: ValueAxis, narrow: bool) -> list[tuple[Any, str]]:
        entries = []
        if "mean_effect_low" in self.curve:
            entries.append((swatch(SELECTED, 0.35), "95% band"))
        if "mean_effect" in self.overall:
            entries.append((stroke(OVERALL), self.words.whom))
        entries += places.notes()
        return [*entries, (stroke(Look("none")), self.words.difference)] if narrow else entries
