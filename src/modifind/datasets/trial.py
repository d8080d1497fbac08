"""A simulated clinical table that travels with the package, for the demo, the documentation and first steps."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.utils import Bunch

TRUTH = {"age": "average", "diabetes": "average", "smoker": "spread"}
TRIAL_SEED = 2022


def make_trial(n_samples: int = 1500, random_state: Any = TRIAL_SEED) -> pd.DataFrame:
    """Simulate patients on a blood pressure drug or a placebo.

    Older patients and those with kidney disease are treated more often (confounding). Baseline pressure and
    cholesterol move the outcome of both arms alike: they are prognostic but modify nothing. `TRUTH` names what does.

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
    """Load the embedded table of 1500 simulated patients.

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
