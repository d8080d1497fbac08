"""Rows without an outcome: the others stand for them."""

from __future__ import annotations

import warnings
from dataclasses import replace

from modifind._warned import warn
from modifind.engine.reading import Looked, Reading
from modifind.nuisance.observation import ObservedRows, Unseen, refuse_few_outcomes


def model_observed(
    reading: Reading, looked: Looked, n_folds: int, seed: int, *, fit: bool = True
) -> tuple[ObservedRows, Unseen]:
    """Models of who has an outcome, fitted to the rows at hand, and what these rows show; a warning says it.

    Parameters
    ----------
    reading : Reading
        How the table is read.
    looked : Looked
        All rows, or a sample of them.
    n_folds, seed : int
        Folds of the models, and the seed of the run.
    fit : bool, default=True
        Whether the models are fitted; otherwise all weights are 1.
    """
    refuse_few_outcomes(looked.sample.y.notna().to_numpy())
    summary = replace(looked.summary, y=replace(looked.summary.y, n_missing=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the rows that are left are read once more
        schema = reading.schema(replace(looked, summary=summary), range(len(summary.names)), None)
        rule, unseen = ObservedRows.of(schema, looked.sample, looked.rows, looked.numbers, n_folds, seed, fit=fit)
    unseen = replace(unseen, n_rows=looked.summary.n_rows, n_missing=looked.summary.y.n_missing)
    if fit:
        warn(unseen.message)
    return rule, unseen


def with_record(looked: Looked, unseen: Unseen, *, sampled: bool) -> Looked:
    """Rows that have an outcome, with what a result records of their weights; `sampled` ones were weighted before."""
    assert looked.summary.weights is not None
    return replace(looked, outcome_weights=unseen.settings(looked.summary.weights, sampled=sampled))
