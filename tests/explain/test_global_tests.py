"""Tests of a whole table: they find what there is, hold their level, and see rows as they count."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from modifind import EffectLikelihood, ModifierSelector
from modifind.data.schema import read_features
from modifind.explain.effects import mean_effects
from modifind.explain.overview import distribution_test, global_tests, score_test, with_features
from modifind.explain.rows import ArmRows, PseudoOutcomes
from modifind.inference.direct_sums import quadratic_tail

FEATURES, MORE_FEATURES = (
    read_features(pd.DataFrame(np.random.default_rng(n).standard_normal((n, 5)), columns=list("abcde")))
    for n in (200, 400)
)


def outcomes_of(seed, n=200, shift=0.0, spread=1.0, clusters=None, weights=None):
    """Pseudo-outcomes of a trial without features, in which the mean of an arm is all that is expected."""
    rng = np.random.default_rng(seed)
    arms = rng.integers(0, 2, n)
    y = shift * arms + np.where(arms == 1, spread, 1.0) * rng.standard_normal(n)
    if clusters is not None:
        y = y + 2.0 * rng.standard_normal(clusters.max() + 1)[clusters]
    return PseudoOutcomes.of(ArmRows(y, arms, np.full(n, 0.5), weights, clusters)), y, arms


def test_without_features_the_average_is_that_of_the_t_test():
    outcomes, y, arms = outcomes_of(1, shift=0.4)
    found, peer = mean_effects(outcomes), stats.ttest_ind(y[arms == 1], y[arms == 0], equal_var=False)
    assert found.estimate[0] * outcomes.unit == pytest.approx(y[arms == 1].mean() - y[arms == 0].mean())
    assert found.statistic == pytest.approx(peer.statistic, rel=0.02)
    assert found.p_value == pytest.approx(peer.pvalue, rel=0.2)


def test_level_of_all_tests():
    p = np.array([global_tests(outcomes_of(seed)[0], 1.0, FEATURES, 200)["p_value"] for seed in range(400)])
    assert ((p <= 0.05).mean(axis=0) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)).all()  # three standard errors
    assert ((p <= 0.5).mean(axis=0) > 0.35).all()


def test_a_spread_is_seen_by_the_distribution_alone():
    p = np.array(
        [global_tests(outcomes_of(seed, 400, spread=1.8)[0], 1.0, MORE_FEATURES, 400)["p_value"] for seed in range(20)]
    )
    assert (p[:, 1] <= 0.05).mean() > 0.8
    assert (p[:, 0] <= 0.05).mean() < 0.3


@pytest.mark.parametrize("kind", ["shift", "rare", "peaks"])
def test_the_distribution_sees_what_the_average_sees_and_what_it_does_not(kind):
    p = np.array([distribution_p_value(kind, seed) for seed in range(30)])
    assert (p <= 0.05).mean() > 0.7


def distribution_p_value(kind, seed, n=400):
    """Of a table in which an arm is shifted, has a few severe events, or three narrow peaks of the same variance."""
    rng = np.random.default_rng([seed, 3])
    arms, noise = rng.integers(0, 2, n), rng.standard_normal(n)
    peaks = 1.22 * rng.integers(-1, 2, n) + 0.1 * noise
    treated = {"shift": noise + 0.35, "rare": noise - 8 * (rng.random(n) < 0.06), "peaks": peaks}[kind]
    outcomes = PseudoOutcomes.of(ArmRows(np.where(arms == 1, treated, noise), arms, np.full(n, 0.5)))
    return distribution_test(outcomes, mean_effects(outcomes), 1.0 / outcomes.unit)[1]


def test_outcomes_without_an_error_tell_nothing():
    arms = np.arange(40) % 2
    outcomes = PseudoOutcomes.of(ArmRows(np.ones(40), arms, np.full(40, 0.5)))
    assert distribution_test(outcomes, mean_effects(outcomes), 1.0) == (0.0, 1.0)


def test_the_score_test_has_most_of_the_weight_of_modification(fitted):
    *_, result = fitted
    tests = result.tests.copy()
    for score, features, both in ((0.01, 0.5, 0.0111), (0.5, 0.01, 0.0970)):
        tests.loc["modification", "p_value"] = score
        combined = with_features(tests, np.array([features]))
        assert combined.loc["modification", "p_value"] == pytest.approx(both, rel=0.01)


def test_clusters_and_weights_widen_the_error():
    clusters = np.repeat(np.arange(20), 10)
    together, y, arms = outcomes_of(3, clusters=clusters)
    apart = PseudoOutcomes.of(ArmRows(y, arms, np.full(200, 0.5)))
    assert mean_effects(together).freedom < 25 < mean_effects(apart).freedom
    weights = np.exp(np.random.default_rng(0).standard_normal(200))
    assert mean_effects(outcomes_of(4, weights=weights)[0]).freedom < mean_effects(outcomes_of(4)[0]).freedom


@pytest.mark.parametrize("freedom", [np.inf, 10.0])
def test_tail_of_squares_against_draws(freedom):
    rng = np.random.default_rng(0)
    variances, n = np.array([1.0, 0.5, 0.2, 0.05]), 200_000
    drawn = rng.standard_normal((n, 4)) ** 2 @ variances
    drawn = drawn if np.isinf(freedom) else drawn / (rng.chisquare(freedom, n) / freedom)
    for share in (0.5, 0.1, 0.05, 0.01):
        found = quadratic_tail(float(np.quantile(drawn, 1 - share)), variances, freedom)
        assert found == pytest.approx(share, rel=0.06)  # the draws are within 2%, the approximation within 3%
    assert quadratic_tail(0.0, variances) == 1.0
    assert 0 < quadratic_tail(1e4, variances) < 1e-200


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(5)
    X = pd.DataFrame(rng.standard_normal((300, 2)), columns=["age", "dose"])
    X["ward"] = rng.choice(["east", "west"], 300)
    arms = rng.integers(0, 2, 300)
    y = arms * (1 + 1.5 * X["age"]) + X["dose"] + rng.standard_normal(300)
    selector = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", random_state=0)
    return X, y, arms, selector.fit(X, y, treatment=arms).result_


def test_a_result_answers_all_three_questions(fitted):
    *_, result = fitted
    assert list(result.tests.index) == ["mean", "distribution", "modification"]
    assert (result.tests["p_value"] < 0.001).all()
    assert result.tests.loc["modification", "method"].endswith(
        "combined with Simes' combination of the features' tests"
    )


def test_the_interval_of_the_average_agrees_with_its_test(fitted):
    *_, result = fitted
    low, high = result.overall["mean_effect_low"], result.overall["mean_effect_high"]
    effect = result.overall["mean_effect"]
    assert low < effect < high
    assert effect / ((high - low) / 2) == pytest.approx(result.tests.loc["mean", "statistic"] / 1.96, rel=0.02)


def test_without_explanations_only_modification_is_told(fitted):
    X, y, arms, result = fitted
    plain = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", random_state=0, explain=False)
    found = plain.fit(X, y, treatment=arms).result_
    assert list(found.tests.index) == ["modification"]
    assert found.tests.loc["modification", "p_value"] == found.table["p_adjusted"].min()
    assert found.subgroups.empty
    pd.testing.assert_series_equal(found.table["p_value"], result.table["p_value"])


def test_a_table_in_pieces_says_how_many_rows_its_tests_are_of(fitted):
    X, y, arms, _ = fitted
    streamed = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", random_state=0, max_train_rows=200)
    tests = streamed.fit(X, y, treatment=arms).result_.tests
    assert tests.loc["mean", "method"].endswith("in a random sample of 200 rows")
    assert (tests["p_value"] < 0.001).all()


def test_an_effect_that_follows_a_feature_is_seen_and_one_for_all_is_not():
    found = []
    for seed in range(40):
        rng = np.random.default_rng([seed, 1])
        arms = rng.integers(0, 2, 400)
        for along in (0.0, 0.5):
            y = arms * (1 + along * MORE_FEATURES.values[:, 2]) + rng.standard_normal(400)
            outcomes = PseudoOutcomes.of(ArmRows(y, arms, np.full(400, 0.5)))
            found.append(score_test(outcomes, mean_effects(outcomes), MORE_FEATURES.design)[1] <= 0.05)
    assert np.mean(found[1::2]) > 0.7
    assert np.mean(found[::2]) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 40)  # three standard errors


def test_very_many_features_leave_room_for_an_error():
    rng = np.random.default_rng(0)
    outcomes, *_ = outcomes_of(5)
    wide = rng.standard_normal((200, 500))
    statistic, p_value = score_test(outcomes, mean_effects(outcomes), wide)
    assert 0 < p_value <= 1
    assert statistic > 0
    assert score_test(outcomes, mean_effects(outcomes), np.ones((200, 1)))[1] == 1.0
