"""Corrections for testing many features at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import false_discovery_control

from modifind._typing import Array

METHODS = ("bh", "by", "holm", "bonferroni", "none")


def adjust_p_values(p_values: ArrayLike, method: str = "bh") -> Array:
    """Adjusted p-values: a feature is selected at level alpha when its adjusted p-value is at most alpha.

    Parameters
    ----------
    p_values : array of shape (d,)
        Raw p-values.
    method : {"bh", "by", "holm", "bonferroni", "none"}, default="bh"
        "bh" controls the false discovery rate for independent or positively dependent p-values, "by" under any
        dependence; "holm" and "bonferroni" control the probability of any false selection.

    Examples
    --------
    >>> adjust_p_values([0.01, 0.02, 0.9], "bh").round(3).tolist()
    [0.03, 0.03, 0.9]
    >>> adjust_p_values([0.01, 0.02, 0.9], "holm").round(3).tolist()
    [0.03, 0.04, 0.9]
    """
    p = np.asarray(p_values, dtype=np.float64)
    if method in ("bh", "by"):
        return false_discovery_control(p, method=method)
    if method == "bonferroni":
        return np.minimum(p * p.size, 1.0)
    if method == "holm":
        order = np.argsort(p, kind="stable")
        steps = np.maximum.accumulate((p.size - np.arange(p.size)) * p[order])
        adjusted = np.empty_like(p)
        adjusted[order] = np.minimum(steps, 1.0)
        return adjusted
    if method == "none":
        return p.copy()
    raise ValueError(f"adjust must be one of {', '.join(map(repr, METHODS))}, not {method!r}")


def simes_p_values(p_values: ArrayLike) -> Array:
    """One p-value per row, by the method of Simes: is any of its null hypotheses wrong?

    It holds for p-values that are independent or positively dependent, as "bh" does, and is the smallest p-value of the
    row so adjusted: it is at most alpha where "bh" selects some, and nowhere else.

    Parameters
    ----------
    p_values : array of shape (m, k)
        P-values of k hypotheses in each of m rows; NaN counts as 1, and a row of NaN gives NaN.

    Examples
    --------
    >>> simes_p_values([[0.01, 0.5], [0.03, 0.04], [0.6, 0.9]]).tolist()
    [0.02, 0.04, 0.9]
    """
    p = np.asarray(p_values, dtype=np.float64)
    ordered = np.sort(np.where(np.isnan(p), 1.0, p), axis=1)
    k = ordered.shape[1]
    smallest = (ordered * k / np.arange(1, k + 1)).min(axis=1)
    return np.where(np.isnan(p).all(axis=1), np.nan, smallest)


def smallest_factor(n_tests: int, method: str) -> float:
    """What the adjustment multiplies the only small p-value among `n_tests` by."""
    if method == "none":
        return 1.0
    return n_tests * float((1.0 / np.arange(1, n_tests + 1)).sum()) if method == "by" else float(n_tests)
