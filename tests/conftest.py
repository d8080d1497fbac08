"""Shared helpers: one BLAS thread, small simulated tables, an oracle sampler and tolerances."""

from __future__ import annotations

import os
import random
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from modifind import ModifierSelector
from modifind.datasets import make_modifiers
from modifind.nuisance.conditional import BaseSampler, Calibration, ConditionalGrid
from streams import SMALL, fit

ROOT = Path(__file__).resolve().parents[1]
NEEDS_SIGNALS = pytest.mark.skipif(os.name != "posix", reason="needs the signals of POSIX")
ALL_STUDIES = os.environ.get("MODIFIND_STUDIES") == "all"

# Properties are tested, and not the clock: an example that another process interrupts for 0.2 s is no failure.
hypothesis_settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("patient")

# A finder, because scipy itself stumbles over sys.modules["torch"] = None.
BLOCK_TORCH = """
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError(name)
sys.meta_path.insert(0, Block())
"""


@pytest.fixture(autouse=True, scope="session")
def one_blas_thread():
    """Here and in processes that tests start."""
    with threadpool_limits(limits=1), patch.dict(os.environ, {"OMP_NUM_THREADS": "1"}):
        yield


def seed_of(number):
    return np.random.SeedSequence(number)


def ar_covariance(d, rho):
    return rho ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))


def ar_normal(rng, n, d, rho):
    return rng.standard_normal((n, d)) @ np.linalg.cholesky(ar_covariance(d, rho)).T


def confounded_table(rng, n, d, *, rho=0.5, shift=0.2):
    """X | A ~ N(+-shift, AR(rho)), the design that `OracleSampler` knows the distribution of."""
    treatment = rng.integers(0, 2, size=n)
    X = ar_normal(rng, n, d, rho) + np.where(treatment == 1, shift, -shift)[:, None]
    return X, treatment


def four_sd(share, n):
    """Four standard deviations of the share of n independent Bernoulli(share) events."""
    return 4.0 * np.sqrt(share * (1.0 - share) / n)


def runs(full, small):
    """How many data sets a study has: a few in `make test`, the full number with MODIFIND_STUDIES=all."""
    return full if ALL_STUDIES else small


def quiet_fit(X, y, treatment, *, features=None, **settings):
    """Fit a selector whose few resamples are meant; explanations, which take as long again, have to be asked for."""
    settings = {"explain": False} | settings
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="n_resamples=")
        warnings.filterwarnings("ignore", message=".*propensity scores were outside")
        return ModifierSelector(**settings).fit(X, y, treatment=treatment, features=features)


def raw_p_values(X, y, treatment, **settings):
    return quiet_fit(X, y, treatment, **settings).result_.table["p_value"].to_numpy()


def conditional_grid(sampler, feature, **settings):
    """The distribution that a sampler fits to a feature, as weighted points per row."""
    table = sampler.table_
    levels = table.n_levels(feature)
    return ConditionalGrid.of(sampler.conditional(feature), table.n_rows, n_levels=levels, **settings)


@dataclass(frozen=True)
class OracleConditional:
    mean: np.ndarray
    scale: float
    calibration: Calibration

    def draw(self, rng, n_draws):
        return self.mean + self.scale * rng.standard_normal((n_draws, self.mean.size))


@dataclass(frozen=True)
class OracleRule:
    rho: float
    shift: float
    feature: int
    calibration: Calibration

    def conditional(self, table, treatment, parts):
        d, feature = table.n_features, self.feature
        precision = np.linalg.inv(ar_covariance(d, self.rho))
        rest = np.delete(np.arange(d), feature)
        centre = np.where(treatment == 1, self.shift, -self.shift)
        slopes = -precision[feature, rest] / precision[feature, feature]
        mean = centre + (table.values[:, rest] - centre[:, None]) @ slopes
        return OracleConditional(mean, float(precision[feature, feature] ** -0.5), self.calibration)


class OracleSampler(BaseSampler):
    """The true distribution of X_m given the rest and A when X | A ~ N(+-shift, AR(rho))."""

    name = "oracle"

    def __init__(self, *, condition_on_treatment=True, rho=0.5, shift=0.2):
        super().__init__(condition_on_treatment=condition_on_treatment)
        self.rho = rho
        self.shift = shift

    def rule(self, feature):
        return OracleRule(self.rho, self.shift, feature, Calibration(self.name, np.nan, np.nan, np.nan))


class FrozenLogit(LogisticRegression):
    """A logistic propensity that learns nothing: fixed coefficients on the standardised features."""

    def fit(self, X, y):
        self.classes_ = np.array([0, 1])
        self.coef_ = np.full((1, X.shape[1]), 0.3)
        self.intercept_ = np.zeros(1)
        return self


def logistic_treatment(rng, index):
    """Treatment with log-odds `index`, and its propensity."""
    propensity = expit(np.asarray(index))
    return (rng.random(propensity.size) < propensity).astype(np.int64), propensity


# Tables of streamed fits.


@pytest.fixture(scope="session")
def data():
    return make_modifiers("NonlinMean", n_samples=4000, n_features=6, random_state=0)


@pytest.fixture(scope="session")
def streamed(data):
    return fit(data.X, data.y, data.treatment, features=list(data.X))


@pytest.fixture(scope="session")
def few():
    """A small table of many kinds of columns: few rows, quick fits."""
    rng = np.random.default_rng(1)
    n = 900
    X, treatment = rng.normal(size=(n, 2)), rng.integers(0, 2, n)
    frame = pd.DataFrame({"age": X[:, 0], "dose": X[:, 1]})
    frame["site"] = np.array(["north", "south", "west"])[rng.integers(0, 3, size=n)]
    frame["stage"] = pd.Categorical(np.array(["mild", "bad"])[rng.integers(0, 2, size=n)], ["mild", "bad", "worst"])
    frame["smoker"] = rng.random(n) < 0.4
    frame["visits"] = rng.integers(0, 5, size=n)
    y = 2 * treatment * (X[:, 0] + (frame["site"] == "west")) + X[:, 1] + rng.normal(size=n)
    return SimpleNamespace(X=frame, y=y.to_numpy(), treatment=treatment)


@pytest.fixture(scope="session")
def base(few):
    return fit(few.X, few.y, few.treatment, **SMALL)


@pytest.fixture(scope="session")
def two(few):
    """Two columns of the same table: quicker still."""
    return SimpleNamespace(X=few.X[["age", "dose"]], y=few.y, treatment=few.treatment)


def pytest_configure(config):
    config.addinivalue_line("markers", "study: a slow study, of which `make test` runs a sixth of the cases")


def pytest_collection_modifyitems(config, items):
    """Of every study a sixth of its cases, at least one, by a seed; all of them with MODIFIND_STUDIES=all."""
    if ALL_STUDIES or any("[" in argument for argument in config.args):
        return
    studies: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("study"):
            studies.setdefault((str(item.path), getattr(item, "originalname", item.name)), []).append(item)
    kept = {id(item) for own in studies.values() for item in random.Random(0).sample(own, -(-len(own) // 6))}
    left = [item for own in studies.values() for item in own if id(item) not in kept]
    if left:
        config.hook.pytest_deselected(items=left)
        gone = {id(item) for item in left}
        items[:] = [item for item in items if id(item) not in gone]
