"""Columns as learners of the outcome see them: missing values filled in, categories of many levels as effects."""

from __future__ import annotations

from dataclasses import dataclass, field

from modifind._typing import Array
from modifind.nuisance.outcome.filling import Filling
from modifind.nuisance.outcome.level_effects import LevelEffects


@dataclass(frozen=True)
class Recast:
    """How columns change on their way to the learners of a fold, learned from their training rows.

    Attributes
    ----------
    filling : Filling
        Values in place of missing ones.
    effects : LevelEffects
        Effects of levels in place of their codes.
    """

    filling: Filling = field(default_factory=Filling)
    effects: LevelEffects = field(default_factory=LevelEffects)

    def __call__(self, X: Array, first: int = 0) -> Array:
        """Rows, of any shape, whose last axis has all columns, or neighbouring ones from `first` on, changed."""
        return self.effects(self.filling(X, first), first)

    def place(self, columns: slice) -> slice:
        """Positions of columns among those that learners see."""
        return self.effects.place(columns)
