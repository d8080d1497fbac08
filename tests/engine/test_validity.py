"""Small versions of the validity study: raw p-values of null features, pooled over data sets.

Numbers of p-values and standard deviations in comments are those of the full number of runs.
"""

from functools import cache

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from conftest import ar_normal, four_sd, logistic_treatment, quiet_fit, raw_p_values, runs
from modifind import ConditionalRandomizationTest, EffectLikelihood
from modifind.datasets import load_trial, make_modifiers

N_SETS, N_ROWS, N_FEATURES = runs(40, 10), 250, 5
# The resampling test with one penalty for the propensity: a search for it is most of the time on small tables.
pytestmark = pytest.mark.study
SETTINGS = {
    "statistic": "wcmmd",
    "sampler": "gaussian",
    "propensity": LogisticRegression(),
    "n_resamples": 99,
    "test": ConditionalRandomizationTest(stop_after=10),
    "explain": False,
}


def simulate(scenario, seed):
    rng = np.random.default_rng(seed)
    X = ar_normal(rng, N_ROWS, N_FEATURES, 0.3)
    strength = 1.5 if scenario == "poor overlap" else 0.4
    treatment, _ = logistic_treatment(rng, strength * (X[:, 0] + X[:, 1]))
    noise = rng.standard_t(3, size=N_ROWS) if scenario == "heavy tails" else rng.normal(size=N_ROWS)
    y = treatment + noise
    if scenario == "prognostic":
        y = y + 1.5 * X[:, 0] + X[:, 2]
    if scenario == "prognostic curves":
        y = y + 2 * np.abs(X[:, 0]) + 2 * np.sin(2 * X[:, 2])
    return X, y, treatment


@cache
def null_study(scenario):
    """P-values of every feature, one row per data set."""
    return np.array([raw_p_values(*simulate(scenario, seed), random_state=seed, **SETTINGS) for seed in range(N_SETS)])


@pytest.mark.parametrize("scenario", ["null", "heavy tails", "poor overlap"])
def test_share_of_small_null_p_values_is_at_most_the_level(scenario):
    p_values = null_study(scenario).ravel()
    # 200 p-values; 0.05 with sd 0.0154, features of one data set being nearly independent; four of those, and
    # 0.01 for the distribution and the propensity being estimated from 250 rows.
    assert (p_values <= 0.05).mean() < 0.05 + four_sd(0.05, p_values.size) + 0.01
    # Uniform p-values are below one half half of the time: sd 0.035.
    assert abs((p_values <= 0.5).mean() - 0.5) < four_sd(0.5, p_values.size)


def test_features_beside_strong_prognostic_ones_stay_null():
    p_values = null_study("prognostic")[:, [1, 3, 4]].ravel()
    # 120 p-values; sd 0.02.
    assert (p_values <= 0.05).mean() < 0.05 + four_sd(0.05, p_values.size) + 0.01


def test_purely_prognostic_features_are_seldom_selected():
    # Their outcome distribution moves with them, alike in both arms: not the null of the test, but no effect
    # modification either.
    p_values = null_study("prognostic")[:, [0, 2]].ravel()
    # 80 p-values; sd 0.024.
    assert (p_values <= 0.05).mean() < 0.05 + four_sd(0.05, p_values.size) + 0.01


def known_scores_rejections(weight_source):
    """Share of raw p <= 0.05 of the confounder when the outcome is pure noise and overlap is moderate."""
    rejected, n_sets = 0, runs(60, 10)
    for seed in range(n_sets):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(250, 2))
        treatment, propensity = logistic_treatment(rng, 2.0 * X[:, 0])
        scores = np.clip(propensity, 0.02, 0.98) if weight_source == "known per row" else LogisticRegression()
        settings = {**SETTINGS, "propensity": scores, "random_state": seed}
        p_values = raw_p_values(X, rng.normal(size=250), treatment, **settings)
        rejected += p_values[0] <= 0.05
    return rejected / n_sets, n_sets


@pytest.mark.parametrize("weight_source", ["fitted", "known per row"])
def test_strong_confounder_of_a_noise_outcome_is_not_selected(weight_source):
    # 60 data sets; 0.05 with sd 0.028, four of those.
    share, n_sets = known_scores_rejections(weight_source)
    assert share < 0.05 + four_sd(0.05, n_sets)


@cache
def likelihood_study(scenario, learner):
    """P-values of the effect-likelihood test for every feature, one row per data set."""
    settings = {"statistic": EffectLikelihood(learner), "sampler": "gaussian", "propensity": LogisticRegression()}
    return np.array([raw_p_values(*simulate(scenario, s), random_state=s, **settings) for s in range(runs(30, 8))])


LIKELIHOOD_CASES = [
    *((scenario, "linear") for scenario in ("null", "heavy tails", "poor overlap", "prognostic", "prognostic curves")),
    ("prognostic curves", "splines"),
]


@pytest.mark.parametrize(("scenario", "learner"), LIKELIHOOD_CASES)
def test_likelihood_rejects_at_most_the_level_whether_features_are_null_or_prognostic(scenario, learner):
    # A feature that shifts both arms alike, by a line or by a curve, modifies nothing: it counts as null here.
    p_values = likelihood_study(scenario, learner).ravel()
    # 150 p-values: sd 0.018, four of those and 0.01 for distributions and models that are estimated from 250 rows.
    assert (p_values <= 0.05).mean() < 0.05 + four_sd(0.05, p_values.size) + 0.01
    assert (p_values <= 0.01).mean() < 0.01 + four_sd(0.01, p_values.size) + 0.005


@pytest.mark.parametrize("scenario", ["prognostic", "prognostic curves"])
def test_likelihood_seldom_rejects_the_prognostic_features_themselves(scenario):
    p_values = likelihood_study(scenario, "linear")[:, [0, 2]].ravel()
    # 60 p-values: sd 0.028.
    assert (p_values <= 0.05).mean() < 0.05 + four_sd(0.05, p_values.size) + 0.01


def test_likelihood_is_not_so_cautious_that_it_says_nothing():
    # What a model learns from noise makes it predict a little worse, so null p-values are larger than uniform ones; but
    # not by much: a third of them, instead of a half, are below one half. Four times the sd of 0.04 below that.
    p_values = likelihood_study("null", "linear").ravel()
    assert 0.33 - four_sd(0.33, p_values.size) < (p_values <= 0.5).mean() < 0.5 + four_sd(0.5, p_values.size)


@pytest.mark.parametrize(
    ("kind", "learner", "found"),
    [("LinVar", "linear", {"X1", "X5"}), ("NonlinMean", "splines", {"X1", "X2", "X3", "X4", "X5"})],
)
def test_likelihood_finds_modifiers_of_spread_and_mean(kind, learner, found):
    data = make_modifiers(kind, n_samples=500, n_features=6, random_state=0)
    settings = {"statistic": EffectLikelihood(learner), "sampler": "gaussian", "random_state": 0}
    selected = set(quiet_fit(data.X, data.y, data.treatment, **settings).result_.selected)
    assert found <= selected
    assert "X6" not in selected


# A treatment that does nothing, and an outcome whose noise follows the first feature in both arms alike.
ZERO_EFFECTS = {
    "spread": lambda rng, x: np.exp(x / 2) * rng.normal(size=x.size),
    "counts": lambda rng, x: rng.poisson(np.exp(0.5 + 0.5 * x)),
    "log-normal": lambda rng, x: np.exp(0.7 * x + rng.normal(size=x.size)),
    "detection limit": lambda rng, x: np.maximum(x + rng.normal(size=x.size), -0.3),
    "costs with zeros": lambda rng, x: (rng.random(x.size) > expit(0.3 - 0.8 * x)) * rng.gamma(1.5, np.exp(0.6 * x)),
    "binary": lambda rng, x: rng.random(x.size) < expit(1.5 * x - 1),
}


@pytest.mark.parametrize("noise", ZERO_EFFECTS)
def test_where_the_treatment_does_nothing_nothing_is_found(noise):
    found = []
    for seed in range(runs(20, 6)):
        rng = np.random.default_rng(seed)
        X, treatment = ar_normal(rng, 400, 4, 0.2), rng.integers(0, 2, size=400)
        y = ZERO_EFFECTS[noise](rng, X[:, 0]).astype(float)
        settings = {
            "statistic": EffectLikelihood("splines"),
            "sampler": "gaussian",
            "propensity": 0.5,
            "explain": False,
        }
        found.append(raw_p_values(X, y, treatment, **settings, random_state=seed))
    p_values = np.array(found)
    # 20 p-values of the prognostic feature: sd 0.05. 60 of the others: sd 0.028. Four of those.
    assert (p_values[:, 0] <= 0.05).mean() <= 0.05 + four_sd(0.05, len(p_values))
    assert (p_values[:, 1:] <= 0.05).mean() <= 0.05 + four_sd(0.05, 3 * len(p_values))
    assert p_values.min() > 1e-4


def test_placebo_treatments_find_nothing_in_the_embedded_trial():
    trial = load_trial()
    p_values = []
    for seed in range(runs(8, 2)):
        treatment = np.random.default_rng([seed, 43]).integers(0, 2, size=len(trial.X))
        settings = {"statistic": EffectLikelihood(["linear", "splines"]), "propensity": 0.5, "explain": False}
        p_values.append(raw_p_values(trial.X, trial.y, treatment, **settings, random_state=seed))
    # 72 p-values: sd 0.026, four of those.
    assert (np.array(p_values) <= 0.05).mean() <= 0.05 + four_sd(0.05, np.size(p_values))
    assert np.min(p_values) > 1e-4


def test_prognosis_that_no_learner_follows_is_no_modification():
    # A step and a three-way product beside a constant effect, seen by straight lines.
    p_values = []
    for seed in range(runs(20, 5)):
        rng = np.random.default_rng(seed)
        X, treatment = rng.normal(size=(400, 4)), rng.integers(0, 2, size=400)
        y = 5.0 * (X[:, 0] > 0) + 2 * X[:, 1] * X[:, 2] * X[:, 3] + treatment + rng.normal(size=400)
        settings = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "explain": False}
        p_values.append(raw_p_values(X, y, treatment, **settings, random_state=seed))
    # 80 p-values: sd 0.024, four of those.
    assert (np.array(p_values) <= 0.05).mean() <= 0.05 + four_sd(0.05, np.size(p_values))


def rare_or_skewed(kind, seed, n):
    rng = np.random.default_rng(seed)
    X, treatment = rng.normal(size=(n, 4)), rng.integers(0, 2, n)
    acts = (treatment == 1) & (X[:, 0] > 0)
    y = rng.normal(size=n)
    if kind == "rare":
        return X, y - 6.0 * (acts & (rng.random(n) < 0.12)), treatment
    skewed = rng.gamma(2.0, size=n) / np.sqrt(2) - np.sqrt(2)
    return X, np.where(treatment == 1, np.sign(X[:, 0]) * skewed, y), treatment


@pytest.mark.parametrize("kind", ["rare", "skewed"])
def test_rare_events_and_skewness_of_one_arm_are_found(kind):
    settings = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "explain": False}
    found = np.array(
        [raw_p_values(*rare_or_skewed(kind, seed, 800), random_state=seed, **settings) for seed in range(runs(10, 4))]
    )
    assert (found[:, 0] <= 0.01).mean() >= 0.7
    assert (found[:, 1:] <= 0.01).mean() <= 0.1


@pytest.mark.parametrize("noise", ["t2.5", "contaminated"])
def test_heavy_noise_without_an_effect_keeps_the_level(noise):
    p_values = []
    for seed in range(runs(16, 5)):
        rng = np.random.default_rng([seed, 2])
        X, treatment = rng.normal(size=(300, 4)), rng.integers(0, 2, 300)
        heavy = rng.standard_t(2.5, 300)
        y = X[:, 0] + (heavy if noise == "t2.5" else rng.normal(scale=rng.choice([1, 10], 300, p=[0.98, 0.02])))
        settings = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "explain": False}
        p_values.append(raw_p_values(X, y, treatment, propensity=0.5, random_state=seed, **settings))
    shares = np.array(p_values) <= 0.05
    assert shares.mean() <= 0.05 + four_sd(0.05, shares.size)


def test_an_outcome_that_is_nearly_always_zero_measures_both_arms_alike():
    # Of such rows any smaller scale fits better; taken from each arm, it would tell the arms apart.
    p_values = []
    for seed in range(runs(12, 4)):
        rng = np.random.default_rng([seed, 5])
        X, treatment = rng.normal(size=(2000, 3)), rng.integers(0, 2, 2000)
        y = (rng.random(2000) < 0.02 * np.exp(X[:, 0] / 2)) * rng.gamma(2.0, 40.0, size=2000)
        settings = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "explain": False}
        p_values.append(raw_p_values(X, y, treatment, propensity=0.5, random_state=seed, **settings))
    assert (np.array(p_values) <= 0.05).mean() <= 0.05 + four_sd(0.05, np.size(p_values))
    assert np.min(p_values) > 1e-4


@pytest.mark.parametrize("sampler", ["auto", "gaussian"])
def test_one_impossible_value_of_a_null_feature_decides_nothing(sampler):
    found = []
    for seed in range(50, 54):  # p was 0 in three of these tables with the gaussian sampler, in one with the other
        rng = np.random.default_rng(seed)
        X, arm = rng.standard_normal((1200, 4)), rng.integers(0, 2, 1200)
        y = X[:, 0] + 0.5 * arm * X[:, 1] + rng.standard_normal(1200)
        X[7, 3] = 1e9
        statistic = EffectLikelihood("linear")
        found.append(raw_p_values(X, y, arm, statistic=statistic, sampler=sampler, random_state=seed - 50)[3])
    assert min(found) > 0.001
