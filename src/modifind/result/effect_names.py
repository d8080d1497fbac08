"""Names of effects, by the kind of outcome and the scale on which the arms are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RATIOS = {"binary": "risk ratio", "count": "rate ratio"}
ODDS = {"binary": "odds ratio", "ordinal": "common odds ratio"}


def effect_name(kind: str, scale: str) -> str:
    """Name of an effect on the average.

    Examples
    --------
    >>> effect_name("count", "ratio"), effect_name("binary", "odds_ratio"), effect_name("numeric", "difference")
    ('rate ratio', 'odds ratio', 'effect')
    """
    if scale == "difference":
        return "risk difference" if kind == "binary" else "effect"
    return ODDS.get(kind, "odds ratio") if scale == "odds_ratio" else RATIOS.get(kind, "ratio of means")


def scale_of(settings: Mapping[str, Any]) -> tuple[str, str]:
    """Kind of the outcome and scale of effects that a result was made with."""
    return str(settings.get("outcome_kind") or "numeric"), str(settings.get("effect_scale") or "difference")
