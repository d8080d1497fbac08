"""Results of small fits of every kind are those that are kept in tests/golden."""

import json
import re

import pytest

from golden_cases import cases, differences, kept_file, kept_part, run

# Bits differ between machines, and searches that end at a tolerance pass them on: with other kernels of the BLAS a
# p-value moved by 6e-4 of itself. On one machine `python tests/golden_cases.py --before COMMIT` compares bit for bit.
TOLERANCE = {"relative": 1e-2, "absolute": 1e-3}
# Quantiles of an outcome of 0 and 1 jump at a bit, and so does the ratio of spreads where hardly a row has one of both.
UNSTEADY = re.compile(r"/(sd_ratio|q\d\d_effect)")


@pytest.mark.parametrize("name", list(cases()))
def test_results_are_those_that_are_kept(name):
    kept = json.loads(kept_file(name).read_text(encoding="utf-8"))
    found = list(differences(json.loads(json.dumps(kept_part(run(name)))), kept, **TOLERANCE))
    found = [place for place in found if not ("binary" in name and UNSTEADY.search(place))]
    assert not found, f"{len(found)} values differ: {found[:5]}"


def test_every_kept_result_has_a_case():
    assert {file.name for file in kept_file("x").parent.glob("*.json")} == {kept_file(name).name for name in cases()}


def test_differences_name_the_place():
    one = {"a": [1.0, 2.0, float("nan")], "b": {"c": True}}
    other = {"a": [1.0, 2.1, float("nan")], "b": {"c": False}, "d": 1}
    found = list(differences(one, other, absolute=0.01))
    assert found == ["/a[1]: 2.0, before 2.1", "/b/c: True, before False", "/d: only before"]
    assert list(differences(one, one)) == []
    assert list(differences([1.0], [1.0000001], relative=1e-6)) == []
