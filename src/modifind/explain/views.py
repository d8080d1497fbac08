"""Curves and densities of one feature as tables with bands, from the outcome distributions of both arms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import t as student_t

from modifind._typing import Array
from modifind.data.features import FeatureTable
from modifind.data.weights import Weights
from modifind.explain.effects import PARTS_OF_AMOUNTS, ArmDistributions, effect_limits, is_ratio
from modifind.explain.local import Averages, Neighbourhoods
from modifind.explain.rows import EDGE, GivenFeature, PseudoOutcomes
from modifind.result.presentation import MIN_SUPPORT, N_DRAWS
from modifind.statistics.kernels import gaussian_gram
from modifind.statistics.wcmmd import weighted_bandwidth

QUANTILES = (0.10, 0.25, 0.50, 0.75, 0.90)
EFFECTS = ("mean_effect", "sd_ratio", *(f"q{round(100 * q)}_effect" for q in QUANTILES))
CURVE_COLUMNS = ("value", "d2", *EFFECTS)
LEVEL = 0.95
OVERALL = "the effect in all rows together"
N_OUTCOMES = 64
DENSITY_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
MAX_DENSITIES = 8
MIN_VARIANCE = 1e-12  # of the outcome's


@dataclass(frozen=True)
class Explained:
    """A curve and the densities at a few of its points.

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
    """Names of the effects shown: `EFFECTS`, plus those on the components of a zero-inflated amount."""
    return (*EFFECTS, *(PARTS_OF_AMOUNTS if outcomes.two_parts else ()))


def all_effects(arms: ArmDistributions, outcomes: PseudoOutcomes) -> Array:
    """The effects named by `effects_of`, differences in units of the outcome, along a last axis."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sqrt(arms.variance[..., 1] / arms.variance[..., 0])
    ratio[~(arms.variance[..., 0] > MIN_VARIANCE)] = np.nan
    quantiles = [arms.quantile(q, outcomes.marks, outcomes.steps) for q in QUANTILES]
    shifts = [outcomes.unit * (both[..., 1] - both[..., 0]) for both in quantiles]
    amounts = [arms.effect(name, outcomes) for name in effects_of(outcomes)[len(EFFECTS) :]]
    return np.stack((arms.effect("mean_effect", outcomes), ratio, *shifts, *amounts), axis=-1)


def no_curve() -> pd.DataFrame:
    """An empty curve, for a feature whose curve failed."""
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
    n_levels = feature.n_levels
    places = Neighbourhoods.of(feature.column, n_levels, outcomes.weights, points=feature.points, bandwidth=bandwidth)
    averages = Averages.of(places, outcomes, n_draws, rng)
    treated = outcomes.arms == 1
    support = np.column_stack([places.support(outcomes.weights * arm) for arm in (treated, ~treated)])
    weighted = np.minimum(
        *(places.support(outcomes.arm_weights * arm, outcomes.clusters.given) for arm in (treated, ~treated))
    )
    averages.estimate[support.min(axis=1) == 0] = np.nan
    # Spreads over draws are as uncertain as the effective number of rows, or of clusters, is small.
    reach = student_t.isf((1.0 - level) / 2, np.maximum(weighted - 2.0, 2.0))
    tables = _Tables(
        outcomes,
        ArmDistributions.of(averages.estimate),
        ArmDistributions.of(averages.draws),
        support,
        feature.named(places.points),
        (y_bandwidth / outcomes.unit) or 1.0,
        n_draws,
        level,
        reach,
    )
    return Explained(tables.curve(), tables.densities(_shown(places, n_levels)))


def overall_effects(outcomes: PseudoOutcomes, y_bandwidth: float, seed: np.random.SeedSequence) -> dict[str, float]:
    """The effects of a curve and their limits, over all rows."""
    rng = np.random.default_rng(seed)
    row = explain_column(GivenFeature(np.zeros(outcomes.rows.size), ("",)), outcomes, y_bandwidth, rng).curve.iloc[0]
    names = [column for name in ("d2", *effects_of(outcomes)) for column in (name, f"{name}_low", f"{name}_high")]
    overall = {name: float(row[name]) for name in names}
    # The average has a variance of its own: no draws are needed, and limits of a difference agree with its test.
    effect, low, high, *_ = effect_limits(outcomes)
    if outcomes.effect_scale == "difference":
        effect = overall["mean_effect"]
    return overall | {"mean_effect": effect, "mean_effect_low": low, "mean_effect_high": high}


def _shown(places: Neighbourhoods, n_levels: int) -> NDArray[np.intp]:
    """Points whose densities are shown: the most frequent categories, or some quantiles and the missing values."""
    if n_levels:
        rows = np.bincount(places.cell, minlength=n_levels)[places.points.astype(np.intp)]
        return np.sort(np.argsort(-rows, kind="stable")[:MAX_DENSITIES])
    gaps = np.isnan(places.points)
    inner = np.flatnonzero(~gaps)
    chosen = inner[np.round(np.array(DENSITY_SHARES) * (inner.size - 1)).astype(np.intp)]
    return np.unique(np.concatenate((chosen, np.flatnonzero(gaps))))


@dataclass(frozen=True)
class _Tables:
    """Distributions at the points of a feature, for the table and its bootstrap draws, from which tables are made."""

    outcomes: PseudoOutcomes
    estimate: ArmDistributions
    draws: ArmDistributions
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
        """Make the curve of `effect_curve`."""
        effects, moved = (all_effects(arms, self.outcomes) for arms in (self.estimate, self.draws))
        d2, names = self._distance(), effects_of(self.outcomes)
        columns: dict[str, Any] = {"value": self.values, "d2": d2["d2"]}
        columns |= {name: effects[:, k] for k, name in enumerate(names)}
        if self.n_draws:
            columns |= {"d2_low": d2["d2_low"], "d2_high": d2["d2_high"]}
            for k, name in enumerate(names):
                columns[f"{name}_low"], columns[f"{name}_high"] = self._band(name, effects[:, k], moved[..., k])
            columns |= {"d2_null_low": d2["d2_null_low"], "d2_null_high": d2["d2_null_high"]}
        columns["rows_treated"], columns["rows_control"] = self.support.T
        columns["low_support"] = self.low_support
        return pd.DataFrame(columns)

    def _band(self, name: str, effect: Array, moved: Array) -> tuple[Array, Array]:
        tail = (1.0 - self.level) / 2
        if name.startswith("q") and self.outcomes.levels:
            low, high = np.quantile(moved, (tail, 1.0 - tail), axis=0)
            return np.fmin(low, effect), np.fmax(high, effect)
        ratio = is_ratio(name, self.outcomes)
        if not (ratio or name == "sd_ratio"):
            reach = self.reach * _spread(moved)
            return effect - reach, effect + reach
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            moves = self.estimate.log_deviations(name, self.draws, self.outcomes) if ratio else np.log(moved)
            reach = np.exp(self.reach * _spread(moves))
        return effect / reach, effect * reach

    def _distance(self) -> dict[str, Array]:
        """Squared distance between the arms' distributions less its bias under chance; its band, also under the null.

        Under the null hypothesis the distance is the same at every point. The distributions need not be: a feature that
        moves both arms alike also moves the location of their difference.
        """
        root = self.outcomes.kernel_root(self.y_bandwidth)
        apart, moved = (np.diff(arms.increments, axis=-2)[..., 0, :] @ root for arms in (self.estimate, self.draws))
        raw = (apart**2).sum(axis=-1)
        if not self.n_draws:
            return {"d2": raw}
        noise = moved - apart
        chance = (noise**2).sum(axis=-1).mean(axis=0)
        share = np.where(np.isnan(raw), 0.0, self.support.prod(axis=1) / self.support.sum(axis=1).clip(min=1e-300))
        common = max(share @ np.nan_to_num(raw - chance) / share.sum(), 0.0) if share.sum() > 0 else 0.0
        alike = apart * np.sqrt(common / np.maximum(raw, np.finfo(np.float64).tiny))[:, None]
        tails = ((1.0 - self.level) / 2, (1.0 + self.level) / 2)
        low, high = np.quantile((moved**2).sum(axis=-1) - 2 * chance, tails, axis=0)
        null_low, null_high = np.quantile(((alike + noise) ** 2).sum(axis=-1) - chance, tails, axis=0)
        d2 = np.maximum(raw - chance, 0.0)
        return {
            "d2": d2,
            "d2_low": np.minimum(np.maximum(low, 0.0), d2),
            "d2_high": np.maximum(high, d2),
            "d2_null_low": np.maximum(null_low, 0.0),
            "d2_null_high": np.maximum(null_high, 0.0),
        }

    def densities(self, shown: NDArray[np.intp]) -> pd.DataFrame:
        """Make the table of `outcome_densities`."""
        grid, spread = self._outcome_grid()
        feel = gaussian_gram(grid, self.outcomes.atoms, self.y_bandwidth)
        increments, moved = self.estimate.increments[shown], self.draws.increments[:, shown]
        drawn = {
            "treated": (increments[:, 1] @ spread.T, moved[:, :, 1] @ spread.T),
            "control": (increments[:, 0] @ spread.T, moved[:, :, 0] @ spread.T),
            "witness": ((increments[:, 1] - increments[:, 0]) @ feel.T, (moved[:, :, 1] - moved[:, :, 0]) @ feel.T),
        }
        columns: dict[str, Any] = {
            "value": np.repeat(self.values[shown], grid.size),
            "outcome": np.tile(self.outcomes.centre + self.outcomes.unit * grid, shown.size),
        }
        for name, (height, draws) in drawn.items():
            unit = 1.0 if name == "witness" or self.outcomes.levels else self.outcomes.unit
            columns[name] = (height / unit).ravel()
            if self.n_draws:
                reach = self.reach[shown, None] * _spread(draws)
                floor = -np.inf if name == "witness" else 0.0
                columns[f"{name}_low"] = (np.maximum(height - reach, floor) / unit).ravel()
                columns[f"{name}_high"] = ((height + reach) / unit).ravel()
        columns["low_support"] = np.repeat(self.low_support[shown], grid.size)
        return pd.DataFrame(columns)

    def _outcome_grid(self) -> tuple[Array, Array]:
        """Outcomes at which densities are evaluated, and each increment's contribution to the density there.

        Probability between two marks is spread evenly, or placed at a mark that is a step, then smoothed.
        """
        outcomes, marks = self.outcomes, self.outcomes.marks
        if outcomes.levels:
            return marks, np.eye(marks.size)
        inner = self.estimate.cumulative[~np.isnan(self.estimate.mean[:, 0])]
        distribution = inner.mean(axis=(0, 1)) if inner.size else np.linspace(0, 1, marks.size)
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
    """Standard deviation over the finite draws; NaN if there are few."""
    finite = np.isfinite(moved)
    n_finite = finite.sum(axis=0)
    kept = np.where(finite, moved, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = kept.sum(axis=0) / n_finite
        variance = np.where(finite, (kept - mean) ** 2, 0.0).sum(axis=0) / n_finite
        return np.where(n_finite >= max(0.5 * moved.shape[0], 2), np.sqrt(variance), np.nan)


SENTENCE_SHARES = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class MarginalView:
    """Importance, bandwidth, curve and densities of one feature.

    Attributes
    ----------
    curve, densities : DataFrame
        See `effect_curve` and `outcome_densities`; empty and None where there are none.
    percentiles : tuple of float
        Values of a continuous feature at the percentiles that sentences are about.
    """

    importance: float
    bandwidth: float
    curve: pd.DataFrame = field(default_factory=no_curve)
    densities: pd.DataFrame | None = None
    percentiles: tuple[float, ...] = ()


def sentence_percentiles(column: Array, weights: Weights) -> tuple[float, ...]:
    """The 10th, 50th and 90th percentile of a continuous feature; none if all values are missing."""
    seen = ~np.isnan(column)
    if not seen.any():
        return ()
    return tuple(float(value) for value in weights[seen].quantiles(column[seen], np.array(SENTENCE_SHARES)))


def bandwidth_of(table: FeatureTable, feature: int, weights: Weights, seed: np.random.SeedSequence) -> float:
    """Bandwidth of the kernel on a continuous feature: the median distance between rows, subsampled with the seed."""
    seen = table.observed(feature)
    if table.n_levels(feature) or not seen.any():
        return 1.0
    return weighted_bandwidth(table.values[seen, feature], weights[seen], np.random.default_rng(seed)) or 1.0


def explained_column(column: Array, labels: tuple[Any, ...] | None, *given: Any, **settings: Any) -> Explained:
    """Curve and densities by `explain_column`; a single point if every value is missing."""
    if labels is not None or not np.isnan(column).all():
        return explain_column(GivenFeature(column, labels), *given, **settings)
    shown = explain_column(GivenFeature(np.zeros(column.size), (np.nan,)), *given, **settings)
    return Explained(*(table.astype({"value": np.float64}) for table in (shown.curve, shown.densities)))
