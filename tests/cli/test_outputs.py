"""Files that a command is asked for are on disk, whatever becomes of what it prints."""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

import modifind.result.selection_result
from explained import explained_result
from modifind import SelectionResult
from modifind.cli.app import main
from modifind.datasets import make_modifiers

COLUMNS = ("--treatment", "arm", "--outcome", "size_µ")
QUICK = ("--learner", "linear", "--sampler", "gaussian", "--propensity", "0.5", "--no-explain")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    data = make_modifiers("LinMean", n_samples=120, n_features=5, random_state=0)
    frame = data.X.rename(columns={"X1": "größe", "X2": "年齢"}).assign(arm=data.treatment, **{"size_µ": data.y})
    frame.to_csv(tmp_path / "data.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def here(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["modifind", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return end.value.code, said


STREAMS = {
    "ASCII, stderr full": ("PYTHONIOENCODING=ascii {} 2> /dev/full > shown", 0),
    "cp1252, stderr closed": ("PYTHONIOENCODING=cp1252 {} 2>&- > shown", 0),
    "everything closed, no home": ("env -u HOME {} 0<&- 1>&- 2>&-", 0),
    "a full disk behind stdout": ("{} > /dev/full 2> complaint", 1),
    "a reader that leaves": ("{} 2> complaint | head -c 1 > shown; exit ${{PIPESTATUS[0]}}", 0),
}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("case", STREAMS)
def test_no_stream_loses_a_run(case, folder):
    line, code = STREAMS[case]
    command = f'"{sys.executable}" -c "from modifind.cli.app import main; main()" select data.csv'
    command = " ".join((command, *COLUMNS, *QUICK, "--out r.json --report new/r.html"))
    done = subprocess.run(
        ["bash", "-c", line.format(command)],
        capture_output=True,
        text=True,
        timeout=900,
        env=os.environ | {"PYTHONPATH": str(Path(modifind.__file__).parents[1])},
    )
    assert done.returncode == code, done.stderr
    assert set(SelectionResult.from_json(folder / "r.json").table.index) == {"größe", "年齢", "X3", "X4", "X5"}
    assert (folder / "new" / "r.html").read_text(encoding="utf-8").endswith("</html>")
    if "ASCII" in case:
        shown = (folder / "shown").read_text(encoding="ascii")
        assert "\n* adjusted p at most 0.05" in shown
        assert r"gr\xf6\xdfe" in shown
    if (folder / "complaint").exists():
        lines = [line for line in (folder / "complaint").read_text(encoding="utf-8").splitlines() if line.strip()]
        full = "modifind: error: cannot print: No space left on device; files were written nevertheless"
        assert lines == ([full] if code else [])


def test_what_cannot_be_written_in_the_end_is_named_and_the_rest_is_kept(folder, monkeypatch, capsys):
    def fail(*_):
        raise OSError(28, "No space left on device", "/some/.r.json.temporary")

    monkeypatch.setattr(SelectionResult, "to_json", lambda self, path: modifind.result.files.write_text(path, "{"))
    monkeypatch.setattr("os.fsync", fail)
    line = ("select", "data.csv", *COLUMNS, *QUICK, "--out", "r.json", "--report", "r.html")
    code, said = here(monkeypatch, capsys, *line)
    assert code == 2
    assert "adjusted p at most" in said.out
    complaint = said.err.strip().splitlines()[-1]
    for option, name in (("--out", "r.json"), ("--report", "r.html")):
        assert f"{option}: cannot write {name}: No space left on device" in complaint
    assert "temporary" not in complaint
    assert sorted(path.name for path in folder.iterdir()) == ["data.csv"]


REFUSED = {
    "the input": (("--out", "data.csv"), "--out: data.csv would replace the input data.csv; choose another name"),
    "a link to it": (("--out", "link.csv"), "--out: link.csv would replace the input data.csv"),
    "the checkpoint": (
        ("--out", "a/run.json", "--checkpoint", "a"),
        f"would replace the input {Path('a', 'run.json')}",
    ),
    "a folder": (("--report", "in.html"), "--report: in.html is a folder; name a file"),
    "a folder that is not there": (
        ("--out", "new.json/"),
        "Invalid value for '--out': new.json/ is a folder; name a file",
    ),
    "a file as folder": (
        ("--out", "data.csv/new/r.json"),
        f"--out: cannot write {Path('data.csv', 'new', 'r.json')}: data.csv is a file",
    ),
    "a place for nobody": (("--out", "/proc/r.json"), "--out: cannot write /proc/r.json: No such file or directory"),
    "a file as folder of figures": (
        ("--figures", "data.csv/new"),
        f"--figures: cannot write {Path('data.csv', 'new')}: data.csv is a file",
    ),
    "a file in place of figures": (("--figures", "data.csv"), "--figures: data.csv is a file; name a folder"),
    "a file as folder of a checkpoint": (
        ("--checkpoint", "data.csv/new"),
        f"--checkpoint: cannot write {Path('data.csv', 'new')}: data.csv is a file",
    ),
    "figures for nobody": (("--figures", "/proc/f"), "--figures: cannot write /proc/f: No such file or directory"),
    "a checkpoint for nobody": (("--checkpoint", "/proc/f"), "--checkpoint: cannot write /proc/f: No such"),
    "nothing": (("--checkpoint", ""), "checkpoint must be a folder, not ''"),
}


def make_link(path, target):
    try:
        path.symlink_to(target)
    except OSError as error:
        pytest.skip(f"no links for this user: {error}")


@pytest.mark.parametrize("case", REFUSED)
def test_paths_are_checked_before_anything_is_read(case, folder, monkeypatch, capsys):
    arguments, expected = REFUSED[case]
    if "for nobody" in case and not Path("/proc/self").exists():
        pytest.skip("needs /proc")
    (folder / "in.html").mkdir()
    if case == "a link to it":
        make_link(folder / "link.csv", "data.csv")
    names = sorted(path.name for path in folder.iterdir())
    before = (folder / "data.csv").read_bytes()
    code, said = here(monkeypatch, capsys, "select", "data.csv", *COLUMNS, *arguments)
    assert code == 2
    assert said.err.count("\n") == 1
    assert expected in said.err
    assert (folder / "data.csv").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == names


@pytest.mark.parametrize(
    ("command", "made"),
    [
        (("simulate", "LinMean", "--n", "20", "--d", "5", "--out", "new/a/t.csv"), ["new/a/t.csv"]),
        (("report", "r.json", "--out", "new/a/r.html"), ["new/a/r.html"]),
        (
            (
                "select",
                "data.csv",
                *COLUMNS,
                *QUICK,
                "--out=new/r.csv",
                "--report=new/a/r.html",
                "--checkpoint=new/b/c",
            ),
            ["new/r.csv", "new/a/r.html", "new/b/c/run.json"],
        ),
    ],
    ids=lambda case: case[0],
)
def test_folders_that_are_not_there_are_made(command, made, folder, monkeypatch, capsys):
    explained_result(("age", "flat"), ()).to_json("r.json")
    code, said = here(monkeypatch, capsys, *command)
    assert code == 0, said.err
    assert all((folder / path).is_file() for path in made)


def test_no_folder_is_made_where_nothing_is_written(folder, monkeypatch, capsys):
    code, _ = here(monkeypatch, capsys, "select", "data.csv", *COLUMNS, "--dry-run", "--out", "new/r.json")
    assert (code, (folder / "new").exists()) == (0, False)
    code, _ = here(monkeypatch, capsys, "select", "data.csv", *COLUMNS, "--features", "odd", "--out", "new/r.json")
    assert (code, (folder / "new").exists()) == (2, False)


def test_outputs_of_other_commands_are_checked_too(folder, monkeypatch, capsys):
    code, said = here(monkeypatch, capsys, "placebo", "data.csv", *COLUMNS, "--out", "data.csv")
    assert (code, "would replace the input" in said.err) == (2, True)
    code, said = here(monkeypatch, capsys, "simulate", "LinMean", "--out", "data.csv/a.csv")
    assert (code, f"--out: cannot write {Path('data.csv', 'a.csv')}: data.csv is a file" in said.err) == (2, True)


@pytest.mark.parametrize(
    "command", [("demo",), ("reproduce", "table-counterexamples"), ("placebo", "data.csv", *COLUMNS)]
)
def test_folders_of_other_commands_are_checked_before_the_work(command, folder, monkeypatch, capsys):
    option = "--checkpoint" if command[0] == "placebo" else "--out"
    code, said = here(monkeypatch, capsys, *command, option, "data.csv/new")
    assert (code, said.out) == (2, "")
    assert f"{option}: cannot write {Path('data.csv', 'new')}: data.csv is a file" in said.err


def test_a_strict_run_fails_where_error_rates_are_not_controlled(folder, monkeypatch, capsys):
    line = ("select", "data.csv", *COLUMNS, "--learner=linear", "--sampler=marginal", "--propensity=0.5")
    code, said = here(monkeypatch, capsys, *line, "--no-explain", "--strict")
    assert code == 3
    shown = " ".join(said.out.split())
    assert "checks passed" not in shown
    assert "is controlled at" not in shown
    assert "error rates are not controlled" in shown
    assert "caution: Error rates are not controlled" in shown
    assert "--sampler marginal" in shown


def test_a_full_disk_is_told_before_the_fit(folder, monkeypatch, capsys):
    disk = folder / "disk"
    disk.mkdir()
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        (disk / "fill").write_bytes(b"0" * (2**20 - 8192))
        code, said = here(monkeypatch, capsys, "select", "data.csv", *COLUMNS, *QUICK, "--out", disk / "r.json")
        assert code == 2
        assert f"--out: cannot write {disk / 'r.json'}: 8 KB are free there, 512 KB are needed; make room" in said.err
        assert [path.name for path in disk.iterdir()] == ["fill"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@contextmanager
def nobody():
    """Without the rights of the superuser, who may write anywhere."""
    is_root = os.geteuid() == 0
    try:
        if is_root:
            os.seteuid(65534)
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_read_only_folder_is_told_before_the_fit(folder, monkeypatch, capsys):
    command = ("select", "data.csv", *COLUMNS, *QUICK, "--out", "fixed/r.json")
    assert here(monkeypatch, capsys, *command, "--dry-run")[0] == 0  # as root, whose modules nobody may not read
    with tempfile.TemporaryDirectory() as own:  # the folders of pytest are closed to others
        os.chmod(own, 0o755)
        shutil.copy("data.csv", own)
        os.mkdir(Path(own, "fixed"), 0o555)
        monkeypatch.chdir(own)
        with nobody():
            code, said = here(monkeypatch, capsys, *command)
        monkeypatch.chdir(folder)
    assert code == 2
    assert said.err == "modifind: error: --out: cannot write fixed/r.json: Permission denied\n"
