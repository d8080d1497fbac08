"""What the levels of a category add, shrunk: sums over the rows of each level, and their posterior means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array

N_FOLDS = 5
N_STEPS = 20
LARGE_EFFECT = 0.3  # of levels on both arms, in standard errors of a row
LEAST_SHARE = 1e-3  # of what the rows of a level say is believed at the least, so that its direction can be tested
Coded = tuple[tuple[slice, int], ...]


@dataclass(frozen=True)
class LevelTables:
    """A number for every level of some categories.

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
        """Rows, of any shape, whose last axis has all columns, or neighbouring ones from `first` on, with numbers."""
        X = X.copy() if self.columns else X
        for place, own in self._found(X, first):
            X[..., place] = own
        return X

    def total(self, X: Array, first: int = 0) -> Array:
        """The sum of the numbers of such rows."""
        total = np.zeros(X.shape[:-1])
        for _, own in self._found(X, first):
            total += own
        return total

    def _found(self, X: Array, first: int) -> Iterator[tuple[int, Array]]:
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
        """From rows."""
        shape = n_levels, n_arms, N_FOLDS
        place = np.ravel_multi_index((codes, np.asarray(arms, dtype=np.intp), folds), shape)
        size = n_levels * n_arms * N_FOLDS
        found = [np.bincount(place, own, minlength=size).astype(np.float64) for own in (weight, weight * residual)]
        return cls(found[0].reshape(shape), found[1].reshape(shape))

    def effects(self) -> tuple[Array, Array]:
        """Effects of the levels by all rows, shape (levels, k), and by those outside each fold, (folds, levels, k).

        With one arm there is one effect. With two there are that on both, and that on their difference, which is
        estimated with the former free: one that is shrunk would leave some of itself to the arm that has more rows of
        the level.
        """
        whole = _differences(self.weight.sum(axis=2), self.total.sum(axis=2))
        variances = [_best_variance(*part) for part in whole]
        found = np.stack([_shrunk(*part, v) for part, v in zip(whole, variances, strict=True)], axis=-1)
        outside = []
        for fold in range(self.weight.shape[2]):
            sums = (part.sum(axis=2) - part[:, :, fold] for part in (self.weight, self.total))
            pairs = zip(_differences(*sums), variances, strict=True)
            outside.append(np.stack([_shrunk(*part, v) for part, v in pairs], axis=-1))
        return found, np.stack(outside)


def _differences(weight: Array, total: Array) -> list[tuple[Array, Array]]:
    """Information on each effect of every level and its estimate without shrinking, from sums by arm."""
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
    """Variance between levels of greatest evidence, by MacKay's fixed point."""
    unit = 1.0 / max(float(weight.mean()), 1e-300)
    variance = unit
    for _ in range(N_STEPS):
        share = weight * variance / (weight * variance + 1.0)
        told = max(float(share.sum()), 1e-8)
        variance = float(np.clip(((share * estimate) ** 2).sum() / told, LEAST_SHARE * unit, 1e4 * unit))
    return variance


def _shrunk(weight: Array, estimate: Array, variance: float) -> Array:
    """Posterior means."""
    return weight * variance / (weight * variance + 1.0) * estimate


def inner_folds(n_rows: int) -> NDArray[np.intp]:
    """Folds of rows that get the effects that the others show; the same for every run."""
    return np.random.default_rng(0).permutation(n_rows) % N_FOLDS
