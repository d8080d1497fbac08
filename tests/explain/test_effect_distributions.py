"""Bounds on the distribution of the effect along a feature."""

import numpy as np
import pytest
from scipy.stats import norm

from conftest import four_sd, logistic_treatment
from modifind.explain import couplings, effect_bounds, effect_distribution_bounds

ENDS = ["probability_low", "probability_high"]


def makarov(d, mean, s1, s0):
    """Bounds on P(Y1 - Y0 <= d) of normal arms, Y1 - Y0 of mean `mean`, from the formula on a fine grid."""
    y = np.linspace(-40, 40, 400_001)
    gap = norm.cdf(y, mean, s1) - norm.cdf(y - d, 0, s0)
    return max(gap.max(), 0.0), 1.0 + min(gap.min(), 0.0)


def test_equal_spreads_have_the_closed_form():
    # Normal arms of the same spread: 2 Phi((d - mean) / 2) - 1 from below, 2 Phi((d - mean) / 2) from above.
    for d in (-1.0, 0.3, 1.0, 2.5):
        low, high = max(2 * norm.cdf((d - 1) / 2) - 1, 0.0), min(2 * norm.cdf((d - 1) / 2), 1.0)
        assert makarov(d, 1.0, 1.0, 1.0) == pytest.approx((low, high), abs=1e-6)


def test_bands_cover_the_closed_form_of_a_gaussian_pair():
    effects, inside = [-1.0, 0.0, 1.0, 2.5], []
    truth = np.array([makarov(d, 1.0, 2.0, 1.0) for d in effects])
    for seed in range(40):
        rng = np.random.default_rng([seed, 1])
        x, treatment = rng.normal(size=2000), rng.integers(0, 2, 2000)
        y = x + np.where(treatment == 1, 1 + 2 * rng.normal(size=2000), rng.normal(size=2000))
        found = effect_distribution_bounds(
            x, y, treatment, 0.5, effects=effects, points=[-1.0, 0.0, 1.0], n_bootstrap=100, random_state=seed
        )
        assert found["effect"].tolist() == effects * 3
        low, high = (found[[f"{end}_ci_{side}" for end in ENDS]].to_numpy() for side in ("low", "high"))
        inside.append((low <= np.tile(truth, (3, 1))) & (np.tile(truth, (3, 1)) <= high))
    assert np.mean(inside) > 0.93 - four_sd(0.05, 40)  # effects and points of a run are not independent
    np.testing.assert_allclose(found[ENDS], np.tile(truth, (3, 1)), atol=0.2)


@pytest.mark.parametrize(
    ("tables", "effects", "expected"),
    [
        # Example 1: one arm is constant, so the distribution of the effect is known: -1 or 1, and 0.
        ((([0], [-1, 1]), ([0], [0])), [-1.0, 0.0, 1.0], [[0.5, 0.5], [0.5, 0.5], [1, 1], [0, 0], [1, 1], [1, 1]]),
        # The counterexample: the same margins at both values, effects 0 or -2 and 2.
        ((([-1, 1], [-1, 1]), ([-1, 1], [-1, 1])), [-2.0, 0.0, 2.0], [[0, 0.5], [0.5, 1], [1, 1]] * 2),
    ],
)
def test_tables_of_the_paper(tables, effects, expected):
    x, y, treatment = [], [], []
    for value, arms in enumerate(tables):
        for arm, outcomes in enumerate(arms):
            y += [*outcomes] * (2 // len(outcomes))
            x += [value] * 2
            treatment += [arm] * 2
    found = effect_distribution_bounds(x, y, treatment, 0.5, effects=effects, discrete=True, random_state=0)
    np.testing.assert_allclose(found[ENDS], expected, atol=1e-12)


def test_points_equal_the_bounds_of_two_distributions():
    rng = np.random.default_rng(2)
    x, weights = rng.normal(size=300), rng.uniform(0.5, 1.5, size=300)
    treatment, propensity = logistic_treatment(rng, x)
    y = rng.integers(0, 12, size=300) / 10  # ties that differ by rounding once an effect is added
    effects = [-0.3, 0.0, 0.1, 0.7]
    found = effect_distribution_bounds(
        x, y, treatment, propensity, effects=effects, points=[0.0, 0.8], bandwidth=0.5, weights=weights, random_state=0
    )
    for point in (0.0, 0.8):
        near = weights * np.exp(-(((x - point) / 0.5) ** 2))
        one, zero = treatment == 1, treatment == 0
        own = {"treated_weights": (near / propensity)[one], "control_weights": (near / (1 - propensity))[zero]}
        expected = couplings.effect_distribution_bounds(y[one], y[zero], effects, **own)
        np.testing.assert_allclose(found.loc[found["value"] == point, ENDS].to_numpy().T, expected, atol=1e-9)


def test_zero_is_the_share_who_do_not_benefit():
    rng = np.random.default_rng(3)
    x, treatment = rng.integers(0, 2, 600), rng.integers(0, 2, 600)
    y = rng.normal(size=600) + treatment
    found = effect_distribution_bounds(x, y, treatment, 0.5, discrete=True, random_state=5)
    assert found.groupby("value")["effect"].apply(list).map(len).tolist() == [9, 9]
    assert (found.sort_values(["value", "effect"])[ENDS].diff()[found["value"].diff().eq(0)] >= 0).all().all()
    assert ((found["probability_low_ci_low"] <= found["probability_low"]) & found["probability_low"].le(1)).all()
    zero = found[found["effect"] == 0].reset_index()
    shares = effect_bounds(x, y, treatment, 0.5, discrete=True, random_state=5)
    np.testing.assert_allclose(zero["probability_low"], 1 - shares["benefit_high"], atol=1e-12)
    # The same draws, so the same limits.
    np.testing.assert_allclose(zero["probability_high_ci_low"], 1 - shares["benefit_low_ci_high"], atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"effects": []}, "effects must be finite numbers, at least one"),
        ({"effects": [np.inf]}, "effects must be finite"),
        ({"effects": ["much"]}, "effects must be numbers"),
        ({"n_bootstrap": 3}, "n_bootstrap must be at least 20"),
        ({"level": 1.0}, "level must lie between 0 and 1"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    x, treatment = np.arange(40) % 4, np.arange(40) // 4 % 2
    with pytest.raises(ValueError, match=message):
        effect_distribution_bounds(x, np.arange(40.0), treatment, 0.5, **change)
