"""Linear-Gaussian sampler: ridge mean with normal residuals; multinomial logistic for discrete features."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, RidgeCV

from modifind.kernels import Array
from modifind.samplers.base import (
    BaseSampler,
    CategoricalLaw,
    FeatureLaw,
    NormalLaw,
    category_score,
    continuous_calibration,
    discrete_calibration,
    marginal_log_score,
    normal_scores,
    row_folds,
    value_bins,
)

PENALTIES = tuple(10.0**k for k in range(-2, 5))
N_FOLDS = 5


class GaussianSampler(BaseSampler):
    """X_m given the rest as a ridge regression with homoscedastic normal residuals.

    The penalty is chosen by leave-one-out error and the residual variance is divided by the residual degrees of
    freedom. Discrete features use a multinomial logistic regression.

    Parameters
    ----------
    condition_on_treatment : bool, default=True
        Whether the treatment is among the conditioning variables.
    """

    name = "gaussian"

    def law(self, feature: int) -> FeatureLaw:
        """Fit the law of one feature."""
        return self.scored_law(feature)[0]

    def scored_law(self, feature: int) -> tuple[FeatureLaw, Array]:
        """The law of one feature and its held-out log-score row by row."""
        inputs = self._inputs(feature)
        column = self.table_.values[:, feature]
        folds = row_folds(column.size, N_FOLDS, np.random.default_rng(self.seeds_[feature]))
        levels = self.table_.n_levels(feature)
        if levels:
            return self._categorical_law(inputs, column, levels, folds)
        return self._normal_law(inputs, column, folds)

    def _normal_law(self, inputs: Array, column: Array, folds: NDArray[np.int64]) -> tuple[FeatureLaw, Array]:
        penalty = _best_penalty(inputs, column)
        mean, scale = _ridge(inputs, column, inputs, penalty)
        edges = value_bins(column)
        pit, score = np.empty(column.size), np.empty(column.size)
        for fold in range(N_FOLDS):
            out = folds == fold
            held_mean, held_scale = _ridge(inputs[~out], column[~out], inputs[out], penalty)
            pit[out], score[out] = normal_scores(column[out], held_mean, held_scale, edges)
        marginal = marginal_log_score(column, edges)
        return NormalLaw(mean, scale, continuous_calibration(self.name, pit, score, marginal)), score

    def _categorical_law(
        self, inputs: Array, codes: Array, levels: int, folds: NDArray[np.int64]
    ) -> tuple[FeatureLaw, Array]:
        held = np.empty((codes.size, levels))
        for fold in range(N_FOLDS):
            out = folds == fold
            held[out] = _logistic(inputs[~out], codes[~out], inputs[out], levels)
        score = category_score(codes, held)
        probabilities = _logistic(inputs, codes, inputs, levels)
        return CategoricalLaw.of(probabilities, discrete_calibration(self.name, codes, score)), score


def _best_penalty(inputs: Array, column: Array) -> float:
    if inputs.shape[1] == 0:
        return 1.0
    return float(RidgeCV(alphas=PENALTIES).fit(inputs, column).alpha_)


def _ridge(inputs: Array, column: Array, at: Array, penalty: float) -> tuple[Array, float]:
    """Predictions at new rows and the residual standard deviation."""
    centre = inputs.mean(axis=0)
    centred = inputs - centre
    gram = centred.T @ centred
    penalised = gram + penalty * np.eye(gram.shape[0])
    coefficients = np.linalg.solve(penalised, centred.T @ (column - column.mean()))
    residual = column - column.mean() - centred @ coefficients
    freedom = column.size - 1 - np.trace(np.linalg.solve(penalised, gram))
    scale = float(np.sqrt(residual @ residual / max(freedom, 1.0)))
    return column.mean() + (at - centre) @ coefficients, max(scale, np.finfo(float).tiny)


def _logistic(inputs: Array, codes: Array, at: Array, levels: int) -> Array:
    """Category probabilities at new rows; categories absent from the training rows get probability zero."""
    present = np.unique(codes).astype(np.intp)
    probabilities = np.zeros((at.shape[0], levels))
    if present.size == 1 or inputs.shape[1] == 0:
        probabilities[:, present] = np.bincount(codes.astype(np.intp), minlength=levels)[present] / codes.size
        return probabilities
    model = LogisticRegression(C=1.0, max_iter=500).fit(inputs, codes)
    probabilities[:, present] = model.predict_proba(at)
    return probabilities
