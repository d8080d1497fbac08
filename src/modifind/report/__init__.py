"""A report of one self-contained HTML file."""

from __future__ import annotations

import base64
import io
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader

from modifind.plots import CurveDisplay, ImportanceDisplay
from modifind.result import readable_p

if TYPE_CHECKING:
    from modifind.result import SelectionResult

POOR_EFFECTIVE_SHARE = 0.3
MISFIT_LEVEL = 0.001


def render_report(result: SelectionResult) -> str:
    """HTML text of the report: the answer, the table, a picture per selected feature, diagnostics and methods."""
    environment = Environment(loader=PackageLoader("modifind.report"), autoescape=True, trim_blocks=True)
    table = result.table.sort_values(["p_value", "importance"], ascending=[True, False])
    return environment.get_template("report.html").render(
        answer=answer(result),
        rows=[_row(row) for row in table.reset_index().to_dict("records")],
        effect="effect_size" in table,
        picture=_png(ImportanceDisplay.from_result(result).plot().figure_),
        panels=[(name, _png(CurveDisplay.from_result(result, name).plot().figure_)) for name in result.selected],
        notices=[*result.warnings, *concerns(result)],
        overlap=result.overlap,
        settings=result.settings,
        versions=result.versions,
        methods=methods(result),
    )


def answer(result: SelectionResult) -> str:
    """The result in two sentences."""
    chosen, settings = result.selected, result.settings
    control = f"{settings['adjust'].upper()} adjustment at level {settings['alpha']:g}"
    size = f"{len(result.table)} features were tested on {settings['n_rows']} rows"
    if not chosen:
        return f"No feature was found to modify the effect ({control}). {size}; absence of evidence is no proof."
    names = ", ".join(map(str, chosen))
    verb = "modifies" if len(chosen) == 1 else "modify"
    arms = f"{settings['treated_label']} against {settings['control_label']}"
    return f"{names} {verb} the effect of {arms} ({control}). {size}."


def concerns(result: SelectionResult) -> list[str]:
    """Diagnostics that a reader should know of, in plain words."""
    found = []
    for arm in ("treated", "control"):
        share = result.overlap[f"effective_share_{arm}"]
        if share < POOR_EFFECTIVE_SHARE:
            rows = result.overlap[f"effective_rows_{arm}"]
            found.append(
                f"The {arm} arm is worth only {rows:.0f} rows ({share:.0%} of it) after weighting: "
                "the arms overlap poorly and power is low."
            )
    bad = result.diagnostics.index[result.diagnostics["pit_p_value"] < MISFIT_LEVEL]
    if len(bad):
        found.append(
            f"The sampler does not fit {', '.join(map(str, bad))} well (held-out calibration test, "
            f"p < {MISFIT_LEVEL:g}); their p-values may be off. Another sampler may do better."
        )
    return found


def methods(result: SelectionResult) -> str:
    """A paragraph for a paper."""
    s = result.settings
    versions = ", ".join(f"{name} {number}" for name, number in result.versions.items())
    test = _analytic_methods(s) if s.get("model") else _resampling_methods(s)
    scale = " The outcome was analysed on the log scale." if s.get("outcome_transform") == "log" else ""
    sentences = (
        f"For each feature we tested the null hypothesis that {s['null_hypothesis']}, {test}{scale}",
        f"Propensity scores: {s['propensity_model']}.",
        f"P-values were adjusted over features ({s['adjust'].upper()}), and features with an adjusted p-value of",
        f"at most {s['alpha']:g} were selected. Data: {s['n_rows']} rows, {s['n_treated']} treated",
        f"({s['treated_label']}) and {s['n_control']} control ({s['control_label']}). Seed {s['seed']}.",
        f"Software: {versions}.",
    )
    return " ".join(sentences)


def _resampling_methods(s: Mapping[str, Any]) -> str:
    statistic, weights = s["statistic"], s["statistic"]["weighting"].replace("_", "-")
    return (
        f"by a conditional randomisation test with up to {s['n_resamples_used']} resamples of the feature "
        f"({s['sampler']['class']}) and the variance of the weighted conditional maximum mean discrepancy as statistic "
        f"({statistic['estimator']} estimator, {weights} weights; Chikahara, Yamada and Kashima, UAI 2022), with "
        f"weights {statistic['resample_weights']} on resampled data and {_cap(statistic['weight_cap'])}."
    )


def _analytic_methods(s: Mapping[str, Any]) -> str:
    model, repeats = s["model"], s["statistic"]["cv_repeats"]
    again = "" if repeats == 1 else f", repeated {repeats} times"
    return (
        f"by the effect-likelihood test: the held-out {model['likelihood']} log-likelihood of a "
        f"{model['n_folds']}-fold cross-fitted model of the outcome in both arms{again} (learners and their mean "
        f"weights: {model['stack']}), with the part common to both arms frozen, was compared with its distribution "
        f"when the feature is drawn from its law given the rest ({s['sampler']['class']}), by a saddlepoint "
        "approximation."
    )


def _row(row: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
    shown = {**row, "p_text": readable_p(row["p_value"]), "adjusted_text": readable_p(row["p_adjusted"])}
    if "effect_size" in row:
        size, low, high = (round(row[name], 3) + 0.0 for name in ("effect_size", "effect_low", "effect_high"))
        shown["effect_text"] = f"{size:.3f} ({low:.3f} to {high:.3f})" if size == size else "not tested"
    return shown


def _cap(cap: float | None) -> str:
    return "not capped" if cap is None else f"capped at {cap:g} in the test"


def _png(figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
