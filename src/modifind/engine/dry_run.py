"""Dry run: how a table is read and what a fit would do with it, before any model is fitted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from joblib import effective_n_jobs

from modifind.data.features import outcome_values
from modifind.data.treatment import Comparison, Design
from modifind.data.words import shortened
from modifind.engine.contrasts import compared, contrast_settings
from modifind.engine.job import Job
from modifind.engine.placebo import Assignment
from modifind.engine.preparation import design_of
from modifind.engine.reading import Data
from modifind.engine.settings import RunSettings, read_call
from modifind.statistics.families import family_of

MAX_NAMES = 12
# Seconds of one process, from fits of 1,000 to 10,000 rows with 5 to 30 features: whatever the table, for every
# feature, and for every row of every feature.
BASE, PER_FEATURE, PER_CELL = 0.4, 0.07, 2.9e-5
EXPLANATION_FACTOR = 1.8  # times as long with explanations


def describe(params: dict[str, Any], *table: Any, **columns: Any) -> list[tuple[str, str]]:
    """The plan of a run as pairs of heading and line.

    Parameters
    ----------
    params : dict
        Settings of the selector.
    *table, **columns
        Arguments of its `fit`, the table in memory. What is wrong with them is told as `fit` would tell it.

    Examples
    --------
    >>> from modifind import ModifierSelector
    >>> from modifind.datasets import load_trial
    >>> trial, params = load_trial(), ModifierSelector().get_params()
    >>> for heading, line in describe(params, trial.X, trial.y, trial.treatment)[:2]:
    ...     print(f"{heading}: {line}")
    rows: 1,500
    treatment: drug: drug (treated) 733 rows, placebo (control) 767 rows
    """
    params, given = read_call(params, *table, **columns)
    comparison = compared(given, params["propensity"])
    arms: list[tuple[str, str]] = []
    if comparison is not None:
        params = contrast_settings(params, comparison, comparison.others[0])
        given = replace(given, **comparison.pair(comparison.others[0]))
        arms = _arms(comparison)
    data, run = Job.of(params).checked(given, weigh=False)
    frame, design = data.first_pass.sample.X, design_of(run, data)
    lines = [
        ("rows", f"{sum(comparison.counts.values()):,}" if arms and comparison is not None else _rows(data)),
        ("treatment", _treatment(data)),
        *arms,
        ("outcome", _outcome(data, run)),
        ("features, numbers", _features(data, "continuous")),
        ("features, categories", _features(data, "discrete")),
        ("adjusted for", f"{len(data.adjusted)}, not tested: {_listed(data.adjusted)}" if data.adjusted else ""),
        ("not tested", _untested(data, frame)),
        ("missing values", _gaps(frame)),
        ("tested as one", _listed([f"{name} ({', '.join(columns)})" for name, columns in run.feature_groups.items()])),
        *_rows_known(data),
        ("in pieces", _pieces(data, params["max_train_rows"]) if run.statistic.in_pieces else ""),
        ("design", _design(design)),
        ("propensity", _propensity(run.propensity.estimator, data, design)),
        ("test", _test(run)),
        ("placebo treatments", _placebos(data, params["placebo_runs"], design)),
        ("time", "" if run.max_resamples(len(data.units)) else _time(data, run, params["placebo_runs"])),
    ]
    return [(heading, line) for heading, line in lines if line]


def _arms(comparison: Comparison) -> list[tuple[str, str]]:
    """Rows of several arms, with a note that the other lines describe the first comparison."""
    if len(comparison.others) == 1:
        return []
    shown = [f"{label} {comparison.counts[label]:,} rows" for label in comparison.others]
    reference = f"reference {comparison.reference} {comparison.counts[comparison.reference]:,} rows"
    about = "each is compared with it; the other lines are those of the first comparison, the time too"
    return [("arms", f"{', '.join(shown)}; {reference}; {about}")]


def _rows(data: Data) -> str:
    n_rows, dropped = data.arms.size, data.first_pass.dropped
    n_passed = n_rows + dropped.n_dropped + dropped.n_weightless + dropped.n_other_arms
    n_passed += data.recorded.get("outcome_weights", {}).get("n_missing", 0)
    return f"{n_rows:,}" + (f" of {n_passed:,}; the others are left out" if n_passed > n_rows else "")


def _treatment(data: Data) -> str:
    schema, name = data.schema, data.recorded.get("treatment_name")
    control, treated = schema.arm_labels
    labels = ((treated, "treated", schema.n_treated), (control, "control", schema.n_rows - schema.n_treated))
    name = f"{name}: " if name else ""
    return name + ", ".join(f"{label} ({role}) {count:,} rows" for label, role, count in labels)


def _outcome(data: Data, run: RunSettings) -> str:
    y = outcome_values(data.first_pass.sample.y)
    kind = family_of(y, run.outcome, run.effect_scale).kind
    name = f"{data.recorded['outcome_name']}: " if "outcome_name" in data.recorded else ""
    compared = "" if run.effect_scale == "difference" else f"; arms compared by {run.effect_scale.replace('_', ' ')}s"
    if kind == "binary":
        high = y == y.max()
        counts = f"{y.min():g} in {int((~high).sum()):,} rows and {y.max():g} in {int(high.sum()):,}"
        return f"{name}two values, {counts}{compared}"
    what = {"count": "a count", "ordinal": "ordered levels", "amount": "an amount, often zero,"}.get(kind, "a number")
    scale = ", taken as its logarithm" if run.outcome_transform == "log" else ""
    return f"{name}{what} from {y.min():g} to {y.max():g}, {np.unique(y).size:,} distinct values{scale}{compared}"


def _features(data: Data, kind: str) -> str:
    """Number and names of the tested features of a kind."""
    table = data.block.table
    columns = [m for m in range(len(data.columns_in)) if table.kind(m) == kind and not table.is_constant(m)]
    tested = [(table.names[m], table.n_levels(m)) for m in columns if table.names[m] not in data.adjusted]
    names = [f"{name} ({levels} levels)" if levels else name for name, levels in tested]
    return f"{len(names)}: {_listed(names)}" if names else ""


def _untested(data: Data, frame: pd.DataFrame) -> str:
    """Untested features by reason."""
    by_reason: dict[str, list[str]] = {}
    for m, name in enumerate(data.block.table.names[: len(data.columns_in)]):
        if name in data.adjusted or not data.block.table.is_constant(m):
            continue
        reason = "the same in all rows"
        if name in data.left_out:
            distinct = 2 * frame.iloc[:, data.columns_in.index(name)].nunique() > len(frame)
            reason = "looks like an identifier" if distinct else "no two levels have rows enough in each arm"
        by_reason.setdefault(reason, []).append(name)
    return "; ".join(f"{_listed(names)}: {why}" for why, names in by_reason.items())


def _gaps(frame: pd.DataFrame) -> str:
    shown = _listed([f"{name} {count:,}" for name, count in frame.isna().sum().items() if count])
    return f"{shown}; missing is a state of its own" if shown else ""


def _pieces(data: Data, most: int) -> str:
    if data.arms.size <= most:
        return ""
    return f"models are fitted to a random sample of {most:,} rows, and all rows are scored"


def _test(run: RunSettings) -> str:
    adjusted = "unadjusted p-values" if run.adjust == "none" else f"p-values adjusted ({run.adjust})"
    name = run.statistic.name or type(run.statistic).__name__
    return f"{name}, sampler {type(run.sampler).__name__}; {adjusted}, level {run.alpha:g}"


def _placebos(data: Data, runs: int, design: Design) -> str:
    scores = np.full(data.arms.size, data.arms.mean())
    return f"{runs}; {Assignment.of(data, scores, design).described}" if runs else ""


def _rows_known(data: Data) -> list[tuple[str, str]]:
    lines, known = [], data.recorded
    if "n_strata" in known:
        lines.append(("strata", f"{known['n_strata']}; models and samplers condition on them"))
    if "outcome_weights" in known:
        weights = known["outcome_weights"]
        shown = f"missing in {weights['n_missing']:,} rows ({weights['share_missing']:.0%})"
        lines.append(("outcomes", f"{shown}; models of who has one would weight the others for them"))
    elif "sample_weight" in known:
        lines.append(("weights", f"worth {known['sample_weight']['effective_rows']:,.0f} rows that count alike"))
    if "clusters" in known:
        lines.append(
            ("clusters", f"{known['clusters']['n_clusters']:,}; rows of a cluster are not taken as independent")
        )
    return lines


def _design(design: Design) -> str:
    shown = "randomised" if design.randomised else "observational"
    return shown if design.said else f"taken as {shown}; design='randomised' or design='observational' declares it"


def _propensity(estimator: Any, data: Data, design: Design) -> str:
    if design.chance == "strata":
        return "share of treated rows in each stratum"
    if design.chance == "observed":
        return f"the observed share of treated rows, {data.schema.treated_share:.3g}"
    if isinstance(estimator, str):
        return f"{estimator}: fitted to the features"
    if hasattr(estimator, "fit"):
        return f"{type(estimator).__name__}, fitted to the features"
    return "known, one score per row" if np.ndim(estimator) else f"known, {float(estimator):g} for every row"


def _time(data: Data, run: RunSettings, placebos: int) -> str:
    n, d, n_jobs = data.arms.size, len(data.columns_in) - len(data.adjusted), effective_n_jobs(run.n_jobs)
    once = BASE + d * (PER_FEATURE + PER_CELL * n)
    seconds = once * (EXPLANATION_FACTOR if run.explain else 1.0) + once * placebos
    spread = f" with {n_jobs} processes" if n_jobs > 1 else ""
    about = _duration(seconds / min(n_jobs, max(d, 1)))
    return f"about {about}{spread}, as on the machine that this was measured on; networks take longer"


def _duration(seconds: float) -> str:
    """A duration rounded to its likely accuracy.

    Examples
    --------
    >>> _duration(3.2), _duration(47), _duration(400), _duration(9000)
    ('5 seconds', '50 seconds', '7 minutes', '2.5 hours')
    """
    if seconds < 60:
        step = 5 if seconds <= 20 else 10
        return f"{step * math.ceil(seconds / step)} seconds"
    return f"{math.ceil(seconds / 60)} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _listed(names: Sequence[str]) -> str:
    return shortened(names, MAX_NAMES)
