"""The weighted conditional MMD of one feature, in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.statistics.prepared_wcmmd import curve_variance
from modifind.statistics.wcmmd import WCMMD, weighted_bandwidth


def wcmmd_importance(
    x: ArrayLike,
    y: ArrayLike,
    treatment: ArrayLike,
    propensity: ArrayLike | float,
    *,
    discrete: bool = False,
    estimator: str = "spectral",
    weighting: str = "hajek",
    x_bandwidth: float | None = None,
    y_bandwidth: float | None = None,
    n_components: int = 1000,
    random_state: Any = None,
    sample_weight: ArrayLike | None = None,
) -> tuple[float, Array]:
    """Importance of one feature: the variance over rows of the weighted conditional MMD.

    Parameters
    ----------
    x : array of shape (n,)
        Feature values; any labels that can be sorted when `discrete`.
    y : array of shape (n,)
        Outcome.
    treatment : array of shape (n,)
        0 or 1.
    propensity : float or array of shape (n,)
        P(A = 1 | all features) for each row, strictly between 0 and 1.
    discrete : bool, default=False
        Average within categories instead of smoothing.
    estimator : {"spectral", "rff", "exact"}, default="spectral"
        "exact" is the double sum of the definition (cubic in n), "rff" the paper's random Fourier features
        (quadratic), "spectral" equals "exact" to rounding at a cost linear in n.
    weighting : {"hajek", "horvitz_thompson"}, default="hajek"
        How conditional means are normalised.
    x_bandwidth, y_bandwidth : float, optional
        Kernel bandwidths h in ``exp(-(u-v)^2/h^2)``; the median heuristic when not given.
    n_components : int, default=1000
        Number of random Fourier features.
    random_state : int or Generator, optional
        Seeds the Fourier features, and the rows that the median heuristic looks at above 1000 rows.
    sample_weight : array of shape (n,), optional
        How many units of a population each row stands for, up to a common factor.

    Returns
    -------
    importance : float
        Sample variance of the curve.
    curve : array of shape (n,)
        D2 at each row.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, a = rng.normal(size=500), rng.integers(0, 2, size=500)
    >>> y = a * x + rng.normal(size=500)
    >>> importance, curve = wcmmd_importance(x, y, a, 0.5)
    >>> noise, _ = wcmmd_importance(rng.normal(size=500), y, a, 0.5)
    >>> importance > 10 * noise
    True
    """
    statistic = WCMMD(estimator, weighting, n_components=n_components, accelerate=False)
    statistic.check()
    outcome, arms, scores, weights = _rows(x, y, treatment, propensity, sample_weight)
    for name, bandwidth in (("x_bandwidth", x_bandwidth), ("y_bandwidth", y_bandwidth)):
        if bandwidth is not None and not 0 < bandwidth < np.inf:
            raise ValueError(f"{name} must be positive, not {bandwidth!r}")
    rng = np.random.default_rng(random_state)
    levels = 0
    if discrete:
        labels, codes = np.unique(np.asarray(x), return_inverse=True)
        column, levels = codes.astype(np.float64), labels.size
    else:
        column = np.asarray(x, dtype=np.float64)
        if not np.isfinite(column).all():
            raise ValueError("x must be finite")
        x_bandwidth = weighted_bandwidth(column, weights, rng) if x_bandwidth is None else x_bandwidth
        if x_bandwidth == 0.0:  # a constant column is one category
            column, levels = np.zeros(outcome.size), 1
    y_bandwidth = weighted_bandwidth(outcome, weights, rng) if y_bandwidth is None else y_bandwidth
    prepared = statistic.with_bandwidth(y_bandwidth, outcome, arms, rng, weights)
    curve = prepared.curve(column, scores, bandwidth=x_bandwidth or 1.0, n_levels=levels)
    return curve_variance(curve, weights), curve


def _rows(x: Any, y: Any, treatment: Any, propensity: Any, sample_weight: Any) -> tuple[Array, Ints, Array, Weights]:
    """Outcome, arms, scores and weights of mean 1, checked."""
    outcome = np.asarray(y, dtype=np.float64)
    n = outcome.size
    arms = np.asarray(treatment).astype(np.int64)
    scores = np.broadcast_to(np.asarray(propensity, dtype=np.float64), (n,))
    if not (np.asarray(x).shape == outcome.shape == arms.shape == (n,)):
        raise ValueError("x, y and treatment must be one-dimensional and of the same length")
    if not ((arms == 0) | (arms == 1)).all() or not (arms == np.asarray(treatment)).all():
        raise ValueError("treatment must hold 0 and 1 only")
    if arms.min() == arms.max():
        raise ValueError("treatment must hold both 0 and 1")
    if not ((scores > 0) & (scores < 1)).all():
        raise ValueError("propensity must lie strictly between 0 and 1")
    if not np.isfinite(outcome).all():
        raise ValueError("y must be finite")
    weights = Weights.of(sample_weight, n)
    if weights.values.shape != (n,) or not (np.isfinite(weights.values) & (weights.values > 0)).all():
        raise ValueError(f"sample_weight must be {n} finite numbers above 0; drop rows of weight 0")
    return outcome, arms, scores, weights.scaled
