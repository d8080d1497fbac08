"""Does the treatment do anything, and the same to all: tests of the average, the distribution and the modification.

The first two compare the arms by doubly robust averages of functions of the outcome, adjusted for the features: of the
outcome itself, and of the feature map of a Gaussian kernel, whose squared length is the kernel treatment effect of
Muandet et al. (2021) and Martinez-Taboada et al. (2023). The map has few columns and the covariance matrix of its
averages is known, so that the squared length is compared with a sum of squares of normal variables: no row is set aside
and none is drawn again. A kernel sees little of rare severe events, which move the average; a change of the average is
one of the distribution, so that its p-value is combined with that of the kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import f as fisher

from modifind._typing import Array
from modifind.data.feature_matrix import FeatureTable
from modifind.explain.average_effects import AverageEffects, mean_effects
from modifind.explain.pseudo import N_MOMENTS, PseudoOutcomes
from modifind.inference import cauchy_combination, simes_p_values
from modifind.inference.quadratic import quadratic_tail

GLOBAL_TESTS = "the tests of the average and of the distribution"
MEAN = "doubly robust average effect"
SCORE = "score test of the average effect along all features"
FEATURES = "Simes' combination of the features' tests"
RANK = 1e-9  # share of the largest singular value
ROWS_PER_COLUMN = 10
SCORE_WEIGHT = 0.75  # what the features' tests find is told of them anyway
SMALLEST = 1e-300  # p-value
DISTRIBUTION = "doubly robust kernel test, combined with the test of the average"


def global_tests(outcomes: PseudoOutcomes, y_bandwidth: float, table: FeatureTable, n_rows: int) -> pd.DataFrame:
    """Tests of whether the treatment changes the average outcome, and whether it changes the distribution.

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
    mean, whole = mean_effects(outcomes), kernel_effects(outcomes, (y_bandwidth / outcomes.unit) or 1.0)
    squared = float(whole.estimate @ whole.estimate)
    variances = np.linalg.eigvalsh(whole.covariance).astype(np.float64)
    kernel = quadratic_tail(squared, variances, whole.freedom)
    n_used = outcomes.rows.size
    part = "" if n_used == n_rows else f", in a random sample of {n_used:,} rows"
    found = {
        "mean": (mean.statistic, mean.p_value, MEAN + part),
        "distribution": (
            squared / max(float(variances.sum()), np.finfo(np.float64).tiny),
            float(cauchy_combination((mean.p_value, kernel))),
            DISTRIBUTION + part,
        ),
    }
    if outcomes.effect_scale == "difference":  # else an effect that is the same for all differs by the level
        found["modification"] = (*score_test(outcomes, mean, table.design), SCORE + part)
    return pd.DataFrame.from_dict(found, orient="index", columns=["statistic", "p_value", "method"]).rename_axis("test")


def with_features(tests: pd.DataFrame, p_values: Array) -> pd.DataFrame:
    """The tests of a table, that of modification combined with those of the features.

    The score test looks at the average effect along all features at once, the features' tests at each of them and at
    the whole distribution. Where there is no score test, the features' tests are all.
    """
    combined = float(simes_p_values([p_values])[0])
    if "modification" not in tests.index:
        row = {"statistic": float(p_values.min()), "p_value": combined, "method": FEATURES}
        last = pd.DataFrame([row], index=pd.Index(["modification"], name="test"))
        return pd.concat([tests, last]) if len(tests) else last
    alone: Any = tests.loc["modification"]
    both = float(cauchy_combination((float(alone["p_value"]), combined), (SCORE_WEIGHT, 1 - SCORE_WEIGHT)))
    row = {"statistic": alone["statistic"], "p_value": both, "method": f"{alone['method']}, combined with {FEATURES}"}
    return pd.concat([tests.drop(index="modification"), pd.DataFrame([row], index=["modification"])]).rename_axis(
        "test"
    )


def score_test(outcomes: PseudoOutcomes, effects: AverageEffects, design: Array) -> tuple[float, float]:
    """Statistic and p-value of whether the average effect follows any linear function of the features.

    Where the effect is the same for all, what a row adds to the error of the average effect has nothing to do with its
    features. Tested are all linear functions at once, or of very many the widest (Hotelling's test of their products).
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
    ratio = squared * (n_units - kept) / (kept * max(n_units - squared, np.finfo(np.float64).tiny))
    return ratio, max(float(fisher.sf(ratio, kept, n_units - kept)), SMALLEST)


def kernel_effects(outcomes: PseudoOutcomes, bandwidth: float) -> AverageEffects:
    """Difference between the arms' average feature maps; the bandwidth is in standardised units of the outcome."""
    root = outcomes.kernel_root(bandwidth)
    expected, errors = outcomes.expected[..., N_MOMENTS:].copy(), outcomes.errors[:, N_MOMENTS:].copy()
    expected[..., -1], errors[..., -1] = 1.0, 0.0  # no outcome is above the last mark
    by_mark = root - np.append(root[1:], np.zeros((1, root.shape[1])), axis=0)  # increments, summed by parts
    return AverageEffects.of(outcomes, expected @ by_mark, errors @ by_mark)
