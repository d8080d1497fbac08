"""Categories of many levels in models of the outcome: a shrunken effect of each level instead of an indicator.

From the rows that a learner is fitted to, each level gets its effect on the location of both arms, on the difference
between them and, for a numeric outcome, the same two on the log-scale. Effects are posterior means under normal priors
whose variances maximise the evidence, after what other columns explain has been removed. A learner is then given these
few columns. Its training rows have the effects that the *other* rows of their level show, so that it does not trust
them more than they deserve.

Above 100 levels, levels with similar effects are grouped. Neither a learner nor a test that follows it can tell the
levels of a group apart, so that only the probabilities of groups need be known.
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
from modifind.nuisance.outcome.contract import own_arm
from modifind.nuisance.regression.density import student_weight
from modifind.nuisance.regression.level_sums import LARGE_EFFECT, Coded, LevelSums, inner_folds

MAX_GROUPS = 100
FEW_KNOTS = 5
EFFECT_SHAPE = 6.0


@dataclass(frozen=True)
class LevelEffects:
    """Effects of the levels of some categories on an outcome, as columns in place of the codes.

    Attributes
    ----------
    columns : tuple of slice
        Columns of each category, of which the first holds codes.
    tables : tuple of arrays of shape (levels, k)
        The effects, which take the place of these columns.
    """

    columns: tuple[slice, ...] = ()
    tables: tuple[Array, ...] = ()

    @classmethod
    def from_rows(
        cls, coded: Coded, X: Array, a: Ints, y: Array, *, binary: bool, weights: Weights
    ) -> tuple[LevelEffects, Array]:
        """Learn effects from rows; also the columns of these rows, each with the effects that the others show."""
        if not coded:
            return cls(), X
        folds, counts = inner_folds(y.size), weights.effective
        residual, weight, scale = _without_levels(coded, X, a, y, binary, weights)
        weight = counts.times(weight)
        tables, columns = [], []
        for category, n_levels in coded:
            codes = X[:, category.start].astype(np.intp)
            table, outside = LevelSums.of(codes, n_levels, a, folds, weight, residual).effects()
            held_out, unit = outside[folds, codes], float(np.sqrt(weight.mean()))
            residual = residual - held_out[:, 0] - (a - 0.5) * held_out[:, 1]
            units = [unit, unit / 2]
            if not binary:
                score, information = _scale_scores(residual / scale, a)
                informations = counts.times(np.full(y.size, information))
                by_level, outside = LevelSums.of(codes, n_levels, a, folds, informations, score).effects()
                table, held_out = np.hstack((table, by_level)), np.hstack((held_out, outside[folds, codes]))
                units += [float(np.sqrt(information)), float(np.sqrt(information)) / 2]
            table = _grouped(table, np.array(units), np.bincount(codes, minlength=n_levels))
            centre, spread = held_out.mean(axis=0), held_out.std(axis=0)
            spread = np.where(spread > 0, spread, 1.0)
            tables.append((table - centre) / spread)
            columns.append((held_out - centre) / spread)
        effects = cls(tuple(category for category, _ in coded), tuple(tables))
        return effects, effects._replace(X, columns)

    def __call__(self, X: Array, first: int = 0) -> Array:
        """Rows, of any shape, whose last axis has all columns, or neighbouring ones from `first` on, with effects."""
        inside = self._inside(X, first)
        if not inside:
            return X
        effects = [table[X[..., category.start - first].astype(np.intp)] for category, table in inside]
        return self._replace(X, effects, first)

    def _inside(self, X: Array, first: int) -> list[tuple[slice, Array]]:
        pairs = zip(self.columns, self.tables, strict=True)
        return [pair for pair in pairs if first <= pair[0].start < first + X.shape[-1]]

    def _replace(self, X: Array, effects: Sequence[Array], first: int = 0) -> Array:
        """Put columns of effects in place of codes and what goes with them."""
        pieces, last = [], 0
        for (category, _), columns in zip(self._inside(X, first), effects, strict=True):
            pieces += [X[..., last : category.start - first], columns]
            last = category.stop - first
        return np.concatenate([*pieces, X[..., last:]], axis=-1)

    def place(self, columns: slice) -> slice:
        """Where columns are among those with effects."""
        start, stop = columns.start, columns.stop
        for category, table in zip(self.columns, self.tables, strict=True):
            change = table.shape[1] - (category.stop - category.start)
            start += change * (category.start < columns.start)
            stop += change * (category.start < columns.stop)
        return slice(start, stop)

    def alike(self, columns: slice) -> NDArray[np.intp] | None:
        """Group of every level of a category such that its levels have the same effects; None for other columns."""
        if columns not in self.columns:
            return None
        table = self.tables[self.columns.index(columns)]
        return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)


def _without_levels(
    coded: Coded, X: Array, a: Ints, y: Array, binary: bool, weights: Weights
) -> tuple[Array, Array, Array]:
    """Residuals of a model without the levels, the information on a shift of them, and their scale.

    The model has what the rows of a level have in common in other columns; that is then left in the residuals.
    """
    codes = [category.start for category, _ in coded]
    means = np.concatenate([np.arange(category.start + 1, category.stop) for category, _ in coded])
    means = np.searchsorted(np.delete(np.arange(X.shape[1]), codes), means)
    others = np.delete(X, codes, axis=1)
    if not others.shape[1]:
        others = np.zeros((y.size, 1))
    still = others.copy()
    still[:, means] = others[:, means].mean(axis=0)
    if binary:
        model = AdditiveClassifier(0, products=False).fit(others, a, y, weights.given)
        chance = expit(own_arm(model.index(still), a))
        weight = chance * (1 - chance)
        return (y - chance) / weight, weight, np.ones(y.size)
    learner = AdditiveLearner(FEW_KNOTS, products=False).fit(others, a, y, weights.given)
    location, scale = learner.predict(others)
    moved = own_arm(location, a) - own_arm(learner.predict(still)[0], a) if means.size else 0.0
    return learner.residual_ + moved, learner.weight_, own_arm(scale, a)


def _scale_scores(standardised: Array, a: Ints) -> tuple[Array, float]:
    """Relative errors of the squared residuals of each arm, as shifts of the log-scale, and the information on one."""
    square = student_weight(standardised, EFFECT_SHAPE) * standardised**2
    for arm in (0, 1):
        square[a == arm] /= max(float(square[a == arm].mean()), 1e-12)
    return square - 1.0, 1.0 / max(float(square.var()), 1e-12)


def _grouped(table: Array, units: Array, counts: NDArray[np.intp]) -> Array:
    """Effects of levels, at most 100 different ones.

    Levels are close if they differ little, in units of their spread, in the effects that set the arms apart, and in
    those on both arms as far as these matter to the likelihood, whose `units` they are measured in.
    """
    if len(table) <= MAX_GROUPS:
        return table
    share = counts / counts.sum()
    spread = np.maximum(np.sqrt(share @ (table - share @ table) ** 2), 1e-300)
    common = np.minimum(spread * units / LARGE_EFFECT, 1.0)
    scaled = table / spread * np.where(np.arange(units.size) % 2 == 0, common, 1.0)
    weight = counts + 1e-3
    groups = KMeans(MAX_GROUPS, n_init=1, max_iter=30, random_state=0).fit(scaled, sample_weight=weight).labels_
    sums = [np.bincount(groups, weight * column, minlength=MAX_GROUPS) for column in table.T]
    total = np.bincount(groups, weight, minlength=MAX_GROUPS)
    return (np.stack(sums, axis=1) / np.maximum(total, 1e-300)[:, None])[groups]
