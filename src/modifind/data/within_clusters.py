"""Features that have one value for all rows of a cluster, with and without being told which rows belong together."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from modifind._typing import Ints
from modifind.data.clusters import MIN_CLUSTERS, first_seen, is_within, numbered
from modifind.data.determined import repeated_values
from modifind.data.feature_matrix import FeatureTable
from modifind.data.wording import warn_of_any

MIN_LEVEL_CLUSTERS = 5  # of each level of a discrete feature
# Two columns tell of the same sets of rows where their pairs of values are hardly more than the values of either.
MAX_JOINT_RATIO = 1.25
MIN_VALUE_RATIO = 0.6
MAX_PAIRED_COLUMNS = 40  # whose pairs are looked at


def cluster_features(
    table: FeatureTable, clusters: Ints | None, determined: frozenset[int]
) -> tuple[dict[int, Ints], Ints | None]:
    """Features that have one value in each of some clusters, with these, and the clusters that rows are taken to be in.

    Two continuous columns whose values change together tell of sets of rows too: schools have a size and a share of
    girls each. They count where `clusters` are not told, and where they are sets of those: a feature of districts is
    known by as many values as there are districts, not villages. Every feature goes with the largest sets, a warning
    names those that nobody told of, and rows are taken to be in the largest of all: models that have seen a district
    know its effect. Columns in `determined`, which others determine, tell nothing; categories
    of many levels and of few clusters each are left out.

    Examples
    --------
    >>> from modifind.data.schema import read_features
    >>> schools, rng = np.repeat(np.arange(30), 8), np.random.default_rng(0)
    >>> size, girls = (rng.normal(size=30)[schools] for _ in range(2))
    >>> table = read_features({"size": size, "girls": girls, "age": rng.normal(size=240)})
    >>> sorted(cluster_features(table, schools, frozenset())[0])
    [0, 1]
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as warned:
    ...     sets, clusters = cluster_features(table, None, frozenset())
    >>> sorted(sets), int(clusters.max()) + 1, str(warned[0].message)[:58]
    ([0, 1], 30, 'size, girls: one value each in the same 30 sets of rows, s')
    """
    partitions = [sets for sets in _shared_sets(table, determined) if sets.max() + 1 >= MIN_CLUSTERS]
    if clusters is not None:
        known = numbered(clusters)
        partitions = [known, *(sets for sets in partitions if sets.max() < known.max() and is_within(sets, known))]
    largest_last = sorted(partitions, key=lambda sets: -int(sets.max()))
    sets_of = {m: sets for sets in largest_last for m in _within(table, sets)}
    for sets in partitions[clusters is not None :]:
        warn_of_any(
            [table.names[m] for m, taken in sets_of.items() if taken is sets],
            f"{{}}: one value each in the same {sets.max() + 1} sets of rows, so that these rows seem to belong "
            "together (in a school, a village), or one column is looked up from another. The sets are taken for "
            "clusters. If they are real, pass them as clusters=; if a column is looked up from another, leave it out",
            most=table.n_features,
        )
    return sets_of, largest_last[-1] if partitions else None


def _shared_sets(table: FeatureTable, determined: frozenset[int]) -> list[Ints]:
    """Sets of rows that two or more continuous columns tell of."""
    codes: dict[int, Ints] = {}
    for m in range(table.n_features):
        if not table.n_levels(m) and m not in determined and m not in table.incomplete and not table.is_constant(m):
            values_of = repeated_values(table, m)
            if values_of is not None and len(codes) < MAX_PAIRED_COLUMNS:
                codes[m] = values_of.astype(np.int64)
    joined: list[tuple[set[int], Ints]] = []
    for one, other in combinations(codes, 2):
        values = sorted(int(codes[m].max()) + 1 for m in (one, other))
        if values[0] < MIN_VALUE_RATIO * values[1]:
            continue
        both = _together(codes[one], codes[other])
        if both.max() + 1 > MAX_JOINT_RATIO * values[1]:
            continue
        for k, (members, sets) in enumerate(joined):
            if members & {one, other} and _together(sets, both).max() + 1 <= MAX_JOINT_RATIO * (sets.max() + 1):
                joined[k] = (members | {one, other}, _together(sets, both))
                break
        else:
            joined.append(({one, other}, both))
    return [sets for _, sets in joined]


def _together(one: Ints, other: Ints) -> Ints:
    """Rows that agree in both, numbered."""
    return first_seen(one * (int(other.max()) + 1) + other).astype(np.int64)


def _within(table: FeatureTable, clusters: Ints) -> list[int]:
    """Features that have one value in each cluster."""
    first = np.unique(clusters, return_index=True)[1]
    constant = []
    for m in range(table.n_features):
        column = table.values[:, m]
        left_out = m in table.level_columns or m in table.incomplete or table.is_constant(m)
        if left_out or not is_within(column, clusters):
            continue
        counts = np.bincount(column[first].astype(np.intp)) if table.n_levels(m) else np.array([first.size])
        if counts[counts > 0].min() >= MIN_LEVEL_CLUSTERS:
            constant.append(m)
    return constant
