"""One feature looked at alone: its importance, effect curve and densities, whatever test it is put to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from modifind._typing import Array
from modifind.data.feature_matrix import FeatureTable
from modifind.data.weights import Weights
from modifind.explain.attempts import attempt
from modifind.explain.pseudo import PseudoOutcomes
from modifind.explain.reading import GivenFeature
from modifind.explain.views import Explained, explain_column, no_curve
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


def told_percentiles(column: Array, weights: Weights) -> tuple[float, ...]:
    """Values of a continuous feature at its 10th, 50th and 90th percentile; none where all are missing."""
    seen = ~np.isnan(column)
    if not seen.any():
        return ()
    return tuple(float(value) for value in weights[seen].quantiles(column[seen], np.array(TOLD)))


def bandwidth_of(table: FeatureTable, feature: int, weights: Weights, seed: np.random.SeedSequence) -> float:
    """Bandwidth of the kernel on a continuous feature: the median distance of rows, of which a seed draws some."""
    seen = table.observed(feature)
    if table.n_levels(feature) or not seen.any():
        return 1.0
    return weighted_bandwidth(table.values[seen, feature], weights[seen], np.random.default_rng(seed)) or 1.0


def marginal_view(
    table: FeatureTable,
    feature: int,
    outcomes: PseudoOutcomes,
    scores: Array,
    prepared: PreparedWCMMD,
    seed: np.random.SeedSequence,
    weights: Weights | None = None,
    *,
    n_draws: int = N_DRAWS,
    importance: float | None = None,
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
    weights : Weights, optional
        How much each row counts, with mean 1.
    n_draws : int, default=200
        Draws of the bootstrap; without any there are no bands and no densities.
    importance : float, optional
        Its importance, where more rows than these tell it.

    Returns
    -------
    MarginalView
        The importance of a constant feature is 0. The curve is empty, and there are no densities, where they fail.
    """
    column, levels, counts = table.values[:, feature], table.n_levels(feature), Weights.of(weights, table.n_rows)
    bandwidth = bandwidth_of(table, feature, counts, seed)
    if importance is None:
        importance = 0.0
        if not table.is_constant(feature):
            importance = curve_variance(prepared.curve(column, scores, bandwidth=bandwidth, n_levels=levels), counts)
    shown = attempt(
        f"feature {table.names[feature]!r}: its curve",
        _explain,
        column[outcomes.rows],
        table.categories[feature],
        outcomes,
        prepared.y_bandwidth,
        np.random.default_rng(seed.spawn(1)[0]),
        n_draws=n_draws,
    )
    if shown is None:
        return MarginalView(importance, bandwidth, no_curve())
    percentiles: tuple[float, ...] = ()
    if not levels:
        if outcomes.population == "overlap":
            column, counts = column[outcomes.rows], Weights.of(outcomes.weights)
        percentiles = told_percentiles(column, counts)
    return MarginalView(importance, bandwidth, shown.curve, shown.densities if n_draws else None, percentiles)


def _explain(column: Array, labels: tuple[Any, ...] | None, *given: Any, **settings: Any) -> Explained:
    """Curve and densities; where every value is missing there is one point, as of a single category."""
    if labels is not None or not np.isnan(column).all():
        return explain_column(GivenFeature(column, labels), *given, **settings)
    found = explain_column(GivenFeature(np.zeros(column.size), (np.nan,)), *given, **settings)
    return Explained(*(part.astype({"value": np.float64}) for part in (found.curve, found.densities)))
