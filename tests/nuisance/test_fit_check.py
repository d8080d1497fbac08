import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from conftest import seed_of
from modifind import EffectLikelihood, ModifierSelector, PropensityModel
from modifind.data.clusters import Clusters
from modifind.data.levels import with_level_columns
from modifind.data.schema import read_features
from modifind.data.weights import Weights
from modifind.nuisance.propensity.fit_check import ScoreCheck
from modifind.nuisance.regression.screening import Leftover, Trace, bernstein_p, neighbours_mean

STRUCTURES = {
    "product of three": (lambda x: x[:, 0] * x[:, 1] * x[:, 2], (0, 1, 2)),
    "sides of three": (lambda x: np.sign(x[:, 0] * x[:, 1] * x[:, 2]), (0, 1, 2)),
    "checkerboard": (lambda x: np.sign(np.sin(np.pi * x[:, 0]) * np.sin(np.pi * x[:, 1])), (0, 1)),
    "sine of a product": (lambda x: np.sin(2 * x[:, 0] * x[:, 1]), (0, 1)),
    "step": (lambda x: np.sign(x[:, 4]), (4,)),
}


def flips(rng, n, share=0.5):
    return (rng.random(n) < share).astype(np.int64)


@pytest.mark.parametrize("name", STRUCTURES)
def test_leftover_structure_is_seen_and_its_columns_are_named(name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 6))
    structure, columns = STRUCTURES[name]
    residual = flips(rng, 2000, expit(structure(x))) - 0.5
    trace = Leftover(x).clearest(residual, np.full(2000, 0.25))
    assert trace.p_value < 1e-6
    assert trace.columns == columns


def test_coins_have_no_structure_left_whatever_the_columns():
    rng = np.random.default_rng(1)
    x = np.column_stack((rng.standard_t(1.5, (600, 4)), rng.random((600, 4)) < [0.5, 0.2, 0.05, 0.01], np.zeros(600)))
    p = [Leftover(x).clearest(flips(rng, 600) - 0.5, np.full(600, 0.25)).p_value for _ in range(60)]
    assert np.mean(np.array(p) <= 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)
    assert min(p) > 1e-4


def test_a_pattern_finer_than_any_grid_is_seen_by_rows_next_to_each_other():
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (2000, 6))
    residual = flips(rng, 2000, 0.5 + 0.3 * np.sign(np.sin(25 * x[:, 1]) * np.sin(25 * x[:, 4]))) - 0.5
    variance = np.full(2000, 0.25)
    assert Leftover(x).clearest(residual, variance).p_value > 0.001
    trace = Leftover(x).nearby(residual, variance)
    assert trace.p_value < 1e-4
    assert trace.columns == (1, 4)


def test_coins_of_rows_next_to_each_other_are_independent():
    rng = np.random.default_rng(4)
    x = np.column_stack((rng.normal(size=(400, 3)), rng.integers(0, 30, 400), rng.integers(0, 2, 400)))
    p = [Leftover(x).nearby(flips(rng, 400) - 0.5, np.full(400, 0.25)).p_value for _ in range(100)]
    assert np.mean(np.array(p) <= 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 100)
    assert min(p) > 1e-4
    assert Leftover(x[:, 4:]).nearby(flips(rng, 400) - 0.5, np.full(400, 0.25)) == Trace(1.0)


@pytest.mark.parametrize("n_columns", [1, 2])
def test_few_columns_have_no_grid_or_product_to_follow(n_columns):
    rng = np.random.default_rng(7)
    x = rng.normal(size=(400, n_columns))
    assert Leftover(x).clearest(flips(rng, 400) - 0.5, np.full(400, 0.25)).p_value > 0.01
    check = ScoreCheck.of(read_features(x), flips(rng, 400), np.full(400, 0.5), Weights.of(None, 400))
    assert check.beside_outcome(rng.normal(size=400), x[:, :1]).p_value > 0.01


def test_no_columns_leave_nothing():
    assert Leftover(np.zeros((50, 2))).clearest(np.ones(50), np.ones(50)) == Trace(1.0)


def test_bernsteins_bound_is_no_smaller_than_the_chance():
    rng = np.random.default_rng(2)
    sums = (flips(rng, (20_000, 40), 0.1) - 0.1).sum(axis=1)
    for limit in (3.0, 5.0, 8.0):
        assert bernstein_p(np.array(limit), np.array(40 * 0.09), 0.9) >= np.mean(np.abs(sums) >= limit)


def test_a_row_is_not_its_own_neighbour():
    x, target = np.arange(30.0)[:, None], np.zeros(30)
    target[7] = 1.0
    means = neighbours_mean(x, target)
    assert means[7] == 0.0
    assert means[6] > 0.0


def test_clearest_of_several_pays_for_their_number():
    assert Trace.clearest([Trace(0.01), Trace(0.02, (1,)), Trace(1.0)]) == Trace(0.03, (1,))


@pytest.mark.parametrize("n_levels", [60, 100, 600])
def test_coin_flips_fit_beside_a_category_of_many_levels(n_levels):
    p = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        frame = pd.DataFrame(rng.normal(size=(1000, 5)))
        frame["site"] = np.char.add("s", rng.integers(0, n_levels, 1000).astype(str))
        table = with_level_columns(read_features(frame.rename(columns=str)))
        p.append(PropensityModel().fit(table, flips(rng, 1000), seed=seed_of(seed)).misfit_p)
    assert min(p) > 1e-3


def test_weak_structure_is_seen_where_rows_are_many():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(50_000, 4))
    a = flips(rng, 50_000, expit(0.2 * x[:, 0] * x[:, 1] * x[:, 2]))
    check = ScoreCheck.of(read_features(x), a, np.full(50_000, 0.5), Weights.of(None, 50_000))
    assert check.trace().p_value < 1e-10


def test_weights_change_what_is_looked_at():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(2000, 3))
    a = flips(rng, 2000, np.where(x[:, 2] > 0, expit(2 * x[:, 0] * x[:, 1]), 0.5))
    fit = [np.where(x[:, 2] > 0, weight, 2 - weight) for weight in (0.001, 1.0)]
    p = [ScoreCheck.of(read_features(x), a, np.full(2000, 0.5), Weights.of(w, 2000)).trace().p_value for w in fit]
    assert p[0] > 1e-3 > p[1]


def test_residuals_of_the_outcome_lead_to_structure():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(1500, 10))
    s = np.sin(2 * x[:, 0] * x[:, 1])
    a = flips(rng, 1500, expit(s))
    check = ScoreCheck.of(read_features(x), a, np.full(1500, 0.5), Weights.of(None, 1500))
    trace = check.beside_outcome(2 * s + rng.normal(size=1500), np.zeros((1500, 1)))
    assert trace.p_value < 1e-6
    assert trace.columns == (0, 1)
    assert check.beside_outcome(rng.normal(size=1500), np.zeros((1500, 1))).p_value > 1e-3


def test_clusters_are_not_looked_at():
    rng = np.random.default_rng(6)
    x, villages = rng.normal(size=(400, 2)), np.repeat(np.arange(100), 4)
    clusters = Clusters(villages, of_rows=False)
    fitted = PropensityModel().fit(read_features(x), flips(rng, 400), seed=seed_of(0), clusters=clusters)
    assert np.isnan(fitted.misfit_p)
    assert fitted.checked_beside(x[:, 0], x) is fitted


def test_shared_structure_that_no_learner_follows_is_no_reliable_modifier():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 8))
    s = x[:, 0] * x[:, 1] * x[:, 2]
    a = flips(rng, 2000, expit(1.2 * s))
    y = 2 * s + a / 2 + rng.normal(size=2000)
    frame = pd.DataFrame(x, columns=[f"x{j + 1}" for j in range(8)])
    selector = ModifierSelector(EffectLikelihood(["linear", "splines"]), random_state=0, explain=False)
    result = selector.fit(frame, y, treatment=a).result_
    assert not (result.selected and result.ok)
    check = result.checks.set_index("name").loc["scores_fit"]
    assert not check["passed"]
    assert "x1, x2, x3" in check["text"]
