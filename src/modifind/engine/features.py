"""Testing and explaining every feature of a table.

Each feature is examined by one worker: its distribution is fitted and, if all rows are at hand, it is tested at once;
tests near the threshold are repeated with other folds. The features of a longer table are then tested by sums over all
of its rows. Finally they are explained with the rows at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from modifind._system import one_thread
from modifind._typing import Array, Ints
from modifind._warned import warn
from modifind.data.features import Feature, FeatureTable, Unit
from modifind.data.missing import MIN_OBSERVED
from modifind.data.words import named
from modifind.engine.explaining import Explainer
from modifind.engine.findings import NO_SAMPLER, Examination, Finding
from modifind.engine.passes import ScoredRows
from modifind.engine.preparation import DETERMINED, Models, PreparedTable, draw_folds
from modifind.engine.resampling import NOTHING_RESAMPLED, ResamplingTest
from modifind.engine.settings import RunSettings
from modifind.engine.sums import Changes, Outcome, OverlapConditional, UnitSums, changes_of, outcome_of
from modifind.explain.overview import attempt, errors_as_warnings, missing
from modifind.explain.rows import ArmRows, OutcomeModel, PseudoOutcomes
from modifind.explain.views import MarginalView, bandwidth_of
from modifind.inference import UNSEEN, AnalyticOutcome, adjust_p_values
from modifind.inference.direct_sums import DirectSums
from modifind.nuisance.conditional import BaseSampler, ConditionalGrid
from modifind.nuisance.conditional.contract import (
    RowGrid,
    check_conditional,
    check_rule,
    fitted_conditional,
    for_draws,
    without_rows,
)
from modifind.nuisance.conditional.joint import joint_rule, rule_grid
from modifind.nuisance.conditional.special_columns import ClusterRule
from modifind.statistics import WCMMD
from modifind.statistics.contract import PreparedTerms
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood
from modifind.statistics.row_terms import Reuse

NAN = float("nan")
MANY_FEATURES = 100
SIGN = 0.1  # p-value
CONDITIONAL_TESTED = 0.05  # where a feature is not found, its distribution cannot have found it


@dataclass(frozen=True)
class UnitSeeds:
    """Random streams of one feature or group: for its view, distribution, resamples and bounds."""

    view: np.random.SeedSequence
    learn: np.random.SeedSequence
    draw: np.random.SeedSequence
    bounds: np.random.SeedSequence

    @classmethod
    def of(cls, unit: Unit, seed: np.random.SeedSequence) -> UnitSeeds:
        """Derive the streams from the unit's child seed."""
        view, learn, *draw, bounds = seed.spawn(4 if len(unit.members) > 1 else 3)
        return cls(view, learn, draw[0] if draw else learn, bounds)


@dataclass(frozen=True)
class ChangeRows:
    """Rows for the tests of what features change: all rows at hand, or a subset of the sample of a longer table.

    Attributes
    ----------
    rows : ScoredRows
        The rows.
    numbers : array
        Their numbers in the whole table.
    model : PreparedEffectLikelihood, optional
        Models of the outcome that have not seen them; without any nothing is tested.
    share : float
        Share that they are of the rows that models were fitted to.
    """

    rows: ScoredRows
    numbers: Ints
    model: PreparedEffectLikelihood | None
    share: float = 1.0

    @classmethod
    def of(cls, table: PreparedTable, models: Models, chosen: Ints) -> ChangeRows:
        """Choose the rows: the chosen ones if the rows at hand are a sample, all rows otherwise."""
        rows, model, numbers = table.scored(models.propensity), models.explaining, table.data.first_pass.numbers
        if table.whole or chosen.size == numbers.size:
            return cls(rows, numbers, model)
        rows = rows.part(chosen)
        model = None if model is None else model.at(rows.nuisances)
        return cls(rows, numbers[chosen], model, chosen.size / numbers.size)

    def changes(self, unit: Unit, grid: RowGrid, draws: Ints | None = None) -> Changes:
        """P-values of what a unit changes; arguments as in `unit_sums`."""
        assert self.model is not None
        sums, reuse, _ = unit_sums(self.model, unit, grid, self.rows, draws, parts=True)
        # Folds share what their rows here have taught each other's models; the sample's other rows taught more.
        reuse = {name: replace(shared, share=self.share) for name, shared in reuse.items()}
        return changes_of(sums, reuse, self.rows.freedom, self.model.family.has_scale)


def unit_sums(
    model: PreparedTerms, unit: Unit, grid: RowGrid, rows: ScoredRows, draws: Ints | None, *, parts: bool = False
) -> tuple[UnitSums, Mapping[str, Reuse], Array]:
    """Sums over all rows at hand, the variance that folds share for the unit, and the weights of its points.

    Parameters
    ----------
    model : PreparedTerms
        Says what rows add.
    unit : Unit
        The feature or group.
    grid : RowGrid
        Its distribution.
    rows : ScoredRows
        The rows.
    draws : int array, optional
        Clusters whose rows share one draw of the feature.
    parts : bool, default=False
        Whether also what the unit changes is asked for.
    """
    feature = unit.feature
    terms = model.terms(feature, grid, **({"parts": True} if parts else {}))
    reuse = model.reuse(feature, grid, "test", *terms.parts) if model.looks_at(feature) else {}
    sums = UnitSums.of(terms, rows, grouped=len(unit.members) > 1, draws=draws, keep=True)
    return sums, reuse, terms.weights


@dataclass(frozen=True)
class Analysis:
    """Everything a worker needs to test and explain any feature.

    Attributes
    ----------
    run : RunSettings
        Settings.
    table : PreparedTable
        The table, without its pieces.
    models : Models
        What was fitted to the rows at hand.
    explainer : Explainer
        What explains features.
    changing : ChangeRows
        Rows for the tests of what they change.
    """

    run: RunSettings
    table: PreparedTable
    models: Models
    explainer: Explainer
    changing: ChangeRows

    @classmethod
    def of(cls, run: RunSettings, table: PreparedTable, models: Models) -> tuple[Analysis, np.random.SeedSequence]:
        """Make the analysis, and a seed for effects over all rows."""
        importance = models.prepared if run.statistic.measures_importance else WCMMD().prepare(models.nuisances)
        outcome_seed, overall_seed = models.nuisances.seed.spawn(2)
        block = table.block
        amounts = run.family(block.y, block.treatment).kind == "amount"
        how = run.population, run.effect_scale, amounts
        rows = ArmRows(block.y, block.treatment, models.propensity.scores, block.weights, block.clusters, *how)
        expected = () if models.explaining is None else OutcomeModel.of(models.explaining)
        outcomes = PseudoOutcomes.of(rows, expected, seed=outcome_seed)
        explainer = Explainer(block.table, rows, outcomes, importance, run.explain)
        changing = ChangeRows.of(table, models, outcomes.rows)
        sent = replace(table, data=table.data.encoded, pieces=None)
        return cls(run, sent, models, explainer, changing), overall_seed

    @property
    def analytic(self) -> PreparedTerms | None:
        """The statistic if its tail is analytic; otherwise None."""
        return self.models.prepared if isinstance(self.models.prepared, PreparedTerms) else None

    def warn_of_constant_units(self) -> None:
        """Warn of units that are constant in the rows at hand although they vary in others."""
        table, schema = self.table.block.table, self.table.data.schema
        silent = [unit for unit in self.table.units if all(is_uninformative(table, m) for m in unit.members)]
        still = [unit.name for unit in silent if not all(schema.constant[m] for m in unit.members)]
        if still:
            warn(
                f"{named(still)}: the same, or missing, in all rows that models are fitted to, so p-values are 1; "
                "raise max_train_rows"
            )

    @property
    def seeds(self) -> dict[int, UnitSeeds]:
        """Random streams of a unit, by its number."""
        units = self.table.units
        children = self.table.stream(self.run, "features").spawn(1 + max(unit.place for unit in units))
        return {k: UnitSeeds.of(unit, children[unit.place]) for k, unit in enumerate(units)}

    def examine(self, unit: Unit, seeds: UnitSeeds) -> Examination:
        """Fit the distribution of a unit and, if all rows are at hand, test it; uses one thread."""
        block, feature, analytic = self.table.block, unit.feature, self.analytic
        if all(is_uninformative(block.table, m) for m in unit.members):
            constant = all(self.table.data.schema.constant[m] for m in unit.members)
            return Examination() if constant else self._unseen
        if analytic is not None and feature not in self.table.copies and not self._has_signal(analytic, feature):
            return self._unseen
        rule, determined = learn(self.models.sampler, self.table, feature, seeds.learn)
        if determined:
            return Examination(rule.calibration)
        if not self.table.whole and not isinstance(rule, ClusterRule):
            return self._for_blocks(feature, rule)
        rng, conditional = np.random.default_rng(seeds.draw), fitted_conditional(rule, block.table, block.treatment)
        points: Any = conditional
        if isinstance(feature, int):
            check_conditional(conditional, rule, "draw")
            n_levels = block.table.n_levels(feature)
            points = ConditionalGrid.of(conditional, block.table.n_rows, n_levels=n_levels)
        grid = OverlapConditional(points, self.models.propensity, feature)
        draws = rule.fitted.clusters if isinstance(rule, ClusterRule) else None
        if analytic is None:
            outcome, changes = self._resampled(unit, conditional, seeds, rng), None
        else:
            outcome, changes = self._tested(analytic, unit, grid, draws, rng)
        if changes is None and analytic is not self.models.explaining and self._tests_changes:
            with errors_as_warnings(_changes_of(unit)):
                changes = self.changing.changes(unit, grid, draws)
        return Examination(rule.calibration, outcome=outcome, changes=changes)

    def _has_signal(self, analytic: PreparedTerms, feature: Feature) -> bool:
        """Whether a feature shows any sign of an effect that justifies fitting its distribution."""
        look, block = analytic.first_look(feature), self.table.block
        if look is None:
            return True
        freedom = min(block.weights.freedom, block.clusters.freedom)
        return DirectSums.of(look, block.clusters.given).p_value(freedom) <= SIGN

    def _tested(
        self,
        analytic: PreparedTerms,
        unit: Unit,
        grid: OverlapConditional,
        draws: Ints | None,
        rng: np.random.Generator,
    ) -> tuple[Outcome, Changes | None]:
        """Test with the rows at hand, and p-values of what the unit changes if the test's models support it."""
        rows, statistic, summed, changes = self.changing.rows, self.run.statistic, None, None
        if not self.table.whole:  # of a feature of clusters, which the sample tells
            rows = self.table.scored(self.models.propensity)
        parts = self.run.explain and analytic is self.models.explaining
        if parts:
            summed = attempt(_changes_of(unit), unit_sums, analytic, unit, grid, rows, draws, parts=True)
        sums, reuse, weights = summed or unit_sums(analytic, unit, grid, rows, draws)
        check: dict[str, Any] = {"check_resamples": getattr(statistic, "check_resamples", 0), "rng": rng}
        outcome = outcome_of(sums, reuse, rows.freedom, two_sided=statistic.two_sided, **check)
        independent = rows.block.clusters.of_rows and draws is None
        if outcome.p_value <= CONDITIONAL_TESTED and independent and analytic.looks_at(unit.feature):
            distance = analytic.conditional_test(unit.feature, grid.with_tilt(weights))
            outcome = replace(outcome, conditional_p_value=distance)
        if summed is not None and self.models.explaining is not None:
            has_scale = self.models.explaining.family.has_scale
            with errors_as_warnings(_changes_of(unit)):
                changes = changes_of(sums, reuse, rows.freedom, has_scale)
        return outcome, changes

    def _resampled(self, unit: Unit, conditional: Any, seeds: UnitSeeds, rng: np.random.Generator) -> Outcome:
        run, models, table = self.run, self.models, self.table.block.table
        n_resamples = run.max_resamples(len(self.table.units))
        test = ResamplingTest(run.statistic, models.prepared, run.test, n_resamples, models.propensity, table)
        bandwidth = bandwidth_of(table, unit.members[0], self.table.block.weights, seeds.view)
        return test(unit.members[0], conditional, bandwidth, rng)

    def _for_blocks(self, feature: Feature, rule: Any) -> Examination:
        """What workers need to add up a feature's sums over a longer table."""
        analytic, calibration = self.analytic, rule.calibration
        if analytic is None:
            return Examination(calibration, for_draws(rule))
        rule, block = without_rows(rule), self.table.block
        numbers = self.table.data.first_pass.numbers
        points = rule_grid(rule, block.table, block.treatment, self.table.folds[0], numbers)
        grid = OverlapConditional(points, self.models.propensity, feature)
        reuse = analytic.reuse(feature, grid, "test", "outcome") if analytic.looks_at(feature) else {}
        return Examination(calibration, rule, reuse)

    @property
    def _tests_changes(self) -> bool:
        return self.run.explain and self.changing.model is not None

    @property
    def _unseen(self) -> Examination:
        """Result for a feature that is constant in the rows at hand, or unused by their models."""
        outcome: Outcome = NOTHING_RESAMPLED if self.analytic is None else UNSEEN
        model, changes = self.changing.model, None
        if model is not None and self.run.explain:
            changes = Changes.none(model.family.has_scale)
        return Examination(outcome=outcome, changes=changes)

    def explained(
        self, unit: Unit, seeds: UnitSeeds, examined: Examination, importance: Mapping[int, float] | None = None
    ) -> Finding:
        """Finding of a unit with its explanation; `importance` of columns is passed if it comes from more rows."""
        bands = len(self.table.units) <= MANY_FEATURES or examined.calibration.sampler != NO_SAMPLER.sampler
        views = self.explainer.views(unit, seeds.view, importance, bands=bands)
        changes = examined.changes
        if examined.rule is not None and self._tests_changes:
            with errors_as_warnings(_changes_of(unit)):
                rows = self.changing.rows
                given = rows.block.table, rows.block.treatment, rows.folds[0], self.changing.numbers
                points = rule_grid(examined.rule, *given)
                changes = self.changing.changes(unit, OverlapConditional(points, rows.propensity, unit.feature))
        bounds, outcome = None, examined.outcome
        # The test has had its seeds by now, so that explanations change no p-value.
        if self.run.explain and outcome is not None and outcome.p_value <= self.run.alpha:
            bounds = self.explainer.bounds(unit, views, seeds.bounds)
        return replace(self._finding(unit, views, examined), changes=changes, bounds=bounds)

    def unexplained(self, k: int, examined: Examination, importance: Mapping[int, float], reason: str = "") -> Finding:
        """Finding of a unit without an explanation, and a message that gives the reason, if any."""
        unit, table = self.table.units[k], self.table.block.table
        views = {table.names[m]: MarginalView(importance.get(m, NAN), NAN) for m in unit.members}
        lost = (missing(f"feature {unit.name!r}: its curve", reason),) if reason else ()
        return replace(self._finding(unit, views, examined), messages=(*examined.messages, *lost))

    def _finding(self, unit: Unit, views: Mapping[str, MarginalView], examined: Examination) -> Finding:
        """Finding of a unit; a group has the view of its most important column."""
        return Finding(
            max(views.values(), key=lambda view: view.importance),
            examined.outcome,
            examined.calibration,
            examined.messages,
            views=dict(views) if unit.group else None,
            failure=examined.failure,
            changes=examined.changes,
        )


def learn(
    sampler: BaseSampler, table: PreparedTable, feature: Feature, seed: np.random.SeedSequence
) -> tuple[Any, bool]:
    """Fit the distribution of a feature, or of several jointly with a seed, and whether the others determine it."""
    block = table.block
    if isinstance(feature, tuple):
        parts = None if table.whole else table.folds[0]
        joint = joint_rule(sampler, block.table, block.treatment, feature, DETERMINED, seed, parts, block.weights)
        return joint, joint.determined
    rule = sampler.rule(feature)
    check_rule(rule, sampler)
    limit = DETERMINED[block.table.kind(feature)]
    return rule, feature in table.copies or rule.calibration.explained_share > limit


def is_uninformative(table: FeatureTable, feature: int) -> bool:
    """Whether a feature is constant, or nearly always missing, in the rows that models are fitted to."""
    if feature not in table.incomplete:
        return table.is_constant(feature)
    values = table.values[table.observed(feature), feature]
    return values.size < MIN_OBSERVED or bool((values == values[0]).all())


def _changes_of(unit: Unit) -> str:
    return f"feature {unit.name!r}: what changes along it"


LOW, HIGH = 0.2, 4.0  # times alpha, between which adjusted p-values are near the cut
MAX_P, FEW_ROWS = 0.25, 500
ROWS = 2000  # over the number of rows is the number of cross-fits
MAX_FITS = 5


def stabilised(analysis: Analysis, examined: dict[int, Examination]) -> dict[int, Examination]:
    """Stabilise the tests of features near the threshold by averaging several cross-fits.

    With few rows p-values depend on the random folds: at n = 300 the same true modifier can have p = 0.02 or p = 0.4.
    The contributions of rows are averaged over 2,000 / n cross-fits, five at most, as with ``cv_repeats``; with 1,000
    rows there are two, and with more rows one. Near the threshold are adjusted p-values between a fifth of alpha and
    four times alpha, and with at most 500 rows raw ones up to 0.25, which other folds may move there.

    Parameters
    ----------
    analysis : Analysis
        What features were tested with.
    examined : dict of Examination
        What the first cross-fit found of every unit.
    """
    run, table, models = analysis.run, analysis.table, analysis.models
    n_fits, near = min(ROWS // table.block.y.size, MAX_FITS), _near_the_cut(analysis, examined)
    if n_fits < 2 or not near:
        return examined
    fold_seeds = table.stream(run, "repeats").spawn(n_fits - 1)
    folds = tuple(draw_folds(table.data, table.block, run.n_folds, *seed.spawn(1)) for seed in fold_seeds)
    prepared = run.statistic.repeated(models.prepared, replace(models.nuisances, folds=folds))
    if prepared is None:
        return examined
    table = replace(table, folds=(*table.folds, *folds))
    models = replace(models, prepared=prepared, explaining=None)
    changing = ChangeRows.of(table, models, np.arange(table.block.y.size))
    together = Analysis(replace(run, explain=False), table, models, analysis.explainer, changing)
    seeds, steady = analysis.seeds, dict(examined)
    with one_thread():
        for place in near:
            outcome = together.examine(table.units[place], seeds[place]).outcome
            assert isinstance(outcome, AnalyticOutcome)
            steady[place] = replace(examined[place], outcome=replace(outcome, n_repeats=n_fits))
    return steady


def _near_the_cut(analysis: Analysis, examined: dict[int, Examination]) -> list[int]:
    """Positions of the single features whose selection may depend on the folds."""
    run, n_rows = analysis.run, analysis.table.block.y.size
    outcomes = [examined[place].outcome for place in range(len(examined))]
    p_values = np.array([1.0 if outcome is None else outcome.p_value for outcome in outcomes])
    adjusted = adjust_p_values(p_values, run.adjust)
    close = (adjusted <= HIGH * run.alpha) | ((p_values <= MAX_P) & (n_rows <= FEW_ROWS))
    close &= adjusted >= LOW * run.alpha
    single = np.array([len(unit.members) == 1 for unit in analysis.table.units])
    analytic = np.array([isinstance(outcome, AnalyticOutcome) for outcome in outcomes])
    return np.flatnonzero(close & single & analytic).tolist()
