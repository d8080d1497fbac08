"""Type I error of the default test: how often null features have raw p <= 0.05.

    python benchmarks/validity.py --runs 50 --seed 1000

Every design has d = 10 features with AR(0.2) correlation (except where it says otherwise) and n = 500 rows. Null
p-values are those of features that the outcome does not depend on given the rest; prognostic features move both arms
alike, which is not what the test is for but what a user would call a false finding, so they are counted apart.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import NDArray

from modifind import ModifierSelector
from modifind.datasets import make_trial

Array = NDArray[np.float64]
N_FEATURES = 10


def expit(z: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-z))


def features(rng: np.random.Generator, n: int, correlation: float = 0.2) -> Array:
    covariance = correlation ** np.abs(np.subtract.outer(np.arange(N_FEATURES), np.arange(N_FEATURES)))
    return rng.standard_normal((n, N_FEATURES)) @ np.linalg.cholesky(covariance).T


def prognosis(x: Array) -> Array:
    """Five strong effects on both arms: linear, absolute value, square, sine, step."""
    parts = (2 * x[:, 0], 2 * np.abs(x[:, 1]), x[:, 2] ** 2, 2 * np.sin(2 * x[:, 3]), 2.0 * (x[:, 4] > 0))
    return np.sum(parts, axis=0)


Design = Callable[[np.random.Generator, int], tuple[pd.DataFrame, Array, Array, int]]


def _frame(x: Array) -> pd.DataFrame:
    return pd.DataFrame(x, columns=[f"X{j + 1}" for j in range(x.shape[1])])


def no_effect(rng: np.random.Generator, n: int) -> tuple[pd.DataFrame, Array, Array, int]:
    x = features(rng, n)
    return _frame(x), rng.random(n) < expit(0.5 * x[:, 0]), rng.standard_normal(n), 0


def prognostic_only(rng: np.random.Generator, n: int) -> tuple[pd.DataFrame, Array, Array, int]:
    x = features(rng, n)
    a = rng.random(n) < expit(0.5 * x[:, 0] - 0.5 * x[:, 5])
    return _frame(x), a, prognosis(x) + 2 * a + rng.standard_normal(n), 5


def heavy_tails(rng: np.random.Generator, n: int) -> tuple[pd.DataFrame, Array, Array, int]:
    x = features(rng, n)
    a = rng.random(n) < expit(0.5 * x[:, 0])
    return _frame(x), a, x[:, 0] + a + rng.standard_t(3, n), 1


def log_normal(rng: np.random.Generator, n: int) -> tuple[pd.DataFrame, Array, Array, int]:
    x = features(rng, n)
    a = rng.random(n) < expit(0.5 * x[:, 0])
    return _frame(x), a, np.exp(0.5 * a + rng.standard_normal(n)), 0


def poor_overlap(rng: np.random.Generator, n: int) -> tuple[pd.DataFrame, Array, Array, int]:
    x = features(rng, n)
    a = rng.random(n) < expit(1.2 * x[:, :6].sum(axis=1))  # AUC of the true score about 0.93
    return _frame(x), a, a + rng.standard_normal(n), 0


def strong_correlation(rng: np.random.Generator, n: int) -> tuple[pd.DataFrame, Array, Array, int]:
    x = features(rng, n, correlation=0.9)
    a = rng.random(n) < expit(0.5 * x[:, 0])
    return _frame(x), a, np.where(a, 2 * x[:, 0], 0.0) + rng.standard_normal(n), 1


def skewed_and_discrete(rng: np.random.Generator, n: int) -> tuple[pd.DataFrame, Array, Array, int]:
    x = features(rng, n)
    frame = _frame(x)
    frame["X2"] = np.exp(x[:, 1])
    frame["X3"] = np.where(x[:, 2] < 0.3, 0.0, x[:, 2])
    frame["X4"] = np.digitize(x[:, 3], [-0.7, 0.5])
    frame["X5"] = (x[:, 4] > 0).astype(int)
    frame["X6"] = 1.5 * x[:, 1] ** 2 + x[:, 5]
    a = rng.random(n) < expit(0.5 * x[:, 0] + 0.5 * x[:, 1])
    return frame, a, np.where(a, 2 * x[:, 0], 0.0) + rng.standard_normal(n), 1


def embedded_trial(rng: np.random.Generator, n: int) -> tuple[pd.DataFrame, Array, Array, int]:
    frame = make_trial(n, rng)
    moved = ["age", "smoker", "diabetes", "cholesterol", "baseline_pressure"]
    features = frame[[*moved, "sex", "bmi", "kidney_function", "region"]]
    return features, frame["drug"].to_numpy(), frame["pressure_change"].to_numpy(), len(moved)


def redundant_columns(rng: np.random.Generator, n: int) -> tuple[pd.DataFrame, Array, Array, int]:
    weight, height = rng.normal(80, 15, n), rng.normal(1.7, 0.1, n)
    frame = pd.DataFrame({"kilograms": weight, "height": height, "bmi": weight / height**2})
    frame["level"] = np.exp(rng.standard_normal(n))
    frame["log_level"] = np.log(frame["level"])
    length = rng.standard_normal(n)
    frame["centimetres"], frame["inches"] = length, length / 2.54
    return frame, rng.random(n) < 0.5, rng.standard_normal(n), 0


DESIGNS: dict[str, Design] = {
    "no effect at all": no_effect,
    "constant effect, five strong prognostic features": prognostic_only,
    "t(3) noise": heavy_tails,
    "log-normal outcome": log_normal,
    "poor overlap": poor_overlap,
    "AR(0.9) features, X1 modifies": strong_correlation,
    "skewed, zero-inflated, nonlinear and discrete features": skewed_and_discrete,
    "embedded trial, three modifiers, two prognostic": embedded_trial,
    "columns that are functions of others, no effect": redundant_columns,
}


def one_run(name: str, n: int, seed: int, sampler: str) -> tuple[Array, int]:
    warnings.simplefilter("ignore")
    frame, a, y, n_prognostic = DESIGNS[name](np.random.default_rng(seed), n)
    # Few resamples: whether p <= 0.05 is all that matters here.
    selector = ModifierSelector(sampler=sampler, n_resamples=199, random_state=seed)
    return selector.fit(frame, y, treatment=a).result_.table["p_value"].to_numpy(), n_prognostic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="first seed; 1000 and above are for final figures")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sampler", default="auto")
    parser.add_argument("--designs", nargs="+", default=[""], help="run the designs whose name contains one of these")
    args = parser.parse_args()
    last = args.seed + args.runs - 1
    print(f"n={args.n}, sampler {args.sampler}, {args.runs} data sets, seeds {args.seed}-{last}")
    print("| design | null p-values | share p <= 0.05 | standard error | other features, each |")
    print("|---|---|---|---|---|", flush=True)
    start = time.perf_counter()
    for name in (name for name in DESIGNS if any(part in name for part in args.designs)):
        jobs = (delayed(one_run)(name, args.n, seed, args.sampler) for seed in range(args.seed, args.seed + args.runs))
        runs = Parallel(n_jobs=args.jobs)(jobs)
        n_moved = runs[0][1]
        p = np.array([values for values, _ in runs])
        small = p[:, n_moved:] <= 0.05
        error = small.mean(axis=1).std(ddof=1) / np.sqrt(args.runs)
        moved = ", ".join(f"{share:.2f}" for share in (p[:, :n_moved] <= 0.05).mean(axis=0)) or "-"
        print(f"| {name} | {small.size} | {small.mean():.3f} | {error:.3f} | {moved} |", flush=True)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
