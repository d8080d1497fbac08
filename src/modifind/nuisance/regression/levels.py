"""Shrunken effects of the levels of a category: sums over the rows of each level, and posterior means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array

N_LEVEL_FOLDS = 5
N_VARIANCE_STEPS = 20
LARGE_EFFECT = 0.3  # of levels on both arms, in standard errors of a row
MIN_SHRINKAGE = 1e-3  # of a level's estimate that is kept at least, so that its direction can be tested
Coded = tuple[tuple[slice, int], ...]


@dataclass(frozen=True)
class LevelTables:
    """One number for every level of some categories.

    Attributes
    ----------
    columns : tuple of int
        Columns of codes.
    tables : tuple of arrays of shape (levels,)
        The numbers.
    """

    columns: tuple[int, ...] = ()
    tables: tuple[Array, ...] = ()

    def __call__(self, X: Array, first: int = 0) -> Array:
        """Insert the numbers into rows, whose last axis has all columns, or adjacent ones from `first` on."""
        X = X.copy() if self.columns else X
        for column, numbers in self._numbers(X, first):
            X[..., column] = numbers
        return X

    def total(self, X: Array, first: int = 0) -> Array:
        """Sum of the numbers of such rows."""
        total = np.zeros(X.shape[:-1])
        for _, numbers in self._numbers(X, first):
            total += numbers
        return total

    def _numbers(self, X: Array, first: int) -> Iterator[tuple[int, Array]]:
        for column, table in zip(self.columns, self.tables, strict=True):
            if first <= column < first + X.shape[-1]:
                yield column - first, table[X[..., column - first].astype(np.intp)]


@dataclass(frozen=True)
class LevelSums:
    """Sums over the rows of every level, arm and fold.

    Attributes
    ----------
    weight, total : array of shape (levels, arms, folds)
        Information, and information times residual.
    """

    weight: Array
    total: Array

    @classmethod
    def of(
        cls,
        codes: NDArray[np.intp],
        n_levels: int,
        arms: NDArray[Any],
        folds: NDArray[Any],
        weight: Array,
        residual: Array,
        n_arms: int = 2,
    ) -> LevelSums:
        """Sum over rows."""
        shape = n_levels, n_arms, N_LEVEL_FOLDS
        cells = np.ravel_multi_index((codes, np.asarray(arms, dtype=np.intp), folds), shape)
        sums = [np.bincount(cells, values, minlength=int(np.prod(shape))) for values in (weight, weight * residual)]
        return cls(*(values.astype(np.float64).reshape(shape) for values in sums))

    def effects(self) -> tuple[Array, Array]:
        """Effects of the levels from all rows, shape (levels, k), and from those outside each fold, (folds, levels, k).

        With one arm there is one effect. With two there are a common one and a difference, which is estimated with the
        former unpenalised: if shrunk, part of it would appear in the arm with more rows of the level.
        """
        weight, total = self.weight.sum(axis=2), self.total.sum(axis=2)
        variances = [_best_variance(*effect) for effect in _differences(weight, total)]

        def shrunk(weight: Array, total: Array) -> Array:
            effects = zip(_differences(weight, total), variances, strict=True)
            return np.stack([_shrunk(*effect, variance) for effect, variance in effects], axis=-1)

        folds = range(self.weight.shape[2])
        outside = [shrunk(weight - self.weight[:, :, fold], total - self.total[:, :, fold]) for fold in folds]
        return shrunk(weight, total), np.stack(outside)


def _differences(weight: Array, total: Array) -> list[tuple[Array, Array]]:
    """Information and unshrunk estimate of each effect of every level, from sums by arm."""
    mean = total / np.maximum(weight, 1e-300)
    if weight.shape[1] == 1:
        return [(weight[:, 0], mean[:, 0])]
    both = weight.sum(axis=1)
    apart = weight.prod(axis=1) / np.maximum(both, 1e-300)
    difference = np.where(apart > 0, mean[:, 1] - mean[:, 0], 0.0)
    # Half way between the arms, as far as both are known.
    middle = total.sum(axis=1) - difference * (weight[:, 1] - weight[:, 0]) / 2
    return [(both, middle / np.maximum(both, 1e-300)), (apart, difference)]


def _best_variance(weight: Array, estimate: Array) -> float:
    """Variance between levels that maximises the evidence, by MacKay's fixed point."""
    unit = 1.0 / max(float(weight.mean()), 1e-300)
    variance = unit
    for _ in range(N_VARIANCE_STEPS):
        share = weight * variance / (weight * variance + 1.0)
        freedom = max(float(share.sum()), 1e-8)
        variance = float(np.clip(((share * estimate) ** 2).sum() / freedom, MIN_SHRINKAGE * unit, 1e4 * unit))
    return variance


def _shrunk(weight: Array, estimate: Array, variance: float) -> Array:
    """Posterior means."""
    return weight * variance / (weight * variance + 1.0) * estimate


def level_folds(n_rows: int) -> NDArray[np.intp]:
    """Folds of rows whose effects are learned from the other folds; equal in every run."""
    return np.random.default_rng(0).permutation(n_rows) % N_LEVEL_FOLDS
