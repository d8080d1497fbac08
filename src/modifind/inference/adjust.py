"""Corrections for testing many features at once, and several contrasts of each.

A feature's contrasts share the reference arm, so their p-values are positively dependent. Simes' test keeps its level
then, as it does under independence, and no p-value near 1 outweighs a small one. The Cauchy combination, which comes
to nearly the same where one p-value is small, exceeds the level by up to a seventh with three contrasts and a fifth
with five (docs/method.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import false_discovery_control

from modifind._typing import Array

METHODS = ("bh", "by", "holm", "bonferroni", "none")


def adjust_p_values(p_values: ArrayLike, method: str = "bh") -> Array:
    """Adjust p-values, such that a feature is selected at level alpha if its adjusted p-value is at most alpha.

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
    """One p-value per row by Simes' method: is any of its null hypotheses false?

    It is valid for p-values that are independent or positively dependent, as "bh" is, and equals the smallest p-value
    of the row adjusted by "bh": it is at most alpha exactly when "bh" selects something.

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
    """Factor by which the adjustment multiplies a single small p-value among `n_tests`."""
    if method == "none":
        return 1.0
    return n_tests * float((1.0 / np.arange(1, n_tests + 1)).sum()) if method == "by" else float(n_tests)


def adjust_contrasts(p_values: ArrayLike, omnibus: ArrayLike, alpha: float, method: str = "bh") -> Array:
    """Adjusted p-values of contrasts, over features and arms: a contrast is selected if its own is at most alpha.

    Parameters
    ----------
    p_values : array of shape (m, k)
        P-values of k contrasts of m features, without missing ones.
    omnibus : array of shape (m,)
        Adjusted p-values of the features, by `method` over `simes_p_values`.
    alpha : float
        Level at which features are selected. Which contrasts are depends on how many features are.
    method : {"bh", "by", "holm", "bonferroni", "none"}, default="bh"
        Adjustment over features.

    Notes
    -----
    With "bh" and "by" this is the procedure of Benjamini and Bogomolov (2014): within each of R selected features of m
    the contrasts are tested by the method of Benjamini and Hochberg at level alpha R / m. The expected share of wrong
    contrasts, averaged over selected features, is then at most alpha, and every selected feature has a contrast that
    is selected. With "holm" and "bonferroni" the contrasts of each feature share a level of alpha / m by Hochberg's
    method, so that the chance of any wrong contrast is at most alpha.

    Examples
    --------
    >>> p = np.array([[0.001, 0.5], [0.004, 0.03], [0.6, 0.9], [0.2, 0.4]])
    >>> from modifind.inference.adjust import simes_p_values
    >>> features = adjust_p_values(simes_p_values(p))
    >>> adjust_contrasts(p, features, 0.05).round(3).tolist()
    [[0.008, 1.0], [0.016, 0.06], [1.0, 1.0], [0.8, 0.8]]
    """
    p, over_features = np.asarray(p_values, dtype=np.float64), np.asarray(omnibus, dtype=np.float64)
    factor = smallest_factor(len(p), method)
    if method in ("bh", "by"):
        factor /= max(int((over_features <= alpha).sum()), 1)
    by_hochberg = method in ("holm", "bonferroni")
    within = _hochberg(p) if by_hochberg else np.array([adjust_p_values(row) for row in p]).reshape(p.shape)
    return np.minimum(np.maximum(within * factor, over_features[:, None]), 1.0)


def _hochberg(p: Array) -> Array:
    """Adjusted p-values of each row by Hochberg's step-up method, valid whenever Simes' test is."""
    order = np.argsort(p, axis=1)[:, ::-1]
    steps = np.minimum.accumulate(np.take_along_axis(p, order, 1) * np.arange(1, p.shape[1] + 1), axis=1)
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, steps, 1)
    return adjusted
