"""Number formats in text files: detect values that pandas would misread as numbers."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from modifind.data.column_types import CODE

THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+")
BELOW_THOUSAND = re.compile(r"[+-]?\d{1,3}")
DECIMALS = re.compile(r"[+-]?(?:0\.\d+|\d+\.(?:\d{1,2}|\d{4,}))")
MIN_GROUPED = 2  # values with a point, one of which may have three decimals by chance
MIN_ALL_GROUPED = 20  # where none lies below a thousand


@dataclass
class Spellings:
    """Number formats seen in the lines of a file, by number of fields and field position.

    Attributes
    ----------
    separator : str
        What separates fields.
    grouped : bool
        Whether points may stand between thousands.
    gaps : frozenset of str
        What stands for a missing value.
    codes : set
        Fields with codes that look like numbers.
    points : dict
        Of fields that may hold thousands with points the distinct values with a point, and one without; None of others.
    decimals : bool
        Whether some field has decimals behind a point, so that points hardly stand between thousands as well.
    """

    separator: str
    grouped: bool
    gaps: frozenset[str] = frozenset()
    codes: set[tuple[int, int]] = field(default_factory=set)
    points: dict[tuple[int, int], tuple[set[str], str] | None] = field(default_factory=dict)
    decimals: bool = False

    def watched(self, lines: Iterator[str]) -> Iterator[str]:
        """Pass lines through unchanged, recording all but the header."""
        may_hold_codes = re.compile(rf'(?:^|{re.escape(self.separator)})[ "]*(?:0\d|\d+[eE]\d)').search
        in_header = True
        for line in lines:
            if not in_header and (self.grouped or may_hold_codes(line)):
                self._look(line)
            in_header = in_header and not line.strip()
            yield line

    def code_fields(self, n_fields: int) -> list[int]:
        """Fields that hold codes, in lines with `n_fields` fields."""
        return sorted(number for count, number in self.codes if count == n_fields)

    def refuse_thousands(self, names: Sequence[str]) -> None:
        """Refuse a column that seems to use points as thousands separators.

        Its values above 999 have three digits after a point, and no other values have a point.
        """
        for number, name in enumerate(names):
            grouped, small = self.points.get((len(names), number)) or ((), "")
            certain = len(grouped) >= MIN_GROUPED and small
            if certain or (len(grouped) >= MIN_ALL_GROUPED and not self.decimals):
                beside = f"beside {small!r}" if small else "and none below 1,000"
                raise ValueError(
                    f"column {name!r} has values such as {min(grouped)!r} {beside}, as thousands are written with "
                    "points; add --decimal . if those are decimal points, or remove the points between thousands"
                )

    def _look(self, line: str) -> None:
        fields = next(csv.reader((line,), delimiter=self.separator)) if '"' in line else line.split(self.separator)
        values = [value.strip() for value in fields]
        for number, value in enumerate(values):
            key = len(values), number
            if re.fullmatch(CODE, value):
                self.codes.add(key)
            if self.grouped and value:
                self._count(key, value)

    def _count(self, key: tuple[int, int], value: str) -> None:
        """Record a value of a field that may use thousands separators; any other format rules that out."""
        self.decimals |= DECIMALS.fullmatch(value) is not None
        seen = self.points.get(key, (set[str](), ""))
        if seen is None:
            return
        if "." in value and THOUSANDS.fullmatch(value):
            if len(seen[0]) < MIN_ALL_GROUPED:
                seen[0].add(value)
        elif BELOW_THOUSAND.fullmatch(value):
            seen = seen[0], value
        elif value not in self.gaps:
            self.points[key] = None
            return
        self.points[key] = seen
