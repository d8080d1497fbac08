"""Test statistics."""

from modifind.statistics.effect_likelihood import EffectLikelihood
from modifind.statistics.wcmmd import WCMMD, wcmmd_importance

__all__ = ["WCMMD", "EffectLikelihood", "wcmmd_importance"]
