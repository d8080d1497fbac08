"""Average effects by subgroup: the levels of a category, the quarters of a number, and the rows without a value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.data.feature_groups import Unit
from modifind.data.feature_matrix import FeatureTable
from modifind.data.weights import Weights
from modifind.explain.average_effects import effect_limits
from modifind.explain.pseudo import PseudoOutcomes
from modifind.result.selection_result import no_subgroups

SUBGROUPS = "effects by subgroup"
QUARTILES = (0.25, 0.5, 0.75)
MAX_SUBGROUP_LEVELS = 30  # of a category; those with the most rows
MIN_SUBGROUP_ARM = 2  # of either arm, that a subgroup has an effect
MAX_DECIMALS = 7
MISSING = "missing"
NUMBERS = ("effect", "low", "high", "se", "df")


def subgroup_effects(outcomes: PseudoOutcomes, table: FeatureTable, units: Sequence[Unit]) -> pd.DataFrame:
    """The average effect in every subgroup, adjusted for all features.

    Parameters
    ----------
    outcomes : PseudoOutcomes
        What is averaged.
    table : FeatureTable
        Features of the rows that `outcomes` has.
    units : sequence of Unit
        Features, and groups of columns that are tested as one; each of their columns has subgroups.

    Returns
    -------
    DataFrame
        See `SelectionResult.subgroups`; without the features' p-values.
    """
    rows_shown: list[dict[str, Any]] = []
    for unit in units:
        for member in unit.members:
            if table.is_constant(member):
                continue
            for level, rows in _subgroups(table.values[:, member], table.categories[member], outcomes.weights):
                named = {"feature": unit.name, "column": table.names[member], "level": level}
                rows_shown.append({**named, **_effect(outcomes, rows)})
    return pd.DataFrame(rows_shown).astype({"level": object}) if rows_shown else no_subgroups()


def _effect(outcomes: PseudoOutcomes, rows: NDArray[np.intp]) -> dict[str, float]:
    counted = outcomes.arm_weights[rows] > 0
    n_treated, n_control = (int(np.sum(counted & (outcomes.arms[rows] == arm))) for arm in (1, 0))
    known = min(n_treated, n_control) >= MIN_SUBGROUP_ARM
    numbers = effect_limits(outcomes, rows) if known else (math.nan,) * len(NUMBERS)
    if not math.isfinite(numbers[0]):  # a ratio of averages of which one is zero
        numbers = (math.nan,) * len(NUMBERS)
    return {"n_treated": n_treated, "n_control": n_control, **dict(zip(NUMBERS, numbers, strict=True))}


def _subgroups(column: Array, labels: tuple[Any, ...] | None, weights: Array) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Names of the subgroups of a column in their order, each with its rows."""
    seen = ~np.isnan(column)
    if labels is not None:
        counts = np.bincount(column[seen].astype(np.intp), minlength=len(labels))
        for code in sorted(np.argsort(-counts, kind="stable")[:MAX_SUBGROUP_LEVELS]):
            yield _named(labels[code]), np.flatnonzero(column == code)
    elif seen.any():
        edges, decimals = _edges(column[seen], weights[seen])
        cell = np.searchsorted(edges, column, side="left")
        for k, name in enumerate(_quarters(edges, decimals)):
            rows = np.flatnonzero(seen & (cell == k))
            if rows.size:
                yield name, rows
    if not seen.all():
        yield MISSING, np.flatnonzero(~seen)


def _named(label: Any) -> str:
    if label is None or (not isinstance(label, str) and pd.isna(label)):
        return MISSING
    return f"{label:g}" if isinstance(label, float | np.floating) else str(label)


def _edges(values: Array, weights: Array) -> tuple[Array, int]:
    """Quartiles, rounded so that names of ranges are exact, and the decimals that they have."""
    edges = np.unique(Weights.of(weights).quantiles(values, np.array(QUARTILES)))
    extent = float(np.ptp(edges)) or abs(float(edges[0])) or 1.0
    decimals = 1 - math.floor(math.log10(extent))
    near = np.unique(np.round(edges, decimals) + 0.0)  # no minus zero
    near = near if near.size == edges.size else edges
    return near[(near < values.max()) & (near >= values.min())], max(decimals, 0)


def _quarters(edges: Array, decimals: int) -> list[str]:
    """Names of the ranges between the edges.

    Examples
    --------
    >>> _quarters(np.array([48.2, 61.7]), 1)
    ['up to 48.2', 'over 48.2 to 61.7', 'over 61.7']
    """
    if not edges.size:
        return ["all values"]
    at = [f"{edge:.{decimals}f}" if decimals < MAX_DECIMALS else f"{edge:.4g}" for edge in edges]
    inner = [f"over {low} to {high}" for low, high in pairwise(at)]
    return [f"up to {at[0]}", *inner, f"over {at[-1]}"]
