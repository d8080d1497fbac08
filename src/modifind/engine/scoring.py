"""Folds and propensity scores of a table that was read: what weights, clusters and strata make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score

from modifind._typing import Array
from modifind.data.feature_matrix import FeatureTable
from modifind.data.sources import has_row_scores
from modifind.data.strata import Strata, stratum_folds
from modifind.data.wording import named
from modifind.engine.reading import Data
from modifind.nuisance.propensity.scores import FittedPropensity, PropensityModel, arm_folds

SEPARATED = 1.0 - 1e-9


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


def stratum_scores(
    model: PropensityModel,
    strata: Strata,
    table: FeatureTable,
    arms: NDArray[np.int64],
    weights: Array | None = None,
    raw: Array | None = None,
) -> FittedPropensity:
    """Scores of a trial randomised within strata: the share of a stratum's rows that is treated.

    Parameters
    ----------
    model : PropensityModel
        Where scores are clipped.
    strata : Strata
        Stratum of each row.
    table : FeatureTable
        Features.
    arms : array of shape (n,)
        0 or 1.
    weights : array of shape (n,), optional
        Weights of the rows.
    raw : array of shape (n,), optional
        The shares, where more rows than these tell them.
    """
    model.check()
    n_strata = len(strata.labels)
    if raw is None:
        own = np.ones(arms.size) if weights is None else weights
        share = np.bincount(strata.codes, own * (arms == 1), minlength=n_strata) / np.bincount(strata.codes, own)
        raw = share[strata.codes]
    return FittedPropensity(
        raw=raw,
        clip=model.clip,
        treatment=arms,
        table=table,
        description=f"share of treated rows in each of {n_strata} strata (a saturated model, not cross-fitted)",
        auc=float(roc_auc_score(arms, raw, sample_weight=weights)),
        weights=weights,
    )


def refuse_separation(scores: FittedPropensity) -> None:
    """Refuse features that together tell held-out rows of the two arms apart without an error."""
    if scores.is_known or scores.auc < SEPARATED:
        return
    table, arms = scores.table, scores.treatment
    single = [_auc(table, m, arms) for m in range(table.n_features)]
    best = int(np.argmax(single))
    raise ValueError(
        f"the features determine the treatment (held-out AUC 1), so the arms cannot be compared (no positivity); "
        f"{named([table.names[best]])} is the most informative (AUC {single[best]:.3f} alone); exclude what "
        "follows from the treatment"
    )


def _auc(table: FeatureTable, feature: int, arms: NDArray[np.int64]) -> float:
    """How well one feature tells the arms apart; levels are ordered by their share of treated rows."""
    column = table.values[:, feature]
    if table.n_levels(feature):
        codes = column.astype(np.int64)
        rows = np.bincount(codes)
        column = (np.bincount(codes, weights=arms) / np.maximum(rows, 1))[codes]
    auc = float(roc_auc_score(arms, rankdata(column)))
    return max(auc, 1.0 - auc)
