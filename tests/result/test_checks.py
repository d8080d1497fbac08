"""Checks at the end of a fit: thresholds, texts, cautions, the command line and the report."""

import sys
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr
from scipy.stats import kstest

from conftest import quiet_fit, seed_of
from modifind import EffectLikelihood, ModifierSelector, SelectionResult
from modifind.baselines import SIEM
from modifind.cli.app import main
from modifind.data.schema import read_features
from modifind.datasets import make_modifiers
from modifind.nuisance.conditional import BoostingSampler, GaussianSampler
from modifind.nuisance.conditional.contract import tie_cells, uniformity
from modifind.nuisance.outcome.contract import marginal_log_likelihood
from modifind.nuisance.propensity.scores import OverlapSums, PropensityModel, overlap_of
from modifind.report import checks_by_kind
from modifind.result.checks import as_frame, run_checks
from modifind.result.concerns import KINDS, Check, cautions, concerns, summary
from modifind.statistics.families import Bernoulli, StudentT

LINEAR = EffectLikelihood("linear")
OVERLAP = {
    **{f"effective_rows_{arm}": 480.0 for arm in ("treated", "control")},
    **{f"effective_share_{arm}": 0.96 for arm in ("treated", "control")},
    **{f"max_weight_share_{arm}": 0.004 for arm in ("treated", "control")},
    **{f"overlap_rows_{arm}": 490.0 for arm in ("treated", "control")},
    **{f"outside_share_{arm}": 0.0 for arm in ("treated", "control")},
    **{f"outside_overlap_share_{arm}": 0.0 for arm in ("treated", "control")},
    **{"treated_share": 0.5, "expected_share": 0.5, "share_z": 0.0},
    "extreme_share": 0.0,
    "n_clipped": 0.0,
    "auc": 0.6,
}
SETTINGS = {
    "n_rows": 1000,
    "n_treated": 500,
    "n_control": 500,
    "propensity_clip": [0.01, 0.99],
    "alpha": 0.05,
    "adjust": "none",
    "n_resamples_used": 0,
    "n_resamples_needed": 0,
    "model": {"gain_over_marginal": 0.2},
}
DIAGNOSTICS = {
    **{"outside_share": 0.0, "outside_where": "", "arm_difference": np.nan, "arm_p_value": np.nan},
    **{"outcome_share": 0.2, "event_flag": 0.0},
    "sampler": "gaussian",
    "pit_distance": 0.02,
    "pit_p_value": 0.4,
    "log_score_gain": 0.1,
    "normal_p_value": 0.01,
    "direct_p_value": np.nan,
    "check_p_value": np.nan,
    "n_resamples": 0,
    "n_exceeding": 0,
}


FEW = {"rows": 500, "events": 2, "usual": 0.0, "binary": True}


def gained(kind, gain, held_out):
    """What is recorded of a model of an outcome of some kind."""
    model = {"gain_over_marginal": gain, "held_out_log_likelihood": {"linear": held_out}}
    return {"model": model, "outcome_kind": kind}


def checked(*, p_value=0.01, overlap=(), settings=(), diagnostics=(), untestable=()):
    """Checks of a table with one feature that is fine but for what is given."""
    table = pd.DataFrame({"p_value": [p_value], "selected": [p_value <= 0.05]}, index=["age"])
    found = pd.DataFrame(
        [DIAGNOSTICS | {"likelihood_p_value": p_value, "checked_p_value": p_value} | dict(diagnostics)], index=["age"]
    )
    return run_checks(table, found, OVERLAP | dict(overlap), SETTINGS | dict(settings), dict(untestable))


def failures(**what):
    checks = checked(**what)
    return sorted(set(checks.loc[~checks["passed"], "name"]))


def test_good_fit_passes_everything_and_says_what_was_found():
    checks = checked()
    assert checks["passed"].all()
    assert (checks["text"].str.len() > 20).all()
    assert set(checks["name"]) <= set(KINDS)
    assert checks.loc[checks["name"] == "conditional_fit", "feature"].tolist() == ["age"]
    assert checks.loc[checks["name"] == "arm_size", "feature"].tolist() == [None, None]
    assert concerns(checks) == []
    assert summary(checks) == f"All {checks.loc[checks['validity'], 'name'].nunique()} checks passed"
    assert not checks.loc[checks["name"] == "arm_size", "validity"].any()
    assert (checks["remedy"] == "").all()


@pytest.mark.parametrize(
    ("what", "name", "words"),
    [
        ({"overlap": {"effective_share_control": 0.03, "effective_rows_control": 15.0}}, "effective_rows", "15 rows"),
        ({"overlap": {"max_weight_share_treated": 0.4}}, "largest_weight", "40.0% of the weight of the treated arm"),
        ({"overlap": {"n_clipped": 120.0}}, "clipped_scores", r"120 of 1000 propensity scores were outside \[0.01"),
        ({"overlap": {"outside_share_control": 0.8}}, "common_support", "80% of the rows of the control arm lie where"),
        (
            {"diagnostics": {"outside_share": 0.3, "outside_where": "150 of 500 treated rows (age above 70)"}},
            "support_along",
            r"150 of 500 treated rows \(age above 70\) have hardly any counterparts in the other arm",
        ),
        (
            {
                "settings": {"propensity_known": True},
                "overlap": {"treated_share": 0.5, "expected_share": 0.4, "share_z": 6.5},
            },
            "known_share",
            "50.0% of the rows are treated; the known probability of treatment implies 40.0%",
        ),
        ({"settings": {"propensity_known": True, "propensity_r2": 0.4}}, "known_scores", "explain 40% of"),
        (
            {"diagnostics": {"arm_difference": -0.4, "arm_p_value": 1e-9}},
            "arms_differ",
            "The arms differ in age by 0.40 standard deviations .* looks as if it was measured afterwards",
        ),
        ({"diagnostics": {"outcome_share": 0.98}}, "near_outcome", "age nearly determines the outcome"),
        (
            {
                "settings": {
                    "outcome_parts": {"columns": ["pre", "post"], "share": 0.995, "how": "sums and differences"}
                }
            },
            "outcome_parts",
            r"pre, post together give the outcome by sums and differences \(99.50% of its variance\)",
        ),
        ({"settings": {"model": {"gain_over_marginal": 7.0}}}, "outcome_given", "better by 7.0 nats per row"),
        ({"settings": gained("binary", 0.6, -0.05)}, "outcome_given", "explains 92% of what can be predicted"),
        ({"settings": {"few_events": {"treated": FEW}}}, "few_events", "2 rows of 500 in the treated arm have"),
        (
            {"settings": {"few_events": {"control": FEW | {"events": 0, "binary": False}}}},
            "constant_arm",
            "The outcome is constant",
        ),
        ({"diagnostics": {"event_flag": 1.0}}, "event_flag", "age looks like the event indicator that belongs"),
        ({"settings": {"n_treated": 20}}, "arm_size", "treated arm has 20 rows"),
        ({"settings": {"model": {"gain_over_marginal": -0.3}}}, "outcome_model", "0.300 nats per row worse"),
        (
            {"settings": {"model": None, "n_resamples_used": 39, "n_resamples_needed": 599}},
            "resamples",
            "n_resamples=39 cannot yield a single discovery among 1 feature at alpha=0.05; use at least 599",
        ),
        ({"untestable": {"age": "constant"}}, "constant", "constant columns cannot modify anything: age"),
        ({"untestable": {"age": "determined"}}, "determined", "age: almost determined by the other features"),
        (
            {"diagnostics": {"pit_distance": 0.08, "pit_p_value": 1e-6}},
            "conditional_fit",
            r"1 feature \(age\): the estimated",
        ),
        (
            {"diagnostics": {"log_score_gain": -2.0}},
            "conditional_gain",
            "worse than the feature's marginal distribution",
        ),
        ({"diagnostics": {"normal_p_value": 0.2}}, "tail", "lead to different decisions"),
        (
            {"diagnostics": {"check_p_value": 101 / 1001, "n_resamples": 1000, "n_exceeding": 100}},
            "resampled_p",
            "differ by more than chance",
        ),
    ],
)
def test_each_departure_fails_its_own_check_and_says_so(what, name, words):
    assert failures(**what) == [name]
    checks = checked(**what)
    (message,) = concerns(checks)
    assert pd.Series([message]).str.contains(words).all(), message
    failed = checks[~checks["passed"]]
    assert (failed["text"].str.len() > 40).all()
    assert (failed["remedy"] == KINDS[name].remedy).all()
    assert cautions(checks, ["age"]) == [KINDS[name].caution if failed["feature"].notna().all() else ""]
    assert concerns(checks, validity=KINDS[name].validity) == [message]
    assert concerns(checks, validity=not KINDS[name].validity) == []


@pytest.mark.parametrize(
    "what",
    [
        {"diagnostics": {"pit_distance": 0.01, "pit_p_value": 1e-30}},  # 100,000 rows: significant and harmless
        {"diagnostics": {"pit_distance": 0.1, "pit_p_value": 0.2}},  # few rows: chance
        {"diagnostics": {"pit_distance": np.nan, "pit_p_value": np.nan, "log_score_gain": np.nan}},  # no sampler
        {"settings": {"model": {"gain_over_marginal": 1.5}}},  # 95% of the variance
        {"settings": gained("count", 3.0, -2.0)},  # large counts
        {"settings": gained("binary", 0.45, -0.2)},
        {"settings": {"model": {"gain_over_marginal": -0.02}}},  # nothing to be found
        {"diagnostics": {"normal_p_value": 1e-12}, "p_value": 1e-9},  # both tails decide alike
        {"diagnostics": {"normal_p_value": 0.051}, "p_value": 0.049},  # a decision on the edge, tails agree
        {"diagnostics": {"check_p_value": 12 / 1001, "n_resamples": 1000, "n_exceeding": 11}},
        {"diagnostics": {"check_p_value": 1 / 201, "n_resamples": 200, "n_exceeding": 0}, "p_value": 1e-20},
        {"overlap": {"n_clipped": 30.0}},
        {"overlap": {"extreme_share": 1.0}},  # a trial with few treated
        {"overlap": {"share_z": 9.0, "expected_share": 0.4}},  # estimated scores: nothing is known
        {"settings": {"propensity_known": True}, "overlap": {"share_z": 5.0, "expected_share": 0.49}},  # a million rows
        {"settings": {"propensity_known": True}, "overlap": {"share_z": 2.0, "expected_share": 0.4}},  # chance
        {"diagnostics": {"arm_difference": 0.3, "arm_p_value": 0.01}},  # chance
        {"diagnostics": {"arm_difference": 0.02, "arm_p_value": 1e-9}},  # a million rows
        {"p_value": np.nan},
    ],
)
def test_what_does_not_matter_passes(what):
    assert failures(**what) == []


def test_small_arms_may_have_larger_weights_but_not_any():
    small = {"settings": {"n_treated": 150, "n_control": 150}}
    assert failures(overlap={"max_weight_share_treated": 0.2}) == ["largest_weight"]
    assert failures(overlap={"max_weight_share_treated": 0.2}, **small) == []
    assert failures(overlap={"max_weight_share_treated": 0.6}, **small) == ["largest_weight"]


def test_many_features_of_a_kind_are_one_message_with_a_count():
    found = as_frame([Check("conditional_fit", f"x{k}", 0.2, 0.05, False, "") for k in range(15)])
    (message,) = concerns(found)
    assert message.startswith("15 features (x0, x1,")
    assert "x11 and 3 more)" in message
    assert cautions(found, ["other", *found["feature"]]) == ["", *["its conditional distribution fits poorly"] * 15]


def test_remedies_name_the_overlap_population_where_it_is_not_taken_already():
    outside = {"diagnostics": {"outside_share": 0.3, "outside_where": "150 of 500 treated rows (age above 70)"}}
    (every,) = concerns(checked(**outside))
    (overlap,) = concerns(checked(**outside, settings={"population": "overlap"}))
    assert "population='overlap'" in every
    assert "population='overlap'" not in overlap
    assert "pass a model that detects it" in overlap


# The PIT of columns with ties.


def test_cells_of_values_that_rows_share():
    np.testing.assert_array_equal(tie_cells(np.array([0.0, 0.0, 2.0])), [[-1, 1], [-1, 1], [2, 2]])
    np.testing.assert_array_equal(tie_cells(np.array([3.0, 1.0])), [[3, 3], [1, 1]])
    np.testing.assert_array_equal(tie_cells(np.full(4, 7.0)), np.full((4, 2), 7.0))


def test_distance_is_that_of_the_mean_distribution_function():
    rng = np.random.default_rng(0)
    pit = np.sort(rng.random((60, 2)), axis=1)
    pit[:25, 1] = pit[:25, 0]
    points = np.concatenate((np.linspace(0, 1, 100_001), pit[:25, 0], pit[:25, 0] - 1e-12))
    wide = np.clip((points - pit[25:, :1]) / (pit[25:, 1:] - pit[25:, :1]), 0, 1).sum(axis=0)
    mean = (wide + (points >= pit[:25, :1]).sum(axis=0)) / 60
    assert uniformity(pit)[0] == pytest.approx(np.abs(mean - points).max(), abs=1e-5)


def test_without_ties_the_distance_is_the_usual_one():
    pit = np.random.default_rng(1).random(80)
    usual = kstest(pit, "uniform")
    assert uniformity(np.column_stack((pit, pit))) == (usual.statistic, usual.pvalue)


@pytest.mark.parametrize("spread", [12.0, 3.0, 1.0])
def test_whole_years_of_a_right_distribution_raise_no_alarm_and_of_a_wrong_one_do(spread):
    x = np.round(np.random.default_rng(2).normal(0, spread, 5000))
    assert uniformity(ndtr(tie_cells(x) / np.hypot(spread, 0.29)))[0] < 0.03
    assert uniformity(ndtr((tie_cells(x) - 0.4 * spread) / spread))[0] > 0.1


def test_zero_inflated_column_fits_the_distribution_that_knows_its_zeros_only():
    rng = np.random.default_rng(3)
    n = 800
    other = rng.normal(size=n)
    packs = np.where(other + rng.normal(size=n) < 0.3, 0.0, np.exp(rng.normal(size=n)))
    table = read_features(pd.DataFrame({"packs": packs, "other": other}))
    treatment = rng.integers(0, 2, n)
    right = BoostingSampler().fit(table, treatment, seed_of(0)).conditional(0).calibration
    wrong = GaussianSampler().fit(table, treatment, seed_of(0)).conditional(0).calibration
    assert right.pit_distance < 0.04 < 0.15 < wrong.pit_distance
    assert wrong.pit_p_value < 1e-6 < right.pit_p_value


# The other parts.


def test_largest_weight_is_the_same_in_pieces():
    data = make_modifiers("LinMean", n_samples=300, n_features=5, random_state=0)
    fitted = PropensityModel().fit(read_features(data.X), data.treatment, seed=seed_of(0))
    weights = 1 / fitted.scores[data.treatment == 1]
    assert overlap_of(fitted)["max_weight_share_treated"] == pytest.approx(weights.max() / weights.sum())
    halves = [
        replace(fitted, raw=fitted.raw[rows], treatment=fitted.treatment[rows], weights=fitted.weights[rows])
        for rows in (slice(0, 130), slice(130, None))
    ]
    joined = (OverlapSums.of(halves[0]) + OverlapSums.of(halves[1])).overlap(fitted)
    assert joined == pytest.approx(overlap_of(fitted))


def test_marginal_likelihood_is_held_out_and_by_arm():
    rng = np.random.default_rng(4)
    a, folds = np.tile([0, 1], 1000), np.repeat(np.arange(4), 500)
    y = np.where(a == 1, 5.0 + 2.0 * rng.normal(size=2000), rng.normal(size=2000))
    found = marginal_log_likelihood(y, a, folds, family=StudentT())
    entropy = 0.5 * np.log(2 * np.pi * np.e)
    assert found[a == 0].mean() == pytest.approx(-entropy, abs=0.08)
    assert found[a == 1].mean() == pytest.approx(-entropy - np.log(2), abs=0.08)
    moved = y.copy()
    moved[folds == 0] += 100.0
    assert marginal_log_likelihood(moved, a, folds, family=StudentT())[folds == 0].mean() < -20
    rare = (rng.random(2000) < 0.1).astype(float)
    expected = 0.1 * np.log(0.1) + 0.9 * np.log(0.9)
    assert marginal_log_likelihood(rare, a, folds, family=Bernoulli()).mean() == pytest.approx(expected, abs=0.03)
    assert np.isfinite(marginal_log_likelihood(np.where(a == 1, y, 3.0), a, folds, family=StudentT())).all()


@pytest.fixture(scope="module")
def skewed():
    """A gaussian distribution of a skewed column, a constant one and its twin beside good ones."""
    rng = np.random.default_rng(5)
    n = 600
    frame = pd.DataFrame({"age": rng.normal(size=n), "crp": np.exp(1.5 * rng.normal(size=n)), "flat": 1.0})
    frame["years"] = frame["age"] * 2
    a = rng.integers(0, 2, n)
    return frame, a * frame["crp"].rank() / n + rng.normal(size=n), a


def test_fit_warns_once_per_kind_and_the_result_carries_it(skewed, tmp_path):
    frame, y, a = skewed
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = ModifierSelector(LINEAR, sampler="gaussian", random_state=0).fit(frame, y, treatment=a).result_
    messages = [str(w.message) for w in caught if w.category is UserWarning]
    assert messages == list(result.warnings)
    twins, *others = messages
    assert twins.startswith("identical, or nearly so, up to relabelling or units: age = years.")
    assert others == concerns(result.checks, frozenset(["age", "years"]))
    assert sum("crp" in message for message in messages) <= 2
    assert result.table["caution"].tolist() == [
        "determined by other features",
        result.table.loc["crp", "caution"],
        "constant",
        "determined by other features",
    ]
    assert "its conditional distribution fits poorly" in result.table.loc["crp", "caution"]
    assert not result.ok
    result.to_json(tmp_path / "r.json")
    again = SelectionResult.from_json(tmp_path / "r.json")
    assert again == result
    pd.testing.assert_frame_equal(again.checks, result.checks, check_index_type=False)
    kinds = checks_by_kind(result)
    assert [kind["state"] for kind in kinds[:2]] == ["failed", "failed"]
    assert [kind["validity"] for kind in kinds] == sorted((kind["validity"] for kind in kinds), reverse=True)
    result.report(tmp_path / "r.html")
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert 'id="all-checks"' in html
    assert "failed: </span>conditional distribution of the feature" in html
    assert "passed: </span>size of the arms" in html
    assert html.count("constant columns cannot modify anything: flat") == 1
    assert "note: </span>constant features" in html
    assert result.cautions
    assert all("crp" in caution for caution in result.cautions)
    assert twins in result.notes
    assert html.index(result.cautions[0].split(".")[0]) < html.index(">Notes<") < html.index("cannot modify")


def test_results_without_checks_still_load_and_report(skewed, tmp_path):
    frame, y, a = skewed
    result = quiet_fit(frame[["age"]], y, a, statistic=LINEAR, sampler="gaussian", random_state=0).result_
    assert result.ok
    old = result.to_dict()
    del old["checks"]
    del old["table"]["columns"]["caution"], old["table"]["types"]["caution"]
    loaded = SelectionResult.from_dict(old)
    assert loaded.ok
    assert len(loaded.checks) == 0
    loaded.report(tmp_path / "old.html")
    assert 'id="all-checks"' not in (tmp_path / "old.html").read_text(encoding="utf-8")


def test_baseline_has_the_checks_that_concern_it(skewed):
    frame, y, a = skewed
    with pytest.warns(UserWarning, match="constant columns cannot modify anything: flat"):
        result = SIEM(np.zeros(len(y)), propensity=0.5, random_state=0).fit(frame.iloc[:, :3], y, treatment=a).result_
    assert set(result.checks["name"]) == {
        *("effective_rows", "largest_weight", "clipped_scores", "common_support", "arm_size", "constant"),
        *("known_share", "known_scores"),
    }
    assert result.table["caution"].tolist() == ["", "", "constant"]


def test_resampled_p_values_of_a_fit_agree_with_its_tail(skewed):
    frame, y, a = skewed
    statistic = EffectLikelihood("linear", check_resamples=400)
    checks = quiet_fit(frame[["age", "crp"]], y, a, statistic=statistic, sampler="gaussian", random_state=0).result_
    compared = checks.checks[checks.checks["name"] == "resampled_p"]
    assert compared["feature"].tolist() == ["age", "crp"]
    assert compared["passed"].all()


def test_strict_runs_end_with_code_3_and_write_the_result(skewed, tmp_path, monkeypatch, capsys):
    def modifind(*arguments):
        monkeypatch.setattr(sys, "argv", ["modifind", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, capsys.readouterr()

    monkeypatch.chdir(tmp_path)
    frame, y, a = skewed
    good = frame[["age"]].assign(arm=a, y=y)
    good.to_csv(tmp_path / "good.csv", index=False)
    good.assign(flat=1.0).to_csv(tmp_path / "flat.csv", index=False)
    good.to_csv(tmp_path / "index.csv")
    own = ("--treatment", "arm", "--outcome", "y", "--learner", "linear", "--propensity", "0.5", "--strict")
    code, said = modifind("select", "good.csv", *own)
    assert code == 0, said.err
    assert said.out.splitlines()[-1].startswith("checks: all ")
    code, said = modifind("select", "flat.csv", *own)
    assert code == 0, said.err  # a note
    assert said.out.splitlines()[-2].endswith("checks passed; 1 note")
    assert said.out.splitlines()[-1] == "  note: constant columns cannot modify anything: flat"
    assert "constant" not in said.err
    good.assign(later=y + 0.2 * np.random.default_rng(9).normal(size=len(y))).to_csv(
        tmp_path / "later.csv", index=False
    )
    code, said = modifind("select", "later.csv", *own, "--features", "age,later", "--out", "later.json")
    assert code == 3
    (line,) = [line for line in said.out.splitlines() if line.startswith("  caution: later nearly determines")]
    assert "nearly determines" not in said.err
    assert said.err.splitlines()[-1].startswith("modifind: --strict: ")
    saved = SelectionResult.from_json(tmp_path / "later.json")
    assert not saved.ok
    assert line.removeprefix("  caution: ") in saved.cautions
    code, said = modifind("select", "index.csv", *own)
    assert code == 0
    assert "modifind: warning: the first column has no name" in said.err
