"""The methods of the comparison, each one line of code, and what tells one version of a method from another."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import modifind
from modifind import ModifierSelector
from modifind.baselines import SIEM
from modifind.presets import exact, naive, uai2022

FIRST_SEED = 1000
# Parts of the package that no p-value depends on.
UNINVOLVED = ("charts", "cli", "explain", "paper", "report", "result")


@dataclass(frozen=True)
class ComparedMethod:
    """A method by its name in tables, and how it is made from a seed and options."""

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
    """An estimator with one process; `device` is where its autoencoder is trained, if it has one."""
    estimator = METHODS[name].make(random_state=seed, **options)
    if hasattr(getattr(estimator, "sampler", None), "device"):
        estimator.sampler.set_params(device=device)
    if "explain" in estimator.get_params():
        estimator.set_params(explain=False)  # the paper has tests only, and times them
    return estimator.set_params(n_jobs=1)


@cache
def method_key(name: str, options: tuple[tuple[str, Any], ...] = ()) -> str:
    """Ten digits that change with the settings of a method and with the code that computes its p-values."""
    settings = make_method(name, 0, **dict(options)).get_params(deep=True)
    text = "\n".join(f"{key}={value!r}" for key, value in sorted(settings.items()))
    return hashlib.sha256((text + _code()).encode()).hexdigest()[:10]


@cache
def _code() -> str:
    """Digest of the package's source, without the parts that only show results."""
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
        """Runs by method, the others' under ``""``."""
        if isinstance(self.runs, Mapping):
            return self.runs
        return {} if self.runs is None else {"": self.runs}
