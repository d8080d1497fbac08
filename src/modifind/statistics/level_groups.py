"""Levels of a category that the models of a row cannot tell apart, which are one point of its distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints


@dataclass(frozen=True)
class LevelGroups:
    """Groups of levels, which differ from fold to fold as the models do.

    Attributes
    ----------
    kind : int array of shape (n,)
        Which set of groups a row has: rows whose folds are the same in all repeats share one.
    first : int array of shape (kinds, groups)
        A level of each group.
    member : array of shape (kinds, levels, groups)
        1 where a level belongs to a group.
    """

    kind: NDArray[np.intp]
    first: NDArray[np.intp]
    member: Array

    @classmethod
    def of(cls, alike: list[list[NDArray[np.intp]]], folds: list[Ints]) -> LevelGroups:
        """The groups of rows, from those of each fold's models and the folds of the rows, for each repeat.

        Examples
        --------
        >>> groups = LevelGroups.of([[np.array([0, 0, 1])]], [np.zeros(2, dtype=np.int64)])
        >>> points, chances = groups.gather(np.array([1]), np.array([[0.2, 0.3, 0.5]]))
        >>> points.tolist(), chances.tolist()
        ([[0.0, 2.0]], [[0.5, 0.5]])
        """
        combined, kind = np.unique(np.stack(folds, axis=1), axis=0, return_inverse=True)
        groups = []
        for row_folds in combined:
            together = np.stack([group_of[fold] for group_of, fold in zip(alike, row_folds, strict=True)], axis=1)
            groups.append(np.unique(together, axis=0, return_index=True, return_inverse=True)[1:])
        n_groups = max(first.size for first, _ in groups)
        firsts = np.zeros((len(groups), n_groups), dtype=np.intp)
        member = np.zeros((len(groups), alike[0][0].size, n_groups))
        for k, (first, group) in enumerate(groups):
            firsts[k, : first.size] = first
            member[k, np.arange(group.size), group.reshape(-1)] = 1.0
        return cls(kind.reshape(-1), firsts, member)

    def gather(self, rows: Ints, chances: Array) -> tuple[Array, Array]:
        """A level of each group and the chance of the group, each of shape (rows, groups), from chances of levels."""
        kind = self.kind[rows]
        gathered = np.empty((rows.size, self.first.shape[1]))
        for k in np.unique(kind):
            gathered[kind == k] = chances[kind == k] @ self.member[k]
        return self.first[kind].astype(np.float64), gathered
