"""The sums over a longer table: what workers are sent, and what they add up over a piece."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace

import numpy as np

from modifind._typing import Array
from modifind.data.clusters import unit_sums
from modifind.data.feature_groups import Unit
from modifind.data.summary import sum_of
from modifind.engine.overlap_conditional import OverlapConditional
from modifind.engine.record import failure_of
from modifind.engine.resampling import OBSERVED, ColumnMeasure
from modifind.engine.scored import RowPass, ScoredRows
from modifind.engine.testing import UnitSums
from modifind.nuisance.conditional import ConditionalRule
from modifind.nuisance.conditional.joint import JointRule, rule_grid
from modifind.nuisance.propensity.overlap import OverlapSums
from modifind.statistics.contract import PreparedTerms
from modifind.statistics.prepared_wcmmd import PreparedWCMMD
from modifind.statistics.wcmmd_sums import ColumnSums


@dataclass(frozen=True)
class Sums:
    """Everything that is added up over rows."""

    overlap: OverlapSums
    features: tuple[UnitSums, ...]  # of what is tested
    columns: tuple[ColumnSums, ...]  # of its columns, for their importance
    beyond: Array | None = None  # treatment less score, summed over clusters, shape (clusters, 1)

    def __add__(self, other: Sums) -> Sums:
        """The sums of both sets of rows."""
        features = tuple(map(operator.add, self.features, other.features))
        columns = tuple(map(operator.add, self.columns, other.columns))
        return Sums(self.overlap + other.overlap, features, columns, sum_of(self.beyond, other.beyond))

    @property
    def n_rows(self) -> int:
        """Rows that were added up."""
        return int(self.overlap.n_rows.sum())

    @property
    def overlap_of_clusters(self) -> OverlapSums:
        """How comparable the arms are; the number of treated rows varies as that of clusters does."""
        if self.beyond is None:
            return self.overlap
        treated, expected, variance = self.overlap.treated
        most = max(variance, float((self.beyond**2).sum()))
        return replace(self.overlap, treated=np.array([treated, expected, most]))


@dataclass(frozen=True)
class Plan(RowPass):
    """Fitted models that workers need to add up rows.

    Attributes
    ----------
    statistic : PreparedTerms, optional
        The statistic, without rows; None where features are resampled.
    units : tuple of Unit
        What is tested.
    rules : tuple
        Distribution of each of these, None where it is not tested.
    importance : PreparedWCMMD
        What the importance of their columns is the value of, without rows.
    columns : dict of ColumnMeasure
        How the columns are measured, by place.
    """

    statistic: PreparedTerms | None
    units: tuple[Unit, ...]
    rules: tuple[ConditionalRule | JointRule | None, ...]
    importance: PreparedWCMMD
    columns: dict[int, ColumnMeasure]

    def block_sums(self, rows: ScoredRows) -> Sums:
        """Sums over a block of rows: for the tests, for importance, and for overlap."""
        block, given = rows.block, rows.nuisances
        statistic = None if self.statistic is None else self.statistic.at(given)
        each = zip(self.units, self.rules, strict=True)
        features = tuple(_unit_sums(unit, rule, rows, statistic) for unit, rule in each)
        importance = self.importance.at(given)
        measured = self.columns.values()
        columns = tuple(importance.sums(next(column.columns(rows, [OBSERVED]))) for column in measured)
        beyond = None
        if not block.clusters.of_rows:
            residual = block.weights.times(block.treatment - rows.propensity.raw)
            beyond = unit_sums(residual[:, None], block.clusters.codes, rows.n_clusters)
        return Sums(OverlapSums.of(rows.propensity), features, columns, beyond)


def _unit_sums(
    unit: Unit, rule: ConditionalRule | JointRule | None, rows: ScoredRows, statistic: PreparedTerms | None
) -> UnitSums:
    """Sums for one of the units; a rule that fails for these rows fails for the feature, not for the run."""
    if rule is None or statistic is None:
        return UnitSums()
    block = rows.block
    try:
        conditional = rule_grid(rule, block.table, block.treatment, rows.folds[0], block.numbers)
        terms = statistic.terms(unit.feature, OverlapConditional(conditional, rows.propensity, unit.feature))
        return UnitSums.of(terms, rows, grouped=len(unit.members) > 1)
    except Exception as error:
        return UnitSums(failure=failure_of(error, unit.name))
