"""Steps of a run: fit models to the rows at hand, test every feature on all rows, explain, record.

A table in memory is tested as its features are examined. A longer one is tested by sums over its pieces, added by the
workers that read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from modifind._system import one_thread
from modifind._warned import collected, warn
from modifind._workers import WORKER_DIED, ProgressBar, WorkerError, survivors
from modifind.data.features import FeatureTable, Unit
from modifind.data.treatment import Design
from modifind.data.words import named
from modifind.engine.checkpoint import UNSAVED, Checkpoint
from modifind.engine.features import Analysis, UnitSeeds, stabilised
from modifind.engine.findings import UNTESTED, Examination, Finding, TableFindings, warn_of_findings
from modifind.engine.passes import TablePieces
from modifind.engine.preparation import Models, PreparedTable, design_of
from modifind.engine.record import (
    baseline_settings,
    data_settings,
    design_settings,
    failure_of,
    group_settings,
    null_hypothesis,
    review_columns,
)
from modifind.engine.resampling import (
    OBSERVED,
    MeasuringPass,
    check_sums,
    measure,
    measured_columns,
    resampled_tests,
    size_of,
)
from modifind.engine.settings import RunSettings
from modifind.engine.sums import Plan, Sums, UnitSums, outcome_of
from modifind.explain.overview import Overview, described
from modifind.inference import CRTOutcome
from modifind.nuisance.propensity.scores import OverlapSums

MAX_TASKS = 100


def fit_table(
    run: RunSettings,
    table: PreparedTable,
    checkpoint: Checkpoint = UNSAVED,
    known: Mapping[int, Examination] | None = None,
) -> TableFindings:
    """Fit models, scores and distributions; test and explain every feature.

    Parameters
    ----------
    run : RunSettings
        Settings.
    table : PreparedTable
        The table.
    checkpoint : Checkpoint
        Where features of a table in memory are saved as soon as they are tested.
    known : mapping, optional
        Features that are tested already, by position.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C before any feature was tested.
    """
    models = Models.fit(run, table)
    analysis, overall_seed = Analysis.of(run, table, models)
    overlap = OverlapSums.of(models.propensity, table.block.clusters)
    importance: Mapping[int, float] | None = None
    examined, interrupted = _examined(analysis, checkpoint, known or {})
    if table.pieces is not None:
        if interrupted:
            raise KeyboardInterrupt
        examined, importance, overlap = _tested_in_passes(analysis, table, table.pieces, examined)
    elif not interrupted:
        try:
            examined = stabilised(analysis, examined)
        except KeyboardInterrupt:
            interrupted = True
    findings = {k: analysis.unexplained(k, of_unit, importance or {}) for k, of_unit in examined.items()}
    if not interrupted:
        explained, interrupted = _explained(analysis, examined, importance)
        findings |= explained
    reached = [findings.get(k, UNTESTED) for k in range(len(table.units))]
    return _concluded(analysis, reached, overlap, overall_seed, interrupted=interrupted)


def _every_unit(
    analysis: Analysis, title: str, step: Callable[..., Any], shared: Any, items: Mapping[int, Any]
) -> Iterator[tuple[int, Any]]:
    """Results of a parallel step for every unit as they arrive; None if workers died while processing one."""
    run, total = analysis.run, len(analysis.table.units)
    sent = replace(analysis, run=replace(run, progress=False))  # a callable may not be fit to be sent
    results = survivors(_in_turn, (step, sent, shared), items, run.n_jobs, most_tasks=MAX_TASKS)
    with ProgressBar(run.progress, title) as advance, closing(results):
        done = total - len(items)
        advance(done, total)
        for k, result in results:
            yield k, result
            done += 1
            advance(done, total)


def _in_turn(
    step: Callable[..., Any], analysis: Analysis, shared: Any, pairs: list[tuple[int, Any]]
) -> list[tuple[int, Any]]:
    """Results of a step for several units in one thread, so that they do not depend on the number of workers."""
    with one_thread():
        return [(k, step(analysis, shared, k, item)) for k, item in pairs]


def _examined(
    analysis: Analysis, checkpoint: Checkpoint, known: Mapping[int, Examination]
) -> tuple[dict[int, Examination], bool]:
    """Fit the distributions of all units and, in memory, test them; also return whether Ctrl-C was pressed.

    A unit that fails does not affect the others.
    """
    analysis.warn_of_constant_units()
    of_units = dict(known)
    left = {k: seeds for k, seeds in analysis.seeds.items() if k not in known}
    title = "Testing features" if analysis.table.whole else "Fitting distributions of features"
    try:
        for k, examined in _every_unit(analysis, title, _examine, checkpoint, left):
            of_units[k] = examined or Examination(failure=WORKER_DIED)
            if not of_units[k].failure:
                checkpoint.save_missing(k, of_units[k])
    except KeyboardInterrupt:
        of_units = {**checkpoint.load(), **of_units}  # workers may have saved more than they handed on
        if not of_units:
            raise
        return of_units, True
    if all(examined.failure for examined in of_units.values()):
        raise WorkerError(f"no feature could be tested: {of_units[0].failure}")
    return dict(sorted(of_units.items())), False


def _examine(analysis: Analysis, checkpoint: Checkpoint, k: int, seeds: UnitSeeds) -> Examination:
    """Examine a unit, keeping its warnings or error."""
    unit = analysis.table.units[k]
    try:
        with collected() as messages:
            examined = analysis.examine(unit, seeds)
    except Exception as error:
        return Examination(failure=failure_of(error, unit.name))
    examined = replace(examined, messages=tuple(messages))
    checkpoint.save_here(k, examined)
    return examined


def _explained(
    analysis: Analysis, examined: Mapping[int, Examination], importance: Mapping[int, float] | None
) -> tuple[dict[int, Finding], bool]:
    """Findings with explanations, and whether Ctrl-C was pressed; after that units stay tested but unexplained."""
    seeds, n_units = analysis.seeds, len(examined)
    items = {k: (of_unit, seeds[k]) for k, of_unit in examined.items()}
    findings: dict[int, Finding] = {}
    try:
        for k, finding in _every_unit(analysis, "Explaining features", _explain, importance, items):
            findings[k] = finding or analysis.unexplained(k, examined[k], importance or {}, WORKER_DIED)
    except KeyboardInterrupt:
        warn(f"interrupted: all features are tested, but {n_units - len(findings)} of {n_units} not explained")
        return findings, True
    return findings, False


def _explain(
    analysis: Analysis, importance: Mapping[int, float] | None, k: int, item: tuple[Examination, UnitSeeds]
) -> Finding:
    """Explain a unit; a failure affects neither its test nor other explanations."""
    examined, seeds = item
    try:
        with collected() as messages:
            finding = analysis.explained(analysis.table.units[k], seeds, examined, importance)
    except Warning:
        raise  # those that the user has made errors
    except Exception as error:
        return analysis.unexplained(k, examined, importance or {}, described(error))
    return replace(finding, messages=(*examined.messages, *messages))


def _tested_in_passes(
    analysis: Analysis, table: PreparedTable, pieces: TablePieces, examined: dict[int, Examination]
) -> tuple[dict[int, Examination], dict[int, float], OverlapSums]:
    """Test the features of a longer table by sums over all rows; also importance of its columns, and overlap."""
    run, n_rows = analysis.run, table.data.schema.n_rows
    if analysis.analytic is None:
        check_sums(run.statistic, analysis.models.prepared)
    plan = _plan(analysis, examined)
    with ProgressBar(run.progress, "Scoring rows") as advance:
        sums: Sums = pieces.sums(plan, n_rows, advance)
    with ProgressBar(run.progress, "Evaluating importance") as advance:
        known = {(m, OBSERVED): (column,) for m, column in zip(plan.columns, sums.columns, strict=True)}
        values, _ = measure(pieces, MeasuringPass(plan.scoring, plan.importance, plan.columns), known, n_rows, advance)
    if analysis.analytic is None:
        examined = _resampled(analysis, pieces, plan, examined, sums)
    else:
        examined = {k: _by_sums(analysis, of_unit, sums.features[k]) for k, of_unit in examined.items()}
    return examined, {m: values[m, OBSERVED] for m in plan.columns}, sums.overlap_of_clusters


def _plan(analysis: Analysis, examined: Mapping[int, Examination]) -> Plan:
    """The models that workers need to add up rows."""
    table, models, units, seeds = analysis.table, analysis.models, analysis.table.units, analysis.seeds
    one_row = table.scored(models.propensity).part(np.arange(1))
    first = one_row.nuisances
    analytic, importance = analysis.analytic, analysis.explainer.importance
    if analytic is not None:
        tested = [unit.feature for k, unit in enumerate(units) if examined[k].rule is not None]
        analytic = analytic.with_directions(tested).at(first)
    return Plan(
        scoring=table.scoring(one_row.propensity),
        statistic=analytic,
        units=units,
        rules=tuple(None if analytic is None else examined[k].rule for k in range(len(units))),
        importance=replace(importance.at(first), weight_cap=None, arm_caps=None),
        columns=measured_columns(
            table.block.table,
            table.data.schema,
            [(unit, seeds[k].view) for k, unit in enumerate(units)],
            table.block.weights,
        ),
    )


def _by_sums(analysis: Analysis, examined: Examination, sums: UnitSums) -> Examination:
    """A unit with its test from sums, or with the reason why it could not be tested."""
    if examined.failure or sums.failure:
        return replace(examined, outcome=None, failure=examined.failure or sums.failure)
    if examined.rule is None:
        return examined
    two_sided = analysis.run.statistic.two_sided
    return replace(examined, outcome=outcome_of(sums, examined.reuse, analysis.table.freedom, two_sided=two_sided))


def _resampled(
    analysis: Analysis, pieces: TablePieces, plan: Plan, examined: Mapping[int, Examination], sums: Sums
) -> dict[int, Examination]:
    """Compare every feature of a longer table with resampled copies of it."""
    run, table, models = analysis.run, analysis.table, analysis.models
    follows, columns = run.statistic.follows_scores, {}
    keys = table.stream(run, "features").generate_state(table.block.table.n_features, np.uint64).tolist()
    feature_of = {k: unit.members[0] for k, unit in enumerate(table.units)}
    for k, m in feature_of.items():
        rule = examined[k].rule
        if rule is not None and m in plan.columns:
            values = models.propensity.profile_values(m) if follows else None
            columns[m] = plan.columns[m].resampled(rule, keys[m], follows=follows, profile=values)
    first = table.scored(models.propensity).part(np.arange(1)).nuisances
    work = MeasuringPass(plan.scoring, models.prepared.at(first), columns)
    sizes = {m: size_of(column) for m, column in zip(plan.columns, sums.columns, strict=True)}
    with ProgressBar(run.progress) as advance:
        n_resamples, n_rows = run.max_resamples(len(table.units)), table.data.schema.n_rows
        outcomes = resampled_tests(pieces, work, run.test, n_resamples, n_rows, advance, sizes)
    return {k: _with_test(examined[k], outcomes.get(m)) for k, m in feature_of.items()}


def _with_test(examined: Examination, test: CRTOutcome | str | None) -> Examination:
    """A unit with its test, or with the reason why it failed; unchanged if there was nothing to test."""
    if examined.failure or test is None:
        return examined
    return replace(examined, failure=test) if isinstance(test, str) else replace(examined, outcome=test)


def _concluded(
    analysis: Analysis,
    findings: list[Finding],
    overlap: OverlapSums,
    seed: np.random.SeedSequence,
    *,
    interrupted: bool,
) -> TableFindings:
    """Findings about the whole table, and the settings recorded in the result."""
    run, table, models = analysis.run, analysis.table, analysis.models
    block, units, propensity, data = table.block, table.units, models.propensity, table.data
    names = tuple(unit.name for unit in units)
    warn_of_findings(names, findings)
    untestable = {block.table.names[m] for m in table.copies} | data.left_out
    untestable |= _warn_constant_members(block.table, units)
    overview = Overview()
    if run.explain and not interrupted:
        overview = analysis.explainer.overview(units, data.schema.n_rows, seed)
    design, outcome_name = design_of(run, data), data.recorded.get("outcome_name")
    columns = review_columns(
        propensity,
        block.y,
        randomised=design.randomised,
        population=run.population,
        clusters=block.clusters,
        outcome_name=outcome_name,
        positive=run.outcome_transform == "log",
        levels=data.outside,
    )
    settings = _recorded(analysis, design)
    if design.randomised:
        tested = {block.table.names[m] for unit in units for m in unit.members}
        settings |= baseline_settings(columns, block.table, outcome_name, tested)
    return TableFindings(
        names=names,
        kinds=[unit.kind(block.table) for unit in units],
        findings=findings,
        warned_of=frozenset(untestable),
        overlap=overlap.overlap(propensity),
        overview=overview,
        score_histogram=overlap.score_histogram(),
        columns=columns,
        columns_in=data.columns_in,
        settings=settings,
        interrupted=interrupted,
    )


def _warn_constant_members(table: FeatureTable, units: tuple[Unit, ...]) -> set[str]:
    """Warn of constant columns in groups; return the groups without any other column."""
    still = [table.names[m] for unit in units if unit.group for m in unit.members if table.is_constant(m)]
    if still:
        warn(f"constant columns cannot modify anything: {named(still)}")
    return {unit.name for unit in units if unit.group and unit.is_constant(table)}


def _recorded(analysis: Analysis, design: Design) -> dict[str, Any]:
    """Entries of the record beyond the selector's arguments."""
    run, table, models, outcomes = analysis.run, analysis.table, analysis.models, analysis.explainer.outcomes
    data, schema, block = table.data, table.data.schema, table.block
    n_explained, n_units = outcomes.rows.size, len(table.units)
    kind = run.family(block.y, block.treatment).kind
    n_resamples = run.max_resamples(n_units)
    needed = run.test.needed_resamples(n_units, run.alpha, run.adjust) if n_resamples else 0
    return {
        "n_resamples_used": n_resamples or getattr(run.statistic, "check_resamples", 0) * table.whole,
        "n_resamples_needed": needed,
        "model": getattr(models.prepared, "description", None),
        **data_settings(schema.arm_labels, schema.n_rows, schema.n_treated, models.propensity, run.seed),
        **data.recorded,
        "design": design_settings(design, models.propensity.raw),
        "null_hypothesis": null_hypothesis(run, kind, data.recorded),
        "outcome_kind": kind,
        **group_settings(run.feature_groups, block.table, table.units),
        **({"outcome_levels": True} if outcomes.levels else {}),
        **({"n_explained_rows": n_explained} if n_explained < schema.n_rows else {}),
        **({} if table.repeated is None else {"repeated_rows": table.repeated.settings}),
    }
