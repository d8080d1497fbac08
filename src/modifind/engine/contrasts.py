"""Several arms: each against the reference by an analysis of two arms, and what they say together.

A contrast is the analysis of the rows of its two arms with the same seed, so that ``fit(..., arms=(reference, label))``
gives it again.
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
from modifind.data.column_types import treatment_name
from modifind.data.containers import as_column, is_distributed, is_known
from modifind.data.several_arms import Comparison, compare_arms, label_counts
from modifind.data.sources import FileSource, is_source
from modifind.data.wording import counted
from modifind.engine.assemble import MODIFIER, PROGNOSTIC, reselected
from modifind.engine.job import Fitted, Job
from modifind.engine.progress import Progress
from modifind.engine.reading import Given
from modifind.engine.record import installed_versions
from modifind.engine.resuming import seed_of
from modifind.inference.adjust import adjust_p_values, simes_p_values
from modifind.inference.contrasts import adjust_contrasts
from modifind.result.placebo_result import PlaceboResult
from modifind.result.selection_result import SelectionResult
from modifind.result.several_arms import merged_texts

LONGEST_FOLDER = 40


def fit_arms(params: dict[str, Any], given: Given) -> Fitted:
    """Fit two arms, or each of several with the reference; `params` are settings that have been checked."""
    comparison = compared(given, params["propensity"])
    if comparison is not None:
        return fit_contrasts(params, given, comparison)
    with Job.locked(params) as job:
        return job.fit(given)


def placebo_arms(params: dict[str, Any], given: Given, n: int) -> tuple[PlaceboResult | None, bool]:
    """Placebo runs of two arms, or of each of several with the reference, and whether Ctrl-C came before the end."""
    comparison = compared(given, params["propensity"])
    if comparison is not None:
        return placebo_contrasts(params, given, comparison, n)
    with Job.locked(params) as job:
        return job.placebo(given, n)


def compared(given: Given, propensity: Any) -> Comparison | None:
    """Which arms are compared, where the user named a reference, arms or shares; None for the arms as they are."""
    if given.reference is None and given.arms is None and not isinstance(propensity, Mapping):
        return None
    columns, name = _treatment(given)
    named = {"treated": given.treated, "reference": given.reference, "arms": given.arms}
    found = compare_arms(label_counts(columns), **named, name=name)
    if isinstance(propensity, Mapping):
        for label in found.others:
            found.share(label, propensity, name)
    elif len(found.others) > 1 and (is_known(propensity) or "propensity" in getattr(given.X, "more", ())):
        raise ValueError(
            "propensity is the probability of one of two arms; with several arms give the share of each, "
            "propensity={label: share}, or compare two of them (arms=)"
        )
    return found


def _treatment(given: Given) -> tuple[Iterable[pd.Series[Any]], str]:
    """The treatment, in pieces, and what messages call it."""
    X, treatment = given.X, given.treatment
    if isinstance(X, FileSource):
        own = FileSource(X.files, (X.treatment,), X.treatment, X.treatment, piece_rows=X.piece_rows)
        return (piece.treatment for piece in own.pieces()), treatment_name(pd.Series(name=X.treatment, dtype=object))
    if is_distributed(X):
        parts = (part.compute() for part in treatment.to_delayed(optimize_graph=False))
        return parts, treatment_name(pd.Series(name=treatment.name, dtype=object))
    if is_source(X):
        return (piece.treatment for piece in X.pieces()), "treatment"
    if treatment is None:
        raise ValueError("treatment is required: pass treatment=, one label per row")
    column = as_column(treatment, "treatment")
    return [column], treatment_name(column)


def fit_contrasts(params: dict[str, Any], given: Given, comparison: Comparison) -> Fitted:
    """Fit every contrast; what they say together.

    After Ctrl-C the result has the contrasts that were done by then, and what there is of the one under way.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C before there was anything.
    """
    fits: dict[str, Fitted] = {}
    messages: dict[str, list[str]] = {}
    interrupted = False
    try:
        for label, own in _settings_of_contrasts(params, comparison):
            with collected() as messages[str(label)]:
                try:
                    with _contrast_named(comparison, label), Job.locked(own) as job:
                        fits[str(label)] = job.fit(replace(given, **comparison.pair(label)))
                    interrupted = fits[str(label)].interrupted
                except KeyboardInterrupt:
                    interrupted = True
            if interrupted:
                break
    finally:
        told = merged_texts(messages, comparison.reference)
        for message in told:
            warn(message)
    if not fits:
        raise KeyboardInterrupt
    columns, result, _ = next(iter(fits.values()))
    if len(comparison.others) > 1:
        if interrupted:
            done = f"interrupted: {len(fits)} of {counted(len(comparison.others), 'contrast')} begun or done"
            warn(done)
            told = [*told, done]
        results = {label: own.result for label, own in fits.items()}
        result = combined(results, comparison, told, params["alpha"], params["adjust"])
    return Fitted(columns, result, interrupted)


def placebo_contrasts(
    params: dict[str, Any], given: Given, comparison: Comparison, n: int
) -> tuple[PlaceboResult | None, bool]:
    """Placebo runs of every contrast: what the runs of one number find together, unless Ctrl-C came before the end."""
    found: dict[str, PlaceboResult] = {}
    for label, own in _settings_of_contrasts(params, comparison):
        with _contrast_named(comparison, label), Job.locked(own) as job:
            found[str(label)], interrupted = job.placebo(replace(given, **comparison.pair(label)), n)
        if len(comparison.others) == 1:
            return found[str(label)], interrupted
        if interrupted:
            return None, True
    return combined_placebos(found, params["alpha"], params["adjust"]), False


def contrast_settings(params: dict[str, Any], comparison: Comparison, label: Any) -> dict[str, Any]:
    """Settings of one contrast: the same, with the share of the arm where shares are known."""
    if not isinstance(params["propensity"], Mapping):
        return params
    return params | {"propensity": comparison.share(label, params["propensity"])}


def _settings_of_contrasts(params: dict[str, Any], comparison: Comparison) -> Iterator[tuple[Any, dict[str, Any]]]:
    """For every contrast its label and settings: the same seed, a part of the progress, a folder of its own."""
    n_contrasts = len(comparison.others)
    if n_contrasts == 1:
        yield comparison.others[0], contrast_settings(params, comparison, comparison.others[0])
        return
    folders = [_folder(params["checkpoint"], place, label) for place, label in enumerate(comparison.others)]
    seed = seed_of(params["random_state"], folders[0])
    for place, label in enumerate(comparison.others):
        progress = _part_of(params["progress"], place, n_contrasts)
        changed = {"random_state": seed, "checkpoint": folders[place], "progress": progress}
        yield label, contrast_settings(params, comparison, label) | changed


@contextmanager
def _contrast_named(comparison: Comparison, label: Any) -> Iterator[None]:
    """A refusal names the contrast where there are several."""
    try:
        yield
    except ValueError as error:
        if len(comparison.others) == 1:
            raise
        raise ValueError(f"{error} (in the comparison of {label!r} with {comparison.reference!r})") from error


def _folder(checkpoint: Any, place: int, label: Any) -> Path | None:
    if checkpoint is None:
        return None
    return Path(checkpoint) / f"arm-{place + 1}-{re.sub(r'[^A-Za-z0-9.]+', '-', str(label))[:LONGEST_FOLDER]}"


def _part_of(progress: bool | Progress, place: int, n_parts: int) -> bool | Progress:
    """The progress of one of several parts, as that of the whole."""
    if not callable(progress):
        return progress
    return lambda done, total: progress(place * total + done, n_parts * total)


def combined(
    results: Mapping[str, SelectionResult], comparison: Comparison, told: Iterable[str], alpha: float, adjust: str
) -> SelectionResult:
    """What contrasts say together: does a feature modify any of them, and which?

    Contrasts that were not reached count as if nothing had been found there.
    """
    features = next(iter(results.values())).table.index
    found = {label: own.table["p_value"] for label, own in results.items()}
    none = pd.Series(np.nan, index=features)
    p_values = pd.DataFrame({str(label): found.get(str(label), none) for label in comparison.others}, index=features)
    omnibus = simes_p_values(p_values)
    adjusted = adjust_p_values(np.where(np.isnan(omnibus), 1.0, omnibus), adjust)
    within = pd.DataFrame(
        adjust_contrasts(p_values.fillna(1.0), adjusted, alpha, adjust), index=features, columns=p_values.columns
    )
    by_arm = {label: reselected(own, within[label], alpha, adjust) for label, own in results.items()}
    chosen = (adjusted <= alpha) & ~np.isnan(omnibus)
    return SelectionResult(
        table=_table(by_arm, omnibus, np.where(np.isnan(omnibus), np.nan, adjusted), chosen),
        diagnostics=p_values.add_prefix("p_value of "),
        curves={},
        overlap={},
        settings=_settings(by_arm, comparison),
        versions=installed_versions(),
        warnings=tuple(told),
        placebo=_placebo(by_arm, comparison, alpha, adjust),
        by_arm=by_arm,
    )


def _table(by_arm: Mapping[str, SelectionResult], omnibus: Any, adjusted: Any, chosen: Any) -> pd.DataFrame:
    """The features; importance and statistic are those of the contrast with the smallest p-value."""
    tables = [own.table for own in by_arm.values()]
    best = np.array([own["p_value"].fillna(2.0) for own in tables]).argmin(axis=0)
    rows = np.arange(best.size)
    predicts = np.array([own["role"] == PROGNOSTIC for own in tables]).any(axis=0)
    cautions = ([str(own["caution"].iloc[m]) for own in tables] for m in rows)
    arms = ([label for label, own in by_arm.items() if own.table["selected"].iloc[m]] for m in rows)
    return pd.DataFrame(
        {
            "kind": np.array([own["kind"] for own in tables], dtype=object)[best, rows],
            **{name: np.array([own[name] for own in tables])[best, rows] for name in ("importance", "statistic")},
            "p_value": omnibus,
            "p_adjusted": adjusted,
            "selected": chosen,
            "role": np.where(chosen, MODIFIER, np.where(predicts, PROGNOSTIC, "")),
            "arms": [", ".join(own) for own in arms],
            "caution": ["; ".join(dict.fromkeys(filter(None, own))) for own in cautions],
        },
        index=tables[0].index,
    )


def _settings(by_arm: Mapping[str, SelectionResult], comparison: Comparison) -> dict[str, Any]:
    """Settings that the contrasts share, and the sizes of all arms."""
    settings = dict(next(iter(by_arm.values())).settings)
    n_treated = {label: int(own.settings["n_treated"]) for label, own in by_arm.items()}
    n_control = max(int(own.settings["n_control"]) for own in by_arm.values())
    models = {label: str(own.settings["propensity_model"]) for label, own in by_arm.items()}
    for name in ("n_rows_other_arms", "propensity_r2", "propensity_known"):
        settings.pop(name, None)
    if settings.get("model"):
        stacks = "; ".join(f"{label}: {own.settings['model']['stack']}" for label, own in by_arm.items())
        settings["model"] = {**settings["model"], "stack": stacks}
    if any(own.settings.get("interrupted") for own in by_arm.values()) or len(by_arm) < len(comparison.others):
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
    found = {label: own.placebo for label, own in by_arm.items() if own.placebo is not None}
    return combined_placebos(found, alpha, adjust) if len(found) == len(comparison.others) else None


def combined_placebos(found: Mapping[str, PlaceboResult], alpha: float, adjust: str) -> PlaceboResult:
    """What placebo runs of several contrasts find together: runs of one number, as if they were one table."""
    tables = [own.table.set_index(["run", "feature"])["p_value"] for own in found.values()]
    both = pd.concat(tables, axis=1, join="inner")
    table = pd.Series(simes_p_values(both), index=both.index, name="p_value").reset_index()
    by_run = table.groupby("run", sort=False)["p_value"]
    table["selected"] = by_run.transform(lambda own: adjust_p_values(own.fillna(1.0), adjust)) <= alpha
    first = next(iter(found.values()))
    drawn = "; ".join(dict.fromkeys(own.drawn for own in found.values()))
    return PlaceboResult(table, first.n_asked, first.chance, f"in every comparison of two arms {drawn}")
