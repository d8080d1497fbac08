"""What samplers learn of one feature: models, and what they make of any rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.feature_matrix import FeatureTable
from modifind.nuisance.conditional.base import BaseSampler, CategoricalConditional, NormalConditional, PoolConditional
from modifind.nuisance.conditional.contract import Calibration, Rows
from modifind.nuisance.conditional.grid import point_quantiles
from modifind.nuisance.conditional.window_quantiles import WindowQuantiles
from modifind.nuisance.regression.level_sums import LevelTables

N_STEPS = 4096


@dataclass(frozen=True)
class Conditioning:
    """The columns that a feature is predicted from.

    Attributes
    ----------
    feature : int
        The feature, whose own columns are left out.
    mean_treatment : float or None
        What the treatment is centred at; None where it is not conditioned on.
    level_shares : LevelTables
        What is seen of categories of many levels.
    """

    feature: int
    mean_treatment: float | None
    level_shares: LevelTables = field(default_factory=LevelTables)

    @classmethod
    def of(cls, sampler: BaseSampler, feature: int) -> Conditioning:
        """As a fitted sampler conditions."""
        mean = float(sampler.treatment_.mean()) if sampler.condition_on_treatment else None
        return cls(feature, mean, sampler.level_shares_)

    def __call__(self, table: FeatureTable, treatment: Ints) -> Array:
        """Model columns of some rows."""
        extra: Array | None = None if self.mean_treatment is None else np.subtract(treatment, self.mean_treatment)
        inputs = table.design_without(self.feature, extra, self.level_shares)
        return inputs if inputs.shape[1] else np.zeros((table.n_rows, 1))


@dataclass(frozen=True)
class Selected:
    """A model of some of the columns, to be called with all of them."""

    model: Any
    columns: NDArray[np.intp]

    @classmethod
    def of(cls, model: Any, columns: NDArray[np.intp] | slice) -> Any:
        """The model itself where it takes all columns."""
        return model if isinstance(columns, slice) else cls(model, columns)

    def predict(self, X: Array) -> Any:
        """Predictions of rows."""
        return self.model.predict(X[:, self.columns])

    def predict_proba(self, X: Array) -> Array:
        """Class probabilities of rows."""
        return self.model.predict_proba(X[:, self.columns])


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
        probabilities = np.zeros((table.n_rows, self.constant.size))
        for part, model in enumerate(self.models):
            rows = np.flatnonzero(parts % len(self.models) == part)
            if model is None:
                probabilities[rows] = self.constant
            elif rows.size:
                probabilities[np.ix_(rows, self.present[part])] = model.predict_proba(inputs[rows])
        return CategoricalConditional.of(probabilities, self.calibration)


@dataclass(frozen=True)
class WindowConditional:
    """Every row has one of a few sets of weighted points, times `scale` plus `shift`."""

    points: Array
    weights: Array
    window: NDArray[np.intp]
    shift: Array
    scale: Array
    drawn_from: WindowQuantiles | None = None

    def quantiles(self, levels: Array) -> Array:
        """Values at levels between 0 and 1, shape (k, n)."""
        if self.drawn_from is None:
            return point_quantiles(*self.grid(slice(None)), levels)
        return self.shift + self.scale * self.drawn_from(self.window, levels)

    def grid(self, rows: Rows) -> tuple[Array, Array]:
        """Points and weights of some rows."""
        window = self.window[rows]
        return self.shift[rows, None] + self.scale[rows, None] * self.points[window], self.weights[window]


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
    points, weights : arrays of shape (windows, g)
        The residuals of each window, or the values themselves where `shifted` is false.
    """

    inputs: Conditioning
    models: tuple[tuple[Any, Any], ...]
    edges: Array
    window: NDArray[np.intp]
    scale: Array
    points: Array
    weights: Array
    shifted: bool
    calibration: Calibration
    fitted: PoolConditional | None = None
    drawn_from: WindowQuantiles | None = None

    @classmethod
    def of(
        cls,
        inputs: Conditioning,
        models: tuple[tuple[Any, Any], ...],
        mean: Array,
        local: Array,
        conditional: PoolConditional,
        shifted: bool,
    ) -> ResidualRule:
        """From a fitted distribution: its windows, and its `local` scale at some thousands of predicted means."""
        points, weights, window = conditional.window_grids
        order = np.argsort(mean, kind="stable")
        at = np.unique(np.linspace(0, mean.size - 1, min(N_STEPS, mean.size)).astype(np.int64))
        chosen = order[at]
        edges = (mean[chosen][1:] + mean[chosen][:-1]) / 2
        return cls(
            inputs,
            models,
            edges,
            window[chosen],
            local[chosen],
            points,
            weights,
            shifted,
            conditional.calibration,
            conditional,
        )

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> WindowConditional:
        """The distribution of some rows."""
        inputs = self.inputs(table, treatment)
        mean, spread = np.empty(table.n_rows), np.empty(table.n_rows)
        for part, (start, trees) in enumerate(self.models):
            rows = np.flatnonzero(parts % len(self.models) == part)
            if rows.size:
                mean[rows], spread[rows] = start.predict(inputs[rows])
                if trees is not None:
                    mean[rows] += spread[rows] * trees.predict(inputs[rows])
        place = np.searchsorted(self.edges, mean)
        shift, scale = (mean, self.scale[place] * spread) if self.shifted else (np.zeros(mean.size), np.ones(mean.size))
        return WindowConditional(self.points, self.weights, self.window[place], shift, scale, self.drawn_from)


@dataclass(frozen=True)
class ArmRule:
    """The same distribution for all rows of an arm, or for all rows."""

    points: Array
    weights: Array
    by_arm: bool
    calibration: Calibration
    fitted: PoolConditional | None = None
    drawn_from: WindowQuantiles | None = None

    def conditional(self, table: FeatureTable, treatment: Ints, parts: Ints) -> WindowConditional:
        """The distribution of some rows."""
        window = (treatment if self.by_arm else np.zeros(table.n_rows, dtype=np.int64)).astype(np.intp)
        plain = np.zeros(window.size), np.ones(window.size)
        return WindowConditional(self.points, self.weights, window, *plain, self.drawn_from)
