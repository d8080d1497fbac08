"""The record of a run: seed, settings, versions, reasons of failures, and a review of every column."""

from __future__ import annotations

import hashlib
import platform
import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd

from modifind._typing import Array
from modifind._version import __version__
from modifind.data.balance import ArmSums, Outside, outside_along
from modifind.data.clusters import Clusters, treated_as_one
from modifind.data.containers import is_distributed
from modifind.data.features import AdditionalDiscrete, FeatureTable, Unit, column_kinds
from modifind.data.outcome import OutcomeRanks, baseline_names
from modifind.data.treatment import Design
from modifind.data.weights import Weights, row_weights
from modifind.engine.settings import RunSettings
from modifind.explain.overview import described
from modifind.inference import ConditionalRandomizationTest
from modifind.nuisance.conditional import BaseSampler
from modifind.nuisance.propensity.scores import FittedPropensity
from modifind.result.presentation import effect_name
from modifind.statistics import Statistic

# The seed is recorded as such; the others change nothing.
UNRECORDED = ("random_state", "progress", "n_jobs", "checkpoint", "placebo_runs")


def entropy_of(random_state: Any) -> int:
    """One number that seeds everything; random for None."""
    if random_state is None:
        return secrets.randbits(128)
    if isinstance(random_state, int | np.integer):
        if random_state < 0:
            raise ValueError(f"random_state must not be negative; found {random_state}")
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    raise ValueError(f"random_state must be an integer, a Generator or None, not {type(random_state).__name__}")


def recorded_settings(
    params: dict[str, Any], statistic: Statistic, sampler: BaseSampler, test: ConditionalRandomizationTest
) -> dict[str, Any]:
    """The selector's arguments as plain values; statistic, sampler and test with their settings."""
    components = {"statistic": statistic, "sampler": sampler, "test": test}
    shown: dict[str, Any] = {}
    for name, value in params.items():
        if name in components:
            component = components[name]
            values = component.get_params() if hasattr(component, "get_params") else vars(component)
            shown[name] = {"class": type(component).__name__, **{k: readable(v) for k, v in values.items()}}
        elif name not in UNRECORDED:
            shown[name] = readable(value)
    return shown


def data_settings(
    arms: tuple[Any, ...], n_rows: int, n_treated: int, propensity: FittedPropensity, entropy: int
) -> dict[str, Any]:
    """Entries on the data, the propensity scores and the seed."""
    return {
        "seed": entropy,
        "propensity_model": propensity.description,
        **({"propensity_known": True, "propensity_r2": propensity.r2} if propensity.is_known else {}),
        **({"propensity_misfit": misfit} if (misfit := propensity.misfit_features) else {}),
        "control_label": arms[0],
        "treated_label": arms[1],
        "n_rows": n_rows,
        "n_treated": n_treated,
        "n_control": n_rows - n_treated,
        "propensity_clip": list(propensity.clip),
    }


def design_settings(design: Design, scores: Array) -> dict[str, Any]:
    """Entries on the design, with the probability of treatment if it is constant."""
    alike = design.chance in ("known", "observed") and bool((scores == scores[0]).all())
    share = {"share": float(scores[0])} if alike else {}
    return {"randomised": design.randomised, "said": design.said, "chance": design.chance, **share}


def null_hypothesis(run: RunSettings, kind: str, recorded: Mapping[str, Any]) -> str:
    """The null hypothesis in words, for a kind of outcome and the other recorded settings."""
    compared = run.statistic.null_hypothesis
    if run.effect_scale != "difference":
        compared = f"the {effect_name(kind, run.effect_scale)} between the arms does not depend on the feature"
        if kind == "amount":
            compared = "the arms' risk ratio of any and ratio of amounts above zero do not depend on the feature"
    conditions = {
        " given the other features": True,
        " and what is adjusted for": "adjust_for" in recorded,
        " and the stratum": "n_strata" in recorded,
        " and the treatment": run.statistic.resamples and getattr(run.sampler, "condition_on_treatment", True),
        " (the columns of a group counting as one feature)": bool(run.feature_groups),
    }
    return compared + "".join(text for text, holds in conditions.items() if holds)


def group_settings(
    groups: Mapping[str, tuple[str, ...]], table: FeatureTable, units: tuple[Unit, ...]
) -> dict[str, Any]:
    """Entries on feature groups; empty without any."""
    if not groups:
        return {}
    columns = {name: list(columns) for name, columns in groups.items()}
    return {"feature_groups": columns, "group_column_kinds": column_kinds(table, units)}


def readable(value: Any) -> Any:
    """A setting in a form that JSON supports and people can read."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | str | None) or (isinstance(value, float) and np.isfinite(value)):
        return value
    if isinstance(value, AdditionalDiscrete):
        return ["auto", *value.names]
    if is_distributed(value):
        return "one known value per row"
    if isinstance(value, np.ndarray | pd.Series) and len(value) > 20:
        return f"array of {len(value)} values"
    if isinstance(value, list | tuple | np.ndarray | pd.Series):
        return [readable(v) for v in value]
    return stable_repr(value)


def stable_repr(value: Any, depth: int = 3) -> str:
    """Text for an object by its class and attributes, equal in every process: without memory addresses."""
    code = getattr(value, "__code__", None)
    if code is not None:
        digest = hashlib.sha256(code.co_code + repr((code.co_consts, code.co_names)).encode()).hexdigest()[:12]
        return f"{value.__qualname__} {digest}"
    if isinstance(value, np.ndarray | pd.Series | pd.DataFrame):
        return f"array {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:12]}"
    text = repr(value)
    if " at 0x" not in text or depth == 0:
        return text
    if isinstance(value, list | tuple):
        return f"[{', '.join(stable_repr(item, depth - 1) for item in value)}]"
    held = vars(value) if hasattr(value, "__dict__") else {}
    return (
        f"{type(value).__name__}({', '.join(f'{name}={stable_repr(item, depth - 1)}' for name, item in held.items())})"
    )


def installed_versions() -> dict[str, str]:
    """Versions of modifind and its dependencies."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    versions = {"modifind": __version__, "python": platform.python_version()}
    for name in ("numpy", "scipy", "scikit-learn", "pandas", "torch"):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def failure_of(error: Exception, name: str) -> str:
    """Why a feature could not be tested; raises errors that the user can fix, with the feature's name.

    Examples
    --------
    >>> failure_of(MemoryError("no 8 GB"), "age")
    'its test failed (MemoryError: no 8 GB)'
    """
    mendable = isinstance(error, ValueError) and not isinstance(error, np.linalg.LinAlgError)
    if isinstance(error, Warning) or (mendable and repr(name) in str(error)):
        raise error
    if mendable:
        raise ValueError(f"feature {name!r}: {error}") from error
    return f"its test failed ({described(error)})"


REVIEW_COLUMNS = ("outside_share", "outside_where", "arm_difference", "arm_p_value", "outcome_share", "event_flag")
NONE_OUTSIDE = Outside(0.0, "")
MIN_BALANCE_P = 0.001  # p-value of a difference between the arms, below which a column was hardly measured before


def review_columns(
    scores: FittedPropensity,
    y: Array,
    *,
    randomised: bool,
    population: str = "all",
    clusters: Clusters | None = None,
    outcome_name: str | None = None,
    positive: bool = False,
    levels: Mapping[str, Outside] | None = None,
) -> pd.DataFrame:
    """Overlap along every column, and whether it looks like a post-treatment measurement.

    Parameters
    ----------
    scores : FittedPropensity
        Scores of the rows, with their features and treatment.
    y : array of shape (n,)
        Outcome.
    randomised : bool
        Whether the scores are how the treatment was given, and not an estimate of it.
    population : {"all", "overlap"}
        Whom effects are about.
    clusters : Clusters, optional
        Which rows belong together.
    outcome_name : str, optional
        What the outcome is called.
    positive : bool
        Whether the outcome was positive before it was transformed.
    levels : mapping, optional
        Rows without a counterpart before levels were pooled, by column; see `outside_levels`.

    Returns
    -------
    DataFrame
        One row per column: `outside_share`, the larger share of an arm's rows that lie where the other arm has hardly
        any, and `outside_where`, which rows these are; `arm_difference` and `arm_p_value`, how much randomised arms
        differ in it, in standard deviations; `outcome_share`, how nearly it and the outcome determine each other; and
        `event_flag`, 1 where it looks like a flag of the event that the outcome is the time of.
    """
    table, arms = scores.table, scores.treatment
    together = Clusters.of(clusters, arms.size)
    chances = scores.raw if randomised else np.full(arms.size, np.nan)
    sums = ArmSums(table, arms, chances, Weights.of(scores.weights, arms.size), together)
    outcome = OutcomeRanks.of(y, arms, outcome_name, positive=positive)
    counted = np.ones(arms.size)
    if population == "overlap":
        counted = row_weights(scores.scores, population) / np.where(arms == 1, scores.scores, 1.0 - scores.scores)
    rows = []
    whole = treated_as_one(arms, together)
    for m in range(table.n_features):
        before = (levels or {}).get(table.names[m], NONE_OUTSIDE)
        outside = max(before, outside_along(table, m, arms, counted, whole), key=lambda where: where.share)
        difference, p_value = sums.difference(m)
        shared, flag = outcome.shared(table, m), float(outcome.flags_event(table, m))
        rows.append((outside.share, outside.where, difference, p_value, shared, flag))
    return pd.DataFrame(rows, index=pd.Index(table.names, name="feature"), columns=list(REVIEW_COLUMNS))


def baseline_settings(
    reviewed: pd.DataFrame, table: FeatureTable, outcome_name: str | None, tested: Collection[str]
) -> dict[str, Any]:
    """Tested columns of a trial whose names suggest a baseline outcome, for the record.

    `reviewed` is the review of the columns; columns that are only adjusted for need no advice.
    """
    names = [name for name in baseline_names(table, outcome_name) if name in tested] if outcome_name else []
    names = [name for name in names if reviewed["arm_p_value"][name] >= MIN_BALANCE_P]
    return {"baseline_outcome": names} if names else {}
