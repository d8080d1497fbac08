"""Rules that samplers learn: models of one feature, and the distributions that they give any rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.feature_matrix import FeatureTable
from modifind.nuisance.conditional.base import CategoricalConditional, NormalConditional, WindowConditional
from modifind.nuisance.conditional.contract import Calibration
from modifind.nuisance.conditional.sampler import Conditioning
from modifind.nuisance.conditional.window_quantiles import Windows

N_STEPS = 4096


@dataclass(frozen=True, kw_only=True)
class LearnedRule:
    """A rule, with the distribution of the rows that it was learned from, until these are left behind."""

    calibration: Calibration
    fitted: Any = None


@dataclass(frozen=True)
class NormalRule(LearnedRule):
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

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> NormalConditional:
        """The distribution of some rows."""
        means = self.shifts + self.inputs(table, treatment) @ self.slopes.T
        mean = means[np.arange(table.n_rows), parts % self.shifts.size]
        return NormalConditional(mean, self.scale, self.calibration)


@dataclass(frozen=True)
class CategoryRule(LearnedRule):
    """Category probabilities by one classifier, or by one of several.

    Attributes
    ----------
    models : tuple
        Classifiers; None stands for a constant distribution.
    constant : array of shape (levels,)
        Frequencies of the codes.
    """

    inputs: Conditioning
    models: tuple[Any, ...]
    constant: Array

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> CategoricalConditional:
        """The distribution of some rows."""
        inputs = self.inputs(table, treatment)
        probabilities = np.tile(self.constant, (table.n_rows, 1))
        for rows, model in _rows_by_model(parts, self.models):
            if model is not None:
                probabilities[rows] = 0.0
                probabilities[np.ix_(rows, model.classes_.astype(np.intp))] = model.predict_proba(inputs[rows])
        return CategoricalConditional(probabilities, self.calibration)


@dataclass(frozen=True)
class ResidualRule(LearnedRule):
    """A predicted mean, and residuals from rows with a similar one.

    Attributes
    ----------
    models : tuple
        Models of mean and spread, one for each fold.
    edges : array
        Predicted means at which the window, or the local scale, may change.
    window, scale : arrays of shape (edges + 1,)
        Window, and scale in units of the model's spread, between them.
    windows : Windows
        The residuals of each window, or the values themselves where `shifted` is false.
    """

    inputs: Conditioning
    models: tuple[Any, ...]
    edges: Array
    window: NDArray[np.intp]
    scale: Array
    windows: Windows
    shifted: bool

    @classmethod
    def from_fitted(
        cls,
        inputs: Conditioning,
        models: tuple[Any, ...],
        mean: Array,
        local: Array,
        fitted: WindowConditional,
        shifted: bool,
    ) -> ResidualRule:
        """Keep the windows of a fitted distribution and its `local` scale, at some thousands of predicted means."""
        order = np.argsort(mean, kind="stable")
        chosen = order[np.unique(np.linspace(0, mean.size - 1, min(N_STEPS, mean.size)).astype(np.int64))]
        edges = (mean[chosen][1:] + mean[chosen][:-1]) / 2
        steps = edges, fitted.window[chosen], local[chosen], replace(fitted.windows, pools=())
        return cls(inputs, models, *steps, shifted, calibration=fitted.calibration, fitted=fitted)

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> WindowConditional:
        """The distribution of some rows."""
        inputs = self.inputs(table, treatment)
        mean, spread = np.empty(table.n_rows), np.empty(table.n_rows)
        for rows, model in _rows_by_model(parts, self.models):
            mean[rows], spread[rows] = model.predict(inputs[rows])
        step = np.searchsorted(self.edges, mean)
        shift, scale = (mean, self.scale[step] * spread) if self.shifted else (np.zeros(mean.size), np.ones(mean.size))
        return WindowConditional(self.windows, self.window[step], shift, scale, self.calibration)


@dataclass(frozen=True)
class ArmRule(LearnedRule):
    """The same distribution for all rows of an arm, or for all rows."""

    windows: Windows
    by_arm: bool

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> WindowConditional:
        """The distribution of some rows."""
        window = treatment.astype(np.intp) if self.by_arm else np.zeros(table.n_rows, dtype=np.intp)
        return WindowConditional(self.windows, window, np.zeros(window.size), np.ones(window.size), self.calibration)


def _rows_by_model(parts: Ints, models: tuple[Any, ...]) -> Iterator[tuple[NDArray[np.intp], Any]]:
    """The rows that each model scores, if there are any, with the model."""
    for k, model in enumerate(models):
        rows = np.flatnonzero(parts % len(models) == k)
        if rows.size:
            yield rows, model
