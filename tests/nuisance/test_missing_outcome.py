"""Rows without an outcome: refused, left out, or stood for by the others."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from conftest import runs
from modifind import EffectLikelihood, ModifierSelector, SelectionResult
from modifind.data.clusters import RowPlan
from modifind.data.schema import Schema
from modifind.data.sources import FrameSource
from modifind.engine.passes import FirstPassSums
from modifind.engine.reading import Given, model_observed
from modifind.nuisance.observation import ObservedRows
from modifind.report.content import methods
from modifind.result.checks import run_checks
from modifind.result.concerns import KINDS
from streams import close
from tables import looked_at

QUICK = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "explain": False}


def table(n, seed):
    """A trial whose effect is 1 + x; where x is large, above all treated rows have no outcome."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["x", "noise", "other"])
    treatment = pd.Series(rng.integers(0, 2, n), name="arm")
    y = pd.Series(X["x"] + treatment * (1 + X["x"]) + rng.normal(size=n), name="change")
    chance = 1 / (1 + np.exp(-0.8 + (1.4 + 0.4 * treatment) * X["x"] - 0.5 * X["noise"]))
    return X, y.where(rng.random(n) < chance), treatment


def fit(data, *, rows=None, **settings):
    X, y, treatment = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        selector = ModifierSelector(**QUICK | {"random_state": 0} | settings)
        return selector.fit(X, y, treatment=treatment, **rows or {}).result_


@pytest.fixture(scope="module")
def data():
    return table(2500, 1)


def test_weights_give_the_average_effect_of_all_rows(data):
    weighted = fit(data, missing_outcome="weight", explain=True)
    dropped = fit(data, missing_outcome="drop", explain=True)
    assert abs(weighted.overall["mean_effect"] - 1) < 0.2  # a standard error of about 0.07
    assert dropped.overall["mean_effect"] < 0.75
    n_missing = int(data[1].isna().sum())
    found = weighted.settings["outcome_weights"]
    assert found["n_missing"] == n_missing
    assert found["share_missing"] == pytest.approx(n_missing / 2500)
    assert 1 < found["largest_weight"] <= 20
    assert found["effective_rows"] < weighted.settings["n_rows"] == 2500 - n_missing
    assert f"missing in {n_missing} rows" in methods(weighted)
    assert weighted.checks.loc[weighted.checks["name"] == "outcome_weights", "passed"].tolist() == [True, True]
    assert dropped.settings["missing_values"] == {"change": n_missing}


@pytest.mark.study
def test_null_features_are_found_as_often_as_they_should():
    # Two null features a table: of 30 p-values of all runs more than 6 are at most 0.05 with a chance below 0.001.
    p_values = [fit(table(300, seed), missing_outcome="weight").table["p_value"][1:] for seed in range(runs(15, 6))]
    assert int((np.array(p_values) <= 0.05).sum()) <= binom.ppf(0.999, np.size(p_values), 0.05)
    assert np.median(p_values) > 0.2


def test_weights_are_the_same_for_every_run_and_saved(data, tmp_path):
    some = [part[:500] for part in data]
    result = fit(some, missing_outcome="weight")
    assert fit(some, missing_outcome="weight", n_jobs=2) == result
    result.to_json(tmp_path / "r.json")
    assert SelectionResult.from_json(tmp_path / "r.json") == result


def test_weights_go_with_those_of_the_sample_clusters_strata_and_gaps(data):
    X, y, treatment = (part[:600].copy() for part in data)
    X.loc[:20, "noise"] = np.nan
    rng = np.random.default_rng(0)
    rows = {"sample_weight": rng.uniform(1, 3, 600), "clusters": np.arange(600) % 50, "strata": np.arange(600) // 300}
    for missing in ("category", "drop"):
        found = fit((X, y, treatment), rows=rows, missing=missing, missing_outcome="weight").settings
        assert found["outcome_weights"]["times_sample_weight"]
        assert "sample_weight" not in found
        assert found["n_rows"] == int((y.notna() & (X["noise"].notna() | (missing == "category"))).sum())


def test_known_scores_are_those_of_the_rows_that_are_left(data):
    X, y, treatment = (part[:400] for part in data)
    chances = np.where(np.arange(400) % 2, 0.4, 0.6)
    for missing_outcome in ("drop", "weight"):
        found = fit((X, y, treatment), missing_outcome=missing_outcome, propensity=chances)
        assert found.overlap["expected_share"] != 0.5


def test_advice_to_the_refused_works(data):
    X, y, treatment = (part[:300].copy() for part in data)
    with pytest.raises(ValueError, match=r"the outcome 'change' is missing in \d+ of 300 rows; .*'drop'.*'weight'"):
        fit((X, y, treatment))
    for advice in ({"missing_outcome": "drop"}, {"missing_outcome": "weight"}, {"missing": "drop"}):
        assert fit((X, y, treatment), **advice).settings["n_rows"] == y.notna().sum()
    X.loc[3, "x"] = y.loc[np.flatnonzero(y.notna())[0]] = np.inf
    for missing in ("error", "category", "drop"):
        with pytest.raises(ValueError, match="replace infinite values with numbers or missing values"):
            fit((X, y, treatment), missing=missing, missing_outcome="drop")
    clean = X.replace(np.inf, np.nan), y.replace(np.inf, np.nan), treatment
    for missing in ("category", "drop"):
        assert fit(clean, missing=missing, missing_outcome="drop").settings["n_rows"] < 300


def test_rows_without_weight_cluster_or_stratum_are_dropped(data):
    X, y, treatment = (part[:400] for part in data)
    rows = {"sample_weight": np.ones(400), "clusters": np.arange(400.0) % 40, "strata": np.arange(400) % 2 * 1.0}
    for place, column in enumerate(rows.values()):
        column[place] = np.nan
    found = fit((X, y, treatment), rows=rows, missing="drop").settings
    assert found["n_rows"] == y[3:].notna().sum()
    assert {"sample_weight", "clusters", "strata"} <= set(found["missing_values"])


def test_tables_in_pieces_leave_out_rows_without_an_outcome(data):
    streamed = fit(data, missing_outcome="drop", max_train_rows=800)
    assert streamed.settings["n_rows"] == data[1].notna().sum()
    with pytest.raises(ValueError, match=r"the outcome 'change' is missing in \d+ of 2500 rows"):
        fit(data, max_train_rows=800)


def in_pieces(data, piece_rows=137, rows=None, **settings):
    selector = ModifierSelector(**QUICK | {"random_state": 0, "missing_outcome": "weight"} | settings)
    source = replace(FrameSource.of(*data, per_row=rows), piece_rows=piece_rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return selector.fit(source).result_


def test_tables_in_pieces_have_weights_for_missing_outcomes(data):
    found = in_pieces(data, max_train_rows=1500, explain=True)
    assert abs(found.overall["mean_effect"] - 1) < 0.3  # a standard error of about 0.1
    assert found.settings["n_rows"] == data[1].notna().sum()
    whole, pieces = fit(data, missing_outcome="weight").settings["outcome_weights"], found.settings["outcome_weights"]
    assert {name: pieces[name] for name in ("n_missing", "share_missing", "times_sample_weight")} == {
        name: whole[name] for name in ("n_missing", "share_missing", "times_sample_weight")
    }
    assert pieces["effective_rows"] == pytest.approx(whole["effective_rows"], rel=0.1)  # other rows taught the models
    assert "sample_weight" not in found.settings
    close(found, in_pieces(data, 2500, max_train_rows=1500, explain=True))


def test_weights_in_pieces_go_with_those_of_the_sample_clusters_strata_and_gaps(data):
    X, y, treatment = (part[:900].copy() for part in data)
    X.loc[:20, "noise"] = np.nan
    X["site"] = pd.Series(np.arange(900) % 7).map(str).where(np.arange(900) > 6, "rare")
    rng = np.random.default_rng(0)
    rows = {"sample_weight": rng.uniform(1, 3, 900), "clusters": np.arange(900) % 60, "strata": np.arange(900) // 450}
    settings = {"rows": rows, "missing": "category", "max_train_rows": 500, "propensity": "auto"}
    found = in_pieces((X, y, treatment), **settings)
    assert found.settings["outcome_weights"]["times_sample_weight"]
    assert found.settings["clusters"] == {"n_clusters": 60}
    close(found, in_pieces((X, y, treatment), 900, **settings))


def test_weights_in_pieces_are_those_of_held_out_models(data):
    rows = RowPlan.of(np.random.SeedSequence(0), 5, 1)
    look = FirstPassSums.of_piece(next(FrameSource.of(*data).pieces()), rows, "auto", digests=False)
    summary = replace(look.summary, y=replace(look.summary.y, n_missing=0))
    numbers, sample = look.sample()
    schema = Schema.of(summary, None, None)
    rule, unseen = ObservedRows.of(schema, sample, rows, numbers, n_folds=5, seed=0)
    weighed = rule(sample)
    np.testing.assert_allclose(weighed.sample_weight, unseen.weights, rtol=1e-12)
    assert weighed.y.notna().all()
    # What a row is weighted by does not follow from whether it has an outcome itself.
    chosen = np.flatnonzero(rows.folds(numbers)[0] == 2)
    other = sample.y.copy()
    other.iloc[chosen] = np.where(other.iloc[chosen].isna(), 1.0, np.nan)
    again, _ = ObservedRows.of(schema, replace(sample, y=other), rows, numbers, n_folds=5, seed=0)
    full = replace(sample, y=sample.y.fillna(0.0))
    # The penalty of all folds is one choice among seven, which all rows make together.
    np.testing.assert_allclose(rule(full).sample_weight.iloc[chosen], again(full).sample_weight.iloc[chosen], rtol=0.05)


@pytest.mark.study
def test_null_features_in_pieces_are_found_as_often_as_they_should():
    # Two null features a table: of 40 p-values more than 7 are at most 0.05 with a chance below 0.002.
    tables = (table(900, seed) for seed in range(runs(20, 8)))
    p_values = [in_pieces(own, max_train_rows=400).table["p_value"][1:] for own in tables]
    assert int((np.array(p_values) <= 0.05).sum()) <= binom.ppf(0.999, np.size(p_values), 0.05)
    assert np.median(p_values) > 0.2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"missing_outcome": "category"}, "missing_outcome must be one of 'error', 'drop', 'weight', not 'category'"),
        (
            {"missing_outcome": "weight"},
            "needs at least 20 rows with an outcome and as many without; found 297 with and 3 without",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(data, settings, message):
    X, y, treatment = (part[:300] for part in data)
    full = y.fillna(0.0).mask(np.arange(300) < 3)
    with pytest.raises(ValueError, match=message):
        fit((X, full, treatment), **settings)


def test_weights_that_rest_on_few_rows_fail(data):
    result = fit([part[:1500] for part in data], missing_outcome="weight")
    assert KINDS["outcome_weights"].validity
    for effective, largest, passed in (
        (800, 0.01, [True, True]),
        (100, 0.01, [False, True]),
        (800, 0.2, [True, False]),
    ):
        found = result.settings["outcome_weights"] | {"effective_rows": effective, "largest_weight_share": largest}
        settings = {**result.settings, "outcome_weights": found}
        checks = run_checks(result.table, result.diagnostics, result.overlap, settings, {})
        assert checks.loc[checks["name"] == "outcome_weights", "passed"].tolist() == passed


def test_an_arm_that_has_all_of_its_outcomes_is_told_apart():
    X, arms = [[k % 7, k % 13] for k in range(400)], np.arange(400) % 2
    observed = (arms == 0) | (np.arange(400) % 4 == 1)  # half of the treated rows have none
    reading, looked = looked_at(Given(X, np.where(observed, np.sin(np.arange(400)), np.nan), arms))
    with pytest.warns(UserWarning, match=r"100 of 400 rows have no outcome; .* weights of up to \d"):
        rule, unseen = model_observed(reading, looked, n_folds=2, seed=0)
    assert unseen.n_missing == 100
    weights = unseen.weights
    np.testing.assert_array_equal(rule(looked.sample).sample_weight, weights)
    np.testing.assert_array_equal(rule(looked.sample).y, np.sin(np.arange(400))[observed])
    assert weights[arms[observed] == 0].mean() < 1.1
    assert weights[arms[observed] == 1].mean() == pytest.approx(2.0, abs=0.2)
