"""From what was found of every feature to one result."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from modifind.base import hand_on, installed_versions, warn_constant
from modifind.explain.marginal import MarginalView
from modifind.features import Kind
from modifind.result import SelectionResult
from modifind.samplers import Calibration
from modifind.testers import Outcome
from modifind.testing import adjust_p_values

# Held-out share of a feature's law that the others explain, above which the data cannot tell it from them. What little
# is left is then as much the sampler's own error as the feature's, and a test of it would be a test of the sampler.
DETERMINED = {"continuous": 0.65, "discrete": 0.9}
NO_SAMPLER = Calibration("none", float("nan"), float("nan"), float("nan"))


@dataclass(frozen=True)
class Finding:
    """What is known of one feature; an outcome of None means that it could not be tested.

    A group of columns has the view of its most important column, and in `views` those of all by the column's name.
    """

    view: MarginalView
    outcome: Outcome | None
    calibration: Calibration
    messages: tuple[str, ...] = ()
    views: Mapping[str, MarginalView] | None = None


def warn_untestable(
    names: tuple[str, ...],
    constant: tuple[bool, ...],
    findings: list[Finding],
    named: frozenset[int] = frozenset(),
    columns: tuple[tuple[str, ...], tuple[bool, ...]] | None = None,
) -> None:
    """Hand on what workers were warned of, and name the features that no data of this kind could select.

    Features in `named` have had a warning of their own. Where groups of columns are tested, `columns` has the names of
    all columns and whether they are constant.
    """
    hand_on([finding.messages for finding in findings])
    warn_constant(*(columns or (names, tuple(same and m not in named for m, same in enumerate(constant)))))
    determined = [names[m] for m, f in enumerate(findings) if f.outcome is None and not constant[m] and m not in named]
    if determined:
        warnings.warn(
            f"{', '.join(determined)}: so nearly a function of the other features that the data cannot tell them "
            "apart; p-values set to 1. Leave out one of the columns that say the same.",
            UserWarning,
            stacklevel=3,
        )


def assemble(
    names: tuple[str, ...],
    kinds: list[Kind] | list[Kind | Literal["group"]],
    findings: list[Finding],
    alpha: float,
    adjust: str,
    overlap: dict[str, float],
    settings: dict[str, Any],
    messages: tuple[str, ...],
) -> SelectionResult:
    """The result of a fit, from what was found of every feature."""
    index = pd.Index(names, name="feature")
    p_values = np.array([1.0 if f.outcome is None else f.outcome.p_value for f in findings])
    adjusted = adjust_p_values(p_values, adjust)
    columns = {
        "kind": kinds,
        "importance": [f.view.importance for f in findings],
        "statistic": _column(findings, "statistic"),
        "p_value": p_values,
        "p_adjusted": adjusted,
        "selected": adjusted <= alpha,
    }
    diagnostics = pd.DataFrame([asdict(f.calibration) for f in findings], index=index)
    if settings["model"] is not None:
        columns["effect_size"] = _column(findings, "gain")
        columns["effect_low"] = _column(findings, "gain_low")
        columns["effect_high"] = _column(findings, "gain_high")
        diagnostics["normal_p_value"] = _column(findings, "normal_p_value")
        diagnostics["check_p_value"] = _column(findings, "check_p_value")
    features = pd.DataFrame(columns, index=index)
    for name in ("n_resamples", "n_exceeding"):
        diagnostics[name] = [0 if f.outcome is None else getattr(f.outcome, name) for f in findings]
    diagnostics["bandwidth"] = [f.view.bandwidth for f in findings]
    return SelectionResult(
        table=features,
        diagnostics=diagnostics,
        curves={
            column: view.curve
            for name, f in zip(names, findings, strict=True)
            for column, view in (f.views or {name: f.view}).items()
        },
        overlap=overlap,
        settings=settings,
        versions=installed_versions(),
        warnings=messages,
    )


def _column(findings: list[Finding], name: str) -> list[float]:
    """One number of every outcome; NaN where a feature could not be tested."""
    return [float("nan") if f.outcome is None else getattr(f.outcome, name) for f in findings]
