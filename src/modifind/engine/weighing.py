"""Rows without an outcome in a table in pieces: the others stand for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from modifind.data.clusters import WeightSums
from modifind.data.column_types import outcome_name, treatment_name
from modifind.engine.passes import Pieces
from modifind.engine.piece_reading import Looked
from modifind.nuisance.observation import ObservedRows, told


def weigh_pieces(
    pieces: Pieces, looked: Looked, treated: Any, missing: str, seed: int
) -> tuple[Pieces, Callable[[WeightSums], dict[str, Any]]]:
    """The rows that have an outcome, with weights by which they stand for the others as well.

    Models of who has an outcome are fitted to the sample of all rows; weights of all rows follow from them. The second
    is what a result records, given the weights of all rows that have an outcome.

    Parameters
    ----------
    pieces : Pieces
        All rows.
    looked : Looked
        What they hold, and the sample.
    treated, missing
        As in `ModifierSelector`.
    seed : int
        The seed of the run.
    """
    summary, sample = looked.summary, looked.sample
    known = replace(summary, y=replace(summary.y, n_missing=0))
    schema = known.schema(treated, None, missing, treatment_name(sample.treatment), outcome_name(sample.y))
    rule, unseen = ObservedRows.of(schema, looked.rows, looked.numbers, sample, seed)
    unseen = replace(unseen, n_rows=summary.n_rows, n_missing=summary.y.n_missing)
    warnings.warn(told(unseen), UserWarning, stacklevel=4)
    return pieces.observed(rule), partial(unseen.settings, sampled=summary.weights is not None)
