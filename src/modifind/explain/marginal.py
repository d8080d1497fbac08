"""One feature looked at alone: its importance and its effect curve, whatever test it is put to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from modifind.explain.curves import effect_curve
from modifind.features import FeatureTable
from modifind.kernels import Array
from modifind.statistics.wcmmd import PreparedWCMMD, curve_variance, weighted_bandwidth


@dataclass(frozen=True)
class MarginalView:
    """Importance, curve and bandwidth of one feature."""

    importance: float
    bandwidth: float
    curve: pd.DataFrame


def marginal_view(
    table: FeatureTable,
    feature: int,
    y: Array,
    scores: Array,
    prepared: PreparedWCMMD,
    seed: np.random.SeedSequence,
    weights: Array | None = None,
) -> MarginalView:
    """Importance and effect curve of one feature.

    Parameters
    ----------
    table : FeatureTable
        Features.
    feature : int
        Position of the feature.
    y, scores : arrays of shape (n,)
        Outcome and propensity scores.
    prepared : PreparedWCMMD
        The statistic, prepared for the outcome, the treatment and the weights.
    seed : SeedSequence
        For the subsample that the bandwidth is taken from.
    weights : array of shape (n,), optional
        Weights of the rows, of mean 1.

    Returns
    -------
    MarginalView
        The importance of a constant feature is 0.
    """
    column = table.values[:, feature]
    levels = table.n_levels(feature)
    bandwidth = 1.0
    if not levels:
        seen = table.observed(feature)
        own = None if weights is None else weights[seen]
        bandwidth = weighted_bandwidth(column[seen], own, np.random.default_rng(seed)) or 1.0
    d2 = prepared.curve(column, scores, bandwidth=bandwidth, n_levels=levels)
    shown = effect_curve(
        column, y, prepared.treatment, scores, d2, bandwidth=bandwidth, n_levels=levels, weights=weights
    )
    labels = table.categories[feature]
    if labels is not None:
        shown["value"] = list(labels)
    importance = 0.0 if table.is_constant(feature) else curve_variance(d2, weights)
    return MarginalView(importance, bandwidth, shown)
