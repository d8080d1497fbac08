"""Outcomes where the scale on which effects are measured decides the answer."""

from __future__ import annotations

import numpy as np
from scipy.stats import skew

from modifind._typing import Array
from modifind._warned import warn
from modifind.data.column_types import MAX_DISCRETE_VALUES

STRONG_SKEW = 2.0
MANY_ZEROS = 0.2
MIN_SUMMED_ROWS = 20


def warn_of_scale(y: Array) -> None:
    """Warn of outcomes where the scale of effects decides the answer."""
    if is_count(y):
        share = float((y == 0).mean())
        zeros = f", zeros in {share:.0%} of the rows" if share else ""
        what = f"looks like a count (mean {y.mean():.2g}, variance {y.var():.2g}{zeros})"
        remedy = "outcome='count' with effect_scale='ratio'"
    elif has_many_zeros(y):
        what = f"has zeros in {float((y == 0).mean()):.0%} of the rows"
        remedy = "outcome='amount' with effect_scale='ratio', which looks at whether there is any and at how much"
    elif (skewness := _skewness(y)) is not None:
        what = f"is never negative and strongly skewed (skewness {skewness:.1f})"
        remedy = "effect_scale='ratio'"
        remedy += ", or outcome_transform='log' for geometric means" if y.min() > 0 else ""
    else:
        return
    warn(
        f"the outcome {what}. A treatment that multiplies such an outcome has a larger additive effect where the level "
        "is higher, so that features which raise the level modify it. If effects are thought of as ratios, compare the "
        f"arms by ratios: {remedy}",
    )


def warn_of_one_row(y: Array) -> None:
    """Warn where a single row has most of an outcome that is never negative: a decimal point, a code for "unknown"."""
    most, total = float(y.max()), float(y.sum())
    if y.min() >= 0 and np.unique(y).size > 2 and most > total / 2 and y.size >= MIN_SUMMED_ROWS:
        warn(
            f"one row has more than half of the sum of the outcome ({most:g} of {total:g}): averages and their ratios "
            "follow this row, which tests hardly look at. Check the value, or leave the row out",
        )


def has_many_zeros(y: Array) -> bool:
    """Whether an outcome that is never negative is often zero, and skewed to the right."""
    return bool(y.min() == 0) and np.unique(y).size > 2 and float((y == 0).mean()) > MANY_ZEROS and float(skew(y)) > 0


def _skewness(y: Array) -> float | None:
    """That of an outcome which is never negative, where it is large and the logarithm has less; None where not."""
    low = float(y.min())
    if low < 0 or np.unique(y).size <= (MAX_DISCRETE_VALUES if low > 0 else 2):
        return None
    skewness = float(skew(y))
    less = low == 0 or abs(float(skew(np.log(y)))) < skewness / 2
    return skewness if skewness > STRONG_SKEW and less else None


def is_count(y: Array) -> bool:
    """Whether an outcome looks like a count, whether or not a zero or a long tail is among its rows.

    Counts are whole numbers of more than two values, none negative, skewed to the right (skewness above 0.2), that vary
    nearly as much as a Poisson variable of their mean (variance above 0.7 means) and come close to zero: the smallest
    is at most 0.7 standard deviations, and the mean below four.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> is_count(rng.poisson(3.0, 500)), is_count(1 + rng.poisson(3.0, 500)), is_count(rng.integers(0, 11, 500))
    (True, True, False)
    """
    low = float(y.min())
    if low < 0 or not (y == np.rint(y)).all() or np.unique(y).size <= 2:
        return False
    mean, variance = float(y.mean()), float(y.var())
    spread = variance**0.5
    close = low <= 0.7 * spread and mean < 4.0 * spread
    return close and variance > 0.7 * mean and float(skew(y)) > 0.2
