"""Frames and columns of other libraries are read as pandas has them, and given back as they came."""

import datetime

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from conftest import quiet_fit
from modifind import EffectLikelihood
from modifind.data.containers import as_column, as_frame

COLUMNS = {
    "whole": [2**60 + 1, None, 3],
    "text": ["x", None, "y"],
    "number": [1.5, None, 2.5],
    "flag": [True, None, False],
    "day": [datetime.date(2020, 1, 1)] * 3,
}


@pytest.mark.parametrize("make", [pl.DataFrame, pa.table, lambda columns: pl.DataFrame(columns).lazy()])
def test_values_and_gaps_are_those_of_the_frame(make):
    frame = as_frame(make(COLUMNS))
    assert frame.columns.tolist() == list(COLUMNS)
    for name, values in COLUMNS.items():
        assert frame[name].isna().tolist() == [value is None for value in values]
        assert frame[name].dropna().tolist() == [value for value in values if value is not None]
    assert [str(kind) for kind in frame.dtypes[["whole", "number", "flag"]]] == ["Int64", "float64", "boolean"]


def test_levels_that_do_not_occur_stay_levels():
    column = pl.Series("arm", ["u", "v", "u"], dtype=pl.Enum(["u", "v", "w"]))
    assert as_frame(column.to_frame())["arm"].cat.categories.tolist() == ["u", "v", "w"]


@pytest.mark.parametrize("column", [pl.Series("y", [1, 2]), pa.chunked_array([[1], [2]]), pa.array([1, 2])])
def test_columns_of_other_libraries(column):
    assert as_column(column, "y").tolist() == [1, 2]
    assert as_column(column, "y").name in ("y", None)


def test_names_that_occur_twice_are_refused():
    with pytest.raises(ValueError, match="column names must be unique; repeated: a"):
        as_frame(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))
    with pytest.raises(ValueError, match="y must be one column; found 2"):
        as_column(pl.DataFrame({"a": [1], "b": [2]}), "y")


@pytest.mark.parametrize("make", [pl.DataFrame, pa.table])
def test_selected_columns_come_as_the_table_came(make):
    rng = np.random.default_rng(0)
    X, arms = rng.normal(size=(200, 3)), np.arange(200) % 2
    y = 2 * arms * X[:, 0] + rng.normal(size=200)
    table = make({name: X[:, k] for k, name in enumerate(("age", "dose", "score"))})
    settings = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "random_state": 0}
    selector = quiet_fit(table, pl.Series("pressure", y), pa.chunked_array([arms]), explain=False, **settings)
    assert type(selector.transform(table)) is type(table)
    assert as_frame(selector.transform(table)).columns.tolist() == selector.result_.selected == ["age"]
    assert selector.result_.settings["outcome_name"] == "pressure"
    with pytest.raises(ValueError, match="not those seen in fit"):
        selector.transform(
            table.rename({"age": "a"}) if make is pl.DataFrame else table.rename_columns(["a", "b", "c"])
        )


def test_batches_keep_their_names_and_large_integers_their_values():
    batch = pa.RecordBatch.from_pydict({"age": [1, 2], "dose": [0.5, 1.5]})
    assert as_frame(batch).columns.tolist() == ["age", "dose"]
    assert as_column(pl.Series("y", [2**70, 3], dtype=pl.Int128), "y").tolist() == [2**70, 3]
