"""Displays (matplotlib), in the manner of scikit-learn: build from a result, then ``plot``."""

from modifind.charts.accessor import PlotAccessor
from modifind.charts.base import Display
from modifind.charts.bounds import BoundsDisplay
from modifind.charts.calibration import CalibrationDisplay
from modifind.charts.changes import ChangesDisplay
from modifind.charts.curve import CurveDisplay
from modifind.charts.d2 import D2Display
from modifind.charts.density import DensityDisplay
from modifind.charts.forest import ForestDisplay
from modifind.charts.importance import ImportanceDisplay
from modifind.charts.overlap import OverlapDisplay
from modifind.charts.quantiles import QuantileDisplay

__all__ = [
    "BoundsDisplay",
    "CalibrationDisplay",
    "ChangesDisplay",
    "CurveDisplay",
    "D2Display",
    "DensityDisplay",
    "Display",
    "ForestDisplay",
    "ImportanceDisplay",
    "OverlapDisplay",
    "PlotAccessor",
    "QuantileDisplay",
]
