"""The walk along a feature's distribution: every fold's model, over blocks of its rows, at the points of the grid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from modifind._typing import Array, Ints
from modifind.data.feature_groups import Feature, columns_of, encode
from modifind.data.feature_matrix import FeatureTable
from modifind.nuisance.conditional.contract import RowGrid
from modifind.statistics.level_groups import LevelGroups
from modifind.statistics.likelihood_terms import ArmFit

GRID_CELLS = 2**17  # rows times grid points evaluated at a time


def along_grid(
    fits: Iterable[ArmFit], table: FeatureTable, feature: Feature, grid: RowGrid, groups: LevelGroups | None = None
) -> Iterator[tuple[ArmFit, Ints, Array, Array, Array]]:
    """Every cross-fit over blocks of rows, as a feature takes the points of its distribution.

    Each block is the cross-fit, the rows, the weights of the points, of shape (rows, g), and the predictions of
    location and scale in both arms, of shape (rows, g, 2). Levels are gathered in their `groups`, where there are any.
    """
    columns = columns_of(table, feature)
    for fit in fits:
        for fold, model in enumerate(fit.cross.models):
            members = np.flatnonzero(fit.cross.folds == fold)
            step = max(1, GRID_CELLS // max(grid.at(members[:1])[0].shape[1], 1))
            for start in range(0, members.size, step):
                rows = members[start : start + step]
                points, chances = grid.at(rows)
                if groups is not None:
                    points, chances = groups.gather(rows, chances)
                known = tuple(None if index is None else index[start : start + step] for index in fit.index[fold])
                encoded = encode(table, feature, points)
                yield fit, rows, chances, *model.along(table.design[rows], columns, encoded, known)
