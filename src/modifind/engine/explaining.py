"""Explanations of a streamed fit: curves, densities, what changes and bounds, from rows that are at hand.

Tests and importance are sums over all rows. An explanation needs rows, two hundred times over for its bands, and those
of the sample that models are fitted to are in memory. A random part of them explains every feature by the code that
explains tables in memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind._threads import one_thread
from modifind._typing import Array
from modifind._workers import WORKER_DIED, survivors
from modifind.data.feature_groups import Unit
from modifind.data.feature_matrix import FeatureTable
from modifind.data.pieces import Block
from modifind.data.population import population_weights
from modifind.data.survey import some
from modifind.engine.change_tests import Changes, Sweep, change_tests, unseen_changes
from modifind.engine.overlap_conditional import OverlapConditional
from modifind.engine.progress import Progress, ProgressBar
from modifind.engine.record import with_messages
from modifind.explain.attempts import attempt, missing
from modifind.explain.column_bounds import Bounds, explain_bounds
from modifind.explain.pseudo import ArmRows, PseudoOutcomes
from modifind.explain.reading import GivenFeature
from modifind.explain.views import Explained, explain_column, no_curve
from modifind.nuisance.conditional import ConditionalRule
from modifind.nuisance.conditional.joint import JointRule, rule_grid
from modifind.nuisance.propensity.scores import FittedPropensity
from modifind.result.explained import N_DRAWS
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood

MOST_TASKS = 100
Shown: TypeAlias = tuple[pd.DataFrame, pd.DataFrame | None]  # a curve, and densities at some of its points
NOT_SHOWN: Shown = (no_curve(), None)


@dataclass(frozen=True)
class Question:
    """What is asked of one feature, or of a group.

    Attributes
    ----------
    unit : Unit
        The feature or group.
    rule : ConditionalRule or JointRule, optional
        Its distribution, where what it changes is tested.
    unseen : bool
        Whether no model looks at it, so that it changes nothing that they see.
    bounds : bool
        Whether bounds are wanted.
    """

    unit: Unit
    rule: ConditionalRule | JointRule | None = None
    unseen: bool = False
    bounds: bool = False


@dataclass(frozen=True)
class Explanation:
    """What explains one feature or group; curves, densities and bounds are those of its columns, by name."""

    shown: Mapping[str, Shown]
    changes: Changes | None = None
    bounds: Mapping[str, Bounds] | None = None
    messages: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExplainingRows:
    """Rows of the sample, and what the models that have not seen them make of them.

    Attributes
    ----------
    table : FeatureTable
        Features.
    y, treatment, numbers : arrays of shape (n,)
        Outcome, 0/1 treatment, and numbers of the rows in the whole table.
    propensity : FittedPropensity
        Scores of the rows, also with other values of a feature.
    folds : int array of shape (n,)
        Which of several models of a feature's distribution scores a row.
    model : PreparedEffectLikelihood, optional
        Models of the outcome.
    counted, clusters : arrays of shape (n,), optional
        How much rows count, and which belong together.
    outcomes : PseudoOutcomes
        What curves are averages of; its `rows` are places in the sample.
    share : float
        Share of the sample that these rows are.
    y_bandwidth : float
        Bandwidth of the kernel on outcomes.
    bands : bool
        Whether there is more to explain than a curve without bands.
    """

    table: FeatureTable
    y: Array
    treatment: NDArray[np.int64]
    numbers: NDArray[np.int64]
    propensity: FittedPropensity
    folds: NDArray[np.int64]
    model: PreparedEffectLikelihood | None
    counted: Array | None
    clusters: NDArray[np.int64] | None
    outcomes: PseudoOutcomes
    share: float
    y_bandwidth: float
    bands: bool

    @classmethod
    def of(
        cls,
        block: Block,
        numbers: NDArray[np.int64],
        propensity: FittedPropensity,
        folds: Sequence[NDArray[np.int64]],
        model: PreparedEffectLikelihood | None,
        outcomes: PseudoOutcomes,
        y_bandwidth: float,
        *,
        bands: bool,
    ) -> ExplainingRows:
        """The rows of the sample that pseudo-outcomes are of: a random part, or all of it where it is small.

        Parameters
        ----------
        block, numbers : Block, array
            The sample, and the numbers of its rows.
        propensity : FittedPropensity
            Its propensity scores.
        folds : list of int arrays
            Fold of each of its rows, for every repeat of the cross-fitting.
        model : PreparedEffectLikelihood, optional
            Models of the outcome, cross-fitted to it.
        outcomes : PseudoOutcomes
            Those of its rows, or of some.
        """
        y, treatment, scores = block.y, block.treatment, propensity.scores
        rows, table = outcomes.rows, block.table
        weights, clusters = some(block.weights, rows), some(block.clusters, rows)
        if rows.size < y.size:
            table = replace(table, values=table.values[rows], reference=table.scaling)
            parts = [own[rows] for own in folds]
            if model is not None:
                model = model.at(table, model.y[rows], treatment[rows], scores[rows], parts, weights, clusters)
            propensity = propensity.at(table, treatment[rows], folds[0][rows], propensity.raw[rows], weights)
        return cls(
            table=table,
            y=y[rows],
            treatment=treatment[rows],
            numbers=numbers[rows],
            propensity=propensity,
            folds=folds[0][rows],
            model=model,
            counted=weights,
            clusters=clusters,
            outcomes=outcomes,
            share=rows.size / y.size,
            y_bandwidth=y_bandwidth,
            bands=bands,
        )

    @property
    def weights(self) -> Array | None:
        """How much rows count in the population that effects are about; None where all count alike."""
        return population_weights(self.propensity.scores, self.outcomes.population, self.counted)

    def explain(self, question: Question, seed: np.random.SeedSequence) -> Explanation:
        """Answer a question about one feature or group, by one thread."""
        with one_thread():
            unit = question.unit
            curve_seed, bounds_seed = seed.spawn(2)
            names = {m: self.table.names[m] for m in unit.members}
            shown = {}
            for m, own in unit.with_seeds(curve_seed):
                found = attempt(f"feature {names[m]!r}: its curve", self._column, m, own)
                shown[names[m]] = NOT_SHOWN if found is None else (found.curve, found.densities if self.bands else None)
            if not self.bands:
                return Explanation(shown)
            bounds: dict[str, Bounds] = {}
            together = self.counted, self.clusters, self.outcomes.population
            rows = ArmRows(self.y, self.treatment, self.propensity.scores, *together)
            for m, own in unit.with_seeds(bounds_seed) if question.bounds else ():
                if not self.table.observed(m).any():
                    continue
                told = attempt(f"feature {names[m]!r}: bounds along it", explain_bounds, self.table, m, rows, own)
                bounds |= {} if told is None else {names[m]: told}
            changes = attempt(f"feature {unit.name!r}: what changes along it", self._changes, question)
            return Explanation(shown, changes, bounds or None)

    def _column(self, feature: int, seed: np.random.SeedSequence) -> Explained:
        column, labels = self.table.values[:, feature], self.table.categories[feature]
        rng, n_draws = np.random.default_rng(seed), N_DRAWS if self.bands else 0
        seen = self.table.observed(feature).any()
        # Where every value is missing there is one point, as of a single category.
        shown = GivenFeature(column, labels) if seen else GivenFeature(np.zeros(column.size), (np.nan,))
        found = explain_column(shown, self.outcomes, self.y_bandwidth, rng, n_draws=n_draws)
        if seen:
            return found
        curve, densities = (part.astype({"value": np.float64}) for part in (found.curve, found.densities))
        return Explained(curve, densities)

    def _changes(self, question: Question) -> Changes | None:
        if self.model is None:
            return None
        if question.rule is None:
            return unseen_changes(self.model) if question.unseen else None
        feature = question.unit.feature
        conditional = rule_grid(question.rule, self.table, self.treatment, self.folds, self.numbers)
        grid = OverlapConditional(conditional, self.propensity, feature)
        sweep = None
        if self.model.looks_at(feature):
            sweep = Sweep.of(self.model, feature, grid)
            # Folds share what their rows here have taught each other's models; the sample's other rows taught more.
            sweep = replace(sweep, reuse=tuple(replace(own, share=self.share) for own in sweep.reuse))
        return change_tests(self.model, feature, grid, sweep)

    def without(self, unit: Unit, reason: str) -> Explanation:
        """That a feature has no explanation, and why."""
        what = (missing(f"feature {unit.name!r}: its curve", reason),) if reason else ()
        return Explanation({self.table.names[m]: NOT_SHOWN for m in unit.members}, messages=what)


def explain_features(
    rows: ExplainingRows,
    questions: Mapping[int, Question],
    seed: np.random.SeedSequence,
    n_jobs: int | None,
    progress: bool | Progress,
) -> tuple[list[Explanation], bool]:
    """Explain every feature that something is asked of, in the order of the questions; Ctrl-C leaves the rest out.

    `seed`, `n_jobs` and `progress` are as in `run_tests`. What cannot be found is left out, and a message says why.

    Returns
    -------
    explanations : list of Explanation
        One for every question.
    interrupted : bool
        Whether Ctrl-C came before the end.
    """
    children = seed.spawn(1 + max(question.unit.place for question in questions.values()))
    items = {k: (question, children[question.unit.place]) for k, question in questions.items()}
    found: dict[int, Explanation] = {}
    results = survivors(_explain_some, (rows,), items, n_jobs, most_tasks=MOST_TASKS)
    interrupted = False
    try:
        with ProgressBar(progress, "Explaining features") as advance, closing(results):
            advance(0, len(items))
            for k, own in results:
                found[k] = rows.without(questions[k].unit, WORKER_DIED) if own is None else own
                advance(len(found), len(items))
    except KeyboardInterrupt:
        interrupted = True
        left = len(items) - len(found)
        warnings.warn(
            f"interrupted: all features are tested, but {left} of {len(items)} not explained",
            UserWarning,
            stacklevel=4,
        )
    return [found[k] if k in found else rows.without(questions[k].unit, "") for k in items], interrupted


def _explain_some(
    rows: ExplainingRows, pairs: list[tuple[int, tuple[Question, np.random.SeedSequence]]]
) -> list[Explanation]:
    return [_explain_one(rows, *asked) for _, asked in pairs]


def _explain_one(rows: ExplainingRows, question: Question, seed: np.random.SeedSequence) -> Explanation:
    found, messages = with_messages(rows.explain, question, seed)
    return replace(found, messages=messages)
