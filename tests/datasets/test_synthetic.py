import numpy as np
import pytest
from scipy.stats import kstest

from conftest import ar_covariance
from modifind.datasets import KINDS, make_modifiers


def score_of(data):
    x = data.X.to_numpy()[:, :5]
    if data.kind.startswith("Nonlin"):
        return ((x - 0.5) ** 3).sum(axis=1) + 3 * x.sum(axis=1) - 6
    return x @ [4, 2, 1, 2, 4]


@pytest.fixture(scope="module", params=KINDS)
def data(request):
    return make_modifiers(request.param, n_samples=20000, n_features=8, random_state=1)


def test_feature_moments_by_arm_equal_the_definition(data):
    # 10,000 rows an arm: means have sd 0.01, covariances at most 0.014; 4.5 sd for 16 means and 72 covariances.
    for arm, mean in ((0, -0.2), (1, 0.2)):
        x = data.X.to_numpy()[data.treatment == arm]
        np.testing.assert_allclose(x.mean(axis=0), mean, atol=0.045)
        np.testing.assert_allclose(np.cov(x.T), ar_covariance(8, 0.2), atol=0.064)


def test_treatment_is_a_fair_coin(data):
    # sd 0.5 / sqrt(20000) = 0.0035; 4 sd.
    assert data.treatment.mean() == pytest.approx(0.5, abs=0.0142)
    assert set(np.unique(data.treatment)) == {0, 1}


def test_outcome_is_the_potential_outcome_of_the_arm(data):
    np.testing.assert_array_equal(data.y, np.where(data.treatment == 1, data.y1, data.y0))


def test_potential_outcomes_follow_their_formulas(data):
    score = score_of(data)
    scale = np.maximum(score, 1.0)
    if data.kind.endswith("Mean"):
        standard = (data.y0 + score, data.y1 - score)
    elif data.kind.endswith("Var"):
        standard = (data.y0 + 5.0, data.y1 / scale)
    else:
        standard = (data.y0 + 5.0, data.y1)
    for noise in standard:
        # 20,000 standard normals: the distance exceeds 1.95/sqrt(20000) = 0.0138 with probability 0.001.
        assert kstest(noise, "norm").statistic < 0.0138
        # and they are independent of the score: correlation with sd 0.007; 4 sd.
        assert abs(np.corrcoef(noise, score)[0, 1]) < 0.0285
        assert abs(np.corrcoef(noise**2, scale)[0, 1]) < 0.0285


def test_correlation_of_potential_outcomes_follows_its_formula(data):
    first, second = data.y0, data.y1
    if data.kind.endswith("Covar"):
        expected = 1 - 1 / np.maximum(score_of(data), 1.0)
        product = (first + 5.0) * second
        for low, high in ((0.0, 0.01), (0.3, 0.7), (0.8, 1.0)):
            rows = (expected >= low) & (expected < high)
            # The product of two standard normals with correlation c has variance 1 + c^2, at most 2; 4 sd.
            assert product[rows].mean() == pytest.approx(expected[rows].mean(), abs=4 * np.sqrt(2 / rows.sum()))
    elif data.kind.endswith("Var"):
        product = (first + 5.0) * second / np.maximum(score_of(data), 1.0)
        assert product.mean() == pytest.approx(0.0, abs=4 / np.sqrt(20000))


def test_regression_on_the_score_gives_the_effect_of_the_mean_kinds():
    for kind in ("LinMean", "NonlinMean"):
        data = make_modifiers(kind, n_samples=5000, n_features=5, random_state=2)
        score = score_of(data)
        # Slope sd is 1 / (sqrt(5000) sd(score)), below 0.003 as the score has sd above 5.
        assert np.polyfit(score, data.y1, 1)[0] == pytest.approx(1.0, abs=0.012)
        assert np.polyfit(score, data.y0, 1)[0] == pytest.approx(-1.0, abs=0.012)


def test_sd_of_the_treated_equals_h_of_the_score_in_linvar():
    data = make_modifiers("LinVar", n_samples=40000, n_features=5, random_state=3)
    score = score_of(data)
    for low, high in ((-np.inf, 1.0), (4.0, 4.4), (9.0, 9.6)):
        rows = (score > low) & (score < high)
        # Relative sd of an sd is 1/sqrt(2 m); 4 sd.
        expected = np.sqrt(np.mean(np.maximum(score[rows], 1.0) ** 2))
        assert data.y1[rows].std() == pytest.approx(expected, rel=4 / np.sqrt(2 * rows.sum()))


def test_propensity_is_calibrated(data):
    # Mean of treatment minus propensity within fifths of the propensity: 4000 rows, sd at most 0.008; 4.5 sd.
    edges = np.quantile(data.propensity, [0.2, 0.4, 0.6, 0.8])
    place = np.searchsorted(edges, data.propensity)
    for fifth in range(5):
        rows = place == fifth
        assert (data.treatment - data.propensity)[rows].mean() == pytest.approx(0.0, abs=0.036)
    assert data.propensity.std() > 0.05


def test_same_seed_same_data():
    first, again, other = (make_modifiers("LinVar", 50, 6, random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.X, again.X)
    np.testing.assert_array_equal(first.y, again.y)
    assert (first.y != other.y).any()


def test_names_shapes_and_kinds_in_any_case():
    data = make_modifiers("nonlinCOVAR", n_samples=30, n_features=7, random_state=0)
    assert data.kind == "NonlinCovar"
    assert data.X.columns.tolist() == [f"X{j}" for j in range(1, 8)]
    assert data.modifiers == ["X1", "X2", "X3", "X4", "X5"]
    assert data.X.shape == (30, 7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "Linear"}, "kind must be one of LinMean"),
        ({"kind": 3}, "kind must be one of"),
        ({"n_features": 4}, "n_features must be at least 5"),
        ({"n_samples": 1}, "n_samples must be at least 2"),
    ],
)
def test_unusable_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        make_modifiers(**settings)
