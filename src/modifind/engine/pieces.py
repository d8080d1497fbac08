"""The steps of a streamed fit: look at the pieces, fit nuisance models to a sample, add up sums, test."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from joblib import delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from modifind._typing import Array
from modifind._workers import results_of
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
from modifind.data.feature_groups import part_of
from modifind.data.feature_matrix import FeatureTable, adjusted_columns
from modifind.data.leaks import refuse_leaks
from modifind.data.many_levels import with_level_columns
from modifind.data.missing import LEAST_OBSERVED, Dropped
from modifind.data.outcome_scale import transform_outcome
from modifind.data.pieces import Block, Piece, Schema, Summary, joined
from modifind.data.row_plan import RowPlan, generous_limit
from modifind.data.sources import CompleteRows, Source
from modifind.data.strata import Strata, refuse_repeated
from modifind.data.support import outside_levels
from modifind.data.within_clusters import cluster_features
from modifind.data.wording import named
from modifind.engine.assemble import DETERMINED, NO_SAMPLER, Finding, Found
from modifind.engine.explaining import ExplainingRows, Question, explain_features
from modifind.engine.importance_sums import FeatureView, OutcomeBins
from modifind.engine.overlap_conditional import OverlapConditional
from modifind.engine.plan import Plan, Sums
from modifind.engine.progress import Progress, ProgressBar
from modifind.engine.record import with_messages
from modifind.engine.review import review_columns
from modifind.engine.scoring import refuse_separation, stratum_scores
from modifind.explain.marginal import MarginalView, told_percentiles
from modifind.explain.pseudo import ArmRows, OutcomeModel, PseudoOutcomes
from modifind.inference import UNSEEN, AnalyticOutcome, sums_test
from modifind.nuisance.conditional import BaseSampler, Calibration, ConditionalGrid, ConditionalRule, for_gaps
from modifind.nuisance.conditional.rules import check_rule
from modifind.nuisance.propensity.scores import FittedPropensity, PropensityModel
from modifind.statistics import EffectLikelihood, Nuisances
from modifind.statistics.families import family_of
from modifind.statistics.likelihood_terms import OUTCOME, WHOLE
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood
from modifind.statistics.reuse import Reuse
from modifind.statistics.shape import TailSums

if TYPE_CHECKING:
    from modifind.engine.checkpoint import PassCheckpoint

MIN_FOLD_ARM = 5


@dataclass(frozen=True)
class Look:
    """What one pass over the pieces finds: a summary of the columns, and the sample."""

    summary: Summary
    parts: tuple[tuple[NDArray[np.int64], Piece], ...]

    @classmethod
    def of(cls, piece: Piece, rows: RowPlan, discrete_features: Any) -> Look:
        """Look at one piece and keep the rows of it that are in the sample."""
        chosen = rows.sampled(piece.numbers)
        return cls(Summary.of(piece, discrete_features), ((piece.numbers[chosen], piece.take(chosen)),))

    def __add__(self, other: Look) -> Look:
        """What is found in both sets of rows."""
        return Look(self.summary + other.summary, self.parts + other.parts)

    @property
    def n_sampled(self) -> int:
        """Number of rows kept."""
        return sum(numbers.size for numbers, _ in self.parts)

    def pruned(self, rows: RowPlan, n_sample: int) -> tuple[Look, RowPlan]:
        """Only the rows of the `n_sample` smallest words, and the plan with that limit."""
        if self.n_sampled <= n_sample:
            return self, rows
        words = np.concatenate([rows.words(numbers) for numbers, _ in self.parts])
        rows = rows.limited(int(np.partition(words, n_sample - 1)[n_sample - 1]))
        kept = []
        for numbers, piece in self.parts:
            chosen = rows.sampled(numbers)
            kept.append((numbers[chosen], piece.take(chosen)))
        return Look(self.summary, tuple(kept)), rows

    def sample(self) -> tuple[NDArray[np.int64], Piece]:
        """The rows kept, in their order, with their numbers."""
        parts = [part for part in self.parts if part[0].size]
        return np.concatenate([numbers for numbers, _ in parts]), joined([piece for _, piece in parts])


class Pieces(Protocol):
    """A table in pieces and those who work on them."""

    @property
    def dropped(self) -> Dropped:
        """Rows left out for missing values, as far as they have been read."""

    def look(self, rows: RowPlan, discrete_features: Any, n_sample: int) -> tuple[Look, RowPlan]:
        """Look at every piece; the sample has at most `n_sample` rows, all of them if they are so few."""

    def sums(self, plan: Plan, n_rows: int, advance: Progress) -> Sums:
        """Sums over all rows, in the order of the pieces."""


@dataclass(frozen=True)
class LocalPieces:
    """Pieces of a source, worked on by the processes of this machine or any other backend of joblib.

    With a checkpoint the sums over rows are saved now and then, and a pass that was stopped goes on from there.
    """

    source: Source
    n_jobs: int | None = None
    checkpoint: PassCheckpoint | None = None

    @property
    def dropped(self) -> Dropped:
        """Rows left out for missing values, as far as they have been read."""
        return self.source.dropped if isinstance(self.source, CompleteRows) else Dropped()

    def look(self, rows: RowPlan, discrete_features: Any, n_sample: int) -> tuple[Look, RowPlan]:
        """Look at every piece; the sample is pruned on the way where the number of rows is not known."""
        if self.source.n_rows is not None:
            rows = rows.limited(generous_limit(self.source.n_rows, n_sample))
        found: Look | None = None
        for piece in self._filled():
            seen = 0 if found is None else found.summary.n_rows
            if piece.start != seen:
                raise ValueError(f"a piece of the source starts at row {piece.start}, after {seen} rows")
            own = Look.of(piece, rows, discrete_features)
            if self.checkpoint is not None:
                self.checkpoint.see(piece)
            found = own if found is None else found + own
            if found.n_sampled > 2 * n_sample:
                found, rows = found.pruned(rows, n_sample)
        if found is None or not found.summary.n_rows:
            raise ValueError("the table has no rows")
        if self.source.n_rows not in (None, found.summary.n_rows):
            raise ValueError(f"the source has {found.summary.n_rows} rows but says {self.source.n_rows}")
        if self.checkpoint is not None and found.summary.n_rows > n_sample:
            self.checkpoint.open()
        return found.pruned(rows, n_sample)

    def sums(self, plan: Plan, n_rows: int, advance: Progress) -> Sums:
        """Sums over all rows; pieces are read here and handed to the workers as they come free."""
        saved = None if self.checkpoint is None else self.checkpoint.load()
        total, n_pieces = (None, 0) if saved is None else (saved.sums, saved.n_pieces)
        # Sums are added in the order of the pieces, so those on file are the first and none is added twice.
        jobs = (delayed(plan.sums)(piece) for piece in islice(self._counted(n_rows), n_pieces, None))
        try:
            advance(_n_rows(total), n_rows)
            for own in results_of(jobs, self.n_jobs, shared=False, doing="adding up rows"):
                total, n_pieces = own if total is None else total + own, n_pieces + 1
                if self.checkpoint is not None:
                    self.checkpoint.save(n_pieces, total)
                advance(_n_rows(total), n_rows)
        except KeyboardInterrupt:
            if self.checkpoint is not None and total is not None:
                self.checkpoint.save(n_pieces, total, now=True)
            raise
        assert total is not None
        if self.checkpoint is not None:
            self.checkpoint.save(n_pieces, total, now=True)
        return total

    def _filled(self) -> Iterator[Piece]:
        """The pieces that hold rows."""
        return (piece for piece in self.source.pieces() if len(piece.X))

    def _counted(self, n_rows: int) -> Iterator[Piece]:
        found = 0
        for piece in self._filled():
            found += len(piece.X)
            yield piece
        check_unchanged(n_rows, found)


def _n_rows(sums: Sums | None) -> int:
    return 0 if sums is None else int(sums.overlap.n_rows.sum())


def check_unchanged(n_rows: int, found: int) -> None:
    """Refuse a table that has another number of rows than when it was first read."""
    if found != n_rows:
        raise ValueError(f"the table had {n_rows} rows at first and {found} when read again; it must not change")


@dataclass(frozen=True)
class Streamed(Found):
    """What a streamed fit found; `columns_in` are all columns of the table."""

    columns_in: tuple[str, ...]
    labels: tuple[Any, Any]
    n_rows: int
    n_treated: int
    n_train_rows: int
    n_explained_rows: int
    outcome_levels: bool
    propensity: FittedPropensity
    model: dict[str, Any]
    column_names: dict[str, str]
    adjusted: tuple[str, ...]
    together: dict[str, Any]

    @property
    def sample_settings(self) -> dict[str, Any]:
        """What a result records of the sample, of names, and of weights, clusters and strata."""
        sizes = {"n_train_rows": self.n_train_rows, "n_explained_rows": self.n_explained_rows}
        more: dict[str, Any] = {"adjust_for": list(self.adjusted)} if self.adjusted else {}
        levels = {"outcome_levels": True} if self.outcome_levels else {}
        return sizes | self.column_names | levels | more | self.together


@dataclass(frozen=True)
class _Conditional:
    """What is known of a feature before the rows are added up; `unseen` is one that no model looks at."""

    rule: ConditionalRule | None
    reuse: tuple[Reuse, ...]
    calibration: Calibration
    unseen: bool = False
    messages: tuple[str, ...] = ()


@dataclass(frozen=True)
class StreamedFit:
    """Settings of a streamed fit; they are those of `ModifierSelector`.

    Bounds are those of features with a p-value of at most `alpha`.
    """

    statistic: EffectLikelihood
    sampler: BaseSampler
    propensity: PropensityModel
    discrete_features: Any
    outcome_transform: str | None
    treated: Any
    n_folds: int
    max_train_rows: int
    n_jobs: int | None
    progress: bool | Progress
    seed: np.random.SeedSequence
    missing: str = "error"
    explain: bool = True
    alpha: float = 0.05
    population: str = "all"
    adjust_for: Any = None

    def fit(self, pieces: Pieces) -> Streamed | Piece:
        """Test every feature; a table of few rows is returned instead, to be taken at once."""
        self.statistic.check()
        self.propensity.check()
        seeds = self.seed.spawn(6)
        rows = RowPlan.of(seeds[0], self.n_folds, self.statistic.cv_repeats)
        look, rows = pieces.look(rows, self.discrete_features, self.max_train_rows)
        numbers, sample = look.sample()
        if look.summary.n_rows <= self.max_train_rows:
            return sample
        check_rule(self.sampler)
        n_strata = 0 if sample.strata is None else 1
        adjusted = adjusted_columns(tuple(map(str, sample.X.columns)), self.adjust_for)
        adjusted += look.summary.names[len(look.summary.names) - n_strata :]
        called = treatment_name(sample.treatment), outcome_name(sample.y)
        schema = look.summary.schema(self.treated, self.outcome_transform, self.missing, *called)
        if not (isinstance(self.propensity.estimator, str) and self.propensity.estimator == "auto"):
            schema = replace(schema, stratum_shares=None)
        if sample.sample_weight is not None:
            schema = replace(schema, mean_weight=float(weight_numbers(sample.sample_weight).mean()))
        plain = schema.read(sample)
        refuse_leaks(plain.table, plain.y, plain.treatment, plain.clusters)
        if n_strata:
            features = part_of(plain.table, list(range(plain.table.n_features - 1)))
            refuse_repeated(plain.table.values[:, -1], features)
        warn_codes(plain.table, plain.y, called[1])
        schema = schema.pooled()
        block = schema.read(sample) if schema.poolings else plain
        table = with_level_columns(replace(block.table, reference=block.table.scaling), block.weights)
        schema = replace(schema, reference=table.reference, level_columns=table.level_columns)
        block = replace(block, table=table)
        determined = find_determined(block.table)
        determined.warn()
        if sample.clusters is not None:
            _refuse_cluster_features(block.table, cluster_keys(sample.clusters), determined.features, adjusted)
        folds, whole = self._folds(rows, numbers, block, schema.n_clusters, seeds[0])
        plan, conditionals, propensity, outcome = self._plan(
            schema, rows, folds, block, seeds[:5], determined.features, adjusted
        )
        plan = replace(plan, cluster_folds=whole)
        with ProgressBar(self.progress, "Scoring rows") as advance:
            sums = pieces.sums(plan, schema.n_rows, advance)
        choice_seed, overall_seed, feature_seed = seeds[5].spawn(3)
        counted = block.weights, block.clusters, self.population
        compared = ArmRows(block.y, block.treatment, propensity.scores, *counted)
        outcomes = PseudoOutcomes.of(compared, OutcomeModel.of(outcome), seed=choice_seed)
        explaining = ExplainingRows.of(
            block, propensity, folds, outcome, outcomes, plan.bins.bandwidth, bands=self.explain
        )
        weights = look.summary.weights
        freedom = np.inf if weights is None else weights.effective_size - 1.0
        return Streamed(
            names=tuple(name for name in schema.names if name not in adjusted),
            columns_in=schema.names[: len(schema.names) - n_strata],
            kinds=[block.table.kind(m) for m, name in enumerate(schema.names) if name not in adjusted],
            findings=self._findings(plan, conditionals, sums, explaining, feature_seed, adjusted, freedom),
            named=frozenset(schema.names[m] for m in schema.left_out | determined.features),
            overlap=sums.overlap_of_clusters.overlap(propensity),
            labels=(schema.arm_labels[0], schema.arm_labels[1]),
            n_rows=schema.n_rows,
            n_treated=schema.n_treated,
            n_train_rows=numbers.size,
            n_explained_rows=explaining.y.size,
            outcome_levels=explaining.outcomes.levels,
            propensity=propensity,
            model=outcome.description,
            score_histogram=sums.overlap.score_histogram(),
            column_names=(names := recorded_names(sample.y, sample.treatment)),
            columns=review_columns(
                propensity,
                block.y,
                randomised=propensity.is_known or n_strata > 0,
                population=self.population,
                clusters=block.clusters,
                outcome_name=names.get("outcome_name"),
                positive=self.outcome_transform == "log",
                levels=outside_levels(plain.table, plain.treatment, treated_as_one(plain.treatment, plain.clusters)),
            ),
            overall=explaining.overall(overall_seed),
            adjusted=adjusted[: len(adjusted) - n_strata],
            together=look.summary.together,
        )

    def _folds(
        self,
        rows: RowPlan,
        numbers: NDArray[np.int64],
        block: Block,
        n_clusters: int,
        seed: np.random.SeedSequence,
    ) -> tuple[list[NDArray[np.int64]], tuple[NDArray[np.int64], ...]]:
        """Fold of each row of the sample, for every repeat; and of every cluster, where there are clusters."""
        if block.clusters is None:
            return rows.folds(numbers), ()
        found = []
        for own, drawn in zip(seed.spawn(self.statistic.cv_repeats), rows.folds(np.arange(n_clusters)), strict=True):
            state = int(own.generate_state(1)[0])
            drawn[block.clusters] = cluster_folds(block.treatment, block.clusters, self.n_folds, state)
            found.append(drawn)  # clusters that the sample has no row of may be in any
        return [own[block.clusters] for own in found], tuple(found)

    def _findings(
        self,
        plan: Plan,
        conditionals: list[_Conditional],
        sums: Sums,
        explaining: ExplainingRows,
        seed: np.random.SeedSequence,
        adjusted: tuple[str, ...],
        freedom: float,
    ) -> list[Finding]:
        """Test every feature by its sums, and explain it by rows of the sample."""
        tests: dict[int, AnalyticOutcome | None] = {}
        freedom = min(freedom, plan.schema.n_clusters - 1.0) if plan.schema.n_clusters else freedom
        for m, (conditional, own) in enumerate(zip(conditionals, sums.features, strict=True)):
            if plan.schema.names[m] in adjusted:
                continue
            test = UNSEEN if conditional.unseen else None
            units = (None, None) if own.units is None else (own.units[:, 0], own.units[:, 1])
            if conditional.reuse and own.test is not None and own.prognosis is not None:
                shared = [
                    reuse.variance(list(part)) for reuse, part in zip(conditional.reuse, own.per_fold, strict=True)
                ]
                prognosis = sums_test(own.prognosis, shared[1], units[1])
                test = replace(sums_test(own.test, shared[0], units[0]), prognostic_p_value=prognosis.p_value)
            if test is not None and own.tails is not None:
                tails = own.tails if own.units is None else TailSums.of_terms(own.units[:, 2:])
                test = test.with_tails(tails.p_value(freedom))
            tests[m] = test
        questions = {
            m: Question(plan.rules[m], conditionals[m].unseen, bounds=test is not None and test.p_value <= self.alpha)
            for m, test in tests.items()
        }
        explained = explain_features(explaining, questions, seed, self.n_jobs, self.progress)
        findings = []
        for (m, test), found in zip(tests.items(), explained, strict=True):
            conditional, place = conditionals[m], plan.views[m]
            importance = 0.0
            if not plan.schema.constant[m]:
                importance = place.importance(sums.features[m].view, plan.bins)
            column = explaining.table.values[:, m]
            percentiles = () if explaining.table.n_levels(m) else told_percentiles(column, explaining.weights)
            view = MarginalView(importance, place.bandwidth, found.curve, found.densities, percentiles)
            bounds = None if found.bounds is None else {plan.schema.names[m]: found.bounds}
            messages = (*conditional.messages, *found.messages)
            findings.append(
                Finding(view, test, conditional.calibration, messages, bounds=bounds, changes=found.changes)
            )
        return findings

    def _scores(
        self, schema: Schema, block: Block, folds: NDArray[np.int64], seed: np.random.SeedSequence
    ) -> FittedPropensity:
        """Propensity scores of the sample."""
        model = self.propensity
        if schema.stratum_shares is not None and block.scores is not None:
            strata = Strata(block.table.values[:, -1].astype(np.int64), schema.categories[-1] or ())
            return stratum_scores(model, strata, block.table, block.treatment, block.weights, block.scores)
        if block.scores is not None:
            model = PropensityModel(block.scores, cross_fit=model.cross_fit, clip=model.clip)
        return model.fit(
            block.table,
            block.treatment,
            n_folds=self.n_folds,
            seed=seed,
            folds=folds,
            weights=block.weights,
            clusters=block.clusters,
        )

    def _plan(
        self,
        schema: Schema,
        rows: RowPlan,
        folds: list[NDArray[np.int64]],
        block: Block,
        seeds: list[np.random.SeedSequence],
        copies: frozenset[int],
        adjusted: tuple[str, ...],
    ) -> tuple[Plan, list[_Conditional], FittedPropensity, PreparedEffectLikelihood]:
        """Fit the nuisance models to the sample."""
        _, propensity_seed, sampler_seed, view_seed, bins_seed = seeds
        table, y, arms, weights = block.table, block.y, block.treatment, block.weights
        _check_sample(schema, y, arms, folds, self.n_folds)
        if self.outcome_transform is None:
            transform_outcome(y, None)  # warns of a skewed outcome
        self.statistic.validate(y, weighted=weights is not None)
        if self.statistic.check_resamples:
            warnings.warn("check_resamples has no effect on tables that are streamed", UserWarning, stacklevel=4)
        propensity = self._scores(schema, block, folds[0], propensity_seed)
        refuse_separation(propensity)
        own = seeds[0], tuple(folds), weights, block.clusters  # nothing is random in a statistic tested in pieces
        outcome = self.statistic.prepare(Nuisances(table, y, arms, propensity.scores, *own, self.n_jobs))
        sampler = for_gaps(self.sampler, table)
        if hasattr(sampler, "assign_folds"):
            sampler.assign_folds(folds[0], whole_clusters=block.clusters is not None)
        if weights is not None:
            check_sampler_weights(self.sampler)
        sampler.fit(table, arms, sampler_seed, **({} if weights is None else {"weights": weights}))
        conditionals: list[_Conditional] = [_Conditional(None, (), NO_SAMPLER)] * table.n_features
        unknown = [_says_nothing(table, m) for m in range(table.n_features)]
        asked = [m for m, name in enumerate(schema.names) if name not in adjusted]
        still = [m for m in asked if unknown[m] and not schema.constant[m]]
        for m in still:
            conditionals[m] = _Conditional(None, (), NO_SAMPLER, unseen=True)
        if still:
            warnings.warn(
                f"{named(table.names[m] for m in still)}: the same, or missing, in all rows that models are fitted "
                "to, so "
                "p-values are 1; raise max_train_rows",
                UserWarning,
                stacklevel=4,
            )
        tested = [m for m in asked if not unknown[m]]
        jobs = [
            delayed(with_messages)(_fit_conditional, sampler, outcome, propensity, m, m in copies, folds[0])
            for m in tested
        ]
        with ProgressBar(self.progress, "Fitting distributions of features") as advance:
            advance(0, len(tested))
            for done, (conditional, messages) in enumerate(
                results_of(jobs, self.n_jobs, doing="fitting distributions of features")
            ):
                conditionals[tested[done]] = replace(conditional, messages=messages)
                advance(done + 1, len(tested))
        views = [FeatureView.of(table, m, seed) for m, seed in enumerate(view_seed.spawn(table.n_features))]
        first = replace(table, values=table.values[:1])
        plan = Plan(
            schema=schema,
            rows=rows,
            propensity=propensity.at(first, arms[:1], folds[0][:1], propensity.raw[:1]),
            outcome=outcome.at(first, outcome.y[:1], arms[:1], propensity.scores[:1], [own[:1] for own in folds]),
            rules=tuple(conditional.rule for conditional in conditionals),
            functions=tuple(
                outcome.tail_functions(m) if conditional.rule else None for m, conditional in enumerate(conditionals)
            ),
            views=tuple(views),
            bins=OutcomeBins.of(y, bins_seed, table.n_features),
        )
        return plan, conditionals, propensity, outcome


def _refuse_cluster_features(
    table: FeatureTable, keys: NDArray[np.uint64], determined: frozenset[int], adjusted: tuple[str, ...]
) -> None:
    """Refuse features that have one value in every cluster: their distribution is one of clusters, not of rows."""
    clusters = np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64)
    if np.bincount(clusters).max() == 1:  # every row is a cluster
        return
    within, _ = cluster_features(table, clusters, determined)
    names = [table.names[m] for m in sorted(within) if table.names[m] not in adjusted]
    if names:
        raise ValueError(
            f"{named(names)}: one value in every cluster, which is tested with the table in memory only; pass one row "
            "per cluster, or a sample of the clusters, as a DataFrame, or adjust for what is no question of yours"
        )


def _fit_conditional(
    sampler: BaseSampler,
    outcome: PreparedEffectLikelihood,
    propensity: FittedPropensity,
    feature: int,
    is_copy: bool,
    parts: NDArray[np.int64],
) -> _Conditional:
    with threadpool_limits(limits=1):
        seen = outcome.looks_at(feature)
        if not is_copy and not seen and not outcome.may_show_tails(feature):
            return _Conditional(None, (), NO_SAMPLER, unseen=True)
        rule = sampler.rule(feature)
        table = outcome.table
        if is_copy or rule.calibration.explained_share > DETERMINED[table.kind(feature)]:
            return _Conditional(None, (), rule.calibration)
        conditional = ConditionalGrid(rule.conditional(table, outcome.treatment, parts), table.n_rows)
        grid = OverlapConditional(conditional, propensity, feature)
        reuse = tuple(outcome.reuse(feature, grid, WHOLE, OUTCOME)) if seen else ()
        return _Conditional(rule, reuse, rule.calibration, unseen=not seen)


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
