r"""Weighted conditional maximum mean discrepancy (WCMMD), the statistic of the UAI 2022 paper.

For feature m and value x, with inverse probability weights ``w1 = A/e`` and ``w0 = (1-A)/(1-e)``,

    D2_m(x) = || E[w1 phi(Y) | X_m = x] - E[w0 phi(Y) | X_m = x] ||^2,      I_m = Var D2_m(X_m),

``phi`` the feature map of the Gaussian kernel on outcomes. The conditional expectations are averages within a category
(discrete) or Nadaraya-Watson averages (continuous). Horvitz-Thompson weighting divides by ``sum_j K_ij`` as the paper
does; Hajek weighting divides each arm by its own ``sum_j K_ij w_j``, which removes the noise of the weights' total.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from modifind._torch import check_device, import_torch
from modifind._typing import Array, Ints
from modifind.data.survey import mean_of, representative_values, some
from modifind.statistics.contract import Column, Nuisances, Statistic
from modifind.statistics.kernels import (
    NEGLIGIBLE,
    DenseSums,
    GroupSums,
    KernelSums,
    RowSums,
    gaussian_gram,
    median_bandwidth,
    nearest_rows,
    nearest_weights,
    random_fourier_map,
    reduce_map,
    relative_exponent,
    spectral_map,
)

Scores = TypeVar("Scores", bound=Any)
ESTIMATORS = ("spectral", "rff", "exact")
WEIGHTINGS = ("hajek", "horvitz_thompson")
RESAMPLE_WEIGHTS = ("reevaluated", "fixed")
_EXACT_BLOCK = 256
BANDWIDTH_ROWS = 1000
_ROW_BLOCK = 500  # rows whose sums stay in cache


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a setting that is none of its choices."""
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
        treatment, and even then flags strong confounders too often; it is here for comparison.
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
    """

    name = "wcmmd"
    takes_weights = takes_missing = measures_importance = True

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
        """The statistic for these rows; scores are capped in its `value`."""
        prepared = self.for_rows(nuisances.outcome, nuisances.arms, nuisances.seed, nuisances.weights)
        return replace(prepared, weight_cap=self.weight_cap, arm_caps=self._arm_caps(nuisances.scores, nuisances.arms))

    def _arm_caps(self, scores: Array, arms: Ints) -> tuple[float, float] | None:
        """Largest weights of control and of treated rows, where they are quantiles."""
        if self.weight_quantile is None:
            return None
        control, treated = 1.0 / (1.0 - scores[arms == 0]), 1.0 / scores[arms == 1]
        return float(np.quantile(control, self.weight_quantile)), float(np.quantile(treated, self.weight_quantile))

    def for_rows(
        self, y: Array, treatment: Ints, seed: np.random.SeedSequence, weights: Array | None = None
    ) -> PreparedWCMMD:
        """Fix everything that does not depend on a feature: the outcome's bandwidth and feature map.

        With `weights`, one number per row of mean 1, all sums over rows are weighted.
        """
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
        rng = np.random.default_rng(seed)
        return self.with_bandwidth(weighted_bandwidth(y, weights, rng), y, treatment, rng, weights)

    def with_bandwidth(
        self, bandwidth: float, y: Array, treatment: Ints, rng: np.random.Generator, weights: Array | None = None
    ) -> PreparedWCMMD:
        """The statistic of these rows, for a given bandwidth of the outcome."""
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


def weighted_bandwidth(values: Array, weights: Array | None, rng: np.random.Generator) -> float:
    """Median distance between rows, or between the units of the population that weighted rows stand for."""
    if weights is None:
        return median_bandwidth(values, random_state=rng)
    return median_bandwidth(representative_values(values, weights, BANDWIDTH_ROWS), max_rows=BANDWIDTH_ROWS)


@dataclass(frozen=True)
class PreparedWCMMD:
    """The statistic for one outcome and treatment, to be evaluated at any column of feature values.

    `row_weights` have mean 1; None means that all rows count alike. `weight_cap` is the largest inverse probability
    weight in `value`, which is what is tested, and `arm_caps` are those of control and of treated rows; `curve` and
    `importance` have no cap.
    """

    treatment: Ints
    weighting: str
    y_bandwidth: float
    outcome_map: Array | None
    outcome_gram: Array | None
    direct: bool
    row_weights: Array | None = None
    weight_cap: float | None = None
    arm_caps: tuple[float, float] | None = None
    # Rows are handled with the control arm first, so that each arm is a slice and nothing is gathered.
    _order: NDArray[np.intp] = field(init=False, repr=False)
    _arms: tuple[tuple[slice, Array], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        order = np.argsort(self.treatment, kind="stable")
        n_control = int((self.treatment == 0).sum())
        columns = np.ones((order.size, 1))
        if self.outcome_map is not None:
            columns = np.concatenate((columns, self.outcome_map[order]), axis=1)
        arms = tuple((rows, columns[rows]) for rows in (slice(0, n_control), slice(n_control, None)))
        object.__setattr__(self, "_order", order)
        object.__setattr__(self, "_arms", arms)

    def curve(self, x: Array, scores: Array, *, bandwidth: float, n_levels: int = 0) -> Array:
        """D2 at every row.

        Parameters
        ----------
        x : array of shape (n,)
            Feature values, NaN where missing, or codes ``0..n_levels-1`` when `n_levels` is positive.
        scores : array of shape (n,)
            Propensity scores of the rows.
        bandwidth : float
            Bandwidth of the feature; not used for discrete features.
        n_levels : int, default=0
            Number of categories, 0 for a continuous feature.

        Returns
        -------
        array of shape (n,)
            NaN at rows whose category holds only one arm (Hajek weighting): there is nothing to compare.
        """
        if not n_levels and np.isnan(x).any():
            return self._curve_with_gaps(x, scores, bandwidth)
        if self.outcome_map is None:
            return self._exact_curve(x, scores, bandwidth, n_levels)
        x, scores = x[self._order], scores[self._order]
        own = np.ones(x.size) if self.row_weights is None else self.row_weights[self._order]
        chances = (1.0 - scores, scores)
        sources = [(rows, columns * (own / chances[arm])[rows, None]) for arm, (rows, columns) in enumerate(self._arms)]
        d2, smallest = self._distances(self._row_sums(x, bandwidth, n_levels), sources, own)
        far = np.flatnonzero(smallest < NEGLIGIBLE)
        if far.size and not n_levels:
            d2[far] = self._far_curve(x, far, sources, bandwidth)
        curve = np.empty(x.size)
        curve[self._order] = d2
        return curve

    def _row_sums(self, x: Array, bandwidth: float, n_levels: int) -> RowSums:
        if n_levels:
            return GroupSums(x.astype(np.intp), n_levels)
        return DenseSums(gaussian_gram(x, x, bandwidth)) if self.direct else KernelSums.of(x, bandwidth)

    def _distances(self, sums: RowSums, sources: list[tuple[slice, Array]], own: Array) -> tuple[Array, Array]:
        """D2 at every row, and the smaller of the arms' total weights around it."""
        hajek = self.weighting == "hajek"
        collected = sums.collect(sources if hajek else [*sources, (slice(None), own[:, None])])
        d2, smallest = np.empty(own.size), np.ones(own.size)
        for start in range(0, own.size, _ROW_BLOCK):
            rows = slice(start, start + _ROW_BLOCK)
            control, treated, *total = sums.at(collected, rows)
            if hajek:
                smallest[rows] = np.minimum(control[:, 0], treated[:, 0])
                with np.errstate(divide="ignore", invalid="ignore"):
                    control /= control[:, :1]
                    treated /= treated[:, :1]
                treated -= control  # column 0 becomes 1 - 1
            else:
                treated -= control
                treated /= total[0]
                treated[:, 0] = 0.0  # the difference of the weights' totals is no part of D2
            d2[rows] = np.einsum("ij,ij->i", treated, treated)
        return d2, smallest

    def _curve_with_gaps(self, x: Array, scores: Array, bandwidth: float) -> Array:
        """Rows whose value is missing are a category of their own: like each other, and unlike all others."""
        missing = np.isnan(x)
        curve = np.full(x.size, np.nan)
        for rows in (~missing, missing):
            arms = self.treatment[rows]
            if not rows.any() or (self.weighting == "hajek" and arms.min() == arms.max()):
                continue
            own = replace(
                self,
                treatment=arms,
                outcome_map=some(self.outcome_map, rows),
                outcome_gram=some(self.outcome_gram, np.ix_(rows, rows)),
                row_weights=some(self.row_weights, rows),
            )
            values, levels = (np.zeros(arms.size), 1) if missing[rows][0] else (x[rows], 0)
            curve[rows] = own.curve(values, scores[rows], bandwidth=bandwidth, n_levels=levels)
        return curve

    @staticmethod
    def _far_curve(x: Array, points: NDArray[np.intp], sources: list[tuple[slice, Array]], bandwidth: float) -> Array:
        """D2 at rows so far from an arm that its kernel sums underflow: what counts is the arm's nearest rows."""
        means = np.empty((2, points.size, sources[0][1].shape[1]))
        for arm, (rows, columns) in enumerate(sources):
            order = np.argsort(x[rows], kind="stable")
            ordered, columns = x[rows][order], columns[order]
            for k, point in enumerate(x[points]):
                window, kernel = nearest_weights(point, ordered, bandwidth)
                total = kernel @ columns[window]
                means[arm, k] = total / total[0]
        return ((means[1] - means[0]) ** 2).sum(axis=1)

    def _exact_curve(self, x: Array, scores: Array, bandwidth: float, n_levels: int) -> Array:
        """The double sum over rows, by blocks of evaluation points."""
        assert self.outcome_gram is not None
        if n_levels:
            points, place = np.unique(x, return_inverse=True)
        else:
            points, place = x, np.arange(x.size)
        own = np.ones(x.size) if self.row_weights is None else self.row_weights
        weights = np.where(self.treatment == 1, own / scores, own / (1.0 - scores))
        sign = np.where(self.treatment == 1, 1.0, -1.0)
        d2 = np.empty(points.size)
        for start in range(0, points.size, _EXACT_BLOCK):
            block = points[start : start + _EXACT_BLOCK, None]
            if self.weighting == "horvitz_thompson":
                kernel = np.equal(block, x).astype(np.float64) if n_levels else gaussian_gram(block[:, 0], x, bandwidth)
                total = kernel.sum(axis=1) if self.row_weights is None else kernel @ own
                omega = kernel * (sign * weights) / total[:, None]
            else:
                omega = np.empty((block.size, x.size))
                for arm in (0, 1):
                    rows = np.flatnonzero(self.treatment == arm)
                    if n_levels:
                        kernel = np.equal(block, x[rows]).astype(np.float64)
                    else:  # ratios of kernel values survive where the values themselves underflow
                        ordered = np.sort(x[rows])
                        nearest = ordered[nearest_rows(block[:, 0], ordered), None]
                        kernel = np.exp(relative_exponent(x[rows], nearest, block, bandwidth))
                    kernel *= weights[rows]
                    with np.errstate(invalid="ignore"):
                        omega[:, rows] = sign[rows] * kernel / kernel.sum(axis=1, keepdims=True)
            d2[start : start + _EXACT_BLOCK] = np.einsum("ij,ij->i", omega @ self.outcome_gram, omega)
        return d2[place]

    def capped(self, scores: Scores) -> Scores:
        """Scores, array or tensor, as they enter the test: moved to where no weight exceeds its cap."""
        if self.weight_cap is not None:
            scores = scores.clip(1 / self.weight_cap, 1 - 1 / self.weight_cap)
        if self.arm_caps is None:
            return scores
        control, treated = self.arm_caps
        low, high = np.where(self.treatment == 1, 1 / treated, 0.0), np.where(self.treatment == 1, 1.0, 1 - 1 / control)
        if not isinstance(scores, np.ndarray):
            low, high = scores.new_tensor(low), scores.new_tensor(high)
        return scores.clip(low, high)

    def value(self, column: Column) -> float:
        """The importance of a column, under capped weights."""
        scores = self.capped(column.scores)
        return self.importance(column.values, scores, bandwidth=column.bandwidth, n_levels=column.n_levels)

    def importance(self, x: Array, scores: Array, *, bandwidth: float, n_levels: int = 0) -> float:
        """Variance of D2 over rows."""
        return curve_variance(self.curve(x, scores, bandwidth=bandwidth, n_levels=n_levels), self.row_weights)


def curve_variance(curve: Array, weights: Array | None = None) -> float:
    """Sample variance of D2 over rows, whose weights have mean 1; rows where D2 is undefined count as average."""
    defined = ~np.isnan(curve)
    known, own = curve[defined], some(weights, defined)
    if known.size < 2:
        return 0.0
    deviation = known - mean_of(known, own)
    return float((deviation if own is None else own * deviation) @ deviation / (curve.size - 1))
