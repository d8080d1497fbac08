"""Runs that are stopped and continue."""

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.utils import Bunch

import modifind.engine.checkpoint
from conftest import NEEDS_SIGNALS, ROOT, runs
from modifind import EffectLikelihood, ModifierSelector
from modifind._system import locked_folder
from modifind.cli.app import main
from modifind.datasets import make_modifiers
from modifind.engine.checkpoint import SavedRun, differences
from modifind.nuisance.propensity.scores import PropensityModel
from streams import SMALL, cut, fit_source

sys.path.insert(0, str(ROOT / "benchmarks"))
from kills import SIGNALS, STATISTICS, command, kill_again_and_again, run

QUICK = {"sampler": "gaussian", "propensity": 0.5, "random_state": 3}
CRT = {**QUICK, "statistic": "wcmmd", "n_resamples": 199, "explain": False}
ANALYTIC = {**QUICK, "statistic": EffectLikelihood("linear")}


@pytest.fixture(scope="module")
def table():
    data = make_modifiers("LinMean", n_samples=150, n_features=6, random_state=0)
    data.X["site"] = np.where(data.X["X6"] > 0, "north", "south")
    data.X["flat"] = 1.0
    return data


@pytest.fixture(scope="module")
def alone(table):
    """A run of its own, without a checkpoint."""
    return fit(table, CRT)


@pytest.fixture
def quick_commands(monkeypatch):
    short = ["--statistic", "wcmmd", "--resamples", "300", "--propensity", "0.5", "--no-explain"]
    monkeypatch.setitem(STATISTICS, "wcmmd", short)


class Stop(Exception):
    """A crash at a moment of our choice."""


def stop_after(count):
    def progress(done, total):
        if done >= count:
            raise Stop

    return progress


def fit(table, settings, *, X=None, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        selector = ModifierSelector(**settings, **more)
        return selector.fit(table.X if X is None else X, table.y, treatment=table.treatment).result_


def stopped(table, folder, settings, count=3, **more):
    with pytest.raises(Stop):
        fit(table, settings, checkpoint=folder, progress=stop_after(count), **more)


def files(folder):
    return sorted(path for path in folder.iterdir() if path.name.startswith("feature-"))


@pytest.mark.parametrize(
    ("settings", "count"), [(CRT, 1), (CRT, 5), (CRT, 8), (ANALYTIC, 5)], ids=["crt-1", "crt-5", "crt-8", "analytic-5"]
)
def test_a_stopped_run_continues_to_the_same_result(table, alone, tmp_path, settings, count):
    folder = tmp_path / "a" / "b"
    stopped(table, folder, settings, count)
    assert len(files(folder)) == count
    calls = []
    result = fit(table, settings, checkpoint=folder, progress=lambda done, total: calls.append((done, total)))
    assert calls[0] == (count, 8)
    whole = alone if settings is CRT else fit(table, settings)
    assert result == whole
    assert result.warnings == whole.warnings
    assert any("flat" in message for message in result.warnings)
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_workers_save_each_feature(table, alone, tmp_path):
    stopped(table, tmp_path, CRT, 2)
    assert fit(table, CRT, checkpoint=tmp_path, n_jobs=2) == alone
    assert len(files(tmp_path)) == 8


def changed(frame, column):
    frame = frame.copy()
    frame.loc[7, column] = frame.loc[8, column] + 1 if column != "site" else "west"
    return frame


def test_other_data_are_refused_and_named(table, tmp_path):
    table = Bunch(**{**table, "y": table.y - table.y.min() + 1.0})  # so that its logarithm can be taken
    stopped(table, tmp_path, CRT)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    cases = {
        "column 'X2' differs": {"X": changed(table.X, "X2")},
        "column 'site' differs": {"X": changed(table.X, "site")},
        "column 'X4' is gone": {"X": table.X.drop(columns="X4")},
        "column 'age' is new": {"X": table.X.assign(age=table.X["X1"] ** 2)},
        "the columns come in another order": {"X": table.X[table.X.columns[::-1]]},
        "column 'X1' differs": {"discrete_features": ["X1"]},
        "seed was 3 and is now 4": {"random_state": 4},
        "cv was 5 and is now 4": {"cv": 4},
        "n_resamples_used was 199 and is now 200": {"n_resamples": 200},
        "sampler.class was 'GaussianSampler' and is now 'MarginalSampler'": {"sampler": "marginal"},
        "propensity was 0.5 and is now 0.6": {"propensity": 0.6},
        "propensity_clip was": {"propensity": PropensityModel(0.5, clip=(0.1, 0.9))},
        "outcome_transform was None and is now 'log'": {"outcome_transform": "log"},
    }
    for message, change in cases.items():
        own = dict(change)
        X = own.pop("X", None)
        with pytest.raises(ValueError, match="belongs to another run") as error:
            fit(table, {**CRT, **own}, X=X, checkpoint=tmp_path)
        assert message in str(error.value), message
    for name, word in (("y", "the outcome differs"), ("treatment", "the treatment differs")):
        other = Bunch(**{**table, name: np.roll(table[name], 1)})
        with pytest.raises(ValueError, match=word):
            fit(other, CRT, checkpoint=tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_known_scores_are_part_of_the_data(table, tmp_path):
    scores = np.full(150, 0.5)
    stopped(table, tmp_path, CRT | {"propensity": scores})
    with pytest.raises(ValueError, match="propensity differs"):
        fit(table, CRT | {"propensity": scores + 0.01}, checkpoint=tmp_path)
    fit(table, CRT | {"propensity": scores.copy()}, checkpoint=tmp_path)


def test_another_version_is_refused(table, tmp_path):
    stopped(table, tmp_path, CRT)
    path = tmp_path / "run.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"modifind": "', '"modifind": "9.'), encoding="utf-8")
    token = modifind.engine.checkpoint._read_run(tmp_path).token
    for file in files(tmp_path):
        file.rename(tmp_path / f"feature-{token}-{file.name.split('-')[2]}")
    with pytest.raises(ValueError, match=r"made by modifind 9\."):
        fit(table, CRT, checkpoint=tmp_path)


def test_what_only_changes_the_assembling_may_differ(table, alone, tmp_path):
    stopped(table, tmp_path, CRT)
    changes = {"alpha": 0.2, "adjust": "holm", "max_train_rows": 5000}
    assert fit(table, CRT, checkpoint=tmp_path, **changes) == fit(table, CRT, **changes)
    assert fit(table, CRT, checkpoint=tmp_path) == alone


def test_a_run_without_results_gives_way_to_another(table, tmp_path):
    stopped(table, tmp_path, CRT, 0)
    assert fit(table, CRT, checkpoint=tmp_path, cv=4) == fit(table, CRT, cv=4)


def test_a_drawn_seed_is_kept(table, tmp_path):
    stopped(table, tmp_path, CRT | {"random_state": None})
    seed = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["seed"]
    result = fit(table, CRT | {"random_state": None}, checkpoint=tmp_path)
    assert result.settings["seed"] == seed
    assert result == fit(table, CRT | {"random_state": seed})


def test_damaged_files_are_named_and_their_features_tested_again(table, alone, tmp_path):
    stopped(table, tmp_path, CRT, 5)
    half, noise, digit, empty, good = files(tmp_path)
    text = digit.read_text(encoding="utf-8")
    half.write_text(half.read_text(encoding="utf-8")[:300], encoding="utf-8")
    noise.write_bytes(b"\xff\xfe{]")
    place = text.index("0.", text.index('"statistic"')) + 4
    digit.write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :], encoding="utf-8")
    empty.write_text("", encoding="utf-8")
    os.utime(good, (1, 1))
    with pytest.warns(UserWarning, match="4 damaged files ignored") as caught:
        selector = ModifierSelector(**CRT, checkpoint=tmp_path).fit(table.X, table.y, treatment=table.treatment)
    (message,) = [str(w.message) for w in caught if "damaged" in str(w.message)]
    assert all(repr(name) in message for name in ("X1", "X2", "X3", "X4"))
    assert selector.result_ == alone
    assert good.stat().st_mtime == 1


def test_other_files_are_left_alone(table, alone, tmp_path):
    others = {"notes.txt": "mine", "feature-1.json": "{}", "feature-0123456789ab-00000.json": "{", ".hidden.json.x": ""}
    for name, text in others.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        os.utime(tmp_path / name, (1, 1))
    (tmp_path / ".feature-0123456789ab-00000.json.tmp").write_text("left by a kill", encoding="utf-8")
    os.utime(tmp_path / ".feature-0123456789ab-00000.json.tmp", (1, 1))
    assert fit(table, CRT, checkpoint=tmp_path) == alone
    assert {name: (tmp_path / name).read_text(encoding="utf-8") for name in others} == others
    assert not (tmp_path / ".feature-0123456789ab-00000.json.tmp").exists()


RUN = {"format": 2, "versions": {}, "table": "whole", "settings": {}, "seed": 1, "columns": [], "rows": {}}
DEEP = "[" * 100_000
NO_RUNS = {
    **{"nothing": b"", "an object": b"{}", "a list": b"[1]", "a text": b'{"seed": "1"}', "bytes": b"\xff\x00\x1f"},
    **{"half of it": json.dumps(RUN)[:60].encode(), "a deep list": DEEP.encode()},
    "a deep setting": json.dumps(RUN)
    .replace('"settings": {}', '"settings": {"a": %s}' % ("[" * 300 + "]" * 300))
    .encode(),
    **{f"without {name}": json.dumps({k: v for k, v in RUN.items() if k != name}).encode() for name in RUN},
    **{f"another {name}": json.dumps(RUN | {name: [[1]]}).encode() for name in RUN},
    "a negative seed": json.dumps(RUN | {"seed": -1}).encode(),
}


@pytest.mark.parametrize("case", [*NO_RUNS, "a folder"])
def test_a_run_that_cannot_be_read_is_refused(table, tmp_path, case):
    if case == "a folder":
        (tmp_path / "run.json").mkdir()
    else:
        (tmp_path / "run.json").write_bytes(NO_RUNS[case])
    for settings in (CRT, CRT | {"random_state": None}):
        with pytest.raises(ValueError, match=r"run\.json is not a readable run of modifind"):
            fit(table, settings, checkpoint=tmp_path)


def test_odd_feature_files_are_named_and_done_again(table, alone, tmp_path):
    stopped(table, tmp_path, CRT, 5)
    deep, other, number, keys, kept = files(tmp_path)
    deep.write_text(DEEP, encoding="utf-8")
    other.write_text('{"check": 1, "record": %s}' % ("[" * 900 + "]" * 900), encoding="utf-8")
    number.write_text(json.dumps({"check": modifind.engine.checkpoint._check(5), "record": 5}), encoding="utf-8")
    keys.write_text('{"check": "x"}', encoding="utf-8")
    with pytest.warns(UserWarning, match="4 damaged files ignored and recomputed: 'X1', 'X2', 'X3', 'X4'"):
        selector = ModifierSelector(**CRT, checkpoint=tmp_path).fit(table.X, table.y, treatment=table.treatment)
    assert selector.result_ == alone
    kept.unlink()
    kept.mkdir()
    with pytest.raises(OSError, match=r"cannot save to the checkpoint .* is a folder"):
        fit(table, CRT, checkpoint=tmp_path)


def full_disk(monkeypatch, after):
    """No file can be saved after so many."""
    real, count = os.fsync, iter(range(1000))

    def fsync(handle):
        if next(count) >= after:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_full_disk_stops_the_run_and_it_continues_later(table, alone, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        full_disk(patch, 4)
        with pytest.raises(OSError, match=r"cannot save to the checkpoint .*No space left on device"):
            fit(table, CRT, checkpoint=tmp_path)
    assert sorted(path.name[:8] for path in tmp_path.iterdir()) == ["feature-"] * 3 + ["run.json"]
    assert fit(table, CRT, checkpoint=tmp_path) == alone


def test_a_full_disk_is_one_line_on_the_command_line(table, tmp_path, monkeypatch, capsys):
    table.X.assign(arm=table.treatment, y=table.y).to_csv(tmp_path / "data.csv", index=False)
    line = ["modifind", "select", str(tmp_path / "data.csv"), "--treatment", "arm", "--outcome", "y"]
    line += [
        "--checkpoint",
        str(tmp_path / "saved"),
        "--statistic",
        "wcmmd",
        "--resamples",
        "20",
        "--propensity",
        "0.5",
    ]
    monkeypatch.setattr(sys, "argv", [*line, "--sampler", "gaussian", "--out", str(tmp_path / "result.json")])
    full_disk(monkeypatch, 3)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    complaint = capsys.readouterr().err
    assert complaint.count("modifind: error: cannot save to the checkpoint") == 1
    assert "modifind: warning:" not in complaint or complaint.index("warning:") < complaint.index("error:")
    assert not (tmp_path / "result.json").exists()


def test_a_pass_over_pieces_continues(few, tmp_path, monkeypatch):
    monkeypatch.setattr(modifind.engine.checkpoint, "SAVE_SECONDS", 0.0)
    source = cut(few.X, few.y, few.treatment, 100)
    small = SMALL | {"explain": False}
    alone = fit_source(source, **small)
    for count in (350, 700):
        with pytest.raises(Stop):
            fit_source(source, **small, checkpoint=tmp_path, progress=stop_after(count))
    calls = []
    result = fit_source(source, **small, checkpoint=tmp_path, progress=lambda *call: calls.append(call))
    assert next(call for call in calls if call[1] == 900) == (700, 900)
    assert result == alone
    with pytest.raises(ValueError, match="column 'age' differs"):
        fit_source(cut(few.X.assign(age=few.X["age"] + 1), few.y, few.treatment, 100), **small, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="treated was None and is now 0"):
        fit_source(source, treated=0, **small, checkpoint=tmp_path)
    (saved,) = tmp_path.glob("sums-*.json")
    saved.write_text(saved.read_text(encoding="utf-8")[:-100], encoding="utf-8")
    with pytest.warns(UserWarning, match="is damaged and not used"):
        assert fit_source(source, **small, checkpoint=tmp_path) == alone


def test_few_rows_of_a_source_are_saved_by_feature(few, tmp_path):
    source = cut(few.X, few.y, few.treatment, 300)
    result = fit_source(source, checkpoint=tmp_path, random_state=None)
    assert len(files(tmp_path)) == few.X.shape[1]
    assert fit_source(source, checkpoint=tmp_path, random_state=None) == result


@NEEDS_SIGNALS
def test_of_two_at_once_one_is_refused_and_the_other_is_right(table, tmp_path, quick_commands, monkeypatch):
    data, out = tmp_path / "data.csv", tmp_path / "result.json"
    table.X.assign(treatment=table.treatment, outcome=table.y).to_csv(data, index=False)
    line = command([str(data)], out, "wcmmd", 1, tmp_path / "saved")
    one = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "saved" / ".lock").exists() and one.poll() is None:
        time.sleep(0.01)
    os.kill(one.pid, signal.SIGSTOP)  # so that the other comes in the middle
    code, complaint, _ = run(line)
    os.kill(one.pid, signal.SIGCONT)
    assert code == 2
    assert "is in use by another run; wait until that has ended, or use another folder" in complaint
    assert one.wait(timeout=900) == 0, one.stderr.read()
    one.stderr.close()
    together = out.read_bytes()
    out.unlink()
    monkeypatch.setattr(sys, "argv", ["modifind", *command([str(data)], out, "wcmmd", 1)[3:]])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert out.read_bytes() == together
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "result.json", "saved"]
    assert not (tmp_path / "saved" / ".lock").exists()


def _hold(folder, ready):
    with locked_folder(folder):
        ready.set()
        time.sleep(60)


def test_the_lock_of_a_killed_process_is_nobodys(tmp_path):
    context = multiprocessing.get_context("spawn")  # the only way of Windows
    ready = context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, ready))
    holder.start()
    assert ready.wait(120)
    with pytest.raises(ValueError, match="is in use by another run"), locked_folder(tmp_path):
        pass
    holder.kill()
    holder.join()
    with locked_folder(tmp_path), locked_folder(tmp_path), ThreadPoolExecutor(1) as other:  # a fit within a fit
        refused = other.submit(locked_folder(tmp_path).__enter__).exception()
    assert "is in use by another run" in str(refused)
    assert not list(tmp_path.iterdir())


def test_a_refused_run_leaves_no_folder(table, tmp_path):
    with pytest.raises(ValueError, match="constant"):
        ModifierSelector(**CRT, checkpoint=tmp_path / "saved").fit(table.X, 0 * table.y, treatment=table.treatment)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="checkpoint must be a folder, not ''"):
        fit(table, CRT, checkpoint="")


@pytest.mark.study
def test_kills_at_random_moments_change_nothing(tmp_path, quick_commands):
    kills = runs(3, 2)
    size = {"rows": 80, "features": 5, "jobs": 1, "seed": 0, "pieces": ""}
    tally, _ = kill_again_and_again(tmp_path, kills, statistic="wcmmd", signals=list(SIGNALS), **size)
    assert tally.kills == kills
    assert tally.runs == tally.same > 0
    assert (tally.lost, tally.damaged, tally.left, tally.failed) == (0, 0, 0, [])


def test_the_difference_has_the_name_of_the_argument():
    one = SavedRun.from_settings("whole", {}, 1, {}, {"weights": "a", "kept": "b"})
    other = SavedRun.from_settings("whole", {}, 1, {}, {"weights": "c", "kept": "d"})
    assert differences(one, other) == ["sample_weight differs", "which rows are left out differs"]
