"""Folds and propensity scores of a table that was read: what weights, clusters and strata make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind.features import FeatureTable
from modifind.propensity import FittedPropensity, PropensityModel, arm_folds
from modifind.reading import Data
from modifind.rows.strata import stratum_folds, stratum_scores
from modifind.streaming.sources import has_row_scores


def draw_folds(data: Data, n_folds: int, seed: np.random.SeedSequence) -> NDArray[np.int64]:
    """Fold of each row: of whole clusters where there are any, even in every stratum where there are some."""
    state = int(seed.generate_state(1)[0])
    if data.strata is None or data.clusters is not None:
        return arm_folds(data.arms, n_folds, state, data.clusters)
    return stratum_folds(data.arms, data.strata.codes, n_folds, state)


def fit_scores(
    model: PropensityModel, data: Data, table: FeatureTable, n_folds: int, seed: np.random.SeedSequence
) -> FittedPropensity:
    """Propensity scores of the rows; by default the shares of the strata, where there are some."""
    own: dict[str, Any] = {"weights": data.weights, "clusters": data.clusters, "unpooled": data.unpooled}
    if data.strata is None:
        return model.fit(table, data.arms, n_folds=n_folds, seed=seed, **own)
    if isinstance(model.estimator, str) and model.estimator == "auto":
        return stratum_scores(model, data.strata, table, data.arms, data.weights)
    own_seed, fold_seed = seed.spawn(2)
    folds = draw_folds(data, n_folds, fold_seed)
    return model.fit(table, data.arms, n_folds=n_folds, seed=own_seed, folds=folds, **own)


def model_of_rows(model: PropensityModel, data: Data) -> PropensityModel:
    """The model with the known scores of some rows alone, where rows were left out."""
    if data.kept is None or not has_row_scores(model):
        return model
    known: Any = np.asarray(model.estimator)
    if known.shape != data.kept.shape:
        raise ValueError(f"propensity array must have one score per row ({data.kept.size}); found shape {known.shape}")
    return PropensityModel(known[data.kept], cross_fit=model.cross_fit, clip=model.clip)
