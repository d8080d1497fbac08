"""Features that have one value for all rows of a cluster."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from conftest import runs
from modifind import EffectLikelihood, ModifierSelector
from modifind.data.clusters import is_within
from modifind.data.determined import cluster_features, find_determined
from modifind.data.schema import read_features
from modifind.engine.preparation import DETERMINED
from modifind.inference.sums import analytic_test, cluster_terms
from modifind.nuisance.conditional import GaussianSampler
from modifind.nuisance.conditional.special_columns import ClusterConditional, ClusterSampler

QUICK = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "explain": False}


def schools(seed, n_clusters=60, size=8, *, effect=0.0, by_cluster=False):
    """C1 has an effect of its own size, C2 and D are null, and so are X1 and X2."""
    rng = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(n_clusters), size)
    shared = rng.standard_normal((n_clusters, 3))[clusters]
    X = pd.DataFrame({"C1": shared[:, 0], "C2": shared[:, 1]})
    X["D"] = rng.permutation(np.arange(n_clusters) % 3 == 0).astype(int)[clusters]
    for name in ("X1", "X2"):
        X[name] = rng.standard_normal(n_clusters)[clusters] + rng.standard_normal(clusters.size)
    a = rng.permutation(np.arange(n_clusters) % 2)[clusters] if by_cluster else rng.integers(0, 2, clusters.size)
    y = a * (1 + effect * X["C1"]) + 0.7 * shared[:, 2] + rng.standard_normal(clusters.size)
    return X, y.to_numpy(), a, clusters


def fitted(X, y, a, **settings):
    rows = {name: settings.pop(name) for name in ("clusters",) if name in settings}
    return ModifierSelector(**QUICK | settings, random_state=0).fit(X, y, treatment=a, **rows).result_


def test_independent_columns_of_clusters_are_no_copies():
    X, *_ = schools(0)
    assert find_determined(read_features(X)).twins == ()
    # A label of the school says all that these columns say; a copy in other units is still one.
    labelled = X.assign(inch=X["C1"] / 2.54)
    assert find_determined(read_features(labelled)).twins == ((0, 5),)


@pytest.mark.parametrize("told", [True, False])
def test_features_of_clusters_are_known_by_their_values(told):
    X, _, _, clusters = schools(0)
    table = read_features(X.assign(age=np.arange(len(X)) % 47))
    if told:
        found, taken = cluster_features(table, clusters, frozenset())
    else:
        with pytest.warns(
            UserWarning, match=r"C1, C2, D: constant within the same 60 sets of rows.*pass them as clusters="
        ):
            found, taken = cluster_features(table, None, frozenset())
    assert taken.max() == 59
    assert sorted(found) == [0, 1, 2]
    for codes in found.values():
        assert is_within(codes.astype(float), clusters)
        assert codes.max() == 59


def test_one_column_of_repeated_values_tells_of_no_clusters():
    X, *_ = schools(0)
    assert cluster_features(read_features(X.drop(columns="C2")), None, frozenset()) == ({}, None)


def test_rows_of_a_cluster_share_distribution_and_draw():
    X, _, a, clusters = schools(1)
    table = read_features(X)
    sampler = ClusterSampler(GaussianSampler(), cluster_features(table, clusters, frozenset())[0], DETERMINED)
    sampler.fit(table, a, np.random.SeedSequence(0))
    for feature in (0, 2):
        rule = sampler.rule(feature)
        conditional = rule.fitted
        assert isinstance(conditional, ClusterConditional)
        assert rule.calibration.n_clusters == 60
        drawn = conditional.draw(np.random.default_rng(0), 5)
        assert all(is_within(column, clusters) for column in drawn)
        points, weights = conditional.grid(slice(None))
        assert all(is_within(column, clusters) for column in (*points.T, *weights.T))
        np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    assert not isinstance(sampler.conditional(3), ClusterConditional)


def test_means_of_clusters_beside_their_rows_are_tested_by_rows():
    X, y, a, clusters = schools(5)
    X["mean of X1"] = X["X1"].groupby(clusters).transform("mean")
    found = fitted(X, y, a, clusters=clusters)
    assert found.diagnostics.loc["mean of X1", "n_clusters"] == 0
    assert found.table.loc["mean of X1", "p_value"] < 1
    assert found.diagnostics.loc["C1", "n_clusters"] == 60


def test_sums_of_clusters_have_the_distribution_of_shared_draws():
    rng = np.random.default_rng(2)
    clusters = np.repeat(np.arange(40), 5)
    slopes, points = rng.standard_normal(200), np.linspace(-1, 1, 21)
    values, weights = slopes[:, None] * points, np.full((200, 21), 1 / 21)
    _, sums, shares = cluster_terms(np.zeros(200), values, weights, clusters)
    drawn = rng.choice(points, size=(4000, 40))
    totals = (drawn[:, clusters] * slopes).sum(axis=1)
    expected = (np.einsum("ij,ij,ij->", sums, sums, shares)) ** 0.5
    assert totals.std() == pytest.approx(expected, rel=0.05)  # its relative standard error is 0.011
    observed = np.bincount(clusters, slopes * drawn[0][clusters])
    found = analytic_test(observed, sums, shares, clusters=np.arange(40))
    assert found.statistic == pytest.approx(totals[0] / max(expected, np.sqrt(40 * observed.var(ddof=1))), rel=0.01)


@pytest.mark.parametrize("by_cluster", [False, True])
def test_modifier_of_clusters_is_found(by_cluster):
    X, y, a, clusters = schools(3, effect=1.0, by_cluster=by_cluster)
    found = fitted(X, y, a, clusters=clusters).table
    assert found.loc["C1", "selected"]
    assert not found.loc[["C2", "D", "X1", "X2"], "selected"].any()


def test_modifier_of_clusters_is_found_where_nobody_told_of_them():
    X, y, a, _ = schools(4, effect=1.0)
    with pytest.warns(UserWarning, match="these rows belong together"):
        found = fitted(X, y, a)
    assert found.table.loc["C1", "selected"]
    assert found.diagnostics.loc["C1", "n_clusters"] == 60


@pytest.mark.study
@pytest.mark.filterwarnings("ignore")
def test_null_features_of_clusters_keep_the_level():
    p, passed = [], []
    for seed in range(runs(24, 6)):
        X, y, a, clusters = schools(100 + seed, n_clusters=50, size=6, by_cluster=True)
        found = fitted(X, y, a, clusters=clusters)
        p.append(found.table.loc[["C1", "C2", "D"], "p_value"])
        passed.append(found.ok)
    # More small ones have a chance of at most 0.003 at a true share of 0.05: of 72 p-values of all runs, ten or more.
    assert (np.array(p) <= 0.05).sum() <= binom.isf(0.003, np.size(p), 0.05)
    assert np.mean(passed) >= 0.9  # whole clusters in one arm leave gaps by chance, which is no lack of overlap


def nested(seed=0):
    """Sixty villages in fifteen districts: two columns of each, and one of rows."""
    rng = np.random.default_rng(seed)
    village = np.repeat(np.arange(60), 10)
    columns = {name: rng.standard_normal(60)[village] for name in ("vsize", "vpoor")}
    columns |= {name: rng.standard_normal(15)[village // 4] for name in ("droad", "drain")}
    return pd.DataFrame(columns | {"x": rng.standard_normal(600)}), village


@pytest.mark.filterwarnings("ignore:.*constant within the same")
@pytest.mark.parametrize(
    "order", [["vsize", "vpoor", "droad", "drain", "x"], ["droad", "drain", "vsize", "vpoor", "x"]]
)
@pytest.mark.parametrize("told", [True, False])
def test_features_go_with_the_largest_sets_whatever_their_order(order, told):
    X, village = nested()
    found, taken = cluster_features(read_features(X[order]), village if told else None, frozenset())
    assert taken.max() == 14
    sets = {order[m]: codes.max() + 1 for m, codes in found.items()}
    assert sets == {"vsize": 60, "vpoor": 60, "droad": 15, "drain": 15}


def test_sets_are_seen_although_some_values_are_alike():
    rng = np.random.default_rng(1)
    school = np.repeat(np.arange(30), 12)
    size, girls = rng.permutation(np.arange(30)), rng.permutation(np.arange(30)) * 0.02
    size[3], girls[5], girls[6] = size[4], girls[7], girls[8]
    X = pd.DataFrame({"size": size[school], "girls": girls[school], "age": rng.integers(6, 70, school.size)})
    with pytest.warns(UserWarning, match="size, girls: constant within the same 30 sets"):
        found, taken = cluster_features(read_features(X), None, frozenset())
    assert (sorted(found), taken.max()) == ([0, 1], 29)
