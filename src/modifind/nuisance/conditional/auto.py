"""Choice between samplers, feature by feature."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import chdtrc

from modifind._typing import Array, Ints
from modifind.data.feature_matrix import FeatureTable
from modifind.data.weights import Weights
from modifind.nuisance.conditional.base import CategoricalConditional, NormalConditional, WindowConditional
from modifind.nuisance.conditional.boosting import BoostingSampler
from modifind.nuisance.conditional.contract import ConditionalRule
from modifind.nuisance.conditional.gaussian import GaussianSampler
from modifind.nuisance.conditional.level_conditional import ScoredSampler
from modifind.nuisance.conditional.pit import column_atoms
from modifind.nuisance.conditional.sampler import BaseSampler, fit_copy
from modifind.nuisance.conditional.splines import SplineSampler
from modifind.nuisance.regression.misfit import Misfit

KINDS: tuple[type[ScoredSampler], ...] = (GaussianSampler, SplineSampler, BoostingSampler)  # the plainest comes first
MISFIT_LEVEL = 0.01
SHAPE_LEVEL = 0.05
SCREEN_LEVEL = 0.01
CHOICE_ROWS = 10_000
MAX_CHOICE_ROWS = 20_000  # beyond, the choice is made on CHOICE_ROWS


class AutoSampler(BaseSampler):
    """The gaussian, the spline or the boosting sampler, whichever predicts held-out rows of the feature better.

    A richer distribution is taken when its held-out log-score is better by more than one standard error of the
    difference, or when the plainer distribution fails its own held-out calibration test at 1% and the richer one
    passes: a wrong shape costs little log-score but makes p-values too small.

    Splines are fitted only where they could win: where the column has an atom, where the residuals of the gaussian
    distribution are not normal, or where tests of those residuals against bins and products of the other features find
    a curve, an interaction or a spread that varies. Trees are grown only where the same tests find something that the
    splines left. These tests see far weaker departures than those that make a richer distribution worth its noise.
    Above 20,000 rows the choice is made on 10,000 of them, drawn at random; the chosen distribution is fitted on all.
    Above 100 columns, products are formed only of the 60 columns most associated with the residuals.

    Parameters
    ----------
    condition_on_treatment : bool, default=True
        Whether the treatment is among the conditioning variables.

    Examples
    --------
    >>> from modifind.data.schema import read_features
    >>> x = np.random.default_rng(0).normal(size=(400, 4))
    >>> x[:, 3] += x[:, 1] + x[:, 2] ** 2
    >>> sampler = AutoSampler().fit(read_features(x), np.arange(400) % 2, np.random.SeedSequence(0))
    >>> [sampler.conditional(m).calibration.sampler for m in (0, 3)]
    ['gaussian', 'splines']
    """

    name = "auto"
    learns = True

    def _prepare(self, seed: np.random.SeedSequence) -> None:
        """Hand the data to the candidates."""
        table, treatment, weights = self.table_, self.treatment_, self.weights_
        first, second = seed.spawn(2)
        self.candidates_ = self._fitted(table, treatment, first, weights, self.assigned_folds_)
        self.trial_ = self.candidates_
        if table.n_rows > MAX_CHOICE_ROWS:
            rows_seed, second = second.spawn(2)
            rows = np.sort(np.random.default_rng(rows_seed).choice(table.n_rows, CHOICE_ROWS, replace=False))
            table, treatment = replace(table, values=table.values[rows]), treatment[rows]
            weights = weights[rows].scaled
            folds = self.assigned_folds_[rows] if self.whole_clusters_ and self.assigned_folds_ is not None else None
            self.trial_ = self._fitted(table, treatment, second, weights, folds)
        self.screen_ = _Screen(self.trial_[0])

    def _fitted(
        self, table: FeatureTable, treatment: Ints, seed: np.random.SeedSequence, weights: Weights, folds: Ints | None
    ) -> tuple[ScoredSampler, ...]:
        """The candidates, from the plainest to the richest."""
        blank = [kind(condition_on_treatment=self.condition_on_treatment) for kind in KINDS]
        return tuple(
            fit_copy(sampler, table, treatment, child, weights, folds, self.whole_clusters_)
            for sampler, child in zip(blank, seed.spawn(len(KINDS)), strict=True)
        )

    def rule(self, feature: int) -> ConditionalRule:
        """Learn the distribution that fits the feature better; one of many levels has the same with all."""
        if feature in self.table_.level_columns:
            return self.candidates_[0].rule(feature)
        k, chosen = self._choose(feature)
        return chosen if self.trial_ is self.candidates_ else self.candidates_[k].rule(feature)

    def _choose(self, feature: int) -> tuple[int, ConditionalRule]:
        """The number of the best candidate, and what it has learned of the rows that the choice was made on."""
        chosen, score = self.trial_[0]._scored_rule(feature)
        best, last = 0, chosen
        for k in range(1, len(self.trial_)):
            if not self.screen_.suspects(feature, last):
                break
            last, richer = self.trial_[k]._scored_rule(feature)
            gain, error = self.trial_[0].weights_.mean_and_error(richer - score)
            failed = chosen.calibration.pit_p_value < MISFIT_LEVEL <= last.calibration.pit_p_value
            if gain > error or failed:
                best, chosen, score = k, last, richer
        return best, chosen


class _Screen:
    """Score tests of a distribution's residuals: is there anything that a richer distribution could find?

    Parameters
    ----------
    sampler : ScoredSampler
        The fitted sampler whose distributions are tested; its ridge regressions have the columns.
    """

    def __init__(self, sampler: Any) -> None:
        self.table = sampler.table_
        self.weights = sampler.weights_
        self.misfit = Misfit(sampler.ridge_.columns, self.weights)

    def suspects(self, feature: int, rule: Any) -> bool:
        """Whether a feature's distribution shows any sign of misfit."""
        column, conditional = self.table.values[:, feature], rule.fitted
        if isinstance(conditional, NormalConditional):
            residual = (column - conditional.mean) / conditional.scale
            shape = rule.calibration.pit_p_value < SHAPE_LEVEL or column_atoms(column).size
            shape = shape or _normality(residual, self.weights) < SCREEN_LEVEL
            return bool(shape) or self._follows(feature, conditional.mean, residual)
        if isinstance(conditional, WindowConditional):
            if not conditional.shift.any():  # values of similar rows: their mean is all that there is to test
                return True
            return self._follows(feature, conditional.shift, (column - conditional.shift) / conditional.scale)
        assert isinstance(conditional, CategoricalConditional)
        chances = conditional.grid(slice(None))[1].T
        # With two categories the second residual is the first with its sign changed.
        shown = enumerate(chances[:1] if len(chances) == 2 else chances)
        return any(self._strays(feature, p, (column == code) - p, p * (1.0 - p)) for code, p in shown)

    def _follows(self, feature: int, predicted: Array, residual: Array) -> bool:
        """Whether residuals in units of their scale, or their size, follow other columns."""
        residual = residual - self.weights.mean(residual)
        spread = np.abs(residual) - self.weights.mean(np.abs(residual))
        variances = [np.full(residual.size, self.weights.mean(terms**2)) for terms in (residual, spread)]
        columns = self.table.encoding[feature]
        return (
            self._strays(feature, predicted, residual, variances[0])
            or self.misfit.curve(spread, variances[1], predicted, columns) < SCREEN_LEVEL
        )

    def _strays(self, feature: int, predicted: Array, residual: Array, variance: Array) -> bool:
        """Whether residuals follow bins or products of other columns."""
        columns = self.table.encoding[feature]
        return (
            self.misfit.curve(residual, variance, predicted, columns) < SCREEN_LEVEL
            or self.misfit.product(residual, variance, columns) < SCREEN_LEVEL
        )


def _normality(residual: Array, weights: Weights) -> float:
    """P-value of the test of Jarque and Bera, for as many rows as the weights are worth."""
    centred = residual - weights.mean(residual)
    variance, third, fourth = (weights.mean(centred**power) for power in (2, 3, 4))
    statistic = weights.effective_size / 6 * (third**2 / variance**3 + (fourth / variance**2 - 3) ** 2 / 4)
    return float(chdtrc(2, statistic))
