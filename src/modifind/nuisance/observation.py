"""Missing outcomes: weights with which the observed rows represent all rows.

If the outcome is missing more often for some kinds of rows, the observed rows are another population. If it is missing
at random given features and arm (no data can check that), an observed row represents ``1 / P(observed | features,
arm)`` rows of its kind. The probability is estimated as propensity scores are, for each row by models that have not
seen it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind._typing import Array, Ints
from modifind.data.clusters import RowPlan, cluster_keys
from modifind.data.features import FeatureTable
from modifind.data.levels import rare_levels, with_level_columns
from modifind.data.missing import MIN_OUTCOMES
from modifind.data.schema import Schema
from modifind.data.sources import Piece
from modifind.data.weights import WeightSums, weight_numbers
from modifind.nuisance.propensity.scores import FittedPropensity, PropensityModel

STREAM = 9  # of the seed: apart from what the fit itself draws
MIN_CHANCE = 0.05  # no row stands for more than twenty
MAX_CHANCE = 0.999
MODEL = PropensityModel(clip=(MIN_CHANCE, MAX_CHANCE))


@dataclass(frozen=True)
class MissingOutcomes:
    """Rows with a missing outcome, and the weights of the others.

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
    def of(cls, fitted: FittedPropensity, observed: NDArray[np.bool_]) -> MissingOutcomes:
        """Invert the fitted probabilities of all rows."""
        bounded = int((fitted.raw[observed] < MIN_CHANCE).sum())
        return cls(1.0 / fitted.scores[observed], observed.size, int((~observed).sum()), bounded)

    @property
    def message(self) -> str:
        """How missing outcomes are compensated for."""
        return (
            f"{self.n_missing} of {self.n_rows} rows have no outcome; the others represent them with weights of up to "
            f"{self.weights.max():.2g}, which are right if features and treatment explain who has an outcome"
        )

    def settings(self, weights: WeightSums, *, sampled: bool) -> dict[str, Any]:
        """Entries for the record, given the final weights of the rows and whether they include sample weights."""
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


def refuse_few_outcomes(observed: NDArray[np.bool_]) -> None:
    """Refuse a table with too few observed, or too few missing, outcomes."""
    counts = int(observed.sum()), int((~observed).sum())
    if min(counts) < MIN_OUTCOMES:
        raise ValueError(
            f"missing_outcome='weight' needs at least {MIN_OUTCOMES} rows with an outcome and as many without; "
            f"found {counts[0]} with and {counts[1]} without. Use missing_outcome='drop'"
        )


@dataclass(frozen=True)
class ObservedRows:
    """The rows with an observed outcome, weighted by models of all rows, or of a sample.

    Attributes
    ----------
    schema : Schema
        How the models read a piece.
    rows : RowPlan, optional
        Folds: the chance of a row is that of models which have not seen it.
    chances : FittedPropensity, optional
        The models, without rows.
    weights : array, optional
        Weights of the rows that have an outcome, where these are all rows.
    """

    schema: Schema
    rows: RowPlan | None
    chances: FittedPropensity | None
    weights: Array | None = None

    @classmethod
    def of(
        cls,
        schema: Schema,
        sample: Piece,
        rows: RowPlan | None,
        numbers: NDArray[np.int64],
        n_folds: int,
        seed: int,
        *,
        fit: bool = True,
    ) -> tuple[ObservedRows, MissingOutcomes]:
        """Fit the models to numbered rows; also return their missing outcomes.

        Parameters
        ----------
        schema : Schema
            How they are read.
        sample : Piece
            The rows.
        rows : RowPlan, optional
            Folds, where these are some rows of more.
        numbers : array
            Numbers of the rows.
        n_folds, seed : int
            Folds of cross-fitting where there is no plan, and the seed of the run.
        fit : bool, default=True
            Whether chances are estimated; otherwise all weights are 1.
        """
        observed = sample.y.notna().to_numpy()
        seen = observed.astype(np.int64)
        if not fit:
            certain = MissingOutcomes(np.ones(int(seen.sum())), observed.size, int((~observed).sum()), 0)
            return cls(schema, rows, None, certain.weights), certain
        schema = replace(schema, poolings=rare_levels(schema.read(sample).table, seen))
        block = schema.read(sample)
        table = with_level_columns(replace(block.table, reference=block.table.scaling), block.weights)
        schema = replace(schema, reference=table.reference, level_columns=table.level_columns)
        given = _with_arms(table, block.treatment)
        folds = None if rows is None else _folds(rows, sample, numbers)
        stream = np.random.SeedSequence(seed, spawn_key=(STREAM,))
        together: dict[str, Any] = {"weights": block.weights, "clusters": block.clusters}
        fitted = MODEL.fit(given, seen, n_folds=n_folds, seed=stream, folds=folds, **together)
        unseen = MissingOutcomes.of(fitted, observed)
        if folds is None:
            return cls(schema, rows, None, unseen.weights), unseen
        first = replace(given, values=given.values[:1])
        return cls(schema, rows, fitted.at(first, seen[:1], folds[:1])), unseen

    def __call__(self, piece: Piece) -> Piece:
        """Observed rows of a piece; their numbers in the whole table determine the models used."""
        observed = piece.y.notna().to_numpy()
        weights = np.ones(observed.size)
        if self.rows is None or self.chances is None:
            weights[observed] = self.weights
        else:
            block = self.schema.read(piece)
            table = _with_arms(block.table, block.treatment)
            weights /= self.chances.at(table, block.treatment, _folds(self.rows, piece, piece.numbers)).scores
        if piece.sample_weight is not None:
            weights = weights * weight_numbers(piece.sample_weight)
        return replace(piece, sample_weight=pd.Series(weights, index=piece.X.index)).take(observed)


def _folds(rows: RowPlan, piece: Piece, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Fold of each row: by its number, or by its cluster."""
    return rows.folds(numbers if piece.clusters is None else cluster_keys(piece.clusters).view(np.int64))[0]


def _with_arms(table: FeatureTable, arms: Ints) -> FeatureTable:
    """The table with the arm as its last feature; its levels are not pooled, since an arm may have all outcomes."""
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
