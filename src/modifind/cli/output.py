"""Output of the command line: checks of output files before work starts, and lines on the terminal.

Control characters in names are escaped before printing.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from modifind._system import blocking_file
from modifind.data.words import counted, printable

if TYPE_CHECKING:
    from modifind.cli.options import Roles
    from modifind.result.placebo_result import PlaceboResult
    from modifind.result.selection_result import SelectionResult
    from modifind.selector import ModifierSelector


MIN_FREE_BYTES = 2**19  # bytes; results of small tables and their reports take about half of it


def check_outputs(wanted: Mapping[str, tuple[Path | None, tuple[str, ...]]], inputs: Iterable[Path] = ()) -> None:
    """Refuse output files that could not be written or would overwrite an input.

    Parameters
    ----------
    wanted : mapping
        The path, if one is given, and the endings that it may have, by option.
    inputs : iterable of Path
        Files that must stay as they are.

    Raises
    ------
    ValueError
        It names the option and the path.

    Examples
    --------
    >>> check_outputs({"--out": (Path("result.txt"), (".json", ".csv"))})
    Traceback (most recent call last):
        ...
    ValueError: --out must end in .json or .csv; found 'result.txt'
    """
    owners = [(path, f"the input {path}") for path in inputs]
    for option, (path, endings) in wanted.items():
        if path is None:
            continue
        if path.suffix.lower() not in endings:
            raise ValueError(f"{option} must end in {' or '.join(endings)}; found {str(path)!r}")
        if path.is_dir():
            raise ValueError(f"{option}: {path} is a folder; name a file")
        for other, owner in owners:
            if _same_file(path, other):
                raise ValueError(f"{option}: {path} would replace {owner}; choose another name")
        owners.append((path, option))
        _check_place(option, path, path.parent)


def check_folders(wanted: Mapping[str, str | os.PathLike[str] | None]) -> None:
    """Refuse output folders, by option, that could not be created or written to; None if not requested.

    Examples
    --------
    >>> check_folders({"--figures": __file__})
    Traceback (most recent call last):
        ...
    ValueError: --figures: ... is a file; name a folder
    """
    for option, folder in wanted.items():
        if folder is None or not os.fspath(folder):
            continue
        path = Path(folder)
        if path.is_file():
            raise ValueError(f"{option}: {path} is a file; name a folder")
        _check_place(option, path, path)


def _same_file(one: Path, other: Path) -> bool:
    """Whether two paths are the same file, or will be once both are written."""
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them is not there
        here, there = os.path.realpath(one), os.path.realpath(other)
        return here == there or (here.casefold() == there.casefold() and _ignores_case(Path(here).parent))


def _ignores_case(folder: Path) -> bool:
    """Whether the folder's file system ignores case, which only a trial can tell."""
    try:
        with tempfile.TemporaryDirectory(prefix="Case", dir=_existing(folder)) as made:
            return os.path.samefile(made, Path(made).with_name(Path(made).name.swapcase()))
    except OSError:
        return False


def _existing(folder: Path) -> Path:
    """The folder or its nearest existing parent."""
    return next((one for one in (folder, *folder.parents) if one.exists()), folder)


def _check_place(option: str, path: Path, parent: Path) -> None:
    """Refuse a `path` whose parent folder is not writable or has too little space."""
    if blocking := blocking_file(parent):
        raise ValueError(f"{option}: cannot write {path}: {blocking} is a file")
    folder = _existing(parent.absolute())
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        raise ValueError(f"{option}: cannot write {path}: {error.strerror}") from None
    if path.exists() and not os.access(path, os.W_OK):
        raise ValueError(f"{option}: cannot write {path}: the file is write-protected")
    if free < MIN_FREE_BYTES:
        raise ValueError(
            f"{option}: cannot write {path}: {free // 1024} KB are free there, {MIN_FREE_BYTES // 1024} KB are needed; "
            "make room or choose another folder"
        )


def write_outputs(writers: Mapping[str, tuple[Path | None, Callable[[Path], None]]]) -> list[str]:
    """Write every requested file, even if others fail.

    Parameters
    ----------
    writers : mapping
        The path, if one is given, and what writes it, by option.

    Returns
    -------
    list of str
        What could not be written, and why.
    """
    from modifind._system import make_folder

    failures = []
    for option, (path, write) in writers.items():
        if path is None:
            continue
        try:
            make_folder(path.absolute().parent)
            write(path)
        except (OSError, ValueError) as error:
            failures.append(f"{option}: {error}")
    return failures


MINUS = "\u2212"  # written as a hyphen, which every terminal has
MAX_FEATURES = 20
COLUMN_STYLES: dict[str, dict[str, Any]] = {  # of columns of the table of features
    **{name: {"overflow": "fold"} for name in ("feature", "arms", "caution")},
    **{name: {"justify": "right"} for name in ("p", "adjusted p")},
}


class LastingStream:
    """Wrapper of stdout or stderr whose failures do not end the run.

    Characters that its encoding lacks are escaped; output after a failure, such as a closed pipe or a full disk, is
    dropped.

    Attributes
    ----------
    failure : OSError or None
        Why something was dropped.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write if possible."""
        self._attempt(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Flush if possible."""
        self._attempt(self._stream.flush)

    def _attempt(self, call: Callable[..., Any], *arguments: str) -> None:
        try:
            call(*arguments)
        except OSError as error:
            self.failure = self.failure or error
            with suppress(OSError):  # else Python would fail over the rest once more when it ends
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)


@contextmanager
def lasting_streams() -> Iterator[LastingStream]:
    """Replace stdout and stderr by streams whose failures do not end the run; yields stdout."""
    for number in (0, 1, 2):  # a closed one would be given to the next file that is opened
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    before = sys.stdout, sys.stderr
    out, err = (
        LastingStream(os.fdopen(number, "w", encoding="utf-8", closefd=False) if stream is None else stream)
        for number, stream in zip((1, 2), before, strict=True)
    )
    sys.stdout, sys.stderr = out, err
    try:
        yield out
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = before


def star() -> str:
    """The mark of a selected feature, in a character that the terminal can show."""
    try:
        "★".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "*"
    return "★"


def complain(line: str) -> None:
    """Print a message on stderr, wrapped on a terminal."""
    print(_wrapped(printable(line), sys.stderr), file=sys.stderr)


def _wrapped(line: str, stream: TextIO, indent: str = "    ") -> str:
    if not stream.isatty():
        return line
    width = max(40, shutil.get_terminal_size().columns)
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def print_checks(result: SelectionResult, typed: Callable[[str], str] = str) -> None:
    """Print whether the checks passed and a line for each caution and note, translated by `typed`."""
    from modifind.result.concerns import summary

    for label, arm_result in result.by_arm.items() if result.by_arm else [("", result)]:
        if len(arm_result.checks):
            line = summary(arm_result.checks)
            print(f"checks{f' of {printable(label)}' if label else ''}: {_uncapitalised(line)}")
    for bears, word in ((True, "caution"), (False, "note")):
        for concern in result.concerns(validity=bears):
            print(_wrapped(f"  {word}: {printable(' '.join(typed(concern).split()))}", sys.stdout))


def strict_line(result: SelectionResult) -> str:
    """Reason why a strict run ends with an error."""
    reason = counted(len(result.cautions), "thing puts", "things put")
    return f"modifind: --strict: {reason} the answer in doubt; results were written nevertheless (exit code 3)"


def print_dry_run(selector: ModifierSelector, table: Any, roles: Roles) -> None:
    """Print how a table is read and what a fit would do with it."""
    from modifind.data.containers import is_distributed
    from modifind.data.roles import column_names
    from modifind.engine.dry_run import describe

    if isinstance(table, tuple):
        raise ValueError("--dry-run needs the table in memory; leave --stream out")
    if is_distributed(table):
        raise ValueError("--dry-run needs the table in memory; leave --dask out")
    lines = describe(selector.get_params(deep=False), table, **roles.arguments)
    others = [name for name in column_names(table) if name not in roles.features]
    lines.insert(3, ("other columns", ", ".join(others)))
    width = max(len(heading) for heading, _ in lines)
    for heading, line in lines:
        print(f"{heading:<{width}}  {printable(line)}")
    print("\nNothing was fitted; leave --dry-run out to run it.")


def print_adjusted(names: list[str]) -> None:
    """Print the columns that are adjusted for but not tested, if any."""
    if names:
        print(f"adjusted for: {printable(', '.join(names))}; --exclude leaves a column out\n")


def print_placebo(result: PlaceboResult, typed: Callable[[str], str]) -> None:
    """Print the result of placebo runs, with a warning translated by `typed` if it exceeds chance."""
    print(f"{result.text}\n{result.drawn[0].upper()}{result.drawn[1:]}.")
    for row in result.table.sort_values("p_value").head(3).itertuples():
        selected = " (selected)" * bool(row.selected)
        print(f"  run {row.run}, {printable(str(row.feature))}: p = {row.p_value:.2g}{selected}")
    if result.warning:
        complain(f"modifind: warning: {typed(result.warning)}")


def print_result(result: SelectionResult, truth: dict[str, str] | None = None) -> None:
    """Print the table of features, then the answer: average effect, its modifiers and the clear subgroups."""
    from rich.console import Console

    from modifind.report.abstract import Abstract

    mark = star()
    Console().print(_feature_table(result, truth, mark))
    settings, answer = result.settings, Abstract.of(result)
    adjusted = "p" if settings["adjust"] == "none" else "adjusted p"
    shown = min(len(result.table), max(MAX_FEATURES, len(result.selected)))
    more = f"; {len(result.table) - shown} more features are in the file of --out" if len(result.table) > shown else ""
    lines = [f"{mark} {adjusted} at most {settings['alpha']:g}{more}", "", answer.headline, ""]
    titles = [title for title, _ in answer.parts] + [group.title for group in answer.groups]
    width = max(map(len, titles), default=0) + 2
    for title, text in answer.parts:
        lines.append(f"{_uncapitalised(title):<{width}}{text}")
    lines += [f"{'':<{width}}{name}: {text}" for name, text in answer.modifiers]
    lines += [f"{_uncapitalised(group.title):<{width}}{'; '.join(group.lines)}" for group in answer.groups]
    roles = result.table.get("role")
    predictors = [] if roles is None else [str(name) for name in result.table.index[roles == "prognostic"]]
    if predictors:
        lines.append(f"{'prognostic only':<{width}}{', '.join(predictors)}")
    for label, contrast in (result.by_arm or {}).items():
        lines.append(f"{label}: {', '.join(map(str, contrast.selected)) or 'none'} selected over features and arms")
    if result.placebo is not None:
        lines.append(f"{'placebo':<{width}}{result.placebo.text}")
    for line in lines:
        indent = "" if line == answer.headline else " " * width
        print(_wrapped(printable(line.replace(MINUS, "-")), sys.stdout, indent))


def _feature_table(result: SelectionResult, truth: dict[str, str] | None, mark: str) -> Any:
    """Table of the features, most significant first, with the truth if known and any cautions."""
    from rich.table import Table
    from rich.text import Text

    from modifind.result.selection_result import by_significance, readable_p

    table = by_significance(result.table).head(max(MAX_FEATURES, len(result.selected)))
    more: dict[str, list[str]] = {}
    if truth is not None:
        more["in truth moves"] = [truth.get(str(name), "nothing") for name in table.index]
    if result.by_arm:
        more["arms"] = [printable(str(arms)) for arms in table["arms"]]
    cautions = [printable(str(caution)) for caution in table.get("caution", ())]
    if any(cautions):
        more["caution"] = cautions
    shown = Table(box=None, pad_edge=False)
    for name in ("feature", "kind", "p", "adjusted p", "", *more):
        shown.add_column(name, **COLUMN_STYLES.get(name, {}))
    for position, row in enumerate(table.itertuples()):
        numbers = readable_p(float(row.p_value)), readable_p(float(row.p_adjusted))  # type: ignore[arg-type]
        cells: list[Any] = [Text(printable(str(row.Index))), str(row.kind), *numbers, mark * bool(row.selected)]
        shown.add_row(
            *cells, *(Text(texts[position]) for texts in more.values()), style="bold" if row.selected else None
        )
    return shown


def _uncapitalised(text: str) -> str:
    """Lower the first letter only, since names may follow."""
    return text[:1].lower() + text[1:]
