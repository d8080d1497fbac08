"""Columns that look as if they were measured after the treatment.

Nothing in a table says when a column was measured. Three things give it away: the arms of a randomised treatment differ
in it, which what came before the treatment does by chance alone; it all but determines the outcome, or is determined by
it; it says whether an event has happened, beside an outcome that says when.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from scipy.stats import t as student_t

from modifind._typing import Array
from modifind.data.censoring import MIN_LEAD, is_time, lead
from modifind.data.clusters import Clusters
from modifind.data.feature_matrix import FeatureTable
from modifind.data.support import feature_bins
from modifind.data.time_names import is_event_name, is_time_name
from modifind.data.weights import Weights

FORWARD_BINS, BACKWARD_BINS = 30, 100
ROWS_PER_BIN = 10
MOST_CLASSES = 12
MOST_SHARED = 0.95  # of the order of a column and the outcome; one measured before shares less
MOST_FOLLOWED = 0.975  # the same by neighbouring rows, which chance moves further in small tables
UNNAMED_LEAD = 0.25  # of a column whose name does not say that it flags an event


@dataclass(frozen=True)
class Arms:
    """How the treatment was given.

    Attributes
    ----------
    treatment : array of shape (n,)
        0 or 1.
    scores : array of shape (n,), optional
        The chance of every row to be treated, where the treatment was randomised; None where it is not known.
    weights : Weights, optional
        How much each row counts.
    clusters : Clusters, optional
        Which rows belong together.
    """

    treatment: NDArray[np.int64]
    scores: Array | None = None
    weights: Weights | None = None
    clusters: Clusters | None = None

    def difference(self, table: FeatureTable, feature: int) -> tuple[float, float]:
        """How much the arms of a randomised treatment differ in a column, in standard deviations, and the p-value.

        Of a continuous column the ranks, how far they are from the middle, and whether values are missing are compared;
        of levels the shares. The p-value is that of the most telling, times their number. NaN where the chance to be
        treated is not known.
        """
        if self.scores is None:
            return float("nan"), float("nan")
        own = Weights.of(self.weights, self.treatment.size).values
        found = [self._compare(part, own * seen) for part, seen in compared_parts(table, feature)]
        found = [pair for pair in found if not np.isnan(pair[1])]
        if not found:
            return 0.0, 1.0
        size, p_value = min(found, key=lambda pair: pair[1])
        return size, min(p_value * len(found), 1.0)

    def _compare(self, part: Array, own: Array) -> tuple[float, float]:
        assert self.scores is not None
        even = own * self.scores * (1.0 - self.scores)
        total = even.sum()
        if total <= 0:
            return 0.0, float("nan")
        centred = part - even @ part / total
        spread = float(np.sqrt(even @ centred**2 / total))
        terms = own * (self.treatment - self.scores) * centred
        if not spread > 0:
            return 0.0, float("nan")
        clusters = Clusters.of(self.clusters, terms.size)
        sums = clusters.sums(terms[:, None])[:, 0]
        reached = sums.sum() / max(np.sqrt(sums @ sums), 1e-300)
        p_value = 2.0 * float(student_t.sf(abs(reached), max(clusters.freedom, 1.0)))
        return float(terms.sum() / total / spread), p_value


def compared_parts(table: FeatureTable, feature: int) -> list[tuple[Array, NDArray[np.bool_]]]:
    """Numbers that are compared between the arms, and the rows that have them."""
    column, n_levels = table.values[:, feature], table.n_levels(feature)
    every = np.ones(column.size, dtype=bool)
    if n_levels:
        levels = range(1, n_levels) if n_levels == 2 else range(n_levels)
        return [((column == level).astype(np.float64), every) for level in levels]
    seen = ~np.isnan(column)
    ranks = np.zeros(column.size)
    if seen.any():
        ranks[seen] = (rankdata(column[seen]) - 0.5) / seen.sum() - 0.5
    parts = [(ranks, seen), (np.abs(ranks), seen)]
    return parts if seen.all() else [*parts, ((~seen).astype(np.float64), every)]


@dataclass(frozen=True)
class OutcomeRanks:
    """The outcome of every row, by its rank, and what it is called."""

    ranks: Array
    arms: NDArray[np.int64]
    time: bool
    named_time: bool

    @classmethod
    def of(cls, y: Array, arms: NDArray[np.int64], name: str | None = None, *, positive: bool = False) -> OutcomeRanks:
        """From the outcome; `positive` says that it was before it was transformed."""
        time = is_time(y - y.min() if positive else y)
        return cls((rankdata(y) - 0.5) / y.size, arms, time, time and is_time_name(name or ""))

    def shared(self, table: FeatureTable, feature: int) -> float:
        """How nearly a column determines the outcome within arms, or the outcome it; from 0 to 1, where one does.

        By the share of the variance of the outcome's ranks that is between bins of the column, and for a column of few
        levels also by how few levels occur at the same outcome. Of numbers, neighbours in either are compared in the
        other as well, which counts where hardly anything is left: then one is a function of the other, monotone or not.
        """
        n_rows = self.ranks.size
        bins, _ = feature_bins(table, feature, int(np.clip(n_rows // (2 * ROWS_PER_BIN), 2, FORWARD_BINS)))
        forward = self._between(bins)
        n_levels = table.n_levels(feature)
        if n_levels == 0:
            nearby = self._nearby(table.values[:, feature])
            return nearby if nearby > MOST_FOLLOWED else forward
        if not 2 <= n_levels <= MOST_CLASSES:
            return forward
        n_bins = int(np.clip(n_rows // ROWS_PER_BIN, 2, BACKWARD_BINS))
        place = np.minimum((self.ranks * n_bins).astype(np.intp), n_bins - 1)
        counts = np.bincount(place * n_levels + bins, minlength=n_bins * n_levels).reshape(n_bins, n_levels)
        size = counts.sum(axis=1)
        mixed = size.sum() - (counts**2 / np.maximum(size, 1)[:, None]).sum()
        alone = n_rows - (counts.sum(axis=0) ** 2).sum() / n_rows
        if alone <= 0 or np.sort(counts.sum(axis=0))[-2] < ROWS_PER_BIN:
            return forward
        used = int((size > 0).sum())
        backward = 1.0 - mixed / max(n_rows - used, 1) / (alone / max(n_rows - 1, 1))
        return float(np.clip(max(forward, backward), 0.0, 1.0))

    def _nearby(self, column: Array) -> float:
        """How nearly a column of numbers is a function of the outcome, or the outcome of it, by neighbouring rows."""
        shuffled = np.random.default_rng(0).permutation(column.size)  # an order of rows that tell nothing apart
        rows = shuffled[~np.isnan(column[shuffled])]
        if rows.size <= 2 * ROWS_PER_BIN:
            return 0.0
        outcome, values, arms = self.ranks[rows], rankdata(column[rows]) / rows.size, self.arms[rows]
        return max(_followed(outcome, values, arms), _followed(values, outcome, arms))

    def _between(self, bins: NDArray[np.intp]) -> float:
        cell = 2 * bins + self.arms
        size, sums = np.bincount(cell), np.bincount(cell, self.ranks)
        by_arm, arm_sums = np.bincount(self.arms), np.bincount(self.arms, self.ranks)
        square = float(self.ranks @ self.ranks)
        within = square - float((sums[size > 0] ** 2 / size[size > 0]).sum())
        whole = square - float((arm_sums**2 / by_arm).sum())
        left = self.ranks.size - int((size > 0).sum())
        if left <= 0 or whole <= 1e-12 * square:
            return 0.0
        return float(np.clip(1.0 - within / left / (whole / (self.ranks.size - 2)), 0.0, 1.0))

    def flags_event(self, table: FeatureTable, feature: int) -> bool:
        """Whether a column of two values looks like a flag of the event whose time is the outcome."""
        if not self.time or table.n_levels(feature) != 2:
            return False
        ahead = abs(lead(self.ranks, table.values[:, feature] == 1))
        if is_event_name(table.names[feature]):
            return ahead > 0 and (self.named_time or ahead >= MIN_LEAD)
        return self.named_time and ahead >= UNNAMED_LEAD


def _followed(first: Array, second: Array, arms: NDArray[np.int64]) -> float:
    """Share of the second's variance that is gone between rows of one arm that are neighbours in the first.

    It is 1 where the second is a function of the first, of whatever form.
    """
    apart = spread = 0.0
    for arm in (0, 1):
        values = second[arms == arm][np.argsort(first[arms == arm], kind="stable")]
        if values.size > 2:
            apart += float((np.diff(values) ** 2).mean() / 2) * values.size
            spread += float(values.var()) * values.size
    return 1.0 - apart / spread if spread > 0 else 0.0
