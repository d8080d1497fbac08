import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from conftest import logistic_treatment, quiet_fit
from modifind.explain import effect_curve, outcome_densities
from modifind.explain.local import MAX_UNITS, Averages, Neighbourhoods, local_bandwidth
from modifind.explain.rows import ArmRows, GivenFeature, OutcomeModel, PseudoOutcomes, outcome_marks
from modifind.explain.views import EFFECTS, explain_column
from modifind.statistics.families import Bernoulli

BANDS = [f"{name}_{end}" for name in ("d2", *EFFECTS) for end in ("low", "high")]


def confounded(n, seed=0):
    rng = np.random.default_rng(seed)
    x, u = rng.normal(size=(2, n))
    treatment, e = logistic_treatment(rng, 0.7 * u)
    y = u + treatment * x + np.where(treatment == 1, 2.0, 1.0) * rng.normal(size=n)
    return x, u, y, treatment, e


def test_mean_effect_and_sd_ratio_are_near_the_truth_under_confounding():
    x, _, y, treatment, e = confounded(20000)
    curve = effect_curve(x, y, treatment, e, n_bootstrap=0)
    assert len(curve) == 25
    inside = curve[np.abs(curve["value"]) < 1]
    # Kernel of sd 0.084: n f(1) h 2 sqrt(pi) = 1440 effective rows, weights of mean square 2.6 an arm, outcome
    # variances 5 and 2: sd of the mean effect sqrt(2.6 * 7 / 1440) = 0.11; 4 sd.
    np.testing.assert_allclose(inside["mean_effect"], inside["value"], atol=0.45)
    # Relative sd of a ratio of spreads sqrt(2.6 / 1440) = 0.04; 4 sd.
    np.testing.assert_allclose(inside["sd_ratio"], np.sqrt(5 / 2), rtol=0.17)
    naive = effect_curve(x, y, treatment, 0.5, n_bootstrap=0)
    # Without weights E[U | A=1] - E[U | A=0] = 0.63 is added.
    assert naive["mean_effect"].mean() > curve["mean_effect"].mean() + 0.3


@pytest.mark.parametrize("broken", ["scores", "model"])
def test_doubly_robust_curves_are_right_where_either_the_model_or_the_scores_are(broken):
    x, u, y, treatment, e = confounded(20000, seed=1)
    location = np.column_stack((u, u + x))
    if broken == "model":
        location = np.zeros_like(location)
    scale = np.broadcast_to([1.0, 2.0], location.shape)
    scores = np.full(x.size, 0.5) if broken == "scores" else e
    curve = effect_curve(x, y, treatment, scores, location=location, scale=scale, n_bootstrap=0)
    inside = curve[np.abs(curve["value"]) < 1]
    np.testing.assert_allclose(inside["mean_effect"], inside["value"], atol=0.45)
    np.testing.assert_allclose(inside["sd_ratio"], np.sqrt(5 / 2), rtol=0.17)


def test_bands_are_narrower_with_a_model():
    x, u, y, treatment, e = confounded(2000, seed=2)
    location, scale = np.column_stack((u, u + x)), np.broadcast_to([1.0, 2.0], (2000, 2))
    plain = effect_curve(x, y, treatment, e, n_bootstrap=50, random_state=0)
    robust = effect_curve(x, y, treatment, e, location=location, scale=scale, n_bootstrap=50, random_state=0)
    widths = [(own["mean_effect_high"] - own["mean_effect_low"]).mean() for own in (plain, robust)]
    # Outcome variances 5 + 2 without the model, 4 + 1 with it.
    assert widths[1] < 0.95 * widths[0]


def test_quantile_effects_of_a_pure_scale_effect():
    rng = np.random.default_rng(1)
    n = 40000
    codes = rng.integers(0, 2, size=n)
    treatment = rng.integers(0, 2, size=n)
    y = np.where((treatment == 1) & (codes == 1), 2.0, 1.0) * rng.normal(size=n)
    curve = effect_curve(codes, y, treatment, 0.5, discrete=True, n_bootstrap=0)
    # Quantiles of 10,000 rows: sd sqrt(q(1-q))/(f sqrt(m)), at 10% 0.3/0.175/100 = 0.017 times the scale; 4
    # sd of both arms.
    for q, z in ((10, -1.2816), (25, -0.6745), (50, 0.0), (75, 0.6745), (90, 1.2816)):
        np.testing.assert_allclose(curve[f"q{q}_effect"], [0.0, z], atol=0.16)
    # Relative sd of a ratio of two sds of 10,000 rows is 0.01; 4 sd.
    np.testing.assert_allclose(curve["sd_ratio"], [1.0, 2.0], rtol=0.04)


def test_weighted_mean_spread_and_quantiles_on_a_hand_example():
    y = [0.0, 3.0, 10.0, 14.0]
    curve = effect_curve([0, 0, 0, 0], y, [0, 0, 1, 1], [0.5, 0.75, 0.5, 0.25], discrete=True, n_bootstrap=0)
    # Control weights 2 and 4: mean 2, variance 2. Treated weights 2 and 4: mean 38/3, variance 32/9.
    assert curve["mean_effect"][0] == pytest.approx(38 / 3 - 2)
    assert curve["sd_ratio"][0] == pytest.approx(np.sqrt(32 / 9 / 2))
    assert curve["q50_effect"][0] == pytest.approx(14 - 3)
    assert curve["q10_effect"][0] == pytest.approx(10 - 0)


def test_missing_arm_gives_nan_and_few_rows_are_flagged():
    column = np.repeat([0, 1, 2], [10, 10, 100])
    treatment = np.concatenate((np.arange(10) % 2, np.ones(10, dtype=int), np.arange(100) % 2))
    y = np.random.default_rng(0).normal(size=120)
    curve = effect_curve(column, y, treatment, 0.5, discrete=True, random_state=0)
    shown = curve.drop(columns=["value", "rows_treated", "rows_control", "low_support"])
    assert shown.iloc[[0, 2]].notna().all().all()
    assert shown.iloc[1].isna().all()
    assert curve["low_support"].tolist() == [True, True, False]
    assert curve["rows_treated"].tolist() == pytest.approx([5.0, 10.0, 50.0])
    assert curve["rows_control"].tolist() == pytest.approx([5.0, 0.0, 50.0])


def test_curve_does_not_depend_on_origin_and_unit_of_the_outcome():
    rng = np.random.default_rng(2)
    x, y, treatment = rng.normal(size=500), rng.normal(size=500), np.arange(500) % 2
    near = effect_curve(x, y, treatment, 0.5, random_state=0)
    for origin, unit in ((1e8, 1.0), (0.0, 1e-6), (-3.0, 1e6)):
        far = effect_curve(x, origin + unit * y, treatment, 0.5, random_state=0)
        np.testing.assert_allclose(far["sd_ratio"], near["sd_ratio"], rtol=1e-4)
        np.testing.assert_allclose(far["mean_effect"] / unit, near["mean_effect"], atol=1e-5)
        np.testing.assert_allclose(far["d2"], near["d2"], atol=1e-5)


def test_lines_are_followed_to_the_ends():
    # A local-linear average of a line is the line, also where all neighbours are on one side.
    x = np.linspace(-1, 1, 2001)
    treatment = np.arange(2001) % 2
    curve = effect_curve(x, 3 * x * treatment + 1, treatment, 0.5, n_bootstrap=0)
    np.testing.assert_allclose(curve["mean_effect"], 3 * curve["value"], atol=0.01)


def test_bands_cover_a_known_effect():
    # 60 tables of 400 rows, three values: 180 intervals of level 0.95, nearly independent between tables.
    inside = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x, treatment = rng.normal(size=400), rng.integers(0, 2, size=400)
        y = treatment * x + np.exp(0.4 * x * treatment) * rng.normal(size=400)
        curve = effect_curve(x, y, treatment, 0.5, points=[-0.7, 0.0, 0.7], n_bootstrap=100, random_state=seed)
        for name, truth in (("mean_effect", curve["value"]), ("sd_ratio", np.exp(0.4 * curve["value"]))):
            inside.append((curve[f"{name}_low"] <= truth) & (truth <= curve[f"{name}_high"]))
    covered = np.reshape(inside, (60, 2, 3)).mean(axis=(0, 2))
    # Binomial sd of 180 at 0.95 is 0.016; 3 sd below, and no overlong intervals above.
    assert ((covered >= 0.90) & (covered <= 0.995)).all(), covered


def test_distance_leaves_the_null_band_only_where_a_feature_modifies():
    rng = np.random.default_rng(4)
    x, other, treatment = rng.normal(size=3000), rng.normal(size=3000), rng.integers(0, 2, size=3000)
    y = treatment * (1.0 + x) + rng.normal(size=3000)
    curves = [effect_curve(own, y, treatment, 0.5, random_state=0) for own in (x, other)]
    outside = [(c["d2"] > c["d2_null_high"]) | (c["d2"] < c["d2_null_low"]) for c in curves]
    assert outside[0].mean() > 0.6
    assert outside[1].mean() < 0.2
    ends = curves[0]
    assert ends["d2"].iloc[-1] > ends["d2_high"].iloc[5]


def test_distance_stays_in_the_null_band_where_a_feature_moves_both_arms_alike():
    rng = np.random.default_rng(14)
    x, treatment = rng.integers(0, 4, size=2000), rng.integers(0, 2, size=2000)
    y = 2.0 * x + treatment + rng.normal(size=2000)
    curve = effect_curve(x, y, treatment, 0.5, discrete=True, random_state=0)
    assert (curve["d2_low"] > 0).all()
    assert curve["d2"].between(curve["d2_null_low"], curve["d2_null_high"]).all()


def test_distance_is_that_of_the_kernel_means():
    # Two known normal distributions and a Gaussian kernel have a closed form.
    rng = np.random.default_rng(5)
    n = 40000
    treatment = np.arange(n) % 2
    y = 1.5 * treatment + rng.normal(size=n)
    outcomes = PseudoOutcomes.of(ArmRows(y, treatment, np.full(n, 0.5)), max_rows=n)
    found = explain_column(GivenFeature(np.zeros(n), (0,)), outcomes, 2.0, rng, n_draws=20).curve["d2"][0]
    # E k(U, V) of U - V ~ N(m, 2) with k(u, v) = exp(-(u - v)^2 / h^2), h = 2.
    mean = [np.sqrt(1 / 2) * np.exp(-(m**2) / 8) for m in (0.0, 1.5)]
    assert found == pytest.approx(2 * (mean[0] - mean[1]), rel=0.05)


def test_bands_of_clusters_are_wider_than_those_of_rows():
    rng = np.random.default_rng(6)
    clusters = np.repeat(np.arange(60), 20)
    x, treatment = rng.integers(0, 2, size=1200), np.repeat(np.arange(60) % 2, 20)
    y = np.repeat(rng.normal(size=60), 20) + 0.3 * rng.normal(size=1200)
    rows, clusters = (
        effect_curve(x, y, treatment, 0.5, discrete=True, clusters=own, random_state=0) for own in (None, clusters)
    )
    np.testing.assert_allclose(rows["mean_effect"], clusters["mean_effect"])
    widths = [(own["mean_effect_high"] - own["mean_effect_low"]).mean() for own in (rows, clusters)]
    # Ten rows of a cluster share nearly all of their variance: roots of 1200 against 60 independent numbers.
    assert widths[1] > 2 * widths[0]


def test_clusters_of_independent_rows_have_the_bands_of_rows():
    # Fifty clusters whose rows are spread over all values: each has a fiftieth of every average.
    rng = np.random.default_rng(15)
    widths = np.zeros(2)
    for _ in range(6):
        x, y, treatment = rng.normal(size=1000), rng.normal(size=1000), rng.integers(0, 2, size=1000)
        for k, clusters in enumerate((None, np.arange(1000) % 50)):
            curve = effect_curve(x, y, treatment, 0.5, clusters=clusters, n_bootstrap=100, random_state=0)
            widths[k] += (curve["mean_effect_high"] - curve["mean_effect_low"]).iloc[5:-5].mean()
    assert widths[1] == pytest.approx(widths[0], rel=0.15)


def test_leverage_and_support_of_clusters_are_their_shares():
    # Eight clusters of ten rows at each of three levels, all in both arms.
    clusters, cell = np.repeat(np.arange(8), 30), np.tile(np.repeat(np.arange(3.0), 10), 8)
    treatment = np.arange(240) % 2
    outcomes = PseudoOutcomes.of(ArmRows(np.arange(240.0), treatment, np.full(240, 0.5), clusters=clusters))
    places = Neighbourhoods.of(cell, 3)
    np.testing.assert_allclose(places.leverage(outcomes, clusters), 1 / 8)
    np.testing.assert_allclose(places.leverage(outcomes, np.arange(240)), 1 / 40)
    np.testing.assert_allclose(places.support(outcomes.arm_weights * treatment, clusters), 8.0)
    np.testing.assert_allclose(places.support(outcomes.arm_weights * treatment), 40.0)


def test_clusters_of_many_rows_have_the_bands_of_rows():
    rng = np.random.default_rng(7)
    n = 3 * MAX_UNITS
    x, y, treatment = rng.normal(size=n), rng.normal(size=n), rng.integers(0, 2, size=n)
    curve = effect_curve(x, y, treatment, 0.5, random_state=0)
    inner = curve.iloc[5:-5]
    width = (inner["mean_effect_high"] - inner["mean_effect_low"]).mean()
    rows = 2 / (1 / inner["rows_treated"] + 1 / inner["rows_control"])
    # Unit variances: standard error sqrt(2 / rows), 1.96 of it either side.
    assert width == pytest.approx((2 * 1.97 * np.sqrt(2 / rows)).mean(), rel=0.08)


def test_densities_add_up_and_follow_the_arms():
    rng = np.random.default_rng(8)
    x, treatment = rng.integers(0, 2, size=4000), rng.integers(0, 2, size=4000)
    y = 2.0 * treatment * x + rng.normal(size=4000)
    table = outcome_densities(x, y, treatment, 0.5, discrete=True, random_state=0)
    for value, own in table.groupby("value"):
        step = np.diff(own["outcome"])[0]
        for name, centre in (("treated", 2.0 * value), ("control", 0.0)):
            assert own[name].sum() * step == pytest.approx(1.0, abs=0.02)
            # Smoothing and a sd of about 0.02.
            np.testing.assert_allclose(own[name], norm.pdf(own["outcome"], centre), atol=0.06)
            assert ((own[f"{name}_low"] <= own[name]) & (own[name] <= own[f"{name}_high"])).all()
    ones = table[table["value"] == 1]
    assert (ones["witness_low"][ones["outcome"] > 2] > 0).all()
    assert (ones["witness_high"][ones["outcome"].between(-1.5, 0)] < 0).all()
    zeros = table[table["value"] == 0]
    assert (np.abs(zeros["witness"]) < 0.08).all()


def test_outcome_of_few_values_is_shown_by_shares():
    rng = np.random.default_rng(9)
    treatment = rng.integers(0, 2, size=2000)
    y = rng.binomial(3, 0.3 + 0.3 * treatment)
    table = outcome_densities(np.zeros(2000), y, treatment, 0.5, discrete=True, random_state=0)
    assert table["outcome"].tolist() == [0.0, 1.0, 2.0, 3.0]
    shares = [np.mean(y[treatment == 1] == k) for k in range(4)]
    np.testing.assert_allclose(table["treated"], shares, atol=1e-9)
    curve = effect_curve(np.zeros(2000), y, treatment, 0.5, discrete=True, random_state=0)
    expected = np.median(y[treatment == 1]) - np.median(y[treatment == 0])
    assert curve["q50_effect"][0] == pytest.approx(expected)


def test_binary_outcome_with_a_model():
    rng = np.random.default_rng(10)
    x, treatment = rng.normal(size=4000), rng.integers(0, 2, size=4000)
    chance = np.column_stack((np.full(4000, 0.3), 0.3 + 0.4 * (x > 0)))
    y = (rng.random(4000) < chance[np.arange(4000), treatment]).astype(float)
    model = OutcomeModel(chance, np.ones_like(chance), (np.inf, np.inf), Bernoulli())
    outcomes = PseudoOutcomes.of(ArmRows(y, treatment, np.full(4000, 0.5)), (model,))
    curve = explain_column(GivenFeature((x > 0).astype(float), (0, 1)), outcomes, 1.0, rng, n_draws=50).curve
    # Differences of shares of 1000 rows: sd 0.02; 4 sd.
    np.testing.assert_allclose(curve["mean_effect"], [0.0, 0.4], atol=0.08)
    assert curve[[*BANDS]].notna().all().all()


def test_rows_without_a_value_come_last():
    rng = np.random.default_rng(11)
    x, y, treatment = rng.normal(size=600), rng.normal(size=600), np.arange(600) % 2
    gaps = rng.random(600) < 0.3
    curve = effect_curve(np.where(gaps, np.nan, x), y, treatment, 0.5, n_bootstrap=0)
    assert curve["value"].isna().tolist() == [False] * 25 + [True]
    expected = y[gaps & (treatment == 1)].mean() - y[gaps & (treatment == 0)].mean()
    assert curve["mean_effect"].iloc[-1] == pytest.approx(expected)
    alone = effect_curve(x[~gaps], y[~gaps], treatment[~gaps], 0.5, n_bootstrap=0)
    np.testing.assert_allclose(curve["mean_effect"].iloc[:-1], alone["mean_effect"], rtol=1e-6)


def test_many_equal_values_are_a_cell_of_their_own():
    rng = np.random.default_rng(12)
    x = np.where(rng.random(3000) < 0.7, 0.0, rng.exponential(size=3000))
    places = Neighbourhoods.of(x, 0)
    zero = places.cell[x == 0]
    assert (zero == zero[0]).all()
    assert not (places.cell[x > 0] == zero[0]).any()


def test_averages_of_counts_are_those_of_repeated_rows():
    x, _, y, treatment, e = confounded(300, seed=13)
    counts = np.random.default_rng(0).integers(1, 4, size=300)
    again = np.repeat(np.arange(300), counts)
    names = ["mean_effect", "sd_ratio"]
    # Cells of neighbouring values begin elsewhere when rows are repeated; categories do not.
    for column, settings, tolerance in (
        (x, {"points": [-1.0, 0.0, 1.0], "bandwidth": 0.5}, 0.05),
        (x > 0, {"discrete": True}, 1e-9),
    ):
        one = effect_curve(column, y, treatment, e, weights=counts, n_bootstrap=0, **settings)
        other = effect_curve(column[again], y[again], treatment[again], e[again], n_bootstrap=0, **settings)
        np.testing.assert_allclose(one[names], other[names], rtol=tolerance, atol=tolerance)


def test_draws_do_not_move_the_estimate_and_blocks_do_not_matter(monkeypatch):
    x, _, y, treatment, e = confounded(500, seed=14)
    outcomes = PseudoOutcomes.of(ArmRows(y, treatment, e))
    places = Neighbourhoods.of(x, 0)
    few, many = (Averages.of(places, outcomes, n, np.random.default_rng(0)) for n in (20, 60))
    np.testing.assert_allclose(few.estimate, many.estimate)
    np.testing.assert_allclose(few.draws, many.draws[:20])
    monkeypatch.setattr("modifind.explain.local.DRAW_BLOCK", 7)
    other = Averages.of(places, outcomes, 20, np.random.default_rng(0))
    np.testing.assert_allclose(other.draws, few.draws, atol=1e-12)


def test_large_tables_are_explained_from_a_part_of_their_rows():
    rng = np.random.default_rng(15)
    y, treatment = rng.normal(size=5000), rng.integers(0, 2, size=5000)
    outcomes = PseudoOutcomes.of(
        ArmRows(y, treatment, np.full(5000, 0.5)), seed=np.random.SeedSequence(0), max_rows=1000
    )
    assert outcomes.rows.size == np.unique(outcomes.rows).size == 1000
    assert outcomes.errors.shape[0] == 1000


def test_marks_cover_the_outcome():
    y = np.random.default_rng(16).standard_t(2, size=1000)
    marks, steps, levels = outcome_marks(y, np.ones(1000))
    assert not levels
    assert not steps[1:].any()
    assert (np.diff(marks) > 0).all()
    assert (marks[0], marks[-1]) == (y.min(), y.max())


def test_quantile_effects_of_counts_and_heaps_are_those_of_their_values():
    rng = np.random.default_rng(17)
    n, shares = 6000, (0.1, 0.25, 0.5, 0.75, 0.9)
    treatment, place = np.arange(n) % 2, rng.random(n)
    below = np.where(treatment == 1, 0.45, 0.22)
    heap = np.where(place < below, rng.uniform(0, 19, n), np.where(place < 0.8, 20.0, rng.uniform(21, 60, n)))
    names = [f"q{round(100 * q)}_effect" for q in shares]
    for y, precision in ((rng.poisson(10 + 2 * treatment).astype(float), 0.0), (heap, 0.4)):
        curve = effect_curve(np.zeros(n), y, treatment, 0.5, discrete=True, random_state=0)
        arms = [np.quantile(y[treatment == arm], shares, method="inverted_cdf") for arm in (0, 1)]
        np.testing.assert_allclose(curve.loc[0, names].to_numpy(dtype=float), arms[1] - arms[0], atol=precision + 1e-9)
    assert curve.loc[0, ["q50_effect_low", "q50_effect_high"]].tolist() == [0.0, 0.0]


def test_densities_of_heaps_add_up():
    rng = np.random.default_rng(18)
    n = 4000
    treatment, heaped = np.arange(n) % 2, rng.random(n) < 0.4
    for noise in (rng.normal(size=n), rng.exponential(size=n), rng.standard_t(2, size=n)):
        y = np.where(heaped, 0.0, noise)
        table = outcome_densities(np.zeros(n), y, treatment, 0.5, discrete=True, random_state=0)
        assert table["treated"].sum() * np.diff(table["outcome"])[0] == pytest.approx(1.0, abs=0.025)
        assert table["outcome"][table["treated"].idxmax()] == pytest.approx(0.0, abs=np.diff(table["outcome"])[0])


def test_bandwidth_of_half_zeros_is_not_zero():
    column = np.concatenate((np.zeros(800), np.arange(1.0, 201.0)))
    assert local_bandwidth(column) > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_bootstrap": 5}, "n_bootstrap must be 0 or at least 20"),
        ({"level": 1.0}, "level must lie between 0 and 1"),
        ({"points": []}, "points must be finite"),
        ({"location": np.zeros((50, 2))}, "location and scale must be given together"),
        ({"location": np.zeros((50, 2)), "scale": np.zeros((50, 2))}, "scale must be positive"),
        ({"location": np.zeros(50), "scale": np.ones(50)}, r"shape \(50, 2\)"),
        ({"x": ["a"] * 50}, "discrete=True"),
        ({"x": [np.inf] * 50}, "x has infinite values"),
        ({"x": [np.nan] * 50}, "x must have rows"),
        ({"propensity": 1.5}, "propensity must lie above 0 and below 1"),
        ({"discrete": True, "points": [7]}, "points must be values of x; these are not: 7"),
        ({"discrete": True, "x": [np.nan, 1.0] * 25}, "x must have rows and no missing values"),
        ({"bandwidth": -1.0}, "bandwidth must be a positive number"),
        ({"clusters": np.arange(49)}, "clusters must have a label for each of the 50 rows"),
        ({"clusters": [None] * 50}, "clusters must have a label for each of the 50 rows"),
    ],
)
def test_what_makes_no_sense_is_refused(change, message):
    inputs = {"x": np.arange(50) % 5, "y": np.arange(50.0), "treatment": np.arange(50) % 2, "propensity": 0.5}
    with pytest.raises(ValueError, match=message):
        effect_curve(**(inputs | change))


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "dose": pd.Categorical(rng.choice(["low", "mid", "high"], size=300), categories=["low", "mid", "high"]),
            "x": rng.normal(size=300),
        }
    )
    treatment = np.arange(300) % 2
    y = rng.normal(size=300) + treatment * (frame["dose"] == "high")
    return frame, treatment, y


@pytest.mark.parametrize("statistic", ["wcmmd", "effect_likelihood"])
def test_fit_explains_every_feature(fitted, statistic):
    frame, treatment, y = fitted
    settings = {"sampler": "gaussian", "propensity": 0.5, "random_state": 0}
    settings |= {"n_resamples": 9} if statistic == "wcmmd" else {}
    result = quiet_fit(frame, y, treatment, statistic=statistic, explain=True, **settings).result_
    for name in frame:
        curve = result.curve(name)
        assert {*BANDS, "d2_null_low", "d2_null_high", "low_support"} <= set(curve.columns)
        assert result.density(name)["treated"].notna().all()
    assert result.curve("dose")["value"].tolist() == ["low", "mid", "high"]
    assert result.changes["mean_p"].notna().all()
    assert result.overall["mean_effect_low"] < result.overall["mean_effect"] < result.overall["mean_effect_high"]
    assert result.overall["mean_effect"] == pytest.approx(1 / 3, abs=0.5)
    with pytest.raises(ValueError, match="no densities of 'weight'"):
        result.density("weight")


def test_fit_that_explains_nothing_has_the_same_p_values(fitted):
    frame, treatment, y = fitted
    settings = {"sampler": "gaussian", "propensity": 0.5, "random_state": 0}
    whole = quiet_fit(frame, y, treatment, explain=True, **settings).result_
    plain = quiet_fit(frame, y, treatment, explain=False, **settings).result_
    pd.testing.assert_frame_equal(whole.table, plain.table)
    assert not set(BANDS) & set(plain.curve("x").columns)
    assert plain.curve("x")["mean_effect"].tolist() == whole.curve("x")["mean_effect"].tolist()
    assert plain.changes.empty
    assert not plain.densities
    assert not plain.overall
