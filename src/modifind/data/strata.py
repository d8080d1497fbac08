"""Trials that were randomised within strata: reading them, what they say of the scores, and folds that respect them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind.data.column_types import plain_label
from modifind.data.containers import as_column
from modifind.data.determined import first_seen
from modifind.data.feature_matrix import FeatureTable, check_length
from modifind.data.rare_levels import MIN_LEVEL_ROWS
from modifind.data.wording import gaps

SHOWN = 3


@dataclass(frozen=True)
class Strata:
    """The stratum of every row.

    Attributes
    ----------
    codes : array of shape (n,)
        Numbers ``0..k-1``.
    labels : tuple
        The user's labels in code order.
    """

    codes: NDArray[np.int64]
    labels: tuple[Any, ...]


def read_strata(strata: Any, table: FeatureTable, arms: NDArray[np.int64]) -> Strata:
    """One label per row, checked.

    Parameters
    ----------
    strata : array of shape (n,)
        Labels of any kind.
    table : FeatureTable
        The features; none of them may say the same.
    arms : array of shape (n,)
        0 or 1.

    Raises
    ------
    ValueError
        Where a label is missing, where a stratum has fewer than five rows of an arm, and where the strata are one of
        the features.

    Examples
    --------
    >>> from modifind.data.feature_matrix import read_features
    >>> table = read_features([[k % 7, k % 13] for k in range(60)])
    >>> read_strata(["north"] * 30 + ["south"] * 30, table, np.arange(60) % 2).labels
    ('north', 'south')
    """
    column = as_column(strata, "strata")
    check_length("strata", len(column), table.n_rows)
    missing = int(column.isna().sum())
    if missing:
        refuse_unstratified(missing)
    if column.dtype == object and pd.api.types.infer_dtype(column).startswith("mixed"):
        column = column.astype(str)
    codes, found = pd.factorize(column, sort=True)
    labels = tuple(plain_label(label) for label in found)
    treated = np.bincount(codes, arms, minlength=len(labels)).astype(np.int64)
    check_strata(labels, np.bincount(codes, minlength=len(labels)) - treated, treated)
    refuse_repeated(codes, table)
    return Strata(codes.astype(np.int64), labels)


def refuse_unstratified(missing: int) -> None:
    """Refuse rows that are in no stratum."""
    raise ValueError(f"strata has {gaps(missing, 0)}; drop such rows or give them a stratum of their own")


def refuse_repeated(codes: NDArray[Any], table: FeatureTable) -> None:
    """Refuse strata that are one of the features."""
    own = first_seen(codes)
    for m, name in enumerate(table.names):
        if np.array_equal(own, first_seen(table.values[:, m])):
            raise ValueError(f"strata has the same content as the feature {name!r}; leave one of the two out")


def check_strata(labels: tuple[Any, ...], control: NDArray[Any], treated: NDArray[Any]) -> None:
    """Refuse a single stratum, and strata with few rows of an arm."""
    if len(labels) < 2:
        raise ValueError(f"strata has one value only ({labels[0]!r}); leave it out")
    small = np.flatnonzero(np.minimum(treated, control) < MIN_LEVEL_ROWS)
    if small.size:
        shown = ", ".join(f"{labels[k]!r} ({treated[k]} treated, {control[k]} control)" for k in small[:SHOWN])
        more = f" and {small.size - SHOWN} more" if small.size > SHOWN else ""
        raise ValueError(
            f"every stratum needs at least {MIN_LEVEL_ROWS} rows of each arm; too few in {shown}{more}. Merge small "
            "strata or drop their rows."
        )


def stratum_name(names: Iterable[Any]) -> str:
    """What the column of the strata is called: "stratum", in brackets as long as a feature is called that."""
    name = "stratum"
    while name in names:
        name = f"({name})"
    return name


def with_strata(table: FeatureTable, strata: Strata) -> FeatureTable:
    """The table with the stratum as its last feature, for models and samplers to condition on."""
    return replace(
        table,
        names=(*table.names, stratum_name(table.names)),
        values=np.column_stack((table.values, strata.codes)),
        categories=(*table.categories, strata.labels),
    )


def stratum_folds(arms: NDArray[np.int64], strata: NDArray[np.int64], n_folds: int, seed: int) -> NDArray[np.int64]:
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
