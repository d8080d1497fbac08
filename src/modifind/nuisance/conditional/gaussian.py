"""Linear-Gaussian sampler: ridge mean with normal residuals; multinomial logistic for discrete features.

With many columns and few rows a regression overfits. Residuals are then too small, increasingly so as the number of
columns approaches that of the rows, and degrees of freedom no longer correct for it once columns are selected. In that
case the mean of every row comes from a regression that has not seen it, and the spread is that of the resulting errors:
the observed value then deviates from its mean as a draw does, whatever the regression missed.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from modifind._system import one_thread
from modifind._typing import Array, Ints
from modifind.data.weights import Weights
from modifind.nuisance.conditional.categories import Classified, ScoredSampler, fit_classifier
from modifind.nuisance.conditional.contract import category_score, continuous_calibration, normal_scores, value_bins
from modifind.nuisance.conditional.distributions import NormalConditional
from modifind.nuisance.conditional.sampler import ColumnModel, Conditioning, NormalRule
from modifind.nuisance.regression.screening import Association, has_many_columns

RIDGE_PENALTIES: Array = np.logspace(-2, 4, 7)
N_FOLDS = 5
SHARES = (0.5, 0.25, 0.0)  # of a classifier's log-odds beyond those of the frequencies
RULE_NEIGHBOURS = 20  # columns of a category's rule where columns are many
CATEGORY_NEIGHBOURS = (0, 5, RULE_NEIGHBOURS, 60)


class GaussianSampler(ScoredSampler):
    """X_m given the rest as a ridge regression with homoscedastic normal residuals.

    The penalty is chosen by leave-one-out error and the residual variance is divided by the residual degrees of
    freedom. Discrete features use a multinomial logistic regression.

    Where columns are many (above 60 and above an eighth of the rows), means and probabilities are out of fold. Means
    come from a ridge regression on all columns or on the few most correlated ones, whichever predicts better, and
    probabilities from the columns most associated with the feature in the training rows. The treatment is then not
    penalised in the former, and always among the columns in the latter.

    Parameters
    ----------
    condition_on_treatment : bool, default=True
        Whether the treatment is among the conditioning variables.

    Examples
    --------
    >>> from modifind.data.schema import read_features
    >>> x = np.random.default_rng(0).normal(size=(200, 2)) @ np.array([[1.0, 1.0], [0.0, 1.0]])
    >>> sampler = GaussianSampler().fit(read_features(x), np.arange(200) % 2, np.random.SeedSequence(0))
    >>> conditional = sampler.conditional(1)  # the second column given the first
    >>> round(float(np.corrcoef(conditional.mean, x[:, 0])[0, 1]), 2), round(conditional.scale, 1)
    (1.0, 1.0)
    """

    name = "gaussian"

    def _prepare(self, seed: np.random.SeedSequence) -> None:
        """Compute the part of the ridge regressions shared by all features."""
        table, treatment, weights = self.table_, self.treatment_, self.weights_
        columns = self.level_shares_(table.design)
        if self.condition_on_treatment:
            columns = np.column_stack((columns, treatment - treatment.mean()))
        self.folds_ = self._folds(N_FOLDS, np.random.default_rng(seed.spawn(1)[0]))
        self.scaled_weights_ = weights.effective
        with one_thread():  # the sums must not depend on the number of threads
            if has_many_columns(int(weights.effective_size), table.design.shape[1]):
                arms = treatment if self.condition_on_treatment else np.zeros_like(treatment)
                last = columns.shape[1] - 1 if self.condition_on_treatment else None
                self.ridge_: _SharedRidge | CrossFittedRidge = CrossFittedRidge.of(
                    columns, arms, self.folds_, self.scaled_weights_, last
                )
            else:
                self.ridge_ = _SharedRidge.of(columns, self.folds_, self.scaled_weights_)

    def _folds_of(self, feature: int) -> Ints:
        return self.folds_

    def _number_rule(self, feature: int, conditioning: Conditioning) -> tuple[NormalRule, Array]:
        column, target = self.table_.values[:, feature], self.table_.encoding[feature].start
        centre, unit = (moments[feature] for moments in self.table_.scaling)
        line = self.ridge_.regress(target)
        tiny = np.finfo(float).tiny
        edges = value_bins(column)
        held_scale = np.maximum(unit * line.held_scale, tiny)
        pit, score = normal_scores(column, centre + unit * line.held_mean, held_scale, edges)
        calibration = continuous_calibration(self.name, pit, score, column, edges, self.weights_)
        slopes = np.delete(line.slopes, target, axis=1) * unit
        slopes = slopes if slopes.size else np.zeros((1, 1))
        fitted = NormalConditional(centre + unit * line.mean, max(float(unit * line.scale), tiny), calibration)
        shifts = centre + unit * line.shifts
        rule = NormalRule(conditioning, slopes, shifts, fitted.scale, calibration=calibration, fitted=fitted)
        return rule, score

    def _classify(self, inputs: Array, codes: Array, levels: int, folds: Ints) -> Classified:
        """A classifier fitted to all rows, and out-of-fold probabilities for its calibration."""
        if isinstance(self.ridge_, CrossFittedRidge):
            return self._classify_screened(inputs, codes, levels)
        weights = self.scaled_weights_
        probabilities, model = fit_classifier(_logistic, inputs, codes, inputs, levels, weights)
        again = partial(_logistic, start=model)
        held = np.empty((codes.size, levels))
        for fold in range(N_FOLDS):
            out = folds == fold
            held[out], _ = fit_classifier(again, inputs[~out], codes[~out], inputs[out], levels, weights[~out])
        share = self._share(codes, held)
        if share < 1 and model is not None:
            frequencies = self.weights_.shares(codes, levels)
            model = _towards(model, frequencies[model.classes_.astype(np.intp)], share)
            probabilities, held = (_mixed(each, frequencies, share) for each in (probabilities, held))
        return (model,), probabilities, held

    def _share(self, codes: Array, held: Array) -> float:
        """Share of a classifier's log-odds to keep, 1 unless less predicts held-out rows clearly better.

        A category with many levels has more coefficients than the rows can identify, so that frequencies may predict
        better.
        """
        frequencies, best = self.weights_.shares(codes, held.shape[1]), 1.0
        score = category_score(codes, held)
        for share in SHARES:
            other = category_score(codes, _mixed(held, frequencies, share))
            gain, error = self.weights_.mean_and_error(other - score)
            if gain > error:
                score, best = other, share
        return best

    def _classify_screened(self, inputs: Array, codes: Array, levels: int) -> Classified:
        """Out-of-fold probabilities from the best predicting number of columns, and from the treatment.

        Other rows get those of classifiers on the same number of columns in all folds.
        """
        held = np.empty((len(CATEGORY_NEIGHBOURS), codes.size, levels))
        models: list[Any] = []
        for fold in range(N_FOLDS):
            out = self.folds_ == fold
            train, test, known, weights = inputs[~out], inputs[out], codes[~out], self.scaled_weights_[~out]
            order = Association(train, weights).order((known[:, None] == np.arange(levels)).astype(np.float64))
            for k, count in enumerate(CATEGORY_NEIGHBOURS):
                chosen = self._with_treatment(order[:count], inputs)
                near = train[:, chosen], known, test[:, chosen]
                held[k, out], model = fit_classifier(_logistic, *near, levels, weights)
                if count == RULE_NEIGHBOURS:
                    models.append(None if model is None else ColumnModel(model, chosen))
        scores = np.stack([category_score(codes, probabilities) for probabilities in held])
        best = int(np.argmax(self.weights_.mean(scores.T)))
        return tuple(models), held[best], held[best]


@dataclass(frozen=True)
class _Spectrum:
    """Eigenvalues and eigenvectors of the scatter matrix of some rows, with their number and mean."""

    n_rows: float
    centre: Array
    values: Array
    vectors: Array

    @classmethod
    def of(cls, n_rows: float, total: Array, moments: Array) -> _Spectrum:
        """Compute from the number or total weight, the sums and the raw second moments of the rows."""
        n_rows = max(n_rows, 1)
        centre = total / n_rows
        values, vectors = np.linalg.eigh(moments - n_rows * np.outer(centre, centre))
        return cls(n_rows, centre, np.maximum(values, 0.0), vectors)

    def slopes(self, target: int, penalties: Array) -> tuple[Array, Array, Array]:
        """Ridge slopes of one column on the others, one column per penalty (0 for the target itself).

        With P the inverse of the penalised scatter matrix of *all* columns, the slopes are -P[rest, target] / P[target,
        target], so that no matrix without the target need be factored. Also returned are P[target, target] and the
        residual degrees of freedom.
        """
        shrunk = 1.0 / (self.values[:, None] + penalties)
        inverse = self.vectors @ (self.vectors[target][:, None] * shrunk)
        diagonal = inverse[target].copy()
        slopes = -inverse / diagonal
        slopes[target] = 0.0
        trace = shrunk.sum(axis=0) - (inverse**2).sum(axis=0) / diagonal
        used = self.values.size - 1 - penalties * trace
        return slopes, diagonal, np.maximum(self.n_rows - 1 - used, 1.0)


@dataclass(frozen=True)
class _SharedRidge:
    """Ridge regressions of each column on all others, from one factorisation per set of training rows.

    Attributes
    ----------
    columns : array of shape (n, p)
        The columns.
    folds : array of shape (n,)
        Fold of each row.
    spectrum : _Spectrum
        Of all rows.
    training : tuple of _Spectrum
        Of the rows outside each fold.
    leverage : array of shape (n, penalties)
        Leverage of each row in a regression on all p columns, without the intercept and before its weight.
    weights : Weights
        Of the rows, adding up to the effective number of rows.
    """

    columns: Array
    folds: Ints
    spectrum: _Spectrum
    training: tuple[_Spectrum, ...]
    leverage: Array
    weights: Weights

    @classmethod
    def of(cls, columns: Array, folds: Ints, weights: Weights) -> _SharedRidge:
        """Factor the scatter matrices."""
        size, total, moment = _sums(columns, weights)  # not the folds' sums: the distribution is the same for any folds
        spectrum = _Spectrum.of(size, total, moment)
        inside = [_sums(columns[folds == fold], weights[folds == fold]) for fold in range(N_FOLDS)]
        training = tuple(_Spectrum.of(size - n, total - added, moment - square) for n, added, square in inside)
        turned = (columns - spectrum.centre) @ spectrum.vectors
        leverage = turned**2 @ (1.0 / (spectrum.values[:, None] + RIDGE_PENALTIES))
        return cls(columns, folds, spectrum, training, leverage, weights)

    def regress(self, target: int) -> Regression:
        """One linear predictor for all rows, and for each row one fitted to the other folds."""
        folds, (best, mean, scale) = self.folds, self._best(target)
        slopes, shifts, freedoms = [], [], []
        for outside in self.training:
            slope, _, freedom = outside.slopes(target, RIDGE_PENALTIES[best : best + 1])
            slopes.append(slope[:, 0])
            shifts.append(outside.centre[target] - outside.centre @ slope[:, 0])
            freedoms.append(freedom[0])
        fitted = self.columns @ np.column_stack(slopes) + np.array(shifts)
        training = folds[:, None] != np.arange(N_FOLDS)
        squares = (self.weights.times(training) * (self.columns[:, target, None] - fitted) ** 2).sum(axis=0)
        held_scale = np.sqrt(squares / np.array(freedoms))
        held = fitted[np.arange(folds.size), folds], held_scale[folds]
        line = self.spectrum.slopes(target, RIDGE_PENALTIES[best : best + 1])[0].T
        return Regression(mean, scale, *held, line, self.spectrum.centre[target] - line @ self.spectrum.centre)

    def _best(self, target: int) -> tuple[int, Array, float]:
        """Penalty with the least leave-one-out error, the fitted mean and the residual standard deviation."""
        slopes, diagonal, freedom = self.spectrum.slopes(target, RIDGE_PENALTIES)
        fitted = self.columns @ slopes + (self.spectrum.centre[target] - self.spectrum.centre @ slopes)
        residual = self.columns[:, target, None] - fitted
        # Leverage on the others alone: what the target adds to the leverage on all columns is known in closed form.
        leverage = self.weights.times(self.leverage - residual**2 * diagonal + 1.0 / self.spectrum.n_rows)
        left_out = residual / np.maximum(1.0 - leverage, np.finfo(float).eps)
        best = int(np.argmin(self.weights.mean(left_out**2)))
        rest = residual[:, best]
        return best, fitted[:, best], float(np.sqrt(self.weights.times(rest) @ rest / freedom[best]))


def _sums(columns: Array, weights: Weights) -> tuple[float, Array, Array]:
    """Total weight of some rows, their sums and their raw second moments."""
    return weights.sum, weights.total(columns), columns.T @ weights.times(columns)


def _mixed(probabilities: Array, frequencies: Array, share: float) -> Array:
    """Geometric mixture of probabilities and frequencies, with the given share of the former."""
    mixed = probabilities**share * frequencies ** (1.0 - share)
    return mixed / mixed.sum(axis=1, keepdims=True)


def _towards(model: LogisticRegression, frequencies: Array, share: float) -> LogisticRegression:
    """The classifier whose probabilities are `_mixed`."""
    mixed, logs = copy(model), np.log(frequencies)
    mixed.coef_ = share * model.coef_
    rest = logs[1:] - logs[0] if frequencies.size == 2 else logs
    mixed.intercept_ = share * model.intercept_ + (1.0 - share) * rest
    return mixed


def _logistic(
    inputs: Array, codes: Array, weights: Weights, start: LogisticRegression | None = None
) -> LogisticRegression:
    """Fit a classifier, starting from `start`, a model of mostly the same rows."""
    if start is not None and start.classes_.size == np.unique(codes).size:
        model = copy(start)  # fitting gives a copy new arrays and leaves those of `start` alone
    else:
        model = LogisticRegression(C=1.0, max_iter=500, warm_start=True)
    return model.fit(inputs, codes, weights.given)


WIDE_PENALTIES: Array = np.logspace(0, 6, 7)
N_NEIGHBOURS = (5, 20, 60)
NEIGHBOUR_PENALTIES = (1.0, 30.0, 1000.0)
N_CANDIDATES = WIDE_PENALTIES.size + len(N_NEIGHBOURS) * len(NEIGHBOUR_PENALTIES)


@dataclass(frozen=True)
class _Part:
    """One fold: its rows, and the means by arm and within-arm spectrum of the rows outside it.

    Attributes
    ----------
    rows : array of int
        The rows of the fold.
    centres : array of shape (2, p)
        Means of the columns in both arms.
    expected, deviations : array of shape (rows, p)
        Means of the columns in each row's arm, and what its values add to them. Taking off the means of both arms
        leaves the effect of the treatment unpenalised.
    values : array of shape (r,)
        Eigenvalues that are not zero; r is at most the number of rows.
    vectors : array of shape (p, r)
        Their eigenvectors.
    squares : array of shape (p,)
        Diagonal of the scatter matrix.
    """

    rows: NDArray[np.intp]
    centres: Array
    expected: Array
    deviations: Array
    values: Array
    vectors: Array
    squares: Array

    @classmethod
    def of(cls, table: Array, all_arms: Ints, out: NDArray[np.bool_], weights: Weights) -> _Part:
        """Factor the smaller of the two Gram matrices."""
        columns, arms = table[~out], all_arms[~out]
        counts = weights[~out]
        centres = np.zeros((2, columns.shape[1]))
        for arm in np.unique(arms):
            centres[arm] = counts[arms == arm].mean(columns[arms == arm])
        centred = counts.root.times(columns - centres[arms])
        n_rows, n_columns = centred.shape
        if n_columns <= n_rows:
            values, vectors = np.linalg.eigh(centred.T @ centred)
        else:
            values, left = np.linalg.eigh(centred @ centred.T)
        large = values > 1e-10 * values[-1]
        values = values[large]
        vectors = vectors[:, large] if n_columns <= n_rows else centred.T @ (left[:, large] / np.sqrt(values))
        expected = centres[all_arms[out]]
        squares = np.einsum("ij,ij->j", centred, centred)
        return cls(np.flatnonzero(out), centres, expected, table[out] - expected, values, vectors, squares)

    def slopes(self, target: int) -> Array:
        """Slopes of one column on the others, one column per candidate (0 for the target itself).

        The first candidates are ridge regressions on all columns: with P the inverse of the penalised scatter matrix,
        their slopes are -P[rest, target] / P[target, target]. The others are ridge regressions on the columns most
        correlated with the target.
        """
        shrunk = 1.0 / (self.values[:, None] + WIDE_PENALTIES) - 1.0 / WIDE_PENALTIES
        products = self.vectors @ (self.vectors[target][:, None] * np.column_stack((shrunk, self.values)))
        inverse, scatter = products[:, :-1], products[:, -1]
        inverse[target] += 1.0 / WIDE_PENALTIES
        slopes = np.zeros((scatter.size, N_CANDIDATES))
        slopes[:, : WIDE_PENALTIES.size] = -inverse / inverse[target]
        strength = scatter**2 / np.where(self.squares > 1e-9 * self.squares.max(), self.squares, np.inf)
        strength[target] = -1.0
        nearest = np.argsort(-strength, kind="stable")[: min(N_NEIGHBOURS[-1], scatter.size - 1)]
        near = self.vectors[nearest] * np.sqrt(self.values)
        gram = near @ near.T
        for k, (count, penalty) in enumerate(product(N_NEIGHBOURS, NEIGHBOUR_PENALTIES), WIDE_PENALTIES.size):
            chosen = nearest[:count]
            matrix = gram[:count, :count] + penalty * np.eye(chosen.size)
            slopes[chosen, k] = np.linalg.solve(matrix, scatter[chosen])
        slopes[target] = 0.0
        return slopes


class Regression(NamedTuple):
    """Regression of a column on the others: out-of-fold mean and spread of its rows, and the linear predictors.

    There is one predictor for all rows, or one for the complement of each fold: slopes have the shape (lines, columns).
    """

    mean: Array
    scale: float
    held_mean: Array
    held_scale: Array | float
    slopes: Array
    shifts: Array


@dataclass(frozen=True)
class CrossFittedRidge:
    """Cross-fitted regressions of each column on the others.

    Attributes
    ----------
    columns : array of shape (n, p)
        The columns.
    parts : tuple
        What is known of each fold.
    weights : Weights
        How much each row counts.
    treatment : int, optional
        The column that is the treatment, centred at its mean: in lines it carries what the arms differ by.
    """

    columns: Array
    parts: tuple[_Part, ...]
    weights: Weights
    treatment: int | None = None

    @classmethod
    def of(
        cls, columns: Array, arms: Ints, folds: Ints, weights: Weights, treatment: int | None = None
    ) -> CrossFittedRidge:
        """One factorisation per fold serves all columns; its cost is that of the smaller Gram matrix.

        Parameters
        ----------
        columns : array of shape (n, p)
            The columns.
        arms : array of shape (n,)
            Arm of each row; all 0 where the treatment is not conditioned on.
        folds : array of shape (n,)
            Fold of each row.
        weights : Weights
            How much each row counts, adding up to the effective number of rows.
        treatment : int, optional
            The column that is the treatment.
        """
        parts = (_Part.of(columns, arms, folds == fold, weights) for fold in range(int(folds.max()) + 1))
        return cls(columns, tuple(parts), weights, treatment)

    def regress(self, target: int) -> Regression:
        """Regress one column on the others in each fold, with the candidate of least error, and predict the rows."""
        candidates = [part.slopes(target) for part in self.parts]
        means = np.empty((self.columns.shape[0], N_CANDIDATES))
        for part, lines in zip(self.parts, candidates, strict=True):
            means[part.rows] = part.expected[:, target, None] + part.deviations @ lines
        errors = self.weights.mean((self.columns[:, target, None] - means) ** 2)
        best = int(np.argmin(errors))
        mean, scale = means[:, best], float(np.sqrt(errors[best]))
        slopes, treatment = np.stack([lines[:, best] for lines in candidates]), self.treatment
        if treatment is not None:
            slopes[:, treatment] = 0.0
        levels = np.stack([p.centres[:, target] - p.centres @ line for p, line in zip(self.parts, slopes, strict=True)])
        shifts = levels[:, 0]
        if treatment is not None:
            low, high = np.unique(self.columns[:, treatment])
            slopes[:, treatment] = (levels[:, 1] - levels[:, 0]) / (high - low)
            shifts = shifts - slopes[:, treatment] * low
        return Regression(mean, scale, mean, scale, slopes, shifts)
