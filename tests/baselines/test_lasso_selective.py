import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logit
from scipy.stats import kstest, norm
from sklearn.linear_model import Lasso

from conftest import ROOT, ar_normal, four_sd
from modifind.baselines import lasso_selective_inference
from modifind.baselines.design import effect_design, lasso_columns
from modifind.baselines.lasso import (
    COLUMNS,
    expected_max_correlation,
    lasso_active_set,
    mean_interval,
    residual_sd,
    tail_log_odds,
    tail_p_value,
)
from modifind.data.schema import read_features

REFERENCE = ROOT.parent / "shared" / "data" / "lasso_selective_inference_reference.json"
CASES = (
    "plain_noint_sigma1",
    "plain_int_sigmaNULL",
    "plain_noint_smalllambda_sigma1",
    "siem_profiled_lambda1.1",
    "siem_profiled_lambda_fixed4",
)


@pytest.fixture(scope="module")
def reference():
    if not REFERENCE.is_file():
        pytest.skip("no reference output of R's selectiveInference beside the repository")
    return json.loads(REFERENCE.read_text(encoding="utf-8"))


def reference_case(reference, name):
    r = next(case for case in reference["cases"] if case["name"] == name)
    python = next(case for case in reference["selectinf_cases"] if case["name"] == name)
    assert r["type"] == "partial"
    data = reference["plain"] if name.startswith("plain") else reference["siem"]
    X, y = (data["X"], data["y"]) if name.startswith("plain") else (data["Xp"], data["yp"])
    settings = {"sigma": r["sigma_given"], "intercept": r["intercept"], "alpha": r["alpha"]}
    return r, python, lambda sided: lasso_selective_inference(X, y, r["lambda"], sided=sided, **settings)


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_r_selective_inference(reference, name):
    r, _, infer = reference_case(reference, name)
    found = infer("one")
    assert found.index.tolist() == [k - 1 for k in r["vars_1based"]]
    assert found["sign"].tolist() == r["sign"]
    for ours, theirs in (("coef", "coef0"), ("sd", "sd"), ("lower", "vlo"), ("upper", "vup")):
        np.testing.assert_allclose(found[ours], r[theirs], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found["p_value"], r["pv"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_intervals_and_two_sided_p_values_agree_with_selectinf(reference, name):
    _, python, infer = reference_case(reference, name)
    found = infer("two")
    np.testing.assert_allclose(found["p_value"], python["pv_twosided"], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found[["ci_low", "ci_high"]], python["ci"], rtol=1e-5, atol=1e-5)


def test_noise_and_penalty_of_the_effect_design_agree_with_the_reference(reference):
    data = {name: np.array(values) for name, values in reference["siem"].items()}
    sigma, lam = float(data["sigma"]), float(data["lambda11"])
    assert residual_sd(data["Xp"], data["yp"], n_used=1) == pytest.approx(sigma, rel=1e-12)
    table = read_features(data["X"])
    arms = data["A"].astype(np.int64)
    design = effect_design(table, lasso_columns(table, arms), data["ry"], data["W"])
    np.testing.assert_allclose(design.response, data["yp"], atol=1e-12)
    np.testing.assert_allclose(design.matrix * design.scales, data["Xp"], atol=1e-12)
    assert residual_sd(design.matrix, design.response, n_used=1) == pytest.approx(sigma, rel=1e-12)
    # Both sides are means of 2000 draws of a maximum whose relative standard deviation is about 0.25: 4 sd = 3%.
    assert 1.1 * sigma * expected_max_correlation(data["Xp"], random_state=0) == pytest.approx(lam, rel=0.03)


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(3)
    X = ar_normal(rng, 60, 9, 0.4) * np.array([1, 1, 2, 1, 0.5, 1, 1, 1, 3])
    y = X[:, :3] @ np.array([0.6, -0.5, 0.2]) + rng.standard_normal(60)
    return X, y, 4.0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("lam", [1.0, 10.0, 40.0])
def test_active_set_is_that_of_coordinate_descent(seed, lam):
    rng = np.random.default_rng(seed)
    X = ar_normal(rng, 80, 30, 0.8)
    y = X[:, :4].sum(axis=1) + 2 * rng.standard_normal(80)
    active, signs = lasso_active_set(X, y, lam)
    other = Lasso(alpha=lam / 80, fit_intercept=False, tol=1e-14, max_iter=100_000).fit(X, y).coef_
    np.testing.assert_array_equal(active, np.flatnonzero(other))
    np.testing.assert_array_equal(signs, np.sign(other[active]))


def test_limits_are_where_active_set_or_signs_change(problem):
    X, y, lam = problem
    found = lasso_selective_inference(X, y, lam, sigma=1.0)
    assert len(found) >= 5
    pseudo = np.linalg.pinv(X[:, found.index])
    for j, row in enumerate(found.itertuples()):
        direction = row.sign * pseudo[j] / (pseudo[j] @ pseudo[j])
        value = row.sign * row.coef
        assert row.lower < value < row.upper
        for limit in (row.lower, row.upper):
            if math.isinf(limit):
                assert selected(X, y + 1e4 * direction, lam) == selected(X, y, lam)
                continue
            inside, outside = (y + share * (limit - value) * direction for share in (1 - 1e-7, 1 + 1e-7))
            assert selected(X, inside, lam) == selected(X, y, lam)
            assert selected(X, outside, lam) != selected(X, y, lam)


def selected(X, y, lam):
    active, signs = lasso_active_set(X, y, lam)
    return dict(zip(active.tolist(), signs.tolist(), strict=True))


def first_active(X, rng, mean, lam, n_runs, **settings):
    """The first selected column of many runs; which it is depends on the data only through the selection."""
    for _ in range(n_runs):
        y = mean + rng.standard_normal(mean.size)
        found = lasso_selective_inference(X, y, lam, sigma=1.0, **settings)
        if len(found):
            target = np.linalg.pinv(X[:, found.index])[0] @ mean
            yield found.iloc[0], target


@pytest.mark.parametrize("sided", ["one", "two"])
def test_null_p_values_are_uniform_given_the_selection(sided):
    rng = np.random.default_rng(0)
    X = ar_normal(rng, 40, 4, 0.5)
    p = [row["p_value"] for row, _ in first_active(X, rng, np.zeros(40), 7.0, 700, sided=sided)]
    assert len(p) > 400
    # Kolmogorov's distance exceeds 2.23 / sqrt(n) with probability 1e-4.
    assert kstest(p, "uniform").statistic < 2.23 / math.sqrt(len(p))


def test_intervals_cover_the_coefficient_of_the_selected_model():
    rng = np.random.default_rng(1)
    X = ar_normal(rng, 40, 4, 0.5)
    mean = X @ np.array([0.3, 0.0, -0.2, 0.0])
    runs = list(first_active(X, rng, mean, 7.0, 700, alpha=0.2))
    assert len(runs) > 500
    low = np.mean([target < row["ci_low"] for row, target in runs])
    high = np.mean([target > row["ci_high"] for row, target in runs])
    # Each tail misses with probability 0.1.
    assert max(abs(low - 0.1), abs(high - 0.1)) < four_sd(0.1, len(runs))


def test_p_value_and_interval_agree(problem):
    X, y, lam = problem
    found = lasso_selective_inference(X, y, lam, sigma=1.0, alpha=0.3)
    excludes_zero = (found["ci_low"] > 0) | (found["ci_high"] < 0)
    np.testing.assert_array_equal(excludes_zero, found["p_value"] < 0.3)
    one = lasso_selective_inference(X, y, lam, sigma=1.0, sided="one")["p_value"]
    np.testing.assert_allclose(found["p_value"], 2 * np.minimum(one, 1 - one), rtol=1e-12)


def test_sign_of_the_response_changes_only_signs(problem):
    X, y, lam = problem
    found, mirrored = (lasso_selective_inference(X, s * y, lam) for s in (1, -1))
    for name in ("sd", "lower", "upper", "p_value"):
        np.testing.assert_array_equal(found[name], mirrored[name])
    np.testing.assert_array_equal(found["coef"], -mirrored["coef"])
    np.testing.assert_array_equal(found["ci_low"], -mirrored["ci_high"])


def test_units_of_the_response_do_not_matter(problem):
    X, y, lam = problem
    found, scaled = lasso_selective_inference(X, y, lam), lasso_selective_inference(X, 1e6 * y, 1e6 * lam)
    np.testing.assert_allclose(found["p_value"], scaled["p_value"], rtol=1e-8)
    np.testing.assert_allclose(1e6 * found["ci_low"], scaled["ci_low"], rtol=1e-8)


def test_intercept_is_centring_and_costs_a_degree_of_freedom(problem):
    X, y, lam = problem
    found = lasso_selective_inference(X + 5.0, y - 3.0, lam, intercept=True)
    X, y = X - X.mean(axis=0), y - y.mean()
    sigma = residual_sd(X, y) * math.sqrt((60 - 9) / (60 - 9 - 1))
    other = lasso_selective_inference(X, y, lam, sigma=sigma)
    np.testing.assert_allclose(found.to_numpy(), other.to_numpy(), rtol=1e-8)


def test_nothing_selected_gives_an_empty_frame_of_the_same_form(problem):
    X, y, lam = problem
    empty, full = lasso_selective_inference(X, y, 1e6), lasso_selective_inference(X, y, lam)
    assert len(empty) == 0
    assert list(empty.columns) == list(COLUMNS)
    assert empty.dtypes.equals(full.dtypes)
    assert empty.index.dtype == full.index.dtype == np.int64
    assert empty.index.name == full.index.name == "column"


def test_single_column_has_a_half_line_and_a_tiny_p_value():
    X = np.zeros((50, 1))
    X[0] = 1.0
    y = 36.0 * X[:, 0]
    row = lasso_selective_inference(X, y, 2.0, sigma=1.0, sided="one").loc[0]
    assert (row["lower"], row["upper"]) == (2.0, math.inf)
    assert 0 < row["p_value"] < 1e-280
    assert math.log(row["p_value"]) == pytest.approx(norm.logsf(36.0) - norm.logsf(2.0), rel=1e-12)


finite = st.floats(-1e6, 1e6)
width = st.floats(1e-12, 1e6) | st.just(math.inf)


@given(finite, width, width)
def test_log_odds_are_never_missing_and_mirror(z, below, above):
    found = tail_log_odds(z, below, above)
    assert not math.isnan(found)
    assert found == pytest.approx(-tail_log_odds(-z, above, below), rel=1e-12)
    assert 0 <= tail_p_value(found, "two") <= 1


@given(st.floats(-5, 5), st.floats(0.1, 5), st.floats(0.1, 5))
def test_log_odds_are_those_of_the_plain_formula_where_that_works(z, below, above):
    masses = norm.cdf([z - below, z, z + above])
    sf = norm.sf([z - below, z, z + above])
    low, high = (np.diff(masses) if z < 0 else -np.diff(sf)).tolist()
    if min(low, high) > 1e-12:
        assert tail_log_odds(z, below, above) == pytest.approx(math.log(high / low), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("z", [1e4, 1e6, 1e9])
def test_far_out_the_distribution_is_exponential(z):
    # The density near z is exp(-z t), up to a factor 1 + O(1 / z^2).
    for below, above in ((1 / z, 1 / z), (1 / z, math.inf), (0.01 / z, 3 / z)):
        expected = math.log(-math.expm1(-z * above)) - math.log(math.expm1(z * below))
        assert tail_log_odds(z, below, above) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("below", [1e-3, 0.5, 2.0, 40.0])
def test_log_odds_do_not_jump_where_the_interval_starts_at_zero(below):
    left, right = (tail_log_odds(below * (1 + step), below, 1.0) for step in (-1e-13, 1e-13))
    assert left == pytest.approx(right, rel=1e-9)


@pytest.mark.parametrize("z", [0.3, 5.0, 30.0, -30.0, 1e5])
@pytest.mark.parametrize(("below", "above"), [(1e-6, 1e-3), (0.1, 2.0), (3.0, math.inf), (1e-3, 1e-3)])
def test_interval_ends_have_the_wanted_tails(z, below, above):
    low, high = mean_interval(z, below, above, 0.1)
    assert -math.inf < low < high < math.inf
    # The mean is given to 16 digits, which at distances like 1e6 leaves its tail about 10.
    precision = 1e-9 * max(1.0, abs(low - z), abs(high - z))
    assert tail_log_odds(z - low, below, above) == pytest.approx(logit(0.05), abs=precision)
    assert tail_log_odds(z - high, below, above) == pytest.approx(logit(0.95), abs=precision)


def test_interval_is_infinite_where_the_data_touch_a_limit():
    assert mean_interval(1.0, 0.0, 1.0, 0.05) == (-math.inf, math.inf)
    assert mean_interval(1.0, 1.0, 0.0, 0.05) == (-math.inf, math.inf)
    assert mean_interval(1.0, 1e-120, 1.0, 0.05) == (-math.inf, math.inf)
    low, high = mean_interval(1.0, 1e-50, 1.0, 0.05)
    assert -1e52 < low < high < -1e48


def test_expected_maximum_is_that_of_direct_draws():
    rng = np.random.default_rng(0)
    X = ar_normal(rng, 50, 6, 0.7) * np.arange(1, 7)
    direct = np.abs(rng.standard_normal((20_000, 50)) @ X).max(axis=1)
    found = expected_max_correlation(X, n_draws=20_000, random_state=1)
    assert abs(found - direct.mean()) < 4 * direct.std() * math.sqrt(2 / 20_000)  # four standard deviations
    assert found == expected_max_correlation(X, n_draws=20_000, random_state=1)
    wide = ar_normal(rng, 5, 20, 0.5)
    assert expected_max_correlation(wide, random_state=0) > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.zeros(5)}, "X must be a table"),
        ({"X": np.empty((60, 0))}, "X must be a table"),
        ({"X": [["a"]] * 60}, "must be numeric"),
        ({"X": np.full((60, 2), np.nan)}, "X has 120 missing"),
        ({"y": np.zeros(5)}, r"one value per row of X \(60\); found shape \(5,\)"),
        ({"y": np.full(60, np.inf)}, "y has 60 missing or infinite"),
        ({"lam": 0.0}, "lam must be a finite number above 0, not 0.0"),
        ({"lam": np.nan}, "lam must be"),
        ({"sigma": -1.0}, "sigma must be"),
        ({"sided": "both"}, "sided must be one of 'one', 'two', not 'both'"),
        ({"alpha": 1.0}, "alpha must lie strictly between 0 and 1"),
        ({"X": np.random.default_rng(0).normal(size=(60, 60))}, "60 rows are too few to estimate the noise"),
    ],
)
def test_bad_arguments_are_refused(problem, change, message):
    X, y, lam = problem
    with pytest.raises(ValueError, match=message):
        lasso_selective_inference(**{"X": X, "y": y, "lam": lam} | change)


@pytest.mark.parametrize("kind", ["copy", "mirror", "mean"])
def test_columns_that_tie_because_they_are_collinear_are_refused(problem, kind):
    X, y, _ = problem
    extra = {"copy": X[:, 0], "mirror": -X[:, 0], "mean": (X[:, 0] - X[:, 1]) / 2}[kind]
    with pytest.raises(ValueError, match="columns among 0, 1, 2 are collinear or tied"):
        lasso_selective_inference(np.column_stack((X[:, :2], extra)), y, 2.0)


def test_collinear_column_that_the_lasso_passes_over_does_no_harm(problem):
    X, y, _ = problem
    found = lasso_selective_inference(X, y, 2.0, sigma=1.0)
    other = lasso_selective_inference(np.column_stack((X, X[:, 0] / 2)), y, 2.0, sigma=1.0)
    np.testing.assert_allclose(found.to_numpy(), other.to_numpy(), rtol=1e-9)


def test_response_that_is_fitted_exactly_needs_a_known_noise(problem):
    X, _, lam = problem
    with pytest.raises(ValueError, match="fit the response exactly"):
        lasso_selective_inference(X, X[:, 0], lam)
    assert lasso_selective_inference(X, X[:, 0], lam, sigma=1.0).index.tolist() == [0]
