"""Missing values, weights, clusters, strata and feature groups at once."""

import warnings

import numpy as np
import pandas as pd
import pytest

from modifind import EffectLikelihood, ModifierSelector
from modifind.data.determined import find_determined
from modifind.data.schema import read_features
from modifind.engine.job import Job
from modifind.engine.reading import Given
from modifind.nuisance.conditional import BoostingSampler

LINEAR = EffectLikelihood(learner="linear")


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.standard_normal((n, 3)), columns=["X1", "X2", "X3"])
    X["level"] = rng.choice(list("uvw"), n)
    a = rng.integers(0, 2, n)
    return X, np.exp(0.4 * a * X["X1"].to_numpy() + 0.3 * rng.standard_normal(n)), a, rng


def fitted(X, y, a, *, rows=None, **given):
    settings = {"statistic": LINEAR, "sampler": "gaussian", "random_state": 0, "propensity": 0.5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ModifierSelector(**settings | {"explain": False} | given).fit(X, y, treatment=a, **(rows or {})).result_


@pytest.mark.parametrize("given", [(), ("clusters",), ("strata",), ("clusters", "strata")])
def test_rows_that_do_not_count_leave_no_trace(given):
    X, y, a, rng = table()
    X.loc[rng.random(len(X)) < 0.1, "X2"] = np.nan
    labels = {"clusters": rng.integers(0, 40, len(X)), "strata": rng.choice(["north", "south"], len(X))}
    rows = {"sample_weight": rng.uniform(0.5, 2, len(X)), **{name: labels[name] for name in given}}
    score = 0.5 + 0.1 * rng.random(len(X))
    settings = {"missing": "drop", "outcome_transform": "log", "feature_groups": {"both": ["X2", "X3"]}}
    plain = fitted(X, y, a, rows=rows, propensity=score, **settings)
    bad = pd.DataFrame({"X1": 1e9, "X2": -1e9, "X3": [0.0, np.nan] * 5, "level": "nowhere"})
    more = {"sample_weight": 0.0, "clusters": -1, "strata": "west"}
    found = fitted(
        pd.concat([bad, X], ignore_index=True),
        np.concatenate((np.full(10, -1.0), y)),
        np.concatenate((np.zeros(10, dtype=int), a)),
        rows={name: np.concatenate((np.full(10, more[name]), own)) for name, own in rows.items()},
        propensity=np.concatenate((np.full(10, np.nan), score)),
        **settings,
    )
    pd.testing.assert_frame_equal(found.table, plain.table)
    assert found.settings["n_rows_dropped"] == plain.settings["n_rows_dropped"] == X["X2"].isna().sum()


def test_a_feature_may_have_the_name_of_the_outcome():
    X, y, a, _ = table()
    X = X.rename(columns={"X1": "y", "X2": "treatment"})
    X.iloc[:7, 0], X.iloc[5:9, 1] = np.nan, np.nan
    job = Job.of(ModifierSelector("wcmmd", missing="drop", random_state=0).get_params(deep=False))
    with pytest.warns(UserWarning, match=r"9 of 300 rows .*: y \(7\), treatment \(4\)"):
        assert job.checked(Given(X, y, a))[0].block.table.n_rows == 291


@pytest.mark.parametrize("sampler", ["gaussian", "boosting", "auto"])
def test_values_of_one_cluster_alone_do_not_stop_the_others(sampler):
    X, y, a, rng = table()
    clusters = rng.integers(0, 40, len(X))
    clusters[:30] = 99
    X.loc[clusters != 99, "X2"] = np.nan
    found = fitted(X, y, a, rows={"clusters": clusters}, sampler=sampler, missing="category").table
    assert found.loc["X1", "p_value"] < 1e-3
    assert found["statistic"].notna().all()


def test_rules_score_rows_by_trees_that_have_not_seen_them():
    X, _, a, rng = table(400)
    X["X2"] = rng.integers(0, 2, 400) + 0.1 * rng.standard_normal(400)
    parts = rng.choice([0, 1, 3], 400)  # no row of the third fold has a value
    sampler = BoostingSampler()
    sampler.assign_folds(parts)
    sampler.fit(read_features(X), a, np.random.SeedSequence(0))
    own = sampler.conditional(1)
    assert np.allclose(sampler.rule(1).conditional(read_features(X), a, parts).shift, own.shift)


@pytest.mark.parametrize("usual", [np.nan, 0.0])
def test_values_in_the_same_few_rows_are_no_copies(usual):
    rng = np.random.default_rng(0)
    few = np.arange(1200) % 25 == 0
    first, second = (np.where(few, rng.uniform(1, 2, 1200), usual) for _ in range(2))
    others = {"a": first, "c": rng.standard_normal(1200)}
    assert find_determined(read_features({**others, "b": second}, missing="category")).twins == ()
    assert find_determined(read_features({**others, "b": np.log(first + 1)}, missing="category")).twins == ((0, 2),)
