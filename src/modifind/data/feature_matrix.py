"""Reading a user's table: column kinds, encoding and validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from modifind._typing import Array
from modifind.data.arm_labels import first_treated
from modifind.data.column_types import (
    INSTEAD,
    MAX_DISCRETE_VALUES,
    feature_column,
    loses_digits,
    outcome_name,
    plain_column,
    plain_label,
    refuse_identifiers,
    text_outcome,
    treatment_name,
    unfit_kind,
)
from modifind.data.containers import as_column, as_frame, check_names
from modifind.data.missing import (
    count_missing,
    missing_label,
    refuse_few,
    refuse_gaps,
    refuse_missing,
    refuse_outcome_gaps,
)
from modifind.data.wording import counted, meant

Kind = Literal["continuous", "discrete"]
MIN_ROWS = 50
MIN_ARM_ROWS = 20
LARGEST = 1e150  # squares must not overflow


@dataclass(frozen=True)
class FeatureTable:
    """A validated table of features, one column per feature whatever its kind.

    Attributes
    ----------
    names : tuple of str
        Column names.
    values : array of shape (n, d)
        Continuous values as they are, NaN where missing; discrete features as codes ``0..k-1``.
    categories : tuple
        For each feature its category labels in code order, or None when continuous.
    reference : tuple of two arrays, optional
        Mean and standard deviation of each column to standardise by; by default its own. Models that were fitted to
        other rows of the same table need those rows' figures.
    incomplete : frozenset of int
        Continuous features that may have missing values. Their model columns are two: the value, at its mean where it
        is missing, and an indicator of missing ones.
    level_columns : dict
        Model columns of each level, shape (k, width), for categories of many levels, which have no indicators; see
        `columns.many_levels`. The first column is the code.
    """

    names: tuple[str, ...]
    values: Array
    categories: tuple[tuple[Any, ...] | None, ...]
    reference: tuple[Array, Array] | None = None
    incomplete: frozenset[int] = frozenset()
    level_columns: Mapping[int, Array] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.values.shape[0]

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.values.shape[1]

    def kind(self, feature: int) -> Kind:
        """Kind of one feature."""
        return "continuous" if self.categories[feature] is None else "discrete"

    def n_levels(self, feature: int) -> int:
        """Number of categories, 0 for a continuous feature."""
        labels = self.categories[feature]
        return 0 if labels is None else len(labels)

    def is_constant(self, feature: int) -> bool:
        """Whether all rows agree."""
        column = self.values[:, feature]
        return bool((column == column[0]).all() or (feature in self.incomplete and np.isnan(column).all()))

    def observed(self, feature: int) -> NDArray[np.bool_]:
        """The rows in which a feature is not missing; a missing level of a discrete feature is a level like others."""
        return ~np.isnan(self.values[:, feature])

    @property
    def constant(self) -> tuple[bool, ...]:
        """Whether all rows agree, for every feature."""
        return tuple(self.is_constant(m) for m in range(self.n_features))

    @cached_property
    def scaling(self) -> tuple[Array, Array]:
        """Mean and standard deviation of each column's observed rows; a constant one has standard deviation 1."""
        if self.reference is not None:
            return self.reference
        mean, spread = self.values.mean(axis=0), self.values.std(axis=0)
        for m in self.incomplete:
            own = self.values[self.observed(m), m]
            mean[m], spread[m] = (own.mean(), own.std()) if own.size else (0.0, 0.0)
        return mean, np.where(spread > 0, spread, 1.0)

    @cached_property
    def encoding(self) -> tuple[slice, ...]:
        """Columns of `design` that belong to each feature."""
        widths = [2 if m in self.incomplete else max(self.n_levels(m) - 1, 1) for m in range(self.n_features)]
        for m, columns in self.level_columns.items():
            widths[m] = columns.shape[1]
        ends = np.cumsum(widths)
        return tuple(slice(int(end - width), int(end)) for end, width in zip(ends, widths, strict=True))

    @property
    def gaps(self) -> tuple[int, ...]:
        """Columns of `design` with the values of incomplete features; the one after each indicates missing ones."""
        return tuple(self.encoding[m].start for m in sorted(self.incomplete))

    @property
    def coded(self) -> tuple[tuple[slice, int], ...]:
        """Columns of `design` that belong to categories of many levels, the code being the first, and their levels."""
        return tuple((self.encoding[m], self.n_levels(m)) for m in sorted(self.level_columns))

    @property
    def with_indicators(self) -> FeatureTable:
        """The same with indicators of the levels, however many there are."""
        return replace(self, level_columns={}) if self.level_columns else self

    def encode(self, feature: int, values: Array) -> Array:
        """Model columns of one feature at given values: standardised, or indicators of the codes 1, 2, ...

        A category of many levels has those of `level_columns`. An incomplete feature has two: the standardised value,
        0 where missing, and the indicator of missing ones.
        """
        values = np.asarray(values, dtype=np.float64)
        if feature in self.level_columns:
            return self.level_columns[feature][values.astype(np.intp)]
        levels = self.n_levels(feature)
        if levels:
            return (values[..., None] == np.arange(1, max(levels, 2))).astype(np.float64)
        means, spreads = self.scaling
        standardised = (values - means[feature]) / spreads[feature]
        if feature not in self.incomplete:
            return standardised[..., None]
        missing = np.isnan(values)
        return np.stack((np.where(missing, 0.0, standardised), missing), axis=-1)

    @cached_property
    def design(self) -> Array:
        """All features as one numeric matrix for models: standardised values and category indicators."""
        return np.concatenate([self.encode(m, self.values[:, m]) for m in range(self.n_features)], axis=1)

    def design_without(
        self, feature: int, extra: Array | None = None, recode: Callable[[Array], Array] | None = None
    ) -> Array:
        """`design` less one feature, with `extra` columns appended; `recode` makes numbers of codes of many levels."""
        columns = self.encoding[feature]
        design = self.design if recode is None else recode(self.design)
        parts = [design[:, : columns.start], design[:, columns.stop :]]
        if extra is not None:
            parts.append(np.asarray(extra, dtype=np.float64).reshape(self.n_rows, -1))
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class AlsoDiscrete:
    """Numeric columns to be taken as discrete besides those that have few values."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Treatment:
    """A two-valued treatment as 0 and 1, with the user's labels."""

    arms: NDArray[np.int64]
    control: Any
    treated: Any


def read_features(
    X: Any,
    discrete_features: str | Sequence[Any] | NDArray[Any] | AlsoDiscrete = "auto",
    missing: str = "error",
) -> FeatureTable:
    """Turn a DataFrame or array into a `FeatureTable`.

    Parameters
    ----------
    X : DataFrame, array of shape (n, d) or what `as_frame` takes
        Features. Array columns are called x0, x1, ...
    discrete_features : "auto", names, positions, a mask, or AlsoDiscrete
        "auto" takes boolean, categorical and text columns and numbers with at most 10 distinct values as discrete. A
        list names the numeric columns to be taken as discrete; the other numeric columns are then continuous. Text
        and categories are discrete in any case.
    missing : {"error", "category"}, default="error"
        "category" gives missing values of a discrete feature a level of their own, and leaves those of a continuous
        one NaN.

    Returns
    -------
    FeatureTable

    Raises
    ------
    ValueError
        Names every column that has missing or infinite values, or a type that is no feature.

    Examples
    --------
    >>> import pandas as pd
    >>> table = read_features(pd.DataFrame({"age": range(20, 40), "sex": ["f", "m"] * 10}))
    >>> table.kind(0), table.kind(1), table.categories[1]
    ('continuous', 'discrete', ('f', 'm'))
    """
    frame = as_frame(X)
    if frame.empty:
        raise ValueError(f"X must have rows and columns; found shape {frame.shape}")
    names = tuple(str(name) for name in frame.columns)
    check_names(names)
    columns = [feature_column(frame.iloc[:, m], name) for m, name in enumerate(names)]
    counts = {name: count_missing(column) for name, (column, _) in zip(names, columns, strict=True)}
    refuse_missing(counts, allowed=missing == "category")
    chosen, by_count = discrete_mask(names, discrete_features)
    values = np.empty(frame.shape)
    categories: list[tuple[Any, ...] | None] = []
    incomplete: list[int] = []
    for m, name in enumerate(names):
        column, numeric = columns[m]
        gaps = counts[name][0]
        most = MAX_DISCRETE_VALUES if by_count else int(gaps > 0)
        if numeric and not chosen[m] and column.nunique() > most:
            if loses_digits(frame.iloc[:, m]):
                refuse_identifiers(name)
            values[:, m] = column.to_numpy(dtype=np.float64, na_value=np.nan)
            check_scale(f"column {name!r}", values[~np.isnan(values[:, m]), m])
            categories.append(None)
            incomplete += [m] if gaps else []
        else:
            labels, codes = _codes(column, name)
            values[:, m] = np.where(codes < 0, len(labels), codes)
            categories.append((*labels, missing_label(labels)) if gaps else labels)
    refuse_few({names[m]: len(frame) - counts[names[m]][0] for m in incomplete})
    return FeatureTable(names, values, tuple(categories), incomplete=frozenset(incomplete))


def discrete_mask(names: tuple[str, ...], discrete_features: Any) -> tuple[NDArray[np.bool_], bool]:
    """Which numeric columns the user takes as discrete, and whether few values make another one so."""
    if isinstance(discrete_features, AlsoDiscrete):
        return discrete_mask(names, list(discrete_features.names))[0], True
    if isinstance(discrete_features, str):
        if discrete_features == "auto":
            return np.zeros(len(names), dtype=bool), True
        raise ValueError(f"discrete_features must be 'auto' or a list of columns, not {discrete_features!r}")
    return column_mask(names, discrete_features, "discrete_features"), False


def column_mask(names: tuple[str, ...], columns: Any, argument: str) -> NDArray[np.bool_]:
    """Which columns an argument means by names, positions or a mask.

    Examples
    --------
    >>> column_mask(("age", "sex", "dose"), ["sex", -1], "adjust_for")
    array([False,  True,  True])
    """
    chosen = np.asarray(columns)
    mask = np.zeros(len(names), dtype=bool)
    if chosen.size == 0:
        return mask
    if chosen.dtype == bool:
        if chosen.shape != mask.shape:
            raise ValueError(f"{argument} as a mask needs {mask.size} entries, found {chosen.size}")
        return chosen
    for item in chosen.tolist() if isinstance(columns, np.ndarray) else columns:
        # Names first: a table whose columns are called 0, 2, 1 means the column called 1.
        position = names.index(str(item)) if str(item) in names else (item if isinstance(item, int) else None)
        if position is None or not -len(names) <= position < len(names):
            raise ValueError(f"{argument} names {item!r}, which is not a column of X{meant(str(item), names)}")
        mask[position] = True
    return mask


def adjusted_columns(names: tuple[str, ...], adjust_for: Any) -> tuple[str, ...]:
    """The columns that are adjusted for and not tested; refuses what leaves none to test."""
    if adjust_for is None:
        return ()
    if isinstance(adjust_for, str | bytes) or not hasattr(adjust_for, "__iter__"):
        raise ValueError(f"adjust_for must be a list of columns, not {adjust_for!r}")
    chosen = column_mask(names, adjust_for, "adjust_for")
    if chosen.all():
        every = "the only column" if len(names) == 1 else f"all {len(names)} columns"
        raise ValueError(f"adjust_for names {every} of X; at least one must be left to test")
    return tuple(name for name, own in zip(names, chosen, strict=True) if own)


def _codes(column: pd.Series[Any], name: str) -> tuple[tuple[Any, ...], NDArray[np.int64]]:
    """Category labels in their natural order (declared order for pandas categories) and the code of each row."""
    mixed = column.dtype == object and pd.api.types.infer_dtype(column).startswith("mixed")
    try:
        if mixed:
            raise TypeError
        if isinstance(column.dtype, pd.CategoricalDtype):
            column = column.cat.remove_unused_categories()
            labels, codes = column.cat.categories, column.cat.codes.to_numpy()
        else:
            codes, labels = pd.factorize(column, sort=True)
    except TypeError:
        raise ValueError(
            f"column {name!r} mixes types that cannot be compared; convert it to text or to numbers"
        ) from None
    return tuple(plain_label(label) for label in labels), np.asarray(codes, dtype=np.int64)


def read_treatment(treatment: ArrayLike | None, n_rows: int, treated: Any = None) -> Treatment:
    """Two labels as 0 and 1; see `first_treated` for which is which.

    Examples
    --------
    >>> read_treatment(["drug", "placebo"] * 25, 50).treated
    'drug'
    """
    if treatment is None:
        raise ValueError("treatment is required: pass treatment=, one value of two per row")
    column = plain_column(as_column(treatment, "treatment"))
    check_length("treatment", len(column), n_rows)
    name = treatment_name(column)
    missing = int(column.isna().sum())
    infinite = int(np.isinf(column.to_numpy()).sum()) if pd.api.types.is_float_dtype(column.dtype) else 0
    refuse_gaps(name, missing, infinite)
    labels, codes = _codes(column, "treatment")
    first_is_treated = first_treated(labels, treated, name)
    arms = 1 - codes if first_is_treated else codes
    check_arms(int(min(arms.sum(), n_rows - arms.sum())))
    control, treated_label = (labels[1], labels[0]) if first_is_treated else labels
    return Treatment(arms, control, treated_label)


def check_rows(n_rows: int) -> None:
    """Refuse a table of a few rows."""
    if n_rows < MIN_ROWS:
        raise ValueError(f"X has {counted(n_rows, 'row')}; at least {MIN_ROWS} are needed")


def check_arms(smaller: int) -> None:
    """Refuse an arm of a few rows."""
    if smaller < MIN_ARM_ROWS:
        raise ValueError(f"each arm of treatment needs at least {MIN_ARM_ROWS} rows; the smaller has {smaller}")


def read_outcome(y: ArrayLike | None, n_rows: int) -> Array:
    """A finite numeric outcome that is not constant."""
    if y is None:
        raise ValueError("y is required: the outcome of each row")
    column = as_column(y, "y")
    check_length("y", len(column), n_rows)
    outcome = outcome_values(column)
    missing, infinite = int(np.isnan(outcome).sum()), int(np.isinf(outcome).sum())
    refuse_outcome_gaps(outcome_name(column), n_rows, missing, infinite)
    if (outcome == outcome[0]).all():
        raise ValueError(f"y is constant ({outcome[0]:g}); there is no effect to find")
    check_scale("y", outcome)
    return outcome


def outcome_values(column: pd.Series[Any]) -> Array:
    """An outcome as numbers, missing ones as NaN."""
    column = plain_column(column)
    if found := unfit_kind(column):
        raise ValueError(
            f"{outcome_name(column)} must be numeric; found {found}. Analyse a number, such as {INSTEAD[found]}"
        )
    if pd.api.types.is_string_dtype(column) and not column.isna().all():
        raise ValueError(text_outcome(column))
    try:
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise ValueError(text_outcome(column)) from None


def check_scale(what: str, values: Array) -> None:
    """Squares of values and of their spread must neither overflow nor vanish."""
    spread = float(values.max() / 2 - values.min() / 2)
    if np.abs(values).max() > LARGEST or 0 < spread < 1 / LARGEST:
        raise ValueError(f"{what} has values beyond {LARGEST:g} or a spread below {1 / LARGEST:g}; rescale it")


def check_length(what: str, found: int, expected: int) -> None:
    """Refuse a column of another length than the table."""
    if found != expected:
        raise ValueError(f"{what} has {counted(found, 'row')} but X has {expected}")
