"""The distribution of a feature where both arms are."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from conftest import four_sd, raw_p_values, runs
from modifind import EffectLikelihood, PropensityModel
from modifind.data.schema import read_features
from modifind.engine.sums import OverlapConditional
from modifind.nuisance.conditional import ConditionalGrid, GaussianSampler


@pytest.fixture(scope="module")
def assigned():
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.normal(size=600), rng.integers(0, 3, size=600), rng.normal(size=600)))
    treatment = (rng.random(600) < 1 / (1 + np.exp(-1.5 * X[:, 0] - (X[:, 1] == 2)))).astype(int)
    table = read_features(X)
    return table, treatment, PropensityModel().fit(table, treatment, seed=np.random.SeedSequence(0))


def grid_of(table, treatment, feature):
    conditional = GaussianSampler().fit(table, treatment, np.random.SeedSequence(1)).conditional(feature)
    return ConditionalGrid.of(conditional, table.n_rows, n_levels=table.n_levels(feature))


@pytest.mark.parametrize("feature", [0, 1, (0, 1)])
def test_scores_along_a_feature_are_those_of_rows_with_other_values(assigned, feature):
    table, _, propensity = assigned
    from modifind.data.features import columns_of, encode

    rows = np.array([3, 77, 410])
    members = [feature] if isinstance(feature, int) else list(feature)
    points = np.array([[0.5, -1.0], [2.0, 0.0], [1.0, 1.0]]).round() if 1 in members else np.array([[0.5, -1.0]] * 3)
    shown = points if isinstance(feature, int) else np.stack((points, points), axis=-1)
    found = propensity.along(rows, columns_of(table, feature), encode(table, feature, np.abs(shown) % 3))
    for k in range(2):
        values = table.values[rows].copy()
        values[:, members] = (np.abs(shown) % 3)[:, k].reshape(3, -1)
        from dataclasses import replace

        moved = replace(table, values=values, reference=table.scaling)
        again = propensity.at(moved, np.zeros(3, dtype=int), propensity.folds[rows])
        assert_allclose(found[:, k], again.scores, rtol=1e-9)


def test_the_tilted_distribution_is_the_same_in_both_arms_and_nothing_changes_in_a_trial(assigned):
    table, treatment, propensity = assigned
    rows = np.arange(table.n_rows)
    plain = grid_of(table, treatment, 0)
    points, weights = OverlapConditional(plain, propensity, 0).at(rows)
    assert_allclose(weights.sum(axis=1), 1.0)
    tilted, own = (points * weights).sum(axis=1), (points * plain.at(rows)[1]).sum(axis=1)
    apart = [part[treatment == 1].mean() - part[treatment == 0].mean() for part in (own, tilted)]
    assert apart[0] > 0.5
    assert abs(apart[1]) < 0.15
    known = PropensityModel(0.5).fit(table, treatment)
    assert_allclose(OverlapConditional(plain, known, 0).at(rows)[1], plain.at(rows)[1])


@pytest.mark.study
def test_a_shape_that_follows_a_confounder_in_both_arms_is_not_found():
    # Assignment and skewness of the outcome both depend on the first feature; the treatment does nothing.
    found = []
    for seed in range(runs(30, 8)):
        rng = np.random.default_rng([seed, 7])
        x = rng.integers(0, 2, size=1500)
        scores = np.where(x == 1, 0.8, 0.25)
        treatment = (rng.random(1500) < scores).astype(int)
        y = np.where(x == 1, rng.exponential(size=1500), rng.normal(size=1500))
        settings = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "explain": False}
        X = np.column_stack((x, rng.normal(size=1500)))
        found.append(raw_p_values(X, y, treatment, propensity=scores, random_state=seed, **settings))
    assert (np.array(found) <= 0.05).mean() <= 0.05 + four_sd(0.05, np.size(found))
