"""Categories of many levels in models of the outcome: what a level adds, shrunk, instead of an indicator per level.

From the rows that a learner is fitted to, each level gets what it adds to the location of both arms, to the difference
between them and, for a numeric outcome, the same two of the log-scale: posterior means under normal priors whose
variances are those of greatest evidence. What other columns explain is taken off before. A learner is then given these
few columns, in which every row of its own has the effects that the *other* rows of the level show, so that it trusts
them no more than they deserve.

Above 100 levels those with like effects are gathered. A learner cannot tell the levels of such a group apart, and
neither can a test that follows it, so that chances of levels need only be known by group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.cluster import KMeans

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.outcome.additive import AdditiveLearner
from modifind.nuisance.outcome.binary import AdditiveClassifier
from modifind.nuisance.regression.density import student_weight
from modifind.nuisance.regression.level_sums import LARGE_EFFECT, Coded, LevelSums, inner_folds

MOST_GROUPS = 100
N_KNOTS = 5
SHAPE = 6.0


@dataclass(frozen=True)
class LevelEffects:
    """What the levels of some categories add to an outcome, as columns.

    Attributes
    ----------
    coded : tuple
        Columns of each category, of which the first holds codes, and the number of its levels.
    tables : tuple of arrays of shape (levels, k)
        The effects, which take the place of these columns.
    """

    coded: Coded
    tables: tuple[Array, ...]

    @classmethod
    def of(
        cls, coded: Coded, X: Array, a: Ints, y: Array, *, binary: bool, weights: Weights
    ) -> tuple[LevelEffects, Array]:
        """Learn effects from rows; also the columns of these rows, each with the effects that the others show."""
        folds = inner_folds(y.size)
        counts = weights.effective
        rows = _Rows.of(coded, X, a, y, binary, weights)
        tables, columns = [], []
        for own, n_levels in coded:
            codes = X[:, own.start].astype(np.intp)
            parts = [rows.effects(codes, n_levels, folds, counts)]
            if not binary:
                parts.append(rows.scale_effects(codes, n_levels, folds, counts))
            table, held, size = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
            table = _gathered(table, size, np.bincount(codes, minlength=n_levels))
            centre, spread = held.mean(axis=0), held.std(axis=0)
            spread = np.where(spread > 0, spread, 1.0)
            tables.append((table - centre) / spread)
            columns.append((held - centre) / spread)
        found = cls(coded, tuple(tables))
        return found, found._placed(X, columns)

    def __call__(self, X: Array, first: int = 0) -> Array:
        """Rows, of any shape, whose last axis has all columns, or neighbouring ones from `first` on, with effects."""
        parts = [table[X[..., own.start - first].astype(np.intp)] for (own, _), table in self._within(X, first)]
        return self._placed(X, parts, first)

    def _within(self, X: Array, first: int) -> list[tuple[tuple[slice, int], Array]]:
        stop = first + X.shape[-1]
        pairs = zip(self.coded, self.tables, strict=True)
        return [(part, table) for part, table in pairs if first <= part[0].start < stop]

    def _placed(self, X: Array, columns: Sequence[Array], first: int = 0) -> Array:
        """Columns of effects in the place of codes and what goes with them."""
        parts, last = [], 0
        for ((own, _), _), effects in zip(self._within(X, first), columns, strict=True):
            parts += [X[..., last : own.start - first], effects]
            last = own.stop - first
        return np.concatenate([*parts, X[..., last:]], axis=-1)

    def place(self, columns: slice) -> slice:
        """Where columns are among those with effects."""
        start, stop = columns.start, columns.stop
        for (own, _), table in zip(self.coded, self.tables, strict=True):
            change = table.shape[1] - (own.stop - own.start)
            start += change * (own.start < columns.start)
            stop += change * (own.start < columns.stop)
        return slice(start, stop)

    def alike(self, columns: slice) -> NDArray[np.intp] | None:
        """Group of every level of a category such that its levels have the same effects; None for other columns."""
        for (own, _), table in zip(self.coded, self.tables, strict=True):
            if own == columns:
                return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)
        return None


@dataclass
class _Rows:
    """What other columns leave over of the outcome, row by row, as one category after the other takes its part.

    Attributes
    ----------
    a : array of int
        Arms.
    residual, weight : array
        Residuals of the outcome and the information on a shift of them.
    scale : array
        Scale of the residuals, 1 for a binary outcome.
    """

    a: Ints
    residual: Array
    weight: Array
    scale: Array

    @classmethod
    def of(cls, coded: Coded, X: Array, a: Ints, y: Array, binary: bool, weights: Weights) -> _Rows:
        """Fit a model without the levels, but with what their rows have in common; the latter is then left in."""
        codes = [own.start for own, _ in coded]
        means = np.concatenate([np.arange(own.start + 1, own.stop) for own, _ in coded])
        means = np.searchsorted(np.delete(np.arange(X.shape[1]), codes), means)
        others = np.delete(X, codes, axis=1)
        if not others.shape[1]:
            others = np.zeros((y.size, 1))
        still = others.copy()
        still[:, means] = others[:, means].mean(axis=0)
        own_arm = np.arange(y.size), a
        if binary:
            model = AdditiveClassifier(0, products=False).fit(others, a, y, weights.given)
            chance = expit(model.index(still)[own_arm])
            weight = chance * (1 - chance)
            return cls(a, (y - chance) / weight, weight, np.ones(y.size))
        learner = AdditiveLearner(N_KNOTS, products=False).fit(others, a, y, weights.given)
        location, scale = learner.predict(others)
        moved = location[own_arm] - learner.predict(still)[0][own_arm] if means.size else 0.0
        return cls(a, learner.residual_ + moved, learner.weight_, scale[own_arm])

    def effects(
        self, codes: NDArray[np.intp], n_levels: int, folds: NDArray[np.intp], counts: Weights
    ) -> tuple[Array, Array, Array]:
        """Effects on the location: of levels, of rows by the others of their level, and the root of the information."""
        weight = counts.times(self.weight)
        table, outside = LevelSums.of(codes, n_levels, self.a, folds, weight, self.residual).effects()
        held = outside[folds, codes]
        self.residual = self.residual - held[:, 0] - (self.a - 0.5) * held[:, 1]
        return table, held, np.sqrt(weight.mean()) * np.array([1.0, 0.5])

    def scale_effects(
        self, codes: NDArray[np.intp], n_levels: int, folds: NDArray[np.intp], counts: Weights
    ) -> tuple[Array, Array, Array]:
        """The same of the log-scale, from residuals that the effects on the location have been taken off."""
        u = self.residual / self.scale
        score = student_weight(u, SHAPE) * u**2
        for arm in (0, 1):
            score[self.a == arm] /= max(float(score[self.a == arm].mean()), 1e-12)
        information = 1.0 / max(float(score.var()), 1e-12)
        weight = counts.times(np.full(u.size, information))
        table, outside = LevelSums.of(codes, n_levels, self.a, folds, weight, score - 1.0).effects()
        return table, outside[folds, codes], np.sqrt(information) * np.array([1.0, 0.5])


def _gathered(table: Array, size: Array, counts: NDArray[np.intp]) -> Array:
    """Effects of levels, at most 100 different ones.

    Levels are near that differ little, in units of their spread, in what sets the arms apart, and in what they have in
    common as far as that matters to the likelihood, of which `size` is the unit.
    """
    if len(table) <= MOST_GROUPS:
        return table
    share = counts / counts.sum()
    spread = np.maximum(np.sqrt(share @ (table - share @ table) ** 2), 1e-300)
    common = np.minimum(spread * size / LARGE_EFFECT, 1.0)
    scaled = table / spread * np.where(np.arange(size.size) % 2 == 0, common, 1.0)
    found = KMeans(MOST_GROUPS, n_init=1, max_iter=30, random_state=0).fit(scaled, sample_weight=counts + 1e-3)
    centres = np.zeros((MOST_GROUPS, table.shape[1]))
    weight = np.bincount(found.labels_, counts + 1e-3, minlength=MOST_GROUPS)
    for k, column in enumerate(table.T):
        sums = np.bincount(found.labels_, (counts + 1e-3) * column, minlength=MOST_GROUPS)
        centres[:, k] = sums / np.maximum(weight, 1e-300)
    return centres[found.labels_]
