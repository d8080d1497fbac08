"""Pictures of a result by name: ``result.plot.curve("age")``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from modifind.charts.bounds import DEFAULT, BoundsDisplay
from modifind.charts.calibration import CalibrationDisplay
from modifind.charts.changes import ChangesDisplay
from modifind.charts.curve import CurveDisplay
from modifind.charts.d2 import D2Display
from modifind.charts.density import DensityDisplay
from modifind.charts.importance import ImportanceDisplay
from modifind.charts.overlap import OverlapDisplay
from modifind.charts.quantiles import QuantileDisplay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from modifind.result.selection_result import SelectionResult


class PlotAccessor:
    """Every picture of a result, drawn on a new figure or on axes that are passed.

    Each method returns the Display, whose `figure_` can be saved; a notebook shows it.

    Parameters
    ----------
    result : SelectionResult
        What is drawn.
    """

    def __init__(self, result: SelectionResult) -> None:
        self._result = result

    @property
    def _of_two(self) -> SelectionResult:
        return self._result.two_arms("pictures")

    def __repr__(self) -> str:
        names = [name for name in dir(self) if not name.startswith("_")]
        return f"PlotAccessor({', '.join(names)})"

    def importance(self, *, max_features: int = 30, ax: Axes | None = None) -> ImportanceDisplay:
        """Importance of every feature with its adjusted p-value; see `ImportanceDisplay`."""
        return ImportanceDisplay.from_result(self._result, max_features=max_features).plot(ax)

    def changes(self, *, max_features: int = 30, ax: Axes | None = None) -> ChangesDisplay:
        """What each feature changes: mean, spread or shape; see `ChangesDisplay`."""
        return ChangesDisplay.from_result(self._of_two, max_features=max_features).plot(ax)

    def curve(self, feature: str, *, axes: Sequence[Axes] | None = None) -> CurveDisplay:
        """Mean effect and ratio of standard deviations along a feature; see `CurveDisplay`."""
        return CurveDisplay.from_result(self._of_two, feature).plot(axes)

    def d2(self, feature: str, *, ax: Axes | None = None) -> D2Display:
        """Distance between the arms' outcome distributions along a feature; see `D2Display`."""
        return D2Display.from_result(self._of_two, feature).plot(ax)

    def quantiles(self, feature: str, *, ax: Axes | None = None) -> QuantileDisplay:
        """Effects at quantiles of the outcome along a feature; see `QuantileDisplay`."""
        return QuantileDisplay.from_result(self._of_two, feature).plot(ax)

    def densities(
        self, feature: str, *, values: Sequence[Any] | None = None, axes: Sequence[Axes] | None = None
    ) -> DensityDisplay:
        """Outcome distributions of both arms at values of a feature; see `DensityDisplay`."""
        return DensityDisplay.from_result(self._of_two, feature, values=values).plot(axes)

    def bounds(
        self, feature: str, *, quantities: Sequence[str] = DEFAULT, axes: Sequence[Axes] | None = None
    ) -> BoundsDisplay:
        """Bounds on what no data identify along a feature; see `BoundsDisplay`."""
        return BoundsDisplay.from_result(self._of_two, feature, quantities=quantities).plot(axes)

    def overlap(self, *, ax: Axes | None = None) -> OverlapDisplay:
        """Propensity scores of both arms; see `OverlapDisplay`."""
        return OverlapDisplay.from_result(self._of_two).plot(ax)

    def calibration(
        self, features: str | Sequence[str] | None = None, *, max_features: int = 30, axes: Sequence[Axes] | None = None
    ) -> CalibrationDisplay:
        """How well the distributions of the features fit held-out rows; see `CalibrationDisplay`."""
        made = CalibrationDisplay.from_result(self._of_two, features=features, max_features=max_features)
        return made.plot(axes)
