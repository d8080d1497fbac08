"""The walk of a run: models of the rows at hand, a test of every feature by all rows, explanations, and the record.

A table in memory is tested as its features are examined. A longer one is tested by sums that are added up over its
pieces, by whoever reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from modifind._threads import one_thread
from modifind._warned import warn
from modifind._workers import WORKER_DIED, WorkerError, survivors
from modifind.engine.analysis import Analysis, UnitSeeds
from modifind.engine.assemble import UNTESTED, Examined, Finding, failure_of, tell
from modifind.engine.checkpoint import Checkpoint
from modifind.engine.models import Models
from modifind.engine.passes import Pieces
from modifind.engine.plan import Plan, Sums
from modifind.engine.progress import ProgressBar
from modifind.engine.record import collected, data_settings, design_settings
from modifind.engine.repeats import steadied
from modifind.engine.resampling import MeasuringPass, check_sums, measure, measured_columns, resampled_tests, size_of
from modifind.engine.review import baseline_settings, review_columns
from modifind.engine.run import Run
from modifind.engine.scored import OBSERVED
from modifind.engine.table import Table, design_of
from modifind.engine.testing import Outcome, outcome_of
from modifind.engine.units import Tested, group_settings, null_hypothesis, warn_constant_members
from modifind.explain.attempts import described
from modifind.explain.overview import Overview
from modifind.nuisance.propensity.overlap import OverlapSums
from modifind.nuisance.propensity.scores import FittedPropensity

MAX_TASKS = 100


def fit_table(
    run: Run, table: Table, checkpoint: Checkpoint | None = None, known: Mapping[int, Examined] | None = None
) -> Tested:
    """Fit models, scores and distributions, and test and explain every feature.

    Parameters
    ----------
    run : Run
        Settings.
    table : Table
        The table.
    checkpoint : Checkpoint, optional
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
            examined = steadied(analysis, examined)
        except KeyboardInterrupt:
            interrupted = True
    findings = {k: analysis.unexplained(k, own, importance or {}) for k, own in examined.items()}
    if not interrupted:
        explained, interrupted = _explained(analysis, examined, importance)
        findings |= explained
    reached = [findings.get(k, UNTESTED) for k in range(len(table.units))]
    return _concluded(analysis, reached, overlap, overall_seed, interrupted=interrupted)


def _every_unit(
    analysis: Analysis, title: str, call: Callable[..., list[Any]], more: Any, items: Mapping[int, Any], total: int
) -> Iterator[tuple[int, Any]]:
    """Results of a step for every unit as they come, by several processes; None where workers died over one."""
    run = analysis.run
    sent = replace(analysis, run=replace(run, progress=False))  # what is told of it may not be fit to be sent
    results = survivors(call, (sent, more), items, run.n_jobs, most_tasks=MAX_TASKS)
    with ProgressBar(run.progress, title) as advance, closing(results):
        done = total - len(items)
        advance(done, total)
        for k, result in results:
            yield k, result
            done += 1
            advance(done, total)


def _examined(
    analysis: Analysis, checkpoint: Checkpoint | None, known: Mapping[int, Examined]
) -> tuple[dict[int, Examined], bool]:
    """Distributions and, in memory, tests of all units; one that fails costs no other. And whether Ctrl-C came."""
    n_units = len(analysis.table.units)
    analysis.warn_silent()
    found = dict(known)
    left = {k: seeds for k, seeds in analysis.seeds.items() if k not in found}
    title = "Testing features" if analysis.table.whole else "Fitting distributions of features"
    try:
        for k, examined in _every_unit(analysis, title, _examine_units, checkpoint, left, n_units):
            found[k] = Examined(failure=WORKER_DIED) if examined is None else examined
            if checkpoint is not None and not found[k].failure:
                checkpoint.save_missing(k, found[k])
    except KeyboardInterrupt:
        if checkpoint is not None:  # workers may have saved more than they handed on
            found = {**checkpoint.load(), **found}
        if not found:
            raise
        return found, True
    if all(examined.failure for examined in found.values()):
        raise WorkerError(f"no feature could be tested: {found[0].failure}")
    return {k: found[k] for k in range(n_units)}, False


def _examine_units(
    analysis: Analysis, checkpoint: Checkpoint | None, pairs: list[tuple[int, UnitSeeds]]
) -> list[tuple[int, Examined]]:
    """What is found of some units; warnings travel with each, and so does what went wrong."""
    found = []
    for k, seeds in pairs:
        unit = analysis.table.units[k]
        try:
            # One thread, so that results do not depend on how many workers there are.
            with one_thread(), collected() as messages:
                examined = analysis.examine(unit, seeds)
            examined = replace(examined, messages=tuple(messages))
        except Exception as error:
            examined = Examined(failure=failure_of(error, unit.name))
        if checkpoint is not None and not examined.failure:
            checkpoint.save_here(k, examined)
        found.append((k, examined))
    return found


def _explained(
    analysis: Analysis, examined: Mapping[int, Examined], importance: Mapping[int, float] | None
) -> tuple[dict[int, Finding], bool]:
    """Findings with explanations; Ctrl-C leaves the rest out, and tests are kept. And whether it came."""
    seeds, n_units = analysis.seeds, len(examined)
    items = {k: (own, seeds[k]) for k, own in examined.items()}
    found: dict[int, Finding] = {}
    try:
        given = _explain_units, importance, items, n_units
        for k, finding in _every_unit(analysis, "Explaining features", *given):
            lost = analysis.unexplained(k, examined[k], importance or {}, WORKER_DIED)
            found[k] = lost if finding is None else finding
    except KeyboardInterrupt:
        warn(
            f"interrupted: all features are tested, but {n_units - len(found)} of {n_units} not explained",
        )
        return found, True
    return found, False


def _explain_units(
    analysis: Analysis,
    importance: Mapping[int, float] | None,
    pairs: list[tuple[int, tuple[Examined, UnitSeeds]]],
) -> list[tuple[int, Finding]]:
    """Units with their explanations; one that fails costs neither its test nor another's explanation."""
    found = []
    for k, (examined, seeds) in pairs:
        try:
            with one_thread(), collected() as messages:
                finding = analysis.explained(analysis.table.units[k], seeds, examined, importance)
            finding = replace(finding, messages=(*examined.messages, *messages))
        except Warning:
            raise  # those that the user has made errors
        except Exception as error:
            finding = analysis.unexplained(k, examined, importance or {}, described(error))
        found.append((k, finding))
    return found


def _tested_in_passes(
    analysis: Analysis, table: Table, pieces: Pieces, examined: dict[int, Examined]
) -> tuple[dict[int, Examined], dict[int, float], OverlapSums]:
    """Tests of the features of a longer table by sums over all rows, importance of its columns, and overlap."""
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
        tests = _resampled(analysis, pieces, plan, examined, sums)
    else:
        tests = {k: _by_sums(analysis, own, sums.features[k]) for k, own in examined.items()}
    examined = {k: replace(own, **_tested(tests[k])) for k, own in examined.items()}
    return examined, {m: values[m, OBSERVED] for m in plan.columns}, sums.overlap_of_clusters


def _tested(test: Outcome | str | None) -> dict[str, Any]:
    """The fields of a feature's test, or of why there is none."""
    return {"outcome": None, "failure": test} if isinstance(test, str) else {"outcome": test}


def _plan(analysis: Analysis, examined: Mapping[int, Examined]) -> Plan:
    """What is sent to those who add up rows."""
    table, models, units, seeds = analysis.table, analysis.models, analysis.table.units, analysis.seeds
    one_row = table.scored(models.propensity).part(np.arange(1))
    first = one_row.nuisances
    analytic, importance = analysis.analytic, analysis.explainer.importance
    if analytic is not None:
        tested = [unit.feature for k, unit in enumerate(units) if examined[k].rule is not None]
        analytic = analytic.remembering(tested).at(first)
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


def _by_sums(analysis: Analysis, examined: Examined, sums: Any) -> Outcome | str | None:
    """The test of one unit by its sums; why there is none where it could not be tested."""
    if examined.failure or sums.failure:
        return examined.failure or sums.failure
    if examined.rule is None:
        return examined.outcome
    return outcome_of(sums, examined.reuse, analysis.table.freedom, two_sided=analysis.run.statistic.two_sided)


def _resampled(
    analysis: Analysis, pieces: Pieces, plan: Plan, examined: Mapping[int, Examined], sums: Sums
) -> dict[int, Outcome | str | None]:
    """Compare every feature of a longer table with resampled copies of it; the outcome, or why there is none."""
    run, table, models, block = analysis.run, analysis.table, analysis.models, analysis.table.block
    follows, features = run.statistic.follows_scores, {}
    keys = table.stream(run, "features").generate_state(block.table.n_features, np.uint64).tolist()
    places = {unit.members[0]: k for k, unit in enumerate(table.units)}
    for m, k in places.items():
        rule = examined[k].rule
        if rule is not None and m in plan.columns:
            values = models.propensity.profile_values(m) if follows else None
            features[m] = plan.columns[m].resampled(rule, keys[m], follows=follows, profile=values)
    first = table.scored(models.propensity).part(np.arange(1)).nuisances
    work = MeasuringPass(plan.scoring, models.prepared.at(first), features)
    sizes = {m: size_of(column) for m, column in zip(plan.columns, sums.columns, strict=True)}
    with ProgressBar(run.progress) as advance:
        n_resamples, n_rows = run.max_resamples(len(table.units)), table.data.schema.n_rows
        found = resampled_tests(pieces, work, run.test, n_resamples, n_rows, advance, sizes)
    return {k: found.get(m, examined[k].failure or examined[k].outcome) for m, k in places.items()}


def _concluded(
    analysis: Analysis,
    findings: list[Finding],
    overlap: OverlapSums,
    seed: np.random.SeedSequence,
    *,
    interrupted: bool,
) -> Tested:
    """What was found of the whole table, and on record."""
    run, table, models = analysis.run, analysis.table, analysis.models
    block, units, propensity, data = table.block, table.units, models.propensity, table.data
    names = tuple(unit.name for unit in units)
    tell(names, findings)
    untested = {block.table.names[m] for m in table.copies} | data.left_out
    untested |= warn_constant_members(block.table, units)
    overview = Overview()
    if run.explain and not interrupted:
        overview = analysis.explainer.overview(units, data.schema.n_rows, seed)
    randomised = design_of(run, data).randomised
    return Tested(
        names=names,
        kinds=[unit.kind(block.table) for unit in units],
        findings=findings,
        named=frozenset(untested),
        overlap=overlap.overlap(propensity),
        overview=overview,
        score_histogram=overlap.score_histogram(),
        columns=review_columns(
            propensity,
            block.y,
            randomised=randomised,
            population=run.population,
            clusters=block.clusters,
            outcome_name=data.recorded.get("outcome_name"),
            positive=run.outcome_transform == "log",
            levels=data.outside,
        ),
        columns_in=data.columns_in,
        settings=_recorded(analysis, randomised=randomised),
        interrupted=interrupted,
    )


def _recorded(analysis: Analysis, *, randomised: bool) -> dict[str, Any]:
    """What a result records beyond the selector's arguments."""
    run, table, models, outcomes = analysis.run, analysis.table, analysis.models, analysis.explainer.outcomes
    data, schema, block = table.data, table.data.schema, table.block
    known, n_explained, n_units = data.recorded, outcomes.rows.size, len(table.units)
    kind = run.family(block.y, block.treatment).kind
    n_resamples = run.max_resamples(n_units)
    needed = run.test.needed_resamples(n_units, run.alpha, run.adjust) if n_resamples else 0
    return {
        "n_resamples_used": n_resamples or getattr(run.statistic, "check_resamples", 0) * table.whole,
        "n_resamples_needed": needed,
        "model": getattr(models.prepared, "description", None),
        **data_settings(schema.arm_labels, schema.n_rows, schema.n_treated, models.propensity, run.seed),
        **known,
        "design": design_settings(design_of(run, data), models.propensity.raw),
        "null_hypothesis": null_hypothesis(
            run.statistic,
            run.sampler,
            adjusted="adjust_for" in known,
            strata="n_strata" in known,
            groups=bool(run.feature_groups),
            kind=kind,
            effect_scale=run.effect_scale,
        ),
        "outcome_kind": kind,
        **group_settings(run.feature_groups, block.table, table.units),
        **({"outcome_levels": True} if outcomes.levels else {}),
        **({"n_explained_rows": n_explained} if n_explained < schema.n_rows else {}),
        **_baseline(table, models.propensity, randomised=randomised),
        **({} if table.repeated is None else {"repeated_rows": table.repeated.settings}),
    }


def _baseline(table: Table, propensity: FittedPropensity, *, randomised: bool) -> dict[str, Any]:
    """What is recorded of tested columns that are called like the outcome before the treatment."""
    return baseline_settings(
        propensity,
        randomised=randomised,
        tested=[table.block.table.names[m] for unit in table.units for m in unit.members],
        clusters=table.block.clusters,
        outcome_name=table.data.recorded.get("outcome_name"),
    )
