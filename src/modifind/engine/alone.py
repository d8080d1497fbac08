"""Features looked at alone, for selectors that test them in a way of their own."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from joblib import delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from modifind._typing import Array
from modifind._workers import results_of
from modifind.data.feature_matrix import FeatureTable
from modifind.engine.record import hand_on, with_messages
from modifind.explain.marginal import MarginalView, marginal_view
from modifind.explain.pseudo import PseudoOutcomes
from modifind.statistics.wcmmd import WCMMD, PreparedWCMMD

__all__ = ["MarginalView", "views_alone"]


def views_alone(
    table: FeatureTable,
    outcome: Array,
    arms: NDArray[np.int64],
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
    outcomes = PseudoOutcomes.of(outcome, arms, scores, seed=seeds[0].spawn(1)[0])
    jobs = [
        delayed(_view)(table, m, outcomes, scores, prepared, seed.spawn(2)[0])
        for m, seed in enumerate(seeds[1].spawn(table.n_features))
        if m in features
    ]
    found = list(results_of(jobs, n_jobs, doing="looking at features"))
    hand_on([messages for _, messages in found])
    return [view for view, _ in found]


def _view(
    table: FeatureTable,
    feature: int,
    outcomes: PseudoOutcomes,
    scores: Array,
    prepared: PreparedWCMMD,
    seed: np.random.SeedSequence,
) -> tuple[MarginalView, tuple[str, ...]]:
    with threadpool_limits(limits=1):  # or results would depend on how many workers there are
        return with_messages(marginal_view, table, feature, outcomes, scores, prepared, seed)
