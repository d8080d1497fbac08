r"""Weighted conditional maximum mean discrepancy (WCMMD), the statistic of the UAI 2022 paper.

For feature m and value x, with inverse probability weights ``w1 = A/e`` and ``w0 = (1-A)/(1-e)``,

    D2_m(x) = || E[w1 phi(Y) | X_m = x] - E[w0 phi(Y) | X_m = x] ||^2,      I_m = Var D2_m(X_m),

``phi`` the feature map of the Gaussian kernel on outcomes. The conditional expectations are averages within a category
(discrete) or Nadaraya-Watson averages (continuous). Horvitz-Thompson weighting divides by ``sum_j K_ij`` as the paper
does; Hajek weighting divides each arm by its own ``sum_j K_ij w_j``, which removes the noise of the weights' total.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from modifind._torch import check_device, import_torch
from modifind._typing import Array, Ints
from modifind.data.weights import GivenWeights, Weights
from modifind.statistics.contract import Nuisances, Statistic
from modifind.statistics.kernels import SpectralMap, gaussian_gram, random_fourier_map, reduce_map, spectral_map
from modifind.statistics.prepared_wcmmd import PreparedWCMMD, curve_variance

ESTIMATORS = ("spectral", "rff", "exact")
WEIGHTINGS = ("hajek", "horvitz_thompson")
RESAMPLE_WEIGHTS = ("reevaluated", "fixed")
BANDWIDTH_ROWS = 1000


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a setting that is not among its choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")


class WCMMD(Statistic):
    """Weighted conditional MMD as the test statistic of a `ModifierSelector`.

    Parameters
    ----------
    estimator : {"spectral", "rff", "exact"}, default="spectral"
        How the kernel on outcomes enters. All three estimate the same number; "spectral" equals "exact" to rounding,
        "rff" carries the random error of `n_components` random Fourier features.
    weighting : {"hajek", "horvitz_thompson"}, default="hajek"
        Whether each arm is divided by the sum of its own weights, or by the number of rows as in the paper.
    resample_weights : {"reevaluated", "fixed"}, default="reevaluated"
        Whether inverse probability weights follow the resampled feature. "fixed" needs a sampler that ignores the
        treatment, and even then flags strong confounders too often; it is provided for comparison.
    weight_cap : float or None, default=10
        Largest inverse probability weight in the *test* statistic. With re-evaluated weights and a sampler that
        conditions on the treatment, the test is valid for any fixed function of the features as a score, and a few huge
        weights drown the signal of all other rows. The reported importance and curves are not capped. None leaves the
        test uncapped too, as in the paper.
    weight_quantile : float, optional
        Largest inverse probability weight in the test as a quantile of the weights of the observed rows of the same
        arm, between 0 and 1. Larger ones are moved to it. By default no weight is moved on account of its rank.
    n_components : int, default=1000
        Number of random Fourier features; used by "rff" only.
    accelerate : bool, default=True
        Evaluate "rff" and "exact" through their numerical rank: the same number, much sooner. False keeps the published
        quadratic and cubic sums in every resample.
    device : {"cpu", "cuda", "cuda:0", ...}, default="cpu"
        Where resampled columns are evaluated: "cpu" is numpy, one column at a time; anything else is torch, a block of
        columns at a time, in double precision and to the same numbers within 1e-8. Columns with heavy tails stay with
        numpy. The draws do not depend on it. Needs ``accelerate=True``. "torch:cpu" goes through torch without a GPU.

    See Also
    --------
    modifind.statistics.wcmmd_importance : one feature, one call.

    References
    ----------
    Chikahara, Yamada, Kashima. Feature selection for discovering distributional treatment effect modifiers. UAI 2022.

    Examples
    --------
    >>> from modifind import WCMMD, ModifierSelector
    >>> from modifind.datasets import make_modifiers
    >>> data = make_modifiers("LinMean", n_samples=300, n_features=6, random_state=0)
    >>> statistic = WCMMD(weight_cap=None)
    >>> selector = ModifierSelector(statistic, sampler="gaussian", n_resamples=99, explain=False, random_state=0)
    >>> selector.fit(data.X, data.y, treatment=data.treatment).result_.table["importance"].idxmax()
    'X1'
    """

    name = "wcmmd"
    in_pieces = takes_weights = takes_missing = measures_importance = True

    def __init__(
        self,
        estimator: str = "spectral",
        weighting: str = "hajek",
        *,
        resample_weights: str = "reevaluated",
        weight_cap: float | None = 10.0,
        weight_quantile: float | None = None,
        n_components: int = 1000,
        accelerate: bool = True,
        device: str = "cpu",
    ) -> None:
        self.estimator = estimator
        self.weighting = weighting
        self.resample_weights = resample_weights
        self.weight_cap = weight_cap
        self.weight_quantile = weight_quantile
        self.n_components = n_components
        self.accelerate = accelerate
        self.device = device

    @property
    def follows_scores(self) -> bool:
        """Whether inverse probability weights follow the resampled feature."""
        return self.resample_weights != "fixed"

    def prepare(self, nuisances: Nuisances) -> PreparedWCMMD:
        """Prepare the statistic for these rows; scores are capped in its `value`."""
        prepared = self.for_rows(nuisances.outcome, nuisances.arms, nuisances.seed, nuisances.weights)
        spectral = None
        if nuisances.in_pieces:
            spectral = SpectralMap.of(nuisances.outcome, prepared.y_bandwidth, nuisances.outcome_limits)
        caps = self._arm_caps(nuisances.scores, nuisances.arms)
        return replace(prepared, weight_cap=self.weight_cap, arm_caps=caps, spectral=spectral)

    def check_in_pieces(self) -> None:
        """Refuse estimators that need all rows at once."""
        if self.estimator != "spectral":
            raise ValueError(
                f"WCMMD(estimator={self.estimator!r}) needs the table in memory, and this one is processed in pieces; "
                "use estimator='spectral', or raise max_train_rows"
            )
        if self.device != "cpu":
            raise ValueError(
                f"device={self.device!r} evaluates 'wcmmd' of tables in memory, and this one is processed in pieces; "
                "leave it out, or raise max_train_rows"
            )

    def _arm_caps(self, scores: Array, arms: Ints) -> tuple[float, float] | None:
        """Largest weights of control and treated rows, if caps are quantiles."""
        if self.weight_quantile is None:
            return None
        control, treated = 1.0 / (1.0 - scores[arms == 0]), 1.0 / scores[arms == 1]
        return float(np.quantile(control, self.weight_quantile)), float(np.quantile(treated, self.weight_quantile))

    def for_rows(
        self, y: Array, treatment: Ints, seed: np.random.SeedSequence, weights: GivenWeights = None
    ) -> PreparedWCMMD:
        """Prepare everything that does not depend on a feature: the outcome's bandwidth and feature map.

        With `weights`, one number per row of mean 1, all sums over rows are weighted.
        """
        self.check()
        rng, row_weights = np.random.default_rng(seed), Weights.of(weights, y.size)
        return self.with_bandwidth(weighted_bandwidth(y, row_weights, rng), y, treatment, rng, row_weights)

    def check(self) -> None:
        """Refuse settings that are invalid for any table."""
        check_choice("estimator", self.estimator, ESTIMATORS)
        check_choice("weighting", self.weighting, WEIGHTINGS)
        check_choice("resample_weights", self.resample_weights, RESAMPLE_WEIGHTS)
        if self.weight_cap is not None and not self.weight_cap > 2:
            raise ValueError(f"weight_cap must be above 2 or None, not {self.weight_cap!r}")
        if self.weight_quantile is not None and not 0 < self.weight_quantile < 1:
            raise ValueError(f"weight_quantile must lie between 0 and 1 or be None, not {self.weight_quantile!r}")
        check_device(self.device)
        if self.device != "cpu":
            if not self.accelerate:
                raise ValueError(
                    "accelerate=False keeps the published sums, which are evaluated with device='cpu' only"
                )
            import_torch(self.device, "WCMMD(device=...)")

    def with_bandwidth(
        self, bandwidth: float, y: Array, treatment: Ints, rng: np.random.Generator, weights: Weights
    ) -> PreparedWCMMD:
        """Prepare the statistic for these rows and a given bandwidth of the outcome."""
        outcome_map: Array | None = None
        if bandwidth == 0.0:  # a constant outcome differs from nothing
            outcome_map = np.ones((y.size, 1))
        elif self.estimator == "rff":
            outcome_map = random_fourier_map(y, bandwidth, self.n_components, rng)
            if self.accelerate:
                outcome_map = reduce_map(outcome_map)
        elif self.estimator == "spectral" or self.accelerate:
            outcome_map = spectral_map(y, bandwidth, reduce=self.accelerate)
        gram = None if outcome_map is not None else gaussian_gram(y, y, bandwidth)
        direct = self.estimator != "spectral" and not self.accelerate
        return PreparedWCMMD(treatment, self.weighting, bandwidth, outcome_map, gram, direct, weights)


def weighted_bandwidth(values: Array, weights: Weights, rng: np.random.Generator) -> float:
    """Median distance between rows, or between units of the population that weighted rows represent."""
    if weights.uniform:
        return median_bandwidth(values, random_state=rng)
    return median_bandwidth(weights.representative(values, BANDWIDTH_ROWS), max_rows=BANDWIDTH_ROWS)


def median_bandwidth(
    values: Array, *, random_state: int | np.random.Generator | None = 0, max_rows: int = 1000
) -> float:
    """Median distance between distinct rows, or 0.0 for a constant column.

    Parameters
    ----------
    values : array of shape (n,)
        One column.
    random_state : int or Generator, default=0
        Seeds the subsample that is used above `max_rows` rows.
    max_rows : int, default=1000
        Largest number of rows whose pairs are all looked at.

    Returns
    -------
    float
        The median of ``|u_i - u_j|`` over pairs ``i < j``. When more than half of the pairs are ties
        (zero-inflated columns) the median of the non-zero distances is taken instead.

    Examples
    --------
    >>> import numpy as np
    >>> median_bandwidth(np.array([0.0, 1.0, 3.0]))
    2.0
    >>> median_bandwidth(np.array([0.0, 0.0, 0.0, 0.0, 5.0]))
    5.0
    >>> median_bandwidth(np.ones(4))
    0.0
    """
    values = np.asarray(values, dtype=np.float64)
    if values.size > max_rows:
        rng = np.random.default_rng(random_state)
        sample = np.sort(values[rng.choice(values.size, max_rows, replace=False)])
        if sample[0] == sample[-1]:  # nearly all rows tie: look at the distinct values instead
            sample = np.unique(values)
            if sample.size > max_rows:
                sample = np.sort(rng.choice(sample, max_rows, replace=False))
    else:
        sample = np.sort(values)
    n_pairs = sample.size * (sample.size - 1) // 2
    if n_pairs == 0 or sample[0] == sample[-1]:
        return 0.0
    median = _median_distance(sample, 0)
    return median if median > 0 else _median_distance(sample, _pairs_within(sample, 0.0))


def _median_distance(ordered: Array, n_skipped: int) -> float:
    """Median pairwise distance of a sorted column, ignoring the `n_skipped` smallest."""
    n_left = ordered.size * (ordered.size - 1) // 2 - n_skipped
    low = _ranked_distance(ordered, n_skipped + (n_left + 1) // 2)
    high = low if n_left % 2 else _ranked_distance(ordered, n_skipped + n_left // 2 + 1)
    return (low + high) / 2


def _pairs_within(ordered: Array, distance: float) -> int:
    ends = np.searchsorted(ordered, ordered + distance, side="right")
    return int(ends.sum()) - ordered.size * (ordered.size + 1) // 2


def _ranked_distance(ordered: Array, rank: int) -> float:
    """The `rank`-th smallest pairwise distance of a sorted column, by bisection and a search of the remaining pairs."""
    if rank <= _pairs_within(ordered, 0.0):
        return 0.0
    rows = np.arange(ordered.size)
    high = float(ordered[-1] - ordered[0])
    low, first, last = 0.0, rows + 1, np.full(ordered.size, ordered.size)
    # Pair (i, j) is left when first[i] <= j < last[i]. Counting and listing by the same two arrays keeps ties together
    # even where ordered + distance rounds.
    while (last - first).sum() > 4 * ordered.size:
        middle = (low + high) / 2
        if middle in (low, high):
            return high
        ends = np.maximum(np.searchsorted(ordered, ordered + middle, side="right"), rows + 1)
        if (ends - rows - 1).sum() >= rank:
            high, last = middle, ends
        else:
            low, first = middle, ends
    counts = np.maximum(last - first, 0)
    left = np.repeat(rows, counts)
    right = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + first[left]
    below = int((first - rows - 1).sum())
    return float(np.sort(ordered[right] - ordered[left])[rank - below - 1])


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
