"""How the arms' averages compare: by differences, ratios or odds ratios, with the delta method for the latter two."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from modifind._typing import Array
from modifind.explain.pseudo import PseudoOutcomes

# What a curve of an amount that is often zero has beside its mean effect: effects on both of its parts.
PARTS_OF_AMOUNTS = ("any_effect", "amount_ratio")
ROUNDING = 1e-9  # of the outcome's standard deviation


class Distributions(Protocol):
    """Distributions of both arms (next to last axis): what they have below each mark, and on average."""

    @property
    def mean(self) -> Array:
        """Averages, arms on the last axis."""

    @property
    def cumulative(self) -> Array:
        """Shares up to every mark, on a last axis."""


def is_ratio(name: str, outcomes: PseudoOutcomes) -> bool:
    """Whether an effect is a ratio, whose band is even on the logarithm."""
    return name == "amount_ratio" or (name in ("mean_effect", "any_effect") and outcomes.effect_scale != "difference")


def compared(name: str, found: Distributions, outcomes: PseudoOutcomes) -> Array:
    """An effect from the distributions of both arms; NaN where it has no meaning."""
    if name == "mean_effect" and outcomes.effect_scale == "odds_ratio":
        weight = _cut_weights(found)
        with np.errstate(divide="ignore", invalid="ignore"):
            cuts = found.cumulative[..., :-1]
            odds = np.where(weight[..., None, :] > 0, np.log((1.0 - cuts) / cuts), 0.0)
            return np.exp((weight * (odds[..., 1, :] - odds[..., 0, :])).sum(axis=-1) / weight.sum(axis=-1))
    levels = _levels(name, found, outcomes)
    if not is_ratio(name, outcomes):
        return levels[..., 1] - levels[..., 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        above = (levels > ROUNDING * outcomes.unit).all(axis=-1)
        return np.where(above, levels[..., 1] / levels[..., 0], np.nan)


def log_moves(name: str, found: Distributions, drawn: Distributions, outcomes: PseudoOutcomes) -> Array:
    """How far draws move the logarithm of a ratio, by the delta method: around small averages no draw runs away."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if name == "mean_effect" and outcomes.effect_scale == "odds_ratio":
            weight, cuts = _cut_weights(found), found.cumulative[..., :-1]
            moved = (drawn.cumulative[..., :-1] - cuts) / (cuts * (1.0 - cuts))
            moved = np.where(weight[..., None, :] > 0, moved, 0.0)
            return (weight * (moved[..., 0, :] - moved[..., 1, :])).sum(axis=-1) / weight.sum(axis=-1)
        if name == "amount_ratio":
            moved = _means(drawn, outcomes) / _means(found, outcomes) - _risks(drawn) / _risks(found)
        else:
            moved = _levels(name, drawn, outcomes) / _levels(name, found, outcomes)
        return moved[..., 1] - moved[..., 0]


def _cut_weights(found: Distributions) -> Array:
    """Of several levels the odds ratios of all cuts count that both arms can tell, each with its information."""
    cuts = found.cumulative[..., :-1]
    middle, told = cuts.mean(axis=-2), ((cuts > 0) & (cuts < 1)).all(axis=-2)
    return np.where(told, middle * (1.0 - middle), 0.0)


def _levels(name: str, found: Distributions, outcomes: PseudoOutcomes) -> Array:
    """What is compared, in each arm: an average, a risk, or the average of amounts above zero."""
    if name == "amount_ratio":
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(_risks(found) > 0, _means(found, outcomes) / _risks(found), np.nan)
    if name == "mean_effect" and outcomes.effect_scale == "difference":
        return outcomes.unit * found.mean
    two_values = outcomes.levels and outcomes.marks.size == 2
    return _risks(found) if two_values or name == "any_effect" else _means(found, outcomes)


def _risks(found: Distributions) -> Array:
    """Chance to be above the lowest outcome, which is the first mark."""
    return 1.0 - found.cumulative[..., 0]


def _means(found: Distributions, outcomes: PseudoOutcomes) -> Array:
    return outcomes.centre + outcomes.unit * found.mean
