"""Test statistics."""

from modifind.statistics.wcmmd import WCMMD, wcmmd_importance

__all__ = ["WCMMD", "wcmmd_importance"]
