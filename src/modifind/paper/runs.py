"""Compared methods, and runs of one method on one table, each stored in its own file.

A stored run is never repeated, so that an interrupted study continues where it stopped, and studies share their common
runs. File names contain a key of the method's settings and code, so that a changed method does not find its old runs.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from joblib import delayed
from numpy.typing import ArrayLike
from sklearn.utils import Bunch

import modifind
from modifind import ModifierSelector
from modifind._system import one_thread
from modifind._warned import warn
from modifind._workers import ProgressBar, results_of
from modifind.baselines import SIEM
from modifind.datasets import KINDS, fetch_nhanes_crp, make_modifiers
from modifind.presets import exact, naive, uai2022
from modifind.result.files import decode, encode, parse_json, write_text
from modifind.statistics.wcmmd import median_bandwidth

FIRST_SEED = 1000
# Parts of the package that no p-value depends on.
UNINVOLVED = ("charts", "cli", "explain", "paper", "report", "result")


@dataclass(frozen=True)
class ComparedMethod:
    """A method by its name in tables, with a factory that takes a seed and options."""

    label: str
    make: Callable[..., Any]


def _with_published_sums(**options: Any) -> ModifierSelector:
    selector = uai2022(**options)
    selector.statistic.set_params(accelerate=False)
    return selector


METHODS = {
    "default": ComparedMethod("modifind, default", ModifierSelector),
    "wcmmd": ComparedMethod("modifind, wcmmd", lambda **o: ModifierSelector("wcmmd", **o)),
    "preset": ComparedMethod("paper's preset", uai2022),
    "preset-sums": ComparedMethod("paper's preset, sums as published", _with_published_sums),
    "naive": ComparedMethod("Naive", naive),
    "exact": ComparedMethod("Exact", exact),
    "si-em": ComparedMethod("SI-EM", SIEM),
}


def make_method(name: str, seed: int, device: str = "cpu", **options: Any) -> Any:
    """Make an estimator with one process; `device` is where its autoencoder is trained, if it has one."""
    estimator = METHODS[name].make(random_state=seed, **options)
    if hasattr(getattr(estimator, "sampler", None), "device"):
        estimator.sampler.set_params(device=device)
    if "explain" in estimator.get_params():
        estimator.set_params(explain=False)  # the paper has tests only, and times them
    return estimator.set_params(n_jobs=1)


@cache
def method_key(name: str, options: tuple[tuple[str, Any], ...] = ()) -> str:
    """Ten-digit key of a method's settings and of the code that computes its p-values."""
    settings = make_method(name, 0, **dict(options)).get_params(deep=True)
    text = "\n".join(f"{key}={value!r}" for key, value in sorted(settings.items()))
    return hashlib.sha256((text + _code()).encode()).hexdigest()[:10]


@cache
def _code() -> str:
    """Digest of the package's source, except parts that only display results."""
    root, digest = Path(modifind.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] not in UNINVOLVED:
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Order:
    """A request: how many runs, of which methods, from which seed.

    Parameters
    ----------
    runs : int or dict, optional
        Runs of every method, or runs by method with the others' under ``""``. By default what the study has: 50 in
        most.
    quick : bool, default=False
        A small version of the study: few runs, fewer sizes.
    methods : sequence of str, optional
        Only these.
    seed : int, default=1000
        Seed of the first run; the others follow.
    """

    runs: int | Mapping[str, int] | None = None
    quick: bool = False
    methods: Sequence[str] | None = None
    seed: int = FIRST_SEED

    def __post_init__(self) -> None:
        unknown = sorted({*self.by_method} - {*METHODS, ""} | {*(self.methods or ())} - {*METHODS})
        if unknown:
            raise ValueError(f"no method {', '.join(unknown)}; methods are {', '.join(METHODS)}")
        for count in self.by_method.values():
            if count < 1:
                raise ValueError(f"runs must be at least 1, not {count}")

    @property
    def by_method(self) -> Mapping[str, int]:
        """Number of runs by method, with the default under ``""``."""
        if isinstance(self.runs, Mapping):
            return self.runs
        return {} if self.runs is None else {"": self.runs}


N_FEATURES = 30
NHANES = ("CRP", "log CRP", "permuted CRP")
FORMAT = "modifind-run-2"
TIMED_STATISTICS = 5
BATCHES = "cuda, in batches"  # device of runs that benchmarks/full_runs.py made


@dataclass(frozen=True)
class StudyRun:
    """One method applied to one table.

    Attributes
    ----------
    data : str
        A kind of `make_modifiers`, or one of `NHANES`.
    n : int
        Rows of a synthetic table; 0 for NHANES.
    method : str
        Name in `METHODS`.
    seed : int
        Of the table and of the method.
    options : tuple of pairs
        Arguments of the method.
    measure : {"selection", "time", "multiplied"}
        "time" asks for the processor time of the whole fit, which is then made alone. "multiplied" fits with two
        resamples, times one statistic, and multiplies it out to all resamples.
    """

    data: str
    n: int
    method: str
    seed: int
    options: tuple[tuple[str, Any], ...] = ()
    measure: str = "selection"

    @property
    def key(self) -> str:
        """Key of this version of the method."""
        return method_key(self.method, self.options)

    @property
    def file_name(self) -> str:
        """Unique file name of the run."""
        data = self.data.replace(" ", "-")
        parts = [data, f"n{self.n}" if self.n else "", self.method, *(f"{k}={v}" for k, v in self.options)]
        parts += [f"seed{self.seed}", "" if self.measure == "selection" else self.measure, self.key]
        return "_".join(part for part in parts if part) + ".json"


@dataclass(frozen=True)
class Record:
    """The result of one run."""

    run: StudyRun
    features: list[str]
    p_value: list[float]
    p_adjusted: list[float]
    selected: list[bool]
    truth: list[bool]
    seconds: float
    device: str
    warnings: list[str] = field(default_factory=list)

    @property
    def rates(self) -> dict[str, float]:
        """True and false positive rates; see `selection_rates`."""
        return selection_rates(self.selected, self.p_value, self.truth)


def selection_rates(selected: ArrayLike, p_value: ArrayLike, truth: ArrayLike) -> dict[str, float]:
    """True and false positive rate, false discovery proportion, and share of null features with p <= 0.05."""
    chosen, true = np.asarray(selected), np.asarray(truth)
    null = ~true
    return {
        "tpr": float(chosen[true].mean()),
        "fpr": float(chosen[null].mean()),
        "fdp": float(chosen[null].sum() / max(chosen.sum(), 1)),
        "null_share": float((np.asarray(p_value)[null] <= 0.05).mean()),
    }


@dataclass(frozen=True)
class Archive:
    """A folder of runs.

    Attributes
    ----------
    folder : Path
        Where runs are kept.
    device : {"cpu", "cuda"}
        Where autoencoders are trained; in timed runs always on the CPU.
    data_home : str, optional
        Where the NHANES tables lie.
    """

    folder: Path
    device: str = "cpu"
    data_home: str | None = None

    def find(self, run: StudyRun) -> Record | None:
        """Stored record of a run, or None if it must be done (again)."""
        path = self.folder / run.file_name
        if not path.exists():
            return None
        try:
            data = parse_json(path.read_bytes())
            if (data.pop("format"), data.pop("key")) == (FORMAT, run.key):
                record: Record = decode(data, Record)
                if record.run == run:
                    return record
            reason = "it is of another version of the method"
        except (ValueError, KeyError, TypeError):
            reason = "it cannot be read"
        warn(f"{path} is not used, because {reason}; the run is repeated")
        return None

    def carry_out(self, run: StudyRun) -> None:
        """Execute one run and store it atomically."""
        with warnings.catch_warnings(), one_thread():
            warnings.simplefilter("ignore")
            try:
                record = _carry_out(run, self.device if run.measure == "selection" else "cpu", self.data_home)
            except ValueError as error:
                raise ValueError(f"{run.file_name}: {error}") from error
        self.keep(record)

    def keep(self, record: Record) -> None:
        """Write a record to its file."""
        text = json.dumps({"format": FORMAT, "key": record.run.key, **encode(record, Record)}, allow_nan=False)
        write_text(self.folder / record.run.file_name, text + "\n")

    def prepare(self, runs: Iterable[StudyRun]) -> list[StudyRun]:
        """Runs that remain to be done; fetches the data they need first."""
        missing = [run for run in dict.fromkeys(runs) if self.find(run) is None]
        if any(run.data in NHANES for run in missing):
            _nhanes(self.data_home)
        return missing

    def complete(
        self, runs: Iterable[StudyRun], *, jobs: int, title: str, progress: bool, missing: list[StudyRun] | None = None
    ) -> list[Record]:
        """Records of all runs, in order, executing those not yet stored, or the ones listed by `prepare`."""
        wanted = list(dict.fromkeys(runs))
        self.folder.mkdir(parents=True, exist_ok=True)
        missing = self.prepare(wanted) if missing is None else missing
        # Clocked runs get the machine to themselves, after a small one that loads what they need.
        calls = [delayed(self.carry_out)(run) for run in missing if run.measure == "selection"]
        together = results_of(calls, jobs, ordered=False, doing="doing the runs of a study")
        alone = [run for run in missing if run.measure != "selection"]
        _warm_up(dict.fromkeys(run.method for run in alone))
        with ProgressBar(progress, title) as advance:
            advance(len(wanted) - len(missing), len(wanted))
            for done, _ in enumerate(chain(together, map(self.carry_out, alone)), 1 + len(wanted) - len(missing)):
                advance(done, len(wanted))
        return self._all(wanted)

    def _all(self, runs: list[StudyRun]) -> list[Record]:
        records = [record for run in runs if (record := self.find(run)) is not None]
        if len(records) < len(runs):
            raise OSError(f"{len(runs) - len(records)} runs are gone from {self.folder}; start again to repeat them")
        return records


def _carry_out(run: StudyRun, device: str, data_home: str | None) -> Record:
    table = _table(run, data_home)
    options = dict(run.options)
    if "discrete_features" in table:
        options["discrete_features"] = table.discrete_features
    estimator = make_method(run.method, run.seed, device, **options)
    n_resamples = getattr(estimator, "n_resamples", None)
    if run.measure == "multiplied":
        estimator.set_params(n_resamples=2)
    start = time.process_time()  # one process on one thread: the same as by the clock, whatever else is going on
    result = estimator.fit(table.X, table.y, treatment=table.treatment).result_
    seconds = time.process_time() - start
    if run.measure == "multiplied":
        assert n_resamples is not None
        seconds += (n_resamples - 2) * table.X.shape[1] * _statistic_seconds(estimator.statistic, table)
    features = result.table
    return Record(
        run=run,
        features=[str(name) for name in features.index],
        p_value=features["p_value"].tolist(),
        p_adjusted=features["p_adjusted"].tolist(),
        selected=features["selected"].tolist(),
        truth=[str(name) in table.get("modifiers", ()) for name in features.index],
        seconds=round(seconds, 3),
        device=device,
        warnings=list(result.warnings),
    )


def _table(run: StudyRun, data_home: str | None) -> Bunch:
    if run.data in KINDS:
        return make_modifiers(run.data, n_samples=run.n, n_features=N_FEATURES, random_state=run.seed)
    table = Bunch(**_nhanes(data_home))
    if run.data == "log CRP":
        table.y = np.log(table.y)
    elif run.data == "permuted CRP":
        table.y = np.random.default_rng(run.seed).permutation(table.y)
    return table


@cache
def _nhanes(data_home: str | None) -> Bunch:
    return fetch_nhanes_crp(data_home)


def _statistic_seconds(statistic: Any, table: Bunch) -> float:
    """Median time to compute the statistic of one feature, as for one resample."""
    seed = np.random.SeedSequence(0)
    prepared = statistic.for_rows(np.asarray(table.y, dtype=float), np.asarray(table.treatment), seed)
    column = table.X.iloc[:, 0].to_numpy(dtype=float)
    width = median_bandwidth(column)
    times = []
    for _ in range(TIMED_STATISTICS):
        start = time.process_time()
        prepared.importance(column, table.propensity, bandwidth=width)
        times.append(time.process_time() - start)
    return float(np.median(times))


def _warm_up(methods: Iterable[str]) -> None:
    table = make_modifiers("LinMean", n_samples=100, n_features=5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method in methods:
            make_method(method, 0).fit(table.X, table.y, treatment=table.treatment)
