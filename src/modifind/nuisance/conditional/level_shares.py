"""What distributions of features see of a category of many levels: how often the rows of a level are treated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modifind._typing import Array, Ints
from modifind.data.feature_matrix import FeatureTable
from modifind.data.survey import effective_weights, mean_of
from modifind.nuisance.regression.level_sums import LevelSums


@dataclass(frozen=True)
class LevelShares:
    """Shrunken shares of treated rows, standardised, in the place of the codes of levels.

    Beside the code the design has what the rows of a level have in common in other features. Given the treatment, other
    features may depend on the level also by way of how it is assigned there.

    Attributes
    ----------
    columns : tuple of int
        Columns of codes in the design.
    tables : tuple of arrays of shape (levels,)
        The shares; zero where distributions ignore the treatment.
    """

    columns: tuple[int, ...] = ()
    tables: tuple[Array, ...] = ()

    @classmethod
    def of(cls, table: FeatureTable, treatment: Ints | None, weights: Array | None) -> LevelShares:
        """From the rows of a table; without a treatment where it is not conditioned on."""
        columns, tables = [], []
        for m in sorted(table.level_columns):
            codes, levels = table.values[:, m].astype(np.intp), table.n_levels(m)
            share = np.zeros(levels)
            if treatment is not None:
                excess = treatment - mean_of(treatment.astype(np.float64), weights)
                own = effective_weights(weights)
                weight = (np.ones(codes.size) if own is None else own) / max(float(excess.var()), 1e-12)
                none = np.zeros(codes.size, dtype=np.intp)
                share = LevelSums.of(codes, levels, none, none, weight, excess, n_arms=1).effects()[0][:, 0]
                spread = float(share[codes].std())
                share = (share - share[codes].mean()) / (spread or 1.0)
            columns.append(table.encoding[m].start)
            tables.append(share)
        return cls(tuple(columns), tuple(tables))

    def __call__(self, design: Array) -> Array:
        """The design with shares for codes."""
        if not self.columns:
            return design
        design = design.copy()
        for column, share in zip(self.columns, self.tables, strict=True):
            design[:, column] = share[design[:, column].astype(np.intp)]
        return design
