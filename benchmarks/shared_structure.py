"""Does the level hold where score and outcome share what no learner follows, and is the check quiet elsewhere?

    python benchmarks/shared_structure.py                                     # 5 tables of each design, 2,000 rows
    python benchmarks/shared_structure.py --runs 20 --sizes 2000 20000 100000 # hours

prints Markdown. The first table has a constant effect: anything selected is false, and is no error where the result
says itself that it cannot be relied on (`ok` is False). Strong: log-odds 1.2 s, outcome 2 s; weak: 0.2 s and 0.12 s,
with noise of variance one. The second table has nothing wrong: 20 features, one of them a category of many levels, in
a trial with a known or an estimated score, and an observational table with a score that is a sum over features.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.special import expit

from modifind import EffectLikelihood, ModifierSelector, SelectionResult
from validity import header, row

Array = NDArray[np.float64]
LEVEL = 0.05
N_COLUMNS, N_CLEAN_COLUMNS = 8, 20
STRENGTHS = {"strong": (1.2, 2.0), "weak": (0.2, 0.12)}
STRUCTURES: dict[str, Callable[[Array], Array]] = {
    "three-way product": lambda x: x[:, 0] * x[:, 1] * x[:, 2],
    "sine of a product": lambda x: np.sqrt(2.0) * np.sin(2.0 * x[:, 0] * x[:, 1]),
    "XOR of three": lambda x: np.sign(x[:, 0] * x[:, 1] * x[:, 2]),
    "checkerboard": lambda x: np.sign(np.sin(np.pi * x[:, 0]) * np.sin(np.pi * x[:, 1])),
}
ASSIGNED = ("known", "trial", "observational")


def named(x: Array) -> pd.DataFrame:
    return pd.DataFrame(x, columns=[f"x{j + 1}" for j in range(x.shape[1])])


def shared(structure: str, strength: str, n_rows: int, seed: int) -> dict[str, Any]:
    """One table with a constant effect: was anything selected, and is that said to be reliable?"""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, N_COLUMNS))
    s, (of_score, of_outcome) = STRUCTURES[structure](x), STRENGTHS[strength]
    a = (rng.random(n_rows) < expit(of_score * s)).astype(np.int64)
    y = of_outcome * s + a / 2 + rng.standard_normal(n_rows)
    return judged(ModifierSelector(random_state=seed, explain=False), named(x), y, a)


def clean(assigned: str, n_levels: int, n_rows: int, seed: int) -> dict[str, Any]:
    """One table with nothing wrong and a category of so many levels."""
    rng = np.random.default_rng(seed)
    x, site = rng.standard_normal((n_rows, N_CLEAN_COLUMNS - 1)), rng.integers(0, n_levels, n_rows)
    between, score = rng.standard_normal((2, n_levels)), np.zeros(n_rows)
    if assigned == "observational":
        score = 0.6 * x[:, 0] - 0.4 * x[:, 1] + 0.4 * np.abs(x[:, 2]) - 0.3 + 0.3 * between[0, site]
    a = (rng.random(n_rows) < expit(score)).astype(np.int64)
    y = x[:, 0] + np.abs(x[:, 2]) + 0.5 * between[1, site] + a / 2 + rng.standard_normal(n_rows)
    frame = named(x).assign(site=np.char.add("s", site.astype(str)))
    settings = {"propensity": 0.5} if assigned == "known" else {}
    return judged(
        ModifierSelector(EffectLikelihood("linear"), random_state=seed, explain=False, **settings), frame, y, a
    )


def judged(selector: ModifierSelector, X: pd.DataFrame, y: Array, a: NDArray[np.int64]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    start = time.process_time()
    result: SelectionResult = selector.fit(X, y, treatment=a).result_
    failed = result.checks.query("validity and not passed")["name"]
    return {
        "selected": bool(result.selected),
        "ok": result.ok,
        "fits": "scores_fit" not in set(failed),
        "failed": sorted(set(failed)),
        "seconds": time.process_time() - start,
    }


def share(values: list[bool]) -> str:
    """A share with its standard error."""
    mean = float(np.mean(values))
    return f"{mean:.3f} ({np.sqrt(mean * (1 - mean) / len(values)):.3f})"


def runs(task: Callable[..., dict[str, Any]], case: tuple[Any, ...], args: argparse.Namespace) -> list[dict[str, Any]]:
    seeds = range(args.seed, args.seed + args.runs)
    return list(Parallel(n_jobs=args.jobs)(delayed(task)(*case, seed) for seed in seeds))


def shared_table(args: argparse.Namespace) -> None:
    header("structure", "strength", "rows", "runs", "selected (se)", "scores_fit passed", "selected and ok", "CPU s")
    cases = [(s, k, n) for n in args.sizes for k in STRENGTHS for s in STRUCTURES if s.startswith(args.only)]
    for case in cases:
        answers = runs(shared, case, args)
        shares = [share([r["selected"] for r in answers]), share([r["fits"] for r in answers])]
        wrong = share([r["selected"] and r["ok"] for r in answers])
        row(*case, len(answers), *shares, wrong, f"{np.mean([r['seconds'] for r in answers]):.1f}")


def clean_table(args: argparse.Namespace) -> None:
    header("score", "levels", "rows", "runs", "ok (se)", "scores_fit passed", "checks that failed")
    cases = [(kind, levels, n) for kind in ASSIGNED for levels in args.levels for n in args.clean_sizes]
    for case in cases:
        answers = runs(clean, case, args)
        failed = sorted({name for r in answers for name in r["failed"]})
        row(
            *case,
            len(answers),
            *(share([r[name] for r in answers]) for name in ("ok", "fits")),
            ", ".join(failed) or "-",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=("shared", "clean"), default=("shared", "clean"))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="first seed; 1000 and above are for final figures")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sizes", nargs="+", type=int, default=[2000], help="rows of the tables with shared structure")
    parser.add_argument("--clean-sizes", nargs="+", type=int, default=[1000, 3000])
    parser.add_argument("--levels", nargs="+", type=int, default=[20, 60, 200, 1000])
    parser.add_argument("--only", default="", help="structures whose names begin with this")
    args = parser.parse_args()
    for name in args.tables:
        print(f"\n## {name}: {args.runs} runs, seeds from {args.seed}\n", flush=True)
        {"shared": shared_table, "clean": clean_table}[name](args)


if __name__ == "__main__":
    main()
