"""Weights of rows in propensity scores, samplers, the weighted conditional MMD and effect curves."""

import importlib.util

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import ks_2samp, kstest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from conftest import FrozenLogit, conditional_grid, seed_of
from modifind import ModifierSelector
from modifind.data.schema import read_features
from modifind.data.weights import Weights
from modifind.engine.explaining import Explainer
from modifind.engine.resampling import ResamplingTest
from modifind.explain import effect_bounds, effect_curve
from modifind.explain.rows import ArmRows, PseudoOutcomes
from modifind.inference import ConditionalRandomizationTest
from modifind.nuisance.conditional import (
    AutoSampler,
    BoostingSampler,
    Calibration,
    CVAESampler,
    GaussianSampler,
    MarginalSampler,
    SplineSampler,
)
from modifind.nuisance.conditional.contract import uniformity
from modifind.nuisance.conditional.distributions import PoolConditional
from modifind.nuisance.propensity.scores import OverlapSums, PropensityModel, overlap_of
from modifind.statistics import WCMMD, wcmmd_importance
from modifind.statistics.prepared_wcmmd import curve_variance

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="needs torch")
SAMPLERS = {
    "gaussian": GaussianSampler,
    "splines": lambda: SplineSampler(n_folds=2),
    "boosting": lambda: BoostingSampler(max_iter=20, n_folds=2),
    "auto": AutoSampler,
    "marginal": MarginalSampler,
    "cvae": lambda: CVAESampler(max_epochs=40, hidden=32, patience=10, learning_rate=5e-3),
}
SAMPLER_NAMES = [pytest.param(name, marks=needs_torch) if name == "cvae" else name for name in SAMPLERS]


def mixed_table(rng, n):
    """Two numbers and a category that hang together, one skewed number, and a treatment."""
    x = rng.normal(size=(n, 2))
    frame = pd.DataFrame({"a": 0.8 * x[:, 0] + 0.6 * x[:, 1], "b": x[:, 0], "c": np.exp(x[:, 1])})
    frame["d"] = np.array(["low", "high"])[(rng.random(n) < expit(x[:, 0])).astype(int)]
    return read_features(frame), (rng.random(n) < expit(0.5 * x[:, 0])).astype(np.int64)


def biased_sample(seed, n, d=2):
    """Rows kept with a probability that depends on the first feature or on the category, and the weights that undo it.

    In the population the first feature is 0.8 times the second plus noise, and P(last = 1) = expit(second feature).
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(8 * n, d))
    x[:, 0] = 0.8 * x[:, 1] + 0.6 * x[:, 0]
    code = (rng.random(8 * n) < expit(x[:, 1])).astype(float)
    keep = 0.5 * expit(1.5 * x[:, 0]) * np.where(code == 1, 0.3, 0.9) + 0.02
    kept = np.flatnonzero(rng.random(8 * n) < keep)[:n]
    weights = 1.0 / keep[kept]
    table = read_features(np.column_stack((x[kept], code[kept])), [d])
    return table, rng.integers(0, 2, size=kept.size), weights / weights.mean(), x[kept, 1]


def grid_of(sampler, feature):
    points, weights = conditional_grid(sampler, feature).at(slice(None))
    return (points * weights).sum(axis=1)


# Propensity scores.


def test_effective_weights_add_up_to_the_effective_size():
    weights = np.array([0.2, 1.0, 1.8, 1.0])
    assert Weights.of(weights).effective.sum == pytest.approx(Weights.of(weights).effective_size)
    assert Weights.alike(4).effective.uniform


@pytest.mark.parametrize("estimator", ["auto", LogisticRegression(C=0.1), HistGradientBoostingClassifier(max_iter=5)])
@pytest.mark.parametrize("cross_fit", [True, False])
def test_equal_weights_leave_scores_as_they_are(estimator, cross_fit):
    table, treatment = mixed_table(np.random.default_rng(0), 300)
    model = PropensityModel(estimator, cross_fit=cross_fit)
    plain, weighted = (model.fit(table, treatment, seed=seed_of(0), weights=w) for w in (None, np.ones(300)))
    np.testing.assert_allclose(weighted.raw, plain.raw, rtol=1e-5)
    assert weighted.auc == pytest.approx(plain.auc, rel=1e-4)
    assert overlap_of(weighted) == pytest.approx(overlap_of(plain), rel=1e-4)


def test_counts_as_weights_give_the_scores_of_repeated_rows():
    rng = np.random.default_rng(1)
    table, treatment = mixed_table(rng, 400)
    counts = rng.integers(1, 4, size=400)
    model = PropensityModel(LogisticRegression(C=1e8, tol=1e-10, max_iter=2000), cross_fit=False)
    again = np.repeat(np.arange(400), counts)
    repeated = LogisticRegression(C=1e8, tol=1e-10, max_iter=2000).fit(table.design[again], treatment[again])
    fitted = model.fit(table, treatment, seed=seed_of(0), weights=counts / counts.mean())
    np.testing.assert_allclose(fitted.raw, repeated.predict_proba(table.design)[:, 1], rtol=1e-3)


@pytest.mark.parametrize("estimator", ["auto", "mlp"])
def test_weighted_scores_are_those_of_the_population(estimator):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(16000, 2))
    truth = expit(0.7 * x[:, 0])
    treatment = (rng.random(16000) < truth).astype(np.int64)
    keep = np.where(treatment == 1, expit(x[:, 1]), 0.4)  # treated rows come in by the second feature
    kept = rng.random(16000) < keep
    table, weights = read_features(x[kept]), 1.0 / keep[kept]
    weights /= weights.mean()
    errors = []
    for own in (weights, None):
        fitted = PropensityModel(estimator).fit(table, treatment[kept], seed=seed_of(0), n_folds=2, weights=own)
        errors.append(np.abs(fitted.raw - truth[kept]).mean())
    assert errors[0] < 0.04
    assert errors[1] > 0.07


def test_penalty_of_many_columns_is_chosen_with_weights():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(400, 70))
    treatment = (rng.random(400) < expit(2 * x[:, 0])).astype(np.int64)
    misled = np.arange(400) < 200
    treatment[misled] = (x[misled, 1] > 0).astype(np.int64)  # another rule, in rows that hardly count
    weights = np.where(misled, 1e-3, 1.0)
    fitted = PropensityModel().fit(read_features(x), treatment, seed=seed_of(0), weights=weights / weights.mean())
    slopes = np.abs(np.mean([model.coef_[0] for model in fitted.models], axis=0))
    assert "most associated" in fitted.description
    assert np.argmax(slopes) == 0
    assert slopes[1] < 0.3 * slopes[0]


def test_known_scores_follow_the_rows_that_count():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(300, 2))
    scores = expit(x[:, 0])
    scores[:30] = expit(3 * x[:30, 1])
    treatment = (rng.random(300) < scores).astype(np.int64)
    weights = np.where(np.arange(300) < 30, 1e-6, 1.0)
    weights /= weights.mean()
    fitted = PropensityModel(scores).fit(read_features(x), treatment, weights=weights)
    assert fitted.r2 > 0.999
    assert PropensityModel(scores).fit(read_features(x), treatment).r2 < 0.95


def test_a_classifier_without_weights_is_refused():
    table, treatment = mixed_table(np.random.default_rng(5), 60)
    with pytest.raises(ValueError, match="FrozenLogit does not support sample_weight in fit"):
        PropensityModel(FrozenLogit()).fit(table, treatment, seed=seed_of(0), weights=np.ones(60))


def test_overlap_counts_rows_by_their_weights():
    rng = np.random.default_rng(6)
    table, treatment = mixed_table(rng, 200)
    weights = rng.uniform(0.5, 1.5, size=200)
    fitted = PropensityModel(0.25).fit(table, treatment, weights=weights)
    found = overlap_of(fitted)
    for arm, name in ((0, "control"), (1, "treated")):
        own = weights[treatment == arm]  # the score is the same for all rows of an arm
        assert found[f"effective_rows_{name}"] == pytest.approx(Weights.of(own).effective_size)
        assert found[f"effective_share_{name}"] == pytest.approx(Weights.of(own).effective_size / own.size)
        assert found[f"max_weight_share_{name}"] == pytest.approx(own.max() / own.sum())


def test_largest_weight_of_pieces_is_that_of_the_whole():
    rng = np.random.default_rng(7)
    table, treatment = mixed_table(rng, 300)
    fitted = PropensityModel(LogisticRegression()).fit(table, treatment, seed=seed_of(0))
    parts = []
    for rows in (slice(0, 100), slice(100, 300)):
        piece = read_features(table.values[rows])
        parts.append(OverlapSums.of(fitted.at(piece, treatment[rows], fitted.folds[rows], fitted.raw[rows])))
    assert (parts[0] + parts[1]).overlap(fitted) == pytest.approx(overlap_of(fitted))


# Samplers.


@pytest.mark.parametrize("name", SAMPLER_NAMES)
def test_equal_weights_leave_distributions_as_they_are(name):
    table, treatment = mixed_table(np.random.default_rng(8), 250)
    fits = [SAMPLERS[name]().fit(table, treatment, seed_of(0), weights) for weights in (None, np.ones(250))]
    for feature in (2, 3) if name == "auto" else range(4):
        plain, weighted = (sampler.conditional(feature) for sampler in fits)
        draws = [conditional.draw(np.random.default_rng(1), 2) for conditional in (plain, weighted)]
        np.testing.assert_allclose(*draws, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            [plain.calibration.log_score_gain, plain.calibration.pit_distance],
            [weighted.calibration.log_score_gain, weighted.calibration.pit_distance],
            atol=1e-4,
        )
        grids = [
            sampler.rule(feature).conditional(table, treatment, np.arange(250) % 4).grid(slice(None))
            for sampler in fits
        ]
        np.testing.assert_allclose(grids[0][0], grids[1][0], rtol=1e-4, atol=1e-4)


def test_counts_as_weights_give_the_distribution_of_repeated_rows():
    rng = np.random.default_rng(9)
    table, treatment = mixed_table(rng, 600)
    counts = np.where(table.values[:, 0] > 0, 2, 1)
    again = np.repeat(np.arange(600), counts)
    repeated = read_features(
        pd.DataFrame({name: table.values[again, m] for m, name in enumerate(table.names)}), [table.names[3]]
    )
    weights = counts / counts.mean()
    first = np.concatenate(([0], np.cumsum(counts)[:-1]))
    for sampler in (GaussianSampler, MarginalSampler):
        weighted = sampler().fit(table, treatment, seed_of(0), weights)
        whole = sampler().fit(repeated, treatment[again], seed_of(0))
        plain = sampler().fit(table, treatment, seed_of(0))
        for feature in range(4):
            conditional, other, third = (grid_of(s, feature) for s in (weighted, whole, plain))
            near = np.abs(conditional - other[first]).mean()
            assert near < 0.02 * table.values[:, feature].std()  # penalties and their choice differ a little
            assert near < 0.25 * np.abs(conditional - third).mean()


@pytest.mark.parametrize("name", SAMPLER_NAMES)
def test_weights_undo_a_biased_choice_of_rows(name):
    table, treatment, weights, second = biased_sample(10, 1500)
    for feature, conditional in ((0, 0.8 * second), (2, expit(second))):
        truth = (0.0, None, 0.5)[feature] if name == "marginal" else conditional
        off = []
        for own in (weights, None):
            sampler = SAMPLERS[name]().fit(table, treatment, seed_of(0), own)
            mean = grid_of(sampler, feature)
            rule = sampler.rule(feature).conditional(table, treatment, np.arange(second.size) % 4)
            points, shares = rule.grid(slice(None))
            off.append(abs((mean - truth).mean()))
            np.testing.assert_allclose((points * shares).sum(axis=1).mean(), mean.mean(), atol=0.03)
        # 1500 rows of about half their number in effect: four standard errors are 0.1.
        assert off[0] < min(0.1, 0.6 * off[1])
        assert off[1] > 0.1
        assert np.isfinite(sampler.conditional(feature).calibration.log_score_gain)


@pytest.mark.parametrize("sampler", [GaussianSampler, SAMPLERS["boosting"]], ids=["gaussian", "boosting"])
def test_weights_undo_a_biased_choice_where_columns_are_many(sampler):
    table, treatment, weights, second = biased_sample(11, 400, d=105)
    fits = [sampler().fit(table, treatment, seed_of(0), own) for own in (weights, None)]
    for feature, truth in ((0, 0.8 * second), (105, expit(second))):
        weighted, plain = (grid_of(own, feature) for own in fits)
        assert abs((weighted - truth).mean()) < 0.75 * abs((plain - truth).mean())
        mean = (
            fits[0]
            .rule(feature)
            .conditional(table, treatment, getattr(fits[0], "folds_", np.arange(400) % 4))
            .grid(slice(None))
        )
        assert abs((mean[0] * mean[1]).sum(axis=1).mean() - weighted.mean()) < 0.05


def test_weights_enter_the_spread_of_a_distribution():
    rng = np.random.default_rng(12)
    x = rng.normal(size=(2000, 2))
    wide = rng.random(2000) < 0.5
    x[wide, 0] *= 3
    weights = np.where(wide, 0.05, 1.0)
    weights /= weights.mean()
    table, treatment = read_features(x), rng.integers(0, 2, size=2000)
    for sampler in (GaussianSampler, BoostingSampler):
        own, plain = (conditional_grid(sampler().fit(table, treatment, seed_of(0), w), 0) for w in (weights, None))
        spreads = []
        for grid in (own, plain):
            points, shares = grid.at(slice(None))
            mean = (points * shares).sum(axis=1, keepdims=True)
            spreads.append(np.sqrt(((points - mean) ** 2 * shares).sum(axis=1)).mean())
        assert spreads[0] == pytest.approx(np.sqrt((0.05 * 9 + 1) / 1.05), rel=0.08)
        assert spreads[1] == pytest.approx(np.sqrt(5), rel=0.08)


def test_a_weighted_pool_draws_by_weight():
    none = Calibration("pool", 0.0, 0.0, 0.0)
    pool, weights = np.repeat([0.0, 1.0, 2.0, 9.0], 2), np.repeat([1.0, 2.0, 1.0, 50.0], 2)
    start, size = np.zeros(2000, dtype=np.int64), np.full(2000, 6)
    conditional = PoolConditional(pool, start, size, none, np.zeros(2000), np.ones(2000), weights=Weights.of(weights))
    draws = conditional.draw(np.random.default_rng(0), 10)
    share = np.array([(draws == value).mean() for value in pool[::2]])
    np.testing.assert_allclose(share, [0.25, 0.5, 0.25, 0.0], atol=4 * np.sqrt(0.25 / draws.size))
    points, shares = conditional.grid(slice(0, 1))
    assert dict(zip(points[0][shares[0] > 0], shares[0][shares[0] > 0], strict=True)) == {
        0.0: 0.25,
        1.0: 0.5,
        2.0: 0.25,
    }


def test_hardly_anything_is_drawn_beside_a_value_that_hardly_counts():
    none, zeros, ones = Calibration("pool", 0.0, 0.0, 0.0), np.zeros(1), np.ones(1)
    pool, weights = np.array([1.0, 2.0, 3.0, 100.0]), np.array([1.0, 1.0, 1.0, 1e-9])
    one = PoolConditional(pool, np.array([0]), np.array([4]), none, zeros, ones, weights=Weights.of(weights))
    draws = one.draw(np.random.default_rng(0), 2000)
    assert draws.max() <= 3.0
    assert np.unique(draws).size > 1000  # of which a third lies at the ends


def test_weighted_distance_from_uniform():
    rng = np.random.default_rng(13)
    pit = rng.random(300)

    def both(values):
        return np.column_stack((values, values))

    plain = kstest(pit, "uniform")
    assert uniformity(both(pit), np.ones(300)) == pytest.approx((plain.statistic, plain.pvalue), rel=1e-6)
    counts = rng.integers(1, 4, size=300)
    repeated = kstest(np.repeat(pit, counts), "uniform").statistic
    assert uniformity(both(pit), counts.astype(float))[0] == pytest.approx(repeated)
    biased = rng.random(4000)
    biased = biased[rng.random(4000) < biased]
    assert uniformity(both(biased), 1 / biased)[1] > 1e-3 > kstest(biased, "uniform").pvalue


def test_the_screen_of_the_auto_sampler_takes_a_normal_population_for_normal():
    table, treatment, weights, _ = biased_sample(14, 2000)
    sampler = AutoSampler().fit(table, treatment, seed_of(0), weights)
    assert sampler.conditional(0).calibration.sampler == "gaussian"
    skewed = read_features(np.column_stack((np.exp(table.values[:, 0]), table.values[:, 1])))
    assert AutoSampler().fit(skewed, treatment, seed_of(0), weights).conditional(0).calibration.sampler == "splines"


# The weighted conditional MMD and curves.


def outcome_data(seed, n, levels):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 4, size=n).astype(float) if levels else rng.normal(size=n)
    treatment = rng.integers(0, 2, size=n)
    y = treatment * x + rng.normal(size=n)
    scores = np.clip(expit(0.5 * rng.normal(size=n)), 0.1, 0.9)
    return x, y, treatment, scores, rng.integers(1, 4, size=n)


@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("weighting", ["hajek", "horvitz_thompson"])
@pytest.mark.parametrize("estimator", ["exact", "rff", "spectral"])
def test_counts_as_weights_give_the_curve_of_repeated_rows(estimator, weighting, discrete):
    x, y, treatment, scores, counts = outcome_data(15, 150, discrete)
    settings = {
        "discrete": discrete,
        "estimator": estimator,
        "weighting": weighting,
        "x_bandwidth": 0.7,
        "y_bandwidth": 1.1,
        "n_components": 40,
        "random_state": 0,
    }
    again = np.repeat(np.arange(150), counts)
    importance, curve = wcmmd_importance(x, y, treatment, scores, sample_weight=counts, **settings)
    whole, repeated = wcmmd_importance(x[again], y[again], treatment[again], scores[again], **settings)
    np.testing.assert_allclose(curve[again], repeated, rtol=1e-7)
    # Sample variances are divided by one row less.
    assert importance * 149 / 150 == pytest.approx(whole * (again.size - 1) / again.size, rel=1e-7)
    doubled = wcmmd_importance(x, y, treatment, scores, sample_weight=2.0 * counts, **settings)
    np.testing.assert_allclose(doubled[1], curve, rtol=1e-9)
    assert not np.allclose(wcmmd_importance(x, y, treatment, scores, **settings)[1], curve, rtol=1e-3)


@pytest.mark.parametrize(("estimator", "accelerate"), [("exact", True), ("spectral", True), ("rff", False)])
def test_prepared_estimators_agree_under_weights(estimator, accelerate):
    x, y, treatment, scores, counts = outcome_data(16, 200, False)
    weights = counts / counts.mean()
    exact = WCMMD("exact", accelerate=False).for_rows(y, treatment, seed_of(0), weights)
    other = WCMMD(estimator, accelerate=accelerate, n_components=2000).for_rows(y, treatment, seed_of(0), weights)
    assert other.y_bandwidth == exact.y_bandwidth
    found = [own.importance(x, scores, bandwidth=0.8) for own in (exact, other)]
    assert found[1] == pytest.approx(found[0], rel=0.2 if estimator == "rff" else 1e-6)


def test_far_rows_keep_their_weights():
    x, y, treatment, scores, counts = outcome_data(17, 120, False)
    x[:6] = 500.0 + np.arange(6)  # an isolated group: kernel sums of the arms underflow
    found = [
        WCMMD(estimator).for_rows(y, treatment, seed_of(0), counts / counts.mean()).curve(x, scores, bandwidth=0.5)
        for estimator in ("spectral", "exact")
    ]
    np.testing.assert_allclose(*found, rtol=1e-6)
    exact = WCMMD("exact", accelerate=False).for_rows(y, treatment, seed_of(0), counts / counts.mean())
    np.testing.assert_allclose(found[0], exact.curve(x, scores, bandwidth=0.5), rtol=1e-6, atol=1e-9)


@needs_torch
@pytest.mark.parametrize("weighting", ["hajek", "horvitz_thompson"])
@pytest.mark.parametrize("levels", [0, 4])
def test_torch_agrees_under_weights(weighting, levels):
    import torch

    from modifind.statistics.wcmmd_torch import DeviceWCMMD

    x, y, treatment, scores, counts = outcome_data(18, 200, levels)
    prepared = WCMMD(weighting=weighting).for_rows(y, treatment, seed_of(0), counts / counts.mean())
    columns = np.stack([np.random.default_rng(k).permutation(x) for k in range(3)])
    if levels:
        columns[0, treatment == 1] = np.minimum(columns[0, treatment == 1], 2.0)  # a category with one arm only
    device = DeviceWCMMD(prepared, "torch:cpu", bandwidth=0.8, n_levels=levels)
    found, left = device.importances(columns, lambda part: torch.from_numpy(scores).expand_as(part))
    expected = [prepared.importance(column, scores, bandwidth=0.8, n_levels=levels) for column in columns]
    assert not left.any()
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_the_bandwidth_is_that_of_the_population():
    rng = np.random.default_rng(19)
    y = rng.normal(size=6000)
    keep = np.where(np.abs(y) > 1, 0.9, 0.2)
    kept = rng.random(6000) < keep
    treatment = rng.integers(0, 2, size=kept.sum())
    weights = 1 / keep[kept]
    whole = WCMMD().for_rows(y, np.arange(6000) % 2, seed_of(0)).y_bandwidth
    weighted, plain = (
        WCMMD().for_rows(y[kept], treatment, seed_of(0), own).y_bandwidth for own in (weights / weights.mean(), None)
    )
    assert weighted == pytest.approx(whole, rel=0.07)
    assert abs(plain / whole - 1) > 0.1


@pytest.mark.parametrize("bad", [[1.0, 2.0], np.zeros(60), np.full(60, np.nan), -np.ones(60)])
def test_impossible_weights_of_one_importance_are_refused(bad):
    x, y, treatment, scores, _ = outcome_data(20, 60, False)
    with pytest.raises(ValueError, match="sample_weight must be 60 finite numbers above 0"):
        wcmmd_importance(x, y, treatment, scores, sample_weight=bad)


def test_rows_without_d2_do_not_enter_the_weighted_variance():
    curve, weights = np.array([1.0, 3.0, np.nan]), np.array([1.5, 0.5, 1.0])
    assert curve_variance(curve, weights) == pytest.approx((1.5 * 0.25 + 0.5 * 2.25) / 2)
    assert curve_variance(np.array([1.0, np.nan]), np.ones(2)) == 0.0


def test_marginal_view_of_counts_is_that_of_repeated_rows():
    x, y, treatment, scores, counts = outcome_data(22, 300, False)
    again = np.repeat(np.arange(300), counts)
    weights = counts / counts.mean()
    views = []
    for rows, own in ((np.arange(300), weights), (again, None)):
        table = read_features(np.column_stack((x[rows], -(x[rows] ** 2))))
        prepared = WCMMD().for_rows(y[rows], treatment[rows], seed_of(0), own)
        given = ArmRows(y[rows], treatment[rows], scores[rows], own)
        explainer = Explainer(table, given, PseudoOutcomes.of(given), prepared, bands=False)
        views.append(explainer.view(0, seed_of(1)))
    one, other = views
    assert one.bandwidth == pytest.approx(other.bandwidth, rel=0.02)
    assert one.importance == pytest.approx(other.importance, rel=0.05)
    inner = one.curve.iloc[3:-3]
    expected = np.interp(inner["value"], other.curve["value"], other.curve["mean_effect"])
    # The effective number of rows, and so the width of the kernel, differs a little.
    np.testing.assert_allclose(inner["mean_effect"], expected, atol=0.15)


# Missing values under weights, against the table with its rows repeated.

ESTIMATES = [("spectral", True), ("rff", True), ("rff", False), ("exact", True), ("exact", False)]
PLACES = ["cpu", pytest.param("torch:cpu", marks=needs_torch)]


def gaps_and_counts(seed=30, n=160):
    """A number that is often missing, on a grid so that its median distance is one of a few; counts follow both."""
    rng = np.random.default_rng(seed)
    x = np.round(10 * rng.normal(size=n)) / 10
    gaps = rng.random(n) < 0.3
    treatment = rng.integers(0, 2, size=n)
    y = np.round(2 * (treatment * (x + 2 * gaps) + rng.normal(size=n)))
    counts = np.where((y > 0) & (treatment == 1), 5, 1) + rng.integers(0, 2, size=n) + 2 * gaps
    scores = rng.uniform(0.2, 0.8, size=n)
    return np.where(gaps, np.nan, x), np.clip(y, -5, 6), treatment, scores, counts


def weighted_and_repeated(y, treatment, counts, estimator="spectral", weighting="hajek", accelerate=True):
    """For the weighted table and for that of repeated rows: which rows it has, their weights and the statistic.

    Random Fourier features are those of the outcomes, so that one seed gives both tables the same ones.
    """
    found = []
    for rows, weights in (
        (np.arange(y.size), counts / counts.mean()),
        (np.repeat(np.arange(y.size), counts), None),
    ):
        statistic = WCMMD(estimator, weighting, n_components=30, accelerate=accelerate)
        prepared = statistic.with_bandwidth(
            2.5, y[rows], treatment[rows], np.random.default_rng(0), Weights.of(weights, y[rows].size)
        )
        found.append((rows, weights, prepared))
    return found


def population_variance(importance, n_rows):
    """Sample variances are divided by one row less, and the tables have different numbers of rows."""
    return importance * (n_rows - 1) / n_rows


@pytest.mark.parametrize("weighting", ["hajek", "horvitz_thompson"])
@pytest.mark.parametrize(("estimator", "accelerate"), ESTIMATES)
def test_counts_as_weights_give_the_statistic_of_repeated_rows_with_gaps(estimator, accelerate, weighting):
    x, y, treatment, scores, counts = gaps_and_counts()
    tables = weighted_and_repeated(y, treatment, counts, estimator, weighting, accelerate)
    curves = [prepared.curve(x[rows], scores[rows], bandwidth=0.7) for rows, _, prepared in tables]
    again = tables[1][0]
    np.testing.assert_allclose(curves[0][again], curves[1], rtol=1e-6)
    importances = [
        population_variance(prepared.importance(x[rows], scores[rows], bandwidth=0.7), rows.size)
        for rows, _, prepared in tables
    ]
    assert importances[0] == pytest.approx(importances[1], rel=1e-6)


@needs_torch
@pytest.mark.parametrize("weighting", ["hajek", "horvitz_thompson"])
def test_torch_has_the_weights_of_rows_with_gaps(weighting):
    import torch

    from modifind.statistics.wcmmd_torch import DeviceWCMMD

    x, y, treatment, scores, counts = gaps_and_counts()
    columns = np.stack([x, *(np.random.default_rng(k).permutation(x) for k in range(3))])
    found = []
    for rows, _, prepared in weighted_and_repeated(y, treatment, counts, weighting=weighting):
        device = DeviceWCMMD(prepared, "torch:cpu", bandwidth=0.7)
        own = torch.from_numpy(scores[rows])
        importances, left = device.importances(columns[:, rows], own.expand_as)
        assert not left.any()
        by_numpy = [prepared.importance(column[rows], scores[rows], bandwidth=0.7) for column in columns]
        np.testing.assert_allclose(importances, by_numpy, rtol=1e-8)
        found.append(population_variance(importances, rows.size))
    np.testing.assert_allclose(*found, rtol=1e-8)


class Permutations:
    """The distribution that draws the rows of a table in another order, with their repeats where they have any."""

    def __init__(self, column, rows):
        self.column, self.rows = column, rows

    def draw(self, rng, n_draws):
        return np.stack([rng.permutation(self.column)[self.rows] for _ in range(n_draws)])


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("weighting", ["hajek", "horvitz_thompson"])
def test_p_values_of_counts_and_of_repeated_rows_are_the_same_with_gaps(weighting, device):
    x, y, treatment, scores, counts = gaps_and_counts()
    noise = np.random.default_rng(5).permutation(x)
    outcomes = []
    for rows, weights, prepared in weighted_and_repeated(y, treatment, counts, weighting=weighting):
        table = read_features(pd.DataFrame({"x": x[rows], "noise": noise[rows]}), missing="category")
        assert table.incomplete == {0, 1}
        propensity = PropensityModel(scores[rows]).fit(table, treatment[rows], weights=weights)
        statistic = WCMMD(weighting=weighting, device=device, resample_weights="fixed")  # both have the same scores
        test = ResamplingTest(statistic, prepared, ConditionalRandomizationTest(), 99, propensity, table)
        outcomes.append(
            [test(m, Permutations(c, rows), 0.7, np.random.default_rng(1)) for m, c in enumerate((x, noise))]
        )
    for one, other in zip(*outcomes, strict=True):
        assert one.p_value == other.p_value
    assert outcomes[0][0].p_value < 0.05 < outcomes[0][1].p_value


@needs_torch
@pytest.mark.filterwarnings("ignore:n_resamples=", "ignore:.*sample_weight", "ignore:.*of the rows are treated")
def test_a_device_changes_no_p_value_of_a_weighted_table_with_gaps():
    x, y, treatment, _, counts = gaps_and_counts(31, 240)
    rng = np.random.default_rng(6)
    frame = pd.DataFrame({name: rng.permutation(x) for name in "abc"})
    settings = {"sampler": "gaussian", "propensity": 0.5, "n_resamples": 59, "missing": "category", "random_state": 0}
    runs = [
        ModifierSelector(statistic=WCMMD(device=device), explain=False, **settings)
        .fit(frame, y, treatment=treatment, sample_weight=counts)
        .result_.table
        for device in ("cpu", "torch:cpu")
    ]
    pd.testing.assert_frame_equal(*runs, rtol=1e-8)


def test_importance_of_counts_is_that_of_repeated_rows_with_gaps():
    x, y, treatment, scores, counts = gaps_and_counts()
    found = []
    for rows, weights, prepared in weighted_and_repeated(y, treatment, counts):
        table = read_features(pd.DataFrame({"x": x[rows], "other": y[rows]}), missing="category")
        assert table.incomplete == {0}
        given = ArmRows(y[rows], treatment[rows], scores[rows], weights)
        view = Explainer(table, given, PseudoOutcomes.of(given), prepared, bands=False).view(0, seed_of(1))
        found.append((view.bandwidth, population_variance(view.importance, rows.size)))
    assert found[0] == pytest.approx(found[1], rel=1e-6)


@pytest.mark.parametrize("population", ["all", "overlap"])
@pytest.mark.parametrize("modelled", [False, True])
def test_effect_curve_of_counts_is_that_of_repeated_rows_with_gaps(modelled, population):
    x, y, treatment, scores, _ = gaps_and_counts()
    counts = np.where(y > 2, 9, 1)  # other median distance and other tails than those of the rows
    filled = np.nan_to_num(x)
    model = (np.column_stack((0.5 * filled, filled + 1)), np.full((x.size, 2), 1.5))
    found = []
    for rows, weights in ((np.arange(x.size), counts), (np.repeat(np.arange(x.size), counts), None)):
        location, scale = (part[rows] for part in model) if modelled else (None, None)
        found.append(
            effect_curve(
                x[rows],
                y[rows],
                treatment[rows],
                scores[rows],
                weights=weights,
                points=[-1.0, 0.0, 0.5, 1.5],
                bandwidth=0.7,
                location=location,
                scale=scale,
                population=population,
                n_bootstrap=0,
            ).drop(columns=["rows_treated", "rows_control", "low_support"])
        )
    assert found[0]["value"].isna().sum() == 1
    pd.testing.assert_frame_equal(*found, rtol=1e-8)


def test_points_of_bounds_follow_the_weights():
    x, y, treatment, scores, counts = outcome_data(24, 200, False)
    own = np.where(x > 0, 5, 1) * counts
    curve = effect_curve(x, y, treatment, scores, weights=own, n_bootstrap=0)
    bounds = effect_bounds(x, y, treatment, scores, weights=own, n_bootstrap=20)
    np.testing.assert_allclose(bounds["value"], curve["value"])
    with pytest.raises(ValueError, match="weights must"):
        effect_bounds(x, y, treatment, scores, weights=own[1:])


def test_points_of_a_curve_follow_the_weights():
    rng = np.random.default_rng(23)
    x = rng.normal(size=3000)
    kept = rng.random(3000) < expit(2 * x)
    x = x[kept]
    weights = 1 / expit(2 * x)
    curve = effect_curve(x, x, np.arange(x.size) % 2, 0.5, weights=weights, n_bootstrap=0)
    assert ks_2samp(curve["value"], rng.normal(size=3000)).statistic < 0.2
    assert abs(curve["value"].iloc[12]) < 0.25 < np.median(x)
