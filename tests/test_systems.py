"""What Windows and macOS do in their own way, put on here: links, files that are open, signals, spawned processes,
letters and ends of lines.
"""

import ast
import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import ROOT
from modifind import EffectLikelihood, ModifierSelector, _system, _workers
from modifind._system import free_memory, locked_folder
from modifind.cli.app import main
from modifind.cli.output import check_outputs
from modifind.cli.table import write_file
from modifind.datasets import make_modifiers
from modifind.result.files import write_text
from modifind.result.presentation import safe_csv

SOURCES = sorted((ROOT / "src" / "modifind").rglob("*.py"))
TEXTS = [
    *SOURCES,
    *sorted(file for folder in ("tests", "benchmarks", "tools") for file in (ROOT / folder).rglob("*.py")),
]
OPENS_TEXT = {"open", "read_text", "write_text", "TextIOWrapper", "fdopen"}
OPENS_BYTES = {"TemporaryFile", "NamedTemporaryFile"}  # unless another mode is named
OURS = (".write_text", "modifind.result.files.write_text")
SCRIPT = """
import multiprocessing
import joblib
from modifind import ModifierSelector
from modifind.datasets import make_modifiers

def fit(n_jobs):
    data = make_modifiers("LinMean", n_samples=150, n_features=5, random_state=0)
    selector = ModifierSelector("wcmmd", "gaussian", 0.5, n_resamples=99, n_jobs=n_jobs, explain=False, random_state=0)
    return selector.fit(data.X, data.y, treatment=data.treatment).result_.table["p_value"].tolist()

if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    with joblib.parallel_config(backend="multiprocessing"):
        assert fit(2) == fit(1)
    print("alike")
"""
SELECT = ("--treatment", "arm", "--outcome", "y", "--learner", "linear", "--sampler", "gaussian", "--no-explain")


@pytest.fixture
def windows(monkeypatch):
    monkeypatch.setattr(_system, "WINDOWS", True)
    monkeypatch.setattr(time, "sleep", lambda _: None)


@pytest.fixture
def data():
    return make_modifiers("LinMean", n_samples=300, n_features=5, random_state=0)


def _place(file):
    return file.relative_to(ROOT).as_posix()


def refuse(*_, **__):
    raise OSError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("how", ["no function", "refused"])
def test_files_are_kept_where_there_are_no_links(how, tmp_path, monkeypatch):
    if how == "refused":
        monkeypatch.setattr(os, "link", refuse)
    else:
        monkeypatch.delattr(os, "link")
    for text in ("first", "second"):
        write_text(tmp_path / "run.json", text, keep=True)
    assert (tmp_path / "run.json").read_text(encoding="utf-8") == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_file_that_another_has_open_is_replaced_when_that_has_ended(tmp_path, monkeypatch, windows):
    replace, tries = os.replace, []

    def busy(source, target):
        tries.append(target)
        if len(tries) < 4:
            raise PermissionError(errno.EACCES, "The process cannot access the file")
        replace(source, target)

    monkeypatch.setattr(os, "replace", busy)
    write_text(tmp_path / "result.json", "new")
    assert (len(tries), (tmp_path / "result.json").read_text(encoding="utf-8")) == (4, "new")


def test_a_file_that_stays_open_is_told_and_nothing_is_left(tmp_path, monkeypatch, windows):
    (tmp_path / "result.json").write_text("old", encoding="utf-8")

    def busy(source, target):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", busy)
    with pytest.raises(OSError, match=r"cannot write .*result\.json: Permission denied"):
        write_text(tmp_path / "result.json", "new")
    assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == ["old"]


def test_a_folder_is_free_again_where_open_files_are_not_removed(tmp_path, monkeypatch, windows):
    unlink, close, closed = Path.unlink, os.close, []

    def only_closed(path, missing_ok=False):
        if path.name == ".lock" and not closed:
            raise PermissionError(errno.EACCES, "The process cannot access the file")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", only_closed)
    monkeypatch.setattr(os, "close", lambda handle: (closed.append(handle), close(handle)))
    monkeypatch.setattr(os.path, "samestat", lambda *_: False)  # else without an end
    with locked_folder(tmp_path / "saved"):
        assert (tmp_path / "saved" / ".lock").exists()
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize(("on_windows", "code"), [(True, 0), (False, 1)])
def test_a_reader_that_leaves_is_an_invalid_argument_on_windows(on_windows, code, monkeypatch, capsys):
    class Gone:
        encoding = "utf-8"

        def write(self, text):
            raise OSError(errno.EINVAL, "Invalid argument")

        def flush(self):
            pass

        def isatty(self):
            return False

        def fileno(self):
            raise OSError

    monkeypatch.setattr(_system, "WINDOWS", on_windows)
    monkeypatch.setattr(sys, "argv", ["modifind", "--version"])
    monkeypatch.setattr(sys, "stdout", Gone())
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == code


def test_workers_need_no_masks_of_signals(data, monkeypatch):
    monkeypatch.setattr(_workers, "signal", SimpleNamespace(SIGINT=signal.SIGINT))
    settings = {"propensity": 0.5, "n_resamples": 99, "explain": False, "random_state": 0}
    found = [
        ModifierSelector("wcmmd", "gaussian", n_jobs=jobs, **settings)
        .fit(data.X, data.y, treatment=data.treatment)
        .result_.table
        for jobs in (1, 2)
    ]
    assert found[0].equals(found[1])


def test_workers_do_not_hear_of_ctrl_c_where_there_are_no_masks(tmp_path):
    """Of a console of Windows, which interrupts the workers too; without masks in every process."""
    everywhere = "import signal\nvars(signal).pop('pthread_sigmask', None)\n"
    everywhere += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # which shells ignore in the background
    (tmp_path / "sitecustomize.py").write_text(everywhere, encoding="utf-8")
    code = """
import signal
from joblib import delayed
from modifind._workers import _single_worker, results_of
assert not hasattr(signal, "pthread_sigmask")
print(list(results_of([delayed(signal.raise_signal)(signal.SIGINT) for _ in range(2)], 2)))
with _single_worker() as submit:
    print(submit(signal.raise_signal, signal.SIGINT))
signal.raise_signal(signal.SIGINT)
"""
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    line, environment = [sys.executable, "-c", code], os.environ | {"PYTHONPATH": paths}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=600)
    assert done.stdout.splitlines() == ["[None, None]", "None"], done.stderr
    assert done.stderr.count("Traceback") == 1  # of the process that started them, which is interrupted
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")


def test_processes_may_be_spawned(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert (done.stdout, done.returncode) == ("alike\n", 0), done.stderr


def test_a_terminal_and_a_locale_of_few_letters_change_no_file(data, tmp_path):
    frame = data.X.rename(columns={"X1": "größe", "X2": "年齢"}).assign(arm=data.treatment, y=data.y)
    frame.to_csv(tmp_path / "data.csv", index=False, encoding="utf-8")
    few = {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    many = {"PYTHONIOENCODING": "utf-8"}
    files = []
    for number, letters in enumerate((few, many)):
        outputs = ("--out", f"{number}.json", "--report", f"{number}.html")
        line = [sys.executable, "-c", "from modifind.cli.app import main; main()", "select", "data.csv"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHONUTF8")} | letters
        done = subprocess.run([*line, *SELECT, *outputs], cwd=tmp_path, env=environment, capture_output=True)
        assert done.returncode == 0, done.stderr
        files.append([(tmp_path / f"{number}.{ending}").read_text(encoding="utf-8") for ending in ("json", "html")])
        shown = done.stdout.decode(letters["PYTHONIOENCODING"])
        assert ("年齢" if letters is many else "\\u5e74\\u9f62") in shown
    assert json.loads(files[0][0])["table"] == json.loads(files[1][0])["table"]
    assert "年齢" in files[0][1]


@pytest.mark.parametrize("more", [(), ("--stream", "--train-rows", "200")])
def test_ends_of_lines_change_nothing(more, data, tmp_path, monkeypatch, capsys):
    text = data.X.assign(arm=data.treatment, y=data.y).to_csv(index=False, lineterminator="\n")
    monkeypatch.chdir(tmp_path)
    tables = []
    for name, end in (("lf", "\n"), ("crlf", "\r\n")):
        Path(f"{name}.csv").write_bytes(text.replace("\n", end).encode())
        monkeypatch.setattr(sys, "argv", ["modifind", "select", f"{name}.csv", *SELECT, *more, "--out", f"{name}.json"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0, capsys.readouterr().err
        tables.append(json.loads(Path(f"{name}.json").read_text(encoding="utf-8"))["table"])
    assert tables[0] == tables[1]


def test_lines_of_written_files_end_alike_on_every_system(data, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "linesep", "\r\n")
    selector = ModifierSelector(EffectLikelihood("linear"), "gaussian", 0.5, explain=False, random_state=0)
    result = selector.fit(data.X, data.y, treatment=data.treatment).result_
    for name in ("csv", "json"):
        getattr(result, f"to_{name}")(tmp_path / f"result.{name}")
    result.report(tmp_path / "report.html")
    write_file(data.X, tmp_path / "data.csv")
    assert "\r" not in safe_csv(data.X)
    assert {path.name: path.read_bytes().count(b"\r") for path in tmp_path.iterdir()} == {
        name: 0 for name in ("result.csv", "result.json", "report.html", "data.csv")
    }


@pytest.fixture(params=[True, False], ids=["capitals ignored", "capitals told apart"])
def ignored(request, tmp_path, monkeypatch):
    """Whether the disk of `tmp_path` ignores capitals, as those of macOS and Windows mostly do, and Linux's do not."""
    if not request.param and _system.WINDOWS:
        pytest.skip("Windows gives paths the capitals that files have")
    stat, alike = os.stat, str.casefold if request.param else str

    def found(path, *arguments, **options):
        parts = Path(path).relative_to(tmp_path).parts if Path(path).is_relative_to(tmp_path) else ()
        real = tmp_path if parts else path
        for part in parts:
            names = [name for name in os.listdir(real) if alike(name) == alike(part)]
            if not names:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
            real = real / names[0]
        return stat(real, *arguments, **options)

    monkeypatch.setattr(os, "stat", found)
    return request.param


@pytest.mark.parametrize(
    ("first", "second"), [("R.json", "r.json"), ("New/r.json", "new/R.json"), ("größe.json", "GRÖßE.json")]
)
@pytest.mark.parametrize("there", [True, False])
def test_names_that_differ_in_capitals_are_one_file_where_the_disk_says_so(first, second, there, ignored, tmp_path):
    one, other = tmp_path / first, tmp_path / second
    if there:
        one.parent.mkdir(exist_ok=True)
        one.touch()
    before = sorted(tmp_path.rglob("*"))
    for wanted, inputs, owner in (
        ({"--out": (one, (".json",)), "--figures": (other, (".json",))}, (), "--out"),
        ({"--figures": (other, (".json",))}, (one,), "the input"),
    ):
        refused = pytest.raises(ValueError, match=rf"{re.escape(str(other))} would replace {owner}")
        with refused if ignored else nullcontext():
            check_outputs(wanted, inputs)
    assert sorted(tmp_path.rglob("*")) == before


def test_memory_is_not_asked_for_where_there_is_no_proc(tmp_path):
    assert free_memory(str(tmp_path / "meminfo")) is None


@pytest.mark.parametrize("file", TEXTS, ids=_place)
def test_text_is_opened_with_its_encoding_named(file):
    calls = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    assert [f"line {call.lineno}: {ast.unparse(call)}" for call in calls if _guesses_encoding(call)] == []


def _guesses_encoding(call):
    owner, _, name = ast.unparse(call.func).rpartition(".")
    if name not in OPENS_TEXT | OPENS_BYTES or any(keyword.arg == "encoding" for keyword in call.keywords):
        return False
    # Of an archive, a picture, a checkpoint, the system, a table in pieces, and of modifind, which always takes UTF-8.
    if owner in ("os", "archive", "tarfile", "Image", "self.checkpoint", "self") or f"{owner}.{name}" in OURS:
        return False
    strings = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    modes = [one for one in strings if set(one) <= set("rwxabt+")]
    return not any("b" in mode for mode in modes) and (name in OPENS_TEXT or bool(modes))


@pytest.mark.parametrize(
    ("code", "guesses"),
    [
        ("open(path)", True),
        ("path.open('w')", True),
        ("path.read_text('utf-8')", True),  # by its keyword, so that one look tells
        ("tempfile.TemporaryFile('w+')", True),
        ("open(path, 'a', encoding='utf-8')", False),
        ("path.open('rb')", False),
        ("tempfile.TemporaryFile(dir=folder)", False),
        ("write_text(path, text)", False),
    ],
)
def test_encodings_that_are_guessed_are_seen(code, guesses):
    assert _guesses_encoding(ast.parse(code, mode="eval").body) == guesses


@pytest.mark.parametrize("file", SOURCES, ids=_place)
def test_modules_of_one_system_are_imported_where_it_is_asked_for(file):
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", "")]
        assert not {"fcntl", "resource", "pwd", "msvcrt"}.intersection(names), f"line {node.lineno}"
