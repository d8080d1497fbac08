"""Sums over the rows of a tall matrix, a block of rows at a time so that intermediate arrays stay in cache."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg.blas import dtrmm

from modifind._typing import Array, Ints

BLOCK_ROWS = 4096


def row_blocks(n_rows: int) -> Iterator[slice]:
    """Consecutive blocks of rows."""
    for start in range(0, n_rows, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, n_rows))


def scaled_gram(terms: Array, factor: Array) -> Array:
    """``scaled.T @ scaled`` for rows times `factor`: the square roots of their weights, or slopes."""
    gram = np.zeros((terms.shape[1], terms.shape[1]))
    for rows in row_blocks(terms.shape[0]):
        scaled = terms[rows] * factor[rows, None]
        gram += scaled.T @ scaled  # one matrix and its own transpose: half the work of a general product
    return gram


def quadratic_forms(terms: Array, form: Array) -> Array:
    """``t @ form @ t`` for every row t and a symmetric form."""
    # The lower triangle with its off-diagonal part doubled gives the same values for half the work.
    triangle = np.asfortranarray(np.tril(form) + np.tril(form, -1))
    values = np.empty(terms.shape[0])
    for rows in row_blocks(terms.shape[0]):
        block = terms[rows]
        values[rows] = np.einsum("ij,ij->i", dtrmm(1.0, triangle, block.T, lower=1).T, block)
    return values


def product_sums(left: Array, right: Array, residual: Array, variance: Array) -> tuple[Array, Array]:
    """Sums over rows of residuals times the product of a column of each matrix, and the variances of these sums."""
    return left.T @ (residual[:, None] * right), (left**2).T @ (variance[:, None] * right**2)


def bin_edges(column: Array, n_bins: int) -> Array:
    """Distinct quantiles between bins of about equal size; rows with the same value share a bin."""
    return np.unique(np.quantile(column, np.arange(1, n_bins) / n_bins))


def random_rows(n_rows: int, max_rows: int) -> Ints | slice:
    """All rows, or a random choice of `max_rows`, in their order; the same choice in every call."""
    if n_rows <= max_rows:
        return slice(None)
    return np.sort(np.random.default_rng(0).choice(n_rows, max_rows, replace=False))
