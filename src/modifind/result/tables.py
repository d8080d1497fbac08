"""A table of texts as Markdown, LaTeX and HTML; what is the user's text has no meaning of its own in any of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from html import escape

import pandas as pd

from modifind.data.wording import printable

LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "\u2212": r"$-$"},
}
MARKDOWN = {sign: f"\\{sign}" for sign in "\\|*_`[]<>"}


def as_markdown(table: pd.DataFrame) -> str:
    r"""A table in Markdown, the index first.

    Examples
    --------
    >>> print(as_markdown(pd.DataFrame({"p": ["<0.001"]}, index=pd.Index(["a_b"], name="feature"))))
    | feature | p |
    | --- | --- |
    | a\_b | \<0.001 |
    """
    head, *rows = _cells(table, lambda text: _written(text, MARKDOWN))
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_latex(table: pd.DataFrame) -> str:
    r"""A table in LaTeX, the index first; it needs the package booktabs.

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
    head, *rows = (" & ".join(line) + r" \\" for line in _cells(table, lambda text: _written(text, LATEX)))
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
    """A table in HTML, the index first, some of its rows in bold."""
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
    """Texts of all lines, that of the headings first."""
    rows = [
        [table.index.name, *table.columns],
        *([name, *row] for name, row in zip(table.index, table.to_numpy(), strict=True)),
    ]
    return [[write(printable(str(cell))) for cell in row] for row in rows]


def _written(text: str, signs: dict[str, str]) -> str:
    return "".join(signs.get(letter, letter) for letter in text)
