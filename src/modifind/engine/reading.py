"""From user input to validated data: a first pass over all rows, then one way to read them.

A table in memory is one piece with all rows at hand; for a longer one a sample is at hand. If outcomes are missing, the
rows that have one are weighted to represent those that do not.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from modifind._typing import Array, Ints
from modifind._warned import warn
from modifind.data.balance import Outside, outside_levels
from modifind.data.clusters import RowPlan, refuse_repeated, treated_as_one
from modifind.data.column_types import outcome_name, treatment_name
from modifind.data.containers import as_frame, recorded_names
from modifind.data.determined import refuse_leaks
from modifind.data.features import FeatureTable, Unit, adjusted_columns, part_of, refuse_adjusted, side_by_side
from modifind.data.guards import (
    refuse_censored,
    refuse_row_identifiers,
    refuse_unusable,
    warn_of_codes,
    warn_of_row_numbers,
    warn_of_time_name,
)
from modifind.data.levels import MAX_INDICATORS, warn_alike, with_level_columns
from modifind.data.missing import DroppedRows
from modifind.data.outcome import few_events, outcome_parts, refuse_treatment_as_outcome
from modifind.data.schema import Schema, refuse_empty
from modifind.data.sources import Block, FrameSource, Piece
from modifind.data.summary import Summary
from modifind.data.weights import weight_numbers
from modifind.nuisance.observation import MissingOutcomes, ObservedRows, refuse_few_outcomes


@dataclass(frozen=True)
class Given:
    """The arguments of `ModifierSelector.fit` as passed by the user.

    `named` are the columns named as features or for adjustment; None for those of `adjust_for`.
    """

    X: Any
    y: Any = None
    treatment: Any = None
    treated: Any = None
    adjust_for: Any = None
    named: frozenset[str] | None = None
    sample_weight: Any = None
    clusters: Any = None
    strata: Any = None
    reference: Any = None
    arms: Any = None

    @property
    def per_row(self) -> dict[str, Any]:
        """Further per-row arguments by name; None if not passed."""
        return {name: getattr(self, name) for name in ("sample_weight", "clusters", "strata")}

    def source(self, propensity: Any = None) -> FrameSource:
        """Rows of a table in memory, including a propensity of one score per row."""
        frame = as_frame(self.X)
        refuse_empty(frame)
        return FrameSource.of(frame, self.y, self.treatment, propensity, self.per_row)


@dataclass(frozen=True)
class FirstPass:
    """Result of a first pass over a table: a summary of all rows, and the rows that models are fitted to.

    Attributes
    ----------
    summary : Summary
        What the columns of all rows hold.
    sample : Piece
        Rows that models are fitted to: all of a table in memory, a random part of a longer one.
    numbers : array
        Their numbers in the whole table.
    rows : RowPlan, optional
        Which rows of a longer table are in the sample, and folds; None for a table in memory.
    dropped : DroppedRows
        A count of rows that were left out.
    outcome_weights : dict
        What a result records of weights for rows without an outcome; nothing where there are none.
    """

    summary: Summary
    sample: Piece
    numbers: Ints
    rows: RowPlan | None = None
    dropped: DroppedRows = field(default_factory=DroppedRows)
    outcome_weights: dict[str, Any] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether the sample is the whole table."""
        return self.rows is None


@dataclass(frozen=True)
class Data:
    """A table that was read: its encoded rows at hand, and the schema by which all others are read.

    Attributes
    ----------
    first_pass : FirstPass
        What it was read from.
    schema : Schema
        How its rows are read.
    block : Block
        The rows at hand.
    units : tuple of Unit
        What is tested.
    adjusted : tuple of str
        Columns that everything conditions on and that are not tested.
    unpooled : tuple of arrays of shape (n,)
        Codes before rare levels were pooled, of categories that have many levels left.
    outside : dict
        Rows at levels that one arm has hardly any rows of, by column, before rare levels were pooled.
    named : frozenset of str
        Columns that the user has named as features or for adjustment.
    recorded : dict
        What a result records of names, weights, clusters, strata and adjustment; nothing where there is none.
    """

    first_pass: FirstPass
    schema: Schema
    block: Block
    units: tuple[Unit, ...]
    adjusted: tuple[str, ...]
    unpooled: tuple[Array, ...]
    outside: dict[str, Outside]
    named: frozenset[str]
    recorded: dict[str, Any]

    @property
    def whole(self) -> bool:
        """Whether the rows at hand are all rows."""
        return self.first_pass.whole

    @property
    def encoded(self) -> Data:
        """The same without the raw rows, which workers do not need."""
        first_pass = self.first_pass
        return replace(self, first_pass=replace(first_pass, sample=first_pass.sample.take(slice(0))))

    @property
    def arms(self) -> Ints:
        """0 or 1 for every row at hand."""
        return self.block.treatment

    @property
    def columns_in(self) -> tuple[str, ...]:
        """All feature columns, tested or not, as passed."""
        return tuple(map(str, self.first_pass.sample.X.columns))

    @property
    def left_out(self) -> frozenset[str]:
        """Columns that pooling of rare levels has left with one level; the user has been warned."""
        return frozenset(self.schema.names[m] for m in self.schema.left_out)

    @property
    def strata(self) -> Ints | None:
        """Stratum of every row at hand, which is the last column; None without strata."""
        return self.block.table.values[:, -1].astype(np.int64) if "n_strata" in self.recorded else None


@dataclass(frozen=True)
class Reading:
    """How a table is validated and encoded; the fields are settings of `ModifierSelector` and arguments of its `fit`.

    Examples
    --------
    >>> rows = [[k % 7, k % 13] for k in range(60)]
    >>> piece = Given(rows, range(60), ["drug", "placebo"] * 30).source().whole
    >>> data = Reading().read(Reading().at_once(piece))
    >>> data.block.table.names, data.schema.arm_labels
    (('x0', 'x1'), ('placebo', 'drug'))
    """

    discrete_features: Any = "auto"
    missing: str = "error"
    missing_outcome: str = "error"
    treated: Any = None
    adjust_for: Any = None
    named: frozenset[str] | None = None

    @property
    def kept(self) -> str:
        """Columns that must not be missing; see `RowFilter`."""
        if self.missing == "drop":
            return "inputs" if self.missing_outcome == "weight" else "rows"
        return "outcomes" if self.missing_outcome == "drop" else ""

    def at_once(self, piece: Piece, dropped: DroppedRows | None = None) -> FirstPass:
        """First pass over a table that is one piece."""
        summary = Summary.of(piece, self.discrete_features, whole=True)
        return FirstPass(summary, piece, piece.numbers, dropped=dropped or DroppedRows())

    def schema(self, first_pass: FirstPass, places: Sequence[int], transform: str | None) -> Schema:
        """Schema of the pieces, with reordered columns."""
        sample = first_pass.sample
        called = treatment_name(sample.treatment), outcome_name(sample.y)
        schema = Schema.of(first_pass.summary.arranged(places), self.treated, transform, self.missing, *called)
        if sample.sample_weight is not None:
            weights = weight_numbers(sample.sample_weight)
            largest = float(weights.max()) if first_pass.whole else 1.0  # of all rows only one table in memory knows it
            schema = replace(schema, weight_units=(largest, float((weights / largest).mean())))
        return schema

    def read(
        self,
        first_pass: FirstPass,
        groups: Mapping[str, tuple[str, ...]] | None = None,
        transform: str | None = None,
        *,
        stratum_scores: bool = True,
    ) -> Data:
        """Validate a table and encode its rows at hand, pooling rare levels and warning of oddities.

        Parameters
        ----------
        first_pass : FirstPass
            What the table holds.
        groups : mapping, optional
            Columns that are tested together, by the name of their group.
        transform : {None, "log"}
            Scale of the outcome.
        stratum_scores : bool, default=True
            Whether the shares of treated rows in strata are the scores of their rows.

        Raises
        ------
        ValueError
            Names the column and the remedy.
        """
        sample, summary = first_pass.sample, first_pass.summary
        names = tuple(map(str, sample.X.columns))
        adjusted = adjusted_columns(names, self.adjust_for)
        refuse_adjusted(groups or {}, adjusted)
        for columns in (groups or {}).values():
            refuse_unusable(sample.X.iloc[:, [m for m, name in enumerate(names) if name in columns]], "feature_groups")
        places, units = side_by_side(summary.names, groups or {}, (*adjusted, *summary.names[len(names) :]))
        schema = self.schema(first_pass, places, transform)
        if not stratum_scores:
            schema = replace(schema, stratum_shares=None)
        plain = replace(schema, transform=None).read(sample)
        clusters = treated_as_one(plain.treatment, plain.clusters)
        refuse_treatment_as_outcome(plain.y, plain.treatment, outcome_name(sample.y))
        refuse_leaks(plain.table, plain.y, plain.treatment, plain.clusters)
        parts = outcome_parts(plain.table, plain.y)
        if parts is not None:
            parts.refuse_exact()
        refuse_row_identifiers(plain.table)
        warn_alike(plain.table)
        refuse_censored(sample.X, sample.y)
        warn_of_time_name(sample.y)
        warn_of_codes(plain.table, plain.y, outcome_name(sample.y))
        warn_of_row_numbers(plain.table)
        if sample.strata is not None:
            features = part_of(plain.table, list(range(plain.table.n_features - 1)))
            refuse_repeated(plain.table.values[:, -1], features)
        schema = schema.pooled()
        block = schema.read(sample) if schema.poolings or transform else plain
        table = with_level_columns(replace(block.table, reference=block.table.scaling), block.weights)
        recorded = {
            **({} if first_pass.whole else {"n_train_rows": first_pass.numbers.size}),
            **recorded_names(sample.y, sample.treatment),
            **({"adjust_for": list(adjusted)} if adjusted else {}),
            **summary.together,
            **({} if parts is None else {"outcome_parts": parts.recorded}),
            **({"few_events": rare} if (rare := few_events(plain.y, plain.treatment)) else {}),
        }
        if first_pass.outcome_weights:
            recorded["outcome_weights"] = first_pass.outcome_weights
            recorded.pop("sample_weight")
        return Data(
            first_pass,
            replace(schema, reference=table.reference, level_columns=table.level_columns),
            replace(block, table=table),
            units,
            adjusted,
            _unpooled(plain.table, block.table),
            outside_levels(plain.table, plain.treatment, clusters),
            frozenset(adjusted) if self.named is None else self.named,
            recorded,
        )


def _unpooled(whole: FeatureTable, table: FeatureTable) -> tuple[Array, ...]:
    """Codes of many-level categories before rare levels were pooled."""
    pooled = (m for m in range(table.n_features) if whole.n_levels(m) > table.n_levels(m) > MAX_INDICATORS)
    return tuple(whole.values[:, m] for m in pooled)


def model_observed(
    reading: Reading, first_pass: FirstPass, n_folds: int, seed: int, *, fit: bool = True
) -> tuple[ObservedRows, MissingOutcomes]:
    """Model which rows have an outcome, and warn of what is missing.

    Parameters
    ----------
    reading : Reading
        How the table is read.
    first_pass : FirstPass
        All rows, or a sample of them.
    n_folds, seed : int
        Folds of the models, and the seed of the run.
    fit : bool, default=True
        Whether the models are fitted; otherwise all weights are 1.
    """
    refuse_few_outcomes(first_pass.sample.y.notna().to_numpy())
    summary = replace(first_pass.summary, y=replace(first_pass.summary.y, n_missing=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the rows that are left are read once more
        schema = reading.schema(replace(first_pass, summary=summary), range(len(summary.names)), None)
        rule, unseen = ObservedRows.of(
            schema, first_pass.sample, first_pass.rows, first_pass.numbers, n_folds, seed, fit=fit
        )
    unseen = replace(unseen, n_rows=first_pass.summary.n_rows, n_missing=first_pass.summary.y.n_missing)
    if fit:
        warn(unseen.message)
    return rule, unseen


def with_record(first_pass: FirstPass, unseen: MissingOutcomes, *, sampled: bool) -> FirstPass:
    """Rows that have an outcome, with the record of their weights; `sampled` says whether they had sample weights."""
    assert first_pass.summary.weights is not None
    return replace(first_pass, outcome_weights=unseen.settings(first_pass.summary.weights, sampled=sampled))
