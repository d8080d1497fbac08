"""Rare levels of discrete features, pooled into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Ints
from modifind.data.feature_matrix import FeatureTable
from modifind.data.missing import LABELS
from modifind.data.wording import shortened, warn_of_any

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
        """Whether one level is left, so that there is nothing to test."""
        return len(self.labels) == 1

    @property
    def is_identifier(self) -> bool:
        """Whether nearly every row had a level of its own."""
        return self.left_out and 2 * len(self.rare) > self.n_rows


def pool(labels: Sequence[Any], counts: NDArray[Any]) -> Pooling | None:
    """Pool the levels that have fewer than five rows in an arm; None where there are none.

    While the pool has too few rows itself, the next rarest level joins it; that of missing values does so last.

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
    """How rare levels are pooled, by feature; nothing where there are none."""
    counts: dict[int, Ints] = {}
    for m, labels in enumerate(table.categories):
        if labels is not None:
            codes = table.values[:, m].astype(np.int64)
            counts[m] = np.bincount(2 * codes + arms, minlength=2 * len(labels)).reshape(-1, 2)
    return pool_each(table.categories, counts)


def pool_each(categories: Sequence[tuple[Any, ...] | None], counts: Mapping[int, Ints]) -> dict[int, Pooling]:
    """How rare levels are pooled, by feature, from the rows of each level in each arm."""
    poolings = {m: pool(categories[m] or (), rows) for m, rows in counts.items()}
    return {m: pooling for m, pooling in poolings.items() if pooling is not None}


def warn_pooled(poolings: Mapping[str, Pooling]) -> None:
    """Warn of identifiers, of features that are left out, and of levels that were pooled."""
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
