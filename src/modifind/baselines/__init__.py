"""Methods for comparison."""

from modifind.baselines.lasso import lasso_selective_inference
from modifind.baselines.si_em import SIEM

__all__ = ["SIEM", "lasso_selective_inference"]
