"""Speed of one statistic and of whole runs, as ratios within one run, with the peak memory of the runs.

    python benchmarks/speed.py            # all parts
    python benchmarks/speed.py --part statistic

``--device cuda`` trains the autoencoder on a GPU.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from modifind.datasets import make_modifiers
from modifind.kernels import median_bandwidth
from modifind.statistics import WCMMD, wcmmd_importance

PAPER_SECONDS = 10_360  # the paper's run time at n=2000, d=30, B=100

WHOLE_RUN = """
import time, warnings
warnings.simplefilter("ignore")
from modifind import ConditionalRandomizationTest, ModifierSelector, WCMMD
from modifind.datasets import make_modifiers
from modifind.samplers import CVAESampler, GaussianSampler
data = make_modifiers("LinMean", n_samples=2000, random_state=0)
selector = ModifierSelector(
    sampler={sampler}, n_resamples=100, test=ConditionalRandomizationTest(stop_after=None), n_jobs=2, random_state=0
)
start = time.perf_counter()
selector.fit(data.X, data.y, treatment=data.treatment)
print(time.perf_counter() - start)
"""


def best_time(call: Callable[[], object], repeats: int) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def statistic(n: int, repeats: int) -> None:
    data = make_modifiers("LinMean", n_samples=n, random_state=0)
    x, y, a, e = data.X["X1"].to_numpy(), data.y, data.treatment, data.propensity
    widths = {"x_bandwidth": median_bandwidth(x), "y_bandwidth": median_bandwidth(y)}
    print(f"\nOne statistic, n={n}, one thread, median; 'in a test': the outcome's map is ready, as for resamples")
    print("| weighting | estimator | one call (ms) | in a test (ms) | relative error | spectral is faster by |")
    print("|" + "---|" * 6)
    for weighting in ("hajek", "horvitz_thompson"):
        reference, times = None, {}
        for estimator, count in (("exact", repeats), ("rff", repeats), ("spectral", 50 * repeats)):

            def call(estimator: str = estimator, weighting: str = weighting) -> tuple[float, object]:
                return wcmmd_importance(x, y, a, e, estimator=estimator, weighting=weighting, random_state=0, **widths)

            prepared = WCMMD(estimator, weighting, accelerate=estimator == "spectral").prepare(
                y, a, np.random.SeedSequence(0)
            )

            def tested(prepared: object = prepared) -> float:
                return prepared.importance(x, e, bandwidth=widths["x_bandwidth"])  # type: ignore[attr-defined]

            value = call()[0]
            reference = value if reference is None else reference
            times[estimator] = (best_time(call, count), best_time(tested, count), abs(value - reference) / reference)
        fast = times["spectral"]
        for estimator, (once, inside, error) in times.items():
            ratio = "" if estimator == "spectral" else f"{once / fast[0]:.0f} and {inside / fast[1]:.0f} times"
            print(f"| {weighting} | {estimator} | {1e3 * once:.2f} | {1e3 * inside:.2f} | {error:.1e} | {ratio} |")


def _resident(session: int) -> int:
    """Resident bytes of all processes of a session."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == session:
                    total += int((entry / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            except (OSError, ValueError):
                continue
    return total


def whole_run(name: str, sampler: str) -> None:
    code = WHOLE_RUN.format(sampler=sampler)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _resident(process.pid))
        time.sleep(0.05)
    assert process.stdout is not None
    seconds = float(process.stdout.read())
    print(f"| {name} | {seconds:.1f} | {PAPER_SECONDS / seconds:.0f} times | {peak / 2**20:.0f} MB |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("statistic", "runs", "all"), default="all")
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if args.part in ("statistic", "all"):
        with threadpool_limits(1):
            statistic(args.n, args.repeats)
    if args.part in ("runs", "all"):
        print("\nWhole run, wcmmd spectral, n=2000, d=30, B=100, no early stop, 2 processes")
        print("| sampler | seconds | against the paper's 10,360 s | peak memory, all processes |\n|---|---|---|---|")
        whole_run("gaussian", "GaussianSampler()")
        whole_run(f"cvae, trained on {args.device}", f"CVAESampler(device={args.device!r})")


if __name__ == "__main__":
    main()
