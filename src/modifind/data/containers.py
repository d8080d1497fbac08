"""Conversion to pandas: frames of any library that narwhals supports, arrays, lists and dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from itertools import combinations
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from modifind.data.column_types import plain_label
from modifind.data.words import counted, named, repeated


def is_distributed(X: Any) -> bool:
    """Whether a table is a Dask collection, without importing Dask."""
    return hasattr(X, "dask") and hasattr(X, "npartitions")


def as_frame(X: Any) -> pd.DataFrame:
    """Convert input to a DataFrame; columns of an array are named x0, x1, ...

    Parameters
    ----------
    X : DataFrame of pandas, polars or their like, pyarrow Table, dict of columns, array or list of rows
        Features.

    Examples
    --------
    >>> as_frame({"age": [30, 40], "sex": ["f", "m"]}).dtypes["age"]
    dtype('int64')
    >>> list(as_frame([[1, "a"], [2, "b"]]).columns)
    ['x0', 'x1']
    """
    if isinstance(X, pd.DataFrame):
        return X.infer_objects()
    check_names(tuple(map(str, getattr(X, "column_names", ()))))
    given = eager(X)
    if isinstance(given, nw.DataFrame):
        return _joined(given.columns, [_of_series(given[name]) for name in given.columns])
    if isinstance(X, Mapping):
        columns = [as_column(values, f"column {name!r}") for name, values in X.items()]
        _check_lengths("columns", [len(column) for column in columns])
        return _joined(list(X), columns)
    if isinstance(X, list | tuple) and X and isinstance(X[0], list | tuple):
        _check_lengths("rows", [len(row) if isinstance(row, list | tuple) else 0 for row in X])
        return _numbered(pd.DataFrame(X)).infer_objects()
    if hasattr(X, "toarray") and hasattr(X, "nnz"):
        raise ValueError("X is a sparse matrix; pass X.toarray()")
    return _of_array(_unmasked(X))


def _check_lengths(what: str, lengths: list[int]) -> None:
    if len(set(lengths)) > 1:
        raise ValueError(f"the {what} of X have between {min(lengths)} and {max(lengths)} values; they must agree")


def _of_array(array: np.ndarray[Any, Any]) -> pd.DataFrame:
    if array.ndim == 1 and array.dtype.names:
        return pd.DataFrame({name: array[name] for name in array.dtype.names}).infer_objects()
    if array.ndim != 2:
        raise ValueError(f"X must have two dimensions; found {array.ndim}")
    frame = _numbered(pd.DataFrame(array))
    return frame.infer_objects() if array.dtype == object else frame


def as_column(values: Any, what: str) -> pd.Series[Any]:
    """Convert input to a Series with rows numbered from 0.

    Examples
    --------
    >>> as_column([3, None], "y").isna().tolist()
    [False, True]
    """
    if isinstance(values, pd.Series):
        return values.reset_index(drop=True)
    given = eager(values)
    if isinstance(given, nw.DataFrame):
        frame = as_frame(values)
        if frame.shape[1] != 1:
            raise ValueError(f"{what} must be one column; found {frame.shape[1]}")
        return frame.iloc[:, 0].reset_index(drop=True)
    if isinstance(given, nw.Series):
        return _of_series(given).rename(given.name or None)
    if type(values).__module__.startswith("pyarrow"):  # an array that no table holds
        return pd.Series(values.to_pandas(integer_object_nulls=True)).infer_objects()
    if isinstance(values, list | tuple | range):
        array = np.asarray(values, dtype=object)
        if array.ndim == 1:
            return pd.Series(array, dtype=object).infer_objects()
    elif isinstance(values, pd.Index) or (hasattr(values, "dtype") and not isinstance(values, np.ndarray)):
        return pd.Series(values).reset_index(drop=True)
    else:
        array = _unmasked(values)
    if array.ndim > 1 and array.size != array.shape[0]:
        raise ValueError(f"{what} must be one column; found shape {array.shape}")
    return pd.Series(array.ravel()).infer_objects()


def recorded_names(y: pd.Series[Any], treatment: pd.Series[Any]) -> dict[str, str]:
    """Names of outcome and treatment for the record, for axes and sentences; empty without names.

    Examples
    --------
    >>> recorded_names(pd.Series([1.0], name="pressure"), pd.Series(["yes"], name=0))
    {'outcome_name': 'pressure'}
    """
    named = {"outcome_name": y.name, "treatment_name": treatment.name}
    return {role: name for role, name in named.items() if isinstance(name, str) and name}


def check_names(names: tuple[str, ...]) -> None:
    """Refuse duplicate names."""
    if twice := sorted(repeated(names)):
        raise ValueError(f"column names must be unique; repeated: {named(twice)}. Rename the columns.")


def check_same_rows(**given: Any) -> None:
    """Refuse pandas objects whose indexes differ, also in order only: rows are matched by position.

    A default index of row numbers is compatible with labels that are not whole numbers.

    Examples
    --------
    >>> X = pd.DataFrame({"age": [30, 41, 52]}, index=[0, 1, 2])
    >>> check_same_rows(X=X, y=pd.Series([1, 2, 3], index=["ann", "bob", "eve"]))
    >>> check_same_rows(X=X, y=pd.Series([1, 2, 3], index=[1, 2, 3]))
    Traceback (most recent call last):
    ...
    ValueError: the index of y has 1 label not in X, such as 3, ...
    """
    indexes = {name: rows.index for name, rows in given.items() if isinstance(rows, pd.DataFrame | pd.Series)}
    for (first, labels), (name, index) in combinations(indexes.items(), 2):
        if len(index) == len(labels) and not index.equals(labels):
            _refuse_other_rows(first, labels, name, index)


def _refuse_other_rows(first: str, labels: pd.Index[Any], name: str, index: pd.Index[Any]) -> None:
    """Refuse two different indexes, unless one has row numbers and the other labels that are not numbers."""
    numbered = any(rows.equals(pd.RangeIndex(len(rows))) for rows in (labels, index))
    others, whole = index[~index.isin(labels)], all(map(pd.api.types.is_integer_dtype, (labels, index)))
    if numbered and len(others) == len(index) and not whole:
        return
    what = f"the labels of {first} in another order"
    if len(others):
        what = f"{counted(len(others), 'label')} not in {first}, such as {plain_label(others[0])!r}"
    remedy = f"pass {name}.loc[{first}.index]"
    if len(others) or numbered or not labels.is_unique:  # labels do not say which rows belong together
        remedy = "take both from the same DataFrame"
    raise ValueError(
        f"the index of {name} has {what}, but rows are matched by position; {remedy}, or pass {name}.to_numpy() if the "
        "positions are right"
    )


def _numbered(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.set_axis([f"x{j}" for j in range(frame.shape[1])], axis=1)


def _joined(names: list[Any], columns: list[pd.Series[Any]]) -> pd.DataFrame:
    """Columns side by side; duplicate names are refused later with their own message."""
    if not columns:
        return pd.DataFrame()
    return pd.concat(columns, axis=1).set_axis(names, axis=1)


def _unmasked(values: Any) -> np.ndarray[Any, Any]:
    """An array in which masked entries have become missing values."""
    if isinstance(values, np.ma.MaskedArray):
        gaps = np.ma.getmaskarray(values)
        array = values.data.astype(np.float64 if values.dtype.kind in "biuf" else object)
        array[gaps] = np.nan if array.dtype == np.float64 else None
        return array
    return np.asarray(values)


def eager(value: Any) -> Any:
    """Wrap a frame or column of a library that narwhals supports; return anything else unchanged."""
    if type(value).__name__ == "RecordBatch" and type(value).__module__.startswith("pyarrow"):
        value = import_module("pyarrow").Table.from_batches([value])
    given = nw.from_native(value, pass_through=True, allow_series=True)
    return given.collect() if isinstance(given, nw.LazyFrame) else given


def _of_series(series: nw.Series[Any]) -> pd.Series[Any]:
    """Convert to a pandas Series; integers and booleans with gaps get nullable types."""
    kind, missing = series.dtype, series.null_count() > 0
    if kind.is_float():
        return pd.Series(series.to_numpy())
    if (kind.is_integer() and kind not in (nw.Int128, nw.UInt128)) or kind == nw.Boolean:
        # Integers with gaps stay integers: as floats the large ones would change.
        values = (series.fill_null(False if kind == nw.Boolean else 0) if missing else series).to_numpy()
        if not missing:
            return pd.Series(values)
        array: Any = pd.arrays.BooleanArray if kind == nw.Boolean else pd.arrays.IntegerArray
        return pd.Series(array(values.copy(), series.is_null().to_numpy().copy()))
    if isinstance(kind, nw.Enum):
        return pd.Series(pd.Categorical(series.to_list(), categories=list(kind.categories)))
    return pd.Series(series.to_list(), dtype=object).infer_objects()


def estimator_of(propensity: Any) -> Any:
    """The estimator or scores inside a `PropensityModel`, or the argument itself."""
    return getattr(propensity, "estimator", propensity)


def is_known(propensity: Any) -> bool:
    """Whether a propensity, or the `PropensityModel` around it, is a number or one score per row."""
    estimator = estimator_of(propensity)
    return not isinstance(estimator, str) and not hasattr(estimator, "fit")


def row_scores(propensity: Any) -> Any:
    """Known propensity scores if there is one per row; None otherwise."""
    return estimator_of(propensity) if is_known(propensity) and np.ndim(estimator_of(propensity)) else None
