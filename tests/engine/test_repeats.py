"""P-values near the cut, and the outcome's unit and origin."""

import numpy as np
import pytest
from scipy.stats import norm

from conftest import quiet_fit
from modifind import EffectLikelihood
from modifind.engine import repeats


def near_the_cut(seed, n=300):
    rng = np.random.default_rng(seed)
    X, treatment = rng.normal(size=(n, 4)), rng.integers(0, 2, size=n)
    return X, X[:, 0] + 0.33 * treatment * X[:, 1] + rng.normal(size=n), treatment


@pytest.fixture(scope="module")
def plain():
    X, y, treatment = near_the_cut(3)
    return quiet_fit(X, y, treatment, random_state=0, explain=False).result_


def test_features_near_the_cut_are_judged_by_several_cross_fits(monkeypatch, plain):
    X, y, treatment = near_the_cut(3)
    result = plain
    repeated = result.diagnostics["n_repeats"] > 1
    assert repeated.any()
    assert (result.diagnostics.loc[repeated, "n_repeats"] >= 3).all()
    assert (result.diagnostics["z_spread"].notna() == repeated).all()
    monkeypatch.setattr(repeats, "MOST", 1)
    once = quiet_fit(X, y, treatment, random_state=0, explain=False).result_
    np.testing.assert_array_equal(once.table["p_value"][~repeated], result.table["p_value"][~repeated])
    assert (once.table["p_value"][repeated] != result.table["p_value"][repeated]).all()


def test_the_seed_moves_a_feature_near_the_cut_less(monkeypatch):
    X, y, treatment = near_the_cut(4)
    X = X[:, :2]  # what the outcome depends on

    def spread():
        linear = EffectLikelihood("linear")
        found = [quiet_fit(X, y, treatment, statistic=linear, random_state=s).result_ for s in range(4)]
        return np.std([norm.isf(result.table["p_value"].iloc[1]) for result in found], ddof=1)

    averaged = spread()
    monkeypatch.setattr(repeats, "MOST", 1)
    assert averaged < 0.5  # 0.3 plus the error of a standard deviation of four
    assert averaged < 0.8 * spread()


def test_many_rows_are_fitted_once():
    X, y, treatment = near_the_cut(0, n=1200)
    result = quiet_fit(X, y, treatment, random_state=0, explain=False).result_
    assert (result.diagnostics["n_repeats"].fillna(1) == 1).all()


@pytest.mark.parametrize(("factor", "shift"), [(1e-9, 0.0), (1.0, 1e6), (1234.5, -7.0)])
def test_unit_and_origin_of_the_outcome_change_nothing(factor, shift, plain):
    X, y, treatment = near_the_cut(3)
    one = plain.table["p_value"]
    other = quiet_fit(X, factor * y + shift, treatment, random_state=0, explain=False).result_.table["p_value"]
    np.testing.assert_allclose(other, one, atol=1e-6)


def test_features_that_cannot_be_tested_are_not_repeated():
    X, y, treatment = near_the_cut(3, n=200)
    X[:, 3] = 1.0
    with pytest.warns(UserWarning, match="constant"):
        result = quiet_fit(X, y, treatment, random_state=0, alpha=0.5, statistic=EffectLikelihood("linear")).result_
    assert result.table["p_value"].iloc[3] == 1
