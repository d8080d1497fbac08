"""Levels of categories: similar spellings, rare levels, and categories with many levels.

Rare levels are pooled into one. Indicators for every level of postcodes, sites or diagnosis codes would make as many
columns as there are levels, each estimated from a few rows. A category with more than 30 levels instead has a column of
codes, from which every model derives what it needs to know of a level on the rows it is fitted to, and a few columns
that say how rows of the level differ in the other features: shrunken level means, in the directions in which levels
differ by more than chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._system import one_thread
from modifind._typing import Array, Ints
from modifind.data.features import FeatureTable
from modifind.data.missing import LABELS
from modifind.data.weights import Weights
from modifind.data.words import listed, respelled, shortened, warn_of_any


def alike(labels: Iterable[Any]) -> list[list[str]]:
    """Sets of labels with equivalent spellings.

    Examples
    --------
    >>> alike(["male", "Male ", "female", "FEMALE", "other"])
    [['male', 'Male '], ['female', 'FEMALE']]
    """
    sets: dict[str, list[str]] = {}
    for label in labels:
        if isinstance(label, str):
            sets.setdefault(respelled(label), []).append(label)
    return [same for same in sets.values() if len(same) > 1]


def warn_alike(table: FeatureTable) -> None:
    """Warn once of all levels that differ in invisible details only."""
    shown = [
        f"{name}: {listed(same)}"
        for name, labels in zip(table.names, table.categories, strict=True)
        for same in alike(labels or ())
    ]
    warn_of_any(
        shown,
        "levels that differ only in capitals, blanks or the form of letters count as different: {}. Write them alike "
        "if they mean the same",
        between="; ",
    )


MIN_LEVEL_ROWS = 5
POOLED = "other"
SHOWN_LEVELS = 3


@dataclass(frozen=True)
class Pooling:
    """How the rare levels of one feature are pooled.

    Attributes
    ----------
    labels : tuple
        The levels that are left; the pooled one is the last.
    codes : array of int
        New code of every old one.
    rare : tuple
        Labels that were pooled, the rarest first.
    n_rows : int
        Rows of the table.
    n_joined : int
        How many of `rare`, the last ones, are not rare themselves: the pool was too small without them.
    """

    labels: tuple[Any, ...]
    codes: Ints
    rare: tuple[Any, ...]
    n_rows: int
    n_joined: int = 0

    @property
    def left_out(self) -> bool:
        """Whether only one level remains, so that there is nothing to test."""
        return len(self.labels) == 1

    @property
    def is_identifier(self) -> bool:
        """Whether nearly every row has a level of its own."""
        return self.left_out and 2 * len(self.rare) > self.n_rows


def pool(labels: Sequence[Any], counts: NDArray[Any]) -> Pooling | None:
    """Pool the levels with fewer than five rows in an arm; None if there are none.

    While the pool itself has too few rows, the next rarest level joins it, the level of missing values last.

    Parameters
    ----------
    labels : sequence
        Levels in code order.
    counts : array of shape (k, 2)
        Rows of each level in each arm.

    Examples
    --------
    >>> found = pool(["a", "b", "c", "d"], np.array([[30, 30], [4, 9], [20, 20], [2, 1]]))
    >>> found.labels, found.rare, found.codes.tolist()
    (('a', 'c', 'other'), ('d', 'b'), [0, 2, 1, 2])
    """
    if len(labels) < 2 or counts.min() >= MIN_LEVEL_ROWS:
        return None
    is_rare = counts.min(axis=1) < MIN_LEVEL_ROWS
    last = np.array([str(label) in LABELS for label in labels]) & ~is_rare
    order = np.lexsort((np.arange(len(labels)), counts.sum(axis=1), counts.min(axis=1), last))
    sums = np.cumsum(counts[order], axis=0).min(axis=1)
    enough = np.flatnonzero(sums >= MIN_LEVEL_ROWS)
    n_rare = int(is_rare.sum())
    n_pooled = max(n_rare, int(enough[0]) + 1 if enough.size else len(labels))
    is_pooled = np.zeros(len(labels), dtype=bool)
    is_pooled[order[:n_pooled]] = True
    kept = [label for label, gone in zip(labels, is_pooled, strict=True) if not gone]
    codes = np.where(is_pooled, len(kept), np.cumsum(~is_pooled) - 1)
    name = POOLED if POOLED not in map(str, kept) else f"{POOLED} (pooled)"
    rare = tuple(labels[k] for k in order[:n_pooled])
    return Pooling((*kept, name), codes.astype(np.int64), rare, int(counts.sum()), n_pooled - n_rare)


def rare_levels(table: FeatureTable, arms: Ints) -> dict[int, Pooling]:
    """Pooling of rare levels by feature; empty if there are none."""
    counts: dict[int, Ints] = {}
    for m, labels in enumerate(table.categories):
        if labels is not None:
            codes = table.values[:, m].astype(np.int64)
            counts[m] = np.bincount(2 * codes + arms, minlength=2 * len(labels)).reshape(-1, 2)
    return pool_each(table.categories, counts)


def pool_each(categories: Sequence[tuple[Any, ...] | None], counts: Mapping[int, Ints]) -> dict[int, Pooling]:
    """Pooling of rare levels by feature, from the rows of each level in each arm."""
    poolings = {m: pool(categories[m] or (), rows) for m, rows in counts.items()}
    return {m: pooling for m, pooling in poolings.items() if pooling is not None}


def warn_pooled(poolings: Mapping[str, Pooling]) -> None:
    """Warn of identifiers, of features left with one level, and of pooled levels."""
    ids = [f"{n} ({len(p.rare)} distinct values in {p.n_rows} rows)" for n, p in poolings.items() if p.is_identifier]
    warn_of_any(ids, "looks like an identifier and is left out: {}", "look like identifiers and are left out: {}")
    empty = [name for name, p in poolings.items() if p.left_out and not p.is_identifier]
    few = f"no two levels have {MIN_LEVEL_ROWS} rows in each arm, so"
    warn_of_any(empty, f"{few} it cannot be tested: {{}}", f"{few} they cannot be tested: {{}}")
    pooled = [f"{name}: {_levels(p)}" for name, p in poolings.items() if not p.left_out]
    rare = f"levels with fewer than {MIN_LEVEL_ROWS} rows in an arm are pooled as {POOLED!r} ({{}})"
    warn_of_any(pooled, rare, between="; ")


def _levels(pooling: Pooling) -> str:
    n_rare = len(pooling.rare) - pooling.n_joined
    rare, joined = pooling.rare[:n_rare], pooling.rare[n_rare:]
    shown = shortened([repr(label) for label in rare], SHOWN_LEVELS)
    why = "with it, as it has too few rows" if len(rare) == 1 else "with them, as they are too few"
    return shown + (f", and {', '.join(map(repr, joined))} {why}" if joined else "")


MAX_INDICATORS = 30
MAX_DIRECTIONS = 5
MAX_COMBINED_COLUMNS = 60  # of which directions are combined
MAX_DEVIATION = 4.0  # standard deviations, beyond which rows do not count for more
MIN_WITHIN_SHARE = 1e-3  # share of a column's variance that levels are taken to leave open


def with_level_columns(table: FeatureTable, weights: Weights | None = None) -> FeatureTable:
    """The table with many-level categories as codes and a few means, made without treatment or outcome.

    Parameters
    ----------
    table : FeatureTable
        Features.
    weights : Weights, optional
        How much each row counts.

    Examples
    --------
    >>> import pandas as pd
    >>> from modifind.data.schema import read_features
    >>> rng = np.random.default_rng(0)
    >>> site = rng.integers(0, 100, 2000)
    >>> age = 50 + 10 * rng.normal(size=100)[site] + 10 * rng.normal(size=2000)
    >>> table = read_features(pd.DataFrame({"age": age, "site": np.char.add("s", site.astype(str))}))
    >>> table.design.shape, with_level_columns(table).design.shape
    ((2000, 100), (2000, 3))
    """
    many = [m for m in range(table.n_features) if table.n_levels(m) > MAX_INDICATORS]
    if not many:
        return table
    numbers = {m: np.arange(table.n_levels(m), dtype=np.float64)[:, None] for m in many}
    plain = replace(table, level_columns=numbers)
    others = np.delete(plain.design, [plain.encoding[m].start for m in many], axis=1)
    level_columns, counts = {}, Weights.of(weights, table.n_rows)
    with one_thread():  # the sums must not depend on the number of threads
        for m, codes in numbers.items():
            directions = Directions.of(others, table.values[:, m].astype(np.intp), codes.size, counts)
            level_columns[m] = np.column_stack((codes, directions.means))
    return replace(table, level_columns=level_columns)


@dataclass(frozen=True)
class Directions:
    """Directions in which the levels of a category differ in other columns, and the position of each level.

    Within levels the directions are uncorrelated with variance 1. Level means are shrunk according to their number of
    rows and the spread of all levels.

    Attributes
    ----------
    columns : int array
        The columns that are combined.
    centre : array of shape (columns,)
        Their means, which are subtracted.
    vectors : array of shape (columns, k)
        The directions.
    means : array of shape (levels, k)
        Shrunken means of the levels.
    variances : array of shape (k,)
        Variance between levels.
    """

    columns: NDArray[np.intp]
    centre: Array
    vectors: Array
    means: Array
    variances: Array

    @classmethod
    def of(
        cls,
        columns: Array,
        codes: NDArray[np.intp],
        n_levels: int,
        weights: Weights,
        most: int = MAX_DIRECTIONS,
    ) -> Directions:
        """Directions from columns of about unit variance; few or none if levels hardly differ."""
        if not columns.shape[1]:
            nowhere = np.zeros((n_levels, 0))
            return cls(np.empty(0, dtype=np.intp), np.zeros(0), np.zeros((0, 0)), nowhere, np.zeros(0))
        counted = weights.effective.values
        shapes = np.clip(columns, -MAX_DEVIATION, MAX_DEVIATION)
        counts = np.bincount(codes, counted, minlength=n_levels)
        size = counts.sum()
        centre = counted @ shapes / size
        shapes = shapes - centre
        sums = np.stack([np.bincount(codes, counted * column, minlength=n_levels) for column in shapes.T], axis=1)
        means = sums / np.maximum(counts, 1e-12)[:, None]
        whole = counted @ shapes**2
        between = np.einsum("lj,lj->j", sums, means)
        seen = int((counts > 0).sum())
        within = np.maximum(whole - between, MIN_WITHIN_SHARE * whole)
        strength = np.where(whole > 1e-9 * size, between / np.maximum(within, 1e-300), -1.0)
        kept = np.sort(np.argsort(-strength, kind="stable")[:MAX_COMBINED_COLUMNS])
        kept = kept[strength[kept] > 0].astype(np.intp)
        nothing = cls(kept, centre[kept], np.zeros((kept.size, 0)), np.zeros((n_levels, 0)), np.zeros(0))
        freedom = size - seen
        if kept.size == 0 or seen < 3 or freedom < 2 * kept.size:
            return nothing
        shapes, sums, means = shapes[:, kept], sums[:, kept], means[:, kept]
        scatter = shapes.T @ (counted[:, None] * shapes)
        inner = (scatter - sums.T @ means) / freedom + MIN_WITHIN_SHARE * np.diag(np.diag(scatter) / size)
        values, basis = np.linalg.eigh(inner)
        whiten = basis / np.sqrt(np.maximum(values, 1e-9 * values[-1]))
        turned, extra = np.linalg.eigh(whiten.T @ (sums.T @ means) @ whiten / (seen - 1))
        # The largest eigenvalue that levels without any difference would show, and a little more.
        edge = (1 + np.sqrt(kept.size / (seen - 1))) ** 2 * (1 + 2 * (seen - 1) ** (-2 / 3))
        order = np.argsort(-turned, kind="stable")[:most]
        order = order[turned[order] > edge]
        if order.size == 0:
            return nothing
        vectors = whiten @ extra[:, order]
        vectors *= np.where(vectors[np.argmax(np.abs(vectors), axis=0), np.arange(order.size)] < 0, -1.0, 1.0)
        typical = (size - counts @ counts / size) / (seen - 1)  # rows of a level
        variances = (turned[order] - 1) / typical
        share = variances / (variances + 1 / np.maximum(counts, 1e-12)[:, None])
        return cls(kept, centre[kept], vectors, share * (means @ vectors), variances)

    def __call__(self, columns: Array) -> Array:
        """Positions of rows along the directions, shape (n, k)."""
        return (np.clip(columns[:, self.columns], -MAX_DEVIATION, MAX_DEVIATION) - self.centre) @ self.vectors
