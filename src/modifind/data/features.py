"""Features encoded as numbers and codes for models, and groups of columns that are tested together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from modifind._typing import Array, Bools
from modifind.data.column_types import INSTEAD, outcome_name, plain_column, text_outcome, unfit_kind
from modifind.data.words import listed, meant, named

Kind = Literal["continuous", "discrete"]
MIN_ARM_ROWS = 20
LARGEST = 1e150  # squares must not overflow


@dataclass(frozen=True)
class FeatureTable:
    """A validated table of features, one column per feature of any kind.

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

    def part(self, rows: Any) -> FeatureTable:
        """A subset of the rows, with the standardisation of the whole table."""
        return replace(self, values=self.values[rows], reference=self.scaling)

    def kind(self, feature: int) -> Kind:
        """Kind of one feature."""
        return "continuous" if self.categories[feature] is None else "discrete"

    def n_levels(self, feature: int) -> int:
        """Number of categories, 0 for a continuous feature."""
        labels = self.categories[feature]
        return 0 if labels is None else len(labels)

    def numbers(self, feature: int) -> Array | None:
        """The values of one feature as numbers; None if its levels are not numeric."""
        labels, column = self.categories[feature], self.values[:, feature]
        if labels is None:
            return column
        if not all(isinstance(label, int | float) and not isinstance(label, bool) for label in labels):
            return None
        return np.array(labels, dtype=np.float64)[column.astype(np.int64)]

    def is_constant(self, feature: int) -> bool:
        """Whether a feature has the same value in all rows."""
        column = self.values[:, feature]
        return bool((column == column[0]).all() or (feature in self.incomplete and np.isnan(column).all()))

    def observed(self, feature: int) -> Bools:
        """Rows in which a feature is not missing; a discrete feature's missing level counts as observed."""
        return ~np.isnan(self.values[:, feature])

    @property
    def constant(self) -> tuple[bool, ...]:
        """Whether each feature is constant."""
        return tuple(self.is_constant(m) for m in range(self.n_features))

    @cached_property
    def scaling(self) -> tuple[Array, Array]:
        """Mean and standard deviation of each column's observed rows; the latter is 1 for a constant column."""
        if self.reference is not None:
            return self.reference
        mean, spread = self.values.mean(axis=0), self.values.std(axis=0)
        for m in self.incomplete:
            seen = self.values[self.observed(m), m]
            mean[m], spread[m] = (seen.mean(), seen.std()) if seen.size else (0.0, 0.0)
        return mean, np.where(spread > 0, spread, 1.0)

    @cached_property
    def encoding(self) -> tuple[slice, ...]:
        """Columns of `design` for each feature."""
        widths = [2 if m in self.incomplete else max(self.n_levels(m) - 1, 1) for m in range(self.n_features)]
        for m, columns in self.level_columns.items():
            widths[m] = columns.shape[1]
        ends = np.cumsum(widths)
        return tuple(slice(int(end - width), int(end)) for end, width in zip(ends, widths, strict=True))

    @property
    def gaps(self) -> tuple[int, ...]:
        """Columns of `design` with the values of incomplete features; each is followed by its missingness indicator."""
        return tuple(self.encoding[m].start for m in sorted(self.incomplete))

    @property
    def coded(self) -> tuple[tuple[slice, int], ...]:
        """Columns of `design` for categories with many levels, the code first, and their levels."""
        return tuple((self.encoding[m], self.n_levels(m)) for m in sorted(self.level_columns))

    @property
    def with_indicators(self) -> FeatureTable:
        """The same table with an indicator for every level, however many there are."""
        return replace(self, level_columns={}) if self.level_columns else self

    def encode(self, feature: int, values: Array) -> Array:
        """Design columns of one feature at given values: standardised, or indicators of the codes 1, 2, ...

        A category with many levels has its `level_columns`. An incomplete feature has two columns: the standardised
        value, 0 where missing, and the missingness indicator.
        """
        values = np.asarray(values, dtype=np.float64)
        if feature in self.level_columns:
            return self.level_columns[feature][values.astype(np.intp)]
        if levels := self.n_levels(feature):
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
        """`design` without one feature, with `extra` columns appended; `recode` encodes categories with many levels."""
        columns = self.encoding[feature]
        design = self.design if recode is None else recode(self.design)
        parts = [design[:, : columns.start], design[:, columns.stop :]]
        if extra is not None:
            parts.append(np.asarray(extra, dtype=np.float64).reshape(self.n_rows, -1))
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class AdditionalDiscrete:
    """Numeric columns to treat as discrete in addition to those with few values."""

    names: tuple[str, ...]


def discrete_mask(names: tuple[str, ...], discrete_features: Any) -> tuple[Bools, bool]:
    """Mask of numeric columns that the user declares discrete, and whether few values make others discrete too."""
    if isinstance(discrete_features, AdditionalDiscrete):
        return discrete_mask(names, list(discrete_features.names))[0], True
    if isinstance(discrete_features, str):
        if discrete_features == "auto":
            return np.zeros(len(names), dtype=bool), True
        raise ValueError(f"discrete_features must be 'auto' or a list of columns, not {discrete_features!r}")
    return column_mask(names, discrete_features, "discrete_features"), False


def column_mask(names: tuple[str, ...], columns: Any, argument: str) -> Bools:
    """Mask of the columns that an argument gives as names, positions or a mask.

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
    """Columns that are adjusted for but not tested; raises a ValueError if none is left to test."""
    if adjust_for is None:
        return ()
    if isinstance(adjust_for, str | bytes) or not hasattr(adjust_for, "__iter__"):
        raise ValueError(f"adjust_for must be a list of columns, not {adjust_for!r}")
    chosen = column_mask(names, adjust_for, "adjust_for")
    if chosen.all():
        every = "the only column" if len(names) == 1 else f"all {len(names)} columns"
        raise ValueError(f"adjust_for names {every} of X; at least one must be left to test")
    return tuple(name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen)


def outcome_values(column: pd.Series[Any]) -> Array:
    """An outcome as numbers, NaN where missing."""
    column = plain_column(column)
    if kind := unfit_kind(column):
        raise ValueError(
            f"{outcome_name(column)} must be numeric; found {kind}. Analyse a number, such as {INSTEAD[kind]}"
        )
    if pd.api.types.is_string_dtype(column) and not column.isna().all():
        raise ValueError(text_outcome(column))
    try:
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise ValueError(text_outcome(column)) from None


def check_scale(what: str, values: Array) -> None:
    """Refuse values whose squares, or whose variance, overflow or underflow."""
    spread = float(values.max() / 2 - values.min() / 2)
    if np.abs(values).max() > LARGEST or 0 < spread < 1 / LARGEST:
        raise ValueError(f"{what} has values beyond {LARGEST:g} or a spread below {1 / LARGEST:g}; rescale it")


# One feature by its place in the table, or the places of neighbouring ones that are looked at together.
Feature: TypeAlias = int | tuple[int, ...]


@dataclass(frozen=True)
class Unit:
    """A unit of testing, with one row in the result: a column, or a group of columns.

    Attributes
    ----------
    name : str
        Name of the row.
    members : tuple of int
        Places of its columns, which are neighbours.
    group : bool
        Whether the user named it as a group.
    place : int
        Its number among all that could be tested, columns that are adjusted for included. Its random stream is that of
        this number, so that it does not depend on which of the others are tested.
    """

    name: str
    members: tuple[int, ...]
    group: bool = False
    place: int = 0

    @property
    def feature(self) -> Feature:
        """Argument for models and distributions: the single column, or all columns of the group."""
        return self.members if len(self.members) > 1 else self.members[0]

    def with_seeds(self, seed: np.random.SeedSequence) -> list[tuple[int, np.random.SeedSequence]]:
        """The columns, each with a reproducible seed; a single column gets the seed itself."""
        if len(self.members) == 1:
            return [(self.members[0], seed)]
        same = np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key)
        return list(zip(self.members, same.spawn(len(self.members)), strict=True))

    def kind(self, table: FeatureTable) -> Kind | Literal["group"]:
        """Kind reported in the result."""
        return "group" if self.group else table.kind(self.members[0])

    def is_constant(self, table: FeatureTable) -> bool:
        """Whether every column is constant."""
        return all(table.is_constant(m) for m in self.members)


def has_groups(feature_groups: Any) -> bool:
    """Whether the user named any groups; refuses anything but a dictionary."""
    if feature_groups is not None and not isinstance(feature_groups, Mapping):
        raise ValueError(
            "feature_groups must be a dictionary of columns by group name, such as "
            f"{{'blood pressure': ['sbp', 'dbp']}}, not {type(feature_groups).__name__}"
        )
    return bool(feature_groups)


def read_feature_groups(feature_groups: Any, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Validate the feature groups passed by the user.

    Parameters
    ----------
    feature_groups : dict or None
        Columns by the name of their group.
    names : tuple of str
        Columns of the table.

    Returns
    -------
    dict
        The columns of every group, in the order of the table.

    Raises
    ------
    ValueError
        Names the group or column and the remedy.

    Examples
    --------
    >>> read_feature_groups({"blood pressure": ["dbp", "sbp"]}, ("age", "sbp", "dbp"))
    {'blood pressure': ('sbp', 'dbp')}
    """
    if not has_groups(feature_groups):
        return {}
    read: dict[str, tuple[str, ...]] = {}
    owner: dict[str, str] = {}
    for key, columns in feature_groups.items():
        group = str(key)
        if group in read:
            raise ValueError(f"feature_groups has two groups called {group!r}; rename one")
        if isinstance(columns, str | bytes | Mapping) or not hasattr(columns, "__iter__"):
            raise ValueError(f"feature_groups: the columns of {group!r} must be a list of names, not {columns!r}")
        members = [str(column) for column in columns]
        if not members:
            raise ValueError(f"feature_groups: {group!r} has no columns; name some or leave the group out")
        if unknown := [column for column in members if column not in names]:
            shown = named(names[:12]) + ", ..." * (len(names) > 12)
            raise ValueError(
                f"feature_groups: {group!r} names {listed(unknown)}, which X does not have; columns: {shown}"
            )
        for column in members:
            if column in owner:
                where = f"twice in {group!r}" if owner[column] == group else f"in {owner[column]!r} and in {group!r}"
                raise ValueError(f"feature_groups: column {column!r} is {where}; a column can be in one group, once")
            owner[column] = group
        if group in names and members != [group]:
            raise ValueError(f"feature_groups: {group!r} is also the name of a column; give the group another name")
        read[group] = tuple(sorted(members, key=names.index))
    return read


def refuse_adjusted(groups: Mapping[str, tuple[str, ...]], adjusted: Collection[str]) -> None:
    """Refuse a group with a column that is only adjusted for."""
    for group, columns in groups.items():
        if both := [column for column in columns if column in adjusted]:
            raise ValueError(
                f"feature_groups: {group!r} names {listed(both)}, which adjust_for names too; a column is tested or "
                "adjusted for, so leave it out of one of the two"
            )


def arrange(
    table: FeatureTable, groups: Mapping[str, tuple[str, ...]], adjusted: Collection[str] = ()
) -> tuple[FeatureTable, tuple[Unit, ...]]:
    """The table with the columns of each group adjacent, and its units in order.

    A group takes the position of its first column. Without groups the table is returned unchanged. Columns in
    `adjusted` stay in the table and are not tested.

    Examples
    --------
    >>> from modifind.data.schema import read_features
    >>> table = read_features([[k, k % 7, -k] for k in range(30)])
    >>> arranged, units = arrange(table, {"both": ("x0", "x2")})
    >>> arranged.names, [(unit.name, unit.members) for unit in units]
    (('x0', 'x2', 'x1'), [('both', (0, 1)), ('x1', (2,))])
    """
    places, units = side_by_side(table.names, groups, adjusted)
    return replace(part_of(table, places), reference=table.reference) if groups else table, units


def side_by_side(
    names: tuple[str, ...], groups: Mapping[str, tuple[str, ...]], adjusted: Collection[str] = ()
) -> tuple[list[int], tuple[Unit, ...]]:
    """Positions of columns that make those of each group adjacent, and the units; see `arrange`."""
    group_of = {column: group for group, columns in groups.items() for column in columns}
    # A group of one column may have that column's name; any other name is a group's or a column's, never both.
    order: list[str] = []
    units: list[Unit] = []
    for name in dict.fromkeys(group_of.get(name, name) for name in names):
        columns = groups.get(name, (name,))
        units.append(Unit(name, tuple(range(len(order), len(order) + len(columns))), name in groups, len(units)))
        order += columns
    positions = {name: position for position, name in enumerate(names)}
    tested = tuple(unit for unit in units if unit.group or unit.name not in adjusted)
    return [positions[name] for name in order], tested


def part_of(table: FeatureTable, places: list[int]) -> FeatureTable:
    """A subset of a table's columns in the given order, with the standardisation of the whole table."""
    means, spreads = table.scaling
    return replace(
        table,
        names=tuple(table.names[m] for m in places),
        values=np.take(table.values, places, axis=1),
        categories=tuple(table.categories[m] for m in places),
        reference=(means[places], spreads[places]),
        incomplete=frozenset(k for k, m in enumerate(places) if m in table.incomplete),
        level_columns={k: table.level_columns[m] for k, m in enumerate(places) if m in table.level_columns},
    )


def members_of(feature: Feature) -> tuple[int, ...]:
    """Column positions of a feature or of a group."""
    return feature if isinstance(feature, tuple) else (int(feature),)


def columns_of(table: FeatureTable, feature: Feature) -> slice:
    """Columns of `design` for a feature or for adjacent ones."""
    if isinstance(feature, tuple):
        return slice(table.encoding[feature[0]].start, table.encoding[feature[-1]].stop)
    return table.encoding[feature]


def encode(table: FeatureTable, feature: Feature, points: Array) -> Array:
    """Design columns of a feature at some points; for several features the points have an axis of their own."""
    if isinstance(feature, tuple):
        return np.concatenate([table.encode(m, points[..., k]) for k, m in enumerate(feature)], axis=-1)
    return table.encode(feature, points)


def column_kinds(table: FeatureTable, units: tuple[Unit, ...]) -> dict[str, str]:
    """Kind of every column that belongs to a group."""
    return {table.names[m]: table.kind(m) for unit in units if unit.group for m in unit.members}
