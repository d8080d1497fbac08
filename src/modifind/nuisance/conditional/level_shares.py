"""What distributions of features see of a category of many levels: how often the rows of a level are treated."""

from __future__ import annotations

import numpy as np

from modifind._typing import Ints
from modifind.data.feature_matrix import FeatureTable
from modifind.data.weights import Weights
from modifind.nuisance.regression.level_sums import LevelSums, LevelTables


def level_shares(table: FeatureTable, treatment: Ints | None, weights: Weights) -> LevelTables:
    """Shrunken shares of treated rows, standardised, in the place of the codes of levels.

    Beside the code the design has what the rows of a level have in common in other features. Given the treatment, other
    features may depend on the level also by way of how it is assigned there. Shares are zero without a treatment, where
    it is not conditioned on.
    """
    columns, tables = [], []
    for m in sorted(table.level_columns):
        codes, levels = table.values[:, m].astype(np.intp), table.n_levels(m)
        share = np.zeros(levels)
        if treatment is not None:
            excess = treatment - weights.mean(treatment.astype(np.float64))
            weight = weights.effective.values / max(float(excess.var()), 1e-12)
            none = np.zeros(codes.size, dtype=np.intp)
            share = LevelSums.of(codes, levels, none, none, weight, excess, n_arms=1).effects()[0][:, 0]
            spread = float(share[codes].std())
            share = (share - share[codes].mean()) / (spread or 1.0)
        columns.append(table.encoding[m].start)
        tables.append(share)
    return LevelTables(tuple(columns), tuple(tables))
