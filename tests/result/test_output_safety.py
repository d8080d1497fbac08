"""Files are whole, and text from the data acts nowhere: not in a spreadsheet, a browser, a plot or a terminal."""

import ast
import multiprocessing
import os
import re
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import modifind
from modifind.charts import CurveDisplay, ImportanceDisplay
from modifind.cli.output import print_checks, print_result
from modifind.data.words import printable
from modifind.result.checks import as_frame
from modifind.result.concerns import Check
from modifind.result.files import write_bytes, write_text
from modifind.result.presentation import safe_cell, safe_csv
from modifind.result.selection_result import SelectionResult

HOSTILE = (
    "<script>alert(1)</script>",
    '" onload="alert(1)',
    "{{7*7}}",
    "]]>",
    "$x_1$",
    "$unbalanced",
    r"\frac{$",
    "[red]age[/red]",
    ":smile:",
    "=HYPERLINK(1)",
    "-1+1",
    "@sum",
    "\tcell",
    "\x1b[31mred",
    "two\nlines",
)


def result_of(names):
    n = len(names)
    index = pd.Index(names, name="feature")
    table = pd.DataFrame(
        {
            "kind": ["discrete"] * n,
            "importance": np.linspace(1.0, 2.0, n),
            "statistic": 1.0,
            "p_value": 0.01,
            "p_adjusted": 0.02,
            "selected": True,
            "caution": [""] * n,
        },
        index=index,
    )
    effects = {f"q{q}_effect": [1.0, 2.0] for q in (10, 25, 50, 75, 90)}
    curve = pd.DataFrame({"value": ["a", "b"], "d2": 0.1, "mean_effect": 1.0, "sd_ratio": 1.0, **effects})
    curves = {name: curve.assign(value=[name, "other"]) for name in names}
    overlap = {f"effective_rows_{arm}": 50.0 for arm in ("treated", "control")} | {"extreme_share": 0.0, "auc": 0.5}
    settings = {
        "method": "si_em",
        "sided": "two",
        "penalty": 1.0,
        "penalty_factor": 1.1,
        "outcome_learner": "forest",
        "n_active": 1,
        "n_columns": 1,
        "alpha": 0.05,
        "adjust": "bh",
        "n_rows": 100,
        "n_treated": 50,
        "n_control": 50,
        "treated_label": names[0],
        "control_label": "control",
        "propensity_model": names[0],
        "null_hypothesis": names[0],
        "seed": 0,
    }
    checks = [
        Check("conditional_fit", name, 0.2, 0.05, False, f"The distribution of {name} fits badly.") for name in names
    ]
    diagnostics = pd.DataFrame({"bandwidth": 1.0}, index=index)
    warned = tuple(f"look at {name}" for name in names)
    return SelectionResult(table, diagnostics, curves, overlap, settings, {"modifind": "0"}, warned, as_frame(checks))


@pytest.fixture(scope="module")
def hostile():
    return result_of(list(HOSTILE))


def test_hostile_names_survive_the_round_trip(hostile, tmp_path):
    hostile.to_json(tmp_path / "r.json")
    assert SelectionResult.from_json(tmp_path / "r.json") == hostile


def test_csv_cells_are_shown_and_not_run(hostile, tmp_path):
    hostile.to_csv(tmp_path / "r.csv")
    back = pd.read_csv(tmp_path / "r.csv", index_col="feature")
    for name, shown in zip(HOSTILE, back.index, strict=True):
        assert shown == (f"'{name}" if name[0] in "=-@\t" else name)
    np.testing.assert_array_equal(back["p_value"], hostile.table["p_value"])


def test_headers_texts_and_labels_are_made_safe_and_numbers_are_not():
    frame = pd.DataFrame({"=a": [-1.5, 2.0], "b": ["+x", "fine"], "c": pd.Categorical(["@y", "z"])}, index=["\rp", "q"])
    lines = safe_csv(frame).split("\n")
    assert lines[0] == ",'=a,b,c"
    assert lines[1].endswith("-1.5,'+x,'@y")
    assert lines[2] == "q,2.0,fine,z"
    assert safe_cell(-3) == -3


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x;=cmd|' /C calc'!A0", "x;'=cmd|' /C calc'!A0"),
        ("\0=1+1", "'\0=1+1"),
        ("\ufeff=1+1", "'\ufeff=1+1"),
        ("\u200b\u202e -1", "'\u200b\u202e -1"),
        ('x;"=1+1"', 'x;\'"=1+1"'),
        ("x\t@y|+z\n-1", "x\t'@y|'+z\n'-1"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("a = b; c-d (e=f)", "a = b; c-d (e=f)"),
    ],
)
def test_formulas_are_found_behind_what_is_not_seen_and_behind_other_separators(text, shown):
    assert safe_cell(text) == shown


def test_report_shows_hostile_text_and_runs_none(tmp_path):
    few = result_of(list(HOSTILE[:4]))
    few.report(tmp_path / "r.html")
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert re.findall(r"<script[^>]*>", html) == ['<script type="application/json" id="data">', "<script>"]
    assert html.count("</script>") == 2
    assert "Content-Security-Policy" in html
    tags = re.findall(r"<[^>]*>", html)
    assert not [tag for tag in tags if re.search(r"\son\w+\s*=", re.sub(r'"[^"]*"', "", tag))]
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 6
    assert "{{7*7}}" in html
    assert ">49<" not in html


def test_plots_show_names_as_they_are(hostile, tmp_path):
    drawn = [name for name in HOSTILE if name.isprintable()]
    importance = ImportanceDisplay.from_result(result_of(drawn)).plot()
    assert [label.get_text() for label in importance.ax_.get_yticklabels()] == drawn[::-1]
    importance.figure_.savefig(tmp_path / "a.png")
    for name in ("$x_1$", "$unbalanced", r"\frac{$"):
        curve = CurveDisplay.from_result(hostile, name).plot()
        assert curve.axes_[0].get_xlabel() == name
        assert curve.axes_[0].get_xticklabels()[0].get_text() == name
        assert not curve.axes_[0].xaxis.label.get_parse_math()
        curve.figure_.savefig(tmp_path / "b.png")


def test_names_are_plain_text_where_the_user_has_tex_on(tmp_path):
    with plt.rc_context({"text.usetex": True}):
        display = ImportanceDisplay(["50%_of\\it"], np.array([1.0]), np.array([0.5]), np.array([False])).plot()
        assert not display.ax_.get_yticklabels()[0].get_usetex()


def test_terminal_shows_names_and_obeys_none(hostile, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    print_result(hostile)
    print_checks(hostile)
    shown = capsys.readouterr().out
    for name in HOSTILE:
        assert shown.count(printable(name)) >= 2, name
    assert "\x1b[31m" not in shown
    assert "checks: 1 of 1 check needs attention" in shown


# Files.


def _keep_writing(path, letter, ready):
    ready.wait()
    for _ in range(60):
        write_text(path, letter * 400_000)


@pytest.mark.skipif(os.name != "posix", reason="a file that is being read cannot be replaced")
def test_two_processes_that_write_the_same_file_leave_one_whole(tmp_path):
    path = tmp_path / "r.json"
    write_text(path, "a" * 400_000)
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(3)
    writers = [context.Process(target=_keep_writing, args=(path, letter, ready)) for letter in "ab"]
    for writer in writers:
        writer.start()
    ready.wait(120)
    seen = set()
    while any(writer.is_alive() for writer in writers):
        text = path.read_text(encoding="utf-8")
        assert len(text) == 400_000
        seen |= set(text)
        assert len(set(text)) == 1
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert seen <= {"a", "b"}
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old", encoding="utf-8")

    def fail(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_bytes(path, b"new")
    assert path.read_text(encoding="utf-8") == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield name, node


SOURCES = sorted(Path(modifind.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_file_is_unpickled_and_none_is_written_in_place(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {
        name.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    } | {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    assert not imported & {"pickle", "dill", "cloudpickle", "shelve", "marshal"}
    for name, node in calls(tree):
        options = {keyword.arg: getattr(keyword.value, "value", None) for keyword in node.keywords}
        if ast.unparse(node.func) in ("np.load", "numpy.load", "torch.load", "joblib.load", "load"):
            assert options.get("allow_pickle") is False or options.get("weights_only") is True, ast.unparse(node)
        assert name not in ("read_pickle", "to_pickle", "urlretrieve", "eval", "exec"), ast.unparse(node)
        if name in ("savefig", "to_csv", "to_parquet"):  # into memory; `write_bytes` makes the file
            target = ast.unparse(node.args[0]) if node.args else "text"
            # SelectionResult.to_csv and Display.savefig write a file as a whole.
            own = ast.unparse(node.func).startswith(("result.", "display."))
            assert own or target in ("buffer", "picture", "text"), ast.unparse(node)
        if name in ("write_text", "write_bytes"):
            assert isinstance(node.func, ast.Name), ast.unparse(node)


def test_ok_is_false_with_a_failed_check_that_bears_on_validity_alone(hostile):
    fine = replace(hostile, warnings=(), checks=as_frame([Check("arm_size", None, 99.0, 50.0, True, "fine")]))
    assert fine.ok
    noted = replace(fine, warnings=("look",), checks=as_frame([Check("arm_size", None, 9.0, 50.0, False, "small")]))
    assert noted.ok
    assert (noted.cautions, noted.notes) == ([], ["look", "small"])
    assert not replace(fine, checks=as_frame([Check("conditional_fit", "a", 0.2, 0.05, False, "off")])).ok
