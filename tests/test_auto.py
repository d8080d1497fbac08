import numpy as np
import pandas as pd

from conftest import ar_normal, seed_of
from modifind.features import read_features
from modifind.samplers import AutoSampler


def chosen(frame, feature=0, seed=0, **settings):
    treatment = np.arange(len(frame)) % 2
    sampler = AutoSampler(**settings).fit(read_features(frame), treatment, seed_of(seed))
    return sampler.law(feature).calibration.sampler


def test_linear_conditional_takes_the_gaussian_law():
    # The boosting law needs a gain of more than one standard error, so by chance at most 16% of linear
    # columns go to it; on top of that it is truly worse. Of 12 columns at most 5 by chance, P < 0.01.
    rng = np.random.default_rng(0)
    picks = [chosen(ar_normal(rng, 500, 4, 0.6), feature=m % 4) for m in range(12)]
    assert picks.count("gaussian") >= 7


def test_nonlinear_conditional_takes_the_boosting_law():
    rng = np.random.default_rng(1)
    z, noise = rng.normal(size=(2, 800))
    assert chosen(np.column_stack([np.sin(3 * z) + 0.3 * noise, z])) == "boosting"


def test_zero_inflated_column_takes_the_boosting_law():
    rng = np.random.default_rng(2)
    z = rng.normal(size=800)
    column = np.where(rng.random(800) < 0.7, 0.0, np.exp(rng.normal(size=800)))
    assert chosen(np.column_stack([column, z])) == "boosting"


def test_nonlinear_category_takes_the_boosting_law_and_linear_one_the_gaussian():
    rng = np.random.default_rng(3)
    z, noise = rng.normal(size=(2, 1000))
    curved = pd.DataFrame({"c": np.where(np.abs(z) + 0.2 * noise > 0.7, "b", "a"), "z": z})
    straight = pd.DataFrame({"c": np.where(z + 0.7 * noise > 0, "b", "a"), "z": z})
    assert chosen(curved) == "boosting"
    assert chosen(straight) == "gaussian"


def test_conditioning_reaches_both_candidates():
    X = np.random.default_rng(4).normal(size=(60, 2))
    sampler = AutoSampler(condition_on_treatment=False).fit(read_features(X), np.arange(60) % 2, seed_of(0))
    assert not sampler.gaussian_.condition_on_treatment
    assert not sampler.boosting_.condition_on_treatment
