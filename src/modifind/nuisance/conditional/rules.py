"""What samplers learn of one feature: models, and the distributions that they give any rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.feature_matrix import FeatureTable
from modifind.data.weights import Weights
from modifind.nuisance.conditional.base import CategoricalConditional, NormalConditional, WindowConditional
from modifind.nuisance.conditional.contract import Calibration
from modifind.nuisance.conditional.level_conditional import fit_level_rule
from modifind.nuisance.conditional.pit import category_score, discrete_calibration
from modifind.nuisance.conditional.sampler import BaseSampler, Conditioning
from modifind.nuisance.conditional.window_quantiles import Windows

N_STEPS = 4096
# Classifiers, the codes that each knows, probabilities of the rows, and those from other folds.
Classified: TypeAlias = tuple[tuple[Any, ...], tuple[NDArray[np.intp], ...], Array, Array]


@dataclass(frozen=True)
class NormalRule:
    """Linear mean, by one line or by one of several, and one standard deviation.

    Attributes
    ----------
    slopes : array of shape (lines, inputs)
        Slopes of each line.
    shifts : array of shape (lines,)
        Their intercepts.
    """

    inputs: Conditioning
    slopes: Array
    shifts: Array
    scale: float
    calibration: Calibration
    fitted: NormalConditional | None = None

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> NormalConditional:
        """The distribution of some rows."""
        means = self.shifts + self.inputs(table, treatment) @ self.slopes.T
        mean = means[np.arange(table.n_rows), parts % self.shifts.size]
        return NormalConditional(mean, self.scale, self.calibration)


@dataclass(frozen=True)
class CategoryRule:
    """Category probabilities by one classifier, or by one of several.

    Attributes
    ----------
    models : tuple
        Classifiers; None stands for a constant distribution.
    present : tuple of arrays
        The codes that each knows.
    constant : array of shape (levels,)
        Frequencies of the codes.
    """

    inputs: Conditioning
    models: tuple[Any, ...]
    present: tuple[NDArray[np.intp], ...]
    constant: Array
    calibration: Calibration
    fitted: CategoricalConditional | None = None

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> CategoricalConditional:
        """The distribution of some rows."""
        inputs = self.inputs(table, treatment)
        probabilities = np.tile(self.constant, (table.n_rows, 1))
        for rows, model, present in _rows_by_model(parts, self.models, self.present):
            if model is not None:
                probabilities[rows] = 0.0
                probabilities[np.ix_(rows, present)] = model.predict_proba(inputs[rows])
        return CategoricalConditional(probabilities, self.calibration)


@dataclass(frozen=True)
class ResidualRule:
    """A predicted mean, and residuals from rows with a similar one.

    Attributes
    ----------
    models : tuple of pairs
        Model of location and spread, and trees on top of it or None, one pair for each fold.
    edges : array
        Predicted means at which the window, or the local scale, may change.
    window, scale : arrays of shape (edges + 1,)
        Window, and scale in units of the model's spread, between them.
    windows : Windows
        The residuals of each window, or the values themselves where `shifted` is false.
    """

    inputs: Conditioning
    models: tuple[tuple[Any, Any], ...]
    edges: Array
    window: NDArray[np.intp]
    scale: Array
    windows: Windows
    shifted: bool
    calibration: Calibration
    fitted: WindowConditional | None = None

    @classmethod
    def from_fitted(
        cls,
        inputs: Conditioning,
        models: tuple[tuple[Any, Any], ...],
        mean: Array,
        local: Array,
        fitted: WindowConditional,
        shifted: bool,
    ) -> ResidualRule:
        """From a fitted distribution: its windows, and its `local` scale at some thousands of predicted means."""
        order = np.argsort(mean, kind="stable")
        chosen = order[np.unique(np.linspace(0, mean.size - 1, min(N_STEPS, mean.size)).astype(np.int64))]
        edges = (mean[chosen][1:] + mean[chosen][:-1]) / 2
        steps = edges, fitted.window[chosen], local[chosen], fitted.windows.without_pools
        return cls(inputs, models, *steps, shifted, fitted.calibration, fitted)

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> WindowConditional:
        """The distribution of some rows."""
        inputs = self.inputs(table, treatment)
        mean, spread = np.empty(table.n_rows), np.empty(table.n_rows)
        for rows, (start, trees) in _rows_by_model(parts, self.models):
            mean[rows], spread[rows] = start.predict(inputs[rows])
            if trees is not None:
                mean[rows] += spread[rows] * trees.predict(inputs[rows])
        step = np.searchsorted(self.edges, mean)
        shift, scale = (mean, self.scale[step] * spread) if self.shifted else (np.zeros(mean.size), np.ones(mean.size))
        return WindowConditional(self.windows, self.window[step], shift, scale, self.calibration)


@dataclass(frozen=True)
class ArmRule:
    """The same distribution for all rows of an arm, or for all rows."""

    windows: Windows
    by_arm: bool
    calibration: Calibration
    fitted: WindowConditional | None = None

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> WindowConditional:
        """The distribution of some rows."""
        window = treatment.astype(np.intp) if self.by_arm else np.zeros(table.n_rows, dtype=np.intp)
        return WindowConditional(self.windows, window, np.zeros(window.size), np.ones(window.size), self.calibration)


def _rows_by_model(parts: Ints, models: tuple[Any, ...], *more: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The rows that each model scores, if there are any, with the model."""
    for part, model in enumerate(zip(models, *more, strict=True)):
        rows = np.flatnonzero(parts % len(models) == part)
        if rows.size:
            yield (rows, *model)


class ScoredSampler(BaseSampler):
    """A sampler whose rules come with held-out log-scores, so that one can be chosen of several.

    Subclasses implement `_number_rule` and `_classify`, and say by which folds.
    """

    learns = True

    def rule(self, feature: int) -> Any:
        """Learn the distribution of one feature; rows of other tables are scored by the models of one fold."""
        return self.scored_rule(feature)[0]

    def scored_rule(self, feature: int) -> tuple[Any, Array]:
        """The rule of one feature and its held-out log-score row by row."""
        conditioning, levels = Conditioning.of(self, feature), self.table_.n_levels(feature)
        if not levels:
            return self._number_rule(feature, conditioning)
        inputs, codes = conditioning(self.table_, self.treatment_), self.table_.values[:, feature]
        folds = self._folds_of(feature)
        if feature in self.table_.level_columns:
            return fit_level_rule(conditioning, inputs, codes, levels, folds, self.weights_)
        models, present, probabilities, held = self._classify(inputs, codes, levels, folds)
        score = category_score(codes, held)
        calibration = discrete_calibration(self.name, codes, score, self.weights_)
        rule = CategoryRule(conditioning, models, present, self.weights_.shares(codes, levels), calibration)
        return replace(rule, fitted=CategoricalConditional(probabilities, calibration)), score

    @abstractmethod
    def _folds_of(self, feature: int) -> Ints:
        """Fold of each row in the cross-fitting of one feature."""

    @abstractmethod
    def _number_rule(self, feature: int, conditioning: Conditioning) -> tuple[Any, Array]:
        """The same as `scored_rule` for a continuous feature."""

    @abstractmethod
    def _classify(self, inputs: Array, codes: Array, levels: int, folds: Ints) -> Classified:
        """Classifiers of a discrete feature."""

    def _with_treatment(self, chosen: NDArray[np.intp], inputs: Array) -> NDArray[np.intp]:
        """Positions of chosen inputs in ascending order, with the treatment, which is last, where it is among them."""
        given = [inputs.shape[1] - 1] if self.condition_on_treatment else []
        return np.union1d(chosen, given).astype(np.intp)


def fit_classifier(
    fit: Callable[[Array, Array, Weights], Any], inputs: Array, codes: Array, at: Array, levels: int, weights: Weights
) -> tuple[Array, Any]:
    """Category probabilities at new rows, and the model; None where frequencies are all that there is to learn.

    Categories absent from the training rows get probability zero.
    """
    present = np.unique(codes).astype(np.intp)
    probabilities = np.zeros((at.shape[0], levels))
    if present.size == 1 or not inputs.any():
        probabilities[:, present] = weights.shares(codes, levels)[present]
        return probabilities, None
    model = fit(inputs, codes, weights)
    if at.size:
        probabilities[:, present] = model.predict_proba(at)
    return probabilities, model
