"""The page: data, style and script in one file that loads nothing and runs nothing but its own script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

from modifind.charts.labels import Words
from modifind.report import content
from modifind.report.abstract import Abstract
from modifind.report.methods import methods, references, template_text
from modifind.report.panels import forest_charts, make_panels, placebo_chart, rank_charts, score_charts
from modifind.result.concerns import summary
from modifind.result.safe_csv import safe_csv
from modifind.result.selection_result import SelectionResult
from modifind.result.uncontrolled import control_sentence

SPLIT = re.compile(r"(?<=[_.])")


def render_report(result: SelectionResult) -> str:
    """HTML text of the report: the answer, the table, a panel per selected feature, diagnostics and methods."""
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
    """What the section about trust says of two arms."""
    return {
        "title": title,
        "overlap": result.overlap,
        "scores": score_charts(result),
        "ranks": rank_charts(result),
        "checks": content.checks_by_kind(result),
        "summary": summary(result.checks).partition(";")[0],  # notes have a table of their own
    }


def breakable(text: str) -> Markup:
    """A name that may go on in the next line after an underscore or a full stop.

    Examples
    --------
    >>> print(breakable("kidney_function<b>"))
    kidney_<wbr>function&lt;b&gt;
    """
    return Markup("").join(escape(part) + Markup("<wbr>") * part.endswith(("_", ".")) for part in re.split(SPLIT, text))


def island(data: Any) -> Markup:
    r"""Data as JSON that ends no script and opens no comment.

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
    """What the browser may do with the page: show it, and run this script alone."""
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
