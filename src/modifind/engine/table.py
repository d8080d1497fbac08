"""A table that is ready for a run: rows at hand, what is tested, folds, and where all rows are."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from modifind._warned import warn
from modifind.data.after_treatment import refuse_after_treatment
from modifind.data.clusters import Clusters, cluster_folds, cluster_keys
from modifind.data.design import Design
from modifind.data.determined import find_determined
from modifind.data.feature_groups import Unit
from modifind.data.pieces import Block
from modifind.data.repeated_rows import RepeatedRows, find_copied, find_repeated
from modifind.data.stratified import stratum_folds
from modifind.data.weights import warn_resampled_weights
from modifind.data.within_clusters import cluster_features
from modifind.data.wording import named
from modifind.engine.passes import Pieces
from modifind.engine.reading import Data, Looked, Reading
from modifind.engine.run import Run
from modifind.engine.scored import ScoredRows, Scoring
from modifind.engine.units import check_groups
from modifind.nuisance.propensity.scores import FittedPropensity, PropensityModel, arm_folds
from modifind.statistics.contract import refuse_clusters, refuse_gaps
from modifind.statistics.families import family_of

MIN_FOLD_ARM = 5
# What the children of the seed are for. Folds of a longer table come first: they are drawn before anything is read.
STREAMS = ("propensity", "sampler", "statistic", "features", "folds", "cluster_folds", "repeats")
BLOCK_STREAMS = ("folds", "propensity", "sampler", "", "", "", "features")

Folds = tuple[NDArray[np.int64], ...]


def stream(run: Run, name: str, *, whole: bool = True) -> np.random.SeedSequence:
    """One of the children of the seed; sampler and statistic of a longer table share one."""
    names = STREAMS if whole else BLOCK_STREAMS
    place = names.index(name if whole or name != "statistic" else "sampler")
    return np.random.SeedSequence(run.seed).spawn(len(names))[place]


@dataclass(frozen=True)
class Table:
    """A table and what is known of it before anything is fitted.

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
    pieces : Pieces or None
        All rows of a longer table; None for a table in memory, and for workers.
    repeated : RepeatedRows or None
        Rows at hand that count as independent and repeat the features of others, if there are any.
    """

    data: Data
    block: Block
    copies: frozenset[int]
    within: dict[int, NDArray[np.int64]]
    folds: Folds
    cluster_folds: Folds = ()
    pieces: Pieces | None = None
    repeated: RepeatedRows | None = None

    @classmethod
    def of(cls, run: Run, data: Data, pieces: Pieces | None = None) -> Table:
        """From a table that was read; refuses settings that have no meaning for it."""
        check_settings(run, data)
        block, table = data.block, data.block.table
        known = find_determined(table)
        determined = known.apart([unit.members for unit in data.units])
        determined.warn()
        within: dict[int, NDArray[np.int64]] = {}
        if run.statistic.takes_clusters and getattr(run.sampler, "learns", False):
            within, clusters = _within_clusters(data, determined.features)
            block = replace(block, clusters=clusters)
        if not block.weights.uniform and run.statistic.resamples:
            warn_resampled_weights()
        check_groups(run.sampler, table, data.units)
        folds, of_clusters = _draw_folds(run, data, block)
        block = replace(block, clusters=block.clusters[:])  # those that a sample has no row of do not count
        repeated = None
        if block.clusters.of_rows:
            share = block.y.size / data.schema.n_rows
            repeated = find_repeated(table, known.followers, share) or find_copied(table, block.y, share)
        found = cls(data, block, determined.features, within, folds, of_clusters, pieces, repeated)
        if not data.whole:
            found._check_sample(run)
        return found

    @property
    def whole(self) -> bool:
        """Whether the rows at hand are all rows."""
        return self.data.whole

    @property
    def units(self) -> tuple[Unit, ...]:
        """What is tested."""
        return self.data.units

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        rows = self.data.looked.rows
        return 1 + int(max(folds.max() for folds in self.folds)) if rows is None else rows.n_folds

    @property
    def freedom(self) -> float:
        """Degrees of freedom that the weights of all rows leave; infinite where rows count alike."""
        weights = self.data.looked.summary.weights
        return np.inf if weights is None else weights.effective_size - 1.0

    def stream(self, run: Run, name: str) -> np.random.SeedSequence:
        """One of the children of the seed."""
        return stream(run, name, whole=self.whole)

    def scored(self, propensity: FittedPropensity) -> ScoredRows:
        """The rows at hand with their scores."""
        everyone = np.ones(self.block.y.size, dtype=bool)
        return ScoredRows(self.block, self.folds, propensity, everyone, self.n_folds, self.block.clusters.count)

    def scoring(self, propensity: FittedPropensity) -> Scoring:
        """How the rows of a longer table are read and scored."""
        assert self.data.looked.rows is not None
        return Scoring(self.data.schema, self.data.looked.rows, propensity, self.cluster_folds)

    def _check_sample(self, run: Run) -> None:
        """Refuse a sample that models cannot be fitted to."""
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
                "y has other than two values in so few rows that the sample holds none of them; look for codes that "
                "stand for missing values, or raise max_train_rows"
            )
        if getattr(run.statistic, "check_resamples", 0):
            warn("check_resamples has no effect on tables that are streamed")


def read_for(run: Run, reading: Reading, looked: Looked) -> Data:
    """Read a table as a run needs it."""
    by_share = isinstance(run.propensity.estimator, str) and run.propensity.estimator == "auto"
    return reading.read(looked, run.feature_groups, run.outcome_transform, stratum_scores=by_share)


def design_of(run: Run, data: Data) -> Design:
    """How the treatment was given."""
    by_row = data.looked.sample.propensity is not None
    return Design.of(run.design, run.propensity, strata=data.strata is not None, by_row=by_row)


def refuse_later_columns(run: Run, data: Data) -> None:
    """Refuse columns that seem to have been measured after the treatment, but for those that the user has named."""
    design = design_of(run, data)
    if (design.said and not design.randomised) or (design.randomised and design.chance == "fitted"):
        return
    check_scores(run, data)
    chances = data.block.scores
    if design.chance == "known" and chances is None:
        chances = np.full(data.arms.shape, float(run.propensity.estimator))
    refuse_after_treatment(data.block, data.columns_in, data.named, chances, declared=design.randomised)


def check_settings(run: Run, data: Data) -> None:
    """Refuse settings that have no meaning for a table, before anything is fitted."""
    block = data.block
    if not block.clusters.of_rows:
        refuse_clusters(run.statistic)
    run.check_outcome(block.y, block.treatment, weighted=not block.weights.uniform)
    refuse_gaps(run.statistic, [block.table.names[m] for m in sorted(block.table.incomplete)])
    check_scores(run, data)


def check_scores(run: Run, data: Data) -> None:
    """Refuse known scores that are none."""
    by_row = data.looked.sample.propensity is not None  # otherwise scores are the shares of strata, if there are any
    (PropensityModel(data.block.scores) if by_row else run.propensity).check(data.arms.size)


def _within_clusters(data: Data, determined: frozenset[int]) -> tuple[dict[int, NDArray[np.int64]], Clusters]:
    """Features that have one value in every cluster, with the clusters, and the clusters that rows are taken to be in.

    Sets of rows that columns tell of and nobody named are taken for clusters of a table in memory, with a warning;
    those of a longer one are refused, because its other rows may be in sets that the sample does not show.
    """
    table, clusters = data.block.table, data.block.clusters
    if data.whole:
        within, sets = cluster_features(table, clusters.given, determined)
        return within, clusters if sets is None else Clusters(sets, of_rows=False)
    if data.looked.sample.clusters is not None:
        keys = cluster_keys(data.looked.sample.clusters)
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
            f"{members}: one value each in the same {sets.max() + 1} sets of rows, so that these rows seem to belong "
            "together (in a school, a village), or one column is looked up from another. Pass the sets as clusters=, "
            "or leave out a column that is looked up"
        )
    return within, clusters


def _draw_folds(run: Run, data: Data, block: Block) -> tuple[Folds, Folds]:
    """Fold of each row at hand, for every repeat; and of every cluster of a longer table."""
    seed, n_repeats = stream(run, "folds", whole=data.whole), run.statistic.cv_repeats or 1
    if data.whole:
        return tuple(draw_folds(data, block, run.n_folds, child) for child in seed.spawn(n_repeats)), ()
    assert data.looked.rows is not None
    if block.clusters.of_rows:
        return tuple(data.looked.rows.folds(data.looked.numbers)), ()
    codes = block.clusters.codes
    of_clusters = data.looked.rows.folds(np.arange(data.schema.n_clusters))
    for child, drawn in zip(seed.spawn(n_repeats), of_clusters, strict=True):
        state = int(child.generate_state(1)[0])
        # Clusters that the sample has no row of may be in any.
        drawn[codes] = cluster_folds(block.treatment, codes, run.n_folds, state)
    return tuple(drawn[codes] for drawn in of_clusters), tuple(of_clusters)


def draw_folds(data: Data, block: Block, n_folds: int, seed: np.random.SeedSequence) -> NDArray[np.int64]:
    """Fold of each row: of whole clusters where there are any, even in every stratum where there are some."""
    state = int(seed.generate_state(1)[0])
    if data.strata is None or not block.clusters.of_rows:
        return arm_folds(block.treatment, n_folds, state, block.clusters)
    return stratum_folds(block.treatment, data.strata, n_folds, state)


def fit_scores(run: Run, table: Table, seed: np.random.SeedSequence) -> FittedPropensity:
    """Propensity scores of the rows at hand: known ones, the share of all rows or of the strata, or fitted ones."""
    model, n_folds, data, block = run.propensity, run.n_folds, table.data, table.block
    if design_of(run, data).chance == "observed":
        return share_scores(model, data.schema.treated_share, block)
    if data.schema.stratum_shares is not None and block.scores is not None:
        n_strata = len(data.schema.categories[-1] or ())
        return stratum_scores(model, n_strata, block)
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
    return model.fit(block.table, block.treatment, n_folds=n_folds, seed=seed, **given)


def share_scores(model: PropensityModel, share: float, block: Block) -> FittedPropensity:
    """Scores of a trial whose ratio nobody passed: the share of its rows that is treated."""
    model.check()
    return FittedPropensity(
        raw=np.full(block.y.size, share),
        clip=model.clip,
        treatment=block.treatment,
        table=block.table,
        description=f"the observed share of treated rows, {share:.3g}, for every row",
        auc=0.5,
        weights=block.weights,
    )


def stratum_scores(model: PropensityModel, n_strata: int, block: Block) -> FittedPropensity:
    """Scores of a trial randomised within strata: the share of a stratum's rows that is treated."""
    model.check()
    assert block.scores is not None
    return FittedPropensity(
        raw=block.scores,
        clip=model.clip,
        treatment=block.treatment,
        table=block.table,
        description=f"share of treated rows in each of {n_strata} strata (a saturated model, not cross-fitted)",
        auc=float(roc_auc_score(block.treatment, block.scores, sample_weight=block.weights.given)),
        weights=block.weights,
    )
