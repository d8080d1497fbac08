"""One engine for every table: models of the rows at hand, a test of every feature by all rows, and what was found.

A table in memory is one block that keeps its rows (module `in_memory`); a file, a long frame or a Dask table is many,
whose sums add up (module `pieces`). Both are a `Table`, and `Run` walks on with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array
from modifind.data.clusters import check_sampler_weights
from modifind.data.feature_groups import Unit
from modifind.data.outcome_scale import warn_of_one_row, warn_of_scale
from modifind.data.pieces import Block
from modifind.data.support import Outside
from modifind.engine.assemble import DETERMINED, Finding, tell
from modifind.engine.progress import Progress
from modifind.engine.record import data_settings
from modifind.engine.review import baseline_settings, review_columns
from modifind.engine.scoring import refuse_separation
from modifind.engine.units import Tested, group_settings, null_hypothesis, warn_constant_members
from modifind.explain.overview import Overview
from modifind.explain.pseudo import ArmRows, OutcomeModel, PseudoOutcomes
from modifind.inference import ConditionalRandomizationTest
from modifind.nuisance.conditional import BaseSampler, for_gaps
from modifind.nuisance.conditional.base import sampler_weights
from modifind.nuisance.conditional.per_cluster import ClusterSampler
from modifind.nuisance.propensity.overlap import OverlapSums
from modifind.nuisance.propensity.scores import FittedPropensity, PropensityModel
from modifind.statistics import Nuisances, Statistic
from modifind.statistics.families import Family, family_of


@dataclass(frozen=True)
class Models:
    """What is fitted to the rows at hand.

    Attributes
    ----------
    propensity : FittedPropensity
        Scores.
    sampler : BaseSampler
        Distributions of features.
    nuisances : Nuisances
        What a statistic is given.
    prepared : object
        The statistic, made ready: with models of the outcome, where it has any.
    """

    propensity: FittedPropensity
    sampler: BaseSampler
    nuisances: Nuisances
    prepared: Any


@dataclass(frozen=True)
class Answer:
    """What the tests of all features give.

    Attributes
    ----------
    findings : list of Finding
        What was found of each.
    interrupted : bool
        Whether Ctrl-C came before the end.
    overlap : OverlapSums
        How comparable the arms are.
    outcomes : PseudoOutcomes
        What curves are averages of.
    y_bandwidth : float
        Bandwidth of the kernel on outcomes.
    seed : SeedSequence or None
        For effects of all rows together; None where there is no time for them.
    n_resamples : int
        Resamples of a feature, at most.
    """

    findings: list[Finding]
    interrupted: bool
    overlap: OverlapSums
    outcomes: PseudoOutcomes
    y_bandwidth: float
    seed: np.random.SeedSequence | None
    n_resamples: int = 0


@dataclass(frozen=True)
class Table(ABC):
    """A table that was read: the rows that models are fitted to, what is tested, and how all rows are tested.

    Attributes
    ----------
    block : Block
        Rows as models see them.
    units : tuple of Unit
        What is tested.
    copies : frozenset of int
        Columns that others determine exactly.
    within : dict
        Clusters of the rows, for columns that have one value in each.
    folds : tuple of int arrays
        Fold of each row, for every repeat of the cross-fitting.
    left_out : frozenset of str
        Columns of which pooling rare levels has left one level.
    columns_in : tuple of str
        All columns of features, tested or not.
    labels : tuple
        The control's label and that of the treated.
    n_rows, n_treated : int
        Rows of the whole table, and those treated.
    outside : dict
        Rows at levels that one arm has hardly any rows of, by column.
    recorded : dict
        What a result records of names, weights, clusters, strata and adjustment.
    """

    block: Block
    units: tuple[Unit, ...]
    copies: frozenset[int]
    within: dict[int, NDArray[np.int64]]
    folds: tuple[NDArray[np.int64], ...]
    left_out: frozenset[str]
    columns_in: tuple[str, ...]
    labels: tuple[Any, Any]
    n_rows: int
    n_treated: int
    outside: dict[str, Outside]
    recorded: dict[str, Any]
    streams: ClassVar[tuple[str, ...]] = ()  # what the children of the seed are for

    @property
    def of_all_rows(self) -> tuple[bool, tuple[float, float] | None]:
        """Whether there are more rows than those at hand, and the range of their outcomes; see `Nuisances`."""
        return False, None

    @classmethod
    def stream(cls, run: Run, name: str) -> np.random.SeedSequence:
        """One of the children of the seed."""
        return np.random.SeedSequence(run.seed).spawn(len(cls.streams))[cls.streams.index(name)]

    @abstractmethod
    def scores(self, run: Run) -> FittedPropensity:
        """Propensity scores of the rows."""

    @abstractmethod
    def assign_folds(self, run: Run, sampler: BaseSampler) -> None:
        """Tell a sampler by which folds it is to be cross-fitted, where that matters."""

    @abstractmethod
    def answer(self, run: Run, models: Models) -> Answer:
        """Test every feature by all rows, and explain it."""


@dataclass(frozen=True)
class Run:
    """What is to be done with a table; settings are those of `ModifierSelector`.

    `feature_groups` are checked columns by group, and `sampler` one that agrees with the statistic.
    """

    statistic: Statistic
    sampler: BaseSampler
    propensity: PropensityModel
    test: ConditionalRandomizationTest
    n_resamples: int | str
    alpha: float
    adjust: str
    outcome_transform: str | None
    feature_groups: dict[str, tuple[str, ...]]
    n_folds: int
    n_jobs: int | None
    progress: bool | Progress
    seed: int
    explain: bool = True
    population: str = "all"
    outcome: str = "auto"
    effect_scale: str = "difference"

    def check_outcome(self, y: Array, arms: NDArray[np.int64], *, weighted: bool) -> None:
        """Refuse an outcome that settings have no meaning for; warn where a scale decides that no one has chosen."""
        self.statistic.validate(self.family(y, arms), weighted=weighted)
        if self.outcome_transform is None:
            warn_of_one_row(y)
        if (self.outcome_transform, self.outcome, self.effect_scale) == (None, "auto", "difference"):
            warn_of_scale(y)

    def family(self, y: Array, arms: NDArray[np.int64]) -> Family:
        """What the outcome is, on the scale on which effects are compared."""
        return family_of(y, self.outcome, self.effect_scale, arms)

    def fit(self, table: Table) -> Tested:
        """Fit models, scores and distributions, and test every feature.

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C before any feature was tested.
        """
        models = self._models(table)
        return self._concluded(table, models, table.answer(self, models))

    def _models(self, table: Table) -> Models:
        """Fit scores, the sampler and models of the outcome."""
        block = table.block
        propensity = table.scores(self)
        refuse_separation(propensity)
        sampler = for_gaps(self.sampler, block.table)
        sampler = ClusterSampler(sampler, table.within, DETERMINED) if table.within else sampler
        table.assign_folds(self, sampler)
        if block.weights is not None:
            check_sampler_weights(self.sampler)
        sampler.fit(block.table, block.treatment, table.stream(self, "sampler"), **sampler_weights(block.weights))
        nuisances = Nuisances(
            block.table,
            block.y,
            block.treatment,
            propensity.scores,
            table.stream(self, "statistic"),
            table.folds,
            block.weights,
            block.clusters,
            self.n_jobs,
            *table.of_all_rows,
            family=self.family(block.y, block.treatment),
        )
        return Models(propensity, sampler, nuisances, self.statistic.prepare(nuisances))

    def resamples(self, table: Table) -> int:
        """Resamples of a feature, at most."""
        if not self.statistic.resamples:
            return 0
        return self.test.resolve_resamples(self.n_resamples, len(table.units), self.alpha, self.adjust)

    def pseudo_outcomes(
        self, table: Table, propensity: FittedPropensity, model: Any, seed: np.random.SeedSequence
    ) -> PseudoOutcomes:
        """What curves are averages of; `model` is one of the outcome, or None."""
        block = table.block
        two_parts = self.family(block.y, block.treatment).kind == "amount"
        how = self.population, self.effect_scale, two_parts
        rows = ArmRows(block.y, block.treatment, propensity.scores, block.weights, block.clusters, *how)
        return PseudoOutcomes.of(rows, () if model is None else OutcomeModel.of(model), seed=seed)

    def _concluded(self, table: Table, models: Models, answer: Answer) -> Tested:
        """What was found of the whole table, and on record."""
        block, units, propensity = table.block, table.units, models.propensity
        names = tuple(unit.name for unit in units)
        tell(names, answer.findings)
        untested = {block.table.names[m] for m in table.copies} | table.left_out
        untested |= warn_constant_members(block.table, units)
        overview, rows = Overview(), answer.outcomes.rows
        if self.explain and answer.seed is not None:
            shown = replace(block.table, values=block.table.values[rows])
            overview = Overview.of(answer.outcomes, answer.y_bandwidth, shown, units, table.n_rows, answer.seed)
        return Tested(
            names=names,
            kinds=[unit.kind(block.table) for unit in units],
            findings=answer.findings,
            named=frozenset(untested),
            overlap=answer.overlap.overlap(propensity),
            overview=overview,
            score_histogram=answer.overlap.score_histogram(),
            columns=review_columns(
                propensity,
                block.y,
                randomised=propensity.is_known or "n_strata" in table.recorded,
                population=self.population,
                clusters=block.clusters,
                outcome_name=table.recorded.get("outcome_name"),
                positive=self.outcome_transform == "log",
                levels=table.outside,
            ),
            columns_in=table.columns_in,
            settings=self._recorded(table, models, answer) | self._baseline(table, propensity),
            interrupted=answer.interrupted,
        )

    def _baseline(self, table: Table, propensity: FittedPropensity) -> dict[str, Any]:
        """What is recorded of tested columns that are called like the outcome before the treatment."""
        return baseline_settings(
            propensity,
            randomised=propensity.is_known or "n_strata" in table.recorded,
            tested=[table.block.table.names[m] for unit in table.units for m in unit.members],
            clusters=table.block.clusters,
            outcome_name=table.recorded.get("outcome_name"),
        )

    def _recorded(self, table: Table, models: Models, answer: Answer) -> dict[str, Any]:
        """What a result records beyond the selector's arguments."""
        statistic, known, n_explained = self.statistic, table.recorded, answer.outcomes.rows.size
        kind = self.family(table.block.y, table.block.treatment).kind
        needed = self.test.needed_resamples(len(table.units), self.alpha, self.adjust) if statistic.resamples else 0
        return {
            "n_resamples_used": answer.n_resamples,
            "n_resamples_needed": needed,
            "model": None if statistic.resamples else models.prepared.description,
            **data_settings(*table.labels, table.n_rows, table.n_treated, models.propensity, self.seed),
            **known,
            "null_hypothesis": null_hypothesis(
                statistic,
                self.sampler,
                adjusted="adjust_for" in known,
                strata="n_strata" in known,
                groups=bool(self.feature_groups),
                kind=kind,
                effect_scale=self.effect_scale,
            ),
            "outcome_kind": kind,
            **group_settings(self.feature_groups, table.block.table, table.units),
            **({"outcome_levels": True} if answer.outcomes.levels else {}),
            **({"n_explained_rows": n_explained} if n_explained < table.n_rows else {}),
        }
