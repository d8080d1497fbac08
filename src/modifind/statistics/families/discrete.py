"""Discrete outcomes: binary, counts and ordered levels.

For binary outcomes the location is the probability of the larger value, and effects are risk differences, risk ratios
or odds ratios. For counts it is the mean, and effects are rate ratios or differences of means. For ordered levels it is
the log-odds of higher ones, and effects are odds ratios common to all levels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import betainc, gammaincc, gammaln

from modifind._typing import Array
from modifind.data.weights import Weights
from modifind.data.words import counted
from modifind.nuisance.outcome.generalised import cumulative_probabilities, fit_thresholds, index_information
from modifind.nuisance.regression.penalised import random_rows
from modifind.statistics.families.contract import IDENTITY, LINKS, Family, Link, MeanFamily, Origin

MIN_RISK = 1e-3  # probabilities are kept this far from 0 and 1
MIN_RATIO_RISK = 1e-4  # the same where their ratios matter


@dataclass(frozen=True)
class Bernoulli(MeanFamily):
    """Binary outcomes; coded 1 for the larger value.

    Attributes
    ----------
    link : Link
        Of effects.
    middle : float
        A number between the two values.

    Examples
    --------
    >>> coin = Bernoulli.of(np.array([2.0, 1.0]))
    >>> coin.coded(np.array([2.0, 1.0])).tolist(), coin.variance(np.array([0.5]), np.ones(1)).tolist()
    ([1.0, 0.0], [0.25])
    """

    link: Link = IDENTITY
    middle: float = 0.5

    name = "bernoulli"
    kind = "binary"
    chances = True
    scales = ("difference", "ratio", "odds_ratio")

    @property
    def bounds(self) -> tuple[float, float]:
        """Zero and one, with a margin."""
        margin = MIN_RISK if self.link == IDENTITY else MIN_RATIO_RISK
        return margin, 1 - margin

    @classmethod
    def of(cls, y: Array, link: Link = IDENTITY) -> Self:
        """The family for an outcome with two values."""
        low, high = float(y.min()), float(y.max())
        if not ((y == low) | (y == high)).all():
            raise ValueError(f"outcome='binary' needs an outcome of two values; found {np.unique(y).size} in y")
        return cls(link, low + (high - low) / 2)

    def coded(self, y: Array) -> Array:
        """1 for the larger value, 0 for the other."""
        return (y > self.middle).astype(np.float64)

    def log_density(self, y: Array, location: Array | float, scale: Array | float, shape: Array | float) -> Array:
        """Log-probability of the observed value."""
        probability = np.clip(location, *self.bounds)
        return np.where(y > 0.5, np.log(probability), np.log1p(-probability))

    def outcome_variance(self, location: Array) -> Array:
        """Variance of the outcome, p (1 - p)."""
        return location * (1 - location)

    def at_most(self, marks: Array, location: Array) -> Array:
        """The probability of 0 below 1, and certainty from there on."""
        return np.where(marks < 1, 1.0 - location, 1.0)

    def expected(
        self, location: Array, scale: Array, shape: float, marks: Array, y: Array, weights: Array, origin: Origin
    ) -> Array:
        """Expectations from the two original values of y."""
        low, high = y.min(), y.max()
        mean = low + (high - low) * location
        square = low**2 + (high**2 - low**2) * location
        return np.column_stack((mean, square, self.at_most((marks >= high).astype(np.float64), location[:, None])))


MIN_MEAN = 1e-3
MIN_DISPERSION, MAX_DISPERSION = 1e-3, 50.0
MAX_FITTED_ROWS = 50_000  # that the dispersion is estimated from
MAX_SINGLE_SHARE = 0.25  # of the sum of all: where a row has more, counts are cut
CUT_SHARES = 10  # no row keeps more than one of so many shares of the sum
MIN_CUT_QUANTILE = 0.98  # counts are never cut below it


@dataclass(frozen=True)
class Count(MeanFamily):
    """Negative binomial counts with variance ``mean + dispersion * mean ** 2``; Poisson if the dispersion is zero.

    Attributes
    ----------
    link : Link
        Of effects.
    dispersion : float
        The same in both arms: one that differed by chance would find a difference between arms that are alike.
    most : float
        Larger counts are taken as this one. Models of means follow a row that has much of the sum of all, and what
        they learn from it fits no other row.

    Examples
    --------
    >>> Count(dispersion=0.5).variance(np.array([2.0]), np.ones(1)).tolist()
    [4.0]
    """

    link: Link = IDENTITY
    dispersion: float = 0.0
    most: float = np.inf

    name = "negative binomial"
    kind = "count"
    scales = ("difference", "ratio")
    bounds = (MIN_MEAN, np.inf)

    @classmethod
    def of(cls, y: Array, link: Link = IDENTITY) -> Self:
        """The family of non-negative whole numbers; its dispersion must still be `fitted`."""
        family = cls(link, most=_largest_kept(y))
        family.coded(y)
        return family

    def coded(self, y: Array) -> Array:
        """Counts, capped at `most`; other numbers are refused."""
        bad = (y < 0) | (y != np.rint(y))
        if bad.any():
            how_many = counted(int(bad.sum()), "value of y is not, such as", "values of y are not, such as")
            raise ValueError(
                f"outcome='count' needs whole numbers, 0 or more; {how_many} {y[bad][0]:g}. Use outcome='numeric' for "
                "numbers and outcome='amount' for amounts"
            )
        return np.minimum(y, self.most)

    def as_number(self, y: Array) -> Array:
        """Square root, whose variance hardly depends on the mean."""
        return np.sqrt(y)

    def fitted(self, y: Array, location: Array, scale: Array, weights: Weights | None = None) -> Self:
        """The same family with the maximum likelihood dispersion."""
        rows = random_rows(y.size, MAX_FITTED_ROWS)
        counts, mean, row_weights = y[rows], location[rows], Weights.of(weights, y.size)[rows]

        def loss(dispersion: float) -> float:
            density = replace(self, dispersion=dispersion).log_density(counts, mean, 1.0, np.inf)
            return -float(row_weights.mean(density))

        bounds = float(np.log(MIN_DISPERSION)), float(np.log(MAX_DISPERSION))
        settings = {"bounds": bounds, "method": "bounded", "options": {"xatol": 1e-3}}
        best = minimize_scalar(lambda log_dispersion: loss(float(np.exp(log_dispersion))), **settings)
        return replace(self, dispersion=0.0 if loss(0.0) <= best.fun else float(np.exp(best.x)))

    def eta(self, location: Array) -> Array:
        """The mean, kept above zero, on the effect scale."""
        return self.link.eta(np.maximum(location, MIN_MEAN))

    def log_density(self, y: Array, location: Array | float, scale: Array | float, shape: Array | float) -> Array:
        """Negative binomial or Poisson log-density."""
        mean = np.maximum(location, MIN_MEAN)
        if not self.dispersion:
            return y * np.log(mean) - mean - gammaln(y + 1.0)
        size = 1.0 / self.dispersion
        ways = gammaln(y + size) - gammaln(size) - gammaln(y + 1.0)
        return ways - size * np.log1p(mean / size) - y * np.log1p(size / mean)

    def outcome_variance(self, location: Array) -> Array:
        """The mean plus the overdispersion."""
        return location + self.dispersion * location**2

    def at_most(self, marks: Array, location: Array) -> Array:
        """The distribution function."""
        whole = np.floor(marks + 1e-9)
        counts = np.maximum(whole, 0.0)
        if self.dispersion:
            below = betainc(1.0 / self.dispersion, counts + 1.0, 1.0 / (1.0 + self.dispersion * location))
        else:
            below = gammaincc(counts + 1.0, location)
        return np.where(whole >= 0, below, 0.0)


def _largest_kept(y: Array) -> float:
    """Cap that limits any row to a tenth of the sum of counts; infinite unless a row has a quarter of it.

    Examples
    --------
    >>> _largest_kept(np.repeat([1.0, 10_000.0], [900, 1])), _largest_kept(np.repeat([0.0, 8.0], [95, 5]))
    (100.0, inf)
    """
    total = y.sum()
    if not y.max() > MAX_SINGLE_SHARE * total:
        return np.inf
    largest = np.sort(y)[::-1][:CUT_SHARES]
    rest = total - np.concatenate(([0.0], np.cumsum(largest)[:-1]))
    limits = rest / (CUT_SHARES - np.arange(largest.size))
    first = int(np.argmax(limits >= largest))  # the largest count that is not cut
    return max(float(np.floor(limits[first])), float(np.quantile(y, MIN_CUT_QUANTILE, method="lower")), 1.0)


MAX_OUTCOME_LEVELS = 10
MIN_LEVEL_CHANCE = 1e-9


@dataclass(frozen=True)
class Ordinal(Family):
    """Proportional odds: ``P(level <= k) = expit(c_k - location)``, with levels coded 0, 1, ...

    Attributes
    ----------
    levels : tuple of float
        Values of the outcome, ascending.
    thresholds : tuple of float
        The c_k, which both arms share.

    Examples
    --------
    >>> family = Ordinal.of(np.array([1.0, 5.0, 3.0]), LINKS["odds_ratio"])
    >>> family.coded(np.array([5.0, 1.0])).tolist()
    [2.0, 0.0]
    """

    link: Link = LINKS["odds_ratio"]
    levels: tuple[float, ...] = (0.0, 1.0)
    thresholds: tuple[float, ...] = (0.0,)

    name = "cumulative logit"
    kind = "ordinal"
    scales = ("odds_ratio",)

    @classmethod
    def of(cls, y: Array, link: Link) -> Self:
        """The family for 2 to 10 levels."""
        levels = np.unique(y)
        if levels.size > MAX_OUTCOME_LEVELS:
            raise ValueError(
                f"outcome='ordinal' takes at most {MAX_OUTCOME_LEVELS} ordered levels; found {levels.size} in y. Use "
                "outcome='numeric', or combine levels"
            )
        codes = np.searchsorted(levels, y).astype(np.float64)
        thresholds = fit_thresholds(codes, np.zeros(y.size), levels.size)
        return cls(link, tuple(levels.tolist()), tuple(thresholds.tolist()))

    def coded(self, y: Array) -> Array:
        """Ranks of the levels."""
        codes = np.minimum(np.searchsorted(self.levels, y), len(self.levels) - 1)
        unknown = np.array(self.levels)[codes] != y
        if unknown.any():
            raise ValueError(
                f"y has a level, {y[unknown][0]:g}, in too few rows for models to be fitted to; combine levels"
            )
        return codes.astype(np.float64)

    def fitted(self, y: Array, location: Array, scale: Array, weights: Weights | None = None) -> Self:
        """The same family with maximum likelihood thresholds."""
        rows = random_rows(y.size, MAX_FITTED_ROWS)
        thresholds = fit_thresholds(y[rows], location[rows], len(self.levels), Weights.of(weights, y.size)[rows])
        return replace(self, thresholds=tuple(thresholds.tolist()))

    def eta(self, location: Array) -> Array:
        """The location, which is a log-odds already."""
        return location

    def location(self, eta: Array) -> Array:
        """Eta itself."""
        return eta

    def log_density(self, y: Array, location: Array | float, scale: Array | float, shape: Array | float) -> Array:
        """Log-probability of the observed level."""
        above, below = cumulative_probabilities(y, np.asarray(location), np.array(self.thresholds))
        return np.log(np.maximum(above - below, MIN_LEVEL_CHANCE))

    def residual(self, y: Array, location: Array, scale: Array | float) -> Array:
        """Score of the location: probability of lower levels minus that of higher ones."""
        return np.add(*cumulative_probabilities(y, location, np.array(self.thresholds))) - 1.0

    def on_eta(self, y: Array, eta: Array, unit: Array | float, residual: Array) -> tuple[Array | float, Array]:
        """The residual is a score already; one unit of it moves eta by the variance."""
        return self.variance(eta, np.ones(1)), residual

    def marginal(self, y: Array, least_scale: float) -> tuple[float, float, float]:
        """Zero: thresholds alone describe the marginal distribution."""
        return 0.0, 1.0, np.inf

    def expected(
        self, location: Array, scale: Array, shape: float, marks: Array, y: Array, weights: Array, origin: Origin
    ) -> Array:
        """Expectations from the probabilities of the levels."""
        levels = (np.array(self.levels) - origin[0]) / origin[1]
        codes = np.arange(levels.size, dtype=np.float64)
        up, below = cumulative_probabilities(codes, location[:, None], np.array(self.thresholds))
        chances = up - below
        highest = np.searchsorted(levels, marks + 1e-9, side="right") - 1
        at_most = np.where(highest >= 0, up[:, np.maximum(highest, 0)], 0.0)
        return np.column_stack((chances @ levels, chances @ levels**2, at_most))

    def variance(self, location: Array, scale: Array) -> Array:
        """Inverse of the information on the log-odds."""
        return 1.0 / index_information(location, np.array(self.thresholds))
