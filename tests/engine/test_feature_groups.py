"""Groups of columns that are tested as one feature."""

import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from conftest import OracleSampler, ar_covariance, confounded_table, four_sd, quiet_fit, runs, seed_of
from modifind import EffectLikelihood, ModifierSelector
from modifind.charts import CurveDisplay, ImportanceDisplay
from modifind.cli.app import main
from modifind.data.features import arrange, part_of, read_feature_groups
from modifind.data.schema import read_features
from modifind.engine.preparation import DETERMINED
from modifind.nuisance.conditional import BoostingSampler, GaussianSampler, MarginalSampler
from modifind.nuisance.conditional.joint import N_POINTS, NearestRow, joint_rule, set_variance
from modifind.result.selection_result import SelectionResult

QUICK = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "random_state": 0, "explain": False}
ROWS = 400
GROUPS = {"blood pressure": ["dbp", "sbp"], "place": ["site"], "habits": ["smoker", "visits"]}


@pytest.fixture(scope="module")
def table():
    """Two readings of one pressure (correlation 0.98) that modify the effect together, and other columns."""
    rng = np.random.default_rng(0)
    pressure = rng.normal(size=ROWS)
    frame = pd.DataFrame({"age": rng.normal(size=ROWS), "sbp": pressure, "site": rng.choice(["north", "south"], ROWS)})
    frame["dbp"] = 0.98 * pressure + np.sqrt(1 - 0.98**2) * rng.normal(size=ROWS)
    frame["smoker"] = rng.random(ROWS) < 0.4
    frame["visits"] = rng.poisson(3, ROWS) + pressure / 2
    treatment = rng.integers(0, 2, ROWS)
    y = 0.8 * treatment * (frame["sbp"] + frame["dbp"]).to_numpy() / 2 + rng.normal(size=ROWS)
    return frame, y, treatment


@pytest.fixture(scope="module")
def fitted(table):
    return quiet_fit(*table, feature_groups=GROUPS, **QUICK)


def p_values(frame, y, treatment, groups, **settings):
    return quiet_fit(frame, y, treatment, feature_groups=groups, **(QUICK | settings)).result_.table["p_value"]


def points_of(frame, members, sampler=None, seed=0):
    """The joint distribution of the first columns of a table, and its points for all rows."""
    table = read_features(frame)
    treatment = np.random.default_rng(seed).integers(0, 2, table.n_rows)
    conditional = joint_rule(sampler or GaussianSampler(), table, treatment, members, DETERMINED, seed_of(seed)).fitted
    return conditional, (conditional.at(np.arange(table.n_rows))[0] if conditional.rule.steps else None)


def test_a_pair_that_hides_each_other_is_found_as_a_group(table, fitted):
    alone = p_values(*table, None)
    # Single tests cannot tell the two apart; together they explain the effect.
    assert alone[["sbp", "dbp"]].min() > 0.05
    assert fitted.result_.table.loc["blood pressure", "p_value"] < 1e-4
    assert fitted.result_.selected == ["blood pressure"]


def test_one_row_per_group_in_the_place_of_its_first_column(fitted):
    found = fitted.result_.table
    assert found.index.tolist() == ["age", "blood pressure", "place", "habits"]
    assert found["kind"].tolist() == ["continuous", "group", "group", "group"]
    # Benjamini-Hochberg over four rows: the smallest p-value times four.
    assert found["p_adjusted"].min() == pytest.approx(4 * found["p_value"].min())
    assert fitted.result_.settings["feature_groups"]["blood pressure"] == ["sbp", "dbp"]
    assert "group" in fitted.result_.settings["null_hypothesis"]


def test_a_selected_group_keeps_all_its_columns(table, fitted):
    frame = table[0]
    assert fitted.feature_names_in_.tolist() == list(frame.columns)
    assert fitted.get_support().tolist() == [False, True, False, True, False, False]
    assert fitted.get_feature_names_out().tolist() == ["sbp", "dbp"]
    pd.testing.assert_frame_equal(fitted.transform(frame), frame[["sbp", "dbp"]])


def test_importance_is_the_largest_of_the_columns(table, fitted):
    alone = quiet_fit(*table, **QUICK).result_.table["importance"]
    groups = fitted.result_.table["importance"]
    assert groups["blood pressure"] == pytest.approx(alone[["sbp", "dbp"]].max(), rel=1e-9)
    assert groups["habits"] == pytest.approx(alone[["smoker", "visits"]].max(), rel=1e-9)


def test_curves_are_those_of_the_columns(fitted):
    result = fitted.result_
    stacked = result.curve("blood pressure")
    assert stacked.columns[0] == "column"
    assert stacked["column"].unique().tolist() == ["sbp", "dbp"]
    own = stacked[stacked["column"] == "dbp"].drop(columns="column").reset_index(drop=True)
    pd.testing.assert_frame_equal(own, result.curve("dbp"), check_dtype=False)
    assert result.curve("habits")["column"].tolist().count("smoker") == 2
    with pytest.raises(ValueError, match="no feature 'nobody'"):
        result.curve("nobody")


def test_results_of_groups_are_written_and_read(fitted, tmp_path):
    result = fitted.result_
    result.to_json(tmp_path / "result.json")
    again = SelectionResult.from_json(tmp_path / "result.json")
    assert again == result
    pd.testing.assert_frame_equal(again.curve("blood pressure"), result.curve("blood pressure"))
    result.to_csv(tmp_path / "result.csv")
    assert pd.read_csv(tmp_path / "result.csv")["feature"].tolist() == result.table.index.tolist()


def test_plots_and_report_show_groups(fitted, tmp_path):
    result = fitted.result_
    assert "blood pressure" in ImportanceDisplay.from_result(result).plot().names
    assert CurveDisplay.from_result(result, "smoker").discrete
    assert not CurveDisplay.from_result(result, "sbp").discrete
    assert CurveDisplay.from_result(result, "place").discrete
    with pytest.raises(ValueError, match="is a group; draw the curves of its columns: sbp, dbp"):
        CurveDisplay.from_result(result, "blood pressure")
    result.report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "blood pressure: sbp" in text
    assert "blood pressure: dbp" in text
    plt.close("all")


def test_results_are_equal_sequential_and_parallel(table, fitted):
    assert quiet_fit(*table, feature_groups=GROUPS, n_jobs=2, **QUICK).result_ == fitted.result_


def test_a_group_of_one_column_is_that_column(table):
    frame, y, treatment = table
    groups = {"years": ["age"], "site": ["site"]}
    named = quiet_fit(frame, y, treatment, feature_groups=groups, **QUICK).result_
    alone = quiet_fit(frame, y, treatment, **QUICK).result_
    assert named.table["kind"][["years", "site"]].tolist() == ["group", "group"]
    np.testing.assert_array_equal(named.table["p_value"], alone.table["p_value"])
    pd.testing.assert_frame_equal(named.curve("age"), alone.curve("age"))
    pd.testing.assert_frame_equal(named.curve("site"), alone.curve("site"))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([["sbp", "dbp"]], "must be a dictionary .* not list"),
        ({"bp": ["sbp", "pulse"]}, "'bp' names 'pulse', which X does not have; columns: age, sbp"),
        ({"bp": ["sbp", "dbp"], "other": ["age", "sbp"]}, "'sbp' is in 'bp' and in 'other'"),
        ({"bp": ["sbp", "sbp"]}, "'sbp' is twice in 'bp'"),
        ({"bp": []}, "'bp' has no columns"),
        ({"age": ["sbp", "dbp"]}, "'age' is also the name of a column"),
        ({"sbp": ["sbp", "dbp"]}, "'sbp' is also the name of a column"),
        ({"bp": "sbp"}, "must be a list of names, not 'sbp'"),
        ({"1": ["sbp"], 1: ["dbp"]}, "two groups called '1'"),
    ],
)
def test_groups_that_make_no_sense_are_refused(table, groups, message):
    with pytest.raises(ValueError, match=message):
        quiet_fit(*table, feature_groups=groups, **QUICK)


def test_what_cannot_test_groups_refuses_them(table):
    frame, y, treatment = table
    groups = {"bp": ["sbp", "dbp"]}
    with pytest.raises(ValueError, match="'wcmmd' looks at one column at a time"):
        ModifierSelector("wcmmd", feature_groups=groups).fit(frame, y, treatment)
    with pytest.raises(ValueError, match=r"OracleSampler does not say that it learns .* which feature_groups need"):
        ModifierSelector(feature_groups=groups, sampler=OracleSampler()).fit(frame[["sbp", "dbp"]], y, treatment)


def test_no_groups_change_nothing(table):
    plain = quiet_fit(*table, **QUICK).result_.to_dict()
    empty = quiet_fit(*table, feature_groups={}, **QUICK).result_.to_dict()
    assert plain["settings"].pop("feature_groups") is None
    empty["settings"].pop("feature_groups")
    assert empty == plain


def test_arranged_tables_keep_columns_and_scaling():
    frame = pd.DataFrame({"a": np.arange(30.0), "b": ["u", "v"] * 15, "c": np.arange(30.0) ** 2})
    table = read_features(frame)
    arranged, units = arrange(table, read_feature_groups({"ends": ["c", "a"]}, table.names))
    assert arranged.names == ("a", "c", "b")
    assert [unit.name for unit in units] == ["ends", "b"]
    np.testing.assert_array_equal(arranged.values, table.values[:, [0, 2, 1]])
    half = part_of(table, [2])
    np.testing.assert_array_equal(half.design, table.design[:, [2]])


# The joint distribution.


def test_points_have_the_distribution_of_a_normal_table():
    """Given X3 and the arm, (X1, X2) of an AR(0.5) table is normal with a known mean and covariance."""
    rng = np.random.default_rng(1)
    X, treatment = confounded_table(rng, 3000, 3)
    table = read_features(X)
    conditional = joint_rule(GaussianSampler(), table, treatment, (0, 1), DETERMINED, seed_of(0)).fitted
    points, weights = conditional.at(np.arange(3000))
    covariance = ar_covariance(3, 0.5)
    slopes = covariance[:2, 2] / covariance[2, 2]
    centre = np.where(treatment == 1, 0.2, -0.2)
    mean = centre[:, None] + np.outer(X[:, 2] - centre, slopes)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    # Estimated lines have standard errors of about 0.02.
    assert np.abs(points.mean(axis=1) - mean).mean() < 0.06
    within = (points - mean[:, None]).reshape(-1, 2)
    np.testing.assert_allclose(np.cov(within.T), covariance[:2, :2] - np.outer(slopes, slopes), atol=0.05)


def test_points_of_a_row_do_not_depend_on_the_rows_asked_for():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)), columns=["a", "b", "c"])
    frame["d"] = frame["a"] + 0.5 * np.random.default_rng(1).exponential(size=200)
    conditional, points = points_of(frame, (0, 1, 3), BoostingSampler())
    rows = np.array([150, 3, 77])
    np.testing.assert_array_equal(conditional.at(rows)[0], points[rows])


def test_the_variance_of_the_points_is_what_the_test_misses():
    """Over many draws of the points, 2 Var(m) is the mean of `set_variance`, also for values tied to each other."""
    rng = np.random.default_rng(0)
    spread = (np.arange(32) / 32)[:, None]
    shift = rng.random((20_000, 2))
    tied = (spread.T + shift[:, :, None]) % 1.0
    for values in (tied**2, rng.random((20_000, 2, 32)), np.repeat(rng.random((20_000, 2, 1)), 32, axis=2)):
        values = values.reshape(20_000, 64)
        expected = 2 * values.mean(axis=1).var() * 20_000
        # A mean of 20,000 squares with relative standard deviation below 1.5: four standard errors.
        assert set_variance(values) == pytest.approx(expected, rel=0.06)


def test_a_square_follows_its_column_and_a_copy_its_original():
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    # The square comes first: what is a function of what does not depend on the order.
    frame = pd.DataFrame({"square": x**2, "x": x, "inches": x / 2.54, "other": rng.normal(size=500)})
    conditional, points = points_of(frame, (0, 1, 2))
    assert [step.feature for step in conditional.rule.steps] == [1]
    assert np.corrcoef(points[..., 0].ravel(), points[..., 1].ravel() ** 2)[0, 1] > 0.995
    assert np.corrcoef(points[..., 2].ravel(), points[..., 1].ravel())[0, 1] > 0.999


def test_the_nearest_other_row_is_another_row_in_the_same_place_where_there_is_one():
    frame = pd.DataFrame({"kind": [0, 1, 0, 1, 1, 2] * 5, "x": [0.1, 0.5, 0.1, 0.5, 0.9, 0.2] * 5})
    frame.loc[29] = [2, 7.0]
    frame["x"] += np.arange(30) // 15  # two copies of every place but the last, some three or more
    table = read_features(frame, ["kind"])
    nearest = NearestRow.of(table, [0, 1])
    other = nearest.other_rows()
    assert (other != np.arange(30)).all()
    np.testing.assert_array_equal(table.values[other[:29]], table.values[:29])
    assert table.values[other[29], 0] == 2
    np.testing.assert_array_equal(table.values[nearest(table.values)], table.values)


def test_dummies_of_one_variable_stay_dummies():
    rng = np.random.default_rng(0)
    x = rng.normal(size=600)
    level = np.digitize(x + rng.normal(size=600), [-0.5, 0.5])
    frame = pd.DataFrame({f"is_{k}": (level == k).astype(int) for k in range(3)} | {"x": x})
    conditional, points = points_of(frame, (0, 1, 2))
    assert len(conditional.rule.steps) == 2
    assert (points.sum(axis=2) == 1).mean() > 0.97
    shares = points.reshape(-1, 3).mean(axis=0)
    np.testing.assert_allclose(shares, np.bincount(level) / 600, atol=0.02)


def test_what_the_others_determine_keeps_its_value():
    rng = np.random.default_rng(0)
    x, free = rng.normal(size=(2, 500))
    frame = pd.DataFrame({"log": x, "free": free, "same": np.full(500, 3.0), "level": np.exp(x)})
    conditional, points = points_of(frame, (0, 1, 2))
    assert [step.feature for step in conditional.rule.steps] == [1]
    np.testing.assert_array_equal(points[..., 0], np.repeat(x[:, None], N_POINTS, axis=1))
    assert (points[..., 2] == points[0, 0, 2]).all()
    assert points[..., 1].std() == pytest.approx(free.std(), rel=0.05)


def test_groups_that_the_others_determine_are_named_and_not_tested():
    rng = np.random.default_rng(0)
    x, z, w = rng.normal(size=(3, 300))
    frame = pd.DataFrame({"x": x, "z": z, "x_inches": x / 2.54, "z_inches": z / 2.54, "flat": 1.0, "w": w})
    treatment = rng.integers(0, 2, 300)
    y = treatment * x + rng.normal(size=300)
    groups = {"metric": ["x", "z"], "imperial": ["x_inches", "z_inches"], "rest": ["flat", "w"]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = ModifierSelector(feature_groups=groups, **QUICK).fit(frame, y, treatment).result_
    messages = [str(w.message) for w in caught]
    assert all(w.category is UserWarning for w in caught)
    assert any(m.startswith("metric, imperial: almost determined by") for m in messages)
    assert any("constant columns cannot modify anything: flat" in m for m in messages)
    assert result.table["p_value"][["metric", "imperial"]].tolist() == [1.0, 1.0]
    assert 0 < result.table["p_value"]["rest"] < 1
    # Both units in one group: together they can be tested.
    both = p_values(
        frame.drop(columns="flat"), y, treatment, {"length": ["x", "x_inches"], "height": ["z", "z_inches"]}
    )
    assert both["length"] < 1e-4
    assert both["height"] > 0.01


def test_a_group_of_all_columns_and_one_of_constants(table):
    frame, y, treatment = table
    pressures = frame[["sbp", "dbp"]]
    assert p_values(pressures, y, treatment, {"all": ["sbp", "dbp"]})["all"] < 1e-4
    assert p_values(pressures, y, treatment, {"all": ["sbp", "dbp"]}, sampler=MarginalSampler())["all"] < 1e-3
    flat = pressures.assign(one=1.0, two=2.0)
    with pytest.warns(UserWarning, match="constant columns cannot modify anything: one, two"):
        found = p_values(flat, y, treatment, {"flat": ["one", "two"]})
    assert found["flat"] == 1.0


def test_groups_of_a_binary_outcome_and_repeated_folds(table):
    frame, y, treatment = table
    risk = (y > 0.5).astype(float)
    statistic = EffectLikelihood("linear", cv_repeats=2, check_resamples=200)
    result = quiet_fit(frame, risk, treatment, feature_groups=GROUPS, **(QUICK | {"statistic": statistic})).result_
    assert result.selected == ["blood pressure"]
    # 200 draws: the check of a p-value p has standard deviation at most 0.035.
    drawn, computed = (result.diagnostics[name] for name in ("check_p_value", "checked_p_value"))
    assert (drawn - computed).abs().max() < 4 * 0.035


@cache
def null_study(n_sets):
    """P-values of null groups of two to four mixed columns, all correlated with the modifier."""
    found = []
    groups = {"two": ["a", "b"], "three": ["c", "d", "e"], "dummies": ["d0", "d1", "d2"], "square": ["s", "s2"]}
    for seed in range(n_sets):
        rng = np.random.default_rng(seed)
        n = 250
        z = rng.normal(size=(n, 9))
        frame = pd.DataFrame({"x": z[:, 0], "a": 0.7 * z[:, 0] + z[:, 1], "b": z[:, 1] + z[:, 2] - 0.5 * z[:, 0]})
        frame["c"] = 0.5 * z[:, 0] + z[:, 3]
        frame["d"] = (z[:, 0] + z[:, 3] + z[:, 4] > 0).astype(int)
        frame["e"] = np.array(["u", "v", "w"])[np.digitize(z[:, 5] + 0.5 * z[:, 0], [-0.6, 0.6])]
        level = np.digitize(0.7 * z[:, 0] + z[:, 6], [-0.5, 0.5])
        for k in range(3):
            frame[f"d{k}"] = (level == k).astype(int)
        frame["s"] = 0.6 * z[:, 0] + z[:, 7]
        frame["s2"] = frame["s"] ** 2
        treatment = rng.integers(0, 2, n)
        y = treatment * z[:, 0] + z[:, 8]
        p = p_values(frame, y, treatment, groups, propensity=0.5, random_state=seed)
        found.append(p[list(groups)].to_numpy())
    return np.array(found)


@pytest.mark.study
def test_share_of_small_p_values_of_null_groups_is_at_most_the_level():
    found = null_study(runs(16, 4)).ravel()
    # 64 p-values of all runs: sd 0.027; 0.01 for distributions that are estimated from 250 rows.
    assert (found <= 0.05).mean() < 0.05 + four_sd(0.05, found.size) + 0.01
    assert abs((found <= 0.5).mean() - 0.5) < four_sd(0.5, found.size)


def test_command_line_takes_groups(table, tmp_path, monkeypatch, capsys):
    frame, y, treatment = table
    frame.assign(y=y, arm=treatment).to_csv(tmp_path / "data.csv", index=False)
    common = ["modifind", "select", str(tmp_path / "data.csv"), "--treatment", "arm", "--outcome", "y"]
    quick = ["--sampler", "gaussian", "--learner", "linear", "--propensity", "0.5"]
    out = tmp_path / "result.json"

    def run(*arguments):
        monkeypatch.setattr("sys.argv", [*common, *quick, *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, capsys.readouterr()

    groups = ["--feature-group", "blood pressure=sbp, dbp", "--feature-group", "habits=smoker,visits"]
    code, said = run(*groups, "--out", str(out))
    assert code == 0, said.err
    result = SelectionResult.from_json(out)
    assert result.settings["feature_groups"] == {"blood pressure": ["sbp", "dbp"], "habits": ["smoker", "visits"]}
    assert result.selected == ["blood pressure"]
    assert "group" in said.out
    code, said = run(*groups, "--stream", "--train-rows", "200", "--no-explain", "--out", str(out))
    assert code == 0, said.err
    assert SelectionResult.from_json(out).settings["feature_groups"] == result.settings["feature_groups"]
    for wrong, message in (
        (["--feature-group", "sbp,dbp"], "must be a name and columns"),
        (["--feature-group", "bp=sbp,pulse"], "names 'pulse', which is not tested"),
        (["--feature-group", "bp=sbp", "--feature-group", "bp=dbp"], "two groups called 'bp'"),
        ([*groups, "--statistic", "wcmmd", "--learner", "auto"], "--feature-group needs --statistic effect_likelihood"),
    ):
        code, said = run(*wrong)
        assert code == 2
        assert message in said.err
