"""Marginal sampler: draws from the feature's own values and ignores the other features (the paper's "Naive")."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from modifind.nuisance.conditional.contract import Calibration, ConditionalRule
from modifind.nuisance.conditional.rules import ArmRule
from modifind.nuisance.conditional.sampler import BaseSampler
from modifind.nuisance.conditional.window_quantiles import Windows


class MarginalSampler(BaseSampler):
    """Draws X_m from its empirical distribution, within arms when `condition_on_treatment`.

    Numbers between two neighbouring values are drawn too: drawn twice, a value of a long tail would no longer lie as
    far from all others as the observed one.

    It breaks the dependence of X_m on the other features, so its p-values are valid only for independent features. It
    is the baseline that shows why the conditional distribution matters.

    Parameters
    ----------
    condition_on_treatment : bool, default=True
        Draw from the rows of the same arm. The paper's Naive does not.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.data.feature_matrix import FeatureTable
    >>> from modifind import MarginalSampler
    >>> table = FeatureTable(("age",), np.array([[40.0], [50.0], [60.0], [70.0]]), (None,))
    >>> sampler = MarginalSampler().fit(table, np.array([0, 0, 1, 1]), np.random.SeedSequence(0))
    >>> draws = sampler.conditional(0).draw(np.random.default_rng(0), 3)
    >>> draws.shape, bool(draws[:, :2].max() < draws[:, 2:].min())  # each arm by itself
    ((3, 4), True)
    """

    name = "marginal"
    learns = True

    def rule(self, feature: int) -> ConditionalRule:
        """Take the column's own values as the distribution."""
        column, levels = self.table_.values[:, feature], self.table_.n_levels(feature)
        arms = self.treatment_ if self.condition_on_treatment else np.zeros_like(self.treatment_)
        samples = [arms == arm for arm in range(int(arms.max()) + 1)]
        windows = Windows.from_pools([(column[rows], self.weights_[rows]) for rows in samples], levels)
        calibration = Calibration(self.name, float("nan"), float("nan"), 0.0)  # it is the marginal distribution
        rule = ArmRule(windows, self.condition_on_treatment, calibration=calibration)
        fitted = rule.conditional(self.table_, self.treatment_, self.treatment_)
        return replace(rule, windows=replace(windows, pools=()), fitted=fitted)
