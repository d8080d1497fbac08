"""Explanations of selected features."""

from modifind.explain.curves import effect_curve

__all__ = ["effect_curve"]
