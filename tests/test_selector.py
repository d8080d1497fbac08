import warnings

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from conftest import confounded_table, quiet_fit
from modifind import WCMMD, ConditionalRandomizationTest, EffectLikelihood, ModifierSelector, PropensityModel
from modifind.baselines import SIEM
from modifind.engine.settings import agreeing_sampler, resolve_statistic
from modifind.inference import adjust_p_values
from modifind.nuisance.conditional import CVAESampler, GaussianSampler, MarginalSampler
from modifind.nuisance.outcome import AdditiveLearner
from modifind.nuisance.outcome.learners import resolve_learners
from modifind.nuisance.propensity.scores import EarlyStoppedMLP

# The resampling test, and the default one with the quickest learner.
FAST = {
    "statistic": "wcmmd",
    "sampler": "gaussian",
    "propensity": LogisticRegression(),
    "n_resamples": 39,
    "random_state": 0,
    "explain": False,
}
LIKELIHOOD = {**FAST, "statistic": EffectLikelihood(learner="linear"), "n_resamples": "auto"}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X, treatment = confounded_table(rng, 240, 3)
    frame = pd.DataFrame(X, columns=["age", "dose", "bmi"])
    frame["group"] = np.array(list("abc"))[rng.integers(0, 3, size=240)]
    frame["packs"] = np.where(rng.random(240) < 0.6, 0.0, np.exp(rng.normal(size=240)))
    y = 3 * treatment * X[:, 0] + X[:, 1] + rng.normal(size=240)
    return frame, y, treatment


@pytest.fixture(scope="module")
def fitted(data):
    return quiet_fit(*data, **FAST)


@pytest.fixture(scope="module")
def likelihood(data):
    return quiet_fit(*data, **LIKELIHOOD)


@pytest.mark.parametrize("test", ["resampling", "analytic"])
def test_table_has_one_row_per_feature_with_the_documented_columns(data, fitted, likelihood, test):
    table = (fitted if test == "resampling" else likelihood).result_.table
    assert table.index.tolist() == list(data[0].columns)
    extra = [] if test == "resampling" else ["likelihood_gain", "gain_low", "gain_high"]
    assert table.columns.tolist() == [
        "kind",
        "importance",
        "statistic",
        "p_value",
        "p_adjusted",
        "selected",
        "role",
        *extra,
        "caution",
    ]
    assert table["kind"].tolist() == ["continuous"] * 3 + ["discrete", "continuous"]
    np.testing.assert_allclose(table["p_adjusted"], adjust_p_values(table["p_value"], "bh"))
    np.testing.assert_array_equal(table["selected"], table["p_adjusted"] <= 0.05)


def test_importance_and_the_points_of_curves_do_not_depend_on_the_test(fitted, likelihood):
    np.testing.assert_array_equal(fitted.result_.table["importance"], likelihood.result_.table["importance"])
    kept = ["value", "rows_treated", "rows_control", "low_support"]  # effects lean on the models of the test
    for name in fitted.result_.curves:
        assert_frame_equal(fitted.result_.curve(name)[kept], likelihood.result_.curve(name)[kept], check_exact=True)


def test_both_tests_find_the_strong_modifier_and_nothing_else(data, likelihood):
    assert likelihood.result_.selected == ["age"]
    assert quiet_fit(*data, **{**FAST, "n_resamples": 99}).result_.selected == ["age"]


@pytest.mark.parametrize("settings", [FAST, LIKELIHOOD], ids=["resampling", "analytic"])
@pytest.mark.parametrize("sampler", ["auto", "gaussian", "marginal"])
def test_result_is_the_same_for_one_job_and_two(data, sampler, settings):
    settings = {**settings, "sampler": sampler}
    if settings["n_resamples"] != "auto":
        settings["n_resamples"] = 19
    one, two = (quiet_fit(*data, **settings, n_jobs=n_jobs).result_ for n_jobs in (1, 2))
    assert_frame_equal(one.table, two.table, check_exact=True)
    assert_frame_equal(one.diagnostics, two.diagnostics, check_exact=True)
    for name in one.curves:
        assert_frame_equal(one.curve(name), two.curve(name), check_exact=True)


@pytest.mark.parametrize("block_size", [1, 5, 1000])
def test_result_is_the_same_for_any_block_size(data, fitted, block_size):
    other = quiet_fit(*data, **FAST, test=ConditionalRandomizationTest(block_size=block_size))
    assert_frame_equal(fitted.result_.table, other.result_.table, check_exact=True)


@pytest.mark.parametrize("settings", [FAST, LIKELIHOOD], ids=["resampling", "analytic"])
def test_same_seed_same_answer_and_other_seed_other_p_values(data, settings):
    first, again = (quiet_fit(*data, **settings).result_ for _ in range(2))
    assert first == again
    other = quiet_fit(*data, **{**settings, "random_state": 1}).result_
    assert (first.table["p_value"] != other.table["p_value"]).any()


def test_one_fit_does_not_change_the_next(data):
    selector = ModifierSelector(**FAST)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = selector.fit(data[0], data[1], treatment=data[2]).result_.table
        second = selector.fit(data[0], data[1], treatment=data[2]).result_.table
    assert_frame_equal(first, second, check_exact=True)


def test_drawn_seed_is_recorded_and_reproduces_the_run(data):
    first = quiet_fit(*data, **{**FAST, "random_state": None}).result_
    again = quiet_fit(*data, **{**FAST, "random_state": first.settings["seed"]}).result_
    assert_frame_equal(first.table, again.table, check_exact=True)
    fresh = quiet_fit(*data, **{**FAST, "random_state": None}).result_
    assert fresh.settings["seed"] != first.settings["seed"]


def test_generator_seeds_and_moves_on(data):
    rng = np.random.default_rng(5)
    first, second = (quiet_fit(*data, **{**FAST, "random_state": rng}).result_ for _ in range(2))
    again = quiet_fit(*data, **{**FAST, "random_state": np.random.default_rng(5)}).result_
    assert first.settings["seed"] == again.settings["seed"] != second.settings["seed"]


def test_defaults_find_a_strong_modifier(data):
    selector = ModifierSelector(random_state=0, cv=2).fit(data[0], data[1], treatment=data[2])
    assert selector.result_.selected == ["age"]
    assert "logistic regression" in selector.result_.settings["propensity_model"]
    assert selector.result_.settings["statistic"]["class"] == "EffectLikelihood"
    assert selector.result_.settings["n_resamples_used"] == 0


def test_resampling_takes_999_resamples_unless_told(data):
    result = quiet_fit(data[0][["age", "dose"]], *data[1:], **FAST | {"n_resamples": "auto"}).result_
    assert result.settings["n_resamples_used"] == 999
    assert result.selected == ["age"]


def test_resamples_of_a_test_that_draws_none_are_warned_of(data):
    with pytest.warns(UserWarning, match="effect_likelihood does not resample, so n_resamples has no effect"):
        result = quiet_fit(*data, **LIKELIHOOD | {"n_resamples": 39, "propensity": 0.5}).result_
    assert result.settings["n_resamples_used"] == 0
    assert any("does not resample" in message for message in result.warnings)


def test_array_and_frame_of_the_same_numbers_agree(data):
    frame = data[0][["age", "dose", "bmi"]]
    by_name = quiet_fit(frame, *data[1:], **FAST).result_.table
    by_position = quiet_fit(frame.to_numpy(), *data[1:], **FAST).result_.table
    assert by_position.index.tolist() == ["x0", "x1", "x2"]
    np.testing.assert_array_equal(by_name["p_value"], by_position["p_value"])


def test_swapping_the_arms_leaves_a_randomised_importance_alone(data):
    X, y, treatment = data
    first = quiet_fit(X, y, treatment, **FAST | {"propensity": 0.5}).result_.table
    second = quiet_fit(X, y, 1 - treatment, **FAST | {"propensity": 0.5}).result_.table
    np.testing.assert_allclose(first["importance"], second["importance"], rtol=1e-6)


def test_clone_and_parameters_round_trip():
    selector = ModifierSelector(statistic=WCMMD("rff", n_components=7), sampler=GaussianSampler(), alpha=0.1)
    copy = clone(selector)
    assert copy.get_params()["alpha"] == 0.1
    assert copy.get_params()["statistic__n_components"] == 7
    copy.set_params(statistic__n_components=9, sampler__condition_on_treatment=False, alpha=0.2)
    assert (copy.statistic.n_components, copy.sampler.condition_on_treatment, copy.alpha) == (9, False, 0.2)
    assert selector.statistic.n_components == 7
    other = clone(ModifierSelector(EffectLikelihood("linear"))).set_params(statistic__cv_repeats=4)
    assert (other.statistic.learner, other.statistic.cv_repeats) == ("linear", 4)


@pytest.mark.parametrize("kind", [WCMMD, EffectLikelihood])
def test_fit_leaves_the_parameters_untouched(data, kind):
    learner = AdditiveLearner(0, products=False)
    sampler, propensity = GaussianSampler(), PropensityModel()
    statistic = WCMMD() if kind is WCMMD else EffectLikelihood(learner)
    before = dict(vars(statistic))
    settings = LIKELIHOOD | {"sampler": sampler, "statistic": statistic, "propensity": propensity}
    selector = quiet_fit(*data, **settings | {"n_resamples": 39 if kind is WCMMD else "auto"})
    assert selector.sampler is sampler
    assert not hasattr(sampler, "table_")
    assert vars(statistic) == before
    assert not hasattr(learner, "coefficients_")
    assert vars(propensity) == vars(PropensityModel())


def test_selector_works_in_a_pipeline(data):
    X, y, treatment = data[0][["age", "dose", "bmi"]], data[1], data[2]
    pipeline = Pipeline([("scale", StandardScaler()), ("selector", ModifierSelector(**FAST | {"n_resamples": 99}))])
    pipeline.fit(X, y, selector__treatment=treatment)
    support = pipeline["selector"].get_support()
    assert support.tolist() == [True, False, False]
    assert pipeline.transform(X).shape == (240, 1)


def test_transform_keeps_frames_and_arrays(data):
    selector = quiet_fit(*data, **{**FAST, "n_resamples": 99})
    support = selector.get_support()
    chosen = selector.transform(data[0])
    assert isinstance(chosen, pd.DataFrame)
    assert chosen.columns.tolist() == ["age"]
    assert selector.get_feature_names_out().tolist() == ["age"]
    np.testing.assert_array_equal(selector.transform(data[0].to_numpy()), data[0].to_numpy()[:, support])
    assert selector.get_support(indices=True).tolist() == [0]
    assert (selector.n_features_in_, selector.feature_names_in_.tolist()) == (5, list(data[0].columns))


def test_fit_transform_passes_the_treatment_on(data):
    selector = ModifierSelector(**{**FAST, "n_resamples": 99})
    chosen = selector.fit_transform(data[0], data[1], treatment=data[2])
    assert chosen.columns.tolist() == ["age"]


def test_transform_refuses_other_columns(data, fitted):
    with pytest.raises(ValueError, match="5 columns seen in fit"):
        fitted.transform(data[0].iloc[:, :2])
    with pytest.raises(ValueError, match="not those seen in fit"):
        fitted.transform(data[0].iloc[:, ::-1])
    with pytest.raises(Exception, match="not fitted"):
        ModifierSelector().transform(data[0])


@pytest.mark.parametrize("chosen", ["auto", []])
@pytest.mark.parametrize(
    "propensity", [0.5, LogisticRegression(), EarlyStoppedMLP(epochs=2)], ids=["number", "logistic", "network"]
)
def test_constant_column_has_no_importance_and_p_value_one(data, chosen, propensity):
    frame = data[0][["age", "dose"]].assign(flat=2.5)
    with pytest.warns(UserWarning, match="constant columns cannot modify anything: flat"):
        result = quiet_fit(
            frame, *data[1:], **FAST | {"n_resamples": 9, "propensity": propensity}, discrete_features=chosen
        ).result_
    row = result.table.loc["flat"]
    assert (row["importance"], row["p_value"], row["selected"]) == (0.0, 1.0, False)
    assert any("flat" in message for message in result.warnings)
    assert np.isfinite(result.curve("flat")["mean_effect"]).all()


@pytest.mark.parametrize("chosen", ["auto", []])
def test_constant_column_is_not_tested_by_the_likelihood_either(data, chosen):
    frame = data[0][["age", "dose"]].assign(flat=2.5)
    with pytest.warns(UserWarning, match="constant columns cannot modify anything: flat"):
        result = quiet_fit(frame, *data[1:], **LIKELIHOOD | {"propensity": 0.5}, discrete_features=chosen).result_
    row = result.table.loc["flat"]
    assert (row["importance"], row["p_value"], row["selected"]) == (0.0, 1.0, False)
    assert result.table.loc["flat", ["likelihood_gain", "gain_low", "gain_high"]].isna().all()
    assert result.selected == ["age"]


def test_column_of_labels_that_never_repeat_is_not_selected(data):
    frame = data[0][["age"]].assign(name=[f"id{i}" for i in range(240)])
    table = quiet_fit(frame, *data[1:], **FAST | {"propensity": 0.5}).result_.table
    assert table.loc["name", "importance"] == 0.0
    assert table.loc["name", "p_value"] == 1.0


def test_known_scores_per_row_keep_conditioning_on(data):
    scores = np.linspace(0.3, 0.7, 240)
    result = quiet_fit(*data, **FAST | {"propensity": scores}).result_
    assert result.settings["sampler"]["condition_on_treatment"] is True
    assert result.settings["propensity"] == "array of 240 values"


def test_fixed_weights_turn_conditioning_off_for_a_named_sampler(data):
    result = quiet_fit(*data, **FAST | {"statistic": WCMMD(resample_weights="fixed")}).result_
    assert result.settings["sampler"]["condition_on_treatment"] is False


@pytest.mark.parametrize("sampler", [GaussianSampler(), MarginalSampler()])
def test_fixed_weights_refuse_a_sampler_that_conditions_on_treatment(data, sampler):
    with pytest.raises(ValueError, match="condition_on_treatment=False"):
        quiet_fit(*data, **{**FAST, "sampler": sampler, "statistic": WCMMD(resample_weights="fixed")})


def test_known_number_keeps_conditioning_on(data):
    result = quiet_fit(*data, **FAST | {"propensity": 0.5}).result_
    assert result.settings["sampler"]["condition_on_treatment"] is True


def test_few_resamples_warn_and_are_recorded(data):
    with pytest.warns(UserWarning, match="n_resamples=39 cannot yield a single discovery among 5 features"):
        result = ModifierSelector(**FAST).fit(data[0], data[1], treatment=data[2]).result_
    assert any("n_resamples=39" in message for message in result.warnings)


def test_resamples_that_suffice_for_the_adjustment_do_not_warn(data):
    # Without an adjustment p <= 0.05 needs 19 resamples only.
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="n_resamples=")
        ModifierSelector(**FAST | {"propensity": 0.5, "adjust": "none"}).fit(data[0], data[1], treatment=data[2])


@pytest.mark.parametrize("adjust", ["bh", "by", "holm", "bonferroni", "none"])
def test_auto_resamples_make_a_single_discovery_possible_after_every_adjustment(adjust):
    rng = np.random.default_rng(6)
    d = 40
    X, treatment = rng.normal(size=(80, d)), np.arange(80) % 2
    y = rng.normal(size=80)
    selector = ModifierSelector(
        statistic="wcmmd",
        sampler="marginal",
        propensity=0.5,
        adjust=adjust,
        random_state=0,
        explain=False,
        test=ConditionalRandomizationTest(stop_after=1),
    )
    used = selector.fit(X, y, treatment=treatment).result_.settings["n_resamples_used"]
    p_values = np.ones(d)
    p_values[0] = 1 / (1 + used)
    assert adjust_p_values(p_values, adjust)[0] <= 0.05


def test_settings_and_versions_hold_the_numbers_of_the_run(data, fitted):
    settings = fitted.result_.settings
    assert settings["seed"] == 0
    assert settings["n_resamples"] == settings["n_resamples_used"] == 39
    assert (settings["n_rows"], settings["n_treated"]) == (240, int(data[2].sum()))
    assert settings["n_control"] == 240 - settings["n_treated"]
    assert (settings["control_label"], settings["treated_label"]) == (0, 1)
    assert settings["statistic"]["class"] == "WCMMD"
    assert settings["statistic"]["weighting"] == "hajek"
    assert settings["test"]["stop_after"] == 20
    assert settings["model"] is None
    assert settings["alpha"] == 0.05
    assert "LogisticRegression" in settings["propensity_model"]
    assert {"modifind", "python", "numpy", "scipy", "scikit-learn", "pandas"} <= set(fitted.result_.versions)


def test_settings_of_the_likelihood_name_learner_and_stack(likelihood):
    settings = likelihood.result_.settings
    assert settings["statistic"] == {
        "class": "EffectLikelihood",
        "learner": "linear",
        "cv_repeats": 1,
        "check_resamples": 0,
        "device": "cpu",
    }
    assert settings["model"]["likelihood"] == "student-t"
    assert settings["model"]["stack"] == "linear 1.00"
    assert settings["outcome_transform"] is None


def test_check_by_resampling_is_recorded_beside_the_tail(data, likelihood):
    diagnostics = likelihood.result_.diagnostics
    assert diagnostics["check_p_value"].isna().all()
    assert (diagnostics["n_resamples"] == 0).all()
    checked = quiet_fit(*data, **LIKELIHOOD | {"statistic": EffectLikelihood("linear", check_resamples=400)}).result_
    assert_frame_equal(checked.table, likelihood.result_.table, check_exact=True)
    found, tail = checked.diagnostics["check_p_value"], checked.diagnostics["checked_p_value"]
    assert (checked.diagnostics["n_resamples"] == 400).all()
    np.testing.assert_allclose(found, (1 + checked.diagnostics["n_exceeding"]) / 401)
    # Four standard errors of 400 draws, one draw that is always counted, and a tenth for the tail's approximation.
    assert (np.abs(found - tail) < 4 * np.sqrt(tail * (1 - tail) / 400) + 1 / 400 + 0.1 * tail).all()


def test_diagnostics_hold_calibration_and_resamples(fitted):
    diagnostics = fitted.result_.diagnostics
    assert (diagnostics["sampler"] == "gaussian").all()
    assert diagnostics.loc["group", ["pit_distance", "pit_p_value"]].isna().all()
    assert (diagnostics["n_resamples"] <= 39).all()
    assert diagnostics.loc["age", "n_resamples"] == 39
    assert set(fitted.result_.overlap) >= {"effective_rows_treated", "extreme_share", "auc"}


def test_progress_is_told_after_every_feature(data):
    calls = []
    quiet_fit(*data, **FAST | {"propensity": 0.5}, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(k, 5) for k in range(6)] * 2  # features are tested, then explained


def test_labels_of_treatment_reach_the_result(data):
    labels = np.where(data[2] == 1, "drug", "placebo")
    settings = {**FAST, "n_resamples": 9, "propensity": 0.5}
    result = quiet_fit(data[0], data[1], labels, **settings).result_
    assert (result.settings["control_label"], result.settings["treated_label"]) == ("placebo", "drug")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        turned = ModifierSelector(**settings).fit(data[0], data[1], treatment=labels, treated="placebo").result_
    assert turned.settings["treated_label"] == "placebo"
    np.testing.assert_allclose(turned.curve("age")["mean_effect"], -result.curve("age")["mean_effect"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0}, "alpha must lie strictly between 0 and 1"),
        ({"alpha": "0.05"}, "alpha must lie"),
        ({"cv": 1}, "cv must be an integer of at least 2"),
        ({"adjust": "fdr"}, "adjust must be one of"),
        ({"statistic": "mmd"}, "statistic must be one of .* or a statistic, not 'mmd'"),
        (
            {"statistic": GaussianSampler()},
            "not GaussianSampler, which has no method prepare",
        ),
        ({"statistic": EffectLikelihood("trees")}, "learner for a numeric outcome must be 'auto', .* not 'trees'"),
        ({"statistic": EffectLikelihood([])}, "learner must not be an empty list"),
        (
            {"statistic": EffectLikelihood(3)},
            "a name or have fit and predict; int has no fit and no predict",
        ),
        ({"statistic": EffectLikelihood(cv_repeats=0)}, "cv_repeats must be an integer of at least 1, not 0"),
        ({"statistic": EffectLikelihood(cv_repeats=1.0)}, "cv_repeats must be an integer of at least 1, not 1.0"),
        ({"statistic": EffectLikelihood(check_resamples=-1)}, "check_resamples must be an integer of at least 0"),
        ({"statistic": EffectLikelihood(check_resamples=True)}, "check_resamples must be an integer"),
        ({"outcome_transform": "sqrt"}, "outcome_transform must be None or 'log', not 'sqrt'"),
        ({"statistic": WCMMD("fast")}, "estimator must be one of"),
        ({"sampler": "none"}, "sampler must be one of"),
        ({"propensity": 2.0}, "strictly between 0 and 1"),
        ({"n_resamples": 0}, "n_resamples must be"),
        ({"random_state": -1}, "random_state must not be negative"),
        ({"random_state": "seed"}, "random_state must be an integer"),
        ({"test": ConditionalRandomizationTest(stop_after=0)}, "stop_after must be"),
    ],
)
def test_unusable_settings_are_refused(data, settings, message):
    with pytest.raises(ValueError, match=message):
        quiet_fit(*data, **{**FAST, **settings})


def test_fit_without_treatment_or_outcome_says_so(data):
    with pytest.raises(ValueError, match="treatment is required"):
        ModifierSelector().fit(data[0], data[1])
    with pytest.raises(ValueError, match="y is required"):
        ModifierSelector().fit(data[0], treatment=data[2])


@pytest.mark.parametrize("settings", [FAST, LIKELIHOOD], ids=["resampling", "analytic"])
def test_wide_range_column_is_tested_without_a_crash(data, settings):
    column = data[0]["age"].to_numpy().copy()
    column[3] = 1e18
    result = quiet_fit(data[0].assign(age=column), *data[1:], **settings | {"propensity": 0.5}).result_
    assert np.isfinite(result.table["importance"]).all()
    assert result.table["p_value"].between(0, 1).all()


def test_columns_that_are_functions_of_others_are_named_and_not_selected():
    rng = np.random.default_rng(0)
    weight, height = rng.normal(80, 15, 300), rng.normal(1.7, 0.1, 300)
    frame = pd.DataFrame({"kg": weight, "height": height, "bmi": weight / height**2})
    frame["level"] = np.exp(rng.normal(size=300))
    frame["log_level"] = np.log(frame["level"])
    frame["left"] = rng.choice(["yes", "no"], 300)
    frame["right"] = np.where(frame["left"] == "yes", "no", "yes")
    frame["free"] = rng.normal(size=300)
    treatment = rng.integers(0, 2, 300)
    y = np.where(treatment == 1, 3 * frame["free"] + weight / 5, 0.0) + rng.normal(size=300)
    selector = ModifierSelector(EffectLikelihood("linear"), propensity=0.5, random_state=0)
    with (
        pytest.warns(UserWarning, match="kg, height, bmi: almost determined"),
        pytest.warns(UserWarning, match="relabelling or units: level = log_level; left = right"),
    ):
        result = selector.fit(frame, y, treatment=treatment).result_
    assert result.selected == ["free"]
    assert (result.table["p_value"].drop("free") == 1.0).all()


def test_worker_warnings_reach_the_result_for_any_number_of_jobs(data):
    frame = data[0].assign(name=[f"id{i}" for i in range(240)])
    found = [quiet_fit(frame, *data[1:], **FAST | {"n_jobs": jobs}).result_.warnings for jobs in (1, 2)]
    assert found[0] == found[1]
    assert len(set(found[0])) == len(found[0])


def test_settings_take_numpy_numbers(data):
    settings = FAST | {"n_resamples": np.int64(39), "alpha": np.float64(0.1), "cv": np.int64(3)}
    settings_back = quiet_fit(*data, **settings).result_.settings
    assert (settings_back["n_resamples"], settings_back["alpha"], settings_back["cv"]) == (39, 0.1, 3)


def test_composite_classifier_is_seeded_too(data):
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = make_pipeline(StandardScaler(), MLPClassifier((5,), max_iter=20))
    first, second = (quiet_fit(*data, **FAST | {"propensity": network}).result_ for _ in range(2))
    assert first == second


def test_settings_of_the_other_statistic_are_refused_or_named():
    rng = np.random.default_rng(0)
    X, treatment = rng.normal(size=(60, 2)), np.arange(60) % 2
    y = rng.normal(size=60)
    linear = EffectLikelihood("linear")
    with pytest.warns(UserWarning, match="test= belongs to 'wcmmd'"):
        ModifierSelector(linear, test=ConditionalRandomizationTest(), random_state=0).fit(X, y, treatment=treatment)
    sampler = GaussianSampler(condition_on_treatment=False)
    with pytest.raises(ValueError, match="condition_on_treatment=True"):
        ModifierSelector(linear, sampler=sampler, random_state=0).fit(X, y, treatment=treatment)
    with pytest.raises(ValueError, match="learner for a binary outcome"):
        ModifierSelector(EffectLikelihood("boosting")).fit(X, y > 0, treatment=treatment)


def test_device_reaches_the_parts_given_by_name_and_only_those(data):
    pytest.importorskip("torch")
    settings = {**FAST, "n_resamples": 9, "device": "torch:cpu"}
    recorded = quiet_fit(*data, **settings).result_.settings
    assert recorded["device"] == recorded["statistic"]["device"] == "torch:cpu"
    recorded = quiet_fit(*data, **{**settings, "statistic": WCMMD()}).result_.settings
    assert (recorded["device"], recorded["statistic"]["device"]) == ("torch:cpu", "cpu")
    likelihood = resolve_statistic("effect_likelihood", "torch:cpu")
    learners = resolve_learners(likelihood.learner, "numeric", device=likelihood.device)
    assert learners["neural"].device == "torch:cpu"
    assert agreeing_sampler("cvae", likelihood, "torch:cpu").device == "torch:cpu"
    assert agreeing_sampler(CVAESampler(), likelihood, "torch:cpu").device == "cpu"
    assert agreeing_sampler("cvae", likelihood, None).device == "cpu"


def test_unknown_or_missing_devices_are_refused(data, monkeypatch):
    with pytest.raises(ValueError, match="device must be 'cpu', 'cuda' or"):
        quiet_fit(*data, **FAST, device="abacus")
    with pytest.raises(ValueError, match="device must be 'cpu', 'cuda' or"):
        quiet_fit(*data, **{**LIKELIHOOD, "statistic": EffectLikelihood(device="abacus")})
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no CUDA device"):
        quiet_fit(*data, **FAST, device="cuda")


def test_name_of_the_outcome_is_kept_for_axes(data):
    X, y, treatment = data
    named = quiet_fit(X, pd.Series(np.asarray(y), name="pressure"), treatment, **FAST).result_
    assert named.settings["outcome_name"] == "pressure"
    assert "outcome_name" not in quiet_fit(X, np.asarray(y), treatment, **FAST).result_.settings
    assert "mean effect on pressure" in named.plot.curve(named.table.index[0]).axes_[0].get_ylabel()


def test_names_of_outcome_and_treatment_are_kept_in_streamed_fits_and_of_si_em(data):
    X, y, treatment = data
    y, treatment = pd.Series(np.asarray(y), name="pressure"), pd.Series(np.asarray(treatment), name="smoker")
    kept = {"outcome_name": "pressure", "treatment_name": "smoker"}
    streamed = {**LIKELIHOOD, "max_train_rows": 200, "sampler": "gaussian"}
    assert kept.items() <= quiet_fit(X, y, treatment, **streamed).result_.settings.items()
    assert kept.items() <= SIEM(random_state=0).fit(X, y, treatment=treatment).result_.settings.items()
