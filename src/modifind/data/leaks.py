"""Features that give the treatment or the outcome away: what is learned with them is no effect."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from modifind._typing import Array
from modifind.data.clusters import Clusters
from modifind.data.feature_matrix import FeatureTable
from modifind.data.wording import named

MOST_CHANGES = 4  # of the arm from one value to the next, so few that chance
CHANCE = 1e-4  # gives them no more often than this
ROWS_PER_VALUE = 5  # with fewer rows per distinct value a relabelling says nothing


def refuse_leaks(table: FeatureTable, y: Array, arms: NDArray[np.int64], clusters: Clusters | None = None) -> None:
    """Refuse features that determine the treatment or are the outcome under another name.

    Parameters
    ----------
    table : FeatureTable
        Features, before rare levels are pooled.
    y : array of shape (n,)
        Outcome.
    arms : array of shape (n,)
        0 or 1 for every row.
    clusters : Clusters, optional
        Which rows belong together. Where whole clusters are treated, what all rows of a cluster share counts once.

    Raises
    ------
    ValueError
        Names every such feature.

    Examples
    --------
    >>> from modifind.data.schema import read_features
    >>> arms = np.arange(60) % 2
    >>> refuse_leaks(read_features({"dose": [0.0, 5.5] * 30, "age": range(60)}), np.sin(np.arange(60)), arms)
    Traceback (most recent call last):
    ...
    ValueError: dose: determines the treatment, ...
    """
    outcome, together = _ranks(y), Clusters.of(clusters, arms.size)
    treatment, copies = [], []
    for m, name in enumerate(table.names):
        ranks = _ranks(table.values[:, m])
        if ranks.max() == 0:
            continue
        if _determines(*_once_per_cluster(ranks, arms, together)):
            treatment.append(name)
        elif _is_copy(ranks, outcome):
            copies.append(name)
    if treatment:
        raise ValueError(
            f"{named(treatment)}: determines the treatment, so that no value of it occurs in both arms and the "
            "arms cannot be compared (no positivity); exclude it, unless it is meant to be the treatment"
            + ". Where whole clusters of rows were treated, say so with clusters="
            * together.of_rows
        )
    if copies:
        raise ValueError(
            f"{named(copies)}: the outcome itself in other units or under other labels; exclude what is measured "
            "after the treatment"
        )


def _ranks(values: NDArray[Any]) -> NDArray[np.int64]:
    """Number of each row's value among the distinct ones, from 0."""
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def _once_per_cluster(
    ranks: NDArray[np.int64], arms: NDArray[np.int64], clusters: Clusters
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Both with one row for each cluster, where all rows of a cluster agree in both."""
    if clusters.of_rows:
        return ranks, arms
    _, first, cluster = np.unique(clusters.codes, return_index=True, return_inverse=True)  # a sample lacks some
    same = all((of == of[first][cluster.reshape(-1)]).all() for of in (ranks, arms))
    return (_ranks(ranks[first]), arms[first]) if same else (ranks, arms)


def _determines(ranks: NDArray[np.int64], arms: NDArray[np.int64]) -> bool:
    """Whether no value occurs in both arms, be it that values are few or that the arms are a few intervals."""
    n_values = int(ranks.max()) + 1
    rows = np.bincount(ranks)
    treated = np.bincount(ranks, weights=arms, minlength=n_values)
    if ((treated > 0) & (treated < rows)).any():
        return False
    if n_values * ROWS_PER_VALUE <= ranks.size:
        return True
    changes, share = int((np.diff(treated > 0) != 0).sum()), float((treated > 0).mean())
    return changes <= MOST_CHANGES and binom.cdf(changes, n_values - 1, 2 * share * (1 - share)) < CHANCE


def _is_copy(ranks: NDArray[np.int64], outcome: NDArray[np.int64]) -> bool:
    """Whether a feature is a strictly monotone function of the outcome, or a relabelling of one with few values."""
    n_values = int(outcome.max()) + 1
    if int(ranks.max()) + 1 != n_values:
        return False
    if (ranks == outcome).all() or (ranks == n_values - 1 - outcome).all():
        return True
    few = n_values * ROWS_PER_VALUE <= ranks.size
    return few and np.unique(ranks * n_values + outcome).size == n_values
