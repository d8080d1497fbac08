import numpy as np
import pandas as pd
import pytest

from conftest import logistic_treatment, quiet_fit
from modifind.explain import effect_curve


def curve_of(column, y, treatment, scores, *, bandwidth=0.3, n_levels=0):
    scores = np.broadcast_to(np.asarray(scores, dtype=float), column.shape)
    d2 = np.arange(column.size, dtype=float)
    return effect_curve(column, y, treatment, scores, d2, bandwidth=bandwidth, n_levels=n_levels)


def test_mean_effect_and_sd_ratio_are_near_the_truth_under_confounding():
    rng = np.random.default_rng(0)
    n = 20000
    x, u = rng.normal(size=(2, n))
    treatment, e = logistic_treatment(rng, 0.7 * u)
    y = u + treatment * x + np.where(treatment == 1, 2.0, 1.0) * rng.normal(size=n)
    curve = curve_of(x, y, treatment, e)
    assert len(curve) == 25
    inside = curve[np.abs(curve["value"]) < 1]
    # Weights of mean square 2.6 an arm, outcome variances 5 and 2, n f(1) h sqrt(2 pi) = 3640 effective rows:
    # sd of the mean effect sqrt(2.6 * 7 / 3640) = 0.07; smoothing bias of slope 1 is x h^2 / 2 = 0.045; 4 sd.
    np.testing.assert_allclose(inside["mean_effect"], inside["value"], atol=0.33)
    # sd of treated over control is sqrt(5 / 2) but for the variance of x inside the window; relative sd 0.04; 4 sd.
    np.testing.assert_allclose(inside["sd_ratio"], np.sqrt(5 / 2), rtol=0.16)
    naive = curve_of(x, y, treatment, 0.5)
    # Without weights E[U | A=1] - E[U | A=0] = 0.63 is added.
    assert naive["mean_effect"].mean() > curve["mean_effect"].mean() + 0.3


def test_quantile_effects_of_a_pure_scale_effect():
    rng = np.random.default_rng(1)
    n = 40000
    codes = rng.integers(0, 2, size=n).astype(float)
    treatment = rng.integers(0, 2, size=n)
    y = np.where((treatment == 1) & (codes == 1), 2.0, 1.0) * rng.normal(size=n)
    curve = curve_of(codes, y, treatment, 0.5, n_levels=2)
    # Quantiles of 10,000 rows: sd sqrt(q(1-q))/(f sqrt(m)), at 10% 0.3/0.175/100 = 0.017 times the scale; 4
    # sd of both arms.
    for q, z in ((10, -1.2816), (25, -0.6745), (50, 0.0), (75, 0.6745), (90, 1.2816)):
        np.testing.assert_allclose(curve[f"q{q}_effect"], [0.0, z], atol=0.16)
    # Relative sd of a ratio of two sds of 10,000 rows is 0.01; 4 sd.
    np.testing.assert_allclose(curve["sd_ratio"], [1.0, 2.0], rtol=0.04)


def test_weighted_mean_and_spread_on_a_hand_example():
    column = np.zeros(4)
    y = np.array([0.0, 3.0, 10.0, 14.0])
    treatment = np.array([0, 0, 1, 1])
    curve = curve_of(column, y, treatment, [0.5, 0.75, 0.5, 0.25], n_levels=1)
    # Control weights 2 and 4: mean 2, variance 2. Treated weights 2 and 4: mean 38/3, variance 32/9.
    assert curve["mean_effect"][0] == pytest.approx(38 / 3 - 2)
    assert curve["sd_ratio"][0] == pytest.approx(np.sqrt(32 / 9 / 2))
    assert curve["q50_effect"][0] == 14 - 3
    assert curve["q10_effect"][0] == 10 - 0


def test_missing_arm_and_missing_category_give_nan():
    column = np.repeat([0.0, 1.0], 10)
    treatment = np.concatenate((np.arange(10) % 2, np.ones(10, dtype=int)))
    curve = curve_of(column, np.arange(20.0), treatment, 0.5, n_levels=3)
    effects = curve.drop(columns=["value", "d2"])
    assert effects.iloc[0].notna().all()
    assert effects.iloc[1].isna().all()
    assert effects.iloc[2].isna().all()
    assert np.isnan(curve["d2"][2])


def test_sd_ratio_does_not_depend_on_the_origin_of_the_outcome():
    rng = np.random.default_rng(2)
    codes, y, treatment = np.zeros(500), rng.normal(size=500), np.arange(500) % 2
    near = curve_of(codes, y, treatment, 0.5, n_levels=1)["sd_ratio"][0]
    for origin in (1e4, 1e8):
        far = curve_of(codes, y + origin, treatment, 0.5, n_levels=1)["sd_ratio"][0]
        assert far == pytest.approx(near, rel=1e-4)


def test_d2_is_read_off_the_rows():
    column = np.linspace(0, 1, 101)
    d2 = column**2
    curve = effect_curve(column, np.arange(101.0), np.arange(101) % 2, np.full(101, 0.5), d2, bandwidth=0.3, n_levels=0)
    np.testing.assert_allclose(curve["d2"], curve["value"] ** 2, atol=1e-3)
    assert curve["value"].between(0.02, 0.98).all()


def test_category_labels_are_the_values_of_a_fitted_curve():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "dose": pd.Categorical(rng.choice(["low", "mid", "high"], size=120), categories=["low", "mid", "high"]),
            "x": rng.normal(size=120),
        }
    )
    treatment = np.arange(120) % 2
    y = rng.normal(size=120)
    settings = {"statistic": "wcmmd", "sampler": "gaussian", "propensity": 0.5, "n_resamples": 9, "random_state": 0}
    result = quiet_fit(frame, y, treatment, **settings).result_
    curve = result.curve("dose")
    assert curve["value"].tolist() == ["low", "mid", "high"]
    for label in ("low", "mid", "high"):
        rows = frame["dose"] == label
        expected = y[rows & (treatment == 1)].mean() - y[rows & (treatment == 0)].mean()
        assert curve.set_index("value")["mean_effect"][label] == pytest.approx(expected)
