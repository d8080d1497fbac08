"""Validation of results read from files: their settings and the consistency of their parts; errors name the path."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypedDict

import numpy as np
import pandas as pd

from modifind.result.concerns import KINDS as CHECKS
from modifind.result.files import Cell, check_entries, column_type, decode, refuse

Named = TypedDict("Named", {"class": str})


class _Model(TypedDict):
    likelihood: str
    n_folds: int
    stack: str


class _Weights(TypedDict):
    effective_rows: float


class _OutcomeWeights(_Weights):
    n_missing: int
    share_missing: float
    times_sample_weight: bool


class _Clusters(TypedDict):
    n_clusters: int


class _Said(TypedDict):
    randomised: bool
    said: bool
    chance: Literal["known", "strata", "observed", "fitted"]


class _Design(_Said, total=False):
    share: float


class _OfEvery(TypedDict):
    alpha: float
    adjust: Literal["bh", "by", "holm", "bonferroni", "none"]
    n_rows: int
    n_treated: int
    n_control: int
    treated_label: Cell
    control_label: Cell
    propensity_model: str
    null_hypothesis: str
    seed: int


class Settings(_OfEvery, total=False):
    """Types of the settings that reports, figures and messages use; a result may have further ones."""

    design: _Design
    propensity_clip: list[float]
    population: Literal["all", "overlap"]
    outcome_name: str
    better: Literal["higher", "lower"] | None
    unit: str | None
    treatment_name: str
    max_train_rows: int | None
    n_train_rows: int
    n_rows_dropped: int
    adjust_for: list[str] | None
    feature_groups: dict[str, list[str]] | None
    group_column_kinds: dict[str, Literal["continuous", "discrete"]]
    model: _Model | None
    sample_weight: _Weights
    clusters: _Clusters
    outcome_weights: _OutcomeWeights


class _Repeated(Named):
    cv_repeats: int


class _Kernel(Named):
    weighting: str
    estimator: str
    resample_weights: str
    weight_cap: float | None
    weight_quantile: float | None


class _ByLikelihood(TypedDict):
    model: _Model
    statistic: _Repeated
    sampler: Named


class _ByResampling(TypedDict):
    statistic: Named
    sampler: Named
    n_resamples_used: int


class _ByKernel(TypedDict):
    statistic: _Kernel
    sampler: Named
    n_resamples_used: int


class _BySelection(TypedDict):
    sided: str
    penalty: float | None
    penalty_factor: float
    n_active: int
    n_columns: int
    outcome_learner: str


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise a RecordError for settings that contradict the kind of test or that no run can have had.

    Raises
    ------
    ValueError
        Names the entry, what was expected and what was found.
    """
    decode(settings, _of_test(settings), "settings")
    if not 0.0 < settings["alpha"] < 1.0:
        refuse("settings.alpha", "a number between 0 and 1", settings["alpha"])
    for limit in settings.get("propensity_clip", ()):
        if not 0.0 <= limit <= 1.0:
            refuse("settings.propensity_clip", "numbers from 0 to 1", limit)
    for name in ("n_rows", "n_treated", "n_control"):
        if settings[name] < 0:
            refuse(f"settings.{name}", "a number of rows", settings[name])


def _of_test(settings: Mapping[str, Any]) -> Any:
    if settings.get("method") == "si_em":
        return _BySelection
    if settings.get("model"):
        return _ByLikelihood
    statistic = settings.get("statistic")
    name = statistic.get("class") if isinstance(statistic, Mapping) else None
    return _ByLikelihood if name == "EffectLikelihood" else _ByKernel if name == "WCMMD" else _ByResampling


FEATURE = "a feature of table.index"
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
    """Raise a RecordError if the parts of a result contradict each other.

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
    for table_name in ("diagnostics", "changes", "pit_histogram"):
        index = list(getattr(result, table_name).index)
        if index != features and (index or table_name == "diagnostics"):
            raise ValueError(f"{table_name}.index: expected the features of table.index, in the same order")
    _check_whole(result, features)
    _check_columns(result)
    _check_explanations(result)
    _check_checks(result, features)


def _check_features(features: list[Any], kinds: list[Any]) -> None:
    _check_each("table.index", features, lambda name: isinstance(name, str), "text")
    _check_each("table.columns.kind", kinds, KINDS.__contains__, _one_of(KINDS))
    if len(set(features)) < len(features):
        raise ValueError("table.index: a feature appears twice")


def _check_selected(table: pd.DataFrame) -> None:
    """Refuse a feature that is marked as selected without having been tested."""
    wanted = "a number, as the feature is selected"
    for name in ("p_value", "p_adjusted"):
        for position in np.flatnonzero(table["selected"] & table[name].isna()):
            raise ValueError(f"table.columns.{name}[{position}]: expected {wanted}, found NaN")


def _check_columns(result: Any) -> None:
    """Check that every feature, or every column of a feature group, has a curve and a kind."""
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
    """Check that tests have known names and subgroups belong to features."""
    _check_each("tests.index", result.tests.index, TESTS.__contains__, _one_of(TESTS))
    _check_each("subgroups.columns.feature", result.subgroups["feature"], features.__contains__, FEATURE)
    for name in ("n_treated", "n_control"):
        _check_each(f"subgroups.columns.{name}", result.subgroups[name], lambda count: count >= 0, "a number of rows")


def _check_checks(result: Any, features: list[Any]) -> None:
    known = [None, *features, *(result.settings.get("adjust_for") or ())]  # columns that are checked, too
    _check_each("checks.columns.name", result.checks["name"], CHECKS.__contains__, "a kind of check")
    named = [name if isinstance(name, str | None) else math.nan for name in result.checks["feature"]]
    _check_each("checks.columns.feature", named, known.__contains__, f"{FEATURE} or null")


def _check_explanation(path: str, frame: pd.DataFrame) -> None:
    """Check a numeric table, usually along the values of a column; limits must come in pairs."""
    for name in frame.columns:
        kind, pair = column_type(frame[name]), LIMIT.sub(lambda end: OTHER_LIMIT[end[0]], name)
        if pair not in frame:
            raise ValueError(f"{path}.columns: {name} without {pair}")
        if name in PLACES and kind == "float":
            _check_each(f"{path}.columns.{name}", frame[name], lambda x: not math.isinf(x), "a finite number, or 'NaN'")
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
                wanted = "a number from 0 to 1, or 'NaN'"
                _check_each(f"{path}.columns.{name}", frame[name], lambda p: math.isnan(p) or 0 <= p <= 1, wanted)


def _check_each(path: str, values: Iterable[Any], good: Callable[[Any], bool], wanted: str) -> None:
    for position, value in enumerate(values):
        if not good(value):
            refuse(f"{path}[{position}]", wanted, value)


def _one_of(names: tuple[str, ...]) -> str:
    return f"one of {', '.join(map(repr, names))}"
