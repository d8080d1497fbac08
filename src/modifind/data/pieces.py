"""Some rows of a table: as they come, and as numbers and codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from modifind._typing import Array, Bools, Ints
from modifind.data.clusters import Clusters, label_texts
from modifind.data.feature_matrix import FeatureTable
from modifind.data.stratified import stratum_name
from modifind.data.weights import Weights

MORE = ("propensity", "sample_weight", "clusters", "strata")  # what rows may have beside features, outcome, treatment


@dataclass(frozen=True)
class Piece:
    """Some rows of a table as they come: features, outcome, treatment and, where there are any, what else rows have.

    Attributes
    ----------
    start : int
        Number of the first row in the whole table.
    propensity, sample_weight, clusters, strata : Series, optional
        Known scores, weights, labels of clusters and of strata.
    """

    start: int
    X: pd.DataFrame
    y: pd.Series[Any]
    treatment: pd.Series[Any]
    propensity: pd.Series[Any] | None = None
    sample_weight: pd.Series[Any] | None = None
    clusters: pd.Series[Any] | None = None
    strata: pd.Series[Any] | None = None

    @property
    def more(self) -> dict[str, pd.Series[Any]]:
        """What rows have beside features, outcome and treatment."""
        columns = {name: getattr(self, name) for name in MORE}
        return {name: column for name, column in columns.items() if column is not None}

    @cached_property
    def conditioned(self) -> pd.DataFrame:
        """What models see: the features and, where there are strata, the stratum as the last column."""
        if self.strata is None:
            return self.X
        return pd.concat([self.X, label_texts(self.strata).rename(stratum_name(self.X.columns))], axis=1)

    def take(self, rows: Bools | slice) -> Piece:
        """Some of the rows; `start` stays that of the piece."""
        some = {name: column.iloc[rows] for name, column in self.more.items()}
        return Piece(self.start, self.X.iloc[rows], self.y.iloc[rows], self.treatment.iloc[rows], **some)

    def some(self, rows: Bools) -> Piece:
        """The rows that a mask says; the piece itself where they are all."""
        return self if rows.all() else self.take(rows)

    @property
    def numbers(self) -> Ints:
        """Numbers of the rows in the whole table."""
        return np.arange(self.start, self.start + len(self.X))


def joined(pieces: Sequence[Piece]) -> Piece:
    """The rows of several pieces as one that starts at 0."""
    every: list[dict[str, Any]] = [
        {"X": piece.X, "y": piece.y, "treatment": piece.treatment, **piece.more} for piece in pieces
    ]
    return Piece(0, **{name: pd.concat([columns[name] for columns in every], ignore_index=True) for name in every[0]})


@dataclass(frozen=True)
class Block:
    """Rows that have been read: numbers and codes.

    Attributes
    ----------
    start : int
        Number of the first row in the whole table.
    scores : array of shape (n,), optional
        Known propensity scores, those of the strata among them.
    weights : Weights
        How much each row counts, of mean 1 over the sample.
    clusters : Clusters
        Which rows belong together, by codes of all rows.
    """

    start: int
    table: FeatureTable
    y: Array
    treatment: Ints
    scores: Array | None
    weights: Weights
    clusters: Clusters

    @property
    def numbers(self) -> Ints:
        """Numbers of the rows in the whole table."""
        return np.arange(self.start, self.start + self.y.size)
