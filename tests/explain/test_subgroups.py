"""Effects by subgroup: right on average, as uncertain as they say, and named so that readers know whom they are of."""

import numpy as np
import pandas as pd
import pytest

from modifind.data.features import Unit
from modifind.data.schema import read_features
from modifind.explain.effects import subgroup_effects
from modifind.explain.rows import ArmRows, OutcomeModel, PseudoOutcomes
from modifind.statistics.families.discrete import Bernoulli


def frame_of(seed, n=400, **columns):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    arms = rng.integers(0, 2, n)
    y = arms * (x > 0) * 1.0 + x + rng.standard_normal(n)
    table = read_features(pd.DataFrame({"x": x, **columns}))
    outcomes = PseudoOutcomes.of(ArmRows(y, arms, np.full(n, 0.5)))
    return subgroup_effects(outcomes, table, [Unit(name, (m,)) for m, name in enumerate(table.names)]), y, arms, x


def test_without_models_an_effect_is_a_difference_of_means():
    found, y, arms, x = frame_of(0)
    own = x <= np.round(np.quantile(x, 0.25), 1)  # edges are rounded, so that their names are exact
    assert found["effect"][0] == pytest.approx(y[own & (arms == 1)].mean() - y[own & (arms == 0)].mean())
    assert (found["n_treated"][0], found["n_control"][0]) == (np.sum(own & (arms == 1)), np.sum(own & (arms == 0)))
    assert len(found) == 4
    assert found["n_treated"].sum() == arms.sum()


def test_limits_cover_as_often_as_they_say():
    inside = []
    for seed in range(250):
        found, *_ = frame_of(seed, 200)
        truth = np.array([0.0, 0.0, 1.0, 1.0])
        inside.append(found["low"].le(truth) & found["high"].ge(truth))
    inner = np.mean([own[[0, 3]].mean() for own in inside])  # the inner cuts lie beside 0 in every sample
    assert inner == pytest.approx(0.95, abs=0.03)  # 500 intervals: three standard errors


@pytest.mark.parametrize("scale", ["ratio", "odds_ratio"])
def test_ratios_of_risks_are_those_of_a_table_by_hand(scale):
    rng = np.random.default_rng(4)
    arms, ward = rng.integers(0, 2, 3000), rng.integers(0, 2, 3000)
    y = (rng.random(3000) < 0.2 + 0.1 * arms * ward).astype(float)
    table = read_features(pd.DataFrame({"ward": np.where(ward, "b", "a")}))
    outcomes = PseudoOutcomes.of(ArmRows(y, arms, np.full(3000, 0.5), effect_scale=scale))
    found = subgroup_effects(outcomes, table, [Unit("ward", (0,))]).iloc[1]
    inside = [y[(ward == 1) & (arms == arm)] for arm in (0, 1)]
    (no, yes), (n_no, n_yes) = [own.mean() for own in inside], [own.size for own in inside]
    if scale == "ratio":
        effect, variance = yes / no, (1 - no) / (no * n_no) + (1 - yes) / (yes * n_yes)
    else:
        effect, variance = yes / (1 - yes) * (1 - no) / no, 1 / (no * (1 - no) * n_no) + 1 / (yes * (1 - yes) * n_yes)
    assert found["effect"] == pytest.approx(effect)
    assert found["se"] == pytest.approx(np.sqrt(variance), rel=0.01)
    assert np.log(found["high"] / found["effect"]) == pytest.approx(np.log(found["effect"] / found["low"]))
    assert found["low"] == pytest.approx(effect * np.exp(-1.96 * np.sqrt(variance)), rel=0.02)


def test_a_ratio_needs_outcomes_in_both_arms_of_a_subgroup():
    arms, ward = np.arange(400) % 2, np.repeat(["a", "b"], 200)
    y = np.where((ward == "b") & (arms == 0), 0.0, 1.0 + np.arange(400) % 3)
    table = read_features(pd.DataFrame({"ward": ward}))
    outcomes = PseudoOutcomes.of(ArmRows(y, arms, np.full(400, 0.5), effect_scale="ratio"))
    found = subgroup_effects(outcomes, table, [Unit("ward", (0,))])
    assert found["effect"].isna().tolist() == [False, True]
    assert found["n_control"].tolist() == [100, 100]


def test_cuts_that_an_arm_cannot_tell_leave_the_odds_ratio_to_the_others():
    rng = np.random.default_rng(6)
    arms, ward = np.arange(1200) % 2, np.repeat(["a", "b"], 600)
    y = np.digitize(0.8 * arms + rng.logistic(size=1200), [-1.0, 0.5])
    y[(arms == 0) & (ward == "b") & (y == 2)] = 1  # nobody under control has the highest level there
    y[:3] = 3
    table = read_features(pd.DataFrame({"ward": ward}))
    outcomes = PseudoOutcomes.of(ArmRows(y.astype(float), arms, np.full(1200, 0.5), effect_scale="odds_ratio"))
    found = subgroup_effects(outcomes, table, [Unit("ward", (0,))]).iloc[1]
    low = [(y[(ward == "b") & (arms == arm)] == 0).mean() for arm in (0, 1)]
    assert found["effect"] == pytest.approx((1 - low[1]) / low[1] * low[0] / (1 - low[0]))
    assert found["low"] < found["effect"] < found["high"] < 5


@pytest.mark.parametrize("scale", ["ratio", "odds_ratio"])
def test_a_level_without_events_in_an_arm_has_no_ratio(scale):
    rng = np.random.default_rng(7)
    arms, ward = np.arange(900) % 2, np.repeat(["a", "b", "c"], 300)
    y = (rng.random(900) < 0.3).astype(float)
    y[(ward == "b") & (arms == 0)] = 0.0
    table = read_features(pd.DataFrame({"ward": ward}))
    # Models that expect a little everywhere: a doubly robust average of zeros is zero but for a remainder.
    family = Bernoulli.of(y)
    models = (OutcomeModel(np.tile(0.2 + 0.1 * rng.random((900, 1)), 2), np.ones((900, 2)), (np.inf,) * 2, family),)
    outcomes = PseudoOutcomes.of(ArmRows(y, arms, np.full(900, 0.5), effect_scale=scale), models)
    found = subgroup_effects(outcomes, table, [Unit("ward", (0,))])
    assert found["effect"].isna().tolist() == [False, True, False]


def test_levels_missing_rows_and_few_rows_have_names_and_counts():
    n = 60
    ward = np.array(["east"] * 30 + ["west"] * 28 + ["north"] * 2, dtype=object)
    gaps = np.where(np.arange(n) % 5 == 0, np.nan, np.arange(n, dtype=float))
    table = read_features(pd.DataFrame({"ward": ward, "gaps": gaps}), missing="category")
    arms = np.arange(n) % 2
    arms[-2:] = 1
    outcomes = PseudoOutcomes.of(ArmRows(np.arange(n, dtype=float), arms, np.full(n, 0.5)))
    found = subgroup_effects(outcomes, table, [Unit("ward", (0,)), Unit("gaps", (1,))]).set_index(["feature", "level"])
    assert list(found.loc["ward"].index) == ["east", "north", "west"]
    assert np.isnan(found.loc[("ward", "north"), "effect"])  # nobody to compare with
    assert found.loc["gaps"].index[-1] == "missing"
    assert found.loc["gaps"].index[0].startswith("up to ")
