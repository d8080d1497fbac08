"""What one pass over the pieces of a table tells of its columns, and how a piece is then read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.data.arm_labels import first_treated
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
from modifind.data.summary import MAX_LEVELS, ColumnSummary
from modifind.data.wording import listed


@dataclass(frozen=True)
class Piece:
    """Some rows of a table as they come: features, outcome, treatment and, where known, propensity scores.

    Attributes
    ----------
    start : int
        Number of the first row in the whole table.
    """

    start: int
    X: pd.DataFrame
    y: pd.Series[Any]
    treatment: pd.Series[Any]
    scores: pd.Series[Any] | None = None

    def take(self, rows: NDArray[np.bool_] | slice) -> Piece:
        """Some of the rows; `start` stays that of the piece."""
        scores = None if self.scores is None else self.scores.iloc[rows]
        return Piece(self.start, self.X.iloc[rows], self.y.iloc[rows], self.treatment.iloc[rows], scores)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Numbers of the rows in the whole table."""
        return np.arange(self.start, self.start + len(self.X))


@dataclass(frozen=True)
class Block:
    """Rows that have been read: numbers and codes.

    Attributes
    ----------
    start : int
        Number of the first row in the whole table.
    """

    start: int
    table: FeatureTable
    y: Array
    treatment: NDArray[np.int64]
    scores: Array | None = None


@dataclass(frozen=True)
class Summary:
    """What the pieces seen so far hold; summaries add up.

    Attributes
    ----------
    n_rows : int
        Number of rows.
    limits : tuple of int
        Most distinct values that leave a numeric column discrete.
    """

    n_rows: int
    names: tuple[str, ...]
    limits: tuple[int, ...]
    columns: tuple[ColumnSummary, ...]
    y: ColumnSummary
    treatment: ColumnSummary
    scores: ColumnSummary | None = None

    @classmethod
    def of(cls, piece: Piece, discrete_features: Any) -> Summary:
        """Look at one piece."""
        names = tuple(str(name) for name in piece.X.columns)
        check_names(names)
        chosen, by_count = discrete_mask(names, discrete_features)
        limits = tuple(np.where(chosen, MAX_LEVELS, MAX_DISCRETE_VALUES if by_count else 0).tolist())
        frame = piece.X.infer_objects()
        columns = tuple(ColumnSummary.of(frame.iloc[:, m], n, limits[m]) for m, n in enumerate(names))
        y = ColumnSummary.of(pd.Series(outcome_values(piece.y)), "y", 2)
        arms = piece.treatment.infer_objects()
        treatment = ColumnSummary.of(arms, "treatment", 2)
        if treatment.levels is not None and len(treatment.levels) <= 2:
            codes, found = pd.factorize(plain_column(arms))
            columns = tuple(own.with_arms(frame.iloc[:, m], codes, list(found)) for m, own in enumerate(columns))
        scores = None if piece.scores is None else ColumnSummary.of(piece.scores, "propensity", 0)
        return cls(len(piece.X), names, limits, columns, y, treatment, scores)

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
            self.treatment.merged(other.treatment, "treatment", 2),
            None if self.scores is None or other.scores is None else self.scores.merged(other.scores, "propensity", 0),
        )

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
        counts = {n: (c.n_missing, c.n_infinite) for n, c in zip(self.names, self.columns, strict=True)}
        refuse_missing(counts, allowed=missing == "category")
        refuse_outcome_gaps(outcome, self.n_rows, self.y.n_missing, self.y.n_infinite)
        refuse_gaps(treatment, self.treatment.n_missing, self.treatment.n_infinite)
        self._check_scores()
        self._check_outcome(transform)
        labels = self._labels()
        if self.treatment.levels is None:
            raise ValueError(f"{treatment} must have exactly two values; found more")
        arms = self.treatment.labels("treatment")
        shown = tuple(plain_label(label) for label in arms)
        if first_treated(shown, treated, treatment):
            arms, shown = arms[::-1], shown[::-1]
        check_arms(min(self.treatment.levels.values()))
        sizes = {arm: self.treatment.levels[arm] for arm in arms}
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
            counts=tuple(c.rows_by_arm(own, sizes) for own, c in zip(labels, self.columns, strict=True)),
            gaps=tuple(c.n_missing > 0 for c in self.columns),
        )

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
            raise ValueError(f"y is constant ({self.y.low:g}); there is no effect to look for")
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
    poolings : dict
        Features whose rare levels are pooled.
    reference : tuple of two arrays, optional
        What columns are standardised by.
    level_columns : dict
        Model columns of categories of many levels.
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
    poolings: dict[int, Pooling] = field(default_factory=dict)
    reference: tuple[Array, Array] | None = None
    level_columns: Mapping[int, Array] = field(default_factory=dict)

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
        values = np.empty(piece.X.shape)
        for m, own in enumerate(self.labels):
            column, _ = feature_column(piece.X.iloc[:, m], self.names[m], check=False)
            if own is None:
                values[:, m] = column.to_numpy(dtype=np.float64, na_value=np.nan)
                continue
            codes = _codes(column, own, self.names[m], gaps=self.gaps[m])
            if m in self.poolings:
                codes = self.poolings[m].codes[codes]
            values[:, m] = codes
        y = outcome_values(piece.y)
        return Block(
            piece.start,
            FeatureTable(self.names, values, self.categories, self.reference, self.incomplete, self.level_columns),
            np.log(y) if self.transform == "log" else y,
            _codes(piece.treatment, self.arms, "treatment"),
            None if piece.scores is None else piece.scores.to_numpy(dtype=np.float64),
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
