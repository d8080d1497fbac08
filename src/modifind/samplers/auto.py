"""Choice between samplers, feature by feature."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import chdtrc, ndtr
from scipy.stats import jarque_bera

from modifind.features import FeatureTable
from modifind.kernels import Array
from modifind.rows.weights import effective_size, mean_of
from modifind.samplers.base import (
    MANY_COLUMNS,
    N_NEIGHBOURS,
    BaseSampler,
    CategoricalLaw,
    FeatureLaw,
    NormalLaw,
    column_atoms,
)
from modifind.samplers.boosting import BoostingSampler
from modifind.samplers.gaussian import GaussianSampler
from modifind.samplers.rules import LawRule
from modifind.screening import Association

MISFIT_LEVEL = 0.01
SHAPE_LEVEL = 0.05
SCREEN_LEVEL = 0.01
SCREEN_BINS = 10
CHOICE_ROWS = 10_000
MANY_ROWS = 20_000


class AutoSampler(BaseSampler):
    """The gaussian or the boosting sampler, whichever predicts held-out rows of the feature better.

    The boosting law is taken when its held-out log-score is better by more than one standard error of the difference,
    or when the gaussian law fails its own held-out calibration test at 1% and the boosting law passes: a wrong shape
    costs little log-score but makes p-values too small.

    Trees are grown only where they could win: where the column has an atom, where the residuals of the gaussian law
    are not normal, or where tests of those residuals against bins and products of the other features find a curve,
    an interaction or a spread that varies. These tests see far weaker departures than those that make trees worth
    their noise. Above 20,000 rows the choice is made on 10,000 of them, drawn at random; the chosen law is fitted on
    all. Above 100 columns, products are formed only of the 60 columns most associated with the residuals.

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
        """Hand the data to both candidates."""
        super().fit(table, treatment, seed, weights)
        first, second, third = seed.spawn(3)
        condition = self.condition_on_treatment
        self.gaussian_ = GaussianSampler(condition_on_treatment=condition)
        self.boosting_ = BoostingSampler(condition_on_treatment=condition)
        for sampler, own in ((self.gaussian_, first), (self.boosting_, second)):
            if hasattr(self, "assigned_folds_"):
                sampler.assign_folds(self.assigned_folds_)
            sampler.fit(table, treatment, own, weights)
        self.trial_ = (self.gaussian_, self.boosting_)
        if table.n_rows > MANY_ROWS:
            rows_seed, first, second = third.spawn(3)
            rows = np.sort(np.random.default_rng(rows_seed).choice(table.n_rows, CHOICE_ROWS, replace=False))
            table, treatment = replace(table, values=table.values[rows]), treatment[rows]
            weights = None if weights is None else weights[rows] / weights[rows].mean()
            gaussian = GaussianSampler(condition_on_treatment=condition)
            boosting = BoostingSampler(condition_on_treatment=condition)
            if getattr(self, "whole_groups_", False):
                for sampler in (gaussian, boosting):
                    sampler.assign_folds(self.assigned_folds_[rows], whole_groups=True)
            self.trial_ = (
                gaussian.fit(table, treatment, first, weights),
                boosting.fit(table, treatment, second, weights),
            )
        self.screen_ = _Screen(self.trial_[0])
        return self

    def law(self, feature: int) -> FeatureLaw:
        """Fit the law of one feature that fits it better; one of many levels has the same with both."""
        if feature in self.table_.level_columns:
            return self.gaussian_.law(feature)
        sampler, chosen = self._choice(feature)
        return chosen if sampler in self.trial_ else sampler.law(feature)

    def rule(self, feature: int) -> LawRule:
        """The same for rows that were not in the table; the calibration is that of the choice."""
        if feature in self.table_.level_columns:
            return self.gaussian_.rule(feature)
        sampler, chosen = self._choice(feature)
        return sampler.rule(feature, chosen.calibration)

    def _choice(self, feature: int) -> tuple[GaussianSampler | BoostingSampler, FeatureLaw]:
        """The better sampler, and its law on the rows that the choice was made on."""
        linear, linear_score = self.trial_[0].scored_law(feature)
        chosen = linear
        if self.screen_.suspects(feature, linear):
            boosted, boosted_score = self.trial_[1].scored_law(feature)
            gain, error = _mean_and_error(boosted_score - linear_score, self.trial_[0].weights_)
            failed = linear.calibration.pit_p_value < MISFIT_LEVEL <= boosted.calibration.pit_p_value
            if gain > error or failed:
                chosen = boosted
        return self.gaussian_ if chosen is linear else self.boosting_, chosen


class _Screen:
    """Score tests of the gaussian laws' residuals: is there anything that trees could find?

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
        """Whether the gaussian law of a feature shows any sign of misfit."""
        column = self.table.values[:, feature]
        if isinstance(law, NormalLaw):
            if law.calibration.pit_p_value < SHAPE_LEVEL or column_atoms(column).size:
                return True
            residual = (column - law.mean) / law.scale
            if _normality(residual, self.weights) < SCREEN_LEVEL:
                return True
            spread = np.abs(residual) - mean_of(np.abs(residual), self.weights)
            constant = np.ones(column.size)
            variance = spread.var() if self.weights is None else mean_of(spread**2, self.weights)
            return (
                self._curve(feature, law.mean, residual, constant)
                or self._curve(feature, law.mean, spread, np.full(column.size, variance))
                or self._product(feature, residual, constant)
            )
        assert isinstance(law, CategoricalLaw)
        below = np.column_stack((np.zeros(column.size), law.cumulative, np.ones(column.size)))
        for code, probability in enumerate(np.diff(below, axis=1).T):
            residual, variance = (column == code).astype(np.float64) - probability, probability * (1.0 - probability)
            if self._curve(feature, probability, residual, variance) or self._product(feature, residual, variance):
                return True
            if below.shape[1] == 3:  # with two categories the second residual is the first with its sign changed
                break
        return False

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
        """Whether the residuals go with the product of any two other columns."""
        kept = np.ones(self.columns.shape[1], dtype=bool)
        kept[self.table.encoding[feature]] = False
        columns = self.columns
        if self.association is not None:  # all products would cost the square of their number for every feature
            order = self.association.order(residual[:, None])
            near = order[kept[order]][:N_NEIGHBOURS]
            columns, kept = columns[:, near], kept[near]
        residual, variance = self._weighted(residual, variance)
        squares = columns**2
        sums = columns.T @ (residual[:, None] * columns)
        size = squares.T @ (variance[:, None] * squares)
        largest = _squared_ratio(sums, size)[np.ix_(kept, kept)].max(initial=0.0)
        n_pairs = max(kept.sum() * (kept.sum() + 1) / 2, 1.0)
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
