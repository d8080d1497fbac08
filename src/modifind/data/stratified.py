"""Trials that were randomised within strata: checks of the strata, and folds that respect them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Ints
from modifind.data.clusters import first_seen
from modifind.data.feature_matrix import FeatureTable
from modifind.data.rare_levels import MIN_LEVEL_ROWS
from modifind.data.wording import gaps, shortened

SHOWN = 3


def refuse_unstratified(missing: int) -> None:
    """Refuse rows without a stratum."""
    raise ValueError(f"strata has {gaps(missing, 0)}; drop such rows or give them a stratum of their own")


def refuse_repeated(codes: NDArray[Any], table: FeatureTable) -> None:
    """Refuse strata that are one of the features."""
    strata = first_seen(codes)
    for m, name in enumerate(table.names):
        if np.array_equal(strata, first_seen(table.values[:, m])):
            raise ValueError(f"strata has the same content as the feature {name!r}; leave one of the two out")


def check_strata(labels: tuple[Any, ...], control: NDArray[Any], treated: NDArray[Any]) -> None:
    """Refuse a single stratum, and strata with few rows of an arm."""
    if len(labels) < 2:
        raise ValueError(f"strata has one value only ({labels[0]!r}); leave it out")
    small = np.flatnonzero(np.minimum(treated, control) < MIN_LEVEL_ROWS)
    if small.size:
        shown = shortened([f"{labels[k]!r} ({treated[k]} treated, {control[k]} control)" for k in small], SHOWN)
        raise ValueError(
            f"every stratum needs at least {MIN_LEVEL_ROWS} rows of each arm; too few in {shown}. Merge small "
            "strata or drop their rows."
        )


def stratum_name(names: Iterable[Any]) -> str:
    """What the column of the strata is called: "stratum", in brackets as long as a feature is called that."""
    name = "stratum"
    while name in names:
        name = f"({name})"
    return name


def stratum_folds(arms: Ints, strata: Ints, n_folds: int, seed: int) -> Ints:
    """Fold of each row; folds have as equal numbers of every arm, and of every stratum within it, as can be.

    Examples
    --------
    >>> arms, strata = np.tile([0, 1], 20), np.repeat([0, 1], 20)
    >>> folds = stratum_folds(arms, strata, 5, seed=0)
    >>> np.unique(folds * 4 + strata * 2 + arms, return_counts=True)[1]
    array([2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2])
    """
    n_folds = min(n_folds, int(np.bincount(arms).min()))
    folds = np.empty(arms.size, dtype=np.int64)
    shuffled = np.random.default_rng(seed).permutation(arms.size)
    for arm in (0, 1):
        rows = shuffled[arms[shuffled] == arm]
        rows = rows[np.argsort(strata[rows], kind="stable")]
        folds[rows] = np.arange(rows.size) % n_folds
    return folds
