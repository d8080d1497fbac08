"""Average effects of all rows, or of a subgroup, with their standard errors.

The estimate is the doubly robust one: what models that have not seen a row expect of both arms, and the weighted
average of their errors in each arm. It is a sum over rows, or over clusters, and its variance is that of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student_t

from modifind._typing import Array, Ints
from modifind.data.survey import effective_size
from modifind.explain.pseudo import PseudoOutcomes

MOST_LEVERAGE = 0.3  # share of an average that a row or cluster is taken to have
LEAST_FREEDOM = 2.0
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
        weights, errors = outcomes.weights[rows], errors[rows]
        in_arm = outcomes.arm_weights[rows, None] * np.equal(outcomes.arms[rows, None], [0, 1])
        apart, mass = expected[rows, 1] - expected[rows, 0], in_arm.sum(axis=0)
        modelled, corrections = weights @ apart / weights.sum(), in_arm.T @ errors / mass[:, None]
        terms = (weights / weights.sum())[:, None] * (apart - modelled)
        for arm, sign in ((0, -1.0), (1, 1.0)):
            terms += sign * (in_arm[:, arm] / mass[arm])[:, None] * (errors - corrections[arm])
        row_terms = terms
        if outcomes.clusters is not None:
            clusters = np.unique(outcomes.clusters[rows], return_inverse=True)[1].reshape(-1)
            terms, in_arm = sums_of(terms, clusters), sums_of(in_arm, clusters)
        # A row that has much of its arm's average draws it to itself; its error is larger than what is left of it.
        share = (in_arm**2 / mass).sum(axis=1) / np.maximum(in_arm.sum(axis=1), np.finfo(np.float64).tiny)
        terms = terms / (1.0 - np.minimum(share, MOST_LEVERAGE))[:, None]
        freedom = min(effective_size(own) for own in in_arm.T) - 2.0
        return cls(modelled + corrections[1] - corrections[0], terms, max(freedom, LEAST_FREEDOM), row_terms)

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


def sums_of(values: Array, codes: Ints) -> Array:
    """Sums over the rows of each code."""
    return np.stack([np.bincount(codes, column) for column in values.T], axis=1)


def mean_effects(outcomes: PseudoOutcomes, rows: Any = slice(None)) -> AverageEffects:
    """The average effect in standardised units of the outcome, of all rows or of some."""
    return AverageEffects.of(outcomes, outcomes.expected[..., :1], outcomes.errors[:, :1], rows)
