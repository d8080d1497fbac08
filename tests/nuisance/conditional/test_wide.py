import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from modifind.data.schema import read_features
from modifind.data.weights import Weights
from modifind.nuisance.conditional import AutoSampler, BoostingSampler, GaussianSampler
from modifind.nuisance.conditional import gaussian as wide
from modifind.nuisance.conditional.gaussian import CrossFittedRidge


def autoregressive(seed, n, d, correlation=0.5):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    for j in range(1, d):
        x[:, j] = correlation * x[:, j - 1] + np.sqrt(1 - correlation**2) * x[:, j]
    return x, rng.integers(0, 2, n)


@pytest.mark.parametrize(("n", "d"), [(60, 80), (200, 40)])
def test_slopes_are_those_of_ridge_regressions(n, d):
    x, a = autoregressive(0, n, d)
    folds = np.arange(n) % 2
    part = CrossFittedRidge.of(x, a, folds, Weights.alike(a.size)).parts[0]
    train, arms = x[folds != 0], a[folds != 0]
    centred = train - np.stack([train[arms == arm].mean(axis=0) for arm in (0, 1)])[arms]
    rest = np.delete(np.arange(d), 7)
    slopes = part.slopes(7)
    for k, penalty in enumerate(wide.WIDE_PENALTIES):
        direct = Ridge(alpha=penalty, fit_intercept=False).fit(centred[:, rest], centred[:, 7])
        np.testing.assert_allclose(slopes[rest, k], direct.coef_, atol=1e-8)
    near = slopes[:, wide.WIDE_PENALTIES.size]  # five neighbours, least penalty
    assert np.count_nonzero(near) == 5
    assert near[6] != 0
    assert near[7] == 0
    chosen = np.flatnonzero(near)
    direct = Ridge(alpha=1.0, fit_intercept=False).fit(centred[:, chosen], centred[:, 7])
    np.testing.assert_allclose(near[chosen], direct.coef_, atol=1e-8)


@pytest.mark.parametrize("d", [150, 250, 400])
def test_distribution_is_calibrated_where_columns_are_as_many_as_rows(d):
    x, a = autoregressive(1, 250, d)
    x[:, 40] += a  # conditioning on the treatment must survive the penalties
    sampler = GaussianSampler().fit(read_features(x), a, np.random.SeedSequence(0))
    spread, leak = [], []
    for m in (5, 20, 40, 60, 80, 100):
        conditional = sampler.conditional(m)
        error = (x[:, m] - conditional.mean) / conditional.scale
        spread.append(error.std())
        leak.append(abs(np.corrcoef(error, a)[0, 1]))
        assert conditional.calibration.pit_p_value > 1e-3
        neighbours = np.corrcoef(error, x[:, m - 1])[0, 1], np.corrcoef(error, x[:, m + 1])[0, 1]
        assert np.abs(neighbours).max() < 0.25
        assert conditional.scale < 0.97 * x[:, m].std()  # the true share is sqrt(0.6)
    assert np.mean(spread) == pytest.approx(1.0, abs=0.02)
    assert max(leak) < 0.15


def test_each_row_is_predicted_by_rows_of_other_folds():
    x, a = autoregressive(2, 120, 150)
    sampler = GaussianSampler().fit(read_features(x), a, np.random.SeedSequence(0))
    ridge = sampler.ridge_
    assert isinstance(ridge, CrossFittedRidge)
    part = ridge.parts[0]
    changed = ridge.columns.copy()
    changed[part.rows] = 0.0
    again = CrossFittedRidge.of(changed, a, sampler.folds_, Weights.alike(a.size)).parts[0]
    np.testing.assert_allclose(again.slopes(9), part.slopes(9), atol=1e-8)


def test_categories_get_out_of_fold_probabilities():
    x, a = autoregressive(3, 250, 300)
    frame = pd.DataFrame(x).rename(columns=str)
    frame["code"] = np.digitize(x[:, 10] + 0.5 * np.random.default_rng(0).normal(size=250), (-0.5, 0.5))
    frame["noise"] = np.random.default_rng(1).integers(0, 3, 250)
    sampler = GaussianSampler().fit(read_features(frame), a, np.random.SeedSequence(0))
    informed, blind = sampler.conditional(300), sampler.conditional(301)
    assert informed.calibration.log_score_gain > 0.2
    assert blind.calibration.log_score_gain == pytest.approx(0.0, abs=0.05)
    assert blind.probabilities.min() > 0.02  # 300 columns do not separate 250 rows that the model has not seen


def test_ordinary_tables_keep_the_shared_factorisation(monkeypatch):
    def refuse(*args, **kwargs):
        pytest.fail("screened")

    monkeypatch.setattr("modifind.nuisance.conditional.gaussian.CrossFittedRidge.of", refuse)
    monkeypatch.setattr("modifind.nuisance.conditional.gaussian.Association", refuse)
    monkeypatch.setattr("modifind.nuisance.conditional.adaptive.Association", refuse)
    monkeypatch.setattr("modifind.nuisance.regression.screening.Association", refuse)
    x, a = autoregressive(4, 120, 50)
    x[:, 3] = x[:, 2] ** 2 + 0.1 * x[:, 3]
    sampler = AutoSampler().fit(read_features(x), a, np.random.SeedSequence(0))
    assert sampler.conditional(3).calibration.sampler == "splines"


def test_trees_see_neighbours_and_the_treatment(monkeypatch):
    x, a = autoregressive(5, 300, 200)
    x[:, 50] = x[:, 120] ** 2 + 0.3 * x[:, 50]
    widths = []
    fit = BoostingSampler._neighbours

    def recorded(self, inputs, targets, weights):
        near = fit(self, inputs, targets, weights)
        widths.append(near)
        return near

    monkeypatch.setattr(BoostingSampler, "_neighbours", recorded)
    conditional = BoostingSampler().fit(read_features(x), a, np.random.SeedSequence(0)).conditional(50)
    assert len(widths) == 4
    for near in widths:
        assert near.size <= 61
        assert 119 in near
        assert near[-1] == 199
    assert conditional.calibration.log_score_gain > 0.2


def test_products_are_formed_of_few_columns(monkeypatch):
    from modifind.nuisance.regression import screening as misfit

    sizes = []
    ratio = misfit._squared_ratio

    def recorded(sums, variance):
        sizes.append(sums.shape)
        return ratio(sums, variance)

    monkeypatch.setattr(misfit, "_squared_ratio", recorded)
    x, a = autoregressive(6, 300, 200)
    x[:, 50] = x[:, 120] * x[:, 130] + 2 * x[:, 50]
    sampler = AutoSampler().fit(read_features(x), a, np.random.SeedSequence(0))
    sampler.conditional(3)
    assert (2 * misfit.N_NEIGHBOURS, misfit.N_NEIGHBOURS) in sizes  # lines and bends times lines
    conditional = GaussianSampler().fit(read_features(x), a, np.random.SeedSequence(0)).conditional(50)
    assert (
        sampler.screen_.misfit.product((x[:, 50] - conditional.mean) / conditional.scale, np.ones(300), slice(50, 51))
        < 0.01
    )
