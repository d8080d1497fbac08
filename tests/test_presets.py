import numpy as np
import pytest

from modifind.datasets import make_modifiers
from modifind.presets import uai2022
from modifind.propensity import EarlyStoppedMLP
from modifind.samplers import CVAESampler, GaussianSampler


def test_preset_has_the_settings_of_the_paper():
    selector = uai2022()
    statistic, sampler, test = selector.statistic, selector.sampler, selector.test
    assert (statistic.estimator, statistic.weighting, statistic.n_components) == ("rff", "horvitz_thompson", 1000)
    assert statistic.resample_weights == "reevaluated"
    assert isinstance(sampler, CVAESampler)
    assert sampler.condition_on_treatment is False
    assert sampler.hidden == 128
    assert (test.p_value, test.stop_after) == ("count", None)
    assert (selector.n_resamples, selector.adjust, selector.alpha) == (100, "bh", 0.05)
    assert (selector.propensity.estimator, selector.propensity.cross_fit) == ("mlp", False)
    assert EarlyStoppedMLP().hidden_layer_sizes == (50, 50)


def test_epochs_and_other_settings_are_passed_on():
    selector = uai2022(n_resamples=7, epochs=5, random_state=3, alpha=0.1, sampler=GaussianSampler())
    assert selector.propensity.estimator.epochs == 5
    assert (selector.n_resamples, selector.random_state, selector.alpha) == (7, 3, 0.1)
    assert isinstance(selector.sampler, GaussianSampler)


def test_preset_runs_and_gives_counted_p_values():
    pytest.importorskip("torch")
    data = make_modifiers("NonlinMean", n_samples=120, n_features=5, random_state=0)
    sampler = CVAESampler(condition_on_treatment=False, max_epochs=2, hidden=16)
    selector = uai2022(n_resamples=20, epochs=3, random_state=0, sampler=sampler)
    result = selector.fit(data.X, data.y, treatment=data.treatment).result_
    counts = result.table["p_value"] * 20
    np.testing.assert_allclose(counts, np.round(counts))
    assert (result.diagnostics["n_resamples"] == 20).all()
    assert result.settings["sampler"]["condition_on_treatment"] is False
