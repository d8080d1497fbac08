"""Additive models of one variable without arms: location and scale, or log-odds of categories."""

from __future__ import annotations

from copy import copy, deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression

from modifind._typing import Array
from modifind.data.weights import Weights
from modifind.nuisance.regression.penalised import (
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
    row_blocks,
    scaled_gram,
    solve_ridge,
    student_scores,
    student_weight,
    symmetric,
)
from modifind.nuisance.regression.terms import AdditiveTerms, ColumnBasis

ROUNDING = 1e-6


def check_probabilities(chances: Array, caller: str) -> None:
    """Refuse values that are not probabilities; `caller` names the learner and method that returned them."""
    bad = ~((chances >= -ROUNDING) & (chances <= 1.0 + ROUNDING))
    if bad.any():
        raise ValueError(f"{caller} must give probabilities between 0 and 1; found {chances[bad][0]:g}")


def predict_probabilities(model: Any, X: Array) -> Array:
    """Validated class probabilities of rows, shape (n, classes).

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> predict_probabilities(DummyClassifier().fit([[0], [0]], [0, 1]), np.zeros((1, 1)))
    array([[0.5, 0.5]])
    """
    caller = f"{type(model).__name__}.predict_proba"
    chances = np.asarray(model.predict_proba(X), dtype=np.float64)
    if chances.ndim != 2 or len(chances) != len(X):
        raise ValueError(
            f"{caller} must return one row per row of X and one column per class; found shape {chances.shape}"
        )
    check_probabilities(chances, caller)
    return chances


MANY_KNOTS = 24
BEND_BINS = 12
BEND_LEVEL = 0.1  # p-value of a column's bins below which it gets a curve
SCALE_CURVES = 4
MAX_CLASSES = 5
N_ROUNDS = 3
MAX_SMOOTH_ROWS = 20_000  # more add nothing to penalties, products and scales


class SmoothRegression:
    """Location and scale from lines of all columns, and penalised curves and products if residuals suggest them.

    The model of `AdditiveLearner` for a variable without arms, with penalties chosen by evidence. `refit` keeps terms
    and penalties and estimates the coefficients on other rows in a fraction of the time: cross-fitted distributions
    need it for every fold.

    Attributes
    ----------
    terms : AdditiveTerms
        The terms.
    coefficients : array of shape (n_terms, 2)
        Of the location and of the index of the scale.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 3))
    >>> y = X[:, 0] * X[:, 1] + np.exp(X[:, 2] / 2) * rng.normal(size=500)
    >>> model = SmoothRegression().fit(X, y)
    >>> model.terms.pairs[0]
    (0, 1)
    >>> location, scale = model.predict(np.array([[2.0, 1.0, -1.0], [2.0, 1.0, 1.0]]))
    >>> location.round(1), scale.round(1)
    (array([2., 2.]), array([0.6, 1.6]))
    """

    terms: AdditiveTerms
    coefficients: Array
    penalties: Array
    scale: ScaleModel

    def fit(self, X: Array, y: Array, weights: Weights | None = None) -> SmoothRegression:
        """Alternate between the location given the scale and the scale given leave-one-out residuals.

        `weights` add up to the effective number of rows.
        """
        rows = random_rows(y.size, MAX_SMOOTH_ROWS)
        X, y, counts = X[rows], y[rows], Weights.of(weights, y.size)[rows]
        self.centre, self.unit = centre_and_unit(y)
        scaled = (y - self.centre) / self.unit
        self._use(AdditiveTerms.of(X, 0))
        terms = self.terms(X)
        self.shape = SHAPES[-1]
        standardised = scaled - np.median(scaled)
        precision = student_weight(standardised, self.shape)
        for turn in range(N_ROUNDS):
            if turn == 1:
                self._use(suggested_terms(X, list(student_scores(standardised, self.shape)), counts))
                terms = self.terms(X)
            weight = counts.times(precision)
            gram, side = scaled_gram(terms, np.sqrt(weight)), terms.T @ (weight * scaled)
            n_steps = 6 if turn < 2 else 4
            solution, inverse, _, self.penalties = ridge_by_evidence(
                gram, side, self.penalties, self.terms.groups, n_steps
            )
            residual = scaled - terms @ solution
            standardised, scale = self._fit_scale(terms, residual, weight, inverse, (4, 6, 4)[turn], counts)
            self.shape = best_shape(standardised, counts)
            precision = student_weight(standardised, self.shape) / scale**2
        self._set(solution)
        return self

    def refit(self, X: Array, y: Array, weights: Weights) -> SmoothRegression:
        """A model of other rows with the same terms and penalties."""
        model = copy(self)
        model.scale = deepcopy(self.scale)
        scaled = (y - self.centre) / self.unit
        gram, side = np.zeros((self.terms.degree.size,) * 2), np.zeros(self.terms.degree.size)
        for rows in row_blocks(y.size):
            location, scale = self._predict(X[rows])
            standardised = (scaled[rows] - location) / scale
            weight = weights[rows].times(student_weight(standardised, self.shape) / scale**2)
            terms = self.terms(X[rows])
            gram += scaled_gram(terms, np.sqrt(weight))
            side += terms.T @ (weight * scaled[rows])
        solution, inverse = solve_ridge(gram, side, self.penalties, self.terms.groups)
        few = random_rows(y.size, MAX_SMOOTH_ROWS)
        counts = weights[few]
        terms = self.terms(X[few])
        _, scale = self._predict(X[few])
        weight = counts.times(1.0 / scale**2)
        model._fit_scale(terms, scaled[few] - terms @ solution, weight, symmetric(inverse), 2, counts)
        model._set(solution)
        return model

    def _fit_scale(
        self, terms: Array, residual: Array, weight: Array, inverse: Array, n_steps: int, counts: Weights
    ) -> tuple[Array, Array]:
        """Fit the scale to leave-one-out residuals; returns these in units of the scale, and the scale."""
        residual = left_out(residual, weight * quadratic_forms(terms, inverse))
        terms = np.take(terms, self.scale_columns, axis=1)
        scale = np.maximum(self.scale.fit(terms, residual, self.shape, n_steps, counts).at(terms), MIN_UNIT)
        return residual / scale, scale

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Location and scale of every row."""
        location, scale = self._predict(X)
        return self.centre + self.unit * location, self.unit * scale

    def _predict(self, X: Array) -> tuple[Array, Array]:
        index = self.terms.combine(X, self.coefficients)
        return index[:, 0], np.maximum(self.scale.at_index(index[:, 1]), MIN_UNIT)

    def _use(self, terms: AdditiveTerms) -> None:
        self.terms = terms
        self.penalties = first_penalties(terms.groups)
        self.scale_columns: NDArray[np.intp] = np.flatnonzero(terms.degree <= SCALE_CURVES)
        self.scale = ScaleModel("exp", renumbered(terms.groups[self.scale_columns]))

    def _set(self, solution: Array) -> None:
        self.coefficients = np.zeros((solution.size, 2))
        self.coefficients[:, 0] = solution
        self.coefficients[self.scale_columns, 1] = self.scale.coefficients


class SmoothClassifier(ClassifierMixin, BaseEstimator):
    """Ridge-penalised logistic regression on lines, and on curves and products if its residuals suggest them.

    Rougher functions are scaled down, so that one penalty smooths curves too.

    Parameters
    ----------
    C : float, default=1.0
        Inverse of the penalty.
    """

    def __init__(self, C: float = 1.0) -> None:
        self.C = C

    def fit(self, X: Array, y: NDArray[Any], sample_weight: Array | None = None) -> SmoothClassifier:
        """Fit lines, examine the residuals, and refit."""
        weights = Weights.of(sample_weight, X.shape[0])
        plain = LogisticRegression(C=self.C, max_iter=1000).fit(X, y, weights.given)
        self.classes_ = plain.classes_
        chances = plain.predict_proba(X)
        common = np.argsort(-chances.mean(axis=0), kind="stable")[: 1 if self.classes_.size == 2 else MAX_CLASSES]
        residuals = [(y == self.classes_[k]) - chances[:, k] for k in common]
        self.terms_ = suggested_terms(X, residuals, weights)
        self.model_ = LogisticRegression(C=self.C, max_iter=1000)
        self.model_.fit(self.terms_(X)[:, 1:], y, weights.given)
        return self

    def predict_proba(self, X: Array) -> Array:
        """Probability of each class."""
        return self.model_.predict_proba(self.terms_(X)[:, 1:])

    def log_odds_along(self, X: Array, columns: slice, points: Array) -> Array:
        """Log-odds of the second of two classes, (n, g), when some columns take the values `points`, (n, g, width)."""
        coefficients = np.append(self.model_.intercept_, self.model_.coef_[0])[:, None]
        return self.terms_.along(X, columns, points, coefficients)[..., 0]


def suggested_terms(X: Array, scores: list[Array], counts: Weights, sign: float = BEND_LEVEL) -> AdditiveTerms:
    """Lines of all columns, and the curves (with p-value below `sign`) and products suggested by scores of rows."""
    lines = AdditiveTerms.of(X, 0)
    centred = [counts.times(score - counts.mean(score)) for score in scores]
    bases = tuple(
        ColumnBasis.of(column, MANY_KNOTS) if _bends(column, centred, sign) else line
        for column, line in zip(X.T, lines.bases, strict=True)
    )
    everyone = [np.arange(X.shape[0])]
    return AdditiveTerms(bases, lines.with_products(X, [[score] for score in centred], everyone).pairs)


def _bends(column: Array, scores: list[Array], sign: float) -> bool:
    """Whether sums of any of the scores over bins of a column are significantly large."""
    edges = bin_edges(column, BEND_BINS)
    bins = np.searchsorted(edges, column)
    for score in scores:
        sums, squares = (np.bincount(bins, values) for values in (score, score**2))
        statistic = (sums[squares > 0] ** 2 / squares[squares > 0]).sum()
        if chdtrc(max(edges.size, 1), statistic) < sign:
            return True
    return False
