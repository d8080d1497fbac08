import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modifind.statistics.kernels import (
    MAX_DENSE_RANGE,
    DenseSums,
    GroupSums,
    gaussian_gram,
    kernel_sums,
    nearest_weights,
    random_fourier_map,
    reduce_map,
    spectral_map,
)
from modifind.statistics.wcmmd import median_bandwidth

SETTINGS = settings(derandomize=True, deadline=None, max_examples=150)


def brute_force_bandwidth(values):
    i, j = np.triu_indices(values.size, 1)
    distances = np.abs(values[i] - values[j])
    if distances.size == 0 or not distances.any():
        return 0.0
    median = np.median(distances)
    return median if median > 0 else np.median(distances[distances > 0])


@SETTINGS
@given(st.lists(st.integers(-6, 6), min_size=1, max_size=40))
def test_median_bandwidth_equals_brute_force_with_ties(values):
    column = np.array(values, dtype=float)
    assert median_bandwidth(column) == brute_force_bandwidth(column)


@SETTINGS
@given(st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=2, max_size=60))
def test_median_bandwidth_equals_brute_force_on_reals(values):
    column = np.array(values)
    # Pairs closer than the rounding of their sum may be counted as ties, which moves the rank by their number only.
    close = np.diff(np.sort(column))
    if ((close > 0) & (close < 1e-9)).any():
        return
    assert median_bandwidth(column) == pytest.approx(brute_force_bandwidth(column), rel=1e-12)


@pytest.mark.parametrize("scale", ["normal", "cauchy", "lognormal", "spike"])
def test_median_bandwidth_equals_brute_force_through_the_bisection(scale):
    rng = np.random.default_rng(3)
    normal = rng.normal(size=600)
    column = {
        "normal": normal,
        "cauchy": rng.standard_cauchy(600),
        "lognormal": np.exp(8 * normal),
        "spike": np.where(rng.random(600) < 0.75, 1e-6 * normal, 100 * normal),
    }[scale]
    assert median_bandwidth(column) == pytest.approx(brute_force_bandwidth(column), rel=1e-12)


def test_median_bandwidth_equals_brute_force_on_a_fine_grid_far_from_zero():
    rng = np.random.default_rng(4)
    for _ in range(60):
        column = 1e6 + 0.1 * rng.integers(0, 9, size=35)
        assert median_bandwidth(column) == pytest.approx(brute_force_bandwidth(column), rel=1e-6)


def test_zero_inflated_column_takes_the_median_of_distances_that_are_not_zero():
    column = np.concatenate((np.zeros(90), np.arange(1.0, 11.0)))
    assert median_bandwidth(column) == brute_force_bandwidth(column)
    assert median_bandwidth(column) == 5.0


def test_median_is_kept_as_it_is_when_exactly_half_of_the_pairs_tie():
    # Distances 0, 0, 0, 4, 4, 4: the median is 2, and it is not zero.
    assert median_bandwidth(np.array([0.0, 0.0, 0.0, 4.0])) == 2.0


def test_constant_column_and_single_row_have_bandwidth_zero():
    assert median_bandwidth(np.full(2000, 3.0)) == 0.0
    assert median_bandwidth(np.array([1.0])) == 0.0


def test_subsample_above_the_row_limit_is_seeded_and_close():
    column = np.random.default_rng(1).normal(size=4000)
    first, again, other = (median_bandwidth(column, random_state=seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert median_bandwidth(column, max_rows=4000) == median_bandwidth(column, random_state=5, max_rows=4000)
    # |U-V| for standard normals has median 0.954 and density 0.45 there. The share of 1000 rows' pairs below it has
    # sd about 0.014 (four times the variance of the first projection, 0.048, over n), so the median has sd 0.03; 4 sd.
    assert first == pytest.approx(0.954, abs=0.12)


def test_nearly_constant_long_column_has_a_positive_bandwidth():
    column = np.zeros(5000)
    column[7] = 2.0
    assert median_bandwidth(column, random_state=0) == 2.0


def test_gram_uses_the_convention_without_a_factor_two():
    gram = gaussian_gram(np.array([0.0, 1.0]), np.array([0.0, 3.0]), 2.0)
    np.testing.assert_allclose(gram, np.exp([[0.0, -9 / 4], [-1 / 4, -1.0]]))


def test_random_fourier_frequencies_have_variance_two_over_bandwidth_squared():
    # z_k(u) = sqrt(2/r) cos(w_k u + b_k); a finite difference at 0 gives -sqrt(2/r) w sin(b), whose mean
    # square times r is E[w^2] = 2/h^2. The mean over r of 2 w^2 sin^2 b has relative sd sqrt(3 * 1.5 -
    # 1)/sqrt(r) = 0.013 at r = 20000; 4 sd.
    bandwidth, r, step = 0.7, 20000, 1e-5
    features = random_fourier_map(np.array([-step, step]), bandwidth, r, np.random.default_rng(2))
    slope = (features[1] - features[0]) / (2 * step)
    assert (slope @ slope) == pytest.approx(2 / bandwidth**2, rel=0.053)


def test_random_fourier_inner_products_estimate_the_gram():
    # One product has sd at most sqrt(1.5 / r) = 0.0087 at r = 20000 (E 4cos^4 = 1.5); 45 distinct pairs, 4.5 sd.
    values = np.random.default_rng(4).normal(size=10)
    features = random_fourier_map(values, 1.3, 20000, np.random.default_rng(5))
    assert np.abs(features @ features.T - gaussian_gram(values, values, 1.3)).max() < 0.039


def test_reduced_map_keeps_every_inner_product_with_few_columns():
    values = np.random.default_rng(6).normal(size=150)
    features = random_fourier_map(values, 1.0, 800, np.random.default_rng(7))
    reduced = reduce_map(features)
    assert reduced.shape[1] < 60
    np.testing.assert_allclose(reduced @ reduced.T, features @ features.T, atol=1e-8)


@pytest.mark.parametrize("reduce", [True, False])
@pytest.mark.parametrize("distribution", ["normal", "uniform", "cauchy", "lognormal", "atoms"])
def test_spectral_map_equals_the_gram_in_every_entry(distribution, reduce):
    rng = np.random.default_rng(8)
    values = {
        "normal": rng.normal(size=300),
        "uniform": rng.uniform(0, 23.9, size=300),
        "cauchy": rng.standard_cauchy(300),
        "lognormal": np.exp(8 * rng.normal(size=300)),
        "atoms": rng.integers(0, 3, size=300) * 1e4,
    }[distribution]
    for bandwidth in (1.0, 5.0):
        features = spectral_map(values, bandwidth, reduce=reduce)
        np.testing.assert_allclose(features @ features.T, gaussian_gram(values, values, bandwidth), atol=2e-8)


COLUMNS = ("normal", "edge of dense", "beyond dense", "cauchy", "lognormal", "spike", "clusters")


def column_of(distribution, rng, n):
    normal = rng.normal(size=n)
    return {
        "normal": normal,
        "edge of dense": np.linspace(0, MAX_DENSE_RANGE, n),
        "beyond dense": np.linspace(0, 1.001 * MAX_DENSE_RANGE, n),
        "cauchy": rng.standard_cauchy(n),
        "lognormal": np.exp(8 * normal),
        "spike": np.where(rng.random(n) < 0.75, 1e-6 * normal, 1000 * normal),
        "clusters": rng.choice([0.0, 6.0, 30.0, 1e9], size=n) + 0.5 * normal,
    }[distribution]


@pytest.mark.parametrize("distribution", COLUMNS)
def test_kernel_sums_equal_dense_sums(distribution):
    rng = np.random.default_rng(9)
    x = column_of(distribution, rng, 180)
    sources = [(slice(0, 70), rng.normal(size=(70, 3))), (slice(70, None), rng.random((110, 2)))]
    fast = kernel_sums(x, 1.0)
    dense = DenseSums(gaussian_gram(x, x, 1.0)).sums(sources)
    assert fast.reaches_all == (distribution in ("normal", "edge of dense"))
    for found, expected in zip(fast.sums(sources), dense, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("distribution", ["normal", "edge of dense", "beyond dense", "clusters"])
def test_small_positive_kernel_sums_keep_their_relative_accuracy(distribution):
    rng = np.random.default_rng(10)
    x = np.sort(column_of(distribution, rng, 180))
    sources = [(slice(0, 5), np.ones((5, 1)))]
    exact = DenseSums(gaussian_gram(x, x, 1.0)).sums(sources)[0]
    found = kernel_sums(x, 1.0).sums(sources)[0]
    known = exact > 1e-10
    assert known.any()
    np.testing.assert_allclose(found[known], exact[known], rtol=2e-8)


@pytest.mark.parametrize("far", [1e6, 1e12, 1e15, 1e16, 1e18, 1e100])
def test_kernel_sums_survive_one_row_at_any_distance(far):
    rng = np.random.default_rng(11)
    x = np.append(rng.normal(size=60), far)
    found = kernel_sums(x, 1.0).sums([(slice(None), np.ones((61, 1)))])[0]
    np.testing.assert_allclose(found[:, 0], gaussian_gram(x, x, 1.0).sum(axis=1), atol=1e-7)


def test_group_sums_add_rows_of_the_same_category():
    codes = np.array([0, 1, 0, 2])
    values = np.array([[1.0], [10.0], [100.0], [1000.0]])
    whole, part = GroupSums(codes, 4).sums([(slice(None), values), (slice(1, None), values[1:])])
    assert whole[:, 0].tolist() == [101.0, 10.0, 101.0, 1000.0]
    assert part[:, 0].tolist() == [100.0, 10.0, 100.0, 1000.0]


def test_nearest_weights_are_the_kernel_scaled_by_its_maximum():
    ordered = np.sort(np.random.default_rng(12).normal(size=200))
    window, weights = nearest_weights(0.3, ordered, 0.5)
    kernel = gaussian_gram(np.array([0.3]), ordered, 0.5)[0]
    expected = kernel / kernel.max()
    np.testing.assert_allclose(weights, expected[window], rtol=1e-10)
    left_out = np.ones(200, dtype=bool)
    left_out[window] = False
    assert expected[left_out].max(initial=0.0) < np.exp(-39.9)


@pytest.mark.parametrize("point", [-1e3, 1e3, 1e9, 1e15])
def test_nearest_weights_survive_where_the_kernel_underflows(point):
    ordered = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    window, weights = nearest_weights(point, ordered, 1.0)
    nearest = np.argmin(np.abs(ordered - point))
    at = np.arange(5)[window].tolist().index(nearest)
    assert weights[at] == 1.0
    assert np.delete(weights, at).max(initial=0.0) < 1e-100


def test_nearest_weights_keep_ties_between_both_sides():
    window, weights = nearest_weights(0.0, np.array([-1e8, -1e8, 1e8]), 1.0)
    assert np.arange(3)[window].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(weights, np.ones(3))
