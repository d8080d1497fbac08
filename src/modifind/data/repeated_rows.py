"""Repeated rows of one person that would count as independent, found by shared values or by an identifier column.

Rows that share a value of one column should agree in other columns about as often as rows with neighbouring values,
however closely the columns are related. Visits of one person agree far more often than those of neighbours, who are
other people. A column that identifies persons is recognised by its name or, if it has no role, by what its rows share.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from modifind._typing import Array, Ints
from modifind.data.clusters import is_within, joint_codes, numbered, tied_pairs
from modifind.data.features import FeatureTable
from modifind.data.words import is_person_identifier_name, is_person_name, is_place_name, printable, shortened

MAX_VISITS = 12  # rows that agree in all of some columns; more are a cell of a small table, not a person
MAX_SHARE = 0.05  # of the rows that have one value of a key
MIN_PAIRS = 15.0
MIN_REPEATED = 0.1  # of the rows, beyond chance
MIN_RATIO = 3.0  # of pairs that agree to those that chance gives,
MIN_COLUMN_RATIO = 1.15  # and for each column,
MIN_LEAST_RATIO, MIN_LEAST_SHARE = 1.5, 0.2  # and for columns that tell all others
SAME_PAIRS = 1.25
MAX_EQUAL = 0.05  # of the rows
MIN_VALUES = 20
MAX_KEYS = 4
MAX_COLUMNS = 40


@dataclass(frozen=True)
class Agreement:
    """Pairs of rows with the same key that agree in other columns: observed, expected by chance, and all pairs."""

    pairs: float
    expected: float
    most: float

    @property
    def ratio(self) -> float:
        """Ratio of observed to expected agreement."""
        return self.pairs / max(self.expected, 1.0)

    @property
    def is_noticeable(self) -> bool:
        """Whether more pairs agree than chance explains."""
        return self.pairs - self.expected >= 5.0 + 4.0 * np.sqrt(self.expected) and self.ratio >= MIN_COLUMN_RATIO

    @property
    def share(self) -> float:
        """Excess agreement as a share of the pairs that would disagree by chance."""
        return (self.pairs - self.expected) / max(self.most - self.expected, 1.0)

    def matters(self, n_rows: float) -> bool:
        """Whether the excess agreement would invalidate a test of `n_rows` rows."""
        excess = self.pairs - self.expected
        return excess >= MIN_PAIRS and 2.0 * excess >= MIN_REPEATED * n_rows


@dataclass(frozen=True)
class RepeatedRows:
    """Rows that agree in some columns far beyond chance.

    Attributes
    ----------
    columns : tuple of str
        In which they agree.
    pairs, expected : int
        Pairs of rows that do, and how many would by chance.
    n_rows : int
        Rows that agree with another.
    """

    columns: tuple[str, ...]
    pairs: int
    expected: int
    n_rows: int

    @property
    def settings(self) -> dict[str, Any]:
        """Entries for the record of a result."""
        return {"columns": list(self.columns), "rows": self.n_rows, "pairs": self.pairs, "expected": self.expected}


def agreement(key: Ints, target: Ints) -> Agreement:
    """Agreement in `target` of pairs of rows that share a `key`, with neighbouring values of `key` as reference.

    Examples
    --------
    >>> person = np.repeat(np.arange(100), 3)
    >>> weight = np.random.default_rng(0).permutation(100)[person]
    >>> agreement(person, weight), agreement(np.arange(300) // 30, np.arange(300) % 30).pairs
    (Agreement(pairs=300.0, expected=0.0, most=300.0), 0.0)
    """
    key, target = numbered(key[key >= 0]), target[key >= 0]
    if not key.size:
        return Agreement(0.0, 0.0, 0.0)
    width = int(target.max()) + 1
    cells, counts = np.unique(key * width + target, return_counts=True)
    cells, counts = cells[counts <= MAX_VISITS], counts[counts <= MAX_VISITS].astype(np.float64)
    pairs = float((counts * (counts - 1.0)).sum() / 2.0)
    neighbour = np.minimum(np.searchsorted(cells, cells + width), max(cells.size - 1, 0))
    beside = float((counts * counts[neighbour])[cells[neighbour] == cells + width].sum()) if cells.size else 0.0
    sizes = np.bincount(key).astype(np.float64)
    tied, near = (sizes * (sizes - 1.0)).sum() / 2.0, (sizes[1:] * sizes[:-1]).sum()
    expected = tied * (beside + 2.0 * np.sqrt(beside)) / max(near, 1.0)
    return Agreement(pairs, float(expected), float(tied))


@dataclass(frozen=True)
class Codes:
    """Columns coded by the rank of their distinct values."""

    columns: Mapping[int, Ints]

    @cached_property
    def keys(self) -> dict[int, Ints]:
        """Columns with many values, with frequent values set to -1; the finest come first."""
        light = {m: _without_frequent(codes) for m, codes in self.columns.items()}
        pairs = {m: tied_pairs(numbered(codes[codes >= 0])) for m, codes in light.items()}
        fine = [m for m, count in pairs.items() if count >= MIN_PAIRS and np.unique(light[m]).size > MIN_VALUES]
        return {m: light[m] for m in sorted(fine, key=lambda m: pairs[m])}

    def joint(self, members: Sequence[int]) -> Ints:
        """Codes of rows that agree in all of some columns."""
        codes = np.zeros(next(iter(self.columns.values())).size, dtype=np.int64)
        for m in members:
            codes = joint_codes(codes, self.columns[m])
        return codes

    def least(self, members: Sequence[int]) -> Agreement:
        """Smallest agreement within a set of columns, over the choice of the key."""
        keys = (m for m in members if m in self.keys)
        agreements = [agreement(self.keys[m], self.joint([k for k in members if k != m])) for m in keys]
        return min(agreements, key=lambda agreed: agreed.ratio, default=Agreement(0.0, 0.0, 0.0))

    def agreeing(self, key: int) -> list[int]:
        """A column and those in which rows with its value agree more often than neighbours.

        Columns in which these rows agree nearly always are included too.
        """
        others = {m: codes for m, codes in self.columns.items() if m != key and not is_step(codes, self.columns[key])}
        members = [key, *(m for m, codes in others.items() if agreement(self.keys[key], codes).is_noticeable)]
        if len(members) == 1:
            return members
        whole = tied_pairs(self.joint(members))
        left = (m for m in others if m not in members)
        return members + [m for m in left if whole <= SAME_PAIRS * tied_pairs(self.joint([*members, m]))]

    def are_repeated(self, members: Sequence[int], n_rows: float) -> bool:
        """Whether rows agree in these columns beyond chance, also in a smallest subset that determines the others."""
        whole, least = self.least(members), self.least(self.without_derived(members))
        telling = least.ratio >= MIN_LEAST_RATIO or least.share >= MIN_LEAST_SHARE
        return whole.ratio >= MIN_RATIO and telling and whole.matters(n_rows) and least.matters(n_rows)

    def without_derived(self, members: Sequence[int]) -> list[int]:
        """Drop columns that the others determine, such as body mass index beside weight and height; finest first."""
        kept, whole = list(members), tied_pairs(self.joint(members))
        for m in sorted(members, key=lambda m: tied_pairs(self.columns[m])):
            fewer = [k for k in kept if k != m]
            if len(fewer) >= 2 and self.keys.keys() & fewer and tied_pairs(self.joint(fewer)) <= SAME_PAIRS * whole:
                kept = fewer
        return kept


def find_repeated(
    table: FeatureTable, left_out: frozenset[int] = frozenset(), share: float = 1.0
) -> RepeatedRows | None:
    """Find rows that repeat the features of others; columns in `left_out` are not used.

    Of a longer table only a `share` of the rows is at hand, and rarely both of two rows of one person.

    Examples
    --------
    >>> from modifind.data.schema import read_features
    >>> person, rng = np.repeat(np.arange(100), 3), np.random.default_rng(0)
    >>> columns = {"age": rng.integers(20, 80, 100)[person], "bmi": rng.normal(size=100)[person]}
    >>> find_repeated(read_features(columns)).columns
    ('age', 'bmi')
    """
    changing = [m for m in range(table.n_features) if m not in left_out and not table.is_constant(m)]
    changing = _without_equals(table, changing)
    columns = {m: numbered(table.values[:, m]) for m in changing}
    finest = sorted(columns, key=lambda m: tied_pairs(columns[m]))[:MAX_COLUMNS]
    codes = Codes({m: columns[m] for m in finest})
    for key in list(codes.keys)[:MAX_KEYS]:
        members = codes.agreeing(key)
        if len(members) > 1 and codes.are_repeated(members, share * table.n_rows):
            agreed, counts = codes.least(members), np.bincount(codes.joint(members))
            names = tuple(table.names[m] for m in sorted(members))
            n_rows = int(counts[(counts > 1) & (counts <= MAX_VISITS)].sum())
            return RepeatedRows(names, round(agreed.pairs), round(agreed.expected), n_rows)
    return None


def _without_equals(table: FeatureTable, features: list[int]) -> list[int]:
    """Drop numeric columns that often equal an earlier one: measured twice, or usual and maximum."""
    kept: list[int] = []
    for m in features:
        column = table.values[:, m]
        numbers = (table.values[:, k] for k in kept if not table.n_levels(k) and not table.n_levels(m))
        usual = column == _most_frequent(column)
        if all(np.mean((column == other) & ~usual) <= MAX_EQUAL for other in numbers):
            kept.append(m)
    return kept


def _most_frequent(column: Array) -> float:
    values, counts = np.unique(column, return_counts=True)
    return float(values[counts.argmax()])


def find_copied(table: FeatureTable, y: Array, share: float = 1.0) -> RepeatedRows | None:
    """Find whole rows that occur several times, for an outcome with many values; see `find_repeated`."""
    key = _without_frequent(numbered(y))
    rows = np.unique(table.values, axis=0, return_inverse=True)[1].reshape(-1)
    agreed = agreement(key, rows)
    if np.unique(key).size <= MIN_VALUES or agreed.ratio < MIN_RATIO or not agreed.matters(share * table.n_rows):
        return None
    counts = np.bincount(numbered(rows * (int(key.max()) + 2) + key))
    repeated = int(counts[(counts > 1) & (counts <= MAX_VISITS)].sum())
    return RepeatedRows(("all features", "the outcome"), round(agreed.pairs), round(agreed.expected), repeated)


def is_step(codes: Ints, key: Ints) -> bool:
    """Whether a column is a coarse step function of a key, such as age groups."""
    values = codes[np.unique(key, return_index=True)[1]]
    n_levels = np.unique(values).size
    few = 4 * n_levels <= values.size and int((np.diff(values) != 0).sum()) < 2 * n_levels
    return few and is_within(codes, key)


def _without_frequent(codes: Ints) -> Ints:
    """Codes without frequent values, sorted so that values of similar frequency are adjacent.

    People who round one answer also round others, so values of similar frequency are compared with each other.
    """
    counts = np.bincount(codes)
    often = np.log2(counts.clip(1)).astype(np.int64)
    light = np.where(counts[codes] > max(MAX_VISITS / 2, MAX_SHARE * codes.size), -1, codes)
    return np.where(light < 0, -1, often[codes] * counts.size + light)


MIN_IDS = 15
MIN_ROWS_EACH, MAX_ROWS_EACH = 1.15, 30
MAX_UNKNOWN = 0.1  # of the rows have no identifier
MIN_EXCESS = 6.0  # standard errors, of pairs of rows with one identifier that agree
MIN_SHARED = 2  # columns, and half of all, that agree for a column which is not called an identifier
MIN_CONSTANT = 0.95  # of the pairs with one identifier agree in a column that is constant,
MAX_NEIGHBOURS = 0.85  # and at most so many of those with neighbouring ones
N_BINS = 10
SHOWN = 3


def refuse_repeated_ids(frame: pd.DataFrame, roles: Collection[str], features: Collection[str]) -> None:
    """Refuse several rows per person, as shown by an identifier column.

    Parameters
    ----------
    frame : DataFrame
        The table, or its first rows, with the columns that are left out of the analysis as far as they are known.
    roles : collection of str
        Outcome, weights, strata and other columns that are no features; the treatment is not among them.
    features : collection of str
        Columns that are tested or adjusted for.

    Raises
    ------
    ValueError
        Names the column.

    Examples
    --------
    >>> person, rng = np.repeat(np.arange(40), 3), np.random.default_rng(0)
    >>> table = pd.DataFrame({"person": person, "age": rng.integers(20, 80, 40)[person], "dose": rng.normal(size=120)})
    >>> refuse_repeated_ids(table, [], ["age", "dose"])
    Traceback (most recent call last):
    ...
    ValueError: person looks like an identifier: 40 values in 120 rows, and rows with the same value agree in age. ...
    """
    names = [str(name) for name in frame.columns]
    for position, name in enumerate(names):
        known = is_person_name(name)
        if name in roles or not (known or (name not in features and _may_identify(frame.iloc[:, position], name))):
            continue
        codes = _codes(frame.iloc[:, position])
        if not _has_several_rows_each(codes):
            continue
        others = [k for k in range(len(names)) if k != position and names[k] not in roles]
        shared = [names[k] for k in others if _is_shared(codes, frame.iloc[:, k], known)]
        if is_person_identifier_name(name) or len(shared) >= (1 if known else max(MIN_SHARED, len(others) / 2)):
            size, n_rows = np.unique(codes[codes >= 0]).size, int((codes >= 0).sum())
            agree = f", and rows with the same value agree in {shortened(shared, SHOWN)}" * bool(shared)
            raise ValueError(
                f"{printable(name)} looks like an identifier: {size} values in {n_rows} rows{agree}. Rows of one "
                f"person are not independent: pass clusters={name!r}, or keep one row of each; rename the column if it "
                "is something else"
            )


def id_names(names: Sequence[str], roles: Collection[str]) -> list[str]:
    """Columns without a role whose names denote person identifiers."""
    return [name for name in names if name not in roles and is_person_name(name)]


def _may_identify(column: pd.Series, name: str) -> bool:
    """Whether whole numbers, or text with digits, could be identifiers."""
    if is_place_name(name) or pd.api.types.is_bool_dtype(column):
        return False
    if pd.api.types.is_numeric_dtype(column):
        numbers = column.dropna().to_numpy(dtype=np.float64)
        return bool(np.isfinite(numbers).all() and (numbers == np.rint(numbers)).all())
    distinct = column.dropna().astype(str).drop_duplicates()
    return bool(len(distinct) and distinct.str.contains(r"\d").mean() > 0.9)


def _has_several_rows_each(codes: Ints) -> bool:
    """Whether many values of a column have several rows each, but a small share of all."""
    counts = np.bincount(codes[codes >= 0])
    if counts.size < MIN_IDS or np.mean(codes < 0) > MAX_UNKNOWN:
        return False
    return bool(counts.mean() >= MIN_ROWS_EACH and counts.max() <= MAX_ROWS_EACH)


def _is_shared(ids: Ints, column: pd.Series, known: bool) -> bool:
    """Whether rows with the same identifier agree in a column: mostly if its name denotes one, otherwise always."""
    codes = _codes(column)
    both = (ids >= 0) & (codes >= 0)
    key, target = numbered(ids[both]), numbered(codes[both])
    if not target.size or target.max() < 1:
        return False
    if not known:
        return target.max() + 1 < target.size and _is_constant(key, target)
    if target.max() >= N_BINS:
        target = target * N_BINS // (int(target.max()) + 1)
    tied, pairs, chance = map(tied_pairs, (key, joint_codes(key, target), target))
    share = chance / max(target.size * (target.size - 1) / 2.0, 1.0)
    return pairs - tied * share > MIN_EXCESS * np.sqrt(tied * share * (1.0 - share) + 1.0)


def _is_constant(key: Ints, target: Ints) -> bool:
    """Whether a column is constant within a key but changes between keys; not if it groups the keys."""
    tied, pairs = tied_pairs(key), tied_pairs(joint_codes(key, target))
    if tied < MIN_IDS or pairs < MIN_CONSTANT * tied or is_step(target, key):
        return False
    return agreement(key, target).expected <= MAX_NEIGHBOURS * tied


def _codes(column: pd.Series) -> Ints:
    """Values coded by rank, -1 where missing."""
    values = column if pd.api.types.is_numeric_dtype(column) else column.astype(str).where(column.notna())
    return pd.factorize(values, sort=True)[0].astype(np.int64)
