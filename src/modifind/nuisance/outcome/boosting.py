"""Boosted trees on the residuals of an additive model."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.outcome.additive import AdditiveLearner
from modifind.nuisance.outcome.contract import ScreenedLearner, own_arm
from modifind.nuisance.regression.blocks import bin_edges, random_rows

N_TREE_FOLDS = 2
N_TREE_BINS = 64
MAX_TREE_ROWS = 100_000


class BoostingLearner(ScreenedLearner):
    """Histogram boosting of the mean and of the log-variance, starting from an additive model.

    The treatment is among the inputs of the trees, so that they learn what the arms share from both. They are left the
    steps and interactions that smooth functions of single columns cannot follow. The trees for the variance are fitted
    to held-out residuals. A few trees of eight leaves need no more than 100,000 rows: larger data are sampled.

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
        residual = (target - held_out) / own_arm(self.base_.predict(X)[1], a)
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
        """The learner on a base without its training rows."""
        model = copy(self)
        model.base_ = self.base_.without_rows()
        return model

    def _bins(self, X: Array) -> Array:
        """Bin numbers, so that trees need not search for bins, which takes longest where rows have weights."""
        return np.column_stack([np.searchsorted(edges, X[:, j]) for j, edges in enumerate(self.edges_)]).astype(float)

    def _add(self, bins: Array, location: Array, scale: Array) -> tuple[Array, Array]:
        """Add the predictions of the trees, for rows in bins, to a location and scale."""
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
