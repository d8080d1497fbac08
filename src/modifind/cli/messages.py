"""Translate messages for the command line: options instead of arguments, single lines instead of warnings."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modifind.cli.options import arguments_of, option_name
from modifind.cli.output import complain
from modifind.data.words import meant

if TYPE_CHECKING:
    from modifind.cli.options import Roles


_ARGUMENTS = {
    **arguments_of("ModifierSelector"),
    **arguments_of("ModifierSelector", "fit"),
    **arguments_of("EffectLikelihood"),
}
# Arguments whose names are no English words. Others are recognised by what follows them.
SNAKE_CASE_ARGUMENTS = tuple(name for name in _ARGUMENTS if "_" in name)
WORDS = (
    *("alpha", "adjust", "statistic", "sampler", "missing", "propensity", "strata", "clusters", "treated"),
    *("reference", "arms", "population", "checkpoint", "device", "learner", "treatment", "runs", "outcome"),
    *("better", "unit"),
)
FOLLOWS = r"must\b|needs?\b|names\b|is for\b|for a\b|\S+ (?:is in use|belongs to|cannot)\b"
PHRASES = {
    "outcome_transform='log'": "--log-outcome",
    "explain=False": "--no-explain",
    "design='randomised' (--randomised)": "--randomised",
    "design='observational' (--observational)": "--observational",
    "design='randomised'": "--randomised",
    "design='observational'": "--observational",
    "leave out of X columns measured after it": "leave out (--exclude) columns measured after it",
    "adjust_for=[...]": "--adjust-for",
    "Read the file with pandas.read_csv(decimal=',')": "Write them with decimal points",
    "leave clusters out": "leave --clusters out",
    "feature_groups need ": "--feature-group needs ",
    "read the table, or a sample of it, into a DataFrame": "leave --stream out, or take a sample of the rows",
    "pass a file of it, a pattern such as": "name a file of it, or with --stream a pattern such as",
    "', or a list of files": "'",
    "pass a DataFrame": "leave --stream and --dask out",
    "pass a sample of the rows as a DataFrame": "take a sample of the rows",
    "in batches (from a file)": "in batches (--stream)",
    " or a statistic, not": ", not",
    "a number, an array or a classifier": "a number or a column",
    " or a sampler, not": ", not",
    "propensity={label: share}": "--propensity label=share,...",
}
CODE = re.compile(r": (?:y|X\[.*?\])\.str\..*?\.astype\(float\)")  # what pandas would do
COLUMN_OPTIONS = {
    "sample_weight": ("--weight", "weight"),
    "clusters": ("--clusters", "clusters"),
    "strata": ("--strata", "strata"),
    "propensity": ("--propensity", "scores"),
    "treatment": ("--treatment", "treatment"),
}


def as_typed(message: str, columns: Sequence[str] = (), roles: Roles | None = None) -> str:
    """Translate a message of the Python interface for the command line.

    Parameters
    ----------
    message : str
        What Python says.
    columns : sequence of str
        Columns of the table; their names are left as they are.
    roles : Roles, optional
        What the columns are.

    Examples
    --------
    >>> as_typed("fill them, or use missing='drop'; raise max_train_rows=200")
    'fill them, or use --missing drop; raise --train-rows 200'
    >>> as_typed("alpha must lie strictly between 0 and 1, not 2")
    '--alpha must lie strictly between 0 and 1, not 2'
    """
    for phrase, typed in PHRASES.items():
        message = message.replace(phrase, typed)
    message = CODE.sub("", message)
    free = set(columns)
    if roles is not None:
        message = _with_roles(message, free, roles)
    if "X" not in free:
        message = re.sub(r"(?<=\bof )X(?=[;,. ]|$)|(?<!['\w.=/-])X(?= has\b| does\b| must\b)", "the table", message)
    for argument in (*SNAKE_CASE_ARGUMENTS, *WORDS):
        if argument in free:
            continue
        option = option_name(argument)
        value = r"=(?:'([^'\s]*)'|\"([^\"\s]*)\"|([\w.+-]+))?"
        message = re.sub(rf"(?<![\w'-]){argument}{value}", _with_value(option), message)
        if argument in SNAKE_CASE_ARGUMENTS:
            message = re.sub(rf"(?<![\w'-]){argument}(?![\w'])", option, message)
        else:
            message = re.sub(rf"^{argument} (?={FOLLOWS})", f"{option} ", message)
    return _suggested(message)


def _with_roles(message: str, free: set[str], roles: Roles) -> str:
    """Replace arguments by the options and columns given for them."""
    for argument, (option, role) in COLUMN_OPTIONS.items():
        name = getattr(roles, role)
        if name is not None and argument not in free:
            follows = r"(?=:| (?:has|must|is|lies|says)\b)"
            message = re.sub(rf"^{argument}{follows}", _plain(f"{option} {name}"), message)
    message = re.sub(r"\bof treatment(?=:| needs)", _plain(f"of the treatment {roles.treatment!r}"), message)
    if "y" in free - {roles.outcome}:
        return message
    whole = r"(?<!['\w.=/-])(?:the outcome )?y(?!['\w=(/-]| = )"
    return re.sub(whole, _plain(f"the outcome {roles.outcome!r}"), message)


def _plain(text: str) -> Callable[[re.Match[str]], str]:
    """A replacement for `re.sub` without special characters."""
    return lambda _: text


def _with_value(option: str) -> Callable[[re.Match[str]], str]:
    def typed(match: re.Match[str]) -> str:
        value = next((group for group in match.groups() if group), "")
        return f"{option} {value}" if value else option

    return typed


def _suggested(message: str) -> str:
    """Add the choice that was probably meant to a message that lists choices."""
    match = re.search(r"must be (.*), not '([^']*)'$", message)
    if match is None:
        return message
    return message + meant(match[2], re.findall(r"'([^']+)'", match[1]))


@dataclass
class WarningLines:
    """Turns warnings into lines: skips those that the checks show and translates the others."""

    shown: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    roles: Roles | None = None

    def typed(self, message: str) -> str:
        """Translate a message for the command line."""
        return as_typed(" ".join(message.split()), self.columns, self.roles)


@contextmanager
def warnings_as_lines() -> Iterator[WarningLines]:
    """Print each warning once, as a single line on stderr."""
    lines = WarningLines()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield lines
        except Exception as error:
            from modifind._workers import WorkerError

            if not isinstance(error, ValueError | OSError | WorkerError):
                raise
            raise ValueError(lines.typed(str(error))) from error
        finally:  # what was warned of may explain an error
            messages = [str(w.message) for w in caught if str(w.message) not in lines.shown]
            for line in dict.fromkeys(map(lines.typed, messages)):
                complain(f"modifind: warning: {line}")
