"""One fitted analysis, put to the test feature by feature."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from joblib import delayed
from threadpoolctl import threadpool_limits

from modifind.base import with_messages
from modifind.explain.marginal import marginal_view
from modifind.features import FeatureTable
from modifind.findings import DETERMINED, NO_SAMPLER, Finding
from modifind.kernels import Array
from modifind.parallel import results_of
from modifind.progress import Progress, ProgressBar
from modifind.propensity import FittedPropensity
from modifind.samplers import BaseSampler
from modifind.statistics.wcmmd import PreparedWCMMD
from modifind.testers import Tester

MOST_TASKS = 100


@dataclass(frozen=True)
class Analysis:
    """Everything a worker needs to test any feature.

    Attributes
    ----------
    copies : frozenset of int
        Features that say the same as another one.
    weights : array of shape (n,), optional
        How much each row counts.
    n_tested : int, optional
        How many features are tested, the first ones of the table; models and samplers only condition on the others.
        None means all.
    """

    table: FeatureTable
    y: Array
    propensity: FittedPropensity
    sampler: BaseSampler
    prepared: PreparedWCMMD
    tester: Tester
    copies: frozenset[int]
    n_tested: int | None = None
    weights: Array | None = None


def run_tests(
    plan: Analysis, seed: np.random.SeedSequence, n_jobs: int | None, progress: bool | Progress
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
    return found


def _test_features(plan: Analysis, features: range, seeds: list[np.random.SeedSequence]) -> list[Finding]:
    return [_test_feature(plan, feature, seed) for feature, seed in zip(features, seeds, strict=True)]


def _test_feature(plan: Analysis, feature: int, seed: np.random.SeedSequence) -> Finding:
    """Test one feature; its warnings travel with the finding."""
    finding, messages = with_messages(_find, plan, feature, seed)
    return replace(finding, messages=messages)


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
