"""Content of the report: the methods paragraph with references, and tables."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import pandas as pd
from jinja2 import Environment, PackageLoader, Template

from modifind.charts.labels import Words, number, typographic
from modifind.data.words import counted
from modifind.result.concerns import KINDS as CHECK_KINDS
from modifind.result.concerns import control_sentence
from modifind.result.presentation import MIN_SUPPORT, N_DRAWS, effect_name, scale_of
from modifind.result.selection_result import NOT_TESTED, PARTS, SelectionResult, by_significance, p_text, readable_p

ASSUMED_OBSERVATIONAL = "Taken as observational: design='randomised' (--randomised) declares a trial."


def design_sentence(settings: Mapping[str, Any]) -> str:
    """The assumed design, and how to declare it if it was not declared; empty if not on record."""
    design = settings.get("design")
    if not design:
        return ""
    return design_methods(settings) if design["said"] else ASSUMED_OBSERVATIONAL


def design_methods(settings: Mapping[str, Any]) -> str:
    """How treatment was assigned, or that the design was not declared."""
    design = settings.get("design")
    if not design:
        return ""
    otherwise = "not randomised (observational)" if design["said"] else "taken as not randomised"
    return f"The treatment was {'randomised' if design['randomised'] else otherwise}{_chance(settings, design)}."


def _chance(settings: Mapping[str, Any], design: Mapping[str, Any]) -> str:
    """Source of the treatment probabilities."""
    share, chance = design.get("share"), design["chance"]
    if "n_strata" in settings:
        return f" within {settings['n_strata']} strata"
    if chance == "observed":
        shown = "shares" if share is None else f"share, {share:.2f}"
        return f"; the probability of treatment was taken as the observed {shown}"
    if chance == "fitted":
        return "; the probability of treatment was estimated from the features"
    return (
        ", with known probabilities of treatment"
        if share is None
        else f"; the probability of treatment is known, {share:.3g}"
    )


def methods(result: SelectionResult) -> str:
    """The methods of a result as a paragraph for a paper."""
    settings, shown = result.settings, next(iter(result.by_arm.values())) if result.by_arm else result
    (kind, scale), statistic = scale_of(settings), settings.get("statistic") or {}
    text = _template().render(
        s=settings,
        arms=list(result.by_arm or ()),
        kind=kind,
        scale=scale,
        scale_name=effect_name(kind, scale),
        risk_name=effect_name("binary", scale),
        design=design_methods(settings),
        doubt=control_sentence(settings),
        parameters=[f"{name} = {value}" for name, value in statistic.items() if name != "class"],
        caps=_caps(statistic),
        bands=_has_bands(shown),
        tests=shown.tests.index,
        has_changes=len(shown.changes) > 0,
        n_parts=sum(shown.changes[f"{part}_p"].notna().any() for part in PARTS) if len(shown.changes) else 0,
        amounts=scale_of(shown.settings)[0] == "amount",
        bounds=shown.bounds,
        placebo=result.placebo,
        versions=", ".join(f"{name} {number}" for name, number in result.versions.items()),
    )
    return " ".join(text.split())


def references(result: SelectionResult) -> list[str]:
    """References for the methods that were used."""
    s, bands, model = result.settings, _has_bands(result), result.settings.get("model")
    selective, known = s.get("method") == "si_em", json.loads(template_text("references.json"))
    used = {
        **dict.fromkeys(("si_em", "lee"), selective),
        **dict.fromkeys(("paper", "crt"), not selective),
        **dict.fromkeys(("saddlepoint", "cauchy"), model),
        s["adjust"]: s["adjust"] in known,
        "doubly_robust": bands and (model or len(result.changes)),
        **dict.fromkeys(("simes", "selective"), bool(result.by_arm)),
        "overlap_weights": bands and s.get("population") == "overlap",
        "kernel": "distribution" in result.tests.index,
        "makarov": result.bounds,
    }
    return [known[name] for name, cited in used.items() if cited]


def template_text(name: str) -> str:
    """Text of a file among the report's templates."""
    return (files("modifind.report") / "templates" / name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    environment = Environment(loader=PackageLoader("modifind.report"), autoescape=False)
    environment.filters["fmt"] = format
    environment.globals |= {"counted": counted, "n_draws": N_DRAWS, "min_support": MIN_SUPPORT}
    return environment.get_template("methods.txt")


def _has_bands(result: SelectionResult) -> bool:
    results = (result.by_arm or {"": result}).values()
    return any("mean_effect_low" in curve for contrast in results for curve in contrast.curves.values())


def _caps(statistic: Mapping[str, Any]) -> list[str]:
    """Caps on the weights of the statistic, if any."""
    cap, quantile = statistic.get("weight_cap"), statistic.get("weight_quantile")
    limits = [f"{cap:g}"] if cap is not None else []
    return limits + ([f"the {quantile:g} quantile of their arm"] if quantile is not None else [])


KINDS = {"continuous": "number", "discrete": "categories", "group": "group of columns"}
UNTESTED = ("constant", "rare", "determined", "failed", "unreached")  # kinds of checks that only such features fail


def comparisons(result: SelectionResult) -> list[tuple[str, SelectionResult]]:
    """Two-arm results with their titles: the result itself, or every arm against the reference."""
    if result.by_arm is None:
        return [("", result)]
    reference = result.settings["control_label"]
    return [(f"{label} against {reference}", contrast) for label, contrast in result.by_arm.items()]


def n_tested(result: SelectionResult) -> int:
    """Number of features tested: without constant, too rare, determined and unreached ones."""
    untested = [_untested(contrast) for _, contrast in comparisons(result)]
    return len(result.table) - len(set.intersection(*untested))


def _untested(result: SelectionResult) -> set[Any]:
    failed = result.checks[~result.checks["passed"].to_numpy(dtype=bool)]
    without = {*failed.loc[failed["name"].isin(UNTESTED), "feature"]}
    return without | {*result.table.index[result.table["p_value"].isna()]}


def verdict(result: SelectionResult, name: str) -> str:
    """One sentence about what a feature changes; with several arms, one for each whose effect it changes."""
    if result.by_arm:
        arms = result.by_arm.items()
        verdicts = " ".join(f"{label}: {verdict(arm, name)}" for label, arm in arms if arm.table.loc[name, "selected"])
        tested = any(verdict(contrast, name) != NOT_TESTED for contrast in result.by_arm.values())
        return verdicts or (_plain_verdict(result, name) if tested else NOT_TESTED)
    said = result.changes["verdict"].get(name) if len(result.changes) else None
    if isinstance(said, str) and said:
        return typographic(said)
    return _plain_verdict(result, name)


def _plain_verdict(result: SelectionResult, name: str) -> str:
    row: Any = result.table.loc[name]
    if math.isnan(float(row["p_value"])):
        return NOT_TESTED
    return "Changes the effect." if row["selected"] else "No change found."


def prognostic(result: SelectionResult) -> list[str]:
    """Features that predict the outcome but are not modifiers, the most certain first."""
    if "role" not in result.table:
        return []
    names = result.table.index[result.table["role"] == "prognostic"]
    if "prognostic_p_value" not in result.diagnostics:  # several arms
        return [str(name) for name in names]
    return [str(name) for name in result.diagnostics.loc[names, "prognostic_p_value"].sort_values(kind="stable").index]


def anchor(name: str) -> str:
    """Fragment identifier of a feature's panel in the page.

    Examples
    --------
    >>> anchor("blood pressure")
    'feature=blood%20pressure'
    """
    return "feature=" + quote(str(name), safe="", errors="replace")


def is_adjusted(result: SelectionResult) -> bool:
    """Whether p-values are adjusted for the number of features."""
    return bool(result.settings["adjust"] != "none")


def download(result: SelectionResult) -> pd.DataFrame:
    """The table with everything the page says about features, including the verdict."""
    if not len(result.changes):
        return result.wide_table
    return result.table.join(result.changes.rename(columns={"verdict": "what_changes"}))


def table_columns(result: SelectionResult) -> list[dict[str, Any]]:
    """Headings of the table: their explanations and sort types."""
    columns = [
        ("feature", "feature", ""),
        ("kind", "kind", ""),
        ("p_value", "p", "P-value of the test of this feature, given all others"),
    ]
    if is_adjusted(result):
        columns.append(("p_adjusted", "adjusted p", "P-value adjusted for the number of features"))
    words = Words.of(result)
    asked = ("the average effect", "the spread", "the shape of the distribution")
    if words.kind == "amount":
        asked = ("the effect on whether there is any", "the effect on how much there is", asked[2])
    for part, title, what in zip(PARTS, words.parts, asked, strict=True):
        if result.changes.get(f"{part}_adjusted", pd.Series(dtype=float)).notna().any():
            columns.append((part, title, f"Adjusted p-value: does it change {what}?"))
    if result.by_arm:
        columns.append(("arms", "arms", "Arms whose effect it changes, by p-values adjusted over features and arms"))
    if "coef" in result.table:
        columns.append(("effect", *effect_column(result)))
    if "caution" in result.table and bool((result.table["caution"] != "").any()):
        columns.append(("caution", "caution", "Checks of the feature that failed"))
    texts = ("feature", "kind", "arms", "caution")
    return [{"key": key, "title": title, "hint": hint, "number": key not in texts} for key, title, hint in columns]


def table_rows(result: SelectionResult) -> list[dict[str, Any]]:
    """Rows of the table, most significant first; each cell has its text, its sort key and a mark."""
    table = by_significance(result.table)
    alpha = float(result.settings["alpha"])
    rows = []
    for name, row in table.iterrows():
        cells: dict[str, dict[str, Any]] = {
            "feature": {"text": str(name), "sort": str(name).lower()},
            "kind": {"text": KINDS.get(str(row["kind"]), str(row["kind"])), "sort": str(row["kind"])},
            "p_value": _cell(readable_p(float(row["p_value"])), row["p_value"]),
            "p_adjusted": _cell(readable_p(float(row["p_adjusted"])), row["p_adjusted"]),
            "effect": _cell(_effect_text(row), row.get("coef", math.nan)),
            **{key: {"text": str(row.get(key, "")), "sort": str(row.get(key, ""))} for key in ("arms", "caution")},
        }
        for part in PARTS:
            p = _part(result, str(name), part)
            mark = p <= alpha and bool(row["selected"])
            cells[part] = {**_cell("" if math.isnan(p) else readable_p(p), p), "mark": mark}
        rows.append({"name": str(name), "anchor": anchor(str(name)), "selected": bool(row["selected"]), "cells": cells})
    return rows


def change_marks(result: SelectionResult, name: str) -> list[dict[str, Any]]:
    """Whether the feature changes average, spread and shape, with adjusted p-values."""
    selected = bool(result.table.loc[name, "selected"])
    p_values = [_part(result, name, part) for part in PARTS]
    return [
        {"title": title, "mark": selected and p <= result.settings["alpha"], "text": p_text(p)}
        for title, p in zip(Words.of(result).parts, p_values, strict=True)
        if not math.isnan(p)
    ]


def _part(result: SelectionResult, name: str, part: str) -> float:
    if name not in result.changes.index or f"{part}_adjusted" not in result.changes:
        return math.nan
    p_value: Any = result.changes.loc[name, f"{part}_adjusted"]
    return float(p_value)


def effect_column(result: SelectionResult) -> tuple[str, str]:
    """Heading and explanation of the effects from selective inference."""
    level = 100 * (1 - result.settings["alpha"])
    return (
        "average effect per unit",
        f"Average effect per unit, with a {level:g}% interval given the selection: how much the average effect changes "
        "with one unit of the feature, or at its most significant level.",
    )


def technical_table(result: SelectionResult) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the test's internals, in the order of the table of features."""
    titles = {"statistic": "statistic", "importance": "importance", "likelihood_gain": "likelihood gain (95% interval)"}
    known = {name: title for name, title in titles.items() if name in result.table}
    rows = []
    for name, row in by_significance(result.table).iterrows():
        cells = [_gain_text(row) if column == "likelihood_gain" else _number(row[column]) for column in known]
        rows.append([str(name), *cells])
    return ["feature", *known.values()], rows


def checks_by_kind(result: SelectionResult) -> list[dict[str, Any]]:
    """Outcome of every kind of check: all failures, or else the one closest to failing.

    Those that bear on validity come first, failures before the others.
    """
    kinds = []
    for name, rows in result.checks.groupby("name", sort=False):
        failed, bears = rows[~rows["passed"]], bool(rows["validity"].iloc[0])
        texts = list(failed["text"]) if len(failed) else [_passed_text(rows)]
        title = CHECK_KINDS[str(name)].title if str(name) in CHECK_KINDS else str(name)
        state = "passed" if not len(failed) else "failed" if bears else "note"
        remedy = str(failed["remedy"].iloc[0]) if len(failed) else ""
        kinds.append({"title": title, "validity": bears, "state": state, "texts": texts, "remedy": remedy})
    return sorted(kinds, key=lambda kind: (not kind["validity"], kind["state"] == "passed"))


def setting_rows(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Settings as names and texts; nested settings are prefixed by the name of their parent."""
    rows: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            rows += setting_rows(value, f"{prefix}{name}.")
        else:
            listed = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            rows.append((f"{prefix}{name}", listed))
    return rows


def _passed_text(rows: pd.DataFrame) -> str:
    if rows["feature"].isna().all():
        return " ".join(rows["text"])
    worst = rows["text"].iloc[int((rows["value"] - rows["threshold"]).abs().to_numpy().argmin())]
    return f"Fine for all {len(rows)} features. Nearest to the limit: {worst}" if len(rows) > 1 else str(worst)


def _gain_text(row: Any) -> str:
    size, low, high = (float(row[name]) for name in ("likelihood_gain", "gain_low", "gain_high"))
    return "not tested" if math.isnan(size) else typographic(f"{size + 0.0:.3f} ({low + 0.0:.3f} to {high + 0.0:.3f})")


def _effect_text(row: Any) -> str:
    size, low, high = (float(row.get(name, math.nan)) for name in ("coef", "ci_low", "ci_high"))
    return "not in the lasso" if math.isnan(size) else f"{number(size)} ({number(low)} to {number(high)})"


def _number(value: Any) -> str:
    return "" if math.isnan(float(value)) else number(float(value))


def _cell(text: str, value: float) -> dict[str, Any]:
    return {"text": text, "sort": "" if math.isnan(float(value)) else repr(float(value))}
