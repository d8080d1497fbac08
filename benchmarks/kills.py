"""Kill a checkpointed run again and again: does it continue, and is the result the same to the last byte?

    python benchmarks/kills.py --kills 100

One run without a checkpoint gives the time it takes and the bytes to be had. Then the same command runs with a
checkpoint, and all its processes are killed by SIGKILL after a random time between nothing and that of the whole run,
until it comes to an end; then a new checkpoint is begun, until there have been so many kills.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

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
    failed: list[str] = field(default_factory=list)


def command(data: Path, out: Path, statistic: str, jobs: int, checkpoint: Path | None = None) -> list[str]:
    start = "import sys; from modifind.cli.app import main; sys.argv[0] = 'modifind'; main()"
    line = [sys.executable, "-c", start, "select", str(data), "--treatment", "treatment", "--outcome", "outcome"]
    line += ["--jobs", str(jobs), "--sampler", "gaussian", "--out", str(out), *STATISTICS[statistic]]
    return line if checkpoint is None else [*line, "--checkpoint", str(checkpoint)]


def run(line: list[str], seconds: float | None = None) -> tuple[int, str]:
    """Run a command, all of it killed after a time; its exit code and what it complained of."""
    process = subprocess.Popen(
        line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        _, complaint = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, complaint = process.communicate()
    return process.returncode, complaint


def saved(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("feature-*.json")}


def kill_again_and_again(
    folder: Path, kills: int, *, statistic: str, rows: int, features: int, jobs: int, seed: int
) -> tuple[Tally, float]:
    """Kill so often; what came of it, and the seconds of a run that is left alone."""
    from modifind.datasets import make_modifiers

    table = make_modifiers("LinMean", n_samples=rows, n_features=features, random_state=seed)
    data, out = folder / "data.csv", folder / "result.json"
    table.X.assign(treatment=table.treatment, outcome=table.y).to_csv(data, index=False)
    run(command(data, out, statistic, jobs))  # the first start reads from the disk what later ones find in memory
    start = time.monotonic()
    code, complaint = run(command(data, out, statistic, jobs))
    whole = time.monotonic() - start
    if code:
        raise RuntimeError(complaint)
    wanted = out.read_bytes()
    rng, tally = np.random.default_rng(seed), Tally()
    while tally.kills < kills:
        out.unlink(missing_ok=True)
        checkpoint = folder / f"checkpoint-{tally.runs}"
        line = command(data, out, statistic, jobs, checkpoint)
        code = -signal.SIGKILL
        while code == -signal.SIGKILL:
            before = saved(checkpoint)
            # The last run of all is left to end.
            code, complaint = run(line, rng.uniform(0.0, whole) if tally.kills < kills else None)
            after = saved(checkpoint)
            tally.lost += len(before - after)
            for name in after:
                try:
                    json.loads((checkpoint / name).read_text())
                except ValueError:
                    tally.damaged += 1
            if code == -signal.SIGKILL:
                tally.kills += 1
                tally.at_work += 0 < len(after) < features
        tally.runs += 1
        if code:
            tally.failed.append(complaint.strip())
        else:
            tally.same += out.read_bytes() == wanted
    return tally, whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="of each statistic's runs")
    parser.add_argument("--statistics", nargs="+", default=list(STATISTICS), choices=list(STATISTICS))
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--features", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    heading = ("statistic", "seconds of a whole run", "kills", "of them with some features saved and some not")
    heading += ("runs ended", "with the same bytes", "features lost", "damaged files", "errors")
    print("| " + " | ".join(heading) + " |")
    print("|---|---|---|---|---|---|---|---|---|")
    for statistic in options.statistics:
        with tempfile.TemporaryDirectory() as folder:
            tally, seconds = kill_again_and_again(
                Path(folder),
                options.kills,
                statistic=statistic,
                rows=options.rows,
                features=options.features,
                jobs=options.jobs,
                seed=options.seed,
            )
        cells = (statistic, f"{seconds:.1f}", tally.kills, tally.at_work, tally.runs, tally.same, tally.lost)
        print("| " + " | ".join(map(str, (*cells, tally.damaged, len(tally.failed)))) + " |", flush=True)
        for complaint in tally.failed:
            print(complaint)


if __name__ == "__main__":
    main()
