"""Features that have one value for all rows of a cluster, with and without being told which rows belong together."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from modifind._typing import Ints
from modifind._warned import warn
from modifind.data.clusters import LEAST_CLUSTERS, first_seen, is_within, numbered
from modifind.data.determined import repeated_values
from modifind.data.feature_matrix import FeatureTable
from modifind.data.wording import named

LEAST_LEVEL_CLUSTERS = 5  # of each level of a discrete feature
# Two columns tell of the same sets of rows where their pairs of values are hardly more than the values of either.
MOST_PAIRS = 1.25
LEAST_VALUES = 0.6
MOST_COLUMNS = 40  # whose pairs are looked at


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
    >>> with warnings.catch_warnings(record=True) as told:
    ...     found, clusters = cluster_features(table, None, frozenset())
    >>> sorted(found), int(clusters.max()) + 1, str(told[0].message)[:58]
    ([0, 1], 30, 'size, girls: one value each in the same 30 sets of rows, s')
    """
    sets = [own for own in _shared_sets(table, determined) if own.max() + 1 >= LEAST_CLUSTERS]
    if clusters is not None:
        known = numbered(clusters)
        sets = [known, *(own for own in sets if own.max() < known.max() and is_within(own, known))]
    largest_last = sorted(sets, key=lambda own: -int(own.max()))
    found = {m: own for own in largest_last for m in _within(table, own)}
    for own in sets[clusters is not None :]:
        members = [m for m, codes in found.items() if codes is own]
        if members:
            warn(
                f"{named(table.names[m] for m in members)}: one value each in the same {own.max() + 1} sets of rows, "
                "so that these rows seem to belong together (in a school, a village), or one column is looked up from "
                "another. The sets are taken for clusters. If they are real, pass them as clusters=; if a column is "
                "looked up from another, leave it out",
            )
    return found, largest_last[-1] if sets else None


def _shared_sets(table: FeatureTable, determined: frozenset[int]) -> list[Ints]:
    """Sets of rows that two or more continuous columns tell of."""
    codes: dict[int, Ints] = {}
    for m in range(table.n_features):
        if not table.n_levels(m) and m not in determined and m not in table.incomplete and not table.is_constant(m):
            own = repeated_values(table, m)
            if own is not None and len(codes) < MOST_COLUMNS:
                codes[m] = own.astype(np.int64)
    joined: list[tuple[set[int], Ints]] = []
    for one, other in combinations(codes, 2):
        values = sorted(int(codes[m].max()) + 1 for m in (one, other))
        if values[0] < LEAST_VALUES * values[1]:
            continue
        both = _together(codes[one], codes[other])
        if both.max() + 1 > MOST_PAIRS * values[1]:
            continue
        for k, (members, sets) in enumerate(joined):
            if members & {one, other} and _together(sets, both).max() + 1 <= MOST_PAIRS * (sets.max() + 1):
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
    found = []
    for m in range(table.n_features):
        column = table.values[:, m]
        left_out = m in table.level_columns or m in table.incomplete or table.is_constant(m)
        if left_out or not is_within(column, clusters):
            continue
        counts = np.bincount(column[first].astype(np.intp)) if table.n_levels(m) else np.array([first.size])
        if counts[counts > 0].min() >= LEAST_LEVEL_CLUSTERS:
            found.append(m)
    return found
