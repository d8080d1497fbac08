"""An explanation that fails costs no p-value, no other explanation and no report."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from modifind import EffectLikelihood, ModifierSelector
from modifind.datasets import make_modifiers

N_ROWS = 240
# What breaks, and the parts of a result that differ then; verdicts and bounds look at curves.
PLACES = {
    "its curve": ("modifind.explain.marginal.explain_column", {"curves", "densities"}),
    "what changes along it": ("modifind.engine.testers.change_tests", {"changes"}),
    "bounds along it": ("modifind.engine.features.explain_bounds", {"bounds", "bound_tests"}),
    "its verdict": ("modifind.engine.assemble.verdict", {"changes"}),
    "the effect in all rows together": ("modifind.explain.overview.overall_effects", {"overall"}),
}
STREAMED = {
    "its curve": "modifind.engine.explaining.explain_column",
    "what changes along it": "modifind.engine.explaining.change_tests",
    "bounds along it": "modifind.engine.explaining.explain_bounds",
    "the effect in all rows together": "modifind.explain.overview.overall_effects",
}


def _breaks(*args: Any, **settings: Any) -> Any:
    raise ValueError("out of its depth")


@pytest.fixture(scope="module")
def data() -> Any:
    return make_modifiers("LinMean", n_samples=N_ROWS, n_features=5, random_state=0)


def _fit(data: Any, **settings: Any) -> Any:
    settings = {
        "statistic": EffectLikelihood("linear"),
        "sampler": "gaussian",
        "propensity": data.propensity,
    } | settings
    selector = ModifierSelector(random_state=0, n_jobs=1, **settings)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        selector.fit(data.X[["X1", "X2"]], data.y, data.treatment)
    return selector.result_, [str(w.message) for w in caught]


@pytest.fixture(scope="module")
def whole(data: Any) -> Any:
    return _fit(data)[0]


@pytest.fixture(scope="module")
def streamed(data: Any) -> Any:
    return _fit(data, max_train_rows=N_ROWS - 1)[0]


@pytest.mark.parametrize("what", PLACES)
def test_p_values_stand(data: Any, whole: Any, what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place, lost = PLACES[what]
    monkeypatch.setattr(place, _breaks)
    result, messages = _fit(data)
    pd.testing.assert_frame_equal(result.table, whole.table)
    told = [message for message in messages if f"{what} could not be found (ValueError: out of its depth)" in message]
    assert told
    assert all(message.endswith("p-values stand") for message in told)
    if what != "the effect in all rows together":
        named = re.match("feature '(.*)':", told[0])
        assert named is not None
        assert named[1] in whole.table.index
    result.report(tmp_path / "report.html")
    found, expected = result.to_dict(), whole.to_dict()
    assert type(result).from_dict(found) == result
    assert {part for part in expected if found[part] != expected[part]} - {"warnings"} == lost


@pytest.mark.parametrize("what", STREAMED)
def test_p_values_of_streamed_rows_stand(data: Any, streamed: Any, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STREAMED[what], _breaks)
    result, messages = _fit(data, max_train_rows=N_ROWS - 1)
    pd.testing.assert_frame_equal(result.table, streamed.table)
    assert any(f"{what} could not be found" in message for message in messages)


def test_wcmmd_needs_no_model_to_test(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"statistic": "wcmmd", "n_resamples": 49}
    whole = _fit(data, **settings)[0]
    monkeypatch.setattr("modifind.statistics.effect_likelihood.cross_fit", _breaks)
    result, messages = _fit(data, **settings)
    np.testing.assert_array_equal(result.table["p_value"], whole.table["p_value"])
    assert not len(result.changes)
    assert any("what changes along features could not be found" in message for message in messages)
