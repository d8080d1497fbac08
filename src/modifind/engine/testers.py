"""From the distribution of one feature to its p-value: what each statistic needs, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from modifind._typing import Array
from modifind.data.feature_groups import Feature, members_of
from modifind.data.feature_matrix import FeatureTable
from modifind.engine.change_tests import Changes, Sweep, change_tests, shared_draws, unseen_changes
from modifind.engine.overlap_conditional import OverlapConditional
from modifind.explain.attempts import attempt
from modifind.inference import UNSEEN, AnalyticOutcome, ConditionalRandomizationTest, CRTOutcome
from modifind.nuisance.conditional import Conditional, ConditionalGrid
from modifind.nuisance.propensity.profile import ScoreProfile
from modifind.nuisance.propensity.scores import FittedPropensity
from modifind.statistics import EffectLikelihood, Nuisances
from modifind.statistics.contract import Column, PreparedStatistic, Statistic, called
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood
from modifind.statistics.prepared_wcmmd import PreparedWCMMD

Outcome: TypeAlias = CRTOutcome | AnalyticOutcome
EXPLAINING = EffectLikelihood(["linear", "splines"])  # of what resamples find without a model of the outcome
TIE = 1e-10  # relative difference of two statistics that only rounding keeps apart


class Tester(Protocol):
    """Turns the distribution of a feature into a p-value."""

    @property
    def n_resamples(self) -> int:
        """How many resamples a feature may take."""

    @property
    def model(self) -> PreparedEffectLikelihood | None:
        """Models of the outcome, where there are any."""

    @property
    def description(self) -> dict[str, Any] | None:
        """What a result records of the models that the test is made of."""

    def without_conditional(self, feature: Feature) -> tuple[Outcome, Changes | None] | None:
        """What `examine` finds where it is the same for every distribution of the feature, None where it is not."""

    def examine(
        self, feature: Any, conditional: Any, bandwidth: float, rng: np.random.Generator
    ) -> tuple[Outcome, Changes | None]:
        """Test one feature, or several together where the statistic takes them, and what it changes."""


@dataclass(frozen=True)
class ResamplingTester:
    """Conditional randomisation test of a statistic.

    Attributes
    ----------
    model : PreparedEffectLikelihood, optional
        Models of the outcome that say what changes; without them nothing does.
    """

    prepared: PreparedStatistic
    statistic: Statistic
    crt: ConditionalRandomizationTest
    n_resamples: int
    propensity: FittedPropensity
    table: FeatureTable
    model: PreparedEffectLikelihood | None = None
    description = None

    def without_conditional(self, feature: Feature) -> None:
        """Every feature is resampled."""
        return None

    def examine(
        self, feature: int, conditional: Conditional, bandwidth: float, rng: np.random.Generator
    ) -> tuple[Outcome, Changes | None]:
        """The test; what changes is for a model of the outcome to say."""
        outcome = self.test(feature, conditional, bandwidth, rng)
        if self.model is None:
            return outcome, None
        plain = ConditionalGrid.of(conditional, self.table.n_rows, n_levels=self.table.n_levels(feature))
        grid = OverlapConditional(plain, self.propensity, feature)
        return outcome, attempt(_changes_of(self.table, feature), change_tests, self.model, feature, grid)

    def test(self, feature: int, conditional: Conditional, bandwidth: float, rng: np.random.Generator) -> Outcome:
        """Compare the feature with resampled copies of it."""
        levels = self.table.n_levels(feature)
        follows = self.statistic.follows_scores
        profile = self.propensity.profile(feature, self.statistic.device) if follows else None

        def statistic(values: Array) -> float:
            # The data and its resamples are scored by the same function, which is what makes them comparable.
            followed = self.propensity.scores if profile is None else profile(values)
            found = np.asarray(self.prepared.value(Column(feature, values, followed, levels, bandwidth)), dtype=float)
            if found.ndim:
                raise ValueError(f"{called(self.statistic)}: value must be a number; found shape {found.shape}")
            return float(found)

        observed = statistic(self.table.values[:, feature])
        if not np.isfinite(observed):
            raise ValueError(f"{called(self.statistic)} is {observed} for the feature as observed; it must be finite")
        evaluate: Callable[[Array], Any] = statistic
        on_device = self.statistic.device != "cpu"
        if on_device:
            evaluate = self._on_device(profile, statistic, observed, bandwidth, levels)
        return self.crt.run(observed, lambda k: conditional.draw(rng, k), evaluate, self.n_resamples, batched=on_device)

    def _on_device(
        self,
        profile: ScoreProfile | None,
        statistic: Callable[[Array], float],
        observed: float,
        bandwidth: float,
        n_levels: int,
    ) -> Callable[[Array], Array]:
        """Statistics of blocks of columns by torch; `statistic` does those that need numpy."""
        from modifind.nuisance.propensity.on_device import DeviceProfile, FixedScores
        from modifind.statistics.wcmmd_torch import DeviceWCMMD

        device, known = self.statistic.device, self.propensity.scores
        prepared = cast(PreparedWCMMD, self.prepared)
        wcmmd = DeviceWCMMD(prepared, device, bandwidth=bandwidth, n_levels=n_levels)
        scores = FixedScores(known, device) if profile is None else DeviceProfile(profile, device)

        def statistics(columns: Array) -> Array:
            values, left = wcmmd.importances(columns, lambda x: prepared.capped(scores(x)))
            for k in np.flatnonzero(left):
                values[k] = statistic(columns[k])
            # A resample that repeats the data ties with it, whatever the device makes of the last digits.
            return np.where(np.abs(values - observed) <= TIE * observed, observed, values)

        return statistics


CONDITIONAL_TESTED = 0.05  # where a feature is not found, its distribution cannot have found it


@dataclass(frozen=True)
class AnalyticTester:
    """Effect-likelihood test: the null distribution of a sum over rows.

    Attributes
    ----------
    propensity : FittedPropensity
        Scores of the rows, also with other values of a feature.
    n_resamples : int
        Resamples that the tail is checked by.
    explain : bool
        Whether to test also what a feature changes.
    """

    prepared: PreparedEffectLikelihood
    propensity: FittedPropensity
    n_resamples: int
    explain: bool = True

    @property
    def model(self) -> PreparedEffectLikelihood:
        """Models of the outcome: those that the test is made of."""
        return self.prepared

    @property
    def description(self) -> dict[str, Any]:
        """The models and their weights."""
        return self.prepared.description

    def without_conditional(self, feature: Feature) -> tuple[Outcome, Changes | None] | None:
        """A feature that no fold's model looks at has the same likelihood at every value."""
        if self.prepared.looks_at(feature) or self.prepared.may_show_directly(feature):
            return None
        return UNSEEN, unseen_changes(self.prepared) if self.explain else None

    def examine(
        self, feature: Feature, conditional: Any, bandwidth: float, rng: np.random.Generator
    ) -> tuple[Outcome, Changes | None]:
        """Compare sums over rows with those under the distribution, which is known by points for several features."""
        table, points = self.prepared.table, conditional
        if isinstance(feature, int):
            points = ConditionalGrid.of(conditional, table.n_rows, n_levels=table.n_levels(feature))
        grid = OverlapConditional(points, self.propensity, feature)
        prepared, what = self.prepared, _changes_of(self.prepared.table, feature)
        parts = informed = None
        if not prepared.looks_at(feature):
            outcome, scores = UNSEEN, prepared.direct_scores
        else:
            parts = attempt(what, Sweep.of, prepared, feature, grid) if self.explain else None
            sweep = Sweep.of(prepared, feature, grid, parts=False) if parts is None else parts
            outcome = sweep.test(prepared, grid, 0, check_resamples=self.n_resamples, rng=rng)
            outcome = replace(outcome, prognostic_p_value=sweep.test(prepared, grid, -1).p_value)
            scores, informed, grid = sweep.terms[0].direct, sweep.terms[0].informed, grid.swept(sweep.weights)
        functions = prepared.direct_functions(feature)
        excess = None if functions is None else functions.excess(prepared.table, grid, informed)
        if excess is not None:
            outcome = outcome.with_direct(prepared.direct_test(scores, excess, shared_draws(grid)))
        independent = prepared.clusters is None and shared_draws(grid) is None
        if outcome.p_value <= CONDITIONAL_TESTED and prepared.looks_at(feature) and independent:
            outcome = replace(outcome, conditional_p_value=prepared.conditional_test(feature, grid))
        if not self.explain:
            return outcome, None
        return outcome, attempt(what, change_tests, prepared, feature, grid, parts, excess)


def _changes_of(table: FeatureTable, feature: Feature) -> str:
    members = members_of(feature)
    named = ", ".join(repr(table.names[member]) for member in members)
    return (
        f"features {named}: what changes along them" if len(members) > 1 else f"feature {named}: what changes along it"
    )


def explaining_model(nuisances: Nuisances, sampler: Any) -> PreparedEffectLikelihood | None:
    """A model of the outcome that says what changes along features, where the test itself has none."""
    # A distribution that ignores the treatment cannot tell what depends on it from what changes.
    if not getattr(sampler, "condition_on_treatment", True):
        return None
    return attempt("what changes along features", EXPLAINING.prepare, nuisances)
