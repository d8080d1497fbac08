"""The scale on which effects are measured, and warnings where it decides the answer."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.stats import skew

from modifind._typing import Array
from modifind.data.column_types import MAX_DISCRETE_VALUES
from modifind.data.wording import counted

STRONG_SKEW = 2.0
MANY_ZEROS = 0.2


def transform_outcome(y: Array, transform: str | None) -> Array:
    """The outcome on the scale on which effects are measured; a warning where the scale decides the answer.

    Examples
    --------
    >>> import numpy as np
    >>> transform_outcome(np.array([1.0, np.e]), "log")
    array([0., 1.])
    """
    if transform == "log":
        low = int((y <= 0).sum())
        if low:
            found = counted(low, "value of y is", "values of y are")
            raise ValueError(f"outcome_transform='log' needs a positive outcome; {found} not")
        return np.log(y)
    lowest = y.min()
    if is_count(y):
        _warn_count(y)
    elif lowest > 0 and np.unique(y).size > MAX_DISCRETE_VALUES:
        raw, logged = float(skew(y)), round(float(skew(np.log(y))), 1) + 0.0
        if raw > STRONG_SKEW and abs(logged) < raw / 2:
            warnings.warn(
                f"the outcome is positive and strongly skewed (skewness {raw:.1f}, {logged:.1f} on the log scale). "
                "A treatment that multiplies such an outcome has a larger additive effect where the level is higher, "
                "so that features which raise the level modify it. If effects are thought of as ratios, take the log "
                "scale: outcome_transform='log'",
                UserWarning,
                stacklevel=3,
            )
    elif lowest == 0 and np.unique(y).size > 2:
        _warn_zeros(y)
    return y


def _warn_zeros(y: Array) -> None:
    """Warn of an outcome with many zeros, and of skewed outcomes that are never negative."""
    share, skewness = float((y == 0).mean()), float(skew(y))
    if share > MANY_ZEROS and skewness > 0:
        what = f"has zeros in {share:.0%} of the rows"
    elif skewness > STRONG_SKEW:
        what = f"is strongly skewed (skewness {skewness:.1f}) and has zeros"
    else:
        return
    _warn_scale(what, zeros=True)


def _warn_count(y: Array) -> None:
    share = float((y == 0).mean())
    zeros = f", zeros in {share:.0%} of the rows" if share else ""
    _warn_scale(f"looks like a count (mean {y.mean():.2g}, variance {y.var():.2g}{zeros})", zeros=share > 0)


def _warn_scale(what: str, *, zeros: bool) -> None:
    remedy = "Analyse the logarithm, too (outcome_transform='log'), or the square root, and trust what both scales find"
    if zeros:
        remedy = (
            "Zeros have no logarithm: analyse the square root or log(1 + outcome), too, and whether the outcome is "
            "above zero as one of 0 and 1, and trust what all of them find"
        )
    warnings.warn(
        f"the outcome {what}. A treatment that multiplies such an outcome has a larger additive effect where the level "
        f"is higher, so that features which raise the level modify it. {remedy}",
        UserWarning,
        stacklevel=5,
    )


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
