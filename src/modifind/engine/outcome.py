"""The outcome as it is analysed: transformed, of a family, on a scale of effects."""

from __future__ import annotations

from modifind._typing import Array, Ints
from modifind.data.outcome_scale import transform_outcome, warn_of_scale
from modifind.statistics.families import Family, family_of


def measured(
    y: Array, arms: Ints, transform: str | None, outcome: str, effect_scale: str, *, transformed: bool = False
) -> tuple[Array, Family]:
    """The outcome on the scale on which effects are measured, and its family.

    Warns where the scale decides the answer and the user has chosen none.

    Parameters
    ----------
    y, arms : arrays of shape (n,)
        Outcome and 0/1 treatment.
    transform, outcome, effect_scale : str
        Settings of `ModifierSelector`.
    transformed : bool, default=False
        Whether the outcome has been transformed before.
    """
    if not transformed:
        y = transform_outcome(y, transform)
    family = family_of(y, outcome, effect_scale, arms)
    if transform is None and effect_scale == "difference" and outcome == "auto":
        warn_of_scale(y)
    return y, family
