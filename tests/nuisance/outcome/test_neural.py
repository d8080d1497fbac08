"""The ensemble of networks: what it learns, what it leaves alone, and its independence from torch."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone

from conftest import BLOCK_TORCH, ROOT
from modifind.data.weights import Weights
from modifind.nuisance.outcome import neural
from modifind.nuisance.outcome.additive import AdditiveLearner
from modifind.nuisance.outcome.contract import predict_arms
from modifind.nuisance.outcome.neural import NeuralLearner, _arm_constants, _held_out
from modifind.nuisance.regression.penalised import student_log_density

SOURCES = ROOT / "src"


def interaction(n, seed, p=10):
    """Rows, arms, outcomes and the true location and scale of both arms."""
    rng = np.random.default_rng(seed)
    X, a = rng.normal(size=(n, p)), rng.integers(0, 2, n)
    shared = np.abs(X[:, 2])
    location = np.column_stack((shared, shared + 1.5 * X[:, 0] * X[:, 1]))
    scale = np.column_stack((np.ones(n), np.exp(0.5 * X[:, 3])))
    own = np.arange(n), a
    return X, a, location[own] + scale[own] * rng.normal(size=n), location, scale


def score(prediction, a, y):
    """Mean log-density of t(10) at the rows' own arms."""
    location, scale = (part[np.arange(y.size), a] for part in prediction)
    return float(np.mean(student_log_density((y - location) / scale, 10.0) - np.log(scale)))


def constants(a, y, n_test):
    location, log_scale = _arm_constants(y, a, Weights.alike(y.size))
    return np.tile(location, (n_test, 1)), np.tile(np.exp(log_scale), (n_test, 1))


@pytest.fixture(scope="module")
def small():
    X, a, y, _, _ = interaction(200, 0, p=5)
    return X, a, 100.0 + 20.0 * y


@pytest.fixture(scope="module")
def quick(small):
    return NeuralLearner(max_epochs=8).fit(*small)


@pytest.fixture(scope="module")
def learned():
    return NeuralLearner().fit(*interaction(2000, 1)[:3])


def test_shapes_and_attributes(quick, small):
    location, scale = predict_arms(quick, small[0][:7])
    assert location.shape == scale.shape == (7, 2)
    assert location.dtype == scale.dtype == np.float64
    assert (scale > 0).all()
    assert quick.best_epoch_.shape == quick.held_out_log_likelihood_.shape == (5,)
    location, scale = quick.predict(small[0][:0])
    assert location.shape == scale.shape == (0, 2)


def test_held_out_likelihood_is_in_units_of_the_outcome(quick, small):
    # Held-out rows of single networks against all rows of the ensemble: 40 rows each, whose log-densities have sd
    # near 0.8, so 0.13 per network and 0.06 for the mean of five; the ensemble is better by up to about 0.1.
    assert quick.held_out_log_likelihood_.mean() == pytest.approx(score(quick.predict(small[0]), *small[1:]), abs=0.35)


def test_two_fits_are_equal_and_seeds_matter(quick, small):
    again = clone(quick).fit(*small)
    for one, two in zip(quick.predict(small[0]), again.predict(small[0]), strict=True):
        np.testing.assert_array_equal(one, two)
    other = clone(quick).set_params(random_state=1).fit(*small)
    assert not np.array_equal(quick.predict(small[0])[0], other.predict(small[0])[0])


def test_global_state_of_torch_is_left_alone(small):
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        NeuralLearner(max_epochs=1).fit(*small)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(state, torch.get_rng_state())


def test_pickle(quick, small):
    copy = pickle.loads(pickle.dumps(quick))
    np.testing.assert_array_equal(copy.predict(small[0]), quick.predict(small[0]))


def test_predicts_without_torch(quick, small, tmp_path):
    (tmp_path / "learner.pkl").write_bytes(pickle.dumps((quick, small[0])))
    code = (
        f"import sys; sys.path.insert(0, {str(SOURCES)!r})\n{BLOCK_TORCH}import pickle, numpy as np\n"
        f"learner, X = pickle.load(open({str(tmp_path / 'learner.pkl')!r}, 'rb'))\n"
        f"np.save({str(tmp_path / 'out.npy')!r}, learner.predict(X))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), quick.predict(small[0]), rtol=1e-5)


def test_missing_torch_is_explained(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r'pip install "modifind\[cvae\]"'):
        NeuralLearner().fit(*small)


def test_missing_cuda_is_explained(small, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no CUDA device"):
        NeuralLearner(device="cuda").fit(*small)


def test_prediction_agrees_with_the_likelihood_that_was_trained(small):
    """The forward passes of torch and numpy are written separately: one member's held-out figure must agree."""
    X, a, y = small
    learner = NeuralLearner(members=1, max_epochs=8).fit(X, a, y)
    held, _ = _held_out(a, 1, 0.2, np.random.default_rng(0))
    expected = score(learner.predict(X[held[0]]), a[held[0]], y[held[0]])
    assert learner.held_out_log_likelihood_[0] == pytest.approx(expected, abs=1e-4)


def test_rows_do_not_depend_on_their_block(quick):
    X = np.random.default_rng(3).normal(size=(9000, 5))
    rows = [0, 8191, 8192, 8999]
    for all_rows, some in zip(quick.predict(X), quick.predict(X[rows]), strict=True):
        np.testing.assert_allclose(all_rows[rows], some, rtol=1e-5)


def test_along_is_predict_with_other_values(learned):
    X = interaction(30, 4)[0]
    points = np.random.default_rng(5).normal(size=(30, 6, 2))
    location, scale = learned.along(X, slice(1, 3), points)
    assert location.shape == scale.shape == (30, 6, 2)
    for g in range(6):
        moved = X.copy()
        moved[:, 1:3] = points[:, g]
        expected = learned.predict(moved)
        np.testing.assert_allclose(location[:, g], expected[0], atol=1e-4)
        np.testing.assert_allclose(scale[:, g], expected[1], rtol=1e-4)


def test_held_out_rows_cover_the_data_once_with_both_arms():
    a = np.repeat([0, 1], [70, 30])
    held, training = _held_out(a, 5, 0.2, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(held.ravel()), np.arange(100))
    np.testing.assert_array_equal(np.sort(np.hstack((held, training)), axis=1), np.tile(np.arange(100), (5, 1)))
    assert (np.abs(a[held].sum(axis=1) - 6) <= 1).all()


def test_learns_the_interaction_and_the_scale(learned):
    X, _, _, location, _ = interaction(4000, 6)
    fitted_location, fitted_scale = learned.predict(X)
    effect, fitted_effect = location[:, 1] - location[:, 0], fitted_location[:, 1] - fitted_location[:, 0]
    # The effect's sd is 1.5. Some 30 parameters for it on 1000 rows per arm, of sd 1 and 1.13, leave an rms error of
    # sqrt(30 * 2.3 / 1000) = 0.26; bends cut short at the edges of a normal cloud as much again.
    assert np.sqrt(np.mean((effect - fitted_effect) ** 2)) < 0.55
    assert np.corrcoef(effect, fitted_effect)[0, 1] > 0.93
    # The log-scale of arm 1 has slope 0.5; its standard error on 800 rows is sqrt(0.5 / 800) = 0.025, and weights are
    # shrunk, and what the location misses adds scale that is unrelated.
    assert np.polyfit(X[:, 3], np.log(fitted_scale[:, 1]), 1)[0] == pytest.approx(0.5, abs=0.15)
    assert np.polyfit(X[:, 3], np.log(fitted_scale[:, 0]), 1)[0] == pytest.approx(0.0, abs=0.1)
    # A t(10) scale is that of the normal distribution times 0.93.
    assert np.median(fitted_scale[:, 0]) == pytest.approx(0.93, rel=0.15)


def test_beats_a_linear_model_on_other_rows(learned):
    X, a, y, location, scale = interaction(4000, 6)
    linear = AdditiveLearner(n_knots=0, products=False).fit(*interaction(2000, 1)[:3])
    reached = score(learned.predict(X), a, y)
    # The truth is about 0.4 nats ahead of a linear model; the standard error of a mean of 4000 differences is 0.01.
    assert reached > score(linear.predict(X), a, y) + 0.25
    assert reached > score((location, 0.93 * scale), a, y) - 0.12


def test_learns_a_line():
    rng = np.random.default_rng(7)
    X, a = rng.normal(size=(1000, 10)), rng.integers(0, 2, 1000)
    y = 2.0 * X[:, 0] - X[:, 1] + a * (1.0 + X[:, 2]) + rng.normal(size=1000)
    test = rng.normal(size=(2000, 10))
    truth = (2.0 * test[:, 0] - test[:, 1])[:, None] + np.outer(1.0 + test[:, 2], [0.0, 1.0])
    # 22 coefficients on 800 rows give rms 0.17; shrinkage takes some of each slope.
    assert np.sqrt(np.mean((NeuralLearner().fit(X, a, y).predict(test)[0] - truth) ** 2)) < 0.3


@pytest.mark.parametrize(("n", "p"), [(2000, 10), (800, 30), (200, 10)])
def test_finds_nothing_in_noise(n, p):
    rng = np.random.default_rng(0)
    X, a, y = rng.normal(size=(n, p)), rng.integers(0, 2, n), rng.normal(size=n)
    test = rng.normal(size=(4000, p)), rng.integers(0, 2, 4000), rng.normal(size=4000)
    learner = NeuralLearner().fit(X, a, y)
    assert score(learner.predict(test[0]), *test[1:]) > score(constants(a, y, 4000), *test[1:]) - 0.03


def test_heavy_tails_give_sane_predictions():
    rng = np.random.default_rng(8)
    X, a = rng.normal(size=(1000, 5)), rng.integers(0, 2, 1000)
    y = X[:, 0] + a * X[:, 1] + rng.standard_t(1.5, size=1000)
    y[0] = 1e30
    test = rng.normal(size=(1000, 5))
    location, scale = predict_arms(NeuralLearner().fit(X, a, y), test)
    # The noise has interquartile range 1.97; t(10) fits it with scales near 2.3. Errors of a slope are below
    # 2.3 * sqrt(1.2 / 400) = 0.13, for 12 coefficients an rms of 0.45.
    assert np.sqrt(np.mean((location[:, 0] - test[:, 0]) ** 2)) < 0.7
    assert np.corrcoef(location[:, 1] - location[:, 0], test[:, 1])[0, 1] > 0.6
    assert ((scale > 0.5) & (scale < 10.0)).all()


def test_constant_column_changes_nothing_wherever_it_lies(small):
    X, a, y = small
    fits = [
        NeuralLearner(max_epochs=3).fit(np.column_stack((X, np.full(200, value))), a, y)
        for value in (0.0, 1.0, 2.0**20)
    ]
    with_column = [fit.predict(np.column_stack((X, fit.column_center_[-1] * np.ones(200)))) for fit in fits]
    for other in with_column[1:]:
        np.testing.assert_allclose(other, with_column[0], rtol=1e-6)


def test_outcome_constant_in_an_arm():
    rng = np.random.default_rng(9)
    X, a = rng.normal(size=(400, 3)), rng.integers(0, 2, 400)
    y = np.where(a == 1, 5.0, 3.0 + X[:, 0] + 0.5 * rng.normal(size=400))
    location, scale = predict_arms(NeuralLearner().fit(X, a, y), X)
    np.testing.assert_allclose(location[:, 1], 5.0)
    assert scale[:, 1].max() < 0.01
    # The other arm must not suffer: 4 coefficients on 160 rows of sd 0.5 give 0.08; slopes are shrunk.
    assert np.sqrt(np.mean((location[:, 0] - 3.0 - X[:, 0]) ** 2)) < 0.25


def test_arm_with_little_noise_does_not_drown_the_other():
    rng = np.random.default_rng(9)
    X, a = rng.normal(size=(400, 3)), rng.integers(0, 2, 400)
    y = np.where(a == 1, 5.0 + 0.02 * rng.normal(size=400), 3.0 + X[:, 0] + 0.5 * rng.normal(size=400))
    location, scale = predict_arms(NeuralLearner().fit(X, a, y), X)
    # As above for arm 0. In arm 1 a scale on 160 rows has relative error 0.06, and what arm 0 leaves behind adds to it.
    assert np.sqrt(np.mean((location[:, 0] - 3.0 - X[:, 0]) ** 2)) < 0.3
    assert np.sqrt(np.mean((location[:, 1] - 5.0) ** 2)) < 0.02
    assert np.median(scale[:, 1]) == pytest.approx(0.93 * 0.02, rel=0.4)


def test_constant_outcome():
    X = np.random.default_rng(10).normal(size=(40, 2))
    location, scale = predict_arms(NeuralLearner().fit(X, np.arange(40) % 2, np.full(40, 7.0)), X)
    np.testing.assert_allclose(location, 7.0)
    assert scale.max() < 0.01


def test_thirty_rows():
    rng = np.random.default_rng(11)
    X, a = rng.normal(size=(30, 8)), np.arange(30) % 3 // 2
    y = rng.normal(size=30)
    location, scale = predict_arms(NeuralLearner().fit(X, a, y), rng.normal(size=(500, 8)))
    assert np.abs(location).max() < 5.0
    assert ((scale > 0.1) & (scale < 10.0)).all()


def test_large_data_are_sampled_by_the_seed(small):
    fits = [NeuralLearner(max_epochs=1, max_rows=100, random_state=s).fit(*small) for s in (0, 0, 1)]
    centers = [fit.column_center_ for fit in fits]
    np.testing.assert_array_equal(centers[0], centers[1])
    assert not np.array_equal(centers[0], centers[2])
    assert not np.array_equal(centers[0], small[0].mean(axis=0))


def test_inputs_are_not_changed(small):
    X, a, y = (part.copy() for part in small)
    learner = NeuralLearner(max_epochs=1).fit(X, a, y)
    learner.predict(X)
    for before, after in zip(small, (X, a, y), strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_fit_takes_few_steps(monkeypatch):
    X, a, y, _, _ = interaction(800, 12, p=30)
    steps, objective = [], neural._Ensemble.objective

    def counted(self, theta, *batch):
        steps.append(theta.shape[0])
        return objective(self, theta, *batch)

    monkeypatch.setattr(neural._Ensemble, "objective", counted)
    learner = NeuralLearner().fit(X, a, y)
    # Networks take a step together, about 1 ms; an epoch has 7 at most, and there are 100 at most.
    assert steps[0] == learner.members
    assert len(steps) <= 7 * learner.max_epochs == 700
