import math
import warnings

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from conftest import confounded_table, four_sd, runs
from modifind import ModifierSelector, PropensityModel, SelectionResult
from modifind.baselines import SIEM, lasso_selective_inference
from modifind.baselines.design import effect_design, lasso_columns
from modifind.baselines.si_em import outcome_learner, propensity_forest
from modifind.charts import CurveDisplay, ImportanceDisplay
from modifind.data.schema import read_features
from modifind.datasets import make_modifiers
from modifind.explain.views import EFFECTS
from modifind.report import Abstract, methods

LINEAR = {"outcome_model": LinearRegression(), "propensity": LogisticRegression(), "random_state": 0}
COLUMNS = [
    "kind",
    "importance",
    "statistic",
    "p_value",
    "p_adjusted",
    "selected",
    "coef",
    "ci_low",
    "ci_high",
    "caution",
]


def quiet_fit(X, y, treatment, **settings):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*propensity scores were outside")
        return SIEM(**LINEAR | settings).fit(X, y, treatment=treatment)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X, treatment = confounded_table(rng, 400, 3)
    frame = pd.DataFrame(X, columns=["age", "dose", "bmi"])
    frame["group"] = np.array(list("abc"))[rng.integers(0, 3, size=400)]
    frame["smokes"] = rng.random(400) < 0.15
    effect = 3 * X[:, 0] + 2 * (frame["group"] == "c") - 2 * (frame["group"] == "b") + 3 * frame["smokes"]
    y = (treatment - 0.5) * effect + X[:, 1] + rng.normal(size=400)
    return frame, y.to_numpy(), treatment


@pytest.fixture(scope="module")
def fitted(data):
    return quiet_fit(*data)


def test_table_has_one_row_per_feature_with_the_documented_columns(data, fitted):
    table = fitted.result_.table
    assert table.index.tolist() == list(data[0].columns)
    assert table.columns.tolist() == COLUMNS
    assert table["kind"].tolist() == ["continuous"] * 3 + ["discrete"] * 2
    np.testing.assert_array_equal(table["p_adjusted"], table["p_value"])
    active = fitted.result_.diagnostics["n_active"] > 0
    np.testing.assert_array_equal(table["selected"], active & (table["p_value"] <= 0.05))
    assert (table.loc[~active, "p_value"] == 1).all()
    assert (table["statistic"].isna() == ~active).all()


def test_interface_is_that_of_a_selector(data, fitted):
    frame = data[0]
    names = fitted.get_feature_names_out().tolist()
    assert names == ["age", "group", "smokes"]
    assert fitted.transform(frame).columns.tolist() == names
    np.testing.assert_array_equal(fitted.transform(frame.to_numpy()), frame[names].to_numpy())
    assert fitted.get_support(indices=True).tolist() == [0, 3, 4]
    assert fitted.result_.selected[0] == "age"
    with pytest.raises(ValueError, match="not those seen in fit"):
        fitted.transform(frame.iloc[:, ::-1])
    with pytest.raises(Exception, match="not fitted"):
        SIEM().get_support()
    copy = clone(SIEM(alpha=0.1, propensity=PropensityModel(clip=(0.1, 0.9))))
    assert copy.get_params()["propensity__clip"] == (0.1, 0.9)


@pytest.mark.study
def test_linear_mean_modifiers_are_found_and_variance_modifiers_are_not():
    found, wrong = [], []
    for seed in range(runs(5, 2)):
        data = make_modifiers("LinMean", 1000, 30, random_state=seed)
        support = quiet_fit(data.X, data.y, data.treatment, propensity="auto", random_state=seed).get_support()
        found.append(support[:5].mean())
        wrong.append(support[5:].mean())
    # Measured 0.96 and 0.00. X3 has a quarter of the strongest coefficient and is missed now and then.
    assert np.mean(found) >= 0.8
    assert np.mean(wrong) <= 0.02
    data = make_modifiers("LinVar", 1000, 30, random_state=0)
    assert quiet_fit(data.X, data.y, data.treatment, propensity="auto").get_support().sum() <= 1


@pytest.mark.study
def test_null_features_that_the_lasso_takes_up_are_selected_at_the_level():
    rng = np.random.default_rng(5)
    p, n_sets = [], runs(150, 45)
    for _ in range(n_sets):
        X = rng.standard_normal((100, 3))
        treatment = rng.integers(0, 2, size=100)
        y = X[:, 0] + 0.5 * treatment + rng.standard_normal(100)
        expected = X[:, 0] + 0.25
        # A small penalty, for under the published one the lasso hardly ever takes up anything here.
        table = quiet_fit(X, y, treatment, outcome_model=expected, propensity=0.5, penalty_factor=0.3).result_.table
        p.extend(table["p_value"][table["statistic"].notna()].head(1))
    assert len(p) > n_sets * 2 / 3
    for level in (0.05, 0.2, 0.5):
        assert abs(np.mean(np.array(p) <= level) - level) < four_sd(level, len(p))


@pytest.mark.study
def test_published_penalty_hardly_ever_selects_under_the_null():
    rng = np.random.default_rng(6)
    n_selected, n_sets = 0, runs(40, 15)
    for _ in range(n_sets):
        X = rng.standard_normal((100, 5))
        treatment = rng.integers(0, 2, size=100)
        selector = quiet_fit(X, rng.standard_normal(100), treatment, outcome_model=np.zeros(100), propensity=0.5)
        n_selected += selector.get_support().sum()
    assert n_selected / (5 * n_sets) < 0.05 + four_sd(0.05, 5 * n_sets) / 4  # one standard deviation; measured 0.00


def test_importance_and_curves_are_those_of_the_modifier_selector(data):
    X, y, treatment = data
    settings = {"propensity": LogisticRegression(), "random_state": 4}
    ours = quiet_fit(X, y, treatment, **settings).result_
    theirs = ModifierSelector("wcmmd", "marginal", n_resamples=1, explain=False, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = theirs.fit(X, y, treatment=treatment).result_
    np.testing.assert_array_equal(ours.table["importance"], theirs.table["importance"])
    for name in X.columns:
        # Without explanations there is no model of the outcome, as here, and no bands.
        shown = theirs.curve(name)
        assert_frame_equal(ours.curve(name)[["value", *EFFECTS]], shown[["value", *EFFECTS]], check_exact=True)


@pytest.mark.parametrize("models", ["forests", "learners"])
def test_result_is_the_same_for_one_job_and_two(data, models, monkeypatch):
    monkeypatch.setattr("modifind.baselines.si_em.N_TREES", 8)
    settings = {"outcome_model": "forest", "propensity": "forest"}
    if models == "learners":
        settings = {"outcome_model": make_pipeline(PolynomialFeatures(2), LinearRegression()), "propensity": "auto"}
    one, two = (quiet_fit(*data, **settings, n_jobs=n_jobs).result_ for n_jobs in (1, 2))
    assert one == two
    assert one.table["p_value"].min() < 1e-3


def test_same_seed_same_answer_and_other_seed_other_p_values(data):
    settings = {"outcome_model": RandomForestRegressor(10), "random_state": 3}
    first, again = (quiet_fit(*data, **settings).result_ for _ in range(2))
    assert first == again
    other = quiet_fit(*data, **settings | {"random_state": 4}).result_
    assert (first.table["p_value"] != other.table["p_value"]).any()
    drawn = quiet_fit(*data, **settings | {"random_state": None}).result_
    replayed = quiet_fit(*data, **settings | {"random_state": drawn.settings["seed"]}).result_
    assert_frame_equal(drawn.table, replayed.table, check_exact=True)


def test_units_of_features_change_coefficients_and_nothing_else(data, fitted):
    X, y, treatment = data
    scaled = X.assign(age=1000 * X["age"] + 5, dose=X["dose"] / 1e6)
    other = quiet_fit(scaled, y, treatment).result_
    table = fitted.result_.table
    np.testing.assert_allclose(other.table["p_value"], table["p_value"], rtol=1e-4)
    np.testing.assert_allclose(other.table["statistic"], table["statistic"], rtol=1e-6)
    for name in ("coef", "ci_low", "ci_high"):
        assert 1000 * other.table.loc["age", name] == pytest.approx(table.loc["age", name], rel=1e-5)


def test_coefficient_is_the_change_of_the_mean_effect_per_unit(fitted):
    table, diagnostics = fitted.result_.table, fitted.result_.diagnostics
    for name, truth in (("age", 3.0), ("smokes", 3.0)):
        sd = diagnostics.loc[name, "sd"]
        assert abs(table.loc[name, "coef"] - truth) < 4 * sd  # four standard deviations
        assert table.loc[name, "ci_low"] < truth < table.loc[name, "ci_high"]
    assert diagnostics.loc["smokes", "level"] == "True"


def test_discrete_feature_pays_for_its_active_levels(data):
    frame, y, treatment = data
    expected, scores = frame["dose"].to_numpy(), np.full(len(frame), 0.5)
    result = quiet_fit(frame, y, treatment, outcome_model=expected, propensity=scores).result_
    table, arms = read_features(frame), treatment
    columns = lasso_columns(table, arms)
    assert [feature for feature, _ in columns] == [0, 1, 2, 3, 3, 4]
    design = effect_design(table, columns, y - expected, arms - scores)
    settings = result.settings
    found = lasso_selective_inference(design.matrix, design.response, settings["penalty"], sigma=settings["sigma"])
    own = found.loc[found.index.isin([3, 4])]
    row, diagnosed = result.table.loc["group"], result.diagnostics.loc["group"]
    assert len(own) == diagnosed["n_active"] == diagnosed["n_columns"] == 2
    assert row["p_value"] == 2 * own["p_value"].min()
    best = int(own["p_value"].idxmin())
    assert diagnosed["level"] == {3: "b", 4: "c"}[best]
    assert row["statistic"] == own.loc[best, "coef"] / own.loc[best, "sd"]


def test_indicators_have_the_scale_of_everything_else(data):
    frame, y, treatment = data
    table = read_features(frame)
    treatment = treatment - 0.5
    design = effect_design(table, lasso_columns(table, (treatment > 0).astype(np.int64)), y, treatment)
    lengths = np.sqrt((design.matrix**2).sum(axis=0))
    np.testing.assert_allclose(lengths, 0.5 * math.sqrt(len(frame)), rtol=0.1)
    np.testing.assert_allclose(treatment @ design.matrix, 0, atol=1e-10)
    assert abs(treatment @ design.response) < 1e-10


def test_rare_levels_are_pooled_and_named(data):
    frame, y, treatment = data
    rare = frame[["age", "dose"]].assign(site=["x", "y"] * 200, flag=False)
    rare.loc[:3, "site"] = "z"
    rare.loc[:6, "flag"] = True
    with (
        pytest.warns(UserWarning, match="cannot be tested: flag"),
        pytest.warns(UserWarning, match=r"pooled as 'other' \(site: 'z', and 'y' with it"),
    ):
        result = quiet_fit(rare, y, treatment).result_
    assert result.table.loc["flag", "p_value"] == 1
    assert result.diagnostics["n_columns"].tolist() == [1, 1, 1, 0]
    assert any("site: 'z'" in message for message in result.warnings)


def test_constant_and_repeated_columns_warn_and_have_p_value_one(data):
    frame, y, treatment = data
    table = frame[["age", "dose"]].assign(flat=1.0, months=12 * frame["age"] + 1, both=frame["age"] - frame["dose"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = quiet_fit(table, y, treatment).result_
    messages = [str(w.message) for w in caught]
    assert any("constant columns cannot modify anything: flat" in message for message in messages)
    assert any(message.startswith("months, both: a linear function of the columns before") for message in messages)
    assert (result.table.loc[["flat", "months", "both"], "p_value"] == 1).all()
    assert result.table.loc["flat", "importance"] == 0
    assert result.selected == ["age"]
    assert set(result.warnings) == set(messages)


def test_table_of_constants_selects_nothing(data, tmp_path):
    _, y, treatment = data
    with pytest.warns(UserWarning, match="constant"):
        result = quiet_fit(np.ones((400, 2)), y, treatment, propensity=0.5).result_
    assert result.selected == []
    assert (result.table["p_value"] == 1).all()
    result.report(tmp_path / "report.html")


def test_trial_with_known_propensity(data):
    X, y, treatment = data
    result = quiet_fit(X, y, treatment, propensity=0.5).result_
    assert result.settings["propensity_model"] == "known, 0.5 for every row"
    assert {"age", "smokes"} <= set(result.selected)
    array = quiet_fit(X, y, treatment, propensity=np.full(400, 0.5)).result_
    assert_frame_equal(result.table, array.table, check_exact=True)


def test_labels_of_the_treatment_and_their_order(data):
    X, y, treatment = data
    named = np.where(treatment == 1, "drug", "placebo")
    result = quiet_fit(X, y, named, propensity=0.5).result_
    assert (result.settings["treated_label"], result.settings["control_label"]) == ("drug", "placebo")
    swapped = SIEM(**LINEAR | {"propensity": 0.5}).fit(X, y, treatment=named, treated="placebo").result_
    np.testing.assert_allclose(result.table["coef"], -swapped.table["coef"], rtol=1e-9)


def test_one_sided_p_values_are_half_where_the_estimate_is_clear(data, fitted):
    one = quiet_fit(*data, sided="one").result_
    assert one.table.loc["age", "p_value"] == pytest.approx(fitted.result_.table.loc["age", "p_value"] / 2)
    assert "one-sided in the direction of the estimate" in methods(one)


def test_log_scale_is_that_of_the_logged_outcome(data):
    X, y, treatment = data
    logged = quiet_fit(X, np.exp(y / 5), treatment, outcome_transform="log").result_
    plain = quiet_fit(X, y / 5, treatment).result_
    np.testing.assert_allclose(logged.table["p_value"], plain.table["p_value"], rtol=1e-4)
    assert "log scale" in methods(logged)


def test_result_survives_json_and_is_shown(fitted, tmp_path):
    result = fitted.result_
    result.to_json(tmp_path / "result.json")
    back = SelectionResult.from_json(tmp_path / "result.json")
    assert back == result
    assert_frame_equal(back.table, result.table, check_exact=True)
    assert_frame_equal(back.diagnostics, result.diagnostics, check_exact=True)
    back.report(tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert html.count('<details class="panel chosen"') == len(result.selected) == 3
    assert html.lower().count("average effect per unit") == 3  # the column, its hint and its explanation
    assert "SI-EM" in html
    assert ">not in the lasso</td>" in html
    assert "nats" not in html.lower()
    assert result.curve("group")["value"].tolist() == ["a", "b", "c"]
    assert ImportanceDisplay.from_estimator(fitted).plot().names
    assert CurveDisplay.from_estimator(fitted, "age").plot().feature == "age"


def test_report_says_what_was_tested_and_how(fitted):
    text = methods(fitted.result_)
    assert "the null hypothesis that its partial linear coefficient is zero in the best linear approximation" in text
    assert "by SI-EM (Zhao, Small and Ertefaie, JRSS B 2022)" in text
    assert "the outcome (LinearRegression(), cross-fitted)" in text
    active = fitted.result_.settings["n_active"]
    assert f"it selected {active} of 6 columns, whose p-values (two-sided)" in text
    assert "P-values were not adjusted over features, and features with a p-value of at most 0.05" in text
    said = dict(Abstract.of(fitted.result_).parts)["Effect modification"]
    assert "p-values are not adjusted for the number of features (level 5%)" in said
    assert fitted.result_.ok


def test_defaults_are_forests(data, monkeypatch):
    monkeypatch.setattr("modifind.baselines.si_em.N_TREES", 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = SIEM(random_state=0).fit(data[0], data[1], treatment=data[2]).result_
    assert "age" in result.selected
    assert result.settings["propensity_model"].startswith("random forest")
    assert result.settings["outcome_learner"].startswith("random forest")
    assert 0.5 < result.overlap["auc"] < 1


def test_forests_have_the_settings_of_r():
    for forest in (propensity_forest(0), outcome_learner("forest", 0)):
        assert (forest.n_estimators, forest.min_samples_leaf, forest.random_state) == (200, 5, 0)
    assert propensity_forest(0).max_features == "sqrt"
    assert outcome_learner("forest", 0).max_features == pytest.approx(1 / 3)


def test_fit_leaves_the_parameters_untouched(data):
    learner, classifier = RandomForestRegressor(3), LogisticRegression()
    selector = quiet_fit(*data, outcome_model=learner, propensity=classifier)
    assert selector.outcome_model is learner
    assert learner.random_state is None
    assert not hasattr(learner, "estimators_")
    assert not hasattr(classifier, "coef_")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 0}, "alpha must lie strictly"),
        ({"sided": "both"}, "sided must be one of 'one', 'two'"),
        ({"penalty_factor": -1}, "penalty_factor must be a finite number above 0"),
        ({"cv": 1}, "cv must be an integer"),
        ({"outcome_transform": "sqrt"}, "outcome_transform must be"),
        ({"propensity": "logit"}, "propensity must be 'forest', 'auto', 'mlp'"),
        ({"outcome_model": "tree"}, "outcome_model must be 'forest'"),
        ({"outcome_model": LogisticRegression()}, "outcome_model must be 'forest', a regressor"),
        ({"outcome_model": np.zeros(3)}, r"one finite prediction per row \(400\); found ndarray of shape \(3,\)"),
        ({"outcome_model": object()}, "found object"),
        ({"random_state": -1}, "must not be negative"),
    ],
)
def test_bad_arguments_are_refused(data, change, message):
    with pytest.raises(ValueError, match=message):
        quiet_fit(*data, **change)


def test_missing_treatment_and_missing_values_are_refused_by_name(data):
    X, y, treatment = data
    with pytest.raises(ValueError, match="treatment is required"):
        SIEM().fit(X, y)
    holed = X.copy()
    holed.loc[0, "dose"] = np.nan
    with pytest.raises(ValueError, match=r"'dose' \(1 missing\)"):
        SIEM().fit(holed, y, treatment=treatment)


def test_too_wide_a_table_is_refused_before_anything_is_fitted():
    rng = np.random.default_rng(0)
    X, treatment = rng.standard_normal((50, 40)), np.tile([0, 1], 25)
    with pytest.raises(ValueError, match=r"50 rows are too few for SI-EM with 40 columns .* it needs 51"):
        SIEM().fit(X, rng.standard_normal(50), treatment=treatment)


def test_columns_adjusted_for_are_in_scores_and_outcomes_and_not_tested():
    data = make_modifiers("LinMean", n_samples=400, n_features=6, random_state=0)
    whole = quiet_fit(data.X, data.y, data.treatment).result_
    selector = SIEM(**LINEAR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        some = selector.fit(data.X, data.y, treatment=data.treatment, adjust_for=["X2", "X6"]).result_
    assert some.table.index.tolist() == ["X1", "X3", "X4", "X5"] == list(some.curves)
    assert some.settings["adjust_for"] == ["X2", "X6"]
    assert some.settings["n_columns"] == 4
    # Scores are those of all columns, and a feature's importance and curve are what they are without adjustment.
    assert some.overlap == whole.overlap
    assert_frame_equal(some.curves["X3"], whole.curves["X3"])
    assert selector.transform(data.X).columns.tolist() == sorted(some.selected)
    assert SelectionResult.from_dict(some.to_dict()).table.equals(some.table)
    assert "Models and propensity scores also conditioned on columns that were not tested: X2, X6." in methods(some)
