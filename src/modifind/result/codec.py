"""Records as JSON and back: dataclasses by their type hints, to the last bit.

Only what a hint names is ever made, and everything is checked on the way in: a file can say what the values are, never
what to build of them.
"""

from __future__ import annotations

import base64
import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
from numpy.typing import NDArray

_UNUSUAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_ARRAYS = (np.ndarray, NDArray)  # numpy 2.5 has made the second a type of its own
_COLUMN_TYPES = ("float64", "int64", "uint64", "bool", "text", "object")


class RecordError(ValueError):
    """What was read is no record of the wanted type."""


def encode(value: Any, hint: Any) -> Any:
    """What JSON can hold of a value of the type `hint`.

    Parameters
    ----------
    value : object
        A float, int, bool, str, None, array of floats, DataFrame, or dataclasses, tuples, lists and dicts of them.
    hint : type
        Its type, as in the annotation of a field.

    Examples
    --------
    >>> encode((0.1, float("inf")), tuple[float, ...])
    [0.1, 'inf']
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is float:
        return _encode_float(float(value))
    if hint in (int, bool, str):
        return hint(value)
    if hint is None or hint is type(None) or origin is Literal:
        return value
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return {field.name: encode(getattr(value, field.name), hints[field.name]) for field in fields(hint)}
    if origin in (Union, types.UnionType):
        return encode(value, _alternative(value, arguments))
    if origin in (tuple, list):
        return [encode(item, own) for item, own in zip(value, _item_hints(hint, len(value)), strict=True)]
    if origin in (dict, Mapping):
        return {str(key): encode(item, arguments[1]) for key, item in value.items()}
    if origin in _ARRAYS:
        array = np.ascontiguousarray(value, dtype="<f8")
        return {"shape": list(array.shape), "float64": base64.b64encode(array.tobytes()).decode("ascii")}
    if hint is pd.DataFrame:
        return [{"name": str(name), **_encode_column(value[name])} for name in value.columns]
    raise TypeError(f"no record can hold {hint}")


def decode(data: Any, hint: Any) -> Any:
    """The value that `encode` was given.

    Raises
    ------
    RecordError
        The data are not those of a value of this type.

    Examples
    --------
    >>> decode([0.1, "inf"], tuple[float, ...])
    (0.1, inf)
    >>> decode([0.1, True], tuple[float, ...])
    Traceback (most recent call last):
        ...
    modifind.result.codec.RecordError: expected a number, found True
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return data
    if hint is float:
        return _decode_float(data)
    if hint in (int, bool, str):
        return _checked(data, type(data) is hint, hint.__name__)
    if hint is None or hint is type(None):
        return _checked(data, data is None, "nothing")
    if origin is Literal:
        return _checked(data, any(data == one and type(data) is type(one) for one in arguments), f"one of {arguments}")
    if is_dataclass(hint):
        hints = {field.name: get_type_hints(hint)[field.name] for field in fields(hint)}
        _checked(data, isinstance(data, dict) and set(data) == set(hints), f"the fields {', '.join(hints)}")
        return hint(**{name: decode(data[name], own) for name, own in hints.items()})  # type: ignore[operator]
    if origin in (Union, types.UnionType):
        return _decode_first(data, arguments)
    if origin in (tuple, list):
        _checked(data, isinstance(data, list), "a list")
        return origin(decode(item, own) for item, own in zip(data, _item_hints(hint, len(data)), strict=True))
    if origin in (dict, Mapping):
        _checked(data, isinstance(data, dict), "a mapping")
        return {key: decode(item, arguments[1]) for key, item in data.items()}
    if origin in _ARRAYS:
        return _decode_array(data)
    if hint is pd.DataFrame:
        columns = [_decode_column(column) for column in _checked(data, isinstance(data, list), "a list of columns")]
        return pd.DataFrame(dict(columns))
    raise TypeError(f"no record can hold {hint}")


def _checked(data: Any, good: bool, wanted: str) -> Any:
    if not good:
        raise RecordError(f"expected {wanted}, found {str(data)[:60]}")
    return data


def _encode_float(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _decode_float(data: Any) -> float:
    if isinstance(data, str) and data in _UNUSUAL:
        return _UNUSUAL[data]
    return float(_checked(data, type(data) in (float, int), "a number"))


def _alternative(value: Any, hints: tuple[Any, ...]) -> Any:
    """Which of several types a value has."""
    for hint in hints:
        plain = np.ndarray if get_origin(hint) in _ARRAYS else get_origin(hint) or hint
        if isinstance(value, plain) or (plain is float and isinstance(value, np.floating)):
            return hint
    raise TypeError(f"{type(value).__name__} is none of {hints}")


def _decode_first(data: Any, hints: tuple[Any, ...]) -> Any:
    """By the first type that fits; dataclasses are told apart by their fields."""
    for hint in hints:
        try:
            return decode(data, hint)
        except RecordError:
            continue
    raise RecordError(f"{str(data)[:60]} is none of {', '.join(getattr(h, '__name__', str(h)) for h in hints)}")


def _item_hints(hint: Any, length: int) -> tuple[Any, ...]:
    """The types of the items of a list or tuple."""
    arguments = get_args(hint)
    if get_origin(hint) is list or arguments[1:] == (Ellipsis,):
        return (arguments[0],) * length
    if len(arguments) != length:
        raise RecordError(f"expected {len(arguments)} items, found {length}")
    return arguments


def _decode_array(data: Any) -> Any:
    _checked(data, isinstance(data, dict) and set(data) == {"shape", "float64"}, "an array")
    shape = decode(data["shape"], list[int])
    try:
        raw = base64.b64decode(decode(data["float64"], str), validate=True)
        return np.frombuffer(raw, dtype="<f8").astype(np.float64).reshape(shape)
    except ValueError as error:
        raise RecordError(f"an array cannot be read: {error}") from None


def _encode_column(column: pd.Series[Any]) -> dict[str, Any]:
    """Type and values; numbers of one type, text, or a mixture whose items say what they are."""
    kind = str(column.dtype)
    if kind not in _COLUMN_TYPES:
        kind = "text" if pd.api.types.infer_dtype(column) == "string" else "object"
    items = column.tolist()
    if kind == "float64":
        items = [_encode_float(item) for item in items]
    elif kind == "object":
        items = [{"float": _encode_float(item)} if isinstance(item, float) else item for item in items]
    return {"type": kind, "values": items}


def _decode_column(data: Any) -> tuple[str, pd.Series[Any]]:
    _checked(data, isinstance(data, dict) and set(data) == {"name", "type", "values"}, "a column")
    kind = _checked(data["type"], data["type"] in _COLUMN_TYPES, f"one of {_COLUMN_TYPES}")
    values = _checked(data["values"], isinstance(data["values"], list), "a list of values")
    if kind == "object":
        items = [_decode_float(v["float"]) if isinstance(v, dict) and set(v) == {"float"} else v for v in values]
        plain = all(item is None or isinstance(item, bool | int | float | str) for item in items)
        return decode(data["name"], str), pd.Series(_checked(items, plain, "plain values"), dtype=object)
    item: Any = {"float64": float, "bool": bool, "text": str}.get(kind, int)
    found = decode(values, list[item])
    # Text is left to pandas, whose type for it differs between versions.
    return decode(data["name"], str), pd.Series(found, dtype=None if kind == "text" else kind)
