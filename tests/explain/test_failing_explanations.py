"""An explanation that fails costs no p-value, no other explanation and no report."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

from modifind import EffectLikelihood, ModifierSelector
from modifind.datasets import make_modifiers
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood
from modifind.statistics.prepared_wcmmd import PreparedWCMMD

N_ROWS = 240
# What breaks, and the parts of a result that differ then; verdicts and bounds look at curves.
PLACES = {
    "its curve": ("modifind.engine.explaining.explained_column", {"curves", "densities"}),
    "what changes along it": ("modifind.engine.features.changes_of", {"changes"}),
    "bounds along it": ("modifind.engine.explaining.explain_bounds", {"bounds", "bound_tests"}),
    "its verdict": ("modifind.engine.findings.verdict", {"changes"}),
    "the effect in all rows together": ("modifind.engine.explaining.overall_effects", {"overall"}),
}
STREAMED = {
    "its curve": "modifind.engine.explaining.explained_column",
    "what changes along it": "modifind.engine.features.changes_of",
    "bounds along it": "modifind.engine.explaining.explain_bounds",
    "the effect in all rows together": "modifind.engine.explaining.overall_effects",
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


@pytest.mark.parametrize("max_train_rows", [None, N_ROWS - 1], ids=["memory", "pieces"])
def test_the_test_stands_where_rows_do_not_tell_the_parts(
    data: Any, whole: Any, streamed: Any, max_train_rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = PreparedEffectLikelihood.terms

    def breaks_with_parts(self: Any, *args: Any, parts: bool = False) -> Any:
        return _breaks() if parts else plain(self, *args)

    monkeypatch.setattr(PreparedEffectLikelihood, "terms", breaks_with_parts)
    settings = {} if max_train_rows is None else {"max_train_rows": max_train_rows}
    result, messages = _fit(data, **settings)
    expected = whole if max_train_rows is None else streamed
    pd.testing.assert_frame_equal(result.table, expected.table)
    assert sum("what changes along it could not be found" in message for message in messages) == 2


def test_importance_that_fails_costs_its_own_feature_an_explanation(data: Any, whole: Any) -> None:
    plain = PreparedWCMMD.curve

    def breaks_along_the_first(self: Any, column: Any, *args: Any, **settings: Any) -> Any:
        return _breaks() if (column == data.X["X1"]).all() else plain(self, column, *args, **settings)

    with patch.object(PreparedWCMMD, "curve", breaks_along_the_first):
        result, messages = _fit(data)
    first = "feature 'X1': its curve could not be found (ValueError: out of its depth); p-values stand"
    assert messages.count(first) == 1
    assert result.table.drop(columns="importance").equals(whole.table.drop(columns="importance"))
    assert np.isnan(result.table.loc["X1", "importance"])
    pd.testing.assert_frame_equal(result.curves["X2"], whole.curves["X2"])
    assert result.curves["X1"].empty


def test_wcmmd_needs_no_model_to_test(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"statistic": "wcmmd", "n_resamples": 49}
    whole = _fit(data, **settings)[0]
    monkeypatch.setattr("modifind.statistics.effect_likelihood.cross_fit", _breaks)
    result, messages = _fit(data, **settings)
    np.testing.assert_array_equal(result.table["p_value"], whole.table["p_value"])
    assert not len(result.changes)
    assert any("what changes along features could not be found" in message for message in messages)
