"""What the parts of a result must have in common that no type says, and messages that name the place."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from modifind.result.check_kinds import KINDS as CHECKS
from modifind.result.codec import check_entries, column_type, refuse
from modifind.result.settings import check_settings

KINDS = ("continuous", "discrete", "group")
TESTS = ("mean", "distribution", "modification")
EXPLANATIONS = ("curves", "densities", "bounds", "bound_tests")
PLACES = ("value", "outcome")
LABELS = ("value", "quantity", "part")  # columns that need not be numbers
OVERLAP = ("effective_rows_treated", "effective_rows_control", "extreme_share", "auc")
OVERLAP_POPULATION = ("overlap_rows_treated", "overlap_rows_control", "outside_share_treated", "outside_share_control")
LIMIT, OTHER_LIMIT = re.compile("(_low|_high)$"), {"_low": "_high", "_high": "_low"}
PROBABILITY = re.compile(r"(^|_)p(_value|_adjusted)?$|_adjusted$")


def check_consistency(result: Any) -> None:
    """Refuse a result whose parts do not belong together.

    Parameters
    ----------
    result : SelectionResult
        As it was read.

    Raises
    ------
    ValueError
        Names the place in the file, what was expected and what was found.
    """
    check_settings(result.settings)
    features = list(result.table.index)
    _check_features(features, list(result.table["kind"]))
    _check_selected(result.table)
    if result.by_arm is None:
        _check_two_arms(result, features)
    for label, contrast in (result.by_arm or {}).items():
        _check_contrast(label, contrast, features)
    _check_probabilities(result)


def _check_contrast(label: str, contrast: Any, features: list[Any]) -> None:
    if contrast.by_arm is not None or list(contrast.table.index) != features:
        raise ValueError(f"by_arm.{label}: expected a result of two arms with the features of table.index")
    try:
        check_consistency(contrast)
    except ValueError as error:
        raise ValueError(f"by_arm.{label}.{error}") from None


def _check_two_arms(result: Any, features: list[Any]) -> None:
    even = result.settings.get("population") == "overlap" or OVERLAP_POPULATION[0] in result.overlap
    check_entries(result.overlap, OVERLAP + OVERLAP_POPULATION * even, "overlap")
    for part in ("diagnostics", "changes", "pit_histogram"):
        index = list(getattr(result, part).index)
        if index != features and (index or part == "diagnostics"):
            raise ValueError(f"{part}.index: expected the features of table.index, in the same order")
    _check_whole(result, features)
    _check_columns(result)
    _check_explanations(result)
    _check_checks(result, features)


def _check_features(features: list[Any], kinds: list[Any]) -> None:
    for place, (name, kind) in enumerate(zip(features, kinds, strict=True)):
        if not isinstance(name, str):
            refuse(f"table.index[{place}]", "text", name)
        if kind not in KINDS:
            refuse(f"table.columns.kind[{place}]", f"one of {', '.join(map(repr, KINDS))}", kind)
    if len(set(features)) < len(features):
        raise ValueError("table.index: a feature appears twice")


def _check_selected(table: pd.DataFrame) -> None:
    """What is selected has been tested."""
    for name in ("p_value", "p_adjusted"):
        lacking = table["selected"] & table[name].isna()
        if lacking.any():
            place = int(np.flatnonzero(lacking)[0])
            raise ValueError(f"table.columns.{name}[{place}]: expected a number, as the feature is selected, found NaN")


def _check_columns(result: Any) -> None:
    """Every feature, or every column of one that is a group, has a curve and a kind."""
    kinds = result.table["kind"].to_dict()
    columns = {column: name for name in kinds for column in result.groups.get(name, [name])}
    for column, name in columns.items():
        if column not in result.curves:
            raise ValueError(f"curves: no curve of {column!r}, which is of the feature {name!r} of table.index")
        if {**kinds, **result.settings.get("group_column_kinds", {})}.get(column, "group") == "group":
            raise ValueError(f"settings.group_column_kinds: no kind of {column!r}, which is of the group {name!r}")
    for column in result.curves:
        if column not in columns:
            raise ValueError(f"curves.{column}: table.index has no such feature")


def _check_explanations(result: Any) -> None:
    for part in EXPLANATIONS:
        for column, frame in getattr(result, part).items():
            if column not in result.curves:
                raise ValueError(f"{part}.{column}: curves has no such column")
            if frame.empty and part != "curves":
                raise ValueError(f"{part}.{column}: no rows")
            _check_explanation(f"{part}.{column}", frame)


def _check_whole(result: Any, features: list[Any]) -> None:
    """Tests are those that there are, and subgroups those of features."""
    for place, name in enumerate(result.tests.index):
        if name not in TESTS:
            refuse(f"tests.index[{place}]", f"one of {', '.join(map(repr, TESTS))}", name)
    for place, name in enumerate(result.subgroups["feature"]):
        if name not in features:
            refuse(f"subgroups.columns.feature[{place}]", "a feature of table.index", name)
    for name in ("n_treated", "n_control"):
        for place, count in enumerate(result.subgroups[name]):
            if count < 0:
                refuse(f"subgroups.columns.{name}[{place}]", "a number of rows", int(count))


def _check_checks(result: Any, features: list[Any]) -> None:
    known = [None, *features, *(result.settings.get("adjust_for") or ())]  # columns that are checked, too
    for place, (name, feature) in enumerate(zip(result.checks["name"], result.checks["feature"], strict=True)):
        if name not in CHECKS:
            refuse(f"checks.columns.name[{place}]", "a kind of check", name)
        if not isinstance(feature, str | None) or feature not in known:
            refuse(f"checks.columns.feature[{place}]", "a feature of table.index or null", feature)


def _check_explanation(path: str, frame: pd.DataFrame) -> None:
    """A table of numbers, mostly along the values of a column; limits come in pairs."""
    for name in frame.columns:
        kind, pair = column_type(frame[name]), LIMIT.sub(lambda end: OTHER_LIMIT[end[0]], name)
        if pair not in frame:
            raise ValueError(f"{path}.columns: {name} without {pair}")
        if name in PLACES and kind == "float":
            _check_all(f"{path}.columns.{name}", frame[name], ~np.isinf(frame[name]), "a finite number, or 'NaN'")
        wanted = ("bool",) if name == "low_support" else ("float", "int")
        if name not in LABELS and kind not in wanted and len(frame):
            refuse(f"{path}.types.{name}", repr(wanted[0]), kind)


def _check_probabilities(result: Any) -> None:
    frames = {part: getattr(result, part) for part in ("table", "diagnostics", "changes", "tests", "subgroups")}
    frames |= {f"bound_tests.{column}": frame for column, frame in result.bound_tests.items()}
    if result.placebo is not None:
        frames["placebo.table"] = result.placebo.table
        if not 0.0 <= result.placebo.chance <= 1.0:
            refuse("placebo.chance", "a number from 0 to 1", result.placebo.chance)
    for path, frame in frames.items():
        for name in frame.columns:
            if PROBABILITY.search(name) and column_type(frame[name]) == "float":
                good = frame[name].isna() | frame[name].between(0.0, 1.0)
                _check_all(f"{path}.columns.{name}", frame[name], good, "a number from 0 to 1, or 'NaN'")


def _check_all(path: str, values: pd.Series[Any], good: pd.Series[bool], wanted: str) -> None:
    for place in np.flatnonzero(~good):
        refuse(f"{path}[{place}]", wanted, float(values.iloc[place]))
