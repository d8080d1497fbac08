"""The whole test where features outnumber rows."""

import warnings

import numpy as np
import pandas as pd
import pytest

from conftest import runs
from modifind import EffectLikelihood, ModifierSelector
from modifind.result.selection_result import SelectionResult

LINEAR = EffectLikelihood("linear")
TRIAL = {"propensity": 0.5, "explain": False}


def sparse(seed, n, d):
    rng = np.random.default_rng(seed)
    x, a = rng.normal(size=(n, d)), rng.integers(0, 2, n)
    for j in range(1, d):
        x[:, j] = 0.4 * x[:, j - 1] + np.sqrt(1 - 0.16) * x[:, j]
    X = pd.DataFrame(x, columns=[f"x{j}" for j in range(d)])
    X["x60"] = (x[:, 60] > 0).astype(int)
    y = 2 * x[:, 100] + a * (2 * x[:, 0] - 2 * x[:, 30] + 3 * X["x60"].to_numpy()) + rng.normal(size=n)
    return X, a, y


@pytest.fixture(scope="module")
def found():
    X, a, y = sparse(0, n=runs(250, 150), d=runs(300, 180))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        selector = ModifierSelector(LINEAR, random_state=0, **TRIAL).fit(X, y, treatment=a)
    return selector.result_, [str(warning.message) for warning in caught]


def test_modifiers_are_found_among_many(found):
    result, _ = found
    assert set(result.selected) == {"x0", "x30", "x60"}


def test_features_that_no_model_looks_at_have_p_value_one(found):
    result, messages = found
    unseen = result.diagnostics["sampler"] == "none"
    assert len(unseen) / 3 < unseen.sum() < len(unseen) * 0.93
    table = result.table[unseen]
    assert (table["p_value"] == 1.0).all()
    assert not table["selected"].any()
    assert (table[["statistic", "likelihood_gain", "gain_low", "gain_high"]] == 0.0).all(axis=None)
    assert result.diagnostics.loc[unseen, "pit_p_value"].isna().all()
    assert not any("function of the other features" in message for message in messages)


def test_result_of_many_features_is_written_and_read(found, tmp_path):
    result, _ = found
    result.to_json(tmp_path / "result.json")
    assert SelectionResult.from_json(tmp_path / "result.json") == result
    result.report(tmp_path / "report.html")
    assert "x30" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.study
def test_false_discoveries_are_few():
    proportions, share = [], []
    for seed in range(1, runs(9, 6)):
        X, a, y = sparse(seed, n=runs(200, 120), d=runs(150, 105))
        table = (
            ModifierSelector(LINEAR, sampler="gaussian", random_state=seed, **TRIAL)
            .fit(X, y, treatment=a)
            .result_.table
        )
        null = table.drop(index=["x0", "x30", "x60", "x100"])
        proportions.append(null["selected"].sum() / max(table["selected"].sum(), 1))
        share.append((null["p_value"] <= 0.05).mean())
    assert np.mean(proportions) <= 0.15
    assert np.mean(share) <= 0.06


@pytest.mark.study
def test_nothing_is_found_where_there_is_nothing():
    rng = np.random.default_rng(5)
    n, d = runs(200, 100), runs(250, 130)
    X, a, y = rng.normal(size=(n, d)), np.arange(n) % 2, rng.normal(size=n)
    table = ModifierSelector(LINEAR, sampler="gaussian", random_state=0, **TRIAL).fit(X, y, treatment=a).result_.table
    assert not table["selected"].any()


def test_binary_outcome_of_many_features():
    rng = np.random.default_rng(6)
    X, a = rng.normal(size=(400, 150)), rng.integers(0, 2, 400)
    y = (2.5 * (2 * a - 1) * X[:, 3] + rng.logistic(size=400) > 0).astype(int)
    result = ModifierSelector(LINEAR, sampler="gaussian", random_state=0, **TRIAL).fit(X, y, treatment=a).result_
    assert "x3" in result.selected
    assert len(result.selected) <= 2


def test_result_does_not_depend_on_the_number_of_workers():
    X, a, y = sparse(7, n=60, d=105)
    one, two = (
        ModifierSelector(LINEAR, sampler="gaussian", random_state=0, n_jobs=jobs, **TRIAL)
        .fit(X, y, treatment=a)
        .result_
        for jobs in (1, 2)
    )
    pd.testing.assert_frame_equal(one.table, two.table)
