"""The direct component: the bound on the largest direction, sums that add up, and what it sees of a feature."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from conftest import four_sd, quiet_fit, runs
from modifind import EffectLikelihood
from modifind.data.schema import read_features
from modifind.inference.tails import LARGEST_COMBINED, SMALLEST, UNSEEN, combined_p_value
from modifind.statistics import Nuisances
from modifind.statistics.direct import (
    MOST_CUBED,
    MOST_LEVELS,
    MOST_RANKS,
    MOST_SQUARE,
    DirectSums,
    ValueFunctions,
    direct_terms,
    largest_tail,
    residual_scores,
)

QUICK = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "random_state": 0}
LEVEL = 0.05


def random_correlation(rng, size, n_factors):
    covariance = np.cov(rng.normal(size=(size, n_factors)) @ rng.normal(size=(n_factors, 50)))
    covariance = np.atleast_2d(covariance) + 1e-3 * np.eye(size)
    deviation = np.sqrt(np.diag(covariance))
    return covariance / np.outer(deviation, deviation)


# The bound on the largest of some normal variables.


@pytest.mark.parametrize("z", [0.0, 0.7, 2.0, 6.0, 20.0])
def test_bound_is_exact_for_one_variable_and_for_copies_of_it(z):
    one = 2 * norm.sf(z)
    assert largest_tail(z, np.eye(1)) == pytest.approx(one, rel=1e-12)
    assert largest_tail(z, np.ones((4, 4))) == pytest.approx(one, rel=1e-9)
    signs = np.array([1.0, -1.0, 1.0])
    assert largest_tail(z, np.outer(signs, signs)) == pytest.approx(one, rel=1e-9)


@pytest.mark.parametrize("z", [0.5, 2.0, 4.0])
def test_bound_is_exact_for_two_independent_variables(z):
    assert largest_tail(z, np.eye(2)) == pytest.approx(1 - (1 - 2 * norm.sf(z)) ** 2, rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_bound_is_above_the_chance_and_below_bonferroni(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 9))
    correlation = random_correlation(rng, size, int(rng.integers(1, 6)))
    draws = 40_000
    largest = np.abs(rng.multivariate_normal(np.zeros(size), correlation, draws)).max(axis=1)
    for z in (1.5, 2.0, 2.5):
        share = (largest > z).mean()
        bound = largest_tail(z, correlation)
        assert share - four_sd(share, draws) <= bound <= min(1.0, size * 2 * norm.sf(z)) + 1e-12


def test_bound_is_less_than_bonferroni_where_variables_go_together():
    correlation = np.full((5, 5), 0.9) + 0.1 * np.eye(5)
    assert largest_tail(2.0, correlation) < 0.6 * 5 * 2 * norm.sf(2.0)


# Sums over rows.


def sums_of(scores, excess, clusters=None):
    return DirectSums.of(direct_terms(scores, excess), clusters)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    excess = rng.uniform(-1, 1, size=(600, 2))
    return rng.standard_t(4, size=(600, 2)) + 0.25 * excess, excess


def test_sums_of_blocks_are_those_of_all_rows(rows):
    scores, excess = rows
    whole = sums_of(scores, excess)
    cuts = [slice(0, 1), slice(1, 250), slice(250, 600)]
    total = reduce(lambda one, two: one + two, (sums_of(scores[cut], excess[cut]) for cut in cuts))
    assert total.n_rows == whole.n_rows == 600
    assert_allclose(total.total, whole.total, rtol=1e-10)
    assert_allclose(total.cross, whole.cross, rtol=1e-10, atol=1e-10)
    assert total.p_value() == pytest.approx(whole.p_value(), rel=1e-8)
    assert 0 < whole.p_value() < LEVEL


def test_blocks_of_a_table_have_the_excess_of_the_whole(uniform):
    _, treatment, table = uniform
    functions = ValueFunctions.of(table, treatment, 0)
    whole = functions.excess(table, Halves(np.full(400, 0.5)))
    parts = []
    for cut in (slice(0, 7), slice(7, 400)):
        own = replace(table, values=table.values[cut])
        parts.append(functions.excess(own, Halves(np.full(own.n_rows, 0.5))))
    assert_allclose(np.concatenate(parts), whole, rtol=1e-12)
    scores = np.random.default_rng(1).normal(size=(400, 2))
    pieces = sums_of(scores[:7], parts[0]) + sums_of(scores[7:], parts[1])
    assert pieces.p_value() == pytest.approx(sums_of(scores, whole).p_value(), rel=1e-8)


@pytest.mark.parametrize("distribution", ["normal", "t3", "rare"])
def test_p_values_keep_their_level_whatever_the_noise(distribution):
    rng = np.random.default_rng(1)
    n_runs, n, found = 400, 300, []
    for _ in range(n_runs):
        x = rng.uniform(-1, 1, size=n)
        excess = np.stack((x, np.sign(x)), axis=1)
        scores = {
            "normal": rng.normal(size=(n, 2)),
            "t3": rng.standard_t(3, size=(n, 2)),
            "rare": 30.0 * (rng.random((n, 2)) < 0.1) - 3.0,
        }[distribution]
        found.append(sums_of(scores, excess).p_value())
    for level in (LEVEL, 0.3):
        share = (np.array(found) <= level).mean()
        # Hunter's bound is above the chance where directions are nearly independent, as the two scores are.
        assert 0.5 * level - four_sd(level, n_runs) <= share <= level + four_sd(level, n_runs)


def test_rows_that_come_twice_count_once_if_they_are_a_cluster(rows):
    scores, excess = rows
    once = sums_of(scores, excess)
    twice = sums_of(np.repeat(scores, 2, axis=0), np.repeat(excess, 2, axis=0), np.repeat(np.arange(600), 2))
    untold = sums_of(np.repeat(scores, 2, axis=0), np.repeat(excess, 2, axis=0))
    assert twice.n_rows == 600
    for freedom in (np.inf, 20.0):
        assert twice.p_value(freedom) == pytest.approx(once.p_value(freedom), rel=1e-9)
    assert untold.p_value() < 0.5 * once.p_value()


def test_fewer_degrees_of_freedom_make_larger_p_values(rows):
    sums = sums_of(*rows)
    found = [sums.p_value(freedom) for freedom in (np.inf, 50.0, 10.0, 5.0)]
    assert found == sorted(found)
    assert found[0] < found[-1]


def test_nothing_is_said_of_few_rows_or_of_what_does_not_vary(rows):
    scores, excess = rows
    assert np.isnan(sums_of(scores, excess).p_value(4.9))
    assert np.isfinite(sums_of(scores, excess).p_value(5.0))
    assert np.isnan(sums_of(np.zeros((600, 2)), excess).p_value())
    assert np.isnan(sums_of(scores, np.zeros((600, 1))).p_value())
    assert np.isnan(sums_of(np.full((600, 2), 3.0), np.full((600, 1), 0.1)).p_value())
    # A direction that does not vary is left to the others.
    still = np.column_stack((excess, np.zeros(600)))
    assert sums_of(scores, still).p_value() == pytest.approx(sums_of(scores, excess).p_value(), rel=1e-9)


def test_residuals_far_out_are_cut_off():
    near, far, further = residual_scores(np.array([1.5, 50.0, 5000.0]))
    assert near == pytest.approx([1.5**2, 1.5**3 - 3 * 1.5])
    assert_array_equal(far, further)
    assert far == pytest.approx([MOST_SQUARE, MOST_CUBED**3 - 3 * MOST_CUBED])
    assert_array_equal(residual_scores(np.array([-50.0]))[0], far * [1, -1])


# Functions of a feature.


class Halves:
    """A distribution with two points, 0 and 1, the second with a chance of its own for every row."""

    def __init__(self, chances):
        self.chances = chances

    def at(self, rows):
        chance = self.chances[rows]
        return np.tile([0.0, 1.0], (len(rows), 1)), np.stack((1 - chance, chance), axis=1)


@pytest.fixture(scope="module")
def uniform():
    rng = np.random.default_rng(3)
    x, treatment = rng.uniform(0, 1, size=400), np.arange(400) % 2
    return x, treatment, read_features(x[:, None], [])


def test_numbers_have_a_rank_and_a_ramp_about_the_median(uniform):
    x, treatment, table = uniform
    functions = ValueFunctions.of(table, treatment, 0)
    assert functions.width == 2
    rank, step = functions(x[:, None]).T
    assert -1 < rank.min() < -0.99
    assert 0.99 < rank.max() < 1
    assert rank.mean() == pytest.approx(0, abs=1e-12)
    assert_array_equal(np.argsort(rank, kind="stable"), np.argsort(x, kind="stable"))
    assert_array_equal(step, np.clip(4 * rank, -1, 1))
    # Values beyond those seen have the rank of the last one.
    outside = functions(np.array([[-9.0], [9.0]]))
    assert_allclose(outside, [[rank.min(), -1], [rank.max(), 1]])


def test_rank_does_not_depend_on_the_scale_of_a_feature(uniform):
    x, treatment, _ = uniform
    plain, bent = (read_features(values[:, None], []) for values in (x, np.exp(9 * x)))
    found = [ValueFunctions.of(table, treatment, 0)(table.values) for table in (plain, bent)]
    assert_allclose(found[0], found[1], rtol=1e-12)


def test_long_columns_keep_so_many_ranks():
    x = np.random.default_rng(0).exponential(size=5000)
    functions = ValueFunctions.of(read_features(x[:, None], []), np.arange(5000) % 2, 0)
    assert functions.parts[0][1].values.size == MOST_RANKS
    exact = 2 * (np.argsort(np.argsort(x)) + 0.5) / 5000 - 1
    assert_allclose(functions(x[:, None])[:, 0], exact, atol=0.005)


def with_gaps(x, gaps):
    frame = pd.DataFrame({"x": np.where(gaps, np.nan, x)})
    return read_features(frame, [], "category")


def test_missing_values_are_zero_and_have_an_indicator_where_they_are_common(uniform):
    x, treatment, _ = uniform
    gaps = np.random.default_rng(4).random(400) < 0.25
    table = with_gaps(x, gaps)
    functions = ValueFunctions.of(table, treatment, 0)
    assert functions.width == 3
    rank, step, missing = functions(table.values).T
    assert_array_equal(missing, gaps.astype(float))
    assert (rank[gaps] == 0).all()
    assert (step[gaps] == 0).all()
    assert (step[~gaps] != 0).all()
    rare = np.arange(400) < 10
    assert ValueFunctions.of(with_gaps(x, rare), treatment, 0).width == 2
    # Many, but hardly any in one of the arms.
    apart = (treatment == 1) & (np.arange(400) < 300)
    assert ValueFunctions.of(with_gaps(x, apart), treatment, 0).width == 2


def test_levels_are_compared_with_the_most_common_one():
    counts = {"rare": 30, "some": 80, "most": 150, "many": 100}
    labels = np.repeat(list(counts), list(counts.values()))
    treatment = np.arange(labels.size) % 2
    table = read_features(pd.DataFrame({"site": labels}), "auto")
    functions = ValueFunctions.of(table, treatment, 0)
    found = functions(table.values)
    # The most common of the others come first; 30 rows are 15 in either arm, too few to be told.
    assert_array_equal(found, np.stack((labels == "many", labels == "some"), axis=1))


def test_at_most_five_levels_are_told():
    labels = np.repeat([f"site {k}" for k in range(9)], np.arange(100, 55, -5))
    treatment = np.arange(labels.size) % 2
    table = read_features(pd.DataFrame({"site": labels}), "auto")
    functions = ValueFunctions.of(table, treatment, 0)
    assert functions.width == MOST_LEVELS == 5
    assert_array_equal(functions(table.values).sum(axis=0), [95, 90, 85, 80, 75])


def test_excess_is_less_the_mean_under_the_distribution():
    rng = np.random.default_rng(5)
    chances = rng.uniform(0.3, 0.7, size=500)
    x = (rng.random(500) < chances).astype(float)
    treatment = np.arange(500) % 2
    table = read_features(x[:, None], [0])
    functions = ValueFunctions.of(table, treatment, 0)
    sign = 1 if functions.parts[0][1].level == 1 else -1
    assert_allclose(functions.excess(table, Halves(chances))[:, 0], sign * (x - chances), atol=1e-12)
    assert_array_equal(functions.excess(table, None), functions(table.values))


def test_groups_have_the_functions_of_their_columns_and_constants_none(uniform):
    x, treatment, _ = uniform
    frame = pd.DataFrame({"x": x, "flat": 1.0, "arm": np.where(np.arange(400) % 3, "a", "b")})
    table = read_features(frame, "auto")
    assert ValueFunctions.of(table, treatment, 1).parts == ()
    together = ValueFunctions.of(table, treatment, (0, 1, 2))
    assert together.width == 3
    found = together(table.values)
    assert_array_equal(found[:, :2], ValueFunctions.of(table, treatment, 0)(table.values[:, :1]))
    assert_array_equal(found[:, 2], ValueFunctions.of(table, treatment, 2)(table.values[:, 2:])[:, 0])


# The component in a fit.


def skewed(rng, size):
    return rng.gamma(1.0, size=size) - 1.0


@pytest.mark.parametrize("arms", ["both", "treated"])
def test_a_shape_that_changes_in_one_arm_is_found_and_one_that_changes_in_both_is_not(arms):
    rng = np.random.default_rng(2)
    n = 500
    X, treatment = rng.normal(size=(n, 3)), rng.integers(0, 2, size=n)
    turned = np.sign(X[:, 0]) * skewed(rng, n)
    y = turned if arms == "both" else np.where(treatment == 1, turned, rng.normal(size=n))
    result = quiet_fit(X, y, treatment, **QUICK).result_
    p_value = result.diagnostics.loc["x0", "direct_p_value"]
    if arms == "both":
        assert p_value > 0.05
        assert "x0" not in result.selected
    else:
        assert p_value < 0.01
        assert result.selected == ["x0"]


@pytest.mark.study
def test_a_shape_that_changes_in_both_arms_keeps_the_level():
    n_runs, found = runs(60, 15), []
    for seed in range(n_runs):
        rng = np.random.default_rng(seed)
        x, treatment = rng.uniform(-1, 1, size=250), rng.integers(0, 2, size=250)
        table = replace(read_features(x[:, None], []), reference=(np.zeros(1), np.ones(1)))
        y = np.sign(x) * skewed(rng, 250)
        folds = [np.arange(250) % 5]
        prepared = EffectLikelihood("linear").prepare(
            Nuisances(table, y, treatment, np.full(250, 0.5), np.random.SeedSequence(0), tuple(folds))
        )
        excess = prepared.direct_functions(0).excess(table, Uniform())
        found.append(sums_of(prepared.direct_scores, excess).p_value())
    assert (np.array(found) <= LEVEL).mean() <= LEVEL + four_sd(LEVEL, n_runs)


class Uniform:
    """The distribution of a column that is uniform on [-1, 1] and independent of all else."""

    def at(self, rows):
        points = (np.arange(40) + 0.5) / 20 - 1
        return np.tile(points, (len(rows), 1)), np.full((len(rows), 40), 1 / 40)


def test_rare_severe_events_are_found_though_the_likelihood_weighs_them_down():
    rng = np.random.default_rng(1)
    n = 1000
    X, treatment = rng.normal(size=(n, 4)), rng.integers(0, 2, size=n)
    y = X[:, 1] + rng.normal(size=n)
    y[(treatment == 1) & (X[:, 0] > 0) & (rng.random(n) < 0.1)] -= 6
    result = quiet_fit(X, y, treatment, **QUICK).result_
    own = result.diagnostics.loc["x0"]
    assert own["likelihood_p_value"] > 0.1
    assert own["direct_p_value"] < 0.001
    assert result.selected == ["x0"]


@pytest.mark.filterwarnings("ignore:constant columns")
def test_the_p_value_of_a_feature_is_that_of_both_components():
    rng = np.random.default_rng(6)
    X, treatment = rng.normal(size=(400, 3)), rng.integers(0, 2, size=400)
    X[:, 2] = 1.0
    y = treatment * X[:, 0] + rng.normal(size=400)
    result = quiet_fit(X, y, treatment, **QUICK).result_
    own = result.diagnostics[["likelihood_p_value", "direct_p_value"]].iloc[:2]
    assert_allclose(result.table["p_value"].iloc[:2], combined_p_value(*own.to_numpy().T), rtol=1e-12)
    assert result.diagnostics.loc["x2", ["likelihood_p_value", "direct_p_value"]].isna().all()


# Outcomes without a shape of their own.


def test_scores_of_a_coin_are_those_of_an_interaction_by_hand():
    rng = np.random.default_rng(7)
    X, arm = rng.normal(size=(600, 2)), np.arange(600) % 2
    y = (rng.random(600) < 0.4 + 0.25 * arm * np.sign(X[:, 0])).astype(float)
    result = quiet_fit(X, y, arm, **QUICK).result_
    own = result.diagnostics
    assert own.loc["x0", "direct_p_value"] < 1e-3 < own.loc["x1", "direct_p_value"]
    assert_allclose(
        result.table["p_value"], combined_p_value(own["likelihood_p_value"], own["direct_p_value"]), rtol=1e-12
    )
    # The same without models: the outcome less the mean of its arm, and ranks less their mean.
    rank = np.argsort(np.argsort(X[:, 0])) / 599 - 0.5
    by_hand = ((arm - 0.5) * (y - np.where(arm, y[arm == 1].mean(), y[arm == 0].mean())))[:, None]
    plain = sums_of(by_hand, np.stack((rank, np.clip(4 * rank, -0.5, 0.5)), axis=1)).p_value()
    assert_allclose(norm.isf(own.loc["x0", "direct_p_value"] / 2), norm.isf(plain / 2), atol=0.35)


def test_an_error_of_the_average_effect_finds_nothing_in_a_table_in_pieces():
    """Models of 500 of 10,000 rows get the average effect wrong, in all rows alike; X1 moves both arms."""
    found = []
    for seed in range(runs(30, 8)):
        rng = np.random.default_rng([seed, 10])
        X, arm = rng.normal(size=(10_000, 2)), (rng.random(10_000) < 0.3).astype(int)
        y = rng.poisson(np.exp(0.6 * X[:, 0]))
        how = QUICK | {"propensity": 0.3, "outcome": "count", "effect_scale": "ratio", "max_train_rows": 500}
        found.append(quiet_fit(X, y, arm, **how).result_.diagnostics.loc["x0", "direct_p_value"])
    # p <= 0.05 was the half of these where functions were centred without regard to the information on the contrast.
    assert np.mean(np.array(found) <= LEVEL) <= LEVEL + four_sd(LEVEL, len(found))


@pytest.mark.parametrize("scale", ["ratio", "odds_ratio", "difference"])
def test_the_stronger_a_modification_the_smaller_its_p_value(scale):
    """In a fifth of the rows the treatment prevents some, most or all events."""
    found = []
    for share in (0.4, 0.1, 0.0):
        rng = np.random.default_rng(11)
        X, arm = rng.normal(size=(1000, 2)), np.arange(1000) % 2
        X[:, 1] = rng.random(1000) < 0.2
        y = (rng.random(1000) < 0.3 * np.where((X[:, 1] == 1) & (arm == 1), share, 1.0)).astype(float)
        found.append(quiet_fit(X, y, arm, **QUICK, effect_scale=scale).result_.table.loc["x1", "p_value"])
    assert found[0] > found[1] > found[2]
    assert found[2] < 1e-5


@pytest.mark.parametrize("part", ["mean", "spread"])
def test_each_part_of_an_amount_has_its_own_direction(part):
    rng = np.random.default_rng(8)
    X, arm = rng.normal(size=(1500, 2)), np.arange(1500) % 2
    more = arm * np.sign(X[:, 0])
    some = rng.random(1500) < 0.5 + (0.2 * more if part == "mean" else 0.0)
    y = some * np.exp(1 + (0.4 * more if part == "spread" else 0.0) + 0.7 * rng.normal(size=1500))
    changes = quiet_fit(X, y, arm, **QUICK, outcome="amount", explain=True).result_.changes
    other = {"mean": "spread", "spread": "mean"}[part]
    assert changes.loc["x0", f"{part}_p"] < 1e-4 < 0.01 < changes.loc["x0", f"{other}_p"]
    assert changes["shape_p"].isna().all()


def test_outcomes_without_a_shape_have_uniform_p_values_where_nothing_is_modified():
    """Rare events that a feature predicts in both arms: 2% of 400 rows, 6 features, the last two skewed and binary."""
    n_sets, found = runs(150, 25), []
    for seed in range(n_sets):
        rng = np.random.default_rng([seed, 9])
        X, arm = rng.normal(size=(400, 6)), np.arange(400) % 2
        X[:, 4], X[:, 5] = np.exp(X[:, 4]), X[:, 5] > 1
        y = (rng.random(400) < np.exp(-3.5 + 0.8 * np.clip(X[:, 0], -3, 3))).astype(float)
        found.append(quiet_fit(X, y, arm, **QUICK).result_.diagnostics["direct_p_value"])
    p = np.concatenate(found)
    assert (p <= LEVEL).mean() <= LEVEL + four_sd(LEVEL, p.size)
    assert (p <= 0.005).mean() <= 0.005 + four_sd(0.005, p.size)


# Both p-values as one.

GRID = np.array([1e-280, 1e-40, 1e-8, 1e-3, 0.05, 0.3, 0.5, 0.8, 0.95, 1.0])


def test_without_a_direct_component_the_likelihood_is_all():
    assert_array_equal(combined_p_value(GRID, np.full(GRID.size, np.nan)), GRID)
    assert UNSEEN.with_direct(float("nan")).p_value == 1.0


def test_both_p_values_move_the_combined_one():
    for fixed in GRID:
        assert (np.diff(combined_p_value(GRID, fixed)) >= 0).all()
        assert (np.diff(combined_p_value(fixed, GRID)) >= 0).all()
    assert combined_p_value(0.01, 0.3) < combined_p_value(0.02, 0.3)
    assert combined_p_value(0.3, 0.01) < combined_p_value(0.3, 0.02)


@pytest.mark.parametrize("first", [1e-3, 1e-6, 1e-30])
@pytest.mark.parametrize("second", [1e-3, 1e-6, 1e-30])
def test_small_p_values_are_averaged_by_their_inverses(first, second):
    assert combined_p_value(first, second) == pytest.approx(1 / (0.6 / first + 0.4 / second), rel=1e-3)


def test_equal_p_values_stay_as_they_are():
    below = GRID[GRID <= LARGEST_COMBINED]
    assert_allclose(combined_p_value(below, below), below, rtol=1e-9)


def test_combined_p_values_stay_within_limits():
    one, two = np.meshgrid([0.0, *GRID], [0.0, *GRID])
    found = combined_p_value(one, two)
    assert (found >= SMALLEST * (1 - 1e-9)).all()
    assert (found <= LARGEST_COMBINED * (1 + 1e-9)).all()
    # One near 1 does not undo a small one.
    assert combined_p_value(1.0, 1e-3) < 0.003
    assert combined_p_value(1e-3, 1.0) < 0.002


def test_the_combined_p_value_of_dependent_components_keeps_its_level():
    rng = np.random.default_rng(8)
    n_runs = 20_000
    for correlation in (0.0, 0.7, 1.0):
        first = rng.normal(size=n_runs)
        second = correlation * first + np.sqrt(1 - correlation**2) * rng.normal(size=n_runs)
        share = (combined_p_value(norm.sf(first), norm.sf(second)) <= LEVEL).mean()
        assert 0.7 * LEVEL < share <= 1.2 * LEVEL


def test_an_outcome_with_direct_keeps_the_rest():
    plain = replace(UNSEEN, p_value=0.02, likelihood_p_value=0.02, gain=0.5)
    found = plain.with_direct(0.001)
    assert (found.direct_p_value, found.likelihood_p_value, found.gain) == (0.001, 0.02, 0.5)
    assert found.p_value == pytest.approx(1 / (0.6 / 0.02 + 0.4 / 0.001), rel=0.01)
    # Told once more, the old tails are forgotten.
    assert found.with_direct(float("nan")).p_value == 0.02
