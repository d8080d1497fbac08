"""One feature looked at alone: its importance, effect curve and densities, whatever test it is put to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from modifind._typing import Array
from modifind.data.feature_matrix import FeatureTable
from modifind.data.survey import quantiles_of, some
from modifind.explain.attempts import attempt
from modifind.explain.pseudo import PseudoOutcomes
from modifind.explain.reading import GivenFeature
from modifind.explain.views import explain_column, no_curve
from modifind.result.explained import N_DRAWS
from modifind.statistics.prepared_wcmmd import PreparedWCMMD, curve_variance
from modifind.statistics.wcmmd import weighted_bandwidth

TOLD = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class MarginalView:
    """Importance, bandwidth, curve and densities of one feature.

    Attributes
    ----------
    percentiles : tuple of float
        Values of a continuous feature at the percentiles that sentences are about.
    """

    importance: float
    bandwidth: float
    curve: pd.DataFrame
    densities: pd.DataFrame | None = None
    percentiles: tuple[float, ...] = ()


def told_percentiles(column: Array, weights: Array | None = None) -> tuple[float, ...]:
    """Values of a continuous feature at its 10th, 50th and 90th percentile; none where all are missing."""
    seen = ~np.isnan(column)
    if not seen.any():
        return ()
    return tuple(float(value) for value in quantiles_of(column[seen], np.array(TOLD), some(weights, seen)))


def marginal_view(
    table: FeatureTable,
    feature: int,
    outcomes: PseudoOutcomes,
    scores: Array,
    prepared: PreparedWCMMD,
    seed: np.random.SeedSequence,
    weights: Array | None = None,
    *,
    n_draws: int = N_DRAWS,
) -> MarginalView:
    """Importance and effect curve of one feature.

    Parameters
    ----------
    table : FeatureTable
        Features.
    feature : int
        Position of the feature.
    outcomes : PseudoOutcomes
        What curves are averages of.
    scores : array of shape (n,)
        Propensity scores.
    prepared : PreparedWCMMD
        The statistic, prepared for the outcome, the treatment and the weights.
    seed : SeedSequence
        For the subsample that the bandwidth is taken from, and for the bootstrap.
    weights : array of shape (n,), optional
        Weights of the rows, of mean 1.
    n_draws : int, default=200
        Draws of the bootstrap; without any there are no bands and no densities.

    Returns
    -------
    MarginalView
        The importance of a constant feature is 0. The curve is empty, and there are no densities, where they fail.
    """
    column = table.values[:, feature]
    levels = table.n_levels(feature)
    bandwidth = 1.0
    if not levels:
        seen = table.observed(feature)
        bandwidth = weighted_bandwidth(column[seen], some(weights, seen), np.random.default_rng(seed)) or 1.0
    importance = 0.0
    if not table.is_constant(feature):
        importance = curve_variance(prepared.curve(column, scores, bandwidth=bandwidth, n_levels=levels), weights)
    shown = attempt(
        f"feature {table.names[feature]!r}: its curve",
        explain_column,
        GivenFeature(column[outcomes.rows], table.categories[feature]),
        outcomes,
        prepared.y_bandwidth,
        np.random.default_rng(seed.spawn(1)[0]),
        n_draws=n_draws,
    )
    if shown is None:
        return MarginalView(importance, bandwidth, no_curve())
    percentiles: tuple[float, ...] = ()
    if not levels:
        even = outcomes.population == "overlap"
        percentiles = told_percentiles(*((column[outcomes.rows], outcomes.weights) if even else (column, weights)))
    return MarginalView(importance, bandwidth, shown.curve, shown.densities if n_draws else None, percentiles)
