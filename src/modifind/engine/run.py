"""Tests of a table in memory, all rows at once."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._threads import one_thread
from modifind._typing import Array
from modifind.data.clusters import assign_cluster_folds, check_sampler_weights, warn_resampled_weights
from modifind.data.determined import find_determined
from modifind.data.feature_groups import arrange
from modifind.data.feature_matrix import FeatureTable
from modifind.data.many_levels import with_level_columns
from modifind.data.outcome_scale import transform_outcome
from modifind.data.within_clusters import cluster_features
from modifind.data.wording import named
from modifind.engine.assemble import DETERMINED, Finding, tell
from modifind.engine.checkpoint import Checkpoint
from modifind.engine.features import Analysis, Interrupted, run_tests
from modifind.engine.progress import Progress
from modifind.engine.reading import Data
from modifind.engine.record import data_settings
from modifind.engine.repeats import steadied
from modifind.engine.review import review_columns
from modifind.engine.scoring import draw_folds, fit_scores, model_of_rows, refuse_separation
from modifind.engine.testers import AnalyticTester, ResamplingTester
from modifind.engine.units import Tested, check_groups, group_settings, null_hypothesis, warn_constant_members
from modifind.explain.answers import Answers
from modifind.explain.attempts import attempt
from modifind.explain.pseudo import ArmRows, OutcomeModel, PseudoOutcomes
from modifind.inference import ConditionalRandomizationTest
from modifind.nuisance.conditional import BaseSampler, for_gaps
from modifind.nuisance.conditional.base import sampler_weights
from modifind.nuisance.conditional.per_cluster import ClusterSampler
from modifind.nuisance.propensity.overlap import OverlapSums
from modifind.nuisance.propensity.scores import FittedPropensity, PropensityModel
from modifind.statistics import WCMMD, EffectLikelihood, Nuisances, Statistic
from modifind.statistics.contract import called
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood
from modifind.statistics.wcmmd import PreparedWCMMD

EXPLAINING = EffectLikelihood(["linear", "splines"])  # of what 'wcmmd' finds without a model of the outcome


@dataclass(frozen=True)
class WholeFit:
    """Settings of the tests of a table; they are those of `ModifierSelector`.

    `feature_groups` are checked columns by group, and `sampler` one that agrees with the statistic.
    """

    statistic: Statistic
    sampler: BaseSampler
    propensity: PropensityModel
    test: ConditionalRandomizationTest
    n_resamples: int | str
    alpha: float
    adjust: str
    outcome_transform: str | None
    feature_groups: dict[str, tuple[str, ...]]
    n_folds: int
    n_jobs: int | None
    progress: bool | Progress
    seed: int
    explain: bool = True
    population: str = "all"

    def check(self, data: Data) -> Array:
        """Refuse settings that have no meaning for a table, as `fit` does before it fits anything.

        Returns the outcome on the scale on which effects are measured.
        """
        outcome = transform_outcome(data.y, self.outcome_transform)
        self.statistic.validate(outcome, weighted=data.weights is not None)
        gaps = [data.table.names[m] for m in data.table.incomplete]
        if gaps and not self.statistic.takes_missing:
            raise ValueError(
                f"{called(self.statistic)} takes no missing values, which there are in {named(gaps)}; fill them, use "
                "missing='drop', or set takes_missing = True if NaN is dealt with"
            )
        model_of_rows(self.propensity, data).check(data.y.size)
        return outcome

    def fit(self, data: Data, checkpoint: Checkpoint | None, known: dict[int, Finding]) -> Tested:
        """Fit models, scores and distributions, and test every feature.

        Parameters
        ----------
        data : Data
            The table.
        checkpoint : Checkpoint, optional
            Where features are saved as soon as they are tested.
        known : dict
            Findings that are there already, by position.

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C before any feature was tested.
        """
        data, plan, nuisances, seed = self._analysis(data)
        findings, interrupted = self._tested(plan, data, nuisances, checkpoint, known)
        return self._concluded(plan, data, seed, findings, interrupted)

    @property
    def _seeds(self) -> list[np.random.SeedSequence]:
        """For propensity, sampler, statistic, features, folds, folds of clusters and repeats."""
        return np.random.SeedSequence(self.seed).spawn(7)

    def _analysis(self, data: Data) -> tuple[Data, Analysis, Nuisances, np.random.SeedSequence]:
        """Fit scores, the sampler and models of the outcome.

        The data come back with the clusters that rows are in. The seed is for effects of all rows together.
        """
        seeds = self._seeds
        arranged, units = arrange(data.table, self.feature_groups, data.adjusted)
        table, arms = with_level_columns(replace(data, table=arranged).conditioned, data.weights), data.arms
        outcome = self.check(data)
        determined = find_determined(table).apart([unit.members for unit in units])
        determined.warn()
        within: dict[int, NDArray[np.int64]] = {}
        if self.statistic.takes_clusters and getattr(self.sampler, "takes_clusters", False):
            within, clusters = cluster_features(table, data.clusters, determined.features)
            data = replace(data, clusters=clusters)
        if data.weights is not None and self.statistic.resamples:
            warn_resampled_weights()
        with one_thread():  # threads of small models wait for each other
            scores = fit_scores(model_of_rows(self.propensity, data), data, table, self.n_folds, seeds[0])
        refuse_separation(scores)
        check_groups(self.sampler, table, units)
        sampler = self._fitted_sampler(data, table, within)
        repeats = seeds[4].spawn(self.statistic.cv_repeats or 1)
        folds = tuple(draw_folds(data, self.n_folds, child) for child in repeats)
        given = data.weights, data.clusters
        nuisances = Nuisances(table, outcome, arms, scores.scores, seeds[2], folds, *given, self.n_jobs)
        tester = self._tester(nuisances, scores, len(units))
        own: Any = tester.prepared
        prepared: PreparedWCMMD = own if self.statistic.measures_importance else WCMMD().prepare(nuisances)
        models = () if tester.model is None else OutcomeModel.of(tester.model)
        rows = ArmRows(outcome, arms, scores.scores, *given, self.population)
        outcome_seed, overall_seed = seeds[2].spawn(2)
        outcomes = PseudoOutcomes.of(rows, models, seed=outcome_seed)
        parts = scores, sampler, prepared, tester, determined.features, units
        plan = Analysis(table, outcome, outcomes, *parts, *given, self.explain, self.alpha)
        return data, plan, nuisances, overall_seed

    def _concluded(
        self,
        plan: Analysis,
        data: Data,
        seed: np.random.SeedSequence,
        findings: list[Finding],
        interrupted: bool,
    ) -> Tested:
        """What was found of the whole table, and on record."""
        table, units, scores = plan.table, plan.units, plan.propensity
        names = tuple(unit.name for unit in units)
        tell(names, findings)
        named = {table.names[m] for m in plan.copies} | {data.table.names[m] for m in data.left_out}
        named |= warn_constant_members(table, units)
        answers = Answers()
        if self.explain:
            rows = plan.outcomes.rows
            shown = replace(table, values=table.values[rows])
            answers = Answers.of(plan.outcomes, plan.prepared.y_bandwidth, shown, units, plan.y.size, seed)
        overlap = OverlapSums.of(scores, data.clusters)
        columns = review_columns(
            scores,
            plan.y,
            randomised=scores.is_known or data.strata is not None,
            population=self.population,
            clusters=data.clusters,
            outcome_name=data.names.get("outcome_name"),
            positive=self.outcome_transform == "log",
            levels=data.outside,
        )
        return Tested(
            names,
            [unit.kind(table) for unit in units],
            findings,
            frozenset(named),
            overlap.overlap(scores),
            answers,
            overlap.score_histogram(),
            columns,
            data.table.names,
            self._recorded(plan, data),
            interrupted,
        )

    def _fitted_sampler(
        self,
        data: Data,
        table: FeatureTable,
        within: dict[int, NDArray[np.int64]],
    ) -> BaseSampler:
        """The sampler of this table; `within` has the clusters of features that have one value in each."""
        sampler = for_gaps(self.sampler, table)
        sampler = ClusterSampler(sampler, within, DETERMINED) if within else sampler
        if data.clusters is not None:
            assign_cluster_folds(sampler, data.arms, data.clusters, self.n_folds, self._seeds[5])
        if data.weights is not None:
            check_sampler_weights(self.sampler)
        sampler.fit(table, data.arms, self._seeds[1], **sampler_weights(data.weights))
        return sampler

    def _tested(
        self,
        plan: Analysis,
        data: Data,
        nuisances: Nuisances,
        checkpoint: Checkpoint | None,
        known: dict[int, Finding],
    ) -> tuple[list[Finding], bool]:
        """What was found of every feature, and whether Ctrl-C came before the end."""
        try:
            findings = run_tests(plan, self._seeds[3], self.n_jobs, self.progress, checkpoint, known)
        except Interrupted as stop:
            if not any(finding.reached for finding in stop.findings):
                raise KeyboardInterrupt from None
            return stop.findings, True
        if self.statistic.resamples or self.statistic.cv_repeats > 1:
            return findings, False
        again = self.statistic.with_stack(plan.tester.model)

        def refitted(seed: np.random.SeedSequence) -> PreparedEffectLikelihood:
            return again.prepare(replace(nuisances, folds=(draw_folds(data, self.n_folds, *seed.spawn(1)),)))

        try:
            return steadied(plan, findings, self.adjust, self._seeds[6], refitted), False
        except KeyboardInterrupt:
            return findings, True

    def _recorded(self, plan: Analysis, data: Data) -> dict[str, Any]:
        """What a result records beyond the selector's arguments."""
        table, units, arms = plan.table, plan.units, data.arms
        labels = data.treatment.control, data.treatment.treated
        settings = {
            "n_resamples_used": plan.tester.n_resamples,
            "n_resamples_needed": self._needed_resamples(len(units)),
            "model": plan.tester.description,
            **data_settings(*labels, arms.size, int(arms.sum()), plan.propensity, self.seed),
            **data.settings,
            "null_hypothesis": null_hypothesis(
                self.statistic,
                self.sampler,
                adjusted=bool(data.adjusted),
                strata=data.strata is not None,
                groups=bool(self.feature_groups),
            ),
            **group_settings(self.feature_groups, table, units),
        }
        if plan.outcomes.levels:
            settings["outcome_levels"] = True
        if plan.outcomes.rows.size < plan.y.size:
            settings["n_explained_rows"] = plan.outcomes.rows.size
        return settings

    def _tester(
        self, nuisances: Nuisances, scores: FittedPropensity, n_tested: int
    ) -> AnalyticTester | ResamplingTester:
        """What tests one feature."""
        statistic = self.statistic
        prepared = statistic.prepare(nuisances)
        if not statistic.resamples:
            return AnalyticTester(prepared, scores, statistic.check_resamples, self.explain)
        n_resamples = self.test.resolve_resamples(self.n_resamples, n_tested, self.alpha, self.adjust)
        # A distribution that ignores the treatment cannot tell what depends on it from what changes.
        explain = self.explain and getattr(self.sampler, "condition_on_treatment", True)
        model = attempt("what changes along features", EXPLAINING.prepare, nuisances) if explain else None
        return ResamplingTester(prepared, statistic, self.test, n_resamples, scores, nuisances.table, model)

    def _needed_resamples(self, n_tested: int) -> int:
        if not self.statistic.resamples:
            return 0
        return self.test.needed_resamples(n_tested, self.alpha, self.adjust)


def warn_unused(test: ConditionalRandomizationTest | None, n_resamples: int | str, alpha: float, adjust: str) -> None:
    """Name settings that the effect-likelihood test has no use for."""
    if test is not None:
        warnings.warn("test= belongs to 'wcmmd'; effect_likelihood does not use it", UserWarning, stacklevel=4)
    if n_resamples != "auto":
        ConditionalRandomizationTest().resolve_resamples(n_resamples, 1, alpha, adjust)  # refuses what is no count
        warnings.warn(
            "effect_likelihood does not resample, so n_resamples has no effect; "
            "EffectLikelihood(check_resamples=...) checks its tail by resampling",
            UserWarning,
            stacklevel=4,
        )
