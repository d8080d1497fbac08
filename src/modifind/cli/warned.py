"""Warnings of the command line: single lines, in the words of options, each once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from modifind.cli.terminal import complain
from modifind.cli.typed import as_typed

if TYPE_CHECKING:
    from modifind.cli.options import Roles


@dataclass
class WarningLines:
    """How warnings become lines: those that the checks show are left out, the others are in the user's words."""

    shown: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    roles: Roles | None = None

    def typed(self, message: str) -> str:
        """A message in the words of the command line."""
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
