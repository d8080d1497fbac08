"""Bounds along one column of a fitted analysis, with values and categories as its curve has them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from modifind.data.population import population_weights
from modifind.explain.bounds import BoundDraws, feature_kernels
from modifind.explain.local_distributions import WeightedRows
from modifind.explain.pseudo import ArmRows
from modifind.explain.reading import GivenFeature
from modifind.result.explained import N_DRAWS

# Bounds take far longer than curves, and half the points of a curve show how they go.
MAX_BOUND_POINTS = 13


@dataclass(frozen=True)
class Bounds:
    """Bounds along a column, as `effect_bounds` returns them, and what `bounds_test` says of them."""

    table: pd.DataFrame
    tests: pd.DataFrame


def explain_bounds(feature: GivenFeature, rows: ArmRows, seed: np.random.SeedSequence) -> Bounds:
    """Bounds on the distribution of the effect along one column.

    Parameters
    ----------
    feature : GivenFeature
        The column, and where to look; by default at the points of its curve, at most at 13 of a number.
    rows : ArmRows
        Its rows; those of a cluster are drawn together.
    seed : SeedSequence
        For the bootstrap.

    Returns
    -------
    Bounds
        Where values of a number are missing, the last row, with a `value` of NaN, is that of the rows without one.
    """
    weights = population_weights(rows.scores, rows.population, rows.weights)
    kernels, values = feature_kernels(feature, weights, most=MAX_BOUND_POINTS)
    sorted_rows, rng = WeightedRows.of(rows), np.random.default_rng(seed)
    draws = BoundDraws.near([sorted_rows], kernels, values, True, N_DRAWS, rng, rows.clusters)
    return Bounds(draws.table().assign(value=list(values)), draws.test())
