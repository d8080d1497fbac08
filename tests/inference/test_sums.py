"""The test of one feature from sums over rows: they add up, and say what the test of all rows at once says."""

import numpy as np
import pytest
from scipy.stats import norm

from modifind.inference import RowSums, analytic_test, sums_test


def rows_of(rng, n, g=25, skew=0.0):
    """Log-likelihood-like values on a grid, their weights, and draws of them as the observed values."""
    points = rng.normal(size=(n, g))
    values = -0.5 * (1 + 0.3 * rng.normal(size=(n, 1))) * points + skew * (points**2 - 1)
    weights = rng.dirichlet(np.ones(g), size=n)
    chosen = (rng.random((n, 1)) > np.cumsum(weights, axis=1)[:, :-1]).sum(axis=1)
    return values[np.arange(n), chosen], values, weights


def rare_rows(rng, n, share):
    """A category that few rows have: every row's distribution has a long tail on one side."""
    weights = np.column_stack((np.full(n, 1 - share), np.full(n, share)))
    values = np.column_stack((np.zeros(n), 1.0 + 0.5 * rng.normal(size=n)))
    return values[np.arange(n), (rng.random(n) < share).astype(int)], values, weights


def moved(observed, values, weights, z):
    """Observed values whose sum is `z` null standard deviations above its null mean."""
    mean = np.einsum("ij,ij->i", values, weights)
    spread = np.sqrt(np.einsum("ij,ij->", weights, (values - mean[:, None]) ** 2))
    return observed + (z * spread - (observed - mean).sum()) / observed.size


@pytest.mark.parametrize("skew", [0.0, 0.4])
def test_sums_of_parts_add_up_to_those_of_all_rows(skew):
    observed, values, weights = rows_of(np.random.default_rng(0), 900, skew=skew)
    whole, variances = RowSums.of(observed, values, weights)
    cuts = [slice(0, 1), slice(1, 400), slice(400, 900)]
    parts = [RowSums.of(observed[cut], values[cut], weights[cut]) for cut in cuts]
    total = parts[0][0] + parts[1][0] + parts[2][0]
    assert total.n_rows == whole.n_rows == 900
    for name in ("size", "excess", "square", "second", "third", "fourth"):
        assert getattr(total, name) == pytest.approx(getattr(whole, name), rel=1e-10, abs=1e-10), name
    np.testing.assert_allclose(np.concatenate([part[1] for part in parts]), variances, rtol=1e-12)


def test_sums_are_the_cumulants_of_the_rows():
    # A fair coin has cumulants 1/4, 0 and -1/8; one of probability p: p(1-p), times (1-2p), times (1-6p(1-p)).
    n, p = 40, 0.2
    coins = np.tile([0.0, 1.0], (n, 1))
    sums, variances = RowSums.of(np.ones(n), coins, np.tile([1 - p, p], (n, 1)))
    np.testing.assert_allclose(variances, p * (1 - p))
    assert sums.size == n
    assert sums.excess == pytest.approx(n * (1 - p))
    assert sums.square == pytest.approx(n * (1 - p) ** 2)
    assert sums.second == pytest.approx(n * p * (1 - p))
    assert sums.third == pytest.approx(n * p * (1 - p) * (1 - 2 * p))
    assert sums.fourth == pytest.approx(n * p * (1 - p) * (1 - 6 * p * (1 - p)))


@pytest.mark.parametrize("shared", [0.0, 300.0])
def test_statistic_gain_and_interval_are_those_of_all_rows_at_once(shared):
    observed, values, weights = rows_of(np.random.default_rng(1), 2000, skew=0.2)
    observed = moved(observed, values, weights, 2.7)
    whole = analytic_test(observed, values, weights, shared_variance=shared)
    found = sums_test(RowSums.of(observed, values, weights)[0], shared)
    for name in ("statistic", "gain", "gain_low", "gain_high", "normal_p_value"):
        assert getattr(found, name) == pytest.approx(getattr(whole, name), rel=1e-9), name
    assert (found.n_resamples, found.n_exceeding) == (0, 0)
    assert np.isnan(found.check_p_value)


@pytest.mark.parametrize("z", [-6.0, -2.0, -0.3, 0.3, 1.0, 2.0, 4.0, 6.0, 8.0])
@pytest.mark.parametrize("shared", [0.0, 0.5])
def test_tail_of_many_rows_needs_no_more_than_four_cumulants(z, shared):
    observed, values, weights = rows_of(np.random.default_rng(2), 6000, skew=0.3)
    observed = moved(observed, values, weights, z)
    sums = RowSums.of(observed, values, weights)[0]
    whole = analytic_test(observed, values, weights, shared_variance=shared * sums.second)
    found = sums_test(sums, shared * sums.second)
    assert np.log(found.p_value) == pytest.approx(np.log(whole.p_value), rel=0.01)


@pytest.mark.parametrize("z", [-2.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("share", [0.01, 0.003])
def test_tail_of_a_rare_category_is_right_too(z, share):
    observed, values, weights = rare_rows(np.random.default_rng(3), 20_000, share)
    observed = moved(observed, values, weights, z)
    whole = analytic_test(observed, values, weights)
    found = sums_test(RowSums.of(observed, values, weights)[0])
    assert np.log(found.p_value) == pytest.approx(np.log(whole.p_value), rel=0.01)
    if z > 2:  # the comparison says something: the normal tail is far off
        assert abs(np.log(norm.sf(z)) / np.log(whole.p_value) - 1) > 0.02


def test_feature_that_the_statistic_does_not_look_at_has_p_value_one():
    rng = np.random.default_rng(4)
    observed = rng.normal(size=500)
    values = observed[:, None] + 1e-15 * rng.normal(size=(500, 5))
    found = sums_test(RowSums.of(observed, values, np.full((500, 5), 0.2))[0])
    assert (found.p_value, found.statistic, found.gain) == (1.0, 0.0, 0.0)
    assert found == analytic_test(observed, values, np.full((500, 5), 0.2))


def test_far_tail_is_a_small_number_and_never_zero():
    observed, values, weights = rows_of(np.random.default_rng(5), 3000)
    for z in (20.0, 60.0, 500.0):
        p_value = sums_test(RowSums.of(moved(observed, values, weights, z), values, weights)[0]).p_value
        assert 0 < p_value < 1e-80


def test_p_values_of_sums_drawn_from_the_null_are_uniform():
    rng = np.random.default_rng(6)
    found = [sums_test(RowSums.of(*rows_of(rng, 300, g=6, skew=0.3))[0]).p_value for _ in range(400)]
    # 400 uniform numbers: the share below 0.1 has sd 0.015, below 0.5 sd 0.025.
    assert np.mean(np.array(found) < 0.1) == pytest.approx(0.1, abs=0.06)
    assert np.mean(np.array(found) < 0.5) == pytest.approx(0.5, abs=0.1)
