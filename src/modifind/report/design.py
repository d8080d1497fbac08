"""How the treatment was given, in a sentence for page one and in one for a paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNSAID = "Taken as observational: design='randomised' (--randomised) declares a trial."


def design_sentence(settings: Mapping[str, Any]) -> str:
    """What the treatment was taken for, and how to declare it where nobody did; empty where that is not on record."""
    design = settings.get("design")
    if not design:
        return ""
    return design_methods(settings) if design["said"] else UNSAID


def design_methods(settings: Mapping[str, Any]) -> str:
    """How the treatment was given, or that nobody said so."""
    design = settings.get("design")
    if not design:
        return ""
    otherwise = "not randomised (observational)" if design["said"] else "taken as not randomised"
    return f"The treatment was {'randomised' if design['randomised'] else otherwise}{_chance(settings, design)}."


def _chance(settings: Mapping[str, Any], design: Mapping[str, Any]) -> str:
    """Where the probability of treatment comes from."""
    share, chance = design.get("share"), design["chance"]
    if "n_strata" in settings:
        return f" within {settings['n_strata']} strata"
    if chance == "observed":
        shown = "shares" if share is None else f"share, {share:.2f}"
        return f"; the probability of treatment was taken as the observed {shown}"
    if chance == "fitted":
        return "; the probability of treatment was estimated from the features"
    return (
        ", with known probabilities of treatment"
        if share is None
        else f"; the probability of treatment is known, {share:.3g}"
    )
