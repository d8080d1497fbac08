import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from conftest import seed_of
from modifind import PropensityModel
from modifind.data.schema import read_features
from modifind.nuisance.propensity import fitted as propensity_torch
from modifind.nuisance.propensity.fitted import DeviceProfile, FixedScores, ScoreProfile
from modifind.nuisance.propensity.scores import EarlyStoppedMLP

torch = pytest.importorskip("torch")
MODELS = {
    "logistic": LogisticRegression(),
    "network": EarlyStoppedMLP((7, 5), epochs=3),
    "trees": HistGradientBoostingClassifier(max_iter=5),
    "known": 0.4,
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    groups = np.array(list("abc"))[rng.integers(0, 3, 200)]
    frame = pd.DataFrame({"x": rng.normal(size=200), "c": groups, "z": rng.normal(size=200)})
    return read_features(frame), (rng.random(200) < 0.3 + 0.4 * (frame["x"] > 0)).astype(np.int64).to_numpy()


@pytest.mark.parametrize("feature", [0, 1])
@pytest.mark.parametrize("cross_fit", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_scores_of_resampled_columns_are_those_of_numpy(name, cross_fit, feature, data):
    table, treatment = data
    fitted = PropensityModel(MODELS[name], cross_fit=cross_fit).fit(table, treatment, seed=seed_of(0))
    rng = np.random.default_rng(1)
    columns = rng.integers(0, 3, (4, 200)) if feature == 1 else 3 * rng.normal(size=(4, 200))
    columns = columns.astype(float)
    profile = fitted.profile(feature)
    found = DeviceProfile(fitted.profile(feature, "torch:cpu"), "torch:cpu")(torch.from_numpy(columns)).numpy()
    np.testing.assert_allclose(found, [profile(x) for x in columns], rtol=1e-10)


def test_networks_are_evaluated_in_blocks_of_rows(data, monkeypatch):
    table, treatment = data
    fitted = PropensityModel(MODELS["network"]).fit(table, treatment, seed=seed_of(0))
    monkeypatch.setattr(propensity_torch, "BLOCK_ROWS", 13)
    np.testing.assert_allclose(fitted.profile(0, "torch:cpu").table, fitted.profile(0).table, rtol=1e-10)


def test_constant_column_and_fixed_scores():
    profile = ScoreProfile((0.01, 0.99), np.empty(0), table=np.array([[0.3], [-9.0]]), grid=np.array([5.0]))
    x = torch.full((3, 2), 5.0, dtype=torch.float64)
    np.testing.assert_allclose(DeviceProfile(profile, "torch:cpu")(x).numpy(), np.tile(profile(x[0].numpy()), (3, 1)))
    assert FixedScores(np.array([0.2, 0.7]), "torch:cpu")(x).tolist() == [[0.2, 0.7]] * 3
