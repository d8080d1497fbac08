"""Result files that are not as they should be: refused with the place named, whatever is wrong with them."""

import copy
import json
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from explained import explained_result
from modifind.cli.output import print_checks, print_result
from modifind.report import render_report
from modifind.result.checks import as_frame
from modifind.result.concerns import Check
from modifind.result.files import parse_json
from modifind.result.selection_result import SelectionResult


def small_result():
    index = pd.Index(["age", "sex"], name="feature")
    table = pd.DataFrame(
        {
            "kind": ["continuous", "discrete"],
            "importance": [0.5, 0.0],
            "statistic": [3.1, np.nan],
            "p_value": [0.001, 1.0],
            "p_adjusted": [0.002, 1.0],
            "selected": [True, False],
            "caution": ["", "constant"],
        },
        index=index,
    )
    diagnostics = pd.DataFrame(
        {"sampler": ["gaussian", "none"], "pit_p_value": [0.3, np.nan], "n_resamples": [0, 0]}, index=index
    )
    curve = pd.DataFrame({"value": [1.0, 2.0], "d2": [0.1, np.nan], "mean_effect": [1.0, 2.0], "sd_ratio": [1.0, 1.1]})
    labels = curve.assign(value=["f", "m"])
    checks = [Check("arm_size", None, 20.0, 50.0, False, "few"), Check("constant", "sex", 1.0, 0.0, False, "flat")]
    return SelectionResult(
        table=table,
        diagnostics=diagnostics,
        curves={"age": curve, "sex": labels},
        overlap={"auc": 0.5, "extreme_share": 0.0, "effective_rows_treated": 19.0, "effective_rows_control": 18.0},
        settings={
            **{"alpha": 0.05, "adjust": "bh", "seed": 0, "null_hypothesis": "nothing changes", "labels": ["a", "b"]},
            **{"n_rows": 40, "n_treated": 20, "n_control": 20, "treated_label": 1, "control_label": "none"},
            **{"propensity_model": "known", "n_resamples_used": 99, "sampler": {"class": "AutoSampler"}},
            "statistic": {"class": "Own", "cap": None},
        },
        versions={"modifind": "0.1.0"},
        warnings=("few",),
        checks=as_frame(checks),
    )


VALID = small_result().to_dict()
PLAIN = explained_result(("flat",), ()).to_dict()
EXPLAINED = explained_result(("age", "smoker", "flat"), ("age", "smoker")).to_dict()


def test_valid_file_loads_as_it_was(tmp_path):
    small_result().to_json(tmp_path / "r.json")
    again = SelectionResult.from_json(tmp_path / "r.json")
    assert again == small_result()
    pd.testing.assert_frame_equal(again.checks, small_result().checks, check_index_type=False)
    assert again.checks["feature"].tolist() == [None, "sex"]


def changed(path, value, valid=VALID):
    data = copy.deepcopy(valid)
    place = data
    for key in path[:-1]:
        place = place[key]
    if value is KeyError:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return data


@pytest.mark.parametrize("name", ["p_value", "p_adjusted"])
def test_a_selected_feature_has_been_tested(name):
    data = changed(("table", "columns", "selected", 1), True)
    data["table"]["columns"][name][1] = "NaN"
    with pytest.raises(ValueError, match=rf"table.columns.{name}\[1\]: expected a number, as the feature is selected"):
        SelectionResult.from_dict(data)
    data["table"]["columns"]["selected"][1] = False
    SelectionResult.from_dict(data)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), "modifind-result-2", "written by another version of modifind, in the format 'modifind-result-2'"),
        (("format",), "other", "this is not a modifind result"),
        (("format",), 1, "this is not a modifind result"),
        (("curves",), KeyError, "incomplete: missing curves"),
        (("table",), [], "table: expected an object, found a list"),
        (("table", "types"), KeyError, "table: missing types"),
        (("table", "index", 1), 7, "table.index[1]: expected text, found the number 7"),
        (("table", "index", 1), "age", "table.index: a feature appears twice"),
        (("table", "columns", "p_value", 1), "low", "table.columns.p_value[1]: expected a number, found text ('low')"),
        (("table", "columns", "p_value", 0), 1.5, "table.columns.p_value[0]: expected a number from 0 to 1"),
        (("table", "columns", "p_adjusted", 0), "-Infinity", "table.columns.p_adjusted[0]: expected a number from 0"),
        (("table", "columns", "importance", 0), True, "importance[0]: expected a number, found true"),
        (("table", "columns", "importance", 0), 10**400, "importance[0]: expected a number that a double can hold"),
        (("table", "columns", "selected", 0), 1, "table.columns.selected[0]: expected true or false"),
        (("table", "columns", "kind", 0), "odd", "table.columns.kind[0]: expected one of 'continuous'"),
        (("table", "columns", "p_value"), [0.5], "table.columns.p_value: 1 value for 2 labels of table.index"),
        (("table", "columns", "p_value"), KeyError, "table.types: expected the names of table.columns"),
        (("table", "types", "p_value"), "text", "table.types.p_value: expected 'float', found text ('text')"),
        (("table", "types", "caution"), "date", "table.types.caution: expected one of 'bool', 'int'"),
        (("diagnostics", "index"), ["sex", "age"], "diagnostics.index: expected the features of table.index"),
        (("diagnostics", "columns", "n_resamples", 0), 2**64, "n_resamples: expected whole numbers of 64 bits"),
        (("diagnostics", "columns", "n_resamples", 0), 0.5, "n_resamples[0]: expected a whole number"),
        (("curves", "sex"), KeyError, "curves: no curve of 'sex'"),
        (("curves", "height"), VALID["curves"]["age"], "curves.height: table.index has no such feature"),
        (("curves", "age", "columns", "d2", 0), None, "curves.age.columns.d2[0]: expected a number, found null"),
        (("curves", "age", "columns", "d2"), {}, "curves.age.columns.d2: expected a list, found an object"),
        (("curves", "age", "index", 0), [], "curves.age.index[0]: expected text, a number, true, false or null"),
        (("overlap", "auc"), None, "overlap.auc: expected a number, found null"),
        (("settings",), [], "settings: expected an object"),
        (("settings", "alpha"), "x", "settings.alpha: expected a number, found text ('x')"),
        (("settings", "alpha"), -1, "settings.alpha: expected a number between 0 and 1, found the number -1.0"),
        (("settings", "alpha"), KeyError, "settings: missing alpha"),
        (("settings", "adjust"), "foo", "settings.adjust: expected one of 'bh', 'by', "),
        (("settings", "n_rows"), -1, "settings.n_rows: expected a number of rows, found the number -1"),
        (("settings", "propensity_clip"), [-1, 1], "settings.propensity_clip: expected numbers from 0 to 1"),
        (("settings", "statistic"), "x", "settings.statistic: expected an object, found text ('x')"),
        (("settings", "statistic", "class"), KeyError, "settings.statistic: missing class"),
        (("settings", "statistic", "class"), "WCMMD", "settings.statistic: missing weighting, estimator, "),
        (("settings", "feature_groups"), [1], "settings.feature_groups: expected an object, found a list"),
        (("settings", "model"), {"n_folds": 5}, "settings.model: missing likelihood, stack"),
        (("settings", "method"), "si_em", "settings: missing sided, penalty, "),
        (("checks", "columns", "name", 0), "odd", "checks.columns.name[0]: expected a kind of check"),
        (("versions", "modifind"), 1, "versions.modifind: expected text"),
        (("warnings",), "few", "warnings: expected a list"),
        (("warnings", 0), {}, "warnings[0]: expected text, found an object"),
        (("checks", "columns", "passed", 0), "no", "checks.columns.passed[0]: expected true or false"),
        (("checks", "columns", "feature", 0), "height", "checks.columns.feature[0]: expected a feature of table.index"),
        (("checks", "columns", "feature", 0), [], "checks.columns.feature[0]: expected"),
    ],
)
def test_message_names_the_path_what_was_expected_and_what_was_found(path, value, message):
    with pytest.raises(ValueError) as caught:
        SelectionResult.from_dict(changed(path, value))
    assert message in str(caught.value)


def test_group_of_columns_has_the_curves_of_its_columns():
    data = changed(("table", "columns", "kind", 0), "group")
    data["curves"]["systolic"] = data["curves"].pop("age")
    data["settings"]["feature_groups"] = {"age": ["systolic"]}
    with pytest.raises(ValueError, match=r"settings.group_column_kinds: no kind of 'systolic'"):
        SelectionResult.from_dict(data)
    data["settings"]["group_column_kinds"] = {"systolic": "continuous"}
    assert SelectionResult.from_dict(data).curve("age")["column"].tolist() == ["systolic"] * 2
    del data["curves"]["systolic"]
    with pytest.raises(ValueError, match="curves: no curve of 'systolic'"):
        SelectionResult.from_dict(data)


@pytest.mark.parametrize("value", [KeyError, None, "x", -1, {}, float("inf"), [[1]]])
@pytest.mark.parametrize("place", [*PLAIN, *(f"settings.{name}" for name in PLAIN["settings"])])
def test_a_damaged_entry_is_refused_with_the_file_named_or_does_no_harm(place, value, tmp_path):
    file = tmp_path / "damaged.json"
    content = json.dumps(changed(tuple(place.split(".")), value, PLAIN))
    file.write_text(content.replace("Infinity", "1e999"), encoding="utf-8")
    refusal = ""
    try:
        loaded = SelectionResult.from_json(file)
    except ValueError as error:
        refusal = str(error)
    if refusal:
        assert refusal.startswith(f"{file}: ")
        assert place.removeprefix("settings.").split("_")[0] in refusal
        return
    render_report(loaded)
    print_result(loaded)
    print_checks(loaded)
    for column in loaded.curves:
        assert loaded.kind(column) in ("continuous", "discrete")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not valid JSON"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5000, "not valid JSON"),
        (b"", "not valid JSON"),
    ],
)
def test_what_is_no_json_is_refused_in_one_line(content, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        parse_json(content)
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"broken.json: not valid JSON"):
        SelectionResult.from_json(path)


def places(value, path=()):
    """Every place in nested lists and dictionaries."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += places(item, (*path, key))
    return found


PLACES = places(VALID)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**62, max_value=2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "age", "float", "text", "bool", "int", "object", "group"]),
)
ANY_JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
MUTATIONS = st.lists(
    st.tuples(st.sampled_from(PLACES), st.sampled_from(["set", "delete", "append", "copy"]), ANY_JSON),
    min_size=1,
    max_size=4,
)


def mutate(data, path, action, value):
    """Change one place; nothing where an earlier change has taken it away."""
    try:
        place = data
        for key in path[:-1]:
            place = place[key]
        if action == "delete":
            del place[path[-1]]
        elif action == "append":
            place[path[-1]].append(value)
        elif action == "copy":
            place[path[-1]] = copy.deepcopy(data[path[0]])
        else:
            place[path[-1]] = value
    except (KeyError, IndexError, TypeError, AttributeError):
        return


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(MUTATIONS)
def test_mutated_files_load_or_are_refused_with_a_value_error(mutations):
    data = copy.deepcopy(VALID)
    for mutation in mutations:
        mutate(data, *mutation)
    content = json.dumps(data).encode()
    try:
        loaded = SelectionResult.from_dict(parse_json(content))
    except ValueError:
        return
    # What loads can be used and written again.
    assert SelectionResult.from_dict(loaded.to_dict()) == loaded
    assert repr(loaded)
    assert isinstance(loaded.ok, bool)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data())
def test_files_with_changed_bytes_load_or_are_refused_with_a_value_error(data):
    content = bytearray(json.dumps(VALID).encode())
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[place] = data.draw(st.integers(0, 255))
        else:
            del content[place:]
            break
    try:
        loaded = SelectionResult.from_dict(parse_json(bytes(content)))
    except ValueError:
        return
    assert len(loaded.table) == 2


NAMELESS = [column for column in EXPLAINED["curves"]["age"]["columns"] if column not in ("value", "low_support")]


def test_explained_file_loads_as_it_was():
    assert SelectionResult.from_dict(EXPLAINED).to_dict() == EXPLAINED


@pytest.mark.parametrize("column", NAMELESS)
def test_curves_without_one_of_their_limits_are_refused(column):
    data = copy.deepcopy(EXPLAINED)
    for part in ("columns", "types"):
        del data["curves"]["age"][part][column]
    paired = column.endswith(("_low", "_high"))
    if paired or column in ("d2", "mean_effect", "sd_ratio"):
        said = f"columns: .*{column.removesuffix('_low').removesuffix('_high')}"
        with pytest.raises(ValueError, match=said):
            SelectionResult.from_dict(data)
    else:
        render_report(SelectionResult.from_dict(data))


@pytest.mark.parametrize(
    ("path", "column", "kind", "values", "message"),
    [
        (("curves", "age"), "mean_effect_low", "text", "<b>", "types.mean_effect_low: expected 'float', found text"),
        (("curves", "age"), "low_support", "object", None, "types.low_support: expected 'bool'"),
        (("curves", "age"), "value", "float", "Infinity", "value[0]: expected a finite number"),
        (("densities", "age"), "outcome", "float", "-Infinity", "outcome[0]: expected a finite number"),
        (("densities", "age"), "treated_high", "object", "x", "types.treated_high: expected 'float'"),
        (("bounds", "age"), "benefit_low_ci_low", "text", "x", "types.benefit_low_ci_low: expected 'float'"),
        (("bound_tests", "age"), "quantity", "float", 1.0, "types.quantity: expected 'text'"),
        (("changes",), "shape_adjusted", "object", None, "types.shape_adjusted: expected 'float'"),
        (("changes",), "verdict", "object", None, "types.verdict: expected 'text'"),
        (("pit_histogram",), "0.3", "text", "x", "types.0.3: expected 'float'"),
    ],
)
def test_explanations_of_other_types_are_refused(path, column, kind, values, message):
    data = copy.deepcopy(EXPLAINED)
    frame = data
    for key in path:
        frame = frame[key]
    frame["types"][column] = kind
    frame["columns"][column] = [values] * len(frame["index"])
    with pytest.raises(ValueError, match=re.escape(message)):
        SelectionResult.from_dict(data)


@pytest.mark.parametrize("name", ["changes", "pit_histogram"])
def test_explanations_are_of_the_features_of_the_table(name):
    data = copy.deepcopy(EXPLAINED)
    data[name]["index"] = ["age", "age", "flat"]
    with pytest.raises(ValueError, match=f"{name}.index: expected the features of table.index"):
        SelectionResult.from_dict(data)
