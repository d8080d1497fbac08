"""Bounds of a fit, and the histograms that its diagnostics are drawn from."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from scipy.stats import uniform

from conftest import seed_of
from modifind import EffectLikelihood, ModifierSelector, PropensityModel, SelectionResult
from modifind.cli.app import main
from modifind.data.schema import read_features
from modifind.explain import effect_bounds
from modifind.explain.bounds import explain_bounds
from modifind.explain.local import local_bandwidth
from modifind.explain.rows import ArmRows, GivenFeature
from modifind.nuisance.conditional.contract import pit_shares, uniformity
from streams import fit as streamed_fit

QUICK = {
    "statistic": EffectLikelihood("linear"),
    "sampler": "gaussian",
    "propensity": 0.5,
    "random_state": 0,
    "missing": "category",
}


@pytest.fixture(scope="module")
def trial():
    rng = np.random.default_rng(0)
    n = 600
    X = pd.DataFrame(
        {"dose": rng.normal(size=n), "site": rng.choice(["south", "north"], n), "idle": rng.normal(size=n)}
    )
    arms = np.arange(n) % 2
    y = rng.normal(size=n) * (1 + arms * (X["site"] == "south")) + arms * X["dose"]
    X.loc[rng.choice(n, 150, replace=False), "dose"] = np.nan
    return X, y.to_numpy(), arms


def fitted(trial, **settings):
    X, y, arms = trial
    return ModifierSelector(**(QUICK | settings)).fit(X, y, treatment=arms).result_


@pytest.fixture(scope="module")
def result(trial):
    return fitted(trial)


def test_fit_has_bounds_of_features_with_small_p_values(result):
    assert result.table["p_value"]["idle"] > 0.05 >= result.table["p_value"][["dose", "site"]].max()
    assert list(result.bounds) == list(result.bound_tests) == ["dose", "site"]
    assert result.bounds["site"]["value"].tolist() == result.curve("site")["value"].tolist() == ["north", "south"]
    # Every second point of the curve, and the rows without a value.
    np.testing.assert_array_equal(
        result.bounds["dose"]["value"], result.curve("dose")["value"].iloc[[*range(0, 25, 2), 25]]
    )
    assert np.isnan(result.bounds["dose"]["value"].iloc[-1])
    tests = result.bound_tests["site"].set_index(["quantity", "part"])["p_value"]
    assert tests["var", "midpoint"] == 1 / 201  # the least of 200 draws
    assert tests["corr", "midpoint"] > 0.05


def test_bounds_of_a_fit_are_those_of_its_rows(trial, result):
    X, y, arms = trial
    ends = [f"{name}_{end}" for name in ("var", "sd", "corr", "benefit", "no_harm") for end in ("low", "high")]
    site = effect_bounds(X["site"], y, arms, 0.5, discrete=True)
    np.testing.assert_allclose(result.bounds["site"][ends], site[ends], rtol=1e-12)
    gaps = X["dose"].isna().to_numpy()
    seen = X["dose"][~gaps]
    points, width = result.bounds["dose"]["value"][:-1], local_bandwidth(seen.to_numpy())
    dose = effect_bounds(seen, y[~gaps], arms[~gaps], 0.5, points=points, bandwidth=width)
    np.testing.assert_allclose(result.bounds["dose"][ends][:-1], dose[ends], rtol=1e-10, atol=1e-12)
    without = effect_bounds(np.zeros(gaps.sum()), y[gaps], arms[gaps], 0.5, discrete=True)
    np.testing.assert_allclose(result.bounds["dose"][ends].iloc[-1], without[ends].iloc[0], rtol=1e-12)


def test_explaining_changes_no_p_value(trial, result):
    plain = fitted(trial, explain=False)
    assert plain.bounds == plain.bound_tests == {}
    assert_frame_equal(plain.table, result.table, check_exact=True)
    assert (plain.settings["explain"], result.settings["explain"]) == (False, True)


def test_bounds_survive_a_file_and_do_not_depend_on_processes(trial, result, tmp_path):
    result.to_json(tmp_path / "result.json")
    assert SelectionResult.from_json(tmp_path / "result.json") == result
    assert fitted(trial, n_jobs=2) == result


def test_another_alpha_continues_to_the_bounds_of_a_fresh_run(trial, result, tmp_path):
    smallest, second, _ = np.sort(result.table["p_value"])
    between = float(np.sqrt(smallest * second))
    strict, usual, again = (fitted(trial, alpha=alpha, checkpoint=tmp_path) for alpha in (between, 0.05, between))
    assert list(strict.bounds) == list(again.bounds) == [result.table["p_value"].idxmin()]
    for one, two in ((usual.bounds, result.bounds), (usual.bound_tests, result.bound_tests)):
        assert list(one) == list(two)
        for column in one:
            assert_frame_equal(one[column], two[column], check_exact=True)


def test_columns_of_a_group_have_bounds_each(trial):
    X, y, arms = trial
    groups = {"both": ["site", "idle"]}
    found = ModifierSelector(**QUICK, feature_groups=groups).fit(X, y, treatment=arms).result_
    assert {"site", "idle"} <= set(found.bounds)


def given(table):
    return GivenFeature(table.values[:, 0], table.categories[0])


def test_rows_of_a_cluster_are_drawn_together():
    rng = np.random.default_rng(1)
    n = 400
    x, arms = rng.integers(0, 2, n).astype(float), rng.integers(0, 2, n)
    y = rng.normal(size=n) + arms
    table = read_features(pd.DataFrame({"x": x}), [0])
    fourfold = read_features(pd.DataFrame({"x": np.tile(x, 4)}), [0])
    rows = ArmRows(np.tile(y, 4), np.tile(arms, 4), np.full(4 * n, 0.5))
    single = explain_bounds(given(table), ArmRows(y, arms, np.full(n, 0.5)), seed_of(0)).table
    clustered = explain_bounds(given(fourfold), replace(rows, clusters=np.tile(np.arange(n), 4)), seed_of(0)).table
    repeated = explain_bounds(given(fourfold), rows, seed_of(0)).table
    for name in ("var_low", "var_high", "benefit_low", "benefit_high"):
        np.testing.assert_allclose(clustered[[name, f"{name}_ci_low"]], single[[name, f"{name}_ci_low"]], atol=1e-9)
    wide, narrow = (own["var_high_ci_high"] - own["var_high_ci_low"] for own in (clustered, repeated))
    assert (wide / narrow).between(1.6, 2.5).all()  # four times the rows: half the width


def test_categories_without_rows_in_an_arm_have_no_bounds():
    column = np.repeat(["a", "b"], 40)
    arms = np.where(column == "a", np.tile([0, 1], 40), 0)
    table = read_features(pd.DataFrame({"x": column}))
    found = explain_bounds(given(table), ArmRows(np.arange(80.0), arms, np.full(80, 0.5)), seed_of(0))
    assert found.table["value"].tolist() == ["a", "b"]
    assert found.table["var_low"].isna().tolist() == [False, True]
    assert found.tests["p_value"].isna().all()


def test_command_explains_unless_told_not_to(trial, tmp_path, monkeypatch):
    X, y, arms = trial
    X.assign(y=y, a=arms).drop(columns="dose").to_csv(tmp_path / "trial.csv", index=False)
    quick = ["--learner", "linear", "--sampler", "gaussian", "--propensity", "0.5"]
    for option, columns in (((), ["site"]), (("--no-explain",), [])):
        words = [tmp_path / "trial.csv", "--treatment", "a", "--outcome", "y", *quick, *option]
        words += ["--out", tmp_path / "result.json"]
        monkeypatch.setattr("sys.argv", ["modifind", "select", *map(str, words)])
        with pytest.raises(SystemExit, match="0"):
            main()
        assert list(SelectionResult.from_json(tmp_path / "result.json").bounds) == columns


def test_score_histogram_has_the_weight_of_each_arm(trial):
    X, y, arms = trial
    rng = np.random.default_rng(2)
    scores, weights = rng.uniform(0.2, 0.8, arms.size), rng.exponential(size=arms.size)
    scores[:3] = (0.001, 0.2, 0.999)  # clipped, on an edge, clipped
    settings = QUICK | {"propensity": PropensityModel(scores, clip=(0.01, 0.99)), "explain": False}
    with pytest.warns(UserWarning, match="assignment depended on something that is not among them"):
        found = ModifierSelector(**settings).fit(X, y, treatment=arms, sample_weight=weights).result_.score_histogram
    assert found["low"].tolist() == pytest.approx(np.arange(20) / 20)
    assert found["high"].tolist() == pytest.approx(np.arange(1, 21) / 20)
    for arm, name in ((1, "treated"), (0, "control")):
        mine = arms == arm
        inside = (scores[mine, None] >= found["low"].to_numpy()) & (scores[mine, None] < found["high"].to_numpy())
        np.testing.assert_allclose(found[name], weights[mine] @ inside / weights[mine].sum())


def test_streamed_histograms_are_those_of_the_table():
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(size=(3000, 3)), columns=["a", "b", "c"]).assign(d=rng.integers(0, 2, 3000))
    scores = 1 / (1 + np.exp(-X["a"].to_numpy()))
    arms = (rng.random(3000) < scores).astype(int)
    found = streamed_fit(X, rng.normal(size=3000), arms, propensity=scores, max_train_rows=1000)
    assert found.settings["n_train_rows"] < 3000
    for arm, name in ((1, "treated"), (0, "control")):
        counts = np.histogram(np.clip(scores, 0.01, 0.99)[arms == arm], np.linspace(0, 1, 21))[0]
        np.testing.assert_allclose(found.score_histogram[name], counts / counts.sum(), atol=1e-12)
    tenths = found.pit_histogram
    assert tenths.loc["d"].isna().all()
    np.testing.assert_allclose(tenths.loc[["a", "b", "c"]], 0.1, atol=0.05)


def test_pit_histogram_of_a_fit_shows_a_distribution_of_the_wrong_shape():
    rng = np.random.default_rng(4)
    X = pd.DataFrame({"bell": rng.normal(size=800), "tail": rng.exponential(size=800), "flag": rng.integers(0, 2, 800)})
    with pytest.warns(UserWarning, match="does not fit"):
        found = ModifierSelector(**QUICK).fit(X, rng.normal(size=800), treatment=np.arange(800) % 2).result_
    tenths = found.pit_histogram
    assert list(tenths.index) == list(X.columns)
    np.testing.assert_allclose(tenths.loc[["bell", "tail"]].sum(axis=1), 1.0)
    np.testing.assert_allclose(tenths.loc["bell"], 0.1, atol=0.045)  # four standard deviations of a share
    assert tenths.loc["tail"].iloc[0] < 0.02  # a normal distribution expects values below the least one
    assert tenths.loc["flag"].isna().all()
    assert "pit_histogram" not in found.diagnostics


def test_pit_histogram_spreads_ties_over_their_interval():
    rng = np.random.default_rng(5)
    low = rng.uniform(0, 0.7, 50)
    pit = np.column_stack((low, low + rng.choice([0.0, 0.05, 0.3], 50)))
    weights = rng.exponential(size=50)
    expected = np.zeros(10)
    for (start, stop), weight in zip(pit, weights, strict=True):
        if stop > start:
            expected += weight * np.diff(uniform(start, stop - start).cdf(np.linspace(0, 1, 11)))
        else:
            expected[int(10 * start)] += weight
    np.testing.assert_allclose(pit_shares(pit, weights), expected / weights.sum(), atol=1e-12)
    # The distance from uniform is at least what the tenths show.
    assert (
        uniformity(pit, weights)[0] >= np.abs(np.cumsum(pit_shares(pit, weights)) - np.arange(1, 11) / 10).max() - 1e-9
    )
