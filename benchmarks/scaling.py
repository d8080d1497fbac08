"""Time, peak memory and result of the default test against rows, features and workers.

python benchmarks/scaling.py rows               n = 10^3 .. 10^6 in memory, one and two workers
python benchmarks/scaling.py stream             n = 10^5 .. 10^7 read from Parquet in batches
python benchmarks/scaling.py features           d = 10 .. 2,000 at n = 2,000
python benchmarks/scaling.py dask               one process, two Dask workers, and a worker killed on the way
python benchmarks/scaling.py paper              the published sums at n <= 4,000, extrapolated
python benchmarks/scaling.py spectral           one statistic at n = 10^4: spectral, rff and exact
python benchmarks/scaling.py show               tables, slopes, the plot and the estimate for 10^9 rows

Every fit runs in a process of its own. Memory is that of the process and all its children (proportional set size) and
of files in shared memory, part of which counts twice.
Finished measurements are kept in --out and are not repeated; `show` reads them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from joblib.externals.loky import get_reusable_executor

from many_features import simulate
from modifind import ModifierSelector
from modifind.data.sources import open_files
from modifind.datasets import make_modifiers
from modifind.result.files import write_text
from modifind.statistics import WCMMD, wcmmd_importance

KIND = "NonlinMean"
CHUNK = 500_000
ROWS = (1_000, 10_000, 100_000, 1_000_000)
STREAMED = (100_000, 1_000_000, 10_000_000)
FEATURES = (10, 30, 100, 300, 1_000, 2_000)
PAPER_ROWS = (500, 1_000, 2_000, 4_000)
PAPER_RESAMPLES = 100
TARGET_ROWS, TARGET_WORKERS = 10**9, 100


class PeakMemory:
    """Largest memory of this process and all its children while the context is open, in MB."""

    def __enter__(self) -> PeakMemory:
        self.peak, self._over = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.25):
            self.peak = max(self.peak, _shared() + sum(map(_memory, _family(os.getpid()))))


def _family(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def _shared() -> float:
    """Files in shared memory: arrays that joblib hands to workers, whether or not anyone maps them."""
    total = 0
    for folder, _, files in os.walk("/dev/shm"):
        for name in files:
            try:
                total += os.stat(os.path.join(folder, name)).st_blocks * 512
            except OSError:  # gone already
                continue
    return total / 2**20


def _memory(process: int) -> float:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


class Results:
    """Measurements by name, kept in a JSON file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def measure(self, name: str, work: Callable[..., dict[str, Any]], *args: Any) -> dict[str, Any]:
        """The measurement of that name, made in a new process unless it is known."""
        if name not in self.found:
            os.environ["OMP_NUM_THREADS"] = "1"
            pool = multiprocessing.get_context("spawn").Pool(1)
            self.found[name] = pool.apply(_alone, (work, args))
            pool.close()
            pool.join()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_text(self.path, json.dumps(self.found, indent=1) + "\n")
        print(name, {k: v for k, v in self.found[name].items() if k != "p_values"}, flush=True)
        return self.found[name]


def _alone(work: Callable[..., dict[str, Any]], args: tuple[Any, ...]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    multiprocessing.process.current_process()._config["daemon"] = False  # it may have workers of its own
    try:
        return work(*args)
    finally:
        get_reusable_executor().shutdown(wait=True)


def _fit(fit: Callable[[], ModifierSelector], modifiers: list[str]) -> dict[str, Any]:
    with PeakMemory() as memory:
        start = time.perf_counter()
        result = fit().result_
        seconds = time.perf_counter() - start
    chosen = set(result.selected)
    return {
        "seconds": round(seconds, 2),
        "megabytes": round(memory.peak),
        "found": len(chosen & set(modifiers)),
        "false": len(chosen - set(modifiers)),
        "p_values": result.table["p_value"].tolist(),
    }


def fit_rows(n: int, d: int, jobs: int, seed: int) -> dict[str, Any]:
    if d > 30:  # unrelated columns beside the paper's, of which every one would go with the treatment
        table = simulate(KIND, n, d, seed)
        X, y, treatment, modifiers = table.X, table.y, table.treatment, table.modifiers
    else:
        data = make_modifiers(KIND, n_samples=n, n_features=d, random_state=seed)
        X, y, treatment, modifiers = data.X, data.y, data.treatment, data.modifiers
        del data  # potential outcomes and scores are no part of a user's table
    selector = ModifierSelector(random_state=seed, n_jobs=jobs)
    return _fit(lambda: selector.fit(X, y, treatment=treatment), modifiers)


def parquet_file(folder: Path, n: int, d: int, seed: int) -> Path:
    """A Parquet file of simulated rows, written in chunks."""
    import pyarrow
    from pyarrow import parquet

    path = folder / f"{KIND}-{n}-{d}-{seed}.parquet"
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    writer, temporary = None, path.with_suffix(".part")
    for k, start in enumerate(range(0, n, CHUNK)):
        data = make_modifiers(KIND, n_samples=min(CHUNK, n - start), n_features=d, random_state=[seed, k])
        frame = data.X.assign(treatment=data.treatment, outcome=data.y)
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
        writer = parquet.ParquetWriter(temporary, table.schema) if writer is None else writer
        writer.write_table(table, row_group_size=CHUNK // 25)
    assert writer is not None
    writer.close()
    temporary.rename(path)
    return path


def fit_stream(path: Path, d: int, jobs: int, seed: int, train_rows: int = 200_000) -> dict[str, Any]:
    names = [f"X{j}" for j in range(1, d + 1)]
    passes: list[float] = []
    explained: list[float] = []

    def note(done: int, total: int) -> None:
        if total > 10_000:  # rows, not features
            passes.append(time.perf_counter())
        elif passes:  # features are counted again when they are explained
            explained.append(time.perf_counter())

    selector = ModifierSelector(random_state=seed, n_jobs=jobs, progress=note, max_train_rows=train_rows)
    source = open_files(str(path), names, "outcome", "treatment")
    found = _fit(lambda: selector.fit(source), names[:5])
    if not passes:
        return found
    parts = {"pass_seconds": passes[-1] - passes[0], "explain_seconds": explained[-1] - explained[0]}
    return {**found, **{name: round(seconds, 2) for name, seconds in parts.items()}}


def fit_dask(path: Path, d: int, workers: int, seed: int, kill: bool) -> dict[str, Any]:
    import dask.dataframe

    from modifind.engine.dask import connect

    names = [f"X{j}" for j in range(1, d + 1)]
    with connect(None, workers) as client:
        frame = dask.dataframe.read_parquet(path, split_row_groups=1)
        victims = list(client.run(os.getpid).values())[:1] if kill else []

        def note(done: int, total: int) -> None:
            if total > 10_000 and 0 < done < total and victims:
                os.kill(victims.pop(), signal.SIGKILL)

        selector = ModifierSelector(random_state=seed, n_jobs=workers, progress=note)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            found = _fit(lambda: selector.fit(frame[names], frame["outcome"], treatment=frame["treatment"]), names[:5])
        assert not victims
    return {**found, "lost": sum("lost" in str(w.message) for w in caught), "partitions": frame.npartitions}


def published_sums(n: int, d: int, seed: int) -> dict[str, Any]:
    """One evaluation of the paper's statistic by its published sums, times those that a run makes."""
    data = make_modifiers(KIND, n_samples=n, n_features=d, random_state=seed)
    statistic = WCMMD("rff", "horvitz_thompson", weight_cap=None, accelerate=False)
    prepared = statistic.for_rows(data.y, data.treatment, np.random.SeedSequence(seed))
    column, repeats = data.X["X1"].to_numpy(), 3
    start = time.perf_counter()
    for _ in range(repeats):
        prepared.importance(column, data.propensity, bandwidth=1.0)
    return {"seconds": (time.perf_counter() - start) / repeats * d * (PAPER_RESAMPLES + 1)}


def one_statistic(estimator: str, n: int, seed: int) -> dict[str, Any]:
    data = make_modifiers(KIND, n_samples=n, n_features=5, random_state=seed)
    column = data.X["X1"].to_numpy()
    repeats = 20 if estimator == "spectral" else 1
    with PeakMemory() as memory:
        start = time.perf_counter()
        for _ in range(repeats):
            value, _ = wcmmd_importance(
                column, data.y, data.treatment, data.propensity, estimator=estimator, random_state=seed
            )
        seconds = (time.perf_counter() - start) / repeats
    return {"seconds": seconds, "megabytes": round(memory.peak), "importance": value}


def traffic(n: int, d: int, seed: int) -> dict[str, Any]:
    """Bytes that a cluster moves: the plan to each worker, the sums of each partition, the sample."""
    from modifind.data.sources import engine

    data = make_modifiers(KIND, n_samples=n, n_features=d, random_state=seed)
    sent: dict[str, Any] = {}
    original = engine.LocalPieces.sums

    def watched(self: Any, plan: Any, n_rows: int, advance: Any) -> Any:
        total = original(self, plan, n_rows, advance)
        sent.update(plan=len(pickle.dumps(plan)), sums=len(pickle.dumps(total)))
        return total

    engine.LocalPieces.sums = watched  # type: ignore[method-assign]
    ModifierSelector(random_state=seed, max_train_rows=n // 2).fit(data.X, data.y, treatment=data.treatment)
    return sent


def slope(points: list[tuple[float, float]]) -> float:
    """Slope of log time on log n."""
    x, y = np.log(np.array(points, dtype=float)).T
    return float(np.polyfit(x, y, 1)[0])


def show(found: dict[str, dict[str, Any]], plot: Path | None) -> None:
    curves: dict[str, list[tuple[int, float]]] = {}
    print("\n| measurement | time (s) | peak memory (MB) | modifiers found, false |\n|---|---|---|---|")
    for name, own in found.items():
        if "found" in own:
            print(f"| {name} | {own['seconds']:.1f} | {own['megabytes']} | {own['found']} of 5, {own['false']} |")
            kind, _, size = name.partition(" ")
            curves.setdefault(kind, []).append((int(size), own["seconds"]))
            if "pass_seconds" in own:
                curves.setdefault(f"{kind}-pass", []).append((int(size), own["pass_seconds"]))
        elif name.startswith("paper"):
            curves.setdefault("paper", []).append((int(name.split()[1]), own["seconds"]))
    print("\n| slope of log time on log size | from | to | slope |\n|---|---|---|---|")
    for kind, points in curves.items():
        kept = sorted(p for p in points if p[0] >= 100_000 or kind in ("paper",) or kind.startswith("features"))
        if len(kept) > 1:
            print(f"| {kind} | {kept[0][0]} | {kept[-1][0]} | {slope(kept):.2f} |")
    if "paper" in curves:
        points = sorted(curves["paper"])
        power, last = slope(points[-3:]), points[-1]
        for n in (10_000, 100_000, 1_000_000):
            seconds = last[1] * (n / last[0]) ** power
            print(f"paper's sums at n = {n}: {seconds:.3g} s = {seconds / 86400:.3g} days (extrapolated)")
    ratios = {name: found[f"spectral {name}"] for name in ("spectral", "rff", "exact") if f"spectral {name}" in found}
    for name in ("rff", "exact"):
        if name in ratios and "spectral" in ratios:
            apart = abs(ratios[name]["importance"] / ratios["exact"]["importance"] - 1) if "exact" in ratios else 0.0
            ratio = ratios[name]["seconds"] / ratios["spectral"]["seconds"]
            print(f"one statistic at n = 10^4: {name} takes {ratio:.0f} times as long as spectral; error {apart:.1e}")
    _estimate(found)
    if plot is not None and curves:
        _plot(curves, plot)


def _estimate(found: dict[str, dict[str, Any]]) -> None:
    """Time and bytes of a billion rows, from the cost per row that was measured."""
    single = {int(name.split()[1]): own for name, own in found.items() if name.startswith("stream-1 ")}
    single = {size: own for size, own in single.items() if "pass_seconds" in own}
    if not single or "traffic" not in found:
        return
    largest = max(single)
    own, sent = single[largest], found["traffic"]
    per_row = own["pass_seconds"] / largest
    training = own["seconds"] - own["pass_seconds"] - own.get("explain_seconds", 0.0)
    partitions = TARGET_ROWS // 1_000_000
    print(
        f"10^9 rows on {TARGET_WORKERS} workers: {per_row * 1e6:.0f} microseconds of one core per row, so "
        f"{per_row * TARGET_ROWS / TARGET_WORKERS / 60:.0f} min for the pass, after {training / 60:.0f} min of fitting "
        "on one core and a look at all rows; "
        f"moved: plan {sent['plan'] / 1e6:.1f} MB x {TARGET_WORKERS} workers, sums {sent['sums'] / 1e6:.1f} MB x "
        f"{partitions} partitions of 10^6 rows = {sent['sums'] * partitions / 1e9:.1f} GB"
    )


def _plot(curves: dict[str, list[tuple[int, float]]], path: Path) -> None:
    from matplotlib.figure import Figure

    titles = {
        "rows-1": "in memory, 1 worker",
        "rows-2": "in memory, 2 workers",
        "stream-2": "Parquet in batches, 2 workers",
        "paper": "published sums, 1 core",
    }
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    styles = zip(("o-", "s-", "D-", "^-"), ("#0072b2", "#009e73", "#d55e00", "#555555"), strict=True)
    for (kind, title), (marker, colour) in zip(titles.items(), styles, strict=True):
        points = sorted(curves.get(kind, []))
        if points:
            axes.loglog(*zip(*points, strict=True), marker, color=colour, label=title)
        if kind == "paper" and len(points) > 2:
            power, (n, seconds) = slope(points[-3:]), points[-1]
            axes.loglog(
                [n, 1e6], [seconds, seconds * (1e6 / n) ** power], ":", color=colour, label="the same, extrapolated"
            )
    axes.set(xlabel="rows (30 features)", ylabel="seconds", title="Time of a whole run")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    studies = ("rows", "stream", "features", "dask", "paper", "spectral", "traffic", "show")
    parser.add_argument("study", nargs="+", choices=studies)
    parser.add_argument("--n", type=int, nargs="+", help="rows, instead of the study's own")
    parser.add_argument("--d", type=int, nargs="+", help="features, instead of the study's own")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--train-rows", type=int, default=200_000, help="rows that models see in the stream study")
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("scaling-results"), help="folder of measurements and data")
    parser.add_argument("--plot", type=Path, help="where `show` draws the plot")
    args = parser.parse_args()
    d = 30 if args.d is None or "features" in args.study else args.d[0]
    usual = d == 30 and args.seed == 1000
    results = Results(args.out / ("scaling.json" if usual else f"scaling-{d}-{args.seed}.json"))
    for study in args.study:
        if study == "rows":
            for n in args.n or ROWS:
                for jobs in args.workers:
                    results.measure(f"rows-{jobs} {n}", fit_rows, n, d, jobs, args.seed)
        elif study == "stream":
            for n in args.n or STREAMED:
                path = parquet_file(args.out, n, d, args.seed)
                for jobs in args.workers:
                    prefix = "stream" if args.train_rows == 200_000 else f"stream/{args.train_rows}"
                    results.measure(f"{prefix}-{jobs} {n}", fit_stream, path, d, jobs, args.seed, args.train_rows)
        elif study == "features":
            for size in args.d or FEATURES:
                n = (args.n or [2_000])[0]
                results.measure(f"features/{n}-2 {size}", fit_rows, n, size, 2, args.seed)
        elif study == "dask":
            n = (args.n or [1_000_000])[0]
            path = parquet_file(args.out, n, d, args.seed)
            one = results.measure(f"stream-1 {n}", fit_stream, path, d, 1, args.seed)
            for name, kill in (("dask-2", False), ("dask-killed", True)):
                own = results.measure(f"{name} {n}", fit_dask, path, d, 2, args.seed, kill)
                apart = np.abs(np.array(own["p_values"]) - np.array(one["p_values"])).max()
                print(f"{name}: largest difference of p-values from one process {apart:.1e}; warnings {own['lost']}")
        elif study == "paper":
            for n in args.n or PAPER_ROWS:
                results.measure(f"paper {n}", published_sums, n, d, args.seed)
        elif study == "spectral":
            for estimator in ("spectral", "rff", "exact"):
                results.measure(f"spectral {estimator}", one_statistic, estimator, 10_000, args.seed)
        elif study == "traffic":
            results.measure("traffic", traffic, 40_000, d, args.seed)
        else:
            show(results.found, args.plot)


if __name__ == "__main__":
    main()
