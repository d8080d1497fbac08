"""The conditional variational autoencoder: what it learns, its reproducibility and its independence from torch."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conftest import BLOCK_TORCH, ROOT
from modifind.data.features import FeatureTable
from modifind.data.schema import read_features
from modifind.nuisance.conditional.cvae import CVAESampler

SOURCES = ROOT / "src"
SLOPES, OFFSETS = np.array([0.0, 1.0, -1.0]), np.array([0.0, 0.3, 0.0])


def fitted(X: object, seed: int = 0, **settings: object) -> CVAESampler:
    table = X if isinstance(X, FeatureTable) else read_features(X)
    arms = np.random.default_rng(99).integers(0, 2, table.n_rows)
    return CVAESampler(**settings).fit(table, arms, np.random.SeedSequence(seed))


@pytest.fixture(scope="module")
def mixed() -> FeatureTable:
    """Two numbers and a category of three levels that depends on the first number."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2500, 2))
    odds = np.exp(np.outer(x[:, 0], SLOPES) + OFFSETS)
    shares = odds / odds.sum(axis=1, keepdims=True)
    codes = (rng.random((2500, 1)) > np.cumsum(shares, axis=1)[:, :-1]).sum(axis=1)
    return read_features(pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": np.array(["u", "v", "w"])[codes]}))


@pytest.fixture(scope="module")
def quick(mixed: FeatureTable) -> CVAESampler:
    return fitted(mixed, max_epochs=5, hidden=16)


def test_linear_mean_and_variance() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3000, 2))
    x[:, 0] = 0.8 * x[:, 1] + 0.6 * x[:, 0]
    sampler = fitted(10.0 + 5.0 * x)
    conditional = sampler.conditional(0)
    drawn = (conditional.draw(np.random.default_rng(0), 200) - 10.0) / 5.0
    # 200 draws of sd 0.6 put a Monte-Carlo error of 0.042 on each row's mean; the rest is the network's.
    error = drawn.mean(axis=0) - 0.8 * x[:, 1]
    assert np.sqrt(np.mean(error**2)) < 0.11
    # The overall residual sd within 5%, the rows' own within 10% on average.
    assert abs((drawn - 0.8 * x[:, 1]).std() - 0.6) < 0.03
    assert np.abs(drawn.std(axis=0) - 0.6).mean() < 0.06
    assert conditional.calibration.sampler == "cvae"
    assert conditional.calibration.pit_distance < 0.07  # 5% critical value of 600 held-out rows: 0.055
    assert abs(conditional.calibration.log_score_gain + np.log(0.6)) < 0.12  # mutual information, less what bins lose
    assert sampler.best_epoch_.min() >= 1
    assert np.isfinite(sampler.held_out_elbo_).all()


def test_bimodal_conditional() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1500, 2))
    x[:, 0] = 2.0 * rng.choice([-1.0, 1.0], 1500) + 0.5 * x[:, 1] + 0.3 * x[:, 0]
    drawn = fitted(x).conditional(0).draw(np.random.default_rng(0), 40) - 0.5 * x[:, 1]
    low, high = drawn[drawn < -1.0], drawn[drawn > 1.0]
    # Half the mass in each mode up to 0.08; a normal distribution of this variance would leave 0.31 within 0.8 of zero.
    assert abs(low.size - high.size) / drawn.size < 0.08
    assert np.mean(np.abs(drawn) < 0.8) < 0.13
    # Modes within 0.1 of +-2; their sd is 0.3, which normal latents joined by a bridge widen.
    assert abs(low.mean() + 2.0) < 0.1
    assert abs(high.mean() - 2.0) < 0.1
    assert low.std() < 0.5
    assert high.std() < 0.5


def test_categorical_conditional(mixed: FeatureTable) -> None:
    conditional = fitted(mixed).conditional(2)
    drawn = conditional.draw(np.random.default_rng(0), 400)
    assert set(np.unique(drawn)) == {0.0, 1.0, 2.0}
    odds = np.exp(np.outer(mixed.values[:, 0], SLOPES) + OFFSETS)
    truth = odds / odds.sum(axis=1, keepdims=True)
    estimate = np.stack([(drawn == code).mean(axis=0) for code in range(3)], axis=1)
    # Monte-Carlo error of 400 draws is 0.02; a constant distribution would be wrong by 0.17.
    assert np.abs(estimate - truth).mean() < 0.05
    assert conditional.calibration.log_score_gain > 0.1
    assert np.isnan(conditional.calibration.pit_distance)


@pytest.mark.parametrize("feature", [0, 2])
def test_draws_do_not_depend_on_blocks(quick: CVAESampler, feature: int) -> None:
    conditional = quick.conditional(feature)
    rng = np.random.default_rng(5)
    single = np.concatenate([conditional.draw(rng, 1) for _ in range(3)])
    together = conditional.draw(np.random.default_rng(5), 3)
    assert together.dtype == np.float64
    assert together.shape == (3, 2500)
    np.testing.assert_array_equal(single, together)


def test_same_seed_same_distribution(quick: CVAESampler, mixed: FeatureTable) -> None:
    again, other = fitted(mixed, max_epochs=5, hidden=16), fitted(mixed, seed=1, max_epochs=5, hidden=16)
    for feature in range(3):
        expected = quick.conditional(feature).draw(np.random.default_rng(0), 2)
        np.testing.assert_array_equal(again.conditional(feature).draw(np.random.default_rng(0), 2), expected)
        assert (
            again.conditional(feature).calibration.log_score_gain
            == quick.conditional(feature).calibration.log_score_gain
        )
    changed = other.conditional(0).draw(np.random.default_rng(0), 2)
    assert not np.allclose(changed, quick.conditional(0).draw(np.random.default_rng(0), 2))


def test_chunks_do_not_matter(quick: CVAESampler, mixed: FeatureTable) -> None:
    alone = fitted(mixed, max_epochs=5, hidden=16, chunk_features=1)
    # float32 rounding, grown over 40 steps of Adam.
    np.testing.assert_allclose(alone.held_out_elbo_, quick.held_out_elbo_, atol=1e-4)
    for feature in range(2):
        expected = quick.conditional(feature).draw(np.random.default_rng(0), 2)
        np.testing.assert_allclose(alone.conditional(feature).draw(np.random.default_rng(0), 2), expected, atol=1e-3)
    codes = [sampler.conditional(2).draw(np.random.default_rng(0), 2) for sampler in (alone, quick)]
    assert np.mean(codes[0] != codes[1]) < 1e-3


def test_own_column_is_not_an_input(quick: CVAESampler, mixed: FeatureTable) -> None:
    for feature, columns in enumerate(mixed.encoding):
        weights = quick.decoders_[feature]["decode_context"]
        assert not weights[columns].any()
        assert np.delete(weights, np.r_[columns], axis=0)[:-2].any(axis=1).all()


def test_constant_and_small_tables() -> None:
    x = np.random.default_rng(0).standard_normal((20, 3))
    x[:, 1] = 7.0
    sampler = fitted(read_features(x, discrete_features=[]), max_epochs=2, hidden=4, condition_on_treatment=False)
    np.testing.assert_array_equal(sampler.conditional(1).draw(np.random.default_rng(0), 2), 7.0)
    assert np.isfinite(sampler.conditional(0).draw(np.random.default_rng(0), 2)).all()


def python(code: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(SOURCES)!r})\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)


def test_distribution_draws_without_torch(quick: CVAESampler, tmp_path: Path) -> None:
    conditionals = [quick.conditional(0), quick.conditional(2)]
    (tmp_path / "distributions.pkl").write_bytes(pickle.dumps(conditionals))
    result = python(
        f"{BLOCK_TORCH}import pickle, numpy as np\n"
        f"distributions = pickle.load(open({str(tmp_path / 'distributions.pkl')!r}, 'rb'))\n"
        f"np.save({str(tmp_path / 'drawn.npy')!r}, [own.draw(np.random.default_rng(4), 2) for own in distributions])"
    )
    assert result.returncode == 0, result.stderr
    expected = [conditional.draw(np.random.default_rng(4), 2) for conditional in conditionals]
    np.testing.assert_allclose(np.load(tmp_path / "drawn.npy"), expected, atol=1e-5)


def test_import_does_not_load_torch() -> None:
    result = python("import modifind.nuisance.conditional.cvae\nassert 'torch' not in sys.modules")
    assert result.returncode == 0, result.stderr


def test_missing_torch_is_explained(mixed: FeatureTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r'pip install "modifind\[cvae\]"'):
        fitted(mixed)


def test_missing_cuda_is_explained(mixed: FeatureTable, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no CUDA device"):
        fitted(mixed, device="cuda")


def test_draws_grids_and_calibration_by_torch_are_those_of_numpy(mixed: FeatureTable, quick: CVAESampler) -> None:
    pytest.importorskip("torch")
    other = pickle.loads(pickle.dumps(quick)).set_params(device="torch:cpu")
    for feature in range(3):
        ours, theirs = quick.conditional(feature), other.conditional(feature)
        draws = [conditional.draw(np.random.default_rng(0), 3) for conditional in (ours, theirs)]
        # Single precision: a code changes where a uniform number lies within rounding of an edge.
        assert np.mean(np.abs(draws[0] - draws[1]) > 1e-4) < 1e-3
        rows = slice(0, 1500)
        for left, right in zip(ours.grid(rows), theirs.grid(rows), strict=True):
            np.testing.assert_allclose(left, right, atol=1e-4)
        assert theirs.calibration.log_score_gain == pytest.approx(ours.calibration.log_score_gain, abs=1e-5)


def test_training_on_a_gpu_gives_the_distributions_of_the_cpu(mixed: FeatureTable) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device")
    conditionals = [fitted(mixed, device=device, max_epochs=3, hidden=16).conditional(0) for device in ("cpu", "cuda")]
    draws = [conditional.draw(np.random.default_rng(0), 5) for conditional in conditionals]
    np.testing.assert_allclose(draws[0], draws[1], atol=1e-3)
