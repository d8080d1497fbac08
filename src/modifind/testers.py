"""From the law of one feature to its p-value: what each statistic needs, put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from modifind.features import FeatureTable
from modifind.kernels import Array
from modifind.propensity import FittedPropensity
from modifind.samplers import ConditionalGrid, FeatureLaw
from modifind.statistics import WCMMD
from modifind.statistics.effect_likelihood import PreparedEffectLikelihood
from modifind.statistics.wcmmd import PreparedWCMMD
from modifind.testing import UNSEEN, AnalyticOutcome, ConditionalRandomizationTest, CRTOutcome, analytic_test

Outcome: TypeAlias = CRTOutcome | AnalyticOutcome


class Tester(Protocol):
    """Turns the law of a feature into a p-value."""

    def without_law(self, feature: int) -> Outcome | None:
        """The outcome where it is the same for every law of the feature, None where it is not."""

    def test(self, feature: int, law: FeatureLaw, bandwidth: float, rng: np.random.Generator) -> Outcome:
        """Test one feature."""


@dataclass(frozen=True)
class ResamplingTester:
    """Conditional randomisation test of the weighted conditional MMD."""

    prepared: PreparedWCMMD
    statistic: WCMMD
    crt: ConditionalRandomizationTest
    n_resamples: int
    propensity: FittedPropensity
    table: FeatureTable

    def without_law(self, feature: int) -> Outcome | None:
        """Every feature is resampled."""
        return None

    def test(self, feature: int, law: FeatureLaw, bandwidth: float, rng: np.random.Generator) -> Outcome:
        """Compare the feature with resampled copies of it."""
        levels = self.table.n_levels(feature)
        fixed = self.statistic.resample_weights == "fixed"
        profile = (lambda values: self.propensity.scores) if fixed else self.propensity.profile(feature)

        def statistic(values: Array) -> float:
            # The data and its resamples are scored by the same function, which is what makes them comparable.
            followed = self.statistic.capped(profile(values))
            return self.prepared.importance(values, followed, bandwidth=bandwidth, n_levels=levels)

        observed = statistic(self.table.values[:, feature])
        return self.crt.run(observed, lambda k: law.draw(rng, k), statistic, self.n_resamples)


@dataclass(frozen=True)
class AnalyticTester:
    """Effect-likelihood test: the null distribution of a sum over rows."""

    prepared: PreparedEffectLikelihood
    check_resamples: int

    def without_law(self, feature: int) -> Outcome | None:
        """A feature that no fold's model looks at has the same likelihood at every value."""
        return None if self.prepared.looks_at(feature) else UNSEEN

    def test(self, feature: int, law: FeatureLaw, bandwidth: float, rng: np.random.Generator) -> Outcome:
        """Compare the sum over rows with its distribution under the law."""
        table = self.prepared.table
        grid = ConditionalGrid.of(law, table.n_rows, n_levels=table.n_levels(feature))
        values, weights = self.prepared.on_grid(feature, grid)
        return analytic_test(
            self.prepared.observed,
            values,
            weights,
            shared_variance=self.prepared.reuse_variance(feature, grid, values, weights),
            check_resamples=self.check_resamples,
            rng=rng,
        )
