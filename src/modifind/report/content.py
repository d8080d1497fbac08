"""What the report says: the answer, the table, notices and checks, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pandas as pd

from modifind.charts.importance import ImportanceDisplay
from modifind.charts.labels import Words, shortened, with_limits
from modifind.result.check_kinds import KINDS as CHECK_KINDS
from modifind.result.selection_result import NOT_TESTED, PARTS, SelectionResult, readable_number, readable_p

MOST_NAMES = 8
MOST_NAME = 400.0  # pixels
MOST_BARS = 30
KINDS = {"continuous": "number", "discrete": "categories", "group": "group of columns"}
UNTESTED = ("constant", "rare", "determined", "failed", "unreached")  # kinds of checks that only such features fail
CONTROL = {
    "bh": "the expected share of false discoveries is held at {level} (Benjamini-Hochberg)",
    "by": "the expected share of false discoveries is held at {level} (Benjamini-Yekutieli)",
    "holm": "the chance of any false discovery is held at {level} (Holm)",
    "bonferroni": "the chance of any false discovery is held at {level} (Bonferroni)",
    "none": "p-values are not adjusted for the number of features (level {level})",
}


def answer(result: SelectionResult) -> str:
    """The result in two sentences."""
    return " ".join(answer_sentences(result))


def answer_sentences(result: SelectionResult) -> tuple[str, str]:
    """What was found, and how it was looked for."""
    chosen, settings, words = result.selected, result.settings, Words.of(result)
    tested = f"{n_tested(result)}"
    if settings.get("interrupted"):
        tested = f"Only {tested} of {len(result.table)}"
    features = "feature was" if tested == "1" else "features were"
    control = CONTROL[settings["adjust"]].format(level=f"{100 * settings['alpha']:g}%")
    size = f"{tested} {features} tested on {settings['n_rows']:,} rows; {control}"
    if not chosen:
        doubt = "A change too small to see may still be there."
        return f"No feature was found to change {words.works}.", f"{size}. {doubt}"
    return f"{_listed(chosen)} {'changes' if len(chosen) == 1 else 'change'} {words.works}.", f"{size}."


def comparisons(result: SelectionResult) -> list[tuple[str, SelectionResult]]:
    """Results of two arms with what they are called: the result itself, or every arm against the reference."""
    if result.by_arm is None:
        return [("", result)]
    return [(f"{label} against {result.settings['control_label']}", own) for label, own in result.by_arm.items()]


def n_tested(result: SelectionResult) -> int:
    """How many features were tested: not those that are constant, too rare, determined by others, or not reached."""
    untested = [_untested(own) for _, own in comparisons(result)]
    return len(result.table) - len(set.intersection(*untested))


def _untested(result: SelectionResult) -> set[Any]:
    failed = result.checks[~result.checks["passed"].to_numpy(dtype=bool)]
    without = {*failed.loc[failed["name"].isin(UNTESTED), "feature"]}
    return without | {*result.table.index[result.table["p_value"].isna()]}


def facts(result: SelectionResult) -> list[tuple[str, str]]:
    """The size of the analysis in a few numbers."""
    s = result.settings
    shown = [("rows", f"{s['n_rows']:,}")]
    shown += [(f"in {Words.of(own).treated}", f"{own.settings['n_treated']:,}") for _, own in comparisons(result)]
    shown += [
        (f"in {Words.of(result).control}", f"{s['n_control']:,}"),
        ("features tested", f"{n_tested(result):,}"),
        ("change the effect", f"{len(result.selected):,}"),
    ]
    for title, own in comparisons(result):
        words, overall = Words.of(own), own.overall
        about = title or words.whom
        if math.isfinite(overall.get("mean_effect", math.nan)):
            effect, low, high = (float(overall.get(f"mean_effect{end}", math.nan)) for end in ("", "_low", "_high"))
            if words.is_ratio:
                shown.append((f"{words.effect}, {about}", f"\u00d7 {with_limits(effect, low, high)}"))
            elif words.log:
                text = f"\u00d7 {with_limits(math.exp(effect), math.exp(low), math.exp(high))}"
                shown.append((f"average effect as a ratio, {about}", text))
            else:
                shown.append((f"average effect, {about}", with_limits(effect, low, high)))
    return shown


def verdict(result: SelectionResult, name: str) -> str:
    """What a feature changes, in one sentence; of several arms one for each whose effect it changes."""
    if result.by_arm:
        chosen = {label: own for label, own in result.by_arm.items() if bool(own.table.loc[name, "selected"])}
        told = " ".join(f"{label}: {verdict(own, name)}" for label, own in chosen.items())
        tested = any(verdict(own, name) != NOT_TESTED for own in result.by_arm.values())
        return told or (_plain_verdict(result, name) if tested else NOT_TESTED)
    said = result.changes["verdict"].get(name) if len(result.changes) else None
    if isinstance(said, str) and said:
        return said
    return _plain_verdict(result, name)


def _plain_verdict(result: SelectionResult, name: str) -> str:
    row: Any = result.table.loc[name]
    if math.isnan(float(row["p_value"])):
        return NOT_TESTED
    return "Changes the effect." if row["selected"] else "No change found."


def meanings(result: SelectionResult) -> list[tuple[str, str, str]]:
    """Name, address and verdict of each selected feature."""
    return [(name, anchor(name), verdict(result, name)) for name in map(str, result.selected)]


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
        ("importance", "importance", "How much the distance between the arms varies along it"),
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
    effect = effect_column(result)
    if effect:
        columns.append(("effect", effect["title"], effect["note"]))
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
            "importance": _cell(readable_number(float(row["importance"])), row["importance"]),
            "p_value": _cell(readable_p(float(row["p_value"])), row["p_value"]),
            "p_adjusted": _cell(readable_p(float(row["p_adjusted"])), row["p_adjusted"]),
            "effect": _cell(_effect_text(row), row.get("likelihood_gain", row.get("coef", math.nan))),
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
    found = zip(Words.of(result).parts, (_part(result, name, part) for part in PARTS), strict=True)
    return [
        {"title": title, "mark": selected and p <= result.settings["alpha"], "text": f"p = {readable_p(p)}"}
        for title, p in found
        if not math.isnan(p)
    ]


def _part(result: SelectionResult, name: str, part: str) -> float:
    if name not in result.changes.index or f"{part}_adjusted" not in result.changes:
        return math.nan
    found: Any = result.changes.loc[name, f"{part}_adjusted"]
    return float(found)


def importance_bars(result: SelectionResult) -> list[dict[str, Any]]:
    """All selected features and the most important others; none that were not tested."""
    shown = ImportanceDisplay.from_result(result, max_features=MOST_BARS)
    most = max(shown.importance.tolist(), default=0.0)
    return [
        {
            "name": name,
            "anchor": anchor(name),
            "share": f"{100 * max(importance, 0.0) / most:.1f}" if most > 0 else "0",
            "selected": selected,
            "p": readable_p(p_adjusted),
            "value": readable_number(importance),
        }
        for name, importance, p_adjusted, selected in zip(
            shown.names, shown.importance.tolist(), shown.p_adjusted.tolist(), shown.selected.tolist(), strict=True
        )
    ]


def effect_column(result: SelectionResult) -> dict[str, str] | None:
    """Heading and explanation of the effect sizes that the test gives, if it gives any."""
    if "likelihood_gain" in result.table:
        return {
            "title": "nats per row",
            "note": "Nats per row, with a 95% interval: how much better held-out outcomes are predicted with the "
            "feature than without it, as far as it moves the effect.",
        }
    if "coef" in result.table:
        level = 100 * (1 - result.settings["alpha"])
        return {
            "title": "mean effect per unit",
            "note": f"Mean effect per unit, with a {level:g}% interval given the selection: how much the mean effect "
            "changes with one unit of the feature, or at its most significant level.",
        }
    return None


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


def n_checks(result: SelectionResult) -> int:
    """How many kinds of check were made that bear on validity."""
    return int(result.checks.loc[result.checks["validity"].astype(bool), "name"].nunique())


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


def _effect_text(row: Any) -> str:
    if "likelihood_gain" in row:
        size, low, high = (round(float(row[name]), 3) + 0.0 for name in ("likelihood_gain", "gain_low", "gain_high"))
        return f"{size:.3f} ({low:.3f} to {high:.3f})" if size == size else "not tested"
    if "coef" in row:
        size, low, high = (float(row[name]) for name in ("coef", "ci_low", "ci_high"))
        return f"{size:.3g} ({low:.3g} to {high:.3g})" if size == size else "not in the lasso"
    return ""


def _cell(text: str, value: float) -> dict[str, Any]:
    return {"text": text, "sort": "" if math.isnan(float(value)) else repr(float(value))}


def _listed(names: list[str]) -> str:
    shown = [shortened(name, MOST_NAME) for name in names[:MOST_NAMES]]
    if len(names) > MOST_NAMES:
        return f"{', '.join(shown)} and {len(names) - MOST_NAMES} more features"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
