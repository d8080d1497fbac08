"""Power and false positives on the paper's synthetic data, beside the paper's own figures.

    python benchmarks/power.py --runs 20 --seed 1000

prints mean and standard deviation over runs of the true positive rate (TPR) and the false positive rate (FPR), and
the mean false discovery proportion. ``--methods gaussian uncapped`` shows what the cap on
weights does, ``--methods preset:5 preset:20`` trains the preset's propensity network for a
fixed number of epochs.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from modifind import ModifierSelector
from modifind.datasets import make_modifiers
from modifind.paper.catalogue import SYNTHETIC
from modifind.paper.runs import METHODS, make_method, selection_rates
from modifind.result.files import write_text
from modifind.statistics import WCMMD

KINDS = ("LinMean", "NonlinMean", "LinVar", "NonlinVar")


def build(method: str, seed: int, device: str) -> Any:
    if method == "gaussian":
        return ModifierSelector("wcmmd", sampler="gaussian", random_state=seed, explain=False)
    if method == "uncapped":
        return ModifierSelector(WCMMD(weight_cap=None), sampler="gaussian", random_state=seed, explain=False)
    name, _, epochs = method.partition(":")
    if name not in METHODS:
        raise SystemExit(f"no method {method!r}")
    return make_method(name, seed, device, **({"epochs": int(epochs)} if epochs else {}))


def one_run(method: str, kind: str, n: int, seed: int, device: str) -> dict[str, float]:
    warnings.simplefilter("ignore")
    data = make_modifiers(kind, n_samples=n, random_state=seed)
    start = time.perf_counter()
    table = build(method, seed, device).fit(data.X, data.y, treatment=data.treatment).result_.table
    seconds = time.perf_counter() - start
    rates = selection_rates(table["selected"], table["p_value"], table.index.isin(data.modifiers))
    return {**rates, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["preset", "wcmmd", "default"])
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="first seed; 1000 and above are for final figures")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="where the preset's autoencoder is trained")
    parser.add_argument("--out", help="write every run as JSON")
    args = parser.parse_args()
    seeds = range(args.seed, args.seed + args.runs)
    print(f"n={args.n}, d=30, alpha=0.05, BH; {args.runs} runs, seeds {seeds.start}-{seeds.stop - 1}; mean (sd)")
    print("| method | data | TPR | FPR | mean FDP | raw null share p<=0.05 | s per run | paper TPR / FPR |")
    print("|" + "---|" * 8)
    everything = {}
    for method in args.methods:
        for kind in args.kinds:
            jobs = (delayed(one_run)(method, kind, args.n, seed, args.device) for seed in seeds)
            runs = Parallel(n_jobs=args.jobs)(jobs)
            everything[f"{method}/{kind}"] = runs
            column = {name: np.array([run[name] for run in runs]) for name in runs[0]}
            cells = [f"{column[c].mean():.2f} ({column[c].std(ddof=1):.2f})" for c in ("tpr", "fpr")]
            cells += [f"{column['fdp'].mean():.3f}", f"{column['null_share'].mean():.3f}"]
            cells += [f"{column['seconds'].mean():.1f}", f"{SYNTHETIC[kind, 1000][0]} / {SYNTHETIC[kind, 1000][2]}"]
            print(f"| {method} | {kind} | {' | '.join(cells)} |", flush=True)
    if args.out:
        write_text(args.out, json.dumps(everything))


if __name__ == "__main__":
    main()
