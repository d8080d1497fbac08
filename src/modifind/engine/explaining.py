"""Explanations: curve, densities and bounds of every feature, and the effects over the whole table.

Tests and importance use all rows. An explanation needs the rows themselves, two hundred times over for its bands: those
of a table in memory, or the sample that the models of a longer one are fitted to, subsampled if very large. Methods
with tests of their own, such as SI-EM, have their features explained by `views_alone`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import delayed

from modifind._system import one_thread
from modifind._typing import Array, Ints
from modifind._warned import collected, warn_once
from modifind._workers import results_of
from modifind.data.features import FeatureTable, Unit
from modifind.data.weights import Weights
from modifind.explain.bounds import Bounds, explain_bounds
from modifind.explain.effects import SUBGROUPS, subgroup_effects
from modifind.explain.overview import GLOBAL_TESTS, Overview, attempt, global_tests
from modifind.explain.rows import ArmRows, GivenFeature, PseudoOutcomes
from modifind.explain.views import (
    OVERALL,
    MarginalView,
    bandwidth_of,
    explained_column,
    overall_effects,
    sentence_percentiles,
)
from modifind.result.presentation import N_DRAWS
from modifind.statistics.prepared_wcmmd import PreparedWCMMD, curve_variance
from modifind.statistics.wcmmd import WCMMD


@dataclass(frozen=True)
class Explainer:
    """The rows at hand, and everything needed to explain them.

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

        If they fail, the curve is empty and there are no densities.
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
        """Bounds along every column for which they can be computed, at points of its curve."""
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
        """All tests and effects of a table of `n_rows` as a whole; a warning names those that fail."""
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
        """Features of the rows used for explanations."""
        rows = self.outcomes.rows
        return self.table if rows.size == self.table.n_rows else self.table.part(rows)


__all__ = ["MarginalView", "results_alone", "views_alone"]


def views_alone(
    table: FeatureTable,
    outcome: Array,
    arms: Ints,
    scores: Array,
    features: Collection[int],
    seeds: tuple[np.random.SeedSequence, np.random.SeedSequence],
    n_jobs: int | None,
) -> list[MarginalView]:
    """Importance, curve and densities of some features.

    Parameters
    ----------
    table, outcome, arms, scores
        Features, outcome, treatment and propensity scores.
    features : collection of int
        Positions of the features.
    seeds : pair of SeedSequence
        Of the statistic and of the features.
    n_jobs : int or None
        Processes.
    """
    prepared = WCMMD().for_rows(outcome, arms, seeds[0])
    rows = ArmRows(outcome, arms, scores)
    explainer = Explainer(table, rows, PseudoOutcomes.of(rows, seed=seeds[0].spawn(1)[0]), prepared)
    calls = [
        (explainer.view, m, seed.spawn(2)[0])
        for m, seed in enumerate(seeds[1].spawn(table.n_features))
        if m in features
    ]
    return results_alone(calls, n_jobs, doing="looking at features")


def results_alone(calls: Iterable[tuple[Any, ...]], n_jobs: int | None, *, doing: str) -> list[Any]:
    """Results of calls (functions with arguments) made in parallel; their warnings are reissued."""
    results = list(results_of([delayed(_alone)(*call) for call in calls], n_jobs, doing=doing))
    warn_once(message for _, messages in results for message in messages)
    return [value for value, _ in results]


def _alone(function: Callable[..., Any], *args: Any) -> tuple[Any, list[str]]:
    """Result and warnings of a call with one BLAS thread, so that results do not depend on the number of workers."""
    with one_thread(), collected() as messages:
        value = function(*args)
    return value, messages
