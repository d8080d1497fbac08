import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import norm

from conftest import four_sd, logistic_treatment
from modifind.datasets import make_modifiers
from modifind.explain import local_distributions
from modifind.explain.bounds import BoundDraws, bounds_test, effect_bounds
from modifind.explain.couplings import (
    benefit_bounds,
    correlation_bounds,
    effect_distribution_bounds,
    effect_quantile_bounds,
    sd_bounds,
    variance_bounds,
)
from modifind.explain.local import local_bandwidth
from modifind.explain.local_distributions import ENDS
from modifind.explain.rows import GivenRows

VALUES = np.array([-1.0, 0.0, 1.0])
# The paper's joint distributions of (Y0, Y1), rows Y0: example 1, and the counterexample of appendix B.
EXAMPLE = ([[0, 0, 0], [0.5, 0, 0.5], [0, 0, 0]], [[0, 0, 0], [0, 1, 0], [0, 0, 0]])
COUNTEREXAMPLE = ([[0.5, 0, 0], [0, 0, 0], [0, 0, 0.5]], [[0, 0, 0.5], [0, 0, 0], [0.5, 0, 0]])


def margins(table):
    table = np.array(table, dtype=float)
    return {"treated_weights": table.sum(axis=0), "control_weights": table.sum(axis=1)}


def effect_variance(table):
    effect = VALUES[None, :] - VALUES[:, None]
    return (np.array(table) * effect**2).sum() - (np.array(table) * effect).sum() ** 2


def test_example_of_the_paper_is_identified():
    # One arm is constant, so there is one joint distribution only: variance 1 at X = 0 and 0 at X = 1.
    for table, expected in zip(EXAMPLE, (1.0, 0.0), strict=True):
        found = variance_bounds(VALUES, VALUES, **margins(table))
        assert found == pytest.approx((expected, expected), abs=1e-15)
        assert expected == effect_variance(table)
        assert np.isnan(correlation_bounds(VALUES, VALUES, **margins(table))).all()
    half = margins(EXAMPLE[0])
    assert benefit_bounds(VALUES, VALUES, **half) == (0.5, 0.5)
    same = margins(EXAMPLE[1])
    assert benefit_bounds(VALUES, VALUES, **same) == (0.0, 0.0)
    assert benefit_bounds(VALUES, VALUES, ties=True, **same) == (1.0, 1.0)


def test_counterexample_of_the_paper_has_bounds_that_reach_from_one_table_to_the_other():
    for table in COUNTEREXAMPLE:
        assert variance_bounds(VALUES, VALUES, **margins(table)) == (0.0, 4.0)
        assert sd_bounds(VALUES, VALUES, **margins(table)) == (0.0, 2.0)
        assert correlation_bounds(VALUES, VALUES, **margins(table)) == pytest.approx((-1.0, 1.0))
        assert benefit_bounds(VALUES, VALUES, **margins(table)) == (0.0, 0.5)
        assert benefit_bounds(VALUES, VALUES, ties=True, **margins(table)) == (0.5, 1.0)
    assert [effect_variance(table) for table in COUNTEREXAMPLE] == [0.0, 4.0]


def extremes(cost, p0, p1):
    """Smallest and largest expectation of a cost matrix over all joint distributions with the given margins."""
    shape = cost.shape
    rows = np.kron(np.eye(shape[0]), np.ones(shape[1]))
    columns = np.kron(np.ones(shape[0]), np.eye(shape[1]))
    equal = {"A_eq": np.vstack((rows, columns)), "b_eq": np.concatenate((p0, p1)), "bounds": (0, None)}
    return linprog(cost.ravel(), **equal).fun, -linprog(-cost.ravel(), **equal).fun


@st.composite
def two_distributions(draw):
    """Small distributions on few integers or tenths, with ties within and between arms, and points on and off atoms."""
    unit = draw(st.sampled_from((1.0, 0.1)))
    conditionals = []
    for _ in range(2):
        size = draw(st.integers(1, 5))
        values = np.array(draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size))) * unit
        weights = np.array(draw(st.lists(st.integers(1, 6), min_size=size, max_size=size)), dtype=float)
        conditionals.append((values, weights))
    return conditionals, np.arange(-7, 8) * unit / 2


@settings(max_examples=40, deadline=None, derandomize=True)
@given(two_distributions())
def test_bounds_equal_linear_programming_over_all_joint_distributions(case):
    ((y0, w0), (y1, w1)), points = case
    p0, p1 = w0 / w0.sum(), w1 / w1.sum()
    weights = {"treated_weights": w1, "control_weights": w0}
    effect = np.round(y1[None, :] - y0[:, None], 9)
    mean = p1 @ y1 - p0 @ y0
    expected = np.array(extremes(effect**2, p0, p1)) - mean**2
    np.testing.assert_allclose(variance_bounds(y1, y0, **weights), expected, atol=1e-8)
    spreads = [np.sqrt(p @ y**2 - (p @ y) ** 2) for p, y in ((p0, y0), (p1, y1))]
    if min(spreads) > 1e-6:
        products = np.array(extremes(np.outer(y0, y1), p0, p1)) - (p0 @ y0) * (p1 @ y1)
        found = correlation_bounds(y1, y0, **weights)
        np.testing.assert_allclose(found, products / spreads[0] / spreads[1], atol=1e-7)
    shares = (
        (True, False, effect > 0),
        (True, True, effect >= 0),
        (False, False, effect < 0),
        (False, True, effect <= 0),
    )
    for higher, ties, event in shares:
        found = benefit_bounds(y1, y0, ties=ties, higher_is_better=higher, **weights)
        np.testing.assert_allclose(found, extremes(event.astype(float), p0, p1), atol=1e-8)
    for strict in (False, True):
        low, high = effect_distribution_bounds(y1, y0, points[3:12:2], strict=strict, **weights)
        for k, d in enumerate(np.round(points[3:12:2], 9)):
            event = effect < d if strict else effect <= d
            np.testing.assert_allclose((low[k], high[k]), extremes(event.astype(float), p0, p1), atol=1e-8)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(two_distributions(), st.integers(1, 12))
def test_quantile_bounds_invert_the_distribution_bounds(case, twelfths):
    ((y0, w0), (y1, w1)), _ = case
    weights = {"treated_weights": w1, "control_weights": w0}
    p = twelfths / 12
    low, high = effect_quantile_bounds(y1, y0, p, **weights)
    # Bounds of the distribution function jump at differences of atoms only.
    jumps = np.unique(np.round(y1[:, None] - y0, 9))
    smallest, largest = effect_distribution_bounds(y1, y0, jumps, **weights)
    assert low == pytest.approx(jumps[np.argmax(largest >= p - 1e-9)])
    assert high == pytest.approx(jumps[np.argmax(smallest >= p - 1e-9)])


def test_normal_arms_have_the_closed_forms():
    u = (np.arange(200_000) + 0.5) / 200_000
    s0, s1, shift = 1.0, 2.0, 0.7
    y0, y1 = s0 * norm.ppf(u), shift + s1 * norm.ppf(u)
    # 200,000 quantiles lack 1e-4 of the tails' variance.
    assert variance_bounds(y1, y0) == pytest.approx(((s1 - s0) ** 2, (s1 + s0) ** 2), rel=2e-4)
    assert correlation_bounds(y1, y0) == pytest.approx((-1.0, 1.0))
    # The densities of y1 - d and y0 cross where the difference of their distribution functions is extreme.
    points = np.array([-2.0, 0.0, 0.7, 3.0])
    low, high = effect_distribution_bounds(y1, y0, points)
    for k, d in enumerate(points):
        gap = shift - d
        root = np.sqrt(gap**2 + 2 * (s1**2 - s0**2) * np.log(s1 / s0))
        cross = (-(s0**2) * gap + s0 * s1 * np.array([-root, root])) / (s1**2 - s0**2)
        differences = norm.cdf((cross - gap) / s1) - norm.cdf(cross / s0)
        assert low[k] == pytest.approx(max(differences.max(), 0.0), abs=1e-5)
        assert high[k] == pytest.approx(1.0 + min(differences.min(), 0.0), abs=1e-5)
    strictly = benefit_bounds(y1, y0)
    assert strictly == pytest.approx((1 - high[1], 1 - low[1]), abs=1e-5)
    # Equal spreads: P(Y1 > Y0) is at least 2 Phi(shift / 2) - 1, and may be 1.
    assert benefit_bounds(norm.ppf(u) + shift, norm.ppf(u)) == pytest.approx((2 * norm.cdf(shift / 2) - 1, 1), abs=1e-5)


def test_a_better_treatment_never_lowers_the_share_who_benefit():
    rng = np.random.default_rng(0)
    y0, y1 = rng.integers(0, 6, size=80), rng.integers(0, 6, size=60)
    previous = (0.0, 0.0)
    for gain in range(7):
        found = benefit_bounds(y1 + gain, y0)
        assert found >= previous
        assert found[0] >= previous[0]
        assert found[1] >= previous[1]
        assert benefit_bounds(-(y1 + gain), -y0, higher_is_better=False) == pytest.approx(found)
        assert benefit_bounds(y1 + gain, y0, ties=True)[0] >= found[0]
        previous = found
    assert previous == (1.0, 1.0)


def test_bounds_do_not_depend_on_origin_and_follow_the_scale():
    rng = np.random.default_rng(1)
    y0, y1 = rng.normal(size=300), rng.exponential(size=200)
    near = variance_bounds(y1, y0)
    assert variance_bounds(y1 + 1e9, y0 - 1e9) == pytest.approx(near, rel=1e-5)
    assert variance_bounds(1e100 * y1, 1e100 * y0) == pytest.approx(np.array(near) * 1e200)
    weights = rng.integers(1, 4, size=200)
    repeated = variance_bounds(np.repeat(y1, weights), y0)
    assert variance_bounds(y1, y0, treated_weights=1e-300 * weights) == pytest.approx(repeated)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: variance_bounds([1.0, np.nan], [1.0]), "treated has missing"),
        (lambda: variance_bounds([1.0], []), "control has no outcome"),
        (lambda: variance_bounds([1.0], [1.0], control_weights=[-1.0]), "control_weights must not be negative"),
        (lambda: variance_bounds([1.0], [1.0], treated_weights=[1.0, 2.0]), "treated_weights has 2 values"),
        (lambda: effect_quantile_bounds([1.0], [1.0], 0.0), "probabilities must be above 0"),
    ],
)
def test_wrong_distributions_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# Along a feature.


def trial(seed, n, *, spread=0.0):
    rng = np.random.default_rng([seed, 1])
    x, treatment = rng.normal(size=n), rng.integers(0, 2, size=n)
    y = np.where(treatment == 1, 1.0 + 2.0 * np.exp(spread * x), 1.0) * rng.normal(size=n) + treatment
    return x, y, treatment


def test_categories_equal_the_bounds_of_their_own_rows():
    rng = np.random.default_rng(2)
    x = np.array(["low", "mid", "high"])[rng.integers(0, 3, size=400)]
    treatment, propensity = logistic_treatment(rng, rng.normal(size=400))
    y, weights = rng.integers(0, 5, size=400), rng.uniform(0.5, 1.5, size=400)
    found = effect_bounds(x, y, treatment, propensity, discrete=True, weights=weights, random_state=0)
    assert found["value"].tolist() == ["high", "low", "mid"]
    for row in found.itertuples():
        one, zero = (np.flatnonzero((x == row.value) & (treatment == arm)) for arm in (1, 0))
        own = {"treated_weights": (weights / propensity)[one], "control_weights": (weights / (1 - propensity))[zero]}
        assert (row.var_low, row.var_high) == pytest.approx(variance_bounds(y[one], y[zero], **own))
        assert (row.sd_low, row.sd_high) == pytest.approx(sd_bounds(y[one], y[zero], **own))
        assert (row.corr_low, row.corr_high) == pytest.approx(correlation_bounds(y[one], y[zero], **own))
        assert (row.benefit_low, row.benefit_high) == pytest.approx(benefit_bounds(y[one], y[zero], **own))
        found_ties = (row.no_harm_low, row.no_harm_high)
        assert found_ties == pytest.approx(benefit_bounds(y[one], y[zero], ties=True, **own))
        w = own["treated_weights"]
        assert row.support_treated == pytest.approx(w.sum() ** 2 / (w**2).sum())
    lower = effect_bounds(x, -y, treatment, propensity, discrete=True, weights=weights, higher_is_better=False)
    columns = ["benefit_low", "benefit_high", "no_harm_low", "no_harm_high"]
    np.testing.assert_allclose(lower[columns], found[columns], atol=1e-12)


def test_continuous_points_equal_the_bounds_under_kernel_weights():
    x, y, treatment = trial(3, 1500, spread=0.3)
    points, h = np.array([-1.0, 0.5]), 0.4
    found = effect_bounds(x, y, treatment, 0.5, points=points, bandwidth=h, random_state=0)
    for k, point in enumerate(points):
        near = np.exp(-(((x - point) / h) ** 2))
        one, zero = treatment == 1, treatment == 0
        own = {"treated_weights": near[one], "control_weights": near[zero]}
        for name, bounds in (("var", variance_bounds), ("corr", correlation_bounds), ("benefit", benefit_bounds)):
            expected = bounds(y[one], y[zero], **own)
            np.testing.assert_allclose(found.loc[k, [f"{name}_low", f"{name}_high"]].astype(float), expected, atol=1e-9)


def test_bands_hold_the_bounds_and_stay_in_range():
    x, y, treatment = trial(4, 600)
    found = effect_bounds(x, y, treatment, 0.5, random_state=0)
    assert len(found) == 25
    for end in (*ENDS, "sd_low", "sd_high"):
        assert (found[f"{end}_ci_low"] <= found[end]).all()
        assert (found[end] <= found[f"{end}_ci_high"]).all()
    assert (found["var_low_ci_low"] >= 0).all()
    assert found[["corr_low_ci_low", "corr_high_ci_high"]].abs().max().max() <= 1
    assert found["low_support"].tolist() == (found[["support_treated", "support_control"]].min(axis=1) < 30).tolist()
    assert 0 < found["low_support"].sum() < 12  # the ends
    narrow = effect_bounds(x, y, treatment, 0.5, level=0.5, random_state=0)
    assert (narrow["var_high_ci_high"] < found["var_high_ci_high"]).all()


def test_same_seed_same_bands_whatever_the_block(monkeypatch):
    x, y, treatment = trial(5, 500)
    few = {"points": [0.0, 1.0], "n_bootstrap": 30}
    first = effect_bounds(x, y, treatment, 0.5, random_state=7, **few)
    monkeypatch.setattr(local_distributions, "BLOCK_DRAWS", 7)
    pd.testing.assert_frame_equal(effect_bounds(x, y, treatment, 0.5, random_state=7, **few), first, rtol=1e-12)
    other = effect_bounds(x, y, treatment, 0.5, random_state=8, **few)
    assert not np.allclose(other["var_low_ci_high"], first["var_low_ci_high"])


@pytest.mark.parametrize("heavy", [False, True])
def test_cells_cost_little_of_the_band(heavy, monkeypatch):
    x, y, treatment = trial(6, 3000, spread=0.3)
    if heavy:
        y = np.where(np.abs(y) < 0.4, 0.0, np.sinh(y / 2))  # an atom at zero and long tails
    given = GivenRows(x, y, treatment, 0.5, points=[-1.0, 0.0, 1.0], bandwidth=0.5)
    settings_ = {"n_bootstrap": 40, "random_state": 0}
    coarse = BoundDraws.of(given, **settings_)
    monkeypatch.setattr(
        local_distributions.LocalDistribution.of.__func__, "__defaults__", (10**9, None, local_distributions.ALL)
    )
    exact = BoundDraws.of(given, **settings_)
    np.testing.assert_array_equal(coarse.estimates, exact.estimates)
    spread = np.maximum(exact.shifts.std(axis=0), 1e-12)
    off = np.sqrt(((coarse.shifts - exact.shifts) ** 2).mean(axis=0)) / spread
    # Bands are four spreads wide. Variances lose next to nothing; extremes are looked for in fewer places.
    assert off[:, :2].max() < 0.01
    assert off[:, 4:].max() < 0.12


def test_draws_of_some_rows_vary_like_those_of_all(monkeypatch):
    x, y, treatment = trial(7, 20_000, spread=0.3)
    given = GivenRows(x, y, treatment, 0.5, points=[-1.0, 0.0, 0.2], bandwidth=0.4)
    settings_ = {"n_bootstrap": 400, "random_state": 0}
    some = BoundDraws.of(given, **settings_)
    monkeypatch.setattr(local_distributions.LocalPart.thinned, "__defaults__", (10**9,))
    full = BoundDraws.of(given, **settings_)
    np.testing.assert_array_equal(some.estimates, full.estimates)
    np.testing.assert_array_equal(some.support, full.support)
    assert full.support.min() > 1000
    # Bounds at an edge of their range are left out: correlations of normal arms. A spread of 400 draws has an error of
    # 3.5%, and so has one of 1000 to 2000 rows.
    ratio = (some.shifts.std(axis=0) / full.shifts.std(axis=0))[:, [0, 1, 4, 5, 6, 7]]
    assert 0.8 < ratio.min() < ratio.max() < 1.25
    # Neighbours share their rows, and so their draws.
    together = [np.corrcoef(draws.shifts[:, 1:, 1].T)[0, 1] for draws in (some, full)]
    assert together[0] == pytest.approx(together[1], abs=0.1)


def test_bands_cover_the_bounds():
    u = (np.arange(100_000) + 0.5) / 100_000
    expected = {
        "var": variance_bounds(1 + 2 * norm.ppf(u), norm.ppf(u)),
        "benefit": benefit_bounds(1 + 2 * norm.ppf(u), norm.ppf(u)),
    }
    covered = {f"{name}_{end}": [] for name in expected for end in ("low", "high")}
    for seed in range(50):
        rng = np.random.default_rng([seed, 2])
        x, treatment = np.arange(1600) % 4, rng.integers(0, 2, size=1600)
        y = np.where(treatment == 1, 1 + 2 * rng.normal(size=1600), rng.normal(size=1600))
        found = effect_bounds(x, y, treatment, 0.5, discrete=True, n_bootstrap=100, random_state=seed)
        for name, truth in expected.items():
            for end, value in zip(("low", "high"), truth, strict=True):
                inside = found[f"{name}_{end}_ci_low"].le(value) & found[f"{name}_{end}_ci_high"].ge(value)
                covered[f"{name}_{end}"].append(inside.mean())
    for name, shares in covered.items():
        # Categories are independent: 200 intervals of nominal 0.95; variances of 200 rows an arm lose about 0.02.
        assert np.mean(shares) > 0.93 - four_sd(0.05, 200), name


def test_bands_cover_bounds_at_the_edge_of_their_range():
    inside = []
    for seed in range(50):
        rng = np.random.default_rng([seed, 3])
        x, treatment = np.arange(800) % 4, rng.integers(0, 2, size=800)
        y = rng.integers(0, 4, size=800) if seed % 2 else rng.normal(size=800)
        found = effect_bounds(x, y, treatment, 0.5, discrete=True, n_bootstrap=100, random_state=seed)
        # Both arms have the same distribution: no variance of the effect, full correlation and no benefit are all
        # possible.
        parts = (found["var_low_ci_low"] == 0, found["corr_high_ci_high"] == 1, found["benefit_low_ci_low"] == 0)
        inside.append([part.mean() for part in parts])
    assert np.min(np.mean(inside, axis=0)) > 0.95 - four_sd(0.05, 200)


def test_test_of_variation_is_calibrated_and_finds_variation():
    null, modified = [], []
    at = {"points": [-1.2, -0.4, 0.4, 1.2], "n_bootstrap": 100}
    for seed in range(50):
        x, y, treatment = trial(seed, 1000)
        null.append(bounds_test(x, y, treatment, 0.5, random_state=seed, **at)["p_value"])
        if seed < 5:
            x, y, treatment = trial(seed, 4000, spread=0.5)
            table = bounds_test(x, y, treatment, 0.5, random_state=seed, **at).set_index(["quantity", "part"])
            modified.append(table["p_value"])
    shares = pd.Series((np.array(null) <= 0.05).mean(axis=0), index=table.index)
    for key in (("var", "midpoint"), ("var", "width"), ("benefit", "midpoint"), ("benefit", "width")):
        assert shares[key] <= 0.05 + four_sd(0.05, 50), key
    # Normal arms have correlation bounds -1 and 1 everywhere; the test hardly ever rejects there.
    assert shares["corr", "width"] <= 0.05
    p_values = pd.concat(modified, axis=1)
    assert (p_values.loc[("var", "midpoint")] <= 0.01).all()
    assert (p_values.loc[("var", "width")] <= 0.01).all()


def test_missing_arm_few_rows_and_constant_outcomes():
    x = np.repeat(["a", "b", "c"], 130)
    treatment = np.where(x == "b", 1, np.arange(390) % 2)
    y = np.where(x == "c", 1.0, np.random.default_rng(0).normal(size=390))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = effect_bounds(x, y, treatment, 0.5, discrete=True, random_state=0).set_index("value")
        tests = bounds_test(x, y, treatment, 0.5, discrete=True, random_state=0).set_index(["quantity", "part"])
    assert found.loc["b"].drop(["support_treated", "support_control", "low_support"]).isna().all()
    assert found.loc["b", ["support_treated", "support_control"]].tolist() == [130.0, 0.0]
    assert found["low_support"].tolist() == [False, True, False]
    assert found.loc["c", ["var_low", "var_high_ci_high", "benefit_high_ci_high"]].tolist() == [0, 0, 0]
    assert np.isnan(found.loc["c", "corr_low_ci_low"])
    assert tests.loc[("var", "width"), "n_points"] == 2
    assert tests.loc[("var", "width"), "p_value"] < 0.05
    assert np.isnan(tests.loc[("corr", "width"), "p_value"])


def test_no_variation_at_all_is_not_significant():
    x, treatment = np.arange(400) % 2, np.arange(400) // 2 % 2
    tests = bounds_test(x, treatment, treatment, 0.5, discrete=True, random_state=0)
    assert (tests.loc[tests["quantity"] != "corr", "p_value"] == 1).all()
    assert (tests.loc[tests["quantity"] != "corr", "statistic"] == 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": [np.nan] * 40}, "x must have rows and no missing"),
        ({"x": ["a"] * 40}, "discrete=True"),
        ({"y": [np.inf] * 40}, "y has missing or infinite"),
        ({"y": ["text"] * 40}, "y must be numeric"),
        ({"y": [1.0] * 39}, "y must have one value for each of the 40 rows"),
        ({"treatment": [2] * 40}, "treatment must be 0"),
        ({"propensity": 1.0}, "propensity must lie above 0 and below 1"),
        ({"weights": [-1.0] * 40}, "weights must not be negative"),
        ({"bandwidth": 0.0}, "bandwidth must be a positive number"),
        ({"points": [np.nan]}, "points must be finite"),
        ({"points": [17], "discrete": True}, "points must be values of x; these are not: 17"),
        ({"level": 1.0}, "level must lie between"),
        ({"n_bootstrap": 5}, "n_bootstrap must be at least 20"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    arguments = {"x": np.arange(40) % 5, "y": np.arange(40.0), "treatment": np.arange(40) % 2, "propensity": 0.5}
    arguments |= change
    columns = [arguments.pop(name) for name in ("x", "y", "treatment", "propensity")]
    with pytest.raises(ValueError, match=message):
        effect_bounds(*columns, **arguments)


def test_draws_are_streamed():
    x, y, treatment = trial(7, 20_000)
    tracemalloc.start()
    effect_bounds(x, y, treatment, 0.5, points=[0.0, 1.0], n_bootstrap=300, random_state=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # All draws of all rows would take 48 MB a copy and point by point more; a block of draws is 16 MB, kept twice.
    assert peak < 80e6


def test_bounds_hold_the_true_variance_where_selection_is_impossible():
    data = make_modifiers("LinCovar", n_samples=5000, n_features=5, random_state=0)
    x = data.X["X1"].to_numpy()
    found = effect_bounds(x, data.y, data.treatment, data.propensity, points=[-1.0, 0.0, 1.0], random_state=0)
    near = np.exp(-(((np.array([-1.0, 0.0, 1.0])[:, None] - x) / local_bandwidth(x)) ** 2))
    near /= near.sum(axis=1, keepdims=True)
    effect = data.y1 - data.y0
    true = near @ effect**2 - (near @ effect) ** 2
    # The variance falls from 1.9 to 1.2 along X1, and no data show it: the bounds stay near 0 and 4.
    assert true[0] - true[2] > 0.3
    assert (found["var_low_ci_low"] <= true).all()
    assert (true <= found["var_high_ci_high"]).all()
    np.testing.assert_allclose(found["var_high"], 4.0, atol=1.0)
    np.testing.assert_allclose(found["var_low"], 0.0, atol=0.05)
