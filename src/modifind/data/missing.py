"""Missing values: counted, refused, dropped with their rows, or given their own level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from modifind._typing import Bools
from modifind._warned import warn
from modifind.data.words import counted, gaps, printable

CHOICES = ("error", "category", "drop")
LABELS = ("missing", "missing (no value)")
MIN_OBSERVED = 20  # values of a continuous column from which its distribution can be learned
LARGE_SHARE = 0.2
MIN_OUTCOMES = 20  # rows with and without an outcome that a model of who has one can be fitted to
REMEDY = (
    "fill them, exclude the columns, or use missing='category' (a level of its own) or missing='drop' (complete rows "
    "only)"
)
OUTCOME_CHOICES = ("error", "drop", "weight")
INFINITE = "replace infinite values with numbers or missing values"


def refuse_gaps(name: str, missing: int, infinite: int) -> None:
    """Refuse a treatment with missing or infinite values."""
    if missing or infinite:
        remedy = INFINITE if infinite else "drop those rows, or use missing='drop'"
        raise ValueError(f"{name} has {gaps(missing, infinite)}; {remedy}")


def refuse_outcome_gaps(name: str, n_rows: int, missing: int, infinite: int) -> None:
    """Refuse an outcome with missing or infinite values.

    Examples
    --------
    >>> refuse_outcome_gaps("the outcome 'change'", 90, 30, 0)
    Traceback (most recent call last):
    ...
    ValueError: the outcome 'change' is missing in 30 of 90 rows; missing_outcome='drop' leaves such rows out, \
missing_outcome='weight' reweights the others to represent them
    """
    if infinite:
        raise ValueError(f"{name} has {gaps(missing, infinite)} in {n_rows} rows; {INFINITE}")
    if missing:
        enough = min(missing, n_rows - missing) >= MIN_OUTCOMES
        weighed = ", missing_outcome='weight' reweights the others to represent them" * enough
        raise ValueError(
            f"{name} is missing in {missing} of {n_rows} rows; missing_outcome='drop' leaves such rows out{weighed}"
        )


def refuse_missing(counts: Mapping[str, tuple[int, int]], *, allowed: bool = False) -> None:
    """Refuse columns with missing or infinite values, naming each with its counts.

    Parameters
    ----------
    counts : mapping
        Number of missing and of infinite values by name.
    allowed : bool, default=False
        Whether missing values are allowed; infinite ones never are.
    """
    bad = []
    for name, (missing, infinite) in counts.items():
        if missing and not allowed:
            bad.append(f"{name!r} ({missing} missing)")
        if infinite:
            bad.append(f"{name!r} ({infinite} infinite)")
    if bad:
        holes = not allowed and any(missing for missing, _ in counts.values())
        beyond = any(infinite for _, infinite in counts.values())
        kinds = " or ".join(["missing"] * holes + ["infinite"] * beyond)
        remedies = [REMEDY] * holes + [f"{INFINITE}, or exclude the columns"] * beyond
        raise ValueError(f"{kinds} values in {', '.join(bad)}; {'; '.join(remedies)}")


def missing_label(labels: Sequence[Any]) -> str:
    """Label of the level of missing values, distinct from the others.

    Examples
    --------
    >>> missing_label(["no", "yes"]), missing_label(["missing", "seen"])
    ('missing', 'missing (no value)')
    """
    present = set(map(str, labels))
    label = next((label for label in LABELS if label not in present), None)
    if label is None:
        raise ValueError(f"the levels {LABELS[0]!r} and {LABELS[1]!r} are both taken; rename one of them")
    return label


def refuse_few(observed: Mapping[str, int]) -> None:
    """Refuse continuous columns with too few values to learn a distribution from."""
    if few := {name: count for name, count in observed.items() if count < MIN_OBSERVED}:
        where = ", ".join(f"{name!r} ({counted(count, 'value')})" for name, count in few.items())
        raise ValueError(
            f"too few values to learn from in {where}; with missing='category' a continuous column needs at least "
            f"{MIN_OBSERVED}. Exclude it, or name it in discrete_features"
        )


@dataclass(frozen=True)
class DroppedRows:
    """Counts of rows dropped for missing values or zero weight; counts of disjoint sets of rows can be added.

    Attributes
    ----------
    n_rows, n_dropped : int
        Rows looked at, and those left out.
    columns : Counter
        Missing values of each column that has any.
    n_outcomes : int
        Missing values of the outcome.
    n_weightless, n_other_arms : int
        Rows of weight 0, and rows of arms that are not compared; they are not among those looked at.
    """

    n_rows: int = 0
    n_dropped: int = 0
    columns: Counter[str] = field(default_factory=Counter)
    n_outcomes: int = 0
    n_weightless: int = 0
    n_other_arms: int = 0

    def __add__(self, other: DroppedRows) -> DroppedRows:
        """The counts of both sets of rows."""
        columns = Counter(self.columns)
        columns.update(other.columns)
        counts = ("n_rows", "n_dropped", "n_outcomes", "n_weightless", "n_other_arms")
        return DroppedRows(columns=columns, **{name: getattr(self, name) + getattr(other, name) for name in counts})

    def warn(self) -> None:
        """Warn with the number of rows and the missing values by column."""
        if self.n_weightless:
            some = "has a weight of 0 and is" if self.n_weightless == 1 else "have a weight of 0 and are"
            total = self.n_rows + self.n_weightless
            warn(f"{self.n_weightless} of {total} rows {some} left out")
        if not self.n_dropped:
            return
        named = ", ".join(f"{printable(name)} ({count})" for name, count in self.columns.items())
        share = self.n_dropped / self.n_rows
        many = self.n_outcomes >= MIN_OUTCOMES
        kept = ["missing='category' keeps rows without a feature"] * (self.n_outcomes < self.columns.total())
        kept += ["missing_outcome='weight' reweights rows with an outcome to represent those without"] * many
        strong = (
            f". That is {share:.0%} of the table: the other rows may represent another population, and power is lost"
        )
        strong += "".join(f"; {advice}" for advice in kept)
        some = "has a missing value and is" if self.n_dropped == 1 else "have missing values and are"
        warn(
            f"{self.n_dropped} of {self.n_rows} rows {some} left out: {named}" + strong * (share > LARGE_SHARE),
        )

    def refuse_all(self) -> None:
        """Refuse a table with no rows left."""
        if self.n_weightless and not self.n_rows:
            raise ValueError("sample_weight is zero in every row; at least some rows must count")
        if self.n_rows and self.n_rows == self.n_dropped:
            empty = [repr(name) for name, count in self.columns.items() if count == self.n_rows]
            where = f" ({', '.join(empty)} {'have' if len(empty) > 1 else 'has'} no value at all)" if empty else ""
            raise ValueError(f"every row has a missing value{where}; exclude columns or use missing='category'")

    def settings(self) -> dict[str, Any]:
        """Entries for the record of a result."""
        return {"n_rows_dropped": self.n_dropped, "missing_values": dict(self.columns)}


def complete_rows(
    X: pd.DataFrame,
    y: pd.Series[Any],
    treatment: pd.Series[Any],
    others: Mapping[str, pd.Series[Any]] | None = None,
    *,
    what: str = "rows",
) -> tuple[Bools, DroppedRows]:
    """Mask of rows with every feature, outcome and treatment, and a count of the others.

    `others` are further columns that must have a value, by the name of their argument. With `what` "outcomes" only the
    outcome must be present, and with "inputs" everything but the outcome.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> y, a = pd.Series([1.0, 2.0, np.nan]), pd.Series([0, 1, 1])
    >>> kept, dropped = complete_rows(pd.DataFrame({"dose": [None, 2.0, 3.0]}), y, a)
    >>> kept, dropped.n_dropped, dict(dropped.columns)
    (array([False,  True, False]), 2, {'dose': 1, 'y': 1})
    """
    features = [(str(name), X.iloc[:, m]) for m, name in enumerate(X.columns)]
    taken = {name for name, _ in features}  # features may be called y or treatment, too
    outcome = (_own_name(y, "y", "the outcome", taken), y)
    parts = [outcome] if what == "outcomes" else features + [outcome] * (what == "rows")
    if what != "outcomes":
        parts += [(_own_name(treatment, "treatment", "the treatment", taken), treatment)]
        parts += [(_own_name(column, name, f"the {name}", taken), column) for name, column in (others or {}).items()]
    kept = np.ones(len(X), dtype=bool)
    counts: Counter[str] = Counter()
    for name, column in parts:
        holes = column.isna().to_numpy()
        if holes.any():
            kept &= ~holes
            counts[name] += int(holes.sum())
    return kept, DroppedRows(len(X), int((~kept).sum()), counts, counts[outcome[0]] if what != "inputs" else 0)


def _own_name(column: pd.Series[Any], argument: str, role: str, taken: set[str]) -> str:
    """Name of a column that is not a feature: its own, its argument's or, if features have these, its role."""
    names = [column.name, argument] if isinstance(column.name, str) and column.name else [argument]
    return next((name for name in names if name not in taken), role)
