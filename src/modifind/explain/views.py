"""From averages of pseudo-outcomes to outcome distributions, and from distributions to tables with bands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import t as student_t

from modifind._typing import Array
from modifind.explain.average_effects import effect_limits
from modifind.explain.comparisons import PARTS_OF_AMOUNTS, compared, is_ratio, log_moves
from modifind.explain.local import Averages, Places
from modifind.explain.pseudo import EDGE, N_MOMENTS, PseudoOutcomes
from modifind.explain.reading import GivenFeature
from modifind.result.explained import MIN_SUPPORT, N_DRAWS
from modifind.statistics.kernels import gaussian_gram

QUANTILES = (0.10, 0.25, 0.50, 0.75, 0.90)
EFFECTS = ("mean_effect", "sd_ratio", *(f"q{round(100 * q)}_effect" for q in QUANTILES))
CURVE_COLUMNS = ("value", "d2", *EFFECTS)
LEVEL = 0.95
OVERALL = "the effect in all rows together"
N_OUTCOMES = 64
DENSITY_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
MOST_DENSITIES = 8
LEAST_VARIANCE = 1e-12  # of the outcome's


@dataclass(frozen=True)
class Distributions:
    """Outcome distributions of control and treated (next to last axis), from averages of pseudo-outcomes."""

    mean: Array
    variance: Array
    cumulative: Array

    @classmethod
    def of(cls, averages: Array) -> Distributions:
        """From an array of shape (..., 2, k)."""
        mean = averages[..., 0]
        variance = averages[..., 1] - mean**2
        # Averages of pseudo-outcomes may leave [0, 1] and fall; sorted, they are a distribution function again, no
        # further from the true one than before.
        cumulative = np.sort(np.clip(averages[..., N_MOMENTS:], 0.0, 1.0), axis=-1)
        cumulative[..., -1] = 1.0
        cumulative[np.isnan(mean)] = np.nan
        return cls(mean, np.maximum(variance, 0.0), cumulative)

    @property
    def increments(self) -> Array:
        """Probability of each mark, or between it and the one before."""
        return np.diff(self.cumulative, axis=-1, prepend=0.0)

    def quantile(self, share: float, marks: Array, steps: NDArray[np.bool_]) -> Array:
        """Quantiles; up to a mark that is no step the distribution function is taken as a straight line."""
        # Sums of rounded numbers: a share that is reached but for rounding is reached.
        above = np.minimum((self.cumulative < share - 1e-12).sum(axis=-1), marks.size - 1)
        below = np.maximum(above - 1, 0)
        high = np.take_along_axis(self.cumulative, above[..., None], axis=-1)[..., 0]
        low = np.take_along_axis(self.cumulative, below[..., None], axis=-1)[..., 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(~steps[above] & (high > low), (share - low) / (high - low), 1.0)
        found = marks[below] + np.clip(part, 0.0, 1.0) * (marks[above] - marks[below])
        return np.where(np.isnan(self.mean), np.nan, np.where(steps[above], marks[above], found))

    def effects(self, outcomes: PseudoOutcomes) -> Array:
        """The effects of `effects_of`, differences in the outcome's unit, on a last axis."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.sqrt(self.variance[..., 1] / self.variance[..., 0])
        ratio[~(self.variance[..., 0] > LEAST_VARIANCE)] = np.nan
        quantiles = [self.quantile(q, outcomes.marks, outcomes.steps) for q in QUANTILES]
        shifts = [outcomes.unit * (part[..., 1] - part[..., 0]) for part in quantiles]
        parts = [compared(name, self, outcomes) for name in effects_of(outcomes)[len(EFFECTS) :]]
        return np.stack((compared("mean_effect", self, outcomes), ratio, *shifts, *parts), axis=-1)


@dataclass(frozen=True)
class Explained:
    """A curve and the densities at some of its points.

    Attributes
    ----------
    curve : DataFrame
        See `effect_curve`.
    densities : DataFrame
        See `outcome_densities`.
    """

    curve: pd.DataFrame
    densities: pd.DataFrame


def effects_of(outcomes: PseudoOutcomes) -> tuple[str, ...]:
    """Names of the effects that are shown: `EFFECTS`, and those on the parts of an amount that is often zero."""
    return (*EFFECTS, *(PARTS_OF_AMOUNTS if outcomes.two_parts else ()))


def no_curve() -> pd.DataFrame:
    """The curve of a feature that none could be made of."""
    return pd.DataFrame({name: np.empty(0) for name in CURVE_COLUMNS})


def explain_column(
    feature: GivenFeature,
    outcomes: PseudoOutcomes,
    y_bandwidth: float,
    rng: np.random.Generator,
    *,
    bandwidth: float | None = None,
    n_draws: int = N_DRAWS,
    level: float = LEVEL,
) -> Explained:
    """Curve and densities of one column.

    Parameters
    ----------
    feature : GivenFeature
        Its values in the rows of `outcomes`.
    outcomes : PseudoOutcomes
        What is averaged.
    y_bandwidth : float
        Bandwidth of the kernel on outcomes that distance and witness are measured by.
    bandwidth : float, optional
        That of the kernel on the feature; see `effect_curve`.
    n_draws : int
        Draws of the bootstrap; without any there are no bands.
    """
    labels, n_levels = feature.labels, feature.n_levels
    places = Places.of(feature.column, n_levels, outcomes.weights, points=feature.points, bandwidth=bandwidth)
    averages = Averages.of(places, outcomes, n_draws, rng)
    treated = outcomes.arms == 1
    support = np.column_stack([places.support(outcomes.weights * arm) for arm in (treated, ~treated)])
    weighted = np.minimum(
        *(places.support(outcomes.arm_weights * arm, outcomes.clusters.given) for arm in (treated, ~treated))
    )
    averages.estimate[support.min(axis=1) == 0] = np.nan
    values = places.points if labels is None else np.array([labels[int(code)] for code in places.points], dtype=object)
    # Spreads over draws are as uncertain as the effective number of rows, or of clusters, is small.
    reach = student_t.isf((1.0 - level) / 2, np.maximum(weighted - 2.0, 2.0))
    width = (y_bandwidth / outcomes.unit) or 1.0
    view = _View(outcomes, averages, support, values, width, n_draws, level, reach)
    return Explained(view.curve(), view.densities(_shown(places, n_levels)))


def overall_effects(outcomes: PseudoOutcomes, y_bandwidth: float, seed: np.random.SeedSequence) -> dict[str, float]:
    """The effects of a curve and their limits for all rows together."""
    rng = np.random.default_rng(seed)
    row = explain_column(GivenFeature(np.zeros(outcomes.rows.size), ("",)), outcomes, y_bandwidth, rng).curve.iloc[0]
    names = [part for name in ("d2", *effects_of(outcomes)) for part in (name, f"{name}_low", f"{name}_high")]
    found = {name: float(row[name]) for name in names}
    # The average has a variance of its own: no draws are needed, and limits of a difference agree with its test.
    effect, low, high, *_ = effect_limits(outcomes)
    if outcomes.effect_scale == "difference":
        effect = found["mean_effect"]
    return found | {"mean_effect": effect, "mean_effect_low": low, "mean_effect_high": high}


def _shown(places: Places, n_levels: int) -> NDArray[np.intp]:
    """Which points have their densities shown: the most frequent categories, or some quantiles and what is missing."""
    if n_levels:
        rows = np.bincount(places.cell, minlength=n_levels)[places.points.astype(np.intp)]
        return np.sort(np.argsort(-rows, kind="stable")[:MOST_DENSITIES])
    gaps = np.isnan(places.points)
    inner = np.flatnonzero(~gaps)
    chosen = inner[np.round(np.array(DENSITY_SHARES) * (inner.size - 1)).astype(np.intp)]
    return np.unique(np.concatenate((chosen, np.flatnonzero(gaps))))


@dataclass(frozen=True)
class _View:
    """Averages at the points of a feature, to be made into tables."""

    outcomes: PseudoOutcomes
    averages: Averages
    support: Array
    values: NDArray[Any]
    y_bandwidth: float
    n_draws: int
    level: float
    reach: Array

    @property
    def low_support(self) -> NDArray[np.bool_]:
        return np.any(self.support < MIN_SUPPORT, axis=1)

    def curve(self) -> pd.DataFrame:
        """The curve of `effect_curve`."""
        distributions, drawn = Distributions.of(self.averages.estimate), Distributions.of(self.averages.draws)
        found, moved = distributions.effects(self.outcomes), drawn.effects(self.outcomes)
        d2 = self._distance(distributions, drawn)
        columns: dict[str, Any] = {"value": self.values, "d2": d2["d2"]}
        names = effects_of(self.outcomes)
        columns |= {name: found[:, k] for k, name in enumerate(names)}
        if self.n_draws:
            columns |= {"d2_low": d2["d2_low"], "d2_high": d2["d2_high"]}
            for k, name in enumerate(names):
                low, high = self._band(found[:, k], moved[..., k], name, (distributions, drawn))
                columns |= {f"{name}_low": low, f"{name}_high": high}
            columns |= {"d2_null_low": d2["d2_null_low"], "d2_null_high": d2["d2_null_high"]}
        columns["rows_treated"], columns["rows_control"] = self.support.T
        columns["low_support"] = self.low_support
        return pd.DataFrame(columns)

    def _band(
        self, found: Array, moved: Array, name: str, distributions: tuple[Distributions, Distributions]
    ) -> tuple[Array, Array]:
        tail = (1.0 - self.level) / 2
        if name.startswith("q") and self.outcomes.levels:
            low, high = np.quantile(moved, (tail, 1.0 - tail), axis=0)
            return np.fmin(low, found), np.fmax(high, found)
        if is_ratio(name, self.outcomes):
            with np.errstate(over="ignore"):
                reach = np.exp(self.reach * _spread(log_moves(name, *distributions, self.outcomes)))
            return found / reach, found * reach
        if name == "sd_ratio":
            with np.errstate(divide="ignore", invalid="ignore"):
                reach = np.exp(self.reach * _spread(np.log(moved)))
            return found / reach, found * reach
        reach = self.reach * _spread(moved)
        return found - reach, found + reach

    def _distance(self, distributions: Distributions, drawn: Distributions) -> dict[str, Array]:
        """Squared distance between the arms' distributions less what chance adds; its band, also without a modifier.

        Without a modifier the distance is the same at every point. The distributions need not be: a feature that moves
        both arms alike moves the place where they differ.
        """
        root = self.outcomes.kernel_root(self.y_bandwidth)
        found, moved = (np.diff(part.increments, axis=-2)[..., 0, :] @ root for part in (distributions, drawn))
        raw = (found**2).sum(axis=-1)
        if not self.n_draws:
            return {"d2": raw}
        noise = moved - found
        chance = (noise**2).sum(axis=-1).mean(axis=0)
        share = np.where(np.isnan(raw), 0.0, self.support.prod(axis=1) / self.support.sum(axis=1).clip(min=1e-300))
        common = max(share @ np.nan_to_num(raw - chance) / share.sum(), 0.0) if share.sum() > 0 else 0.0
        alike = found * np.sqrt(common / np.maximum(raw, np.finfo(np.float64).tiny))[:, None]
        tails = ((1.0 - self.level) / 2, (1.0 + self.level) / 2)
        low, high = np.quantile((moved**2).sum(axis=-1) - 2 * chance, tails, axis=0)
        null_low, null_high = np.quantile(((alike + noise) ** 2).sum(axis=-1) - chance, tails, axis=0)
        found_d2 = np.maximum(raw - chance, 0.0)
        return {
            "d2": found_d2,
            "d2_low": np.minimum(np.maximum(low, 0.0), found_d2),
            "d2_high": np.maximum(high, found_d2),
            "d2_null_low": np.maximum(null_low, 0.0),
            "d2_null_high": np.maximum(null_high, 0.0),
        }

    def densities(self, shown: NDArray[np.intp]) -> pd.DataFrame:
        """The table of `outcome_densities`."""
        grid, spread = self._outcome_grid()
        distributions, drawn = (
            Distributions.of(self.averages.estimate[shown]),
            Distributions.of(self.averages.draws[:, shown]),
        )
        feel = gaussian_gram(grid, self.outcomes.atoms, self.y_bandwidth)
        increments, moved = distributions.increments, drawn.increments
        parts = {
            "treated": (increments[:, 1] @ spread.T, moved[:, :, 1] @ spread.T),
            "control": (increments[:, 0] @ spread.T, moved[:, :, 0] @ spread.T),
            "witness": ((increments[:, 1] - increments[:, 0]) @ feel.T, (moved[:, :, 1] - moved[:, :, 0]) @ feel.T),
        }
        columns: dict[str, Any] = {
            "value": np.repeat(self.values[shown], grid.size),
            "outcome": np.tile(self.outcomes.centre + self.outcomes.unit * grid, shown.size),
        }
        for name, (found, draws) in parts.items():
            unit = 1.0 if name == "witness" or self.outcomes.levels else self.outcomes.unit
            columns[name] = (found / unit).ravel()
            if self.n_draws:
                reach = self.reach[shown, None] * _spread(draws)
                floor = -np.inf if name == "witness" else 0.0
                columns[f"{name}_low"] = (np.maximum(found - reach, floor) / unit).ravel()
                columns[f"{name}_high"] = ((found + reach) / unit).ravel()
        columns["low_support"] = np.repeat(self.low_support[shown], grid.size)
        return pd.DataFrame(columns)

    def _outcome_grid(self) -> tuple[Array, Array]:
        """Outcomes that densities are shown at, and what the probability of each increment adds to the density there.

        Probability between two marks is spread evenly, or put at a mark that is a step, then smoothed.
        """
        outcomes, marks = self.outcomes, self.outcomes.marks
        if outcomes.levels:
            return marks, np.eye(marks.size)
        inner = self.averages.estimate[~np.isnan(self.averages.estimate[:, 0, 0])]
        distribution = (
            Distributions.of(inner).cumulative.mean(axis=(0, 1)) if inner.size else np.linspace(0, 1, marks.size)
        )
        low, high = np.interp((EDGE, 1 - EDGE), distribution, marks)
        q25, q75 = np.interp((0.25, 0.75), distribution, marks)
        rows = max(float(np.median(self.support)), MIN_SUPPORT)
        width = 0.9 * min((float(q75 - q25) / 1.349) or 1.0, 1.0) * rows**-0.2
        # No narrower than what the grid can show, or areas would depend on where its points are.
        width = max(width, float(high - low) / (N_OUTCOMES - 8))
        # Probability at either end of the outcome is smoothed over it.
        ends = (3.0 if low <= marks[0] else 1.0), (3.0 if high >= marks[-1] else 1.0)
        grid = np.linspace(low - ends[0] * width, high + ends[1] * width, N_OUTCOMES)
        below = ndtr((grid[:, None] - marks) / width)
        even = -np.diff(below, axis=1) / np.diff(marks)
        bumps = np.exp(-0.5 * ((grid[:, None] - marks) / width) ** 2) / (width * np.sqrt(2 * np.pi))
        return grid, np.where(outcomes.steps, bumps, np.column_stack((bumps[:, 0], even)))


def _spread(moved: Array) -> Array:
    """Standard deviation over draws, of those that are finite; NaN where few are."""
    finite = np.isfinite(moved)
    n_finite = finite.sum(axis=0)
    kept = np.where(finite, moved, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = kept.sum(axis=0) / n_finite
        variance = np.where(finite, (kept - mean) ** 2, 0.0).sum(axis=0) / n_finite
        return np.where(n_finite >= max(0.5 * moved.shape[0], 2), np.sqrt(variance), np.nan)
