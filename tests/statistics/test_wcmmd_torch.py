"""The statistic by torch against numpy; the CPU stands in for a GPU, which takes the same way through the code."""

import pickle
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from conftest import quiet_fit, seed_of
from modifind import WCMMD, ModifierSelector
from modifind.nuisance.conditional import BaseSampler, Calibration
from modifind.nuisance.propensity.scores import EarlyStoppedMLP
from modifind.statistics import wcmmd_torch

torch = pytest.importorskip("torch")
DeviceWCMMD = wcmmd_torch.DeviceWCMMD
WEIGHTINGS = ("hajek", "horvitz_thompson")
DEVICES = [
    "torch:cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")),
]
KINDS = {  # number of levels, and how a resampled column is drawn
    "continuous": (0, lambda rng, n: rng.normal(size=n)),
    "skewed": (0, lambda rng, n: rng.exponential(size=n)),
    "atoms": (0, lambda rng, n: np.where(rng.random(n) < 0.6, 0.0, rng.exponential(size=n))),
    "heavy tails": (0, lambda rng, n: rng.standard_cauchy(n)),
    "two levels": (2, lambda rng, n: rng.integers(0, 2, n).astype(float)),
    "rare levels": (40, lambda rng, n: np.minimum(rng.geometric(0.3, n) - 1, 39).astype(float)),
}


def problem(n=300, seed=0, **settings):
    rng = np.random.default_rng(seed)
    treatment = rng.integers(0, 2, n)
    y = rng.normal(size=n) + treatment * rng.normal(size=n)
    return WCMMD(**settings).for_rows(y, treatment, seed_of(1)), rng


def both_ways(prepared, rng, kind, device, k=7):
    """Importances by numpy and by torch, and which of them torch left to numpy."""
    n_levels, draw = KINDS[kind]
    n = prepared.treatment.size
    columns, scores = np.stack([draw(rng, n) for _ in range(k)]), rng.uniform(0.1, 0.9, (k, n))
    own = {"bandwidth": 1.0, "n_levels": n_levels}
    expected = [prepared.importance(x, e, **own) for x, e in zip(columns, scores, strict=True)]
    at = iter(range(k))  # blocks come in order

    def followed(x):
        return torch.from_numpy(np.stack([scores[next(at)] for _ in x])).to(x.device)

    return (np.array(expected), *DeviceWCMMD(prepared, device, **own).importances(columns, followed))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("estimator", ["spectral", "rff", "exact"])
def test_torch_gives_the_numbers_of_numpy(estimator, weighting, kind, device):
    expected, found, left = both_ways(*problem(estimator=estimator, weighting=weighting), kind, device)
    np.testing.assert_allclose(found[~left], expected[~left], rtol=1e-8)
    assert left.any() == (kind == "heavy tails")


@pytest.mark.parametrize("kind", ["continuous", "rare levels"])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("cells", [1, 70_000, 200_000])
def test_blocks_of_rows_and_of_resamples_change_nothing(kind, weighting, cells, monkeypatch):
    monkeypatch.setattr(wcmmd_torch, "DEVICE_CELLS", cells)
    n = 60 if cells == 1 else 300
    expected, found, left = both_ways(*problem(n, weighting=weighting), kind, "torch:cpu", k=3)
    assert not left.any()
    np.testing.assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.parametrize("kind", ["continuous", "rare levels"])
@pytest.mark.parametrize("piece", [30, 64])
def test_long_sums_may_be_cut_into_pieces(kind, piece, monkeypatch):
    monkeypatch.setattr(wcmmd_torch, "PIECE", piece)
    expected, found, _ = both_ways(*problem(), kind, "torch:cpu")
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_rows_far_from_an_arm_are_left_to_numpy():
    prepared, rng = problem()
    columns = rng.normal(size=(2, 300))
    columns[1, 5] = 12.0
    wcmmd = DeviceWCMMD(prepared, "torch:cpu", bandwidth=1.0)
    _, left = wcmmd.importances(columns, lambda x: torch.full_like(x, 0.5))
    assert left.tolist() == [False, True]


def test_categories_without_a_comparison_have_no_variance():
    prepared, _ = problem()
    codes = prepared.treatment[None].astype(float)
    wcmmd = DeviceWCMMD(prepared, "torch:cpu", bandwidth=1.0, n_levels=2)
    found, left = wcmmd.importances(codes, lambda x: torch.full_like(x, 0.5))
    assert (found[0], left[0]) == (0.0, False)
    assert prepared.importance(codes[0], np.full(300, 0.5), bandwidth=1.0, n_levels=2) == 0.0


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    n = 240
    frame = pd.DataFrame(
        {
            "number": rng.normal(size=n),
            "group": np.array(list("abc"))[rng.integers(0, 3, n)],
            "tails": rng.standard_cauchy(n),
        }
    )
    treatment = rng.integers(0, 2, n)
    return frame, treatment * frame["number"].to_numpy() + rng.normal(size=n), treatment


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("weights", ["reevaluated", "fixed"])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("propensity", ["logistic", "network", "known"])
def test_p_values_of_a_whole_run_are_the_same(table, propensity, weighting, weights, device):
    models = {"logistic": LogisticRegression(), "network": EarlyStoppedMLP(epochs=3), "known": 0.5}
    settings = {"sampler": "gaussian" if weights == "reevaluated" else "marginal", "propensity": models[propensity]}
    runs = [
        quiet_fit(
            *table,
            statistic=WCMMD(weighting=weighting, resample_weights=weights, device=place),
            n_resamples=39,
            random_state=0,
            **settings,
        ).result_
        for place in ("cpu", device)
    ]
    pd.testing.assert_frame_equal(runs[0].table, runs[1].table, rtol=1e-8)
    pd.testing.assert_frame_equal(runs[0].diagnostics, runs[1].diagnostics, rtol=1e-8)


@dataclass(frozen=True)
class Repeat:
    """The distribution that gives back the data."""

    column: np.ndarray

    def draw(self, rng, n_draws):
        return np.tile(self.column, (n_draws, 1))


@dataclass(frozen=True)
class RepeatRule:
    feature: int
    calibration: Calibration

    def conditional(self, table, treatment, parts):
        return Repeat(table.values[:, self.feature])


class RepeatSampler(BaseSampler):
    name = "repeat"

    def rule(self, feature):
        return RepeatRule(feature, Calibration(self.name, np.nan, np.nan, 0.0))


def test_repeats_of_the_data_tie_with_it(table):
    settings = {"statistic": WCMMD(device="torch:cpu"), "sampler": RepeatSampler(), "n_resamples": 40}
    assert (quiet_fit(*table, **settings, random_state=0).result_.table["p_value"] == 1.0).all()


class Travelling(ModifierSelector):
    """Has its plan pickled and unpickled, as for a worker process."""

    def _run(self, plan, seeds):
        return super()._run(pickle.loads(pickle.dumps(plan)), seeds)


def test_workers_can_open_the_device_for_themselves(table):
    frame, y, treatment = table
    settings = {"statistic": "wcmmd", "sampler": "gaussian", "n_resamples": 59, "random_state": 0}
    here = ModifierSelector(**settings).fit(frame, y, treatment=treatment)
    there = Travelling(**settings, device="torch:cpu").fit(frame, y, treatment=treatment)
    pd.testing.assert_frame_equal(here.result_.table, there.result_.table, rtol=1e-8)


@pytest.mark.parametrize("device", ["abacus", "cuda:", "cpu:0", "torch:cuda", 1, None])
def test_unknown_devices_are_refused(device):
    with pytest.raises(ValueError, match="device must be 'cpu', 'cuda' or"):
        problem(device=device)


def test_a_device_that_torch_does_not_find_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no CUDA device"):
        problem(device="cuda:1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"torch finds 1 CUDA device$"):
        problem(device="cuda:1")


def test_published_sums_stay_with_numpy():
    with pytest.raises(ValueError, match="accelerate=False"):
        problem(estimator="exact", accelerate=False, device="torch:cpu")


def test_device_is_a_parameter_like_any_other():
    assert clone(WCMMD(device="cuda")).get_params()["device"] == "cuda"
