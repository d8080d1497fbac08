"""The progress bar."""

import sys
import warnings
from types import SimpleNamespace

import pytest
import rich.console

from modifind import _workers as progress
from modifind._workers import NotebookLine, ProgressBar


def test_time_left_is_known_when_a_step_takes_minutes():
    bar = ProgressBar(True)
    with bar as advance:
        for done in range(4):
            bar._bar.get_time = lambda now=400.0 * done: now
            advance(done, 10)
        assert bar._bar.tasks[0].time_remaining == 7 * 400


@pytest.fixture
def notebook(monkeypatch):
    """A notebook without ipywidgets; the texts of its line."""
    shown = []
    handle = SimpleNamespace(update=lambda data, raw: shown.append(data["text/plain"]))
    module = SimpleNamespace(display=lambda data, raw, display_id: shown.append(data["text/plain"]) or handle)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=module))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)  # not installed
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    return shown


def test_a_notebook_needs_no_other_package(notebook, monkeypatch):
    monkeypatch.setattr(progress, "MIN_WAIT", 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ProgressBar(True, "Scoring rows") as advance:
            advance(1, 3)
            advance(3, 3)
    assert notebook == ["", "Scoring rows: 1 of 3", "Scoring rows: 3 of 3", ""]


def test_a_notebook_is_not_flooded(notebook):
    with ProgressBar(True) as advance:
        for done in range(1, 1001):
            advance(done, 1000)
    assert len(notebook) < 100
    assert notebook[-2:] == ["Testing features: 1000 of 1000", ""]


def test_elsewhere_a_bar_is_drawn():
    assert not isinstance(ProgressBar(True)._bar, NotebookLine)
    assert ProgressBar(False)._bar is None
