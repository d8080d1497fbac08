import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from conftest import logistic_treatment, seed_of
from modifind import PropensityModel
from modifind.data.clusters import Clusters
from modifind.data.schema import read_features
from modifind.data.weights import Weights
from modifind.nuisance.propensity import scores as propensity_choice
from modifind.nuisance.propensity.fitted import ScoreProfile
from modifind.nuisance.propensity.scores import EarlyStoppedMLP, FittedPropensity, overlap_of, resolve_propensity


class Boastful(DecisionTreeClassifier):
    """A classifier whose chances are none."""

    def __init__(self, chance=0.5):
        super().__init__()
        self.chance = chance

    def predict_proba(self, X):
        chance = np.array(self.chance)
        return np.stack([np.stack((1.0 - chance, chance))] * len(X))


def noise_data(n=300, seed=0):
    rng = np.random.default_rng(seed)
    return read_features(rng.normal(size=(n, 3))), rng.permutation(np.arange(n) % 2)


def mixed_data(n=400, seed=1):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": rng.normal(10.0, 4.0, size=n),
            "c": np.array(list("abc"))[rng.integers(0, 3, size=n)],
            "z": rng.normal(size=n),
        }
    )
    treatment, propensity = logistic_treatment(rng, 0.3 * (frame["x"] - 10) + (frame["c"] == "b") - 0.5)
    return frame, read_features(frame), treatment, propensity


@pytest.mark.parametrize("classifier", [KNeighborsClassifier(1), DecisionTreeClassifier()])
def test_cross_fitted_scores_are_out_of_fold(classifier):
    table, treatment = noise_data()
    in_sample = PropensityModel(classifier, cross_fit=False).fit(table, treatment, seed=seed_of(0))
    crossed = PropensityModel(classifier).fit(table, treatment, seed=seed_of(0))
    assert roc_auc_score(treatment, in_sample.raw) == 1.0
    # The AUC of pure noise with 150 rows in each arm has sd sqrt(1/(12 * 75)) = 0.033; 4 sd.
    assert roc_auc_score(treatment, crossed.raw) == pytest.approx(0.5, abs=0.135)
    # The overlap summary is honest about both.
    assert in_sample.auc == pytest.approx(0.5, abs=0.135)
    assert crossed.auc == pytest.approx(0.5, abs=0.135)


def test_each_fold_is_scored_by_the_model_that_has_not_seen_it():
    table, treatment = noise_data()
    fitted = PropensityModel(LogisticRegression()).fit(table, treatment, n_folds=3, seed=seed_of(1))
    assert len(fitted.models) == 3
    assert np.bincount(fitted.folds).tolist() == [100, 100, 100]
    for fold in range(3):
        out = fitted.folds == fold
        model = LogisticRegression().fit(table.design[~out], treatment[~out])
        np.testing.assert_allclose(fitted.raw[out], model.predict_proba(table.design[out])[:, 1], rtol=1e-10)


def test_auto_scores_are_close_to_a_logistic_truth():
    _, table, treatment, propensity = mixed_data(n=4000)
    fitted = PropensityModel().fit(table, treatment, seed=seed_of(2))
    # Five parameters on 3200 rows: rms of the probability at most sqrt(5 * 0.25 / 3200) = 0.02; twice that.
    assert np.sqrt(np.mean((fitted.scores - propensity) ** 2)) < 0.04
    assert fitted.auc == pytest.approx(roc_auc_score(treatment, fitted.raw))
    assert "cross-fitted" in fitted.description


@pytest.mark.parametrize(("n", "expected"), [(399, 399), (400, 400), (2000, 400)])
def test_penalty_is_chosen_on_a_sample_of_many_rows(monkeypatch, n, expected):
    table, treatment = noise_data(n)
    seen = []

    def held_out_scores(model, design, treatment, folds, weights):
        seen.append((design, treatment))
        return scores(model, design, treatment, folds, weights)

    scores = propensity_choice.held_out_scores
    monkeypatch.setattr(propensity_choice, "held_out_scores", held_out_scores)
    monkeypatch.setattr(propensity_choice, "CHOICE_ROWS", 400)
    monkeypatch.setattr(propensity_choice, "MIN_ARM_ROWS", 50)
    fitted = PropensityModel().fit(table, treatment, seed=seed_of(0))
    assert {part.size for _, part in seen} == {expected}
    assert np.unique(seen[0][0][:, 0]).size == expected
    # The models themselves see all rows of the other folds.
    for fold, model in enumerate(fitted.models):
        own = LogisticRegression(C=model.C, max_iter=1000)
        rows = fitted.folds != fold
        np.testing.assert_allclose(model.coef_, own.fit(table.design[rows], treatment[rows]).coef_, rtol=1e-6)


@pytest.mark.parametrize("rule", ["xor", "product", "threshold", "square"])
def test_scores_follow_what_a_line_cannot(rule):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(1500, 6))
    truth = {
        "xor": np.where((x[:, 0] > 0) ^ (x[:, 1] > 0), 0.8, 0.2),
        "product": expit(1.2 * x[:, 0] * x[:, 1]),
        "threshold": np.where(x[:, 2] > 0.5, 0.75, 0.25),
        "square": expit(1.2 * (x[:, 0] ** 2 - 1)),
    }[rule]
    treatment = (rng.random(1500) < truth).astype(np.int64)
    table = read_features(x)
    fitted = PropensityModel().fit(table, treatment, seed=seed_of(0))
    line = PropensityModel(LogisticRegression()).fit(table, treatment, seed=seed_of(0))
    error, plain = (np.sqrt(np.mean((own.scores - truth) ** 2)) for own in (fitted, line))
    assert error < (0.75 if rule == "threshold" else 0.5) * plain  # a line follows a threshold half way
    # Scores along a feature are those of the table with that feature changed.
    rows, points = np.arange(200), rng.normal(size=(200, 3))
    along = fitted.along(rows, slice(0, 1), points[..., None])
    for k in range(3):
        changed = table.design[rows]
        changed[:, 0] = points[:, k]
        expected = [fitted.models[fold].predict_proba(changed)[i, 1] for i, fold in enumerate(fitted.folds[rows])]
        np.testing.assert_allclose(along[:, k], np.clip(expected, *fitted.clip), atol=1e-9)


def test_scores_that_do_not_fit_along_a_product_are_seen():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(800, 4))
    treatment = (rng.random(800) < expit(1.2 * x[:, 0] * x[:, 1])).astype(np.int64)
    line = PropensityModel(LogisticRegression()).fit(read_features(x), treatment, seed=seed_of(0))
    assert line.misfit_p < 1e-6
    assert PropensityModel().fit(read_features(x), treatment, seed=seed_of(0)).misfit_p > 1e-4


def test_a_line_is_kept_where_it_does():
    rng = np.random.default_rng(6)
    for seed in range(4):
        x = rng.normal(size=(600, 8))
        treatment = (rng.random(600) < expit(x[:, 0])).astype(np.int64)
        fitted = PropensityModel().fit(read_features(x), treatment, seed=seed_of(seed))
        assert all(isinstance(model, LogisticRegression) for model in fitted.models)


def test_sample_for_the_penalty_keeps_a_small_arm(monkeypatch):
    rng = np.random.default_rng(2)
    table, treatment = read_features(rng.normal(size=(3000, 2))), (np.arange(3000) % 300 == 0).astype(np.int64)
    monkeypatch.setattr(propensity_choice, "CHOICE_ROWS", 100)
    fitted = PropensityModel(clip=(1e-6, 1 - 1e-6)).fit(table, treatment, seed=seed_of(1))
    # 0.3 treated rows of 100 in proportion; the ten that there are have all been taken.
    assert fitted.raw.mean() == pytest.approx(10 / 3000, rel=0.1)


def test_penalty_chosen_on_a_sample_is_as_good_as_any():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30_000, 5))
    treatment, truth = logistic_treatment(rng, X @ np.array([0.5, -0.5, 0.2, 0.0, 0.0]))
    model = propensity_choice.chosen_model(X, treatment, 0, Weights.alike(len(X)), Clusters.rows(len(X)))
    assert np.abs(model.fit(X, treatment).predict_proba(X)[:, 1] - truth).max() < 0.05


@pytest.mark.parametrize("estimator", ["auto", LogisticRegression(C=0.5)])
def test_logistic_profile_equals_refitted_prediction_with_the_column_changed(estimator):
    frame, table, treatment, _ = mixed_data()
    fitted = PropensityModel(estimator).fit(table, treatment, seed=seed_of(3))
    rng = np.random.default_rng(4)
    for feature, name in enumerate(frame.columns):
        profile = fitted.profile(feature)
        np.testing.assert_allclose(profile(table.values[:, feature]), fitted.scores, rtol=1e-9)
        values = rng.permutation(table.values[:, feature])
        changed = table.design.copy()
        changed[:, table.encoding[feature]] = table.encode(feature, values)
        expected = np.empty(table.n_rows)
        for fold, model in enumerate(fitted.models):
            rows = fitted.folds == fold
            expected[rows] = model.predict_proba(changed[rows])[:, 1]
        np.testing.assert_allclose(profile(values), np.clip(expected, 0.01, 0.99), rtol=1e-9, err_msg=name)


def test_grid_profile_is_exact_for_categories_and_close_for_numbers():
    _, table, treatment, _ = mixed_data()
    smooth = PropensityModel(EarlyStoppedMLP(epochs=15)).fit(table, treatment, seed=seed_of(5))
    trees = PropensityModel(HistGradientBoostingClassifier(max_iter=20, max_leaf_nodes=4)).fit(
        table, treatment, seed=seed_of(5)
    )
    for fitted in (smooth, trees):
        np.testing.assert_allclose(fitted.profile(1)(table.values[:, 1]), fitted.scores, atol=1e-6)
    # Between 23 quantiles a network is nearly linear in the logit; trees jump, at most once per interval on average.
    for feature in (0, 2):
        column = table.values[:, feature]
        assert np.abs(smooth.profile(feature)(column) - smooth.scores).max() < 0.03
        assert np.abs(trees.profile(feature)(column) - trees.scores).mean() < 0.03


def test_grid_profile_equals_prediction_at_its_own_grid_values():
    _, table, treatment, _ = mixed_data()
    fitted = PropensityModel(HistGradientBoostingClassifier(max_iter=10)).fit(table, treatment, seed=seed_of(6))
    profile = fitted.profile(0)
    for k in (0, 7, 24):
        changed = table.design.copy()
        changed[:, 0] = table.encode(0, np.array([profile.grid[k]]))[0]
        expected = np.empty(table.n_rows)
        for fold, model in enumerate(fitted.models):
            rows = fitted.folds == fold
            expected[rows] = model.predict_proba(changed[rows])[:, 1]
        np.testing.assert_allclose(profile(np.full(table.n_rows, profile.grid[k])), np.clip(expected, 0.01, 0.99))


def test_grid_profile_is_constant_beyond_its_grid():
    profile = ScoreProfile(
        (0.01, 0.99), np.empty(0), table=np.array([[-1.0, 1.0], [0.0, 2.0]]), grid=np.array([0.0, 1.0])
    )
    np.testing.assert_allclose(profile(np.array([-5.0, 9.0])), expit([-1.0, 2.0]))
    np.testing.assert_allclose(profile(np.array([0.25, 0.5])), expit([-0.5, 1.0]))


def test_grid_profile_of_a_constant_number_gives_the_scores_themselves():
    rng = np.random.default_rng(7)
    table = read_features(np.column_stack([np.ones(100), rng.normal(size=100)]), [])
    treatment = np.arange(100) % 2
    fitted = PropensityModel(HistGradientBoostingClassifier(max_iter=5)).fit(table, treatment, seed=seed_of(7))
    np.testing.assert_allclose(fitted.profile(0)(np.ones(100)), fitted.scores, atol=1e-6)


def test_clipping_counts_the_rows():
    table, treatment = noise_data(100)
    scores = np.full(100, 0.5)
    scores[:3], scores[3:7] = 0.001, 0.995
    fitted = PropensityModel(scores).fit(table, treatment)
    assert fitted.n_clipped == 7
    assert (fitted.scores.min(), fitted.scores.max()) == (0.01, 0.99)
    assert overlap_of(fitted)["n_clipped"] == 7.0


def test_one_score_for_all_rows_is_no_cause_for_a_warning():
    table, treatment = noise_data(100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = PropensityModel(0.3).fit(table, treatment)
    assert fitted.n_clipped == 0
    assert fitted.r2 == 1.0


def test_profiles_clip_as_the_scores_do():
    table, treatment = noise_data(100)
    fitted = PropensityModel(LogisticRegression(), clip=(0.4, 0.6)).fit(table, treatment, seed=seed_of(8))
    far = fitted.profile(0)(np.linspace(-1e3, 1e3, 100))
    assert far.min() == 0.4
    assert far.max() == 0.6


def test_overlap_summary_on_a_hand_example():
    table = read_features(np.arange(8.0)[:, None])
    treatment = np.array([1, 1, 1, 1, 0, 0, 0, 0])
    raw = np.array([0.5, 0.5, 0.25, 0.25, 0.5, 0.5, 0.04, 0.97])
    fitted = FittedPropensity(raw, (0.01, 0.99), treatment, table, "by hand", auc=0.5, weights=Weights.alike(raw.size))
    overlap = overlap_of(fitted)
    # Treated weights 2, 2, 4, 4: 12^2 / 40. Control weights 2, 2, 1/0.96, 1/0.03.
    assert overlap["effective_rows_treated"] == pytest.approx(3.6)
    assert overlap["effective_share_treated"] == pytest.approx(0.9)
    control = np.array([2, 2, 1 / 0.96, 1 / 0.03])
    assert overlap["effective_rows_control"] == pytest.approx(control.sum() ** 2 / (control**2).sum())
    assert overlap["extreme_share"] == 2 / 8
    assert overlap["n_clipped"] == 0
    assert overlap["auc"] == 0.5


def test_number_is_a_known_probability_that_every_resample_keeps():
    table, treatment = noise_data(100)
    fitted = PropensityModel(0.3).fit(table, treatment)
    assert fitted.auc == 0.5
    np.testing.assert_array_equal(fitted.scores, np.full(100, 0.3))
    np.testing.assert_allclose(fitted.profile(1)(np.full(100, 99.0)), 0.3)
    assert "0.3 for every row" in fitted.description


def test_array_of_scores_is_known_per_row_and_follows_a_feature_by_its_own_rule():
    table, treatment = noise_data(100)
    rule = table.design @ np.linspace(-0.5, 0.5, table.design.shape[1])
    scores = 1 / (1 + np.exp(-rule))
    fitted = PropensityModel(scores).fit(table, treatment)
    np.testing.assert_array_equal(fitted.scores, scores)
    assert fitted.auc == pytest.approx(roc_auc_score(treatment, scores))
    assert fitted.r2 == pytest.approx(1.0)
    moved = table.values[::-1, 0]
    change = (table.encode(0, moved) - table.encode(0, table.values[:, 0]))[:, 0] * -0.5
    # The rule is linear, so a grid of its values interpolates it exactly.
    expected = np.clip(1 / (1 + np.exp(-rule - change)), 0.01, 0.99)
    np.testing.assert_allclose(fitted.profile(0)(moved), expected, rtol=1e-6)


def test_how_well_features_explain_known_scores_is_recorded():
    table, treatment = noise_data(100)
    assert PropensityModel(np.tile([0.3, 0.7], 50)).fit(table, treatment).r2 < 0.5


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (1.0, "strictly between 0 and 1; 1 value"),
        (np.linspace(0, 0.5, 100), "strictly between 0 and 1; 1 value"),
        (np.full(99, 0.5), r"one score per row \(100\); found shape \(99,\)"),
        (np.full((100, 2), 0.5), "one score per row"),
        (np.full(100, np.nan), "strictly between 0 and 1; 100 values"),
        ("boost", "'auto', 'mlp', a number, an array or a classifier, not 'boost'"),
        (object(), "found object"),
        (LinearSVC(), "LinearSVC has no predict_proba"),
        (Boastful(1.7), "^Boastful.predict_proba must give probabilities between 0 and 1; found -0.7$"),
        (Boastful(np.nan), "^Boastful.predict_proba must give probabilities between 0 and 1; found nan$"),
        (Boastful([0.1, 0.9]), r"^Boastful.predict_proba must return one row .*; found shape \(20, 2, 2\)$"),
    ],
)
def test_unusable_propensities_are_refused(estimator, message):
    table, treatment = noise_data(100)
    with pytest.raises(ValueError, match=message):
        PropensityModel(estimator).fit(table, treatment, seed=seed_of(0))


@pytest.mark.parametrize("clip", [(0.0, 0.9), (0.5, 0.5), (0.1, 1.0)])
def test_clip_without_room_is_refused(clip):
    table, treatment = noise_data(100)
    with pytest.raises(ValueError, match="clip must be two numbers"):
        PropensityModel(0.5, clip=clip).fit(table, treatment)


def test_resolve_keeps_a_model_and_wraps_anything_else():
    model = PropensityModel(0.5)
    assert resolve_propensity(model) is model
    assert resolve_propensity("mlp").estimator == "mlp"


def test_more_folds_than_rows_of_the_smaller_arm_are_reduced():
    table = read_features(np.random.default_rng(9).normal(size=(60, 2)))
    treatment = np.array([1] * 6 + [0] * 54)
    fitted = PropensityModel(LogisticRegression()).fit(table, treatment, n_folds=20, seed=seed_of(0))
    assert len(fitted.models) == 6


@pytest.mark.parametrize(
    "estimator", ["auto", EarlyStoppedMLP(epochs=2, random_state=None), HistGradientBoostingClassifier(max_iter=5)]
)
def test_same_seed_gives_the_same_scores(estimator):
    _, table, treatment, _ = mixed_data(n=150)
    first, second, other = (
        PropensityModel(estimator).fit(table, treatment, n_folds=2, seed=seed_of(seed)).raw for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_network_stops_early_on_noise_and_keeps_its_best_weights():
    rng = np.random.default_rng(10)
    X, y = rng.normal(size=(400, 10)), rng.integers(0, 2, size=400)
    network = EarlyStoppedMLP(random_state=3).fit(X, y)
    assert network.n_epochs_ < 30
    assert network.network_.t_ == 320 * (network.n_epochs_ + network.patience)
    overfitted = EarlyStoppedMLP(epochs=200, random_state=3).fit(X, y)
    fresh, labels = rng.normal(size=(4000, 10)), rng.integers(0, 2, size=4000)
    # Labels are coin flips: the best log-loss is log 2 = 0.693, 4000 rows give it sd below 0.005.
    assert log_loss(labels, network.predict_proba(fresh)) < 0.75
    assert log_loss(labels, overfitted.predict_proba(fresh)) > 1.0


@pytest.mark.parametrize("epochs", [1, 7])
def test_network_trains_exactly_the_epochs_asked_for_on_all_rows(epochs):
    rng = np.random.default_rng(11)
    X, y = rng.normal(size=(210, 4)), rng.integers(0, 2, size=210)
    network = EarlyStoppedMLP(epochs=epochs).fit(X, y)
    assert network.n_epochs_ == epochs
    assert network.network_.t_ == 210 * epochs


def test_network_learns_and_predicts_labels():
    rng = np.random.default_rng(12)
    X = rng.normal(size=(1200, 3))
    y, probability = logistic_treatment(rng, 3 * X[:, 0] * X[:, 1])
    network = EarlyStoppedMLP().fit(X[:800], y[:800])
    assert network.network_.hidden_layer_sizes == (50, 50)
    # The truth has AUC 0.86 or so on 400 rows with sd 0.02.
    truth = roc_auc_score(y[800:], probability[800:])
    assert roc_auc_score(y[800:], network.predict_proba(X[800:])[:, 1]) > truth - 0.08
    np.testing.assert_array_equal(network.predict(X[800:]), network.predict_proba(X[800:])[:, 1] > 0.5)


def test_mlp_by_name_is_the_early_stopped_network_of_the_paper():
    table, treatment = noise_data(80)
    fitted = PropensityModel("mlp", cross_fit=False).fit(table, treatment, seed=seed_of(13))
    assert isinstance(fitted.models[0], EarlyStoppedMLP)
    assert fitted.models[0].hidden_layer_sizes == (50, 50)
    assert "same rows" in fitted.description
