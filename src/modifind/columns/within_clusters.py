"""Features that have one value for all rows of a cluster, with and without being told which rows belong together."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from modifind.columns.determined import repeated_values
from modifind.features import FeatureTable
from modifind.rows.clusters import LEAST_CLUSTERS, is_within

LEAST_LEVEL_CLUSTERS = 5  # of each level of a discrete feature


def cluster_features(
    table: FeatureTable, clusters: NDArray[np.int64] | None, determined: frozenset[int]
) -> dict[int, NDArray[np.int64]]:
    """The clusters of the rows, numbered 0, 1, ..., for every feature that has one value in each of them.

    Where `clusters` are not told, two continuous columns whose values change in the same rows only tell of some:
    schools have a size and a share of girls each. A warning then asks for them. Columns in `determined`, which others
    determine, tell nothing, and categories of many levels and of few clusters each are left out.

    Examples
    --------
    >>> from modifind.features import read_features
    >>> schools, rng = np.repeat(np.arange(30), 8), np.random.default_rng(0)
    >>> size, girls = (rng.normal(size=30)[schools] for _ in range(2))
    >>> table = read_features({"size": size, "girls": girls, "age": rng.normal(size=240)})
    >>> sorted(cluster_features(table, schools, frozenset()))
    [0, 1]
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as told:
    ...     found = sorted(cluster_features(table, None, frozenset()))
    >>> found, str(told[0].message)[:60]
    ([0, 1], 'size, girls: one value each in the same 30 sets of rows, so ')
    """
    if clusters is not None:
        return _within(table, np.unique(clusters, return_inverse=True)[1].reshape(-1).astype(np.int64))
    sets: dict[bytes, list[int]] = {}
    for m in range(table.n_features):
        if not table.n_levels(m) and m not in determined and m not in table.incomplete and not table.is_constant(m):
            codes = repeated_values(table, m)
            if codes is not None:
                sets.setdefault(codes.tobytes(), []).append(m)
    found: dict[int, NDArray[np.int64]] = {}
    for key, members in sets.items():
        codes = np.frombuffer(key, dtype=np.int32)
        if len(members) > 1 and codes.max() + 1 >= LEAST_CLUSTERS:
            own = _within(table, codes.astype(np.int64))
            warnings.warn(
                f"{', '.join(table.names[m] for m in own)}: one value each in the same {codes.max() + 1} sets of rows, "
                "so that these rows seem to belong together (in a school, a village). These features were tested as "
                "features of sets; pass clusters= so that rows of a set are not taken as independent elsewhere either",
                UserWarning,
                stacklevel=4,
            )
            found.update(own)
    return found


def _within(table: FeatureTable, clusters: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """Features that have one value in each cluster."""
    sizes = np.unique(clusters, return_index=True)[1]
    found = {}
    for m in range(table.n_features):
        column = table.values[:, m]
        left_out = m in table.level_columns or m in table.incomplete or table.is_constant(m)
        if left_out or not is_within(column, clusters):
            continue
        counts = np.bincount(column[sizes].astype(np.intp)) if table.n_levels(m) else np.array([sizes.size])
        if counts[counts > 0].min() >= LEAST_LEVEL_CLUSTERS:
            found[m] = clusters
    return found
