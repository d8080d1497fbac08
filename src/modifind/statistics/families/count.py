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
from modifind.statistics.families.contract import Family, Origin, in_origin
from modifind.statistics.families.links import IDENTITY, Link

LEAST_MEAN = 1e-3
LEAST_DISPERSION, MOST_DISPERSION = 1e-3, 50.0
MOST_ROWS = 50_000  # that a dispersion is found from
WILD = 0.25  # of the sum of all: where a row has more, counts are cut
CUT_SHARES = 10  # in so many shares the sum is cut, and no row has more than one
LEAST_CUT = 0.98  # quantile that counts are never cut below


@dataclass(frozen=True)
class Count(Family):
    """A negative binomial variable, whose variance is ``mean + dispersion * mean ** 2``; Poisson where that is zero.

    Attributes
    ----------
    link : Link
        Of effects.
    dispersion : float
        The same in both arms: one that differed by chance would find a difference between arms that are alike.
    most : float
        Counts above are taken as this one. Models of means follow a row that has much of the sum of all, and what they
        learn from it fits no other row.

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

    @classmethod
    def of(cls, y: Array, link: Link = IDENTITY) -> Self:
        """Of whole numbers, none of them negative."""
        return cls(link, most=_most(y)).checked(y)

    def checked(self, y: Array) -> Self:
        """The family itself; refuses what is no count."""
        bad = (y < 0) | (y != np.rint(y))
        if bad.any():
            found = counted(int(bad.sum()), "value of y is not, such as", "values of y are not, such as")
            raise ValueError(
                f"outcome='count' needs whole numbers, 0 or more; {found} {y[bad][0]:g}. Use outcome='numeric' for "
                "numbers and outcome='amount' for amounts"
            )
        return self

    def coded(self, y: Array) -> Array:
        """As it is, once it has been seen to be a count, and no larger than `most`."""
        self.checked(y)
        return np.minimum(y, self.most)

    def as_number(self, y: Array) -> Array:
        """The square root, whose variance does not follow the mean."""
        return np.sqrt(y)

    def fitted(self, y: Array, location: Array, scale: Array, weights: Weights | None = None) -> Self:
        """With the dispersion of greatest likelihood."""
        rows = random_rows(y.size, MOST_ROWS)
        seen, mean, own = y[rows], location[rows], Weights.of(weights, y.size)[rows]

        def loss(log_dispersion: float) -> float:
            density = replace(self, dispersion=float(np.exp(log_dispersion))).log_density(seen, mean, 1.0, np.inf)
            return -float(own.mean(density))

        bounds = float(np.log(LEAST_DISPERSION)), float(np.log(MOST_DISPERSION))
        best = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-3})
        plain = replace(self, dispersion=0.0)
        none = -float(own.mean(plain.log_density(seen, mean, 1.0, np.inf)))
        return plain if none <= best.fun else replace(self, dispersion=float(np.exp(best.x)))

    def eta(self, location: Array) -> Array:
        """Of a mean that is above zero."""
        return self.link.eta(np.maximum(location, LEAST_MEAN))

    def location(self, eta: Array) -> Array:
        """A mean above zero."""
        return np.maximum(self.link.location(eta), LEAST_MEAN)

    def log_density(self, y: Array, location: Array | float, scale: Array | float, shape: Array | float) -> Array:
        """Negative binomial, or Poisson."""
        mean = np.maximum(location, LEAST_MEAN)
        if not self.dispersion:
            return y * np.log(mean) - mean - gammaln(y + 1.0)
        size = 1.0 / self.dispersion
        ways = gammaln(y + size) - gammaln(size) - gammaln(y + 1.0)
        return ways - size * np.log1p(mean / size) - y * np.log1p(size / mean)

    def residual(self, y: Array, location: Array, scale: Array | float) -> Array:
        """Count less mean."""
        return y - location

    def marginal(self, y: Array, least_scale: float) -> tuple[float, float, float]:
        """The mean."""
        return max(float(y.mean()), LEAST_MEAN), 1.0, np.inf

    def expected(
        self, location: Array, scale: Array, shape: float, marks: Array, y: Array, weights: Array, origin: Origin
    ) -> Array:
        """From the distribution function."""
        mean = np.maximum(location, LEAST_MEAN)
        most = np.floor(origin[0] + origin[1] * marks + 1e-9)
        at = np.maximum(most, 0.0)
        if self.dispersion:
            below = betainc(1.0 / self.dispersion, at + 1.0, 1.0 / (1.0 + self.dispersion * mean[:, None]))
        else:
            below = gammaincc(at + 1.0, mean[:, None])
        square = mean + (1.0 + self.dispersion) * mean**2
        return in_origin(mean, square, np.where(most >= 0, below, 0.0), origin)

    def variance(self, location: Array, scale: Array) -> Array:
        """That of a count, over the square of the slope."""
        mean = np.maximum(location, LEAST_MEAN)
        return (mean + self.dispersion * mean**2) / self.link.slope(mean) ** 2

    def log_density_and_scores(
        self, y: Array, eta: Array, log_scale: Array, shape: float
    ) -> tuple[Array, tuple[Array, ...]]:
        """The only score is that of the mean on the scale of effects."""
        mean = self.location(eta)
        score = (y - mean) / (mean + self.dispersion * mean**2) * self.link.slope(mean)
        return self.log_density(y, mean, 1.0, shape), (score,)


def _most(y: Array) -> float:
    """Where counts are cut so that no row has more than a tenth of their sum; infinity where no row has a quarter.

    Examples
    --------
    >>> _most(np.repeat([1.0, 10_000.0], [900, 1])), _most(np.ones(5)), _most(np.repeat([0.0, 8.0], [95, 5]))
    (100.0, inf, inf)
    """
    total = y.sum()
    if not y.max() > WILD * total:
        return np.inf
    largest = np.sort(y)[::-1][:CUT_SHARES]
    rest = total - np.concatenate(([0.0], np.cumsum(largest)[:-1]))
    limits = rest / (CUT_SHARES - np.arange(largest.size))
    first = int(np.argmax(limits >= largest))  # the largest count that is not cut
    return max(float(np.floor(limits[first])), float(np.quantile(y, LEAST_CUT, method="lower")), 1.0)
