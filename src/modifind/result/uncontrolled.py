"""Why a test does not control its error rates, whatever the data are: settings that reproduce, or compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def uncontrolled(settings: Mapping[str, Any]) -> list[str]:
    """Settings of a result that give up control of error rates, in words; empty where it is controlled.

    Examples
    --------
    >>> uncontrolled({"sampler": {"class": "MarginalSampler"}, "statistic": {"class": "EffectLikelihood"}})
    ["each feature is resampled from all of its values, whatever the other features are (sampler='marginal')"]
    >>> uncontrolled({"sampler": {"class": "AutoSampler"}})
    []
    """
    statistic, sampler, test = (_part(settings, name) for name in ("statistic", "sampler", "test"))
    reasons = {
        "each feature is resampled from all of its values, whatever the other features are (sampler='marginal')": (
            sampler.get("class") == "MarginalSampler"
        ),
        "weights do not follow the resampled feature (resample_weights='fixed')": (
            statistic.get("resample_weights") == "fixed"
        ),
        "p-values are counts of resamples without the observed one, which can be zero (p_value='count')": (
            bool(settings.get("n_resamples_used")) and test.get("p_value") == "count"
        ),
    }
    return [reason for reason, holds in reasons.items() if holds]


def control_sentence(settings: Mapping[str, Any]) -> str:
    """A clause that says why error rates are not controlled; empty where they are."""
    reasons = uncontrolled(settings)
    return f"error rates are not controlled, because {'; '.join(reasons)}" if reasons else ""


def _part(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    entry = settings.get(name)
    return entry if isinstance(entry, Mapping) else {}
