"""One feature looked at alone: its importance, effect curve and densities, whatever test it is put to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from modifind._typing import Array
from modifind.data.feature_matrix import FeatureTable
from modifind.data.weights import Weights
from modifind.explain.reading import GivenFeature
from modifind.explain.views import Explained, explain_column, no_curve
from modifind.statistics.wcmmd import weighted_bandwidth

SENTENCE_SHARES = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class MarginalView:
    """Importance, bandwidth, curve and densities of one feature.

    Attributes
    ----------
    curve, densities : DataFrame
        See `effect_curve` and `outcome_densities`; empty and None where there are none.
    percentiles : tuple of float
        Values of a continuous feature at the percentiles that sentences are about.
    """

    importance: float
    bandwidth: float
    curve: pd.DataFrame = field(default_factory=no_curve)
    densities: pd.DataFrame | None = None
    percentiles: tuple[float, ...] = ()


def sentence_percentiles(column: Array, weights: Weights) -> tuple[float, ...]:
    """Values of a continuous feature at its 10th, 50th and 90th percentile; none where all are missing."""
    seen = ~np.isnan(column)
    if not seen.any():
        return ()
    return tuple(float(value) for value in weights[seen].quantiles(column[seen], np.array(SENTENCE_SHARES)))


def bandwidth_of(table: FeatureTable, feature: int, weights: Weights, seed: np.random.SeedSequence) -> float:
    """Bandwidth of the kernel on a continuous feature: the median distance of rows, of which a seed draws some."""
    seen = table.observed(feature)
    if table.n_levels(feature) or not seen.any():
        return 1.0
    return weighted_bandwidth(table.values[seen, feature], weights[seen], np.random.default_rng(seed)) or 1.0


def explained_column(column: Array, labels: tuple[Any, ...] | None, *given: Any, **settings: Any) -> Explained:
    """Curve and densities by `explain_column`; where every value is missing at one point, as of a single category."""
    if labels is not None or not np.isnan(column).all():
        return explain_column(GivenFeature(column, labels), *given, **settings)
    shown = explain_column(GivenFeature(np.zeros(column.size), (np.nan,)), *given, **settings)
    return Explained(*(table.astype({"value": np.float64}) for table in (shown.curve, shown.densities)))
