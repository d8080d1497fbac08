import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from conftest import ar_normal, confounded_table, seed_of
from modifind.data.schema import read_features
from modifind.nuisance.conditional import AutoSampler
from modifind.nuisance.conditional import adaptive as auto


def chosen(frame, feature=0, seed=0, **settings):
    treatment = np.arange(len(frame)) % 2
    sampler = AutoSampler(**settings).fit(read_features(frame), treatment, seed_of(seed))
    return sampler.conditional(feature).calibration.sampler


def test_linear_conditional_takes_the_gaussian_distribution():
    # A richer distribution needs a gain of more than one standard error, so by chance at most 16% of linear
    # columns go to it; on top of that it is truly worse. Of 12 columns at most 5 by chance, P < 0.01.
    rng = np.random.default_rng(0)
    picks = [chosen(ar_normal(rng, 500, 4, 0.6), feature=m % 4) for m in range(12)]
    assert picks.count("gaussian") >= 7


@pytest.mark.parametrize("kind", ["sine", "product", "line times absolute value", "spread"])
def test_smooth_conditional_takes_the_spline_distribution(kind):
    rng = np.random.default_rng(1)
    z, other, noise = rng.normal(size=(3, 800))
    column = {
        "sine": np.sin(3 * z) + 0.5 * noise,
        "product": z * other + noise,
        "line times absolute value": z * np.abs(other) + noise,
        "spread": np.exp(0.7 * z) * noise,
    }[kind]
    assert chosen(np.column_stack([column, z, other])) == "splines"


def test_steps_of_two_features_take_the_boosting_distribution():
    rng = np.random.default_rng(1)
    z, other, noise = rng.normal(size=(3, 1500))
    assert chosen(np.column_stack([2.0 * ((z > 0.5) & (other > 0.3)) + 0.3 * noise, z, other])) == "boosting"


def test_zero_inflated_column_keeps_its_atom():
    rng = np.random.default_rng(2)
    z = rng.normal(size=800)
    column = np.where(rng.random(800) < 0.7, 0.0, np.exp(rng.normal(size=800)))
    sampler = AutoSampler().fit(read_features(np.column_stack([column, z])), np.arange(800) % 2, seed_of(0))
    conditional = sampler.conditional(0)
    assert conditional.calibration.sampler != "gaussian"
    assert (conditional.draw(np.random.default_rng(0), 20) == 0).mean() == pytest.approx((column == 0).mean(), abs=0.03)


def test_nonlinear_category_takes_a_richer_distribution_and_linear_one_the_gaussian():
    rng = np.random.default_rng(3)
    z, noise = rng.normal(size=(2, 1000))
    curved = pd.DataFrame({"c": np.where(np.abs(z) + 0.2 * noise > 0.7, "b", "a"), "z": z})
    straight = pd.DataFrame({"c": np.where(z + 0.7 * noise > 0, "b", "a"), "z": z})
    assert chosen(curved) != "gaussian"
    assert chosen(straight) == "gaussian"


def test_conditioning_reaches_all_candidates():
    X = np.random.default_rng(4).normal(size=(60, 2))
    sampler = AutoSampler(condition_on_treatment=False).fit(read_features(X), np.arange(60) % 2, seed_of(0))
    assert [candidate.name for candidate in sampler.candidates_] == ["gaussian", "splines", "boosting"]
    assert not any(candidate.condition_on_treatment for candidate in sampler.candidates_)


def suspected(frame, treatment, features=None):
    sampler = AutoSampler().fit(read_features(frame), treatment, seed_of(0))
    features = range(sampler.table_.n_features) if features is None else features
    return [sampler.screen_.suspects(m, sampler.candidates_[0].rule(m)) for m in features]


def test_richer_distributions_are_rarely_tried_for_jointly_normal_features():
    rng = np.random.default_rng(5)
    votes = [suspected(*confounded_table(rng, 1000, 10, rho=0.2)) for _ in range(10)]
    # Four tests at 1% and one at 5%: at most 9%, sd of the share of 100 votes 0.029; 4 sd.
    assert np.mean(votes) < 0.09 + 4 * 0.029


@pytest.mark.parametrize("kind", ["square", "product", "spread", "skewed", "atom", "treatment", "category", "levels"])
def test_anything_that_a_richer_distribution_could_use_is_suspected(kind):
    rng = np.random.default_rng(6)
    n = 1000
    z, noise = ar_normal(rng, n, 10, 0.2), rng.normal(size=n)
    treatment = rng.integers(0, 2, size=n)
    column = {
        "square": noise + 1.5 * z[:, 0] ** 2,
        "product": noise + 0.7 * z[:, 0] * z[:, 1],
        "spread": noise * np.exp(0.5 * z[:, 0]),
        "skewed": np.exp(0.5 * z[:, 0] + noise),
        "atom": np.maximum(z[:, 0] + noise, 0.0),
        "treatment": noise + np.where(treatment == 1, 0.7, -0.7) * z[:, 0],
        "category": (rng.random(n) < expit(1.5 * z[:, 0] ** 2 - 1.5)).astype(float),
        "levels": np.digitize(z[:, 0] * z[:, 1] + 0.5 * noise, [-0.4, 0.4]).astype(float),
    }[kind]
    assert suspected(np.column_stack([z, column]), treatment, [10]) == [True]


def test_without_suspicion_no_richer_distribution_is_fitted(monkeypatch):
    X, treatment = confounded_table(np.random.default_rng(7), 400, 4)
    sampler = AutoSampler().fit(read_features(X), treatment, seed_of(0))
    monkeypatch.setattr(sampler.screen_, "suspects", lambda feature, conditional: False)
    for candidate in sampler.candidates_[1:]:
        monkeypatch.setattr(candidate, "_scored_rule", None)
    assert sampler.conditional(1).calibration.sampler == "gaussian"


@pytest.mark.parametrize(("curved", "name"), [(False, "gaussian"), (True, "splines")])
def test_with_many_rows_a_sample_chooses_and_all_rows_fit(monkeypatch, curved, name):
    monkeypatch.setattr(auto, "MAX_CHOICE_ROWS", 1500)
    monkeypatch.setattr(auto, "CHOICE_ROWS", 1000)
    rng = np.random.default_rng(8)
    n = 2000
    z, noise = rng.normal(size=(2, n))
    X = np.column_stack([(z**2 if curved else z) + 0.5 * noise, z, rng.integers(0, 3, size=n)])
    treatment = np.arange(n) % 2
    one, two = (AutoSampler().fit(read_features(X), treatment, seed_of(3)) for _ in range(2))
    assert one.trial_[0].table_.n_rows == 1000
    conditional = one.conditional(0)
    assert conditional.calibration.sampler == name
    whole = one.candidates_[curved]
    draws = [each.draw(np.random.default_rng(9), 3) for each in (conditional, two.conditional(0), whole.conditional(0))]
    assert draws[0].shape == (3, n)
    assert np.array_equal(draws[0], draws[1])
    assert np.array_equal(draws[0], draws[2])


def test_single_feature_without_treatment_has_nothing_to_be_suspected_of():
    X = np.random.default_rng(10).normal(size=(300, 1))
    sampler = AutoSampler(condition_on_treatment=False).fit(read_features(X), np.arange(300) % 2, seed_of(0))
    assert not sampler.screen_.suspects(0, sampler.candidates_[0].rule(0))
