"""Families of outcomes: how likely an outcome is, given where its arm lies and how far that spreads."""

from modifind._typing import Array
from modifind.statistics.families.bernoulli import Bernoulli
from modifind.statistics.families.contract import Family
from modifind.statistics.families.student_t import StudentT

__all__ = ["Bernoulli", "Family", "StudentT", "family_of"]

FAMILIES: tuple[Family, ...] = (Bernoulli(), StudentT())


def family_of(y: Array) -> Family:
    """The first family that takes an outcome.

    Examples
    --------
    >>> import numpy as np
    >>> family_of(np.array([1.0, 2.0, 2.0])).name, family_of(np.array([1.0, 2.0, 3.0])).name
    ('bernoulli', 'student-t')
    """
    return next(family for family in FAMILIES if family.accepts(y))
