"""Ridge regression with one penalty per group of coefficients, chosen by maximum evidence."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, lapack

from modifind._typing import Array, Ints

WEAKEST, STRONGEST = 1e-7, 1e4  # bounds of a penalty, in units of its group's information
CURVE_START = 30.0


def renumbered(groups: Ints) -> Ints:
    """The same groups, numbered 0, 1, ... without a gap."""
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)


def first_penalties(groups: Ints) -> Array:
    """Starting values of penalties: none for group 0, and more for curves than for a single term."""
    penalties = np.where(np.bincount(groups) > 1, CURVE_START, 1.0)
    penalties[0] = 0.0
    return penalties


def solve_ridge(matrix: Array, side: Array, penalties: Array, groups: Ints) -> tuple[Array, Array]:
    """Solution of ``(matrix + penalties) x = side``, and the inverse's lower triangle; group 0 goes unpenalised."""
    penalised = matrix.copy(order="F")
    penalised.ravel("K")[:: groups.size + 1] += penalties[groups] + 1e-9 * np.trace(matrix) / groups.size + 1e-12
    # LAPACK itself: checks of cho_factor and cho_solve take longer than a small matrix.
    factor, failed = lapack.dpotrf(penalised, lower=1, clean=0, overwrite_a=1)
    if failed:
        raise LinAlgError("the penalised matrix is not positive definite")
    solution, _ = lapack.dpotrs(factor, side, lower=1)
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    return solution, inverse


def updated_penalties(
    solution: Array, inverse: Array, information: Array, penalties: Array, groups: Ints
) -> tuple[Array, float]:
    """One step of MacKay's fixed point for the penalties, and the effective number of parameters.

    `information` is the diagonal of the matrix without penalties. A group's penalty becomes its effective number of
    parameters over its squared norm. A group that the data do not support is shrunk towards zero without ever reaching
    it, so that its direction can still be tested.
    """
    sizes = np.bincount(groups, minlength=penalties.size)
    freedom = sizes - penalties * np.bincount(groups, np.diag(inverse), minlength=penalties.size)
    square = np.bincount(groups, solution**2, minlength=penalties.size)
    unit = np.bincount(groups, information, minlength=penalties.size) / np.maximum(sizes, 1) + 1e-300
    new = np.clip(np.maximum(freedom, 1e-8) / np.maximum(square, 1e-300), WEAKEST * unit, STRONGEST * unit)
    new[0] = 0.0
    return new, float(freedom.sum())


def ridge_by_evidence(
    matrix: Array, side: Array, penalties: Array, groups: Ints, n_steps: int
) -> tuple[Array, Array, Array, Array]:
    """Alternate between solving and updating the penalties.

    Returns the last solution, the inverse and the penalties that belong to it, and the penalties to go on with.
    """
    following = penalties
    for _ in range(n_steps):
        penalties = following
        solution, inverse = solve_ridge(matrix, side, penalties, groups)
        following, _ = updated_penalties(solution, inverse, np.diag(matrix), penalties, groups)
    return solution, symmetric(inverse), penalties, following


def symmetric(lower: Array) -> Array:
    """The symmetric matrix with this lower triangle."""
    lower = np.tril(lower)
    return lower + np.tril(lower, -1).T
