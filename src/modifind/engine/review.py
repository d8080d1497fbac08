"""A review of every column before it is tested: overlap, and signs that it was measured after the treatment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from modifind._typing import Array
from modifind.data.after_treatment import ArmSums
from modifind.data.baseline import baseline_names
from modifind.data.clusters import Clusters, treated_as_one
from modifind.data.feature_matrix import FeatureTable
from modifind.data.population import row_weights
from modifind.data.support import Outside, outside_along
from modifind.data.suspicious import OutcomeRanks
from modifind.data.weights import Weights
from modifind.nuisance.propensity.scores import FittedPropensity

REVIEWED = ("outside_share", "outside_where", "arm_difference", "arm_p_value", "outcome_share", "event_flag")
NOWHERE = Outside(0.0, "")
BALANCED = 0.001  # p-value of a difference between the arms, below which a column was hardly measured before


def review_columns(
    scores: FittedPropensity,
    y: Array,
    *,
    randomised: bool,
    population: str = "all",
    clusters: Clusters | None = None,
    outcome_name: str | None = None,
    positive: bool = False,
    levels: Mapping[str, Outside] | None = None,
) -> pd.DataFrame:
    """Overlap along every column, and whether it looks as if it were measured after the treatment.

    Parameters
    ----------
    scores : FittedPropensity
        Scores of the rows, with their features and treatment.
    y : array of shape (n,)
        Outcome.
    randomised : bool
        Whether the scores are how the treatment was given, and not an estimate of it.
    population : {"all", "overlap"}
        Whom effects are about.
    clusters : Clusters, optional
        Which rows belong together.
    outcome_name : str, optional
        What the outcome is called.
    positive : bool
        Whether the outcome was positive before it was transformed.
    levels : mapping, optional
        Rows without a counterpart before levels were pooled, by column; see `outside_levels`.

    Returns
    -------
    DataFrame
        One row per column: `outside_share`, the larger share of an arm's rows that lie where the other arm has hardly
        any, and `outside_where`, which rows these are; `arm_difference` and `arm_p_value`, how much randomised arms
        differ in it, in standard deviations; `outcome_share`, how nearly it and the outcome determine each other; and
        `event_flag`, 1 where it looks like a flag of the event that the outcome is the time of.
    """
    table, arms = scores.table, scores.treatment
    together = Clusters.of(clusters, arms.size)
    chances = scores.raw if randomised else np.full(arms.size, np.nan)
    sums = ArmSums(table, arms, chances, Weights.of(scores.weights, arms.size), together)
    outcome = OutcomeRanks.of(y, arms, outcome_name, positive=positive)
    counted = np.ones(arms.size)
    if population == "overlap":
        counted = row_weights(scores.scores, population) / np.where(arms == 1, scores.scores, 1.0 - scores.scores)
    rows = []
    whole = treated_as_one(arms, together)
    for m in range(table.n_features):
        before = (levels or {}).get(table.names[m], NOWHERE)
        outside = max(before, outside_along(table, m, arms, counted, whole), key=lambda where: where.share)
        difference, p_value = sums.difference(m)
        shared, flag = outcome.shared(table, m), float(outcome.flags_event(table, m))
        rows.append((outside.share, outside.where, difference, p_value, shared, flag))
    return pd.DataFrame(rows, index=pd.Index(table.names, name="feature"), columns=list(REVIEWED))


def baseline_settings(
    reviewed: pd.DataFrame, table: FeatureTable, outcome_name: str | None, tested: Collection[str]
) -> dict[str, Any]:
    """What a result records of tested columns of a trial whose names suggest the baseline value of the outcome.

    `reviewed` is the review of the columns, and `tested` are those that are tested; those that are only adjusted for
    need no advice.
    """
    names = [name for name in baseline_names(table, outcome_name) if name in tested] if outcome_name else []
    names = [name for name in names if reviewed["arm_p_value"][name] >= BALANCED]
    return {"baseline_outcome": names} if names else {}
