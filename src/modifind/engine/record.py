"""What a result records of its run: the seed, settings, versions and the reasons of failures."""

from __future__ import annotations

import hashlib
import platform
import secrets
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd

from modifind._typing import Array
from modifind._version import __version__
from modifind.data.containers import is_distributed
from modifind.data.design import Design
from modifind.data.feature_groups import Unit, column_kinds
from modifind.data.feature_matrix import AlsoDiscrete, FeatureTable
from modifind.engine.run import RunSettings
from modifind.explain.attempts import described
from modifind.inference import ConditionalRandomizationTest
from modifind.nuisance.conditional import BaseSampler
from modifind.nuisance.propensity.scores import FittedPropensity
from modifind.result.effect_names import effect_name
from modifind.statistics import Statistic

# The seed is recorded as such; the others change nothing.
UNRECORDED = ("random_state", "progress", "n_jobs", "checkpoint", "placebo_runs")


def entropy_of(random_state: Any) -> int:
    """One number that seeds everything; drawn afresh for None."""
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
    """What a result records of the data, the propensity scores and the seed."""
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
    """What a result records of the design, with the probability of treatment where it is the same for every row."""
    alike = design.chance in ("known", "observed") and bool((scores == scores[0]).all())
    share = {"share": float(scores[0])} if alike else {}
    return {"randomised": design.randomised, "said": design.said, "chance": design.chance, **share}


def null_hypothesis(run: RunSettings, kind: str, recorded: Mapping[str, Any]) -> str:
    """What the p-values are about, in words, for an outcome of a kind and what else a result records."""
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
    """What a result records of groups; nothing where there are none."""
    if not groups:
        return {}
    columns = {name: list(columns) for name, columns in groups.items()}
    return {"feature_groups": columns, "group_column_kinds": column_kinds(table, units)}


def readable(value: Any) -> Any:
    """A setting as JSON can hold it and a person can read it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | str | None) or (isinstance(value, float) and np.isfinite(value)):
        return value
    if isinstance(value, AlsoDiscrete):
        return ["auto", *value.names]
    if is_distributed(value):
        return "one known value per row"
    if isinstance(value, np.ndarray | pd.Series) and len(value) > 20:
        return f"array of {len(value)} values"
    if isinstance(value, list | tuple | np.ndarray | pd.Series):
        return [readable(v) for v in value]
    return stable_repr(value)


def stable_repr(value: Any, depth: int = 3) -> str:
    """An object as text that is the same in every process: without addresses in memory, by its class and attributes."""
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
    """Versions of modifind and the packages it depends on."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    versions = {"modifind": __version__, "python": platform.python_version()}
    for name in ("numpy", "scipy", "scikit-learn", "pandas", "torch"):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def failure_of(error: Exception, name: str) -> str:
    """Why a feature could not be tested; an error that the user can mend is raised again with the feature's name.

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
