"""How one feature moves the effect: mean, spread and quantiles of both arms along its values."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind.kernels import Array, gaussian_gram

QUANTILES = (0.10, 0.25, 0.50, 0.75, 0.90)
MAX_POINTS = 25


def curve_points(column: Array, n_levels: int) -> Array:
    """Where a curve is evaluated: all categories, or up to 25 quantiles of a continuous column."""
    if n_levels:
        return np.arange(n_levels, dtype=np.float64)
    return np.unique(np.quantile(column, np.linspace(0.02, 0.98, MAX_POINTS)))


def effect_curve(
    column: Array,
    y: Array,
    treatment: NDArray[np.int64],
    scores: Array,
    d2: Array,
    *,
    bandwidth: float,
    n_levels: int,
) -> pd.DataFrame:
    """Weighted outcome summaries of both arms around each point of a feature.

    Parameters
    ----------
    column : array of shape (n,)
        Feature values or codes.
    y, treatment, scores : arrays of shape (n,)
        Outcome, 0/1 treatment and propensity scores.
    d2 : array of shape (n,)
        Squared weighted conditional MMD at the rows.
    bandwidth : float
        Kernel bandwidth of a continuous feature.
    n_levels : int
        Number of categories, 0 when continuous.

    Returns
    -------
    DataFrame
        `value`, `d2`, `mean_effect` (treated minus control), `sd_ratio` (treated over control) and the effects at the
        10, 25, 50, 75 and 90% quantiles. Missing where an arm has no rows.
    """
    points = curve_points(column, n_levels)
    order = np.argsort(y, kind="stable")
    ordered_y = y[order]
    centred = ordered_y - y.mean()
    if n_levels:
        near = (points[:, None] == column[order]).astype(np.float64)
        d2_at = np.array([d2[np.argmax(column == p)] if (column == p).any() else np.nan for p in points])
    else:
        near = gaussian_gram(points, column[order], bandwidth)
        by_value = np.argsort(column, kind="stable")
        d2_at = np.interp(points, column[by_value], d2[by_value])
    summaries = []
    for arm in (0, 1):
        weight = (1.0 / scores if arm else 1.0 / (1.0 - scores)) * (treatment == arm)
        local = near * weight[order]
        total = local.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            local = local / total
        mean = local @ ordered_y
        spread = np.sqrt(np.maximum(local @ centred**2 - (local @ centred) ** 2, 0.0))
        cumulative = np.cumsum(local, axis=1)
        at = [np.minimum((cumulative < q).sum(axis=1), y.size - 1) for q in QUANTILES]
        quantiles = np.where(np.isfinite(total), np.stack([ordered_y[k] for k in at], axis=1), np.nan)
        quantiles[total[:, 0] == 0] = np.nan
        summaries.append((mean, spread, quantiles))
    (mean0, spread0, quantiles0), (mean1, spread1, quantiles1) = summaries
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(spread0 > 0, spread1 / spread0, np.nan)
    frame = pd.DataFrame({"value": points, "d2": d2_at, "mean_effect": mean1 - mean0, "sd_ratio": ratio})
    for k, q in enumerate(QUANTILES):
        frame[f"q{round(100 * q)}_effect"] = quantiles1[:, k] - quantiles0[:, k]
    return frame
