"""Tests and effects for the table as a whole: does the treatment do anything, and the same for everyone.

The tests of the average and of the distribution compare the arms by doubly robust averages of functions of the outcome,
adjusted for the features: the outcome itself, and in addition the feature maps of a narrow and a wide Gaussian kernel,
whose squared norms are kernel treatment effects (Muandet et al. 2021; Martinez-Taboada et al. 2023). A narrow kernel
detects any change of shape, a wide one shift and spread, and the average detects rare severe events, to which kernels
are insensitive. An explanation that fails is omitted with a warning; the tests of the features are unaffected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from scipy.stats import f as fisher

from modifind._typing import Array
from modifind._warned import warn
from modifind.data.features import FeatureTable
from modifind.explain.effects import AverageEffects, mean_effects
from modifind.explain.rows import N_MOMENTS, PseudoOutcomes
from modifind.inference import cauchy_combination, simes_p_values
from modifind.inference.direct_sums import quadratic_tail
from modifind.result.selection_result import no_subgroups, no_tests

Found = TypeVar("Found")


def attempt(what: str, function: Callable[..., Found], *args: Any, **settings: Any) -> Found | None:
    """Return the result of a function, or None with a warning that names what is missing if it fails.

    Warnings that the user has turned into errors stay errors.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     attempt("feature 'age': its curve", float, "x")
    >>> print(caught[0].message)
    feature 'age': its curve could not be found (ValueError: could not convert string to float: 'x'); p-values stand
    """
    with errors_as_warnings(what):
        return function(*args, **settings)
    return None


@contextmanager
def errors_as_warnings(what: str) -> Iterator[None]:
    """Turn an error into a warning that names what is missing.

    Warnings that the user has turned into errors stay errors.
    """
    try:
        yield
    except Warning:
        raise
    except Exception as error:
        warn(missing(what, described(error)))


def missing(what: str, why: str) -> str:
    """Warning message for an explanation that failed."""
    return f"{what} could not be found ({why}); p-values stand"


def described(error: Exception) -> str:
    """An error in one line.

    Examples
    --------
    >>> described(MemoryError("no 8 GB"))
    'MemoryError: no 8 GB'
    """
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text}"


GLOBAL_TESTS = "the tests of the average and of the distribution"
MEAN = "doubly robust average effect"
SCORE = "score test of the average effect along all features"
FEATURES = "Simes' combination of the features' tests"
NEAR, WIDE = 1.0, 4.0  # times the bandwidth
SHARES = (1.0, 2.0, 4.0)  # of the variance: near kernel, wide kernel, average
RIDGE = 0.1  # share of the largest variance
RANK = 1e-9  # share of the largest singular value
ROWS_PER_COLUMN = 10
SCORE_WEIGHT = 0.9  # features have p-values for what the score test does not see
SMALLEST = 1e-300  # p-value
TINY = np.finfo(np.float64).tiny
DISTRIBUTION = "doubly robust kernel test with the average effect"


def global_tests(outcomes: PseudoOutcomes, y_bandwidth: float, table: FeatureTable, n_rows: int) -> pd.DataFrame:
    """Test whether the treatment changes the average outcome, and whether it changes the distribution.

    Parameters
    ----------
    outcomes : PseudoOutcomes
        What is averaged.
    y_bandwidth : float
        Bandwidth of the kernel on outcomes.
    table : FeatureTable
        Features of the rows that `outcomes` has.
    n_rows : int
        Rows of the whole table, of which `outcomes` may be a sample.

    Returns
    -------
    DataFrame
        Rows "mean", "distribution" and "modification"; columns statistic (the average effect in standard errors, the
        squared distance between the arms' distributions in units of what chance alone would give, and the F of the
        score test), p_value and method. The tests of the features have a say in the last; see `with_features`.
    """
    mean, n_used = mean_effects(outcomes), outcomes.rows.size
    part = "" if n_used == n_rows else f", in a random sample of {n_used:,} rows"
    tests = {
        "mean": (mean.statistic, mean.p_value, MEAN + part),
        "distribution": (*distribution_test(outcomes, mean, (y_bandwidth / outcomes.unit) or 1.0), DISTRIBUTION + part),
    }
    if outcomes.effect_scale == "difference":  # else an effect that is the same for all differs by the level
        tests["modification"] = (*score_test(outcomes, mean, table.design), SCORE + part)
    return pd.DataFrame.from_dict(tests, orient="index", columns=["statistic", "p_value", "method"]).rename_axis("test")


def with_features(tests: pd.DataFrame, p_values: Array) -> pd.DataFrame:
    """Combine the test of modification with the tests of the features.

    The score test looks at the average effect along all features at once, the features' tests at each of them and at
    the whole distribution. Without a score test, only the features' tests are used.
    """
    statistic, p_value, method = float(p_values.min()), float(simes_p_values([p_values])[0]), FEATURES
    if "modification" in tests.index:
        score: Any = tests.loc["modification"]
        p_value = float(cauchy_combination((score["p_value"], p_value), (SCORE_WEIGHT, 1 - SCORE_WEIGHT)))
        statistic, method = score["statistic"], f"{score['method']}, combined with {FEATURES}"
    row = {"statistic": statistic, "p_value": p_value, "method": method}
    last = pd.DataFrame([row], index=pd.Index(["modification"], name="test"))
    return pd.concat([tests.drop(index="modification", errors="ignore"), last]) if len(tests) else last


def score_test(outcomes: PseudoOutcomes, effects: AverageEffects, design: Array) -> tuple[float, float]:
    """Statistic and p-value for the average effect depending on any linear function of the features.

    If the effect is the same for all, a row's contribution to the error of the average effect is unrelated to its
    features. All linear functions are tested at once, or only the leading ones if there are very many (Hotelling's test
    of their products).
    """
    centred = design - outcomes.weights @ design / outcomes.weights.sum()
    n_units = effects.terms.shape[0]
    left, size, _ = np.linalg.svd(centred, full_matrices=False)
    kept = int(min(np.sum(size > RANK * max(float(size.max(initial=0.0)), 1.0)), n_units // ROWS_PER_COLUMN))
    if not kept:
        return np.nan, 1.0
    products = outcomes.clusters.sums(effects.row_terms[:, :1] * left[:, :kept])
    total = products.sum(axis=0)
    squared = float(total @ np.linalg.pinv(products.T @ products) @ total)
    # The covariance is taken about zero, so that the largest value there can be is the number of units.
    ratio = squared * (n_units - kept) / (kept * max(n_units - squared, TINY))
    return ratio, max(float(fisher.sf(ratio, kept, n_units - kept)), SMALLEST)


def distribution_test(outcomes: PseudoOutcomes, mean: AverageEffects, bandwidth: float) -> tuple[float, float]:
    """Statistic and p-value for any difference in the outcome's distribution, the average included.

    The null hypothesis is that the average effects on the outcome and on the columns of both feature maps are zero.
    They are sums over rows or clusters, approximately normal with known covariance matrix. Along each principal axis
    the squared effect is divided by its variance plus a share of the largest one (a kernel Fisher discriminant,
    Harchaoui et al. 2008), and the sum is compared with that of normal variables of these variances; neither sample
    splitting nor resampling is needed. The bandwidth is in standardised units of the outcome.
    """
    parts = [*(kernel_effects(outcomes, times * bandwidth) for times in (NEAR, WIDE)), mean]
    totals = [float((part.terms**2).sum()) for part in parts]
    factors = [np.sqrt(share / total) if total > 0 else 0.0 for share, total in zip(SHARES, totals, strict=True)]
    estimate = np.concatenate([part.estimate * factor for part, factor in zip(parts, factors, strict=True)])
    terms = np.hstack([part.terms * factor for part, factor in zip(parts, factors, strict=True)])
    variances, axes = np.linalg.eigh(terms.T @ terms)
    per_axis = 1.0 / np.maximum(variances + RIDGE * variances[-1], TINY)
    squared, expected = float(per_axis @ (estimate @ axes) ** 2), per_axis * variances
    return squared / max(float(expected.sum()), TINY), quadratic_tail(squared, expected, mean.freedom)


def kernel_effects(outcomes: PseudoOutcomes, bandwidth: float) -> AverageEffects:
    """Difference between the arms' mean feature maps; the bandwidth is in standardised units of the outcome."""
    root = outcomes.kernel_root(bandwidth)
    expected, errors = outcomes.expected[..., N_MOMENTS:].copy(), outcomes.errors[:, N_MOMENTS:].copy()
    expected[..., -1], errors[..., -1] = 1.0, 0.0  # no outcome is above the last mark
    by_mark = root - np.append(root[1:], np.zeros((1, root.shape[1])), axis=0)  # increments, summed by parts
    return AverageEffects.of(outcomes, expected @ by_mark, errors @ by_mark)


@dataclass(frozen=True)
class Overview:
    """Effects over all rows, tests of whether there are any, and effects by subgroup; empty by default."""

    overall: dict[str, float] = field(default_factory=dict)
    tests: pd.DataFrame = field(default_factory=no_tests)
    subgroups: pd.DataFrame = field(default_factory=no_subgroups)
