"""What one pass over the pieces of a table tells of its columns, and how a piece is then read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.data.arm_labels import MOST_ARMS, first_treated, refuse_doses
from modifind.data.clusters import WeightSums, check_clusters, cluster_keys, label_texts, weight_numbers
from modifind.data.column_types import (
    MAX_DISCRETE_VALUES,
    feature_column,
    plain_column,
    plain_label,
    refuse_identifiers,
)
from modifind.data.containers import check_names
from modifind.data.feature_matrix import (
    FeatureTable,
    check_arms,
    check_scale,
    discrete_mask,
    outcome_values,
)
from modifind.data.missing import missing_label, refuse_few, refuse_gaps, refuse_missing, refuse_outcome_gaps
from modifind.data.rare_levels import Pooling, pool, warn_pooled
from modifind.data.strata import check_strata, refuse_unstratified, stratum_name
from modifind.data.summary import MAX_LEVELS, ColumnSummary, added, sum_of
from modifind.data.wording import listed

MORE = ("propensity", "sample_weight", "clusters", "strata")  # what rows may have beside features, outcome, treatment
MOST_CLUSTERS = 4096  # sums of clusters that are kept for every feature


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

    def take(self, rows: NDArray[np.bool_] | slice) -> Piece:
        """Some of the rows; `start` stays that of the piece."""
        some = {name: column.iloc[rows] for name, column in self.more.items()}
        return Piece(self.start, self.X.iloc[rows], self.y.iloc[rows], self.treatment.iloc[rows], **some)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Numbers of the rows in the whole table."""
        return np.arange(self.start, self.start + len(self.X))


def joined(pieces: Sequence[Piece]) -> Piece:
    """The rows of several pieces as one that starts at 0."""
    every: list[dict[str, Any]] = [
        {"X": piece.X, "y": piece.y, "treatment": piece.treatment, **piece.more} for piece in pieces
    ]
    return Piece(0, **{name: pd.concat([own[name] for own in every], ignore_index=True) for name in every[0]})


@dataclass(frozen=True)
class Block:
    """Rows that have been read: numbers and codes.

    Attributes
    ----------
    start : int
        Number of the first row in the whole table.
    scores : array of shape (n,), optional
        Known propensity scores, those of the strata among them.
    weights : array of shape (n,), optional
        How much each row counts, of mean 1 over the sample.
    clusters : int array of shape (n,), optional
        Which rows belong together.
    """

    start: int
    table: FeatureTable
    y: Array
    treatment: NDArray[np.int64]
    scores: Array | None = None
    weights: Array | None = None
    clusters: NDArray[np.int64] | None = None

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Numbers of the rows in the whole table."""
        return np.arange(self.start, self.start + self.y.size)


@dataclass(frozen=True)
class Summary:
    """What the pieces seen so far hold; summaries add up.

    Attributes
    ----------
    n_rows : int
        Number of rows.
    names : tuple of str
        Features and, where there are strata, the column of these.
    limits : tuple of int
        Most distinct values that leave a numeric column discrete.
    clusters : array, optional
        Keys of the clusters.
    strata : dict, optional
        Rows of each stratum and treatment, or the sum of their weights.
    places : tuple of int
        Where the columns are in a piece; none where they are in the order of the piece.
    """

    n_rows: int
    names: tuple[str, ...]
    limits: tuple[int, ...]
    columns: tuple[ColumnSummary, ...]
    y: ColumnSummary
    treatment: ColumnSummary
    scores: ColumnSummary | None = None
    weights: WeightSums | None = None
    clusters: NDArray[np.uint64] | None = None
    strata: dict[Any, float] | None = None
    places: tuple[int, ...] = ()

    def arranged(self, places: Sequence[int]) -> Summary:
        """The same with the columns in another order."""
        parts: dict[str, Any] = {
            name: tuple(getattr(self, name)[m] for m in places) for name in ("names", "limits", "columns")
        }
        return replace(self, **parts, places=tuple(places))

    @classmethod
    def of(cls, piece: Piece, discrete_features: Any) -> Summary:
        """Look at one piece."""
        names = tuple(str(name) for name in piece.X.columns)
        check_names(names)
        chosen, by_count = discrete_mask(names, discrete_features)
        limits = tuple(np.where(chosen, MAX_LEVELS, MAX_DISCRETE_VALUES if by_count else 0).tolist())
        frame = piece.conditioned.infer_objects()
        if piece.strata is not None:
            names, limits = (*names, str(frame.columns[-1])), (*limits, MAX_LEVELS)
        n_features = piece.X.shape[1]  # what follows are strata, whose labels may be anything
        columns = tuple(
            ColumnSummary.of(frame.iloc[:, m], n, limits[m], check=m < n_features) for m, n in enumerate(names)
        )
        y = ColumnSummary.of(pd.Series(outcome_values(piece.y)), "y", 2)
        arms = piece.treatment.infer_objects()
        treatment = ColumnSummary.of(arms, "treatment", MAX_LEVELS)
        if treatment.levels is not None and len(treatment.levels) <= 2:
            codes, found = pd.factorize(plain_column(arms))
            columns = tuple(own.with_arms(frame.iloc[:, m], codes, list(found)) for m, own in enumerate(columns))
        scores = None if piece.propensity is None else ColumnSummary.of(piece.propensity, "propensity", 0)
        counts = None if piece.sample_weight is None else weight_numbers(piece.sample_weight)
        weights = None if counts is None else WeightSums.of(counts)
        clusters = None if piece.clusters is None else np.unique(cluster_keys(piece.clusters))
        strata: dict[Any, float] | None = None
        if piece.strata is not None:
            own = np.ones(len(piece.X)) if counts is None else counts
            both = [frame.iloc[:, -1].to_numpy(), plain_column(arms).to_numpy()]
            strata = pd.Series(own).groupby(both).sum().to_dict()
        return cls(len(piece.X), names, limits, columns, y, treatment, scores, weights, clusters, strata)

    def __add__(self, other: Summary) -> Summary:
        """The summary of both sets of rows."""
        if self.names != other.names:
            apart = [name for name in (*self.names, *other.names) if (name in self.names) != (name in other.names)]
            differ = f"some lack column {listed(apart)}" if apart else "their columns are in another order"
            raise ValueError(f"the pieces of the table differ: {differ}; give all of them the same columns")
        columns = tuple(
            mine.merged(theirs, name, limit)
            for mine, theirs, name, limit in zip(self.columns, other.columns, self.names, self.limits, strict=True)
        )
        return Summary(
            self.n_rows + other.n_rows,
            self.names,
            self.limits,
            columns,
            self.y.merged(other.y, "y", 2),
            self.treatment.merged(other.treatment, "treatment", MAX_LEVELS),
            None if self.scores is None or other.scores is None else self.scores.merged(other.scores, "propensity", 0),
            sum_of(self.weights, other.weights),
            None if self.clusters is None or other.clusters is None else np.union1d(self.clusters, other.clusters),
            None if self.strata is None or other.strata is None else added(self.strata, other.strata),
        )

    @property
    def together(self) -> dict[str, Any]:
        """What a result records of weights, clusters and strata; nothing where there are none."""
        found: dict[str, Any] = {}
        if self.weights is not None:
            found["sample_weight"] = {"effective_rows": float(f"{self.weights.effective_size:.12g}")}
        if self.clusters is not None:
            found["clusters"] = {"n_clusters": int(self.clusters.size)}
        if self.strata is not None:
            found["n_strata"] = len(self.columns[-1].levels or ())
        return found

    def schema(
        self,
        treated: Any,
        transform: str | None,
        missing: str = "error",
        treatment: str = "treatment",
        outcome: str = "the outcome y",
    ) -> Schema:
        """Check everything that can be wrong with a table, and fix how its pieces are read.

        `treatment` and `outcome` are what messages call these.
        """
        if self.strata is not None and self.columns[-1].n_missing:
            refuse_unstratified(self.columns[-1].n_missing)
        counts = {n: (c.n_missing, c.n_infinite) for n, c in zip(self.names, self.columns, strict=True)}
        refuse_missing(counts, allowed=missing == "category")
        refuse_outcome_gaps(outcome, self.n_rows, self.y.n_missing, self.y.n_infinite)
        refuse_gaps(treatment, self.treatment.n_missing, self.treatment.n_infinite)
        self._check_scores()
        if self.weights is not None:
            self.weights.check()
        if self.clusters is not None:
            check_clusters(self.clusters.size)
        self._check_outcome(transform)
        labels = self._labels()
        if self.treatment.levels is None and self.treatment.kind == "number":
            refuse_doses((), MOST_ARMS + 1, treatment)
        arms = self.treatment.labels("treatment")
        shown = tuple(plain_label(label) for label in arms)
        if first_treated(shown, treated, treatment):
            arms, shown = arms[::-1], shown[::-1]
        levels = self.treatment.levels or {}
        sizes = {arm: levels[arm] for arm in arms}
        check_arms(min(sizes.values()))
        by_level = tuple(c.rows_by_arm(own, sizes) for own, c in zip(labels, self.columns, strict=True))
        return Schema(
            n_rows=self.n_rows,
            names=self.names,
            labels=labels,
            arms=arms,
            arm_labels=shown,
            n_treated=sizes[arms[1]],
            transform=transform,
            binary=self.y.levels is not None,
            constant=tuple(c.n_distinct + (c.n_missing > 0) == 1 for c in self.columns),
            counts=by_level,
            gaps=tuple(c.n_missing > 0 for c in self.columns),
            limits=tuple((c.low, c.high) for c in self.columns),
            outcome_limits=(math.log(self.y.low), math.log(self.y.high)) if transform else (self.y.low, self.y.high),
            cluster_keys=self.clusters,
            stratum_shares=self._stratum_shares(labels[-1], by_level[-1], arms),
            places=self.places or tuple(range(len(self.names))),
        )

    def _stratum_shares(
        self, labels: tuple[Any, ...] | None, counts: NDArray[np.int64] | None, arms: tuple[Any, ...]
    ) -> Array | None:
        """Share of treated rows in each stratum, where there are strata, which are then the last column."""
        if self.strata is None or labels is None or counts is None:
            return None
        check_strata(tuple(plain_label(label) for label in labels), *counts.T)
        sums = np.array([[self.strata.get((label, arm), 0.0) for arm in arms] for label in labels])
        return sums[:, 1] / sums.sum(axis=1)

    def _check_scores(self) -> None:
        known = self.scores
        if known is not None and known.kind != "number":
            raise ValueError(f"propensity must lie strictly between 0 and 1; it holds {known.kind}")
        if known is not None and (known.n_missing or known.n_infinite or not 0 < known.low <= known.high < 1):
            raise ValueError(
                f"propensity must lie strictly between 0 and 1; found {known.n_missing} missing values and a range "
                f"from {known.low:g} to {known.high:g}"
            )

    def _check_outcome(self, transform: str | None) -> None:
        if self.y.low == self.y.high:
            raise ValueError(f"y is constant ({self.y.low:g}); there is no effect to find")
        if transform == "log" and self.y.low <= 0:
            raise ValueError("outcome_transform='log' needs a positive outcome; some values of y are not")
        check_scale("y", np.array([self.y.low, self.y.high]))

    def _labels(self) -> tuple[tuple[Any, ...] | None, ...]:
        """For each feature its category labels in code order, or None when continuous."""
        labels: list[tuple[Any, ...] | None] = []
        observed: dict[str, int] = {}
        for name, own, limit in zip(self.names, self.columns, self.limits, strict=True):
            if own.kind == "number" and own.levels is None and own.n_missing and own.low == own.high:
                labels.append((own.low,))
            elif own.kind == "number" and own.levels is None and limit < MAX_LEVELS:
                if own.lossy:
                    refuse_identifiers(name)
                check_scale(f"column {name!r}", np.array([own.low, own.high]))
                labels.append(None)
                if own.n_missing:
                    observed[name] = self.n_rows - own.n_missing
            else:
                labels.append(own.labels(name))
        refuse_few(observed)
        return tuple(labels)


@dataclass(frozen=True)
class Schema:
    """How the pieces of one table are read.

    Attributes
    ----------
    n_rows, n_treated : int
        Rows of the whole table, and those treated.
    names : tuple of str
        Features.
    labels : tuple
        For each feature its category labels in code order, or None when continuous.
    arms, arm_labels : tuple
        Label of the control and of the treated as it comes, and as it is shown.
    transform : {None, "log"}
        Scale of the outcome.
    binary : bool
        Whether the outcome has two values.
    constant : tuple of bool
        Features of one value.
    counts : tuple
        For each feature the rows of each level in each arm, shape (k, 2), those of missing values last; None when
        continuous.
    gaps : tuple of bool
        Features with missing values.
    limits : tuple of pairs of floats
        Smallest and largest value of each feature, where it is a number.
    outcome_limits : pair of floats
        The same of the outcome, on the scale of `transform`.
    places : tuple of int
        Where they are in a piece.
    poolings : dict
        Features whose rare levels are pooled.
    reference : tuple of two arrays, optional
        What columns are standardised by.
    level_columns : dict
        Model columns of categories of many levels.
    mean_weight : float
        What weights of rows are divided by.
    cluster_keys : array, optional
        Keys of the clusters in the order of their codes.
    stratum_shares : array, optional
        Share of treated rows in each stratum; strata are then the last column.
    """

    n_rows: int
    names: tuple[str, ...]
    labels: tuple[tuple[Any, ...] | None, ...]
    arms: tuple[Any, ...]
    arm_labels: tuple[Any, ...]
    n_treated: int
    transform: str | None
    binary: bool
    constant: tuple[bool, ...]
    counts: tuple[NDArray[np.int64] | None, ...]
    gaps: tuple[bool, ...]
    limits: tuple[tuple[float, float], ...]
    outcome_limits: tuple[float, float]
    places: tuple[int, ...]
    poolings: dict[int, Pooling] = field(default_factory=dict)
    reference: tuple[Array, Array] | None = None
    level_columns: Mapping[int, Array] = field(default_factory=dict)
    mean_weight: float = 1.0
    cluster_keys: NDArray[np.uint64] | None = None
    stratum_shares: Array | None = None

    @property
    def n_clusters(self) -> int:
        """Number of sets of rows that count as independent, 0 for rows; beyond so many, clusters are put together."""
        return 0 if self.cluster_keys is None else min(self.cluster_keys.size, MOST_CLUSTERS)

    @cached_property
    def categories(self) -> tuple[tuple[Any, ...] | None, ...]:
        """The labels as they are shown, that of missing values last."""
        found: list[tuple[Any, ...] | None] = []
        for m, own in enumerate(self.labels):
            shown = None if own is None else tuple(plain_label(label) for label in own)
            if shown is not None and self.gaps[m]:
                shown = (*shown, missing_label(shown))
            found.append(self.poolings[m].labels if m in self.poolings else shown)
        return tuple(found)

    @cached_property
    def incomplete(self) -> frozenset[int]:
        """Continuous features with missing values."""
        return frozenset(m for m, gaps in enumerate(self.gaps) if gaps and self.labels[m] is None)

    @property
    def left_out(self) -> frozenset[int]:
        """Features of which pooling has left one level."""
        return frozenset(m for m, pooling in self.poolings.items() if pooling.left_out)

    def pooled(self) -> Schema:
        """The same with rare levels pooled; a warning names them."""
        found: dict[int, Pooling] = {}
        for m, counts in enumerate(self.counts):
            own = self.categories[m]
            pooling = None if own is None or counts is None else pool(own, counts)
            if pooling is not None:
                found[m] = pooling
        warn_pooled({self.names[m]: pooling for m, pooling in found.items()})
        pooled = replace(self, poolings=found)
        return replace(pooled, constant=tuple(same or m in pooled.left_out for m, same in enumerate(self.constant)))

    def read(self, piece: Piece) -> Block:
        """Numbers and codes of a piece."""
        frame = piece.conditioned
        values = np.empty(frame.shape)
        for m, own in enumerate(self.labels):
            column, _ = feature_column(frame.iloc[:, self.places[m]], self.names[m], check=False)
            if own is None:
                values[:, m] = column.to_numpy(dtype=np.float64, na_value=np.nan)
                continue
            codes = _codes(column, own, self.names[m], gaps=self.gaps[m])
            if m in self.poolings:
                codes = self.poolings[m].codes[codes]
            values[:, m] = codes
        y = outcome_values(piece.y)
        scores = None if piece.propensity is None else piece.propensity.to_numpy(dtype=np.float64)
        if scores is None and self.stratum_shares is not None:
            scores = self.stratum_shares[values[:, -1].astype(np.intp)]
        clusters = None
        if piece.clusters is not None and self.cluster_keys is not None:
            clusters = np.searchsorted(self.cluster_keys, cluster_keys(piece.clusters)) % self.n_clusters
        return Block(
            piece.start,
            FeatureTable(self.names, values, self.categories, self.reference, self.incomplete, self.level_columns),
            np.log(y) if self.transform == "log" else y,
            _codes(piece.treatment, self.arms, "treatment"),
            scores,
            None if piece.sample_weight is None else weight_numbers(piece.sample_weight) / self.mean_weight,
            clusters,
        )


def _codes(column: pd.Series[Any], labels: tuple[Any, ...], name: str, *, gaps: bool = False) -> NDArray[np.int64]:
    """The code of each row; the first pass has seen every label, unless the table changed since.

    With `gaps` missing values have the code after the last label.
    """
    if gaps:
        missing = column.isna().to_numpy()
        codes = np.full(missing.size, len(labels), dtype=np.int64)
        if not missing.all():
            codes[~missing] = _codes(column[~missing], labels, name)
        return codes
    index = pd.Index(labels)
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = index.get_indexer(pd.Index(column.cat.categories))[column.cat.codes.to_numpy()]
    else:
        codes = index.get_indexer(pd.Index(column))
    if (codes < 0).any():
        raise ValueError(f"column {name!r} has values that it did not have when first read; the table must not change")
    return codes.astype(np.int64)
