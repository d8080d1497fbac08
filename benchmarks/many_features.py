"""False discoveries, power, time and memory of the default test where features are many and signals few.

    python benchmarks/many_features.py --n 2000 --d 2000 --runs 2 --jobs 2

The paper's data have 30 features; here unrelated ones are put beside them until there are `--d`. LinMean, NonlinMean,
LinVar and NonlinVar: the first five modify the effect and all 30 go with the treatment. `null`: neither treatment nor
outcome depends on any feature. `prognostic`: neighbours correlate by 0.5, every fifth feature is a category, five of
them modify the mean or the spread, and five others move both arms alike; these have a column of their own and count
nowhere else. The null share of p <= 0.05 is that among the features that some fold's model looks at. Raw p-values of at
most 0.001 are counted among all null features, over all runs, beside the number that a uniform distribution would give.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings

import numpy as np
import pandas as pd
from joblib.externals.loky import get_reusable_executor

from designs import PAPER, Table, expit, prognosis
from modifind import ModifierSelector
from modifind.datasets import make_modifiers
from modifind.paper.runs import selection_rates

KINDS = (*PAPER, "null", "prognostic")
SMALL = 0.001


def _names(n_features: int) -> list[str]:
    return [f"X{j + 1}" for j in range(n_features)]


def _autoregressive(rng: np.random.Generator, n: int, d: int, correlation: float) -> np.ndarray:
    """Standard normal columns, neighbours correlated."""
    x = rng.standard_normal((n, d))
    for j in range(1, d):
        x[:, j] = correlation * x[:, j - 1] + np.sqrt(1 - correlation**2) * x[:, j]
    return x


def simulate(kind: str, n: int, d: int, seed: int) -> Table:
    rng = np.random.default_rng([seed, 23])
    if kind in PAPER:
        data = make_modifiers(kind, n_samples=n, n_features=30, random_state=seed)
        x = np.column_stack((data.X.to_numpy(), _autoregressive(rng, n, d - 30, 0.2)))
        return Table(pd.DataFrame(x, columns=_names(d)), data.treatment, data.y, list(data.modifiers), [])
    x = _autoregressive(rng, n, d, 0.5)
    X = pd.DataFrame(x, columns=_names(d))
    if kind == "null":
        return Table(X, rng.integers(0, 2, n), rng.standard_normal(n), [], [])
    for j in range(4, d, 5):
        X[f"X{j + 1}"] = np.digitize(x[:, j], (-0.6, 0.6) if j % 2 else (0.0,)).astype(float)
    x = X.to_numpy()
    a = (rng.random(n) < expit(0.5 * x[:, 0] - 0.5 * x[:, 20] + 0.5 * x[:, 60])).astype(np.int64)
    mean = prognosis(x[:, 40:45]) + a * (x[:, 0] + 0.7 * x[:, 10] ** 2 + 1.2 * x[:, 24])
    spread = np.exp(a * (0.4 * x[:, 20] + 0.4 * x[:, 30]))
    y = mean + spread * rng.standard_normal(n)
    return Table(X, a, y, [f"X{j}" for j in (1, 11, 25, 21, 31)], [f"X{j}" for j in range(41, 46)])


def one_run(kind: str, n: int, d: int, seed: int, jobs: int) -> dict[str, float]:
    warnings.simplefilter("ignore")
    data = simulate(kind, n, d, seed)
    start = time.perf_counter()
    result = ModifierSelector(random_state=seed, n_jobs=jobs).fit(data.X, data.y, treatment=data.treatment).result_
    seconds = time.perf_counter() - start
    table = result.table.drop(index=data.prognostic)
    seen = (result.diagnostics["sampler"] != "none")[table.index].to_numpy()
    true = table.index.isin(data.modifiers)
    rates = selection_rates(table["selected"], table["p_value"], true) if true.any() else {"tpr": np.nan}
    p_values = table["p_value"].to_numpy()
    own = result.table.loc[data.prognostic, "p_value"].to_numpy()
    return {
        "tpr": rates["tpr"],
        "fdp": float((table["selected"] & ~true).sum() / max(table["selected"].sum(), 1)),
        "seen": int(seen.sum()),
        "null_share": float((p_values[seen & ~true] <= 0.05).mean()) if (seen & ~true).any() else 0.0,
        "small": int((p_values[~true] <= SMALL).sum()),
        "expected": SMALL * int((~true).sum()),
        "least": float(p_values[~true].min()),
        "prognostic": float((own <= 0.05).mean()) if own.size else np.nan,
        "seconds": seconds,
    }


def _peak_gib() -> float:
    """Largest memory of this process plus that of its largest worker, which counts only once it has ended."""
    get_reusable_executor().shutdown(wait=True)
    own, workers = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return (own + workers) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--d", type=int, default=2000, help="at least 100")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="first seed; 1000 and above are for final figures")
    parser.add_argument("--jobs", type=int, default=1, help="processes of one fit")
    args = parser.parse_args()
    seeds = range(args.seed, args.seed + args.runs)
    print(f"n={args.n}, d={args.d}, alpha=0.05, BH; {args.runs} runs, seeds {seeds.start}-{seeds.stop - 1}; means")
    print(
        "| data | TPR | FDP | features looked at | null share p<=0.05 of those | null p<=0.001: found (expected) "
        "| least null p | prognostic p<=0.05 | s per run |"
    )
    print("|" + "---|" * 9)
    for kind in args.kinds:
        runs = [one_run(kind, args.n, args.d, seed, args.jobs) for seed in seeds]
        column = {name: np.array([run[name] for run in runs]) for name in runs[0]}
        cells = [f"{column['tpr'].mean():.2f}", f"{column['fdp'].mean():.3f}", f"{column['seen'].mean():.0f}"]
        cells += [f"{column['null_share'].mean():.3f}", f"{column['small'].sum():.0f} ({column['expected'].sum():.1f})"]
        cells += [
            f"{column['least'].min():.1g}",
            f"{column['prognostic'].mean():.2f}",
            f"{column['seconds'].mean():.0f}",
        ]
        print(f"| {kind} | {' | '.join(cells)} |".replace("nan", "-"), flush=True)
    print(f"peak memory {_peak_gib():.1f} GiB")


if __name__ == "__main__":
    main()
