"""What a result file must look like, and messages that name the place where it does not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from modifind.data.wording import counted

FAMILY = "modifind-result-"
FORMAT = f"{FAMILY}1"
REQUIRED = ("table", "diagnostics", "curves", "overlap", "settings")
TABLE_COLUMNS = {
    "kind": "text",
    "importance": "float",
    "statistic": "float",
    "p_value": "float",
    "p_adjusted": "float",
    "selected": "bool",
}
CHECK_COLUMNS = {
    **{"name": "text", "value": "float", "threshold": "float", "passed": "bool", "validity": "bool"},
    **{"text": "text", "remedy": "text"},
}
CURVE_COLUMNS = {"d2": "float", "mean_effect": "float", "sd_ratio": "float"}
CHANGE_P_VALUES = tuple(f"{part}_{of}" for of in ("p", "adjusted") for part in ("mean", "spread", "shape"))
# What results of earlier versions lack: tables, and tables by column.
OPTIONAL_FRAMES: dict[str, dict[str, str]] = {
    "changes": {**dict.fromkeys(CHANGE_P_VALUES, "float"), "verdict": "text"},
    "score_histogram": {"low": "float", "high": "float", "treated": "float", "control": "float"},
    "pit_histogram": {f"{tenth / 10:.1f}": "float" for tenth in range(10)},
}
BY_FEATURE = ("changes", "pit_histogram")
BY_COLUMN: dict[str, dict[str, str]] = {
    "densities": {"outcome": "float", "treated": "float", "control": "float", "witness": "float"},
    "bounds": {f"{name}_{end}": "float" for name in ("var", "sd", "corr", "benefit") for end in ("low", "high")},
    "bound_tests": {"quantity": "text", "part": "text", "p_value": "float"},
}
PLACEBO_COLUMNS = {"run": "int", "feature": "text", "p_value": "float", "selected": "bool"}
ALONG_VALUES = ("densities", "bounds")
PLACES = ("value", "outcome")
LABELS = ("value", "quantity", "part")  # columns that need not be numbers
KINDS = ("continuous", "discrete", "group")
P_VALUES = (
    *("p_value", "p_adjusted", "pit_p_value", "normal_p_value", "check_p_value", "likelihood_p_value", "tail_p_value"),
    *("prognostic_p_value", "arm_p_value", "conditional_p_value", "checked_p_value"),
    *CHANGE_P_VALUES,
)
INFINITE = ("Infinity", "-Infinity")
NOT_FINITE = ("NaN", *INFINITE)
INT64 = 2**63
MOST_DEPTH = 50


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


def validate(data: Any) -> None:
    """Refuse what is no modifind result.

    Parameters
    ----------
    data : any
        What a file holds, as `json` gives it.

    Raises
    ------
    ValueError
        Names the path in the file, what was expected and what was found.

    Examples
    --------
    >>> validate({"format": "modifind-result-7"})
    Traceback (most recent call last):
    ...
    ValueError: format: 'modifind-result-7' is not known here; this version of modifind reads 'modifind-result-1'
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("format"), str):
        raise ValueError(f"this is no modifind result: expected format {FORMAT!r}")
    if data["format"] != FORMAT:
        if data["format"].startswith(FAMILY):
            raise ValueError(
                f"format: {data['format'][:40]!r} is not known here; this version of modifind reads {FORMAT!r}"
            )
        raise ValueError(f"this is no modifind result: expected format {FORMAT!r}")
    missing = [key for key in REQUIRED if key not in data]
    if missing:
        raise ValueError(f"this modifind result is incomplete: no {', '.join(missing)}")
    features, kinds = _features(data["table"])
    _frame("diagnostics", data["diagnostics"], {})
    if data["diagnostics"]["index"] != features:
        raise ValueError("diagnostics.index: expected the features of table.index, in the same order")
    _curves(data["curves"], features, kinds)
    for name, value in _object("overlap", data["overlap"]).items():
        _number(f"overlap.{name}", value)
    check_plain("settings", _object("settings", data["settings"]))
    for name, value in _object("versions", data.get("versions", {})).items():
        _text(f"versions.{name}", value)
    for place, value in enumerate(_list("warnings", data.get("warnings", []))):
        _text(f"warnings[{place}]", value)
    if "checks" in data:
        adjusted = data["settings"].get("adjust_for")  # columns that are checked, too
        more = [name for name in adjusted if isinstance(name, str)] if isinstance(adjusted, list) else []
        _checks(data["checks"], [*features, *more])
    for name, columns in OPTIONAL_FRAMES.items():
        if name in data:
            _frame(name, data[name], columns)
            if name in BY_FEATURE and data[name]["index"] not in ([], features):
                raise ValueError(f"{name}.index: expected the features of table.index, in the same order")
    for name, columns in BY_COLUMN.items():
        for column, frame in _object(name, data.get(name, {})).items():
            if column not in data["curves"]:
                raise ValueError(f"{name}.{column}: curves has no such column")
            _explanation(f"{name}.{column}", frame, columns, along=name in ALONG_VALUES)
            if not frame["index"]:
                raise ValueError(f"{name}.{column}: no rows")
    for name, value in _object("overall", data.get("overall", {})).items():
        _number(f"overall.{name}", value)
    if "placebo" in data:
        placebo = _object("placebo", data["placebo"])
        for key, check in (("n_asked", _whole), ("chance", _probability), ("drawn", _text)):
            if key not in placebo:
                raise ValueError(f"placebo: no {key}")
            check(f"placebo.{key}", placebo[key])
        _frame("placebo.table", placebo.get("table"), PLACEBO_COLUMNS)


def _features(table: Any) -> tuple[list[str], list[str]]:
    """Names and kinds of the features."""
    _frame("table", table, TABLE_COLUMNS)
    features: list[str] = table["index"]
    for place, name in enumerate(features):
        _text(f"table.index[{place}]", name)
    if len(set(features)) < len(features):
        raise ValueError("table.index: a feature appears twice")
    for place, kind in enumerate(table["columns"]["kind"]):
        if kind not in KINDS:
            _fail(f"table.columns.kind[{place}]", f"one of {', '.join(map(repr, KINDS))}", kind)
    return features, table["columns"]["kind"]


def _curves(curves: Any, features: list[str], kinds: list[str]) -> None:
    """A curve of every feature; a group of columns has none of its own, but its columns may."""
    _object("curves", curves)
    for name, kind in zip(features, kinds, strict=True):
        if name not in curves and kind != "group":
            raise ValueError(f"curves: no curve of {name!r}, which table.index names")
    known = set(features)
    for name, curve in curves.items():
        if name not in known and "group" not in kinds:
            raise ValueError(f"curves.{name}: table.index has no such feature")
        _explanation(f"curves.{name}", curve, CURVE_COLUMNS, along=True)


def _explanation(path: str, frame: Any, required: Mapping[str, str], *, along: bool) -> None:
    """A table of numbers, mostly along the values of a column; limits come in pairs."""
    _frame(path, frame, required)
    columns, types = frame["columns"], frame["types"]
    if along and "value" not in columns:
        raise ValueError(f"{path}.columns: no value")
    for name in columns:
        for end, other in (("_low", "_high"), ("_high", "_low")):
            if name.endswith(end) and (pair := name.removesuffix(end) + other) not in columns:
                raise ValueError(f"{path}.columns: {name} without {pair}")
        if name in PLACES and types[name] == "float":
            for place, value in enumerate(columns[name]):
                if value in INFINITE:
                    _fail(f"{path}.columns.{name}[{place}]", "a finite number, or 'NaN'", value)
        wanted = ("bool",) if name == "low_support" else ("float", "int")
        if name not in LABELS and types[name] not in wanted and frame["index"]:
            _fail(f"{path}.types.{name}", repr(wanted[0]), types[name])


def _checks(checks: Any, features: list[str]) -> None:
    _frame("checks", checks, CHECK_COLUMNS)
    if "feature" not in checks["columns"]:
        raise ValueError("checks.columns: no feature")
    known = {None, *features}
    for place, feature in enumerate(checks["columns"]["feature"]):
        if not isinstance(feature, str | None) or feature not in known:
            _fail(f"checks.columns.feature[{place}]", "a feature of table.index or null", feature)


def _frame(path: str, frame: Any, required: Mapping[str, str]) -> None:
    """A table: its index, and columns of as many values of the type that it names."""
    _object(path, frame)
    for key in ("index", "index_name", "types", "columns"):
        if key not in frame:
            raise ValueError(f"{path}: no {key}")
    index = _list(f"{path}.index", frame["index"])
    for place, label in enumerate(index):
        _scalar(f"{path}.index[{place}]", label)
    if frame["index_name"] is not None:
        _text(f"{path}.index_name", frame["index_name"])
    types, columns = _object(f"{path}.types", frame["types"]), _object(f"{path}.columns", frame["columns"])
    if list(types) != list(columns) and set(types) != set(columns):
        raise ValueError(f"{path}.types: expected the names of {path}.columns")
    for name, kind in required.items():
        if name not in columns:
            raise ValueError(f"{path}.columns: no {name}")
        # An empty table cannot tell the types of its columns.
        if types[name] != kind and index:
            _fail(f"{path}.types.{name}", repr(kind), types[name])
    for name, values in columns.items():
        where = f"{path}.columns.{name}"
        if not isinstance(types[name], str) or types[name] not in _CELLS:
            _fail(f"{path}.types.{name}", f"one of {', '.join(map(repr, _CELLS))}", types[name])
        if len(_list(where, values)) != len(index):
            raise ValueError(
                f"{where}: {counted(len(values), 'value')} for {counted(len(index), 'label')} of {path}.index"
            )
        check = _probability if name in P_VALUES and types[name] == "float" else _CELLS[types[name]]
        for place, value in enumerate(values):
            check(f"{where}[{place}]", value)


def _object(path: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        _fail(path, "an object", value)
    for key in value:
        _text(f"{path}, a key", key)
    return value


def _list(path: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        _fail(path, "a list", value)
    return value


def _text(path: str, value: Any) -> None:
    if not isinstance(value, str):
        _fail(path, "text", value)


def _truth(path: str, value: Any) -> None:
    if not isinstance(value, bool):
        _fail(path, "true or false", value)


def _whole(path: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not -INT64 <= value < INT64:
        _fail(path, "a whole number", value)


def _number(path: str, value: Any) -> None:
    if isinstance(value, str) and value in NOT_FINITE:
        return
    if not isinstance(value, int | float) or isinstance(value, bool):
        _fail(path, "a number", value)
    if isinstance(value, int) and abs(value) > 10**300:
        _fail(path, "a number that a double can hold", value)


def _probability(path: str, value: Any) -> None:
    _number(path, value)
    if not (math.isnan(float(value)) or 0.0 <= float(value) <= 1.0):
        _fail(path, "a number from 0 to 1, or 'NaN'", value)


def _scalar(path: str, value: Any) -> None:
    if isinstance(value, list | Mapping):
        _fail(path, "text, a number, true, false or null", value)


def check_plain(path: str, value: Any, depth: int = 0) -> None:
    """Refuse what is no JSON, or so deep that nothing could print it; settings are anything else."""
    if depth > MOST_DEPTH:
        raise ValueError(f"{path[:80]}: nested too deeply")
    if isinstance(value, Mapping):
        for key, item in value.items():
            _text(f"{path}, a key", key)
            check_plain(f"{path}.{key}", item, depth + 1)
    elif isinstance(value, list):
        for place, item in enumerate(value):
            check_plain(f"{path}[{place}]", item, depth + 1)
    elif value is not None and not isinstance(value, str | int | float | bool):
        _fail(path, "JSON", value)


_CELLS: dict[str, Callable[[str, Any], None]] = {
    "bool": _truth,
    "int": _whole,
    "float": _number,
    "text": _text,
    "object": _scalar,
}


def _fail(path: str, expected: str, found: Any) -> NoReturn:
    raise ValueError(f"{path}: expected {expected}, found {_described(found)}")


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
