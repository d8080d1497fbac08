"""Records as JSON and back: dataclasses by their type hints, to the last bit. Results and checkpoints are written so.

Only what a hint names is ever made, and everything is checked on the way in: a file can say what the values are, never
what to build of them, and a refusal names the place in the file.
"""

from __future__ import annotations

import base64
import json
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind.data.wording import counted

MOST_DEPTH = 50  # of what may be anything: deeper ones could not be printed
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_ARRAYS = (np.ndarray, NDArray)  # numpy 2.5 has made the second a type of its own
ColumnType = Literal["bool", "int", "float", "text", "object"]


class RecordError(ValueError):
    """What was read is no record of the wanted type."""


class Cell:
    """As a hint: text, a number, true, false or None. A float that is not finite says that it is no text."""


@dataclass(frozen=True)
class Table:
    """A DataFrame as a file has it; `types` says of every column what its values are."""

    index: list[Cell]
    index_name: str | None
    types: dict[str, ColumnType]
    columns: dict[str, list[Any]]


@dataclass(frozen=True)
class _Floats:
    """An array as a file has it."""

    shape: list[int]
    float64: str


_WORDS: dict[Any, str] = {int: "a whole number", bool: "true or false", str: "text", type(None): "null"}
_COLUMNS: dict[ColumnType, Any] = {
    **{"bool": list[bool], "int": list[int], "float": list[float], "text": list[str], "object": list[Cell]}
}


def parse_json(content: bytes) -> Any:
    """What strict JSON says; a ValueError where it is none."""
    try:
        return json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise ValueError(f"not valid JSON: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except RecursionError:
        raise ValueError("not valid JSON: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not valid JSON: {error}") from None


def _refuse_constant(token: str) -> NoReturn:
    raise ValueError(f"{token} is no JSON number")


def encode(value: Any, hint: Any) -> Any:
    """What JSON can hold of a value of the type `hint`.

    Parameters
    ----------
    value : object
        A float, int, bool, str, None, array of floats, DataFrame, or dataclasses, tuples, lists and dicts of them.
    hint : type
        Its type, as in the annotation of a field. `Any` is for settings, whose tuples become lists, and objects text.

    Examples
    --------
    >>> encode((0.1, float("inf")), tuple[float, ...])
    [0.1, 'Infinity']
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is float:
        return _encode_float(float(value))
    if hint in (int, bool, str):
        return hint(value)
    if hint is type(None) or origin is Literal:
        return value
    if hint is Any or hint is Cell:
        return _encode_any(value, hint)
    if is_dataclass(hint):
        return _encode_dataclass(value, hint)
    if origin is Annotated:
        return encode(value, arguments[0])
    if origin in (Union, types.UnionType):
        return encode(value, _alternative(value, arguments))
    if origin in (tuple, list):
        return [encode(item, own) for item, own in zip(value, _item_hints(hint, len(value), ""), strict=True)]
    if origin in (dict, Mapping):
        return {str(key): encode(item, arguments[1]) for key, item in value.items()}
    if origin in _ARRAYS:
        array = np.ascontiguousarray(value, dtype="<f8")
        return encode(_Floats(list(array.shape), base64.b64encode(array.tobytes()).decode("ascii")), _Floats)
    if hint is pd.DataFrame:
        kinds = {str(name): column_type(value[name]) for name in value.columns}
        columns = {str(name): encode(value[name].tolist(), _COLUMNS[kinds[str(name)]]) for name in value.columns}
        return encode(Table(list(value.index), value.index.name, kinds, columns), Table)
    raise TypeError(f"no record can hold {hint}")


def decode(data: Any, hint: Any, path: str = "") -> Any:
    """The value that `encode` was given.

    Parameters
    ----------
    data : object
        What a file holds.
    hint : type
        What it must be. A table that must have some columns is `Annotated` with their types by name, None for any.
    path : str
        Where in the file the data are.

    Raises
    ------
    RecordError
        The data are not those of a value of this type; names the path, what was expected and what was found.

    Examples
    --------
    >>> decode([0.1, "Infinity"], tuple[float, ...])
    (0.1, inf)
    >>> decode([0.1, True], tuple[float, ...], "limits")
    Traceback (most recent call last):
        ...
    modifind.result.codec.RecordError: limits[1]: expected a number, found true
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return _plain(data, path)
    if hint is Cell:
        return _decode_cell(data, path)
    if hint is float:
        return _decode_float(data, path)
    if hint in (int, bool, str, type(None)):
        return _checked(data, type(data) is hint, _WORDS[hint], path)
    if origin is Literal:
        good = any(data == one and type(data) is type(one) for one in arguments)
        return _checked(data, good, f"one of {', '.join(map(repr, arguments))}", path)
    if is_dataclass(hint):
        return _decode_dataclass(data, hint, path)
    if origin is Annotated:
        return _decode_frame(data, path, arguments[1])
    if origin in (Union, types.UnionType):
        return _decode_first(data, arguments, path)
    if origin in (tuple, list):
        hints = _item_hints(hint, len(_checked(data, isinstance(data, list), "a list", path)), path)
        return origin(decode(item, own, f"{path}[{n}]") for n, (item, own) in enumerate(zip(data, hints, strict=True)))
    if origin in (dict, Mapping):
        return {key: decode(item, arguments[1], _below(path, key)) for key, item in _object(data, path).items()}
    if origin in _ARRAYS:
        return _decode_array(decode(data, _Floats, path), path)
    if hint is pd.DataFrame:
        return _decode_frame(data, path, {})
    raise TypeError(f"no record can hold {hint}")


def refuse(path: str, expected: str, found: Any) -> NoReturn:
    """Say what is wrong with the data at a place."""
    raise RecordError(f"{_at(path)}expected {expected}, found {_described(found)}")


def column_type(column: pd.Series[Any]) -> ColumnType:
    """What the values of a column of a table are."""
    if pd.api.types.is_bool_dtype(column):
        return "bool"
    if pd.api.types.is_integer_dtype(column):
        return "int"
    if pd.api.types.is_float_dtype(column):
        return "float"
    plain = pd.api.types.infer_dtype(column, skipna=False) == "string" and not column.isna().any()
    return "text" if plain else "object"


@cache
def _hints(record: Any) -> dict[str, Any]:
    return get_type_hints(record, include_extras=True)


def _at(path: str) -> str:
    return f"{path[:80]}: " if path else ""


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _checked(data: Any, good: bool, wanted: str, path: str) -> Any:
    if not good:
        refuse(path, wanted, data)
    return data


def _object(data: Any, path: str) -> Mapping[str, Any]:
    _checked(data, isinstance(data, Mapping), "an object", path)
    for key in data:
        _checked(key, isinstance(key, str), "text", _below(path, "a key"))
    return data


def _encode_float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decode_float(data: Any, path: str) -> float:
    if isinstance(data, str) and data in _NOT_FINITE:
        return _NOT_FINITE[data]
    try:
        return float(_checked(data, type(data) in (float, int), "a number", path))
    except OverflowError:
        refuse(path, "a number that a double can hold", data)


def _encode_any(value: Any, hint: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return _encode_float(value) if hint is Any else {"float": _encode_float(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hint is Any and isinstance(value, Mapping):
        return {str(key): _encode_any(item, Any) for key, item in value.items()}
    if hint is Any and isinstance(value, list | tuple | np.ndarray):
        return [_encode_any(item, Any) for item in value]
    return str(value)


def _decode_cell(data: Any, path: str) -> Any:
    if isinstance(data, dict) and set(data) == {"float"}:
        return _decode_float(data["float"], path)
    plain = data is None or isinstance(data, bool | int | float | str)
    return _checked(data, plain, "text, a number, true, false or null", path)


def _plain(data: Any, path: str, depth: int = 0) -> Any:
    """What may be anything, unless it is no JSON, or so deep that nothing could print it."""
    if depth > MOST_DEPTH:
        raise RecordError(f"{_at(path)}nested too deeply")
    if isinstance(data, Mapping):
        return {key: _plain(item, _below(path, key), depth + 1) for key, item in _object(data, path).items()}
    if isinstance(data, list):
        return [_plain(item, f"{path}[{place}]", depth + 1) for place, item in enumerate(data)]
    return _checked(data, data is None or isinstance(data, bool | int | float | str), "JSON", path)


def _encode_dataclass(value: Any, record: Any) -> dict[str, Any]:
    """All fields but those that are None unless said otherwise."""
    found = {}
    for field in fields(record):
        own = getattr(value, field.name)
        if own is not None or field.default is not None:
            found[field.name] = encode(own, _hints(record)[field.name])
    return found


def _decode_dataclass(data: Any, record: Any, path: str) -> Any:
    hints = _hints(record)
    needed = [f.name for f in fields(record) if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in needed if name not in _object(data, path)]
    if missing:
        raise RecordError(f"{path or 'incomplete'}: no {', '.join(missing)}")
    for name in data:
        _checked(name, name in hints, f"one of {', '.join(hints)}", path)
    return record(**{name: decode(item, hints[name], _below(path, name)) for name, item in data.items()})


def _alternative(value: Any, hints: tuple[Any, ...]) -> Any:
    """Which of several types a value has."""
    for hint in hints:
        plain = np.ndarray if get_origin(hint) in _ARRAYS else get_origin(hint) or hint
        if isinstance(value, plain) or (plain is float and isinstance(value, np.floating)):
            return hint
    raise TypeError(f"{type(value).__name__} is none of {hints}")


def _decode_first(data: Any, hints: tuple[Any, ...], path: str) -> Any:
    """By the first type that fits; dataclasses are told apart by their fields."""
    if data is None and type(None) in hints:
        return None
    others = [hint for hint in hints if hint is not type(None)]
    for hint in others[:-1]:
        try:
            return decode(data, hint, path)
        except RecordError:
            continue
    return decode(data, others[-1], path)


def _item_hints(hint: Any, length: int, path: str) -> tuple[Any, ...]:
    """The types of the items of a list or tuple."""
    arguments = get_args(hint)
    if get_origin(hint) is list or arguments[1:] == (Ellipsis,):
        return (arguments[0],) * length
    if len(arguments) != length:
        raise RecordError(f"{_at(path)}expected {len(arguments)} items, found {length}")
    return arguments


def _decode_array(data: _Floats, path: str) -> Any:
    try:
        raw = base64.b64decode(data.float64, validate=True)
        return np.frombuffer(raw, dtype="<f8").astype(np.float64).reshape(data.shape)
    except ValueError as error:
        raise RecordError(f"{_at(path)}an array cannot be read: {error}") from None


def _decode_frame(data: Any, path: str, required: Mapping[str, ColumnType | None]) -> pd.DataFrame:
    table = decode(data, Table, path)
    if set(table.types) != set(table.columns):
        raise RecordError(f"{_below(path, 'types')}: expected the names of {_below(path, 'columns')}")
    for name, kind in required.items():
        if name not in table.columns:
            raise RecordError(f"{_below(path, 'columns')}: no {name}")
        # An empty table cannot tell the types of its columns.
        if kind not in (None, table.types[name]) and table.index:
            refuse(_below(path, f"types.{name}"), repr(kind), table.types[name])
    for name, values in table.columns.items():
        if len(values) != len(table.index):
            many = f"{counted(len(values), 'value')} for {counted(len(table.index), 'label')}"
            raise RecordError(f"{_below(path, f'columns.{name}')}: {many} of {_below(path, 'index')}")
    columns = {
        name: _decode_column(values, table.types[name], _below(path, f"columns.{name}"))
        for name, values in table.columns.items()
    }
    frame = pd.DataFrame(columns, index=range(len(table.index)))
    frame.index = pd.Index(table.index, name=table.index_name)
    return frame


def _decode_column(values: list[Any], kind: ColumnType, path: str) -> pd.Series[Any]:
    found = decode(values, _COLUMNS[kind], path)
    # Text is left to pandas, whose type for it differs between versions.
    dtypes = {"bool": np.bool_, "float": np.float64, "text": None, "object": object}
    if kind != "int":
        return pd.Series(found, dtype=dtypes[kind])
    try:
        return pd.Series(found, dtype=np.uint64 if max(found, default=0) >= 2**63 else np.int64)
    except (OverflowError, ValueError):
        raise RecordError(f"{_at(path)}expected whole numbers of 64 bits") from None


def _described(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"text ({value[:20]!r}{'...' if len(value) > 20 else ''})"
    if isinstance(value, int | float):
        return "a number" if isinstance(value, int) and abs(value) > 10**20 else f"the number {value!r}"
    return "an object" if isinstance(value, Mapping) else f"a {type(value).__name__}"
