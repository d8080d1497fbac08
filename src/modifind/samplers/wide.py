"""Linear laws where columns are many and rows are few: means out of fold, from all columns or from a few of them.

In such tables a regression follows its own rows. Residuals are then too small, the more so the closer the number of
columns comes to that of the rows, and degrees of freedom no longer make up for it once columns are chosen. So the mean
of every row comes from a regression that has not seen it, and the spread is that of the errors so made: the observed
value then lies about its mean as a draw does, whatever the regression missed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modifind.kernels import Array

PENALTIES: Array = np.logspace(0, 6, 7)
N_NEIGHBOURS = (5, 20, 60)
NEIGHBOUR_PENALTIES = (1.0, 30.0, 1000.0)


@dataclass(frozen=True)
class _Part:
    """The rows outside one fold: means of the columns by arm, and the spectrum of the scatter about them.

    Attributes
    ----------
    centres : array of shape (2, p)
        Means in both arms. Taking them off leaves the effect of the treatment unpenalised.
    values : array of shape (r,)
        Eigenvalues that are not zero; r is at most the number of rows.
    vectors : array of shape (p, r)
        Their eigenvectors.
    squares : array of shape (p,)
        Diagonal of the scatter matrix.
    """

    centres: Array
    values: Array
    vectors: Array
    squares: Array

    @classmethod
    def of(cls, columns: Array, arms: NDArray[np.int64]) -> _Part:
        """Factor the smaller of the two Gram matrices."""
        centres = np.zeros((2, columns.shape[1]))
        for arm in np.unique(arms):
            centres[arm] = columns[arms == arm].mean(axis=0)
        centred = columns - centres[arms]
        n_rows, n_columns = centred.shape
        if n_columns <= n_rows:
            values, vectors = np.linalg.eigh(centred.T @ centred)
        else:
            values, left = np.linalg.eigh(centred @ centred.T)
        large = values > 1e-10 * values[-1]
        values = values[large]
        vectors = vectors[:, large] if n_columns <= n_rows else centred.T @ (left[:, large] / np.sqrt(values))
        return cls(centres, values, vectors, (centred**2).sum(axis=0))

    def slopes(self, target: int) -> Array:
        """Slopes of one column on the others, a column of them for every candidate (0 for the target itself).

        The first candidates are ridge regressions on all columns: with P the inverse of the penalised scatter matrix,
        their slopes are -P[rest, target] / P[target, target]. The others are ridge regressions on the columns most
        correlated with the target.
        """
        own = self.vectors[target]
        shrunk = 1.0 / (self.values[:, None] + PENALTIES) - 1.0 / PENALTIES
        products = self.vectors @ (own[:, None] * np.column_stack((shrunk, self.values)))
        inverse, scatter = products[:, :-1], products[:, -1]
        inverse[target] += 1.0 / PENALTIES
        found = np.zeros((scatter.size, PENALTIES.size + len(N_NEIGHBOURS) * len(NEIGHBOUR_PENALTIES)))
        found[:, : PENALTIES.size] = -inverse / inverse[target]
        strength = scatter**2 / np.where(self.squares > 1e-9 * self.squares.max(), self.squares, np.inf)
        strength[target] = -1.0
        nearest = np.argsort(-strength, kind="stable")[: min(N_NEIGHBOURS[-1], scatter.size - 1)]
        near = self.vectors[nearest] * np.sqrt(self.values)
        gram = near @ near.T
        place = PENALTIES.size
        for count in N_NEIGHBOURS:
            chosen = nearest[:count]
            for penalty in NEIGHBOUR_PENALTIES:
                matrix = gram[:count, :count] + penalty * np.eye(chosen.size)
                found[chosen, place] = np.linalg.solve(matrix, scatter[chosen])
                place += 1
        found[target] = 0.0
        return found


@dataclass(frozen=True)
class CrossFittedRidge:
    """Regressions of each column on the others, for every row from the rows of the other folds.

    Attributes
    ----------
    columns : array of shape (n, p)
        The columns.
    arms : array of shape (n,)
        Arm of each row, means of which are free; all 0 where the treatment is not conditioned on.
    folds : array of shape (n,)
        Fold of each row.
    parts : tuple
        What is known of the rows outside each fold.
    """

    columns: Array
    arms: NDArray[np.int64]
    folds: NDArray[np.int64]
    parts: tuple[_Part, ...]

    @classmethod
    def of(cls, columns: Array, arms: NDArray[np.int64], folds: NDArray[np.int64]) -> CrossFittedRidge:
        """One factorisation per fold serves all columns; its cost is that of the smaller Gram matrix."""
        parts = (_Part.of(columns[folds != fold], arms[folds != fold]) for fold in range(int(folds.max()) + 1))
        return cls(columns, arms, folds, tuple(parts))

    def regress(self, target: int) -> tuple[Array, float]:
        """Out-of-fold mean of one column, by the candidate of least error, and the root mean square of its errors."""
        means: Array | None = None
        for fold, part in enumerate(self.parts):
            rows = np.flatnonzero(self.folds == fold)
            slopes, centres = part.slopes(target), part.centres[self.arms[rows]]
            if means is None:
                means = np.empty((self.folds.size, slopes.shape[1]))
            means[rows] = centres[:, target, None] + (self.columns[rows] - centres) @ slopes
        assert means is not None
        errors = ((self.columns[:, target, None] - means) ** 2).mean(axis=0)
        best = int(np.argmin(errors))
        return means[:, best], float(np.sqrt(errors[best]))
