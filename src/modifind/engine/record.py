"""What a run puts on record: its seed, settings, versions and warnings."""

from __future__ import annotations

import hashlib
import platform
import secrets
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from modifind._typing import Array
from modifind._version import __version__
from modifind._warned import warn
from modifind.data.containers import is_distributed
from modifind.data.design import Design
from modifind.data.feature_matrix import AlsoDiscrete
from modifind.nuisance.propensity.scores import FittedPropensity

Answer = TypeVar("Answer")
# The seed is recorded as such; the others change nothing.
UNRECORDED = ("random_state", "progress", "n_jobs", "checkpoint", "placebo_runs")


def entropy_of(random_state: Any) -> int:
    """One number that seeds everything; drawn afresh for None."""
    if random_state is None:
        return secrets.randbits(128)
    if isinstance(random_state, int | np.integer):
        if random_state < 0:
            raise ValueError(f"random_state must not be negative; found {random_state}")
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    raise ValueError(f"random_state must be an integer, a Generator or None, not {type(random_state).__name__}")


@contextmanager
def collected() -> Iterator[list[str]]:
    """Collect the texts of warnings, because those of a worker process reach nobody; they are there at the end."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield messages
    messages += distinct_messages(caught)


def with_messages(function: Callable[..., Answer], *args: Any) -> tuple[Answer, tuple[str, ...]]:
    """Call and collect the warnings, because those of a worker process reach nobody."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        found = function(*args)
    return found, distinct_messages(caught)


def hand_on(messages: list[tuple[str, ...]]) -> None:
    """Warn of what workers were warned of, once each."""
    for message in dict.fromkeys(message for some in messages for message in some):
        warn(message)


def distinct_messages(caught: list[warnings.WarningMessage]) -> tuple[str, ...]:
    """Texts of the warnings that are meant for users."""
    return tuple(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, UserWarning)))


def data_settings(
    arms: tuple[Any, ...], n_rows: int, n_treated: int, propensity: FittedPropensity, entropy: int
) -> dict[str, Any]:
    """What a result records of the data, the propensity scores and the seed."""
    return {
        "seed": entropy,
        "propensity_model": propensity.description,
        **({"propensity_known": True, "propensity_r2": propensity.r2} if propensity.is_known else {}),
        **({"propensity_misfit": misfit} if (misfit := propensity.misfit_features) else {}),
        "control_label": arms[0],
        "treated_label": arms[1],
        "n_rows": n_rows,
        "n_treated": n_treated,
        "n_control": n_rows - n_treated,
        "propensity_clip": list(propensity.clip),
    }


def design_settings(design: Design, scores: Array) -> dict[str, Any]:
    """What a result records of how the treatment was given, with the chance where it is the same for every row."""
    alike = design.chance in ("known", "observed") and bool((scores == scores[0]).all())
    share = {"share": float(scores[0])} if alike else {}
    return {"randomised": design.randomised, "said": design.said, "chance": design.chance, **share}


def readable(value: Any) -> Any:
    """A setting as JSON can hold it and a person can read it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | str | None) or (isinstance(value, float) and np.isfinite(value)):
        return value
    if isinstance(value, AlsoDiscrete):
        return ["auto", *value.names]
    if is_distributed(value):
        return "one known value per row"
    if isinstance(value, np.ndarray | pd.Series) and len(value) > 20:
        return f"array of {len(value)} values"
    if isinstance(value, list | tuple | np.ndarray | pd.Series):
        return [readable(v) for v in value]
    return described(value)


def described(value: Any, depth: int = 3) -> str:
    """An object in words; one whose own words are but its place in memory is told by its class and what it holds."""
    code = getattr(value, "__code__", None)
    if code is not None:
        digest = hashlib.sha256(code.co_code + repr((code.co_consts, code.co_names)).encode()).hexdigest()[:12]
        return f"{value.__qualname__} {digest}"
    if isinstance(value, np.ndarray | pd.Series | pd.DataFrame):
        return f"array {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:12]}"
    shown = repr(value)
    if " at 0x" not in shown or depth == 0:
        return shown
    if isinstance(value, list | tuple):
        return f"[{', '.join(described(item, depth - 1) for item in value)}]"
    held = vars(value) if hasattr(value, "__dict__") else {}
    return f"{type(value).__name__}({', '.join(f'{name}={described(own, depth - 1)}' for name, own in held.items())})"


def installed_versions() -> dict[str, str]:
    """Versions of modifind and what it stands on."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    found = {"modifind": __version__, "python": platform.python_version()}
    for name in ("numpy", "scipy", "scikit-learn", "pandas", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@contextmanager
def recorded(before: Iterable[warnings.WarningMessage] = ()) -> Iterator[list[warnings.WarningMessage]]:
    """Collect warnings for the record; users have them at the end, each once and also when that is an error.

    What there was `before` they have had.
    """
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            yield caught
    finally:
        had = {str(warning.message) for warning in before}
        for warning in caught:
            if str(warning.message) not in had:
                had.add(str(warning.message))
                warn(warning.message, warning.category)
