"""What the pieces of a table tell of one column; summaries of pieces add up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind.data.column_types import feature_column, loses_digits, plain_column

MAX_LEVELS = 1000
PROBE_ROWS = 200
Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class ColumnSummary:
    """One column of some rows.

    Attributes
    ----------
    kind : {"number", "bool", "text", "object", "category", "nothing"}
        What it holds; nothing but missing values are no kind yet.
    n_missing, n_infinite : int
        Values that are none.
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

    @classmethod
    def of(cls, column: pd.Series[Any], name: str, max_levels: int, *, check: bool = True) -> ColumnSummary:
        """Look at a column; numbers with more than `max_levels` values are continuous.

        `check` is whether text that holds dates or numbers is refused.
        """
        lossy = loses_digits(column)
        column, numeric = feature_column(column, name, check)
        missing = int(column.isna().sum())
        if missing == len(column):
            return cls("nothing", missing, 0, np.inf, -np.inf, {})
        if numeric:
            values = column.to_numpy(dtype=np.float64, na_value=np.nan)
            finite = values[np.isfinite(values)]
            low, high = (float(finite.min()), float(finite.max())) if finite.size else (np.inf, -np.inf)
            infinite = values.size - missing - finite.size
            whole = pd.api.types.is_integer_dtype(column)
            counts = _counts(column[column.notna()] if whole else pd.Series(finite), max_levels)
            return cls("number", missing, infinite, low, high, counts, None, whole, lossy)
        order = None
        if isinstance(column.dtype, pd.CategoricalDtype):
            kind, order = "category", tuple(column.cat.categories)
            column = column.astype(object)
        else:
            kind = "bool" if pd.api.types.is_bool_dtype(column) else "text"
        try:
            counts = _counts(column[column.notna()], MAX_LEVELS)
        except TypeError:
            raise ValueError(f"column {name!r} holds values that cannot be compared; convert it to text") from None
        if kind == "text" and counts is not None and not all(isinstance(label, str) for label in counts):
            kind = "bool" if all(isinstance(label, bool) for label in counts) else "object"
        return cls(kind, missing, 0, np.inf, -np.inf, counts, order)

    def with_arms(self, column: pd.Series[Any], arm_codes: NDArray[np.int64], arms: list[Any]) -> ColumnSummary:
        """The same with levels counted for each value of the treatment, where levels are counted at all."""
        if not self.levels or not arms:
            return self
        codes, levels = pd.factorize(plain_column(column))
        both = (codes >= 0) & (arm_codes >= 0)
        counts = np.bincount(codes[both] * len(arms) + arm_codes[both], minlength=len(levels) * len(arms))
        pairs = ((level, arm) for level in levels for arm in arms)
        return replace(self, by_arm={pair: int(count) for pair, count in zip(pairs, counts, strict=True) if count})

    def merged(self, other: ColumnSummary, name: str, max_levels: int) -> ColumnSummary:
        """The summary of both sets of rows."""
        if other.kind == "nothing":
            return replace(self, n_missing=self.n_missing + other.n_missing)
        if self.kind == "nothing":
            return other.merged(self, name, max_levels)
        if self.kind != other.kind:
            raise ValueError(
                f"column {name!r} holds {self.kind} values in some rows and {other.kind} values in others; "
                "convert it to text or to numbers"
            )
        levels: dict[Any, int] | None = None
        if self.levels is not None and other.levels is not None:
            levels = added(self.levels, other.levels)
            if len(levels) > (max_levels if self.kind == "number" else MAX_LEVELS):
                levels = None
        return ColumnSummary(
            self.kind,
            self.n_missing + other.n_missing,
            self.n_infinite + other.n_infinite,
            min(self.low, other.low),
            max(self.high, other.high),
            levels,
            _common_order(self.order, other.order),
            self.whole and other.whole,
            self.lossy or other.lossy,
            {} if levels is None else added(self.by_arm, other.by_arm),
        )

    @property
    def n_distinct(self) -> int:
        """Number of distinct values, 2 standing for any larger number too."""
        if self.low == self.high:
            return 1
        return 2 if self.levels is None else min(len(self.levels), 2)

    def labels(self, name: str) -> tuple[Any, ...]:
        """The levels in their natural or declared order."""
        if self.levels is None:
            raise ValueError(
                f"column {name!r} has more than {MAX_LEVELS} distinct values, as an identifier has; exclude it, or "
                "put its values into fewer categories"
            )
        if self.order is not None:
            return tuple(label for label in self.order if label in self.levels)
        try:
            found = sorted(self.levels)
        except TypeError:
            raise ValueError(
                f"column {name!r} mixes types that cannot be compared; convert it to text or to numbers"
            ) from None
        return tuple(int(label) if self.whole else label for label in found)

    def rows_by_arm(self, labels: tuple[Any, ...] | None, arms: dict[Any, int]) -> NDArray[np.int64] | None:
        """Rows of each label in each arm, shape (k, 2), those of missing values last; None where none are counted.

        `arms` are the rows of the control and of the treated, by their label.
        """
        if labels is None or self.levels is None:
            return None
        rows = np.array([[self.by_arm.get((level, arm), 0) for arm in arms] for level in labels]).reshape(-1, 2)
        return np.vstack((rows, np.array(list(arms.values())) - rows.sum(axis=0))) if self.n_missing else rows


def _counts(column: pd.Series[Any], max_levels: int) -> dict[Any, int] | None:
    """How often each value occurs, None when they are more than `max_levels`."""
    if column.iloc[:PROBE_ROWS].nunique() > max_levels:
        return None
    counts = column.value_counts(sort=False)
    return None if len(counts) > max_levels else {label: int(count) for label, count in counts.items()}


def sum_of(one: Any, two: Any) -> Any:
    """The sum of what two sets of rows have, None where they have none of it."""
    return None if one is None or two is None else one + two


def added(first: dict[Any, Number], second: dict[Any, Number]) -> dict[Any, Number]:
    """Counts of both."""
    total = {**first}
    for key, count in second.items():
        total[key] = total.get(key, 0) + count
    return total


def _common_order(first: tuple[Any, ...] | None, second: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """The longer of two declared orders if the other has the same order, else none."""
    if first is None or second is None:
        return None
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    places = [longer.index(label) for label in shorter if label in longer]
    return longer if len(places) == len(shorter) and places == sorted(places) else None
