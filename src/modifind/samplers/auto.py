"""Choice between samplers, feature by feature."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import chdtrc, ndtr
from scipy.stats import jarque_bera

from modifind.features import FeatureTable
from modifind.kernels import Array
from modifind.learners.terms import bend
from modifind.rows.weights import effective_size, mean_of
from modifind.samplers.base import (
    MANY_COLUMNS,
    N_NEIGHBOURS,
    BaseSampler,
    CategoricalLaw,
    FeatureLaw,
    NormalLaw,
    PoolLaw,
    column_atoms,
)
from modifind.samplers.boosting import BoostingSampler
from modifind.samplers.gaussian import GaussianSampler
from modifind.samplers.rules import LawRule
from modifind.samplers.splines import SplineSampler
from modifind.screening import Association

MISFIT_LEVEL = 0.01
SHAPE_LEVEL = 0.05
SCREEN_LEVEL = 0.01
SCREEN_BINS = 10
CHOICE_ROWS = 10_000
MANY_ROWS = 20_000

_Candidates: TypeAlias = tuple[GaussianSampler | SplineSampler, ...]


class AutoSampler(BaseSampler):
    """The gaussian, the spline or the boosting sampler, whichever predicts held-out rows of the feature better.

    A richer law is taken when its held-out log-score is better by more than one standard error of the difference, or
    when the plainer law fails its own held-out calibration test at 1% and the richer one passes: a wrong shape costs
    little log-score but makes p-values too small.

    Splines are fitted only where they could win: where the column has an atom, where the residuals of the gaussian law
    are not normal, or where tests of those residuals against bins and products of the other features find a curve,
    an interaction or a spread that varies. Trees are grown only where the same tests find something that the splines
    left. These tests see far weaker departures than those that make a richer law worth its noise. Above 20,000 rows
    the choice is made on 10,000 of them, drawn at random; the chosen law is fitted on all. Above 100 columns, products
    are formed only of the 60 columns most associated with the residuals.

    Parameters
    ----------
    condition_on_treatment : bool, default=True
        Whether the treatment is among the conditioning variables.
    """

    name = "auto"

    def fit(
        self,
        table: FeatureTable,
        treatment: NDArray[np.int64],
        seed: np.random.SeedSequence,
        weights: Array | None = None,
    ) -> AutoSampler:
        """Hand the data to the candidates."""
        super().fit(table, treatment, seed, weights)
        first, second = seed.spawn(2)
        self.candidates_ = self._fitted(table, treatment, first, weights, getattr(self, "assigned_folds_", None))
        self.trial_ = self.candidates_
        if table.n_rows > MANY_ROWS:
            rows_seed, second = second.spawn(2)
            rows = np.sort(np.random.default_rng(rows_seed).choice(table.n_rows, CHOICE_ROWS, replace=False))
            table, treatment = replace(table, values=table.values[rows]), treatment[rows]
            weights = None if weights is None else weights[rows] / weights[rows].mean()
            folds = self.assigned_folds_[rows] if getattr(self, "whole_clusters_", False) else None
            self.trial_ = self._fitted(table, treatment, second, weights, folds)
        self.screen_ = _Screen(self.trial_[0])
        return self

    def _fitted(
        self,
        table: FeatureTable,
        treatment: NDArray[np.int64],
        seed: np.random.SeedSequence,
        weights: Array | None,
        folds: NDArray[np.int64] | None,
    ) -> _Candidates:
        """The candidates, from the plainest to the richest."""
        kinds = (GaussianSampler, SplineSampler, BoostingSampler)
        found = tuple(kind(condition_on_treatment=self.condition_on_treatment) for kind in kinds)
        for sampler, own in zip(found, seed.spawn(len(found)), strict=True):
            if folds is not None:
                sampler.assign_folds(folds, whole_clusters=getattr(self, "whole_clusters_", False))
            sampler.fit(table, treatment, own, weights)
        return found

    def law(self, feature: int) -> FeatureLaw:
        """Fit the law of one feature that fits it better."""
        place, chosen = self._choice(feature)
        return chosen if self.trial_ is self.candidates_ else self.candidates_[place].law(feature)

    def rule(self, feature: int) -> LawRule:
        """The same for rows that were not in the table; the calibration is that of the choice."""
        place, chosen = self._choice(feature)
        return self.candidates_[place].rule(feature, chosen.calibration)

    def _choice(self, feature: int) -> tuple[int, FeatureLaw]:
        """The best candidate's place, and its law on the rows that the choice was made on."""
        chosen, score = self.trial_[0].scored_law(feature)
        best, last = 0, chosen
        for place in range(1, len(self.trial_)):
            if not self.screen_.suspects(feature, last):
                break
            last, own = self.trial_[place].scored_law(feature)
            gain, error = _mean_and_error(own - score, self.trial_[0].weights_)
            failed = chosen.calibration.pit_p_value < MISFIT_LEVEL <= last.calibration.pit_p_value
            if gain > error or failed:
                best, chosen, score = place, last, own
        return best, chosen


class _Screen:
    """Score tests of a law's residuals: is there anything that a richer law could find?

    The residuals are summed over bins of each other feature and of the predicted value, and over products of two
    other features.

    Parameters
    ----------
    sampler : GaussianSampler
        The fitted sampler whose laws are tested.
    """

    def __init__(self, sampler: GaussianSampler) -> None:
        self.table = sampler.table_
        self.weights = sampler.weights_
        self.columns = sampler.ridge_.columns - mean_of(sampler.ridge_.columns, self.weights)
        bends = bend(self.columns / np.maximum(self.columns.std(axis=0), np.finfo(float).tiny))
        self.bends = bends - mean_of(bends, self.weights)
        many = self.columns.shape[1] > MANY_COLUMNS
        self.association = Association(self.columns, self.weights) if many else None
        n_rows = self.columns.shape[0]
        codes = np.column_stack([_bin_codes(column) for column in self.columns.T])
        self.n_bins = codes.max(axis=0) + 1
        places = codes + np.concatenate(([0], np.cumsum(self.n_bins)[:-1]))
        ends = np.arange(0, places.size + 1, places.shape[1])
        shape = (n_rows, int(self.n_bins.sum()))
        self.bins = csr_matrix((np.ones(places.size), places.ravel(), ends), shape=shape).T.tocsr()

    def suspects(self, feature: int, law: FeatureLaw) -> bool:
        """Whether a feature's law shows any sign of misfit."""
        column = self.table.values[:, feature]
        if isinstance(law, NormalLaw):
            if law.calibration.pit_p_value < SHAPE_LEVEL or column_atoms(column).size:
                return True
            residual = (column - law.mean) / law.scale
            return _normality(residual, self.weights) < SCREEN_LEVEL or self._follows(feature, law.mean, residual)
        if isinstance(law, PoolLaw):
            if not law.shift.any():  # values of similar rows: their mean is all that there is to test
                return True
            return self._follows(feature, law.shift, (column - law.shift) / law.scale)
        assert isinstance(law, CategoricalLaw)
        below = np.column_stack((np.zeros(column.size), law.cumulative, np.ones(column.size)))
        for code, probability in enumerate(np.diff(below, axis=1).T):
            residual, variance = (column == code).astype(np.float64) - probability, probability * (1.0 - probability)
            if self._curve(feature, probability, residual, variance) or self._product(feature, residual, variance):
                return True
            if below.shape[1] == 3:  # with two categories the second residual is the first with its sign changed
                break
        return False

    def _follows(self, feature: int, predicted: Array, residual: Array) -> bool:
        """Whether residuals in units of their scale, or their size, follow other columns."""
        residual = residual - mean_of(residual, self.weights)
        spread = np.abs(residual) - mean_of(np.abs(residual), self.weights)
        variances = [np.full(residual.size, mean_of(part**2, self.weights)) for part in (residual, spread)]
        return (
            self._curve(feature, predicted, residual, variances[0])
            or self._curve(feature, predicted, spread, variances[1])
            or self._product(feature, residual, variances[0])
        )

    def _curve(self, feature: int, predicted: Array, residual: Array, variance: Array) -> bool:
        """Whether sums over the bins of any other column, or of the predicted value, are too large."""
        own = self.table.encoding[feature]
        residual, variance = self._weighted(residual, variance)
        terms = _squared_ratio(self.bins @ residual, self.bins @ variance)
        statistics = np.add.reduceat(terms, np.cumsum(self.n_bins) - self.n_bins)
        codes = _bin_codes(predicted)
        terms = _squared_ratio(*(np.bincount(codes, weights=x).astype(np.float64) for x in (residual, variance)))
        statistics = np.append(np.delete(statistics, np.s_[own]), terms.sum())
        freedom = np.append(np.delete(self.n_bins, np.s_[own]), terms.size) - 1
        p_values = chdtrc(np.maximum(freedom, 1), statistics)
        return bool(p_values.min() * p_values.size < SCREEN_LEVEL)

    def _product(self, feature: int, residual: Array, variance: Array) -> bool:
        """Whether the residuals go with the product of any two other columns, or of one and another's bend."""
        kept = np.ones(self.columns.shape[1], dtype=bool)
        kept[self.table.encoding[feature]] = False
        columns, bends = self.columns, self.bends
        if self.association is not None:  # all products would cost the square of their number for every feature
            order = self.association.order(residual[:, None])
            near = order[kept[order]][:N_NEIGHBOURS]
            columns, bends, kept = columns[:, near], bends[:, near], kept[near]
        residual, variance = self._weighted(residual, variance)
        factors, squares = np.column_stack((columns, bends)), np.column_stack((columns**2, bends**2))
        sums = factors.T @ (residual[:, None] * columns)
        size = squares.T @ (variance[:, None] * columns**2)
        largest = _squared_ratio(sums, size)[np.ix_(np.tile(kept, 2), kept)].max(initial=0.0)
        n_pairs = max(kept.sum() * (3 * kept.sum() + 1) / 2, 1.0)
        return bool(2.0 * ndtr(-np.sqrt(largest)) * n_pairs < SCREEN_LEVEL)

    def _weighted(self, residual: Array, variance: Array) -> tuple[Array, Array]:
        """Terms of a sum over rows, and their variances."""
        return (residual, variance) if self.weights is None else (self.weights * residual, self.weights**2 * variance)


def _mean_and_error(gain: Array, weights: Array | None) -> tuple[float, float]:
    """Mean over rows and its standard error."""
    mean = mean_of(gain, weights)
    if weights is None:
        return mean, gain.std() / np.sqrt(gain.size)
    return mean, float(np.sqrt(weights**2 @ (gain - mean) ** 2) / weights.sum())


def _normality(residual: Array, weights: Array | None) -> float:
    """P-value of the test of Jarque and Bera, with weights for as many rows as these are worth."""
    if weights is None:
        return float(jarque_bera(residual).pvalue)
    centred = residual - mean_of(residual, weights)
    variance, third, fourth = (mean_of(centred**power, weights) for power in (2, 3, 4))
    statistic = effective_size(weights) / 6 * (third**2 / variance**3 + (fourth / variance**2 - 3) ** 2 / 4)
    return float(chdtrc(2, statistic))


def _bin_codes(column: Array) -> NDArray[np.intp]:
    """Bin of each row, of about equal size; rows with the same value share one, and none is empty."""
    edges = np.unique(np.quantile(column, np.arange(1, SCREEN_BINS) / SCREEN_BINS))
    return np.unique(np.searchsorted(edges, column, side="left"), return_inverse=True)[1]


def _squared_ratio(sums: Array, variance: Array) -> Array:
    """Sums squared, in units of their variance; nothing where the variance is zero."""
    return sums**2 / np.where(variance > 0, variance, np.inf)
