r"""What a feature changes: the arms' difference in mean, their ratio of spreads, or the shape of an arm beyond both.

All three tests use the cross-fitted models and the law of the feature that the main test uses, and the same evaluation
along that law (`statistics.effect_likelihood` has the notation).

*Mean* and *spread* are the two parts of the main test: only the difference of the arms' locations follows the feature
and the ratio of their scales stays at the row's own value, or the other way round.

*Shape* is a score test on the standardised out-of-fold residuals ``u_i = (y_i - mu_i) / sigma_i``:

    S = sum_i g(u_i) (h(x_im) - E h(V_i)),    V_i drawn from the law of X_m given the rest,

for each arm, with h the first two Legendre polynomials of the feature's rank, or indicators of its levels, and g two
bounded functions, one for skewness and one for tails: ``g_k = P_k + c P_1 + d P_2`` for k = 3, 4, P_k the Legendre
polynomials of the residual's place in the arm's t distribution. In each arm c and d are such that g has no mean slope
against a shift or a stretch of u, so that errors of the models' location and scale do not enter to first order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import Legendre
from numpy.typing import NDArray
from scipy.stats import chi2
from scipy.stats import f as fisher
from scipy.stats import t as student

from modifind.feature_groups import Feature
from modifind.kernels import Array
from modifind.learners.stacking import own_arm
from modifind.rows.weights import effective_size, mean_of, some
from modifind.samplers.joint import N_SETS, JointLaw, set_variance
from modifind.statistics.effect_likelihood import MEAN, SPREAD, WHOLE, PreparedEffectLikelihood, RowGrid, RowTerms
from modifind.statistics.reuse import Reuse
from modifind.testing import AnalyticOutcome, analytic_test

NAN = float("nan")
MOST_LEVELS = 5
LEAST_LEVEL_ROWS = 20  # in either arm
LEAST_SPARE_SUMS = 5  # independent sums beyond the number of directions, for an estimated covariance
SHAPE_FUNCTIONS = (3, 4)
FLAT = 1e-9  # directions whose null variance is this much smaller than the largest are none
BLOCK_ROWS = 4096


@dataclass(frozen=True)
class Changes:
    """P-values of what one feature changes, NaN where there is nothing to test.

    Attributes
    ----------
    mean, spread, shape : float
        P-values, not adjusted for the number of features.
    """

    mean: float
    spread: float
    shape: float


def unseen_changes(prepared: PreparedEffectLikelihood) -> Changes:
    """What is known of a feature that the models do not look at: they find no change, and the shape is not tested."""
    return Changes(1.0, NAN if prepared.binary else 1.0, NAN)


@dataclass(frozen=True)
class Sweep:
    """What rows add to the statistic and to its parts, along the law of a feature.

    Attributes
    ----------
    terms : tuple of RowTerms
        When both contrasts of the arms follow the feature; then, if asked for, when only that of the locations does,
        and only that of the scales.
    weights : array of shape (n, g)
        Weights of the points.
    reuse : tuple of Reuse
        What the folds' models have in common, for each of the terms.
    """

    terms: tuple[RowTerms, ...]
    weights: Array
    reuse: tuple[Reuse, ...]

    @classmethod
    def of(cls, prepared: PreparedEffectLikelihood, feature: Feature, grid: RowGrid, *, parts: bool = True) -> Sweep:
        """Evaluate the models once. A binary outcome has no parts: only its location can follow."""
        wanted = (WHOLE, MEAN, SPREAD) if parts and not prepared.binary else (WHOLE,)
        terms, weights = prepared.terms(feature, grid, *wanted)
        return cls(terms, weights, tuple(prepared.part_reuse(feature, grid, *wanted)))

    def test(self, prepared: PreparedEffectLikelihood, grid: RowGrid, part: int, **settings: Any) -> AnalyticOutcome:
        """Compare the sum over rows of one of the terms with its null distribution; settings of `analytic_test`."""
        terms = self.terms[part]
        shared = self.reuse[part].variance(prepared.fold_variances(terms.values, self.weights))
        shared += set_variance(terms.values) if isinstance(grid, JointLaw) else 0.0
        return analytic_test(
            terms.observed,
            terms.values,
            self.weights,
            scatter=terms.scatter,
            shared_variance=shared,
            groups=prepared.groups,
            **settings,
        )


def change_tests(
    prepared: PreparedEffectLikelihood, feature: Feature, grid: RowGrid, sweep: Sweep | None = None
) -> Changes:
    """Test what a feature changes, given all other features.

    The hypotheses, each about the law of the outcome given all features and the treatment:

    mean
        the difference between the arms' locations does not depend on the feature. The scale may.
    spread
        the ratio of the arms' scales does not depend on the feature. The locations may.
    shape
        the standardised residual of either arm is independent of the feature given the others. Location and scale
        may depend on it.

    The first two are centred, as the main test is, wherever the arms do not differ or the outcome does not depend on
    the feature. Where only the other part differs, what remains are errors of the models: a location that misses a bend
    of the feature's effect in one arm looks like spread there. For the shape such errors enter by their squares.

    Parameters
    ----------
    prepared : PreparedEffectLikelihood
        Cross-fitted models of the outcome.
    feature : int or tuple of int
        Place of the feature, or of the columns of a group, which are tested as one.
    grid : RowGrid
        Its law.
    sweep : Sweep, optional
        What `Sweep.of` gives, if it is known.

    Returns
    -------
    Changes
        Of a binary outcome, which has neither spread nor shape of its own, only the mean.

    Examples
    --------
    >>> from modifind import EffectLikelihood
    >>> from modifind.datasets import make_modifiers
    >>> from modifind.features import read_features
    >>> from modifind.samplers import ConditionalGrid, GaussianSampler
    >>> data = make_modifiers("LinVar", n_samples=500, n_features=6, random_state=0)
    >>> table, folds = read_features(data.X), np.arange(500) % 5
    >>> prepared = EffectLikelihood("linear").prepare(table, data.y, data.treatment, data.propensity, [folds])
    >>> law = GaussianSampler().fit(table, data.treatment, np.random.SeedSequence(0)).law(0)
    >>> found = change_tests(prepared, 0, ConditionalGrid.of(law, 500))
    >>> found.mean > 0.05, found.spread < 0.001, found.shape > 0.05
    (True, True, True)
    """
    if not prepared.looks_at(feature):
        return unseen_changes(prepared)
    sweep = Sweep.of(prepared, feature, grid) if sweep is None else sweep
    if prepared.binary:
        return Changes(sweep.test(prepared, grid, 0).p_value, NAN, NAN)
    mean, spread = (sweep.test(prepared, grid, part).p_value for part in (1, 2))
    return Changes(mean, spread, shape_test(prepared, feature, grid))


def shape_test(prepared: PreparedEffectLikelihood, feature: Feature, grid: RowGrid) -> float:
    """P-value of whether the shape of either arm's residuals depends on a feature; see `change_tests`.

    The statistic is a quadratic form in sums over rows. Without weights and groups its covariance is that of the
    feature's law, and the p-value that of chi-square; with them it is that of the rows' or groups' own sums, and the
    p-value Hotelling's. NaN where there are too few rows at each level, or groups, or where a few of them have nearly
    all the weight: directions that these leave free would be told by rows that count for nothing.
    """
    functions = _value_functions(prepared, feature)
    if not functions:
        return NAN
    scores = shape_scores(prepared)
    n_rows, n_scores = scores.shape
    n_functions = sum(own.width for _, own in functions)
    width = n_scores * n_functions
    excess = np.empty((n_rows, n_functions))
    expected_covariance = np.zeros((n_scores, n_scores, n_functions, n_functions))
    weighted = scores if prepared.weights is None else scores * prepared.weights[:, None]
    columns = (feature,) if isinstance(feature, int | np.integer) else feature
    observed = prepared.table.values[:, list(columns)]
    for start in range(0, n_rows, BLOCK_ROWS):
        rows = np.arange(start, min(start + BLOCK_ROWS, n_rows))
        points, weights = grid.at(rows)
        if points.ndim == 2:
            points = points[..., None]
        drawn = np.concatenate([own(points[..., place]) for place, own in functions], axis=-1)
        centre = np.einsum("ij,ijh->ih", weights, drawn)
        excess[rows] = np.concatenate([own(observed[rows, place]) for place, own in functions], axis=-1) - centre
        drawn -= centre[:, None]
        covariance = (weights[..., None] * drawn).swapaxes(1, 2) @ drawn
        if isinstance(grid, JointLaw):
            halves = drawn.reshape(rows.size, N_SETS, -1, n_functions).mean(axis=2)
            apart = halves[:, 0] - halves[:, 1]
            covariance += np.einsum("ih,ik->ihk", apart, apart) / 2
        expected_covariance += np.einsum("ia,ib,ihk->abhk", weighted[rows], weighted[rows], covariance)
    terms = (weighted[:, :, None] * excess[:, None]).reshape(n_rows, width)
    total = terms.sum(axis=0)
    if prepared.weights is None and prepared.groups is None:
        covariance = expected_covariance.transpose(0, 2, 1, 3).reshape(width, width)
        statistic, freedom = _quadratic_form(total, covariance)
        return float(chi2.sf(statistic, freedom)) if freedom else NAN
    sizes = np.ones(n_rows) if prepared.weights is None else prepared.weights
    if prepared.groups is not None:
        _, groups = np.unique(prepared.groups, return_inverse=True)
        sizes = np.bincount(groups, sizes).astype(np.float64)
        terms = np.stack([np.bincount(groups, column) for column in terms.T], axis=1)
    n_sums = terms.shape[0]
    statistic, freedom = _quadratic_form(total, n_sums * np.cov(terms, rowvar=False).reshape(width, width))
    spare = n_sums - freedom
    if not freedom or min(spare, effective_size(sizes) - freedom) < LEAST_SPARE_SUMS:
        return NAN
    return float(fisher.sf(statistic * spare / (freedom * (n_sums - 1)), freedom, spare))


def _quadratic_form(total: Array, covariance: Array) -> tuple[float, int]:
    """``total' covariance^-1 total`` over the directions that vary, and their number."""
    scale = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    varies = scale > 0
    if not varies.any():
        return 0.0, 0
    scale = scale[varies]
    sizes, directions = np.linalg.eigh(covariance[np.ix_(varies, varies)] / np.outer(scale, scale))
    kept = sizes > FLAT * sizes.max()
    along = (total[varies] / scale) @ directions[:, kept]
    return float(np.sum(along**2 / sizes[kept])), int(kept.sum())


def shape_scores(prepared: PreparedEffectLikelihood) -> Array:
    """The functions g of every row's standardised residual, two for each arm and zero in the other; shape (n, 4).

    Averaged over repeats of the cross-fitting.
    """
    treatment = prepared.treatment
    scores = np.zeros((treatment.size, 2 * len(SHAPE_FUNCTIONS)))
    for fit in prepared.fits:
        location, scale = own_arm(fit.cross.location, treatment), own_arm(fit.cross.scale, treatment)
        standardised = (prepared.y - location) / scale
        for arm in (0, 1):
            rows = np.flatnonzero(treatment == arm)
            own = _orthogonal_functions(standardised[rows], fit.traits.shapes[arm], some(prepared.weights, rows))
            scores[rows, arm * len(SHAPE_FUNCTIONS) : (arm + 1) * len(SHAPE_FUNCTIONS)] += own / len(prepared.fits)
    return scores


def _orthogonal_functions(u: Array, shape: float, weights: Array | None) -> Array:
    """Functions of residuals that have mean zero and no mean slope against a shift or a stretch; shape (n, 2)."""
    place, density = 2 * student.cdf(u, shape) - 1, 2 * student.pdf(u, shape)
    orders = (1, 2, *SHAPE_FUNCTIONS)
    values = np.stack([Legendre.basis(k)(place) for k in orders], axis=1)
    slopes = np.stack([Legendre.basis(k).deriv()(place) for k in orders], axis=1) * density[:, None]
    against = np.stack((mean_of(slopes, weights), mean_of(slopes * u[:, None], weights)))
    found = values[:, 2:] - values[:, :2] @ np.linalg.lstsq(against[:, :2], against[:, 2:], rcond=None)[0]
    return found - mean_of(found, weights)


@dataclass(frozen=True)
class _RankFunctions:
    """The first two Legendre polynomials of a value's rank, on the last axis; 0 where the value is missing."""

    distinct: Array
    ranks: Array
    width = 2

    def __call__(self, values: Array) -> Array:
        rank = np.interp(values, self.distinct, self.ranks)
        found = np.stack((rank, 1.5 * rank**2 - 0.5), axis=-1)
        found[np.isnan(values)] = 0.0
        return found


@dataclass(frozen=True)
class _Level:
    """Whether a feature has a level, on a last axis of one; NaN stands for a missing value."""

    level: float
    width = 1

    def __call__(self, values: Array) -> Array:
        found = np.isnan(values) if np.isnan(self.level) else values == self.level
        return found[..., None].astype(np.float64)


def _value_functions(prepared: PreparedEffectLikelihood, feature: Feature) -> list[tuple[int, _RankFunctions | _Level]]:
    """The functions h of one feature or of the columns of a group, each with the place of its column in the group."""
    table = prepared.table
    members = (feature,) if isinstance(feature, int | np.integer) else feature
    found: list[tuple[int, _RankFunctions | _Level]] = []
    for place, member in enumerate(members):
        column = table.values[:, member]
        if table.is_constant(member):
            continue
        if table.n_levels(member):
            found += [(place, _Level(level)) for level in _told_levels(column, prepared.treatment)]
            continue
        seen = ~np.isnan(column)
        distinct, counts = np.unique(column[seen], return_counts=True)
        ranks = 2 * (np.cumsum(counts) - counts / 2) / counts.sum() - 1
        found.append((place, _RankFunctions(distinct, ranks)))
        if _is_common(~seen, prepared.treatment):
            found.append((place, _Level(NAN)))
    return found


def _told_levels(codes: Array, treatment: NDArray[np.int64]) -> list[float]:
    """The most common levels, less the one that the others are compared with."""
    levels, counts = np.unique(codes, return_counts=True)
    ordered = levels[np.argsort(-counts, kind="stable")]
    return [float(level) for level in ordered[1:] if _is_common(codes == level, treatment)][:MOST_LEVELS]


def _is_common(rows: NDArray[np.bool_], treatment: NDArray[np.int64]) -> bool:
    return bool(min(np.count_nonzero(rows & (treatment == arm)) for arm in (0, 1)) >= LEAST_LEVEL_ROWS)
