"""Summaries of a table's columns by piece, which can be added; a table in memory is one piece."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind._typing import Ints
from modifind.data.clusters import NUMBER, cluster_keys
from modifind.data.column_types import (
    MAX_DISCRETE_VALUES,
    feature_column,
    loses_digits,
    mixed_types,
    plain_column,
    whole_number_text,
)
from modifind.data.containers import check_names
from modifind.data.features import discrete_mask, outcome_values
from modifind.data.sources import Piece
from modifind.data.weights import WeightSums, weight_numbers
from modifind.data.words import listed

MAX_LEVELS = 1000
PROBE_ROWS = 200
Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class ColumnSummary:
    """Summary of one column over some rows.

    Attributes
    ----------
    kind : {"number", "bool", "text", "object", "category", "nothing"}
        What it holds; nothing but missing values are no kind yet.
    n_missing, n_infinite : int
        Missing and infinite values.
    low, high : float
        Range of numbers.
    levels : dict or None
        Distinct values and their counts; None where they are too many to be categories.
    order : tuple or None
        Declared order of the levels.
    whole : bool
        Whether numbers come as integers.
    lossy : bool
        Whether there are integers that floats cannot hold.
    by_arm : dict
        How often each level goes with each value of the treatment, where levels are counted.
    numbered : bool
        Whether labels are text that may stand for numbers, by which they are then ordered.
    n_not_positive : int
        Numbers that have no logarithm.
    """

    kind: str
    n_missing: int
    n_infinite: int
    low: float
    high: float
    levels: dict[Any, int] | None
    order: tuple[Any, ...] | None = None
    whole: bool = False
    lossy: bool = False
    by_arm: dict[Any, int] = field(default_factory=dict)
    numbered: bool = False
    n_not_positive: int = 0

    @classmethod
    def of(
        cls, column: pd.Series[Any], name: str, max_levels: float, max_labels: float = MAX_LEVELS, *, check: bool = True
    ) -> ColumnSummary:
        """Summarise a column; numeric ones with more than `max_levels` values are continuous.

        Text with more than `max_labels` values keeps none. `check` refuses text that holds dates or numbers.
        """
        lossy = loses_digits(column)
        column, numeric = feature_column(column, name, check)
        known = column.dropna()
        missing = len(column) - len(known)
        if not len(known):
            return cls("nothing", missing, 0, np.inf, -np.inf, {})
        if numeric:
            values = known.to_numpy(dtype=np.float64)
            finite = values[np.isfinite(values)]
            low, high = float(finite.min(initial=np.inf)), float(finite.max(initial=-np.inf))
            whole = pd.api.types.is_integer_dtype(column)
            counts = _counts(known if whole else pd.Series(finite), max_levels)
            numbers = values.size - finite.size, low, high, counts, None, whole, lossy
            return cls("number", missing, *numbers, n_not_positive=int((finite <= 0).sum()))
        kind, order = "bool" if pd.api.types.is_bool_dtype(column) else "text", None
        if isinstance(column.dtype, pd.CategoricalDtype):
            kind, order, known = "category", tuple(column.cat.categories), known.astype(object)
        try:
            counts = _counts(known, max_labels)
        except TypeError:
            raise ValueError(f"column {name!r} holds values that cannot be compared; convert it to text") from None
        if kind == "text" and counts is not None and not all(isinstance(label, str) for label in counts):
            kind = "bool" if all(isinstance(label, bool) for label in counts) else "object"
        return cls(kind, missing, 0, np.inf, -np.inf, counts, order)

    def with_arms(self, column: pd.Series[Any], arm_codes: Ints, arms: list[Any]) -> ColumnSummary:
        """The same summary with levels counted by treatment label, if levels are counted."""
        if not self.levels or not arms:
            return self
        codes, levels = pd.factorize(plain_column(column))
        both = (codes >= 0) & (arm_codes >= 0)
        counts = np.bincount(codes[both] * len(arms) + arm_codes[both], minlength=len(levels) * len(arms))
        pairs = ((level, arm) for level in levels for arm in arms)
        return replace(self, by_arm={pair: int(count) for pair, count in zip(pairs, counts, strict=True) if count})

    def merged(self, other: ColumnSummary, name: str, max_levels: float) -> ColumnSummary:
        """Merge with the summary of other rows."""
        if other.kind == "nothing":
            return replace(self, n_missing=self.n_missing + other.n_missing)
        if self.kind == "nothing":
            return other.merged(self, name, max_levels)
        if self.kind != other.kind:
            if {self.kind, other.kind} == {"number", "text"} and self.countable and other.countable:
                return self.as_text.merged(other.as_text, name, MAX_LEVELS)
            raise ValueError(
                f"column {name!r} holds {self.kind} values in some rows and {other.kind} values in others; "
                "convert it to text or to numbers"
            )
        levels = sum_of(self.levels, other.levels, added)
        if levels is not None and len(levels) > (max_levels if self.kind == "number" else MAX_LEVELS):
            levels = None
        counts = ("n_missing", "n_infinite", "n_not_positive")
        return replace(
            self,
            **{name: getattr(self, name) + getattr(other, name) for name in counts},
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            levels=levels,
            order=_common_order(self.order, other.order),
            whole=self.whole and other.whole,
            lossy=self.lossy or other.lossy,
            by_arm={} if levels is None else added(self.by_arm, other.by_arm),
        )

    @property
    def countable(self) -> bool:
        """Whether the counted levels can be represented as text: text itself and whole numbers."""
        return self.levels is not None and (self.kind == "text" or all(map(float.is_integer, map(float, self.levels))))

    @property
    def as_text(self) -> ColumnSummary:
        """The same summary with whole numbers as text, for a column with other text elsewhere: 1, 2, 3, A."""
        if self.kind == "text" or self.levels is None:
            return self
        levels = {whole_number_text(level): count for level, count in self.levels.items()}
        by_arm = {(whole_number_text(level), arm): count for (level, arm), count in self.by_arm.items()}
        return ColumnSummary("text", self.n_missing, self.n_infinite, np.inf, -np.inf, levels, by_arm=by_arm)

    @property
    def n_distinct(self) -> int:
        """Number of distinct values; 2 stands for any larger number."""
        if self.low == self.high:
            return 1
        return 2 if self.levels is None else min(len(self.levels), 2)

    def labels(self, name: str) -> tuple[Any, ...]:
        """The levels in natural or declared order."""
        if self.levels is None:
            raise ValueError(
                f"column {name!r} has more than {MAX_LEVELS} distinct values, as an identifier has; exclude it, or "
                "put its values into fewer categories"
            )
        if self.order is not None:
            return tuple(label for label in self.order if label in self.levels)
        try:
            labels = sorted(self.levels, key=_in_order if self.numbered else None)
        except TypeError:
            raise mixed_types(name) from None
        return tuple(int(label) if self.whole else label for label in labels)

    def rows_by_arm(self, labels: tuple[Any, ...] | None, arms: dict[Any, int]) -> Ints | None:
        """Rows by label and arm, shape (k, 2), missing values last; None if levels are not counted.

        `arms` gives the rows of control and treated by label.
        """
        if labels is None or self.levels is None:
            return None
        rows = np.array([[self.by_arm.get((level, arm), 0) for arm in arms] for level in labels]).reshape(-1, 2)
        return np.vstack((rows, np.array(list(arms.values())) - rows.sum(axis=0))) if self.n_missing else rows


@dataclass(frozen=True)
class Summary:
    """Summary of the pieces seen so far; summaries can be added.

    Attributes
    ----------
    n_rows : int
        Number of rows.
    names : tuple of str
        Features and, where there are strata, the column of these.
    limits : tuple of float
        Most distinct values that leave a numeric column discrete.
    clusters : array, optional
        Keys of the clusters.
    strata : dict, optional
        Rows of each stratum and treatment, or the sum of their weights.
    arms : dict, optional
        Sum of the weights of each treatment, where rows have weights.
    places : tuple of int
        Where the columns are in a piece; none where they are in the order of the piece.
    max_levels : float
        Most levels of a category; a table in memory has no limit.
    """

    n_rows: int
    names: tuple[str, ...]
    limits: tuple[float, ...]
    columns: tuple[ColumnSummary, ...]
    y: ColumnSummary
    treatment: ColumnSummary
    scores: ColumnSummary | None = None
    weights: WeightSums | None = None
    clusters: NDArray[np.uint64] | None = None
    strata: dict[Any, float] | None = None
    arms: dict[Any, float] | None = None
    places: tuple[int, ...] = ()
    max_levels: float = MAX_LEVELS

    def arranged(self, places: Sequence[int]) -> Summary:
        """The same summary with columns reordered."""
        columns: dict[str, Any] = {
            name: tuple(getattr(self, name)[m] for m in places) for name in ("names", "limits", "columns")
        }
        return replace(self, **columns, places=tuple(places))

    @classmethod
    def of(cls, piece: Piece, discrete_features: Any, *, whole: bool = False) -> Summary:
        """Summarise one piece, which may be the whole table."""
        max_levels = math.inf if whole else MAX_LEVELS
        frame = piece.conditioned.infer_objects()
        names, limits, columns = feature_summaries(frame.iloc[:, : piece.X.shape[1]], discrete_features, max_levels)
        if piece.strata is not None:  # labels may be anything
            strata_name = str(frame.columns[-1])
            stratum = ColumnSummary.of(frame.iloc[:, -1], strata_name, max_levels, max_levels, check=False)
            columns = (*columns, replace(stratum, numbered=True))
            names, limits = (*names, strata_name), (*limits, max_levels)
        y = ColumnSummary.of(pd.Series(outcome_values(piece.y)), "y", 2)
        arms = piece.treatment.infer_objects()
        plain = plain_column(arms)
        if plain.dtype == object and pd.api.types.infer_dtype(plain).startswith("mixed"):
            raise mixed_types("treatment")
        treatment = ColumnSummary.of(arms, "treatment", MAX_LEVELS, check=False)
        if treatment.levels is not None and len(treatment.levels) <= 2:
            codes, labels = pd.factorize(plain)
            columns = tuple(column.with_arms(frame.iloc[:, m], codes, list(labels)) for m, column in enumerate(columns))
        summary = cls(len(piece.X), names, limits, columns, y, treatment, max_levels=max_levels)
        counts = np.ones(len(piece.X))
        if piece.propensity is not None:
            summary = replace(summary, scores=ColumnSummary.of(piece.propensity, "propensity", 0))
        if piece.clusters is not None:
            summary = replace(summary, clusters=pd.unique(cluster_keys(piece.clusters)))
        if piece.sample_weight is not None:
            counts = weight_numbers(piece.sample_weight)
            by_arm = pd.Series(counts).groupby(plain.to_numpy()).sum().to_dict()
            summary = replace(summary, weights=WeightSums.of(counts), arms=by_arm)
        if piece.strata is not None:
            both = [frame.iloc[:, -1].to_numpy(), plain.to_numpy()]
            summary = replace(summary, strata=pd.Series(counts).groupby(both).sum().to_dict())
        return summary

    def __add__(self, other: Summary) -> Summary:
        """Merge with the summary of other rows."""
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
            sum_of(self.scores, other.scores, lambda one, two: one.merged(two, "propensity", 0)),
            sum_of(self.weights, other.weights),
            sum_of(self.clusters, other.clusters, np.union1d),
            sum_of(self.strata, other.strata, added),
            sum_of(self.arms, other.arms, added),
        )

    @property
    def together(self) -> dict[str, Any]:
        """Entries on weights, clusters and strata for the record; empty if there are none."""
        settings: dict[str, Any] = {}
        if self.weights is not None:
            settings["sample_weight"] = {"effective_rows": float(f"{self.weights.effective_size:.12g}")}
        if self.clusters is not None:
            settings["clusters"] = {"n_clusters": int(self.clusters.size)}
        if self.strata is not None:
            settings["n_strata"] = len(self.columns[-1].levels or ())
        return settings


def feature_summaries(
    frame: pd.DataFrame, discrete_features: Any, max_levels: float
) -> tuple[tuple[str, ...], tuple[float, ...], tuple[ColumnSummary, ...]]:
    """Feature names, the largest number of values for which each is discrete, and column summaries."""
    names = tuple(str(name) for name in frame.columns)
    check_names(names)
    chosen, by_count = discrete_mask(names, discrete_features)
    limits = tuple(np.where(chosen, max_levels, MAX_DISCRETE_VALUES if by_count else 0).tolist())
    columns = (  # of text that the user calls categories nobody asks whether it stands for numbers
        ColumnSummary.of(frame.iloc[:, m], name, limits[m], max_levels, check=not chosen[m])
        for m, name in enumerate(names)
    )
    return names, limits, tuple(columns)


def _counts(column: pd.Series[Any], max_levels: float) -> dict[Any, int] | None:
    """Number of rows by value; None if there are more than `max_levels` values."""
    if column.iloc[:PROBE_ROWS].nunique() > max_levels:
        return None
    counts = column.value_counts(sort=False)
    return None if len(counts) > max_levels else {label: int(count) for label, count in counts.items()}


def sum_of(one: Any, two: Any, add: Callable[[Any, Any], Any] = operator.add) -> Any:
    """Sum of two optional values; None if both are."""
    return None if one is None or two is None else add(one, two)


def added(first: dict[Any, Number], second: dict[Any, Number]) -> dict[Any, Number]:
    """Sum of two counts."""
    return first | {key: first.get(key, 0) + count for key, count in second.items()}


def _in_order(label: str) -> tuple[bool, float, str]:
    number = NUMBER.fullmatch(label) is not None
    return (not number, float(label) if number else 0.0, label)


def _common_order(first: tuple[Any, ...] | None, second: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """The longer of two declared orders if they are consistent; otherwise None."""
    if first is None or second is None:
        return None
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    positions = [longer.index(label) for label in shorter if label in longer]
    return longer if len(positions) == len(shorter) and positions == sorted(positions) else None
