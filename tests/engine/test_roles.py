"""Roles of features: modifiers, predictors of the outcome, and neither."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from conftest import quiet_fit
from modifind import EffectLikelihood, ModifierSelector, SelectionResult
from modifind.cli.output import print_result
from modifind.inference import adjust_p_values

QUICK = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "random_state": 0}
ROLES = {"moves": "modifier", "predicts": "prognostic", "noise": ""}
LINE = "prognostic only      "


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 3)), columns=list(ROLES))
    treatment = rng.integers(0, 2, size=400)
    return X, 2 * treatment * X["moves"] + 1.5 * X["predicts"] + rng.normal(size=400), treatment


@pytest.fixture(scope="module")
def result(table):
    return quiet_fit(*table, **QUICK).result_


def test_each_feature_has_its_role(result):
    assert result.table["role"].to_dict() == ROLES
    assert result.table.columns.get_loc("role") == result.table.columns.get_loc("selected") + 1


def test_modifiers_are_the_selected_features(result):
    assert list(result.table.index[result.table["role"] == "modifier"]) == result.selected
    # A modifier predicts the outcome too, and has one role.
    assert result.diagnostics.loc["moves", "prognostic_p_value"] < 1e-6


def test_predictors_are_those_of_the_adjusted_likelihood_test(table):
    X, y, treatment = table
    rng = np.random.default_rng(1)
    more = X.assign(**{f"z{k}": rng.normal(size=400) for k in range(5)})
    for adjust, alpha in (("bonferroni", 0.05), ("none", 0.3)):
        found = quiet_fit(more, y, treatment, **QUICK, adjust=adjust, alpha=alpha).result_
        p_values = found.diagnostics["prognostic_p_value"]
        assert p_values.between(0, 1).all()
        predicts = (adjust_p_values(p_values, adjust) <= alpha) & ~found.table["selected"]
        assert (found.table["role"] == "prognostic").tolist() == predicts.tolist()
        assert predicts["predicts"]


def test_predictors_are_adjusted_for_the_number_of_features(table):
    X, y, treatment = table
    weak = X, y + 0.2 * X["noise"], treatment
    found = quiet_fit(*weak, **QUICK).result_
    # A level that the weak predictor reaches if it is the only one.
    alpha = 1.01 * found.diagnostics.loc["noise", "prognostic_p_value"]
    assert alpha < 0.5 * found.table.loc["noise", "p_value"]
    roles = [
        quiet_fit(*weak, **QUICK, adjust=adjust, alpha=alpha).result_.table.loc["noise", "role"]
        for adjust in ("none", "bonferroni")
    ]
    assert roles == ["prognostic", ""]


def test_roles_of_a_binary_outcome():
    # Chances add up: on the scale of differences a predictor that is no modifier.
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.uniform(-1, 1, size=(500, 3)), columns=list(ROLES))
    treatment = rng.integers(0, 2, size=500)
    chance = 0.5 + 0.24 * (2 * treatment - 1) * X["moves"] + 0.24 * X["predicts"]
    found = quiet_fit(X, (rng.random(500) < chance).astype(int), treatment, **QUICK).result_
    assert found.table["role"].to_dict() == ROLES


def test_roles_of_a_streamed_fit(table):
    found = quiet_fit(*table, **QUICK, max_train_rows=200).result_
    assert found.settings["n_train_rows"] == 200
    assert found.table["role"].to_dict() == ROLES
    assert found.diagnostics.loc["predicts", "prognostic_p_value"] < 1e-6


def test_resampling_knows_no_predictors(table):
    found = quiet_fit(*table, **QUICK | {"statistic": "wcmmd", "n_resamples": 99}).result_
    assert "prognostic_p_value" not in found.diagnostics
    assert set(found.table["role"]) <= {"modifier", ""}
    assert found.table.loc["moves", "role"] == "modifier"


@pytest.mark.filterwarnings("ignore:constant columns")
def test_features_that_are_not_tested_have_no_role(table):
    X, y, treatment = table
    found = quiet_fit(X.assign(flat=1.0), y, treatment, **QUICK).result_
    assert found.table["role"].to_dict() == ROLES | {"flat": ""}


def test_a_group_has_one_role(table):
    X, y, treatment = table
    groups = {"pair": ["predicts", "noise"]}
    found = quiet_fit(X, y, treatment, **QUICK, feature_groups=groups).result_
    assert found.table["role"].to_dict() == {"moves": "modifier", "pair": "prognostic"}


@pytest.mark.filterwarnings("ignore:1 feature not tested")
def test_features_that_were_not_reached_have_no_role(table):
    X, y, treatment = table

    def stop(done, total):
        if done >= 2:
            raise KeyboardInterrupt

    selector = ModifierSelector(**QUICK, explain=False, progress=stop)
    with pytest.warns(UserWarning, match="interrupted: 2 of 3"), pytest.raises(KeyboardInterrupt):
        selector.fit(X[["noise", "predicts", "moves"]], y, treatment)
    assert selector.result_.table["role"].to_dict() == {"noise": "", "predicts": "prognostic", "moves": ""}


def test_roles_survive_a_file(result, tmp_path):
    result.to_json(tmp_path / "result.json")
    found = SelectionResult.from_json(tmp_path / "result.json")
    assert found == result
    assert found.table["role"].to_dict() == ROLES
    result.to_csv(tmp_path / "result.csv")
    assert pd.read_csv(tmp_path / "result.csv", index_col=0)["role"].fillna("").to_dict() == ROLES


def test_the_terminal_names_predictors_on_a_line(result, capsys):
    print_result(result)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith(LINE)] == [f"{LINE}predicts"]
    (row,) = (line for line in lines if line.startswith("predicts "))
    assert "★" not in row


@pytest.mark.parametrize("kept", [True, False])
def test_results_without_predictors_have_no_such_line(result, capsys, kept):
    plain = result.table.assign(role="") if kept else result.table.drop(columns="role")  # as earlier versions had it
    print_result(replace(result, table=plain))
    assert LINE.strip() not in capsys.readouterr().out


def test_reports_list_predictors_without_a_star(result, tmp_path):
    result.report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "predicts predicts the outcome in both arms; no change in the effect was found." in text
    starred = re.findall(r'★</span><span class="away">selected: </span></span>(?:<a [^>]*>)?(\w+)', text)
    assert starred == ["moves"]
    replace(result, table=result.table.drop(columns="role")).report(tmp_path / "old.html")
    assert "the outcome in both arms; no change" not in (tmp_path / "old.html").read_text(encoding="utf-8")
