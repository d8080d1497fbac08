"""A call of `fit` or `placebo`: settings and arguments, checked before a table is read."""

from __future__ import annotations

import math
import os
from numbers import Real
from typing import Any

import numpy as np

from modifind._torch import import_torch
from modifind.data.design import check_design
from modifind.data.feature_groups import has_groups
from modifind.data.missing import CHOICES, OUTCOME_CHOICES
from modifind.data.population import check_population
from modifind.data.roles import assign_roles
from modifind.data.wording import refuse_other
from modifind.engine.parts import called, resolve_statistic, resolve_test
from modifind.engine.reading import Given
from modifind.statistics.families import check_family

MIN_TRAIN_ROWS = 200


def read_call(
    params: dict[str, Any], *table: Any, treated: Any = None, reference: Any = None, arms: Any = None, **columns: Any
) -> tuple[dict[str, Any], Given]:
    """Settings of a selector and the arguments of its `fit`, with columns in the place of their names.

    Parameters
    ----------
    params : dict
        Arguments of the selector.
    treated, reference, arms : optional
        Labels of the treatment.
    *table, **columns
        See `modifind.data.roles.assign_roles`.

    Raises
    ------
    ValueError
        A setting or an argument has no meaning.
    """
    check_params(params)
    roles = assign_roles(*table, **columns, propensity=params["propensity"])
    more = getattr(roles["X"], "more", ())
    rows = {"strata": roles.get("strata") is not None or "strata" in more, "by_row": "propensity" in more}
    check_design(params["design"], roles["propensity"], **rows)
    params = params | {"propensity": roles.pop("propensity")}
    return params, Given(**roles, treated=treated, reference=reference, arms=arms)


def check_params(params: dict[str, Any]) -> None:
    """Refuse settings that a selector cannot work with, whatever the table."""
    check_shared_settings(params["alpha"], params["cv"], params["outcome_transform"])
    most = params["max_train_rows"]
    if not isinstance(most, int | np.integer) or most < MIN_TRAIN_ROWS:
        raise ValueError(f"max_train_rows must be an integer of at least {MIN_TRAIN_ROWS}, not {most!r}")
    resolve_test(params["test"], params["adjust"])
    check_runs(params["placebo_runs"], "placebo_runs", least=0)
    refuse_other("missing", params["missing"], CHOICES)
    refuse_other("missing_outcome", params["missing_outcome"], OUTCOME_CHOICES)
    check_population(params["population"])
    if params["better"] not in (None, "higher", "lower"):
        raise ValueError(f"better must be 'higher' or 'lower', not {params['better']!r}")
    if not isinstance(params["unit"], str | None):
        raise ValueError(f"unit must be text, not {params['unit']!r}")
    _check_scale(params["outcome"], params["effect_scale"], params["outcome_transform"])
    if params["checkpoint"] is not None and not os.fspath(params["checkpoint"]):
        raise ValueError("checkpoint must be a folder, not ''; leave it out to save nothing")
    if params["device"] not in (None, "cpu"):
        import_torch(params["device"], f"device={params['device']!r}")
    statistic = resolve_statistic(params["statistic"], params["device"])
    if has_groups(params["feature_groups"]) and not statistic.takes_feature_groups:
        raise ValueError(
            f"feature_groups need statistic='effect_likelihood'; {called(statistic)} looks at one column at a time"
        )


def check_runs(n: Any, name: str = "n", least: int = 1) -> None:
    """Refuse a number of runs that is none."""
    if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {n!r}")


def _check_scale(outcome: Any, effect_scale: Any, transform: Any) -> None:
    check_family(outcome, effect_scale)
    if transform == "log" and effect_scale != "difference":
        raise ValueError(
            f"outcome_transform='log' compares geometric means and effect_scale={effect_scale!r} averages; "
            "leave one of them out"
        )


def check_level(name: str, value: Any) -> None:
    """A level lies strictly between 0 and 1."""
    if not isinstance(value, Real) or not 0 < float(value) < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, not {value!r}")


def check_positive(name: str, value: Any) -> None:
    """Refuse anything but a finite number above 0."""
    if not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ValueError(f"{name} must be a finite number above 0, not {value!r}")


def check_shared_settings(alpha: Any, cv: Any, outcome_transform: Any) -> None:
    """Refuse values that no selector can work with."""
    check_level("alpha", alpha)
    if not isinstance(cv, int | np.integer) or cv < 2:
        raise ValueError(f"cv must be an integer of at least 2, not {cv!r}")
    if outcome_transform not in (None, "log"):
        raise ValueError(f"outcome_transform must be None or 'log', not {outcome_transform!r}")
