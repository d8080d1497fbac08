"""Features explained without being tested, for selectors that have tests of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np
from joblib import delayed

from modifind._threads import one_thread
from modifind._typing import Array, Ints
from modifind._warned import collected, warn_once
from modifind._workers import results_of
from modifind.data.feature_matrix import FeatureTable
from modifind.engine.explaining import Explainer
from modifind.explain.marginal import MarginalView
from modifind.explain.pseudo import ArmRows, PseudoOutcomes
from modifind.statistics.wcmmd import WCMMD

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
    """Results of calls (functions with their arguments), made by several processes; their warnings are passed on."""
    results = list(results_of([delayed(_alone)(*call) for call in calls], n_jobs, doing=doing))
    warn_once(message for _, messages in results for message in messages)
    return [value for value, _ in results]


def _alone(function: Callable[..., Any], *args: Any) -> tuple[Any, list[str]]:
    """Result and warnings of a call; one BLAS thread, so that results do not depend on how many workers there are."""
    with one_thread(), collected() as messages:
        value = function(*args)
    return value, messages
