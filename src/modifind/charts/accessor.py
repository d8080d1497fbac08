"""Figures of a result by name: ``result.plot.curve("age")``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modifind._system import make_folder
from modifind.charts.along import CurveDisplay, D2Display, DensityDisplay, QuantileDisplay
from modifind.charts.displays import (
    FORMATS,
    CalibrationDisplay,
    ChangesDisplay,
    Display,
    ImportanceDisplay,
    OverlapDisplay,
)
from modifind.charts.heterogeneity import DEFAULT, MAX_FOREST_FEATURES, BoundsDisplay, ForestDisplay

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from modifind.result.selection_result import SelectionResult


UNSAFE_CHARACTERS = re.compile(r"[^\w.-]+")


class PlotAccessor:
    """Every figure of a result, drawn on a new figure or on given axes.

    Each method returns the Display, which `savefig` saves and a notebook shows; `save_all` saves all of them.

    Parameters
    ----------
    result : SelectionResult
        What is drawn.

    Examples
    --------
    >>> from modifind import EffectLikelihood, ModifierSelector
    >>> from modifind.datasets import make_modifiers
    >>> data = make_modifiers("LinMean", n_samples=300, n_features=6, random_state=0)
    >>> selector = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", random_state=0)
    >>> result = selector.fit(data.X, data.y, treatment=data.treatment).result_
    >>> result.plot.curve("X1").axes_[0].get_xlabel()
    'X1'
    >>> result.plot.importance().ax_.get_xlabel()
    'importance (variance of D²)'
    """

    def __init__(self, result: SelectionResult) -> None:
        self._result = result

    @property
    def _of_two(self) -> SelectionResult:
        return self._result.two_arms("figures")

    def __repr__(self) -> str:
        names = [name for name in dir(self) if not name.startswith("_")]
        return f"PlotAccessor({', '.join(names)})"

    def save_all(self, folder: str | os.PathLike[str], format: str = "svg") -> list[Path]:
        """Save every figure of the whole table and of the selected features.

        Parameters
        ----------
        folder : path
            Made if need be. Files are named after the figure and the feature.
        format : {"svg", "png", "pdf"}, default="svg"
            Of all files.

        Returns
        -------
        list of Path
            The files.
        """
        if format not in FORMATS:
            raise ValueError(f"figures are saved as {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, not {format!r}")
        make_folder(folder)
        paths: list[Path] = []
        for name, display in self._all():
            paths.append(Path(folder) / f"{len(paths) + 1:02d}-{UNSAFE_CHARACTERS.sub('_', name)[:80]}.{format}")
            display.savefig(paths[-1])
        return paths

    def _all(self) -> Iterator[tuple[str, Display]]:
        """Every figure with its name."""
        result = self._result
        whole: dict[str, tuple[Any, pd.DataFrame]] = {
            "forest": (ForestDisplay, result.subgroups),
            "changes": (ChangesDisplay, result.changes),
            "overlap": (OverlapDisplay, result.score_histogram),
        }
        along: dict[str, tuple[Any, Mapping[str, Any]]] = {
            "curve": (CurveDisplay, result.curves),
            "quantiles": (QuantileDisplay, result.curves),
            "distance": (D2Display, result.curves),
            "densities": (DensityDisplay, result.densities),
            "bounds": (BoundsDisplay, result.bounds),
        }
        yield from ((name, display.from_result(result)) for name, (display, frame) in whole.items() if len(frame))
        for column in result.selected_columns:
            for name, (display, frames) in along.items():
                if len(frames.get(column, ())):
                    yield f"{name}-{column}", display.from_result(result, column)

    def importance(self, *, max_features: int = 30, ax: Axes | None = None) -> ImportanceDisplay:
        """Importance of every feature with its adjusted p-value; see `ImportanceDisplay`."""
        return ImportanceDisplay.from_result(self._result, max_features=max_features).plot(ax)

    def forest(
        self, *, max_features: int = MAX_FOREST_FEATURES, simultaneous: bool = False, ax: Axes | None = None
    ) -> ForestDisplay:
        """Average effects by subgroup; see `ForestDisplay`."""
        made = ForestDisplay.from_result(self._of_two, max_features=max_features, simultaneous=simultaneous)
        return made.plot(ax)

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
        """Bounds on what the data do not identify along a feature; see `BoundsDisplay`."""
        return BoundsDisplay.from_result(self._of_two, feature, quantities=quantities).plot(axes)

    def overlap(self, *, ax: Axes | None = None) -> OverlapDisplay:
        """Propensity scores of both arms; see `OverlapDisplay`."""
        return OverlapDisplay.from_result(self._of_two).plot(ax)

    def calibration(
        self, features: str | Sequence[str] | None = None, *, max_features: int = 30, axes: Sequence[Axes] | None = None
    ) -> CalibrationDisplay:
        """Fit of the features' distributions on held-out rows; see `CalibrationDisplay`."""
        made = CalibrationDisplay.from_result(self._of_two, features=features, max_features=max_features)
        return made.plot(axes)
