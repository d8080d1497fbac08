"""Other packages beside ours on the same tables: how they rank the modifiers, what they select, how long they take.

    make peers                                                     # 10 runs of everything, in its own environment
    python benchmarks/peers.py --runs 10 --seed 1000 --jobs 2 --methods econml slope --kinds LinMean --out peers.json

prints one Markdown table. Every method has one process and one thread, so that wall times compare; importing a package
is not timed. A method whose package is missing says so in its row.

Peers run with their own defaults, but for what is said here:

- `econml`: `CausalForestDML` as it comes, for a discrete treatment; it ranks by `feature_importances_`.
- `causalml-f`: `FilterSelect`, F-test of one interaction of treatment and feature; the outcome is used as it is.
- `causalml-lr`, `causalml-kl`: likelihood-ratio test of the same interaction in a logistic model, and the divergence of
  the arms in five bins; both want a binary outcome, here whether it is above its median. KL has no p-values.
- `d0crt`: hidimstat's distilled conditional randomisation test of AIPW pseudo-outcomes on the features. Screening is
  off: as it comes it keeps 10% of the features, fewer than there are modifiers.
- `slope`: the idea of R's unihtee: slope of the same pseudo-outcomes on one feature at a time, robust standard error.
- `siem`: modifind's SI-EM baseline; as published its selective p-values are not adjusted over features.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from sklearn.linear_model import LassoCV, LogisticRegression, RidgeCV
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler
from threadpoolctl import threadpool_limits

import designs
from modifind import ModifierSelector
from modifind.inference import adjust_p_values
from modifind.result.writing import write_text

Array = NDArray[np.float64]
ALPHA = 0.05
N_ROWS = 1000
CLIP = (0.01, 0.99)
PACKAGES = ("modifind", "econml", "causalml", "hidimstat", "scikit-learn", "numpy", "pandas")


class Found(NamedTuple):
    """What a method says about each feature: a score that ranks it and, if it has p-values, whether it is selected."""

    score: Array
    selected: NDArray[np.bool_] | None


def from_p_values(score: ArrayLike, p_value: ArrayLike) -> Found:
    return Found(np.asarray(score, dtype=float), adjust_p_values(p_value, "bh") <= ALPHA)


def rank_by_p_value(p_value: ArrayLike, statistic: ArrayLike) -> Array:
    """Score by p-value, equal p-values by statistic: with resampling many are equal. What is equal in both stays so."""
    p, tie = np.nan_to_num(p_value, nan=1.0), np.nan_to_num(statistic, nan=-np.inf)
    return np.unique(np.column_stack([-p, tie]), axis=0, return_inverse=True)[1].ravel().astype(float)


def aipw_outcomes(x: Array, y: Array, a: NDArray[np.int64], seed: int) -> Array:
    """Doubly robust pseudo-outcomes, five folds.

    mu_1 - mu_0 + A (Y - mu_1) / e - (1 - A) (Y - mu_0) / (1 - e) with a ridge of additive splines for each arm's mean
    (additive in every design here) and a logistic propensity (right for all of them): models that favour the peers
    which use them.
    """
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    logistic = make_pipeline(StandardScaler(), LogisticRegression())
    penalties = {"logisticregression__C": [0.001, 0.003, 0.01, 0.03, 0.1, 1.0, 10.0]}
    search = GridSearchCV(logistic, penalties, scoring="neg_log_loss")
    e = np.clip(cross_val_predict(search, x, a, cv=folds, method="predict_proba")[:, 1], *CLIP)
    mean = np.empty((2, y.size))
    for train, test in folds.split(x, a):
        for arm in (0, 1):
            rows = train[a[train] == arm]
            splines = SplineTransformer(n_knots=5, extrapolation="linear")
            model = make_pipeline(splines, StandardScaler(), RidgeCV(np.logspace(-2, 4, 13)))
            mean[arm, test] = model.fit(x[rows], y[rows]).predict(x[test])
    return mean[1] - mean[0] + a * (y - mean[1]) / e - (1 - a) * (y - mean[0]) / (1 - e)


def slope_test(x: Array, outcome: Array) -> tuple[Array, Array]:
    """Regress the outcome on each column alone: t-statistics with HC1 standard errors, and two-sided p-values."""
    n = outcome.size
    centred = x - x.mean(axis=0)
    square = (centred**2).sum(axis=0)
    residual = (outcome - outcome.mean())[:, None]
    slope = (centred * residual).sum(axis=0) / square
    meat = (centred**2 * (residual - centred * slope) ** 2).sum(axis=0)
    t = slope / (np.sqrt(meat * n / (n - 2)) / square)
    return t, 2 * stats.t.sf(np.abs(t), n - 2)


def slope(table: designs.Table, seed: int) -> Found:
    x = table.X.to_numpy()
    t, p = slope_test(x, aipw_outcomes(x, table.y, table.treatment, seed))
    return from_p_values(np.abs(t), p)


def d0crt(table: designs.Table, seed: int) -> Found:
    from hidimstat import D0CRT

    x = table.X.to_numpy()
    test = D0CRT(LassoCV(), screening_threshold=None, random_state=seed)
    z = test.fit_importance(x, aipw_outcomes(x, table.y, table.treatment, seed))
    return from_p_values(np.abs(z), test.pvalues_)


def econml(table: designs.Table, seed: int) -> Found:
    from econml.dml import CausalForestDML

    forest = CausalForestDML(discrete_treatment=True, n_jobs=1, random_state=seed)
    forest.fit(table.y, table.treatment, X=table.X.to_numpy())
    return Found(np.ravel(forest.feature_importances_), None)


def causalml(method: str) -> Callable[[designs.Table, int], Found]:
    def run(table: designs.Table, seed: int) -> Found:
        from causalml.feature_selection import FilterSelect

        outcome = table.y if method == "F" else (table.y > np.median(table.y)).astype(int)
        data = table.X.assign(outcome=outcome, arm=np.where(table.treatment == 1, "treatment", "control"))
        found = FilterSelect().get_importance(data, list(table.X), "outcome", method, experiment_group_column="arm")
        found = found.set_index("feature").loc[list(table.X)]
        score = found["score"].to_numpy(float)
        return Found(score, None) if method == "KL" else from_p_values(score, found["p_value"].to_numpy(float))

    return run


def from_table(found: pd.DataFrame) -> Found:
    return Found(rank_by_p_value(found["p_value"], found["statistic"]), found["selected"].to_numpy(bool))


def siem(table: designs.Table, seed: int) -> Found:
    from modifind.baselines import SIEM

    found = SIEM(alpha=ALPHA, random_state=seed).fit(table.X, table.y, treatment=table.treatment).result_.table
    return from_table(found.assign(statistic=found["statistic"].abs()))  # two-sided


def modifind(statistic: str) -> Callable[[designs.Table, int], Found]:
    def run(table: designs.Table, seed: int) -> Found:
        selector = ModifierSelector(statistic, alpha=ALPHA, random_state=seed, explain=False)
        return from_table(selector.fit(table.X, table.y, treatment=table.treatment).result_.table)

    return run


class Method(NamedTuple):
    """A row of the table; `module` is imported before the clock starts."""

    label: str
    module: str
    run: Callable[[designs.Table, int], Found]


METHODS = {
    "default": Method("modifind, default", "modifind", modifind("effect_likelihood")),
    "wcmmd": Method('modifind, "wcmmd"', "modifind", modifind("wcmmd")),
    "siem": Method("SI-EM, not adjusted", "modifind.baselines", siem),
    "slope": Method("univariate doubly robust slope", "scipy", slope),
    "d0crt": Method("hidimstat D0CRT on AIPW", "hidimstat", d0crt),
    "econml": Method("EconML causal forest", "econml.dml", econml),
    "causalml-f": Method("CausalML F filter", "causalml.feature_selection", causalml("F")),
    "causalml-lr": Method("CausalML LR filter, Y > median", "causalml.feature_selection", causalml("LR")),
    "causalml-kl": Method("CausalML KL filter, Y > median", "causalml.feature_selection", causalml("KL")),
}


def judge(found: Found, table: designs.Table) -> dict[str, float | None]:
    """Area under the ROC curve of modifiers against all others, and the rates of what was selected.

    FPR is over features that are neither modifiers nor prognostic. None where a method or a design has no such figure.
    """
    names = pd.Index(table.X.columns)
    true, moved = names.isin(table.modifiers), names.isin(table.prognostic)

    def rate(which: NDArray[np.bool_]) -> float | None:
        return float(found.selected[which].mean()) if found.selected is not None and which.any() else None

    auc = float(roc_auc_score(true, found.score))
    return {"auc": auc, "tpr": rate(true), "fpr": rate(~true & ~moved), "prognostic": rate(moved)}


def one_run(name: str, design_name: str, seed: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    method = METHODS[name]
    table = {**designs.POWER, **designs.WITH_PROGNOSTIC}[design_name](seed, N_ROWS)
    importlib.import_module(method.module)
    with threadpool_limits(limits=1):
        start = time.perf_counter()
        found = method.run(table, seed)
        seconds = time.perf_counter() - start
    return {"method": name, "design": design_name, "seed": seed, **judge(found, table), "seconds": seconds}


def mean(runs: list[dict[str, Any]], name: str) -> float | None:
    values = [run[name] for run in runs if run[name] is not None]
    return float(np.mean(values)) if values else None


def cell(runs: list[dict[str, Any]]) -> str:
    auc, tpr, fpr, moved = (mean(runs, name) for name in ("auc", "tpr", "fpr", "prognostic"))
    parts = [f"{auc:.2f}", "-" if tpr is None else f"{tpr:.2f} / {fpr:.2f}"]
    return "; ".join(parts if moved is None else [*parts, f"{moved:.2f}"])


def row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def why_missing(module: str) -> str | None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        return str(error)
    return None


def installed() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--kinds", nargs="+", choices=designs.PAPER, default=designs.PAPER)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="first seed; 1000 and above are for final figures")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--out", help="write every run as JSON")
    args = parser.parse_args()
    seeds = range(args.seed, args.seed + args.runs)
    chosen = [name for name in (*designs.POWER, *designs.WITH_PROGNOSTIC) if name.split()[0] in args.kinds]
    versions = installed()
    print(
        f"## Peers: n={N_ROWS}, d={designs.N_FEATURES}; {args.runs} runs, seeds {seeds.start}-{seeds.stop - 1}; means\n"
    )
    print(
        f"Each cell: AUC of modifiers against all others; TPR / FPR with BH at {ALPHA}; prognostic features selected."
    )
    print(", ".join(f"{name} {number}" for name, number in versions.items() if number) + ".\n")
    row("method", *chosen, "s per run")
    row(*["---"] * (len(chosen) + 2))
    everything: list[dict[str, Any]] = []
    for name in args.methods:
        method = METHODS[name]
        if missing := why_missing(method.module):
            row(method.label, f"not run: {missing}", *[""] * len(chosen))
            continue
        runs = Parallel(n_jobs=args.jobs)(delayed(one_run)(name, design, seed) for design in chosen for seed in seeds)
        everything += runs
        cells = [cell([run for run in runs if run["design"] == design]) for design in chosen]
        row(method.label, *cells, f"{mean(runs, 'seconds'):.1f}")
    if args.out:
        found = {"n": N_ROWS, "alpha": ALPHA, "versions": versions, "runs": everything}
        write_text(args.out, json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
