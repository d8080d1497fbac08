"""The scale on which effects are measured: what is warned of, and what the log scale does."""

import warnings

import numpy as np
import pytest

from conftest import ar_normal, quiet_fit
from modifind import EffectLikelihood
from modifind.data.outcome import warn_of_scale
from modifind.engine.reading import Given
from tables import read_rows

SETTINGS = {
    "statistic": EffectLikelihood("linear"),
    "sampler": "gaussian",
    "propensity": 0.5,
    "random_state": 0,
    "explain": False,
}


@pytest.fixture(scope="module")
def costs():
    """A positive outcome whose level the first feature multiplies and whose ratio the second one changes."""
    rng = np.random.default_rng(0)
    X, treatment = ar_normal(rng, 400, 3, 0.3), rng.integers(0, 2, size=400)
    log_y = X[:, 0] + treatment * (2.0 + 0.8 * X[:, 1]) + 0.7 * rng.normal(size=400)
    return X, np.exp(log_y), treatment


def test_skewed_positive_outcome_is_warned_of_with_both_remedies(costs):
    with pytest.warns(UserWarning, match="never negative and strongly skewed") as caught:
        warn_of_scale(costs[1])
    message = str(caught[0].message)
    assert "effect_scale='ratio', or outcome_transform='log' for geometric means" in message
    assert len(caught) == 1


OUTCOMES = {
    "symmetric": lambda rng: rng.normal(size=500),
    "positive and symmetric": lambda rng: rng.normal(50.0, 5.0, size=500),
    "skewed with negative values": lambda rng: np.exp(rng.normal(size=500)) - 0.5,
    "a few zeros": lambda rng: np.where(rng.random(500) < 0.1, 0.0, rng.normal(50.0, 5.0, size=500)),
    "ratings from 0": lambda rng: rng.integers(0, 5, size=500).astype(float),
    "scores from 0 to 100": lambda rng: np.clip(np.rint(rng.normal(60.0, 20.0, size=500)), 0, 100),
    "binary from 0": lambda rng: (rng.random(500) < 0.1).astype(float),
    "skewed to the left": lambda rng: 100.0 - np.exp(rng.normal(size=500)),
    "binary": lambda rng: np.where(rng.random(500) < 0.02, 2.0, 1.0),
    "few counts": lambda rng: np.where(rng.random(500) < 0.02, 9.0, rng.integers(1, 4, size=500)),
    "skewed on the log scale too": lambda rng: np.exp(np.exp(rng.normal(size=500)) * 0.1 + 0.5) ** 0.5,
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_other_outcomes_are_not_warned_of(name):
    y = OUTCOMES[name](np.random.default_rng(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_scale(y)


NON_NEGATIVE = {
    "outcome='amount'": lambda rng: np.where(rng.random(500) < 0.4, 0.0, np.exp(rng.normal(size=500))),
    "outcome='count'": lambda rng: rng.poisson(3.0, size=500).astype(float),
    "effect_scale='ratio'": lambda rng: np.where(rng.random(500) < 0.1, 0.0, np.exp(1.2 * rng.normal(size=500))),
}


@pytest.mark.parametrize("remedy", NON_NEGATIVE)
def test_outcomes_with_zeros_are_warned_of_with_what_to_do(remedy):
    with pytest.warns(UserWarning, match="compare the arms by ratios: " + remedy) as caught:
        warn_of_scale(NON_NEGATIVE[remedy](np.random.default_rng(1)))
    assert len(caught) == 1


def test_log_scale_is_not_warned_of(costs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(read_rows(Given(*costs), "log")[1].y, np.log(costs[1]))


@pytest.mark.parametrize("max_train_rows", [400, 200])
def test_logarithm_of_what_is_not_positive_is_refused_with_the_count(costs, max_train_rows):
    X, y, treatment = costs
    some = np.where(np.arange(400) == 7, -2.0, np.where(np.arange(400) == 300, 0.0, y))
    settings = {**SETTINGS, "outcome_transform": "log", "max_train_rows": max_train_rows}
    with pytest.raises(ValueError, match="outcome_transform='log' needs a positive outcome; 2 values of y are not"):
        quiet_fit(X, some, treatment, **settings)


def test_selector_refuses_the_logarithm_of_a_negative_outcome(costs):
    X, y, treatment = costs
    with pytest.raises(ValueError, match="needs a positive outcome; 1 value of y is not"):
        quiet_fit(X, np.where(np.arange(400) == 7, -1.0, y), treatment, **SETTINGS, outcome_transform="log")


def test_selector_warns_and_records_the_scale(costs):
    with pytest.warns(UserWarning, match="strongly skewed"):
        plain = quiet_fit(*costs, **SETTINGS).result_
    assert plain.settings["outcome_transform"] is None
    assert sum("strongly skewed" in message for message in plain.warnings) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logged = quiet_fit(*costs, **SETTINGS, outcome_transform="log").result_
    assert logged.settings["outcome_transform"] == "log"
    assert logged.warnings == ()


@pytest.mark.parametrize("statistic", [EffectLikelihood("linear"), EffectLikelihood("splines"), "wcmmd"])
def test_log_transform_is_the_fit_to_the_logarithm(costs, statistic):
    X, y, treatment = costs
    settings = {**SETTINGS, "statistic": statistic}
    if statistic == "wcmmd":
        settings["n_resamples"] = 39
    inside = quiet_fit(X, y, treatment, **settings, outcome_transform="log").result_
    outside = quiet_fit(X, np.log(y), treatment, **settings).result_
    assert inside.table.equals(outside.table)
    assert inside.diagnostics.equals(outside.diagnostics)
    for name in inside.curves:
        assert inside.curve(name).equals(outside.curve(name))
    differing = {k for k in inside.settings if inside.settings[k] != outside.settings[k]}
    assert differing == {"outcome_transform"}


def test_feature_that_multiplies_both_arms_modifies_no_ratio(costs):
    logged = quiet_fit(*costs, **SETTINGS, outcome_transform="log").result_
    assert logged.selected == ["x1"]
    # On the plain scale the treatment adds more where the level is higher, which is what the warning is about.
    with pytest.warns(UserWarning, match="strongly skewed"):
        plain = quiet_fit(*costs, **SETTINGS).result_
    assert "x0" in plain.selected


@pytest.mark.parametrize("mean", [0.7, 1.5, 3.0])
def test_counts_of_a_kind_are_called_counts_in_every_sample(mean):
    rng = np.random.default_rng(5)
    for _ in range(20):
        y = rng.poisson(mean, size=500).astype(float)
        samples = (y, y[y > 0]) if mean == 3.0 else (y,)  # a count that is never zero is one, too
        for sample in samples:
            with pytest.warns(UserWarning, match="the outcome looks like a count"):
                warn_of_scale(sample)
