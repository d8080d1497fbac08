"""Small tables and settings that tests of streamed fits share."""

import dataclasses

import numpy as np
import pytest
from pandas.testing import assert_frame_equal

from modifind import EffectLikelihood, ModifierSelector
from modifind.data.clusters import RowPlan
from modifind.data.sources import FrameSource

FAST = {
    "statistic": EffectLikelihood("linear"),
    "sampler": "gaussian",
    "propensity": 0.5,
    "random_state": 0,
    "max_train_rows": 1500,
    "cv": 2,
}


def fit(X, y, treatment, *, treated=None, features=None, **settings):
    selector = ModifierSelector(**FAST | settings)
    return selector.fit(X, y, treatment=treatment, treated=treated, features=features).result_


def fit_source(source, *, treated=None, **settings):
    return ModifierSelector(**FAST | settings).fit(source, treated=treated).result_


def cut(X, y, treatment, piece_rows, scores=None):
    return dataclasses.replace(FrameSource.of(X, y, treatment, scores), piece_rows=piece_rows)


SMALL = {"max_train_rows": 400}


def close(one, two, tolerance=1e-10, **explained):
    """Equal but for the order in which numbers were added up."""
    explained = explained or {"check_exact": True}
    assert_frame_equal(one.table, two.table, rtol=tolerance, atol=tolerance)
    assert_frame_equal(one.diagnostics, two.diagnostics, rtol=tolerance, atol=tolerance)
    # Rows of the sample explain, and those are added up in one order.
    for name in ("curves", "densities", "bounds", "bound_tests"):
        mine, theirs = getattr(one, name), getattr(two, name)
        assert list(mine) == list(theirs)
        for column in mine:
            assert_frame_equal(mine[column], theirs[column], **explained)
    assert_frame_equal(one.changes, two.changes, **explained)
    assert one.overall == pytest.approx(two.overall, rel=0.0 if explained == {"check_exact": True} else tolerance)
    assert one.overlap == pytest.approx(two.overlap, rel=1e-10)
    assert one.settings == two.settings


def logistic_scores(few):
    return 1 / (1 + np.exp(0.05 * few.X["age"].to_numpy()))


def row_plan(seed=0, n_folds=5, n_repeats=2):
    return RowPlan.of(np.random.SeedSequence(seed), n_folds, n_repeats)
