"""P-values from statistics, and selections from p-values."""

from modifind.inference.adjust import adjust_p_values, simes_p_values
from modifind.inference.randomisation import ConditionalRandomizationTest, CRTOutcome
from modifind.inference.sums import UNSEEN, AnalyticOutcome, RowSums, analytic_test, cauchy_combination, sums_test

__all__ = [
    "UNSEEN",
    "AnalyticOutcome",
    "CRTOutcome",
    "ConditionalRandomizationTest",
    "RowSums",
    "adjust_p_values",
    "analytic_test",
    "cauchy_combination",
    "simes_p_values",
    "sums_test",
]
