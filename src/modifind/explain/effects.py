"""Average treatment effects, of all rows and of subgroups, with standard errors.

The estimator is doubly robust: predictions for both arms from models that have not seen the row, corrected by the
weighted average of their errors in each arm. The estimate is a sum over rows, or over clusters, from which its variance
follows; for the logarithm of a ratio, by the delta method.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t as student_t

from modifind._typing import Array
from modifind.data.features import FeatureTable, Unit
from modifind.data.weights import Weights
from modifind.explain.rows import N_MOMENTS, PseudoOutcomes
from modifind.result.selection_result import no_subgroups

# What a curve of an amount that is often zero has beside its mean effect: effects on both of its parts.
PARTS_OF_AMOUNTS = ("any_effect", "amount_ratio")
ROUNDING = 1e-9  # of the outcome's standard deviation


def is_ratio(name: str, outcomes: PseudoOutcomes) -> bool:
    """Whether an effect is a ratio, whose band is symmetric on the log scale."""
    return name == "amount_ratio" or (name in ("mean_effect", "any_effect") and outcomes.effect_scale != "difference")


@dataclass(frozen=True)
class ArmDistributions:
    """Outcome distributions of control and treated (second-to-last axis), from averages of pseudo-outcomes.

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
        """Take an array of shape (..., 2, k) as is: shares may lie outside [0, 1] and decrease."""
        mean = averages[..., 0]
        return cls(mean, averages[..., 1] - mean**2, averages[..., N_MOMENTS:])

    @classmethod
    def of(cls, averages: Array) -> ArmDistributions:
        """Make distributions from an array of shape (..., 2, k).

        Averages of pseudo-outcomes may lie outside [0, 1] and decrease; clipped and sorted, they are a distribution
        function again, no further from the true one.
        """
        raw = cls.from_averages(averages)
        cumulative = np.sort(np.clip(raw.cumulative, 0.0, 1.0), axis=-1)
        cumulative[..., -1] = 1.0
        cumulative[np.isnan(raw.mean)] = np.nan
        return cls(raw.mean, np.maximum(raw.variance, 0.0), cumulative)

    @property
    def increments(self) -> Array:
        """Probability mass between each mark and the one before it."""
        return np.diff(self.cumulative, axis=-1, prepend=0.0)

    def quantile(self, share: float, marks: Array, steps: NDArray[np.bool_]) -> Array:
        """Quantiles; between marks that are not steps the distribution function is interpolated linearly."""
        # Sums of rounded numbers: a share that is reached but for rounding is reached.
        above = np.minimum((self.cumulative < share - 1e-12).sum(axis=-1), marks.size - 1)
        below = np.maximum(above - 1, 0)
        low, high = (np.take_along_axis(self.cumulative, at[..., None], axis=-1)[..., 0] for at in (below, above))
        with np.errstate(divide="ignore", invalid="ignore"):
            rise = np.where(~steps[above] & (high > low), (share - low) / (high - low), 1.0)
        between = marks[below] + np.clip(rise, 0.0, 1.0) * (marks[above] - marks[below])
        return np.where(np.isnan(self.mean), np.nan, np.where(steps[above], marks[above], between))

    def effect(self, name: str, outcomes: PseudoOutcomes) -> Array:
        """Effect on the average, on the chance of any or on the amount; NaN where undefined."""
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

    def log_deviations(self, name: str, drawn: ArmDistributions, outcomes: PseudoOutcomes) -> Array:
        """Bootstrap deviations of the log ratio by the delta method, which stays stable around small averages."""
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
        """Information of the odds ratio at each cut between ordered levels; zero unless both arms identify it."""
        cuts = self.cumulative[..., :-1]
        middle, known = cuts.mean(axis=-2), ((cuts > 0) & (cuts < 1)).all(axis=-2)
        return np.where(known, middle * (1.0 - middle), 0.0)

    def _levels(self, name: str, outcomes: PseudoOutcomes) -> Array:
        """The quantity compared, in each arm: an average, a risk, or the average of amounts above zero."""
        if name == "amount_ratio":
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.where(self._risks > 0, self._means(outcomes) / self._risks, np.nan)
        if name == "mean_effect" and outcomes.effect_scale == "difference":
            return outcomes.unit * self.mean
        two_values = outcomes.levels and outcomes.marks.size == 2
        return self._risks if two_values or name == "any_effect" else self._means(outcomes)

    @property
    def _risks(self) -> Array:
        """Probability of being above the lowest outcome, which is the first mark."""
        return 1.0 - self.cumulative[..., 0]

    def _means(self, outcomes: PseudoOutcomes) -> Array:
        return outcomes.centre + outcomes.unit * self.mean


MAX_ROW_SHARE = 0.3  # share of an average that a row or cluster is taken to have
MIN_EFFECT_FREEDOM = 2.0
SMALLEST = 1e-300  # p-value


@dataclass(frozen=True)
class AverageEffects:
    """Differences between the arms' averages of k functions of the outcome.

    Attributes
    ----------
    estimate : array of shape (k,)
        Treated less control.
    terms : array of shape (rows or clusters, k)
        What each row or cluster adds to the error of the estimate: the sum of their squares is the variance.
    freedom : float
        Degrees of freedom of that variance, by the smaller arm's effective number of rows or clusters.
    row_terms : array of shape (rows, k)
        What each row adds: their sum is zero.
    """

    estimate: Array
    terms: Array
    freedom: float
    row_terms: Array

    @classmethod
    def of(cls, outcomes: PseudoOutcomes, expected: Array, errors: Array, rows: Any = slice(None)) -> AverageEffects:
        """Average effects on functions of the outcome, over all rows or a subset.

        Parameters
        ----------
        outcomes : PseudoOutcomes
            Arms, weights and clusters of the rows.
        expected : array of shape (n, 2, k)
            Expected functions of the outcome under control and treated.
        errors : array of shape (n, k)
            Observed less expected, in the row's own arm.
        rows : slice or int array
            The rows that are averaged.
        """
        averages, terms = _arm_averages(outcomes, expected[rows], errors[rows], rows)
        return cls._from_terms(outcomes, averages[1] - averages[0], terms[:, 1] - terms[:, 0], rows)

    @classmethod
    def of_log_ratio(cls, outcomes: PseudoOutcomes, rows: Any = slice(None)) -> AverageEffects:
        """Log ratio or log odds ratio of the average outcomes.

        NaN if an arm has nothing above the lowest outcome. Cuts between levels do not count if an arm lies on one side
        only: there, a doubly robust average of zeros is zero up to a remainder.
        """
        averages, terms = _arm_averages(outcomes, outcomes.expected[rows], outcomes.errors[rows], rows)
        below = _observed_shares(outcomes, rows)
        if outcomes.effect_scale == "odds_ratio":
            averages[:, N_MOMENTS:][:, ~((below > 0) & (below < 1)).all(axis=0)] = 0.0
        elif (below[:, 0] >= 1).any():
            averages = np.full_like(averages, np.nan)
        arms = ArmDistributions.from_averages(averages[None])
        with np.errstate(divide="ignore", invalid="ignore"):
            estimate = np.log(arms.effect("mean_effect", outcomes))
        moved = arms.log_deviations("mean_effect", ArmDistributions.from_averages(averages + terms), outcomes)
        return cls._from_terms(outcomes, estimate, moved[:, None], rows)

    @classmethod
    def _from_terms(cls, outcomes: PseudoOutcomes, estimate: Array, terms: Array, rows: Any) -> AverageEffects:
        """Make effects from each row's contribution to the error of the estimate."""
        row_terms, in_arm = terms, _in_arm(outcomes, rows)
        mass = in_arm.sum(axis=0)
        clusters = outcomes.clusters[rows]
        terms, in_arm = clusters.sums(terms), clusters.sums(in_arm)
        # A row that has much of its arm's average draws it to itself; its error is larger than what is left of it.
        share = (in_arm**2 / mass).sum(axis=1) / np.maximum(in_arm.sum(axis=1), np.finfo(np.float64).tiny)
        terms = terms / (1.0 - np.minimum(share, MAX_ROW_SHARE))[:, None]
        freedom = min(Weights.of(own).effective_size for own in in_arm.T) - 2.0
        return cls(estimate, terms, max(freedom, MIN_EFFECT_FREEDOM), row_terms)

    @property
    def covariance(self) -> Array:
        """Covariance of the estimates, shape (k, k)."""
        return self.terms.T @ self.terms

    @property
    def standard_error(self) -> Array:
        """Standard error of each estimate."""
        return np.sqrt(np.einsum("ij,ij->j", self.terms, self.terms))

    @property
    def statistic(self) -> float:
        """The first estimate divided by its standard error; NaN if that is zero."""
        error = float(self.standard_error[0])
        return float(self.estimate[0]) / error if error > 0 else np.nan

    @property
    def p_value(self) -> float:
        """Two-sided p-value of the first estimate being zero; 1 if its standard error is zero."""
        p_value = float(2.0 * student_t.sf(abs(self.statistic), self.freedom))
        return 1.0 if np.isnan(p_value) else max(p_value, SMALLEST)

    def limits(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence limits of the first estimate."""
        reach = float(student_t.isf((1.0 - level) / 2.0, self.freedom)) * float(self.standard_error[0])
        return float(self.estimate[0]) - reach, float(self.estimate[0]) + reach


def _observed_shares(outcomes: PseudoOutcomes, rows: Any) -> Array:
    """Observed distribution function of each arm at the marks, shape (2, marks)."""
    arms = outcomes.arms[rows]
    expected = outcomes.expected[rows][np.arange(arms.size), arms, N_MOMENTS:]
    observed = np.round(outcomes.errors[rows][:, N_MOMENTS:] + expected)
    counted = outcomes.arm_weights[rows] > 0
    return np.stack([observed[counted & (arms == arm)].mean(axis=0) for arm in (0, 1)])


def _in_arm(outcomes: PseudoOutcomes, rows: Any) -> Array:
    """Weight of each row in the average error of each arm, shape (rows, 2)."""
    in_arm: Array = outcomes.arm_weights[rows, None] * np.equal(outcomes.arms[rows, None], [0, 1])
    return in_arm


def _arm_averages(outcomes: PseudoOutcomes, expected: Array, errors: Array, rows: Any) -> tuple[Array, Array]:
    """Averages of functions in both arms, shape (2, k), and error contributions of rows, shape (rows, 2, k)."""
    share, in_arm = outcomes.weights[rows] / outcomes.weights[rows].sum(), _in_arm(outcomes, rows)
    in_arm /= in_arm.sum(axis=0)
    modelled, corrections = np.tensordot(share, expected, 1), in_arm.T @ errors
    terms = share[:, None, None] * (expected - modelled)
    terms += in_arm[:, :, None] * (errors[:, None] - corrections)
    return modelled + corrections, terms


def effect_limits(outcomes: PseudoOutcomes, rows: Any = slice(None)) -> tuple[float, float, float, float, float]:
    """Average effect over all rows or a subset, its 95% limits, standard error and degrees of freedom.

    Effects are in units of the outcome, or ratios; the standard error of a ratio is that of its logarithm.
    """
    if outcomes.effect_scale == "difference":
        average = mean_effects(outcomes, rows)
        effect, low, high = (outcomes.unit * float(part) for part in (average.estimate[0], *average.limits()))
        return effect, low, high, outcomes.unit * float(average.standard_error[0]), average.freedom
    average = AverageEffects.of_log_ratio(outcomes, rows)
    with np.errstate(over="ignore"):
        effect, low, high = (float(np.exp(part)) for part in (average.estimate[0], *average.limits()))
    return effect, low, high, float(average.standard_error[0]), average.freedom


def mean_effects(outcomes: PseudoOutcomes, rows: Any = slice(None)) -> AverageEffects:
    """Average effect in standardised units of the outcome, over all rows or a subset."""
    return AverageEffects.of(outcomes, outcomes.expected[..., :1], outcomes.errors[:, :1], rows)


SUBGROUPS = "effects by subgroup"
QUARTILES = (0.25, 0.5, 0.75)
MAX_SUBGROUP_LEVELS = 30  # of a category; those with the most rows
MIN_SUBGROUP_ARM = 2  # of either arm, that a subgroup has an effect
MAX_DECIMALS = 7
MISSING = "missing"
NUMBERS = ("effect", "low", "high", "se", "df")


def subgroup_effects(outcomes: PseudoOutcomes, table: FeatureTable, units: Sequence[Unit]) -> pd.DataFrame:
    """Average effect in every subgroup, adjusted for all features.

    Parameters
    ----------
    outcomes : PseudoOutcomes
        What is averaged.
    table : FeatureTable
        Features of the rows that `outcomes` has.
    units : sequence of Unit
        Features, and groups of columns that are tested as one; each of their columns has subgroups.

    Returns
    -------
    DataFrame
        See `SelectionResult.subgroups`; without the features' p-values.
    """
    rows_shown: list[dict[str, Any]] = []
    for unit in units:
        for member in unit.members:
            if table.is_constant(member):
                continue
            for level, rows in _subgroups(table.values[:, member], table.categories[member], outcomes.weights):
                named = {"feature": unit.name, "column": table.names[member], "level": level}
                rows_shown.append({**named, **_effect(outcomes, rows)})
    return pd.DataFrame(rows_shown).astype({"level": object}) if rows_shown else no_subgroups()


def _effect(outcomes: PseudoOutcomes, rows: NDArray[np.intp]) -> dict[str, float]:
    counted = outcomes.arm_weights[rows] > 0
    n_treated, n_control = (int(np.sum(counted & (outcomes.arms[rows] == arm))) for arm in (1, 0))
    known = min(n_treated, n_control) >= MIN_SUBGROUP_ARM
    numbers = effect_limits(outcomes, rows) if known else (math.nan,) * len(NUMBERS)
    if not math.isfinite(numbers[0]):  # a ratio of averages of which one is zero
        numbers = (math.nan,) * len(NUMBERS)
    return {"n_treated": n_treated, "n_control": n_control, **dict(zip(NUMBERS, numbers, strict=True))}


def _subgroups(column: Array, labels: tuple[Any, ...] | None, weights: Array) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Names of a column's subgroups in order, each with its rows."""
    seen = ~np.isnan(column)
    if labels is not None:
        counts = np.bincount(column[seen].astype(np.intp), minlength=len(labels))
        for code in sorted(np.argsort(-counts, kind="stable")[:MAX_SUBGROUP_LEVELS]):
            yield _named(labels[code]), np.flatnonzero(column == code)
    elif seen.any():
        edges, decimals = _edges(column[seen], weights[seen])
        cell = np.searchsorted(edges, column, side="left")
        for k, name in enumerate(_quarters(edges, decimals)):
            rows = np.flatnonzero(seen & (cell == k))
            if rows.size:
                yield name, rows
    if not seen.all():
        yield MISSING, np.flatnonzero(~seen)


def _named(label: Any) -> str:
    if label is None or (not isinstance(label, str) and pd.isna(label)):
        return MISSING
    return f"{label:g}" if isinstance(label, float | np.floating) else str(label)


def _edges(values: Array, weights: Array) -> tuple[Array, int]:
    """Quartiles, rounded so that the names of ranges are exact, and their number of decimals."""
    edges = np.unique(Weights.of(weights).quantiles(values, np.array(QUARTILES)))
    extent = float(np.ptp(edges)) or abs(float(edges[0])) or 1.0
    decimals = 1 - math.floor(math.log10(extent))
    near = np.unique(np.round(edges, decimals) + 0.0)  # no minus zero
    near = near if near.size == edges.size else edges
    return near[(near < values.max()) & (near >= values.min())], max(decimals, 0)


def _quarters(edges: Array, decimals: int) -> list[str]:
    """Names of the ranges between quartiles.

    Examples
    --------
    >>> _quarters(np.array([48.2, 61.7]), 1)
    ['up to 48.2', 'over 48.2 to 61.7', 'over 61.7']
    """
    if not edges.size:
        return ["all values"]
    at = [f"{edge:.{decimals}f}" if decimals < MAX_DECIMALS else f"{edge:.4g}" for edge in edges]
    inner = [f"over {low} to {high}" for low, high in pairwise(at)]
    return [f"up to {at[0]}", *inner, f"over {at[-1]}"]
