"""One fitted analysis, put to the test feature by feature."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from modifind.base import with_messages
from modifind.explain.marginal import MarginalView, marginal_view
from modifind.feature_groups import Unit
from modifind.features import FeatureTable
from modifind.findings import DETERMINED, DIED, NO_SAMPLER, UNTESTED, Finding, failed
from modifind.kernels import Array
from modifind.parallel import WorkerError, survivors
from modifind.progress import Progress, ProgressBar
from modifind.propensity import FittedPropensity
from modifind.samplers import BaseSampler
from modifind.samplers.joint import joint_law
from modifind.statistics.wcmmd import PreparedWCMMD
from modifind.testers import AnalyticTester, Tester

MOST_TASKS = 100


@dataclass(frozen=True)
class Analysis:
    """Everything a worker needs to test any feature.

    Attributes
    ----------
    copies : frozenset of int
        Features that others determine exactly.
    """

    table: FeatureTable
    y: Array
    propensity: FittedPropensity
    sampler: BaseSampler
    prepared: PreparedWCMMD
    tester: Tester
    copies: frozenset[int]
    n_tested: int | None = None


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
    """Test every feature that is to be tested; the findings are in the order of the features."""
    total = plan.table.n_features if plan.n_tested is None else plan.n_tested
    seeds = seed.spawn(total)
    # Every task carries the plan, so many features come in as many tasks as keep all workers busy to the end.
    step = max(1, total // MOST_TASKS)
    tasks = (range(start, min(start + step, total)) for start in range(0, total, step))
    jobs = (delayed(_test_features)(plan, task, seeds[task.start : task.stop]) for task in tasks)
    found: list[Finding] = []
    with ProgressBar(progress) as advance:
        advance(0, total)
        for findings in results_of(jobs, n_jobs):
            found += findings
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


def _test_feature(plan: Analysis, feature: int, seed: np.random.SeedSequence) -> Finding:
    """Test one feature or group; its warnings travel with the finding."""
    unit = plan.units[feature]
    if len(unit.members) > 1:
        finding, messages = with_messages(_find_together, plan, unit, seed)
        return replace(finding, messages=messages)
    finding, messages = with_messages(_find, plan, unit.members[0], seed)
    views = {plan.table.names[unit.members[0]]: finding.view} if unit.group else None
    return replace(finding, messages=messages, views=views)


def _find(plan: Analysis, feature: int, seed: np.random.SeedSequence) -> Finding:
    """Work with one BLAS thread, so that results do not depend on how many workers there are."""
    with threadpool_limits(limits=1):
        table = plan.table
        bandwidth_seed, draw_seed = seed.spawn(2)
        weighted = {} if plan.weights is None else {"weights": plan.weights}
        scores = plan.propensity.scores
        view = marginal_view(table, feature, plan.y, scores, plan.prepared, bandwidth_seed, **weighted)
        if table.is_constant(feature):
            return Finding(view, None, NO_SAMPLER)
        known = None if feature in plan.copies else plan.tester.without_law(feature)
        if known is not None:
            return Finding(view, known, NO_SAMPLER)
        law = plan.sampler.law(feature)
        if feature in plan.copies or law.calibration.explained_share > DETERMINED[table.kind(feature)]:
            return Finding(view, None, law.calibration)
        outcome = plan.tester.test(feature, law, view.bandwidth, np.random.default_rng(draw_seed))
        return Finding(view, outcome, law.calibration)


def _find_together(plan: Analysis, unit: Unit, seed: np.random.SeedSequence) -> Finding:
    """The same for the columns of a group at once; importance and bandwidth are those of the most important column."""
    with threadpool_limits(limits=1):
        table, tester = plan.table, plan.tester
        assert isinstance(tester, AnalyticTester)
        bandwidth_seed, law_seed, draw_seed = seed.spawn(3)
        views: dict[str, MarginalView] = {}
        for member, own in zip(unit.members, bandwidth_seed.spawn(len(unit.members)), strict=True):
            scores = plan.propensity.scores
            views[table.names[member]] = marginal_view(table, member, plan.y, scores, plan.prepared, own)
        view = max(views.values(), key=lambda own: own.importance)
        if unit.is_constant(table):
            return Finding(view, None, NO_SAMPLER, views=views)
        known = tester.without_law(unit.members)
        if known is not None:
            return Finding(view, known, NO_SAMPLER, views=views)
        law = joint_law(plan.sampler, table, plan.prepared.treatment, unit.members, DETERMINED, law_seed)
        if law.determined:
            return Finding(view, None, law.calibration, views=views)
        outcome = tester.test_together(unit.members, law, np.random.default_rng(draw_seed))
        return Finding(view, outcome, law.calibration, views=views)
