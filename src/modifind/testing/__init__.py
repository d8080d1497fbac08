"""From statistics to p-values to selections."""

from modifind.testing.analytic import UNSEEN, AnalyticOutcome, analytic_test
from modifind.testing.crt import ConditionalRandomizationTest, CRTOutcome
from modifind.testing.multiple import adjust_p_values

__all__ = [
    "UNSEEN",
    "AnalyticOutcome",
    "CRTOutcome",
    "ConditionalRandomizationTest",
    "adjust_p_values",
    "analytic_test",
]
