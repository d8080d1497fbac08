"""Records as JSON and back: dataclasses by their type hints, to the last bit. Results and checkpoints are written so.

Only what a hint names is ever made, and everything is checked on the way in: a file can say what the values are, never
what to build of them, and a refusal names the place in the file.
"""

from __future__ import annotations

import base64
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, Union, get_args, get_origin, get_type_hints

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
    raise ValueError(f"{token} is not a JSON number")


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
    return _codec(hint).encode(value, hint)


def decode(data: Any, hint: Any, path: str = "") -> Any:
    """The value that `encode` was given.

    Parameters
    ----------
    data : object
        What a file holds.
    hint : type
        What it must be. A table that must have some columns is `Annotated` with their types by name, None for any, and
        a mapping with a TypedDict of entries; it may have others.
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
    return _codec(hint).decode(data, hint, path)


def refuse(path: str, expected: str, found: Any) -> NoReturn:
    """Say what is wrong with the data at a place."""
    raise RecordError(f"{_at(path)}expected {expected}, found {_described(found)}")


def check_entries(data: Mapping[str, Any], needed: Iterable[str], path: str) -> None:
    """Refuse an object that lacks something."""
    missing = [name for name in needed if name not in data]
    if missing:
        raise RecordError(f"{path or 'incomplete'}: no {', '.join(missing)}")


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


def _encode_float(value: Any, _: Any = float) -> float | str:
    value = float(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decode_float(data: Any, _: Any, path: str) -> float:
    if isinstance(data, str) and data in _NOT_FINITE:
        return _NOT_FINITE[data]
    try:
        return float(_checked(data, type(data) in (float, int), "a number", path))
    except OverflowError:
        refuse(path, "a number that a double can hold", data)


def _decode_exact(data: Any, hint: Any, path: str) -> Any:
    return _checked(data, type(data) is hint, _WORDS[hint], path)


def _decode_literal(data: Any, hint: Any, path: str) -> Any:
    good = any(data == one and type(data) is type(one) for one in get_args(hint))
    return _checked(data, good, f"one of {', '.join(map(repr, get_args(hint)))}", path)


def _encode_cell(value: Any, _: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": _encode_float(value)}
    return value if _is_plain(value) else str(value)


def _decode_cell(data: Any, _: Any, path: str) -> Any:
    if isinstance(data, dict) and set(data) == {"float"}:
        return _decode_float(data["float"], float, path)
    return _checked(data, _is_plain(data), "text, a number, true, false or null", path)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _encode_any(value: Any, _: Any = Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _encode_any(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_encode_any(item) for item in value]
    return _encode_float(value) if isinstance(value, float) else _encode_cell(value, Cell)


def _decode_any(data: Any, _: Any, path: str, depth: int = 0) -> Any:
    """What may be anything, unless it is no JSON, or so deep that nothing could print it."""
    if depth > MOST_DEPTH:
        raise RecordError(f"{_at(path)}nested too deeply")
    if isinstance(data, Mapping):
        return {key: _decode_any(item, Any, _below(path, key), depth + 1) for key, item in _object(data, path).items()}
    if isinstance(data, list):
        return [_decode_any(item, Any, f"{path}[{place}]", depth + 1) for place, item in enumerate(data)]
    return _checked(data, _is_plain(data), "JSON", path)


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
    check_entries(_object(data, path), needed, path)
    for name in data:
        _checked(name, name in hints, f"one of {', '.join(hints)}", path)
    return record(**{name: decode(item, hints[name], _below(path, name)) for name, item in data.items()})


def _encode_mapping(value: Any, hint: Any) -> dict[str, Any]:
    return {str(key): encode(item, get_args(hint)[1]) for key, item in value.items()}


def _decode_mapping(data: Any, hint: Any, path: str) -> dict[str, Any]:
    return {key: decode(item, get_args(hint)[1], _below(path, key)) for key, item in _object(data, path).items()}


def _decode_entries(data: Any, entries: Any, path: str) -> dict[str, Any]:
    hints = _hints(entries)
    check_entries(_object(data, path), [name for name in hints if name in entries.__required_keys__], path)
    return {key: decode(item, hints.get(key, Any), _below(path, key)) for key, item in data.items()}


def _decode_annotated(data: Any, hint: Any, path: str) -> Any:
    plain, wanted = get_args(hint)
    return _decode_frame(data, plain, path, wanted) if plain is pd.DataFrame else decode(data, wanted, path)


def _encode_items(value: Any, hint: Any) -> list[Any]:
    return [encode(item, own) for item, own in zip(value, _item_hints(hint, len(value), ""), strict=True)]


def _decode_items(data: Any, hint: Any, path: str) -> Any:
    hints = _item_hints(hint, len(_checked(data, isinstance(data, list), "a list", path)), path)
    items = (decode(item, own, f"{path}[{n}]") for n, (item, own) in enumerate(zip(data, hints, strict=True)))
    return get_origin(hint)(items)


def _encode_union(value: Any, hint: Any) -> Any:
    """By the type that the value has."""
    for one in get_args(hint):
        plain = np.ndarray if get_origin(one) in _ARRAYS else get_origin(one) or one
        if isinstance(value, plain) or (plain is float and isinstance(value, np.floating)):
            return encode(value, one)
    raise TypeError(f"{type(value).__name__} is none of {get_args(hint)}")


def _decode_union(data: Any, hint: Any, path: str) -> Any:
    """By the first type that fits; dataclasses are told apart by their fields."""
    hints = get_args(hint)
    if data is None and type(None) in hints:
        return None
    others = [hint for hint in hints if hint is not type(None)]
    for one in others[:-1]:
        try:
            return decode(data, one, path)
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


def _encode_array(value: Any, _: Any) -> Any:
    array = np.ascontiguousarray(value, dtype="<f8")
    return encode(_Floats(list(array.shape), base64.b64encode(array.tobytes()).decode("ascii")), _Floats)


def _decode_array(data: Any, _: Any, path: str) -> Any:
    floats = decode(data, _Floats, path)
    try:
        raw = base64.b64decode(floats.float64, validate=True)
        return np.frombuffer(raw, dtype="<f8").astype(np.float64).reshape(floats.shape)
    except ValueError as error:
        raise RecordError(f"{_at(path)}an array cannot be read: {error}") from None


def _encode_frame(value: Any, _: Any) -> Any:
    kinds = {str(name): column_type(value[name]) for name in value.columns}
    columns = {str(name): encode(value[name].tolist(), _COLUMNS[kinds[str(name)]]) for name in value.columns}
    return encode(Table(list(value.index), value.index.name, kinds, columns), Table)


def _decode_frame(
    data: Any, _: Any, path: str, required: Mapping[str, ColumnType | None] = MappingProxyType({})
) -> pd.DataFrame:
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


class _Codec(NamedTuple):
    encode: Callable[[Any, Any], Any]
    decode: Callable[[Any, Any, str], Any]


_CODECS: dict[Any, _Codec] = {
    float: _Codec(_encode_float, _decode_float),
    **dict.fromkeys((int, bool, str), _Codec(lambda value, hint: hint(value), _decode_exact)),
    type(None): _Codec(lambda value, _: value, _decode_exact),
    Literal: _Codec(lambda value, _: value, _decode_literal),
    Any: _Codec(_encode_any, _decode_any),
    Cell: _Codec(_encode_cell, _decode_cell),
    "dataclass": _Codec(_encode_dataclass, _decode_dataclass),
    "entries": _Codec(_encode_any, _decode_entries),
    Annotated: _Codec(lambda value, hint: encode(value, get_args(hint)[0]), _decode_annotated),
    **dict.fromkeys((Union, types.UnionType), _Codec(_encode_union, _decode_union)),
    **dict.fromkeys((tuple, list), _Codec(_encode_items, _decode_items)),
    **dict.fromkeys((dict, Mapping), _Codec(_encode_mapping, _decode_mapping)),
    **dict.fromkeys(_ARRAYS, _Codec(_encode_array, _decode_array)),
    pd.DataFrame: _Codec(_encode_frame, _decode_frame),
}


def _codec(hint: Any) -> _Codec:
    kind = "dataclass" if is_dataclass(hint) else "entries" if typing.is_typeddict(hint) else get_origin(hint) or hint
    found = _CODECS.get(kind)
    if found is None:
        raise TypeError(f"no record can hold {hint}")
    return found
