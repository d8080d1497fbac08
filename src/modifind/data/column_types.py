"""Column types: numeric, categorical, or unsuitable as a feature."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from modifind.data.words import shortened

MAX_DISCRETE_VALUES = 10
MAX_PROBED_TEXTS = 2000  # distinct texts that are looked at, of more
SHOWN = 3
DAYS = "days since a date"
_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal")
_UNFIT = {
    **dict.fromkeys(("date", "datetime", "datetime64", "time", "period"), "dates or times"),
    **{"timedelta": "durations", "timedelta64": "durations", "interval": "intervals", "complex": "complex numbers"},
}
INSTEAD = {  # of what is neither a number nor a category
    **{"dates or times": DAYS, "durations": "the days that they last"},
    **{"intervals": "their middles", "complex numbers": "their real parts"},
}
_NESTED = (list, tuple, dict, set, frozenset, np.ndarray, pd.Series, pd.DataFrame)
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[ap]m)?"
_DATE = (
    r"(?i)\s*(?:"
    r"\d{4}[-/.](?:0?[1-9]|1[0-2])(?:[-/.](?:0?[1-9]|[12]\d|3[01]))?"  # 2020-01-31, 2020-01
    r"|(?:0?[1-9]|[12]\d|3[01])[-/.](?:0?[1-9]|[12]\d|3[01])[-/.]\d{4}"  # 31.01.2020, 01/31/2020
    r"|(?:0?[1-9]|[12]\d|3[01])/(?:0?[1-9]|[12]\d|3[01])/\d{2}"  # 1/31/20
    rf"|\d{{1,2}}[- .]?{_MONTH}[- ,]*(?:\d{{4}}|\d{{2}})|{_MONTH} \d{{1,2}},? \d{{4}}|{_MONTH}[ -]\d{{4}}"
    rf")(?:[T ]{_CLOCK}\s*(?:Z|UTC|[+-]\d{{2}}:?\d{{2}})?)?\s*|\s*{_CLOCK}\s*"
)

_NUMBER = r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?"
CODE = r"0\d+|\d+[eE]\d+"  # 007 is not 7, and 12e3 is no 12000
THOUSANDS_KINDS = ("numbers with commas", "numbers with apostrophes")
# Texts that could be read as numbers: how all of them, or half of them, look, and what to do with the column {}.
_NEAR_NUMBERS = {
    "numbers with commas between thousands": r"[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?",  # 1,200 alone may be a decimal
    "numbers with apostrophes between thousands": r"[+-]?[1-9]\d{0,2}(?:['\u2019]\d{3})+(?:[.,]\d+)?",
    "numbers with a decimal comma": r"[+-]?(?:\d+(?:\.\d{3})*)?,\d+",
    "percentages as text": rf"{_NUMBER}\s*%",
    "numbers with a sign of comparison": rf"[<>≤≥~]=?\s*{_NUMBER}.*",
    "numbers with a sign of currency": rf"[$€£]\s*{_NUMBER}",
    "numbers with a unit": rf"{_NUMBER}\s*[^\d\s.,].*",
}
_REMEDIES = (
    "Remove the commas: {}.str.replace(',', '').astype(float)",
    "Remove the apostrophes: {}.str.replace(r\"['\u2019]\", '', regex=True).astype(float)",
    "Read the file with pandas.read_csv(decimal=',')",
    "Strip the sign: {}.str.rstrip('% ').astype(float)",
    "Write values beyond a limit of detection as numbers (half the limit, for instance)",
    "Strip the sign: {}.str.lstrip('$€£ ').astype(float)",
    "Strip the unit, once you know that all rows use the same: {}.str.extract(r'([-+.\\d]+)')[0].astype(float)",
)


def feature_column(column: pd.Series[Any], name: str, check: bool = True) -> tuple[pd.Series[Any], bool]:
    """Validate a column as a feature; return it and whether it is numeric.

    Parameters
    ----------
    column : Series
        Values as they come; objects that are all numbers become numbers.
    name : str
        Its name, for the error.
    check : bool, default=True
        Also look whether text holds dates or numbers. False saves time where it has been looked at before.

    Raises
    ------
    ValueError
        Names the column: dates and times, complex numbers, nested values, mixed types, numbers written as text and
        infinite categories.

    Examples
    --------
    >>> import pandas as pd
    >>> feature_column(pd.Series([1, 2.5, None], dtype=object), "dose")[1]
    True
    """
    if column.dtype == object and _inferred(column) == "integer" and not _fits(column):
        refuse_identifiers(name)
    column = plain_column(column)
    types = pd.api.types
    if kind := unfit_kind(column):
        raise ValueError(
            f"column {name!r} holds {kind}, which cannot be a feature; convert them to numbers ({INSTEAD[kind]}, for "
            "instance) or exclude the column"
        )
    if isinstance(column.dtype, pd.CategoricalDtype):
        _refuse_infinite_levels(column, name)
        return column, False
    if types.is_bool_dtype(column) or types.is_numeric_dtype(column):
        return column, not types.is_bool_dtype(column)
    if _inferred(column) not in ("string", "empty"):
        _refuse_mixture(column, name)
    if check:
        _check_text(column.dropna(), name)
    return column, False


def _refuse_infinite_levels(column: pd.Series[Any], name: str) -> None:
    """Refuse infinite numbers as categories, which no file or figure could show."""
    infinite = [label for label in column.cat.categories if isinstance(label, float) and math.isinf(label)]
    if count := int(column.isin(infinite).sum()):
        raise ValueError(
            f"categories of {name!r} are infinite ({count} of {len(column)} values); replace them or exclude the column"
        )


def plain_column(column: pd.Series[Any]) -> pd.Series[Any]:
    """Convert a column to the plainest type that holds its values, such as objects to numbers or booleans."""
    types = pd.api.types
    fits = (types.is_numeric_dtype, types.is_bool_dtype, types.is_string_dtype)
    if isinstance(column.dtype, pd.ArrowDtype) and not any(fit(column) for fit in fits):
        column = pd.Series(column.astype(object), index=column.index).infer_objects()
    if column.dtype.kind == "S":
        column = column.astype(object)
    if column.dtype != object:
        return column.astype(np.float64) if column.dtype == np.float16 else column  # pandas has no index of those
    if column.isna().any():
        column = column.where(column.notna(), None)  # whatever stood for a missing value
    kind = _inferred(column)
    if kind in _NUMBERS:  # with gaps, decimal, or too large for a column of integers
        return column.astype("Int64") if kind == "integer" and _fits(column) else column.astype(np.float64)
    if kind == "boolean":
        return column.astype("boolean" if column.isna().any() else bool)
    if kind == "bytes":
        return column.str.decode("utf-8", errors="replace")
    return column


def unfit_kind(column: pd.Series[Any]) -> str:
    """Description of a column that is neither numeric nor categorical; empty for others.

    Examples
    --------
    >>> unfit_kind(pd.Series(pd.to_timedelta([1, 2], unit="D")))
    'durations'
    """
    return _UNFIT.get(pd.api.types.infer_dtype(column, skipna=True), "")


def loses_digits(column: pd.Series[Any]) -> bool:
    """Whether a column has integers that floats cannot represent, as identifiers often have."""
    if not (pd.api.types.is_integer_dtype(column) or (column.dtype == object and _inferred(column) == "integer")):
        return False
    values = column.dropna().to_numpy()
    if not values.size or max(abs(int(values.min())), abs(int(values.max()))) <= 2**53:
        return False
    return any(int(float(value)) != int(value) for value in values)


def refuse_identifiers(name: str) -> None:
    """Refuse integers beyond the precision of floats."""
    raise ValueError(
        f"column {name!r} has integers beyond 2^53, which floats cannot tell apart and which are usually identifiers; "
        "exclude it, or subtract a constant from all values"
    )


def plain_label(label: Any) -> Any:
    """The label as a plain number or as text, for reports and JSON files."""
    label = label.item() if isinstance(label, np.generic) else label
    return label if isinstance(label, bool | int | float | str) else str(label)


def whole_number_text(number: Any) -> str:
    """A whole number as text.

    Examples
    --------
    >>> whole_number_text(3.0), whole_number_text(12)
    ('3', '12')
    """
    return str(int(number))


def numbers_as_text(column: pd.Series[Any]) -> pd.Series[Any]:
    """Convert whole numbers to text, for a column that holds text in other rows."""
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind not in ("integer", "floating") and not kind.startswith("mixed"):
        return column
    return column.astype(object).map(
        lambda value: value if isinstance(value, str) else whole_number_text(value), "ignore"
    )


def outcome_name(column: pd.Series[Any]) -> str:
    """Name of the outcome in messages, with that of its column if known."""
    return f"the outcome {column.name!r}" if _is_named(column, "y") else "the outcome y"


def treatment_name(column: pd.Series[Any]) -> str:
    """Name of the treatment in messages, with that of its column if known."""
    return f"the treatment {column.name!r}" if _is_named(column, "treatment") else "treatment"


def _is_named(column: pd.Series[Any], argument: str) -> bool:
    return isinstance(column.name, str) and column.name not in ("", argument)


def text_outcome(column: pd.Series[Any]) -> str:
    """Problem with an outcome that holds text, and its remedy."""
    what, known = f"{outcome_name(column)} must be numeric;", column.dropna()
    is_number = _as_numbers(known, loose=False).notna()
    if is_number.all():
        return f"{what} found numbers written as text. Convert it to numbers."
    near = _near_numbers(_distinct(known.astype(str)), "y")
    if near.startswith(THOUSANDS_KINDS):
        return f"{what} found {near}."
    if 2 * is_number.sum() > len(known):
        counts = f"{is_number.sum()} of {len(known)} values are numbers"
        others = _some(known[~is_number].unique())
        return f"{what} {counts}, the others are {others}. Drop those rows or write them as numbers."
    return f"{what} found {_text_problem(known.astype(str))}."


def _distinct(values: pd.Series[Any]) -> pd.Series[Any]:
    return pd.Series(values.unique(), dtype=object)


def _near_numbers(distinct: pd.Series[Any], column: str) -> str:
    """Description of texts that could be read as numbers, and a remedy for `column`; empty for others.

    Texts that are plain numbers are not described.
    """
    distinct = distinct[_as_numbers(distinct, loose=False).isna()]
    stripped = distinct.str.strip()
    for (what, pattern), remedy in zip(_NEAR_NUMBERS.items(), _REMEDIES, strict=True):
        matches = stripped.str.fullmatch(pattern)
        if matches.mean() >= (1.0 if what.startswith(THOUSANDS_KINDS) else 0.5):
            return f"{what}, such as {distinct[matches].iloc[0]!r}. {remedy.replace('{}', column)}"
    return ""


def _text_problem(texts: pd.Series[Any]) -> str:
    """Description of texts that are not plain numbers, and a remedy."""
    distinct = _distinct(texts)
    if date := _first_date(distinct):
        return f"dates or times as text, such as {date!r}. Analyse a number, such as {DAYS}"
    if near := _near_numbers(distinct, "y"):
        return near
    if len(distinct) == 2:
        return f"text, {_some(sorted(distinct))}. Code the two labels as 0 and 1"
    return f"text, such as {_some(distinct)}. Code ordered labels as numbers, and two labels as 0 and 1"


def _inferred(column: pd.Series[Any]) -> str:
    return "string" if column.dtype != object else pd.api.types.infer_dtype(column, skipna=True)


def _fits(column: pd.Series[Any]) -> bool:
    values = column.dropna()
    return bool(min(values) >= -(2**63) and max(values) < 2**63)


def _refuse_mixture(column: pd.Series[Any], name: str) -> None:
    """Refuse an object column that does not hold text only."""
    values = column.dropna()
    kinds = Counter(type(value).__name__ for value in values)
    what = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(SHOWN))
    if any(isinstance(value, _NESTED) for value in values):
        raise ValueError(
            f"column {name!r} holds nested values (found {what}); give their parts columns of their own, or exclude it"
        )
    if not any(isinstance(value, bool | np.bool_) for value in values):
        _refuse_near_numbers(values.astype(str), name, least=1)
    raise mixed_types(name, f" (found {what})")


def mixed_types(name: str, found: str = "") -> ValueError:
    """Error for a column whose types have no common order."""
    return ValueError(f"column {name!r} mixes types that cannot be compared; convert it to text or to numbers{found}")


def _check_text(values: pd.Series[Any], name: str) -> None:
    """Refuse text that holds dates, or numbers with a few words among them."""
    distinct = _distinct(values)
    if len(distinct) > MAX_PROBED_TEXTS:
        distinct = distinct.iloc[np.linspace(0, len(distinct) - 1, MAX_PROBED_TEXTS).astype(int)]
    if not len(distinct) or distinct.str.strip().str.fullmatch(CODE).any():
        return
    if date := _first_date(distinct):
        raise ValueError(
            f"column {name!r} holds dates or times as text, such as {date!r}; convert them to a number (days since a "
            "date, for instance) or exclude the column"
        )
    if mostly_numbers(distinct):
        _refuse_near_numbers(values, name, least=MAX_DISCRETE_VALUES + 1)


def dated(texts: pd.Series[Any]) -> pd.Series[bool]:
    """Mask of texts that are dates or times."""
    return texts.str.fullmatch(_DATE).fillna(False).astype(bool)


def _first_date(texts: pd.Series[Any]) -> str:
    """The first date or time if most texts are such; otherwise empty."""
    dates = texts[dated(texts)]
    return str(dates.iloc[0]) if 2 * len(dates) > len(texts) else ""


def mostly_numbers(texts: pd.Series[Any]) -> bool:
    """Whether more than half of the texts are numbers, including forms such as 1,5 and < 3 and 20 %."""
    return 2 * int(_as_numbers(texts, loose=True).notna().sum()) > len(texts)


def _refuse_near_numbers(values: pd.Series[Any], name: str, least: int) -> None:
    """Refuse text in which most rows are numbers, if at least `least` numbers are distinct."""
    strict, loose = _as_numbers(values, loose=False), _as_numbers(values, loose=True)
    if loose.nunique() < least or 2 * int(loose.notna().sum()) <= len(values):
        return
    count = int(strict.notna().sum())
    if count == len(values):
        raise ValueError(
            f"the {count} values of {name!r} are numbers written as text; convert the column to numbers, or declare it "
            "as categories if they are codes"
        )
    near = _near_numbers(_distinct(values), f"X[{name!r}]")
    if near and (count == 0 or near.startswith(THOUSANDS_KINDS)):
        raise ValueError(f"column {name!r} holds {near}")
    others = values[strict.isna()].value_counts().index
    raise ValueError(
        f"{count} of {len(values)} values of {name!r} are numbers, the others are {_some(others)}; write them as "
        "missing values or as numbers"
    )


def _as_numbers(text: pd.Series[Any], loose: bool) -> pd.Series[Any]:
    """Parse texts as numbers, NaN where that fails; `loose` also accepts 1,5 and < 3 and 20 %."""
    if loose:
        text = text.astype(str).str.replace(r"[,'\u2019%$€£<>≤≥~\s]", "", regex=True)
    return pd.to_numeric(text.astype(object), errors="coerce")


def _some(values: Any) -> str:
    """The first few values and the number of the others."""
    return shortened([repr(plain_label(value)) for value in values], SHOWN)
