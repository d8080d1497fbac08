"""Preparation of a table: folds and scores, and the models fitted to its rows at hand."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score

from modifind._system import one_thread
from modifind._typing import Array, Ints
from modifind._warned import warn
from modifind.data.balance import refuse_after_treatment
from modifind.data.clusters import Clusters, assign_cluster_folds, cluster_folds, cluster_keys, stratum_folds
from modifind.data.determined import cluster_features, find_determined
from modifind.data.features import FeatureTable, Unit
from modifind.data.repeated_rows import RepeatedRows, find_copied, find_repeated
from modifind.data.sources import Block
from modifind.data.treatment import Design
from modifind.data.weights import check_sampler_weights, warn_resampled_weights
from modifind.data.words import named
from modifind.engine.passes import ScoredRows, Scoring, TablePieces
from modifind.engine.reading import Data, FirstPass, Reading
from modifind.engine.settings import RunSettings
from modifind.explain.overview import attempt
from modifind.nuisance.conditional import BaseSampler, with_missing_support
from modifind.nuisance.conditional.special_columns import ClusterSampler
from modifind.nuisance.propensity.fit_check import common_location, outcome_residual
from modifind.nuisance.propensity.scores import FittedPropensity, PropensityModel, arm_folds
from modifind.statistics import EffectLikelihood, Nuisances
from modifind.statistics.contract import refuse_clusters, refuse_gaps
from modifind.statistics.families import family_of
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood

MIN_FOLD_ARM = 5
# What the children of the seed are for. Folds of a longer table come first: they are drawn before anything is read.
STREAMS = ("propensity", "sampler", "statistic", "features", "folds", "cluster_folds", "repeats")
BLOCK_STREAMS = ("folds", "propensity", "sampler", "", "", "", "features")

Folds = tuple[Ints, ...]


def seed_stream(seed: int, name: str, *, whole: bool = True) -> np.random.SeedSequence:
    """A named child of the seed; sampler and statistic of a longer table share one."""
    names = STREAMS if whole else BLOCK_STREAMS
    child = names.index(name if whole or name != "statistic" else "sampler")
    return np.random.SeedSequence(seed).spawn(len(names))[child]


@dataclass(frozen=True)
class PreparedTable:
    """A validated table with its folds, before anything is fitted.

    Attributes
    ----------
    data : Data
        The table as it was read.
    block : Block
        The rows at hand as models see them: all of a table in memory, a sample of a longer one.
    copies : frozenset of int
        Columns that others determine exactly.
    within : dict
        Clusters of the rows, for columns that have one value in each.
    folds : tuple of int arrays
        Fold of each row, for every repeat of the cross-fitting.
    cluster_folds : tuple of int arrays
        The same of every cluster of a longer table.
    pieces : TablePieces or None
        All rows of a longer table; None for a table in memory, and for workers.
    repeated : RepeatedRows or None
        Rows at hand that count as independent and repeat the features of others, if there are any.
    """

    data: Data
    block: Block
    copies: frozenset[int]
    within: dict[int, Ints]
    folds: Folds
    cluster_folds: Folds = ()
    pieces: TablePieces | None = None
    repeated: RepeatedRows | None = None

    @classmethod
    def of(cls, run: RunSettings, data: Data, pieces: TablePieces | None = None) -> PreparedTable:
        """Prepare a table that was read; refuses settings that do not apply to it."""
        check_settings(run, data)
        block, table = data.block, data.block.table
        known = find_determined(table)
        determined = known.apart([unit.members for unit in data.units])
        determined.warn()
        within: dict[int, Ints] = {}
        if run.statistic.takes_clusters and getattr(run.sampler, "learns", False):
            within, clusters = _within_clusters(data, determined.features)
            block = replace(block, clusters=clusters)
        if not block.weights.uniform and run.statistic.resamples:
            warn_resampled_weights()
        run.check_groups(table, data.units)
        folds, of_clusters = _draw_folds(run, data, block)
        block = replace(block, clusters=block.clusters[:])  # those that a sample has no row of do not count
        repeated = None
        if block.clusters.of_rows:
            share = block.y.size / data.schema.n_rows
            repeated = find_repeated(table, known.followers, share) or find_copied(table, block.y, share)
        prepared = cls(data, block, determined.features, within, folds, of_clusters, pieces, repeated)
        if not data.whole:
            prepared._check_sample(run)
        return prepared

    @property
    def whole(self) -> bool:
        """Whether the rows at hand are all rows."""
        return self.data.whole

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units to test."""
        return self.data.units

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        rows = self.data.first_pass.rows
        return 1 + int(max(folds.max() for folds in self.folds)) if rows is None else rows.n_folds

    @property
    def freedom(self) -> float:
        """Degrees of freedom given the weights of all rows; infinite if uniform."""
        weights = self.data.first_pass.summary.weights
        return np.inf if weights is None else weights.effective_size - 1.0

    def stream(self, run: RunSettings, name: str) -> np.random.SeedSequence:
        """A named child of the seed."""
        return seed_stream(run.seed, name, whole=self.whole)

    def scored(self, propensity: FittedPropensity) -> ScoredRows:
        """The rows at hand with their scores."""
        everyone = np.ones(self.block.y.size, dtype=bool)
        return ScoredRows(self.block, self.folds, propensity, everyone, self.n_folds, self.block.clusters.count)

    def scoring(self, propensity: FittedPropensity) -> Scoring:
        """How the rows of a longer table are read and scored."""
        assert self.data.first_pass.rows is not None
        return Scoring(self.data.schema, self.data.first_pass.rows, propensity, self.cluster_folds)

    def _check_sample(self, run: RunSettings) -> None:
        """Refuse a sample to which models cannot be fitted."""
        y, arms = self.block.y, self.block.treatment
        for folds in self.folds:
            counts = np.bincount(2 * folds + arms, minlength=2 * run.n_folds)
            if counts.min() < MIN_FOLD_ARM:
                raise ValueError(
                    f"the sample that models are fitted to has {int(arms.sum())} treated rows and "
                    f"{int((1 - arms).sum())} others, too few in some fold; raise max_train_rows"
                )
        if (y == y[0]).all():
            raise ValueError("y is the same in all rows of the sample that models are fitted to; raise max_train_rows")
        if (family_of(y).kind == "binary") != self.data.schema.binary:
            raise ValueError(
                "y looks binary in the sample that models are fitted to but has other values elsewhere; look for codes "
                "that stand for missing values, or raise max_train_rows"
            )
        if getattr(run.statistic, "check_resamples", 0):
            warn("check_resamples has no effect on tables that are streamed")


def read_for(run: RunSettings, reading: Reading, first_pass: FirstPass) -> Data:
    """Read a table as a run needs it."""
    by_share = isinstance(run.propensity.estimator, str) and run.propensity.estimator == "auto"
    return reading.read(first_pass, run.feature_groups, run.outcome_transform, stratum_scores=by_share)


def design_of(run: RunSettings, data: Data) -> Design:
    """The design of a table."""
    by_row = data.first_pass.sample.propensity is not None
    return Design.of(run.design, run.propensity, strata=data.strata is not None, by_row=by_row)


def refuse_later_columns(run: RunSettings, data: Data) -> None:
    """Refuse columns apparently measured after treatment, unless the user has named them."""
    design = design_of(run, data)
    if (design.said and not design.randomised) or (design.randomised and design.chance == "fitted"):
        return
    check_scores(run, data)
    chances = data.block.scores
    if design.chance == "known" and chances is None:
        chances = np.full(data.arms.shape, float(run.propensity.estimator))
    refuse_after_treatment(data.block, data.columns_in, data.named, chances, declared=design.randomised)


def check_settings(run: RunSettings, data: Data) -> None:
    """Refuse settings that do not apply to a table, before anything is fitted."""
    block = data.block
    if not block.clusters.of_rows:
        refuse_clusters(run.statistic)
    run.check_outcome(block.y, block.treatment, weighted=not block.weights.uniform)
    refuse_gaps(run.statistic, [block.table.names[m] for m in sorted(block.table.incomplete)])
    check_scores(run, data)


def check_scores(run: RunSettings, data: Data) -> None:
    """Refuse invalid known scores."""
    by_row = (
        data.first_pass.sample.propensity is not None
    )  # otherwise scores are the shares of strata, if there are any
    (PropensityModel(data.block.scores) if by_row else run.propensity).check(data.arms.size)


def _within_clusters(data: Data, determined: frozenset[int]) -> tuple[dict[int, Ints], Clusters]:
    """Features constant within clusters, with the clusters, and the clusters assumed for the rows.

    Undeclared sets of rows that columns reveal are taken as clusters of a table in memory, with a warning; for a longer
    table they are refused, because its other rows may belong to sets that the sample does not show.
    """
    table, clusters = data.block.table, data.block.clusters
    if data.whole:
        within, sets = cluster_features(table, clusters.given, determined)
        return within, clusters if sets is None else Clusters(sets, of_rows=False)
    if data.first_pass.sample.clusters is not None:
        keys = cluster_keys(data.first_pass.sample.clusters)
        known = np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64)
        if np.bincount(known).max() == 1:  # every row is a cluster
            return {}, clusters
    else:
        known = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sets that are taken for clusters, which is what is refused here
        within, sets = cluster_features(table, known, determined)
    if sets is not None and (known is None or sets.max() < known.max()):
        members = named(table.names[m] for m, codes in within.items() if codes is sets)
        raise ValueError(
            f"{members}: constant within the same {sets.max() + 1} sets of rows. Either these rows belong together (to "
            "a school, a village), or one column is derived from another. Pass the sets as clusters=, or leave out the "
            "derived column"
        )
    return within, clusters


def _draw_folds(run: RunSettings, data: Data, block: Block) -> tuple[Folds, Folds]:
    """Folds of the rows at hand for every repeat, and of every cluster of a longer table."""
    seed, n_repeats = seed_stream(run.seed, "folds", whole=data.whole), run.statistic.cv_repeats or 1
    if data.whole:
        return tuple(draw_folds(data, block, run.n_folds, child) for child in seed.spawn(n_repeats)), ()
    assert data.first_pass.rows is not None
    if block.clusters.of_rows:
        return tuple(data.first_pass.rows.folds(data.first_pass.numbers)), ()
    codes = block.clusters.codes
    of_clusters = data.first_pass.rows.folds(np.arange(data.schema.n_clusters))
    for child, drawn in zip(seed.spawn(n_repeats), of_clusters, strict=True):
        state = int(child.generate_state(1)[0])
        # Clusters that the sample has no row of may be in any.
        drawn[codes] = cluster_folds(block.treatment, codes, run.n_folds, state)
    return tuple(drawn[codes] for drawn in of_clusters), tuple(of_clusters)


def draw_folds(data: Data, block: Block, n_folds: int, seed: np.random.SeedSequence) -> Ints:
    """Fold of each row, by whole clusters if there are any and balanced by stratum if there are strata."""
    state = int(seed.generate_state(1)[0])
    if data.strata is None or not block.clusters.of_rows:
        return arm_folds(block.treatment, n_folds, state, block.clusters)
    return stratum_folds(block.treatment, data.strata, n_folds, state)


def fit_scores(run: RunSettings, table: PreparedTable, seed: np.random.SeedSequence) -> FittedPropensity:
    """Propensity scores of the rows at hand: known, the share of all rows or of the strata, or fitted."""
    model, n_folds, data, block = run.propensity, run.n_folds, table.data, table.block
    if design_of(run, data).chance == "observed":
        share = data.schema.treated_share
        about = f"the observed share of treated rows, {share:.3g}, for every row"
        return observed_scores(model, np.full(block.y.size, share), about, block)
    if data.schema.stratum_shares is not None and block.scores is not None:
        n_strata = len(data.schema.categories[-1] or ())
        about = f"share of treated rows in each of {n_strata} strata (a saturated model, not cross-fitted)"
        return observed_scores(model, block.scores, about, block)
    if block.scores is not None:
        model = PropensityModel(block.scores, cross_fit=model.cross_fit, clip=model.clip)
    given: dict[str, Any] = {"weights": block.weights, "clusters": block.clusters}
    if not table.whole:
        given["folds"] = table.folds[0]
    else:
        given["unpooled"] = data.unpooled
        if data.strata is not None:
            seed, fold_seed = seed.spawn(2)
            given["folds"] = draw_folds(data, block, n_folds, fold_seed)
    with one_thread():  # threads of small models wait for each other
        return model.fit(block.table, block.treatment, n_folds=n_folds, seed=seed, **given)


def observed_scores(model: PropensityModel, scores: Array, description: str, block: Block) -> FittedPropensity:
    """Scores of a randomised treatment as observed shares: of all rows, or within each stratum."""
    model.check()
    return FittedPropensity(
        raw=scores,
        clip=model.clip,
        treatment=block.treatment,
        table=block.table,
        description=description,
        auc=float(roc_auc_score(block.treatment, scores, sample_weight=block.weights.given)),
        weights=block.weights,
    )


# Held-out share of a feature's distribution that the others explain, above which the data cannot tell it from them.
# What little is left is then as much the sampler's own error as the feature's, and a test of it would be a test of the
# sampler.
DETERMINED = {"continuous": 0.65, "discrete": 0.9}
EXPLAINING = EffectLikelihood(["linear", "splines"])  # of what a statistic finds without a model of the outcome
MAX_AUC = 1.0 - 1e-9


@dataclass(frozen=True)
class Models:
    """Models fitted to the rows at hand.

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
        """Fit scores, the sampler and outcome models."""
        block = table.block
        propensity = fit_scores(run, table, table.stream(run, "propensity"))
        refuse_separation(propensity)
        sampler = with_missing_support(run.sampler, block.table)
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
        explaining = prepared if getattr(prepared, "tests_changes", False) else None
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
    """Set the folds of a sampler's cross-fitting if they matter.

    Distributions of a table in memory are evaluated on held-out clusters, and those of a longer one use the folds of
    all models, so that no row is scored by a model that has seen it.
    """
    block = table.block
    if not table.whole:
        if hasattr(sampler, "assign_folds"):
            sampler.assign_folds(table.folds[0], whole_clusters=not block.clusters.of_rows)
    elif not block.clusters.of_rows:
        seed = table.stream(run, "cluster_folds")
        assign_cluster_folds(sampler, block.treatment, block.clusters.codes, run.n_folds, seed)


def refuse_separation(scores: FittedPropensity) -> None:
    """Refuse features that together separate held-out rows of the two arms perfectly."""
    if scores.is_known or scores.auc < MAX_AUC:
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
    """AUC of one feature for the arms; levels are ordered by their treated share."""
    column = table.values[:, feature]
    if table.n_levels(feature):
        codes = column.astype(np.int64)
        rows = np.bincount(codes)
        column = (np.bincount(codes, weights=arms) / np.maximum(rows, 1))[codes]
    auc = float(roc_auc_score(arms, rankdata(column)))
    return max(auc, 1.0 - auc)
