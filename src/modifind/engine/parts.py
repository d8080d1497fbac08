"""The statistic, sampler, scores and test that the user named: made, made to agree, and recorded."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator, clone

from modifind.inference import ConditionalRandomizationTest, adjust_p_values
from modifind.nuisance.conditional import BaseSampler, resolve_sampler
from modifind.nuisance.propensity.scores import resolve_propensity
from modifind.statistics import WCMMD, EffectLikelihood, Statistic
from modifind.statistics.contract import called, check_statistic

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
    """How resampled statistics become p-values; refuses an adjustment that there is not."""
    adjust_p_values([1.0], adjust)
    test = ConditionalRandomizationTest() if test is None else test
    test.validate()
    return test


def on_device(component: Any, device: str | None) -> Any:
    """A statistic or sampler made from its name, with the device set where it has such a setting."""
    takes_device = device is not None and "device" in component.get_params()
    return component.set_params(device=device) if takes_device else component


def agreeing_sampler(sampler: Any, statistic: Statistic, device: str | None) -> BaseSampler:
    """A fresh sampler whose conditioning goes with the weights.

    Weights that do not follow a resampled feature are right only with a sampler that ignores the treatment.
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
