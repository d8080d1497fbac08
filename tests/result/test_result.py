import json

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from conftest import quiet_fit
from modifind import EffectLikelihood, SelectionResult
from modifind.result.selection_result import readable_p


def fit_mixed(**settings):
    rng = np.random.default_rng(0)
    n = 90
    frame = pd.DataFrame(
        {
            "Größe, cm": rng.normal(size=n),
            "薬": rng.choice(["ja", "nein", "вероятно"], size=n),
            "flag": rng.integers(0, 2, size=n).astype(bool),
            "visits": rng.integers(0, 4, size=n),
            "half": rng.choice([0.5, 1.0, 1.5], size=n),
            "flat": 1.0,
            "banded": pd.cut(rng.random(n), [0, 0.3, 0.6, 1.0]),
        }
    )
    treatment = np.where(np.arange(n) % 2 == 1, "verum", "placebo")
    treatment[(frame["visits"] == 3).to_numpy()] = "verum"
    with pytest.warns(UserWarning, match="constant"):
        return quiet_fit(
            frame, rng.normal(size=n), treatment, sampler="gaussian", propensity=0.5, random_state=0, **settings
        ).result_


@pytest.fixture(scope="module")
def result():
    return fit_mixed(statistic="wcmmd", n_resamples=9)


@pytest.fixture(scope="module")
def likelihood():
    return fit_mixed(statistic=EffectLikelihood("linear"))


def assert_same_result(first, second):
    assert_frame_equal(first.table, second.table, check_exact=True)
    assert_frame_equal(first.diagnostics, second.diagnostics, check_exact=True)
    assert list(first.curves) == list(second.curves)
    for name in first.curves:
        assert_frame_equal(first.curve(name), second.curve(name), check_exact=True)
    assert dict(first.overlap) == dict(second.overlap)
    assert dict(first.settings) == dict(second.settings)
    assert dict(first.versions) == dict(second.versions)
    assert first.warnings == second.warnings


def without(result, *names):
    return SelectionResult(
        table=result.table.drop(index=list(names)),
        diagnostics=result.diagnostics.drop(index=list(names)),
        curves={name: curve.copy() for name, curve in result.curves.items() if name not in names},
        overlap=result.overlap,
        settings=result.settings,
        versions=result.versions,
        warnings=result.warnings,
    )


def test_json_round_trip_loses_nothing(result, tmp_path):
    plain = without(result, "banded")
    assert plain.diagnostics["pit_distance"].isna().any()
    plain.curves["visits"].loc[0, "mean_effect"] = np.nan  # as where an arm has no row
    assert plain.curve("visits")["mean_effect"].isna().any()
    path = tmp_path / "ergebnis.json"
    plain.to_json(path)
    assert_same_result(plain, SelectionResult.from_json(path))


def test_json_round_trip_keeps_the_gain_of_every_feature_and_the_model(likelihood, tmp_path):
    plain = without(likelihood, "banded")
    assert plain.table.loc["flat", "likelihood_gain":"gain_high"].isna().all()
    assert plain.table["likelihood_gain"].notna().sum() == len(plain.table) - 1
    plain.to_json(tmp_path / "r.json")
    again = SelectionResult.from_json(tmp_path / "r.json")
    assert_same_result(plain, again)
    assert again.settings["model"]["held_out_log_likelihood"]["linear"] < 0


def test_gain_lies_inside_its_interval(likelihood):
    tested = likelihood.table.drop(index="flat")
    assert (tested["gain_low"] < tested["likelihood_gain"]).all()
    np.testing.assert_allclose(
        tested["gain_high"] - tested["likelihood_gain"], tested["likelihood_gain"] - tested["gain_low"], rtol=1e-9
    )


@pytest.mark.parametrize(
    ("p_value", "text"),
    [(1.0, ">0.99"), (0.85321, "0.85"), (0.04321, "0.043"), (0.001, "0.001"), (2.4e-17, "<0.001")],
)
def test_p_values_are_written_as_journals_print_them(p_value, text):
    assert readable_p(p_value) == text


def test_json_round_trip_is_stable_for_any_label(result, tmp_path):
    path = tmp_path / "result.json"
    result.to_json(path)
    once = SelectionResult.from_json(path)
    assert once.curve("banded")["value"].tolist() == ["(0.0, 0.3]", "(0.3, 0.6]", "(0.6, 1.0]"]
    once.to_json(path)
    assert_same_result(once, SelectionResult.from_json(path))


def test_results_are_equal_when_everything_in_them_is(result):
    again = SelectionResult.from_dict(result.to_dict())
    assert again == result
    changed = SelectionResult.from_dict({**result.to_dict(), "warnings": ["another"]})
    assert changed != result


def test_json_is_strict_and_readable_by_others(result, tmp_path):
    path = tmp_path / "result.json"
    result.to_json(path)

    def refuse(token):
        raise AssertionError(token)

    data = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    assert data["format"] == "modifind-result-1"
    assert data["table"]["index"][0] == "Größe, cm"


def test_infinite_settings_survive(result):
    data = result.to_dict()
    changed = SelectionResult.from_dict({**data, "overlap": {**data["overlap"], "a": "Infinity", "b": "NaN"}})
    assert changed.overlap["a"] == np.inf
    assert np.isnan(changed.overlap["b"])
    assert SelectionResult.from_dict(changed.to_dict()).overlap["a"] == np.inf


def test_broken_files_are_refused(tmp_path):
    path = tmp_path / "broken.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="not valid JSON"):
        SelectionResult.from_json(path)
    path.write_text('{"format": "other"}', encoding="utf-8")
    with pytest.raises(ValueError, match="not a modifind result"):
        SelectionResult.from_json(path)
    path.write_text('{"format": "modifind-result-1", "table": {}}', encoding="utf-8")
    with pytest.raises(ValueError, match="incomplete: missing diagnostics, curves"):
        SelectionResult.from_json(path)
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match="not a modifind result"):
        SelectionResult.from_json(path)


def test_failed_write_leaves_the_old_file_and_no_other(result, tmp_path):
    with pytest.raises(ValueError, match="no folder"):
        result.to_json(tmp_path / "missing" / "r.json")
    path = tmp_path / "r.json"
    path.write_text("old", encoding="utf-8")
    bad = SelectionResult(result.table, result.diagnostics, {"a": object()}, {}, {}, {})
    with pytest.raises(TypeError, match="no record can hold"):
        bad.to_json(path)
    assert path.read_text(encoding="utf-8") == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_csv_holds_the_table(result, tmp_path):
    result.to_csv(tmp_path / "r.csv")
    back = pd.read_csv(tmp_path / "r.csv", index_col="feature")
    np.testing.assert_allclose(back["p_value"], result.table["p_value"])
    assert back.index.tolist() == result.table.index.tolist()


def test_selected_are_ordered_by_p_value_then_importance():
    table = pd.DataFrame(
        {
            "p_value": [0.02, 0.01, 0.01, 0.9],
            "importance": [9.0, 1.0, 2.0, 99.0],
            "selected": [True, True, True, False],
        },
        index=list("abcd"),
    )
    result = SelectionResult(table, table, {}, {}, {}, {})
    assert result.selected == ["c", "b", "a"]
    assert repr(result) == "SelectionResult(4 features, selected: c, b, a)"


def test_curve_is_a_copy_and_unknown_names_are_refused(result):
    curve = result.curve("flag")
    curve["d2"] = -1.0
    assert (result.curve("flag")["d2"] != -1.0).all()
    with pytest.raises(ValueError, match="no feature 'age'; features are 'Größe, cm'"):
        result.curve("age")
