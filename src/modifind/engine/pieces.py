"""A table in pieces: models are fitted to a sample of its rows, sums are added up over all of them, and tested."""

from __future__ import annotations

import warnings
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._threads import one_thread
from modifind._typing import Array
from modifind._workers import WORKER_DIED, WorkerError, survivors
from modifind.data.clusters import (
    check_sampler_weights,
    cluster_folds,
    cluster_keys,
    treated_as_one,
    weight_numbers,
)
from modifind.data.codes import warn_codes
from modifind.data.column_types import outcome_name, treatment_name
from modifind.data.containers import recorded_names
from modifind.data.determined import find_determined
from modifind.data.feature_groups import Unit, part_of, read_feature_groups, refuse_adjusted, side_by_side
from modifind.data.feature_matrix import FeatureTable, adjusted_columns
from modifind.data.leaks import refuse_leaks
from modifind.data.many_levels import with_level_columns
from modifind.data.missing import LEAST_OBSERVED
from modifind.data.outcome_scale import transform_outcome
from modifind.data.pieces import Block, Piece, Schema, Summary
from modifind.data.row_plan import RowPlan
from modifind.data.strata import Strata, refuse_repeated
from modifind.data.support import outside_levels
from modifind.data.within_clusters import cluster_features
from modifind.data.wording import named
from modifind.engine.assemble import DETERMINED, NO_SAMPLER, Finding, failure_of, tell
from modifind.engine.change_tests import Changes
from modifind.engine.explaining import MOST_TASKS, ExplainingRows, Explanation, Question, explain_features
from modifind.engine.importance_sums import FeatureView, OutcomeBins
from modifind.engine.overlap_conditional import OverlapConditional
from modifind.engine.passes import Pieces
from modifind.engine.plan import FeatureSums, Plan, Sums
from modifind.engine.progress import Progress, ProgressBar
from modifind.engine.record import data_settings, with_messages
from modifind.engine.review import review_columns
from modifind.engine.scoring import refuse_separation, stratum_scores
from modifind.engine.testers import AnalyticTester
from modifind.engine.units import Tested, check_groups, group_settings, null_hypothesis, warn_constant_members
from modifind.explain.answers import Answers
from modifind.explain.marginal import MarginalView, told_percentiles
from modifind.explain.pseudo import ArmRows, OutcomeModel, PseudoOutcomes
from modifind.inference import UNSEEN, AnalyticOutcome
from modifind.nuisance.conditional import BaseSampler, Calibration, ConditionalRule, for_gaps
from modifind.nuisance.conditional.base import sampler_weights
from modifind.nuisance.conditional.joint import JointRule, joint_rule, rule_grid
from modifind.nuisance.conditional.per_cluster import ClusterConditional, ClusterSampler
from modifind.nuisance.conditional.rules import check_rule
from modifind.nuisance.propensity.scores import FittedPropensity, PropensityModel
from modifind.statistics import Nuisances, Statistic
from modifind.statistics.families import family_of
from modifind.statistics.likelihood_terms import OUTCOME, WHOLE
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood
from modifind.statistics.reuse import Reuse
from modifind.statistics.shape import TailSums

MIN_FOLD_ARM = 5


@dataclass(frozen=True)
class Looked:
    """A table in pieces that has been looked at once.

    Attributes
    ----------
    rows : RowPlan
        Sample and folds.
    summary : Summary
        What its columns hold.
    numbers, sample : array, Piece
        Numbers of the rows of the sample, and the rows.
    """

    rows: RowPlan
    summary: Summary
    numbers: NDArray[np.int64]
    sample: Piece


@dataclass(frozen=True)
class _Sample:
    """The sample as models see it, and how all other rows are read like it.

    Attributes
    ----------
    plain, block : Block
        Its rows before and after rare levels were pooled.
    units : tuple of Unit
        What is tested.
    groups : dict
        Columns that are tested together.
    adjusted : tuple of str
        Columns that are not tested, the stratum among them.
    copies : frozenset of int
        Columns that others determine exactly.
    within : dict
        Clusters of the rows, for columns that have one value in each.
    folds, cluster_folds : lists of int arrays
        Fold of every row and of every cluster, for each repeat of the cross-fitting.
    """

    schema: Schema
    rows: RowPlan
    numbers: NDArray[np.int64]
    plain: Block
    block: Block
    units: tuple[Unit, ...]
    groups: dict[str, tuple[str, ...]]
    adjusted: tuple[str, ...]
    copies: frozenset[int]
    within: dict[int, NDArray[np.int64]]
    folds: list[NDArray[np.int64]]
    cluster_folds: tuple[NDArray[np.int64], ...]

    @property
    def places(self) -> list[int]:
        """Places of the columns that are tested, alone or in groups."""
        return [m for unit in self.units for m in unit.members]

    def is_constant(self, unit: Unit) -> bool:
        """Whether all rows of the whole table agree in all columns of a unit."""
        return all(self.schema.constant[m] for m in unit.members)


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

    rule: ConditionalRule | JointRule | None = None
    reuse: tuple[Reuse, ...] = ()
    calibration: Calibration = NO_SAMPLER
    unseen: bool = False
    test: AnalyticOutcome | None = None
    changes: Changes | None = None
    messages: tuple[str, ...] = ()
    failure: str = ""


@dataclass(frozen=True)
class _Models:
    """Models of the sample."""

    propensity: FittedPropensity
    outcome: PreparedEffectLikelihood
    sampler: BaseSampler


@dataclass(frozen=True)
class StreamedFit:
    """Settings of a streamed fit; they are those of `ModifierSelector`.

    Bounds are those of features with a p-value of at most `alpha`.
    """

    statistic: Statistic
    sampler: BaseSampler
    propensity: PropensityModel
    discrete_features: Any
    outcome_transform: str | None
    treated: Any
    n_folds: int
    max_train_rows: int
    n_jobs: int | None
    progress: bool | Progress
    seed: int
    missing: str = "error"
    explain: bool = True
    alpha: float = 0.05
    population: str = "all"
    adjust_for: Any = None
    feature_groups: Any = None

    @property
    def _seeds(self) -> list[np.random.SeedSequence]:
        """For folds, propensity, sampler, views, bins, explanations and groups."""
        return np.random.SeedSequence(self.seed).spawn(7)

    def look(self, pieces: Pieces) -> Looked:
        """Look at all rows once; the sample is the whole table where it has no more than `max_train_rows`."""
        self.statistic.check()
        self.propensity.check()
        rows = RowPlan.of(self._seeds[0], self.n_folds, self.statistic.cv_repeats or 1)
        look, rows = pieces.look(rows, self.discrete_features, self.max_train_rows)
        return Looked(rows, look.summary, *look.sample())

    def fit(self, pieces: Pieces, looked: Looked) -> Tested:
        """Fit models to the sample, add up all rows, and test every feature."""
        check_rule(self.sampler)
        sample = self._read(looked)
        models = self._models(sample)
        fitted = self._fitted(sample, models)
        plan = self._plan(sample, models, fitted)
        with ProgressBar(self.progress, "Scoring rows") as advance:
            sums = pieces.sums(plan, sample.schema.n_rows, advance)
        return self._concluded(looked, sample, models, plan, fitted, sums)

    def _read(self, looked: Looked) -> _Sample:
        """Check the table, and read the sample."""
        sample, summary = looked.sample, looked.summary
        names = tuple(map(str, sample.X.columns))
        adjusted = adjusted_columns(names, self.adjust_for)
        groups = read_feature_groups(self.feature_groups, names)
        refuse_adjusted(groups, adjusted)
        adjusted += summary.names[len(names) :]
        places, units = side_by_side(summary.names, groups, adjusted)
        summary = summary.arranged(places)
        called = treatment_name(sample.treatment), outcome_name(sample.y)
        schema = summary.schema(self.treated, self.outcome_transform, self.missing, *called)
        if not (isinstance(self.propensity.estimator, str) and self.propensity.estimator == "auto"):
            schema = replace(schema, stratum_shares=None)
        if sample.sample_weight is not None:
            schema = replace(schema, mean_weight=float(weight_numbers(sample.sample_weight).mean()))
        plain = schema.read(sample)
        refuse_leaks(plain.table, plain.y, plain.treatment, plain.clusters)
        if sample.strata is not None:
            features = part_of(plain.table, list(range(plain.table.n_features - 1)))
            refuse_repeated(plain.table.values[:, -1], features)
        warn_codes(plain.table, plain.y, called[1])
        schema = schema.pooled()
        block = schema.read(sample) if schema.poolings else plain
        table = with_level_columns(replace(block.table, reference=block.table.scaling), block.weights)
        schema = replace(schema, reference=table.reference, level_columns=table.level_columns)
        determined = find_determined(table).apart([unit.members for unit in units])
        determined.warn()
        within: dict[int, NDArray[np.int64]] = {}
        if getattr(self.sampler, "takes_clusters", False):
            keys = None if sample.clusters is None else cluster_keys(sample.clusters)
            within = _within(table, keys, determined.features)
        check_groups(self.sampler, table, units)
        block = replace(block, table=table)
        folds = self._folds(looked, block, schema.n_clusters)
        own = looked.rows, looked.numbers, plain, block
        return _Sample(schema, *own, units, groups, adjusted, determined.features, within, *folds)

    def _folds(
        self, looked: Looked, block: Block, n_clusters: int
    ) -> tuple[list[NDArray[np.int64]], tuple[NDArray[np.int64], ...]]:
        """Fold of each row of the sample, for every repeat; and of every cluster, where there are clusters."""
        rows, seed = looked.rows, self._seeds[0]
        if block.clusters is None:
            return rows.folds(looked.numbers), ()
        found = []
        for own, drawn in zip(seed.spawn(self.statistic.cv_repeats), rows.folds(np.arange(n_clusters)), strict=True):
            state = int(own.generate_state(1)[0])
            drawn[block.clusters] = cluster_folds(block.treatment, block.clusters, self.n_folds, state)
            found.append(drawn)  # clusters that the sample has no row of may be in any
        return [own[block.clusters] for own in found], tuple(found)

    def _models(self, sample: _Sample) -> _Models:
        """Fit scores, models of the outcome and the sampler to the sample."""
        block, folds = sample.block, sample.folds
        table, y, arms, weights = block.table, block.y, block.treatment, block.weights
        _check_sample(sample.schema, y, arms, folds, self.n_folds)
        if self.outcome_transform is None:
            transform_outcome(y, None)  # warns of a skewed outcome
        self.statistic.validate(y, weighted=weights is not None)
        if self.statistic.check_resamples:
            warnings.warn("check_resamples has no effect on tables that are streamed", UserWarning, stacklevel=4)
        propensity = self._scores(sample)
        refuse_separation(propensity)
        own = self._seeds[0], tuple(folds), weights, block.clusters  # nothing is random in a statistic in pieces
        outcome: Any = self.statistic.prepare(Nuisances(table, y, arms, propensity.scores, *own, self.n_jobs))
        sampler = for_gaps(self.sampler, table)
        sampler = ClusterSampler(sampler, sample.within, DETERMINED) if sample.within else sampler
        if hasattr(sampler, "assign_folds"):
            sampler.assign_folds(folds[0], whole_clusters=block.clusters is not None)
        if weights is not None:
            check_sampler_weights(self.sampler)
        sampler.fit(table, arms, self._seeds[2], **sampler_weights(weights))
        return _Models(propensity, outcome, sampler)

    def _scores(self, sample: _Sample) -> FittedPropensity:
        """Propensity scores of the sample."""
        model, schema, block = self.propensity, sample.schema, sample.block
        if schema.stratum_shares is not None and block.scores is not None:
            strata = Strata(block.table.values[:, -1].astype(np.int64), schema.categories[-1] or ())
            return stratum_scores(model, strata, block.table, block.treatment, block.weights, block.scores)
        if block.scores is not None:
            model = PropensityModel(block.scores, cross_fit=model.cross_fit, clip=model.clip)
        return model.fit(
            block.table,
            block.treatment,
            n_folds=self.n_folds,
            seed=self._seeds[1],
            folds=sample.folds[0],
            weights=block.weights,
            clusters=block.clusters,
        )

    def _fitted(self, sample: _Sample, models: _Models) -> list[_Fitted]:
        """The distribution of every unit; one that cannot be fitted costs no other."""
        units = sample.units
        children = self._seeds[6].spawn(1 + max(unit.place for unit in units))
        unknown = [all(_says_nothing(sample.block.table, m) for m in unit.members) for unit in units]
        found = [
            _Fitted(unseen=hidden and not sample.is_constant(unit)) for hidden, unit in zip(unknown, units, strict=True)
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
        results = survivors(_fit_units, (sample, models), asked, self.n_jobs, most_tasks=MOST_TASKS)
        with ProgressBar(self.progress, "Fitting distributions of features") as advance, closing(results):
            advance(0, len(asked))
            for done, (k, own) in enumerate(results):
                found[k] = _Fitted(failure=WORKER_DIED) if own is None else own
                advance(done + 1, len(asked))
        if found and all(own.failure for own in found):
            raise WorkerError(f"no feature could be tested: {found[0].failure}")
        return found

    def _plan(self, sample: _Sample, models: _Models, fitted: list[_Fitted]) -> Plan:
        """What is sent to those who add up rows."""
        block, folds, propensity, outcome = sample.block, sample.folds, models.propensity, models.outcome
        table, arms = block.table, block.treatment
        seeds = self._seeds[3].spawn(table.n_features)
        first = replace(table, values=table.values[:1])
        functions = (
            outcome.tail_functions(unit.feature) if own.rule else None
            for unit, own in zip(sample.units, fitted, strict=True)
        )
        return Plan(
            schema=sample.schema,
            rows=sample.rows,
            propensity=propensity.at(first, arms[:1], folds[0][:1], propensity.raw[:1]),
            outcome=outcome.at(first, outcome.y[:1], arms[:1], propensity.scores[:1], [own[:1] for own in folds]),
            units=sample.units,
            rules=tuple(own.rule for own in fitted),
            functions=tuple(functions),
            views={m: FeatureView.of(table, m, seeds[m]) for m in sample.places},
            bins=OutcomeBins.of(block.y, self._seeds[4], table.n_features),
            cluster_folds=sample.cluster_folds,
        )

    def _concluded(
        self,
        looked: Looked,
        sample: _Sample,
        models: _Models,
        plan: Plan,
        fitted: list[_Fitted],
        sums: Sums,
    ) -> Tested:
        """Test by the sums, explain by the sample, and put on record what was done."""
        choice_seed, overall_seed, feature_seed = self._seeds[5].spawn(3)
        block, schema, propensity, outcome = sample.block, sample.schema, models.propensity, models.outcome
        compared = ArmRows(block.y, block.treatment, propensity.scores, block.weights, block.clusters, self.population)
        outcomes = PseudoOutcomes.of(compared, OutcomeModel.of(outcome), seed=choice_seed)
        explaining = ExplainingRows.of(
            block, sample.numbers, propensity, sample.folds, outcome, outcomes, plan.bins.bandwidth, bands=self.explain
        )
        tests = self._tests(looked.summary, plan, fitted, sums)
        questions = {
            k: Question(plan.units[k], own.rule, own.unseen, test is not None and test.p_value <= self.alpha)
            for k, (own, test) in enumerate(zip(fitted, tests, strict=True))
        }
        explained, interrupted = explain_features(explaining, questions, feature_seed, self.n_jobs, self.progress)
        findings = self._findings(plan, fitted, sums, tests, explaining, explained)
        names = tuple(unit.name for unit in plan.units)
        tell(names, findings)
        untested = {schema.names[m] for m in schema.left_out | sample.copies}
        untested |= warn_constant_members(block.table, plan.units)
        column_names = recorded_names(looked.sample.y, looked.sample.treatment)
        levels = outside_levels(
            sample.plain.table, sample.plain.treatment, treated_as_one(sample.plain.treatment, sample.plain.clusters)
        )
        return Tested(
            names=names,
            kinds=[unit.kind(block.table) for unit in plan.units],
            findings=findings,
            named=frozenset(untested),
            overlap=sums.overlap_of_clusters.overlap(propensity),
            answers=Answers() if interrupted else explaining.answers(plan.units, schema.n_rows, overall_seed),
            score_histogram=sums.overlap.score_histogram(),
            columns=review_columns(
                propensity,
                block.y,
                randomised=propensity.is_known or looked.sample.strata is not None,
                population=self.population,
                clusters=block.clusters,
                outcome_name=column_names.get("outcome_name"),
                positive=self.outcome_transform == "log",
                levels=levels,
            ),
            columns_in=tuple(map(str, looked.sample.X.columns)),
            settings=self._recorded(looked, sample, models, explaining) | column_names,
            interrupted=interrupted,
        )

    def _recorded(self, looked: Looked, sample: _Sample, models: _Models, explaining: ExplainingRows) -> dict[str, Any]:
        """What a result records beyond the selector's arguments."""
        schema, together = sample.schema, looked.summary.together
        adjusted = [name for name in sample.adjusted if name in looked.sample.X.columns.map(str)]
        return {
            "n_resamples_used": 0,
            "model": models.outcome.description,
            **data_settings(
                schema.arm_labels[0],
                schema.arm_labels[1],
                schema.n_rows,
                schema.n_treated,
                models.propensity,
                self.seed,
            ),
            "n_train_rows": sample.numbers.size,
            "n_explained_rows": explaining.y.size,
            **({"outcome_levels": True} if explaining.outcomes.levels else {}),
            **({"adjust_for": adjusted} if adjusted else {}),
            **together,
            "null_hypothesis": null_hypothesis(
                self.statistic,
                self.sampler,
                adjusted=bool(adjusted),
                strata="n_strata" in together,
                groups=bool(sample.groups),
            ),
            **group_settings(sample.groups, sample.block.table, sample.units),
        }

    def _tests(self, summary: Summary, plan: Plan, fitted: list[_Fitted], sums: Sums) -> list[AnalyticOutcome | None]:
        """The test of every unit by its sums; None where there is none."""
        freedom = np.inf if summary.weights is None else summary.weights.effective_size - 1.0
        freedom = min(freedom, plan.schema.n_clusters - 1.0) if plan.schema.n_clusters else freedom
        return [_test(own, found, freedom) for own, found in zip(fitted, sums.features, strict=True)]

    def _findings(
        self,
        plan: Plan,
        fitted: list[_Fitted],
        sums: Sums,
        tests: list[AnalyticOutcome | None],
        explaining: ExplainingRows,
        explained: list[Explanation],
    ) -> list[Finding]:
        """What was found of every unit; a group has the view of its most important column."""
        views = dict(zip(plan.views, sums.views, strict=True))
        findings = []
        for unit, own, added, test, found in zip(plan.units, fitted, sums.features, tests, explained, strict=True):
            shown = {}
            for m in unit.members:
                name, place = plan.schema.names[m], plan.views[m]
                importance = 0.0 if plan.schema.constant[m] else place.importance(views[m], plan.bins)
                column = explaining.table.values[:, m]
                percentiles = () if explaining.table.n_levels(m) else told_percentiles(column, explaining.weights)
                shown[name] = MarginalView(importance, place.bandwidth, *found.shown[name], percentiles)
            findings.append(
                Finding(
                    max(shown.values(), key=lambda view: view.importance),
                    test,
                    own.calibration,
                    (*own.messages, *found.messages),
                    views=shown if unit.group else None,
                    failure=own.failure or added.failure,
                    bounds=found.bounds,
                    changes=found.changes or (own.changes if self.explain else None),
                )
            )
        return findings


def _test(fitted: _Fitted, sums: FeatureSums, freedom: float) -> AnalyticOutcome | None:
    """The test of one unit by its sums; None where it could not be tested."""
    if fitted.failure or sums.failure:
        return None
    test = UNSEEN if fitted.unseen else fitted.test
    if fitted.reuse and sums.per_fold is not None:
        shared = [reuse.variance(list(own)) for reuse, own in zip(fitted.reuse, sums.per_fold, strict=True)]
        whole, own = sums.tests(shared)
        test = replace(whole, prognostic_p_value=own.p_value)
    if test is None or sums.tails is None:
        return test
    tails = sums.tails if sums.units is None else TailSums.of_terms(sums.units[:, 2:])
    return test.with_tails(tails.p_value(freedom))


def _within(
    table: FeatureTable, keys: NDArray[np.uint64] | None, determined: frozenset[int]
) -> dict[int, NDArray[np.int64]]:
    """Features that have one value in every cluster, with the clusters; refuses sets of rows that nobody told of."""
    told = None if keys is None else np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64)
    if told is not None and np.bincount(told).max() == 1:  # every row is a cluster
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sets that are taken for clusters, which is what is refused here
        found, sets = cluster_features(table, told, determined)
    if sets is not None and (told is None or sets.max() < told.max()):
        members = named(table.names[m] for m, own in found.items() if own is sets)
        raise ValueError(
            f"{members}: one value each in the same {sets.max() + 1} sets of rows, so that these rows seem to belong "
            "together (in a school, a village), or one column is looked up from another. Pass the sets as clusters=, "
            "or leave out a column that is looked up"
        )
    return found


def _fit_units(sample: _Sample, models: _Models, pairs: list[tuple[int, np.random.SeedSequence]]) -> list[_Fitted]:
    return [_fit_unit(sample, models, sample.units[place], seed) for place, seed in pairs]


def _fit_unit(sample: _Sample, models: _Models, unit: Unit, seed: np.random.SeedSequence) -> _Fitted:
    """The distribution of one unit; what goes wrong travels with it."""
    try:
        found, messages = with_messages(_fit_rule, sample, models, unit, seed)
    except Exception as error:
        return _Fitted(failure=failure_of(error, unit.name))
    return replace(found, messages=messages)


def _fit_rule(sample: _Sample, models: _Models, unit: Unit, seed: np.random.SeedSequence) -> _Fitted:
    with one_thread():
        outcome, block, parts = models.outcome, sample.block, sample.folds[0]
        table, feature = outcome.table, unit.feature
        is_copy, seen = feature in sample.copies, outcome.looks_at(feature)
        if not is_copy and not seen and not outcome.may_show_tails(feature):
            return _Fitted(unseen=True)
        if feature in sample.within and not is_copy:
            conditional = models.sampler.conditional(feature)
            if isinstance(conditional, ClusterConditional):
                return _tested_by_clusters(models, feature, conditional)
        rule: ConditionalRule | JointRule
        if isinstance(feature, tuple):
            known = table, outcome.treatment, feature, DETERMINED, seed, parts
            rule = joint_rule(models.sampler, *known, block.weights)
            determined = rule.determined
        else:
            rule = models.sampler.rule(feature)
            determined = is_copy or rule.calibration.explained_share > DETERMINED[table.kind(feature)]
        if determined:
            return _Fitted(calibration=rule.calibration)
        grid = rule_grid(rule, table, outcome.treatment, parts, sample.numbers)
        tilted = OverlapConditional(grid, models.propensity, feature)
        reuse = tuple(outcome.reuse(feature, tilted, WHOLE, OUTCOME)) if seen else ()
        return _Fitted(rule, reuse, rule.calibration, unseen=not seen)


def _tested_by_clusters(models: _Models, feature: int, conditional: ClusterConditional) -> _Fitted:
    """A feature that has one value in every cluster; clusters tell of it, and rows beyond the sample hardly more."""
    calibration, outcome = conditional.calibration, models.outcome
    if calibration.explained_share > DETERMINED[outcome.table.kind(feature)]:
        return _Fitted(calibration=calibration)
    tester = AnalyticTester(outcome, models.propensity, n_resamples=0)
    test, changes = tester.examine(feature, conditional, 1.0, np.random.default_rng(0))
    assert isinstance(test, AnalyticOutcome)
    return _Fitted(calibration=calibration, test=test, changes=changes)


def _says_nothing(table: FeatureTable, feature: int) -> bool:
    """Whether the rows that models are fitted to cannot tell what a feature does."""
    if feature not in table.incomplete:
        return table.is_constant(feature)
    values = table.values[table.observed(feature), feature]
    return values.size < LEAST_OBSERVED or bool((values == values[0]).all())


def _check_sample(
    schema: Schema, y: Array, arms: NDArray[np.int64], folds: list[NDArray[np.int64]], n_folds: int
) -> None:
    """Refuse a sample that models cannot be fitted to."""
    for own in folds:
        counts = np.bincount(2 * own + arms, minlength=2 * n_folds)
        if counts.min() < MIN_FOLD_ARM:
            raise ValueError(
                f"the sample that models are fitted to has {int(arms.sum())} treated rows and "
                f"{int((1 - arms).sum())} others, too few in some fold; raise max_train_rows"
            )
    if (y == y[0]).all():
        raise ValueError("y is the same in all rows of the sample that models are fitted to; raise max_train_rows")
    if (family_of(y).kind == "binary") != schema.binary:
        raise ValueError(
            "y has other than two values in so few rows that the sample holds none of them; look for codes that "
            "stand for missing values, or raise max_train_rows"
        )
