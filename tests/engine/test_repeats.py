"""P-values near the cut, and the outcome's unit and origin."""

import numpy as np
import pytest
from scipy.stats import norm

from conftest import quiet_fit
from modifind import EffectLikelihood
from modifind.engine import features as repeats


def near_the_cut(seed, n=300):
    rng = np.random.default_rng(seed)
    X, treatment = rng.normal(size=(n, 4)), rng.integers(0, 2, size=n)
    return X, X[:, 0] + 0.33 * treatment * X[:, 1] + rng.normal(size=n), treatment


@pytest.fixture(scope="module")
def plain():
    X, y, treatment = near_the_cut(0)
    return quiet_fit(X, y, treatment, random_state=0, explain=False).result_


def test_features_near_the_cut_are_judged_by_several_cross_fits(monkeypatch, plain):
    X, y, treatment = near_the_cut(0)
    result = plain
    repeated = result.diagnostics["n_repeats"] > 1
    assert repeated.any()
    assert (result.diagnostics.loc[repeated, "n_repeats"] == repeats.MAX_FITS).all()
    monkeypatch.setattr(repeats, "MAX_FITS", 1)
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
    monkeypatch.setattr(repeats, "MAX_FITS", 1)
    assert averaged < 0.5  # 0.3 plus the error of a standard deviation of four
    assert averaged < 0.8 * spread()


def test_many_rows_are_fitted_once():
    X, y, treatment = near_the_cut(0, n=1200)
    result = quiet_fit(X, y, treatment, random_state=0, explain=False).result_
    assert (result.diagnostics["n_repeats"].fillna(1) == 1).all()


@pytest.mark.parametrize(("factor", "shift"), [(1e-9, 0.0), (1.0, 1e6), (1234.5, -7.0)])
def test_unit_and_origin_of_the_outcome_change_nothing(factor, shift, plain):
    X, y, treatment = near_the_cut(0)
    one = plain.table["p_value"]
    other = quiet_fit(X, factor * y + shift, treatment, random_state=0, explain=False).result_.table["p_value"]
    np.testing.assert_allclose(other, one, atol=1e-6)


def test_features_that_cannot_be_tested_are_not_repeated():
    X, y, treatment = near_the_cut(0, n=200)
    X[:, 3] = 1.0
    with pytest.warns(UserWarning, match="constant"):
        result = quiet_fit(X, y, treatment, random_state=0, alpha=0.5, statistic=EffectLikelihood("linear")).result_
    assert result.table["p_value"].iloc[3] == 1


def test_adjusted_p_values_up_to_four_times_alpha_are_near_the_cut(monkeypatch):
    rng = np.random.default_rng(0)
    X, treatment = rng.normal(size=(600, 12)), rng.integers(0, 2, size=600)
    y = X @ rng.normal(size=12) + treatment * X[:, 0] + rng.normal(size=600)
    settings = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "random_state": 0}
    settings |= {"adjust": "none", "alpha": 0.1}  # 600 rows are too many for raw p-values to count
    result = quiet_fit(X, y, treatment, **settings).result_
    monkeypatch.setattr(repeats, "MAX_FITS", 1)
    first = quiet_fit(X, y, treatment, **settings).result_.table["p_value"]
    repeated = result.diagnostics["n_repeats"] > 1
    assert (repeated == first.between(0.02, 0.4)).all()
    # Of each kind there is one: sure of the first cross-fit, near the cut on both sides, and beyond.
    for low, high in ((0.0, 0.02), (0.02, 0.1), (0.3, 0.4), (0.4, 0.8)):
        assert first.between(low, high).any(), (low, high)


def test_features_near_the_cut_have_the_p_values_of_as_many_repeats():
    """What is averaged is what rows add, so that it is the same test with more cross-fits."""
    X, y, treatment = near_the_cut(1, n=700)
    settings = {"sampler": "gaussian", "propensity": 0.5, "random_state": 0, "explain": False}
    result = quiet_fit(X, y, treatment, statistic=EffectLikelihood("linear"), **settings).result_
    near = result.diagnostics["n_repeats"] == 2
    assert near.any()
    twice = quiet_fit(X, y, treatment, statistic=EffectLikelihood("linear", cv_repeats=2), **settings).result_
    both = norm.isf(result.table.loc[near, "p_value"]), norm.isf(twice.table.loc[near, "p_value"])
    np.testing.assert_allclose(*both, atol=0.5)  # other folds
