"""Several arms: each is compared with the reference in a two-arm analysis, and the results are combined.

A contrast analyses the rows of its two arms with the same seed, so that ``fit(..., arms=(reference, label))``
reproduces it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from modifind._warned import collected, warn
from modifind._workers import Progress
from modifind.data.column_types import treatment_name
from modifind.data.containers import as_column, is_distributed, is_known
from modifind.data.sources import FileSource, is_source
from modifind.data.treatment import Comparison, compare_arms, label_counts
from modifind.data.words import counted
from modifind.engine.checkpoint import seed_of
from modifind.engine.findings import MODIFIER, PROGNOSTIC, reselected
from modifind.engine.job import FitResult, Job
from modifind.engine.reading import Given
from modifind.engine.record import installed_versions
from modifind.inference.adjust import adjust_contrasts, adjust_p_values, simes_p_values
from modifind.result.placebo_result import PlaceboResult
from modifind.result.presentation import merged_texts
from modifind.result.selection_result import SelectionResult

MAX_LABEL_IN_FOLDER = 40  # characters


def fit_arms(params: dict[str, Any], given: Given) -> FitResult:
    """Fit two arms, or each of several against the reference; `params` are validated settings."""
    comparison = compared(given, params["propensity"])
    if comparison is not None:
        return fit_contrasts(params, given, comparison)
    with Job.locked(params) as job:
        return job.fit(given)


def placebo_arms(params: dict[str, Any], given: Given, n: int) -> tuple[PlaceboResult | None, bool]:
    """Placebo runs of two arms, or of each of several against the reference, and whether Ctrl-C ended them early."""
    comparison = compared(given, params["propensity"])
    if comparison is not None:
        return placebo_contrasts(params, given, comparison, n)
    with Job.locked(params) as job:
        return job.placebo(given, n)


def compared(given: Given, propensity: Any) -> Comparison | None:
    """The arms to compare, if the user named a reference, arms or shares; None for a plain two-arm treatment."""
    if given.reference is None and given.arms is None and not isinstance(propensity, Mapping):
        return None
    columns, name = _treatment(given)
    labels = {"treated": given.treated, "reference": given.reference, "arms": given.arms}
    comparison = compare_arms(label_counts(columns), **labels, name=name)
    if isinstance(propensity, Mapping):
        for label in comparison.others:
            comparison.share(label, propensity, name)
    elif len(comparison.others) > 1 and (is_known(propensity) or "propensity" in getattr(given.X, "more", ())):
        raise ValueError(
            "propensity is the probability of one of two arms; with several arms give the share of each, "
            "propensity={label: share}, or compare two of them (arms=)"
        )
    return comparison


def _treatment(given: Given) -> tuple[Iterable[pd.Series[Any]], str]:
    """The treatment, in pieces, and its name in messages."""
    X, treatment = given.X, given.treatment
    if isinstance(X, FileSource):
        column_alone = FileSource(X.files, (X.treatment,), X.treatment, X.treatment, piece_rows=X.piece_rows)
        name = treatment_name(pd.Series(name=X.treatment, dtype=object))
        return (piece.treatment for piece in column_alone.pieces()), name
    if is_distributed(X):
        partitions = (partition.compute() for partition in treatment.to_delayed(optimize_graph=False))
        return partitions, treatment_name(pd.Series(name=treatment.name, dtype=object))
    if is_source(X):
        return (piece.treatment for piece in X.pieces()), "treatment"
    if treatment is None:
        raise ValueError("treatment is required: pass treatment=, one label per row")
    column = as_column(treatment, "treatment")
    return [column], treatment_name(column)


def fit_contrasts(params: dict[str, Any], given: Given, comparison: Comparison) -> FitResult:
    """Fit every contrast and combine the results.

    After Ctrl-C the result has the contrasts completed so far, and a partial result of the current one. Raises
    KeyboardInterrupt if there is nothing yet.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C before there was anything.
    """
    fits: dict[str, FitResult] = {}
    messages: dict[str, list[str]] = {}
    interrupted = False
    try:
        for label, settings in _settings_of_contrasts(params, comparison):
            with collected() as messages[str(label)]:
                try:
                    with _contrast_named(comparison, label), Job.locked(settings) as job:
                        fits[str(label)] = job.fit(replace(given, **comparison.pair(label)))
                    interrupted = fits[str(label)].interrupted
                except KeyboardInterrupt:
                    interrupted = True
            if interrupted:
                break
    finally:
        texts = merged_texts(messages, comparison.reference)
        for text in texts:
            warn(text)
    if not fits:
        raise KeyboardInterrupt
    columns, result, _ = next(iter(fits.values()))
    if len(comparison.others) > 1:
        if interrupted:
            texts.append(f"interrupted: {len(fits)} of {counted(len(comparison.others), 'contrast')} begun or done")
            warn(texts[-1])
        results = {label: fitted.result for label, fitted in fits.items()}
        result = combined(results, comparison, texts, params["alpha"], params["adjust"])
    return FitResult(columns, result, interrupted)


def placebo_contrasts(
    params: dict[str, Any], given: Given, comparison: Comparison, n: int
) -> tuple[PlaceboResult | None, bool]:
    """Placebo runs of every contrast, combined run by run, and whether Ctrl-C ended them early."""
    results: dict[str, PlaceboResult] = {}
    for label, settings in _settings_of_contrasts(params, comparison):
        with _contrast_named(comparison, label), Job.locked(settings) as job:
            results[str(label)], interrupted = job.placebo(replace(given, **comparison.pair(label)), n)
        if len(comparison.others) == 1:
            return results[str(label)], interrupted
        if interrupted:
            return None, True
    return combined_placebos(results, params["alpha"], params["adjust"]), False


def contrast_settings(params: dict[str, Any], comparison: Comparison, label: Any) -> dict[str, Any]:
    """Settings of one contrast: the selector's, with the share of the arm if shares are known."""
    if not isinstance(params["propensity"], Mapping):
        return params
    return params | {"propensity": comparison.share(label, params["propensity"])}


def _settings_of_contrasts(params: dict[str, Any], comparison: Comparison) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Label and settings of every contrast: a common seed, a part of the progress bar, a folder of its own."""
    n_contrasts = len(comparison.others)
    if n_contrasts == 1:
        yield comparison.others[0], contrast_settings(params, comparison, comparison.others[0])
        return
    folders = [_folder(params["checkpoint"], number, label) for number, label in enumerate(comparison.others)]
    seed = seed_of(params["random_state"], folders[0])
    for number, label in enumerate(comparison.others):
        progress = _share_of(params["progress"], number, n_contrasts)
        changed = {"random_state": seed, "checkpoint": folders[number], "progress": progress}
        yield label, contrast_settings(params, comparison, label) | changed


@contextmanager
def _contrast_named(comparison: Comparison, label: Any) -> Iterator[None]:
    """Add the name of the contrast to errors, if there are several."""
    try:
        yield
    except ValueError as error:
        if len(comparison.others) == 1:
            raise
        raise ValueError(f"{error} (in the comparison of {label!r} with {comparison.reference!r})") from error


def _folder(checkpoint: Any, number: int, label: Any) -> Path | None:
    if checkpoint is None:
        return None
    return Path(checkpoint) / f"arm-{number + 1}-{re.sub(r'[^A-Za-z0-9.]+', '-', str(label))[:MAX_LABEL_IN_FOLDER]}"


def _share_of(progress: bool | Progress, number: int, n_contrasts: int) -> bool | Progress:
    """Map the progress of one contrast to the progress of all."""
    if not callable(progress):
        return progress
    return lambda done, total: progress(number * total + done, n_contrasts * total)


def combined(
    results: Mapping[str, SelectionResult], comparison: Comparison, messages: Iterable[str], alpha: float, adjust: str
) -> SelectionResult:
    """Combine the contrasts into one result: does a feature modify any of them, and which?

    Contrasts that were not reached count as if nothing had been selected there.
    """
    features = next(iter(results.values())).table.index
    columns = {label: result.table["p_value"] for label, result in results.items()}
    p_values = pd.DataFrame(columns, index=features, columns=[str(label) for label in comparison.others], dtype=float)
    omnibus = simes_p_values(p_values)
    adjusted = adjust_p_values(np.where(np.isnan(omnibus), 1.0, omnibus), adjust)
    within = pd.DataFrame(
        adjust_contrasts(p_values.fillna(1.0), adjusted, alpha, adjust), index=features, columns=p_values.columns
    )
    by_arm = {label: reselected(result, within[label], alpha, adjust) for label, result in results.items()}
    chosen = (adjusted <= alpha) & ~np.isnan(omnibus)
    return SelectionResult(
        table=_table(by_arm, omnibus, np.where(np.isnan(omnibus), np.nan, adjusted), chosen),
        diagnostics=p_values.add_prefix("p_value of "),
        curves={},
        overlap={},
        settings=_settings(by_arm, comparison),
        versions=installed_versions(),
        warnings=tuple(messages),
        placebo=_placebo(by_arm, comparison, alpha, adjust),
        by_arm=by_arm,
    )


def _table(by_arm: Mapping[str, SelectionResult], omnibus: Any, adjusted: Any, chosen: Any) -> pd.DataFrame:
    """Table of features; importance and statistic are those of the contrast with the smallest p-value."""
    tables = [result.table for result in by_arm.values()]
    best = np.array([table["p_value"].fillna(2.0) for table in tables]).argmin(axis=0)
    rows = np.arange(best.size)
    predicts = np.array([table["role"] == PROGNOSTIC for table in tables]).any(axis=0)
    cautions = ([str(table["caution"].iloc[m]) for table in tables] for m in rows)
    arms = ([label for label, result in by_arm.items() if result.table["selected"].iloc[m]] for m in rows)
    return pd.DataFrame(
        {
            "kind": np.array([table["kind"] for table in tables], dtype=object)[best, rows],
            **{name: np.array([table[name] for table in tables])[best, rows] for name in ("importance", "statistic")},
            "p_value": omnibus,
            "p_adjusted": adjusted,
            "selected": chosen,
            "role": np.where(chosen, MODIFIER, np.where(predicts, PROGNOSTIC, "")),
            "arms": [", ".join(labels) for labels in arms],
            "caution": ["; ".join(dict.fromkeys(filter(None, texts))) for texts in cautions],
        },
        index=tables[0].index,
    )


def _settings(by_arm: Mapping[str, SelectionResult], comparison: Comparison) -> dict[str, Any]:
    """Settings that the contrasts share, and the sizes of all arms."""
    settings = dict(next(iter(by_arm.values())).settings)
    n_treated = {label: int(result.settings["n_treated"]) for label, result in by_arm.items()}
    n_control = max(int(result.settings["n_control"]) for result in by_arm.values())
    models = {label: str(result.settings["propensity_model"]) for label, result in by_arm.items()}
    for name in ("n_rows_other_arms", "propensity_r2", "propensity_known"):
        settings.pop(name, None)
    if settings.get("model"):
        stacks = "; ".join(f"{label}: {result.settings['model']['stack']}" for label, result in by_arm.items())
        settings["model"] = {**settings["model"], "stack": stacks}
    if any(result.settings.get("interrupted") for result in by_arm.values()) or len(by_arm) < len(comparison.others):
        settings["interrupted"] = True
    design = {name: value for name, value in settings["design"].items() if name != "share"}
    return settings | {
        "design": design,
        "reference": comparison.reference,
        "arms": {str(comparison.reference): n_control, **n_treated},
        "treated_label": " or ".join(map(str, comparison.others)),
        "control_label": comparison.reference,
        "n_rows": n_control + sum(n_treated.values()),
        "n_treated": sum(n_treated.values()),
        "n_control": n_control,
        "propensity_model": "; ".join(f"{label}: {model}" for label, model in models.items()),
    }


def _placebo(
    by_arm: Mapping[str, SelectionResult], comparison: Comparison, alpha: float, adjust: str
) -> PlaceboResult | None:
    placebos = {label: result.placebo for label, result in by_arm.items() if result.placebo is not None}
    return combined_placebos(placebos, alpha, adjust) if len(placebos) == len(comparison.others) else None


def combined_placebos(by_arm: Mapping[str, PlaceboResult], alpha: float, adjust: str) -> PlaceboResult:
    """Combine the placebo runs of several contrasts, run by run, as if they were of one table."""
    tables = [placebo.table.set_index(["run", "feature"])["p_value"] for placebo in by_arm.values()]
    joined = pd.concat(tables, axis=1, join="inner")
    table = pd.Series(simes_p_values(joined), index=joined.index, name="p_value").reset_index()
    by_run = table.groupby("run", sort=False)["p_value"]
    table["selected"] = by_run.transform(lambda p_values: adjust_p_values(p_values.fillna(1.0), adjust)) <= alpha
    first = next(iter(by_arm.values()))
    drawn = "; ".join(dict.fromkeys(placebo.drawn for placebo in by_arm.values()))
    return PlaceboResult(table, first.n_asked, first.chance, f"in every comparison of two arms {drawn}")
