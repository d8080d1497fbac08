import numpy as np
import pytest

from conftest import seed_of
from modifind.data.feature_matrix import read_features
from modifind.nuisance.conditional import MarginalSampler


def draws_of(condition):
    rng = np.random.default_rng(0)
    treatment = rng.integers(0, 2, size=600)
    X = np.column_stack([rng.normal(size=600) + 3 * treatment, rng.normal(size=600)])
    sampler = MarginalSampler(condition_on_treatment=condition).fit(read_features(X), treatment, seed_of(0))
    return X, treatment, sampler.conditional(0).draw(np.random.default_rng(1), 40)


def test_draws_come_from_the_column_itself():
    for condition in (True, False):
        X, _, draws = draws_of(condition)
        assert np.isin(draws, X[:, 0]).all()


def test_draws_come_from_the_same_arm_when_conditioned():
    X, treatment, draws = draws_of(True)
    for arm in (0, 1):
        assert np.isin(draws[:, treatment == arm], X[treatment == arm, 0]).all()


def test_every_value_is_drawn_equally_often_when_not_conditioned():
    X, treatment, draws = draws_of(False)
    # 24,000 draws over 600 values: chi-square of 599 degrees, mean 599, sd 34.6; 4 sd.
    counts = np.array([(draws == value).sum() for value in X[:, 0]])
    assert ((counts - 40) ** 2 / 40).sum() == pytest.approx(599, abs=4 * 34.6)
    gap = draws[:, treatment == 1].mean() - draws[:, treatment == 0].mean()
    # Values have sd 1.8, each arm 12,000 draws: sd of the gap 0.023; 4 sd.
    assert gap == pytest.approx(0.0, abs=0.095)
