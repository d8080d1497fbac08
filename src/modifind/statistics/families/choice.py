"""Named families, and the choice of one for an outcome."""

from __future__ import annotations

from typing import Any

import numpy as np

from modifind._typing import Array, Ints
from modifind.data.outcome import has_many_zeros, is_count
from modifind.data.words import check_part
from modifind.statistics.families.continuous import Amount, StudentT
from modifind.statistics.families.contract import LINKS, Family
from modifind.statistics.families.discrete import Bernoulli, Count, Ordinal

FAMILIES: dict[str, type[Family]] = {family.kind: family for family in (StudentT, Bernoulli, Count, Ordinal, Amount)}


def check_family(outcome: Any, effect_scale: Any) -> None:
    """Refuse unknown kinds of outcomes and effect scales, and incompatible pairs."""
    if isinstance(outcome, str) and outcome not in ("auto", *FAMILIES):
        known = ", ".join(map(repr, FAMILIES))
        raise ValueError(f"outcome must be 'auto', {known}, not {outcome!r}")
    if effect_scale not in LINKS:
        raise ValueError(f"effect_scale must be {', '.join(map(repr, LINKS))}, not {effect_scale!r}")
    if not isinstance(outcome, str):
        _check_given_family(outcome, effect_scale)
    elif outcome != "auto" and effect_scale not in FAMILIES[outcome].scales:
        usable = " or ".join(f"effect_scale={scale!r}" for scale in FAMILIES[outcome].scales)
        raise ValueError(f"outcome={outcome!r} has no effects on effect_scale={effect_scale!r}; use {usable}")


def _check_given_family(family: Any, effect_scale: str) -> None:
    """Refuse an object that lacks part of a family, naming what is missing."""
    check_part("outcome", family, *sorted(Family.__abstractmethods__))
    called = type(family).__name__
    if not isinstance(family, Family):
        raise ValueError(
            f"outcome must be a name or a Family; derive {called} from modifind.statistics.families.Family"
        )
    lacks = [name for name in ("name", "kind") if not isinstance(getattr(family, name, None), str)]
    if family.has_scale and type(family).weight is Family.weight and type(family).scale_score is Family.scale_score:
        lacks.append("weight")
    if lacks:
        raise ValueError(f"outcome must be a name or a complete Family; {called} has no {' and no '.join(lacks)}")
    for name in ("kind", "learners"):
        if (getattr(family, name) or family.kind) not in FAMILIES:
            known = ", ".join(map(repr, FAMILIES))
            raise ValueError(f"{called}.{name} must be one of {known}, not {getattr(family, name)!r}")
    if (scale := family.link.scale) != effect_scale:
        raise ValueError(f"outcome={called}() has no effects on effect_scale={effect_scale!r}; use {scale!r}")


def family_of(
    y: Array, outcome: str | Family = "auto", effect_scale: str = "difference", arms: Ints | None = None
) -> Family:
    """Family of an outcome on an effect scale.

    Parameters
    ----------
    y : array of shape (n,)
        The outcome.
    outcome : str or Family, default="auto"
        A kind of outcome, or a family to be taken as it is. "auto" takes two values as a coin and all else as numbers;
        where ratios are asked for, it recognises counts, and amounts that are often zero.
    effect_scale : {"difference", "ratio", "odds_ratio"}, default="difference"
        The scale on which the arms are compared.
    arms : int array of shape (n,), optional
        The treatment, to check that the scale can compare the means of both arms.

    Examples
    --------
    >>> import numpy as np
    >>> family_of(np.array([1.0, 2.0, 2.0])).name, family_of(np.array([1.0, 2.0, 3.0])).name
    ('bernoulli', 'student-t')
    """
    check_family(outcome, effect_scale)
    family = outcome if isinstance(outcome, Family) else _named_family(y, outcome, effect_scale)
    if effect_scale != "difference" and arms is not None:
        _refuse_empty_arms(family.coded(y), arms, effect_scale)
    return family


def _named_family(y: Array, outcome: str, effect_scale: str) -> Family:
    kind = _kind_of(y, effect_scale) if outcome == "auto" else outcome
    if effect_scale == "odds_ratio" and effect_scale not in FAMILIES[kind].scales:
        raise ValueError(
            f"effect_scale='odds_ratio' needs an outcome of two values; found {np.unique(y).size} in y. "
            "Odds ratios are also available for ordered levels: outcome='ordinal'"
        )
    return FAMILIES[kind].of(y, LINKS[effect_scale])


def _kind_of(y: Array, effect_scale: str) -> str:
    """Apparent kind of an outcome; a count or an amount only if the user has asked for ratios.

    On the difference scale all but binary outcomes are treated as numeric, with a warning.
    """
    if ((y == y.min()) | (y == y.max())).all():
        return "binary"
    if effect_scale == "ratio" and y.min() >= 0:
        return "count" if is_count(y) else "amount" if has_many_zeros(y) else "numeric"
    return "numeric"


def _refuse_empty_arms(coded: Array, arms: Ints, effect_scale: str) -> None:
    """Refuse an arm whose mean has no logarithm, or no odds."""
    for arm, name in ((1, "treated"), (0, "control")):
        outcomes = coded[arms == arm]
        if not outcomes.mean() > 0:
            raise ValueError(
                f"effect_scale={effect_scale!r} needs outcomes above the lowest in both arms; no {name} row has one"
            )
        if effect_scale == "odds_ratio" and (outcomes == outcomes[0]).all():
            raise ValueError(
                f"effect_scale={effect_scale!r} needs outcomes below the highest in both arms; no {name} row has one"
            )
