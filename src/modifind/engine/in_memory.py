"""A table in memory keeps its rows: tails are exact, features can be resampled, and cross-fits repeated."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from modifind._threads import one_thread
from modifind._typing import Array
from modifind.data.clusters import assign_cluster_folds, warn_resampled_weights
from modifind.data.determined import find_determined
from modifind.data.feature_groups import arrange
from modifind.data.many_levels import with_level_columns
from modifind.data.outcome_scale import transform_outcome
from modifind.data.pieces import Block
from modifind.data.within_clusters import cluster_features
from modifind.engine.assemble import Finding
from modifind.engine.checkpoint import Checkpoint
from modifind.engine.features import Analysis, Interrupted, run_tests
from modifind.engine.reading import Data
from modifind.engine.repeats import steadied
from modifind.engine.run import Answer, Models, Run, Table
from modifind.engine.scoring import draw_folds, fit_scores, model_of_rows
from modifind.engine.testers import AnalyticTester, ResamplingTester, explaining_model
from modifind.engine.units import check_groups
from modifind.nuisance.conditional import BaseSampler
from modifind.nuisance.propensity.overlap import OverlapSums
from modifind.nuisance.propensity.scores import FittedPropensity
from modifind.statistics import WCMMD
from modifind.statistics.contract import refuse_gaps
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood
from modifind.statistics.prepared_wcmmd import PreparedWCMMD


@dataclass(frozen=True)
class TableInMemory(Table):
    """A table in memory.

    Attributes
    ----------
    data : Data
        The table as it was read, with the clusters that rows are in.
    checkpoint : Checkpoint, optional
        Where features are saved as soon as they are tested.
    known : dict
        Findings that are there already, by position.
    """

    data: Data
    checkpoint: Checkpoint | None = None
    known: dict[int, Finding] = field(default_factory=dict)
    streams = ("propensity", "sampler", "statistic", "features", "folds", "cluster_folds", "repeats")

    @classmethod
    def of(
        cls,
        run: Run,
        data: Data,
        checkpoint: Checkpoint | None = None,
        known: dict[int, Finding] | None = None,
    ) -> TableInMemory:
        """From a table that was read; refuses settings that have no meaning for it."""
        arranged, units = arrange(data.table, run.feature_groups, data.adjusted)
        table = with_level_columns(replace(data, table=arranged).conditioned, data.weights)
        outcome = check_settings(run, data)
        determined = find_determined(table).apart([unit.members for unit in units])
        determined.warn()
        within: dict[int, NDArray[np.int64]] = {}
        if run.statistic.takes_clusters and getattr(run.sampler, "learns", False):
            within, clusters = cluster_features(table, data.clusters, determined.features)
            data = replace(data, clusters=clusters)
        if data.weights is not None and run.statistic.resamples:
            warn_resampled_weights()
        check_groups(run.sampler, table, units)
        repeats = cls.stream(run, "folds").spawn(run.statistic.cv_repeats or 1)
        return cls(
            block=Block(0, table, outcome, data.arms, None, data.weights, data.clusters),
            units=units,
            copies=determined.features,
            within=within,
            folds=tuple(draw_folds(data, run.n_folds, child) for child in repeats),
            left_out=frozenset(data.table.names[m] for m in data.left_out),
            columns_in=data.table.names,
            labels=(data.treatment.control, data.treatment.treated),
            n_rows=data.arms.size,
            n_treated=int(data.arms.sum()),
            outside=data.outside,
            recorded=data.settings,
            data=data,
            checkpoint=checkpoint,
            known=known or {},
        )

    def scores(self, run: Run) -> FittedPropensity:
        """Propensity scores of the rows."""
        model = model_of_rows(run.propensity, self.data)
        with one_thread():  # threads of small models wait for each other
            return fit_scores(model, self.data, self.block.table, run.n_folds, self.stream(run, "propensity"))

    def assign_folds(self, run: Run, sampler: BaseSampler) -> None:
        """Folds that keep clusters together, where there are any; samplers draw their own otherwise."""
        if self.block.clusters is not None:
            seed = self.stream(run, "cluster_folds")
            assign_cluster_folds(sampler, self.block.treatment, self.block.clusters, run.n_folds, seed)

    def answer(self, run: Run, models: Models) -> Answer:
        """Test every feature, one after the other or by several processes; those near the cut by further cross-fits."""
        block, propensity, nuisances = self.block, models.propensity, models.nuisances
        tester = _tester(run, models, run.resamples(self))
        prepared: PreparedWCMMD = models.prepared
        if not run.statistic.measures_importance:
            prepared = WCMMD().prepare(nuisances)
        outcome_seed, overall_seed = nuisances.seed.spawn(2)
        outcomes = run.pseudo_outcomes(self, propensity, tester.model, outcome_seed)
        parts = propensity, models.sampler, prepared, tester, self.copies, self.units
        given = block.weights, block.clusters, run.explain, run.alpha
        plan = Analysis(block.table, block.y, outcomes, *parts, *given)
        findings, interrupted = self._tested(run, plan, models)
        overlap = OverlapSums.of(propensity, block.clusters)
        ways = outcomes, prepared.y_bandwidth, overall_seed, tester.n_resamples
        return Answer(findings, interrupted, overlap, *ways)

    def _tested(self, run: Run, plan: Analysis, models: Models) -> tuple[list[Finding], bool]:
        """What was found of every feature, and whether Ctrl-C came before the end."""
        seed = self.stream(run, "features")
        try:
            findings = run_tests(plan, seed, run.n_jobs, run.progress, self.checkpoint, self.known)
        except Interrupted as stop:
            if not any(finding.reached for finding in stop.findings):
                raise KeyboardInterrupt from None
            return stop.findings, True
        if run.statistic.resamples or run.statistic.cv_repeats > 1:
            return findings, False
        again = run.statistic.with_stack(plan.tester.model)

        def refitted(seed: np.random.SeedSequence) -> PreparedEffectLikelihood:
            folds = (draw_folds(self.data, run.n_folds, *seed.spawn(1)),)
            return again.prepare(replace(models.nuisances, folds=folds))

        try:
            return steadied(plan, findings, run.adjust, self.stream(run, "repeats"), refitted), False
        except KeyboardInterrupt:
            return findings, True


def check_settings(run: Run, data: Data) -> Array:
    """Refuse settings that have no meaning for a table, before anything is fitted.

    Returns the outcome on the scale on which effects are measured.
    """
    outcome = transform_outcome(data.y, run.outcome_transform)
    run.check_outcome(outcome, data.arms, weighted=data.weights is not None)
    refuse_gaps(run.statistic, [data.table.names[m] for m in data.table.incomplete])
    model_of_rows(run.propensity, data).check(data.y.size)
    return outcome


def _tester(run: Run, models: Models, n_resamples: int) -> AnalyticTester | ResamplingTester:
    """What tests one feature."""
    statistic, propensity, nuisances = run.statistic, models.propensity, models.nuisances
    if not statistic.resamples:
        return AnalyticTester(models.prepared, propensity, statistic.check_resamples, run.explain)
    model = explaining_model(nuisances, run.sampler) if run.explain else None
    return ResamplingTester(models.prepared, statistic, run.test, n_resamples, propensity, nuisances.table, model)
