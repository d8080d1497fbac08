"""What the report says: the answer, the table, notices and checks, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pandas as pd

from modifind.charts.labels import Words, number, typographic
from modifind.result.check_kinds import KINDS as CHECK_KINDS
from modifind.result.selection_result import NOT_TESTED, PARTS, SelectionResult, p_text, readable_p

KINDS = {"continuous": "number", "discrete": "categories", "group": "group of columns"}
UNTESTED = ("constant", "rare", "determined", "failed", "unreached")  # kinds of checks that only such features fail


def comparisons(result: SelectionResult) -> list[tuple[str, SelectionResult]]:
    """Results of two arms with what they are called: the result itself, or every arm against the reference."""
    if result.by_arm is None:
        return [("", result)]
    reference = result.settings["control_label"]
    return [(f"{label} against {reference}", contrast) for label, contrast in result.by_arm.items()]


def n_tested(result: SelectionResult) -> int:
    """How many features were tested: not those that are constant, too rare, determined by others, or not reached."""
    untested = [_untested(contrast) for _, contrast in comparisons(result)]
    return len(result.table) - len(set.intersection(*untested))


def _untested(result: SelectionResult) -> set[Any]:
    failed = result.checks[~result.checks["passed"].to_numpy(dtype=bool)]
    without = {*failed.loc[failed["name"].isin(UNTESTED), "feature"]}
    return without | {*result.table.index[result.table["p_value"].isna()]}


def verdict(result: SelectionResult, name: str) -> str:
    """What a feature changes, in one sentence; of several arms one for each whose effect it changes."""
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
    """Features that predict the outcome and are no modifiers, the surest first."""
    if "role" not in result.table:
        return []
    names = result.table.index[result.table["role"] == "prognostic"]
    if "prognostic_p_value" not in result.diagnostics:  # several arms
        return [str(name) for name in names]
    return [str(name) for name in result.diagnostics.loc[names, "prognostic_p_value"].sort_values(kind="stable").index]


def anchor(name: str) -> str:
    """Where the panel of a feature is in the page: what follows # in its address.

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
    """The table with all that the page says of features beside it: what they change, and the verdict."""
    if not len(result.changes):
        return result.wide_table
    return result.table.join(result.changes.rename(columns={"verdict": "what_changes"}))


def table_columns(result: SelectionResult) -> list[dict[str, Any]]:
    """Headings of the table: what they mean and how they are sorted."""
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
    """Rows of the table, most significant first; each cell has its text, what it is sorted by and a mark."""
    table = result.table.sort_values(["p_value", "importance"], ascending=[True, False])
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
    """For average, spread and shape whether the feature changes it, and the adjusted p-value."""
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
    """Heading and explanation of the effects that selective inference gives."""
    level = 100 * (1 - result.settings["alpha"])
    return (
        "average effect per unit",
        f"Average effect per unit, with a {level:g}% interval given the selection: how much the average effect changes "
        "with one unit of the feature, or at its most significant level.",
    )


def technical_table(result: SelectionResult) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of what the test itself works with, in the order of the table of features."""
    titles = {"statistic": "statistic", "importance": "importance", "likelihood_gain": "likelihood gain (95% interval)"}
    known = {name: title for name, title in titles.items() if name in result.table}
    rows = []
    for name, row in result.table.sort_values(["p_value", "importance"], ascending=[True, False]).iterrows():
        cells = [_gain_text(row) if column == "likelihood_gain" else _number(row[column]) for column in known]
        rows.append([str(name), *cells])
    return ["feature", *known.values()], rows


def checks_by_kind(result: SelectionResult) -> list[dict[str, Any]]:
    """For every kind of check whether it passed, and what was found: all failures, or else the one nearest to one.

    Those that bear on validity come first, and of these the failed ones.
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
    """Settings as names and texts, those of parts under the name of the part."""
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
