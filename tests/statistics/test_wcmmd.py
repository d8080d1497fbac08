import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from conftest import logistic_treatment, seed_of
from modifind.data.schema import read_features
from modifind.datasets import make_modifiers
from modifind.statistics import WCMMD, wcmmd_importance
from modifind.statistics.contract import Nuisances
from modifind.statistics.prepared_wcmmd import curve_variance

WEIGHTINGS = ("hajek", "horvitz_thompson")
ESTIMATORS = ("spectral", "rff", "exact")

# Tables of P(Y0, Y1 | X): rows are Y0, columns Y1, both over -1, 0, 1.
VALUES = np.array([-1.0, 0.0, 1.0])
EXAMPLE = {
    0: np.array([[0, 0, 0], [0.5, 0, 0.5], [0, 0, 0]]),
    1: np.array([[0, 0, 0], [0, 1.0, 0], [0, 0, 0]]),
}
COUNTEREXAMPLE = {
    0: np.array([[0.5, 0, 0], [0, 0, 0], [0, 0, 0.5]]),
    1: np.array([[0, 0, 0.5], [0, 0, 0], [0.5, 0, 0]]),
}


def kernel(distance, h):
    return np.exp(-((distance / h) ** 2))


def population_d2(table, h):
    """Squared MMD of the two margins of a joint table."""
    contrast = table.sum(axis=0) - table.sum(axis=1)
    return contrast @ kernel(VALUES[:, None] - VALUES, h) @ contrast


def simulate_tables(tables, n, seed):
    """X balanced by design; treatment depends on X and on a second feature, with known propensity."""
    rng = np.random.default_rng(seed)
    x = np.arange(n) % 2
    second = rng.integers(0, 2, size=n)
    propensity = np.array([[0.35, 0.6], [0.65, 0.4]])[x, second]
    treatment = (rng.random(n) < propensity).astype(int)
    cells = np.array([rng.choice(9, size=n, p=tables[k].ravel()) for k in (0, 1)])[x, np.arange(n)]
    y = np.where(treatment == 1, VALUES[cells % 3], VALUES[cells // 3])
    return x, y, treatment, propensity


def test_tables_have_the_moments_the_paper_states():
    for tables, variance, covariance in ((EXAMPLE, (1, 0), (0, 0)), (COUNTEREXAMPLE, (0, 4), (1, -1))):
        for k in (0, 1):
            p = tables[k]
            mean0, mean1 = p.sum(axis=1) @ VALUES, p.sum(axis=0) @ VALUES
            effect = VALUES[None, :] - VALUES[:, None]
            assert (mean1 - mean0) == 0
            assert (p * effect**2).sum() - (mean1 - mean0) ** 2 == variance[k]
            assert VALUES @ p @ VALUES - mean0 * mean1 == covariance[k]


def test_population_d2_of_the_tables_in_closed_form():
    for h in (0.5, 1.0, 2.0):
        k1, k2 = np.exp(-1 / h**2), np.exp(-4 / h**2)
        assert population_d2(EXAMPLE[0], h) == pytest.approx(1.5 + 0.5 * k2 - 2 * k1)
        assert population_d2(EXAMPLE[1], h) == 0
        assert population_d2(COUNTEREXAMPLE[0], h) == 0
        assert population_d2(COUNTEREXAMPLE[1], h) == 0


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize(("estimator", "n", "r"), [("spectral", 40000, 0), ("rff", 8000, 2000), ("exact", 4000, 0)])
def test_example_1_importance_converges_to_the_population_value(estimator, n, r, weighting):
    h = 1.0
    k1, k2 = np.exp(-1.0), np.exp(-4.0)
    d2 = 1.5 + 0.5 * k2 - 2 * k1
    settings = {"estimator": estimator, "weighting": weighting, "y_bandwidth": h, "n_components": max(r, 1)}
    x, *rest = simulate_tables(EXAMPLE, n, seed=1)
    found, curve = wcmmd_importance(x, *rest, discrete=True, random_state=2, **settings)
    # Sampling error of D2(0). Hajek: Y0 is constant and Y1 = +-1 with estimated share 1/2 + t adds
    # 2(1-k2)t^2, with var t = E[1/e]/(4 n/2) and E[1/e] < 2.9. Horvitz-Thompson: weight totals 1 + u1, 1 + u0
    # with variance below 1.9/(n/2) move it by 2(1/2 + k2/2 - k1)u1 + 2(1 - k1)u0 to first order.
    sampling = 2 * (1 - k2) * 16 * 2.9 / (2 * n)
    if weighting == "horvitz_thompson":
        sampling += 4 * (2 * abs(0.5 + 0.5 * k2 - k1) + 2 * (1 - k1)) * np.sqrt(1.9 / (n / 2))
    # Random features: D2 is the mean of r terms 2cos^2(b)(cos w - 1)^2, whose variance is
    # 1.5 E(1 - cos w)^4 - D2^2, and E cos(kw) = exp(-k^2/h^2).
    fourth = 35 / 8 - 7 * np.exp(-1) + 3.5 * np.exp(-4) - np.exp(-9) + np.exp(-16) / 8
    features = 4 * np.sqrt((1.5 * fourth - d2**2) / r) if r else 0.0
    tolerance = sampling + features
    assert curve[x == 0] == pytest.approx(d2, abs=tolerance)
    # D2(1) = (u1 - u0)^2 |phi(0)|^2 under Horvitz-Thompson, 0 under Hajek; random features move |phi(0)|^2 by
    # under half.
    other = 16 * 4 * 1.9 / (n / 2) * 1.5 if weighting == "horvitz_thompson" else 1e-12
    assert curve[x == 1] == pytest.approx(0.0, abs=other)
    assert 0.25 * (d2 - tolerance - other) ** 2 < found < 0.25 * (d2 + tolerance) ** 2 * n / (n - 1)
    assert tolerance + other < 0.45 * d2


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize(("estimator", "n"), [("spectral", 40000), ("rff", 8000), ("exact", 4000)])
def test_counterexample_has_no_importance(estimator, n, weighting):
    settings = {"estimator": estimator, "weighting": weighting, "y_bandwidth": 1.0, "n_components": 500}
    x, *rest = simulate_tables(COUNTEREXAMPLE, n, seed=3)
    found, curve = wcmmd_importance(x, *rest, discrete=True, random_state=4, **settings)
    # E D2(x) <= (E[1/e] + E[1/(1-e)]) / (n/2), at most 5.8 / (n/2), as |phi| = 1; D2 is below 16 times that with
    # probability above 0.9999 (a squared norm is at worst a chi-square of one degree). Random features multiply |phi|^2
    # by at most 2. A variance of two equally frequent values is at most a quarter of the squared larger one.
    bound = 16 * 5.8 / (n / 2) * (2 if estimator == "rff" else 1)
    assert curve.max() < bound
    assert found < bound**2 / 4 * 1.001
    example = 0.25 * population_d2(EXAMPLE[0], 1.0) ** 2
    assert found < 0.01 * example


def confounded_potential_outcomes(n, seed):
    """X moves the effect; a second feature moves both the treatment and the outcome."""
    rng = np.random.default_rng(seed)
    x, second = rng.normal(size=(2, n))
    treatment, propensity = logistic_treatment(rng, 0.5 * x + second)
    y0 = 2 * second + rng.normal(size=n)
    y1 = 2 * second + 2 * x + rng.normal(size=n)
    return x, y0, y1, treatment, propensity


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_weights_recover_the_curve_of_both_potential_outcomes_and_no_weights_do_not(weighting):
    n, h_x, h_y = 40000, 0.7, 2.0
    x, y0, y1, treatment, propensity = confounded_potential_outcomes(n, seed=5)
    both = np.concatenate
    _, direct = wcmmd_importance(
        both((x, x)), both((y0, y1)), np.repeat([0, 1], n), 0.5, weighting=weighting, x_bandwidth=h_x, y_bandwidth=h_y
    )
    y = np.where(treatment == 1, y1, y0)
    importance, weighted = wcmmd_importance(
        x, y, treatment, propensity, weighting=weighting, x_bandwidth=h_x, y_bandwidth=h_y
    )
    _, unweighted = wcmmd_importance(x, y, treatment, 0.5, weighting=weighting, x_bandwidth=h_x, y_bandwidth=h_y)
    inside = np.abs(x) < 1.5
    # The embedding at x has an error of squared norm at most (E[1/e|x] + E[1/(1-e)|x]) / (n f(x) h sqrt(2
    # pi)). At |x| = 1.5 that is (1.8 + 4.5) / (40000 * 0.13 * 0.7 * 2.5) = 0.0007, norm 0.026, so D2 moves by
    # 2 sqrt(D2) 0.026; 4 sd.
    error = np.abs(weighted - direct[:n])[inside]
    assert (error < 4 * (2 * np.sqrt(direct[:n][inside]) * 0.026 + 0.0007)).all()
    # At x = 0 both potential outcomes have one distribution, so D2 is the smoothing bias only. Without weights the arms
    # are near N(+-0.83, 4.3), so D2 = 2 (1 + 4.3)^-0.5 (1 - exp(-1.66^2 / (4 + 4 * 4.3))) = 0.106 with sd 0.008.
    centre = np.abs(x) < 0.1
    assert direct[:n][centre].max() < 0.02
    assert weighted[centre].max() < 0.04
    assert unweighted[centre].min() > 0.106 - 4 * 0.008
    # The importance is the variance of a curve with pointwise errors of about 0.03 against a spread of about 0.3.
    assert importance == pytest.approx(curve_variance(direct[:n]), rel=0.25)


COLUMNS = ("normal", "uniform", "zero-inflated", "cauchy", "lognormal", "spike", "discrete")
OUTCOMES = ("normal", "cauchy", "lognormal", "binary")


def draw_column(conditional, rng, n):
    normal = rng.normal(size=n)
    return {
        "normal": normal,
        "uniform": rng.random(n),
        "zero-inflated": np.where(rng.random(n) < 0.7, 0.0, np.exp(normal)),
        "cauchy": rng.standard_cauchy(n),
        "lognormal": np.exp(8 * normal),
        "spike": np.where(rng.random(n) < 0.75, 1e-5 * normal, 10 * normal),
        "discrete": rng.integers(0, 4, size=n).astype(float),
        "binary": (normal > 0).astype(float),
    }[conditional]


def assert_same_curve_and_importance(first, second, tolerance=1e-6):
    (importance, curve), (expected, expected_curve) = first, second
    np.testing.assert_array_equal(np.isnan(curve), np.isnan(expected_curve))
    scale = np.nanmax(expected_curve, initial=0.0)
    np.testing.assert_allclose(curve, expected_curve, rtol=tolerance, atol=tolerance * scale)
    # Where the curve is flat to seven digits its variance has none left.
    assert importance == pytest.approx(expected, rel=tolerance, abs=1e-14 * scale**2)


@settings(derandomize=True, deadline=None, max_examples=120)
@given(
    column=st.sampled_from(COLUMNS),
    outcome=st.sampled_from(OUTCOMES),
    weighting=st.sampled_from(WEIGHTINGS),
    n=st.integers(20, 150),
    seed=st.integers(0, 99),
)
def test_spectral_equals_exact_on_every_kind_of_column(column, outcome, weighting, n, seed):
    rng = np.random.default_rng(seed)
    x, y = draw_column(column, rng, n), draw_column(outcome, rng, n)
    treatment = rng.permutation(np.arange(n) % 2)
    propensity = rng.uniform(0.05, 0.95, size=n)
    spectral, exact = (
        wcmmd_importance(
            x, y, treatment, propensity, discrete=column == "discrete", estimator=estimator, weighting=weighting
        )
        for estimator in ("spectral", "exact")
    )
    assert_same_curve_and_importance(spectral, exact)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("column", ["cauchy", "lognormal", "spike"])
def test_spectral_equals_exact_on_heavy_tails(column, weighting):
    rng = np.random.default_rng(6)
    x, y = draw_column(column, rng, 700), draw_column("cauchy", rng, 700)
    treatment, propensity = logistic_treatment(rng, rng.normal(size=700))
    spectral, exact = (
        wcmmd_importance(x, y, treatment, propensity, estimator=estimator, weighting=weighting)
        for estimator in ("spectral", "exact")
    )
    assert_same_curve_and_importance(spectral, exact)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_spectral_equals_exact_with_one_row_far_beyond_double_precision_of_the_rest(weighting):
    rng = np.random.default_rng(7)
    x, y = np.append(rng.normal(size=60), 1e18), rng.normal(size=61)
    treatment = np.arange(61) % 2
    spectral, exact = (
        wcmmd_importance(x, y, treatment, 0.5, estimator=estimator, weighting=weighting)
        for estimator in ("spectral", "exact")
    )
    assert_same_curve_and_importance(spectral, exact)


def test_exact_equals_the_definition_written_as_loops():
    rng = np.random.default_rng(8)
    n, h_x, h_y = 14, 0.8, 1.1
    x, y = rng.normal(size=(2, n))
    treatment, propensity = np.arange(n) % 2, rng.uniform(0.2, 0.8, size=n)
    w1, w0 = treatment / propensity, (1 - treatment) / (1 - propensity)
    for weighting in WEIGHTINGS:
        expected = np.empty(n)
        for i in range(n):
            k = kernel(x[i] - x, h_x)
            totals = (k @ w1, k @ w0) if weighting == "hajek" else (k.sum(), k.sum())
            omega = k * w1 / totals[0] - k * w0 / totals[1]
            expected[i] = sum(omega[j] * omega[m] * kernel(y[j] - y[m], h_y) for j in range(n) for m in range(n))
        importance, curve = wcmmd_importance(
            x, y, treatment, propensity, estimator="exact", weighting=weighting, x_bandwidth=h_x, y_bandwidth=h_y
        )
        np.testing.assert_allclose(curve, expected, rtol=1e-10)
        assert importance == pytest.approx(np.var(expected, ddof=1))


def test_rff_error_shrinks_like_the_root_of_the_number_of_features():
    rng = np.random.default_rng(9)
    x = rng.normal(size=200)
    treatment = np.arange(200) % 2
    y = treatment * x + rng.normal(size=200)
    exact, _ = wcmmd_importance(x, y, treatment, 0.5, estimator="exact")
    errors = []
    for r in (50, 500, 5000):
        found = [
            wcmmd_importance(x, y, treatment, 0.5, estimator="rff", n_components=r, random_state=seed)[0]
            for seed in range(24)
        ]
        errors.append(np.mean(np.abs(np.array(found) / exact - 1)))
    # Each step should divide the mean absolute error by sqrt(10) = 3.2. The mean over 24 seeds has relative sd
    # 0.75/sqrt(24) = 0.15, a ratio of two 0.22; 1.6 is three of those below 3.2 on the log scale.
    assert errors[0] > 1.6 * errors[1]
    assert errors[1] > 1.6 * errors[2]
    assert errors[2] < 0.05


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("estimator", ["rff", "exact"])
@pytest.mark.parametrize("column", ["normal", "discrete", "lognormal"])
def test_accelerated_path_gives_the_same_number_as_the_published_sums(column, estimator, weighting):
    rng = np.random.default_rng(10)
    x, y = draw_column(column, rng, 150), rng.normal(size=150)
    treatment, scores = rng.permutation(np.arange(150) % 2), rng.uniform(0.1, 0.9, size=150)
    levels = 4 if column == "discrete" else 0
    curves = []
    for accelerate in (True, False):
        statistic = WCMMD(estimator, weighting, n_components=300, accelerate=accelerate)
        prepared = statistic.for_rows(y, treatment, seed_of(11))
        curves.append(prepared.curve(x, scores, bandwidth=1.0, n_levels=levels))
    assert_same_curve_and_importance(*((curve_variance(curve), curve) for curve in curves))


def test_accelerated_rff_of_another_seed_gives_another_number():
    rng = np.random.default_rng(12)
    x, y = rng.normal(size=(2, 100))
    treatment = np.arange(100) % 2
    first, second = (
        WCMMD("rff", n_components=100)
        .for_rows(y, treatment, seed_of(k))
        .importance(x, np.full(100, 0.5), bandwidth=1.0)
        for k in (0, 1)
    )
    assert first != second


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_importance_does_not_depend_on_row_order_or_units(estimator):
    rng = np.random.default_rng(13)
    x, y = rng.normal(size=(2, 120))
    treatment, e = rng.permutation(np.arange(120) % 2), rng.uniform(0.2, 0.8, size=120)
    importance, curve = wcmmd_importance(x, y, treatment, e, estimator=estimator, random_state=0)
    order = rng.permutation(120)
    shuffled, shuffled_curve = wcmmd_importance(
        x[order], y[order], treatment[order], e[order], estimator=estimator, random_state=0
    )
    assert shuffled == pytest.approx(importance, rel=1e-7)
    np.testing.assert_allclose(shuffled_curve, curve[order], rtol=1e-6, atol=1e-10)
    scaled, _ = wcmmd_importance(100 * x - 7, 0.01 * y, treatment, e, estimator=estimator, random_state=0)
    assert scaled == pytest.approx(importance, rel=1e-7)


def test_category_with_one_arm_is_undefined_under_hajek_and_counts_as_average():
    x = np.repeat([0, 1, 2], 20)
    treatment = np.tile([0, 1], 30)
    treatment[x == 2] = 1
    y = np.random.default_rng(14).normal(size=60) + x * treatment
    for estimator in ESTIMATORS:
        importance, curve = wcmmd_importance(x, y, treatment, 0.5, discrete=True, estimator=estimator, random_state=0)
        assert np.isnan(curve[x == 2]).all()
        assert not np.isnan(curve[x != 2]).any()
        known = curve[x != 2]
        assert importance == pytest.approx(((known - known.mean()) ** 2).sum() / 59)


def test_labels_of_a_discrete_feature_do_not_matter():
    rng = np.random.default_rng(15)
    codes, y, treatment = rng.integers(0, 3, size=90), rng.normal(size=90), np.arange(90) % 2
    by_code = wcmmd_importance(codes, y, treatment, 0.5, discrete=True)
    by_label = wcmmd_importance(np.array(["b", "c", "a"])[codes], y, treatment, 0.5, discrete=True)
    assert_same_curve_and_importance(by_label, by_code, tolerance=1e-12)


def test_constant_feature_and_constant_outcome_have_no_importance():
    rng = np.random.default_rng(16)
    treatment = np.arange(50) % 2
    for estimator in ESTIMATORS:
        importance, curve = wcmmd_importance(np.ones(50), rng.normal(size=50), treatment, 0.5, estimator=estimator)
        assert importance == pytest.approx(0.0, abs=1e-20)
        assert np.ptp(curve) == pytest.approx(0.0, abs=1e-12)
        nothing, flat = wcmmd_importance(rng.normal(size=50), np.ones(50), treatment, 0.5, estimator=estimator)
        assert nothing == pytest.approx(0.0, abs=1e-20)
        assert np.abs(flat).max() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"propensity": 1.0}, "strictly between 0 and 1"),
        ({"treatment": [0, 2] * 10}, "0 and 1 only"),
        ({"treatment": [0.5, 1] * 10}, "0 and 1 only"),
        ({"treatment": [1] * 20}, "both 0 and 1"),
        ({"x": np.zeros(19)}, "same length"),
        ({"x": [np.nan, *range(19)]}, "x must be finite"),
        ({"y": [np.inf, *range(19)]}, "y must be finite"),
        ({"estimator": "fast"}, "estimator must be one of 'spectral', 'rff', 'exact', not 'fast'"),
        ({"weighting": "none"}, "weighting must be one of"),
    ],
)
def test_unusable_input_is_refused(change, message):
    given = {"x": np.arange(20.0), "y": np.arange(20.0), "treatment": [0, 1] * 10, "propensity": 0.5, **change}
    with pytest.raises(ValueError, match=message):
        wcmmd_importance(**given)


def test_statistic_refuses_unknown_choices_when_it_is_used():
    y, treatment = np.arange(20.0), np.arange(20) % 2
    for statistic in (WCMMD("fast"), WCMMD(weighting="none"), WCMMD(resample_weights="maybe")):
        with pytest.raises(ValueError, match="must be one of"):
            statistic.for_rows(y, treatment, seed_of(0))


def test_modifier_has_more_importance_than_a_prognostic_feature():
    rng = np.random.default_rng(17)
    n = 2000
    x, other = rng.normal(size=(2, n))
    treatment = rng.integers(0, 2, size=n)
    y = treatment * x + 2 * other + rng.normal(size=n)
    e = np.full(n, expit(0.0))
    modifier, _ = wcmmd_importance(x, y, treatment, e)
    prognostic, _ = wcmmd_importance(other, y, treatment, e)
    assert modifier > 10 * prognostic


def test_weights_are_cut_at_a_quantile_of_their_arm():
    data = make_modifiers("LinMean", n_samples=200, n_features=5, random_state=0)
    table, arms, scores = read_features(data.X), data.treatment, np.clip(data.propensity, 0.02, 0.98)
    nuisances = Nuisances(table, data.y, arms, scores, np.random.SeedSequence(0))
    cut = WCMMD(weight_cap=None, weight_quantile=0.8).prepare(nuisances).capped(scores)
    for arm, weights, own in ((1, 1 / scores, 1 / cut), (0, 1 / (1 - scores), 1 / (1 - cut))):
        rows = arms == arm
        np.testing.assert_allclose(own[rows], np.minimum(weights[rows], np.quantile(weights[rows], 0.8)))
    with pytest.raises(ValueError, match="weight_quantile must lie between 0 and 1"):
        WCMMD(weight_quantile=1.0).prepare(nuisances)


def test_cut_weights_are_the_same_for_tensors():
    torch = pytest.importorskip("torch")
    data = make_modifiers("LinMean", n_samples=100, n_features=5, random_state=0)
    scores = np.clip(data.propensity, 0.02, 0.98)
    nuisances = Nuisances(read_features(data.X), data.y, data.treatment, scores, np.random.SeedSequence(0))
    prepared = WCMMD(weight_cap=5.0, weight_quantile=0.9).prepare(nuisances)
    columns = np.stack((scores, 1 - scores))
    np.testing.assert_allclose(prepared.capped(torch.from_numpy(columns)).numpy(), prepared.capped(columns))
