"""Records as JSON and back."""

import json
import struct
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from modifind._typing import Array
from modifind.engine.findings import NO_SAMPLER, Finding
from modifind.explain.views import MarginalView
from modifind.inference import AnalyticOutcome, CRTOutcome
from modifind.nuisance.conditional import Calibration
from modifind.result.files import RecordError, decode, encode

NUMBERS = [0.1, -0.0, 5e-324, 1e-300, np.pi, float("nan"), float("inf"), float("-inf"), 1.0, 1.7976931348623157e308]
CURVE = pd.DataFrame({"value": NUMBERS, "d2": np.arange(10.0) / 3})


def there_and_back(value, hint):
    return decode(json.loads(json.dumps(encode(value, hint), allow_nan=False)), hint)


def bits(numbers):
    return [struct.pack("<d", number) for number in numbers]


def test_numbers_keep_every_bit():
    assert bits(there_and_back(NUMBERS, list[float])) == bits(NUMBERS)
    array = np.array(NUMBERS * 2).reshape(2, 5, 2)
    found = there_and_back(array, Array)
    assert found.shape == array.shape
    assert found.tobytes() == array.tobytes()
    assert found.flags.writeable


@pytest.mark.parametrize(
    "outcome",
    [
        None,
        CRTOutcome(1.5, 0.02, 100, 1),
        AnalyticOutcome(np.float64(2.0), 0.1, 0.2, float("nan"), 0.0, -1.0, 1.0, n_exceeding=np.int64(3)),
    ],
)
def test_findings_come_back_as_they_were(outcome):
    finding = Finding(MarginalView(0.1, 2.0, CURVE), outcome, Calibration("auto", 0.1, 0.2, 0.3), ("mind the gap",))
    found = there_and_back(finding, Finding)
    assert_frame_equal(found.view.curve, CURVE, check_exact=True)
    assert repr(found.outcome) == repr(outcome).replace("np.float64(2.0)", "2.0").replace("np.int64(3)", "3")
    assert found.calibration == finding.calibration
    assert found.messages == finding.messages
    assert np.isnan(there_and_back(Finding(finding.view, None, NO_SAMPLER), Finding).calibration.pit_distance)


@pytest.mark.parametrize(
    "labels",
    [
        *(["a", "NaN", ""], [1, 2, 3], [True, False], [0.5, float("nan")], [2**64 - 1], [-(2**63), 2**63 - 1]),
        *(["a", 1, 0.5, None], ["NaN", float("nan"), None], [float("-inf"), "Infinity", 1]),
    ],
)
def test_labels_of_every_kind_come_back(labels):
    mixed = len({type(label) for label in labels}) > 1
    frame = pd.DataFrame({"value": pd.Series(labels, dtype=object if mixed else None)})
    assert_frame_equal(there_and_back(frame, pd.DataFrame), frame, check_exact=True)


@dataclass(frozen=True)
class Sample:
    count: int
    share: float
    kind: Literal["a", "b"]


@pytest.mark.parametrize(
    "data",
    [
        {"count": 1, "share": 0.5},
        {"count": 1, "share": 0.5, "kind": "a", "more": 1},
        {"count": True, "share": 0.5, "kind": "a"},
        {"count": 1, "share": "0.5", "kind": "a"},
        {"count": 1, "share": None, "kind": "a"},
        {"count": 1, "share": 0.5, "kind": "c"},
        [1, 0.5, "a"],
        None,
    ],
)
def test_what_does_not_fit_is_refused(data):
    with pytest.raises(RecordError):
        decode(data, Sample)


def test_labels_that_no_file_can_hold_come_back_as_text():
    frame = pd.DataFrame({"value": [pd.Interval(0, 1), np.int64(2), pd.Timestamp("2020-01-01")]}, dtype=object)
    assert there_and_back(frame, pd.DataFrame)["value"].tolist() == ["(0, 1]", 2, "2020-01-01 00:00:00"]


def test_the_rows_of_a_table_keep_their_names():
    frame = pd.DataFrame({"age": [1.0, 2.0]}, index=pd.Index(["a", "NaN"], name="feature"))
    assert_frame_equal(there_and_back(frame, pd.DataFrame), frame, check_exact=True)
    assert_frame_equal(there_and_back(frame[[]], pd.DataFrame), frame[[]], check_column_type=False)


FRAME = {"index": [0], "index_name": None, "types": {"value": "int"}, "columns": {"value": [1]}}
MIXED = FRAME | {"types": {"value": "object"}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (FRAME | {"types": {"value": "datetime64[ns]"}}, "t.types.value: expected one of 'bool', 'int'"),
        (MIXED | {"columns": {"value": [[1]]}}, r"t.columns.value\[0\]: expected text, a"),
        (MIXED | {"columns": {"value": [{"float": "x"}]}}, "expected a number, found text"),
        (FRAME | {"columns": {"value": [1.5]}}, r"t.columns.value\[0\]: expected a whole number, found the number 1.5"),
        (FRAME | {"columns": {"value": [2**64]}}, "t.columns.value: expected whole numbers of 64 bits"),
        (FRAME | {"index": [0, 1], "columns": {"value": [-1, 2**63]}}, "t.columns.value: expected whole numbers of 64"),
        (FRAME | {"columns": {"value": [1, 2]}}, "t.columns.value: 2 values for 1 label of t.index"),
        (FRAME | {"columns": {}}, "t.types: expected the names of t.columns"),
        ({"index": []}, "t: missing index_name, types, columns"),
        ([FRAME], "t: expected an object, found a list"),
    ],
)
def test_frames_that_do_not_fit_are_refused(data, message):
    with pytest.raises(RecordError, match=message):
        decode(data, pd.DataFrame, "t")


def test_a_table_must_have_the_columns_of_its_hint():
    decode(FRAME, Annotated[pd.DataFrame, {"value": None}])
    with pytest.raises(RecordError, match=r"^t.columns: no age$"):
        decode(FRAME, Annotated[pd.DataFrame, {"age": "float"}], "t")
    with pytest.raises(RecordError, match=r"^t.types.value: expected 'float', found text \('int'\)$"):
        decode(FRAME, Annotated[pd.DataFrame, {"value": "float"}], "t")


@pytest.mark.parametrize("change", [{"float64": "AAAA"}, {"float64": "%"}, {"shape": [3]}, {"dtype": "object"}])
def test_arrays_that_do_not_fit_are_refused(change):
    with pytest.raises(RecordError):
        decode({**encode(np.zeros(2), Array), **change}, Array)


def test_settings_may_be_anything_but_deep():
    value = {"a": (1, np.float64("nan")), "b": np.arange(2), "c": {1: None}, "d": Sample}
    assert encode(value, Any) == {"a": [1, "NaN"], "b": [0, 1], "c": {"1": None}, "d": str(Sample)}
    deep = "end"
    for _ in range(60):
        deep = [deep]
    with pytest.raises(RecordError, match="nested too deeply"):
        decode({"a": deep}, dict[str, Any])
