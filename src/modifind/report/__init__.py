"""A report of one self-contained HTML file."""

from __future__ import annotations

import base64
import io
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
from jinja2 import Environment, PackageLoader

from modifind.checks import TITLES, concerns, summary
from modifind.plots import CurveDisplay, ImportanceDisplay
from modifind.result import readable_number, readable_p

if TYPE_CHECKING:
    from modifind.result import SelectionResult


def render_report(result: SelectionResult) -> str:
    """HTML text of the report: the answer, the table, a picture per selected feature, diagnostics and methods."""
    environment = Environment(loader=PackageLoader("modifind.report"), autoescape=True, trim_blocks=True)
    table = result.table.sort_values(["p_value", "importance"], ascending=[True, False])
    return environment.get_template("report.html").render(
        answer=answer(result),
        rows=[_row(row) for row in table.reset_index().to_dict("records")],
        effect=_effect_column(result),
        caution="caution" in table and bool((table["caution"] != "").any()),
        picture=_png(ImportanceDisplay.from_result(result).plot().figure_),
        panels=[
            (title, _png(CurveDisplay.from_result(result, name).plot().figure_)) for title, name in _panels(result)
        ],
        notices=list(dict.fromkeys([*result.warnings, *concerns(result.checks)])),
        checks=checks_by_kind(result),
        summary=summary(result.checks),
        overlap=result.overlap,
        settings=result.settings,
        versions=result.versions,
        methods=methods(result),
    )


def answer(result: SelectionResult) -> str:
    """The result in two sentences."""
    chosen, settings = result.selected, result.settings
    adjustment = "no" if settings["adjust"] == "none" else settings["adjust"].upper()
    control = f"{adjustment} adjustment at level {settings['alpha']:g}"
    tested = f"{len(result.table)}"
    if settings.get("interrupted"):
        tested = f"Only {settings['n_tested']} of {tested}"
    size = f"{tested} features were tested on {settings['n_rows']} rows"
    if not chosen:
        return f"No feature was found to modify the effect ({control}). {size}; absence of evidence is no proof."
    names = ", ".join(map(str, chosen))
    verb = "modifies" if len(chosen) == 1 else "modify"
    arms = f"{settings['treated_label']} against {settings['control_label']}"
    return f"{names} {verb} the effect of {arms} ({control}). {size}."


def checks_by_kind(result: SelectionResult) -> list[dict[str, Any]]:
    """For every kind of check whether it passed, and what was found: all failures, or else the one nearest to one."""
    kinds = []
    for name, rows in result.checks.groupby("name", sort=False):
        failed = rows[~rows["passed"]]
        texts = list(failed["text"]) if len(failed) else [_passed_text(rows)]
        kinds.append({"title": TITLES.get(str(name), str(name)), "passed": not len(failed), "texts": texts})
    return sorted(kinds, key=lambda kind: bool(kind["passed"]))


def _passed_text(rows: pd.DataFrame) -> str:
    if rows["feature"].isna().all():
        return " ".join(rows["text"])
    worst = rows["text"].iloc[int((rows["value"] - rows["threshold"]).abs().to_numpy().argmin())]
    return f"Fine for all {len(rows)} features. Nearest to the limit: {worst}" if len(rows) > 1 else str(worst)


def methods(result: SelectionResult) -> str:
    """A paragraph for a paper."""
    s = result.settings
    versions = ", ".join(f"{name} {number}" for name, number in result.versions.items())
    if s.get("method") == "si_em":
        test = _selective_methods(s)
    else:
        test = _analytic_methods(s) if s.get("model") else _resampling_methods(s)
    adjusted = s["adjust"] != "none"
    adjustment = f"adjusted over features ({s['adjust'].upper()})" if adjusted else "not adjusted over features"
    sample = ""
    if s.get("n_train_rows"):
        sample = (
            f" Models were fitted to a random sample of {s['n_train_rows']} rows, and every row was scored by models "
            "of the outcome and the treatment that had not seen it."
        )
    gaps = _missing_methods(s) + _row_methods(s)
    scale = " The outcome was analysed on the log scale." if s.get("outcome_transform") == "log" else ""
    sentences = (
        f"For each feature we tested the null hypothesis that {s['null_hypothesis']}, {test}{scale}{gaps}{sample}",
        f"Propensity scores: {s['propensity_model']}.",
        f"P-values were {adjustment}, and features with {'an adjusted' if adjusted else 'a'} p-value of",
        f"at most {s['alpha']:g} were selected. Data: {s['n_rows']} rows, {s['n_treated']} treated",
        f"({s['treated_label']}) and {s['n_control']} control ({s['control_label']}). Seed {s['seed']}.",
        f"Software: {versions}.",
    )
    return " ".join(sentences)


def _missing_methods(s: Mapping[str, Any]) -> str:
    if s.get("n_rows_dropped"):
        return f" {s['n_rows_dropped']} rows with missing values were left out."
    if s.get("missing") == "category":
        return " Missing values were taken as a category of their own, whose law was modelled like that of the values."
    return ""


def _row_methods(s: Mapping[str, Any]) -> str:
    """Weights, groups of rows and groups of columns."""
    said = ""
    if s.get("sample_weight"):
        said += f" Rows were weighted by sample weights (worth {s['sample_weight']['effective_rows']:.0f} equal rows)."
    if s.get("groups"):
        said += (
            f" Rows of a group ({s['groups']['n_groups']} groups) stayed in one fold, and variances are between groups"
        )
        said += " where these are larger."
    for name, columns in (s.get("feature_groups") or {}).items():
        said += f" {name} stands for {', '.join(map(str, columns))}, tested as one feature."
    return said


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


def _selective_methods(s: Mapping[str, Any]) -> str:
    sides = "two-sided" if s["sided"] == "two" else "one-sided in the direction of the estimate"
    penalty = "" if s["penalty"] is None else f" of {s['penalty']:.4g}"
    return (
        f"by SI-EM (Zhao, Small and Ertefaie, JRSS B 2022): the residuals of the outcome ({s['outcome_learner']}) were "
        "regressed on the residuals of the treatment times the standardised features by a lasso with penalty"
        f"{penalty}, {s['penalty_factor']:g} times what noise would reach on average; it selected {s['n_active']} of "
        f"{s['n_columns']} columns, whose p-values ({sides}) are conditional on the selected columns and their signs "
        "(Lee, Sun, Sun and Taylor, Annals of Statistics 2016)."
    )


def _effect_column(result: SelectionResult) -> dict[str, str] | None:
    """Heading and explanation of the effect sizes that the test gives, if it gives any."""
    if "effect_size" in result.table:
        return {
            "title": "nats per row",
            "note": "Nats per row, with a 95% interval: how much better held-out outcomes are predicted with the "
            "feature than without it, as far as it moves the effect.",
        }
    if "coef" in result.table:
        level = 100 * (1 - result.settings["alpha"])
        return {
            "title": "mean effect per unit",
            "note": f"Mean effect per unit, with a {level:g}% interval given the selection: how much the mean effect "
            "changes with one unit of the feature, or at its most significant level.",
        }
    return None


def _panels(result: SelectionResult) -> list[tuple[str, str]]:
    """Titles and columns of the pictures: a selected group has one for each of its columns."""
    shown = []
    for name in result.selected:
        columns = result.groups.get(name, [name])
        shown += [(column if column == name else f"{name}: {column}", column) for column in columns]
    return shown


def _row(row: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
    shown = {**row, "p_text": readable_p(row["p_value"]), "adjusted_text": readable_p(row["p_adjusted"])}
    shown["importance_text"] = readable_number(row["importance"])
    if "effect_size" in row:
        size, low, high = (round(row[name], 3) + 0.0 for name in ("effect_size", "effect_low", "effect_high"))
        shown["effect_text"] = f"{size:.3f} ({low:.3f} to {high:.3f})" if size == size else "not tested"
    elif "coef" in row:
        size, low, high = (row[name] for name in ("coef", "ci_low", "ci_high"))
        shown["effect_text"] = f"{size:.3g} ({low:.3g} to {high:.3g})" if size == size else "not in the lasso"
    return shown


def _cap(cap: float | None) -> str:
    return "not capped" if cap is None else f"capped at {cap:g} in the test"


def _png(figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
