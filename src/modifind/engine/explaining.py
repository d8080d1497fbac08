"""Everything that is explained: every feature by its curve, densities and bounds, and the table as a whole.

Tests and importance are those of all rows. An explanation needs rows, two hundred times over for its bands: those of a
table in memory, or of the sample that the models of a longer one are fitted to; of very many a random part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from modifind._threads import one_thread
from modifind.data.feature_groups import Unit
from modifind.data.feature_matrix import FeatureTable
from modifind.data.weights import Weights
from modifind.explain.attempts import attempt
from modifind.explain.column_bounds import Bounds, explain_bounds
from modifind.explain.global_tests import GLOBAL_TESTS, global_tests
from modifind.explain.marginal import MarginalView, bandwidth_of, explained_column, sentence_percentiles
from modifind.explain.overview import Overview
from modifind.explain.pseudo import ArmRows, PseudoOutcomes
from modifind.explain.reading import GivenFeature
from modifind.explain.subgroups import SUBGROUPS, subgroup_effects
from modifind.explain.views import OVERALL, overall_effects
from modifind.result.explained import N_DRAWS
from modifind.statistics.prepared_wcmmd import PreparedWCMMD, curve_variance


@dataclass(frozen=True)
class Explainer:
    """Rows at hand, and what is needed to explain them.

    Attributes
    ----------
    table : FeatureTable
        Features of the rows.
    rows : ArmRows
        Their outcomes, arms and propensity scores, and how they count.
    outcomes : PseudoOutcomes
        What curves are averages of; its `rows` are those that explain.
    importance : PreparedWCMMD
        The statistic whose value is the importance of a column.
    bands : bool
        Whether there is more to explain than curves without bands.
    """

    table: FeatureTable
    rows: ArmRows
    outcomes: PseudoOutcomes
    importance: PreparedWCMMD
    bands: bool = True

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
        views = {}
        for m, column_seed in unit.with_seeds(seed):
            importance = None if known is None else known.get(m, 0.0)
            views[self.table.names[m]] = self.view(m, column_seed, importance=importance, bands=bands)
        return views

    def view(
        self, m: int, seed: np.random.SeedSequence, *, importance: float | None = None, bands: bool = True
    ) -> MarginalView:
        """Importance, curve and densities of one column; the importance of a constant one is 0.

        The curve is empty, and there are no densities, where they fail.
        """
        table, outcomes, weights, n_draws = (
            self.table,
            self.outcomes,
            self.rows.weights,
            N_DRAWS * (self.bands and bands),
        )
        column, n_levels = table.values[:, m], table.n_levels(m)
        view = MarginalView(0.0 if importance is None else importance, bandwidth_of(table, m, weights, seed))
        if importance is None and not table.is_constant(m):
            curve = self.importance.curve(column, self.rows.scores, bandwidth=view.bandwidth, n_levels=n_levels)
            view = replace(view, importance=curve_variance(curve, weights))
        shown = attempt(
            f"feature {table.names[m]!r}: its curve",
            explained_column,
            column[outcomes.rows],
            table.categories[m],
            outcomes,
            self.importance.y_bandwidth,
            np.random.default_rng(seed.spawn(1)[0]),
            n_draws=n_draws,
        )
        if shown is None:
            return view
        if outcomes.population == "overlap":
            column, weights = column[outcomes.rows], Weights.of(outcomes.weights)
        percentiles = () if n_levels else sentence_percentiles(column, weights)
        densities = shown.densities if n_draws else None
        return replace(view, curve=shown.curve, densities=densities, percentiles=percentiles)

    def bounds(self, unit: Unit, views: Mapping[str, MarginalView], seed: np.random.SeedSequence) -> dict[str, Bounds]:
        """Bounds along every column that they can be found of, at points of its curve."""
        table, rows, bounds = self._explained_table, self.rows.part(self.outcomes.rows), {}
        for m, column_seed in zip(unit.members, seed.spawn(len(unit.members)), strict=True):
            name, curve = table.names[m], views[table.names[m]].curve
            if not table.observed(m).any():
                continue
            points = None
            if table.kind(m) == "continuous" and len(curve):
                points = curve["value"].dropna().to_numpy(dtype=np.float64)
            feature = GivenFeature(table.values[:, m], table.categories[m], points)
            bounds[name] = attempt(f"feature {name!r}: bounds along it", explain_bounds, feature, rows, column_seed)
        return {name: bound for name, bound in bounds.items() if bound is not None}

    def overview(self, units: Sequence[Unit], n_rows: int, seed: np.random.SeedSequence) -> Overview:
        """Everything that can be found of a table of `n_rows` as a whole; a warning names what cannot."""
        outcomes, table, width = self.outcomes, self._explained_table, self.importance.y_bandwidth
        with one_thread():
            parts = {
                "overall": attempt(OVERALL, overall_effects, outcomes, width, seed),
                "tests": attempt(GLOBAL_TESTS, global_tests, outcomes, width, table, n_rows),
                "subgroups": attempt(SUBGROUPS, subgroup_effects, outcomes, table, units),
            }
        return Overview(**{name: part for name, part in parts.items() if part is not None})  # type: ignore[arg-type]

    @property
    def _explained_table(self) -> FeatureTable:
        """Features of the rows that explain."""
        rows = self.outcomes.rows
        return self.table if rows.size == self.table.n_rows else self.table.part(rows)
