"""Is a probability integral transform uniform? With values that many rows share: zeros, whole years.

A distribution that is right gives a value that only one row has a PIT that is uniform. A value that k rows share,
because it was rounded or because the distribution has an atom there, stands for an interval of probability, and every
part of it is as likely. Such rows are spread evenly over their interval (Czado, Gneiting and Held, Biometrics 2009),
which needs no random numbers.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import kstwo

from modifind._typing import Array
from modifind.data.weights import Weights

NARROW = 1e-6  # probability below which an interval is a point
N_BINS = 10


def tie_cells(column: Array) -> Array:
    """What each value stands for under a distribution without atoms, shape (n, 2).

    A value that no other row has stands for itself. One that several rows share has been rounded: it stands for all
    that is nearer to it than to the next values of the column.

    Examples
    --------
    >>> import numpy as np
    >>> tie_cells(np.array([1.0, 2.0, 2.0, 3.0, 5.0, 5.0])).tolist()
    [[1.0, 1.0], [1.5, 2.5], [1.5, 2.5], [3.0, 3.0], [4.0, 6.0], [4.0, 6.0]]
    """
    distinct, place, counts = np.unique(column, return_inverse=True, return_counts=True)
    if distinct.size == column.size or distinct.size == 1:
        return np.column_stack((column, column))
    half = np.diff(distinct) / 2
    below, above = np.concatenate((half[:1], half)), np.concatenate((half, half[-1:]))
    shared = counts > 1
    return np.column_stack((distinct - shared * below, distinct + shared * above))[place]


def uniformity(pit: Array, weights: Weights | None = None) -> tuple[float, float]:
    """Kolmogorov-Smirnov distance from uniform, and its p-value.

    Parameters
    ----------
    pit : array of shape (n, 2)
        Lower and upper end of each row's interval of probability; the same number where the value is no tie.
    weights : Weights, optional
        How much each row counts.

    Returns
    -------
    distance, p_value : float
        The p-value is that of n single numbers, n being the effective number of rows where there are weights. Spread
        rows vary less, so it is on the safe side of an alarm.

    Examples
    --------
    >>> import numpy as np
    >>> zeros = np.tile([0.0, 0.6], (60, 1))
    >>> others = np.repeat(np.linspace(0.61, 0.99, 40), 2).reshape(40, 2)
    >>> distance, p_value = uniformity(np.concatenate((zeros, others)))
    >>> round(distance, 2), round(p_value, 2)
    (0.01, 1.0)
    """
    low, high = pit[:, 0], pit[:, 1]
    wide = high - low > NARROW
    counts = Weights.of(weights, low.size)
    own, n_rows = counts.values, max(round(counts.effective_size), 1)
    points = (low[~wide] + high[~wide]) / 2
    order = np.argsort(points, kind="stable")
    points, reached = points[order], np.concatenate(([0.0], np.cumsum(own[~wide][order])))
    slopes = own[wide] / (high[wide] - low[wide])
    kinks = np.concatenate((low[wide], high[wide], points))
    order = np.argsort(kinks, kind="stable")
    kinks = kinks[order]
    turns = np.concatenate((slopes, -slopes, np.zeros(points.size)))[order]
    rise = np.concatenate(([0.0], np.cumsum(np.cumsum(turns)[:-1] * np.diff(kinks))))
    steps = [reached[np.searchsorted(points, kinks, side=side)] for side in ("left", "right")]
    distance = max(float(np.abs((rise + step) / own.sum() - kinks).max()) for step in steps)
    return distance, float(np.clip(kstwo.sf(distance, n_rows), 0.0, 1.0))


def pit_shares(pit: Array, weights: Weights | None = None) -> tuple[float, ...]:
    """Shares of the rows by tenths of the probability integral transform; a row counts in every tenth of its interval.

    Parameters are those of `uniformity`.

    Examples
    --------
    >>> import numpy as np
    >>> pit_shares(np.array([[0.0, 0.2], [0.95, 0.95]]))
    (0.25, 0.25, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5)
    """
    low, high = np.clip(pit[:, 0], 0.0, 1.0), np.clip(pit[:, 1], 0.0, 1.0)
    wide = high - low > NARROW
    own = Weights.of(weights, low.size).values
    edges = np.linspace(0.0, 1.0, N_BINS + 1)
    points = (low[~wide] + high[~wide]) / 2
    shares = np.histogram(points, edges, weights=own[~wide])[0].astype(np.float64)
    density = own[wide] / (high[wide] - low[wide])
    for k in range(N_BINS):
        inside = np.minimum(high[wide], edges[k + 1]) - np.maximum(low[wide], edges[k])
        shares[k] += density @ np.maximum(inside, 0.0)
    return tuple((shares / own.sum()).tolist())
