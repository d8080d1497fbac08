"""Average effects of all rows, or of a subgroup, with their standard errors.

The estimate is the doubly robust one: what models that have not seen a row expect of both arms, and the weighted
average of their errors in each arm. It is a sum over rows, or over clusters, and its variance is that of the sum. The
logarithm of a ratio is one by the delta method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student_t

from modifind._typing import Array
from modifind.data.weights import Weights
from modifind.explain.comparisons import ArmDistributions
from modifind.explain.pseudo import N_MOMENTS, PseudoOutcomes

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
        """Average effects on functions of the outcome, of all rows or of some.

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
        """The logarithm of the effect on the average, where the arms are compared by a ratio or an odds ratio.

        NaN where an arm has nothing above the lowest outcome. Cuts between levels of which an arm is on one side alone
        do not count: a doubly robust average of zeros is zero but for a remainder.
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
        moved = arms.log_moves("mean_effect", ArmDistributions.from_averages(averages + terms), outcomes)
        return cls._from_terms(outcomes, estimate, moved[:, None], rows)

    @classmethod
    def _from_terms(cls, outcomes: PseudoOutcomes, estimate: Array, terms: Array, rows: Any) -> AverageEffects:
        """From what each row adds to the error of the estimate."""
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
        """Of the estimates, shape (k, k)."""
        return self.terms.T @ self.terms

    @property
    def standard_error(self) -> Array:
        """Of each estimate."""
        return np.sqrt(np.einsum("ij,ij->j", self.terms, self.terms))

    @property
    def statistic(self) -> float:
        """The first estimate in standard errors; NaN where there is no error."""
        error = float(self.standard_error[0])
        return float(self.estimate[0]) / error if error > 0 else np.nan

    @property
    def p_value(self) -> float:
        """Two-sided, of whether the first estimate is zero; 1 where there is no error that could tell."""
        p_value = float(2.0 * student_t.sf(abs(self.statistic), self.freedom))
        return 1.0 if np.isnan(p_value) else max(p_value, SMALLEST)

    def limits(self, level: float = 0.95) -> tuple[float, float]:
        """Of the first estimate."""
        reach = float(student_t.isf((1.0 - level) / 2.0, self.freedom)) * float(self.standard_error[0])
        return float(self.estimate[0]) - reach, float(self.estimate[0]) + reach


def _observed_shares(outcomes: PseudoOutcomes, rows: Any) -> Array:
    """Shares of each arm's rows that are up to every mark, shape (2, marks), as observed."""
    arms = outcomes.arms[rows]
    expected = outcomes.expected[rows][np.arange(arms.size), arms, N_MOMENTS:]
    observed = np.round(outcomes.errors[rows][:, N_MOMENTS:] + expected)
    counted = outcomes.arm_weights[rows] > 0
    return np.stack([observed[counted & (arms == arm)].mean(axis=0) for arm in (0, 1)])


def _in_arm(outcomes: PseudoOutcomes, rows: Any) -> Array:
    """How much rows count in the average of each arm's errors, shape (rows, 2)."""
    in_arm: Array = outcomes.arm_weights[rows, None] * np.equal(outcomes.arms[rows, None], [0, 1])
    return in_arm


def _arm_averages(outcomes: PseudoOutcomes, expected: Array, errors: Array, rows: Any) -> tuple[Array, Array]:
    """Averages of functions in both arms, shape (2, k), and what each row adds to their errors, shape (rows, 2, k)."""
    share, in_arm = outcomes.weights[rows] / outcomes.weights[rows].sum(), _in_arm(outcomes, rows)
    in_arm /= in_arm.sum(axis=0)
    modelled, corrections = np.tensordot(share, expected, 1), in_arm.T @ errors
    terms = share[:, None, None] * (expected - modelled)
    terms += in_arm[:, :, None] * (errors[:, None] - corrections)
    return modelled + corrections, terms


def effect_limits(outcomes: PseudoOutcomes, rows: Any = slice(None)) -> tuple[float, float, float, float, float]:
    """The effect on the average of all rows or of some, its 95% limits, its standard error and degrees of freedom.

    Effects are in the unit of the outcome, or ratios; the standard error is then that of the logarithm.
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
    """The average effect in standardised units of the outcome, of all rows or of some."""
    return AverageEffects.of(outcomes, outcomes.expected[..., :1], outcomes.errors[:, :1], rows)
