"""Displays (matplotlib), in the manner of scikit-learn: build from a result, then ``plot``."""

from modifind.plots.curve import CurveDisplay
from modifind.plots.importance import ImportanceDisplay

__all__ = ["CurveDisplay", "ImportanceDisplay"]
