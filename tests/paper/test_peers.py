"""The parts of benchmarks/peers.py that are our own; the packages it compares with are not needed here."""

import importlib

import numpy as np
import pandas as pd
import pytest

from conftest import ROOT, ar_normal, four_sd, logistic_treatment


@pytest.fixture(scope="module")
def peers():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("peers")


@pytest.fixture
def table(peers):
    """Six features: X1 and X2 modify, X6 is prognostic."""
    X = pd.DataFrame(np.zeros((4, 6)), columns=[f"X{j}" for j in range(1, 7)])
    return peers.designs.Table(X, np.array([0, 1, 0, 1]), np.zeros(4), ["X1", "X2"], ["X6"])


def test_slope_test_is_least_squares_with_a_sandwich_variance(peers):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)) + 2.0
    outcome = 5.0 + x[:, 0] + np.exp(0.5 * x[:, 1] - 1) * rng.normal(size=60)
    t, p = peers.slope_test(x, outcome)
    for j in range(3):
        design = np.column_stack([np.ones(60), x[:, j]])
        bread = np.linalg.inv(design.T @ design)
        coefficient = bread @ design.T @ outcome
        weighted = design * (outcome - design @ coefficient)[:, None]
        variance = 60 / 58 * bread @ weighted.T @ weighted @ bread
        assert t[j] == pytest.approx(coefficient[1] / np.sqrt(variance[1, 1]))
    assert p[0] < 0.01
    assert np.all((p > 0) & (p <= 1))


def test_slope_test_holds_its_level_when_the_noise_grows_with_the_feature(peers):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 1000))
    p = np.array([peers.slope_test(x[:, [j]], np.abs(x[:, j]) * rng.normal(size=400))[1][0] for j in range(1000)])
    assert abs((p <= 0.05).mean() - 0.05) < four_sd(0.05, 1000)


def test_pseudo_outcomes_average_to_the_effect_and_follow_the_modifier(peers):
    rng = np.random.default_rng(2)
    x = ar_normal(rng, 600, 4, 0.2)
    a, _ = logistic_treatment(rng, 0.5 * x[:, 0])
    y = 3 * np.abs(x[:, 1]) + a * (1 + 2 * x[:, 2]) + rng.normal(size=600)
    outcome = peers.aipw_outcomes(x, y, a, seed=0)
    effect = 1 + 2 * x[:, 2]
    error = outcome - effect
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(600)
    t, p = peers.slope_test(x, outcome)
    assert np.argmax(np.abs(t)) == 2
    assert p[1] > 0.01  # prognostic only


def test_judge_counts_each_group_of_features_by_itself(peers, table):
    found = peers.Found(np.array([6.0, 1.5, 1.0, 2.0, 0.0, 3.0]), np.array([True, False, True, False, False, True]))
    # X1 beats the four others, X2 beats two of them: 6 of 8 pairs
    expected = {"auc": 0.75, "tpr": 0.5, "fpr": pytest.approx(1 / 3), "prognostic": 1.0}
    assert peers.judge(found, table) == expected


def test_judge_leaves_rates_out_without_p_values_or_prognostic_features(peers, table):
    only_score = peers.judge(peers.Found(np.arange(6.0), None), table)
    assert only_score == {"auc": 0.0, "tpr": None, "fpr": None, "prognostic": None}
    selected = peers.judge(peers.Found(np.arange(6.0), np.ones(6, dtype=bool)), table._replace(prognostic=[]))
    assert selected["fpr"] == 1.0
    assert selected["prognostic"] is None


def test_equal_p_values_are_ranked_by_statistic_and_untested_features_come_last(peers):
    score = peers.rank_by_p_value([0.001, 0.001, 0.5, np.nan, np.nan], [1.0, 2.0, 9.0, np.nan, np.nan])
    assert score.tolist() == [2.0, 3.0, 1.0, 0.0, 0.0]


def test_selection_is_benjamini_hochberg(peers):
    found = peers.from_p_values([4, 3, 2, 1], [0.01, 0.02, 0.04, 0.9])
    assert found.selected.tolist() == [True, True, False, False]


def test_a_run_reports_every_figure(peers, monkeypatch):
    monkeypatch.setattr(peers, "N_ROWS", 200)
    run = peers.one_run("slope", "LinMean + prognostic", seed=0)
    assert run["auc"] > 0.9
    assert {"tpr", "fpr", "prognostic", "seconds"} <= run.keys()


def test_a_missing_package_is_named(peers):
    assert "no_such_package" in peers.why_missing("no_such_package")
    assert peers.why_missing("scipy") is None
