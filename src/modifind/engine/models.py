"""Models that are fitted to the rows at hand: scores, distributions of features, and those of the statistic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score

from modifind._threads import one_thread
from modifind._typing import Ints
from modifind.data.clusters import assign_cluster_folds
from modifind.data.feature_matrix import FeatureTable
from modifind.data.weights import check_sampler_weights
from modifind.data.wording import named
from modifind.engine.run import RunSettings
from modifind.engine.table import PreparedTable, fit_scores
from modifind.explain.attempts import attempt
from modifind.nuisance.conditional import BaseSampler, for_gaps
from modifind.nuisance.conditional.per_cluster import ClusterSampler
from modifind.nuisance.propensity.fit_check import common_location, outcome_residual
from modifind.nuisance.propensity.scores import FittedPropensity
from modifind.statistics import EffectLikelihood, Nuisances
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood

# Held-out share of a feature's distribution that the others explain, above which the data cannot tell it from them.
# What little is left is then as much the sampler's own error as the feature's, and a test of it would be a test of the
# sampler.
DETERMINED = {"continuous": 0.65, "discrete": 0.9}
EXPLAINING = EffectLikelihood(["linear", "splines"])  # of what a statistic finds without a model of the outcome
SEPARATED = 1.0 - 1e-9


@dataclass(frozen=True)
class Models:
    """Models that are fitted to the rows at hand.

    Attributes
    ----------
    propensity : FittedPropensity
        Scores.
    sampler : BaseSampler
        Distributions of features.
    nuisances : Nuisances
        What a statistic is given.
    prepared : object
        The statistic, made ready: with models of the outcome, where it has any.
    explaining : PreparedEffectLikelihood, optional
        Models of the outcome that say what a feature changes: those of the statistic itself, or others.
    """

    propensity: FittedPropensity
    sampler: BaseSampler
    nuisances: Nuisances
    prepared: Any
    explaining: PreparedEffectLikelihood | None

    @classmethod
    def fit(cls, run: RunSettings, table: PreparedTable) -> Models:
        """Fit scores, the sampler and models of the outcome."""
        block = table.block
        propensity = fit_scores(run, table, table.stream(run, "propensity"))
        refuse_separation(propensity)
        sampler = for_gaps(run.sampler, block.table)
        sampler = ClusterSampler(sampler, table.within, DETERMINED) if table.within else sampler
        _assign_folds(run, table, sampler)
        if not block.weights.uniform:
            check_sampler_weights(run.sampler)
        sampler.fit(block.table, block.treatment, table.stream(run, "sampler"), **block.weights.argument("weights"))
        schema = table.data.schema
        nuisances = Nuisances(
            block.table,
            block.y,
            block.treatment,
            propensity.scores,
            table.stream(run, "statistic"),
            table.folds,
            block.weights,
            block.clusters,
            run.n_jobs,
            in_pieces=not table.whole,
            outcome_limits=None if table.whole or schema.binary else schema.outcome_limits,
            family=run.family(block.y, block.treatment),
        )
        prepared = run.statistic.prepare(nuisances)
        run.statistic.check_prepared(prepared)
        explaining = prepared if getattr(prepared, "tells_changes", False) else None
        if explaining is not None:
            propensity = _checked_scores(propensity, explaining)
        # A distribution that ignores the treatment cannot tell what depends on it from what changes.
        if explaining is None and run.explain and getattr(run.sampler, "condition_on_treatment", True):
            explaining = attempt("what changes along features", EXPLAINING.prepare, nuisances)
        return cls(propensity, sampler, nuisances, prepared, explaining)


def _checked_scores(propensity: FittedPropensity, prepared: PreparedEffectLikelihood) -> FittedPropensity:
    """Scores whose fit is also checked against the residuals of the outcome models."""
    fit = prepared.fits[0]
    common = common_location(fit.cross.location, propensity.scores)
    with one_thread():
        residual = outcome_residual(fit.y, common)
        return propensity.checked_beside(residual, np.column_stack((common, fit.cross.location)))


def _assign_folds(run: RunSettings, table: PreparedTable, sampler: BaseSampler) -> None:
    """Give a sampler the folds of its cross-fitting, where they matter.

    Distributions of a table in memory are judged on clusters that they have not seen, and those of a longer one have
    the folds of all models, so that no row is scored by what has seen it.
    """
    block = table.block
    if not table.whole:
        if hasattr(sampler, "assign_folds"):
            sampler.assign_folds(table.folds[0], whole_clusters=not block.clusters.of_rows)
    elif not block.clusters.of_rows:
        seed = table.stream(run, "cluster_folds")
        assign_cluster_folds(sampler, block.treatment, block.clusters.codes, run.n_folds, seed)


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


def _auc(table: FeatureTable, feature: int, arms: Ints) -> float:
    """How well one feature tells the arms apart; levels are ordered by their share of treated rows."""
    column = table.values[:, feature]
    if table.n_levels(feature):
        codes = column.astype(np.int64)
        rows = np.bincount(codes)
        column = (np.bincount(codes, weights=arms) / np.maximum(rows, 1))[codes]
    auc = float(roc_auc_score(arms, rankdata(column)))
    return max(auc, 1.0 - auc)
