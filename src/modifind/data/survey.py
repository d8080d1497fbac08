"""Sums, means and quantiles of rows that stand for different numbers of units of a population."""

from __future__ import annotations

from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array

Rows = TypeVar("Rows", bound=Any)


def effective_size(weights: Array) -> float:
    """Kish's effective number of rows, ``(sum w)^2 / sum w^2``.

    Examples
    --------
    >>> effective_size(np.array([1.0, 1.0, 1.0])), effective_size(np.array([2.0, 1.0, 1.0, 0.0]))
    (3.0, 2.6666666666666665)
    """
    return float(weights.sum() ** 2 / (weights**2).sum())


@overload
def effective_weights(weights: None) -> None: ...
@overload
def effective_weights(weights: Array) -> Array: ...
def effective_weights(weights: Array | None) -> Array | None:
    """Weights that add up to the effective number of rows, as penalised fits need them.

    Weights that add up to the number of rows would make such a fit too sure of its data.
    """
    return None if weights is None else weights * (weights.sum() / (weights**2).sum())


def fit_weights(weights: Array | None) -> dict[str, Array]:
    """The argument of a scikit-learn fit: nothing where there are no weights."""
    return {} if weights is None else {"sample_weight": weights}


def some(weights: Rows | None, rows: Any) -> Rows | None:
    """The weights of some rows, None where there are none."""
    return None if weights is None else weights[rows]


def mean_of(values: Array, weights: Array | None) -> Any:
    """Mean over the first axis."""
    if weights is None:
        return values.mean(axis=0)
    return weights @ values / weights.sum()


def shares_of(codes: Any, n_codes: int, weights: Array | None) -> Array:
    """Share of the rows, or of their weight, that has each code."""
    codes = np.asarray(codes).astype(np.intp)
    if weights is None:
        return np.bincount(codes, minlength=n_codes) / codes.size
    return np.bincount(codes, weights, minlength=n_codes) / weights.sum()


def quantiles_of(values: Array, shares: Array, weights: Array | None) -> Array:
    """Quantiles; with weights those of the distribution function that rises by its weight at each value.

    Between the middles of two such steps it is taken as a straight line.

    Examples
    --------
    >>> quantiles_of(np.array([3.0, 1.0, 2.0]), np.array([0.5]), np.array([0.1, 1.0, 0.1]))
    array([1.18181818])
    """
    if weights is None:
        return np.quantile(values, shares)
    order = np.argsort(values, kind="stable")
    steps = np.cumsum(weights[order])
    middles = (steps - weights[order] / 2) / steps[-1]
    return np.interp(shares, middles, values[order])


def representative_values(values: Array, weights: Array, size: int) -> Array:
    """`size` values in ascending order that stand for the weighted ones: one for every equal part of the weight.

    Examples
    --------
    >>> representative_values(np.array([5.0, 1.0]), np.array([1.5, 0.5]), 4)
    array([1., 5., 5., 5.])
    """
    order = np.argsort(values, kind="stable")
    steps = np.cumsum(weights[order])
    places = np.searchsorted(steps, (np.arange(size) + 0.5) / size * steps[-1], side="right")
    return values[order][np.minimum(places, values.size - 1)]


def unit_sums(terms: Array, codes: NDArray[np.intp], n_units: int = 0) -> Array:
    """Sums of rows, shape (n, k), over the units that they belong to, shape (units, k)."""
    return np.stack([np.bincount(codes, column, minlength=n_units) for column in terms.T], axis=1)
