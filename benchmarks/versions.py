"""CPU time of default fits, this version beside an earlier one, alternating in one run.

    python benchmarks/versions.py --before v0.1 --rows 1000 10000 --rounds 2
    python benchmarks/versions.py --before v0.1 --rows 10000 --kinds nonlinear --rounds 1
    python benchmarks/versions.py --before v0.1 --parquet 1000000 --rounds 2

`--before` is any name of a commit; its sources are read from this repository's history. Each figure is the CPU time of
a process that imports modifind, makes the paper's data (d = 30), or with `nonlinear` eight features of which trees and
networks follow some, and fits with n_jobs=1; ratios are of medians. With `--parquet`, seconds by the clock and peak
memory of `scaling.py stream` of either version, two workers, on one file.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
KINDS = ("LinMean", "NonlinMean", "LinVar", "NonlinVar")
NONLINEAR = "nonlinear"
FIT = """
import warnings
warnings.simplefilter("ignore")
from modifind import ModifierSelector
{data}
ModifierSelector(n_jobs=1, random_state=0).fit(X, y, treatment=a)
"""
PAPER_DATA = """
from modifind.datasets import make_modifiers
data = make_modifiers({kind!r}, n_samples={n}, random_state=0)
X, y, a = data.X, data.y, data.treatment
"""
NONLINEAR_DATA = """
import numpy as np
rng = np.random.default_rng(0)
X, a = rng.standard_normal(({n}, 8)), rng.integers(0, 2, {n})
common = 2 * X[:, 0] * X[:, 1] * X[:, 2] + np.sin(3 * X[:, 3]) * X[:, 4]
y = common + a * (X[:, 5] > 0) + rng.standard_normal({n})
"""


@contextmanager
def earlier_sources(revision: str) -> Iterator[Path]:
    """The sources of an earlier version, in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", revision, "src", "benchmarks"], cwd=HERE, check=True, capture_output=True
        )
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder) / "src"


def environment(sources: Path) -> dict[str, str]:
    """That of a process which imports modifind from `sources` and has one thread."""
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    return {**os.environ, **threads, "PYTHONPATH": str(sources)}


def cpu_seconds(sources: Path, kind: str, n: int) -> float:
    """User and system time of one fit by the package in `sources`, children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    data = (NONLINEAR_DATA if kind == NONLINEAR else PAPER_DATA).format(kind=kind, n=n)
    subprocess.run([sys.executable, "-c", FIT.format(data=data)], env=environment(sources), check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def streamed(sources: Path, n: int, folder: Path) -> dict[str, float]:
    """What `scaling.py` of that version measures of a Parquet file, which is made where it is not there."""
    for old in folder.glob("scaling*.json"):
        old.unlink()
    given = ["stream", "--n", str(n), "--workers", "2", "--out", str(folder)]
    command = [sys.executable, str(sources.parent / "benchmarks" / "scaling.py"), *given]
    subprocess.run(command, env=environment(sources), check=True, stdout=subprocess.DEVNULL)
    (kept,) = folder.glob("scaling*.json")
    (found,) = json.loads(kept.read_text(encoding="utf-8")).values()
    return {name: found[name] for name in ("seconds", "pass_seconds", "megabytes")}


def compare_files(sources: Sequence[Path], n: int, rounds: int) -> None:
    print("| n | what | before | now | ratio |\n|" + "---|" * 5)
    with tempfile.TemporaryDirectory() as folder:
        runs = [[streamed(own, n, Path(folder)) for own in sources] for _ in range(rounds)]
    for what in runs[0][0]:
        before, now = (statistics.median(own[what] for own in both) for both in zip(*runs, strict=True))
        print(f"| {n} | {what} | {before:.1f} | {now:.1f} | {now / before:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=(*KINDS, NONLINEAR), default=KINDS)
    parser.add_argument("--parquet", type=int, help="rows of a file, instead of tables in memory")
    args = parser.parse_args()
    with earlier_sources(args.before) as before:
        sources = (before, HERE / "src")
        if args.parquet:
            compare_files(sources, args.parquet, args.rounds)
            return
        print("| data | n | before, CPU s | now, CPU s | ratio |\n|" + "---|" * 5)
        for n in args.rows:
            totals = [0.0, 0.0]
            for kind in args.kinds:
                times = [[cpu_seconds(own, kind, n) for own in sources] for _ in range(args.rounds)]
                medians = [statistics.median(own) for own in zip(*times, strict=True)]
                totals = [total + own for total, own in zip(totals, medians, strict=True)]
                print_row(kind, n, *medians)
            print_row("all", n, *totals)


def print_row(kind: str, n: int, before: float, now: float) -> None:
    print(f"| {kind} | {n} | {before:.1f} | {now:.1f} | {now / before:.2f} |", flush=True)


if __name__ == "__main__":
    main()
