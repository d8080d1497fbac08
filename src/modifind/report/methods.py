"""The methods of a result as a paragraph for a paper, with what to cite; the words are in templates/methods.txt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, Template

from modifind.data.wording import counted
from modifind.report.design import design_methods
from modifind.result.effect_names import effect_name, scale_of
from modifind.result.explained import MIN_SUPPORT, N_DRAWS
from modifind.result.selection_result import PARTS, SelectionResult
from modifind.result.uncontrolled import control_sentence


def methods(result: SelectionResult) -> str:
    """A paragraph for a paper."""
    settings, shown = result.settings, next(iter(result.by_arm.values())) if result.by_arm else result
    (kind, scale), statistic = scale_of(settings), settings.get("statistic") or {}
    text = _template().render(
        s=settings,
        arms=list(result.by_arm or ()),
        kind=kind,
        scale=scale,
        scale_name=effect_name(kind, scale),
        risk_name=effect_name("binary", scale),
        design=design_methods(settings),
        doubt=control_sentence(settings),
        parameters=[f"{name} = {value}" for name, value in statistic.items() if name != "class"],
        caps=_caps(statistic),
        bands=_has_bands(shown),
        tests=shown.tests.index,
        has_changes=len(shown.changes) > 0,
        n_parts=sum(shown.changes[f"{part}_p"].notna().any() for part in PARTS) if len(shown.changes) else 0,
        amounts=scale_of(shown.settings)[0] == "amount",
        bounds=shown.bounds,
        placebo=result.placebo,
        versions=", ".join(f"{name} {number}" for name, number in result.versions.items()),
    )
    return " ".join(text.split())


def references(result: SelectionResult) -> list[str]:
    """What the methods paragraph rests on: only what was used."""
    s, bands, model = result.settings, _has_bands(result), result.settings.get("model")
    selective, known = s.get("method") == "si_em", json.loads(template_text("references.json"))
    used = {
        **dict.fromkeys(("si_em", "lee"), selective),
        **dict.fromkeys(("paper", "crt"), not selective),
        **dict.fromkeys(("saddlepoint", "cauchy"), model),
        s["adjust"]: s["adjust"] in known,
        "doubly_robust": bands and (model or len(result.changes)),
        **dict.fromkeys(("simes", "selective"), bool(result.by_arm)),
        "overlap_weights": bands and s.get("population") == "overlap",
        "kernel": "distribution" in result.tests.index,
        "makarov": result.bounds,
    }
    return [known[name] for name, cited in used.items() if cited]


def template_text(name: str) -> str:
    """A file of the report's templates as it is."""
    return (files("modifind.report") / "templates" / name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    environment = Environment(loader=PackageLoader("modifind.report"), autoescape=False)
    environment.filters["fmt"] = format
    environment.globals |= {"counted": counted, "n_draws": N_DRAWS, "min_support": MIN_SUPPORT}
    return environment.get_template("methods.txt")


def _has_bands(result: SelectionResult) -> bool:
    results = (result.by_arm or {"": result}).values()
    return any("mean_effect_low" in curve for contrast in results for curve in contrast.curves.values())


def _caps(statistic: Mapping[str, Any]) -> list[str]:
    """Limits of the weights of the statistic, if there are any."""
    cap, quantile = statistic.get("weight_cap"), statistic.get("weight_quantile")
    limits = [f"{cap:g}"] if cap is not None else []
    return limits + ([f"the {quantile:g} quantile of their arm"] if quantile is not None else [])
