"""Outcome distributions of both arms, and how they compare: by differences, by ratios and by odds ratios."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.explain.pseudo import N_MOMENTS, PseudoOutcomes

# What a curve of an amount that is often zero has beside its mean effect: effects on both of its parts.
PARTS_OF_AMOUNTS = ("any_effect", "amount_ratio")
ROUNDING = 1e-9  # of the outcome's standard deviation


def is_ratio(name: str, outcomes: PseudoOutcomes) -> bool:
    """Whether an effect is a ratio, whose band is even on the logarithm."""
    return name == "amount_ratio" or (name in ("mean_effect", "any_effect") and outcomes.effect_scale != "difference")


@dataclass(frozen=True)
class ArmDistributions:
    """Outcome distributions of control and treated (next to last axis), from averages of pseudo-outcomes.

    Attributes
    ----------
    mean, variance : array of shape (..., 2)
        In standardised units of the outcome.
    cumulative : array of shape (..., 2, marks)
        Shares up to every mark.
    """

    mean: Array
    variance: Array
    cumulative: Array

    @classmethod
    def from_averages(cls, averages: Array) -> ArmDistributions:
        """From an array of shape (..., 2, k) as it is: shares may leave [0, 1] and fall."""
        mean = averages[..., 0]
        return cls(mean, averages[..., 1] - mean**2, averages[..., N_MOMENTS:])

    @classmethod
    def of(cls, averages: Array) -> ArmDistributions:
        """From an array of shape (..., 2, k).

        Averages of pseudo-outcomes may leave [0, 1] and fall; sorted, they are a distribution function again, no
        further from the true one than before.
        """
        raw = cls.from_averages(averages)
        cumulative = np.sort(np.clip(raw.cumulative, 0.0, 1.0), axis=-1)
        cumulative[..., -1] = 1.0
        cumulative[np.isnan(raw.mean)] = np.nan
        return cls(raw.mean, np.maximum(raw.variance, 0.0), cumulative)

    @property
    def increments(self) -> Array:
        """Probability of each mark, or between it and the one before."""
        return np.diff(self.cumulative, axis=-1, prepend=0.0)

    def quantile(self, share: float, marks: Array, steps: NDArray[np.bool_]) -> Array:
        """Quantiles; up to a mark that is no step the distribution function is taken as a straight line."""
        # Sums of rounded numbers: a share that is reached but for rounding is reached.
        above = np.minimum((self.cumulative < share - 1e-12).sum(axis=-1), marks.size - 1)
        below = np.maximum(above - 1, 0)
        low, high = (np.take_along_axis(self.cumulative, at[..., None], axis=-1)[..., 0] for at in (below, above))
        with np.errstate(divide="ignore", invalid="ignore"):
            rise = np.where(~steps[above] & (high > low), (share - low) / (high - low), 1.0)
        between = marks[below] + np.clip(rise, 0.0, 1.0) * (marks[above] - marks[below])
        return np.where(np.isnan(self.mean), np.nan, np.where(steps[above], marks[above], between))

    def effect(self, name: str, outcomes: PseudoOutcomes) -> Array:
        """The effect on the average, on the chance of any or on the amount; NaN where it has no meaning."""
        with np.errstate(divide="ignore", invalid="ignore"):
            if name == "mean_effect" and outcomes.effect_scale == "odds_ratio":
                weight, cuts = self._cut_weights, self.cumulative[..., :-1]
                odds = np.where(weight[..., None, :] > 0, np.log((1.0 - cuts) / cuts), 0.0)
                return np.exp((weight * (odds[..., 1, :] - odds[..., 0, :])).sum(axis=-1) / weight.sum(axis=-1))
            levels = self._levels(name, outcomes)
            if not is_ratio(name, outcomes):
                return levels[..., 1] - levels[..., 0]
            above = (levels > ROUNDING * outcomes.unit).all(axis=-1)
            return np.where(above, levels[..., 1] / levels[..., 0], np.nan)

    def log_moves(self, name: str, drawn: ArmDistributions, outcomes: PseudoOutcomes) -> Array:
        """How far draws move the logarithm of a ratio, by the delta method: around small averages no draw runs away."""
        with np.errstate(divide="ignore", invalid="ignore"):
            if name == "mean_effect" and outcomes.effect_scale == "odds_ratio":
                weight, cuts = self._cut_weights, self.cumulative[..., :-1]
                moved = (drawn.cumulative[..., :-1] - cuts) / (cuts * (1.0 - cuts))
                moved = np.where(weight[..., None, :] > 0, moved, 0.0)
                return (weight * (moved[..., 0, :] - moved[..., 1, :])).sum(axis=-1) / weight.sum(axis=-1)
            if name == "amount_ratio":
                moved = drawn._means(outcomes) / self._means(outcomes) - drawn._risks / self._risks
            else:
                moved = drawn._levels(name, outcomes) / self._levels(name, outcomes)
            return moved[..., 1] - moved[..., 0]

    @property
    def _cut_weights(self) -> Array:
        """Of several levels the odds ratios of all cuts count that both arms can tell, each with its information."""
        cuts = self.cumulative[..., :-1]
        middle, known = cuts.mean(axis=-2), ((cuts > 0) & (cuts < 1)).all(axis=-2)
        return np.where(known, middle * (1.0 - middle), 0.0)

    def _levels(self, name: str, outcomes: PseudoOutcomes) -> Array:
        """What is compared, in each arm: an average, a risk, or the average of amounts above zero."""
        if name == "amount_ratio":
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.where(self._risks > 0, self._means(outcomes) / self._risks, np.nan)
        if name == "mean_effect" and outcomes.effect_scale == "difference":
            return outcomes.unit * self.mean
        two_values = outcomes.levels and outcomes.marks.size == 2
        return self._risks if two_values or name == "any_effect" else self._means(outcomes)

    @property
    def _risks(self) -> Array:
        """Chance to be above the lowest outcome, which is the first mark."""
        return 1.0 - self.cumulative[..., 0]

    def _means(self, outcomes: PseudoOutcomes) -> Array:
        return outcomes.centre + outcomes.unit * self.mean
