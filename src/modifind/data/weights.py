"""Row weights, and the target population of effects.

Where an arm has hardly any rows of some kind, an average over all rows depends on those few, or on a model. In the
*overlap population* a row counts with ``e (1 - e)``, where e is its probability of treatment: most where both arms are
equally likely, and hardly where one is almost certain. No inverse of a small probability remains: a treated row counts
with ``1 - e`` and a control row with e (Li, Morgan and Zaslavsky 2018). In a trial with one probability for all, both
populations are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import has_fit_parameter

from modifind._typing import Array
from modifind._warned import warn
from modifind.data.column_types import unfit_kind
from modifind.data.words import counted, gaps

LARGEST_WEIGHT = 1e100  # squares must not overflow


@dataclass(frozen=True, eq=False)
class Weights:
    """One weight per row; ones if rows are unweighted.

    Attributes
    ----------
    values : array of shape (n,)
        The numbers.
    uniform : bool
        Whether rows count alike; the numbers are then ones.

    Examples
    --------
    >>> weights = Weights.of(np.array([2.0, 1.0, 1.0, 0.0]))
    >>> float(weights.mean(np.array([1.0, 2.0, 4.0, 8.0]))), weights.effective_size
    (2.0, 2.6666666666666665)
    >>> float(Weights.alike(3).mean(np.array([1.0, 2.0, 6.0]))), Weights.alike(3).argument()
    (3.0, {})
    """

    values: Array
    uniform: bool

    @classmethod
    def alike(cls, n_rows: int) -> Weights:
        """Uniform weights."""
        return cls(np.ones(n_rows), uniform=True)

    @classmethod
    def of(cls, values: GivenWeights, n_rows: int = 0) -> Weights:
        """Weights from one number per row, or uniform ones from None for `n_rows` rows."""
        if isinstance(values, Weights):
            return values
        return cls.alike(n_rows) if values is None else cls(np.asarray(values, dtype=np.float64), uniform=False)

    def __getitem__(self, rows: Any) -> Weights:
        """Weights of a subset of the rows."""
        return Weights(self.values[rows], self.uniform)

    def __len__(self) -> int:
        return self.values.size

    def times(self, values: Array) -> Array:
        """Values of rows (first axis) times their weights; the values themselves if uniform."""
        return values if self.uniform else self.values.reshape(-1, *(1,) * (values.ndim - 1)) * values

    def total(self, values: Array) -> Any:
        """Weighted sum over the first axis."""
        return values.sum(axis=0) if self.uniform else self.values @ values

    def mean(self, values: Array) -> Any:
        """Weighted mean over the first axis."""
        return self.total(values) / self.sum

    def mean_and_error(self, values: Array) -> tuple[float, float]:
        """Weighted mean over rows and its standard error."""
        mean = float(self.mean(values))
        return mean, float(np.sqrt(self.values**2 @ (values - mean) ** 2) / self.sum)

    def quantiles(self, values: Array, shares: Array) -> Array:
        """Weighted quantiles, by a distribution function that rises by its weight at each value.

        It is interpolated linearly between the midpoints of successive steps.

        Examples
        --------
        >>> Weights.of(np.array([0.1, 1.0, 0.1])).quantiles(np.array([3.0, 1.0, 2.0]), np.array([0.5]))
        array([1.18181818])
        """
        if self.uniform:
            return np.quantile(values, shares)
        order = np.argsort(values, kind="stable")
        steps = np.cumsum(self.values[order])
        middles = (steps - self.values[order] / 2) / steps[-1]
        return np.interp(shares, middles, values[order])

    def shares(self, codes: NDArray[Any], n_codes: int) -> Array:
        """Share of the total weight with each code."""
        return np.bincount(codes.astype(np.intp), self.values, minlength=n_codes) / self.sum

    def representative(self, values: Array, size: int) -> Array:
        """`size` values that represent the weighted ones: one per equal part of the weight, ascending.

        If `size` is the number of rows and weights are uniform, these are the values themselves.

        Examples
        --------
        >>> Weights.of(np.array([1.5, 0.5])).representative(np.array([5.0, 1.0]), 4)
        array([1., 5., 5., 5.])
        """
        if self.uniform and size == values.size:
            return values
        order = np.argsort(values, kind="stable")
        steps = np.cumsum(self.values[order])
        positions = np.searchsorted(steps, (np.arange(size) + 0.5) / size * steps[-1], side="right")
        return values[order][np.minimum(positions, values.size - 1)]

    @cached_property
    def sum(self) -> float:
        """Sum of the weights."""
        return float(self.values.sum())

    @property
    def effective_size(self) -> float:
        """Kish's effective number of rows, ``(sum w)^2 / sum w^2``."""
        return float(self.sum**2 / (self.values**2).sum())

    @property
    def freedom(self) -> float:
        """Degrees of freedom of a weighted variance over rows; infinite if weights are uniform."""
        return np.inf if self.uniform else self.effective_size - 1.0

    @property
    def scaled(self) -> Weights:
        """The same weights scaled to mean 1."""
        return Weights(self.values / self.values.mean(), self.uniform)

    @property
    def effective(self) -> Weights:
        """The same weights scaled to add up to the effective number of rows, for penalised fits.

        Weights that add up to the number of rows would make such a fit overconfident.
        """
        return Weights(self.values * (self.sum / (self.values**2).sum()), self.uniform)

    @property
    def root(self) -> Weights:
        """Square roots of the weights."""
        return Weights(np.sqrt(self.values), self.uniform)

    @property
    def given(self) -> Array | None:
        """The weights as user-defined objects take them; None if uniform."""
        return None if self.uniform else self.values

    def argument(self, name: str = "sample_weight") -> dict[str, Array]:
        """Keyword argument of a `fit`; empty if uniform, so that a user's object need not support weights."""
        return {} if self.uniform else {name: self.values}


GivenWeights: TypeAlias = Weights | Array | None  # as parts with a contract of users take them


def weight_numbers(column: pd.Series[Any]) -> Array:
    """Weights as numbers, NaN where missing."""
    numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column)
    if not numeric and not pd.api.types.is_string_dtype(column) and column.dtype != object:
        raise ValueError(f"sample_weight must be numeric; found {unfit_kind(column) or column.dtype}")
    try:
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise ValueError("sample_weight must be numeric; found text") from None


@dataclass(frozen=True)
class WeightSums:
    """Sums of weights and counts of invalid ones; sums of disjoint rows can be added."""

    n_missing: int
    n_infinite: int
    n_negative: int
    n_zero: int
    largest: float
    total: float
    squares: float  # of their shares of the largest, which neither overflow nor vanish

    @classmethod
    def of(cls, weights: Array) -> WeightSums:
        """Sums over some rows."""
        known = weights[np.isfinite(weights)]
        missing = int(np.isnan(weights).sum())
        infinite = weights.size - known.size - missing
        counts = (missing, infinite, int((known < 0).sum()), int((known == 0).sum()))
        largest = float(known.max(initial=0.0))
        with np.errstate(over="ignore"):
            return cls(*counts, largest, float(known.sum()), float(((known / (largest or 1.0)) ** 2).sum()))

    def __add__(self, other: WeightSums) -> WeightSums:
        """Add the sums of other rows."""
        added = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        largest = max(self.largest, other.largest)
        squares = sum(sums.squares * (sums.largest / (largest or 1.0)) ** 2 for sums in (self, other))
        return WeightSums(**(added | {"largest": largest, "squares": squares}))

    def check(self) -> None:
        """Refuse missing, infinite, negative or all-zero weights."""
        if self.n_missing or self.n_infinite:
            what = gaps(self.n_missing, self.n_infinite)
            raise ValueError(f"sample_weight has {what}; drop such rows or give them weight 0")
        if self.n_negative:
            what = counted(self.n_negative, "negative value")
            raise ValueError(f"sample_weight has {what}; a row that should not count has weight 0")
        if not self.largest > 0:
            raise ValueError("sample_weight is zero in every row; at least some rows must count")
        if self.largest > LARGEST_WEIGHT:
            raise ValueError(f"sample_weight has values beyond {LARGEST_WEIGHT:g}; rescale it, only ratios matter")

    @property
    def effective_size(self) -> float:
        """Kish's effective number of rows."""
        return (self.total / self.largest) ** 2 / self.squares


def check_takes_weights(estimator: Any, what: str) -> None:
    """Refuse a user's object whose `fit` does not accept weights."""
    if not has_fit_parameter(estimator, "sample_weight"):
        what = f"{what} {type(estimator).__name__} does not support sample_weight in fit"
        raise ValueError(f"{what}; choose one that does, or leave sample_weight out")


def check_sampler_weights(sampler: Any) -> None:
    """Refuse a user's sampler whose `fit` does not accept weights."""
    if not has_fit_parameter(sampler, "weights"):
        what = f"sampler {type(sampler).__name__} does not support weights in fit, which sample_weight requires"
        raise ValueError(f"{what}; choose one that does, or leave sample_weight out")


def warn_resampled_weights() -> None:
    """Warn if features are resampled from a weighted table."""
    warn(
        "'wcmmd' with sample weights: p-values are valid only if the weights do not depend on the tested feature given "
        "the others; effect_likelihood does not need that",
    )


POPULATIONS = ("all", "overlap")


SHORT_NAMES = {"all": "all rows", "overlap": "overlap population"}


def check_population(population: Any) -> None:
    """Refuse an unknown population."""
    if population not in POPULATIONS:
        raise ValueError(f"population must be 'all' or 'overlap', not {population!r}")


def row_weights(scores: Array, population: str) -> Array:
    """Population weight of a row by its probability of treatment, scaled to 1 at even odds.

    Examples
    --------
    >>> row_weights(np.array([0.5, 0.1]), "overlap")
    array([1.  , 0.36])
    """
    return 4.0 * scores * (1.0 - scores) if population == "overlap" else np.ones(scores.shape)


def population_weights(scores: Array, population: str, weights: Weights) -> Weights:
    """Row weights times the weights that define a population."""
    return weights if population == "all" else Weights.of(weights.times(row_weights(scores, population)))
