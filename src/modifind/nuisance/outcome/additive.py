"""Location-scale models of a numeric outcome in two arms: additive models, and boosted trees on their residuals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.outcome.contract import ScreenedLearner, observed_arm
from modifind.nuisance.regression.penalised import (
    LINKS,
    MIN_UNIT,
    SHAPES,
    ScaleModel,
    best_shape,
    bin_edges,
    centre_and_unit,
    first_penalties,
    left_out,
    quadratic_forms,
    random_rows,
    renumbered,
    ridge_by_evidence,
    robust_spread,
    scaled_gram,
    student_scores,
    student_weight,
)
from modifind.nuisance.regression.terms import AdditiveTerms

N_ROUNDS = 3
MAX_CURVES_PER_ROW = 2
OUTLIER_SPREADS = 8.0  # spreads from the median, beyond which rows weigh less at the start
MIN_SPREAD_RATIO = 0.01  # of an arm to the other one, as far as the weights of rows go


class AdditiveArms(ScreenedLearner, ABC):
    """Base class of learners that predict functions of a sum of terms, `terms_` times `coefficients_`."""

    terms_: AdditiveTerms
    coefficients_: Array

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Location and scale of every row in both arms, shape (n, 2) each."""
        return self._outputs(self.index(X))

    def index(self, X: Array) -> Array:
        """Sums of terms at the observed rows, which `along` can reuse for every feature."""
        return self.terms_.combine(X, self.coefficients_)

    def along(self, X: Array, columns: slice, points: Array, index: Array | None = None) -> tuple[Array, Array]:
        """Location and scale, shape (n, g, 2) each, when some columns take the values `points`, (n, g, width)."""
        return self._outputs(self.terms_.along(X, columns, points, self.coefficients_, index))

    @abstractmethod
    def _outputs(self, total: Array) -> tuple[Array, Array]:
        """Location and scale from sums of terms, on the last axis."""


class AdditiveLearner(AdditiveArms):
    """Location and scale of each arm as sums of smooth functions of single columns and of a few products.

    The location has a part common to both arms and a difference between them, each with a line and a smooth curve per
    column and a penalty of its own for every line and every curve, chosen by evidence: what the arms share is learned
    from both, and differences are shrunk. The scale of each arm is a generalised linear model of leave-one-out
    residuals, with the link (multiplicative, or rising from a floor) chosen by AIC. Student-t tails downweight rows far
    from both. Products of two columns enter where residuals call for them.

    Parameters
    ----------
    n_knots : int, default=12
        Knots of the curves of the common part, fewer where columns are many and rows few; 0 leaves straight lines.
    contrast_curves, scale_curves : int, default=5, 4
        Number of curves, smoothest first, that the arms' difference and the scale may use.
    products : bool, default=True
        Whether products of two columns may enter.
    links : tuple of str, default=("exp", "softplus")
        Links of the scale to choose from.

    Attributes
    ----------
    terms_ : AdditiveTerms
        The terms.
    coefficients_ : array of shape (n_terms, 4)
        Of the two locations and the two indices of the scale.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.nuisance.outcome import AdditiveLearner
    >>> rng = np.random.default_rng(0)
    >>> X, a = rng.normal(size=(400, 2)), np.arange(400) % 2
    >>> y = a * X[:, 0] + np.where(a == 1, 2.0, 1.0) * rng.normal(size=400)
    >>> location, scale = AdditiveLearner().fit(X, a, y).predict(np.array([[-2.0, 0.0], [2.0, 0.0]]))
    >>> (location[:, 1] - location[:, 0]).round().tolist()  # effects where the first column is -2 and 2
    [-2.0, 2.0]
    >>> scale.round().tolist()
    [[1.0, 2.0], [1.0, 2.0]]
    """

    def __init__(
        self,
        n_knots: int = 12,
        *,
        contrast_curves: int = 5,
        scale_curves: int = 4,
        products: bool = True,
        links: tuple[str, ...] = LINKS,
    ) -> None:
        self.n_knots = n_knots
        self.contrast_curves = contrast_curves
        self.scale_curves = scale_curves
        self.products = products
        self.links = links

    def fit(self, X: Array, a: Ints, y: Array, sample_weight: Array | None = None) -> AdditiveLearner:
        """Alternate between the locations given the scales and the scales given leave-one-out residuals.

        Weights are scaled to sum to the effective sample size, so that penalties are not overconfident.
        """
        rows = [np.flatnonzero(a == arm) for arm in (0, 1)]
        counts = Weights.of(sample_weight, y.size).effective
        # Penalties and floors below are for outcomes of size 1.
        centre, unit = centre_and_unit(y)
        scaled = (y - centre) / unit
        # An arm whose outcome hardly varies must not outweigh the other one: what the arms share is fitted to both.
        least = max(MIN_SPREAD_RATIO * max(robust_spread(scaled[r]) for r in rows), MIN_UNIT)
        arms = [_Arm(r, scaled[r], counts[r], least) for r in rows]
        n_knots = min(self.n_knots, 1 + MAX_CURVES_PER_ROW * X.shape[0] // max(X.shape[1], 1))
        self._use(AdditiveTerms.of(X, n_knots), X, arms)
        self._choose_among(("exp",), arms)
        for turn in range(N_ROUNDS):
            if turn == 1:
                self._add_products(X, arms)
                self._choose_among(self.links, arms)
            self._location.fit_least_squares(
                [(arm.terms, arm.y, arm.counts.times(arm.weight)) for arm in arms], n_steps=6 if turn < 2 else 4
            )
            for k, arm in enumerate(arms):
                arm.update(self._location, k, self._scale_columns, n_steps=(4, 10, 5)[turn])
        self._keep(arms, centre, unit)
        return self

    def _keep(self, arms: list[_Arm], centre: float, unit: float) -> None:
        """Store the fit in the units of the outcome."""
        self.scales_ = [arm.models[0] for arm in arms]
        self.coefficients_ = np.zeros((self.terms_.degree.size, 4))
        self.residual_, self.weight_ = np.empty((2, sum(arm.y.size for arm in arms)))
        for k, (arm, model) in enumerate(zip(arms, self.scales_, strict=True)):
            self.coefficients_[:, k] = self._location.coefficients[k]
            self.coefficients_[self._scale_columns, 2 + k] = model.coefficients
            model.unit *= unit
            model.least *= unit
            self.residual_[arm.rows], self.weight_[arm.rows] = unit * arm.residual, arm.weight / unit**2
        self.coefficients_[:, :2] *= unit
        self.coefficients_[0, :2] += centre
        del self._location

    def without_rows(self) -> AdditiveLearner:
        """The learner without residuals and weights of its training rows."""
        model = copy(self)
        del model.residual_, model.weight_
        return model

    def _outputs(self, total: Array) -> tuple[Array, Array]:
        scale = np.stack([model.at_index(total[..., 2 + arm]) for arm, model in enumerate(self.scales_)])
        return total[..., :2], np.moveaxis(scale, 0, -1)

    def _add_products(self, X: Array, arms: list[_Arm]) -> None:
        """Add the products suggested by the residuals, if any."""
        if self.products:
            scores = [list(kind) for kind in zip(*(arm.scores for arm in arms), strict=True)]
            enlarged = self.terms_.with_products(X, scores, [arm.rows for arm in arms])
            if enlarged.pairs:
                self._use(enlarged, X, arms)

    def _choose_among(self, links: tuple[str, ...], arms: list[_Arm]) -> None:
        groups = renumbered(self.terms_.groups[self._scale_columns])
        for arm in arms:
            arm.models = [ScaleModel(link, groups) for link in links]

    def _use(self, terms: AdditiveTerms, X: Array, arms: list[_Arm]) -> None:
        self.terms_ = terms
        self._location = ArmLocations(terms.groups, np.flatnonzero(terms.degree <= self.contrast_curves))
        self._scale_columns = np.flatnonzero(terms.degree <= self.scale_curves)
        for arm in arms:
            arm.terms = np.empty((0, 0))  # terms fill most of the memory: never twice
        for arm in arms:
            arm.terms = terms(X[arm.rows])


@dataclass
class _Arm:
    """Rows of one arm with their current residuals, scale and weights."""

    rows: NDArray[np.intp]
    y: Array
    counts: Weights
    least: float
    terms: Array = field(default_factory=lambda: np.empty((0, 0)))
    models: list[ScaleModel] = field(default_factory=list)
    shape: float = SHAPES[-1]

    def __post_init__(self) -> None:
        spread = max(robust_spread(self.y), self.least)
        self.scale = np.full(self.y.size, spread)
        far = np.abs(self.y - np.median(self.y)) / (OUTLIER_SPREADS * spread)
        self.weight = np.maximum(far, 1.0) ** -2.0 / spread**2  # wild rows must not start the fit
        self.residual = self.y

    @property
    def scores(self) -> tuple[Array, Array]:
        """Scores of location and log-scale, times the weights of the rows."""
        location, log_scale = student_scores(self.residual / self.scale, self.shape)
        return self.counts.times(location), self.counts.times(log_scale)

    def update(self, location: ArmLocations, number: int, columns: Ints, n_steps: int) -> None:
        """Update leave-one-out residuals for a new location, their scale, and the resulting weights."""
        leverage = self.counts.times(self.weight) * location.leverage(self.terms, number)
        self.residual = left_out(self.y - self.terms @ location.coefficients[number], leverage)
        terms = np.take(self.terms, columns, axis=1)
        fitted = [model.fit(terms, self.residual, self.shape, n_steps, self.counts) for model in self.models]
        self.models = [min(fitted, key=lambda model: model.criterion)]
        self.scale = self.models[0].at(terms)
        standardised = self.residual / self.scale
        self.shape = best_shape(standardised, self.counts)
        self.weight = student_weight(standardised, self.shape) / np.maximum(self.scale, self.least) ** 2


class ArmLocations:
    """Weighted penalised least squares in both arms: a common part and the arms' difference, shrunk separately.

    Parameters
    ----------
    groups : array of int
        Penalty group of each term of the common part.
    contrast : array of int
        The terms that the difference may use.
    """

    def __init__(self, groups: Ints, contrast: Ints) -> None:
        self.n_terms = groups.size
        self.contrast = contrast
        second = renumbered(groups[contrast])
        self.groups = np.concatenate((groups, np.where(second > 0, second + groups.max(), 0)))
        self.penalties = first_penalties(self.groups)

    def fit_least_squares(self, arms: list[tuple[Array, Array, Array]], n_steps: int) -> None:
        """Solve and update the penalties `n_steps` times, from terms, outcomes and weights of each arm."""
        grams = [scaled_gram(terms, np.sqrt(weight)) for terms, _, weight in arms]
        sides = [terms.T @ (weight * y) for terms, y, weight in arms]
        both, apart = grams[1] + grams[0], (grams[1] - grams[0])[:, self.contrast] / 2
        gram = np.block([[both, apart], [apart.T, both[np.ix_(self.contrast, self.contrast)] / 4]])
        side = np.concatenate((sides[1] + sides[0], (sides[1] - sides[0])[self.contrast] / 2))
        solution, self.inverse, self.penalties, _ = ridge_by_evidence(gram, side, self.penalties, self.groups, n_steps)
        half = np.zeros(self.n_terms)
        half[self.contrast] = solution[self.n_terms :] / 2
        self.coefficients = [solution[: self.n_terms] - half, solution[: self.n_terms] + half]

    def leverage(self, terms: Array, arm: int) -> Array:
        """Variance of each row's fitted value when weights are inverse variances."""
        sign, n = (0.5 if arm else -0.5), self.n_terms
        form = self.inverse[:n, :n].copy()
        form[:, self.contrast] += sign * self.inverse[:n, n:]
        form[self.contrast] += sign * self.inverse[n:, :n]
        form[np.ix_(self.contrast, self.contrast)] += sign**2 * self.inverse[n:, n:]
        return quadratic_forms(terms, form)


N_TREE_FOLDS = 2
N_TREE_BINS = 64
MAX_TREE_ROWS = 100_000


class BoostingLearner(ScreenedLearner):
    """Histogram boosting of the mean and of the log-variance, starting from an additive model.

    The treatment is an input of the trees, so that they learn what the arms share from both. They model the steps and
    interactions that smooth functions of single columns cannot. The trees for the variance are fitted to held-out
    residuals. A few trees of eight leaves need no more than 100,000 rows: larger data are sampled.

    Parameters
    ----------
    base : AdditiveLearner, optional
        The model to start from.
    max_iter : int, default=20
        Boosting rounds for the mean; half as many for the variance.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.nuisance.outcome import BoostingLearner
    >>> rng = np.random.default_rng(0)
    >>> X, a = rng.normal(size=(400, 2)), np.arange(400) % 2
    >>> y = 3.0 * a * (X[:, 0] > 0) + rng.normal(size=400)
    >>> location, scale = BoostingLearner(max_iter=10).fit(X, a, y).predict(np.array([[-1.0, 0.0], [1.0, 0.0]]))
    >>> (location[:, 1] - location[:, 0] > 1.5).tolist()  # effects of 0 and 3
    [False, True]
    """

    def __init__(self, base: AdditiveLearner | None = None, *, max_iter: int = 20) -> None:
        self.base = base
        self.max_iter = max_iter

    def fit(
        self,
        X: Array,
        a: Ints,
        y: Array,
        sample_weight: Array | None = None,
        fitted_base: AdditiveLearner | None = None,
    ) -> BoostingLearner:
        """Fit the trees, and the additive model unless a fitted one is passed."""
        weights = Weights.of(sample_weight, y.size)
        base = AdditiveLearner() if self.base is None else clone(self.base)
        self.base_ = base.fit(X, a, y, **weights.argument()) if fitted_base is None else fitted_base
        rows = random_rows(y.size, MAX_TREE_ROWS)
        X, a, target, weight = X[rows], a[rows], self.base_.residual_[rows], self.base_.weight_[rows]
        self.edges_ = [bin_edges(column, N_TREE_BINS) for column in X.T]
        inputs = np.column_stack((self._bins(X), a))
        counts = weights[rows].effective
        weight = counts.times(weight)
        weight = weight / weight.mean() * counts.values.mean()  # their sum is the effective number of rows
        held_out = np.empty(a.size)
        for fold in range(N_TREE_FOLDS):
            out = np.arange(a.size) % N_TREE_FOLDS == fold  # rows come in no order that matters
            trees = _trees(self.max_iter).fit(inputs[~out], target[~out], sample_weight=weight[~out])
            held_out[out] = trees.predict(inputs[out])
        self.mean_ = _trees(self.max_iter).fit(inputs, target, sample_weight=weight)
        residual = (target - held_out) / observed_arm(self.base_.predict(X)[1], a)
        square = np.clip(residual**2, 1e-3, 25.0)  # a few wild rows must not decide the trees
        inflation = float(counts.mean(square))
        self.variance_ = _trees(max(self.max_iter // 2, 1), loss="gamma")
        self.variance_.fit(inputs, square / inflation, sample_weight=counts.given)
        self.log_inflation_ = 0.5 * float(np.log(inflation))
        return self

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Location and scale of every row in both arms, shape (n, 2) each."""
        return self._add(self._bins(X), *self.base_.predict(X))

    def index(self, X: Array) -> Array:
        """What the additive model can reuse for every feature."""
        return self.base_.index(X)

    def along(self, X: Array, columns: slice, points: Array, index: Array | None = None) -> tuple[Array, Array]:
        """Location and scale, shape (n, g, 2) each, when some columns take the values `points`, (n, g, width)."""
        rows = np.repeat(self._bins(X), points.shape[1], axis=0)
        for k, j in enumerate(range(columns.start, columns.stop)):
            rows[:, j] = np.searchsorted(self.edges_[j], points[..., k].ravel())
        return self._add(rows, *self.base_.along(X, columns, points, index))

    def without_rows(self) -> BoostingLearner:
        """The learner with a base that lacks its training rows."""
        model = copy(self)
        model.base_ = self.base_.without_rows()
        return model

    def _bins(self, X: Array) -> Array:
        """Bin numbers, which save trees the search for bins, the slowest step with weighted rows."""
        return np.column_stack([np.searchsorted(edges, X[:, j]) for j, edges in enumerate(self.edges_)]).astype(float)

    def _add(self, bins: Array, location: Array, scale: Array) -> tuple[Array, Array]:
        """Add the predictions of the trees, for binned rows, to location and scale."""
        shift, factor = np.empty((2, len(bins), 2))
        for arm in (0, 1):
            inputs = np.column_stack((bins, np.full(bins.shape[0], arm)))
            shift[:, arm] = self.mean_.predict(inputs)
            factor[:, arm] = 0.5 * np.log(self.variance_.predict(inputs)) + self.log_inflation_
        return location + shift.reshape(location.shape), scale * np.exp(factor).reshape(scale.shape)


def _trees(max_iter: int, **settings: Any) -> Any:
    return HistGradientBoostingRegressor(
        max_iter=max_iter,
        learning_rate=0.15,
        max_leaf_nodes=8,
        min_samples_leaf=20,
        l2_regularization=1.0,
        max_bins=N_TREE_BINS,
        early_stopping=False,
        random_state=0,  # no subsampling, and bins are given: nothing is random
        **settings,
    )
