"""What every worker needs to know, and what it makes of a piece of the table."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from modifind.kernels import Array
from modifind.overlap import OverlapSums
from modifind.propensity import FittedPropensity
from modifind.samplers import ConditionalGrid, LawRule
from modifind.statistics.effect_likelihood import PreparedEffectLikelihood
from modifind.streaming.rows import RowPlan
from modifind.streaming.schema import Block, Piece, Schema
from modifind.streaming.views import BinnedRows, FeatureView, OutcomeBins, ViewSums
from modifind.testing import RowSums

BLOCK_ROWS = 8192


@dataclass(frozen=True)
class FeatureSums:
    """Sums over rows for one feature.

    Attributes
    ----------
    test : RowSums or None
        For its p-value; None where it is not tested.
    per_fold : array of shape (repeats, folds)
        Null variance of the sample's rows by fold.
    view : ViewSums
        For its importance.
    """

    test: RowSums | None
    per_fold: Array
    view: ViewSums

    def __add__(self, other: FeatureSums) -> FeatureSums:
        """The sums of both sets of rows."""
        test = None if self.test is None or other.test is None else self.test + other.test
        return FeatureSums(test, self.per_fold + other.per_fold, self.view + other.view)


@dataclass(frozen=True)
class Sums:
    """Everything that is added up over rows."""

    overlap: OverlapSums
    features: tuple[FeatureSums, ...]

    def __add__(self, other: Sums) -> Sums:
        """The sums of both sets of rows."""
        pairs = zip(self.features, other.features, strict=True)
        return Sums(self.overlap + other.overlap, tuple(mine + theirs for mine, theirs in pairs))


@dataclass(frozen=True)
class Plan:
    """Fitted nuisance models and where features are looked at.

    Attributes
    ----------
    schema : Schema
        How pieces are read.
    rows : RowPlan
        Sample and folds.
    propensity : FittedPropensity
        Models of the treatment, without rows.
    outcome : PreparedEffectLikelihood
        Models of the outcome, without rows.
    rules : tuple
        Law of each feature, None where it is not tested.
    views : tuple of FeatureView
        Where each feature is looked at for its importance.
    bins : OutcomeBins
        Bins of the outcome.
    """

    schema: Schema
    rows: RowPlan
    propensity: FittedPropensity
    outcome: PreparedEffectLikelihood
    rules: tuple[LawRule | None, ...]
    views: tuple[FeatureView, ...]
    bins: OutcomeBins

    def sums(self, piece: Piece) -> Sums:
        """Sums over the rows of a piece, by one thread, in blocks that bound memory."""
        with threadpool_limits(limits=1):
            return reduce(operator.add, map(self._block_sums, self._blocks(piece)))

    def _blocks(self, piece: Piece) -> Iterator[Block]:
        for start in range(0, len(piece.X), BLOCK_ROWS):
            part = piece.take(slice(start, start + BLOCK_ROWS))
            yield self.schema.read(replace(part, start=piece.start + start))

    def _block_sums(self, block: Block) -> Sums:
        numbers = np.arange(block.start, block.start + block.y.size)
        folds, sampled = self.rows.folds(numbers), self.rows.sampled(numbers)
        propensity = self.propensity.at(block.table, block.treatment, folds[0], block.scores)
        y = (block.y > self.bins.middle).astype(np.float64) if self.schema.binary else block.y
        outcome = self.outcome.at(block.table, y, block.treatment, propensity.scores, folds)
        arms = BinnedRows.of(self.bins, block.y, block.treatment, propensity.scores)
        features = tuple(
            self._feature_sums(feature, block, outcome, folds, sampled, arms)
            for feature in range(block.table.n_features)
        )
        return Sums(OverlapSums.of(propensity), features)

    def _feature_sums(
        self,
        feature: int,
        block: Block,
        outcome: PreparedEffectLikelihood,
        folds: list[NDArray[np.int64]],
        sampled: NDArray[np.bool_],
        arms: tuple[BinnedRows, BinnedRows],
    ) -> FeatureSums:
        view = self.views[feature].sums(block.table.values[:, feature], arms, self.bins.centre.size)
        per_fold = np.zeros((len(folds), self.rows.n_folds))
        rule = self.rules[feature]
        if rule is None:
            return FeatureSums(None, per_fold, view)
        law = rule.law(block.table, block.treatment, folds[0])
        (terms,), weights = outcome.terms(feature, ConditionalGrid(law, block.y.size))
        test, variances = RowSums.of(terms.observed, terms.values, weights, terms.scatter)
        for repeat, own in enumerate(folds):
            per_fold[repeat] = np.bincount(own, variances * sampled, minlength=self.rows.n_folds)
        return FeatureSums(test, per_fold, view)
