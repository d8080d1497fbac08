"""Columns that are tested together: what the user named, checked, and the table arranged for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from modifind._typing import Array
from modifind.data.feature_matrix import FeatureTable, Kind
from modifind.data.wording import listed, named

# One feature by its place in the table, or the places of neighbouring ones that are looked at together.
Feature: TypeAlias = int | tuple[int, ...]


@dataclass(frozen=True)
class Unit:
    """What has one row in the result: a column, or a group of columns.

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
        """What models and distributions are asked about: its one column, or all of them together."""
        return self.members if len(self.members) > 1 else self.members[0]

    def with_seeds(self, seed: np.random.SeedSequence) -> list[tuple[int, np.random.SeedSequence]]:
        """Its columns, each with a seed, the same whenever asked; that of a single one is the seed itself."""
        if len(self.members) == 1:
            return [(self.members[0], seed)]
        same = np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key)
        return list(zip(self.members, same.spawn(len(self.members)), strict=True))

    def kind(self, table: FeatureTable) -> Kind | Literal["group"]:
        """What the result says it is."""
        return "group" if self.group else table.kind(self.members[0])

    def is_constant(self, table: FeatureTable) -> bool:
        """Whether all rows agree in all columns."""
        return all(table.is_constant(m) for m in self.members)


def has_groups(feature_groups: Any) -> bool:
    """Whether the user named any groups; refuses what is no dictionary."""
    if feature_groups is not None and not isinstance(feature_groups, Mapping):
        raise ValueError(
            "feature_groups must be a dictionary of columns by group name, such as "
            f"{{'blood pressure': ['sbp', 'dbp']}}, not {type(feature_groups).__name__}"
        )
    return bool(feature_groups)


def read_feature_groups(feature_groups: Any, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Check what the user passed as groups.

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
    """Refuse a group that has a column which is only adjusted for."""
    for group, columns in groups.items():
        if both := [column for column in columns if column in adjusted]:
            raise ValueError(
                f"feature_groups: {group!r} names {listed(both)}, which adjust_for names too; a column is tested or "
                "adjusted for, so leave it out of one of the two"
            )


def arrange(
    table: FeatureTable, groups: Mapping[str, tuple[str, ...]], adjusted: Collection[str] = ()
) -> tuple[FeatureTable, tuple[Unit, ...]]:
    """The table with the columns of each group side by side, and what is tested, in that order.

    A group takes the place of its first column. Without groups the table is the same object. Columns in `adjusted` stay
    in the table and are not tested.

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
    """The places of columns such that those of each group are neighbours, and what is tested; see `arrange`."""
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
    """Some columns of a table, in this order, standardised as they are there."""
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
    """Places of the columns of a feature: its own, or those of a group."""
    return feature if isinstance(feature, tuple) else (int(feature),)


def columns_of(table: FeatureTable, feature: Feature) -> slice:
    """Columns of `design` that belong to a feature, or to neighbouring ones."""
    if isinstance(feature, tuple):
        return slice(table.encoding[feature[0]].start, table.encoding[feature[-1]].stop)
    return table.encoding[feature]


def encode(table: FeatureTable, feature: Feature, points: Array) -> Array:
    """Model columns of a feature at some points; those of several features have one more axis for these."""
    if isinstance(feature, tuple):
        return np.concatenate([table.encode(m, points[..., k]) for k, m in enumerate(feature)], axis=-1)
    return table.encode(feature, points)


def column_kinds(table: FeatureTable, units: tuple[Unit, ...]) -> dict[str, str]:
    """Kind of every column that is in a group."""
    return {table.names[m]: table.kind(m) for unit in units if unit.group for m in unit.members}
