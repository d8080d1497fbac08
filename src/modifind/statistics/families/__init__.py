"""Families of outcomes: likelihoods given the location and scale of an arm."""

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
