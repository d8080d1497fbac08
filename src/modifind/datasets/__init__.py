"""Simulated and embedded data."""

from modifind.datasets.synthetic import KINDS, make_modifiers
from modifind.datasets.trial import load_trial, make_trial

__all__ = ["KINDS", "load_trial", "make_modifiers", "make_trial"]
