"""Presentation of results: tables as Markdown, LaTeX, HTML and CSV, names of effects, merged texts of arms."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from html import escape
from typing import Any

import pandas as pd

from modifind.data.words import printable

LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "\u2212": r"$-$"},
}
MARKDOWN = {sign: f"\\{sign}" for sign in "\\|*_`[]<>"}


def as_markdown(table: pd.DataFrame) -> str:
    r"""Format a table as Markdown, index first.

    Examples
    --------
    >>> print(as_markdown(pd.DataFrame({"p": ["<0.001"]}, index=pd.Index(["a_b"], name="feature"))))
    | feature | p |
    | --- | --- |
    | a\_b | \<0.001 |
    """
    head, *rows = _cells(table, lambda text: _text_problem(text, MARKDOWN))
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_latex(table: pd.DataFrame) -> str:
    r"""Format a table as LaTeX, index first; requires the package booktabs.

    Examples
    --------
    >>> print(as_latex(pd.DataFrame({"p": ["<0.001"]}, index=pd.Index(["a_b"], name="feature"))))
    \begin{tabular}{ll}
    \toprule
    feature & p \\
    \midrule
    a\_b & \textless{}0.001 \\
    \bottomrule
    \end{tabular}
    """
    head, *rows = (" & ".join(line) + r" \\" for line in _cells(table, lambda text: _text_problem(text, LATEX)))
    columns = "l" * (1 + table.shape[1])
    lines = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        head,
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines)


def as_html(table: pd.DataFrame, bold: Collection[str] = ()) -> str:
    """Format a table as HTML, index first, with the rows in `bold` highlighted."""
    head, *rows = _cells(table, escape)
    title = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join(
        f"<tr{_weight(str(name) in bold)}>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
        for name, row in zip(table.index, rows, strict=True)
    )
    return f"<table><thead><tr>{title}</tr></thead><tbody>{body}</tbody></table>"


def _weight(bold: bool) -> str:
    return ' style="font-weight: bold"' if bold else ""


def _cells(table: pd.DataFrame, write: Callable[[str], str]) -> list[list[str]]:
    """Text of every cell by line, headings first."""
    rows = [
        [table.index.name, *table.columns],
        *([name, *row] for name, row in zip(table.index, table.to_numpy(), strict=True)),
    ]
    return [[write(printable(str(cell))) for cell in row] for row in rows]


def _text_problem(text: str, signs: dict[str, str]) -> str:
    return "".join(signs.get(letter, letter) for letter in text)


# What a spreadsheet takes for the beginning of a formula: the first character that it shows of a cell, or of a part
# that another separator than the comma makes a cell of. Signs of full width count where such are typed.
UNSEEN = r"\s\0-\x1f\x7f-\xa0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff'\""
FORMULA = re.compile(rf"(^|[;|\t\r\n])(?=[{UNSEEN}]*[=+\-@\uff1d\uff0b\uff0d\uff20])")
CONTROL_CHARACTERS = ("\t", "\r", "\n")


def safe_cell(value: Any) -> Any:
    """Prefix text that a spreadsheet would take for a formula with an apostrophe; return anything else unchanged.

    Examples
    --------
    >>> safe_cell("=SUM(A1:A9)"), safe_cell("age"), safe_cell(-1.5), safe_cell("x;=1+1")
    ("'=SUM(A1:A9)", 'age', -1.5, "x;'=1+1")
    """
    if not isinstance(value, str):
        return value
    safe = FORMULA.sub(r"\1'", value)
    return f"'{safe}" if safe.startswith(CONTROL_CHARACTERS) else safe


def safe_csv(frame: pd.DataFrame, *, index: bool = True, **options: Any) -> str:
    """Format a DataFrame as CSV without names, labels or texts that a spreadsheet would run; numbers stay numbers."""
    shown = frame.copy()
    for position, kind in enumerate(frame.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            shown.isetitem(position, [safe_cell(value) for value in frame.iloc[:, position]])
    shown.columns = pd.Index([safe_cell(name) for name in frame.columns])
    shown.index = pd.Index([safe_cell(label) for label in frame.index], name=safe_cell(frame.index.name))
    return shown.to_csv(index=index, lineterminator="\n", **options)


RATIOS = {"binary": "risk ratio", "count": "rate ratio"}
ODDS = {"binary": "odds ratio", "ordinal": "common odds ratio"}


def effect_name(kind: str, scale: str) -> str:
    """Name of the average effect on a scale.

    Examples
    --------
    >>> effect_name("count", "ratio"), effect_name("binary", "odds_ratio"), effect_name("numeric", "difference")
    ('rate ratio', 'odds ratio', 'effect')
    """
    if scale == "difference":
        return "risk difference" if kind == "binary" else "effect"
    return ODDS.get(kind, "odds ratio") if scale == "odds_ratio" else RATIOS.get(kind, "ratio of means")


def scale_of(settings: Mapping[str, Any]) -> tuple[str, str]:
    """Kind of outcome and effect scale of a result."""
    return str(settings.get("outcome_kind") or "numeric"), str(settings.get("effect_scale") or "difference")


N_DRAWS = 200
# Points with fewer effective rows than this in an arm are not drawn as fact.
MIN_SUPPORT = 20.0


def merged_texts(by_arm: Mapping[str, Iterable[str]], reference: Any) -> list[str]:
    """Merge the texts of comparisons with a reference, naming the comparisons unless a text applies to all.

    Examples
    --------
    >>> merged_texts({"low": ["x is constant"], "high": ["x is constant", "few rows"]}, "none")
    ['x is constant', "few rows ('high' against 'none')"]
    """
    owners: dict[str, list[str]] = {}
    for label, texts in by_arm.items():
        for text in dict.fromkeys(texts):
            owners.setdefault(text, []).append(label)
    return [
        text if len(labels) == len(by_arm) else f"{text} ({', '.join(map(repr, labels))} against {str(reference)!r})"
        for text, labels in owners.items()
    ]
