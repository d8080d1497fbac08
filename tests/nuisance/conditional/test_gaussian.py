import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, RidgeCV

from conftest import ar_covariance, ar_normal, seed_of
from modifind.data.schema import read_features
from modifind.nuisance.conditional import GaussianSampler


def conditional_of(frame, treatment, feature=0, seed=0, **settings):
    sampler = GaussianSampler(**settings).fit(read_features(frame), treatment, seed_of(seed))
    return sampler.conditional(feature)


def test_mean_and_residual_sd_of_a_linear_distribution_are_learned():
    rng = np.random.default_rng(0)
    n, d = 4000, 5
    X = ar_normal(rng, n, d, 0.6)
    treatment = rng.integers(0, 2, size=n)
    conditional = conditional_of(X, treatment, feature=2)
    precision = np.linalg.inv(ar_covariance(d, 0.6))
    rest = [0, 1, 3, 4]
    mean = X[:, rest] @ (-precision[2, rest] / precision[2, 2])
    scale = precision[2, 2] ** -0.5
    # Fitted minus true mean: mean square scale^2 (5 slopes + intercept) / n, so rms 0.69 * sqrt(6/4000) =
    # 0.027; chi-square of six degrees exceeds 22 with probability 0.001, so 0.051. The sd has relative error
    # 1/sqrt(2n) = 0.011; 4 sd.
    assert np.sqrt(np.mean((conditional.mean - mean) ** 2)) < 0.051
    assert conditional.scale == pytest.approx(scale, rel=0.045)
    draws = conditional.draw(np.random.default_rng(1), 50)
    # 200,000 draws around the fitted mean: sd of the mean 0.0015, of the sd 0.0011; 4 sd.
    assert (draws - conditional.mean).mean() == pytest.approx(0.0, abs=0.0062)
    assert (draws - conditional.mean).std() == pytest.approx(conditional.scale, abs=0.0045)


def test_residual_variance_is_not_shrunk_by_many_features():
    # 60 features and 150 rows: without the degrees of freedom the sd would be 0.77 of the truth.
    rng = np.random.default_rng(2)
    scales = []
    for _ in range(10):
        X = ar_normal(rng, 150, 60, 0.0)
        scales.append(conditional_of(X, rng.integers(0, 2, size=150)).scale)
    # One scale has sd about 1/sqrt(2 * 90) = 0.075; the mean of ten 0.024; 4 sd.
    assert np.mean(scales) == pytest.approx(1.0, abs=0.095)


def test_category_probabilities_match_a_logistic_truth():
    rng = np.random.default_rng(3)
    n = 6000
    x, z = rng.normal(size=(2, n))
    probability = expit(1.5 * x - 0.5)
    frame = pd.DataFrame({"c": np.where(rng.random(n) < probability, "yes", "no"), "x": x, "z": z})
    conditional = conditional_of(frame, rng.integers(0, 2, size=n))
    fitted = conditional.probabilities[:, 1]
    # Four parameters: mean square error of the probability about 4 * mean[p(1-p)] / n at most 4 * 0.25 / 6000,
    # rms 0.013; chi-square of four degrees stays below 18.5 / 4 times its mean with probability 0.999.
    assert np.sqrt(np.mean((fitted - probability) ** 2)) < 0.013 * np.sqrt(18.5 / 4)
    draws = conditional.draw(np.random.default_rng(4), 400)
    assert set(np.unique(draws)) == {0.0, 1.0}
    # Draw frequencies, mean over rows of squared error p(1-p)/400, at most 0.000625.
    assert np.mean((draws.mean(axis=0) - fitted) ** 2) < 0.000625


def test_three_categories_draw_their_fitted_probabilities():
    rng = np.random.default_rng(5)
    n = 3000
    x = rng.normal(size=n)
    logits = np.column_stack([np.zeros(n), x, -x])
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    codes = (rng.random(n)[:, None] > np.cumsum(p, axis=1)[:, :2]).sum(axis=1)
    conditional = conditional_of(pd.DataFrame({"c": np.array(list("abc"))[codes], "x": x}), rng.integers(0, 2, size=n))
    fitted = conditional.probabilities
    # Six parameters, each probability rms at most sqrt(6 * 0.25 / 3000) = 0.022; twice that.
    assert np.sqrt(np.mean((fitted - p) ** 2)) < 0.045
    draws = conditional.draw(np.random.default_rng(6), 300)
    for level in range(3):
        assert np.mean(((draws == level).mean(axis=0) - fitted[:, level]) ** 2) < 0.25 / 300


@pytest.mark.parametrize("discrete", [False, True])
def test_draws_follow_the_arm_only_when_conditioned_on_treatment(discrete):
    rng = np.random.default_rng(7)
    n = 2000
    treatment = rng.integers(0, 2, size=n)
    if discrete:
        column = np.where(rng.random(n) < np.where(treatment == 1, 0.75, 0.25), "b", "a")
        shift = 0.5
    else:
        column = rng.normal(size=n) + 2.0 * treatment
        shift = 2.0
    frame = pd.DataFrame({"x": column, "z": rng.normal(size=n)})
    gaps = []
    for condition in (True, False):
        draws = conditional_of(frame, treatment, condition_on_treatment=condition).draw(np.random.default_rng(8), 20)
        gaps.append(draws[:, treatment == 1].mean() - draws[:, treatment == 0].mean())
    # The fitted gap has sd at most 2/sqrt(2000) = 0.045 (residual sd 1), drawing adds 0.01; 4 sd.
    # Unconditioned, z and noise only.
    assert gaps[0] == pytest.approx(shift, abs=0.18)
    assert gaps[1] == pytest.approx(0.0, abs=0.07)


def test_right_distribution_passes_and_wrong_law_fails_the_calibration_check():
    rng = np.random.default_rng(9)
    n = 1500
    z = rng.normal(size=n)
    treatment = rng.integers(0, 2, size=n)
    right = conditional_of(np.column_stack([0.8 * z + 0.6 * rng.normal(size=n), z]), treatment).calibration
    wrong = conditional_of(np.column_stack([0.8 * z + 0.6 * rng.exponential(size=n) ** 2, z]), treatment).calibration
    assert right.sampler == "gaussian"
    assert right.pit_p_value > 0.01
    assert right.pit_distance < 0.05
    # Information of a normal with correlation 0.8: -log(0.6) = 0.51 nats, less a few hundredths for the 20 bins.
    assert right.log_score_gain == pytest.approx(0.51, abs=0.1)
    assert wrong.pit_p_value < 1e-6


def test_log_score_gain_does_not_jump_where_quantiles_fall_on_rows():
    # With n - 1 a multiple of 20 the bin edges are rows of the table; one row less must not matter.
    rng = np.random.default_rng(10)
    z = rng.normal(size=401)
    X = np.column_stack([0.8 * z + 0.6 * rng.normal(size=401), z])
    treatment = np.arange(401) % 2
    at, below = (conditional_of(X[:n], treatment[:n]).calibration.log_score_gain for n in (401, 400))
    # One row changes a mean of 400 terms of size about one by 0.0025, other folds by a few times as much.
    assert at == pytest.approx(below, abs=0.05)


def test_discrete_distribution_reports_a_log_score_and_no_pit():
    rng = np.random.default_rng(11)
    x = rng.normal(size=800)
    frame = pd.DataFrame({"c": np.where(x + 0.3 * rng.normal(size=800) > 0, "u", "d"), "x": x})
    calibration = conditional_of(frame, np.arange(800) % 2).calibration
    assert np.isnan(calibration.pit_distance)
    assert np.isnan(calibration.pit_p_value)
    assert calibration.log_score_gain > 0.3
    nothing = conditional_of(frame[["c"]].assign(x=rng.normal(size=800)), np.arange(800) % 2).calibration
    assert nothing.log_score_gain < 0.01


def test_single_feature_without_treatment_draws_its_marginal():
    column = np.random.default_rng(12).normal(3.0, 2.0, size=(3000, 1))
    conditional = conditional_of(column, np.arange(3000) % 2, condition_on_treatment=False)
    draws = conditional.draw(np.random.default_rng(13), 10)
    # Mean of 3000 rows: sd 0.037; sd of 3000 rows: 0.026; 4 sd.
    assert draws.mean() == pytest.approx(3.0, abs=0.15)
    assert draws.std() == pytest.approx(2.0, abs=0.11)


def test_category_absent_from_a_fold_is_handled():
    frame = pd.DataFrame({"c": ["rare"] + ["a", "b"] * 30, "x": np.linspace(0, 1, 61)})
    conditional = conditional_of(frame, np.arange(61) % 2)
    draws = conditional.draw(np.random.default_rng(14), 5)
    assert set(np.unique(draws)) <= {0.0, 1.0, 2.0}
    assert np.isfinite(conditional.calibration.log_score_gain)


@pytest.mark.parametrize(("n", "d"), [(400, 6), (40, 55)])
@pytest.mark.parametrize("condition", [True, False])
def test_shared_factorisation_gives_the_ridge_regression_of_each_feature(n, d, condition):
    rng = np.random.default_rng(15)
    X = ar_normal(rng, n, d, 0.7)
    X[:, 1] = 2.54 * X[:, 0]  # a column twice, which makes the scatter matrix singular
    X[:, 2] = np.exp(X[:, 2])
    frame = pd.DataFrame(X).assign(level=rng.choice(list("abc"), size=n)).rename(columns=str)
    table, treatment = read_features(frame), np.arange(n) % 2
    sampler = GaussianSampler(condition_on_treatment=condition).fit(table, treatment, seed_of(0))
    for feature in (0, 2, 5):
        inputs = table.design_without(feature, treatment if condition else None)
        model = RidgeCV(alphas=10.0 ** np.arange(-2, 5)).fit(inputs, X[:, feature])
        centred = inputs - inputs.mean(axis=0)
        scatter = centred.T @ centred
        used = np.trace(np.linalg.solve(scatter + model.alpha_ * np.eye(len(scatter)), scatter))
        fitted = model.predict(inputs)
        scale = np.sqrt(np.sum((X[:, feature] - fitted) ** 2) / max(n - 1 - used, 1.0))
        conditional = sampler.conditional(feature)
        assert np.allclose(conditional.mean, fitted, rtol=0, atol=1e-8 * X[:, feature].std())
        assert conditional.scale == pytest.approx(scale, rel=1e-6)


def test_held_out_scores_come_from_models_that_did_not_see_the_row():
    rng = np.random.default_rng(16)
    n = 300
    X = ar_normal(rng, n, 8, 0.5)
    frame = pd.DataFrame(X).assign(level=np.digitize(X[:, 0] + rng.normal(size=n), [-0.5, 0.5])).rename(columns=str)
    table, treatment = read_features(frame), np.arange(n) % 2
    sampler = GaussianSampler().fit(table, treatment, seed_of(0))
    _, scale, held_mean, held_scale, *_ = sampler.ridge_.regress(3)
    inputs, codes = table.design_without(8, treatment - 0.5), table.values[:, 8]
    columns = np.column_stack([table.design, treatment])
    _, score = sampler._scored_rule(8)
    penalty = RidgeCV(alphas=10.0 ** np.arange(-2, 5)).fit(np.delete(columns, 3, axis=1), columns[:, 3]).alpha_
    for fold in range(5):
        out = sampler.folds_ == fold
        rest = np.delete(columns, 3, axis=1)
        centre = rest[~out].mean(axis=0)
        scatter = (rest[~out] - centre).T @ (rest[~out] - centre) + penalty * np.eye(rest.shape[1])
        target = columns[~out, 3] - columns[~out, 3].mean()
        slopes = np.linalg.solve(scatter, (rest[~out] - centre).T @ target)
        assert np.allclose(held_mean[out], columns[~out, 3].mean() + (rest[out] - centre) @ slopes)
        assert held_scale[out] == pytest.approx(scale, rel=0.2)
        model = LogisticRegression(C=1.0, max_iter=500, tol=1e-8).fit(inputs[~out], codes[~out])
        exact = np.log(model.predict_proba(inputs[out])[np.arange(out.sum()), codes[out].astype(int)])
        # The search stops at a gradient of 1e-4 per row; the mixture of 1e-3 moves a log-score by about as much.
        assert score[out] == pytest.approx(exact, abs=0.02)
