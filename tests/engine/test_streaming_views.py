"""Importance and overlap from sums over rows."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from conftest import confounded_table
from modifind.data.schema import read_features
from modifind.data.weights import Weights
from modifind.engine.passes import LocalPieces
from modifind.nuisance.propensity.scores import FittedPropensity, OverlapSums, overlap_of
from modifind.statistics import wcmmd_importance
from streams import cut, fit, fit_source


def table(outcome="noise", n=1500, seed=3):
    rng = np.random.default_rng(seed)
    X, treatment = confounded_table(rng, n, 2, shift=0.0)
    noise = rng.standard_t(2.2, size=n) if outcome == "heavy" else rng.normal(size=n)
    y = 1.5 * treatment * np.tanh(X[:, 0]) + (1 + 0.6 * treatment * (X[:, 0] > 0)) * noise
    y = {"rounded": np.maximum(np.round(y), 0.0), "binary": (y > 0).astype(float)}.get(outcome, y)
    frame = pd.DataFrame({"x": X[:, 0], "skewed": np.exp(X[:, 1]), "tails": rng.standard_t(1.5, size=n)})
    frame["level"] = np.array(list("abcd"))[np.digitize(X[:, 0], [-1, 0.2, 1.1])]
    return frame, y, treatment


@pytest.fixture
def plans(monkeypatch):
    """Plans of the fits of a test."""
    seen, add_up = [], LocalPieces.sums

    def spy(self, plan, n_rows, advance, *, saved=True):
        seen.extend([plan] if saved else [])
        return add_up(self, plan, n_rows, advance, saved=saved)

    monkeypatch.setattr(LocalPieces, "sums", spy)
    return seen


@pytest.mark.parametrize("outcome", ["noise", "rounded", "binary", "heavy"])
def test_importance_is_that_of_all_rows_at_once(outcome, plans):
    X, y, treatment = table(outcome)
    settings = {"max_train_rows": 600, "explain": False}
    found = fit_source(cut(X, y, treatment, 137), **settings).table["importance"]
    plan = plans[0]
    for m, name in enumerate(X):
        bandwidths = {"x_bandwidth": plan.columns[m].bandwidth, "y_bandwidth": plan.importance.y_bandwidth}
        discrete = X[name].dtype != float
        expected, _ = wcmmd_importance(X[name], y, treatment, 0.5, discrete=discrete, **bandwidths)
        # Outcomes far from every one of the sample are like nothing else, which only a long-tailed outcome has.
        assert found[name] == pytest.approx(expected, rel=1e-3 if outcome == "heavy" else 1e-9)


def test_bandwidths_of_a_sample_of_all_rows_are_those_in_memory(plans):
    X, y, treatment = table()
    memory = fit(X, y, treatment, max_train_rows=1500, explain=False)
    nearly = fit(X, y, treatment, max_train_rows=1499, explain=False)
    # The median over 1000 rows that a seed takes; one row less takes others.
    np.testing.assert_allclose(memory.table["importance"], nearly.table["importance"], rtol=0.2)
    few = [part[:900] for part in (X, y, treatment)]
    memory = fit(*few, max_train_rows=900, explain=False).table["importance"]
    one_less = fit(*few, max_train_rows=899, explain=False).table["importance"]
    np.testing.assert_allclose(memory, one_less, rtol=0.02)


def test_overlap_sums_are_the_overlap_of_all_rows():
    rng = np.random.default_rng(4)
    table = read_features(rng.normal(size=(500, 1)))
    raw, arms = rng.beta(1, 1, size=500), rng.integers(0, 2, size=500)

    def rows(chosen):
        part, alike = dataclasses.replace(table, values=table.values[chosen]), Weights.alike(raw[chosen].size)
        return FittedPropensity(raw[chosen], (0.02, 0.98), arms[chosen], part, "", 0.7, alike)

    total = OverlapSums.of(rows(slice(0, 120))) + OverlapSums.of(rows(slice(120, 500)))
    expected = overlap_of(rows(slice(None)))
    assert total.overlap(rows(slice(None))) == pytest.approx(expected, rel=1e-9)
    assert expected["n_clipped"] > 0
