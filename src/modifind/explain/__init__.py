"""Explanations of selected features."""

from modifind.explain.bounds import bounds_test, effect_bounds
from modifind.explain.curves import effect_curve, outcome_densities

__all__ = ["bounds_test", "effect_bounds", "effect_curve", "outcome_densities"]
