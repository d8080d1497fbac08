"""Penalised fits in blocks of rows: ridge regression by maximum evidence, Student-t scales, mixture weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
from scipy.linalg import LinAlgError, lapack
from scipy.linalg.blas import dtrmm
from scipy.optimize import minimize
from scipy.special import expit, gammaln

from modifind._typing import Array, Ints
from modifind.data.weights import Weights

BLOCK_ROWS = 4096


def row_blocks(n_rows: int) -> Iterator[slice]:
    """Consecutive blocks of rows."""
    for start in range(0, n_rows, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, n_rows))


def scaled_gram(terms: Array, factor: Array) -> Array:
    """``scaled.T @ scaled`` for rows multiplied by `factor`: the square roots of their weights, or slopes."""
    gram = np.zeros((terms.shape[1], terms.shape[1]))
    for rows in row_blocks(terms.shape[0]):
        scaled = terms[rows] * factor[rows, None]
        gram += scaled.T @ scaled  # one matrix and its own transpose: half the work of a general product
    return gram


def quadratic_forms(terms: Array, form: Array) -> Array:
    """``t @ form @ t`` for every row t and a symmetric form."""
    # The lower triangle with its off-diagonal part doubled gives the same values for half the work.
    triangle = np.asfortranarray(np.tril(form) + np.tril(form, -1))
    values = np.empty(terms.shape[0])
    for rows in row_blocks(terms.shape[0]):
        block = terms[rows]
        values[rows] = np.einsum("ij,ij->i", dtrmm(1.0, triangle, block.T, lower=1).T, block)
    return values


def product_sums(left: Array, right: Array, residual: Array, variance: Array) -> tuple[Array, Array]:
    """Sums over rows of residuals times the product of a column of each matrix, and the variances of these sums."""
    return left.T @ (residual[:, None] * right), (left**2).T @ (variance[:, None] * right**2)


def bin_edges(column: Array, n_bins: int) -> Array:
    """Distinct quantiles between bins of about equal size; rows with the same value share a bin."""
    return np.unique(np.quantile(column, np.arange(1, n_bins) / n_bins))


def random_rows(n_rows: int, max_rows: int) -> Ints | slice:
    """All rows, or a random subset of `max_rows` in order; the same in every call."""
    if n_rows <= max_rows:
        return slice(None)
    return np.sort(np.random.default_rng(0).choice(n_rows, max_rows, replace=False))


SHAPES = (2.5, 3.0, 4.0, 6.0, 10.0, 30.0)
MAX_LEVERAGE = 0.9


def student_log_density(standardised: Array, shape: Array | float) -> Array:
    """Log-density of Student's t with `shape` degrees of freedom at residuals in units of the scale."""
    constant = gammaln((shape + 1) / 2) - gammaln(shape / 2) - 0.5 * np.log(shape * np.pi)
    return constant - (shape + 1) / 2 * np.log1p(standardised**2 / shape)


def student_weight(standardised: Array, shape: Array | float) -> Array:
    """Weight w of a row at standardised residual u: the location's score is w u, that of the log-scale w u^2 - 1."""
    return (shape + 1) / (shape + standardised**2)


def student_scores(standardised: Array, shape: Array | float) -> tuple[Array, Array]:
    """Derivatives of the log-density with respect to the location, in units of the scale, and to the log-scale."""
    weight = student_weight(standardised, shape)
    return weight * standardised, weight * standardised**2 - 1.0


def left_out(residual: Array, leverage: Array) -> Array:
    """Leave-one-out residuals from residuals and leverages."""
    return residual / (1.0 - np.clip(leverage, 0.0, MAX_LEVERAGE))


def robust_spread(values: Array) -> float:
    """Standard deviation by the quartiles, or the plain one where these coincide."""
    low, high = np.quantile(values, (0.25, 0.75))
    return float((high - low) / 1.349) or float(values.std())


def centre_and_unit(values: Array) -> tuple[float, float]:
    """Median and robust spread (1 for a constant), by which outcomes are standardised before models are fitted."""
    return float(np.median(values)), robust_spread(values) or 1.0


def best_shape(standardised: Array, weights: Weights | None = None) -> float:
    """Degrees of freedom of the best fitting t density, at most 30 so that no single row can decide."""
    counts = Weights.of(weights, standardised.size)
    fits = [counts.total(student_log_density(standardised, shape)) for shape in SHAPES]
    return SHAPES[int(np.argmax(fits))]


WEAKEST, STRONGEST = 1e-7, 1e4  # bounds of a penalty, in units of its group's information
CURVE_START = 30.0


def renumbered(groups: Ints) -> Ints:
    """The same groups, numbered consecutively from 0."""
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)


def first_penalties(groups: Ints) -> Array:
    """Starting values of penalties: none for group 0, and more for curves than for a single term."""
    penalties = np.where(np.bincount(groups) > 1, CURVE_START, 1.0)
    penalties[0] = 0.0
    return penalties


def solve_ridge(matrix: Array, side: Array, penalties: Array, groups: Ints) -> tuple[Array, Array]:
    """Solution of ``(matrix + penalties) x = side``, and the inverse's lower triangle; group 0 goes unpenalised."""
    penalised = matrix.copy(order="F")
    penalised.ravel("K")[:: groups.size + 1] += penalties[groups] + 1e-9 * np.trace(matrix) / groups.size + 1e-12
    # LAPACK itself: checks of cho_factor and cho_solve take longer than a small matrix.
    factor, failed = lapack.dpotrf(penalised, lower=1, clean=0, overwrite_a=1)
    if failed:
        raise LinAlgError("the penalised matrix is not positive definite")
    solution, _ = lapack.dpotrs(factor, side, lower=1)
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    return solution, inverse


def updated_penalties(
    solution: Array, inverse: Array, information: Array, penalties: Array, groups: Ints
) -> tuple[Array, float]:
    """One step of MacKay's fixed point for the penalties, and the effective number of parameters.

    `information` is the diagonal of the matrix without penalties. A group's penalty becomes its effective number of
    parameters over its squared norm. A group that the data do not support is shrunk towards zero without ever reaching
    it, so that its direction can still be tested.
    """
    sizes = np.bincount(groups, minlength=penalties.size)
    freedom = sizes - penalties * np.bincount(groups, np.diag(inverse), minlength=penalties.size)
    square = np.bincount(groups, solution**2, minlength=penalties.size)
    unit = np.bincount(groups, information, minlength=penalties.size) / np.maximum(sizes, 1) + 1e-300
    new = np.clip(np.maximum(freedom, 1e-8) / np.maximum(square, 1e-300), WEAKEST * unit, STRONGEST * unit)
    new[0] = 0.0
    return new, float(freedom.sum())


def ridge_by_evidence(
    matrix: Array, side: Array, penalties: Array, groups: Ints, n_steps: int
) -> tuple[Array, Array, Array, Array]:
    """Alternate between solving and updating the penalties.

    Returns the last solution with its inverse and penalties, and the penalties to continue with.
    """
    following = penalties
    for _ in range(n_steps):
        penalties = following
        solution, inverse = solve_ridge(matrix, side, penalties, groups)
        following, _ = updated_penalties(solution, inverse, np.diag(matrix), penalties, groups)
    return solution, symmetric(inverse), penalties, following


def symmetric(lower: Array) -> Array:
    """The symmetric matrix with a given lower triangle."""
    lower = np.tril(lower)
    return lower + np.tril(lower, -1).T


FTOL = 2.2204460492503131e-09  # scipy's own


def convex_weights(
    loss: Callable[[Array], float], n_parts: int, negligible: float, *, step: float = 0.0, ftol: float = FTOL
) -> Array:
    """Non-negative weights that add up to 1 and minimise a loss; negligible ones are dropped.

    Parameters
    ----------
    loss : callable
        Of the weights.
    n_parts : int
        Number of weights.
    negligible : float
        What is less becomes 0.
    step : float, default=0.0
        Weights are rounded to multiples of this, where it is not 0.
    ftol : float
        Relative change of the loss that ends the search.

    Examples
    --------
    >>> convex_weights(lambda weights: float((weights[0] - 0.3) ** 2), 2, 0.1).round(2).tolist()
    [0.3, 0.7]
    """
    # Start from the best of the candidates and the even mix; the search is over log-odds, which keeps weights convex.
    starts = [np.zeros(n_parts), *(np.where(np.arange(n_parts) == k, 3.0, 0.0) for k in range(n_parts))]
    start = min(starts, key=lambda free: loss(_softmax(free)))
    settings = {"method": "L-BFGS-B", "bounds": [(-8.0, 8.0)] * n_parts, "options": {"ftol": ftol}}
    weights = _softmax(minimize(lambda free: loss(_softmax(free)), start, **settings).x)
    weights = np.round(weights / step) * step if step else weights
    weights[weights < negligible] = 0.0
    return weights / weights.sum()


def _softmax(free: Array) -> Array:
    odds = np.exp(free - free.max())
    return odds / odds.sum()


LINKS = ("exp", "softplus")
PENALTY_START = 100.0
MAX_MOVE = 3.0
MAX_SCALE_INDEX = 7.0
MAX_HALVINGS = 6
MIN_UNIT = 1e-3  # of the outcome's spread: a fit that is exact leaves no scale
MIN_QUARTILE_SHARE = 0.1  # of the upper quartile: where residuals pile up, any smaller scale would fit better

State: TypeAlias = tuple[Array, Array, float]  # index and scale of rows, and their log-likelihood


class ScaleModel:
    """Student-t scale with ``scale = unit * exp(index)`` or ``unit * (floor + softplus(index))``.

    The first link is for spreads that multiply (a gamma model of the variance with a logarithmic link, made robust),
    the second for spreads that rise from a floor in proportion to a score. Coefficients are found by Fisher scoring,
    penalties by evidence.

    Parameters
    ----------
    link : {"exp", "softplus"}
        From index to scale.
    groups : array of int
        Penalty group of each term, 0 for those without.
    """

    def __init__(self, link: str, groups: Ints) -> None:
        self.link = link
        self.groups = groups
        self.penalties = np.where(np.arange(int(groups.max()) + 1) > 0, PENALTY_START, 0.0)
        self.coefficients: Array = np.zeros(groups.size)
        self.log_floor = float(np.log(0.5))
        if link == "softplus":  # floor and softplus share the start alike
            self.coefficients[0] = np.log(np.expm1(0.5))
        self.unit = 0.0
        self.least = 0.0
        self.criterion = np.inf

    def at_index(self, index: Array, log_floor: float | None = None) -> Array:
        """Scale at values of the index."""
        if self.link == "exp":
            return np.maximum(self.unit * np.exp(np.clip(index, -MAX_SCALE_INDEX, MAX_SCALE_INDEX)), self.least)
        # log(1 + exp(index)), in half the time of np.logaddexp
        softplus = np.log1p(np.exp(-np.abs(index))) + np.maximum(index, 0.0)
        scale = self.unit * (np.exp(self.log_floor if log_floor is None else log_floor) + softplus)
        return np.maximum(scale, self.least)

    def at(self, terms: Array) -> Array:
        """Scale of rows given their terms."""
        return self.at_index(terms @ self.coefficients)

    def fit(self, terms: Array, residual: Array, shape: float, n_steps: int, weights: Weights) -> ScaleModel:
        """Take steps of Fisher scoring from the current coefficients; `criterion` is AIC / 2, for comparing links."""
        if not self.unit:
            middle, upper, far = np.quantile(np.abs(residual), (0.5, 0.75, 0.95))
            self.unit = max(float(middle) / 0.6745, 0.05 * float(far), MIN_UNIT)
            self.least = MIN_QUARTILE_SHARE * float(upper) / 1.1503
        with_floor, size, root = self.link == "softplus", self.groups.size, weights.root
        groups = np.append(self.groups, 0) if with_floor else self.groups
        plain = None  # Gram matrix of the exponential link, the same at every step
        if not with_floor:
            plain = terms.T @ terms if weights.uniform else scaled_gram(terms, root.values)

        def at(index: Array, log_floor: float) -> tuple[Array, Array, float]:
            scale = self.at_index(index, log_floor)
            return index, scale, float(weights.total(student_log_density(residual / scale, shape) - np.log(scale)))

        state = at(terms @ self.coefficients, self.log_floor)
        for step in range(n_steps):
            index, scale, _ = state
            score = weights.times(student_scores(residual / scale, shape)[1])
            if plain is None:
                gradient, gram = self._floor_derivatives(terms, index, scale, score, root)
            else:
                gradient, gram = terms.T @ score, plain
            gradient[:size] -= self.penalties[self.groups] * self.coefficients
            fisher = 2 * shape / (shape + 3) * gram
            move, inverse = solve_ridge(fisher, gradient, self.penalties, groups)
            state = self._advance(state, move, terms @ move[:size], at)
            penalties, freedom = updated_penalties(
                self.coefficients, inverse[:size, :size], np.diag(fisher)[:size], self.penalties, self.groups
            )
            if step < n_steps - 1:
                self.penalties = penalties
        self.criterion = freedom + with_floor - state[2]
        return self

    def _floor_derivatives(
        self, terms: Array, index: Array, scale: Array, score: Array, root: Weights
    ) -> tuple[Array, Array]:
        """Gradient of the log-likelihood and Gram matrix of the log-scale's slopes, those of the floor last.

        The scores include the weights; the matrix uses their square roots.
        """
        slope = self.unit * expit(index) / scale
        floor = self.unit * np.exp(self.log_floor) / scale
        gradient = np.append(terms.T @ (slope * score), floor @ score)
        slope, floor = root.times(slope), root.times(floor)
        mixed = terms.T @ (slope * floor)
        return gradient, np.block([[scaled_gram(terms, slope), mixed[:, None]], [mixed, floor @ floor]])

    def _advance(self, start: State, move: Array, shift: Array, at: Callable[[Array, float], State]) -> State:
        """Step as far as the penalised likelihood improves; `shift` is the change of the index by the full step."""
        penalty, change = self.penalties[self.groups], move[: self.groups.size]
        length = min(1.0, MAX_MOVE / max(float(np.abs(shift).max()), 1e-12))
        before = start[2] - 0.5 * float(penalty @ self.coefficients**2)
        for _ in range(MAX_HALVINGS):
            coefficients, log_floor = self.coefficients + length * change, self.log_floor
            if self.link == "softplus":
                log_floor += float(np.clip(length * move[-1], -1.0, 1.0))
            state = at(start[0] + length * shift, log_floor)
            if state[2] - 0.5 * float(penalty @ coefficients**2) >= before:
                self.coefficients, self.log_floor = coefficients, log_floor
                return state
            length /= 2
        return start
