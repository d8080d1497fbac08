"""Distributions as weighted points per row: what the points preserve, and that they agree with draws."""

import numpy as np
import pandas as pd
import pytest

from conftest import OracleSampler, conditional_grid, confounded_table, seed_of
from modifind.data.schema import read_features
from modifind.data.weights import Weights
from modifind.nuisance.conditional import (
    AutoSampler,
    BoostingSampler,
    ConditionalGrid,
    CVAESampler,
    GaussianSampler,
    MarginalSampler,
    SplineSampler,
)
from modifind.nuisance.conditional.cvae import GRID_BLOCK, CVAEConditional, Decoder, latent_nodes
from modifind.nuisance.conditional.distributions import (
    N_GRID,
    CategoricalConditional,
    NormalConditional,
    PoolConditional,
    cell_grid,
)

ALL = slice(None)
N_DRAWS = 20_000
SAMPLERS = (GaussianSampler, SplineSampler, BoostingSampler, MarginalSampler, AutoSampler, CVAESampler)
SETTINGS = {CVAESampler: {"max_epochs": 3, "hidden": 16}}


def fit_mixed(sampler, n=250, seed=1):
    """Features: continuous and bimodal given the rest; three categories; zero-inflated."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "x": z + rng.choice([-2.0, 2.0], size=n) + 0.3 * rng.normal(size=n),
            "c": np.array(list("abc"))[np.clip(np.round(z + rng.normal(size=n)) + 1, 0, 2).astype(int)],
            "zero": np.where(rng.random(n) < 0.6, 0.0, np.exp(z)),
        }
    )
    return sampler(**SETTINGS.get(sampler, {})).fit(read_features(frame), rng.integers(0, 2, size=n), seed_of(seed))


def pool_law(values, n_levels=0):
    """Two rows that share one window of all values, the second shifted and scaled."""
    window, alike = (np.zeros(2, int), np.full(2, values.size)), Weights.alike(values.size)
    return PoolConditional(values, *window, None, np.array([0, 10]), np.array([1, 3]), alike, n_levels)


def two_mode_law(n):
    """A decoder that steps from -2 to 2 at latent 0, with noise of sd 0.2; rows differ by their context."""
    step, shift = 20.0, np.linspace(-1, 1, n)
    context = np.column_stack((np.zeros(n), np.full(n, -1.0), np.maximum(shift, 0), np.maximum(-shift, 0)))
    latent = np.array([[step, step, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    last = np.array([[4.0, 0.0], [-4.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    layers = (latent, np.eye(4), np.zeros((1, 4)), last, np.array([[-2.0, 2 * np.log(0.2)]]))
    weights = tuple(layer.astype(np.float32) for layer in layers)
    return CVAEConditional(Decoder(context.astype(np.float32), weights, 0.0, 1.0, 0), None)


def expectation(grid, function):
    points, weights = grid
    return (weights * function(points)).sum(axis=1)


def variance(grid):
    mean = expectation(grid, lambda v: v)
    return expectation(grid, lambda v: (v - mean[:, None]) ** 2)


def distribution_at(point, grid):
    """Share below a value, by linear interpolation of the points' mid-probabilities; one row."""
    points, weights = (array[0] for array in grid)
    used = weights > 0
    return np.interp(point, points[used], np.cumsum(weights[used]) - 0.5 * weights[used])


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("feature", range(3))
def test_every_row_has_weights_that_sum_to_one(sampler, feature):
    fitted = fit_mixed(sampler)
    points, weights = conditional_grid(fitted, feature).at(ALL)
    assert points.shape == weights.shape == (250, 3 if feature == 1 else N_GRID)
    assert points.dtype == weights.dtype == np.float64
    assert np.isfinite(points).all()
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-12)
    assert (np.diff(points[:, np.flatnonzero(weights.min(axis=0) > 0)], axis=1) > 0).all()


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("feature", range(3))
def test_blocks_are_the_grid_of_all_rows(sampler, feature):
    grid = conditional_grid(fit_mixed(sampler), feature, block_rows=60)
    blocks = list(grid)
    assert [(rows.start, rows.stop) for rows, _, _ in blocks] == [
        (0, 60),
        (60, 120),
        (120, 180),
        (180, 240),
        (240, 250),
    ]
    # Products of 32-bit matrices may round differently in blocks of another size.
    tolerance = 1e-5 if sampler is CVAESampler else 0.0
    for part, whole in zip(zip(*[block[1:] for block in blocks], strict=True), grid.at(ALL), strict=True):
        np.testing.assert_allclose(np.concatenate(part), whole, rtol=tolerance, atol=tolerance)
    chosen = np.array([7, 3, 201])
    for some, whole in zip(grid.at(chosen), grid.at(ALL), strict=True):
        np.testing.assert_allclose(some, whole[chosen], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("sampler", [*SAMPLERS, OracleSampler])
def test_grid_is_deterministic(sampler):
    feature = 0 if sampler is OracleSampler else 2
    fitted = fit_mixed(sampler)
    for first, second in zip(*(conditional_grid(fitted, feature).at(ALL) for _ in range(2)), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("feature", range(3))
def test_gaussian_grid_does_not_depend_on_the_seed(feature):
    grids = [conditional_grid(fit_mixed(GaussianSampler, seed=seed), feature).at(ALL) for seed in (1, 2)]
    for first, second in zip(*grids, strict=True):
        np.testing.assert_array_equal(first, second)


def test_normal_grid_integrates_smooth_functions():
    mean, scale = np.array([-1.0, 0.0, 2.5]), 1.3
    grid = NormalConditional(mean, scale, None).grid(ALL)
    np.testing.assert_allclose(expectation(grid, lambda v: v), mean, atol=1e-12)
    np.testing.assert_allclose(variance(grid), scale**2, rtol=1e-12)
    np.testing.assert_allclose(expectation(grid, lambda v: v**3), mean**3 + 3 * mean * scale**2, atol=1e-10)
    np.testing.assert_allclose(
        expectation(grid, lambda v: np.exp(0.3 * v)), np.exp(0.3 * mean + 0.045 * scale**2), rtol=1e-6
    )
    np.testing.assert_allclose(
        expectation(grid, lambda v: np.cos(2 * v)), np.cos(2 * mean) * np.exp(-2 * scale**2), atol=2e-5
    )


def test_categorical_grid_has_the_probabilities():
    probabilities = np.array([[0.2, 0.0, 0.5, 0.3], [0.0, 0.1, 0.2, 0.7]])
    points, weights = CategoricalConditional(probabilities, None).grid(ALL)
    np.testing.assert_array_equal(points, np.tile([0.0, 1.0, 2.0, 3.0], (2, 1)))
    np.testing.assert_allclose(weights, probabilities, atol=1e-15)


def test_pool_of_codes_has_their_frequencies():
    points, weights = pool_law(np.array([0.0, 2.0, 2.0, 0.0, 2.0]), n_levels=4).grid(slice(0, 1))
    np.testing.assert_array_equal(points, [[0.0, 1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(weights, [[0.4, 0.0, 0.6, 0.0]])


WINDOWS = {
    "normal": lambda rng: rng.normal(size=700),
    "far from zero": lambda rng: 1e4 + rng.normal(size=700),
    "two modes": lambda rng: rng.choice([-1.0, 1.0], size=700) + 0.1 * rng.normal(size=700),
    "skewed": lambda rng: np.exp(rng.normal(size=700)),
    "heavy tails": lambda rng: rng.standard_t(2, size=700),
    "rounded": lambda rng: np.round(3 * rng.normal(size=700)),
    "atom": lambda rng: np.where(rng.random(700) < 0.4, 0.0, np.exp(rng.normal(size=700))),
    "few rows": lambda rng: rng.normal(size=12),
    "constant": lambda rng: np.full(30, 0.1),
}


@pytest.mark.parametrize("window", WINDOWS)
def test_pool_grid_keeps_the_mean_and_nearly_all_of_the_variance(window):
    values = WINDOWS[window](np.random.default_rng(2))
    grid = pool_law(values).grid(ALL)
    mean = np.array([values.mean(), 10 + 3 * values.mean()])
    np.testing.assert_allclose(expectation(grid, lambda v: v), mean, rtol=1e-10, atol=1e-10)
    spread = values.var() * np.array([1, 9])
    assert (variance(grid) <= spread * (1 + 1e-9) + 1e-12).all()
    # Cells of equal width over a range of 6 sd would lose (6/25)^2 / 12 = 0.5%; splits at means are a little coarser.
    assert (variance(grid) >= 0.985 * spread - 1e-12).all()
    assert (grid[0][0] >= values.min() - 1e-9).all()
    assert (grid[0][0] <= values.max() + 1e-9).all()


def test_no_cell_bridges_the_gap_between_two_modes():
    values = np.concatenate((np.linspace(-1.2, -0.8, 350), np.linspace(0.8, 1.2, 350)))
    points, weights = pool_law(values).grid(ALL)
    assert (np.abs(points[0]) > 0.79)[weights[0] > 0].all()
    assert weights[0, points[0] > 0].sum() == pytest.approx(0.5, abs=1e-12)


def test_atoms_keep_their_exact_mass():
    rng = np.random.default_rng(3)
    # Continuous values on both sides of one atom and close to it, so that cells would mix them.
    values = np.concatenate((np.zeros(123), np.full(50, 2.0), 0.5 * rng.normal(size=327)))
    points, weights = pool_law(rng.permutation(values)).grid(ALL)
    for value, share in ((0.0, 123 / 500), (2.0, 50 / 500)):
        assert weights[0, points[0] == value].sum() == share
        assert weights[1, points[1] == 10 + 3 * value].sum() == share
    below = weights[0, points[0] < 0].sum()
    # The other 23 points take whole cells of the rest; one of them may lie across zero, with 5% of the mass at most.
    assert below == pytest.approx((values < 0).mean(), abs=0.05)


def test_few_values_are_all_kept():
    values = np.repeat([0.1, 0.7, 1.3, 5.5], [1, 2, 3, 34])
    points, weights = pool_law(values).grid(slice(0, 1))
    used = weights > 0
    np.testing.assert_array_equal(points[used], [0.1, 0.7, 1.3, 5.5])
    np.testing.assert_allclose(weights[used], [0.025, 0.05, 0.075, 0.85], atol=1e-15)


def test_each_row_has_the_grid_of_its_own_window():
    pool = np.concatenate((np.zeros(40), np.linspace(5, 6, 60), np.full(30, 9.0)))
    # Windows that share a start, and windows that share an end.
    start, size = np.array([0, 40, 100, 40, 30]), np.array([40, 60, 30, 30, 70])
    grid = PoolConditional(pool, start, size, None, np.zeros(5), np.ones(5), Weights.alike(pool.size)).grid(ALL)
    expected = [0.0, 5.5, 9.0, pool[40:70].mean(), pool[30:100].mean()]
    np.testing.assert_allclose(expectation(grid, lambda v: v), expected, atol=1e-12)


def test_cells_follow_unequal_weights_row_by_row():
    rng = np.random.default_rng(4)
    points, weights = rng.normal(size=(3, 200)), rng.dirichlet(np.ones(200), size=3)
    weights[0] = np.where(np.arange(200) == 17, 1.0, 0.0)
    grid = cell_grid(points, weights)
    np.testing.assert_allclose(grid[1].sum(axis=1), 1.0, atol=1e-12)
    # Within a cell an exponential is nearly linear: its curvature of 0.5^2 times half of 0.5% of the variance is lost.
    for function, tolerance in ((lambda v: v, 1e-12), (lambda v: np.exp(0.5 * v), 2e-3)):
        exact = (weights * function(points)).sum(axis=1)
        np.testing.assert_allclose(expectation(grid, function), exact, atol=tolerance)


CONDITIONALS = {
    "boosting": lambda: fit_mixed(BoostingSampler).conditional(0),
    "boosting, atom": lambda: fit_mixed(BoostingSampler).conditional(2),
    "marginal": lambda: fit_mixed(MarginalSampler).conditional(0),
    "marginal, atom": lambda: fit_mixed(MarginalSampler).conditional(2),
    "cvae": lambda: fit_mixed(CVAESampler).conditional(0),
    "cvae, two modes": lambda: two_mode_law(50),
}


@pytest.mark.parametrize("name", CONDITIONALS)
def test_grid_agrees_with_draws(name):
    conditional = CONDITIONALS[name]()
    rows = np.arange(0, 50, 10)
    grid = conditional.grid(rows)
    rng = np.random.default_rng(5)
    draws = np.concatenate([conditional.draw(rng, N_DRAWS // 20)[:, rows] for _ in range(20)])
    spread = draws.std()
    for function in (lambda v: v, lambda v: v**2, lambda v: np.cos(v / spread), lambda v: np.exp(-((v / spread) ** 2))):
        drawn = function(draws)
        # 4 standard errors of 20,000 draws: 0.028 standard deviations.
        error = np.abs(expectation(grid, function) - drawn.mean(axis=0)) / drawn.std(axis=0)
        assert (error < 4 / np.sqrt(N_DRAWS)).all()
    for place, row in enumerate(rows):
        for level in (0.1, 0.25, 0.5, 0.75, 0.9):
            quantile = np.quantile(draws[:, place], level)
            tie = (draws[:, place] == quantile).mean()
            share = (draws[:, place] < quantile).mean() + 0.5 * tie
            # 4 standard errors, 0.0141 at the median, and as much for the interpolation between 25 points.
            assert distribution_at(quantile, conditional.grid(np.array([row]))) == pytest.approx(share, abs=0.03)


def test_two_modes_of_a_decoder_keep_their_masses():
    points, weights = two_mode_law(5).grid(ALL)
    centre = np.linspace(-1, 1, 5)[:, None]
    # The step takes latent values from 0 to 1/20: probability 0.02. 64 nodes resolve 1/64.
    upper = (weights * (points > centre + 1)).sum(axis=1)
    lower = (weights * (points < centre - 1)).sum(axis=1)
    np.testing.assert_allclose(upper, 0.49, atol=0.02)
    np.testing.assert_allclose(lower, 0.5, atol=0.02)


def test_discrete_decoder_averages_its_probabilities():
    fitted = fit_mixed(CVAESampler)
    conditional = fitted.conditional(1)
    points, weights = conditional.grid(ALL)
    np.testing.assert_array_equal(points[0], [0.0, 1.0, 2.0])
    draws = conditional.draw(np.random.default_rng(6), 4000)
    for code in range(3):
        share = (draws == code).mean(axis=0)
        # 4.5 standard errors of 4,000 draws, because there are 750 comparisons.
        assert (np.abs(weights[:, code] - share) < 4.5 * np.sqrt(share * (1 - share) / 4000)).all()


def test_decoder_blocks_are_joined_in_order():
    conditional = two_mode_law(GRID_BLOCK + 30)
    rows = np.array([GRID_BLOCK + 20, 4])
    for whole, some in zip(conditional.grid(ALL), conditional.grid(rows), strict=True):
        np.testing.assert_allclose(whole[rows], some, atol=1e-5)


@pytest.mark.parametrize("dim", [1, 2, 6])
def test_latent_nodes_have_standard_moments(dim):
    latent, noise = latent_nodes(dim)
    np.testing.assert_allclose(latent.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose((latent**2).mean(axis=0), 1.0, rtol=1e-12)
    assert noise.mean() == pytest.approx(0.0, abs=1e-12)
    assert (noise**2).mean() == pytest.approx(1.0)
    # 64 independent points would have correlations of 0.125; a low-discrepancy sequence has less.
    joint = np.column_stack((latent, noise.mean(axis=1)))
    assert np.abs(np.corrcoef(joint.T) - np.eye(dim + 1)).max() < 0.15


def test_distribution_that_only_draws_is_summarised_by_draws():
    X, treatment = confounded_table(np.random.default_rng(7), 400, 3)
    sampler = OracleSampler().fit(read_features(X), treatment, seed_of(0))
    grid, conditional = conditional_grid(sampler, 1), sampler.conditional(1)
    assert not hasattr(conditional, "grid")
    points = grid.at(ALL)
    assert points[0].shape == (400, N_GRID)
    error = (expectation(points, lambda v: v) - conditional.mean) / conditional.scale
    # 200 draws: sd 0.071 per row; the root mean square over 400 rows has a relative sd of 1/sqrt(800), 4 sd = 14%.
    assert np.sqrt(np.mean(error**2)) == pytest.approx(1 / np.sqrt(200), rel=0.15)
    # Mean of 400 sample variances of 200 draws: sd 0.1/20 = 0.005; the cells lose 0.5%.
    assert variance(points).mean() == pytest.approx(conditional.scale**2, rel=0.03)


class CountedConditional:
    """Draws category 2 with probability 0.3 in even rows and 0.6 in odd ones, else category 0."""

    calibration = None

    def __init__(self, n):
        self.share, self.calls = np.where(np.arange(n) % 2, 0.6, 0.3), 0

    def draw(self, rng, n_draws):
        self.calls += 1
        return 2.0 * (rng.random((n_draws, self.share.size)) < self.share)


def test_discrete_distribution_that_only_draws_has_frequencies_and_draws_once():
    conditional = CountedConditional(300)
    blocks = list(ConditionalGrid.of(conditional, 300, n_levels=4, block_rows=100))
    assert conditional.calls == 1
    points, weights = (np.concatenate(part) for part in list(zip(*blocks, strict=True))[1:])
    np.testing.assert_array_equal(points, np.tile([0.0, 1.0, 2.0, 3.0], (300, 1)))
    assert (weights[:, [1, 3]] == 0).all()
    # 200 draws in each of 150 rows: sd at most 0.003; 4 sd.
    assert weights[0::2, 2].mean() == pytest.approx(0.3, abs=0.012)
    assert weights[1::2, 2].mean() == pytest.approx(0.6, abs=0.012)


def test_blocks_need_rows():
    with pytest.raises(ValueError, match="block_rows must be at least 1, not 0"):
        conditional_grid(fit_mixed(GaussianSampler), 0, block_rows=0)
