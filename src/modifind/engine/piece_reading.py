"""How a table in pieces is read: a look at all rows, and from then on the same way for every piece."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modifind.data.clusters import (
    cluster_folds,
    cluster_keys,
    treated_as_one,
    warn_resampled_weights,
    weight_numbers,
)
from modifind.data.codes import warn_codes
from modifind.data.column_types import outcome_name, treatment_name
from modifind.data.containers import recorded_names
from modifind.data.determined import find_determined
from modifind.data.feature_groups import part_of, refuse_adjusted, side_by_side
from modifind.data.feature_matrix import FeatureTable, adjusted_columns
from modifind.data.leaks import refuse_leaks
from modifind.data.many_levels import with_level_columns
from modifind.data.pieces import Block, Piece, Schema, Summary
from modifind.data.row_plan import RowPlan
from modifind.data.strata import refuse_repeated
from modifind.data.support import outside_levels
from modifind.data.suspicious import refuse_censored
from modifind.data.within_clusters import cluster_features
from modifind.data.wording import named
from modifind.engine.passes import Pieces
from modifind.engine.pieces import TableInPieces
from modifind.engine.run import Run
from modifind.engine.units import check_groups
from modifind.statistics.contract import refuse_clusters, refuse_gaps
from modifind.statistics.families import family_of

MIN_FOLD_ARM = 5


@dataclass(frozen=True)
class Looked:
    """A table in pieces that has been looked at once.

    Attributes
    ----------
    rows : RowPlan
        Sample and folds.
    summary : Summary
        What its columns hold.
    numbers, sample : array, Piece
        Numbers of the rows of the sample, and the rows.
    """

    rows: RowPlan
    summary: Summary
    numbers: NDArray[np.int64]
    sample: Piece


@dataclass(frozen=True)
class PieceReading:
    """How pieces are looked at and read; the fields are settings of `ModifierSelector` and arguments of its `fit`."""

    discrete_features: Any
    missing: str
    max_train_rows: int
    treated: Any
    adjust_for: Any

    def look(self, run: Run, pieces: Pieces) -> Looked:
        """Look at all rows once; the sample is the whole table where it has no more than `max_train_rows`."""
        run.statistic.check()
        run.propensity.check()
        rows = RowPlan.of(TableInPieces.stream(run, "folds"), run.n_folds, run.statistic.cv_repeats or 1)
        look, rows = pieces.look(rows, self.discrete_features, self.max_train_rows)
        return Looked(rows, look.summary, *look.sample())

    def read(self, run: Run, pieces: Pieces, looked: Looked) -> TableInPieces:
        """Check the table, and read the sample that models are fitted to."""
        sample, summary = looked.sample, looked.summary
        if sample.clusters is not None:
            refuse_clusters(run.statistic)
        names = tuple(map(str, sample.X.columns))
        adjusted = adjusted_columns(names, self.adjust_for)
        refuse_adjusted(run.feature_groups, adjusted)
        places, units = side_by_side(summary.names, run.feature_groups, (*adjusted, *summary.names[len(names) :]))
        summary = summary.arranged(places)
        called = treatment_name(sample.treatment), outcome_name(sample.y)
        schema = summary.schema(self.treated, run.outcome_transform, self.missing, *called)
        if not (isinstance(run.propensity.estimator, str) and run.propensity.estimator == "auto"):
            schema = replace(schema, stratum_shares=None)
        if sample.sample_weight is not None:
            schema = replace(schema, mean_weight=float(weight_numbers(sample.sample_weight).mean()))
        refuse_gaps(run.statistic, [schema.names[m] for m in sorted(schema.incomplete)])
        if sample.sample_weight is not None and run.statistic.resamples:
            warn_resampled_weights()
        plain = schema.read(sample)
        refuse_leaks(plain.table, plain.y, plain.treatment, plain.clusters)
        refuse_censored(plain.table, plain.y, sample.y.name, positive=run.outcome_transform == "log")
        if sample.strata is not None:
            features = part_of(plain.table, list(range(plain.table.n_features - 1)))
            refuse_repeated(plain.table.values[:, -1], features)
        warn_codes(plain.table, plain.y, called[1])
        schema = schema.pooled()
        block = schema.read(sample) if schema.poolings else plain
        table = with_level_columns(replace(block.table, reference=block.table.scaling), block.weights)
        schema = replace(schema, reference=table.reference, level_columns=table.level_columns)
        determined = find_determined(table).apart([unit.members for unit in units])
        determined.warn()
        within: dict[int, NDArray[np.int64]] = {}
        if run.statistic.takes_clusters and getattr(run.sampler, "learns", False):
            keys = None if sample.clusters is None else cluster_keys(sample.clusters)
            within = _within(table, keys, determined.features)
        check_groups(run.sampler, table, units)
        block = replace(block, table=table)
        folds, of_clusters = _folds(run, looked, block, schema.n_clusters)
        _check_sample(run, schema, block, folds)
        return TableInPieces(
            block=block,
            units=units,
            copies=determined.features,
            within=within,
            folds=folds,
            left_out=frozenset(schema.names[m] for m in schema.left_out),
            columns_in=names,
            labels=schema.arm_labels,
            n_rows=schema.n_rows,
            n_treated=schema.n_treated,
            outside=outside_levels(plain.table, plain.treatment, treated_as_one(plain.treatment, plain.clusters)),
            recorded={
                "n_train_rows": looked.numbers.size,
                **recorded_names(sample.y, sample.treatment),
                **({"adjust_for": list(adjusted)} if adjusted else {}),
                **summary.together,
            },
            schema=schema,
            rows=looked.rows,
            numbers=looked.numbers,
            cluster_folds=of_clusters,
            effective_size=np.inf if summary.weights is None else summary.weights.effective_size,
            pieces=pieces,
        )


def _folds(
    run: Run, looked: Looked, block: Block, n_clusters: int
) -> tuple[tuple[NDArray[np.int64], ...], tuple[NDArray[np.int64], ...]]:
    """Fold of each row of the sample, for every repeat; and of every cluster, where there are clusters."""
    rows, seed = looked.rows, TableInPieces.stream(run, "folds")
    if block.clusters is None:
        return tuple(rows.folds(looked.numbers)), ()
    found = []
    for own, drawn in zip(seed.spawn(run.statistic.cv_repeats), rows.folds(np.arange(n_clusters)), strict=True):
        state = int(own.generate_state(1)[0])
        drawn[block.clusters] = cluster_folds(block.treatment, block.clusters, run.n_folds, state)
        found.append(drawn)  # clusters that the sample has no row of may be in any
    return tuple(own[block.clusters] for own in found), tuple(found)


def _within(
    table: FeatureTable, keys: NDArray[np.uint64] | None, determined: frozenset[int]
) -> dict[int, NDArray[np.int64]]:
    """Features that have one value in every cluster, with the clusters; refuses sets of rows that nobody told of."""
    told = None if keys is None else np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64)
    if told is not None and np.bincount(told).max() == 1:  # every row is a cluster
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sets that are taken for clusters, which is what is refused here
        found, sets = cluster_features(table, told, determined)
    if sets is not None and (told is None or sets.max() < told.max()):
        members = named(table.names[m] for m, own in found.items() if own is sets)
        raise ValueError(
            f"{members}: one value each in the same {sets.max() + 1} sets of rows, so that these rows seem to belong "
            "together (in a school, a village), or one column is looked up from another. Pass the sets as clusters=, "
            "or leave out a column that is looked up"
        )
    return found


def _check_sample(run: Run, schema: Schema, block: Block, folds: tuple[NDArray[np.int64], ...]) -> None:
    """Refuse a sample that models cannot be fitted to."""
    y, arms, n_folds = block.y, block.treatment, run.n_folds
    for own in folds:
        counts = np.bincount(2 * own + arms, minlength=2 * n_folds)
        if counts.min() < MIN_FOLD_ARM:
            raise ValueError(
                f"the sample that models are fitted to has {int(arms.sum())} treated rows and "
                f"{int((1 - arms).sum())} others, too few in some fold; raise max_train_rows"
            )
    if (y == y[0]).all():
        raise ValueError("y is the same in all rows of the sample that models are fitted to; raise max_train_rows")
    if (family_of(y).kind == "binary") != schema.binary:
        raise ValueError(
            "y has other than two values in so few rows that the sample holds none of them; look for codes that "
            "stand for missing values, or raise max_train_rows"
        )
    run.check_outcome(y, arms, weighted=block.weights is not None)
    if getattr(run.statistic, "check_resamples", 0):
        warnings.warn("check_resamples has no effect on tables that are streamed", UserWarning, stacklevel=4)
