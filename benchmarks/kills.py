"""Kill a checkpointed run again and again: does it continue, and is the result the same to the last byte?

    python benchmarks/kills.py --kills 100                      # the run, by SIGKILL, SIGINT or SIGTERM
    python benchmarks/kills.py --workers 20 --dask-workers 10   # its workers
    python benchmarks/kills.py --scheduler-restarts 10          # the scheduler of its Dask cluster
    python benchmarks/kills.py --pieces stream --kills 30 --signals SIGINT --workers 20   # of a table in pieces
    python benchmarks/kills.py --pieces dask --kills 30 --dask-workers 20                 # on a local cluster

One run without a checkpoint gives the time it takes and the bytes to be had. Then the same command runs with a
checkpoint, and its main process gets one of the signals after a random time between nothing and that of the whole run,
until it comes to an end; then a new checkpoint is begun, until there have been so many kills. What is still running
ten seconds after the main process has ended counts as left behind. With `--workers` runs are left to end, and in each
one worker is killed at a random moment. With `--scheduler-restarts` a run works on a cluster of one scheduler and two
workers, whose scheduler is killed at a random moment; a second later a scheduler and workers are started there again.
The run must end with the same result, or with one line that says that the cluster was lost. With `--pieces` the
table is in files of which models see a quarter of the rows, and the rest is added up by passes over them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

SIGNALS = {one.name: one for one in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)}
STOPPED = (
    *(-number for number in SIGNALS.values()),
    *(128 + number for number in SIGNALS.values()),
)  # exit codes of a run that was told to
WORKERS = {"joblib": ("popen_loky", []), "dask": ("multiprocessing.spawn", ["--dask"])}  # what their commands have
LONGEST = 600.0  # seconds of a run that does not hang
PARTS = 20  # files of a table in pieces
STATISTICS = {"effect_likelihood": ["--learner", "splines"], "wcmmd": ["--statistic", "wcmmd", "--resamples", "1000"]}


@dataclass
class Tally:
    """What the kills came to."""

    kills: int = 0
    runs: int = 0  # that came to an end
    same: int = 0  # of those, the result has the same bytes
    at_work: int = 0  # kills after the first feature was saved and before the last
    lost: int = 0  # features that were on file before a start and not after it
    damaged: int = 0  # files that are no JSON
    left: int = 0  # processes that outlived the run by ten seconds
    warned: int = 0  # of the runs with a dead worker, those with one line about it
    told: int = 0  # runs without a result that say why in one line
    hung: int = 0  # runs that had to be ended
    failed: list[str] = field(default_factory=list)


def command(data: list[str], out: Path, statistic: str, jobs: int, checkpoint: Path | None = None) -> list[str]:
    start = "import sys; from modifind.cli.app import main; sys.argv[0] = 'modifind'; main()"
    line = [sys.executable, "-c", start, "select", *data, "--treatment", "treatment", "--outcome", "outcome"]
    line += ["--jobs", str(jobs), "--sampler", "gaussian", "--out", str(out), *STATISTICS[statistic]]
    return line if checkpoint is None else [*line, "--checkpoint", str(checkpoint)]


def written(folder: Path, rows: int, features: int, seed: int, pieces: str = "") -> list[str]:
    """Write a table, whole or in parts; what a command says of it."""
    from modifind.datasets import make_modifiers

    made = make_modifiers("LinMean", n_samples=rows, n_features=features, random_state=seed)
    table = made.X.assign(treatment=made.treatment, outcome=made.y)
    if not pieces:
        table.to_csv(folder / "data.csv", index=False)
        return [str(folder / "data.csv")]
    for k in range(PARTS):
        table[k * rows // PARTS : (k + 1) * rows // PARTS].to_csv(folder / f"part-{k:02d}.csv", index=False)
    return [str(folder / "part-*.csv"), f"--{pieces}", "--train-rows", str(rows // 4)]


def session(leader: int) -> dict[int, str]:
    """Living processes of a session, by number, and their commands."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, own = (path / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:4]
            if int(own) == leader and state not in "ZX":
                found[int(path.name)] = (path / "cmdline").read_text(encoding="utf-8")
        except OSError:
            continue
    return found


def run(line: list[str], seconds: float | None = None, end: signal.Signals = signal.SIGKILL) -> tuple[int, str, int]:
    """Run a command, whose main process gets a signal after a time; exit code, complaints, processes left behind."""
    process = subprocess.Popen(
        line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        _, complaint = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, end)
        process.wait()
        _, complaint = process.communicate()
    limit = time.monotonic() + 10
    while (left := session(process.pid)) and time.monotonic() < limit:
        time.sleep(0.05)
    for number in left:
        os.kill(number, signal.SIGKILL)
    return process.returncode, complaint, len(left)


def run_with_dead_worker(line: list[str], seconds: float, mark: str) -> tuple[int, str, bool]:
    """Run a command, one of whose workers is killed after a time; whether there was one."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as complaints:
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=complaints, start_new_session=True)
        time.sleep(seconds)
        killed = False
        while process.poll() is None and not killed:
            workers = [number for number, command in session(process.pid).items() if mark in command]
            if workers:
                os.kill(workers[0], signal.SIGKILL)
                killed = True
            time.sleep(0.02)
        process.wait()
        complaints.seek(0)
        return process.returncode, complaints.read(), killed


def without_warnings(result: bytes) -> dict[str, object]:
    """A result but for its warnings, among which is that a worker died."""
    return {name: part for name, part in json.loads(result).items() if name != "warnings"}


def saved(folder: Path) -> set[str]:
    """Files of features, or of the sums of a table in pieces."""
    return {path.name for kind in ("feature", "sums") for path in folder.glob(f"{kind}-*.json")}


def kill_again_and_again(
    folder: Path,
    kills: int,
    *,
    statistic: str,
    signals: list[str],
    rows: int,
    features: int,
    jobs: int,
    seed: int,
    pieces: str,
) -> tuple[Tally, float]:
    """Kill so often; what came of it, and the seconds of a run that is left alone."""
    data, out = written(folder, rows, features, seed, pieces), folder / "result.json"
    run(command(data, out, statistic, jobs))  # the first start reads from the disk what later ones find in memory
    start = time.monotonic()
    code, complaint, _ = run(command(data, out, statistic, jobs))
    whole = time.monotonic() - start
    if code:
        raise RuntimeError(complaint)
    wanted = out.read_bytes()
    rng, tally = np.random.default_rng(seed), Tally()
    while tally.kills < kills:
        out.unlink(missing_ok=True)
        checkpoint = folder / f"checkpoint-{tally.runs}"
        line = command(data, out, statistic, jobs, checkpoint)
        stopped = True
        while stopped:
            before, end = saved(checkpoint), SIGNALS[str(rng.choice(signals))]
            # The last run of all is left to end.
            code, complaint, left = run(line, rng.uniform(0.0, whole) if tally.kills < kills else None, end)
            after = saved(checkpoint)
            stopped = code in STOPPED
            tally.left += left
            tally.lost += len(before - after)
            for name in after:
                try:
                    json.loads((checkpoint / name).read_text(encoding="utf-8"))
                except ValueError:
                    tally.damaged += 1
            if stopped:
                tally.kills += 1
                tally.at_work += 0 < len(after) < features  # sums are one file
        tally.runs += 1
        if code:
            tally.failed.append(complaint.strip())
        else:
            tally.same += out.read_bytes() == wanted
    return tally, whole


def kill_workers(
    folder: Path, kills: int, kind: str, *, rows: int, features: int, jobs: int, seed: int, pieces: str
) -> Tally:
    """Kill one worker in each of so many runs."""
    mark, options = WORKERS[kind]
    if pieces:
        pieces, options = ("dask" if kind == "dask" else "stream"), []
    data, out = written(folder, rows, features, seed, pieces), folder / "result.json"
    line = [*command(data, out, "effect_likelihood", jobs), *options]
    run(line)
    start = time.monotonic()
    code, complaint, _ = run(line)
    whole = time.monotonic() - start
    if code:
        raise RuntimeError(complaint)
    wanted, rng, tally = out.read_bytes(), np.random.default_rng(seed), Tally()
    while tally.kills < kills:
        out.unlink(missing_ok=True)
        code, complaint, killed = run_with_dead_worker(line, rng.uniform(0.0, whole), mark)
        tally.runs += 1
        tally.kills += killed
        if code:
            tally.failed.append(complaint.strip())
            continue
        tally.same += killed and without_warnings(out.read_bytes()) == without_warnings(wanted)
        tally.warned += killed and sum("worker" in told for told in complaint.splitlines()) <= 1
    return tally


class Cluster:
    """A Dask scheduler and two workers, each a process of its own."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self._start("scheduler", "--host", "127.0.0.1", "--port", str(self.port))
        for _ in range(2):
            self._start("worker", self.address, "--nthreads", "1")

    def _start(self, kind: str, *options: str) -> None:
        line = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *options, "--no-dashboard"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes.append(subprocess.Popen(line, **quiet, start_new_session=True))

    def end(self) -> None:
        for process in self.processes:
            for number in session(process.pid):
                os.kill(number, signal.SIGKILL)
            process.wait()
        self.processes = []


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster that is there, and is ended."""
    from distributed import Client

    own = Cluster()
    try:
        own.start()
        with Client(own.address, timeout="120s") as client:
            client.wait_for_workers(2, timeout=120)
        yield own
    finally:
        own.end()


def restart_schedulers(folder: Path, restarts: int, *, rows: int, features: int, jobs: int, seed: int) -> Tally:
    """Restart the scheduler in each of so many runs."""
    out, (data, _, *train_rows) = folder / "result.json", written(folder, rows, features, seed, "dask")
    line = [*command([data], out, "effect_likelihood", jobs), *train_rows, "--no-explain", "--dask"]
    with cluster() as own:
        start = time.monotonic()
        code, complaint, _ = run([*line, own.address])
        whole = time.monotonic() - start
    if code:
        raise RuntimeError(complaint)
    wanted, rng, tally = out.read_bytes(), np.random.default_rng(seed), Tally()
    for _ in range(restarts):
        out.unlink(missing_ok=True)
        with cluster() as own, tempfile.TemporaryFile("w+", encoding="utf-8") as complaints:
            process = subprocess.Popen(
                [*line, own.address], stdout=subprocess.DEVNULL, stderr=complaints, start_new_session=True
            )
            time.sleep(rng.uniform(0.0, whole))
            tally.kills += process.poll() is None
            own.processes[0].kill()
            time.sleep(1.0)
            own.start()
            try:
                process.wait(LONGEST)
            except subprocess.TimeoutExpired:
                tally.hung += 1
                process.kill()
                process.wait()
            time.sleep(1.0)
            left = session(process.pid)
            for number in left:
                os.kill(number, signal.SIGKILL)
            complaints.seek(0)
            said = complaints.read().strip().splitlines()
        tally.runs += 1
        tally.left += len(left)
        if not process.returncode:
            tally.same += without_warnings(out.read_bytes()) == without_warnings(wanted)
        elif process.returncode == 2 and len(said) == 1 and said[0].startswith("modifind: error: "):
            tally.told += 1
        else:
            tally.failed.append("\n".join(said))
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=0, help="of each statistic's runs")
    parser.add_argument("--workers", type=int, default=0, help="kills of joblib's workers")
    parser.add_argument("--dask-workers", type=int, default=0, help="kills of Dask's workers")
    parser.add_argument("--scheduler-restarts", type=int, default=0, help="restarts of a Dask scheduler")
    parser.add_argument("--signals", nargs="+", default=list(SIGNALS), choices=list(SIGNALS))
    parser.add_argument("--pieces", default="", choices=["stream", "dask"], help="where a table in pieces is worked on")
    parser.add_argument("--statistics", nargs="+", default=list(STATISTICS), choices=list(STATISTICS))
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--features", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    size = {name: getattr(options, name) for name in ("rows", "features", "jobs", "seed")}
    given = size | {"pieces": options.pieces, "rows": max(options.rows, 2000 if options.pieces else 0)}
    for kind, kills in (("joblib", options.workers), ("dask", options.dask_workers)):
        if kills:
            with tempfile.TemporaryDirectory() as folder:
                tally = kill_workers(Path(folder), kills, kind, **given)
            told = (
                f"{tally.same} with the same result but for its warnings, {tally.warned} with at most one line about it"
            )
            print(
                f"{kind}: {tally.kills} workers killed in {tally.runs} runs, {told}, {len(tally.failed)} failed",
                flush=True,
            )
            for complaint in tally.failed:
                print(complaint)
    if options.scheduler_restarts:
        with tempfile.TemporaryDirectory() as folder:
            longer = size | {"rows": max(options.rows, 2000)}
            tally = restart_schedulers(Path(folder), options.scheduler_restarts, **longer)
        told = f"{tally.same} with the same result but for its warnings, {tally.told} with one line that says so"
        ended = f"{tally.hung} hung, {tally.left} processes left running, {len(tally.failed)} failed"
        print(f"dask: scheduler restarted during {tally.kills} of {tally.runs} runs, {told}, {ended}", flush=True)
        for complaint in tally.failed:
            print(complaint)
    if not options.kills:
        return
    heading = ("statistic", "seconds of a whole run", "kills", "of them with some features saved and some not")
    heading += ("runs ended", "with the same bytes", "features lost", "damaged files", "left running", "errors")
    print("| " + " | ".join(heading) + " |")
    print("|" + "---|" * 10)
    for statistic in options.statistics:
        with tempfile.TemporaryDirectory() as folder:
            own = {"statistic": statistic, "signals": options.signals, **given}
            tally, seconds = kill_again_and_again(Path(folder), options.kills, **own)
        cells = (statistic, f"{seconds:.1f}", tally.kills, tally.at_work, tally.runs, tally.same, tally.lost)
        print("| " + " | ".join(map(str, (*cells, tally.damaged, tally.left, len(tally.failed)))) + " |", flush=True)
        for complaint in tally.failed:
            print(complaint)


if __name__ == "__main__":
    main()
