"""Files of results and checkpoints: records as lossless JSON, written atomically.

Only types named by a type hint are ever constructed, and everything is checked while reading: a file can say what the
values are but not what to build from them. Errors name the path within the file.
"""

from __future__ import annotations

import base64
import json
import math
import os
import tempfile
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind._system import replace_file
from modifind.data.words import counted

MAX_DEPTH = 50  # of what may be anything: deeper ones could not be printed
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_ARRAYS = (np.ndarray, NDArray)  # numpy 2.5 has made the second a type of its own
ColumnType = Literal["bool", "int", "float", "text", "object"]


class RecordError(ValueError):
    """Raised for data that do not encode a record of the expected type."""


class Cell:
    """Type hint for a table cell: text, a number, true, false or null; non-finite floats are tagged."""


@dataclass(frozen=True)
class FrameRecord:
    """A DataFrame as stored in a file; `types` gives the type of every column's values."""

    index: list[Cell]
    index_name: str | None
    types: dict[str, ColumnType]
    columns: dict[str, list[Any]]


@dataclass(frozen=True)
class ArrayRecord:
    """An array of floats as stored in a file."""

    shape: list[int]
    float64: str


_WORDS: dict[Any, str] = {int: "a whole number", bool: "true or false", str: "text", type(None): "null"}
_COLUMNS: dict[ColumnType, Any] = {
    **{"bool": list[bool], "int": list[int], "float": list[float], "text": list[str], "object": list[Cell]}
}


def parse_json(content: bytes) -> Any:
    """Parse strict JSON; raises a ValueError for anything else."""
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
    """Turn a value of the type `hint` into lists, dicts, strings and numbers for JSON.

    Parameters
    ----------
    value : object
        A float, int, bool, str, None, array of floats, DataFrame, or dataclasses, tuples, lists and dicts of them.
    hint : type
        Its type, as in the annotation of a field. `Any` is for settings: arrays become lists, and objects text.

    Examples
    --------
    >>> encode((0.1, float("inf")), tuple[float, ...])
    [0.1, 'Infinity']
    """
    return _plain(value) if _holds_any(hint) else _encode(value)


def decode(data: Any, hint: Any, path: str = "") -> Any:
    """Turn data from JSON back into a value of the type `hint`; the inverse of `encode`.

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
    modifind.result.files.RecordError: limits[1]: expected a number, found true
    """
    kind = "dataclass" if is_dataclass(hint) else "entries" if typing.is_typeddict(hint) else get_origin(hint) or hint
    if kind not in _DECODERS:
        raise TypeError(f"no record can hold {hint}")
    return _DECODERS[kind](data, hint, path)


def refuse(path: str, expected: str, value: Any) -> NoReturn:
    """Raise a RecordError that names the path, the expected type and the value."""
    raise RecordError(f"{_at(path)}expected {expected}, found {_described(value)}")


def check_entries(data: Mapping[str, Any], needed: Iterable[str], path: str) -> None:
    """Raise a RecordError if an object lacks an entry."""
    missing = [name for name in needed if name not in data]
    if missing:
        raise RecordError(f"{path or 'incomplete'}: missing {', '.join(missing)}")


def column_type(column: pd.Series[Any]) -> ColumnType:
    """Type name of a column's values."""
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


def _holds_any(hint: Any) -> bool:
    return hint is Any or (get_origin(hint) not in _ARRAYS and any(map(_holds_any, get_args(hint))))


def _encode(value: Any) -> Any:
    """Encode by the type of the value, omitting dataclass fields that default to None and are None."""
    if is_dataclass(value):
        record: Any = type(value)
        kept = [f for f in fields(value) if f.default is not None or getattr(value, f.name) is not None]
        return {f.name: encode(getattr(value, f.name), _hints(record)[f.name]) for f in kept}
    if isinstance(value, pd.DataFrame):
        return _encode(_frame_record(value))
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value, dtype="<f8")
        return _encode(ArrayRecord(list(array.shape), base64.b64encode(array.tobytes()).decode("ascii")))
    return _plain(value, _encode)


def _plain(value: Any, encode_item: Callable[[Any], Any] | None = None) -> Any:
    """Encode mappings, sequences and scalars; an object becomes text unless `encode_item` tags its type."""
    inner = encode_item or _plain
    if isinstance(value, Mapping):
        return {str(key): inner(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [inner(item) for item in value]
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if not _is_plain(value) and encode_item:
        raise TypeError(f"no record can hold {value!r}")
    return value if _is_plain(value) else str(value)


def _encode_cell(value: Any) -> Any:
    plain = _plain(value)
    return {"float": plain} if isinstance(plain, str) and isinstance(value, float) else plain


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


def _decode_cell(data: Any, _: Any, path: str) -> Any:
    if isinstance(data, dict) and set(data) == {"float"}:
        return _decode_float(data["float"], float, path)
    return _checked(data, _is_plain(data), "text, a number, true, false or null", path)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _decode_any(data: Any, _: Any, path: str, depth: int = 0) -> Any:
    """Check that data of any JSON type are not nested too deeply to be printed."""
    if depth > MAX_DEPTH:
        raise RecordError(f"{_at(path)}nested too deeply")
    if isinstance(data, Mapping):
        return {key: _decode_any(item, Any, _below(path, key), depth + 1) for key, item in _object(data, path).items()}
    if isinstance(data, list):
        return [_decode_any(item, Any, f"{path}[{position}]", depth + 1) for position, item in enumerate(data)]
    return _checked(data, _is_plain(data), "JSON", path)


def _decode_named(data: Any, hints: Mapping[str, Any], needed: Iterable[str], others: Any, path: str) -> dict[str, Any]:
    """Decode an object by the hints of its entries; `others` is the hint of further entries, or None to refuse them."""
    check_entries(_object(data, path), needed, path)
    for name in data if others is None else ():
        _checked(name, name in hints, f"one of {', '.join(hints)}", path)
    return {name: decode(item, hints.get(name, others), _below(path, name)) for name, item in data.items()}


def _decode_dataclass(data: Any, record: Any, path: str) -> Any:
    needed = [f.name for f in fields(record) if f.default is MISSING and f.default_factory is MISSING]
    return record(**_decode_named(data, _hints(record), needed, None, path))


def _decode_entries(data: Any, entries: Any, path: str) -> dict[str, Any]:
    hints = _hints(entries)
    return _decode_named(data, hints, [name for name in hints if name in entries.__required_keys__], Any, path)


def _decode_annotated(data: Any, hint: Any, path: str) -> Any:
    plain, wanted = get_args(hint)
    return _decode_frame(data, plain, path, wanted) if plain is pd.DataFrame else decode(data, wanted, path)


def _decode_items(data: Any, hint: Any, path: str) -> Any:
    """Decode a list or tuple, with one hint for all items or one for each."""
    hints, n_items = get_args(hint), len(_checked(data, isinstance(data, list), "a list", path))
    if get_origin(hint) is list or hints[1:] == (Ellipsis,):
        hints = hints[:1] * n_items
    if len(hints) != n_items:
        raise RecordError(f"{_at(path)}expected {len(hints)} items, found {n_items}")
    items = (decode(item, kind, f"{path}[{n}]") for n, (item, kind) in enumerate(zip(data, hints, strict=True)))
    return get_origin(hint)(items)


def _decode_union(data: Any, hint: Any, path: str) -> Any:
    """Decode as the first type that fits; dataclasses are recognised by their fields."""
    *others, last = [one for one in get_args(hint) if one is not type(None)]
    if data is None and type(None) in get_args(hint):
        return None
    for one in others:
        with suppress(RecordError):
            return decode(data, one, path)
    return decode(data, last, path)


def _decode_array(data: Any, _: Any, path: str) -> Any:
    floats = decode(data, ArrayRecord, path)
    try:
        raw = base64.b64decode(floats.float64, validate=True)
        return np.frombuffer(raw, dtype="<f8").astype(np.float64).reshape(floats.shape)
    except ValueError as error:
        raise RecordError(f"{_at(path)}an array cannot be read: {error}") from None


def _frame_record(frame: pd.DataFrame) -> FrameRecord:
    types = {str(name): column_type(frame[name]) for name in frame.columns}
    columns = {str(name): frame[name].tolist() for name in frame.columns}
    cells = {name: [_encode_cell(value) for value in columns[name]] for name, kind in types.items() if kind == "object"}
    index, name = [_encode_cell(label) for label in frame.index], frame.index.name
    return FrameRecord(index, None if name is None else str(name), types, columns | cells)


def _decode_frame(
    data: Any, _: Any, path: str, required: Mapping[str, ColumnType | None] = MappingProxyType({})
) -> pd.DataFrame:
    table = decode(data, FrameRecord, path)
    if table.types.keys() != table.columns.keys():
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
    items = decode(values, _COLUMNS[kind], path)
    # Text is left to pandas, whose type for it differs between versions.
    dtypes = {"bool": np.bool_, "float": np.float64, "text": None, "object": object}
    if kind != "int":
        return pd.Series(items, dtype=dtypes[kind])
    try:
        return pd.Series(items, dtype=np.uint64 if max(items, default=0) >= 2**63 else np.int64)
    except (OverflowError, ValueError):
        raise RecordError(f"{_at(path)}expected whole numbers of 64 bits") from None


def _described(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return f"text ({value[:20]!r}{'...' if len(value) > 20 else ''})"
    if isinstance(value, int | float):
        return "a number" if isinstance(value, int) and abs(value) > 10**20 else f"the number {value!r}"
    return "an object" if isinstance(value, Mapping) else f"a {type(value).__name__}"


_DECODERS: dict[Any, Callable[[Any, Any, str], Any]] = {
    float: _decode_float,
    **dict.fromkeys((int, bool, str, type(None)), _decode_exact),
    Literal: _decode_literal,
    Any: _decode_any,
    Cell: _decode_cell,
    "dataclass": _decode_dataclass,
    "entries": _decode_entries,
    Annotated: _decode_annotated,
    **dict.fromkeys((Union, types.UnionType), _decode_union),
    **dict.fromkeys((tuple, list), _decode_items),
    **dict.fromkeys((dict, Mapping), lambda data, hint, path: _decode_named(data, {}, (), get_args(hint)[1], path)),
    **dict.fromkeys(_ARRAYS, _decode_array),
    pd.DataFrame: _decode_frame,
}


def write_text(path: str | os.PathLike[str], text: str, *, keep: bool = False) -> None:
    """Write to a temporary file beside `path`, then rename, so that readers see the old file or the complete new one.

    With `keep` an existing file is left unchanged.
    """
    write_bytes(path, text.encode("utf-8"), keep=keep)


def write_bytes(path: str | os.PathLike[str], content: bytes, *, keep: bool = False) -> None:
    """Write to a temporary file beside `path`, then rename; see `write_text`."""
    target = Path(path)
    if not target.parent.is_dir():
        raise ValueError(f"cannot write {target}: no folder {target.parent}")
    if target.is_dir():
        raise ValueError(f"cannot write {target}: it is a folder")
    try:
        _write_and_rename(target, content, keep)
    except OSError as error:  # which names the temporary file
        raise OSError(f"cannot write {target}: {error.strerror or error}") from error


def _write_and_rename(target: Path, content: bytes, keep: bool) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # else a crash could leave the new name on an empty file
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        if keep:
            _link(temporary, target)
        else:
            replace_file(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _link(temporary: str, target: Path) -> None:
    """Rename a file unless the target exists; of two simultaneous attempts one succeeds."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        pass
    except (OSError, AttributeError):  # a file system or a Python without links
        if not target.exists():
            replace_file(temporary, target)
    Path(temporary).unlink(missing_ok=True)
