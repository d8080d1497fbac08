"""Ctrl-C, workers that die, and tests that fail."""

import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from joblib import delayed
from pandas.testing import assert_frame_equal

import modifind.nuisance.outcome.stacking
from conftest import NEEDS_SIGNALS
from modifind import EffectLikelihood, ModifierSelector, SelectionResult
from modifind._workers import WorkerError, results_of, survivors
from modifind.cli.app import main
from modifind.datasets import make_modifiers
from modifind.inference import adjust_p_values
from modifind.nuisance.conditional import GaussianSampler

QUICK = {
    "statistic": "wcmmd",
    "sampler": "gaussian",
    "propensity": 0.5,
    "n_resamples": 199,
    "random_state": 0,
    "explain": False,
}
EXPLAINED = {"statistic": EffectLikelihood("linear"), "n_resamples": "auto", "explain": True}


@pytest.fixture(scope="module")
def table():
    return make_modifiers("LinMean", n_samples=150, n_features=6, random_state=0)


@pytest.fixture(scope="module")
def whole(table):
    return fitted(table).result_


def fitted(table, **settings):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="n_resamples=")
        return ModifierSelector(**QUICK | settings).fit(table.X, table.y, treatment=table.treatment)


def interrupt_after(count):
    def progress(done, total):
        if done >= count:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("adjust", ["bh", "by", "holm", "bonferroni", "none"])
def test_an_interrupted_fit_leaves_what_it_found(table, whole, adjust, tmp_path):
    selector = ModifierSelector(**QUICK, progress=interrupt_after(2), adjust=adjust)
    with pytest.warns(UserWarning, match="interrupted: 2 of 6 features tested"), pytest.raises(KeyboardInterrupt):
        selector.fit(table.X, table.y, treatment=table.treatment)
    result = selector.result_
    known = whole.table["p_value"].to_numpy()[:2]
    assert result.table["p_value"].tolist()[:2] == known.tolist()
    assert (
        result.table["p_value"].isna().tolist()
        == result.table["p_adjusted"].isna().tolist()
        == [False] * 2 + [True] * 4
    )
    assert result.table["p_adjusted"].tolist()[:2] == adjust_p_values([*known, 1, 1, 1, 1], adjust)[:2].tolist()
    assert set(result.table["kind"]) == {"continuous"}
    assert set(result.selected) <= {"X1", "X2"}
    assert (result.settings["n_tested"], result.settings["interrupted"]) == (2, True)
    result.to_json(tmp_path / "result.json")
    assert SelectionResult.from_json(tmp_path / "result.json") == result
    result.report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Only 2 of 6 features tested." in text
    # Without an adjustment there is one column of p-values, and not two.
    assert text.count('data-sort="">not tested</td>') == (4 if adjust == "none" else 8)
    assert ">nan<" not in text
    assert "n_tested" not in whole.settings


def test_nothing_found_is_no_result(table):
    selector = ModifierSelector(**QUICK, progress=interrupt_after(0))
    with pytest.raises(KeyboardInterrupt):
        selector.fit(table.X, table.y, treatment=table.treatment)
    assert not hasattr(selector, "result_")


def interrupt_at(step, count):
    """Ctrl-C in one of the two rounds over all features: that of the tests, or that of the explanations."""
    rounds = []

    def progress(done, total):
        if done == 0:
            rounds.append(total)
        if len(rounds) == step and done >= count:
            raise KeyboardInterrupt

    return progress


@pytest.fixture(scope="module")
def explained(table):
    return fitted(table, **EXPLAINED).result_


@pytest.mark.parametrize("step", [1, 2])
def test_ctrl_c_before_all_is_explained_keeps_the_tests(table, explained, step, tmp_path):
    selector = ModifierSelector(**QUICK | EXPLAINED, progress=interrupt_at(step, 2))
    message = ["2 of 6 features tested", "all features are tested, but 4 of 6 not explained"][step - 1]
    with pytest.warns(UserWarning, match=f"interrupted: {message}"), pytest.raises(KeyboardInterrupt):
        selector.fit(table.X, table.y, treatment=table.treatment)
    result = selector.result_
    assert any(message in own for own in result.warnings)
    n_tested, n_explained = ((2, 0), (6, 2))[step - 1]
    assert result.table["p_value"].notna().tolist() == [k < n_tested for k in range(6)]
    if step == 2:  # before that a p-value near the cut is that of one draw of folds
        assert_frame_equal(result.table[["statistic", "p_value"]], explained.table[["statistic", "p_value"]])
        assert result.table["selected"].equals(explained.table["selected"])
    assert result.table["importance"].notna().tolist() == [k < n_explained for k in range(6)]
    for k, name in enumerate(table.X):
        assert len(result.curve(name)) == (len(explained.curve(name)) if k < n_explained else 0)
    result.to_json(tmp_path / "result.json")
    assert SelectionResult.from_json(tmp_path / "result.json") == result
    result.report(tmp_path / "report.html")
    assert ">nan<" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def living(group):
    """Processes of a group that have not ended; zombies have."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, own = path.read_text(encoding="utf-8").rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(own) == group and state not in "ZX":
            found.append(path.parent.name)
    return found


def wait_until_gone(group):
    """Helpers of joblib end a moment after the process that they belong to."""
    deadline = time.monotonic() + 60
    while living(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert living(group) == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_control_c_writes_what_was_found_and_the_same_command_continues(tmp_path, monkeypatch):
    data = make_modifiers("LinMean", n_samples=150, n_features=12, random_state=0)
    data.X.assign(arm=data.treatment, y=data.y).to_csv(tmp_path / "data.csv", index=False)
    line = ["select", "data.csv", "--treatment", "arm", "--outcome", "y", "--statistic", "wcmmd", "--resamples", "5000"]
    line += ["--sampler", "gaussian", "--propensity", "0.5", "--no-explain", "--out", "result.json"]
    line += ["--report", "report.html", "--checkpoint", "saved", "--jobs"]
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in the background
    program = [sys.executable, "-c", start + "from modifind.cli.app import main; main()"]
    process = subprocess.Popen(
        [*program, *line, "2"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not list((tmp_path / "saved").glob("feature-*.json")) and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    shown, complaint = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "Traceback" not in complaint
    assert "modifind: warning: interrupted:" in complaint
    assert "not tested" in shown
    partial = SelectionResult.from_json(tmp_path / "result.json")
    assert 1 <= partial.settings["n_tested"] < 12
    assert (tmp_path / "report.html").exists()
    wait_until_gone(process.pid)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["modifind", *line, "1"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    result = SelectionResult.from_json(tmp_path / "result.json")
    done = partial.table["p_value"].notna()
    assert "interrupted" not in result.settings
    assert result.table.loc[done, "p_value"].equals(partial.table.loc[done, "p_value"])


@pytest.mark.parametrize(("end", "code"), [(KeyboardInterrupt(), 130), (ValueError("no distribution"), 2)])
def test_ended_before_any_feature_writes_nothing_and_keeps_warnings(end, code, tmp_path, monkeypatch, capsys, table):
    table.X.assign(arm=table.treatment, y=table.y).to_csv(tmp_path / "data.csv", index=False)

    def ended(*_, **__):
        warnings.warn("something is odd", UserWarning, stacklevel=1)
        raise end

    monkeypatch.setattr(GaussianSampler, "fit", ended)
    line = ["modifind", "select", str(tmp_path / "data.csv"), "--treatment", "arm", "--outcome", "y"]
    monkeypatch.setattr(sys, "argv", [*line, "--sampler", "gaussian", "--out", str(tmp_path / "result.json")])
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as stop:
            main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert stop.value.code == code
    assert not (tmp_path / "result.json").exists()
    lines = capsys.readouterr().err.split("\n")
    assert "modifind: warning: something is odd" in lines
    assert not any("Traceback" in shown for shown in lines)


class FailingSampler(GaussianSampler):
    """Fails in its own way at the third feature."""

    def __init__(self, how="exit", *, features=(2,), condition_on_treatment=True):
        super().__init__(condition_on_treatment=condition_on_treatment)
        self.how = how
        self.features = features

    def rule(self, feature):
        if feature in self.features:
            if self.how == "exit":
                os._exit(1)
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise self.how("the matrix is no matrix")
        return super().rule(feature)


def others(result):
    return result.table.drop(index="X3")["p_value"].tolist()


@pytest.mark.study
@pytest.mark.parametrize("how", ["exit", pytest.param("kill", marks=NEEDS_SIGNALS)])
def test_a_feature_that_kills_its_worker_is_named_and_the_others_finish(table, whole, how, tmp_path):
    message = r"feature 'X3': its worker process died three times \(out of memory\?\); not tested, p = 1"
    with pytest.warns(UserWarning, match=message):
        result = fitted(table, sampler=FailingSampler(how), n_jobs=2, checkpoint=tmp_path).result_
    assert others(result) == others(whole)
    assert result.table.loc["X3", "p_value"] == 1
    assert not result.table.loc["X3", "selected"]
    assert not any("function of the other" in message for message in result.warnings)
    assert len(list(tmp_path.glob("feature-*.json"))) == 5  # the next run tries again
    result.report(tmp_path / "report.html")


@pytest.mark.parametrize("how", [MemoryError, np.linalg.LinAlgError, ZeroDivisionError])
def test_a_test_that_fails_is_named_and_the_others_finish(table, whole, how):
    message = rf"feature 'X3': its test failed \({how.__name__}: the matrix is no matrix\); not tested, p = 1"
    with pytest.warns(UserWarning, match=message):
        result = fitted(table, sampler=FailingSampler(how)).result_
    assert others(result) == others(whole)
    assert result.table.loc["X3", "p_value"] == 1


def test_features_that_fail_alike_are_one_warning(table):
    with pytest.warns(UserWarning, match="2 features 'X1', 'X3': its test failed"):
        fitted(table, sampler=FailingSampler(MemoryError, features=(0, 2)))


def test_a_value_error_stops_the_run_and_names_the_feature(table):
    with pytest.raises(ValueError, match="feature 'X3': the matrix is no matrix"):
        fitted(table, sampler=FailingSampler(ValueError))


def test_a_run_in_which_every_test_fails_is_an_error(table):
    with pytest.raises(WorkerError, match="no feature could be tested: its test failed"):
        fitted(table, sampler=FailingSampler(ZeroDivisionError, features=range(6)))


def test_learners_that_kill_their_workers_are_one_line(table, tmp_path, monkeypatch, capsys):
    table.X.assign(arm=table.treatment, y=table.y).to_csv(tmp_path / "data.csv", index=False)
    monkeypatch.setattr(modifind.nuisance.outcome.stacking, "_fit_fold", _die)
    line = ["modifind", "select", str(tmp_path / "data.csv"), "--treatment", "arm", "--outcome", "y", "--jobs", "2"]
    monkeypatch.setattr(sys, "argv", line)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("modifind: error: a worker process died while fitting models of the outcome")


def _die(*_):
    os._exit(1)


def test_every_item_that_kills_is_found_and_all_others_have_results():
    def squares(pairs):  # by value, so that workers need not import this module
        import os

        for _, number in pairs:
            if number < 0:
                os._exit(1)
        return [(k, number**2) for k, number in pairs]

    items = dict(enumerate([1, 2, -1, 4, 5, 6, -1, 8]))
    found = dict(survivors(squares, (), items, 2, most_tasks=4))
    assert found == {k: None if number < 0 else number**2 for k, number in items.items()}


def test_a_result_that_is_not_awaited_ends_quietly():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with closing(results_of((delayed(abs)(k) for k in range(50)), 2, ordered=False)) as results:
            assert next(results) in range(50)
