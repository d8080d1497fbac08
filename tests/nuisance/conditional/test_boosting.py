import numpy as np
import pandas as pd
import pytest

from conftest import seed_of
from modifind.data.schema import read_features
from modifind.nuisance.conditional import BoostingSampler
from modifind.nuisance.conditional import adaptive as splines


def conditional_of(frame, treatment, feature=0, **settings):
    return BoostingSampler(**settings).fit(read_features(frame), treatment, seed_of(0)).conditional(feature)


def test_nonlinear_mean_is_learned():
    rng = np.random.default_rng(0)
    n = 3000
    z, noise = rng.normal(size=(2, n))
    X = np.column_stack([np.sin(2 * z) + 0.3 * noise, z])
    draws = conditional_of(X, rng.integers(0, 2, size=n)).draw(np.random.default_rng(1), 100)
    truth = np.sin(2 * z)
    inside = np.abs(z) < 2
    error = np.sqrt(np.mean((draws.mean(axis=0) - truth)[inside] ** 2))
    # 40 rounds of 8 leaves at most: 8 * 40 * 0.12 effective parameters bound the estimation rms by
    # 0.3 sqrt(40/2250) = 0.04; drawing adds 0.03; steps of the trees as much again.
    assert error < 0.1
    assert np.sqrt(np.mean((draws - truth)[:, inside] ** 2)) == pytest.approx(0.3, abs=0.05)


def test_residuals_follow_a_spread_that_grows_with_the_mean():
    rng = np.random.default_rng(2)
    n = 3000
    z = rng.uniform(0, 3, size=n)
    X = np.column_stack([2 * z + (0.1 + 0.5 * z) * rng.normal(size=n), z])
    draws = conditional_of(X, rng.integers(0, 2, size=n)).draw(np.random.default_rng(3), 100)
    for low in (0.3, 1.4, 2.4):
        rows = (z > low) & (z < low + 0.3)
        spread = (draws[:, rows] - 2 * z[rows]).std()
        # Pools of 300 residuals: relative sd 1/sqrt(600) = 0.04; error of the mean and mixing over neighbours
        # about 0.1.
        assert spread == pytest.approx(0.1 + 0.5 * (low + 0.15), rel=0.25)


def test_residuals_are_not_shrunk_by_trees_that_follow_the_noise():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(400, 6))
    draws = conditional_of(X, rng.integers(0, 2, size=400)).draw(np.random.default_rng(5), 50)
    # The column is noise of sd 1: in-sample residuals of 40 rounds would have sd near 0.7. Sample sd has sd
    # 0.035; out-of-fold means add their own spread of about 0.35, so at most sqrt(1 + 2 * 0.12).
    assert 1 - 4 * 0.035 < draws.std() < 1.25


def test_atom_of_a_zero_inflated_column_is_kept_and_follows_the_other_features():
    rng = np.random.default_rng(6)
    n = 3000
    z = rng.normal(size=n)
    smokes = rng.random(n) < np.where(z > 0, 0.8, 0.2)
    X = np.column_stack([np.where(smokes, np.exp(rng.normal(size=n)), 0.0), z])
    draws = conditional_of(X, rng.integers(0, 2, size=n)).draw(np.random.default_rng(7), 50)
    assert ((draws == 0.0) | ((draws >= X[smokes, 0].min()) & (draws <= X[:, 0].max()))).all()
    # Share of zeros within each half: pools of 300 rows with shares near 0.2 and 0.8 give sd 0.023, the share of the
    # half's own rows 0.01; rows whose predicted mean falls on the wrong side blur it.
    assert (draws[:, z > 0.2] == 0).mean() == pytest.approx(0.2, abs=0.1)
    assert (draws[:, z < -0.2] == 0).mean() == pytest.approx(0.8, abs=0.1)


def test_category_probabilities_match_a_nonlinear_truth():
    rng = np.random.default_rng(8)
    n = 4000
    z = rng.normal(size=n)
    probability = np.where(np.abs(z) > 0.7, 0.85, 0.15)
    frame = pd.DataFrame({"c": np.where(rng.random(n) < probability, "b", "a"), "z": z})
    conditional = conditional_of(frame, rng.integers(0, 2, size=n))
    fitted = conditional.probabilities[:, 1]
    # sd of one outcome 0.36, about 40 effective parameters on 3000 rows: rms 0.041; twice that.
    assert np.sqrt(np.mean((fitted - probability) ** 2)) < 0.085
    draws = conditional.draw(np.random.default_rng(9), 100)
    assert np.mean((draws.mean(axis=0) - fitted) ** 2) < 0.25 / 100


@pytest.mark.parametrize("discrete", [False, True])
def test_draws_follow_the_arm_only_when_conditioned_on_treatment(discrete):
    rng = np.random.default_rng(10)
    n = 2000
    treatment = rng.integers(0, 2, size=n)
    if discrete:
        column, shift = np.where(rng.random(n) < np.where(treatment == 1, 0.75, 0.25), "b", "a"), 0.5
    else:
        column, shift = rng.normal(size=n) + 2.0 * treatment, 2.0
    frame = pd.DataFrame({"x": column, "z": rng.normal(size=n)})
    gaps = []
    for condition in (True, False):
        draws = conditional_of(frame, treatment, condition_on_treatment=condition).draw(np.random.default_rng(11), 20)
        gaps.append(draws[:, treatment == 1].mean() - draws[:, treatment == 0].mean())
    # Gap of two arms of 1000 rows: sd 0.045; shrinkage by (1 - 0.12)^40 = 0.006 of it; 4 sd.
    assert gaps[0] == pytest.approx(shift, abs=0.19)
    assert gaps[1] == pytest.approx(0.0, abs=0.1)


def test_right_distribution_passes_the_calibration_check():
    rng = np.random.default_rng(12)
    n = 1500
    z = rng.normal(size=n)
    calibration = conditional_of(
        np.column_stack([np.sin(2 * z) + 0.3 * rng.normal(size=n), z]), rng.integers(0, 2, size=n)
    ).calibration
    assert calibration.sampler == "boosting"
    assert calibration.pit_p_value > 0.01
    assert calibration.log_score_gain > 0.3


def test_window_never_leaves_a_small_table():
    X = np.random.default_rng(13).normal(size=(30, 3))
    draws = conditional_of(X, np.arange(30) % 2).draw(np.random.default_rng(14), 10)
    assert draws.shape == (10, 30)
    assert np.isfinite(draws).all()


def test_fewer_folds_with_many_rows_unless_told(monkeypatch):
    X, treatment = np.random.default_rng(15).normal(size=(200, 3)), np.arange(200) % 2
    four = conditional_of(X, treatment)
    assert np.array_equal(four.shift, conditional_of(X, treatment, n_folds=4).shift)
    monkeypatch.setattr(splines, "MANY_ROWS", 100)
    assert np.array_equal(conditional_of(X, treatment).shift, conditional_of(X, treatment, n_folds=2).shift)
    assert np.array_equal(four.shift, conditional_of(X, treatment, n_folds=4).shift)
