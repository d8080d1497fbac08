"""Displays (matplotlib), in the manner of scikit-learn: build from a result, then ``plot``."""

from modifind.plots.accessor import PlotAccessor
from modifind.plots.bounds import BoundsDisplay
from modifind.plots.calibration import CalibrationDisplay
from modifind.plots.changes import ChangesDisplay
from modifind.plots.curve import CurveDisplay
from modifind.plots.d2 import D2Display
from modifind.plots.density import DensityDisplay
from modifind.plots.importance import ImportanceDisplay
from modifind.plots.overlap import OverlapDisplay
from modifind.plots.quantiles import QuantileDisplay

__all__ = [
    "BoundsDisplay",
    "CalibrationDisplay",
    "ChangesDisplay",
    "CurveDisplay",
    "D2Display",
    "DensityDisplay",
    "ImportanceDisplay",
    "OverlapDisplay",
    "PlotAccessor",
    "QuantileDisplay",
]
