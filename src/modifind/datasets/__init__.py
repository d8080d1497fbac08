"""Simulated and embedded data, and NHANES tables from CDC."""

from modifind.datasets.nhanes import build_nhanes_crp, fetch_nhanes_crp
from modifind.datasets.synthetic import KINDS, make_modifiers
from modifind.datasets.trial import load_trial, make_trial

__all__ = ["KINDS", "build_nhanes_crp", "fetch_nhanes_crp", "load_trial", "make_modifiers", "make_trial"]
