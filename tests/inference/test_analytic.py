"""Tails of sums of independent rows against exact ones, and the test that is built on them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm, t

from modifind.inference import RowSums, analytic_test, sums_test
from modifind.inference.sums import tail


def exact_tail(values, weights, observed):
    """P(sum >= observed) for whole-numbered values, by convolution."""
    conditional = np.ones(1)
    for row, chances in zip(values.astype(int), weights, strict=True):
        own = np.zeros(row.max() + 1)
        np.add.at(own, row, chances)
        conditional = np.convolve(conditional, own)
    return conditional[np.arange(conditional.size) >= observed - 1e-9].sum()


def exact_middle(values, weights, observed):
    """The same with half of the probability of the observed sum itself: what a smooth tail stands for."""
    return (exact_tail(values, weights, observed) + exact_tail(values, weights, observed + 1)) / 2


def skewed_table(seed, n=40, g=5, top=7):
    rng = np.random.default_rng(seed)
    values = np.sort(rng.integers(0, top, size=(n, g)), axis=1).astype(float)
    return values, rng.dirichlet(np.full(g, 0.7), size=n)


def moments(values, weights):
    mean = (values * weights).sum(axis=1)
    return float(mean.sum()), float(np.sqrt(((values - mean[:, None]) ** 2 * weights).sum()))


def sum_tail(values, weights, total, shared_variance=0.0):
    """Saddlepoint and normal tail of a sum to which all rows add the same excess, so that they do not widen it."""
    expected = (values * weights).sum(axis=1)
    observed = expected + (total - expected.sum()) / expected.size
    outcome = analytic_test(observed, values, weights, shared_variance=shared_variance)
    return outcome.p_value, outcome.normal_p_value


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("deviations", [-3.0, -1.0, 0.6, 1.5, 2.5, 3.5, 5.0])
def test_tail_is_near_the_exact_convolution(seed, deviations):
    values, weights = skewed_table(seed)
    mean, sd = moments(values, weights)
    observed = np.round(mean + deviations * sd)
    exact = exact_middle(values, weights, observed)
    found, _ = sum_tail(values, weights, observed)
    # A lattice of span 1 with sd 9 or so: half steps matter to second order, (1/9)^2 / 24 times z^2; with that and
    # the approximation's own error of order 1/n a few per cent are left, of the smaller tail.
    assert abs(found - exact) < 0.04 * min(exact, 1 - exact)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.02])
@pytest.mark.parametrize("excess", [2.5, 4.0, 6.0, 8.0])
def test_far_tail_of_a_binomial_has_a_small_relative_error(share, excess):
    n = 1000
    sd = np.sqrt(n * share * (1 - share))
    observed = np.round(n * share + excess * sd)
    coins = np.tile([0.0, 1.0], (n, 1))
    found, normal = sum_tail(coins, np.tile([1 - share, share], (n, 1)), observed)
    exact = (binom.sf(observed - 1, n, share) + binom.sf(observed, n, share)) / 2
    # On the lattice of whole numbers the average of both one-sided tails is coth(t/2) t/2 times the smooth one, t the
    # saddlepoint: log odds between observed and expected share.
    tilt = np.log(observed / (n - observed)) - np.log(share / (1 - share))
    lattice = tilt / 2 / np.tanh(tilt / 2)
    assert found * lattice == pytest.approx(exact, rel=0.03)
    if share < 0.5 and excess >= 4:  # where the normal tail is wrong by a factor
        assert normal < exact / 1.5


def test_tail_below_the_mean_is_one_minus_the_other_tail():
    values, weights = skewed_table(9)
    mean, sd = moments(values, weights)
    for deviations in (0.7, 1.5, 3.0):
        lower, _ = sum_tail(values, weights, mean - deviations * sd)
        mirrored, _ = sum_tail(-values, weights, -(mean - deviations * sd))
        assert lower == pytest.approx(1 - mirrored, abs=1e-9)


def test_tail_of_normal_rows_is_the_normal_tail():
    points = np.linspace(-6, 6, 121)
    weights = np.exp(-0.5 * points**2)
    weights /= weights.sum()
    scale = np.linspace(0.5, 2.0, 50)
    values, weights = np.outer(scale, points), np.broadcast_to(weights, (50, 121))
    sd = np.sqrt((scale**2).sum())
    for deviations in (-4.0, -1.0, 0.3, 1.0, 2.0, 4.0, 8.0):
        found, normal = sum_tail(values, weights, deviations * sd)
        assert normal == pytest.approx(norm.sf(deviations), rel=1e-6)
        # Both are exact for normal rows; the points are cut at 6 standard deviations.
        assert found == pytest.approx(norm.sf(deviations), rel=1e-5)


def test_tails_do_not_jump_where_the_formula_changes():
    values, weights = skewed_table(3, n=200)
    mean, sd = moments(values, weights)
    steps = np.linspace(-2, 2, 401)
    found = np.array([sum_tail(values, weights, mean + z * sd)[0] for z in steps])
    assert (np.diff(found) < 1e-3).all()  # falls, but for the seam
    # At half a standard deviation the skewness of 200 rows, about 0.1, moves the tail by 0.1 / 6 * 0.75 * 0.35.
    assert np.abs(np.diff(found)).max() < 0.004 + 0.005


def test_shared_variance_widens_the_tail():
    values, weights = skewed_table(4, n=300)
    mean, sd = moments(values, weights)
    observed = mean + 4 * sd
    alone = sum_tail(values, weights, observed)
    shared = sum_tail(values, weights, observed, 3 * sd**2)
    assert shared[1] == pytest.approx(norm.sf(2.0))
    # Twice the standard deviation and an eighth of the skewness, which was about 0.1 for 300 rows.
    assert shared[0] == pytest.approx(norm.sf(2.0), rel=0.05)
    assert alone[0] < 1e-3 < shared[0]


def test_shared_variance_is_that_of_a_normal_row():
    values, weights = skewed_table(5)
    mean, sd = moments(values, weights)
    points = np.linspace(-7, 7, 301)
    bell = np.exp(-0.5 * points**2) / np.exp(-0.5 * points**2).sum()
    wide_values, wide_weights = np.zeros((41, 301)), np.zeros((41, 301))
    wide_values[:40, :5], wide_weights[:40, :5] = values, weights
    wide_values[40], wide_weights[40] = 0.8 * sd * points, bell
    for deviations in (-2.0, 1.0, 3.0, 5.0):
        added = sum_tail(values, weights, mean + deviations * sd, (0.8 * sd) ** 2)
        as_row = sum_tail(wide_values, wide_weights, mean + deviations * sd)
        np.testing.assert_allclose(added, as_row, rtol=1e-5)


def test_sum_that_cannot_vary_has_p_value_one():
    values, weights = np.tile(np.arange(20.0)[:, None], (1, 3)), np.tile([0.5, 0.25, 0.25], (20, 1))
    assert tail(lambda tilt: (0.0, 0.0, 0.0), 0.0, 0.0, 0.0) == (1.0, 1.0)
    outcome = analytic_test(values[:, 0], values, weights)
    assert (outcome.statistic, outcome.p_value, outcome.normal_p_value) == (0.0, 1.0, 1.0)
    assert (outcome.gain, outcome.gain_low, outcome.gain_high) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("size", [0.0, 1e-15])
def test_rounding_alone_is_no_variance(size):
    # What is left of the variance differs from table to table, so one would not do.
    for seed in range(30):
        rng = np.random.default_rng(seed)
        base = rng.normal(-2.0, 1.0, size=(300, 1))
        values = base + size * rng.normal(size=(300, 25))
        outcome = analytic_test(base[:, 0] + 4e-16, values, rng.dirichlet(np.ones(25), size=300))
        assert (outcome.p_value, outcome.statistic) == (1.0, 0.0)


def test_sum_beyond_what_rows_can_reach_has_a_tiny_positive_p_value():
    coins = np.tile([0.0, 1.0], (50, 1))
    for observed in (50.0, 51.0, 500.0):
        found, normal = sum_tail(coins, np.full((50, 2), 0.5), observed)
        assert 0 < found < 1e-9
        assert 0 < normal < 1e-9


def test_gain_and_its_interval_are_those_of_the_mean_excess():
    rng = np.random.default_rng(1)
    values, weights = rng.normal(size=(400, 7)), rng.dirichlet(np.ones(7), size=400)
    observed = rng.normal(0.2, 0.3, size=400)  # no more spread out than the values, which are then all there is
    outcome = analytic_test(observed, values, weights)
    expected = (values * weights).sum(axis=1)
    excess = observed - expected
    half = 1.959964 * excess.std(ddof=1) / 20
    assert outcome.gain == pytest.approx(excess.mean())
    assert outcome.gain_low == pytest.approx(excess.mean() - half, rel=1e-6)
    assert outcome.gain_high == pytest.approx(excess.mean() + half, rel=1e-6)
    variance = ((values**2 * weights).sum(axis=1) - expected**2).sum()
    assert outcome.statistic == pytest.approx(excess.sum() / np.sqrt(variance))
    tails = sum_tail(values, weights, observed.sum())
    assert (outcome.p_value, outcome.normal_p_value) == pytest.approx(tails, rel=1e-9)
    assert np.isnan(outcome.check_p_value)
    assert (outcome.n_resamples, outcome.n_exceeding) == (0, 0)


def test_statistic_is_measured_in_the_wider_deviations():
    rng = np.random.default_rng(2)
    values, weights = rng.normal(size=(100, 4)), np.full((100, 4), 0.25)
    observed = values.mean(axis=1) + 0.3  # rows vary less than the values
    alone = analytic_test(observed, values, weights)
    _, sd = moments(values, weights)
    shared = analytic_test(observed, values, weights, shared_variance=sd**2)
    assert shared.statistic == pytest.approx(alone.statistic / np.sqrt(2))
    assert shared.gain == alone.gain
    # The interval widens by the same variance: half its width is 1.96 standard errors of the mean.
    widths = [(outcome.gain_high - outcome.gain_low) / (2 * norm.ppf(0.975)) for outcome in (alone, shared)]
    assert widths[1] ** 2 - widths[0] ** 2 == pytest.approx(sd**2 / 100**2)


@pytest.mark.parametrize("shared", [0.0, 1.0])
@pytest.mark.parametrize("deviations", [-1.0, 0.2, 1.0, 2.0])
def test_resampled_check_agrees_with_the_tail(deviations, shared):
    rng = np.random.default_rng(3)
    values, weights = np.exp(rng.normal(size=(80, 25))), rng.dirichlet(np.ones(25), size=80)
    mean, sd = moments(values, weights)
    spread = sd * np.sqrt(1 + shared)
    observed = np.full(80, (mean + deviations * spread) / 80)
    outcome = analytic_test(observed, values, weights, shared_variance=shared * sd**2, check_resamples=4000, rng=rng)
    assert outcome.n_resamples == 4000
    assert outcome.check_p_value == (1 + outcome.n_exceeding) / 4001
    # Four standard errors of 4000 draws. Near the mean the tail is the normal one: skewness of at most 0.3 moves the
    # probability there by at most 0.3 / 6 * 0.4 = 0.02.
    error = 4 * np.sqrt(outcome.p_value * (1 - outcome.p_value) / 4000)
    assert abs(outcome.check_p_value - outcome.p_value) < error + (0.02 if abs(deviations) < 0.5 else 0.0)


def test_check_draws_points_by_their_weights():
    values, weights = np.tile([0.0, 5.0, 1.0], (2, 1)), np.tile([0.2, 0.0, 0.8], (2, 1))
    outcome = analytic_test(np.array([0.5, 0.5]), values, weights, check_resamples=2000, rng=np.random.default_rng(0))
    # The sum misses 1 when both rows take 0: probability 0.04, and four standard errors.
    assert outcome.check_p_value == pytest.approx(0.96, abs=4 * np.sqrt(0.04 * 0.96 / 2000))


def test_check_is_seeded():
    values, weights = skewed_table(6)
    observed = np.full(40, moments(values, weights)[0] / 40 + 0.1)
    first, again, other = (
        analytic_test(observed, values, weights, check_resamples=300, rng=np.random.default_rng(seed)).n_exceeding
        for seed in (0, 0, 1)
    )
    assert first == again != other


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 60),
    g=st.integers(2, 25),
    size=st.sampled_from([1e-8, 1e-3, 1.0, 1e3]),
    kind=st.sampled_from(["normal", "wild", "few"]),
    place=st.floats(-60, 60),
    shared=st.sampled_from([0.0, 0.1, 10.0]),
)
@settings(max_examples=200, deadline=None)
def test_p_values_are_never_zero_and_never_above_one(seed, n, g, size, kind, place, shared):
    rng = np.random.default_rng(seed)
    values = {
        "normal": lambda: rng.normal(size=(n, g)),
        "wild": lambda: rng.standard_t(1, size=(n, g)),
        "few": lambda: rng.integers(0, 2, size=(n, g)).astype(float),
    }[kind]()
    weights = rng.dirichlet(np.full(g, 0.3), size=n)
    mean, sd = moments(size * values, weights)
    for p_value in sum_tail(size * values, weights, mean + place * sd, shared * sd**2):
        assert 0 < p_value <= 1
    observed = size * values[:, 0] + place * sd / n
    outcome = analytic_test(observed, size * values, weights, shared_variance=shared * sd**2)
    assert 0 < outcome.p_value <= 1
    assert outcome.gain_low <= outcome.gain <= outcome.gain_high


def normal_sums(excess, variance, spread, n_clusters=0):
    """Sums of 100 rows that are normal under the null hypothesis; `spread` is their variance by rows, or clusters."""
    square, clusters = spread * 99 / 100 + excess**2 / 100, None
    if n_clusters:
        apart = np.arange(n_clusters) - (n_clusters - 1) / 2
        clusters = excess / n_clusters + apart * np.sqrt(spread / (n_clusters * apart.var(ddof=1)))
    return RowSums(100, 100.0, excess, square, variance, 0.0, 0.0, clusters)


def noise(outcome, excess, variance):
    """What was added to the variance of the null."""
    return (excess / outcome.statistic) ** 2 - variance


def test_variance_that_folds_share_makes_a_sum_less_unlikely():
    for shared in (0.0, 1.0, 3.0):
        outcome = sums_test(normal_sums(6.0, 4.0, 4.0), shared)
        assert noise(outcome, 6.0, 4.0) == pytest.approx(shared)
        assert outcome.p_value == pytest.approx(norm.sf(6 / np.sqrt(4 + shared)), rel=1e-6)
        assert outcome.statistic == pytest.approx(6 / np.sqrt(4 + shared))
        half = norm.ppf(0.975) * np.sqrt(4 + shared) / 100
        assert (outcome.gain_low, outcome.gain_high) == pytest.approx((0.06 - half, 0.06 + half))


def test_rows_that_vary_more_than_the_null_says_widen_it_and_what_is_shared():
    # Variance by the rows, and what is added to the null's: the rows' surplus, and the shared part in proportion.
    for spread, shared, expected in (
        (12.0, 2.0, (12 + 3 * 2, 3 * 2 + 8)),
        (12.0, 0.0, (12, 8)),
        (3.0, 2.0, (3 + 2, 2)),  # those that vary less take nothing away
    ):
        outcome = sums_test(normal_sums(9.0, 4.0, spread), shared)
        by_rows = ((outcome.gain_high - outcome.gain) * 100 / norm.ppf(0.975)) ** 2
        assert (by_rows, noise(outcome, 9.0, 4.0)) == pytest.approx(expected)
    outcome = sums_test(normal_sums(9.0, 4.0, 12.0), 2.0)
    assert outcome.p_value == pytest.approx(norm.sf(9 / np.sqrt(18)), rel=1e-6)


@pytest.mark.parametrize("n_clusters", [3, 10, 40])
def test_few_clusters_are_judged_by_students_t(n_clusters):
    freedom = n_clusters - 1
    outcome = sums_test(normal_sums(6.0, 4.0, 4.0, n_clusters))
    assert outcome.p_value == outcome.likelihood_p_value == pytest.approx(t.sf(3.0, freedom))
    assert outcome.p_value > 1.2 * norm.sf(3.0)
    assert outcome.normal_p_value == pytest.approx(norm.sf(3.0))
    half = t.ppf(0.975, freedom) * 2 / 100
    assert (outcome.gain_low, outcome.gain_high) == pytest.approx((0.06 - half, 0.06 + half))
    # Shared variance is part of what t is measured in; a tail that is larger already stays.
    wide = sums_test(normal_sums(6.0, 4.0, 4.0, n_clusters), 5.0)
    assert wide.p_value == pytest.approx(t.sf(2.0, freedom))
    narrow = sums_test(normal_sums(6.0, 4.0, 0.04, n_clusters))
    assert narrow.p_value == pytest.approx(max(norm.sf(3.0), t.sf(30.0, freedom)), rel=1e-6)


def test_clusters_give_one_degree_of_freedom_less_than_there_are():
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=(60, 9)), np.full((60, 9), 1 / 9)
    clusters = np.repeat([0, 2, 3, 5, 8, 9], 10)  # codes need not follow each other
    observed = values.mean(axis=1) + np.repeat(rng.normal(0.6, 0.5, size=6), 10)
    outcome = analytic_test(observed, values, weights, clusters=clusters)
    sums = (observed - values.mean(axis=1)).reshape(6, 10).sum(axis=1)
    error = np.sqrt(6 * sums.var(ddof=1))
    assert outcome.p_value == pytest.approx(t.sf(sums.sum() / error, 5))
    assert outcome.gain_high - outcome.gain == pytest.approx(t.ppf(0.975, 5) * error / 60)
    codes = np.unique(clusters, return_inverse=True)[1]
    sums_only = sums_test(RowSums.of(observed, values, weights, codes)[0])
    assert sums_only.p_value == pytest.approx(outcome.p_value)
    assert (sums_only.gain_low, sums_only.gain_high) == pytest.approx((outcome.gain_low, outcome.gain_high))
