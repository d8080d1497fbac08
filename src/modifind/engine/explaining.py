"""Explanations of features: curves, densities and bounds, from rows that are at hand.

Tests and importance are those of all rows. An explanation needs rows, two hundred times over for its bands: those of a
table in memory, or of the sample that the models of a longer one are fitted to; of very many a random part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from modifind.data.feature_groups import Unit
from modifind.data.pieces import Block
from modifind.explain.attempts import attempt
from modifind.explain.column_bounds import Bounds, explain_bounds
from modifind.explain.marginal import MarginalView, marginal_view
from modifind.explain.pseudo import ArmRows, PseudoOutcomes
from modifind.nuisance.propensity.scores import FittedPropensity
from modifind.result.explained import N_DRAWS
from modifind.statistics.prepared_wcmmd import PreparedWCMMD


@dataclass(frozen=True)
class Explainer:
    """Rows at hand, and what is needed to explain any feature by them.

    Attributes
    ----------
    block : Block
        The rows.
    propensity : FittedPropensity
        Their scores.
    importance : PreparedWCMMD
        What the importance of a column is the value of.
    outcomes : PseudoOutcomes
        What curves are averages of; its `rows` are those that explain.
    bands : bool
        Whether there is more to explain than a curve without bands.
    """

    block: Block
    propensity: FittedPropensity
    importance: PreparedWCMMD
    outcomes: PseudoOutcomes
    bands: bool

    def views(
        self,
        unit: Unit,
        seed: np.random.SeedSequence,
        known: Mapping[int, float] | None = None,
        *,
        bands: bool = True,
    ) -> dict[str, MarginalView]:
        """Importance, curve and densities of every column of a unit, by name.

        Parameters
        ----------
        unit : Unit
            The feature or group.
        seed : SeedSequence
            For bandwidths and the bootstrap.
        known : mapping, optional
            Importance of columns, where more rows than these tell it.
        bands : bool, default=True
            Whether there are bands and densities.
        """
        block, n_draws = self.block, N_DRAWS if self.bands and bands else 0
        given = self.outcomes, self.propensity.scores, self.importance
        return {
            block.table.names[m]: marginal_view(
                block.table,
                m,
                *given,
                column_seed,
                block.weights,
                n_draws=n_draws,
                importance=None if known is None else known.get(m, 0.0),
            )
            for m, column_seed in unit.with_seeds(seed)
        }

    def bounds(self, unit: Unit, views: Mapping[str, MarginalView], seed: np.random.SeedSequence) -> dict[str, Bounds]:
        """Bounds along every column that they can be found of, at points of its curve."""
        block, rows = self.block, self.outcomes.rows
        given = ArmRows(
            block.y[rows],
            block.treatment[rows],
            self.propensity.scores[rows],
            block.weights[rows],
            self.outcomes.clusters,
            self.outcomes.population,
        )
        table, found = block.table.part(rows), {}
        for m, column_seed in zip(unit.members, seed.spawn(len(unit.members)), strict=True):
            name = table.names[m]
            curve = views[name].curve
            if not table.observed(m).any():
                continue
            points = None
            if table.kind(m) == "continuous" and len(curve):
                points = curve["value"].to_numpy(dtype=np.float64)
            what = f"feature {name!r}: bounds along it"
            bounds = attempt(what, explain_bounds, table, m, given, column_seed, points=points)
            if bounds is not None:
                found[name] = bounds
        return found
