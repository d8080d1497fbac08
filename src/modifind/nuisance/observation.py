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
import pandas as pd
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.clusters import WeightSums, cluster_keys, weight_numbers
from modifind.data.feature_matrix import FeatureTable
from modifind.data.many_levels import with_level_columns
from modifind.data.missing import FEWEST_OUTCOMES
from modifind.data.pieces import Piece, Schema
from modifind.data.rare_levels import pool_rare_levels, rare_levels
from modifind.data.row_plan import RowPlan
from modifind.nuisance.propensity.scores import FittedPropensity, PropensityModel

STREAM = 9  # of the seed: apart from what the fit itself draws
SMALLEST_CHANCE = 0.05  # no row stands for more than twenty
LARGEST_CHANCE = 0.999
MODEL = PropensityModel(clip=(SMALLEST_CHANCE, LARGEST_CHANCE))


@dataclass(frozen=True)
class Unseen:
    """Rows without an outcome, and the weights of the others.

    Attributes
    ----------
    weights : array of shape (n_observed,)
        Inverse chances to have an outcome; of a table in pieces those of the sample.
    n_rows, n_missing : int
        All rows, and those without an outcome.
    n_bounded : int
        Rows with one whose chance was moved up to the bound.
    """

    weights: Array
    n_rows: int
    n_missing: int
    n_bounded: int

    @classmethod
    def of(cls, fitted: FittedPropensity, observed: NDArray[np.bool_]) -> Unseen:
        """From the fitted chances of all rows."""
        bounded = int((fitted.raw[observed] < SMALLEST_CHANCE).sum())
        return cls(1.0 / fitted.scores[observed], observed.size, int((~observed).sum()), bounded)

    def settings(self, weights: WeightSums, *, sampled: bool) -> dict[str, Any]:
        """What a result records, given the final weights of the rows and whether sample weights are among them."""
        return {
            "n_missing": self.n_missing,
            "share_missing": self.n_missing / self.n_rows,
            "largest_weight": float(self.weights.max()),
            # Sums depend on how rows are cut in their last digits.
            "largest_weight_share": float(f"{weights.largest / weights.total:.12g}"),
            "effective_rows": float(f"{weights.effective_size:.12g}"),
            "n_bounded": self.n_bounded,
            "times_sample_weight": sampled,
        }


def told(unseen: Unseen) -> str:
    """Message about weights for rows without an outcome."""
    return (
        f"{unseen.n_missing} of {unseen.n_rows} rows have no outcome; the others represent them with weights of up to "
        f"{unseen.weights.max():.2g}, which are right if features and treatment explain who has an outcome"
    )


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
    _refuse_few(observed)
    seen = observed.astype(np.int64)
    if not fit:
        return Unseen(np.ones(seen.sum()), observed.size, int((~observed).sum()), 0)
    scaled = None if weights is None else weights / weights.mean()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of levels that are pooled here only
        pooled = pool_rare_levels(table, seen)[0]
    given = with_level_columns(_with_arms(pooled, arms), scaled)
    fitted = MODEL.fit(given, seen, n_folds=n_folds, seed=_stream(seed), weights=scaled, clusters=clusters)
    return Unseen.of(fitted, observed)


def _refuse_few(observed: NDArray[np.bool_]) -> None:
    found = int(observed.sum())
    if min(found, observed.size - found) < FEWEST_OUTCOMES:
        raise ValueError(
            f"missing_outcome='weight' needs at least {FEWEST_OUTCOMES} rows with an outcome and as many without; "
            f"found {found} with and {observed.size - found} without. Use missing_outcome='drop'"
        )


@dataclass(frozen=True)
class ObservedRows:
    """The rows of a table in pieces that have an outcome, weighted by models of a sample of all rows.

    Attributes
    ----------
    schema : Schema
        How the models read a piece.
    rows : RowPlan
        Folds: the chance of a row is that of models which have not seen it.
    chances : FittedPropensity
        The models, without rows.
    """

    schema: Schema
    rows: RowPlan
    chances: FittedPropensity

    @classmethod
    def of(
        cls, schema: Schema, rows: RowPlan, numbers: NDArray[np.int64], sample: Piece, seed: int
    ) -> tuple[ObservedRows, Unseen]:
        """From numbered rows of a sample; also what these rows show."""
        observed = sample.y.notna().to_numpy()
        _refuse_few(observed)
        if sample.sample_weight is not None:
            schema = replace(schema, mean_weight=float(weight_numbers(sample.sample_weight).mean()))
        plain, seen = schema.read(sample).table, observed.astype(np.int64)
        schema = replace(schema, poolings=rare_levels(plain, seen))
        block = schema.read(sample)
        table = with_level_columns(replace(block.table, reference=block.table.scaling), block.weights)
        schema = replace(schema, reference=table.reference, level_columns=table.level_columns)
        given = _with_arms(table, block.treatment)
        folds = _folds(rows, sample, numbers)
        fitted = MODEL.fit(given, seen, seed=_stream(seed), folds=folds, weights=block.weights, clusters=block.clusters)
        first = replace(given, values=given.values[:1])
        return cls(schema, rows, fitted.at(first, seen[:1], folds[:1])), Unseen.of(fitted, observed)

    def __call__(self, piece: Piece) -> Piece:
        """The rows of a piece that have an outcome; their number in the whole table says by which models."""
        block = self.schema.read(piece)
        table = _with_arms(block.table, block.treatment)
        fitted = self.chances.at(table, block.treatment, _folds(self.rows, piece, piece.numbers))
        weights = 1.0 / fitted.scores
        if piece.sample_weight is not None:
            weights = weights * weight_numbers(piece.sample_weight)
        return replace(piece, sample_weight=pd.Series(weights, index=piece.X.index)).take(piece.y.notna().to_numpy())


def _folds(rows: RowPlan, piece: Piece, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Fold of each row: by its number, or by its cluster."""
    return rows.folds(numbers if piece.clusters is None else cluster_keys(piece.clusters).view(np.int64))[0]


def _with_arms(table: FeatureTable, arms: Ints) -> FeatureTable:
    """The table with the arm as its last feature; its levels are not pooled, as an arm may have all of its outcomes."""
    name = "arm"
    while name in table.names:
        name = f"({name})"
    reference = table.reference
    return replace(
        table,
        names=(*table.names, name),
        values=np.column_stack((table.values, arms)),
        categories=(*table.categories, (0, 1)),
        reference=None if reference is None else (np.append(reference[0], 0.0), np.append(reference[1], 1.0)),
    )


def _stream(seed: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(STREAM,))
