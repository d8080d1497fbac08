"""Families of outcomes: how likely an outcome is, given where its arm lies and how far that spreads."""

from modifind.statistics.families.amount import Amount
from modifind.statistics.families.bernoulli import Bernoulli
from modifind.statistics.families.choice import FAMILIES, check_family, family_of
from modifind.statistics.families.contract import Family, MeanFamily
from modifind.statistics.families.count import Count
from modifind.statistics.families.links import LINKS
from modifind.statistics.families.ordinal import Ordinal
from modifind.statistics.families.student_t import StudentT

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
