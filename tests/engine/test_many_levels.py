"""Categories of many levels: few columns, no large tables, and p-values that hold."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from modifind import EffectLikelihood, ModifierSelector
from modifind.data.levels import MAX_DIRECTIONS, MAX_INDICATORS, Directions, with_level_columns
from modifind.data.schema import read_features
from modifind.data.weights import Weights
from modifind.nuisance.conditional import AutoSampler, BoostingSampler, GaussianSampler
from modifind.nuisance.conditional.categories import LevelModel
from modifind.nuisance.outcome.columns import MAX_GROUPS, LevelEffects
from modifind.nuisance.propensity.scores import PropensityModel
from modifind.nuisance.regression.levels import LevelSums
from modifind.statistics.row_terms import LevelGroups

ROWS = 3000


def sites(n_levels, seed=0, n=ROWS, modify=0.0, confounded=1.0, assigned=0.5):
    """Sites that differ in age and sex, in the outcome and in how often they treat; age modifies the effect."""
    rng = np.random.default_rng(seed)
    site = rng.integers(0, n_levels, n)
    trait = rng.normal(size=(n_levels, 3))[site]
    age = rng.normal(size=n) + confounded * trait[:, 0]
    frame = pd.DataFrame(
        {"age": age, "weight": rng.normal(size=n) + 0.5 * age, "site": np.char.add("s", site.astype(str))}
    )
    a = (rng.random(n) < 1 / (1 + np.exp(-0.5 * age - assigned * trait[:, 1]))).astype(np.int64)
    y = trait[:, 1] + a * (0.5 * age + modify * trait[:, 2]) + rng.normal(size=n)
    return frame, a, y


def coded(n_levels, **settings):
    frame, a, y = sites(n_levels, **settings)
    return with_level_columns(read_features(frame)), a, y


def p_values(frame, a, y, learner=("linear", "splines"), **settings):
    selector = ModifierSelector(
        EffectLikelihood(learner), sampler="gaussian", random_state=0, explain=False, **settings
    )
    return selector.fit(frame, y, treatment=a).result_.table["p_value"]


pytestmark = pytest.mark.filterwarnings("ignore:levels with fewer than 5 rows")


@pytest.mark.parametrize("n_levels", [60, 200])
def test_a_category_of_many_levels_has_a_few_columns_however_many_levels_there_are(n_levels):
    table, _, _ = coded(n_levels)
    assert table.n_levels(2) == n_levels
    assert table.design.shape[1] <= 2 + 1 + MAX_DIRECTIONS
    assert table.with_indicators.design.shape[1] == 2 + n_levels - 1


def test_a_category_of_few_levels_keeps_its_indicators():
    frame, _, _ = sites(MAX_INDICATORS)
    table = read_features(frame)
    assert with_level_columns(table) is table


def test_no_table_of_all_rows_by_all_levels_is_kept():
    table, a, y = coded(200, n=4000)
    conditional = AutoSampler().fit(table, a, np.random.SeedSequence(0)).conditional(2)
    kept = [
        conditional.scores,
        conditional.model.slopes,
        conditional.model.intercepts,
        conditional.model.directions.means,
    ]
    assert sum(part.size for part in kept) < table.n_rows * 200 / 20
    effects, columns = LevelEffects.from_rows(
        table.coded, table.design, a, y, binary=False, weights=Weights.alike(y.size)
    )
    assert columns.shape[1] == 2 + 4
    assert effects(table.design).shape == columns.shape


def test_directions_find_where_levels_differ_and_nothing_where_they_do_not():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 100, 4000)
    columns = rng.normal(size=(4000, 6))
    assert Directions.of(columns, codes, 100, Weights.alike(codes.size)).variances.size == 0
    truth = rng.normal(size=100)
    columns[:, 2] += truth[codes]
    found = Directions.of(columns, codes, 100, Weights.alike(codes.size))
    assert found.variances.size == 1
    assert found.variances[0] == pytest.approx(1.0, abs=0.3)  # its standard error over 100 levels is 0.14
    assert abs(np.corrcoef(found.means[:, 0], truth)[0, 1]) > 0.95


def test_effects_of_levels_are_shrunk_as_far_as_the_evidence_says():
    rng = np.random.default_rng(1)
    codes, a, folds = rng.integers(0, 200, 8000), rng.integers(0, 2, 8000), rng.integers(0, 5, 8000)
    truth = 0.5 * rng.normal(size=200)
    noise = rng.normal(size=8000)
    for difference, least, most in ((truth, 0.6, 0.9), (np.zeros(200), 0.0, 0.3)):
        residual = 2.0 * truth[codes] + (a - 0.5) * difference[codes] + noise
        found, outside = LevelSums.of(codes, 200, a, folds, np.ones(8000), residual).effects()
        assert found.shape == (200, 2)
        assert outside.shape == (5, 200, 2)
        assert np.polyfit(truth, found[:, 0], 1)[0] == pytest.approx(2.0, abs=0.15)
        # 40 rows tell a difference with variance 4/40, so that 0.25 / (0.25 + 0.1) = 0.71 of it is believed.
        assert least <= abs(np.polyfit(truth, found[:, 1], 1)[0]) <= most


def test_rows_that_effects_are_learned_from_do_not_see_their_own_outcome():
    table, a, _ = coded(100)
    noise = np.random.default_rng(5).normal(size=a.size)
    effects, columns = LevelEffects.from_rows(
        table.coded, table.design, a, noise, binary=False, weights=Weights.alike(noise.size)
    )
    first = effects.place(table.encoding[2]).start
    inside = effects(table.design)[:, first]
    assert np.corrcoef(inside, noise)[0, 1] > 0.1  # a level of thirty rows follows its rows
    assert abs(np.corrcoef(columns[:, first], noise)[0, 1]) < 0.06  # three standard errors


def test_at_most_a_hundred_groups_of_levels_are_told_apart():
    table, a, y = coded(200, n=4000)
    effects, _ = LevelEffects.from_rows(table.coded, table.design, a, y, binary=False, weights=Weights.alike(y.size))
    groups = effects.alike(table.encoding[2])
    assert groups.size == 200
    assert groups.max() < MAX_GROUPS
    assert effects.alike(table.encoding[0]) is None


def test_chances_of_groups_are_sums_over_their_levels_in_every_repeat():
    rng = np.random.default_rng(2)
    alike = [[rng.integers(0, 3, 12) for _ in range(2)] for _ in range(2)]
    folds = [rng.integers(0, 2, 40) for _ in range(2)]
    chances = rng.dirichlet(np.ones(12), size=40)
    points, found = LevelGroups.of(alike, folds).gather(np.arange(40), chances)
    for parts, own in zip(alike, folds, strict=True):
        for row in range(40):
            level = points[row].astype(int)
            for group in range(3):
                expected = chances[row, parts[own[row]] == group].sum()
                assert found[row, parts[own[row]][level] == group].sum() == pytest.approx(expected)


def test_as_many_rows_of_every_level_are_treated_as_scores_say():
    table, a, _ = coded(60)
    fitted = PropensityModel().fit(table, a, seed=np.random.SeedSequence(0))
    excess = np.bincount(table.values[:, 2].astype(int), a - fitted.raw)
    assert np.abs(excess).max() < 0.3  # a weak prior stops short of zero
    rows = np.arange(20)
    along = fitted.along(rows, table.encoding[2], table.encode(2, np.tile(np.arange(60.0), (20, 1))))
    own = along[rows, table.values[rows, 2].astype(int)]
    np.testing.assert_allclose(own, fitted.scores[rows])
    np.testing.assert_allclose(fitted.profile(2)(table.values[:, 2]), fitted.scores)


@pytest.mark.parametrize("sampler", [AutoSampler, GaussianSampler, BoostingSampler])
def test_the_distribution_of_many_levels_balances_what_levels_differ_in(sampler):
    table, a, _ = coded(80)
    fitted = sampler().fit(table, a, np.random.SeedSequence(0))
    conditional = fitted.conditional(2)
    _, chances = conditional.grid(slice(None))
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    observed = np.equal.outer(table.values[:, 2], np.arange(80)).astype(float)
    counts = observed.sum(axis=0)
    for column in (np.ones(a.size), table.design[:, 0], a - a.mean()):
        gap = (column @ (observed - chances)) / np.sqrt(counts)
        assert np.abs(gap).max() < 0.6  # by chance alone the largest of 80 would be about 2.5
    assert conditional.calibration.log_score_gain > 0.1
    again = fitted.rule(2).conditional(table, a, np.zeros(a.size, dtype=np.int64))
    np.testing.assert_allclose(again.grid(slice(None))[1], chances)


def test_draws_of_levels_have_their_chances_and_do_not_depend_on_how_many_are_asked_for():
    table, a, _ = coded(40, n=400)
    conditional = GaussianSampler().fit(table, a, np.random.SeedSequence(0)).conditional(2)
    drawn = conditional.draw(np.random.default_rng(0), 2000)
    frequencies = np.stack([(drawn[:, :5] == level).mean(axis=0) for level in range(40)], axis=1)
    np.testing.assert_allclose(
        frequencies, conditional.grid(np.arange(5))[1], atol=0.03
    )  # six standard errors of 0.005
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(np.concatenate([conditional.draw(rng, 7), conditional.draw(rng, 3)]), drawn[:10])


def test_a_distribution_without_any_difference_between_levels_is_their_frequencies():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 50, 2000)
    model = LevelModel.of(rng.normal(size=(2000, 3)), codes, 50, Weights.alike(2000))
    chances = model.chances(model.directions(rng.normal(size=(4, 3))))
    np.testing.assert_allclose(chances, np.tile(np.bincount(codes) / 2000, (4, 1)))


def test_levels_that_go_with_a_modifier_and_with_assignment_are_no_modifiers():
    # Shrunken effects of both outcome and assignment once confounded each other: every p-value was below 0.01.
    found = [p_values(*sites(50, seed=seed, n=2000), learner="linear")["site"] for seed in range(3)]
    assert sum(p <= 0.05 for p in found) <= 1  # two of three by chance: 0.007
    assert min(found) > 1e-3


def test_rare_levels_that_are_pooled_do_not_confound():
    # 300 levels of ten rows: most have fewer than five in an arm, and are one level to every model.
    frame, a, y = sites(300, seed=1, assigned=1.0)
    with pytest.warns(UserWarning, match="pooled as 'other'"):
        assert p_values(frame, a, y)["site"] > 0.01


def test_levels_that_modify_are_found_and_other_features_are_not():
    found = p_values(*sites(100, modify=1.0))
    assert found["site"] < 1e-4
    assert found["weight"] > 0.01


def test_a_binary_outcome_and_weights_go_with_many_levels():
    frame, a, y = sites(60, modify=2.0)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, a.size)
    selector = ModifierSelector(EffectLikelihood(["linear", "splines"]), random_state=0, explain=False)
    found = selector.fit(frame, (y > 0).astype(int), treatment=a, sample_weight=weights).result_.table["p_value"]
    assert found["site"] < 0.01
    assert found["weight"] > 0.01


def test_results_are_the_same_for_every_number_of_workers():
    frame, a, y = sites(35, n=800, assigned=0.0)
    one, two = (p_values(frame, a, y, learner="linear", n_jobs=n_jobs) for n_jobs in (1, 2))
    pd.testing.assert_series_equal(one, two)


def test_curves_have_every_level():
    frame, a, y = sites(40, n=2000, assigned=0.0, confounded=0.3)
    selector = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", random_state=0)
    result = selector.fit(frame, y, treatment=a).result_
    assert len(result.curve("site")) == frame["site"].nunique()


def test_a_table_in_pieces_knows_many_levels_too():
    frame, a, y = sites(50, n=6000, modify=1.0)
    selector = ModifierSelector(
        EffectLikelihood(["linear", "splines"]), random_state=0, explain=False, max_train_rows=3000
    )
    found = selector.fit(frame, y, treatment=a).result_.table["p_value"]
    assert found["site"] < 1e-3
    assert found["weight"] > 0.01


def test_a_category_may_be_the_only_feature():
    frame, a, y = sites(40, n=1200, modify=1.5, confounded=0.0)
    assert p_values(frame[["site"]], a, y, learner="linear")["site"] < 0.01


def test_two_categories_of_many_levels_go_together():
    frame, a, y = sites(40, n=1500, modify=1.0)
    rng = np.random.default_rng(9)
    frame["code"] = np.char.add("c", rng.integers(0, 35, len(frame)).astype(str))
    found = p_values(frame, a, y, learner="linear")
    assert found["site"] < 0.01
    assert found["code"] > 0.01


def test_a_group_of_columns_may_have_many_levels():
    frame, a, y = sites(35, n=1200, modify=1.5)
    found = p_values(frame, a, y, learner="linear", feature_groups={"where": ["weight", "site"]})
    assert found["where"] < 0.01


def test_the_paper_s_statistic_takes_many_levels():
    frame, a, y = sites(35, n=800, modify=1.5, assigned=0.0)
    selector = ModifierSelector("wcmmd", sampler="gaussian", n_resamples=99, random_state=0, explain=False)
    found = selector.fit(frame, y, treatment=a).result_.table["p_value"]
    assert 0 < found["site"] <= 1
