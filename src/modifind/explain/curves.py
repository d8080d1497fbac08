"""How one feature moves the effect: mean, spread and quantiles of both arms along its values."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind.kernels import Array, gaussian_gram
from modifind.rows.weights import quantiles_of

QUANTILES = (0.10, 0.25, 0.50, 0.75, 0.90)
MAX_POINTS = 25
EFFECTS = ("mean_effect", "sd_ratio", *(f"q{round(100 * q)}_effect" for q in QUANTILES))
CURVE_COLUMNS = ("value", "d2", *EFFECTS)


def curve_points(column: Array, n_levels: int, weights: Array | None = None) -> Array:
    """Where a curve is evaluated: all categories, or up to 25 quantiles of a continuous column."""
    if n_levels:
        return np.arange(n_levels, dtype=np.float64)
    return np.unique(quantiles_of(column, np.linspace(0.02, 0.98, MAX_POINTS), weights))


def effect_curve(
    column: Array,
    y: Array,
    treatment: NDArray[np.int64],
    scores: Array,
    d2: Array,
    *,
    bandwidth: float,
    n_levels: int,
    weights: Array | None = None,
) -> pd.DataFrame:
    """Weighted outcome summaries of both arms around each point of a feature.

    Parameters
    ----------
    column : array of shape (n,)
        Feature values, NaN where missing, or codes.
    y, treatment, scores : arrays of shape (n,)
        Outcome, 0/1 treatment and propensity scores.
    d2 : array of shape (n,)
        Squared weighted conditional MMD at the rows.
    bandwidth : float
        Kernel bandwidth of a continuous feature.
    n_levels : int
        Number of categories, 0 when continuous.
    weights : array of shape (n,), optional
        Weights of the rows.

    Returns
    -------
    DataFrame
        `value`, `d2`, `mean_effect` (treated minus control), `sd_ratio` (treated over control) and the effects at the
        10, 25, 50, 75 and 90% quantiles. Missing where an arm has no rows. Where values of a continuous feature are
        missing, the last row, with a `value` of NaN, is that of the rows without one.
    """
    gaps = np.isnan(column)
    if gaps.any():
        parts = []
        for rows, values, levels in ((~gaps, column[~gaps], 0), (gaps, np.zeros(gaps.sum()), 1)):
            known = (y[rows], treatment[rows], scores[rows], d2[rows])
            weighted = None if weights is None else weights[rows]
            parts.append(effect_curve(values, *known, bandwidth=bandwidth, n_levels=levels, weights=weighted))
        parts[1]["value"] = np.nan
        return pd.concat(parts, ignore_index=True)
    points = curve_points(column, n_levels, weights)
    order = np.argsort(y, kind="stable")
    column, y, treatment, scores, d2 = column[order], y[order], treatment[order], scores[order], d2[order]
    if n_levels:
        d2_at = np.full(n_levels, np.nan)
        d2_at[column.astype(np.intp)] = d2
    else:
        by_value = np.argsort(column, kind="stable")
        d2_at = np.interp(points, column[by_value], d2[by_value])
    own = 1.0 if weights is None else weights[order]
    blocks = []
    for block in np.array_split(points, -(-points.size // MAX_POINTS)):
        near = np.equal(block[:, None], column).astype(float) if n_levels else gaussian_gram(block, column, bandwidth)
        control = _arm_summary(near, y, own * (treatment == 0) / (1.0 - scores))
        treated = _arm_summary(near, y, own * (treatment == 1) / scores)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(control[:, 1] > 0, treated[:, 1] / control[:, 1], np.nan)
        difference = treated - control
        blocks.append(np.column_stack((difference[:, 0], ratio, difference[:, 2:])))
    effects = pd.DataFrame(np.concatenate(blocks), columns=list(EFFECTS))
    effects.insert(0, "d2", d2_at)
    effects.insert(0, "value", points)
    return effects


def _arm_summary(near: Array, y: Array, weights: Array) -> Array:
    """Mean, standard deviation and quantiles of sorted outcomes under local weights, per point; NaN where empty."""
    local = near * weights
    total = local.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        local /= total[:, None]
    centre = y.mean()
    first, second = local @ (y - centre), local @ (y - centre) ** 2
    cumulative = np.cumsum(local, axis=1)
    places = [np.minimum((cumulative < q).sum(axis=1), y.size - 1) for q in QUANTILES]
    spread = np.sqrt(np.maximum(second - first**2, 0.0))
    summary = np.column_stack((centre + first, spread, *(y[place] for place in places)))
    summary[total == 0] = np.nan
    return summary
