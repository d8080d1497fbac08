"""Families of outcomes: how likely an outcome is, given where its arm lies and how far that spreads."""

from modifind.statistics.families.choice import FAMILIES, check_family, family_of
from modifind.statistics.families.continuous import Amount, StudentT
from modifind.statistics.families.contract import LINKS, Family, MeanFamily
from modifind.statistics.families.discrete import Bernoulli, Count, Ordinal

__all__ = [
    "FAMILIES",
    "LINKS",
    "Amount",
    "Bernoulli",
    "Count",
    "Family",
    "MeanFamily",
    "Ordinal",
    "StudentT",
    "check_family",
    "family_of",
]
