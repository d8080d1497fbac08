"""How often good and bad tables fail the checks, kind by kind.

    python benchmarks/checks.py --runs 10

Good tables should pass nearly always; bad ones should be caught.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from designs import Table, embedded_trial, expit, mixed_columns, no_effect, paper, poor_overlap, small_table
from modifind import EffectLikelihood, ModifierSelector

Array = NDArray[np.float64]


class Wild:
    """A model of the outcome that follows noise: locations far from the data."""

    def fit(self, X: Array, a: Array, y: Array) -> Wild:
        self.spread = float(y.std())
        return self

    def predict(self, X: Array) -> tuple[Array, Array]:
        location = 3.0 * self.spread * np.sin(50.0 * X[:, :2])
        return location, np.full_like(location, self.spread)


def no_overlap(seed: int, n: int) -> Table:
    """As `poor_overlap`, with a score three times as strong: the AUC of the true score is 0.98."""
    table = poor_overlap(seed, n)
    score = 3.0 * table.X.iloc[:, :6].sum(axis=1).to_numpy()
    rng = np.random.default_rng([seed, 18])
    a = (rng.random(n) < expit(score)).astype(np.int64)
    return table._replace(treatment=a, y=a + rng.standard_normal(n))


def rounded(seed: int, n: int) -> Table:
    """Columns in whole units, from one to twelve to a standard deviation, and some that are mostly zero."""
    table = no_effect(seed, n)
    frame = table.X.copy()
    for j in range(20):
        frame[f"X{j + 1}"] = np.round(frame[f"X{j + 1}"] * (12, 6, 3, 2)[j % 4])
    for j in range(20, 24):
        frame[f"X{j + 1}"] = np.where(frame[f"X{j + 1}"] < 0.3, 0.0, np.exp(frame[f"X{j + 1}"]))
    return table._replace(X=frame)


LINEAR = {"statistic": EffectLikelihood("linear", check_resamples=200)}
CASES: dict[str, tuple[Callable[[int, int], Table], int, dict[str, Any]]] = {
    "good: no effect at all": (no_effect, 1000, LINEAR),
    "good: no effect, n = 300": (small_table, 300, LINEAR),
    "good: LinMean": (paper("LinMean"), 1000, LINEAR),
    "good: LinVar": (paper("LinVar"), 1000, LINEAR),
    "good: embedded trial's design": (embedded_trial, 1500, LINEAR),
    "good: discrete, zero-inflated and skewed features": (mixed_columns, 1000, LINEAR),
    "good: whole years and zeros": (rounded, 1000, LINEAR),
    "fair: poor overlap, AUC 0.9": (poor_overlap, 1000, LINEAR),
    "bad: poor overlap, AUC 0.98": (no_overlap, 1000, LINEAR),
    "bad: gaussian law of zero-inflated and skewed features": (mixed_columns, 1000, LINEAR | {"sampler": "gaussian"}),
    "bad: gaussian law of the trial's skewed column": (embedded_trial, 1500, LINEAR | {"sampler": "gaussian"}),
    "bad: model of the outcome that follows noise": (paper("LinMean"), 1000, {"statistic": EffectLikelihood(Wild())}),
}


def failed(case: str, seed: int) -> tuple[list[str], int]:
    """Kinds of check that one table fails, and how many there are."""
    design, n, settings = CASES[case]
    table = design(seed, n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        selector = ModifierSelector(random_state=seed, **settings).fit(table.X, table.y, treatment=table.treatment)
    checks = selector.result_.checks
    return sorted(set(checks.loc[~checks["passed"], "name"])), checks["name"].nunique()


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cases", default="", help="only cases that begin with this")
    args = parser.parse_args()
    print("| table | passed everything | failed, by kind |\n|---|---|---|")
    for case in (case for case in CASES if case.startswith(args.cases)):
        seeds = range(args.seed, args.seed + args.runs)
        found = Parallel(n_jobs=args.jobs)(delayed(failed)(case, seed) for seed in seeds)
        kinds = Counter(kind for names, _ in found for kind in names)
        listed = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()) or "-"
        print(f"| {case} | {sum(not names for names, _ in found)} of {args.runs} | {listed} |", flush=True)


if __name__ == "__main__":
    main()
