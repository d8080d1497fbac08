"""Counts. The location is the mean; effects are rate ratios or differences of means."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import betainc, gammaincc, gammaln

from modifind._typing import Array
from modifind.data.weights import Weights
from modifind.data.wording import counted
from modifind.nuisance.regression.blocks import random_rows
from modifind.statistics.families.contract import MeanFamily
from modifind.statistics.families.links import IDENTITY, Link

MIN_MEAN = 1e-3
MIN_DISPERSION, MAX_DISPERSION = 1e-3, 50.0
MAX_FITTED_ROWS = 50_000  # that the dispersion is estimated from
MAX_SINGLE_SHARE = 0.25  # of the sum of all: where a row has more, counts are cut
CUT_SHARES = 10  # no row keeps more than one of so many shares of the sum
MIN_CUT_QUANTILE = 0.98  # counts are never cut below it


@dataclass(frozen=True)
class Count(MeanFamily):
    """A negative binomial variable, whose variance is ``mean + dispersion * mean ** 2``; Poisson where that is zero.

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
        """The family of whole numbers, none of them negative; its dispersion is yet to be `fitted`."""
        family = cls(link, most=_largest_kept(y))
        family.coded(y)
        return family

    def coded(self, y: Array) -> Array:
        """Counts, none larger than `most`; other numbers are refused."""
        bad = (y < 0) | (y != np.rint(y))
        if bad.any():
            how_many = counted(int(bad.sum()), "value of y is not, such as", "values of y are not, such as")
            raise ValueError(
                f"outcome='count' needs whole numbers, 0 or more; {how_many} {y[bad][0]:g}. Use outcome='numeric' for "
                "numbers and outcome='amount' for amounts"
            )
        return np.minimum(y, self.most)

    def as_number(self, y: Array) -> Array:
        """The square root, whose variance does not follow the mean."""
        return np.sqrt(y)

    def fitted(self, y: Array, location: Array, scale: Array, weights: Weights | None = None) -> Self:
        """The same with the dispersion of greatest likelihood."""
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
        """The mean, kept above zero, on the scale of effects."""
        return self.link.eta(np.maximum(location, MIN_MEAN))

    def log_density(self, y: Array, location: Array | float, scale: Array | float, shape: Array | float) -> Array:
        """Negative binomial, or Poisson."""
        mean = np.maximum(location, MIN_MEAN)
        if not self.dispersion:
            return y * np.log(mean) - mean - gammaln(y + 1.0)
        size = 1.0 / self.dispersion
        ways = gammaln(y + size) - gammaln(size) - gammaln(y + 1.0)
        return ways - size * np.log1p(mean / size) - y * np.log1p(size / mean)

    def outcome_variance(self, location: Array) -> Array:
        """The mean, and what the dispersion adds."""
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
    """Where counts are cut so that no row has more than a tenth of their sum; infinity where no row has a quarter.

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
