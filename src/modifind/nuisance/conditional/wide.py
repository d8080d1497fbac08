"""Linear models of a feature where columns are many and rows are few: means out of fold, from all or few columns.

In such tables a regression follows its own rows. Residuals are then too small, the more so the closer the number of
columns comes to that of the rows, and degrees of freedom no longer make up for it once columns are chosen. So the mean
of every row comes from a regression that has not seen it, and the spread is that of the errors so made: the observed
value then lies about its mean as a draw does, whatever the regression missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.weights import Weights

WIDE_PENALTIES: Array = np.logspace(0, 6, 7)
N_NEIGHBOURS = (5, 20, 60)
NEIGHBOUR_PENALTIES = (1.0, 30.0, 1000.0)
N_CANDIDATES = WIDE_PENALTIES.size + len(N_NEIGHBOURS) * len(NEIGHBOUR_PENALTIES)


@dataclass(frozen=True)
class _Part:
    """One fold: its rows, and from the rows outside it means by arm and the spectrum of the scatter about them.

    Attributes
    ----------
    rows : array of int
        The rows of the fold.
    centres : array of shape (2, p)
        Means of the columns in both arms.
    expected, deviations : array of shape (rows, p)
        Means of the columns in each row's arm, and what its values add to them. Taking off the means of both arms
        leaves the effect of the treatment unpenalised.
    values : array of shape (r,)
        Eigenvalues that are not zero; r is at most the number of rows.
    vectors : array of shape (p, r)
        Their eigenvectors.
    squares : array of shape (p,)
        Diagonal of the scatter matrix.
    """

    rows: NDArray[np.intp]
    centres: Array
    expected: Array
    deviations: Array
    values: Array
    vectors: Array
    squares: Array

    @classmethod
    def of(cls, table: Array, all_arms: Ints, out: NDArray[np.bool_], weights: Weights) -> _Part:
        """Factor the smaller of the two Gram matrices."""
        columns, arms = table[~out], all_arms[~out]
        counts = weights[~out]
        centres = np.zeros((2, columns.shape[1]))
        for arm in np.unique(arms):
            centres[arm] = counts[arms == arm].mean(columns[arms == arm])
        centred = counts.root.times(columns - centres[arms])
        n_rows, n_columns = centred.shape
        if n_columns <= n_rows:
            values, vectors = np.linalg.eigh(centred.T @ centred)
        else:
            values, left = np.linalg.eigh(centred @ centred.T)
        large = values > 1e-10 * values[-1]
        values = values[large]
        vectors = vectors[:, large] if n_columns <= n_rows else centred.T @ (left[:, large] / np.sqrt(values))
        expected = centres[all_arms[out]]
        squares = np.einsum("ij,ij->j", centred, centred)
        return cls(np.flatnonzero(out), centres, expected, table[out] - expected, values, vectors, squares)

    def slopes(self, target: int) -> Array:
        """Slopes of one column on the others, a column of them for every candidate (0 for the target itself).

        The first candidates are ridge regressions on all columns: with P the inverse of the penalised scatter matrix,
        their slopes are -P[rest, target] / P[target, target]. The others are ridge regressions on the columns most
        correlated with the target.
        """
        shrunk = 1.0 / (self.values[:, None] + WIDE_PENALTIES) - 1.0 / WIDE_PENALTIES
        products = self.vectors @ (self.vectors[target][:, None] * np.column_stack((shrunk, self.values)))
        inverse, scatter = products[:, :-1], products[:, -1]
        inverse[target] += 1.0 / WIDE_PENALTIES
        slopes = np.zeros((scatter.size, N_CANDIDATES))
        slopes[:, : WIDE_PENALTIES.size] = -inverse / inverse[target]
        strength = scatter**2 / np.where(self.squares > 1e-9 * self.squares.max(), self.squares, np.inf)
        strength[target] = -1.0
        nearest = np.argsort(-strength, kind="stable")[: min(N_NEIGHBOURS[-1], scatter.size - 1)]
        near = self.vectors[nearest] * np.sqrt(self.values)
        gram = near @ near.T
        for k, (count, penalty) in enumerate(product(N_NEIGHBOURS, NEIGHBOUR_PENALTIES), WIDE_PENALTIES.size):
            chosen = nearest[:count]
            matrix = gram[:count, :count] + penalty * np.eye(chosen.size)
            slopes[chosen, k] = np.linalg.solve(matrix, scatter[chosen])
        slopes[target] = 0.0
        return slopes


class Regression(NamedTuple):
    """A column on the others: mean and spread of its rows, both from other folds, and the lines that tell them.

    Lines are one of all rows, or one of each fold's outside: slopes have the shape (lines, columns).
    """

    mean: Array
    scale: float
    held_mean: Array
    held_scale: Array | float
    slopes: Array
    shifts: Array


@dataclass(frozen=True)
class CrossFittedRidge:
    """Regressions of each column on the others, for every row from the rows of the other folds.

    Attributes
    ----------
    columns : array of shape (n, p)
        The columns.
    parts : tuple
        What is known of each fold.
    weights : Weights
        How much each row counts.
    treatment : int, optional
        The column that is the treatment, centred at its mean: in lines it carries what the arms differ by.
    """

    columns: Array
    parts: tuple[_Part, ...]
    weights: Weights
    treatment: int | None = None

    @classmethod
    def of(
        cls, columns: Array, arms: Ints, folds: Ints, weights: Weights, treatment: int | None = None
    ) -> CrossFittedRidge:
        """One factorisation per fold serves all columns; its cost is that of the smaller Gram matrix.

        Parameters
        ----------
        columns : array of shape (n, p)
            The columns.
        arms : array of shape (n,)
            Arm of each row; all 0 where the treatment is not conditioned on.
        folds : array of shape (n,)
            Fold of each row.
        weights : Weights
            How much each row counts, adding up to the effective number of rows.
        treatment : int, optional
            The column that is the treatment.
        """
        parts = (_Part.of(columns, arms, folds == fold, weights) for fold in range(int(folds.max()) + 1))
        return cls(columns, tuple(parts), weights, treatment)

    def regress(self, target: int) -> Regression:
        """Each fold's line of one column on the others, by the candidate of least error, and what they make of rows."""
        candidates = [part.slopes(target) for part in self.parts]
        means = np.empty((self.columns.shape[0], N_CANDIDATES))
        for part, lines in zip(self.parts, candidates, strict=True):
            means[part.rows] = part.expected[:, target, None] + part.deviations @ lines
        errors = self.weights.mean((self.columns[:, target, None] - means) ** 2)
        best = int(np.argmin(errors))
        mean, scale = means[:, best], float(np.sqrt(errors[best]))
        slopes, treatment = np.stack([lines[:, best] for lines in candidates]), self.treatment
        if treatment is not None:
            slopes[:, treatment] = 0.0
        levels = np.stack([p.centres[:, target] - p.centres @ line for p, line in zip(self.parts, slopes, strict=True)])
        shifts = levels[:, 0]
        if treatment is not None:
            low, high = np.unique(self.columns[:, treatment])
            slopes[:, treatment] = (levels[:, 1] - levels[:, 0]) / (high - low)
            shifts = shifts - slopes[:, treatment] * low
        return Regression(mean, scale, mean, scale, slopes, shifts)
