"""The parts of benchmarks/peers.py that are our own; the packages it compares with are not needed here."""

import importlib

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from conftest import ROOT, ar_normal, four_sd, logistic_treatment


@pytest.fixture(scope="module")
def peers():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("peers")


@pytest.fixture(scope="module")
def methods(peers):
    return importlib.import_module("peer_methods")


@pytest.fixture
def table(peers):
    """Six features: X1 and X2 modify, X6 is prognostic."""
    X = pd.DataFrame(np.zeros((4, 6)), columns=[f"X{j}" for j in range(1, 7)])
    return peers.designs.Table(X, np.array([0, 1, 0, 1]), np.zeros(4), ["X1", "X2"], ["X6"])


def test_slope_test_is_least_squares_with_a_sandwich_variance(methods):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)) + 2.0
    outcome = 5.0 + x[:, 0] + np.exp(0.5 * x[:, 1] - 1) * rng.normal(size=60)
    t, p = methods.slope_test(x, outcome)
    for j in range(3):
        design = np.column_stack([np.ones(60), x[:, j]])
        bread = np.linalg.inv(design.T @ design)
        coefficient = bread @ design.T @ outcome
        weighted = design * (outcome - design @ coefficient)[:, None]
        variance = 60 / 58 * bread @ weighted.T @ weighted @ bread
        assert t[j] == pytest.approx(coefficient[1] / np.sqrt(variance[1, 1]))
    assert p[0] < 0.01
    assert np.all((p > 0) & (p <= 1))


def test_slope_test_holds_its_level_when_the_noise_grows_with_the_feature(methods):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 1000))
    p = np.array([methods.slope_test(x[:, [j]], np.abs(x[:, j]) * rng.normal(size=400))[1][0] for j in range(1000)])
    assert abs((p <= 0.05).mean() - 0.05) < four_sd(0.05, 1000)


@pytest.mark.parametrize("unit", [1.0, 1e4])
def test_interactions_are_least_squares_with_hc3_errors_in_any_unit(methods, unit):
    rng = np.random.default_rng(3)
    x, a = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    y = unit * (a * x[:, 0] + rng.normal(size=200))
    p = methods.interaction_p_values(x, a, y, "numeric", "difference")
    design = np.column_stack([np.ones(200), x, a, x * a[:, None]])
    bread = np.linalg.inv(design.T @ design)
    coefficient = bread @ design.T @ y
    leverage = np.einsum("ij,jk,ik->i", design, bread, design)
    meat = design * ((y - design @ coefficient) / (1 - leverage))[:, None]
    z = coefficient / np.sqrt(np.diag(bread @ meat.T @ meat @ bread))
    np.testing.assert_allclose(p, 2 * norm.sf(np.abs(z[-3:])), rtol=1e-6)


def test_pseudo_outcomes_average_to_the_effect_and_follow_the_modifier(methods):
    rng = np.random.default_rng(2)
    x = ar_normal(rng, 600, 4, 0.2)
    a, _ = logistic_treatment(rng, 0.5 * x[:, 0])
    y = 3 * np.abs(x[:, 1]) + a * (1 + 2 * x[:, 2]) + rng.normal(size=600)
    outcome = methods.aipw_outcomes(x, y, a, seed=0)
    effect = 1 + 2 * x[:, 2]
    error = outcome - effect
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(600)
    t, p = methods.slope_test(x, outcome)
    assert np.argmax(np.abs(t)) == 2
    assert p[1] > 0.01  # prognostic only


def test_judge_counts_each_group_of_features_by_itself(peers, table):
    found = peers.Found(np.array([6.0, 1.5, 1.0, 2.0, 0.0, 3.0]), np.array([True, False, True, False, False, True]))
    # X1 beats the four others, X2 beats two of them: 6 of 8 pairs
    expected = {"auc": 0.75, "tpr": 0.5, "fdp": pytest.approx(2 / 3), "prognostic": 1.0, "find": None}
    assert peers.judge(found, table) == expected


def test_judge_leaves_rates_out_without_p_values_or_prognostic_features(peers, table):
    only_score = peers.judge(peers.Found(np.arange(6.0), None), table)
    assert only_score == {"auc": 0.0, "tpr": None, "fdp": None, "prognostic": None, "find": None}
    selected = peers.judge(peers.Found(np.arange(6.0), np.ones(6, dtype=bool)), table._replace(prognostic=[]))
    assert selected["fdp"] == pytest.approx(4 / 6)
    assert selected["prognostic"] is None


def test_judge_counts_finds_where_nothing_modifies(peers, table):
    null = table._replace(modifiers=[])
    for chosen in (np.zeros(6, dtype=bool), np.arange(6) == 3):
        judged = peers.judge(peers.Found(np.arange(6.0), chosen), null)
        assert (judged["auc"], judged["tpr"]) == (None, None)
        assert judged["find"] == judged["fdp"] == float(chosen.any())


def test_equal_p_values_are_ranked_by_statistic_and_untested_features_come_last(methods):
    score = methods.rank_by_p_value([0.001, 0.001, 0.5, np.nan, np.nan], [1.0, 2.0, 9.0, np.nan, np.nan])
    assert score.tolist() == [2.0, 3.0, 1.0, 0.0, 0.0]


def test_selection_is_benjamini_hochberg(methods):
    found = methods.from_p_values([4, 3, 2, 1], [0.01, 0.02, 0.04, 0.9])
    assert found.selected.tolist() == [True, True, False, False]


def test_a_run_reports_every_figure(peers):
    run = peers.one_run("slope", "LinMean + prognostic", peers.designs.WITH_PROGNOSTIC["LinMean + prognostic"], 200, 0)
    assert run["auc"] > 0.9
    assert {"tpr", "fdp", "prognostic", "seconds"} <= run.keys()


@pytest.mark.parametrize(("name", "found"), [("ols", "LinMean"), ("log-squares", "LinVar"), ("squares", "LinVar")])
def test_tests_by_hand_see_what_they_ask_for(peers, name, found):
    """Means or spreads, each blind to the other."""
    other = {"LinMean": "LinVar", "LinVar": "LinMean"}[found]
    runs = {kind: peers.one_run(name, kind, peers.designs.POWER[kind], 1000, 0) for kind in (found, other)}
    assert runs[found]["auc"] > 0.8
    assert runs[found]["tpr"] > runs[other]["tpr"] == 0.0


def test_every_table_names_designs_that_there_are(peers, monkeypatch):
    monkeypatch.delenv("MODIFIND_DATA", raising=False)
    named = {name for table in peers.TABLES for name in table.designs if not name.startswith("coin flips")}
    assert named == set(peers.all_designs())


def test_real_tables_are_numbers_without_gaps(peers):
    X = pd.DataFrame({"age": [1.0, np.nan, 3.0, 4.0], "sex": ["f", "m", "m", "f"]})
    numbers, y = peers.as_numbers(peers.real_tables.Outcome("o", X, np.arange(4.0)))
    assert numbers.to_dict("list") == {"age": [1.0, 3.0, 4.0], "sex_m": [0.0, 1.0, 0.0]}
    assert y.tolist() == [0.0, 2.0, 3.0]


def test_the_page_says_where_a_peer_finds_more(peers):
    def run(method, tpr, fdp):
        rates = {"auc": 1.0, "tpr": tpr, "fdp": fdp, "prognostic": None, "find": None}
        return {"method": method, "design": "LinVar", "seed": 0, "seconds": 1.0, **rates}

    runs = [run("default", 0.8, 0.0), run("ols", 1.0, 0.05), run("slope", 1.0, 0.5), run("squares", 0.8, 0.0)]
    text = peers.report(runs, {"ols": 12.0}, {"blp": "no module doubleml"}, "3 tables")
    assert peers.better(runs, ["LinVar"]) == ["- LinVar: OLS interactions 1.00, modifind 0.80"]
    assert "- LinVar: OLS interactions 1.00, modifind 0.80" in text
    assert "| OLS interactions | 1.00; 1.00 / 0.05 |" in text
    assert "Not run: DoubleML BLP, no module doubleml." in text
    assert "nowhere in these runs" in peers.report(runs[:1], {}, {}, "1 table")


def test_a_missing_package_is_named(peers):
    assert "no_such_package" in peers.why_missing("no_such_package")
    assert peers.why_missing("scipy") is None
