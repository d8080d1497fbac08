"""What a first table of one's own meets on the command line."""

import importlib
import re
import sys

import numpy as np
import pandas as pd
import pytest

from conftest import ROOT
from modifind import EffectLikelihood, ModifierSelector
from modifind.cli.app import main
from modifind.data.levels import pool
from modifind.data.missing import complete_rows
from modifind.report import render_report

N = 200


def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(50, 9, N), "dose": rng.normal(size=N), "sex": rng.choice(["f", "m"], N)})
    return frame.assign(arm=rng.choice(["drug", "placebo"], N), change=rng.normal(size=N))


def said(monkeypatch, capsys, *arguments):
    fixed = ["--treatment", "arm", "--outcome", "change", "--learner", "linear", "--sampler", "gaussian"]
    monkeypatch.setattr(sys, "argv", ["modifind", "select", *map(str, arguments[:1]), *fixed, *arguments[1:]])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code, capsys.readouterr().err


@pytest.mark.parametrize("options", [(), ("--stream",)])
@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda t, p: t.to_csv(p, sep=";", decimal=",", index=False), "has one column, 'age;dose;sex;arm;change'"),
        (lambda t, p: t.rename(columns={"sex": "größe"}).to_csv(p, encoding="latin-1"), "it is not UTF-8 text"),
        (lambda t, p: t.replace("f", "ä").to_csv(p, encoding="latin-1", index=False), "it is not UTF-8 text"),
        (lambda t, p: t.to_csv(p, index=False, header=["age", "age", *t.columns[2:]]), "several columns called 'age'"),
        (lambda t, p: p.write_text("", encoding="utf-8"), "table.csv: it is empty"),
    ],
)
def test_csv_files_of_other_kinds_are_refused_with_a_remedy(monkeypatch, capsys, tmp_path, write, message, options):
    path = tmp_path / "table.csv"
    write(table(), path)
    code, errors = said(monkeypatch, capsys, path, *options)
    assert code == 2
    assert message in errors
    assert "table.csv" in errors
    assert errors.strip().count("\n") == 0


def test_an_outcome_of_text_is_called_by_its_name(monkeypatch, capsys, tmp_path):
    path = tmp_path / "table.csv"
    table().assign(change="better").to_csv(path, index=False)
    code, errors = said(monkeypatch, capsys, path)
    assert code == 2
    assert "the outcome 'change' must be numeric" in errors


def test_features_called_y_and_treatment_have_their_missing_values_dropped():
    X = pd.DataFrame({"y": [np.nan, 1.0, 2.0, 3.0], "treatment": [1.0, np.nan, 2.0, 3.0]})
    kept, dropped = complete_rows(X, pd.Series([1.0, 2.0, np.nan, 4.0]), pd.Series([0, 1, 0, 1]))
    assert kept.tolist() == [False, False, False, True]
    assert dropped.columns == {"y": 1, "treatment": 1, "the outcome": 1}


def test_a_table_of_which_nothing_is_left_names_the_empty_column():
    rows = table()
    X = rows[["age", "dose"]].assign(lab=np.nan)
    with pytest.raises(ValueError, match="'lab' has no value at all"):
        ModifierSelector(missing="drop").fit(X, rows["change"], treatment=rows["arm"])


def test_missing_values_join_a_small_pool_last_and_joining_is_said():
    counts = np.array([[40, 40], [30, 30], [1, 1], [20, 20]])
    found = pool(["a", "b", "rare", "missing"], counts)
    assert found.rare == ("rare", "b")
    assert found.labels == ("a", "missing", "other")
    assert found.n_joined == 1


def test_levels_that_are_not_rare_are_not_called_rare():
    rows = table()
    rows.loc[:1, "sex"] = "x"
    X = rows[["age", "dose"]].assign(sex=rows["sex"].where(np.arange(N) % 3 > 0, "u").where(rows["sex"] != "x", "x"))
    fast = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", random_state=0)
    with pytest.warns(UserWarning, match=r"sex: 'x', and '.' with it, as it has too few rows"):
        fast.fit(X, rows["change"], treatment=rows["arm"])


def test_an_identifier_is_not_called_constant():
    rows = table()
    X = rows[["age", "dose"]].assign(id=[f"P{i}" for i in range(N)])
    fast = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", random_state=0)
    with pytest.warns(UserWarning, match="looks like an identifier") as caught:
        result = fast.fit(X, rows["change"], treatment=rows["arm"]).result_
    assert len(caught) == 1
    assert result.table.loc["id", "caution"] == "its levels are too rare"


def test_the_methods_name_weights_clusters_and_columns_of_a_group():
    rows = table()
    fast = ModifierSelector(
        EffectLikelihood("linear"), sampler="gaussian", random_state=0, feature_groups={"both": ["age", "dose"]}
    )
    weight, clusters = np.linspace(1, 2, N), np.arange(N) // 5
    X, y = rows[["age", "dose", "sex"]], rows["change"]
    html = render_report(fast.fit(X, y, treatment=rows["arm"], sample_weight=weight, clusters=clusters).result_)
    assert "sample weights" in html
    assert "40 clusters" in html
    assert "both stands for age, dose" in html


def test_tables_that_the_documentation_names_exist(monkeypatch):
    root = ROOT
    monkeypatch.syspath_prepend(root / "benchmarks")
    validity = importlib.import_module("validity")
    text = (root / "docs" / "validity.md").read_text(encoding="utf-8")
    named = {table for tables in re.findall(r"--tables ((?:[a-z_]+ ?)+)", text) for table in tables.split()}
    assert "global" in named
    assert named <= set(validity.TABLES)
    assert all(hasattr(validity.Study, table) for table in validity.TABLES)
