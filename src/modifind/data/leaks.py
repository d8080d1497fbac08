"""Features that give the treatment or the outcome away: what is learned with them is no effect."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from modifind._typing import Array, Ints
from modifind.data.clusters import Clusters, is_within, numbered
from modifind.data.feature_matrix import FeatureTable
from modifind.data.wording import refuse_any

MAX_ARM_CHANGES = 4  # of the arm from one value to the next, so few that chance
MAX_LEAK_CHANCE = 1e-4  # gives them no more often than this
ROWS_PER_VALUE = 5  # with fewer rows per distinct value a relabelling says nothing


def refuse_leaks(table: FeatureTable, y: Array, arms: Ints, clusters: Clusters | None = None) -> None:
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
    outcome, together = numbered(y), Clusters.of(clusters, arms.size)
    treatment, copies = [], []
    for m, name in enumerate(table.names):
        ranks = numbered(table.values[:, m])
        if ranks.max() == 0:
            continue
        if _determines(*_once_per_cluster(ranks, arms, together)):
            treatment.append(name)
        elif _is_copy(ranks, outcome):
            copies.append(name)
    refuse_any(
        treatment,
        "{}: determines the treatment, so that no value of it occurs in both arms and the arms cannot be compared (no "
        "positivity); exclude it, unless it is meant to be the treatment"
        + ". Where whole clusters of rows were treated, say so with clusters="
        * together.of_rows,
    )
    refuse_any(
        copies,
        "{}: the outcome itself in other units or under other labels; exclude what is measured after the treatment",
    )


def _once_per_cluster(ranks: Ints, arms: Ints, clusters: Clusters) -> tuple[Ints, Ints]:
    """Both with one row for each cluster, where all rows of a cluster agree in both."""
    if clusters.of_rows or not (is_within(ranks, clusters.codes) and is_within(arms, clusters.codes)):
        return ranks, arms
    first = np.unique(clusters.codes, return_index=True)[1]
    return numbered(ranks[first]), arms[first]


def _determines(ranks: Ints, arms: Ints) -> bool:
    """Whether no value occurs in both arms, be it that values are few or that the arms are a few intervals."""
    n_values = int(ranks.max()) + 1
    rows = np.bincount(ranks)
    treated = np.bincount(ranks, weights=arms, minlength=n_values)
    if ((treated > 0) & (treated < rows)).any():
        return False
    if n_values * ROWS_PER_VALUE <= ranks.size:
        return True
    changes, share = int((np.diff(treated > 0) != 0).sum()), float((treated > 0).mean())
    return changes <= MAX_ARM_CHANGES and binom.cdf(changes, n_values - 1, 2 * share * (1 - share)) < MAX_LEAK_CHANCE


def _is_copy(ranks: Ints, outcome: Ints) -> bool:
    """Whether a feature is a strictly monotone function of the outcome, or a relabelling of one with few values."""
    n_values = int(outcome.max()) + 1
    if int(ranks.max()) + 1 != n_values:
        return False
    if (ranks == outcome).all() or (ranks == n_values - 1 - outcome).all():
        return True
    few = n_values * ROWS_PER_VALUE <= ranks.size
    return few and np.unique(ranks * n_values + outcome).size == n_values
