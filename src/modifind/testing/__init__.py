"""From statistics to p-values to selections."""

from modifind.testing.crt import ConditionalRandomizationTest, CRTOutcome
from modifind.testing.multiple import adjust_p_values

__all__ = ["CRTOutcome", "ConditionalRandomizationTest", "adjust_p_values"]
