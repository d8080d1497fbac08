"""Columns that are adjusted for and not tested."""

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from typer.testing import CliRunner

from modifind import EffectLikelihood, ModifierSelector, SelectionResult
from modifind.cli.app import app
from modifind.engine.dry_run import describe
from modifind.report.content import methods

QUICK = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "random_state": 0, "explain": False}
N = 1100  # so many that no feature's p-value depends on those of others


def fit(table, adjust_for=None, *, rows=None, **settings):
    X, y, treatment = table
    selector = ModifierSelector(**QUICK | settings)
    return selector.fit(X, y, treatment=treatment, adjust_for=adjust_for, **rows or {})


@pytest.fixture(scope="module")
def table():
    """The treatment follows `sick`, which raises the outcome; it is worth 1, and more with `age`."""
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(size=(N, 3)), columns=["age", "dose", "sick"])
    X["site"] = rng.choice(["north", "south", "east"], N)
    treatment = (rng.random(N) < 1 / (1 + np.exp(-1.2 * X["sick"]))).astype(int)
    y = pd.Series(2 * X["sick"] + treatment * (1 + X["age"]) + rng.normal(size=N), name="change")
    return X, y, pd.Series(treatment, name="arm")


@pytest.fixture(scope="module")
def everything(table):
    return fit(table).result_


@pytest.mark.parametrize("adjust_for", [["sick", "site"], [2, -1], np.array([False, False, True, True])], ids=str)
def test_p_values_of_tested_features_are_those_of_a_fit_that_tests_all_columns(table, everything, adjust_for, tmp_path):
    selector = fit(table, adjust_for)
    found = selector.result_
    assert found.table.index.tolist() == ["age", "dose"]
    assert found.table["p_value"].tolist() == everything.table["p_value"][:2].tolist()
    assert found.table["importance"].tolist() == everything.table["importance"][:2].tolist()
    assert found.settings["adjust_for"] == ["sick", "site"]
    assert selector.feature_names_in_.tolist() == list(table[0].columns)
    assert selector.get_support().tolist() == [True, False, False, False]
    assert "not tested: sick, site." in methods(found)
    found.to_json(tmp_path / "result.json")
    assert SelectionResult.from_json(tmp_path / "result.json") == found


def test_p_values_are_adjusted_over_tested_features_only(table):
    found = fit(table, ["sick", "site"], adjust="bonferroni").result_.table
    np.testing.assert_allclose(found["p_adjusted"], np.minimum(2 * found["p_value"], 1))


def test_effect_is_that_of_the_adjusted_arms(table):
    X, y, treatment = table
    adjusted = fit(table, ["sick", "site", "dose"], explain=True).result_.overall["mean_effect"]
    alone = fit((X[["age"]], y, treatment), explain=True).result_.overall["mean_effect"]
    assert abs(adjusted - 1) < 0.25  # a standard error of about 0.08
    assert alone > 2


def test_rows_and_groups_go_with_adjustment(table):
    X, y, treatment = table
    rng = np.random.default_rng(0)
    gaps = X.assign(sick=X["sick"].where(rng.random(N) > 0.1)), y, treatment
    rows = {"sample_weight": rng.uniform(0.5, 2, N), "clusters": np.arange(N) % 60}
    groups = {"feature_groups": {"both": ["age", "dose"]}, "missing": "category"}
    assert fit(gaps, ["sick", "site"], rows=rows, **groups).result_.table.index.tolist() == ["both"]
    found = fit((X[["age", "dose", "sick"]], y, treatment), ["sick"], rows={"strata": X["site"]}).result_
    assert found.table.index.tolist() == ["age", "dose"]
    assert found.settings["null_hypothesis"].endswith("other features and what is adjusted for and the stratum")


def test_streamed_tables_are_adjusted_alike(table):
    some = fit(table, ["sick", "age"], max_train_rows=600).result_
    every = fit(table, max_train_rows=600).result_
    columns = ["p_value", "importance"]
    assert_frame_equal(some.table[columns], every.table.loc[["dose", "site"], columns])
    assert some.settings["adjust_for"] == ["age", "sick"]


def test_wcmmd_conditions_on_what_is_adjusted_for(table):
    settings = {"statistic": "wcmmd", "n_resamples": 199}
    some = fit(table, ["sick", "site"], **settings).result_.table
    assert some["p_value"].tolist() == fit(table, **settings).result_.table["p_value"][:2].tolist()


def test_columns_adjusted_for_are_checked_too(table):
    X, y, treatment = table
    checks = fit((X.assign(later=y + 0.01 * X["dose"]), y, treatment), ["later", "sick"]).result_.checks
    failed = checks[~checks["passed"] & (checks["name"] == "near_outcome")]
    assert failed["feature"].tolist() == ["later"]


def test_placebo_runs_and_checkpoints_know_the_adjustment(table, tmp_path):
    some = [part[:400] for part in table]
    runs = ModifierSelector(**QUICK).placebo(*some, n=1, adjust_for=["sick", "site"]).table
    assert runs["feature"].tolist() == ["age", "dose"]
    found = fit(some, ["sick", "site"], checkpoint=tmp_path).result_
    assert fit(some, ["sick", "site"], checkpoint=tmp_path).result_ == found
    with pytest.raises(ValueError, match="adjust_for"):
        fit(some, ["sick"], checkpoint=tmp_path)


def test_dry_run_shows_what_is_adjusted_for(table):
    lines = dict(describe(ModifierSelector(**QUICK).get_params(), *table, adjust_for=["sick", "site"]))
    assert lines["adjusted for"] == "2, not tested: sick, site"
    assert lines["features, numbers"] == "2: age, dose"
    assert "features, categories" not in lines


@pytest.mark.parametrize(
    ("adjust_for", "settings", "message"),
    [
        ("sick", {}, "adjust_for must be a list of columns, not 'sick'"),
        (["weight"], {}, "adjust_for names 'weight', which is not a column of X"),
        (["age", "dose", "sick", "site"], {}, "adjust_for names all 4 columns of X"),
        (["age"], {"feature_groups": {"both": ["age", "dose"]}}, "'both' names 'age', which adjust_for names too"),
    ],
)
def test_adjustment_that_cannot_be_is_refused(table, adjust_for, settings, message):
    with pytest.raises(ValueError, match=message):
        fit(table, adjust_for, **settings)


@pytest.fixture(scope="module")
def file(table, tmp_path_factory):
    X, y, treatment = table
    path = tmp_path_factory.mktemp("adjust") / "table.csv"
    rng = np.random.default_rng(1)
    more = {"patient_id": rng.permutation(N), "visit": pd.date_range("2020-01-01", periods=N).strftime("%d.%m.%Y")}
    more["note"] = [f"seen by {k % 997}" for k in range(N)]
    X.assign(**more, change=y, arm=treatment).to_csv(path, index=False)
    return path


def run(path, *options):
    quick = ("--learner", "linear", "--sampler", "gaussian", "--no-explain")
    command = ["select", str(path), "--treatment", "arm", "--outcome", "change", *quick, *options]
    return CliRunner().invoke(app, command, catch_exceptions=True)


def test_command_line_adjusts_for_columns_that_are_not_tested(file, everything, tmp_path):
    done = run(file, "--features", "dose,age", "--out", str(tmp_path / "r.json"))
    assert done.exit_code == 0, done.output
    assert "adjusted for: sick, site; --exclude leaves a column out" in done.stdout
    note = "not adjusted for: patient_id (identifier), visit (dates), note (text with 997 distinct values in 1100 rows)"
    assert note in done.stderr
    found = SelectionResult.from_json(tmp_path / "r.json")
    assert found.settings["adjust_for"] == ["sick", "site"]
    np.testing.assert_allclose(found.table["p_value"], everything.table["p_value"][:2], rtol=1e-6)


def test_command_line_leaves_out_what_is_excluded(file, tmp_path):
    out = str(tmp_path / "r.json")
    done = run(file, "--adjust-for", "sick", "--exclude", "patient_id,visit,note,site", "--out", out)
    assert done.exit_code == 0, done.output
    assert "adjusted for: sick;" in done.stdout
    assert SelectionResult.from_json(out).table.index.tolist() == ["age", "dose"]
    done = run(file, "--features", "age", "--exclude", "patient_id,visit,note,site,sick,dose", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "adjusted for" not in done.output


@pytest.mark.parametrize("how", [("--dry-run",), ("--stream", "--train-rows", "500")], ids=["dry run", "streamed"])
def test_columns_are_adjusted_for_in_every_way_of_reading(file, how):
    done = run(file, "--features", "age", *how)
    assert done.exit_code == 0, done.output
    assert "adjusted for" in done.stdout
    assert "dose, sick, site" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--features", "age", "--adjust-for", "age"), "--features and --adjust-for both name 'age'"),
        (("--adjust-for", "arm"), "--treatment and --adjust-for both name 'arm'"),
        (("--adjust-for", "weight"), "--adjust-for: no column 'weight'"),
    ],
)
def test_command_line_refuses_contradictions(file, options, message):
    done = run(file, *options)
    assert message in str(done.exception)
