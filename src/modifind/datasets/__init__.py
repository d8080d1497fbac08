"""Simulated and bundled data, and NHANES tables from CDC."""

from modifind.datasets.made import KINDS, load_trial, make_modifiers, make_trial
from modifind.datasets.nhanes import build_nhanes_crp, fetch_nhanes_crp

__all__ = ["KINDS", "build_nhanes_crp", "fetch_nhanes_crp", "load_trial", "make_modifiers", "make_trial"]
