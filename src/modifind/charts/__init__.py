"""Displays (matplotlib) in the style of scikit-learn: create from a result, then ``plot``."""

from modifind.charts.accessor import PlotAccessor
from modifind.charts.along import CurveDisplay, D2Display, DensityDisplay, QuantileDisplay
from modifind.charts.displays import CalibrationDisplay, ChangesDisplay, Display, ImportanceDisplay, OverlapDisplay
from modifind.charts.heterogeneity import BoundsDisplay, ForestDisplay

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
