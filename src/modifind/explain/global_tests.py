"""Does the treatment do anything: tests of the average outcome and of the whole distribution of the outcome.

Both compare the arms by doubly robust averages of functions of the outcome, adjusted for the features: of the outcome
itself, and of the feature map of a Gaussian kernel, whose squared length is the kernel treatment effect of Muandet et
al. (2021) and Martinez-Taboada et al. (2023). The map has few columns and the covariance matrix of its averages is
known, so that the squared length is compared with a sum of squares of normal variables: no row is set aside, and none
is drawn again. A kernel sees little of rare severe events, which move the average; a change of the average is one of
the distribution, so that its p-value is combined with that of the kernel.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from modifind.explain.average_effects import AverageEffects, mean_effects
from modifind.explain.pseudo import N_MOMENTS, PseudoOutcomes
from modifind.inference import cauchy_combination
from modifind.inference.quadratic import quadratic_tail

GLOBAL_TESTS = "the tests of the average and of the distribution"
MEAN = "doubly robust average effect"
DISTRIBUTION = "doubly robust kernel test, combined with the test of the average"


def global_tests(outcomes: PseudoOutcomes, y_bandwidth: float, n_rows: int) -> pd.DataFrame:
    """Tests of whether the treatment changes the average outcome, and whether it changes the distribution.

    Parameters
    ----------
    outcomes : PseudoOutcomes
        What is averaged.
    y_bandwidth : float
        Bandwidth of the kernel on outcomes.
    n_rows : int
        Rows of the table, of which `outcomes` may be a sample.

    Returns
    -------
    DataFrame
        Rows "mean" and "distribution"; columns statistic (the average effect in standard errors, and the squared
        distance between the arms' distributions in units of what chance alone would give), p_value and method.
    """
    mean, whole = mean_effects(outcomes), kernel_effects(outcomes, (y_bandwidth / outcomes.unit) or 1.0)
    squared = float(whole.estimate @ whole.estimate)
    variances = np.linalg.eigvalsh(whole.covariance).astype(np.float64)
    kernel = quadratic_tail(squared, variances, whole.freedom)
    n_used = outcomes.rows.size
    part = "" if n_used == n_rows else f", in a random sample of {n_used:,} rows"
    found = {
        "statistic": [mean.statistic, squared / max(float(variances.sum()), np.finfo(np.float64).tiny)],
        "p_value": [mean.p_value, float(cauchy_combination(mean.p_value, kernel))],
        "method": [MEAN + part, DISTRIBUTION + part],
    }
    return pd.DataFrame(found, index=pd.Index(["mean", "distribution"], name="test"))


def kernel_effects(outcomes: PseudoOutcomes, bandwidth: float) -> AverageEffects:
    """Difference between the arms' average feature maps; the bandwidth is in standardised units of the outcome."""
    root = outcomes.kernel_root(bandwidth)
    expected, errors = outcomes.expected[..., N_MOMENTS:].copy(), outcomes.errors[:, N_MOMENTS:].copy()
    expected[..., -1], errors[..., -1] = 1.0, 0.0  # no outcome is above the last mark
    by_mark = root - np.append(root[1:], np.zeros((1, root.shape[1])), axis=0)  # increments, summed by parts
    return AverageEffects.of(outcomes, expected @ by_mark, errors @ by_mark)
