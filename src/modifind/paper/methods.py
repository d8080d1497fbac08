"""The methods of the comparison, each one line of code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from modifind import WCMMD, ModifierSelector
from modifind.baselines import SIEM
from modifind.presets import exact, naive, uai2022


@dataclass(frozen=True)
class Method:
    """A method by its name in tables, and how it is made from a seed and options."""

    label: str
    make: Callable[..., Any]


METHODS = {
    "default": Method("modifind, default", ModifierSelector),
    "wcmmd": Method("modifind, wcmmd", lambda **o: ModifierSelector("wcmmd", **o)),
    "preset": Method("paper's preset", uai2022),
    "preset-short": Method(
        "paper's preset, propensity network stopped after 4 epochs", lambda **o: uai2022(epochs=4, **o)
    ),
    "preset-hajek": Method(
        "paper's preset with Hajek weights",
        lambda **o: uai2022(**o).set_params(statistic=WCMMD("rff", "hajek", weight_cap=None)),
    ),
    "preset-sums": Method(
        "paper's preset, sums as published",
        lambda **o: uai2022(**o).set_params(
            statistic=WCMMD("rff", "horvitz_thompson", weight_cap=None, accelerate=False)
        ),
    ),
    "naive": Method("Naive", naive),
    "exact": Method("Exact", exact),
    "si-em": Method("SI-EM", SIEM),
}


def make_method(name: str, seed: int, device: str = "cpu", **options: Any) -> Any:
    """An estimator with one process; `device` is where its autoencoder is trained, if it has one."""
    estimator = METHODS[name].make(random_state=seed, **options)
    if hasattr(getattr(estimator, "sampler", None), "device"):
        estimator.sampler.set_params(device=device)
    if "explain" in estimator.get_params():
        estimator.set_params(explain=False)  # the paper has tests only, and times them
    return estimator.set_params(n_jobs=1)
