"""Data that need no download: simulations of the paper's designs, and a simulated trial."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.utils import Bunch

from modifind._typing import Array

KINDS = ("LinMean", "NonlinMean", "LinVar", "NonlinVar", "LinCovar", "NonlinCovar")
N_MODIFIERS = 5
ARM_MEAN = 0.2
NEIGHBOUR_CORRELATION = 0.2


def _linear(x: Array) -> Array:
    return x[:, :N_MODIFIERS] @ np.array([4.0, 2.0, 1.0, 2.0, 4.0])


def _nonlinear(x: Array) -> Array:
    first = x[:, :N_MODIFIERS]
    return ((first - 0.5) ** 3).sum(axis=1) + 3.0 * first.sum(axis=1) - 6.0


def make_modifiers(
    kind: str = "LinMean", n_samples: int = 1000, n_features: int = 30, random_state: Any = None
) -> Bunch:
    r"""Simulate one of the paper's data sets.

    A ~ Bernoulli(1/2), X | A ~ N(-0.2, S) or N(+0.2, S) with ``S_ij = 0.2^|i-j|``. With ``f = 4 X1 + 2 X2 + X3 + 2 X4
    + 4 X5``, ``g = sum (X_j - 0.5)^3 + 3 sum X_j - 6`` and ``h(v) = max(v, 1)``:

    ============  =======================================================================
    LinMean       Y0 ~ N(-f, 1), Y1 ~ N(f, 1); NonlinMean with g
    LinVar        Y0 ~ N(-5, 1), Y1 ~ N(0, h(f)^2); NonlinVar with g
    LinCovar      means -5 and 0, variances 1, correlation 1 - 1/h(f); NonlinCovar with g
    ============  =======================================================================

    Parameters
    ----------
    kind : str, default="LinMean"
        LinMean, NonlinMean, LinVar, NonlinVar, LinCovar or NonlinCovar, in any case.
    n_samples : int, default=1000
        Number of rows.
    n_features : int, default=30
        Number of features, at least 5. The first five are the modifiers.
    random_state : int or Generator, optional
        Seed.

    Returns
    -------
    Bunch
        `X` (DataFrame with columns X1, X2, ...), `treatment`, `y`, `modifiers` (names of the true ones; in the Covar
        kinds they move only the correlation of Y0 and Y1, which no data show), `y0`, `y1` and `propensity`, the true
        P(A=1|X).

    Examples
    --------
    >>> data = make_modifiers("LinVar", n_samples=200, random_state=0)
    >>> data.X.shape, data.modifiers
    ((200, 30), ['X1', 'X2', 'X3', 'X4', 'X5'])
    """
    by_lower = {name.lower(): name for name in KINDS}
    if not isinstance(kind, str) or kind.lower() not in by_lower:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    kind = by_lower[kind.lower()]
    if n_features < N_MODIFIERS:
        raise ValueError(f"n_features must be at least {N_MODIFIERS}, not {n_features}")
    if n_samples < 2:
        raise ValueError(f"n_samples must be at least 2, not {n_samples}")
    rng = np.random.default_rng(random_state)
    covariance = NEIGHBOUR_CORRELATION ** np.abs(np.subtract.outer(np.arange(n_features), np.arange(n_features)))
    treatment = rng.integers(0, 2, size=n_samples)
    shift = np.where(treatment == 1, ARM_MEAN, -ARM_MEAN)[:, None]
    x = shift + rng.standard_normal((n_samples, n_features)) @ np.linalg.cholesky(covariance).T
    noise = rng.standard_normal((2, n_samples))
    score = _nonlinear(x) if kind.startswith("Nonlin") else _linear(x)
    scale = np.maximum(score, 1.0)
    if kind.endswith("Mean"):
        y0, y1 = -score + noise[0], score + noise[1]
    elif kind.endswith("Covar"):
        correlation = 1.0 - 1.0 / scale
        y0 = -5.0 + noise[0]
        y1 = correlation * noise[0] + np.sqrt(1.0 - correlation**2) * noise[1]
    else:
        y0, y1 = -5.0 + noise[0], scale * noise[1]
    names = [f"X{j}" for j in range(1, n_features + 1)]
    # log of the density ratio of the two Gaussians, whose means are opposite
    log_odds = 2.0 * x @ np.linalg.solve(covariance, np.full(n_features, ARM_MEAN))
    return Bunch(
        X=pd.DataFrame(x, columns=names),
        treatment=treatment,
        y=np.where(treatment == 1, y1, y0),
        modifiers=names[:N_MODIFIERS],
        y0=y0,
        y1=y1,
        propensity=expit(log_odds),
        kind=kind,
    )


TRUTH = {"age": "average", "diabetes": "average", "smoker": "spread"}
TRIAL_SEED = 2022


def make_trial(n_samples: int = 1500, random_state: Any = TRIAL_SEED) -> pd.DataFrame:
    """Simulate patients on a blood pressure drug or a placebo.

    Older patients and those with kidney disease are treated more often (confounding). Baseline pressure and cholesterol
    shift the outcome of both arms alike: they are prognostic but modify nothing. `TRUTH` names the modifiers.

    Parameters
    ----------
    n_samples : int, default=1500
        Number of patients.
    random_state : int or Generator
        Seed; the default is that of the embedded table.

    Returns
    -------
    DataFrame
        Columns `drug`, `pressure_change` and nine features.

    Examples
    --------
    >>> from modifind.datasets import make_trial
    >>> make_trial(n_samples=200).columns[:2].tolist()
    ['drug', 'pressure_change']
    """
    rng = np.random.default_rng(random_state)
    made = pd.DataFrame({"age": np.clip(rng.normal(58, 11, n_samples), 30, 88).round(1)})
    made["sex"] = np.where(rng.random(n_samples) < 0.5, "female", "male")
    older = made["age"] - 58
    made["bmi"] = (24 + 0.05 * older + rng.gamma(4.0, 1.2, n_samples)).round(1)
    heavier = made["bmi"] - 29
    made["smoker"] = np.where(rng.random(n_samples) < expit(-0.6 - 0.03 * older), "yes", "no")
    made["diabetes"] = np.where(rng.random(n_samples) < expit(-1.0 + 0.12 * heavier), "yes", "no")
    made["kidney_function"] = (95 - 0.7 * older + rng.normal(0, 13, n_samples)).round(0)
    made["cholesterol"] = (195 + 1.2 * heavier + rng.normal(0, 30, n_samples)).round(0)
    made["region"] = rng.choice(["east", "north", "south", "west"], n_samples)
    made["baseline_pressure"] = (148 + 0.25 * older + 0.6 * heavier + rng.normal(0, 9, n_samples)).round(0)
    treated = rng.random(n_samples) < expit(0.03 * older - 0.015 * (made["kidney_function"] - 95))
    effect = -4.0 - 0.35 * older + np.where(made["diabetes"] == "yes", 6.0, 0.0)
    spread = np.where(treated & (made["smoker"] == "yes"), 16.0, 4.0)
    prognosis = -0.2 * (made["baseline_pressure"] - 148) + 0.02 * (made["cholesterol"] - 195)
    change = prognosis + np.where(treated, effect, 0.0) + spread * rng.standard_normal(n_samples)
    made.insert(0, "drug", np.where(treated, "drug", "placebo"))
    made.insert(1, "pressure_change", change.round(2))
    return made


def load_trial() -> Bunch:
    """Load the bundled table of 1500 simulated patients.

    Returns
    -------
    Bunch
        `X`, `treatment`, `y`, `modifiers` (names), `truth` (what each modifier does) and `frame`, the whole table.

    Examples
    --------
    >>> trial = load_trial()
    >>> trial.X.shape, trial.modifiers
    ((1500, 9), ['age', 'diabetes', 'smoker'])
    """
    with (files("modifind.datasets") / "data" / "trial.csv").open(encoding="utf-8") as file:
        frame = pd.read_csv(file)
    return Bunch(
        X=frame.drop(columns=["drug", "pressure_change"]),
        treatment=frame["drug"],
        y=frame["pressure_change"],
        modifiers=list(TRUTH),
        truth=dict(TRUTH),
        frame=frame,
    )
