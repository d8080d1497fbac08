"""Columns that look as if they were measured after the treatment, and stretches of features that have one arm only."""

import numpy as np
import pandas as pd
import pytest

from conftest import quiet_fit, seed_of
from modifind import EffectLikelihood, ModifierSelector
from modifind.data.balance import MIN_EXPECTED_ROWS, ArmSums, outside_along, rows_without_counterpart
from modifind.data.clusters import Clusters
from modifind.data.outcome import OutcomeRanks, baseline_names
from modifind.data.schema import read_features
from modifind.data.weights import Weights
from modifind.data.words import is_event_name
from modifind.engine.record import REVIEW_COLUMNS, review_columns
from modifind.nuisance.propensity.scores import OverlapSums, PropensityModel, overlap_of
from modifind.result.concerns import KINDS

LINEAR = EffectLikelihood("linear")


def kinds_that_failed(result):
    return sorted(set(result.checks.loc[~result.checks["passed"] & result.checks["validity"], "name"]))


# Randomised arms that differ.


def difference(table, feature, arms, chance=np.nan, clusters=None):
    """The difference between the arms of a treatment that every row had by the same chance."""
    n = arms.size
    sums = ArmSums(table, arms, np.full(n, chance), Weights.alike(n), Clusters.of(clusters, n))
    return sums.difference(feature)


def trial(n, seed):
    rng = np.random.default_rng(seed)
    arms = (rng.random(n) < 0.3).astype(np.int64)
    frame = pd.DataFrame({"age": rng.normal(size=n), "sex": rng.choice(["f", "m"], n)})
    frame["site"] = rng.choice(list("abcd"), n)
    return rng, arms, frame


def test_what_came_before_a_randomised_treatment_differs_by_chance_alone():
    p_values = []
    for seed in range(60):
        _, arms, frame = trial(200, seed)
        table = read_features(frame)
        p_values += [difference(table, m, arms, 0.3)[1] for m in range(3)]
    # 180 p-values that are at most uniform: 20 or more below 0.05 have a chance below 0.001.
    assert (np.array(p_values) <= 0.05).sum() < 20
    assert min(p_values) > 1e-5


@pytest.mark.parametrize("part", ["level", "spread", "share", "missing"])
def test_what_a_randomised_treatment_moves_is_seen(part):
    rng, arms, frame = trial(1000, 1)
    frame["after"] = {
        "level": rng.normal(size=1000) + 0.6 * arms,
        "spread": rng.normal(size=1000) * (1 + 1.2 * arms),
        "share": np.where(rng.random(1000) < 0.2 + 0.3 * arms, "yes", "no"),
        "missing": np.where(rng.random(1000) < 0.05 + 0.2 * arms, np.nan, rng.normal(size=1000)),
    }[part]
    table = read_features(frame, missing="category")
    size, p_value = difference(table, 3, arms, 0.3)
    assert abs(size) > 0.3
    assert p_value < 1e-7
    assert np.isnan(difference(table, 3, arms)).all()  # nothing is known of how the treatment was given


def test_clusters_that_were_treated_as_one_differ_by_chance():
    worst = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        clusters = np.repeat(np.arange(40), 25)
        arms = rng.permutation(np.arange(40) % 2)[clusters]
        table = read_features(pd.DataFrame({"score": rng.normal(size=40)[clusters] + 0.3 * rng.normal(size=1000)}))
        told = difference(table, 0, arms, 0.5, clusters)[1]
        untold = difference(table, 0, arms, 0.5)[1]
        worst.append((told, untold))
    told, untold = np.min(worst, axis=0)
    assert told > 1e-3
    assert untold < 1e-6


# What nearly is the outcome.


@pytest.mark.parametrize(
    ("column", "near"),
    [
        (lambda y, rng: y + 0.1 * rng.normal(size=y.size), True),
        (lambda y, rng: np.exp(y) + 0.01 * rng.normal(size=y.size), True),
        (lambda y, rng: np.where(y > 0.4, "responder", "none"), True),
        (lambda y, rng: np.digitize(y, [-0.5, 0.9]).astype(str), True),
        (lambda y, rng: y + 0.5 * rng.normal(size=y.size), False),  # measured before, correlation 0.9
        (lambda y, rng: rng.normal(size=y.size), False),
        (lambda y, rng: np.where(y + rng.normal(size=y.size) > 0, "high", "low"), False),
    ],
)
def test_columns_that_nearly_are_the_outcome(column, near):
    rng = np.random.default_rng(2)
    y, arms = rng.normal(size=800), rng.integers(0, 2, 800)
    table = read_features(pd.DataFrame({"x": column(y, rng)}))
    shared = OutcomeRanks.of(y, arms).shared(table, 0)
    assert (shared > 0.95) == near, shared


def test_a_threshold_of_a_column_as_outcome_and_noise_with_many_levels():
    rng = np.random.default_rng(3)
    x, arms = rng.normal(size=600), rng.integers(0, 2, 600)
    table = read_features(pd.DataFrame({"x": x, "town": [f"town {k}" for k in rng.integers(0, 40, 600)]}))
    assert OutcomeRanks.of((x > 0).astype(float), arms).shared(table, 0) > 0.95
    assert OutcomeRanks.of(rng.normal(size=600), arms).shared(table, 1) < 0.2


# An event beside its time.


FLAG_CAUTION = KINDS["event_flag"].caution


def survival(seed=4, n=600):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.normal(size=n), "smoker": rng.integers(0, 2, n)})
    event, end = rng.exponential(2 * np.exp(-0.3 * frame["smoker"])), rng.uniform(1, 3, n)
    return frame, np.minimum(event, end), (event < end).astype(int), rng.integers(0, 2, n)


@pytest.mark.parametrize(
    ("flag", "outcome", "seen"),
    [
        ("status", None, True),
        ("status", "rfstime", True),
        ("os_event", "months", True),
        ("x7", "survival_days", True),  # the outcome's name and the column's part in it
        ("x7", None, False),
        ("marital_status", None, False),
    ],
)
def test_flags_beside_times(flag, outcome, seen):
    frame, time, event, arms = survival()
    table = read_features(frame.assign(**{flag: event}))
    ranks = OutcomeRanks.of(time, arms, outcome)
    assert [ranks.flags_event(table, m) for m in range(3)] == [False, False, seen]
    assert not OutcomeRanks.of(time - 1.0, arms, outcome).flags_event(table, 2)  # no time is below zero
    assert OutcomeRanks.of(np.log(time), arms, outcome, positive=True).flags_event(table, 2) == seen


@pytest.mark.parametrize("name", ["prior_event", "family_death", "smoking_status", "cd4", "age", "eventual"])
def test_names_of_other_columns_are_no_event(name):
    assert not is_event_name(name)


# Stretches with one arm only.


def test_bins_without_a_counterpart_are_no_matter_of_chance():
    rng = np.random.default_rng(5)
    for _ in range(200):
        rows = np.stack([rng.poisson(15.0, 20), rng.poisson(15.0, 20)]).astype(float)
        assert not rows_without_counterpart(rows).any()
    few = np.array([[100.0, MIN_EXPECTED_ROWS - 1], [101.0, 0.0]])
    assert not rows_without_counterpart(few).any()


def test_rows_outside_are_counted_and_placed():
    rng = np.random.default_rng(6)
    income, arms = rng.normal(size=1000), rng.integers(0, 2, 1000)
    arms[income > 0.5] = 0
    town = np.where(rng.random(1000) < 0.3, "west", "east")
    arms[(town == "west") & (income < 0)] = 1
    arms[town == "west"] = np.where(income[town == "west"] > 0.5, 0, 1)
    gone = np.where(arms == 1, income, np.where(rng.random(1000) < 0.4, np.nan, income))
    table = read_features(pd.DataFrame({"income": income, "town": town, "gone": gone}), missing="category")
    found = outside_along(table, 0, arms, np.ones(1000))
    cut = income[arms == 0] > 0.5
    assert found.share == pytest.approx(cut.mean(), abs=0.06)
    assert "control rows (income above 0." in found.where
    assert "treated" not in found.where
    assert outside_along(table, 1, arms, np.ones(1000)).share == 0.0
    assert "gone is missing" in outside_along(table, 2, arms, np.ones(1000)).where
    light = np.where(income > 0.5, 0.01, 1.0)
    assert outside_along(table, 0, arms, light).share < 0.02


def test_sums_of_pieces_say_the_same_of_the_score():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(900, 3))
    arms = (rng.random(900) < 1 / (1 + np.exp(-4 * x[:, 0]))).astype(np.int64)
    fitted = PropensityModel().fit(read_features(x), arms, seed=seed_of(0))
    whole = overlap_of(fitted)
    assert whole["outside_share_control"] > 0.1
    assert whole["outside_overlap_share_control"] < 0.5 * whole["outside_share_control"]
    assert whole["overlap_rows_control"] > whole["effective_rows_control"]
    raw = fitted.raw[arms == 1]
    assert whole["overlap_rows_treated"] == pytest.approx((1 - raw).sum() ** 2 / ((1 - raw) ** 2).sum(), rel=0.02)
    parts = [slice(0, 500), slice(500, 900)]
    pieces = [
        OverlapSums.of(
            fitted.at(read_features(x[rows]), arms[rows], np.zeros(arms[rows].size, dtype=int), fitted.raw[rows])
        )
        for rows in parts
    ]
    assert (pieces[0] + pieces[1]).overlap(fitted) == pytest.approx(whole)


# The outcome before the treatment.


@pytest.mark.parametrize(
    ("name", "outcome", "seen"),
    [
        ("weight_0", "weight", True),
        ("bl_weight", "weight_12m", True),
        ("preWeight", "weight_post", True),
        ("height_0", "weight", False),
        ("weight", "weight", False),
        ("prenatal", "weight", False),
    ],
)
def test_a_baseline_value_is_known_by_its_name(name, outcome, seen):
    rng = np.random.default_rng(3)
    table = read_features({name: rng.normal(size=200), "age": rng.normal(size=200)})
    assert baseline_names(table, outcome) == [name] * seen


def test_a_trial_is_told_of_the_baseline_value_unless_it_is_adjusted_for():
    rng = np.random.default_rng(5)
    arms = rng.integers(0, 2, 300)
    frame = pd.DataFrame({"score_0": rng.normal(size=300), "age": rng.normal(size=300)})
    y = pd.Series(frame["score_0"] + arms + rng.normal(size=300), name="score")
    settings = {"statistic": LINEAR, "sampler": "gaussian", "random_state": 0, "explain": False}
    noted = quiet_fit(frame, y, arms, propensity=0.5, **settings).result_
    assert noted.ok
    assert noted.settings["baseline_outcome"] == ["score_0"]
    assert any(note.startswith("score_0 looks like the outcome before treatment.") for note in noted.notes)
    assert "baseline_outcome" not in quiet_fit(frame, y, arms, **settings).result_.settings  # no trial
    selector = ModifierSelector(propensity=0.5, **settings)
    adjusted = selector.fit(frame, y, treatment=arms, adjust_for=["score_0"]).result_
    assert "baseline_outcome" not in adjusted.settings


# Whole fits.


def test_fit_names_what_looks_measured_after_the_treatment():
    frame, time, event, arms = survival()
    frame = frame.assign(week20=frame["age"] + 0.8 * arms + np.random.default_rng(8).normal(size=600), status=event)
    settings = {"statistic": LINEAR, "sampler": "gaussian", "propensity": 0.5, "random_state": 0, "explain": False}
    good = quiet_fit(frame[["age", "smoker"]], time, arms, **settings).result_
    assert good.ok, good.cautions
    result = quiet_fit(frame, time, arms, **settings).result_
    assert not result.ok
    assert kinds_that_failed(result) == ["arms_differ", "event_flag"]
    assert result.table["caution"].tolist() == ["", "", "may have been measured after treatment", FLAG_CAUTION]
    assert set(REVIEW_COLUMNS) <= set(result.diagnostics.columns)
    grouped = quiet_fit(frame, time, arms, feature_groups={"later": ["week20", "smoker"]}, **settings).result_
    assert kinds_that_failed(grouped) == ["arms_differ", "event_flag"]
    assert grouped.table.loc["later", "caution"] == "may have been measured after treatment"


def test_fit_says_where_one_arm_has_no_rows_and_that_known_chances_do_not_fit():
    rng = np.random.default_rng(9)
    frame = pd.DataFrame(rng.normal(size=(600, 3)), columns=["deductible", "age", "bmi"])
    frame["deductible"] = np.where(frame["deductible"] < 0, 0.0, frame["deductible"])
    arms = np.where(frame["deductible"] > 0, 0, rng.integers(0, 4, 600) > 0).astype(int)
    y = frame["age"] + arms + rng.normal(size=600)
    settings = {"statistic": LINEAR, "sampler": "gaussian", "random_state": 0, "explain": False}
    result = quiet_fit(frame, y, arms, **settings).result_
    assert "support_along" in kinds_that_failed(result)
    (text,) = [text for text in result.cautions if "control rows (deductible above 0." in text]
    assert "population='overlap'" in text
    coin = rng.integers(0, 2, 600)
    told = quiet_fit(frame[["age", "bmi"]], y, coin, propensity=0.7, **settings).result_
    assert kinds_that_failed(told) == ["known_share"]


@pytest.mark.parametrize("settings", [{}, {"max_train_rows": 500}])
def test_sites_without_a_control_are_named_though_they_are_pooled(settings):
    rng = np.random.default_rng(12)
    site = rng.integers(0, 5, 900)
    frame = pd.DataFrame({"age": rng.normal(size=900), "site": [f"site {k}" for k in site]})
    arms = np.where(site >= 3, 1, rng.integers(0, 2, 900))
    y = frame["age"] + arms + rng.normal(size=900)
    own = {"statistic": LINEAR, "sampler": "gaussian", "random_state": 0, "explain": False}
    result = quiet_fit(frame, y, arms, **own, **settings).result_
    assert "support_along" in kinds_that_failed(result)
    assert any("treated rows (site is site 3, site 4) have hardly" in text for text in result.cautions)


def test_streamed_tables_have_the_same_checks_of_columns():
    rng = np.random.default_rng(10)
    n = 1200
    frame = pd.DataFrame({"age": rng.normal(size=n)})
    arms = rng.integers(0, 2, n)
    frame["later"] = rng.normal(size=n) + arms
    y = frame["age"] + rng.normal(size=n)
    settings = {"statistic": LINEAR, "sampler": "gaussian", "propensity": 0.5, "random_state": 0, "explain": False}
    selector = ModifierSelector(max_train_rows=600, **settings)
    with pytest.warns(UserWarning, match="later"):
        result = selector.fit(frame, y, arms, features=["age", "later"]).result_
    assert result.settings["n_train_rows"] < n
    assert kinds_that_failed(result) == ["arms_differ"]


def test_review_has_a_row_per_column():
    rng = np.random.default_rng(11)
    table, arms = read_features(rng.normal(size=(200, 2))), rng.integers(0, 2, 200)
    fitted = PropensityModel(0.5).fit(table, arms)
    found = review_columns(fitted, rng.normal(size=200), randomised=True)
    assert found.index.tolist() == list(table.names)
    assert found.columns.tolist() == list(REVIEW_COLUMNS)
