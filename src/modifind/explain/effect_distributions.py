"""Bounds along one feature on the whole distribution of the effect: how many gain at most so much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from modifind._typing import Array
from modifind.data.weights import Weights
from modifind.explain.bounds import BoundDraws, feature_kernels
from modifind.explain.local_distributions import SHARES, WeightedRows
from modifind.explain.reading import GivenRows, check_draws

DEFAULT_LEVELS = np.array([0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9])


def effect_distribution_bounds(
    x: ArrayLike,
    y: ArrayLike,
    treatment: ArrayLike,
    propensity: ArrayLike,
    *,
    effects: ArrayLike | None = None,
    discrete: bool = False,
    points: ArrayLike | None = None,
    bandwidth: float | None = None,
    weights: ArrayLike | None = None,
    n_bootstrap: int = 200,
    level: float = 0.95,
    random_state: Any = None,
) -> pd.DataFrame:
    """Sharp bounds on the distribution function of the effect, P(Y1 - Y0 <= d), along the values of a feature.

    Parameters
    ----------
    x, y, treatment, propensity, discrete, points, bandwidth, weights, n_bootstrap, level, random_state
        As in `effect_bounds`.
    effects : array-like, optional
        The effects d; by default 0 and eight differences between a quantile of the treated and the opposite quantile of
        the control, all rows together.

    Returns
    -------
    DataFrame
        One row per point and effect: `value`, `effect`, the lower and upper bound `probability_low` and
        `probability_high`, each with a confidence interval (`_ci_low`, `_ci_high`), and `support_treated`,
        `support_control` and `low_support` as in `effect_bounds`. Bounds are sharp for each effect by itself.

    Examples
    --------
    >>> x, y, a = ["p", "p", "p", "p", "q", "q", "q", "q"], [-1, 1, -1, 1, 0, 2, 0, 0], [0, 0, 1, 1, 0, 0, 1, 1]
    >>> table = effect_distribution_bounds(x, y, a, 0.5, effects=[-2, 0], discrete=True, random_state=0)
    >>> table[["value", "effect", "probability_low", "probability_high"]]
      value  effect  probability_low  probability_high
    0     p    -2.0              0.0               0.5
    1     p     0.0              0.5               1.0
    2     q    -2.0              0.5               0.5
    3     q     0.0              1.0               1.0
    """
    check_draws(n_bootstrap, level)
    given = GivenRows(x, y, treatment, propensity, discrete, points, bandwidth, weights)
    rows = given.arm_rows()
    kernels, values = feature_kernels(given.feature(gaps=False), rows.weights, bandwidth)
    sorted_rows, rng = WeightedRows.of(rows), np.random.default_rng(random_state)
    shown = _default_effects(sorted_rows) if effects is None else _read_effects(effects)
    # Y1 - Y0 <= d where Y1 <= Y0 + d: who is not harmed by a treatment that should lower the outcome.
    moved = [sorted_rows.shifted(effect) for effect in shown.tolist()]
    draws = BoundDraws.near(moved, kernels, values, False, n_bootstrap, rng, rows.clusters, SHARES)
    bounds = {name.replace("no_harm", "probability"): bound for name, bound in draws.columns(level).items()}
    probabilities = {name: bound for name, bound in bounds.items() if name.startswith("probability")}
    columns: dict[str, Any] = {"value": draws.values, "effect": np.tile(shown, len(values))}
    return pd.DataFrame({**columns, **probabilities, **draws.support_columns})


def _default_effects(rows: WeightedRows) -> Array:
    """Zero, and effects that opposite ranks would give: from those who lose most to those who gain most."""
    high, low = (
        Weights.of(rows.weights[arm]).quantiles(rows.y[arm], levels)
        for arm, levels in ((rows.treated, DEFAULT_LEVELS), (~rows.treated, DEFAULT_LEVELS[::-1]))
    )
    return np.unique(np.append(high - low, 0.0))


def _read_effects(effects: ArrayLike) -> Array:
    try:
        shown = np.asarray(effects, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        raise ValueError("effects must be numbers") from None
    if shown.size == 0 or not np.all(np.isfinite(shown)):
        raise ValueError("effects must be finite numbers, at least one")
    return np.unique(shown)
