"""What the command line prints: names are shown as they are, and nothing in them is a command to the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modifind.result import SelectionResult


def printable(text: str) -> str:
    r"""Text with line ends, escape sequences and the like written out.

    Examples
    --------
    >>> print(printable("dose\x1b[31m\n"))
    dose\x1b[31m\n
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def named(names: Iterable[Any], between: str = ", ") -> str:
    r"""Names in a sentence: as they are, but for what a terminal would obey, which is written out.

    Examples
    --------
    >>> print(named(["dose\x1b[31m", "age"]))
    dose\x1b[31m, age
    """
    return printable(between.join(map(str, names)))


def listed(names: Iterable[Any], most: int | None = None) -> str:
    r"""Names in a message: each in quotation marks, and what a terminal would obey written out.

    Parameters
    ----------
    names : iterable
        The names.
    most : int, optional
        How many are shown.

    Examples
    --------
    >>> print(listed(["dose\x1b[31m", "age"]), listed("abc", most=2))
    'dose\x1b[31m', 'age' 'a', 'b', ...
    """
    quoted = [repr(name) for name in names]
    return ", ".join(quoted[:most]) + ", ..." * (most is not None and len(quoted) > most)


def print_checks(result: SelectionResult) -> None:
    """How many kinds of check need attention, a line for each of those, and then the notes."""
    from modifind.checks import concerns, summary

    if not len(result.checks):
        return
    print(f"checks: {summary(result.checks)}")
    for bears, word in ((True, "caution"), (False, "note")):
        for concern in concerns(result.checks, validity=bears):
            print(f"  {word}: {printable(' '.join(concern.split()))}")


def strict_line(result: SelectionResult) -> str:
    """Why a strict run ends with an error."""
    failed = len(result.cautions)
    reason = "1 thing puts" if failed == 1 else f"{failed} things put"
    return f"modifind: --strict: {reason} the answer in doubt; results were written all the same (exit code 3)"


def print_result(result: SelectionResult, truth: dict[str, str] | None = None) -> None:
    """The table of features, what was selected and how many rows that rests on."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from modifind.result import readable_p

    settings = result.settings
    console = Console()
    shown = Table(box=None, pad_edge=False)
    shown.add_column("feature", overflow="fold")
    shown.add_column("kind")
    for name in ("importance", "p", "adjusted p"):
        shown.add_column(name, justify="right")
    shown.add_column("")
    if truth is not None:
        shown.add_column("in truth moves")
    careful = "caution" in result.table and bool((result.table["caution"] != "").any())
    if careful:
        shown.add_column("caution", overflow="fold")
    ordered = result.table.sort_values(["p_value", "importance"], ascending=[True, False])
    for row in ordered.itertuples():
        cells: list[str | Text] = [
            Text(printable(str(row.Index))),
            str(row.kind),
            f"{row.importance:.3g}",
            readable_p(float(row.p_value)),  # type: ignore[arg-type]
            readable_p(float(row.p_adjusted)),  # type: ignore[arg-type]
            "★" if row.selected else "",
        ]
        if truth is not None:
            cells.append(truth.get(str(row.Index), "nothing"))
        if careful:
            cells.append(Text(printable(str(row.caution))))
        shown.add_row(*cells, style="bold" if row.selected else None)
    console.print(shown)
    labels = f"treated = {settings['treated_label']}, control = {settings['control_label']}"
    chosen = ", ".join(map(str, result.selected)) or "none"
    adjusted = "unadjusted" if settings["adjust"] == "none" else f"{settings['adjust'].upper()}-adjusted"
    console.print(Text(f"\n★ selected at {adjusted} p <= {settings['alpha']:g}: {printable(chosen)}"))
    roles = result.table.get("role")
    predictors = [] if roles is None else [str(name) for name in result.table.index[roles == "prognostic"]]
    if predictors:
        console.print(Text(f"predict the outcome, no difference found: {printable(', '.join(predictors))}"))
    if result.placebo is not None:
        console.print(Text(printable(result.placebo.text)))
    kept = "overlap_rows" if settings.get("population") == "overlap" else "effective_rows"
    effective = f"{result.overlap[f'{kept}_treated']:.0f} treated, {result.overlap[f'{kept}_control']:.0f} control"
    effective += " (overlap population)" if kept == "overlap_rows" else ""
    console.print(Text(f"{settings['n_rows']} rows, {printable(labels)}; effective rows after weighting: {effective}"))
