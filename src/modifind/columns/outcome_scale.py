"""The scale on which effects are measured, and warnings where it decides the answer."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.stats import skew

from modifind.columns.types import MAX_DISCRETE_VALUES
from modifind.kernels import Array
from modifind.wording import counted

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
    if lowest > 0 and np.unique(y).size > MAX_DISCRETE_VALUES:
        raw, logged = float(skew(y)), float(skew(np.log(y)))
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
    """Warn of an outcome with many zeros, of counts, and of skewed outcomes that are never negative."""
    share, skewness = float((y == 0).mean()), float(skew(y))
    if share > MANY_ZEROS and skewness > 0:
        what = f"has zeros in {share:.0%} of the rows"
    elif _is_count(y, skewness):
        what = f"looks like a count (mean {y.mean():.2g}, variance {y.var():.2g})"
    elif skewness > STRONG_SKEW:
        what = f"is strongly skewed (skewness {skewness:.1f}) and has zeros"
    else:
        return
    warnings.warn(
        f"the outcome {what}. A treatment that multiplies such an outcome has a larger additive effect where the level "
        "is higher, so that features which raise the level modify it. Zeros have no logarithm: analyse the square root "
        "or log(1 + y), and whether y is above zero as an outcome of 0 and 1, and trust what they find too",
        UserWarning,
        stacklevel=4,
    )


def _is_count(y: Array, skewness: float) -> bool:
    """Whole numbers close to zero, skewed, with at least the spread of a Poisson variable or nearly so."""
    mean, variance = float(y.mean()), float(y.var())
    return bool((y == np.rint(y)).all()) and skewness > 0.5 and variance > 0.8 * mean and mean**2 < 16.0 * variance
