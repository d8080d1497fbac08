"""Tables in text files: detection of delimiter, number format and encoding, and validation of lines."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import IO, Any, NoReturn, TextIO, cast

import pandas as pd

from modifind._warned import warn
from modifind.data.files.spellings import Spellings
from modifind.data.words import counted, listed, repeated

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zip", ".zst")
BYTE_ORDER_MARKS = (  # those of UTF-32 first, which begin like those of UTF-16
    *((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32")),
    *((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")),
)
SEPARATORS = {",": "','", ";": "';'", "\t": "tab", "|": "'|'", " ": "space"}  # as --separator takes them
WORDS = {"tab": "\t", r"\t": "\t", "space": " "}
UNREADABLE = (OSError, EOFError, ValueError, RuntimeError, csv.Error, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
MAX_SHOWN_LENGTH = 60
# What pandas takes for missing, but for None, which is a label of treatments: None against Drug.
MISSING = ["", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"]
MISSING += ["NA", "NULL", "NaN", "n/a", "nan", "null"]
DECIMAL_COMMA = r"[+-]?\d+(,\d+)?"
# How files begin that are no text, what they are, and what to do.
OTHER_FILES = {
    b"PAR1": ("Parquet", "rename it to end in .parquet"),
    b"\x1f\x8b": ("gzip", "rename it to end in .gz"),
    b"BZh": ("bzip2", "rename it to end in .bz2"),
    b"\xfd7zX": ("xz", "rename it to end in .xz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "rename it to end in .zst"),
    b"PK\x03\x04": ("zip or a spreadsheet", "save the table as CSV"),
    b"\xd0\xcf\x11\xe0": ("a spreadsheet", "save the table as CSV"),
}


@dataclass(frozen=True)
class Dialect:
    r"""How a text file is read; whatever is None is detected.

    Attributes
    ----------
    separator : str, optional
        What separates fields: one character, "tab" or "space". A comma, or a tab in files that end in .tsv.
    decimal : {".", ","}, optional
        What separates decimals; a point.
    encoding : str, optional
        How letters are written, such as "latin-1". UTF-8, or what a byte-order mark says.
    row_names : bool, default=False
        Whether lines begin with a row name, which is left out, as in files of R's ``write.table``.

    Examples
    --------
    >>> Dialect(separator="tab").separator
    '\t'
    >>> Dialect(decimal="comma")
    Traceback (most recent call last):
    ValueError: --decimal must be '.' or ','; found 'comma'
    """

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    row_names: bool = False

    def __post_init__(self) -> None:
        """Refuse impossible settings."""
        separator = WORDS.get(self.separator or "", self.separator)
        object.__setattr__(self, "separator", separator)
        if separator is not None and (len(separator) != 1 or separator.isalnum() or separator in "\"'.+-\r\n\0"):
            raise ValueError(f"--separator must be one character such as ';', or tab or space; found {separator!r}")
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"--decimal must be '.' or ','; found {self.decimal!r}")
        try:
            "".encode(self.encoding or "utf-8")
        except (LookupError, ValueError):
            raise ValueError(
                f"--encoding must be one that Python knows, such as latin-1 or utf-16; found {self.encoding!r}"
            ) from None


@dataclass(frozen=True)
class TextFile:
    """A text file whose lines have as many fields as its header; create one with `open_text`.

    Attributes
    ----------
    path : Path
        The file.
    header : tuple of str
        Names of all fields, without blanks around them.
    left_out : int
        How many of the first fields are no columns: 1 for a saved index or names of rows.
    cut : int
        How many of the last fields are no columns: 1 where every line ends in a separator.
    codes : tuple of str
        Columns of codes that look like numbers, such as 007, which are read as text.
    n_rows : None
        Not known before the file is read.
    """

    path: Path
    header: tuple[str, ...]
    left_out: int
    cut: int
    separator: str
    decimal: str | None
    encoding: str
    codes: tuple[str, ...] = ()
    n_rows: int | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.header[self.left_out : len(self.header) - self.cut])

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments for pandas, except the encoding."""
        names = {"header": 0, "names": list(self.header), "index_col": False, "dtype": dict.fromkeys(self.codes, str)}
        gaps = {"keep_default_na": False, "na_values": MISSING}
        return {"sep": self.separator, "decimal": self.decimal or ".", **names, **gaps}

    def with_codes(self, names: Sequence[str]) -> TextFile:
        """The same file with those of these columns that it has read as text."""
        return replace(self, codes=tuple(name for name in names if name in self.header))

    def read(self) -> pd.DataFrame:
        """The whole table."""
        with readable(self.path), _letters(self.path, self.encoding) as lines:
            return self._columns(pd.read_csv(lines, low_memory=False, **self.options))

    def batches(self, columns: Sequence[str], n_rows: int) -> Iterator[pd.DataFrame]:
        """Batches of `n_rows` rows of some columns."""
        with readable(self.path), _letters(self.path, self.encoding) as lines:
            for frame in pd.read_csv(lines, chunksize=n_rows, low_memory=False, **self.options):
                yield self._columns(frame)[list(columns)]

    def _columns(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The columns, with numbers converted if they were read as text for their decimal commas or points."""
        frame = frame.iloc[:, self.left_out : len(self.header) - self.cut]
        if self.decimal == "." or (self.separator == "," and self.decimal is None):
            return frame
        mark, remedy = (",", "add --decimal , if those are decimal commas, or --decimal . if they are not")
        if self.decimal == ",":
            mark, remedy = (".", "drop --decimal , if those are decimal points, or remove the thousands separators")
        for name in frame.columns:
            if pd.api.types.is_string_dtype(frame[name]):
                values = pd.Series(frame[name].dropna().unique(), dtype=object).astype(str)
                marked = values[values.str.contains(mark, regex=False)]
                if len(marked) and values.str.replace(mark, ",", regex=False).str.fullmatch(DECIMAL_COMMA).all():
                    raise ValueError(f"column {name!r} has values such as {marked.iloc[0]!r}; {remedy}")
        return frame


def open_text(path: Path, dialect: Dialect | None = None) -> TextFile:
    r"""Inspect a text file: its header, and the number of fields in every line.

    pandas would take lines that are longer than the header as if the first field had no name, pad lines that are
    shorter, rename the second of two columns of the same name and read other separators as part of a name.

    Raises
    ------
    ValueError
        Says what is wrong with the file and what to do.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "t.tsv"
    >>> _ = path.write_text("age\tdose\n31\t1.5\n")
    >>> open_text(path).names
    ['age', 'dose']
    """
    dialect = dialect or Dialect()
    separator = dialect.separator or ("\t" if kind_of(path) == ".tsv" else ",")
    if separator == dialect.decimal:
        raise ValueError(f"{path} has ',' both between fields and in decimals; add --separator, such as ';'")
    with readable(path):
        with _bytes(path) as beginning:
            first = beginning.read(4)
        for magic, (kind, remedy) in OTHER_FILES.items():
            if first.startswith(magic):
                raise ValueError(f"cannot read {path}: its first bytes are those of {kind}, not of text; {remedy}")
        marked = (encoding for mark, encoding in BYTE_ORDER_MARKS if first.startswith(mark))
        encoding = next(marked, dialect.encoding or "utf-8")
        spellings = Spellings(separator, separator != "," and dialect.decimal is None, frozenset(MISSING))
        with _letters(path, encoding) as lines:
            header, left_out, cut = _check_lines(path, spellings.watched(lines), separator, dialect)
    spellings.refuse_thousands(header)
    codes = tuple(header[number] for number in spellings.code_fields(len(header)))
    return TextFile(path, header, left_out, cut, separator, dialect.decimal, encoding, codes)


def kind_of(path: Path) -> str:
    """Suffix of a file name, ignoring that of a compression.

    Examples
    --------
    >>> kind_of(Path("trial.CSV.gz"))
    '.csv'
    """
    return Path(path.stem if path.suffix.lower() in COMPRESSIONS else path.name).suffix.lower()


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Context that turns read errors into one line that names the file."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, UNREADABLE) and type(error).__name__ != "ZstdError":  # of a module that may be absent
            raise
        text = _reason(error)
        raise ValueError(text if str(path) in text else f"cannot read {path}: {text}") from None


def _reason(error: BaseException) -> str:
    if isinstance(error, UnicodeDecodeError):
        byte = f"byte 0x{error.object[error.start]:02x}" if error.start < len(error.object) else error.reason
        name = "UTF-8" if error.encoding.lower().startswith("utf-8") else error.encoding
        return f"it is not {name} text ({byte}); add --encoding, such as --encoding latin-1, or save it as UTF-8"
    return str(error) or type(error).__name__


def _bytes(path: Path) -> IO[bytes]:
    """Content of a file, decompressed."""
    suffix = path.suffix.lower()
    if suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) != 1:
                raise ValueError(f"{path} holds {len(members)} files; put one table into it")
            return archive.open(members[0])
    if suffix == ".zst":
        for module in ("compression.zstd", "zstandard"):  # that of Python 3.14, and what older ones can install
            with suppress(ImportError):
                return cast("IO[bytes]", import_module(module).open(path, "rb"))
        raise ValueError(f"reading {path} needs zstandard: pip install zstandard")
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    return openers.get(suffix, open)(path, "rb")


def _letters(path: Path, encoding: str) -> TextIO:
    return io.TextIOWrapper(_bytes(path), encoding=encoding, newline="")


def _check_lines(
    path: Path, lines: Iterator[str], separator: str, dialect: Dialect
) -> tuple[tuple[str, ...], int, int]:
    """Header, and the numbers of leading and trailing fields that are not columns; checks the width of every line."""
    numbered = enumerate(lines, start=1)
    rest = (line for _, line in numbered)
    blank = " \t\r\n".replace(separator, "")  # pandas overlooks lines of nothing but blanks
    top = next((line for line in rest if line.strip(blank)), "")
    _check_top(path, top)
    given = _fields(top, rest, separator)
    number, second = next(((number, line) for number, line in numbered if line.strip(blank)), (0, top))
    other = _other_separator(top, second, separator)
    remedy = _remedy(second, separator, other)
    if len(given) == 1:
        raise ValueError(f"{path} has one column, {_short(given[0])}; {remedy}")
    fields = _fields(second, rest, separator) if number else given
    expected, cut = _width(path, given, fields, dialect) if number else (len(given), 0)
    every = chain([(number, len(fields), not fields[-1].strip())], _counts(numbered, rest, separator, blank))
    wrong = _first_wrong(every, expected, cut)
    if wrong is None:
        return *_names(path, given[: expected - cut], 0 if cut else expected - len(given), cut, dialect), cut
    _refuse_line(path, *wrong, len(given), expected, (number, cut), remedy if other is not None else "")


def _width(path: Path, given: list[str], fields: list[str], dialect: Dialect) -> tuple[int, int]:
    """Number of fields per line, and how many trailing ones are not columns, from the header and the line after it."""
    if dialect.row_names:
        return _with_row_names(path, given, len(fields)), 0
    if not fields[-1].strip() and (len(fields) == len(given) + 1 or not given[-1].strip()):
        return len(fields), 1  # every line ends in a separator, the header or not
    return len(given), 0


def _first_wrong(every: Iterable[tuple[int, int, bool]], expected: int, cut: int) -> tuple[int, int] | None:
    """The first line with another number of fields, or with a value where others end in a separator."""
    return next(((line, count) for line, count, empty in every if count != expected or (cut and not empty)), None)


def _refuse_line(
    path: Path, line: int, n_fields: int, header: int, expected: int, first: tuple[int, int], separated: str
) -> NoReturn:
    """Refuse a line with advice; `first` is the number of the first line and how many of its fields are cut off."""
    number, cut = first
    if cut and n_fields == expected:
        remedy = "lines end in a separator, but this one has a value after it: name all fields in the header"
    elif cut:
        remedy = f"line {number} ends in a separator and has {expected}; give every line as many"
    elif separated and line == number:
        remedy = separated
    elif n_fields == header + 1 and line == number:
        remedy = "add --row-names if lines begin with a row name, or name all fields in the header"
    else:
        remedy = "give every line as many, and put fields that hold a separator into quotation marks"
    raise ValueError(f"line {line} of {path} has {counted(n_fields, 'field')} and its header {header}; {remedy}")


def _check_top(path: Path, top: str) -> None:
    """Refuse a file based on its first line that is not blank."""
    if not top:
        raise ValueError(f"cannot read {path}: it is empty")
    if 3 * top.count("\0") > len(top):
        raise ValueError(f"cannot read {path}: it looks like UTF-16 without a mark; add --encoding utf-16-le")
    if spreadsheet := re.fullmatch(r'"?sep=(.)"?', top.strip("\r\n")):
        remedy = f"delete it and add --separator {SEPARATORS.get(spreadsheet[1], repr(spreadsheet[1]))}"
        raise ValueError(f"the first line of {path} is {top.strip()!r}, which is for a spreadsheet; {remedy}")


def _counts(
    numbered: Iterator[tuple[int, str]], rest: Iterator[str], separator: str, blank: str
) -> Iterator[tuple[int, int, bool]]:
    """Start and number of fields of every remaining line, and whether the last is empty."""
    for number, line in numbered:
        if '"' in line:  # from here on csv counts, which knows of quotation marks and is slower
            reader, read = csv.reader(chain((line,), rest), delimiter=separator), 0
            for row in reader:
                if row and (len(row) > 1 or not row[0] or row[0].strip(blank)):
                    yield number + read, len(row), not row[-1].strip()
                read = reader.line_num
        elif line.strip(blank):
            yield number, line.count(separator) + 1, line.rstrip(blank).endswith(separator)


def _fields(line: str, rest: Iterator[str], separator: str) -> list[str]:
    """Fields of a line, continued on the next ones while a quoted field contains line ends."""
    return next(csv.reader(chain((line,), rest), delimiter=separator))


def _with_row_names(path: Path, given: list[str], n_fields: int) -> int:
    """Number of fields per line, counting the row name."""
    if n_fields > len(given) or not given[0].strip():
        return len(given) + (n_fields > len(given))
    raise ValueError(
        f"--row-names: the header of {path} names all {len(given)} fields, the first {_short(given[0])}; "
        "leave --row-names out"
    )


def _other_separator(top: str, second: str, separator: str) -> str | None:
    """A separator that divides the header and the line after it into the same number of fields, more than one."""
    for other in SEPARATORS:
        count = top.count(other)
        if other != separator and count == second.count(other) and count > (other == " "):
            return other
    return None


def _remedy(second: str, separator: str, other: str | None) -> str:
    if other is None:
        return f"fields must be separated by {SEPARATORS.get(separator, repr(separator))}, or by what --separator says"
    fields = second.strip("\r\n").split(other) if other != "," else []
    commas = any("," in field and re.fullmatch(DECIMAL_COMMA, field.strip('" ')) for field in fields)
    return f"add --separator {SEPARATORS[other]}{' --decimal ,' * commas} (its lines then agree with its header)"


def _names(path: Path, given: list[str], unnamed: int, cut: int, dialect: Dialect) -> tuple[tuple[str, ...], int]:
    """Names of all fields, and how many leading ones are not columns; the `cut` trailing fields have no names."""
    if cut:
        _warn(f"every line of {path} ends in a separator; the empty field after it is left out")
    bare = [*[""] * unnamed, *(name.strip() for name in given), *[""] * cut]
    names = tuple(name or f"Unnamed: {number}" for number, name in enumerate(bare))  # what pandas calls them
    if twice := repeated(names):
        raise ValueError(f"{path} has several columns called {listed(twice)}; rename all but one")
    if blanks := [name for name in given if name.strip() != name]:
        _warn(f"blanks around column names are removed: {listed(blanks[:12])}{', ...' * (len(blanks) > 12)}")
    if not bare[0] and not dialect.row_names:
        _warn("the first column has no name and is left out (a saved index?)")
    nameless = [name for name, given_name in zip(names[1:], bare[1 : len(bare) - cut], strict=False) if not given_name]
    if nameless:
        _warn(f"columns without a name are called {listed(nameless)}; name them, or leave them out (--exclude)")
    return names, int(not bare[0])


def _short(name: str) -> str:
    return repr(name if len(name) <= MAX_SHOWN_LENGTH else name[:MAX_SHOWN_LENGTH] + "...")


def _warn(text: str) -> None:
    warn(text)
