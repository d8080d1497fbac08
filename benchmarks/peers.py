"""Other packages and tests by hand beside ours on the same tables: what they find, what of it is false, time, memory.

    make peers                                                   # 20 tables of everything, in its own environment
    python benchmarks/peers.py --runs 3 --methods default ols --designs LinMean "coin flips"

prints Markdown, and with --page puts it into a page, below the line `<!-- tables -->`. Every method has one process and
one thread, whose CPU time is taken; importing a package is not timed. A method whose package is missing says so.
Coin flips need real tables, from the folder named by $MODIFIND_DATA; they are given to all methods as numbers alone,
with indicators for categories and without rows that have gaps. `peer_methods.py` says how every method is run.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shlex
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

import designs
import family_designs
import real_tables
from modifind import __version__
from modifind.result.files import write_text
from peer_methods import METHODS, Array, Found

N_ROWS, FAMILY_ROWS, COIN_ROWS = 1000, 1500, 2000
PACKAGES = ("EconML", "CausalML", "DoubleML", "hidimstat", "scikit-learn", "numpy", "pandas")
FULL_RUNS = 20
HERE = Path(__file__).resolve().parent
MARK = "<!-- tables -->"
OURS = {"default", "wcmmd", "siem"}  # methods of this package
ALIKE = ("spread exp(x/2) in both arms", "Poisson", "log-normal")
TAILS = ("rare events 15%", "skewness turns with X1")
COINS = ("randhie mdvis", "cattaneo2 bweight")


def all_designs() -> dict[str, tuple[designs.Design, int]]:
    """Designs and their rows: the paper's, with prognostic features, no effect, tails, a binary outcome, coin flips."""
    found = {name: (own, N_ROWS) for name, own in (designs.POWER | designs.WITH_PROGNOSTIC).items()}
    found |= {name: (designs.ZERO[name], N_ROWS) for name in ALIKE} | {name: designs.TAILS[name] for name in TAILS}
    found["binary"] = family_designs.design("binary", "difference", "linear"), FAMILY_ROWS
    known = {outcome.name: outcome for outcome in real_tables.read_outcomes()}
    for name in COINS:
        if name in known:
            found[f"coin flips, {name}"] = designs.placebo(*as_numbers(known[name])), COIN_ROWS
    return found


def as_numbers(outcome: real_tables.Outcome) -> tuple[pd.DataFrame, Array]:
    """What every method can take: numbers and indicators, rows without gaps."""
    whole = outcome.X.notna().all(axis=1).to_numpy()
    X = pd.get_dummies(outcome.X[whole], drop_first=True).astype(float).reset_index(drop=True)
    return X, outcome.y[whole]


def judge(found: Found, table: designs.Table) -> dict[str, float | None]:
    """Area under the ROC curve of modifiers against all others, and the rates of what was selected.

    None where a method or a design has no such figure.
    """
    names = pd.Index(table.X.columns)
    true, moved = names.isin(table.modifiers), names.isin(table.prognostic)
    chosen = found.selected

    def rate(which: NDArray[np.bool_]) -> float | None:
        return float(chosen[which].mean()) if chosen is not None and which.any() else None

    return {
        "auc": float(roc_auc_score(true, np.nan_to_num(found.score, nan=-np.inf))) if true.any() else None,
        "tpr": rate(true),
        "fdp": None if chosen is None else float(chosen[~true].sum() / max(chosen.sum(), 1)),
        "prognostic": rate(moved),
        "find": None if chosen is None or true.any() else float(chosen.any()),
    }


def one_run(name: str, design_name: str, design: designs.Design, n: int, seed: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    method, table = METHODS[name], design(seed, n)
    importlib.import_module(method.module)
    with threadpool_limits(limits=1):
        start = time.process_time()
        found = method.run(table, seed)
        seconds = time.process_time() - start
    return {"method": name, "design": design_name, "seed": seed, **judge(found, table), "seconds": seconds}


def peak_megabytes(name: str) -> float:
    """What one run on the paper's data needs in a process of its own, beyond the imports; of Linux alone."""
    line = f"import peers; print(peers._peak({name!r}))"
    shown = subprocess.run([sys.executable, "-c", line], cwd=HERE, capture_output=True, text=True, check=True)
    return float(shown.stdout.split()[-1])


def _peak(name: str) -> float:
    importlib.import_module(METHODS[name].module)
    before = _megabytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins here
    one_run(name, "LinMean", designs.POWER["LinMean"], N_ROWS, 0)
    return _megabytes("VmHWM") - before


def _megabytes(what: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:")) / 1024


def mean(runs: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [run[name] for run in runs if run[name] is not None]
    return float(np.mean(values)) if values else None


def shown(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


class Table(NamedTuple):
    """Which designs a table is of, and what its cells say."""

    title: str
    designs: Sequence[str]
    cell: Callable[[list[dict[str, Any]]], str]


def power_cell(runs: list[dict[str, Any]]) -> str:
    return f"{shown(mean(runs, 'auc'))}; {shown(mean(runs, 'tpr'))} / {shown(mean(runs, 'fdp'))}"


def prognostic_cell(runs: list[dict[str, Any]]) -> str:
    return f"{power_cell(runs)}; {shown(mean(runs, 'prognostic'))}"


def null_cell(runs: list[dict[str, Any]]) -> str:
    finds = [run["find"] for run in runs if run["find"] is not None]
    return f"{sum(finds):.0f} of {len(finds)}" if finds else "-"


RATES = "area under the ROC curve; TPR / FDP"
TABLES = (
    Table(f"The paper's data: {RATES}", list(designs.POWER), power_cell),
    Table(f"With prognostic features: {RATES}; prognostic selected", list(designs.WITH_PROGNOSTIC), prognostic_cell),
    Table(f"Tails and a binary outcome: {RATES}", [*TAILS, "binary"], power_cell),
    Table(
        "No feature modifies anything: tables with a find",
        [*ALIKE, *(f"coin flips, {name}" for name in COINS)],
        null_cell,
    ),
)


def rows_of(cells: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(own) + " |" for own in (cells[0], ["---"] * len(cells[0]), *cells[1:]))


def better(runs: list[dict[str, Any]], chosen: Sequence[str]) -> list[str]:
    """Designs where a peer finds at least 0.05 more of the modifiers than the default, at an FDP of at most 0.10."""
    found = []
    for design in chosen:
        here = {name: [run for run in runs if (run["method"], run["design"]) == (name, design)] for name in METHODS}
        ours = mean(here["default"], "tpr")
        for name, own in here.items():
            if name in OURS:
                continue
            tpr, fdp = mean(own, "tpr"), mean(own, "fdp")
            if None not in (ours, tpr, fdp) and tpr >= ours + 0.05 and fdp <= 0.10:  # type: ignore[operator]
                found.append(f"- {design}: {METHODS[name].label} {tpr:.2f}, modifind {ours:.2f}")
    return found


def report(runs: list[dict[str, Any]], memory: dict[str, float], missing: dict[str, str], head: str) -> str:
    """Every table as Markdown."""
    names = [name for name in METHODS if any(run["method"] == name for run in runs)]
    parts = [head]
    for table in TABLES:
        chosen = [name for name in table.designs if any(run["design"] == name for run in runs)]
        if not chosen:
            continue
        pooled = table.cell is null_cell and len(chosen) > 1
        cells = [["method", *chosen, *["all"] * pooled]]
        for name in names:
            own = [[run for run in runs if (run["method"], run["design"]) == (name, design)] for design in chosen]
            own += [[run for run in runs if run["method"] == name and run["design"] in chosen]] * pooled
            cells.append([METHODS[name].label, *(table.cell(one) if one else "" for one in own)])
        parts += [f"### {table.title}", rows_of(cells)]
    cells = [["method", "CPU seconds per table, n = 1000, d = 30", "MB beyond the imports"]]
    paper = [*designs.POWER, *designs.WITH_PROGNOSTIC]
    for name in names:
        own = [run for run in runs if run["method"] == name and run["design"] in paper]
        cells.append([METHODS[name].label, shown(mean(own, "seconds"), 1), shown(memory.get(name), 0)])
    parts += ["### Time and memory", rows_of(cells), "### Where a peer finds more"]
    found = better(runs, list(dict.fromkeys(run["design"] for run in runs)))
    told = "At least 0.05 more of the modifiers than the default, at a mean FDP of at most 0.10:"
    parts.append("\n".join([told, "", *found]) if found else f"{told} nowhere in these runs.")
    parts += [f"Not run: {METHODS[name].label}, {why}." for name, why in missing.items()]
    return "\n\n".join(parts) + "\n"


def why_missing(module: str) -> str | None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        return str(error)
    return None


def installed() -> str:
    found = [f"modifind {__version__}"]
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return ", ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--designs", nargs="+", default=[""], help="designs whose names begin with one of these")
    parser.add_argument("--runs", type=int, default=FULL_RUNS)
    parser.add_argument("--seed", type=int, default=0, help="first seed; 1000 and above are for final figures")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--page", type=Path, help="a page whose tables are replaced, when everything has ended")
    parser.add_argument("--out", help="write every run as JSON")
    args = parser.parse_args()
    seeds = range(args.seed, args.seed + args.runs)
    chosen = {name: own for name, own in all_designs().items() if name.startswith(tuple(args.designs))}
    missing = {name: why for name in args.methods if (why := why_missing(METHODS[name].module))}
    names = [name for name in args.methods if name not in missing]
    jobs = [(name, design, *own, seed) for name in names for design, own in chosen.items() for seed in seeds]
    runs = Parallel(n_jobs=args.jobs)(delayed(one_run)(*job) for job in jobs)
    memory = {name: peak_megabytes(name) for name in names} if sys.platform == "linux" else {}
    first_look = "" if args.runs >= FULL_RUNS else "**A first look, which can tell 0 from 1 and little else:** "
    head = f"{first_look}{args.runs} tables of each design, seeds from {args.seed}; {date.today().isoformat()}. "
    head += f"{installed()}.\n\n    {shlex.join(['python', 'benchmarks/peers.py', *sys.argv[1:]])}"
    text = report(runs, memory, missing, head)
    print(text)
    if args.page:
        kept = args.page.read_text(encoding="utf-8").split(MARK)[0]
        write_text(args.page, f"{kept}{MARK}\n\n{text}")
    if args.out:
        write_text(args.out, json.dumps({"head": head, "memory": memory, "runs": runs}, indent=1))


if __name__ == "__main__":
    main()
