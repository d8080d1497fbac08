"""Columns that look as if they were measured after the treatment, by what they share with the outcome.

Nothing in a table says when a column was measured. Two things give it away here: it all but determines the outcome, or
is determined by it; or it says whether an event has happened, beside an outcome that says when.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from modifind._typing import Array, Ints
from modifind.data.censoring import MIN_LEAD, is_time, lead
from modifind.data.feature_matrix import FeatureTable
from modifind.data.support import feature_bins
from modifind.data.time_names import is_event_name, is_time_name

FORWARD_BINS, BACKWARD_BINS = 30, 100
ROWS_PER_BIN = 10
MAX_OUTCOME_LEVELS = 12
MOST_SHARED = 0.95  # of the order of a column and the outcome; one measured before shares less
MAX_FOLLOWED = 0.975  # the same by neighbouring rows, which chance moves further in small tables
UNNAMED_LEAD = 0.25  # of a column whose name does not say that it flags an event


@dataclass(frozen=True)
class OutcomeRanks:
    """The outcome of every row, by its rank, and what it is called."""

    ranks: Array
    arms: Ints
    time: bool
    named_time: bool

    @classmethod
    def of(cls, y: Array, arms: Ints, name: str | None = None, *, positive: bool = False) -> OutcomeRanks:
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
            return nearby if nearby > MAX_FOLLOWED else forward
        if not 2 <= n_levels <= MAX_OUTCOME_LEVELS:
            return forward
        n_bins = int(np.clip(n_rows // ROWS_PER_BIN, 2, BACKWARD_BINS))
        outcome_bins = np.minimum((self.ranks * n_bins).astype(np.intp), n_bins - 1)
        counts = np.bincount(outcome_bins * n_levels + bins, minlength=n_bins * n_levels).reshape(n_bins, n_levels)
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


def _followed(first: Array, second: Array, arms: Ints) -> float:
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
