"""Studies of the paper: their runs, what is made of them, and that nothing is lost when they are killed."""

import json
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config

from conftest import NEEDS_SIGNALS
from modifind.paper import NAMES, Order, catalogue, reproduce, runs
from modifind.paper import runs as methods
from modifind.paper.catalogue import STUDIES
from modifind.paper.runs import METHODS, Archive, Record, StudyRun, make_method
from modifind.paper.studies import RatesStudy
from modifind.presets import uai2022

SMALL = RatesStudy(
    "small", "A small study", ("wcmmd", "naive"), quick={"": 1}, kinds=("LinMean", "LinVar"), sizes=(70,)
)
# The same in a process that is killed as soon as its second run is on file.
KILLED = """
import os, signal, sys
from modifind.paper import Order, catalogue, reproduce, runs
from modifind.paper.studies import RatesStudy

def killed(self, record, keep=runs.Archive.keep):
    keep(self, record)
    if len(list(self.folder.glob("[!.]*.json"))) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

runs.N_FEATURES, runs.Archive.keep = 6, killed
catalogue.STUDIES["small"] = RatesStudy(
    "small", "A small study", ("wcmmd", "naive"), quick={"": 1}, kinds=("LinMean", "LinVar"), sizes=(70,)
)
catalogue.NAMES = (*catalogue.NAMES, "small")
reproduce("small", sys.argv[1], Order(2, methods=["wcmmd"], seed=0))
"""


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(runs, "N_FEATURES", 6)
    monkeypatch.setattr(catalogue, "STUDIES", {"small": SMALL})
    monkeypatch.setattr(catalogue, "NAMES", ("small", "all"))


def record_of(run, selected=(), p_value=0.5, seconds=1.0, features=None):
    names = features or [f"X{j}" for j in range(1, 31)]
    chosen = [name in selected for name in names]
    p_values = [0.001 if picked else p_value for picked in chosen]
    truth = [name in ("X1", "X2", "X3", "X4", "X5") for name in names]
    return Record(run, names, p_values, p_values, chosen, truth, seconds, "cpu")


def test_studies_are_those_of_the_paper():
    assert NAMES == (
        "fig-synthetic",
        "fig-runtime",
        "table-nhanes",
        "table-counterexamples",
        "table-propensity-neurons",
        "table-cvae-neurons",
        "all",
    )
    full = STUDIES["fig-synthetic"].runs(Order())
    assert len(full) == 50 * 5 * 4 * 7
    assert {run.method for run in full} == {"default", "wcmmd", "preset", "si-em", "naive"}
    assert sorted({run.n for run in full}) == [500, 750, 1000, 1250, 1500, 1750, 2000]
    assert {run.seed for run in full} == set(range(1000, 1050))


def test_no_two_runs_share_a_file():
    everything = {run for study in STUDIES.values() for run in study.runs(Order())}
    assert len({run.file_name for run in everything}) == len(everything)


def test_the_usual_number_of_neurons_is_the_plain_preset():
    plain = set(STUDIES["fig-synthetic"].runs(Order(methods=["preset"])))
    for name in ("table-propensity-neurons", "table-cvae-neurons"):
        own = STUDIES[name].runs(Order(methods=["preset"]))
        assert len(own) == 50 * 4 * 4
        assert len(plain.intersection(own)) == 50 * 4


def test_runs_come_seed_by_seed_with_their_own_numbers():
    order = Order({"": 3, "preset": 1}, methods=["preset", "naive"], seed=7)
    found = STUDIES["fig-synthetic"].runs(order)
    assert len(found) == (3 + 1) * 28
    assert [run.seed for run in found] == sorted(run.seed for run in found)
    assert {run.seed for run in found if run.method == "preset"} == {7}


def test_every_method_can_be_made():
    for name in METHODS:
        estimator = make_method(name, 3)
        assert (estimator.n_jobs, estimator.random_state) == (1, 3)
        assert hasattr(estimator, "fit")


def test_rates_are_those_of_the_selection():
    record = record_of(StudyRun("LinMean", 1000, "default", 0), ("X1", "X2", "X3", "X4", "X9"), p_value=0.04)
    assert record.rates == {"tpr": 0.8, "fpr": 1 / 25, "fdp": 0.2, "null_share": 1.0}
    assert record_of(StudyRun("LinMean", 1000, "default", 0)).rates["fdp"] == 0.0


def test_table_of_rates_has_means_and_deviations_beside_the_paper():
    study = STUDIES["fig-synthetic"]
    chosen = (("X1", "X2", "X3", "X4", "X5"), ("X1", "X2", "X3", "X30"))
    records = [record_of(StudyRun("LinMean", 1000, "default", k), names) for k, names in enumerate(chosen)]
    records.append(record_of(StudyRun("LinVar", 500, "naive", 0)))
    table = study.table(records)
    row = table.iloc[0]
    assert (row["data"], row["n"], row["method"], row["runs"]) == ("LinMean", 1000, "default", 2)
    assert row["tpr_mean"] == pytest.approx(0.8)
    assert row["tpr_sd"] == pytest.approx(np.std([1.0, 0.6], ddof=1), abs=1e-6)
    assert row["fpr_mean"] == pytest.approx(0.02)
    assert (row["paper_tpr"], row["paper_fpr"]) == (0.79, 0.06)
    assert np.isnan(table.iloc[1]["paper_tpr"])
    text = study.text(table)
    assert "0.80 (0.28) / 0.02 (0.03)" in text
    assert "0.79 (0.22) / 0.06 (0.07)" in text


def test_table_of_neurons_compares_equal_numbers_of_neurons():
    study = STUDIES["table-cvae-neurons"]
    records = [
        record_of(StudyRun("LinVar", 1000, "preset", 0, (("sampler_units", 16),)), ("X1",)),
        record_of(StudyRun("LinVar", 1000, "preset", 0)),
    ]
    table = study.table(records).set_index("sampler_units")
    assert table.loc[16, "paper_tpr"] == 0.68
    assert table.loc[128, "paper_tpr"] == 0.73
    assert table.loc[16, "tpr_mean"] == 0.2
    assert "n = 1000" in study.text(table.reset_index())


def test_quick_version_of_another_size_has_no_figures_of_the_paper():
    for study in STUDIES.values():
        if isinstance(study, RatesStudy) and study.option:
            table = study.table([record_of(run) for run in study.runs(Order(quick=True))])
            assert set(table["n"]) == {500}
            assert table["paper_tpr"].isna().all()
            assert "n = 500" in study.text(table)
            assert "n = 500" in study.figure(table).get_suptitle()


def test_table_of_times_says_what_was_multiplied_out():
    study = STUDIES["fig-runtime"]
    records = [
        record_of(run, seconds=10.0 * (1 + k))
        for k, run in enumerate(study.cells("exact", 0, True) + study.cells("si-em", 0, True))
    ]
    table = study.table(records)
    assert set(table[table["method"] == "exact"]["measured"]) == {"multiplied out"}
    assert set(table[table["method"] == "si-em"]["measured"]) == {"whole run"}
    assert "Exact *" in study.text(table)


def test_table_of_nhanes_selects_by_the_mean_p_value():
    study = STUDIES["table-nhanes"]
    features = ["age", "female", "cigarettes_month", "gout"]
    records = [
        record_of(StudyRun("CRP", 0, "preset", k), chosen, features=features)
        for k, chosen in enumerate((("age", "female"), ("age",)))
    ]
    records.append(record_of(StudyRun("log CRP", 0, "default", 0), ("female",), features=features))
    table = study.table(records)
    preset = table[table["method"] == "preset"].set_index("feature")
    assert preset["selected_by_mean"].to_dict() == {
        "age": True,
        "female": False,
        "cigarettes_month": False,
        "gout": False,
    }
    assert preset.loc["female", "p_mean"] == pytest.approx(0.2505)
    assert preset.loc["female", "share_selected"] == 0.5
    assert preset.loc["age", "paper_p_mean"] == 0.0075
    text = study.text(table)
    assert "age 0.001 (0)" in text
    assert "Mean adjusted p-value, log CRP" in text
    figure = study.figure(table)
    assert [axes.get_title() for axes in figure.axes] == ["CRP", "log CRP"]
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {"paper's preset", "modifind, default"}


def test_figures_show_every_method_and_panel():
    synthetic = STUDIES["fig-synthetic"]
    records = [record_of(run, ("X1", "X2")) for run in synthetic.runs(Order(2))]
    figure = synthetic.figure(synthetic.table(records))
    assert len(figure.axes) == 8
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    assert labels == {METHODS[m].label for m in synthetic.methods} | {"paper"}
    time_study = STUDIES["fig-runtime"]
    figure = time_study.figure(time_study.table([record_of(run) for run in time_study.runs(Order(1))]))
    assert figure.axes[0].get_yscale() == "log"


def test_small_study_leaves_all_files_and_repeats_nothing(small, tmp_path, monkeypatch):
    order = Order({"": 1}, seed=0)
    paths = reproduce("small", tmp_path, order)
    assert [path.name for path in paths] == ["small.csv", "small.png", "small.md"]
    assert paths[1].read_bytes().startswith(b"\x89PNG")
    first = [path.read_bytes() for path in paths]
    table = pd.read_csv(paths[0])
    assert len(table) == 2 * 2
    assert (table["runs"] == 1).all()
    monkeypatch.setattr(runs, "_carry_out", None)  # would fail if a run were done again
    assert [path.read_bytes() for path in reproduce("small", tmp_path, order)] == first


def test_number_of_jobs_changes_nothing(small, tmp_path):
    order = Order(1, methods=["wcmmd"], seed=3)
    with parallel_config(backend="threading"):  # which have the study, unlike other processes
        one, two = (reproduce("small", tmp_path / str(jobs), order, jobs=jobs) for jobs in (1, 2))
    assert one[0].read_bytes() == two[0].read_bytes()
    assert one[2].read_bytes() == two[2].read_bytes()


@NEEDS_SIGNALS
def test_killed_study_continues_and_ends_with_the_same_bytes(small, tmp_path):
    order = Order(2, methods=["wcmmd"], seed=0)
    whole = reproduce("small", tmp_path / "whole", order)
    line = [sys.executable, "-c", KILLED, str(tmp_path / "killed")]
    assert subprocess.run(line, timeout=900).returncode == -signal.SIGKILL
    folder = tmp_path / "killed" / "runs"
    kept = {path.name: path.stat().st_mtime_ns for path in folder.glob("[!.]*.json")}
    assert len(kept) == 2
    assert not (tmp_path / "killed" / "small.csv").exists()
    continued = reproduce("small", tmp_path / "killed", order)
    assert len(list(folder.glob("[!.]*.json"))) == 4
    assert {name: (folder / name).stat().st_mtime_ns for name in kept} == kept
    for mine, theirs in zip(continued, whole, strict=True):
        assert mine.suffix == ".png" or mine.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda text: text[:50], "cannot be read"),
        (lambda text: text.replace('"modifind-run-2"', '"modifind-run-1"'), "another version of the method"),
        (lambda text: json.dumps({**json.loads(text), "key": "0123456789"}), "another version of the method"),
        (lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "p_value"}), "cannot be read"),
    ],
)
def test_run_on_file_that_is_no_good_is_repeated_with_a_warning(tmp_path, spoil, reason, monkeypatch):
    run = StudyRun("LinMean", 70, "naive", 0)
    monkeypatch.setattr(runs, "_carry_out", lambda *_: record_of(run, ("X1",)))
    archive = Archive(tmp_path)
    archive.carry_out(run)
    assert archive.find(run) == record_of(run, ("X1",))
    path = tmp_path / run.file_name
    path.write_text(spoil(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.warns(UserWarning, match=reason):
        assert archive.find(run) is None
    with pytest.warns(UserWarning, match=reason):
        assert archive.complete([run], jobs=1, title="", progress=False) == [record_of(run, ("X1",))]


def test_run_of_other_options_is_not_mistaken(tmp_path, monkeypatch):
    run = StudyRun("LinMean", 70, "preset", 0, (("propensity_units", 25),))
    monkeypatch.setattr(runs, "_carry_out", lambda run, *_: record_of(run))
    archive = Archive(tmp_path)
    archive.carry_out(run)
    assert archive.find(run) is not None
    assert archive.find(replace(run, options=())) is None
    assert asdict(archive.find(run))["run"]["options"] == (("propensity_units", 25),)


def test_changed_method_finds_none_of_its_old_runs(tmp_path, monkeypatch):
    run = StudyRun("LinMean", 70, "preset", 0)
    archive, before = Archive(tmp_path), run.file_name
    archive.keep(record_of(run))
    assert archive.find(run) is not None
    other = replace(METHODS["preset"], make=partial(uai2022, weight_cap=9.0))
    for change in (
        lambda patch: patch.setitem(METHODS, "preset", other),
        lambda patch: patch.setattr(methods, "_code", lambda: "other code"),
    ):
        with monkeypatch.context() as patch:
            change(patch)
            methods.method_key.cache_clear()
            assert run.file_name != before
            assert archive.find(run) is None
        methods.method_key.cache_clear()
    assert archive.find(run) is not None


def test_keys_tell_methods_and_options_apart():
    keys = [methods.method_key(name) for name in METHODS]
    keys += [methods.method_key("preset", (("sampler_units", units),)) for units in (16, 64)]
    assert len(set(keys)) == len(keys)


def test_quick_and_full_studies_share_no_file(small, tmp_path):
    quick, full = (
        reproduce("small", tmp_path, Order(1, quick=quick, methods=["wcmmd"], seed=0)) for quick in (True, False)
    )
    assert {path.parent for path in quick} == {tmp_path / "quick"}
    assert {path.parent for path in full} == {tmp_path}
    assert len(list((tmp_path / "quick" / "runs").iterdir())) == len(list((tmp_path / "runs").iterdir())) == 2


def test_verdict_compares_the_preset_with_the_paper():
    study = STUDIES["table-counterexamples"]
    found = [
        record_of(StudyRun(kind, 2000, method, seed), ("X1", "X2", "X3") if kind == "LinCovar" and seed else ())
        for kind in ("LinCovar", "NonlinCovar")
        for method in ("preset", "si-em")
        for seed in range(20)
    ]
    table = study.table(found).set_index(["data", "method"])
    assert table.loc[("LinCovar", "preset"), "verdict"] == "TPR higher, FPR lower"
    assert table.loc[("NonlinCovar", "preset"), "verdict"] == "TPR lower, FPR lower"
    assert table.loc[("LinCovar", "si-em"), "verdict"] == ""


def test_clocked_runs_are_few_however_many_are_asked_for():
    assert len(STUDIES["fig-runtime"].runs(Order(10))) == 3 * 5 * 7


def test_clocked_runs_stay_on_the_cpu(tmp_path, monkeypatch):
    devices = []
    monkeypatch.setattr(runs, "_carry_out", lambda run, device, _: devices.append(device) or record_of(run))
    selection = StudyRun("LinMean", 70, "preset", 0)
    for run in (selection, replace(selection, measure="time"), replace(selection, measure="multiplied")):
        Archive(tmp_path, "cuda").carry_out(run)
    assert devices == ["cuda", "cpu", "cpu"]


def test_run_that_fails_says_which_it_was(tmp_path, monkeypatch):
    def fail(*_):
        raise ValueError("columns are collinear")

    monkeypatch.setattr(runs, "_carry_out", fail)
    with pytest.raises(ValueError, match=r"LinMean_n70_si-em_seed3_\w{10}\.json: columns are collinear"):
        Archive(tmp_path).carry_out(StudyRun("LinMean", 70, "si-em", 3))


def test_runs_that_vanish_are_not_left_out_in_silence(tmp_path, monkeypatch):
    monkeypatch.setattr(Archive, "carry_out", lambda *_: None)
    with pytest.raises(OSError, match="1 runs are gone"):
        Archive(tmp_path).complete([StudyRun("LinMean", 70, "naive", 0)], jobs=1, title="", progress=False)


@pytest.mark.filterwarnings("ignore:.*propensity scores were outside")
def test_multiplied_time_counts_the_resamples_that_were_not_made(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(runs, "N_FEATURES", 6)
    monkeypatch.setattr(runs, "_statistic_seconds", lambda *_: 10.0)
    record = runs._carry_out(StudyRun("LinMean", 60, "exact", 0, measure="multiplied"), "cpu", None)
    assert 98 * 6 * 10.0 < record.seconds < 98 * 6 * 10.0 + 120


def test_one_statistic_is_timed():
    table = runs.make_modifiers("LinMean", n_samples=60, n_features=5, random_state=0)
    assert 0 < runs._statistic_seconds(make_method("exact", 0).statistic, table) < 5


@pytest.mark.parametrize("error", [OSError, ValueError])  # offline, or a file that is not the table
def test_all_goes_on_without_nhanes(small, tmp_path, monkeypatch, error):
    def offline(*_):
        raise error("put these files into the folder")

    nhanes = STUDIES["table-nhanes"]
    monkeypatch.setattr(catalogue, "STUDIES", {"table-nhanes": nhanes, "small": SMALL})
    monkeypatch.setattr(runs, "_nhanes", offline)
    order = Order(1, methods=["wcmmd", "preset"], seed=0)
    with pytest.warns(UserWarning, match="table-nhanes was not run: put these files"):
        paths = reproduce("all", tmp_path, order)
    assert [path.name for path in paths] == ["table-nhanes.md", "small.csv", "small.png", "small.md"]
    assert "Not run: put these files" in paths[0].read_text(encoding="utf-8")
    monkeypatch.setattr(catalogue, "NAMES", ("table-nhanes",))
    with pytest.raises(error, match="put these files"):
        reproduce("table-nhanes", tmp_path, Order(1, methods=["preset"]))


def test_nhanes_outcomes(monkeypatch):
    bunch = runs.Bunch(X=pd.DataFrame({"age": [1.0, 2.0]}), y=pd.Series([1.0, np.e]), treatment=pd.Series([0, 1]))
    monkeypatch.setattr(runs, "_nhanes", lambda _: bunch)
    np.testing.assert_allclose(runs._table(StudyRun("log CRP", 0, "default", 0), None).y, [0.0, 1.0])
    assert sorted(runs._table(StudyRun("permuted CRP", 0, "default", 0), None).y) == [1.0, np.e]
    assert list(runs._table(StudyRun("CRP", 0, "default", 0), None).y) == [1.0, np.e]  # the table itself is not changed


def test_discrete_features_of_nhanes_reach_the_method(monkeypatch):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.normal(size=200), "race": rng.integers(1, 4, 200)})
    table = runs.Bunch(X=X, y=rng.normal(size=200), treatment=np.arange(200) % 2, discrete_features=["race"])
    monkeypatch.setattr(runs, "_nhanes", lambda _: table)
    made = []
    monkeypatch.setattr(runs, "make_method", lambda *a, **o: made.append(o) or make_method(*a, **o))
    record = runs._carry_out(StudyRun("CRP", 0, "si-em", 0), "cpu", None)
    assert made == [{"discrete_features": ["race"]}]
    assert record.features == ["age", "race"]
    assert not any(record.truth)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"runs": 0}, "at least 1"),
        ({"runs": {"preset": 0}}, "at least 1"),
        ({"runs": {"nobody": 3}}, "no method nobody"),
        ({"methods": ["nobody"]}, "no method nobody"),
        ({"methods": [""]}, "no method"),
    ],
)
def test_impossible_orders_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Order(**arguments)


def test_study_without_the_method_is_refused(tmp_path):
    with pytest.raises(ValueError, match="table-cvae-neurons has no method naive; it has preset"):
        reproduce("table-cvae-neurons", tmp_path, Order(methods=["naive"]))
    with pytest.raises(ValueError, match="no study 'fig-9'"):
        reproduce("fig-9", tmp_path)
    with pytest.raises(ValueError, match="table-nhanes has no runs of wcmmd with quick"):
        reproduce("table-nhanes", tmp_path, Order(quick=True, methods=["wcmmd"]))
    assert not list(tmp_path.iterdir())


def test_text_tells_the_command_that_made_it():
    study = STUDIES["fig-synthetic"]
    assert catalogue._command(study, Order()) == "modifind reproduce fig-synthetic"
    order = Order({"": 50, "preset": 8}, True, ["preset", "exact"], 3)
    told = "modifind reproduce fig-synthetic --quick --runs 50,preset=8 --methods preset --seed 3"
    assert catalogue._command(study, order) == told
