"""Rows with their scores, and how those of a longer table are read and scored block by block."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._threads import one_thread
from modifind._typing import Ints
from modifind.data.pieces import Block, Piece
from modifind.data.row_plan import RowPlan
from modifind.data.schema import Schema
from modifind.nuisance.propensity.scores import FittedPropensity
from modifind.statistics.contract import Nuisances

BLOCK_ROWS = 8192
NO_SEED = np.random.SeedSequence(0)  # nothing is random once a statistic is prepared


@dataclass(frozen=True)
class ScoredRows:
    """Rows that have been read, with their scores and how they belong together.

    Attributes
    ----------
    block : Block
        The rows.
    folds : tuple of int arrays
        Fold of each row, for every repeat of the cross-fitting.
    propensity : FittedPropensity
        Scores of the rows, also with other values of a feature.
    sampled : array of bool of shape (n,)
        Which of them models were fitted to.
    n_folds, n_clusters : int
        Number of folds, and of clusters of all rows.
    """

    block: Block
    folds: tuple[Ints, ...]
    propensity: FittedPropensity
    sampled: NDArray[np.bool_]
    n_folds: int
    n_clusters: int

    @property
    def nuisances(self) -> Nuisances:
        """The rows as a prepared statistic takes them."""
        block = self.block
        known = self.propensity.scores, NO_SEED, self.folds, block.weights, block.clusters
        return Nuisances(block.table, block.y, block.treatment, *known)

    @property
    def freedom(self) -> float:
        """Degrees of freedom that the weights of the rows leave; infinite where rows count alike."""
        return self.block.weights.freedom

    def part(self, rows: NDArray[np.intp]) -> ScoredRows:
        """Some of the rows; clusters are numbered anew."""
        block, table = self.block, self.block.table.part(rows)
        arms, weights, clusters = block.treatment[rows], block.weights[rows], block.clusters[rows]
        scores = None if block.scores is None else block.scores[rows]
        folds = tuple(fold[rows] for fold in self.folds)
        propensity = self.propensity.at(table, arms, folds[0], self.propensity.raw[rows], weights)
        chosen = Block(0, table, block.y[rows], arms, scores, weights, clusters)
        return ScoredRows(chosen, folds, propensity, self.sampled[rows], self.n_folds, clusters.count)


@dataclass(frozen=True)
class Scoring:
    """How pieces are read, and their rows scored.

    Attributes
    ----------
    schema : Schema
        How pieces are read.
    rows : RowPlan
        Sample and folds.
    propensity : FittedPropensity
        Models of the treatment, without rows.
    cluster_folds : tuple of int arrays
        Fold of every cluster, for each repeat of the cross-fitting.
    """

    schema: Schema
    rows: RowPlan
    propensity: FittedPropensity
    cluster_folds: tuple[Ints, ...] = ()

    def blocks(self, piece: Piece) -> Iterator[ScoredRows]:
        """The rows of a piece, some at a time."""
        for start in range(0, len(piece.X), BLOCK_ROWS):
            rows = piece.take(slice(start, start + BLOCK_ROWS))
            block = self.schema.read(replace(rows, start=piece.start + start))
            folds = tuple(self.rows.folds(block.numbers))
            if not block.clusters.of_rows:  # rows of a cluster share a fold
                folds = tuple(of_clusters[block.clusters.codes] for of_clusters in self.cluster_folds)
            scores = self.propensity.at(block.table, block.treatment, folds[0], block.scores, block.weights)
            sampled = self.rows.sampled(block.numbers)
            yield ScoredRows(block, folds, scores, sampled, self.rows.n_folds, self.schema.n_clusters)


@dataclass(frozen=True)
class RowPass(ABC):
    """One pass over the rows of a longer table, which adds up sums of any kind.

    Attributes
    ----------
    scoring : Scoring
        How pieces are read, and their rows scored.
    """

    scoring: Scoring

    @abstractmethod
    def block_sums(self, rows: ScoredRows) -> Any:
        """Sums over a block of rows, which can be added to those of others."""

    def sums(self, piece: Piece) -> Any:
        """Sums over the rows of a piece, by one thread, in blocks that bound memory."""
        with one_thread():
            return reduce(operator.add, map(self.block_sums, self.scoring.blocks(piece)))
