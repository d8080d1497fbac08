"""Choice between samplers, feature by feature."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from modifind.features import FeatureTable
from modifind.samplers.base import BaseSampler, FeatureLaw
from modifind.samplers.boosting import BoostingSampler
from modifind.samplers.gaussian import GaussianSampler

MISFIT_LEVEL = 0.01


class AutoSampler(BaseSampler):
    """The gaussian or the boosting sampler, whichever predicts held-out rows of the feature better.

    The boosting law is taken when its held-out log-score is better by more than one standard error of the difference,
    or when the gaussian law fails its own held-out calibration test at 1% and the boosting law passes: a wrong shape
    costs little log-score but makes p-values too small.

    Parameters
    ----------
    condition_on_treatment : bool, default=True
        Whether the treatment is among the conditioning variables.
    """

    name = "auto"

    def fit(self, table: FeatureTable, treatment: NDArray[np.int64], seed: np.random.SeedSequence) -> AutoSampler:
        """Hand the data to both candidates."""
        super().fit(table, treatment, seed)
        first, second = seed.spawn(2)
        condition = self.condition_on_treatment
        self.gaussian_ = GaussianSampler(condition_on_treatment=condition).fit(table, treatment, first)
        self.boosting_ = BoostingSampler(condition_on_treatment=condition).fit(table, treatment, second)
        return self

    def law(self, feature: int) -> FeatureLaw:
        """Fit both laws of one feature and return the better."""
        linear, linear_score = self.gaussian_.scored_law(feature)
        boosted, boosted_score = self.boosting_.scored_law(feature)
        gain = boosted_score - linear_score
        error = gain.std() / np.sqrt(gain.size)
        if gain.mean() > error:
            return boosted
        failed = linear.calibration.pit_p_value < MISFIT_LEVEL <= boosted.calibration.pit_p_value
        return boosted if failed else linear
