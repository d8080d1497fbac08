"""Weights of the rows that have an outcome, so that they stand for those that have none."""

from __future__ import annotations

import warnings
from dataclasses import replace

from modifind._warned import warn
from modifind.engine.reading import FirstPass, Reading
from modifind.nuisance.observation import ObservedRows, Unseen, refuse_few_outcomes


def model_observed(
    reading: Reading, first_pass: FirstPass, n_folds: int, seed: int, *, fit: bool = True
) -> tuple[ObservedRows, Unseen]:
    """Models of who has an outcome, fitted to the rows at hand, and what these rows show; a warning says it.

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


def with_record(first_pass: FirstPass, unseen: Unseen, *, sampled: bool) -> FirstPass:
    """Rows that have an outcome, with what a result records of their weights; `sampled` ones were weighted before."""
    assert first_pass.summary.weights is not None
    return replace(first_pass, outcome_weights=unseen.settings(first_pass.summary.weights, sampled=sampled))
