"""Categories of many levels: postcodes, sites, diagnosis codes.

One indicator per level would make as many columns as there are levels, each told by a few rows. A category of more than
30 levels has instead a column of codes, which every model turns into what it needs to know of a level from the rows it
is fitted to, and a few columns that say how rows of the level differ in the other features: shrunken means of the
level, in the directions in which levels differ more than chance makes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from modifind._threads import one_thread
from modifind._typing import Array
from modifind.data.feature_matrix import FeatureTable
from modifind.data.weights import Weights

MOST_INDICATORS = 30
MOST_DIRECTIONS = 5
MAX_COMBINED_COLUMNS = 60  # of which directions are combined
FAR = 4.0  # standard deviations, beyond which rows do not count for more
MIN_WITHIN_SHARE = 1e-3  # share of a column's variance that levels are taken to leave open


def with_level_columns(table: FeatureTable, weights: Weights | None = None) -> FeatureTable:
    """The table with categories of many levels as codes and a few means; treatment and outcome have no part in it.

    Parameters
    ----------
    table : FeatureTable
        Features.
    weights : Weights, optional
        How much each row counts.

    Examples
    --------
    >>> import pandas as pd
    >>> from modifind.data.schema import read_features
    >>> rng = np.random.default_rng(0)
    >>> site = rng.integers(0, 100, 2000)
    >>> age = 50 + 10 * rng.normal(size=100)[site] + 10 * rng.normal(size=2000)
    >>> table = read_features(pd.DataFrame({"age": age, "site": np.char.add("s", site.astype(str))}))
    >>> table.design.shape, with_level_columns(table).design.shape
    ((2000, 100), (2000, 3))
    """
    many = [m for m in range(table.n_features) if table.n_levels(m) > MOST_INDICATORS]
    if not many:
        return table
    numbers = {m: np.arange(table.n_levels(m), dtype=np.float64)[:, None] for m in many}
    plain = replace(table, level_columns=numbers)
    others = np.delete(plain.design, [plain.encoding[m].start for m in many], axis=1)
    level_columns, counts = {}, Weights.of(weights, table.n_rows)
    with one_thread():  # the sums must not depend on the number of threads
        for m, codes in numbers.items():
            directions = Directions.of(others, table.values[:, m].astype(np.intp), codes.size, counts)
            level_columns[m] = np.column_stack((codes, directions.means))
    return replace(table, level_columns=level_columns)


@dataclass(frozen=True)
class Directions:
    """Directions in which the levels of a category differ in some columns, and where each level stands in them.

    Rows of a level vary by 1 in each direction, and directions are free of each other. Means of levels are shrunk as
    far as their number of rows and the spread of all levels call for.

    Attributes
    ----------
    columns : int array
        The columns that are combined.
    centre : array of shape (columns,)
        Their means, which are subtracted.
    vectors : array of shape (columns, k)
        The directions.
    means : array of shape (levels, k)
        Shrunken means of the levels.
    variances : array of shape (k,)
        Variance between levels.
    """

    columns: NDArray[np.intp]
    centre: Array
    vectors: Array
    means: Array
    variances: Array

    @classmethod
    def of(
        cls,
        columns: Array,
        codes: NDArray[np.intp],
        n_levels: int,
        weights: Weights,
        most: int = MOST_DIRECTIONS,
    ) -> Directions:
        """From columns of about unit size; few directions, or none, where levels hardly differ."""
        if not columns.shape[1]:
            nowhere = np.zeros((n_levels, 0))
            return cls(np.empty(0, dtype=np.intp), np.zeros(0), np.zeros((0, 0)), nowhere, np.zeros(0))
        counted = weights.effective.values
        shapes = np.clip(columns, -FAR, FAR)
        counts = np.bincount(codes, counted, minlength=n_levels)
        size = counts.sum()
        centre = counted @ shapes / size
        shapes = shapes - centre
        sums = np.stack([np.bincount(codes, counted * column, minlength=n_levels) for column in shapes.T], axis=1)
        means = sums / np.maximum(counts, 1e-12)[:, None]
        whole = counted @ shapes**2
        between = np.einsum("lj,lj->j", sums, means)
        seen = int((counts > 0).sum())
        within = np.maximum(whole - between, MIN_WITHIN_SHARE * whole)
        strength = np.where(whole > 1e-9 * size, between / np.maximum(within, 1e-300), -1.0)
        kept = np.sort(np.argsort(-strength, kind="stable")[:MAX_COMBINED_COLUMNS])
        kept = kept[strength[kept] > 0].astype(np.intp)
        nothing = cls(kept, centre[kept], np.zeros((kept.size, 0)), np.zeros((n_levels, 0)), np.zeros(0))
        freedom = size - seen
        if kept.size == 0 or seen < 3 or freedom < 2 * kept.size:
            return nothing
        shapes, sums, means = shapes[:, kept], sums[:, kept], means[:, kept]
        scatter = shapes.T @ (counted[:, None] * shapes)
        inner = (scatter - sums.T @ means) / freedom + MIN_WITHIN_SHARE * np.diag(np.diag(scatter) / size)
        values, basis = np.linalg.eigh(inner)
        whiten = basis / np.sqrt(np.maximum(values, 1e-9 * values[-1]))
        turned, extra = np.linalg.eigh(whiten.T @ (sums.T @ means) @ whiten / (seen - 1))
        # The largest eigenvalue that levels without any difference would show, and a little more.
        edge = (1 + np.sqrt(kept.size / (seen - 1))) ** 2 * (1 + 2 * (seen - 1) ** (-2 / 3))
        order = np.argsort(-turned, kind="stable")[:most]
        order = order[turned[order] > edge]
        if order.size == 0:
            return nothing
        vectors = whiten @ extra[:, order]
        vectors *= np.where(vectors[np.argmax(np.abs(vectors), axis=0), np.arange(order.size)] < 0, -1.0, 1.0)
        typical = (size - counts @ counts / size) / (seen - 1)  # rows of a level
        variances = (turned[order] - 1) / typical
        share = variances / (variances + 1 / np.maximum(counts, 1e-12)[:, None])
        return cls(kept, centre[kept], vectors, share * (means @ vectors), variances)

    def __call__(self, columns: Array) -> Array:
        """Where rows stand in the directions, shape (n, k)."""
        return (np.clip(columns[:, self.columns], -FAR, FAR) - self.centre) @ self.vectors
