"""From what was found of every feature to one result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from modifind.base import installed_versions
from modifind.checks import cautions, concerns, run_checks
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

    @property
    def untestable(self) -> str | None:
        """Why the feature could not be tested, if it could not."""
        if self.outcome is not None:
            return None
        return "constant" if self.calibration.sampler == NO_SAMPLER.sampler else "determined"


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
    for name in ("n_resamples", "n_exceeding"):
        diagnostics[name] = [0 if f.outcome is None else getattr(f.outcome, name) for f in findings]
    diagnostics["bandwidth"] = [f.view.bandwidth for f in findings]
    features = pd.DataFrame(columns, index=index)
    untestable = {name: f.untestable for name, f in zip(names, findings, strict=True) if f.untestable is not None}
    checks = run_checks(features, diagnostics, overlap, settings, untestable)
    features["caution"] = cautions(checks, names)
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
        warnings=(*messages, *concerns(checks)),
        checks=checks,
    )


def _column(findings: list[Finding], name: str) -> list[float]:
    """One number of every outcome; NaN where a feature could not be tested."""
    return [float("nan") if f.outcome is None else getattr(f.outcome, name) for f in findings]
