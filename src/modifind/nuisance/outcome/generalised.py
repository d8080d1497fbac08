"""Generalised additive models in two arms: binary outcomes, counts, ordered levels, and amounts with zeros."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.outcome.additive import AdditiveArms, AdditiveLearner, ArmLocations
from modifind.nuisance.outcome.contract import ScreenedLearner
from modifind.nuisance.regression.terms import AdditiveTerms


class AdditiveIndex(AdditiveArms):
    """Base class of learners with one index per arm, a sum of smooth functions of single columns.

    As in `AdditiveLearner`, there is a part common to both arms and a difference between them, every line and every
    curve has its own penalty, and products of two columns are included if residuals suggest them.

    Parameters
    ----------
    n_knots : int, default=12
        Knots of the curves of the common part; 0 leaves straight lines.
    contrast_curves : int, default=5
        Number of curves that the arms' difference may use.
    products : bool, default=True
        Whether products of two columns may enter.
    """

    rounds: ClassVar[int] = 4
    limits_: tuple[float, float] = (-8.0, 8.0)  # of the index

    def __init__(self, n_knots: int = 12, *, contrast_curves: int = 5, products: bool = True) -> None:
        self.n_knots = n_knots
        self.contrast_curves = contrast_curves
        self.products = products

    @abstractmethod
    def _constant_index(self, y: Array, counts: Weights) -> float:
        """Index of an arm whose outcome does not depend on any column."""

    @abstractmethod
    def _score_and_information(self, y: Array, index: Array) -> tuple[Array, Array]:
        """Derivative of every row's log-likelihood with respect to its index, and the Fisher information."""

    @abstractmethod
    def _location_and_scale(self, index: Array) -> tuple[Array, Array]:
        """Predictions at given values of the index."""

    def _fit_shared(self, y: Array, index: Array, counts: Weights) -> None:
        """Fit the further parameters, which both arms share."""

    def fit(self, X: Array, a: Ints, y: Array, sample_weight: Array | None = None) -> Self:
        """Iterated weighted least squares, with penalties updated by evidence on the way.

        Weights are scaled to sum to the effective sample size.
        """
        rows = [np.flatnonzero(a == arm) for arm in (0, 1)]
        arms = slice(0, rows[0].size), slice(rows[0].size, None)  # of rows in the order of their arms
        order = np.concatenate(rows)
        y, counts = y[order], Weights.of(sample_weight, y.size).effective[order]
        index = np.concatenate([np.full(y[arm].size, self._constant_index(y[arm], counts[arm])) for arm in arms])
        self.terms_ = AdditiveTerms.of(X, self.n_knots)
        terms: list[Array] = []
        locations = self._use(X, rows, terms)
        for turn in range(self.rounds):
            self._fit_shared(y, index, counts)
            score, information = self._score_and_information(y, index)
            if turn == 1 and self.products:
                weighted = counts.times(score)
                self.terms_ = self.terms_.with_products(X, [[weighted[arm] for arm in arms]], rows)
                if self.terms_.pairs:
                    locations = self._use(X, rows, terms)
            working, weight = index + score / information, counts.times(information)
            locations.fit_least_squares(
                [(terms[k], working[arm], weight[arm]) for k, arm in enumerate(arms)], n_steps=4
            )
            fitted = [design @ coefficients for design, coefficients in zip(terms, locations.coefficients, strict=True)]
            index = np.clip(np.concatenate(fitted), *self.limits_)
        self._fit_shared(y, index, counts)
        self.coefficients_ = np.stack(locations.coefficients, axis=1)
        return self

    def _use(self, X: Array, rows: list[NDArray[np.intp]], terms: list[Array]) -> ArmLocations:
        """Evaluate the terms of each arm's rows, and reset the penalties."""
        terms.clear()  # they fill most of the memory: never twice
        terms += (self.terms_(X[r]) for r in rows)
        return ArmLocations(self.terms_.groups, np.flatnonzero(self.terms_.degree <= self.contrast_curves))

    def _outputs(self, total: Array) -> tuple[Array, Array]:
        return self._location_and_scale(np.clip(total, *self.limits_))


class AdditiveClassifier(AdditiveIndex):
    """Probability of the outcome in each arm: a logistic function of a sum of smooth functions of single columns.

    `AdditiveIndex` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.nuisance.outcome import AdditiveClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, a = rng.normal(size=(400, 2)), np.arange(400) % 2
    >>> y = (rng.random(400) < np.where(a == 1, 0.5 + 0.4 * np.tanh(X[:, 0]), 0.5)).astype(float)
    >>> chance, _ = AdditiveClassifier().fit(X, a, y).predict(np.array([[-2.0, 0.0], [2.0, 0.0]]))
    >>> (chance[:, 1] > chance[:, 0]).tolist()
    [False, True]
    """

    def _constant_index(self, y: Array, counts: Weights) -> float:
        share = float(np.clip(counts.mean(y), 1e-3, 1 - 1e-3))
        return float(np.log(share / (1 - share)))

    def _score_and_information(self, y: Array, index: Array) -> tuple[Array, Array]:
        mean = expit(index)
        return y - mean, mean * (1 - mean)

    def _location_and_scale(self, index: Array) -> tuple[Array, Array]:
        """Probability, from its log-odds, and the resulting standard deviation."""
        probability = expit(index)
        return probability, np.sqrt(probability * (1 - probability))


BELOW, ABOVE = 8.0, 1.0  # how far the index may lie below the log of the mean count and above that of the largest
MIN_MEAN = 1e-3
MAX_DISPERSION = 20.0


class AdditiveCounts(AdditiveIndex):
    """Mean count in each arm: the exponential of a sum of smooth functions of single columns.

    `AdditiveIndex` has the parameters. The variance is that of a negative binomial variable, ``mean + dispersion * mean
    ** 2``, with one dispersion for both arms.

    Attributes
    ----------
    dispersion_ : float
        0 for Poisson counts.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.nuisance.outcome import AdditiveCounts
    >>> rng = np.random.default_rng(0)
    >>> X, a = rng.normal(size=(400, 2)), np.arange(400) % 2
    >>> y = rng.poisson(3 * np.exp(a * X[:, 0])).astype(float)
    >>> mean, _ = AdditiveCounts().fit(X, a, y).predict(np.array([[0.0, 0.0]]))
    >>> mean.round().tolist()  # of the control and of the treated
    [[3.0, 3.0]]
    """

    rounds = 6

    def _constant_index(self, y: Array, counts: Weights) -> float:
        return float(np.log(max(counts.mean(y), MIN_MEAN)))

    def _fit_shared(self, y: Array, index: Array, counts: Weights) -> None:
        """Dispersion by the method of moments; the mean may slightly exceed the largest count."""
        mean = np.exp(index)
        excess = counts.mean((y - mean) ** 2 - mean)
        self.dispersion_ = float(np.clip(excess / counts.mean(mean**2), 0.0, MAX_DISPERSION))
        self.limits_ = self._constant_index(y, counts) - BELOW, float(np.log(max(y.max(), 1.0))) + ABOVE

    def _score_and_information(self, y: Array, index: Array) -> tuple[Array, Array]:
        mean = np.exp(index)
        inflation = 1.0 + self.dispersion_ * mean
        return (y - mean) / inflation, mean / inflation

    def _location_and_scale(self, index: Array) -> tuple[Array, Array]:
        """Mean, from its logarithm, and the resulting standard deviation."""
        mean = np.exp(index)
        return mean, np.sqrt(mean + self.dispersion_ * mean**2)


OUTER_THRESHOLD = 60.0  # beyond any threshold
MIN_LEVEL_SHARE = 1e-6


def fit_thresholds(levels: Array, index: Array, n_levels: int, counts: Weights | None = None) -> Array:
    """Thresholds c such that the mean over rows of ``expit(c_k - index)`` is the share of levels up to k.

    Each is the maximum likelihood intercept of a logistic model with given index; they increase with the level. The
    last level has none.

    Examples
    --------
    >>> fit_thresholds(np.array([0.0, 1.0, 1.0, 2.0]), np.zeros(4), 3).round(2).tolist()
    [-1.1, 1.1]
    """
    thresholds, counts = [], Weights.of(counts, levels.size)
    for k in range(n_levels - 1):
        share = float(np.clip(counts.mean((levels <= k).astype(np.float64)), MIN_LEVEL_SHARE, 1 - MIN_LEVEL_SHARE))
        thresholds.append(
            brentq(
                lambda c, share=share: counts.mean(expit(c - index)) - share,
                -OUTER_THRESHOLD,
                OUTER_THRESHOLD,
                xtol=1e-8,
            )
        )
    return np.array(thresholds)


def cumulative_probabilities(levels: Array, index: Array, thresholds: Array) -> tuple[Array, Array]:
    """Probability of at most a row's level, and of a lower level."""
    ends = np.concatenate(([-OUTER_THRESHOLD], thresholds, [OUTER_THRESHOLD]))
    codes = levels.astype(np.intp)
    return expit(ends[codes + 1] - index), expit(ends[codes] - index)


def index_information(index: Array, thresholds: Array) -> Array:
    """Fisher information on the index."""
    total, below = np.zeros(np.shape(index)), np.zeros(np.shape(index))
    for threshold in (*thresholds, OUTER_THRESHOLD):
        above = expit(threshold - index)
        total += (above - below) * (above + below - 1.0) ** 2
        below = above
    return np.maximum(total, 1e-6)


class AdditiveOrdinal(AdditiveIndex):
    """Log-odds of higher levels in each arm: smooth functions of single columns; `AdditiveIndex` has the parameters.

    With codes 0, 1, ... of the levels, ``P(level <= k) = expit(c_k - index)``: proportional odds. The location is the
    index, whose mean over rows, weighted by the information, is about zero.

    Attributes
    ----------
    thresholds_ : array
        The thresholds c_k of both arms.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.nuisance.outcome import AdditiveOrdinal
    >>> rng = np.random.default_rng(0)
    >>> X, a = rng.normal(size=(400, 2)), np.arange(400) % 2
    >>> y = np.digitize(2 * a * X[:, 0] + rng.logistic(size=400), [-1.0, 1.0]).astype(float)
    >>> log_odds, _ = AdditiveOrdinal().fit(X, a, y).predict(np.array([[-2.0, 0.0], [2.0, 0.0]]))
    >>> (log_odds[:, 1] > log_odds[:, 0]).tolist()
    [False, True]
    """

    rounds = 6

    def _constant_index(self, y: Array, counts: Weights) -> float:
        return 0.0

    def _fit_shared(self, y: Array, index: Array, counts: Weights) -> None:
        self.thresholds_ = fit_thresholds(y, index, int(y.max()) + 1, counts)

    def _score_and_information(self, y: Array, index: Array) -> tuple[Array, Array]:
        return np.add(*cumulative_probabilities(y, index, self.thresholds_)) - 1.0, index_information(
            index, self.thresholds_
        )

    def _location_and_scale(self, index: Array) -> tuple[Array, Array]:
        return index, np.ones(index.shape)


class AdditiveAmounts(ScreenedLearner):
    """Probability of a positive amount in each arm, and the typical positive amount: two additive models.

    The location is the probability, the scale the geometric mean of positive amounts.

    Parameters
    ----------
    n_knots : int, default=12
        Knots of curves; 0 leaves straight lines.
    products : bool, default=True
        Whether products of two columns may enter.

    Examples
    --------
    >>> import numpy as np
    >>> from modifind.nuisance.outcome import AdditiveAmounts
    >>> rng = np.random.default_rng(0)
    >>> X, a = rng.normal(size=(400, 2)), np.arange(400) % 2
    >>> y = (rng.random(400) < 0.4 + 0.4 * a) * np.exp(3 + 0.1 * rng.normal(size=400))
    >>> chance, amount = AdditiveAmounts().fit(X, a, y).predict(np.array([[0.0, 0.0]]))
    >>> chance.round(1).tolist(), (amount / np.exp(3)).round().tolist()
    ([[0.4, 0.8]], [[1.0, 1.0]])
    """

    def __init__(self, n_knots: int = 12, *, products: bool = True) -> None:
        self.n_knots = n_knots
        self.products = products

    def fit(self, X: Array, a: Ints, y: Array, sample_weight: Array | None = None) -> Self:
        """Fit both models, the second to rows with a positive amount."""
        has_any, weights = y > 0, Weights.of(sample_weight, y.size)
        self.any_ = AdditiveClassifier(self.n_knots, products=self.products)
        self.any_.fit(X, a, has_any.astype(np.float64), weights.given)
        logs, amount = np.log(y[has_any]), AdditiveLearner(self.n_knots, products=self.products)
        self.amount_ = amount.fit(X[has_any], a[has_any], logs, weights[has_any].given).without_rows()
        self.limits_ = float(logs.min()), float(logs.max())
        return self

    def index(self, X: Array) -> tuple[Array, Array]:
        """Sums of terms of both models, which `along` can reuse for every feature."""
        return self.any_.index(X), self.amount_.index(X)

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Probability of a positive amount, and the typical one, shape (n, 2) each."""
        return self.any_.predict(X)[0], self._typical(self.amount_.predict(X)[0])

    def along(
        self, X: Array, columns: slice, points: Array, index: tuple[Array | None, Array | None] = (None, None)
    ) -> tuple[Array, Array]:
        """The same, shape (n, g, 2) each, when some columns take the values `points`, (n, g, width)."""
        chance, _ = self.any_.along(X, columns, points, index[0])
        logs, _ = self.amount_.along(X, columns, points, index[1])
        return chance, self._typical(logs)

    def _typical(self, logs: Array) -> Array:
        """Typical amounts, limited to the range in the training rows."""
        return np.exp(np.clip(logs, *self.limits_))
