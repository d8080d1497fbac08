"""Records as JSON and back."""

import json
import struct
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from modifind._typing import Array
from modifind.engine.assemble import NO_SAMPLER, Finding
from modifind.explain.marginal import MarginalView
from modifind.inference import AnalyticOutcome, CRTOutcome
from modifind.nuisance.conditional import Calibration
from modifind.result.codec import RecordError, decode, encode

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
    "labels", [["a", "NaN", ""], [1, 2, 3], [True, False], [0.5, float("nan")], [2**64 - 1], ["a", 1, 0.5, None]]
)
def test_labels_of_every_kind_come_back(labels):
    frame = pd.DataFrame({"value": labels})
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


@pytest.mark.parametrize(
    "data",
    [
        [{"name": "value", "type": "datetime64[ns]", "values": [1]}],
        [{"name": "value", "type": "object", "values": [[1]]}],
        [{"name": "value", "type": "int64", "values": [1.5]}],
        [{"name": "value", "values": [1]}],
        {"value": [1]},
    ],
)
def test_frames_that_do_not_fit_are_refused(data):
    with pytest.raises(RecordError):
        decode(data, pd.DataFrame)


@pytest.mark.parametrize("change", [{"float64": "AAAA"}, {"float64": "%"}, {"shape": [3]}, {"dtype": "object"}])
def test_arrays_that_do_not_fit_are_refused(change):
    with pytest.raises(RecordError):
        decode({**encode(np.zeros(2), Array), **change}, Array)
