"""From statistics to p-values to selections."""

from modifind.testing.analytic import UNSEEN, AnalyticOutcome, analytic_test
from modifind.testing.crt import ConditionalRandomizationTest, CRTOutcome
from modifind.testing.multiple import adjust_p_values
from modifind.testing.sums import RowSums, sums_test

__all__ = [
    "UNSEEN",
    "AnalyticOutcome",
    "CRTOutcome",
    "ConditionalRandomizationTest",
    "RowSums",
    "adjust_p_values",
    "analytic_test",
    "sums_test",
]
