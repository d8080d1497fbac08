import numpy as np
import pytest

from conftest import seed_of
from modifind.data.schema import read_features
from modifind.nuisance.conditional import MarginalSampler


def draws_of(condition):
    rng = np.random.default_rng(0)
    treatment = rng.integers(0, 2, size=600)
    X = np.column_stack([rng.normal(size=600) + 3 * treatment, rng.normal(size=600)])
    sampler = MarginalSampler(condition_on_treatment=condition).fit(read_features(X), treatment, seed_of(0))
    return X, treatment, sampler.conditional(0).draw(np.random.default_rng(1), 40)


def test_draws_lie_within_the_column_and_hardly_repeat():
    for condition in (True, False):
        X, _, draws = draws_of(condition)
        assert draws.min() >= X[:, 0].min()
        assert draws.max() <= X[:, 0].max()
        # Half a step at each of two ends is drawn as the end itself: about 600/600 of each resample.
        assert np.mean([np.unique(column).size for column in draws]) > 595


def test_what_repeats_is_drawn_as_it_is():
    values = np.repeat([0.0, 1.0, 4.0], 100)
    X = np.column_stack([values, np.random.default_rng(2).normal(size=300)])
    table = read_features(X, discrete_features=[])
    draws = (
        MarginalSampler().fit(table, np.arange(300) % 2, seed_of(0)).conditional(0).draw(np.random.default_rng(1), 40)
    )
    assert set(np.unique(draws)) == {0.0, 1.0, 4.0}


def test_draws_come_from_the_same_arm_when_conditioned():
    X, treatment, draws = draws_of(True)
    for arm in (0, 1):
        # Means of 12,000 draws of sd 1: sd 0.009; 4 sd.
        assert draws[:, treatment == arm].mean() == pytest.approx(X[treatment == arm, 0].mean(), abs=0.04)


def test_every_value_is_drawn_equally_often_when_not_conditioned():
    X, treatment, draws = draws_of(False)
    # 24,000 draws in the 600 cells between midpoints of neighbours: chi-square of 599 degrees, mean 599, sd 34.6; 4 sd.
    ordered = np.sort(X[:, 0])
    counts = np.bincount(np.searchsorted((ordered[1:] + ordered[:-1]) / 2, draws.ravel()), minlength=600)
    assert ((counts - 40) ** 2 / 40).sum() == pytest.approx(599, abs=4 * 34.6)
    gap = draws[:, treatment == 1].mean() - draws[:, treatment == 0].mean()
    # Values have sd 1.8, each arm 12,000 draws: sd of the gap 0.023; 4 sd.
    assert gap == pytest.approx(0.0, abs=0.095)
