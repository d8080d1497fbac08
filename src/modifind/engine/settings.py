"""Settings of a run: validated, resolved from names, and made consistent."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from modifind._torch import import_torch
from modifind._typing import Array, Ints
from modifind._workers import Progress
from modifind.data.features import FeatureTable, Unit, has_groups
from modifind.data.missing import CHOICES, OUTCOME_CHOICES
from modifind.data.outcome import warn_of_one_row, warn_of_scale
from modifind.data.roles import assign_roles
from modifind.data.treatment import check_design
from modifind.data.weights import check_population
from modifind.data.words import named, refuse_other
from modifind.engine.reading import Given
from modifind.inference import ConditionalRandomizationTest, adjust_p_values
from modifind.nuisance.conditional import BaseSampler, resolve_sampler
from modifind.nuisance.propensity.scores import PropensityModel, resolve_propensity
from modifind.statistics import WCMMD, EffectLikelihood, Statistic
from modifind.statistics.contract import called, check_statistic
from modifind.statistics.families import Family, check_family, family_of


@dataclass(frozen=True)
class RunSettings:
    """Validated settings of a run, with the fields of `ModifierSelector`.

    `feature_groups` are validated columns by group, and `sampler` suits the statistic.
    """

    statistic: Statistic
    sampler: BaseSampler
    propensity: PropensityModel
    test: ConditionalRandomizationTest
    n_resamples: int | str
    alpha: float
    adjust: str
    outcome_transform: str | None
    feature_groups: dict[str, tuple[str, ...]]
    n_folds: int
    n_jobs: int | None
    progress: bool | Progress
    seed: int
    explain: bool = True
    population: str = "all"
    outcome: str | Family = "auto"
    effect_scale: str = "difference"
    design: str | None = None

    def check_outcome(self, y: Array, arms: Ints, *, weighted: bool) -> None:
        """Refuse an outcome that does not suit the settings; warn if the scale matters and was not chosen."""
        self.statistic.validate(self.family(y, arms), weighted=weighted)
        if self.outcome_transform is None:
            warn_of_one_row(y)
            if isinstance(self.outcome, str) and (self.outcome, self.effect_scale) == ("auto", "difference"):
                warn_of_scale(y)

    def check_groups(self, table: FeatureTable, units: tuple[Unit, ...]) -> None:
        """Refuse groups whose joint distribution the sampler cannot fit."""
        together = [unit for unit in units if len(unit.members) > 1]
        if not any(unit.group for unit in units):
            return
        if not getattr(self.sampler, "learns", False):
            raise ValueError(
                f"{type(self.sampler).__name__} does not say that it learns from any columns (learns = True), which "
                "feature_groups need; use another sampler or leave the groups out"
            )
        gaps = [table.names[m] for unit in together for m in unit.members if m in table.incomplete]
        if gaps:
            raise ValueError(
                "feature_groups does not support missing values in continuous columns of a group (found in "
                f"{named(gaps)}); fill them, use missing='drop', or leave the columns out of the group"
            )

    def family(self, y: Array, arms: Ints) -> Family:
        """Family of the outcome, on the scale of effects."""
        return family_of(y, self.outcome, self.effect_scale, arms)

    def max_resamples(self, n_features: int) -> int:
        """Maximum number of resamples per feature; 0 if the tail is analytic."""
        if not self.statistic.resamples:
            return 0
        return self.test.resolve_resamples(self.n_resamples, n_features, self.alpha, self.adjust)


__all__ = [
    "ConditionalRandomizationTest",
    "Statistic",
    "agreeing_sampler",
    "called",
    "resolve_propensity",
    "resolve_statistic",
    "resolve_test",
]

_STATISTICS: dict[str, type[Statistic]] = {"effect_likelihood": EffectLikelihood, "wcmmd": WCMMD}


def resolve_statistic(statistic: Any, device: str | None) -> Statistic:
    """A statistic from its name, or the object itself."""
    if isinstance(statistic, str) and statistic in _STATISTICS:
        statistic = on_device(_STATISTICS[statistic](), device)
    check_statistic(statistic, tuple(_STATISTICS))
    resolved: Statistic = statistic
    return resolved


def resolve_test(test: ConditionalRandomizationTest | None, adjust: str) -> ConditionalRandomizationTest:
    """Resolve how resampled statistics become p-values; refuses an unknown adjustment."""
    adjust_p_values([1.0], adjust)
    test = ConditionalRandomizationTest() if test is None else test
    test.validate()
    return test


def on_device(component: Any, device: str | None) -> Any:
    """A statistic or sampler made from its name, with the device set if it has that setting."""
    takes_device = device is not None and "device" in component.get_params()
    return component.set_params(device=device) if takes_device else component


def agreeing_sampler(sampler: Any, statistic: Statistic, device: str | None) -> BaseSampler:
    """A fresh sampler whose conditioning matches the statistic's weights.

    Weights that do not follow a resampled feature are valid only with a sampler that ignores the treatment.
    """
    named = isinstance(sampler, str)
    chosen = resolve_sampler(sampler)
    chosen = clone(chosen) if isinstance(chosen, BaseEstimator) else chosen
    chosen = on_device(chosen, device) if named else chosen
    if statistic.needs_treatment and not getattr(chosen, "condition_on_treatment", True):
        raise ValueError(
            f"{statistic.name} needs the distribution of a feature given the treatment: condition_on_treatment=True"
        )
    if not statistic.follows_scores and getattr(chosen, "condition_on_treatment", False):
        if not named:
            raise ValueError("resample_weights='fixed' needs a sampler with condition_on_treatment=False")
        chosen.set_params(condition_on_treatment=False)
    return chosen


MIN_TRAIN_ROWS = 200


def read_call(
    params: dict[str, Any], *table: Any, treated: Any = None, reference: Any = None, arms: Any = None, **columns: Any
) -> tuple[dict[str, Any], Given]:
    """Settings of a selector and arguments of its `fit`, with column names replaced by columns.

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
    """Refuse settings that are invalid for any table."""
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
    """Refuse an invalid number of runs."""
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
    """Refuse a level that is not strictly between 0 and 1."""
    if not isinstance(value, Real) or not 0 < float(value) < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, not {value!r}")


def check_positive(name: str, value: Any) -> None:
    """Refuse anything but a positive finite number."""
    if not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ValueError(f"{name} must be a finite number above 0, not {value!r}")


def check_shared_settings(alpha: Any, cv: Any, outcome_transform: Any) -> None:
    """Refuse values that are invalid for every selector."""
    check_level("alpha", alpha)
    if not isinstance(cv, int | np.integer) or cv < 2:
        raise ValueError(f"cv must be an integer of at least 2, not {cv!r}")
    if outcome_transform not in (None, "log"):
        raise ValueError(f"outcome_transform must be None or 'log', not {outcome_transform!r}")
