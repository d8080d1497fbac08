"""The page: a panel per feature, with data, style and script in one file that loads nothing external."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

from modifind.charts import spec
from modifind.charts.along import CurveDisplay, D2Display, DensityDisplay, QuantileDisplay
from modifind.charts.displays import CalibrationDisplay, OverlapDisplay
from modifind.charts.heterogeneity import BoundsDisplay, ForestDisplay
from modifind.charts.labels import MISSING, Words, percent, value_text, with_limits
from modifind.charts.svg import Chart, chart, row_chart, small_chart
from modifind.report import content
from modifind.report.abstract import Abstract
from modifind.report.content import (
    KINDS,
    anchor,
    change_marks,
    comparisons,
    methods,
    references,
    template_text,
    verdict,
)
from modifind.result.concerns import control_sentence, summary
from modifind.result.presentation import effect_name, safe_csv
from modifind.result.selection_result import NOT_TESTED, SelectionResult, by_significance, readable_p

MAX_SHOWN_VALUES = 12  # that the style sheet has rules for
MAX_CHARACTERS = 4_000_000
SPREAD_TITLES = {"sd_ratio": "spread ratio"} | {f"q{q}_effect": f"{q}% quantile" for q in (10, 50, 90)}


@dataclass(frozen=True)
class ColumnPanel:
    """Figures of one column.

    Parameters
    ----------
    title : str
        Empty where the feature is the column itself, and of two arms.
    name : str
        What the values are of.
    charts, bounds : list of Chart
        Figures along the values.
    densities : list of (str, Chart)
        Outcomes of both arms by value of the feature.
    numbers : dict
        The curves as a table of texts.
    """

    title: str
    name: str
    charts: list[Chart]
    densities: list[tuple[str, Chart]]
    bounds: list[Chart]
    numbers: dict[str, Any]

    @property
    def shown(self) -> int:
        """Index of the value whose outcomes are shown first: the last with enough rows, missing values aside."""
        sure = [k for k, (label, chart) in enumerate(self.densities) if not chart.unsure and label != MISSING]
        return sure[-1] if sure else 0

    @property
    def density_keys(self) -> tuple[tuple[str, str], ...]:
        """Legend of the outcomes of both arms."""
        return tuple(dict.fromkeys(key for _, drawn in self.densities for key in drawn.keys))

    @property
    def all_charts(self) -> list[Chart]:
        """Every figure in page order."""
        return [*self.charts, *(chart for _, chart in self.densities), *self.bounds]


@dataclass(frozen=True)
class FeaturePanel:
    """Everything the report says about one feature."""

    number: int
    name: str
    anchor: str
    kind: str
    selected: bool
    verdict: str
    p_adjusted: str
    caution: str
    marks: list[dict[str, Any]]
    columns: list[ColumnPanel]

    @property
    def tested(self) -> bool:
        """Whether the p-value comes from a test, rather than being 1 because there was nothing to test."""
        return self.verdict != NOT_TESTED

    @property
    def readouts(self) -> dict[str, dict[str, Any]]:
        """Hover texts of the figures, by figure identifier."""
        return {chart.id: chart.readout for column in self.columns for chart in column.all_charts}

    @property
    def size(self) -> int:
        """Approximate number of characters that the panel adds to the page."""
        drawn = sum(len(chart.svg) + 600 for column in self.columns for chart in column.all_charts)
        cells = sum(40 * len(column.numbers["titles"]) * len(column.numbers["rows"]) for column in self.columns)
        return drawn + cells + len(json.dumps(self.readouts)) + 1500


def make_panels(result: SelectionResult, most_characters: int = MAX_CHARACTERS) -> list[FeaturePanel]:
    """Panels of the selected features and, most significant first, of as many others as fit into the file.

    Features that an interrupted run did not reach have no panel.
    """
    table = by_significance(result.table)
    reached = table["p_value"].notna() & ~table["selected"].to_numpy(dtype=bool)
    others = [str(name) for name in table.index[reached]]
    panels: list[FeaturePanel] = []
    used = 0
    for panel in _panels(result, [*map(str, result.selected), *others]):
        used += panel.size
        if panels and used > most_characters:
            break
        panels.append(panel)
    return panels


def _panels(result: SelectionResult, names: list[str]) -> Iterator[FeaturePanel]:
    for place, name in enumerate(names, start=1):
        row: Any = result.table.loc[name]
        yield FeaturePanel(
            place,
            name,
            anchor(name),
            KINDS.get(str(row["kind"]), str(row["kind"])),
            bool(row["selected"]),
            verdict(result, name),
            readable_p(float(row["p_adjusted"])),
            str(row.get("caution", "")),
            change_marks(result, name),
            list(_columns(result, place, name)),
        )


def _columns(result: SelectionResult, place: int, name: str) -> Iterator[ColumnPanel]:
    """Figures of a feature's columns, for each arm if there are several."""
    number = 0
    for title, contrast in comparisons(result):
        words = Words.of(contrast)
        for column in contrast.groups.get(name, [name]):
            if column in contrast.curves:
                shown = name if column == name else f"{name}: {column}"
                parts = [title] * bool(title) + [shown] * (column != name)
                yield _column(contrast, f"{place}-{number}", (", ".join(parts), shown), column, words)
                number += 1


def _column(result: SelectionResult, key: str, titles: tuple[str, str], name: str, words: Words) -> ColumnPanel:
    curve = result.curves[name]
    discrete = result.kind(name) == "discrete"
    densities = density_charts(name, result.densities[name], words) if name in result.densities else []
    bounds = []
    if name in result.bounds:
        tests, shown = result.bound_tests.get(name), ("benefit", "sd", "corr")
        made = BoundsDisplay(name, result.bounds[name], discrete=discrete, tests=tests, quantities=shown, words=words)
        bounds = _drawn(made.spec().panels)
    return ColumnPanel(
        *titles,
        _linked(curve_charts(name, curve, discrete, result.overall, words), f"along-{key}"),
        [(label, _linked([drawn], f"outcome-{key}-{k}")[0]) for k, (label, drawn) in enumerate(densities)],
        _linked(bounds, f"bounds-{key}"),
        numbers(curve, words),
    )


def _linked(charts: Iterable[Chart], link: str) -> list[Chart]:
    """Add identifiers, and the name of the group of figures that are highlighted together."""
    named = enumerate(charts)
    return [replace(drawn, id=f"{link}-{k}", readout={**drawn.readout, "link": link}) for k, drawn in named]


def curve_charts(
    name: str, curve: pd.DataFrame, discrete: bool, overall: Mapping[str, float], words: Words
) -> list[Chart]:
    """Average, spread, quantiles and distance if known; no quantiles for a binary outcome."""
    displays = [
        CurveDisplay(name, curve, discrete=discrete, overall=overall, words=words),
        *([] if words.binary else [QuantileDisplay(name, curve, discrete=discrete, words=words)]),
        D2Display(name, curve, discrete=discrete, words=words),
    ]
    return _drawn(panel for display in displays for panel in display.spec().panels)


def _drawn(panels: Iterable[spec.Panel]) -> list[Chart]:
    """Figures of the panels that contain any numbers."""
    return [chart(panel) for panel in panels if any(panel.values)]


def density_charts(name: str, frame: pd.DataFrame, words: Words) -> list[tuple[str, Chart]]:
    """For every value of the feature, the outcomes of both arms and their difference, on shared axes.

    Values at which an arm has no rows have no figure.
    """
    known = np.isfinite(frame[["outcome", "treated", "control", "witness"]].to_numpy(dtype=float)).all(axis=1)
    display = DensityDisplay(name, frame[known], words=words)
    panels = display.spec().panels if known.any() else ()
    n = len(display.values_)
    pairs = zip(display.values_, panels[:n], panels[n:], strict=True)
    return [(value_text(value), chart(*pair)) for value, *pair in list(pairs)[:MAX_SHOWN_VALUES]]


def numbers(curve: pd.DataFrame, words: Words) -> dict[str, Any]:
    """Curves as a table of texts, for screen readers and for those who want the numbers."""
    risk = f"{effect_name('binary', words.scale)} of any"
    said = {"mean_effect": words.effect, "any_effect": risk, "amount_ratio": "ratio of amounts above zero"}
    said |= {} if words.binary else SPREAD_TITLES
    titles = {name: title for name, title in said.items() if np.isfinite(spec.values_of(curve, name)).any()}
    columns = [[with_limits(*row) for row in zip(*spec.limits_of(curve, name), strict=True)] for name in titles]
    for name, arm in (("rows_treated", words.treated), ("rows_control", words.control)):
        if name in curve:
            titles[name] = f"rows, {arm}"
            columns.append([*map(_count, spec.values_of(curve, name))])
    weak = curve.get("low_support", [False] * len(curve))
    rows = [
        {"label": value_text(value), "cells": [column[k] for column in columns], "unsure": bool(unsure)}
        for k, (value, unsure) in enumerate(zip(curve["value"], weak, strict=True))
    ]
    return {"titles": list(titles.values()), "rows": rows}


def _count(n: float) -> str:
    return "" if math.isnan(n) else f"{n:,.0f}"


def score_charts(result: SelectionResult) -> list[Chart]:
    """Propensity scores of both arms, if the result has them."""
    panels = OverlapDisplay.from_result(result).spec().panels if len(result.score_histogram) else ()
    return [chart(panel, height=170.0) for panel in panels]


def forest_charts(result: SelectionResult) -> list[tuple[str, Chart]]:
    """Effects by subgroup for wide and narrow pages, with the CSS class of each; empty if the result has none."""
    if not len(result.subgroups):
        return []
    (panel,) = ForestDisplay.from_result(result).spec().panels
    return [("wide", row_chart(panel, 780.0)), ("narrow", row_chart(panel, 370.0, narrow=True))]


def rank_charts(result: SelectionResult, most: int = 12) -> list[tuple[str, Markup, str]]:
    """Features with the worst fitting distribution, and the selected ones: name, shares by tenths, distance as text."""
    known = result.pit_histogram.dropna(how="all")
    distance = result.diagnostics.get("pit_distance", pd.Series(dtype=float)).reindex(known.index)
    chosen = set(map(str, result.selected))
    far = {str(name): float(ks) for name, ks in distance.items()}
    order = sorted(far, key=lambda name: (name not in chosen, -np.nan_to_num(far[name])))[:most]
    panels = CalibrationDisplay(distance, known.loc[order]).spec().panels if order else ()
    return [
        (name, small_chart(panel), "" if math.isnan(far[name]) else f"off by {far[name]:.3f}")
        for name, panel in zip(order, panels, strict=True)
    ]


def placebo_chart(p_values: Any) -> Chart:
    """Histogram of placebo p-values in twentieths; the first bars do not exceed the line if p-values are valid."""
    shares = np.histogram(np.asarray(p_values, dtype=float), bins=20, range=(0.0, 1.0))[0] / max(len(p_values), 1)
    about = f"Histogram of {len(p_values)} p-values of placebo treatments: {percent(shares[0])} are below 0.05"
    places = spec.Places.numbers("p-value under a placebo treatment", (np.arange(20) + 0.5) / 20, (0.0, 1.0))
    marks = (spec.Bars("rank", shares, width=0.05), spec.Rule("overall", 0.05))
    return chart(
        spec.Panel(places, marks, holds=(0.0, 0.1), within=(0.0, 1.0), percent=True, caption=spec.Caption(about=about)),
        height=114.0,
    )


SPLIT = re.compile(r"(?<=[_.])")


def render_report(result: SelectionResult) -> str:
    """HTML of the report: the answer, the table, a panel per selected feature, diagnostics and methods."""
    environment = Environment(
        loader=PackageLoader("modifind.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["breakable"] = breakable
    panels, comparisons = make_panels(result), content.comparisons(result)
    selected, others = ([panel for panel in panels if panel.selected == chosen] for chosen in (True, False))
    style, script = template_text("report.css"), template_text("report.js")
    readouts = {key: said for panel in panels for key, said in panel.readouts.items()}
    page = environment.get_template("report.html").render(
        result=result,
        policy=_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        data=island({"charts": readouts}),
        csv=base64.b64encode(safe_csv(content.download(result)).encode("utf-8", "replace")).decode("ascii"),
        words=Words.of(result),
        abstract=Abstract.of(result),
        anchor=content.anchor,
        prognostic=content.prognostic(result),
        placebos=None if result.placebo is None else placebo_chart(result.placebo.table["p_value"]),
        forests=[(title, forest_charts(contrast)) for title, contrast in comparisons if len(contrast.subgroups)],
        technical=content.technical_table(result),
        columns=content.table_columns(result),
        rows=content.table_rows(result),
        effect=content.effect_column(result)[1] if "coef" in result.table else "",
        adjusted="adjusted p" if content.is_adjusted(result) else "p",
        bands=any("low_support" in curve for _, contrast in comparisons for curve in contrast.curves.values()),
        panels=selected,
        others=others,
        drawn={panel.name for panel in panels},
        n_reached=int(result.table["p_value"].notna().sum()),
        comparisons=[_trust_section(*comparison) for comparison in comparisons],
        doubt=control_sentence(result.settings),
        methods=methods(result),
        references=references(result),
        settings=content.setting_rows(result.settings),
    )
    return page.encode("utf-8", "replace").decode("utf-8")  # half a letter, as broken files have, cannot be written


def _trust_section(title: str, result: SelectionResult) -> dict[str, Any]:
    """The section on trust for a two-arm result."""
    return {
        "title": title,
        "overlap": result.overlap,
        "scores": score_charts(result),
        "ranks": rank_charts(result),
        "checks": content.checks_by_kind(result),
        "summary": summary(result.checks).partition(";")[0],  # notes have a table of their own
    }


def breakable(text: str) -> Markup:
    """HTML of a name that may wrap after an underscore or a full stop.

    Examples
    --------
    >>> print(breakable("kidney_function<b>"))
    kidney_<wbr>function&lt;b&gt;
    """
    return Markup("").join(escape(part) + Markup("<wbr>") * part.endswith(("_", ".")) for part in re.split(SPLIT, text))


def island(data: Any) -> Markup:
    r"""JSON that cannot close a script element or open a comment.

    Examples
    --------
    >>> print(island({"name": "</script><!--"}))
    {"name":"\u003c/script\u003e\u003c!--"}
    """
    text = json.dumps(data, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def _policy(style: str, script: str) -> str:
    """Content security policy: show the page and run this script only."""
    own_style, own_script = (
        base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii") for text in (style, script)
    )
    rules = (
        "default-src 'none'",
        f"style-src 'sha256-{own_style}'",
        f"script-src 'sha256-{own_script}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)
