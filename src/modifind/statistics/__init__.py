"""Test statistics."""

from modifind.statistics.contract import Column, Nuisances, PreparedTerms, Statistic, Terms
from modifind.statistics.effect_likelihood import EffectLikelihood
from modifind.statistics.wcmmd import WCMMD, wcmmd_importance

__all__ = [
    "WCMMD",
    "Column",
    "EffectLikelihood",
    "Nuisances",
    "PreparedTerms",
    "Statistic",
    "Terms",
    "wcmmd_importance",
]
