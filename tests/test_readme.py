"""The README is short, and what it shows is what happens."""

import re
import shlex
import sys

import pytest

from conftest import ROOT
from modifind.cli.app import main
from modifind.cli.table import write_file
from modifind.datasets import load_trial

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")


def shown_after(language):
    """The block in a language that is followed by what it prints, and that."""
    return re.search(rf"```{language}\n([^`]*)```\s*```text\n([^`]*)```", TEXT).groups()


def test_python_example_runs_and_says_what_it_says(capsys, tmp_path, monkeypatch):
    code, shown = shown_after("python")
    assert len(code.split("\n\n")[-1].splitlines()) + 2 <= 6
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert capsys.readouterr().out.split() == shown.split()
    assert (tmp_path / "report.html").exists()


def test_command_prints_what_is_shown(capsys, tmp_path, monkeypatch):
    commands, shown = shown_after("sh")
    demo, select = (shlex.split(line) for line in commands.splitlines())
    assert demo == ["modifind", "demo"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "modifind-demo").mkdir()
    write_file(load_trial().frame, tmp_path / "modifind-demo" / "trial.csv")  # as the demo does
    monkeypatch.setattr(sys, "argv", select)
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert capsys.readouterr().out.split() == shown.split()
    assert (tmp_path / "report.html").exists()


def test_it_is_short():
    assert len(TEXT.split()) <= 900


def test_links_and_figures_lead_somewhere():
    for path in re.findall(r"]\(((?!https?:)[^)#]+)", TEXT):
        assert (ROOT / path).is_file(), path
