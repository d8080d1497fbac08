"""Are the labels of what a feature changes right, and do the three p-values keep their level?

    python benchmarks/changes.py                              # 20 runs of each design, development seeds
    python benchmarks/changes.py --runs 50 --seed 1000 --jobs 16

prints Markdown; n = 1000, d = 30. The first table counts the true modifiers that are selected and what they are said to
change (adjusted p-value at most 0.05). "Right" is the mean and nothing else on the Mean data, the spread and nothing
else on the Var data. The second has the share of raw p-values of at most 0.05: of features that change nothing
or move both arms alike, and of modifiers, where a part that they do not change is null. The third has the power where
only the shape changes.
"""

from __future__ import annotations

import argparse
import time
import warnings

import pandas as pd
from joblib import Parallel, delayed

import designs
from modifind import ModifierSelector
from validity import header, row

N_ROWS = 1000
LEVEL = 0.05
PARTS = ("mean", "spread", "shape")
CHANGED = {"LinMean": "mean", "NonlinMean": "mean", "LinVar": "spread", "NonlinVar": "spread"}
NULL = [
    *("no effect at all", "constant effect, five prognostic features", "t(3) noise", "log-normal outcome"),
    *("poor overlap", "discrete, zero-inflated and skewed features, X1 modifies"),
]


def one_run(name: str, design: designs.Design, seed: int) -> pd.DataFrame:
    warnings.simplefilter("ignore")
    table = design(seed, N_ROWS)
    result = ModifierSelector(random_state=seed).fit(table.X, table.y, treatment=table.treatment).result_
    found = result.changes.drop(columns="verdict")
    found["selected"] = result.table["selected"]
    found["role"] = "null"
    found.loc[table.modifiers, "role"] = "modifier"
    found.loc[table.prognostic, "role"] = "prognostic"
    return found.assign(design=name, seed=seed)


def runs(chosen: dict[str, designs.Design], args: argparse.Namespace) -> pd.DataFrame:
    seeds = range(args.seed, args.seed + args.runs)
    jobs = (delayed(one_run)(name, design, seed) for name, design in chosen.items() for seed in seeds)
    return pd.concat(Parallel(n_jobs=args.jobs)(jobs))


def labels(found: pd.DataFrame) -> pd.DataFrame:
    """Which parts each feature is said to change."""
    return pd.DataFrame({part: found[f"{part}_adjusted"] <= LEVEL for part in PARTS})


def raw_shares(found: pd.DataFrame, without: str = "") -> list[str]:
    """Share of small raw p-values, less those of a part that does change."""
    return ["-" if part == without else f"{(found[f'{part}_p'] <= LEVEL).mean():.3f}" for part in PARTS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="first seed; 1000 and above are for final figures")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    start = time.perf_counter()
    print(f"{args.runs} runs, seeds from {args.seed}, n = {N_ROWS}, d = {designs.N_FEATURES}\n", flush=True)

    paper = runs({name: designs.POWER[name] for name in CHANGED}, args)
    header("data", "modifiers selected", "labelled right", "mean", "spread", "shape")
    for name, part in CHANGED.items():
        modifiers = paper[(paper["design"] == name) & (paper["role"] == "modifier")]
        chosen = labels(modifiers[modifiers["selected"]])
        right = (chosen[part] & (chosen.sum(axis=1) == 1)).mean()
        shares = [f"{chosen[own].mean():.3f}" for own in PARTS]
        row(name, f"{len(chosen)} of {len(modifiers)}", f"{right:.3f}", *shares)

    print()
    null = runs({name: designs.NULL[name] for name in NULL}, args)
    header("design", "features", "p-values", "mean, share p <= 0.05", "spread", "shape")
    for found in (paper, null):
        for (name, role), own in found.groupby(["design", "role"], sort=False):
            if role != "modifier" or name in CHANGED:
                row(name, role, len(own), *raw_shares(own, CHANGED[name] if role == "modifier" else ""))

    print()
    only = runs(designs.SHAPE_ONLY, args)
    header(
        "design", "X1 selected", "said to change: mean", "spread", "shape", "shape, raw p <= 0.05", "of null features"
    )
    for name in designs.SHAPE_ONLY:
        own = only[only["design"] == name]
        x1 = own[own["role"] == "modifier"]
        said = [f"{labels(x1)[part].mean():.2f}" for part in PARTS]
        others = raw_shares(own[own["role"] == "null"])[2]
        row(name, f"{x1['selected'].mean():.2f}", *said, raw_shares(x1)[2], others)
    print(f"\n{time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
