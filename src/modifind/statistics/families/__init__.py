"""Families of outcomes: how likely an outcome is, given where its arm lies and how far that spreads."""

from modifind.statistics.families.amount import Amount
from modifind.statistics.families.bernoulli import Bernoulli
from modifind.statistics.families.choice import FAMILIES, check_family, family_of
from modifind.statistics.families.contract import Family
from modifind.statistics.families.count import Count
from modifind.statistics.families.ordinal import Ordinal
from modifind.statistics.families.student_t import StudentT

__all__ = ["FAMILIES", "Amount", "Bernoulli", "Count", "Family", "Ordinal", "StudentT", "check_family", "family_of"]
