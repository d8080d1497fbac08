"""CPU against GPU: the parts that torch computes, then whole runs of the paper's preset, the default and wcmmd.

    python benchmarks/gpu.py                                     # everything; parts of it by --methods and --n
    python benchmarks/gpu.py --methods preset --n 200000         # one row of the table
    python benchmarks/gpu.py --device torch:cpu --n 500 --d 6    # try the script without a GPU

wcmmd has 100 resamples and no early stop, as the preset has. Where a CPU would take hours its figure is extrapolated
and marked *. Above 20,000 rows `--features` features are tested, by default one per process. Above `--full-training`
rows the autoencoders are trained for a few epochs on 20,000 rows at most, and the time taken as that of all rows and of
the epochs that the GPU needed; the tests then draw from the GPU's autoencoders, so that p-values can be compared.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from modifind import ConditionalRandomizationTest, ModifierSelector, PropensityModel
from modifind._torch import open_device
from modifind.data.schema import read_features
from modifind.datasets import make_modifiers
from modifind.engine import fitting
from modifind.engine.checkpoint import UNSAVED
from modifind.nuisance.conditional import CVAESampler
from modifind.nuisance.outcome import NeuralLearner
from modifind.nuisance.propensity.fitted import DeviceProfile
from modifind.nuisance.propensity.scores import EarlyStoppedMLP, FittedPropensity
from modifind.presets import uai2022
from modifind.statistics import WCMMD
from modifind.statistics.wcmmd import median_bandwidth
from modifind.statistics.wcmmd_torch import DeviceWCMMD

METHODS = ("preset", "wcmmd", "default")
MANY_ROWS = 20_000


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


def seed(number: int = 0) -> np.random.SeedSequence:
    return np.random.SeedSequence(number)


def parts(n: int, args: argparse.Namespace) -> None:
    """One line per part: seconds on one CPU thread and on the device, and how far apart the numbers are."""
    data = make_modifiers(args.kind, n_samples=n, n_features=args.d, random_state=0)
    table, few = read_features(data.X), 20 if n > MANY_ROWS else 100
    for name, part in (
        (f"autoencoder training, {args.d} networks, {args.epochs} epochs", training),
        ("neural learner fit (5 networks, 20,000 rows at most)", neural),
        ("propensity network along one feature", profile),
        (f"{few} autoencoder draws of one feature", draws),
        (f"{few} resamples of the spectral statistic", statistic),
    ):
        with threadpool_limits(1):
            found = part(data, table, few, args)
        if found is not None:
            cpu, gpu, apart = found
            print(f"| {name} | {n} | {cpu:.3f} | {gpu:.3f} | {cpu / gpu:.1f} | {apart} |", flush=True)


def training(data: Any, table: Any, few: int, args: argparse.Namespace) -> tuple[float, float, str] | None:
    if table.n_rows > MANY_ROWS:
        return None  # minutes on a CPU; the whole run has it extrapolated
    settings = {"max_epochs": args.epochs}
    seconds, fitted = zip(
        *(
            timed(lambda device=device: CVAESampler(**settings, device=device).fit(table, data.treatment, seed()))
            for device in ("cpu", args.device)
        ),
        strict=True,
    )
    apart = [mean_draw(sampler, 0) for sampler in fitted]
    return (
        *seconds,
        f"{np.abs(apart[0] - apart[1]).max() / table.values[:, 0].std():.0e} sd of the distributions' means",
    )


def mean_draw(sampler: CVAESampler, feature: int) -> np.ndarray:
    return sampler.conditional(feature).draw(np.random.default_rng(0), 20).mean(axis=0)


def neural(data: Any, table: Any, few: int, args: argparse.Namespace) -> tuple[float, float, str]:
    seconds, fitted = zip(
        *(
            timed(lambda device=device: NeuralLearner(device=device).fit(table.design, data.treatment, data.y))
            for device in ("cpu", args.device)
        ),
        strict=True,
    )
    (location, scale), other = (learner.predict(table.design[:5000]) for learner in fitted)
    apart = max(np.abs(location - other[0]).max(), np.abs(scale - other[1]).max()) / data.y.std()
    return *seconds, f"{apart:.0e} sd of the outcome"


def profile(data: Any, table: Any, few: int, args: argparse.Namespace) -> tuple[float, float, str]:
    scores = PropensityModel(EarlyStoppedMLP(epochs=1), cross_fit=False).fit(table, data.treatment, seed=seed())
    scores.profile(0, args.device)
    gpu, fast = timed(lambda: scores.profile(0, args.device))
    cpu, plain = timed(lambda: scores.profile(0))
    return cpu, gpu, f"{np.abs(fast.table / plain.table - 1).max():.0e} relative"


def draws(data: Any, table: Any, few: int, args: argparse.Namespace) -> tuple[float, float, str]:
    fast = CVAESampler(max_epochs=1, device=args.device).fit(table, data.treatment, seed()).conditional(0)
    plain = replace(fast, decoder=replace(fast.decoder, device="cpu"))
    fast.draw(np.random.default_rng(1), 1)
    gpu, found = timed(lambda: fast.draw(np.random.default_rng(0), few))
    cpu, expected = timed(lambda: plain.draw(np.random.default_rng(0), few))
    return cpu, gpu, f"{np.abs(found - expected).max() / expected.std():.0e} sd"


def statistic(data: Any, table: Any, few: int, args: argparse.Namespace) -> tuple[float, float, str]:
    column = table.values[:, 0]
    scores = PropensityModel("auto").fit(table, data.treatment, seed=seed()).profile(0)
    prepared = WCMMD().for_rows(data.y, data.treatment, seed())
    width = median_bandwidth(column)
    columns = np.random.default_rng(0).permuted(np.tile(column, (few, 1)), axis=1)
    on_device, followed = DeviceWCMMD(prepared, args.device, bandwidth=width), DeviceProfile(scores, args.device)
    on_device.importances(columns[:2], followed)
    gpu, (found, left) = timed(lambda: on_device.importances(columns, followed))
    cpu, expected = timed(lambda: np.array([prepared.importance(x, scores(x), bandwidth=width) for x in columns]))
    note = f", {left.sum()} left to numpy" if left.any() else ""
    return cpu, gpu, f"{np.abs(found / expected - 1)[~left].max():.0e} relative{note}"


class PartSelector(ModifierSelector):
    """Tests the first `tested` features only, and notes how long the tests took."""

    tested: int | None = None

    def fit(self, *args: Any, **kwargs: Any) -> PartSelector:
        before, fitting._examined = fitting._examined, self._run
        try:
            super().fit(*args, **kwargs)
        finally:
            fitting._examined = before
        return self

    def _run(self, analysis: Any, *_: Any) -> Any:
        seeds = analysis.seeds
        n_tested = min(self.tested or len(seeds), len(seeds))
        jobs = (delayed(fitting._examine)(analysis, UNSAVED, k, seeds[k]) for k in range(n_tested))
        self.test_seconds_, tested = timed(lambda: Parallel(n_jobs=self.n_jobs)(jobs))
        found = dict(enumerate(tested))
        return found | {k: replace(found[0], outcome=None) for k in range(n_tested, len(seeds))}, False


@dataclass
class Clock:
    """A part of a selector whose fit is timed, or has been done already."""

    part: Any
    done: Any = None
    seconds: float = 0.0

    def fit(self, *given: Any, **settings: Any) -> Any:
        if self.done is None:
            self.seconds, self.done = timed(lambda: self.part.fit(*given, **settings))
        return self.done


class ClockedPropensity(PropensityModel):
    """Propensity scores that are fitted once for both devices; neither computes them faster."""

    clock: Clock

    def fit(self, *given: Any, **settings: Any) -> FittedPropensity:
        return self.clock.fit(*given, **settings)


@dataclass
class ClockedSampler:
    """A sampler whose training is timed."""

    clock: Clock
    condition_on_treatment: bool = False
    fitted: Any = field(default=None)

    def fit(self, *given: Any) -> ClockedSampler:
        self.fitted = self.clock.fit(*given)
        return self

    def rule(self, feature: int) -> Any:
        return self.fitted.rule(feature)


@dataclass
class Run:
    """Seconds of a whole run, and what it found."""

    seconds: float
    result: Any
    tested: int
    extrapolated: bool
    clocks: dict[str, Clock] = field(default_factory=dict)


def make(method: str, device: str) -> ModifierSelector:
    if method == "preset":
        return uai2022(device=device)
    if method == "wcmmd":
        every = ConditionalRandomizationTest(stop_after=None)
        return ModifierSelector("wcmmd", test=every, n_resamples=100, device=device, explain=False)
    return ModifierSelector(device=device, explain=False)


def wake(device: str) -> None:
    """Import everything and open the device, long enough for every worker to be asked."""
    make("preset", device)
    open_device(device, "a worker")
    time.sleep(1.0)


def warm_up(device: str, jobs: int) -> None:
    """Start the workers, which a run shares with later ones."""
    if jobs > 1:
        Parallel(n_jobs=jobs, batch_size=1)(delayed(wake)(device) for _ in range(jobs))


def gpu_run(method: str, data: Any, jobs: int, args: argparse.Namespace) -> Run:
    """Everything on the device that can be."""
    selector = prepared_selector(method, args.device, jobs)
    clocks = {}
    if method == "preset":
        clocks = {"propensity": Clock(selector.propensity), "sampler": Clock(selector.sampler)}
        put_in(selector, clocks)
    warm_up(args.device, jobs)
    seconds, _ = timed(lambda: selector.fit(data.X, data.y, treatment=data.treatment))
    clocks["tests"] = Clock(None, seconds=selector.test_seconds_)
    return Run(seconds, selector.result_, args.d, False, clocks)


def cpu_run(method: str, data: Any, reference: Run, args: argparse.Namespace) -> Run:
    """The same on the CPU; less than all where that would take too long."""
    selector, n, extra = prepared_selector(method, "cpu", args.jobs), len(data.y), 0.0
    short = method == "preset" and n > args.full_training
    if method == "preset":
        threads, epoch = fastest_training(selector.sampler, data, args)
        clocks = {"propensity": reference.clocks["propensity"], "sampler": Clock(selector.sampler)}
        selector.sampler.set_params(n_threads=threads)
        extra = clocks["propensity"].seconds
        if short:
            trained = reference.clocks["sampler"].done
            extra += epoch * mean_epochs(trained)
            clocks["sampler"] = Clock(None, copy.copy(trained).set_params(device="cpu"))
        put_in(selector, clocks)
    if n > MANY_ROWS and method != "default":
        selector.tested = args.features or args.jobs
    warm_up("cpu", args.jobs)
    seconds, _ = timed(lambda: selector.fit(data.X, data.y, treatment=data.treatment))
    tested = min(selector.tested or args.d, args.d)
    rounds = math.ceil(args.d / args.jobs) / math.ceil(tested / args.jobs)
    seconds += extra + (rounds - 1) * selector.test_seconds_
    return Run(seconds, selector.result_, tested, short or tested < args.d)


def prepared_selector(method: str, device: str, jobs: int) -> PartSelector:
    plain = make(method, device).set_params(n_jobs=jobs, random_state=0)
    return PartSelector(**plain.get_params(deep=False))


def put_in(selector: PartSelector, clocks: dict[str, Clock]) -> None:
    scores = ClockedPropensity()
    scores.clock = clocks["propensity"]
    selector.set_params(propensity=scores, sampler=ClockedSampler(clocks["sampler"]))


def epoch_seconds(sampler: CVAESampler, table: Any, treatment: Any, threads: int) -> float:
    """Seconds of one epoch of all networks; steps are of one size, so that some rows tell the time of all."""
    rows = np.random.default_rng(0).permutation(table.n_rows)[:MANY_ROWS]
    some, arms = replace(table, values=table.values[rows]), treatment[rows]
    once, more = (
        timed(lambda k=k: clone(sampler).set_params(max_epochs=k, n_threads=threads).fit(some, arms, seed()))[0]
        for k in (1, 3)
    )
    return (more - once) / 2 * table.n_rows / rows.size


def fastest_training(sampler: CVAESampler, data: Any, args: argparse.Namespace) -> tuple[int, float]:
    """Threads, one or `--threads`, that train faster on the CPU, and the seconds of one epoch."""
    table = read_features(data.X)
    seconds = {k: epoch_seconds(sampler, table, data.treatment, k) for k in {1, args.threads}}
    return min(seconds.items(), key=lambda item: item[1])


def mean_epochs(trained: CVAESampler) -> float:
    """Epochs until a network stopped; finished networks cost nothing."""
    last = np.maximum(trained.best_epoch_, trained.warmup_epochs) + trained.patience
    return float(np.minimum(last, trained.max_epochs).mean())


def compare(method: str, n: int, args: argparse.Namespace) -> None:
    data = make_modifiers(args.kind, n_samples=n, n_features=args.d, random_state=0)
    gpu_jobs = args.jobs if method == "default" else args.gpu_jobs
    gpu = gpu_run(method, data, gpu_jobs, args)
    parts = [f"{name} {clock.seconds:.1f} s" for name, clock in gpu.clocks.items()]
    stack = gpu.result.settings["model"]
    parts += [] if stack is None else [f"stack {stack['stack']}"]
    print(f"{method}, n = {n}, GPU {gpu.seconds:.1f} s: {', '.join(parts)}", file=sys.stderr, flush=True)
    cpu = cpu_run(method, data, gpu, args)
    ours, theirs = (run.result.table.iloc[: cpu.tested] for run in (gpu, cpu))
    p_values = (ours["p_value"] - theirs["p_value"]).abs().max()
    statistics = (ours["statistic"] / theirs["statistic"] - 1).abs().max()
    agree = "same" if (ours["selected"] == theirs["selected"]).all() else "differ"
    if cpu.tested < args.d:  # the adjustment is over all features
        agree = f"{cpu.tested} of {args.d} features compared"
    mark = "*" if cpu.extrapolated else ""
    cells = [f"{cpu.seconds:.1f}{mark} ({args.jobs})", f"{gpu.seconds:.1f} ({gpu_jobs})"]
    cells += [f"{cpu.seconds / gpu.seconds:.1f}{mark}", f"{p_values:.1e}", f"{statistics:.0e}", agree]
    print(f"| {method} | {n} | {' | '.join(cells)} |", flush=True)


def open_up(device: str) -> None:
    """Have the device load what it computes with, which is not timed."""
    data = make_modifiers("LinMean", n_samples=500, n_features=5, random_state=0)
    table = read_features(data.X)
    CVAESampler(max_epochs=1, device=device).fit(table, data.treatment, seed()).conditional(0).draw(
        np.random.default_rng(0), 1
    )
    NeuralLearner(max_epochs=1, device=device).fit(table.design, data.treatment, data.y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, nargs="+", default=[2000, 20_000, 200_000], help="rows")
    parser.add_argument("--d", type=int, default=30, help="features")
    parser.add_argument("--methods", nargs="*", choices=(*METHODS, "parts"), default=["parts", *METHODS])
    parser.add_argument("--kind", default="NonlinMean", help="data, as in make_modifiers")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes of CPU runs")
    parser.add_argument("--gpu-jobs", type=int, default=1, help="processes of GPU runs; the default method has --jobs")
    parser.add_argument(
        "--threads", type=int, default=8, help="autoencoders on the CPU: one thread or these, the faster"
    )
    parser.add_argument("--features", type=int, default=0, help="features tested on the CPU above 20,000 rows")
    parser.add_argument("--full-training", type=int, default=2000, help="most rows of a full training on the CPU")
    parser.add_argument("--epochs", type=int, default=2, help="epochs of training among the parts")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    try:
        torch, device = open_device(args.device, "benchmarks/gpu.py")
    except (ValueError, ImportError) as error:
        parser.exit(2, f"{error}\n")
    open_up(args.device)
    place = torch.cuda.get_device_name(device) if device.type == "cuda" else args.device
    print(f"{place}; {os.cpu_count()} CPU cores; {args.kind}, d = {args.d}; torch {torch.__version__}\n")
    if "parts" in args.methods:
        print("| part | n | CPU, one thread (s) | GPU (s) | ratio | largest difference |\n|---|---|---|---|---|---|")
        for n in args.n:
            parts(n, args)
        print()
    methods = [method for method in args.methods if method != "parts"]
    if methods:
        heads = "method", "n", "CPU s (processes)", "GPU s (processes)", "ratio", "p-values differ by", "statistics by"
        print(f"| {' | '.join(heads)} | selected |\n|" + "---|" * 8)
        for n in args.n:
            for method in methods:
                compare(method, n, args)
        print("\n\\* extrapolated from some of the features, or from a few epochs of training on the CPU")


if __name__ == "__main__":
    main()
