"""Tests of features by the sums of rows that a likelihood has been prepared for, as the engine makes them."""

from __future__ import annotations

import numpy as np

from modifind.data.features import Unit, members_of
from modifind.data.sources import Block
from modifind.engine.features import ChangeRows, unit_sums
from modifind.engine.passes import ScoredRows
from modifind.engine.sums import outcome_of


def unit_of(feature):
    """A feature, or several as one."""
    return Unit("x", members_of(feature), group=not isinstance(feature, int))


def scored_rows(prepared):
    """The rows of a prepared likelihood, all of which its models were fitted to."""
    folds = tuple(fit.cross.folds for fit in prepared.fits)
    known = prepared.table, prepared.y, prepared.treatment, None, prepared.weights, prepared.clusters
    everyone, n_folds = np.ones(prepared.y.size, dtype=bool), 1 + int(max(own.max() for own in folds))
    return ScoredRows(Block(0, *known), folds, None, everyone, n_folds, prepared.clusters.count)


def feature_sums(prepared, feature, grid, draws=None, **settings):
    """Sums of all rows, and what folds share."""
    return unit_sums(prepared, unit_of(feature), grid, scored_rows(prepared), draws, **settings)[:2]


def feature_test(prepared, feature, grid, draws=None, **check):
    """The test of a feature; `check` are settings of a check by resampling."""
    sums, reuse = feature_sums(prepared, feature, grid, draws)
    return outcome_of(sums, reuse, scored_rows(prepared).freedom, **check)


def feature_changes(prepared, feature, grid, draws=None):
    """What a feature changes."""
    rows = scored_rows(prepared)
    return ChangeRows(rows, rows.block.numbers, prepared).changes(unit_of(feature), grid, draws)
