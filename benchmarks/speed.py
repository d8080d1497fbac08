"""Speed of one statistic and of whole runs, as ratios within one run, with the peak memory of the runs.

    python benchmarks/speed.py            # all parts
    python benchmarks/speed.py --part statistic
    python benchmarks/speed.py --part fit # CPU seconds of each part of a default fit

``--device cuda`` trains the autoencoder on a GPU.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from designs import POWER
from modifind import ModifierSelector
from modifind.datasets import make_modifiers
from modifind.engine import features as analysis
from modifind.engine import fitting
from modifind.engine import preparation as models
from modifind.nuisance.conditional import AutoSampler
from modifind.nuisance.outcome import AdditiveLearner, BoostingLearner
from modifind.statistics import WCMMD, EffectLikelihood, wcmmd_importance
from modifind.statistics.wcmmd import median_bandwidth

PAPER_SECONDS = 10_360  # the paper's run time at n=2000, d=30, B=100

WHOLE_RUN = """
import time, warnings
warnings.simplefilter("ignore")
from modifind import ConditionalRandomizationTest, ModifierSelector
from modifind.datasets import make_modifiers
from modifind.nuisance.conditional import CVAESampler, GaussianSampler
data = make_modifiers({kind!r}, n_samples={n}, random_state=0)
selector = ModifierSelector({settings}, n_jobs=2, random_state=0)
start = time.perf_counter()
selector.fit(data.X, data.y, treatment=data.treatment)
print(time.perf_counter() - start)
"""
EVERY_RESAMPLE = "test=ConditionalRandomizationTest(stop_after=None)"


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

            prepared = WCMMD(estimator, weighting, accelerate=estimator == "spectral").for_rows(
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
                    total += int((entry / "statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")
            except (OSError, ValueError):
                continue
    return total


def whole_run(settings: str, *, n: int = 2000, kind: str = "LinMean") -> tuple[float, float]:
    """Seconds of one fit in a fresh process, and the peak memory of it and its workers in MB."""
    code = WHOLE_RUN.format(settings=settings, n=n, kind=kind)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _resident(process.pid))
        time.sleep(0.05)
    assert process.stdout is not None
    return float(process.stdout.read()), peak / 2**20


def wcmmd_runs(device: str) -> None:
    print("\nWhole run, wcmmd spectral, n=2000, d=30, B=100, no early stop, 2 processes")
    print("| sampler | seconds | against the paper's 10,360 s | peak memory, all processes |\n|---|---|---|---|")
    for name, sampler in (("gaussian", "GaussianSampler()"), ("cvae", f"CVAESampler(device={device!r})")):
        seconds, peak = whole_run(f"'wcmmd', sampler={sampler}, n_resamples=100, {EVERY_RESAMPLE}")
        print(f"| {name} | {seconds:.1f} | {PAPER_SECONDS / seconds:.0f} times | {peak:.0f} MB |", flush=True)


def effect_runs(sizes: list[int]) -> None:
    print("\nWhole run, effect_likelihood, d=30, 2 processes, LinVar")
    print("| n | seconds | ms per row | peak memory, all processes |\n|---|---|---|---|")
    for n in sizes:
        seconds, peak = whole_run("'effect_likelihood'", n=n, kind="LinVar")
        print(f"| {n} | {seconds:.1f} | {1e3 * seconds / n:.2f} | {peak:.0f} MB |", flush=True)
    print("\nAgainst wcmmd, n=2000, d=30, auto sampler, 2 processes\n| test | seconds |\n|---|---|")
    for name, settings in (
        ("effect_likelihood", "'effect_likelihood'"),
        ("wcmmd, B=1000", f"'wcmmd', n_resamples=1000, {EVERY_RESAMPLE}"),
        ("wcmmd, B=1000, clearly null features stop early", "'wcmmd', n_resamples=1000"),
    ):
        print(f"| {name} | {whole_run(settings)[0]:.1f} |", flush=True)


def fit_parts(n: int, seeds: Sequence[int]) -> None:
    """CPU seconds of each part of a default fit, one process and thread; a part within another counts once."""
    own: Counter[str] = Counter()
    inside = [0.0]  # seconds of parts that have ended, for each part that has not

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **settings: Any) -> Any:
            start = time.process_time()
            inside.append(0.0)
            try:
                return function(*args, **settings)
            finally:
                whole = time.process_time() - start
                own[part] += whole - inside.pop()
                inside[-1] += whole

        return call

    places: list[tuple[str, Any, str]] = [
        ("propensity scores", models, "fit_scores"),
        ("outcome models: additive and linear", AdditiveLearner, "fit"),
        ("outcome models: trees", BoostingLearner, "fit"),
        ("outcome models: the rest", EffectLikelihood, "prepare"),
        ("distributions of features given the others", AutoSampler, "fit"),
        ("distributions of features given the others", analysis, "learn"),
        ("statistics and p-values", analysis.Analysis, "examine"),
        ("explanations: curves, densities, importance", analysis.Explainer, "views"),
        ("explanations: bounds", analysis.Explainer, "bounds"),
        ("explanations: the whole table", fitting.Overview, "of"),
        ("reading, checks, folds, the result", ModifierSelector, "fit"),
    ]
    for part, owner, name in places:
        setattr(owner, name, timed(part, getattr(owner, name)))
    found = []
    for explain in (False, True):
        own.clear()
        totals = {}
        for kind in POWER:
            start = time.process_time()
            for seed in seeds:
                data = make_modifiers(kind, n_samples=n, random_state=seed)
                selector = ModifierSelector(explain=explain, random_state=0)
                selector.fit(data.X, data.y, treatment=data.treatment)
            totals[kind] = (time.process_time() - start) / len(seeds)
        found.append((totals, {part: own[part] / len(seeds) / len(POWER) for part in own}))
    print(
        f"\nA default fit, n={n}, d=30, one process and thread, CPU seconds, mean of {len(seeds)} tables of each kind"
    )
    print("| part | test alone (`explain=False`) | with explanations |\n|---|---|---|")
    names = dict.fromkeys([place[0] for place in places] + list(POWER))
    for name in names:
        cells = [totals.get(name, parts.get(name, 0.0)) for totals, parts in found]
        print(f"| {f'whole fit, {name}' if name in POWER else name} | {cells[0]:.2f} | {cells[1]:.2f} |")
    means = [float(np.mean(list(totals.values()))) for totals, _ in found]
    print(f"| **whole fit, mean** | **{means[0]:.2f}** | **{means[1]:.2f}** |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("statistic", "runs", "effect", "fit", "all"), default="all")
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000], help="rows of the effect part")
    args = parser.parse_args()
    if args.part in ("statistic", "all"):
        with threadpool_limits(1):
            statistic(args.n, args.repeats)
    if args.part in ("runs", "all"):
        wcmmd_runs(args.device)
    if args.part in ("effect", "all"):
        effect_runs(args.sizes)
    if args.part in ("fit", "all"):
        warnings.simplefilter("ignore")
        with threadpool_limits(1):
            fit_parts(1000, range(args.repeats))


if __name__ == "__main__":
    main()
