"""One fitted analysis, put to the test feature by feature."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._threads import one_thread
from modifind._typing import Array, Ints
from modifind._workers import WorkerError, survivors
from modifind.data.feature_groups import Feature, Unit
from modifind.data.feature_matrix import FeatureTable
from modifind.engine.assemble import DETERMINED, DIED, NO_SAMPLER, UNTESTED, Finding, failure_of
from modifind.engine.checkpoint import Checkpoint
from modifind.engine.progress import Progress, ProgressBar
from modifind.engine.record import with_messages
from modifind.engine.testers import Tester
from modifind.explain.attempts import attempt
from modifind.explain.column_bounds import Bounds, explain_bounds
from modifind.explain.marginal import MarginalView, marginal_view
from modifind.explain.pseudo import ArmRows, PseudoOutcomes
from modifind.nuisance.conditional import BaseSampler, Conditional
from modifind.nuisance.conditional.contract import check_conditional, check_rule, fitted_conditional
from modifind.nuisance.conditional.joint import JointRule, joint_rule
from modifind.nuisance.propensity.scores import FittedPropensity
from modifind.result.explained import N_DRAWS
from modifind.statistics.prepared_wcmmd import PreparedWCMMD

MOST_TASKS = 100
MANY_FEATURES = 100


@dataclass(frozen=True)
class Analysis:
    """Everything a worker needs to test any feature.

    Attributes
    ----------
    copies : frozenset of int
        Features that others determine exactly.
    units : tuple of Unit
        What is tested: features, and groups of them. Models and samplers only condition on the other columns.
    weights : array of shape (n,), optional
        How much each row counts.
    outcomes : PseudoOutcomes
        What curves are averages of.
    clusters : array of shape (n,), optional
        Codes of rows that belong together.
    explain : bool
        Whether features are explained and not only tested.
    alpha : float
        Bounds are those of features with a p-value of at most this.
    """

    table: FeatureTable
    y: Array
    outcomes: PseudoOutcomes
    propensity: FittedPropensity
    sampler: BaseSampler
    prepared: PreparedWCMMD
    tester: Tester
    copies: frozenset[int]
    units: tuple[Unit, ...]
    weights: Array | None = None
    clusters: NDArray[np.int64] | None = None
    explain: bool = True
    alpha: float = 0.05

    def conditional(self, feature: int) -> Conditional:
        """The distribution of one feature in these rows."""
        return _own_rows(self, self.sampler.rule(feature))


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during the tests.

    Attributes
    ----------
    findings : list of Finding
        In the order of the features; those that were not reached are `UNTESTED`.
    """

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__()
        self.findings = findings


def run_tests(
    plan: Analysis,
    seed: np.random.SeedSequence,
    n_jobs: int | None,
    progress: bool | Progress,
    checkpoint: Checkpoint | None = None,
    known: dict[int, Finding] | None = None,
) -> list[Finding]:
    """Test every feature and group.

    Parameters
    ----------
    plan : Analysis
        What is needed to test any feature.
    seed : SeedSequence
        Every feature has a child of its own.
    n_jobs : int, optional
        Processes.
    progress : bool or callable
        See `ProgressBar`.
    checkpoint : Checkpoint, optional
        Where each feature is saved as soon as it is tested.
    known : dict, optional
        Findings that are there already, by position.

    Returns
    -------
    list of Finding
        In the order of the plan's units.

    Raises
    ------
    Interrupted
        Ctrl-C; it carries what was found before.
    WorkerError
        Not a single feature could be tested.
    """
    total = len(plan.units)
    found = {m: finding for m, finding in (known or {}).items() if not _lacks_bounds(plan, finding)}
    children = seed.spawn(1 + max(unit.place for unit in plan.units))
    seeds = {m: children[unit.place] for m, unit in enumerate(plan.units) if m not in found}
    results = survivors(_test_features, (plan, checkpoint), seeds, n_jobs, most_tasks=MOST_TASKS)
    try:
        with ProgressBar(progress) as advance, closing(results):
            advance(len(found), total)
            for feature, finding in results:
                found[feature] = DIED if finding is None else finding
                if checkpoint is not None and not found[feature].failure:
                    checkpoint.save_missing(feature, found[feature])
                advance(len(found), total)
    except KeyboardInterrupt:
        if checkpoint is not None:  # workers may have saved more than they handed on
            found = {**checkpoint.load(), **found}
        raise Interrupted([found.get(m, UNTESTED) for m in range(total)]) from None
    if all(finding.failure for finding in found.values()):
        raise WorkerError(f"no feature could be tested: {found[0].failure}")
    return [found[m] for m in range(total)]


def _test_features(
    plan: Analysis, checkpoint: Checkpoint | None, pairs: list[tuple[int, np.random.SeedSequence]]
) -> list[Finding]:
    found = []
    for feature, seed in pairs:
        finding = _test_feature(plan, feature, seed)
        if checkpoint is not None and not finding.failure:
            checkpoint.save_here(feature, finding)
        found.append(finding)
    return found


def _test_feature(plan: Analysis, place: int, seed: np.random.SeedSequence) -> Finding:
    """Test one feature or group; its warnings travel with the finding, and so does what went wrong."""
    unit = plan.units[place]
    try:
        finding, messages = with_messages(_find_and_explain, plan, unit, seed)
    except Exception as error:
        return replace(DIED, failure=failure_of(error, unit.name))
    return replace(finding, messages=messages)


def _find_and_explain(plan: Analysis, unit: Unit, seed: np.random.SeedSequence) -> Finding:
    finding = _find(plan, unit, seed)
    # The test has had its seeds by now, so that explanations change no p-value.
    return with_bounds(plan, unit, finding, seed)


def with_bounds(plan: Analysis, unit: Unit, finding: Finding, seed: np.random.SeedSequence) -> Finding:
    """A finding with bounds where its p-value asks for them."""
    return replace(finding, bounds=_bounds(plan, unit, finding, seed)) if _lacks_bounds(plan, finding) else finding


def _lacks_bounds(plan: Analysis, finding: Finding) -> bool:
    """Whether bounds are to be computed; a finding on file may be of a run with a smaller alpha."""
    outcome = finding.outcome
    return plan.explain and outcome is not None and outcome.p_value <= plan.alpha and finding.bounds is None


def _bounds(plan: Analysis, unit: Unit, finding: Finding, seed: np.random.SeedSequence) -> dict[str, Bounds]:
    """Bounds along every column that they can be found of, at points of its curve."""
    found = {}
    counted = (plan.weights, plan.clusters, plan.outcomes.population)
    rows = ArmRows(plan.y, plan.prepared.treatment, plan.propensity.scores, *counted)
    with one_thread():
        for member, own in zip(unit.members, seed.spawn(1)[0].spawn(len(unit.members)), strict=True):
            name = plan.table.names[member]
            view = finding.views[name] if finding.views else finding.view
            at_curve = plan.table.kind(member) == "continuous" and len(view.curve) > 0
            own_bounds = attempt(
                f"feature {name!r}: bounds along it",
                explain_bounds,
                plan.table,
                member,
                rows,
                own,
                points=view.curve["value"].to_numpy(dtype=np.float64) if at_curve else None,
            )
            if own_bounds is not None:
                found[name] = own_bounds
    return found


def _find(plan: Analysis, unit: Unit, seed: np.random.SeedSequence) -> Finding:
    """Work with one BLAS thread, so that results do not depend on how many workers there are.

    Importance and bandwidth of a group are those of its most important column.
    """
    with one_thread():
        table, tester, feature = plan.table, plan.tester, unit.feature
        view_seed, *own_seeds = seed.spawn(3 if isinstance(feature, tuple) else 2)
        views = {table.names[m]: _view(plan, m, own) for m, own in unit.with_seeds(view_seed)}
        view = max(views.values(), key=lambda own: own.importance)
        shown = views if unit.group else None
        if unit.is_constant(table):
            return Finding(view, None, NO_SAMPLER, views=shown)
        known = tester.without_conditional(feature)
        if known is not None and feature not in plan.copies:
            return Finding(view, known[0], NO_SAMPLER, views=shown, changes=known[1])
        asked = table, plan.prepared.treatment, feature, plan.copies, own_seeds[0]
        rule, determined = learn(plan.sampler, *asked, weights=plan.weights)
        if determined:
            return Finding(view, None, rule.calibration, views=shown)
        conditional, rng = _own_rows(plan, rule), np.random.default_rng(own_seeds[-1])
        outcome, changes = tester.examine(feature, conditional, view.bandwidth, rng)
        return Finding(view, outcome, rule.calibration, views=shown, changes=changes)


def learn(
    sampler: BaseSampler,
    table: FeatureTable,
    treatment: Ints,
    feature: Feature,
    copies: frozenset[int],
    seed: np.random.SeedSequence,
    parts: Ints | None = None,
    weights: Array | None = None,
) -> tuple[Any, bool]:
    """What a sampler knows of a feature, or of several together by a seed, and whether the others determine it."""
    if isinstance(feature, tuple):
        joint = joint_rule(sampler, table, treatment, feature, DETERMINED, seed, parts, weights)
        return joint, joint.determined
    rule = sampler.rule(feature)
    check_rule(rule, sampler)
    return rule, feature in copies or rule.calibration.explained_share > DETERMINED[table.kind(feature)]


def _own_rows(plan: Analysis, rule: Any) -> Any:
    """The distribution of the rows of the table."""
    conditional = fitted_conditional(rule, plan.table, plan.prepared.treatment)
    if not isinstance(rule, JointRule):
        check_conditional(conditional, rule, "draw")
    return conditional


def _view(plan: Analysis, feature: int, seed: np.random.SeedSequence) -> MarginalView:
    # Of many features those that need a distribution have bands and densities.
    bands = len(plan.units) <= MANY_FEATURES or plan.tester.without_conditional(feature) is None
    return marginal_view(
        plan.table,
        feature,
        plan.outcomes,
        plan.propensity.scores,
        plan.prepared,
        seed,
        plan.weights,
        n_draws=N_DRAWS if plan.explain and bands else 0,
    )
