"""Where along the features, or along the propensity score, one arm has rows and the other has hardly any."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Bools, Ints
from modifind.data.clusters import Clusters
from modifind.data.feature_matrix import FeatureTable

MAX_BINS = 20
# A stretch is without a counterpart where the other arm has at most this share of the rows that it would have if the
# arms were mixed there as they are in the whole table,
MIN_MIXED_SHARE = 0.05
# and chance is no reason: it would have at least so many rows.
MIN_EXPECTED_ROWS = 12.0
MAX_SHOWN_BINS = 3


@dataclass(frozen=True)
class Outside:
    """Rows of each arm, control first, that lie where the other arm has hardly any.

    Attributes
    ----------
    share : float
        The larger share of an arm that these rows are, counted by their weights.
    where : str
        Which rows they are; empty where there are none.
    """

    share: float
    where: str


def without_counterpart(rows: Array) -> Bools:
    """Bins of each arm whose rows have no counterpart, from the rows of control and treated in bins, shape (2, k).

    Examples
    --------
    >>> without_counterpart(np.array([[50.0, 40.0, 0.0], [50.0, 0.0, 3.0]]))
    array([[False,  True, False],
           [False, False, False]])
    """
    totals = np.maximum(rows.sum(axis=1, keepdims=True), 1.0)
    expected = rows * totals[::-1] / totals
    return np.asarray((expected >= MIN_EXPECTED_ROWS) & (rows[::-1] <= MIN_MIXED_SHARE * expected))


def count_by_arm(bins: NDArray[np.intp], arms: Ints, n_bins: int, clusters: Clusters | None = None) -> Array:
    """Rows of control and treated in bins, shape (2, k); where clusters were treated as a whole, their number.

    Examples
    --------
    >>> bins, arms = np.array([0, 0, 0, 1]), np.array([1, 1, 0, 0])
    >>> count_by_arm(bins, arms, 2).tolist(), count_by_arm(bins, arms, 2, Clusters.of([4, 4, 7, 7])).tolist()
    ([[1.0, 1.0], [2.0, 0.0]], [[1.0, 1.0], [1.0, 0.0]])
    """
    clusters = Clusters.of(clusters, arms.size)
    if not clusters.of_rows:
        first = np.unique(np.column_stack((bins, clusters.codes)), axis=0, return_index=True)[1]
        bins, arms = bins[first], arms[first]
    return np.stack([np.bincount(bins[arms == arm], minlength=n_bins) for arm in (0, 1)]).astype(np.float64)


def outside_along(
    table: FeatureTable,
    feature: int,
    arms: Ints,
    weights: Array,
    clusters: Clusters | None = None,
) -> Outside:
    """Rows without a counterpart along one feature.

    Parameters
    ----------
    table : FeatureTable
        Features.
    feature : int
        Position of the feature.
    arms : array of shape (n,)
        0 or 1.
    weights : array of shape (n,)
        How much a row counts in the share.
    clusters : Clusters, optional
        Rows that were treated as one: they are in one arm by a single chance.
    """
    bins, edges = feature_bins(table, feature)
    n_bins = int(bins.max()) + 1
    rows = count_by_arm(bins, arms, n_bins)
    alone = without_counterpart(count_by_arm(bins, arms, n_bins, clusters))
    if not alone.any():
        return Outside(0.0, "")
    mass = np.stack([np.bincount(bins[arms == arm], weights[arms == arm], minlength=n_bins) for arm in (0, 1)])
    shares = (mass * alone).sum(axis=1) / mass.sum(axis=1)
    sentences = []
    for arm in np.argsort(-shares, kind="stable"):
        if alone[arm].any():
            count, total = (rows[arm] * alone[arm]).sum(), rows[arm].sum()
            name = ("control", "treated")[arm]
            sentences.append(f"{count:,.0f} of {total:,.0f} {name} rows ({_place(table, feature, alone[arm], edges)})")
    return Outside(float(shares.max()), " and ".join(sentences))


def outside_levels(table: FeatureTable, arms: Ints, clusters: Clusters) -> dict[str, Outside]:
    """Rows without a counterpart along columns of levels, by the column's name, as far as there are any.

    To be asked before rare levels are pooled: a level that one arm has not is rare, however many rows the other has.
    """
    levels = [m for m in range(table.n_features) if table.n_levels(m)]
    outside_of = {table.names[m]: outside_along(table, m, arms, np.ones(arms.size), clusters) for m in levels}
    return {name: outside for name, outside in outside_of.items() if outside.share > 0}


def feature_bins(table: FeatureTable, feature: int, most: int = MAX_BINS) -> tuple[NDArray[np.intp], Array]:
    """Bin of each row: its level, or one of about as many rows as the others; missing values come last.

    Returns
    -------
    bins : int array of shape (n,)
    edges : array
        Upper ends of all bins of a continuous feature but the last; empty for levels.
    """
    column = table.values[:, feature]
    if table.n_levels(feature):
        return column.astype(np.intp), np.empty(0)
    seen = ~np.isnan(column)
    edges = np.unique(np.quantile(column[seen], np.linspace(0.0, 1.0, most + 1)[1:-1])) if seen.any() else np.empty(0)
    bins = np.full(column.size, edges.size + 1)
    bins[seen] = np.searchsorted(edges, column[seen], side="left")
    return bins, edges


def _place(table: FeatureTable, feature: int, alone: Bools, edges: Array) -> str:
    """Where bins are, in words."""
    name, labels, alone_bins = table.names[feature], table.categories[feature], np.flatnonzero(alone)
    if labels is not None:
        shown = ", ".join(str(labels[k]) for k in alone_bins[:MAX_SHOWN_BINS])
        more = alone_bins.size - MAX_SHOWN_BINS
        return f"{name} is {shown}" + f" or {more} more" * (more > 0)
    stretches = []
    top = int(np.searchsorted(edges, np.nanmax(table.values[:, feature]), side="left"))
    apart = (np.diff(alone_bins) > 1) | (
        alone_bins[1:] > edges.size
    )  # missing values have a bin of their own, the last
    for run in np.split(alone_bins, np.flatnonzero(apart) + 1):
        first, last = int(run[0]), int(run[-1])
        if first > edges.size:
            stretches.append(f"{name} is missing")
        elif first == 0:
            stretches.append(f"{name} up to {edges[min(last, edges.size - 1)]:.4g}")
        elif last == top:
            stretches.append(f"{name} above {edges[first - 1]:.4g}")
        else:
            stretches.append(f"{name} between {edges[first - 1]:.4g} and {edges[last]:.4g}")
    return ", ".join(stretches[:MAX_SHOWN_BINS])
