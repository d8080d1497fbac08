"""Bounds along one column of a fitted analysis, with values and categories as its curve has them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
import pandas as pd

from modifind._typing import Array
from modifind.data.feature_matrix import FeatureTable
from modifind.data.population import population_weights
from modifind.explain.bounds import BoundDraws, near_points
from modifind.explain.local import curve_points, local_bandwidth
from modifind.explain.local_distributions import WeightedRows
from modifind.explain.pseudo import ArmRows
from modifind.result.explained import N_DRAWS

# Bounds take far longer than curves, and half the points of a curve show how they go.
MAX_POINTS = 13


@dataclass(frozen=True)
class Bounds:
    """Bounds along a column, as `effect_bounds` returns them, and what `bounds_test` says of them."""

    table: pd.DataFrame
    tests: pd.DataFrame


def explain_bounds(
    table: FeatureTable, feature: int, rows: ArmRows, seed: np.random.SeedSequence, *, points: Array | None = None
) -> Bounds:
    """Bounds on the distribution of the effect along one column.

    Parameters
    ----------
    table : FeatureTable
        Features.
    feature : int
        Position of the column.
    rows : ArmRows
        Its rows; those of a cluster are drawn together.
    seed : SeedSequence
        For the bootstrap.
    points : array, optional
        Where to look at a continuous column; NaN, for its missing values, is left out. By default those of its curve.
        Of more than 13 as many are taken, evenly, with the first and the last.

    Returns
    -------
    Bounds
        Where values of a continuous column are missing, the last row, with a `value` of NaN, is that of the rows
        without one.
    """
    column, labels = table.values[:, feature], table.categories[feature]
    weights = population_weights(rows.scores, rows.population, rows.weights)
    if labels is None:
        seen = table.observed(feature)
        own = weights[seen]
        points = curve_points(column[seen], 0, own) if points is None else points[~np.isnan(points)]
        if points.size > MAX_POINTS:
            points = points[np.round(np.linspace(0, points.size - 1, MAX_POINTS)).astype(np.intp)]
        kernels = near_points(column, points, local_bandwidth(column[seen], own))
        if seen.all():
            values = points
        else:
            kernels = chain((np.where(seen, near, 0.0) for near in kernels), ((~seen).astype(np.float64),))
            values = np.append(points, np.nan)
    else:
        kernels = near_points(column, np.arange(len(labels), dtype=np.float64), 0.0)
        values = np.array(labels, dtype=object)
    weighted = WeightedRows.of(rows.y, rows.arms, rows.scores, weights.given, rows.y.size)
    draws = BoundDraws.near(weighted, kernels, values, True, N_DRAWS, np.random.default_rng(seed), rows.clusters)
    shown = draws.table()
    if labels is not None:
        shown["value"] = list(labels)
    return Bounds(shown, draws.test())
