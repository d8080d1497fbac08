"""A table in pieces: models are fitted to a sample of its rows, sums are added up over all of them, and tested."""

from __future__ import annotations

import warnings
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._threads import one_thread
from modifind._workers import WORKER_DIED, WorkerError, survivors
from modifind.data.feature_groups import Unit
from modifind.data.feature_matrix import FeatureTable
from modifind.data.missing import LEAST_OBSERVED
from modifind.data.pieces import Schema
from modifind.data.row_plan import RowPlan
from modifind.data.strata import Strata
from modifind.data.wording import named
from modifind.engine.assemble import NO_SAMPLER, Finding, failure_of
from modifind.engine.change_tests import Changes
from modifind.engine.explaining import MOST_TASKS, ExplainingRows, Explanation, Question, explain_features
from modifind.engine.features import learn
from modifind.engine.measured import (
    NOTHING_RESAMPLED,
    MeasuringPass,
    check_sums,
    measure,
    measured_columns,
    resampled_tests,
    size_of,
)
from modifind.engine.overlap_conditional import OverlapConditional
from modifind.engine.passes import Pieces
from modifind.engine.plan import FeatureSums, Plan, Sums
from modifind.engine.progress import ProgressBar
from modifind.engine.record import with_messages
from modifind.engine.run import Answer, Models, Run, Table
from modifind.engine.scored import OBSERVED, Scoring
from modifind.engine.scoring import stratum_scores
from modifind.engine.testers import AnalyticTester, Outcome, explaining_model
from modifind.explain.marginal import MarginalView, told_percentiles
from modifind.inference import UNSEEN, AnalyticOutcome
from modifind.nuisance.conditional import BaseSampler, Calibration
from modifind.nuisance.conditional.contract import for_draws, without_rows
from modifind.nuisance.conditional.joint import rule_grid
from modifind.nuisance.conditional.per_cluster import ClusterRule
from modifind.nuisance.propensity.scores import FittedPropensity, PropensityModel
from modifind.statistics import WCMMD
from modifind.statistics.direct import DirectSums, ValueFunctions
from modifind.statistics.likelihood_terms import OUTCOME, WHOLE
from modifind.statistics.reuse import Reuse


@dataclass(frozen=True)
class _Fitted:
    """What is known of a unit before the rows are added up.

    Attributes
    ----------
    rule, reuse, calibration
        Its distribution, what folds share about it, and how well it fits.
    unseen : bool
        Whether no model looks at it.
    test, changes : AnalyticOutcome, Changes
        Of a feature that has one value in every cluster: what the rows of the sample tell.
    messages, failure
        What was warned of, and why it could not be fitted.
    """

    rule: Any = None
    reuse: tuple[Reuse, ...] = ()
    calibration: Calibration = NO_SAMPLER
    unseen: bool = False
    test: AnalyticOutcome | None = None
    changes: Changes | None = None
    messages: tuple[str, ...] = ()
    failure: str = ""


@dataclass(frozen=True)
class TableInPieces(Table):
    """A table in pieces; its block is a sample of the rows.

    Attributes
    ----------
    schema : Schema
        How all other rows are read like the sample.
    rows : RowPlan
        Sample and folds.
    numbers : array
        Numbers of the rows of the sample.
    cluster_folds : tuple of int arrays
        Fold of every cluster, for each repeat of the cross-fitting.
    effective_size : float
        Number of rows that the weights are worth.
    pieces : Pieces or None
        All rows; workers need none but the sample.
    """

    schema: Schema
    rows: RowPlan
    numbers: NDArray[np.int64]
    cluster_folds: tuple[NDArray[np.int64], ...]
    effective_size: float
    pieces: Pieces | None
    streams = ("folds", "propensity", "sampler", "views", "bins", "explanations", "groups")

    @classmethod
    def stream(cls, run: Run, name: str) -> np.random.SeedSequence:
        """One of the children of the seed; that of the statistic is the same as of a table in memory."""
        return super().stream(run, "sampler" if name == "statistic" else name)

    @property
    def of_all_rows(self) -> tuple[bool, tuple[float, float] | None]:
        """The range of outcomes of the whole table; of a binary one the sample has both."""
        return True, None if self.schema.binary else self.schema.outcome_limits

    def scores(self, run: Run) -> FittedPropensity:
        """Propensity scores of the sample."""
        model, block = run.propensity, self.block
        if self.schema.stratum_shares is not None and block.scores is not None:
            strata = Strata(block.table.values[:, -1].astype(np.int64), self.schema.categories[-1] or ())
            return stratum_scores(model, strata, block.table, block.treatment, block.weights, block.scores)
        if block.scores is not None:
            model = PropensityModel(block.scores, cross_fit=model.cross_fit, clip=model.clip)
        return model.fit(
            block.table,
            block.treatment,
            n_folds=run.n_folds,
            seed=self.stream(run, "propensity"),
            folds=self.folds[0],
            weights=block.weights,
            clusters=block.clusters,
        )

    def assign_folds(self, run: Run, sampler: BaseSampler) -> None:
        """The folds of all models, so that no row is scored by what has seen it."""
        if hasattr(sampler, "assign_folds"):
            sampler.assign_folds(self.folds[0], whole_clusters=self.block.clusters is not None)

    def answer(self, run: Run, models: Models) -> Answer:
        """Add up all rows, test every feature by the sums, and explain it by the sample."""
        if run.statistic.resamples:
            check_sums(run.statistic, models.prepared)
        fitted = self._fitted(run, models)
        plan = self._plan(run, models, fitted)
        assert self.pieces is not None
        with ProgressBar(run.progress, "Scoring rows") as advance:
            sums = self.pieces.sums(plan, self.n_rows, advance)
        importance = self._importance(run, plan, sums)
        if run.statistic.resamples:
            tests = self._resampled(run, models, plan, fitted, sums)
            outcome = explaining_model(models.nuisances, run.sampler) if run.explain else None
        else:
            freedom = min(self.effective_size, float(self.schema.n_clusters or np.inf)) - 1.0
            tests = [_test(own, found, freedom) for own, found in zip(fitted, sums.features, strict=True)]
            outcome = models.prepared
        choice_seed, overall_seed, feature_seed = self.stream(run, "explanations").spawn(3)
        propensity, y_bandwidth = models.propensity, plan.importance.y_bandwidth
        outcomes = run.pseudo_outcomes(self, propensity, outcome, choice_seed)
        sample = self.block, self.numbers, propensity, self.folds, outcome, outcomes
        explaining = ExplainingRows.of(*sample, y_bandwidth, bands=run.explain)
        questions = {
            k: Question(plan.units[k], own.rule, own.unseen, test is not None and test.p_value <= run.alpha)
            for k, (own, test) in enumerate(zip(fitted, tests, strict=True))
        }
        explained, interrupted = explain_features(explaining, questions, feature_seed, run.n_jobs, run.progress)
        findings = self._findings(run, plan, fitted, sums, tests, importance, explaining, explained)
        seed = None if interrupted else overall_seed
        ways = outcomes, y_bandwidth, seed, run.resamples(self)
        return Answer(findings, interrupted, sums.overlap_of_clusters, *ways)

    def _fitted(self, run: Run, models: Models) -> list[_Fitted]:
        """The distribution of every unit; one that cannot be fitted costs no other."""
        units = self.units
        children = self.stream(run, "groups").spawn(1 + max(unit.place for unit in units))
        unknown = [all(_says_nothing(self.block.table, m) for m in unit.members) for unit in units]
        found = [
            _Fitted(unseen=hidden and not all(self.schema.constant[m] for m in unit.members))
            for hidden, unit in zip(unknown, units, strict=True)
        ]
        still = [unit.name for own, unit in zip(found, units, strict=True) if own.unseen]
        if still:
            warnings.warn(
                f"{named(still)}: the same, or missing, in all rows that models are fitted to, so p-values are 1; "
                "raise max_train_rows",
                UserWarning,
                stacklevel=4,
            )
        asked = {k: children[unit.place] for k, unit in enumerate(units) if not unknown[k]}
        shared = replace(self, pieces=None), models, run.statistic.resamples
        results = survivors(_fit_units, shared, asked, run.n_jobs, most_tasks=MOST_TASKS)
        with ProgressBar(run.progress, "Fitting distributions of features") as advance, closing(results):
            advance(0, len(asked))
            for done, (k, own) in enumerate(results):
                found[k] = _Fitted(failure=WORKER_DIED) if own is None else own
                advance(done + 1, len(asked))
        if found and all(own.failure for own in found):
            raise WorkerError(f"no feature could be tested: {found[0].failure}")
        return found

    def _plan(self, run: Run, models: Models, fitted: list[_Fitted]) -> Plan:
        """What is sent to those who add up rows."""
        block, folds, propensity, arms = self.block, self.folds, models.propensity, self.block.treatment
        first = replace(block.table, values=block.table.values[:1])
        outcome, prepared = None, models.prepared
        functions: list[ValueFunctions | None] = [None] * len(fitted)
        if not run.statistic.resamples:
            both = zip(self.units, fitted, strict=True)
            functions = [prepared.direct_functions(unit.feature) if own.rule else None for unit, own in both]
            known = prepared.y[:1], arms[:1], propensity.scores[:1], [own[:1] for own in folds]
            outcome = prepared.at(first, *known)
        importance = prepared if run.statistic.measures_importance else WCMMD().prepare(models.nuisances)
        scores = propensity.at(first, arms[:1], folds[0][:1], propensity.raw[:1])
        seeds = self.stream(run, "views")
        return Plan(
            scoring=Scoring(self.schema, self.rows, scores, self.cluster_folds),
            outcome=outcome,
            units=self.units,
            rules=tuple(None if outcome is None else own.rule for own in fitted),
            functions=tuple(functions),
            importance=replace(importance.at(block.y[:1], arms[:1]), weight_cap=None, arm_caps=None),
            columns=measured_columns(block.table, self.schema, self.units, block.weights, seeds),
        )

    def _importance(self, run: Run, plan: Plan, sums: Sums) -> dict[int, float]:
        """Importance of every column that has more than one value, by another pass or two over the rows."""
        assert self.pieces is not None
        work = MeasuringPass(plan.scoring, plan.importance, plan.columns)
        known = {(m, OBSERVED): (own,) for m, own in zip(plan.columns, sums.columns, strict=True)}
        with ProgressBar(run.progress, "Evaluating importance") as advance:
            values, _ = measure(self.pieces, work, known, self.n_rows, advance)
        return {m: values[m, OBSERVED] for m in plan.columns}

    def _resampled(
        self, run: Run, models: Models, plan: Plan, fitted: list[_Fitted], sums: Sums
    ) -> list[Outcome | None]:
        """Compare every feature with resampled copies of it; of those that fail, `fitted` says why."""
        assert self.pieces is not None
        block, features, follows = self.block, {}, run.statistic.follows_scores
        keys = self.stream(run, "groups").generate_state(block.table.n_features, np.uint64).tolist()
        places = {unit.members[0]: k for k, unit in enumerate(self.units)}
        for m, k in places.items():
            rule = fitted[k].rule
            if rule is not None and m in plan.columns:
                values = models.propensity.profile_values(m) if follows else None
                features[m] = plan.columns[m].resampled(rule, keys[m], follows=follows, profile=values)
        statistic = models.prepared.at(block.y[:1], block.treatment[:1])
        work = MeasuringPass(plan.scoring, statistic, features)
        sizes = {m: size_of(own) for m, own in zip(plan.columns, sums.columns, strict=True)}
        with ProgressBar(run.progress) as advance:
            asked = run.test, run.resamples(self), self.n_rows, advance, sizes
            found = resampled_tests(self.pieces, work, *asked)
        tests: list[Outcome | None] = []
        for m, k in places.items():
            own = found.get(m)
            if isinstance(own, str):
                fitted[k], own = replace(fitted[k], failure=own), None
            tests.append(NOTHING_RESAMPLED if fitted[k].unseen else own)
        return tests

    def _findings(
        self,
        run: Run,
        plan: Plan,
        fitted: list[_Fitted],
        sums: Sums,
        tests: list[Outcome | None],
        importance: dict[int, float],
        explaining: ExplainingRows,
        explained: list[Explanation],
    ) -> list[Finding]:
        """What was found of every unit; a group has the view of its most important column."""
        findings = []
        for unit, own, added, test, found in zip(plan.units, fitted, sums.features, tests, explained, strict=True):
            shown = {}
            for m in unit.members:
                name, place = plan.schema.names[m], plan.columns.get(m)
                bandwidth = 1.0 if place is None else place.bandwidth
                column = explaining.table.values[:, m]
                percentiles = () if explaining.table.n_levels(m) else told_percentiles(column, explaining.weights)
                shown[name] = MarginalView(importance.get(m, 0.0), bandwidth, *found.shown[name], percentiles)
            findings.append(
                Finding(
                    max(shown.values(), key=lambda view: view.importance),
                    test,
                    own.calibration,
                    (*own.messages, *found.messages),
                    views=shown if unit.group else None,
                    failure=own.failure or added.failure,
                    bounds=found.bounds,
                    changes=found.changes or (own.changes if run.explain else None),
                )
            )
        return findings


def _test(fitted: _Fitted, sums: FeatureSums, freedom: float) -> Outcome | None:
    """The test of one unit by its sums; None where it could not be tested."""
    if fitted.failure or sums.failure:
        return None
    test = UNSEEN if fitted.unseen else fitted.test
    if fitted.reuse and sums.per_fold is not None:
        shared = [reuse.variance(list(own)) for reuse, own in zip(fitted.reuse, sums.per_fold, strict=True)]
        whole, own = sums.tests(shared)
        test = replace(whole, prognostic_p_value=own.p_value)
    if test is None or sums.direct is None:
        return test
    direct = sums.direct if sums.units is None else DirectSums.of_terms(sums.units[:, 2:])
    return test.with_direct(direct.p_value(freedom))


def _fit_units(
    sample: TableInPieces, models: Models, resampled: bool, pairs: list[tuple[int, np.random.SeedSequence]]
) -> list[_Fitted]:
    return [_fit_unit(sample, models, resampled, sample.units[place], seed) for place, seed in pairs]


def _fit_unit(
    sample: TableInPieces, models: Models, resampled: bool, unit: Unit, seed: np.random.SeedSequence
) -> _Fitted:
    """The distribution of one unit; what goes wrong travels with it."""
    try:
        found, messages = with_messages(_fit_rule, sample, models, resampled, unit, seed)
    except Exception as error:
        return _Fitted(failure=failure_of(error, unit.name))
    return replace(found, messages=messages)


def _fit_rule(
    sample: TableInPieces, models: Models, resampled: bool, unit: Unit, seed: np.random.SeedSequence
) -> _Fitted:
    with one_thread():
        outcome, block, parts, feature = models.prepared, sample.block, sample.folds[0], unit.feature
        seen = resampled or outcome.looks_at(feature)
        if feature not in sample.copies and not seen and not outcome.may_show_directly(feature):
            return _Fitted(unseen=True)
        table, arms = block.table, block.treatment
        rule, determined = learn(models.sampler, table, arms, feature, sample.copies, seed, parts, block.weights)
        if determined:
            return _Fitted(calibration=rule.calibration)
        if isinstance(rule, ClusterRule) and not isinstance(feature, tuple):
            return _tested_by_clusters(models, feature, rule)
        if resampled:
            return _Fitted(for_draws(rule), calibration=rule.calibration)
        rule = without_rows(rule)
        grid = rule_grid(rule, table, arms, parts, sample.numbers)
        tilted = OverlapConditional(grid, models.propensity, feature)
        reuse = tuple(outcome.reuse(feature, tilted, WHOLE, OUTCOME)) if seen else ()
        return _Fitted(rule, reuse, rule.calibration, unseen=not seen)


def _tested_by_clusters(models: Models, feature: int, rule: ClusterRule) -> _Fitted:
    """A feature that has one value in every cluster; clusters tell of it, and rows beyond the sample hardly more."""
    tester = AnalyticTester(models.prepared, models.propensity, n_resamples=0)
    test, changes = tester.examine(feature, rule.fitted, 1.0, np.random.default_rng(0))
    assert isinstance(test, AnalyticOutcome)
    return _Fitted(calibration=rule.calibration, test=test, changes=changes)


def _says_nothing(table: FeatureTable, feature: int) -> bool:
    """Whether the rows that models are fitted to cannot tell what a feature does."""
    if feature not in table.incomplete:
        return table.is_constant(feature)
    values = table.values[table.observed(feature), feature]
    return values.size < LEAST_OBSERVED or bool((values == values[0]).all())
