"""Sums over the rows of a tall matrix, a block of rows at a time: what is made on the way stays small and in cache."""

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
        part = terms[rows]
        values[rows] = np.einsum("ij,ij->i", dtrmm(1.0, triangle, part.T, lower=1).T, part)
    return values


def random_rows(n_rows: int, most: int) -> Ints | slice:
    """All rows, or `most` of them: always the same choice, in their order, and at random, since tables have periods."""
    if n_rows <= most:
        return slice(None)
    return np.sort(np.random.default_rng(0).choice(n_rows, most, replace=False))
