"""What a feature changes: three p-values that mean what they say, adjusted, saved and put into words."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from conftest import four_sd, logistic_treatment, quiet_fit, runs
from modifind import EffectLikelihood, ModifierSelector, SelectionResult
from modifind.data.schema import read_features
from modifind.datasets import make_modifiers
from modifind.engine.features import SIGN
from modifind.engine.findings import UNTESTED, Finding
from modifind.engine.sums import Changes, outcome_of
from modifind.explain.verdict import ShownColumn, verdict
from modifind.inference import adjust_p_values
from modifind.inference.direct_sums import DirectSums
from modifind.result.files import decode, encode
from modifind.result.selection_result import CHANGE_COLUMNS, PARTS
from modifind.statistics import Nuisances
from modifind.statistics.row_terms import MEAN, SPREAD, WHOLE
from prepared import feature_changes, feature_sums, feature_test

QUICK = {
    "statistic": EffectLikelihood("linear"),
    "sampler": "gaussian",
    "propensity": 0.5,
    "random_state": 0,
    "explain": True,
}
LEVEL = 0.05
RUNS = runs(80, 30)


class Believes:
    """A model that is told what to think of the first column.

    Slopes of the arms' difference in location and in log-scale, and of what both arms share.
    """

    def __init__(self, effect=0.0, log_scale=0.0, both=0.0, both_log_scale=0.0):
        self.effect, self.log_scale, self.both, self.both_log_scale = effect, log_scale, both, both_log_scale

    def fit(self, X, a, y, sample_weight=None):
        return self

    def predict(self, X):
        x = X[:, 0]
        location = np.stack((self.both * x, (self.both + self.effect) * x), axis=1)
        return location, np.exp(np.outer(x, [self.both_log_scale, self.both_log_scale + self.log_scale]))


class SeesTheFirst(Believes):
    """One that says which column it looks at."""

    def looks_at(self, columns):
        return columns.start == 0


class Uniform:
    """The distribution of columns that are uniform on [-1, 1] and independent of all else."""

    def at(self, rows):
        points = (np.arange(40) + 0.5) / 20 - 1
        return np.tile(points, (len(rows), 1)), np.full((len(rows), 40), 1 / 40)


def believing(y, x, treatment, model, **settings):
    """Prepared with a column whose design is the column itself."""
    table = replace(read_features(x[:, None], []), reference=(np.zeros(1), np.ones(1)))
    folds = np.arange(y.size) % 5
    return EffectLikelihood(model).prepare(
        Nuisances(table, y, treatment, np.full(y.size, 0.5), np.random.SeedSequence(0), (folds,), **settings)
    )


def skewed(rng, size):
    return rng.gamma(2.0, size=size) / np.sqrt(2) - np.sqrt(2)


def simulated_shares(noise, model, n_runs=RUNS, n=250):
    """How often each p-value is at most 0.05; `noise` is drawn given the column and the arm."""
    found = []
    for seed in range(n_runs):
        rng = np.random.default_rng(seed)
        x, treatment = rng.uniform(-1, 1, size=n), rng.integers(0, 2, size=n)
        prepared = believing(noise(rng, x, treatment), x, treatment, model)
        p = feature_changes(prepared, 0, Uniform())
        found.append([p.mean, p.spread, p.shape])
    return dict(zip(PARTS, (np.array(found) <= LEVEL).mean(axis=0), strict=True))


@pytest.fixture(scope="module")
def linear_variance():
    data = make_modifiers("LinVar", n_samples=500, n_features=7, random_state=0)
    X = data.X.assign(flat=1.0)
    settings = QUICK | {"feature_groups": {"first two": ["X1", "X2"]}}
    return quiet_fit(X, data.y, data.treatment, features=list(X), **settings).result_


@pytest.fixture(scope="module")
def linear_mean():
    data = make_modifiers("LinMean", n_samples=500, n_features=6, random_state=1)
    return quiet_fit(data.X, data.y, data.treatment, **QUICK | {"propensity": data.propensity}).result_


def test_modifiers_of_the_mean_change_the_mean_and_nothing_else(linear_mean):
    changes = linear_mean.changes.loc[["X1", "X2", "X3", "X4", "X5"]]
    assert (changes["mean_adjusted"] < 0.001).all()
    assert (changes[["spread_adjusted", "shape_adjusted"]] > 0.05).all(axis=None)
    assert linear_mean.changes.loc["X6", "verdict"] == "No change found."
    assert changes.loc["X1", "verdict"].startswith("Changes the average: the effect rises from -")


def test_modifiers_of_the_variance_change_the_spread_and_nothing_else(linear_variance):
    changes = linear_variance.changes.loc[linear_variance.selected]
    assert {"first two", "X4", "X5"} <= set(changes.index) <= {"first two", "X3", "X4", "X5"}
    assert (changes["spread_adjusted"] < 0.05).all()
    assert (changes[["mean_adjusted", "shape_adjusted"]] > 0.05).all(axis=None)
    assert changes.loc["first two", "verdict"].startswith("Changes the spread: along X1 the ratio of")


def test_adjustment_is_over_all_features_and_counts_what_is_not_tested_as_one(linear_variance):
    changes = linear_variance.changes
    assert list(changes.columns) == list(CHANGE_COLUMNS)
    assert changes.index.equals(linear_variance.table.index)
    assert changes.loc["flat", "verdict"] == "Not tested."
    assert changes.loc["flat"].drop("verdict").isna().all()
    for part in PARTS:
        expected = adjust_p_values(changes[f"{part}_p"].fillna(1.0), "bh")
        expected[changes.index == "flat"] = np.nan
        assert_array_equal(changes[f"{part}_adjusted"], expected)


def test_results_keep_changes_on_file(linear_variance, tmp_path):
    linear_variance.to_json(tmp_path / "result.json")
    assert SelectionResult.from_json(tmp_path / "result.json") == linear_variance


def test_parts_follow_the_feature_one_at_a_time():
    rng = np.random.default_rng(0)
    x, treatment = rng.uniform(-1, 1, size=80), rng.integers(0, 2, size=80)
    y = rng.normal(size=80)
    # What moves both arms is there all the time, and is no part of what is tested.
    for model, follows in ((Believes(0.7, 0.0, 0.3, 0.4), 1), (Believes(0.0, 0.7, 0.3, 0.4), 2)):
        found, weights = believing(y, x, treatment, model).row_terms(0, Uniform(), WHOLE, MEAN, SPREAD)
        still = found[3 - follows]
        assert_allclose(still.values, 0.0, atol=1e-15)
        assert_allclose(still.observed, 0.0, atol=1e-15)
        assert_allclose(found[0].values, found[follows].values, rtol=1e-12, atol=1e-15)
        assert_allclose(found[0].observed, found[follows].observed, rtol=1e-12, atol=1e-15)
        assert found[follows].values.std() > 0
        assert_allclose(weights.sum(axis=1), 1.0)


def test_main_test_is_the_same_with_and_without_explanations(linear_mean):
    data = make_modifiers("LinMean", n_samples=500, n_features=6, random_state=1)
    plain = quiet_fit(
        data.X, data.y, data.treatment, **QUICK | {"explain": False, "propensity": data.propensity}
    ).result_
    pd.testing.assert_frame_equal(plain.table.drop(columns="importance"), linear_mean.table.drop(columns="importance"))
    assert plain.changes.empty
    assert list(plain.changes.columns) == list(CHANGE_COLUMNS)


# Each p-value keeps its level where what it is about does not change, whatever else does.


@pytest.mark.study
def test_mean_keeps_its_level_where_only_the_spread_changes():
    shares = simulated_shares(
        lambda rng, x, a: np.exp(0.6 * x * a) * rng.normal(size=x.size), Believes(effect=0.2, log_scale=0.3)
    )
    assert shares["mean"] <= LEVEL + four_sd(LEVEL, RUNS)
    assert shares["spread"] > 0.5


@pytest.mark.study
def test_spread_keeps_its_level_where_only_the_mean_changes():
    shares = simulated_shares(lambda rng, x, a: a * x + rng.normal(size=x.size), Believes(effect=1.0, log_scale=0.2))
    assert shares["spread"] <= LEVEL + four_sd(LEVEL, RUNS)
    assert shares["mean"] > 0.9


@pytest.mark.study
@pytest.mark.parametrize("distribution", ["normal", "skewed", "t3"])
def test_mean_and_spread_keep_their_level_where_both_arms_widen_alike(distribution):
    def noise(rng, x, a):
        own = {"normal": rng.normal(size=x.size), "skewed": skewed(rng, x.size), "t3": rng.standard_t(3, x.size)}[
            distribution
        ]
        return x + np.exp(0.8 * x) * own

    shares = simulated_shares(noise, Believes(effect=0.2, log_scale=0.2, both=0.8, both_log_scale=0.6))
    assert max(shares["mean"], shares["spread"]) <= LEVEL + four_sd(LEVEL, RUNS)


@pytest.mark.study
@pytest.mark.parametrize("distribution", ["normal", "skewed", "t3"])
def test_shape_keeps_its_level_where_location_and_scale_are_somewhat_wrong(distribution):
    def noise(rng, x, a):
        own = {"normal": rng.normal(size=x.size), "skewed": skewed(rng, x.size), "t3": rng.standard_t(3, x.size)}[
            distribution
        ]
        return (0.3 + a) * x + np.exp(0.3 * x) * own

    n_runs = runs(80, 60)  # of fewer, none at all may be small
    shares = simulated_shares(noise, Believes(effect=0.8, both=0.2, both_log_scale=0.15), n_runs)
    assert 0.0 < shares["shape"] <= LEVEL + four_sd(LEVEL, n_runs)


def test_shape_is_found_where_only_the_shape_changes():
    def noise(rng, x, a):
        return np.where(a == 1, np.sign(x) * skewed(rng, x.size), rng.normal(size=x.size))

    shares = simulated_shares(noise, Believes(effect=0.1, log_scale=0.05), n_runs=40)
    assert shares["shape"] > 0.7


@pytest.fixture(scope="module")
def turning():
    """Skewness of the treated turns with the column."""
    rng = np.random.default_rng(0)
    x, treatment = rng.uniform(-1, 1, size=400), rng.integers(0, 2, size=400)
    y = np.where(treatment == 1, np.sign(x) * skewed(rng, 400), rng.normal(size=400))
    return y, x, treatment


def test_rows_that_come_twice_count_once_if_they_are_a_cluster(turning):
    y, x, treatment = turning
    once = believing(y, x, treatment, Believes(0.1, 0.1), weights=np.ones(400))
    twice = believing(
        np.repeat(y, 2), np.repeat(x, 2), np.repeat(treatment, 2), Believes(0.1, 0.1), clusters=np.repeat(range(400), 2)
    )
    untold = believing(np.repeat(y, 2), np.repeat(x, 2), np.repeat(treatment, 2), Believes(0.1, 0.1))
    expected, clustered, assumed = (feature_changes(own, 0, Uniform()).shape for own in (once, twice, untold))
    assert_allclose(clustered, expected, rtol=1e-6)
    assert assumed < 0.1 * expected


def test_weights_and_none_agree_where_all_rows_weigh_the_same(turning):
    y, x, treatment = turning
    plain = feature_changes(believing(y, x, treatment, Believes(0.1, 0.1)), 0, Uniform())
    weighted = feature_changes(believing(y, x, treatment, Believes(0.1, 0.1), weights=np.ones(400)), 0, Uniform())
    assert_allclose(weighted.mean, plain.mean, rtol=1e-9)
    assert_allclose(weighted.spread, plain.spread, rtol=1e-9)
    assert_allclose(np.log10(weighted.shape), np.log10(plain.shape), rtol=0.05)  # Student's t for the normal


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_shape_is_not_told_where_few_rows_have_all_the_weight():
    rng = np.random.default_rng(0)
    X, treatment = pd.DataFrame(rng.normal(size=(200, 3)), columns=list("abc")), rng.integers(0, 2, size=200)
    selector = ModifierSelector(**QUICK | {"explain": True})
    for heavy, told in ((1e4, False), (2.0, True)):
        weights = np.where(np.arange(200) % 50 == 0, heavy, 1.0)
        changes = selector.fit(X, rng.normal(size=200), treatment, sample_weight=weights).result_.changes
        assert changes["shape_p"].notna().all() == changes["shape_p"].notna().any() == told


def test_binary_outcomes_have_neither_spread_nor_shape():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    treatment = rng.integers(0, 2, size=500)
    y, _ = logistic_treatment(rng, 1.5 * treatment * X[:, 0])
    result = quiet_fit(X, y, treatment, **QUICK).result_
    changes = result.changes
    assert changes[[f"{part}_{p}" for part in ("spread", "shape") for p in ("p", "adjusted")]].isna().all(axis=None)
    assert changes.loc["x0", "mean_adjusted"] < 0.001
    assert_allclose(np.log(changes["mean_p"]), np.log(result.table["p_value"]), rtol=0.2, atol=0.05)
    assert changes.loc["x0", "verdict"].startswith("Changes the average: the risk difference rises from -")


def test_missing_values_categories_and_repeats():
    rng = np.random.default_rng(0)
    n = 3000
    frame = pd.DataFrame(
        {"gap": rng.normal(size=n), "level": rng.choice(list("abcd"), size=n), "z": rng.normal(size=n)}
    )
    lost = rng.random(n) < 0.3
    frame.loc[lost, "gap"] = np.nan
    treatment = rng.integers(0, 2, size=n)
    sign = np.where(np.where(treatment == 1, lost, frame["level"] > "b"), 1, -1)
    y = sign * skewed(rng, n)
    settings = QUICK | {"statistic": EffectLikelihood("linear", cv_repeats=2), "missing": "category"}
    changes = quiet_fit(frame, y, treatment, **settings).result_.changes
    assert changes.loc[["gap", "level"], "shape_p"].max() < 1e-4
    assert changes.loc["z", "shape_p"] > 0.01


def test_features_that_no_model_looks_at_are_not_changed(turning):
    y, x, treatment = turning
    prepared = believing(y, x, treatment, Believes())
    blind = replace(prepared, fits=tuple(replace(f, cross=replace(f.cross, models=())) for f in prepared.fits))
    assert Changes.none(prepared.family.has_scale) == Changes(1.0, 1.0, 1.0)
    changes = feature_changes(blind, 0, Uniform())
    assert changes == replace(feature_changes(prepared, 0, Uniform()), mean=changes.mean, spread=1.0)
    assert changes.mean > 0.1
    # What gives a sign of its own is tested; what does not has p = 1.
    assert DirectSums.of(blind.first_look(0)).p_value() < SIGN
    assert feature_test(blind, 0, Uniform()).likelihood_p_value == 1.0
    flat = believing(np.random.default_rng(3).normal(size=y.size), x, treatment, Believes())
    flat = replace(flat, fits=tuple(replace(f, cross=replace(f.cross, models=())) for f in flat.fits))
    assert DirectSums.of(flat.first_look(0)).p_value() > SIGN
    assert prepared.first_look(0) is None


def test_a_feature_that_gives_no_sign_has_p_value_one_and_changes_nothing():
    rng = np.random.default_rng(3)
    X, treatment = rng.normal(size=(400, 3)), rng.integers(0, 2, size=400)
    y = 2 * treatment * X[:, 0] + rng.normal(size=400)
    result = quiet_fit(X, y, treatment, **QUICK | {"statistic": EffectLikelihood(SeesTheFirst(1.0))}).result_
    silent = result.table.index[result.table["p_value"] == 1.0]
    assert len(silent) > 0
    assert (result.changes.loc[silent, ["mean_p", "spread_p", "shape_p"]] == 1.0).all(axis=None)
    assert result.changes.loc["x0", "mean_p"] < 1e-6


def test_the_test_is_the_same_with_and_without_its_parts(turning):
    y, x, treatment = turning
    prepared = believing(y, x, treatment, Believes(0.2, 0.1))
    short, long = (feature_sums(prepared, 0, Uniform(), parts=parts) for parts in (False, True))
    assert (list(short[0].parts), list(long[0].parts)) == (["test", "outcome"], ["test", "outcome", "mean", "spread"])
    assert (list(short[0].directions), list(long[0].directions)) == (["test"], ["test", "mean", "shape"])
    assert str(outcome_of(*short)) == str(outcome_of(*long))


def test_the_other_statistic_says_what_changes_too(linear_mean):
    data = make_modifiers("LinMean", n_samples=500, n_features=6, random_state=1)
    settings = QUICK | {"statistic": "wcmmd", "n_resamples": 19, "propensity": data.propensity}
    changes = quiet_fit(data.X, data.y, data.treatment, **settings).result_.changes
    assert (changes.loc[["X1", "X2", "X4", "X5"], "mean_adjusted"] < 0.001).all()
    assert (changes["spread_adjusted"] > 0.05).all()


def test_findings_with_changes_survive_a_file(linear_mean):
    finding = replace(UNTESTED, changes=Changes(0.1, np.nan, 0.3))
    found = decode(encode(finding, Finding), Finding).changes
    assert (found.mean, found.shape) == (0.1, 0.3)
    assert np.isnan(found.spread)


# Verdicts.


def curve(values, effect, half=0.5, name="mean_effect", low_support=None):
    effect = np.asarray(effect, dtype=float)
    frame = pd.DataFrame({"value": values, name: effect, f"{name}_low": effect - half, f"{name}_high": effect + half})
    return frame if low_support is None else frame.assign(low_support=low_support)


def row(mean=1.0, spread=1.0, shape=1.0):
    given = {"mean": mean, "spread": spread, "shape": shape}
    return {f"{part}_{what}": p for part, p in given.items() for what in ("p", "adjusted")}


def say(frame, kind="continuous", p=None, **settings):
    p = row(mean=0.001) if p is None else p
    return verdict({"x": ShownColumn(frame, kind)}, p, **{"selected": True} | settings)


AGES = np.linspace(30, 78, 25)  # their 10th, 50th and 90th percentiles are 34, 54 and 74


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        (0.1 * (AGES - 50), "the effect rises from -1.6 (-2.2 to -1.0) at 34 to 2.4 (1.8 to 3.0) at 74"),
        (-3 - 0.1 * (AGES - 50), "the effect falls from -1.4 (-2.0 to -0.8) at 34 to -5.4 (-6.0 to -4.8) at 74"),
        (np.where(AGES > 55, 4.2, 1.0), "the effect rises from 1.0 (0.4 to 1.6) at 34 to 4.2 (3.6 to 4.8) at 74"),
        (
            4 - 0.01 * (AGES - 54) ** 2,
            "the effect is highest in the middle, 4.0 (3.4 to 4.6) at 54, against 0.0 (-0.6 to 0.6) at 34 and 0.0 "
            "(-0.6 to 0.6) at 74",
        ),
        (
            0.01 * (AGES - 54) ** 2,
            "the effect is lowest in the middle, 0.0 (-0.6 to 0.6) at 54, against 4.0 (3.4 to 4.6) at 34 and 4.0 "
            "(3.4 to 4.6) at 74",
        ),
        # Beyond the outer percentiles anything may happen.
        (np.where(np.abs(AGES - 54) > 22, 50.0, 1.0), None),
    ],
)
def test_directions_of_a_continuous_feature(effect, expected):
    assert say(curve(AGES, effect)) == f"Changes the average{f': {expected}' if expected else ''}."


def test_directions_need_bands_that_are_apart_and_points_that_rows_support():
    steep = 0.1 * (AGES - 50)
    assert say(curve(AGES, steep, half=3.0)) == "Changes the average."
    # Bands of single points that just do not touch do where all points are to hold at once.
    assert say(curve(AGES, steep, half=1.95)) == "Changes the average."
    assert say(curve(AGES, steep, half=1.6)) != "Changes the average."
    assert say(curve(AGES, steep)[["value", "mean_effect"]]) == "Changes the average."
    first = np.abs(AGES - 34) < 1
    assert say(curve(AGES, steep, low_support=first)).endswith("0.4 (-0.2 to 1.0) at 54 to 2.4 (1.8 to 3.0) at 74.")
    assert say(curve(AGES, steep, low_support=AGES > 35)) == "Changes the average."


def test_ratios_of_spread_have_limits_on_their_own_scale():
    frame = curve(["a", "b"], [0.5, 2.0], name="sd_ratio").assign(sd_ratio_low=[0.4, 1.6], sd_ratio_high=[0.625, 2.5])
    told = say(frame, "discrete", p=row(spread=0.001))
    assert told.endswith(
        'the ratio of treated to control spread is 0.5 (0.4 to 0.6) for "a" and 2.0 (1.5 to 2.6) for "b".'
    )


def test_rows_without_a_value_are_no_end_of_a_curve():
    frame = pd.concat((curve(AGES, 0.1 * (AGES - 50)), curve([np.nan], [-40.0])), ignore_index=True)
    assert say(frame).endswith("rises from -1.6 (-2.2 to -1.0) at 34 to 2.4 (1.8 to 3.0) at 74.")


def test_levels_are_named():
    frame = curve(["north", "south", "west"], [0.1, 3.0, -2.0])
    told = 'the effect is higher for "south", 3.0 (2.4 to 3.6), than for "west", -2.0 (-2.6 to -1.4).'
    assert say(frame, "discrete").endswith(told)
    told = "the effect is -6.1 (-6.7 to -5.5) for 0 and 1.2 (0.6 to 1.8) for 1."
    assert say(curve([0, 1], [-6.1, 1.2]), "discrete").endswith(told)
    wide = curve(["a", "b", "c"], [0.0, 3.0, 9.0])
    wide.loc[2, ["mean_effect_low", "mean_effect_high"]] = [-20.0, 40.0]
    assert say(wide, "discrete").endswith('higher for "b", 3.0 (2.4 to 3.6), than for "a", 0.0 (-0.6 to 0.6).')


def test_hostile_labels_stay_on_one_short_line():
    told = say(curve(["a\n\x1b[31m" + "b" * 300, "<script>"], [0.0, 9.0]), "discrete")
    assert "\n" not in told
    assert "\x1b" not in told
    assert len(told) < 200
    assert '"<script>"' in told


def test_numbers_of_any_size_can_be_told_apart():
    seconds = 1.6e9 + 1e6 * np.arange(25)
    told = say(curve(seconds, 1e-7 * AGES, half=1e-8))
    assert told.endswith(
        "from 3.4e-06 (3.39e-06 to 3.41e-06) at 1.602e+09 to 7.4e-06 (7.39e-06 to 7.41e-06) at 1.622e+09."
    )


def test_effects_that_differ_are_not_told_by_the_same_number():
    told = say(curve(["no", "yes"], [9.7, 10.3], half=0.1), "discrete")
    assert 'is 9.7 (9.6 to 9.8) for "no" and 10.3 (10.2 to 10.4) for "yes".' in told
    ratios = curve(["no", "yes"], np.log([1.01, 1.04]), half=0.005)
    told = say(ratios, "discrete", log_outcome=True)
    assert "is x1.01 (" in told
    assert 'for "no" and x1.04 (' in told


def test_log_outcomes_are_told_as_ratios():
    frame = curve(["no", "yes"], np.log([0.8, 1.3]), half=0.05)
    told = say(frame, "discrete", log_outcome=True)
    assert told.endswith('the effect is x0.8 (x0.76 to x0.85) for "no" and x1.3 (x1.2 to x1.4) for "yes".')


def test_outcomes_of_two_values_always_have_figures():
    rising, flat = curve(AGES, 0.01 * (AGES - 50), half=0.05), curve(AGES, 0.002 * (AGES - 50), half=0.05)
    told = "the risk difference rises from -0.16 (-0.22 to -0.10) at 34 to 0.24 (0.18 to 0.30) at 74."
    assert say(rising, two_values=[0.0, 1.0]) == f"Changes the average: {told}"
    told = "is -0.03 (-0.09 to 0.03) at 34, 0.01 (-0.05 to 0.07) at 54 and 0.05 (-0.01 to 0.11) at 74"
    assert say(flat, two_values=[0.0, 1.0]) == (
        f"Changes the average: the risk difference {told}, with limits that overlap."
    )
    assert say(flat, two_values=[2.0, 5.5]).startswith("Changes the average: the effect is -0.03 ")
    assert say(flat) == "Changes the average."
    levels = curve(list("abcd"), [0.1, 0.0, 0.05, 0.02], half=0.1)
    told = 'is 0.10 (-0.03 to 0.23) for "a" and 0.00 (-0.13 to 0.13) for "b", with limits that overlap.'
    assert say(levels, "discrete", two_values=[0.0, 1.0]).endswith(told)
    assert say(flat[["value", "mean_effect"]], two_values=[0.0, 1.0]) == "Changes the average."


@pytest.mark.parametrize(("low", "high", "subject"), [(0, 1, "the risk difference"), (2, 5.5, "the effect")])
def test_a_fit_of_two_outcomes_tells_the_difference_in_risk(low, high, subject):
    rng = np.random.default_rng(3)
    X = pd.DataFrame({"dose": rng.normal(size=600), "sex": rng.choice(["f", "m"], 600)})
    treatment = np.arange(600) % 2
    y = np.where(rng.random(600) < 0.3 + 0.4 * treatment * (X["sex"] == "m"), high, low)
    selector = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", propensity=0.5, random_state=0)
    told = selector.fit(X, y, treatment=treatment).result_.changes.loc["sex", "verdict"]
    assert re.fullmatch(rf'Changes the average: {subject} is .* for "f" and .* for "m"\.', told)


def test_shape_names_the_tail_that_moves():
    frame = curve(AGES, 0.1 * (AGES - 50), name="q90_effect")
    told = say(frame, p=row(shape=0.001))
    start = "Changes the shape: the effect at the 90% quantile rises from -1.6 "
    assert told == start + "(-2.2 to -1.0) at 34 to 2.4 (1.8 to 3.0) at 74."


def test_groups_name_the_column_that_shows_most():
    flat, apart = curve(AGES, 0 * AGES), curve([0, 1], [1.0, 5.0])
    columns = {"x": ShownColumn(flat, "continuous"), "z": ShownColumn(apart, "discrete")}
    told = verdict(columns, row(mean=0.01), selected=True)
    assert told == "Changes the average: along z the effect is 1.0 (0.4 to 1.6) for 0 and 5.0 (4.4 to 5.6) for 1."


@pytest.mark.parametrize(
    ("p", "settings", "expected"),
    [
        (row(), {"tested": False}, "Not tested."),
        (row(), {"selected": False}, "No change found."),
        (row(shape=0.003), {"selected": False}, "No change found."),
        (
            row(0.2, 0.06, 0.9),
            {},
            "Changes the effect, but whether its average, spread or shape is not clear "
            "(strongest evidence: spread, p = 0.060).",
        ),
        (row(np.nan, np.nan, np.nan), {}, "Changes the distribution of the effect."),
        (row(0.01, 0.02, 0.03), {}, "Changes the average, the spread and the shape: the effect rises"),
    ],
)
def test_verdicts_without_a_direction(p, settings, expected):
    assert say(curve(AGES, 0.1 * AGES), p=p, **settings).startswith(expected)
