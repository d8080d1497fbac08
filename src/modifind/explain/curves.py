"""Effect of one feature on the treatment effect: distance, mean, spread, quantiles and densities of both arms.

Everything is a function of the two outcome distributions around a value of the feature, estimated by local-linear
averages of pseudo-outcomes (see `pseudo` and `local`). Bands are pointwise, from a weighted bootstrap: every row gets
an exponential random weight and averages are recomputed; models and scores are kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from modifind.explain.rows import ArmRows, GivenRows, OutcomeModel, PseudoOutcomes, check_draws
from modifind.explain.views import LEVEL, Explained, explain_column
from modifind.nuisance.outcome.contract import observed_arm
from modifind.result.presentation import N_DRAWS
from modifind.statistics.families import StudentT
from modifind.statistics.wcmmd import weighted_bandwidth


def effect_curve(
    x: ArrayLike,
    y: ArrayLike,
    treatment: ArrayLike,
    propensity: ArrayLike,
    *,
    discrete: bool = False,
    points: ArrayLike | None = None,
    bandwidth: float | None = None,
    location: ArrayLike | None = None,
    scale: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    population: str = "all",
    n_bootstrap: int = N_DRAWS,
    level: float = LEVEL,
    random_state: Any = None,
) -> pd.DataFrame:
    """Effect along the values of a feature, with pointwise confidence bands.

    Parameters
    ----------
    x : array-like of shape (n,)
        The feature; NaN where it is missing.
    y, treatment, propensity : array-like of shape (n,)
        Outcome, treatment (0 or 1) and P(treatment = 1) given all features; a single propensity for a trial.
    discrete : bool, default=False
        Whether x is a category. Otherwise rows are weighted by a Gaussian kernel around points.
    points : array-like, optional
        Where to look; by default every category, or 25 points between the 2% and 98% quantiles.
    bandwidth : float, optional
        Bandwidth h of the kernel exp(-(u - v)^2 / h^2). By default the kernel's standard deviation is that of x divided
        by the fourth root of the number of rows.
    location, scale : array-like of shape (n, 2), optional
        What a model that has not seen the row expects of it: location and scale of the outcome under control and under
        treatment. With them averages are doubly robust; without, weighted by the inverse propensity alone.
    weights : array-like of shape (n,), optional
        How much each row counts.
    clusters : array-like of shape (n,), optional
        Labels of rows that belong together; the bootstrap then reweights clusters.
    population : {"all", "overlap"}, default="all"
        Whom effects are about: all rows, or the overlap population, in which a row counts with e (1 - e) of its
        propensity e.
    n_bootstrap : int, default=200
        Draws of the weighted bootstrap that bands come from; 0 for no bands.
    level : float, default=0.95
        Level of the bands, point by point.
    random_state : int, SeedSequence or Generator, optional
        Seed.

    Returns
    -------
    DataFrame
        One row per point: `value`; `d2`, the squared distance between the arms' outcome distributions (of kernel means,
        less what chance adds); `mean_effect`, treated less control; `sd_ratio`, the ratio of standard deviations;
        effects at the 10, 25, 50, 75 and 90% quantiles (`q10_effect`, ...); for each the limits of its band (`_low`,
        `_high`); the limits between which d2 would lie at the point if it were the same at all of them (`d2_null_low`,
        `d2_null_high`); the effective number of rows of each arm around the point (`rows_treated`, `rows_control`); and
        `low_support`, true where one of them is below 20. Missing where an arm has no rows. Rows without a value of a
        continuous x come last, with a `value` of NaN.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, a = rng.normal(size=2000), np.arange(2000) % 2
    >>> y = a * x + rng.normal(size=2000)
    >>> curve = effect_curve(x, y, a, 0.5, points=[-1.0, 0.0, 1.0], random_state=0)
    >>> curve[["value", "mean_effect", "mean_effect_low", "mean_effect_high"]].round(1)
       value  mean_effect  mean_effect_low  mean_effect_high
    0   -1.0         -1.2             -1.4              -0.9
    1    0.0          0.0             -0.2               0.2
    2    1.0          1.2              1.0               1.4
    """
    rows: dict[str, Any] = {"discrete": discrete, "points": points, "bandwidth": bandwidth}
    rows |= {"weights": weights, "clusters": clusters, "population": population}
    how = (location, scale, n_bootstrap, level, random_state)
    return _explained(x, y, treatment, propensity, *how, **rows).curve


def outcome_densities(
    x: ArrayLike, y: ArrayLike, treatment: ArrayLike, propensity: ArrayLike, **settings: Any
) -> pd.DataFrame:
    """Outcome densities of both arms around values of a feature.

    Parameters
    ----------
    x, y, treatment, propensity
        As in `effect_curve`.
    **settings
        Further arguments of `effect_curve`.

    Returns
    -------
    DataFrame
        At up to five `value` of x, or the eight most frequent categories, and at each `outcome` of a grid: the
        densities `treated` and `control`; `witness`, the difference of the arms' kernel means, above zero where
        outcomes are more common under treatment; each with the limits of its band; and `low_support`. Of an outcome
        with at most 12 distinct values the densities are shares.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, a = rng.integers(0, 2, size=2000), np.arange(2000) % 2
    >>> y = (rng.random(2000) < 0.2 + 0.5 * a * x).astype(float)
    >>> outcome_densities(x, y, a, 0.5, discrete=True, random_state=0)[["value", "outcome", "treated"]].round(1)
       value  outcome  treated
    0      0      0.0      0.8
    1      0      1.0      0.2
    2      1      0.0      0.3
    3      1      1.0      0.7
    """
    return _explained(x, y, treatment, propensity, **settings).densities


def _explained(
    x: Any,
    y: Any,
    treatment: Any,
    propensity: Any,
    location: Any = None,
    scale: Any = None,
    n_bootstrap: int = N_DRAWS,
    level: float = LEVEL,
    random_state: Any = None,
    **rows: Any,
) -> Explained:
    """Curve and densities; see `effect_curve` for the arguments."""
    if n_bootstrap != 0 and n_bootstrap < 20:
        raise ValueError(f"n_bootstrap must be 0 or at least 20, not {n_bootstrap!r}")
    check_draws(level=level)
    given = GivenRows(x, y, treatment, propensity, **rows)
    feature, checked = given.feature(gaps=True), given.arm_rows()
    checked = replace(checked, weights=checked.weights.scaled)
    if (location is None) != (scale is None):
        raise ValueError("location and scale must be given together")
    models = () if location is None else (_read_model(location, scale, checked),)
    rng = np.random.default_rng(random_state)
    return explain_column(
        feature,
        PseudoOutcomes.of(checked, models, max_rows=checked.y.size),
        weighted_bandwidth(checked.y, checked.weights, rng),
        rng,
        bandwidth=given.bandwidth,
        n_draws=n_bootstrap,
        level=level,
    )


def _read_model(location: Any, scale: Any, rows: ArmRows) -> OutcomeModel:
    expected = {"location": np.asarray(location, dtype=np.float64), "scale": np.asarray(scale, dtype=np.float64)}
    for name, numbers in expected.items():
        if numbers.shape != (rows.y.size, 2) or not np.isfinite(numbers).all():
            raise ValueError(f"{name} must have one finite number per row and arm, shape ({rows.y.size}, 2)")
    if (expected["scale"] <= 0).any():
        raise ValueError("scale must be positive")
    family = StudentT()
    residual = family.residual(rows.y, *(observed_arm(numbers, rows.arms) for numbers in expected.values()))
    in_arms = (rows.arms == arm for arm in (0, 1))
    control, treated = (family.best_shape(residual[in_arm], rows.weights[in_arm]) for in_arm in in_arms)
    return OutcomeModel(**expected, shapes=(control, treated), family=family)
