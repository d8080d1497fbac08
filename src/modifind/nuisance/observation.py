"""Rows without an outcome: what the others are weighted by, so that they stand for all rows.

Where the outcome is missing in some kinds of rows more than in others, the rows that have one are another population.
If it is missing at random given features and arm (no data can check that), a row that has one stands for
``1 / P(observed | features, arm)`` rows of its kind. The chance is estimated as propensity scores are, that of each row
by models that have not seen it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.feature_matrix import FeatureTable
from modifind.data.many_levels import with_level_columns
from modifind.data.missing import FEWEST_OUTCOMES
from modifind.data.rare_levels import pool_rare_levels
from modifind.data.survey import effective_size
from modifind.nuisance.propensity.scores import PropensityModel

STREAM = 9  # of the seed: apart from what the fit itself draws
SMALLEST_CHANCE = 0.05  # no row stands for more than twenty
LARGEST_CHANCE = 0.999


@dataclass(frozen=True)
class Unseen:
    """Rows without an outcome, and the weights of the others.

    Attributes
    ----------
    weights : array of shape (n_observed,)
        Inverse chances to have an outcome.
    n_missing : int
        Rows without an outcome.
    n_bounded : int
        Rows with one whose chance was moved up to the bound.
    """

    weights: Array
    n_missing: int
    n_bounded: int

    def settings(self, weights: Array, *, sampled: bool) -> dict[str, Any]:
        """What a result records, given the final weights of the rows and whether sample weights are among them."""
        return {
            "n_missing": self.n_missing,
            "share_missing": self.n_missing / (self.n_missing + self.weights.size),
            "largest_weight": float(self.weights.max()),
            "largest_weight_share": float(weights.max() / weights.sum()),
            "effective_rows": effective_size(weights),
            "n_bounded": self.n_bounded,
            "times_sample_weight": sampled,
        }


def weigh_observed(
    table: FeatureTable,
    arms: Ints,
    observed: NDArray[np.bool_],
    *,
    n_folds: int,
    seed: int,
    weights: Array | None = None,
    clusters: Ints | None = None,
    fit: bool = True,
) -> Unseen:
    """Weights of the rows that have an outcome.

    Parameters
    ----------
    table : FeatureTable
        Features of all rows.
    arms : array of shape (n,)
        0 or 1 for every row.
    observed : array of bool of shape (n,)
        Which rows have an outcome.
    n_folds, seed : int
        Folds of cross-fitting, and the seed of the run.
    weights, clusters : arrays of shape (n,), optional
        Of all rows.
    fit : bool, default=True
        Whether chances are estimated; otherwise all weights are 1.

    Examples
    --------
    >>> from modifind.data.feature_matrix import read_features
    >>> table, arms = read_features([[k % 7, k % 13] for k in range(400)]), np.arange(400) % 2
    >>> observed = (arms == 0) | (np.arange(400) % 4 == 1)
    >>> found = weigh_observed(table, arms, observed, n_folds=2, seed=0)
    >>> found.n_missing, bool(found.weights[arms[observed] == 1].mean() > 1.5)
    (100, True)
    """
    seen = observed.astype(np.int64)
    fewest = int(min(seen.sum(), seen.size - seen.sum()))
    if fewest < FEWEST_OUTCOMES:
        raise ValueError(
            f"missing_outcome='weight' needs at least {FEWEST_OUTCOMES} rows with an outcome and as many without; "
            f"found {seen.sum()} with and {seen.size - seen.sum()} without. Take missing_outcome='drop'"
        )
    if not fit:
        return Unseen(np.ones(seen.sum()), int((~observed).sum()), 0)
    name = "arm"
    while name in table.names:
        name = f"({name})"
    model = PropensityModel(clip=(SMALLEST_CHANCE, LARGEST_CHANCE))
    scaled = None if weights is None else weights / weights.mean()
    stream = np.random.SeedSequence(seed, spawn_key=(STREAM,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of levels that are pooled here only
        pooled = pool_rare_levels(table, seen)[0]
    with_arm = replace(  # not pooled: an arm may have all of its outcomes
        pooled,
        names=(*pooled.names, name),
        values=np.column_stack((pooled.values, arms)),
        categories=(*pooled.categories, (0, 1)),
    )
    fitted = model.fit(
        with_level_columns(with_arm, scaled), seen, n_folds=n_folds, seed=stream, weights=scaled, clusters=clusters
    )
    return Unseen(
        1.0 / fitted.scores[observed], int((~observed).sum()), int((fitted.raw[observed] < SMALLEST_CHANCE).sum())
    )
