"""Progress of a long run: a bar on stderr, a line in a notebook, a user's callable, or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

Progress: TypeAlias = Callable[[int, int], None]
MIN_WAIT = 0.5  # seconds between two lines of a notebook


class ProgressBar:
    """Context of a progress bar on stderr or a line in a notebook, a user's callable, or nothing."""

    def __init__(self, progress: bool | Progress, title: str = "Testing features") -> None:
        self._callable = progress if callable(progress) else None
        self._bar: Any = None
        self._title = title
        if progress is True:
            self._bar = _bar()

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=None)
            return lambda done, total: self._bar.update(self._task, completed=done, total=total)
        return self._callable or (lambda done, total: None)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


class NotebookLine:
    """A line below the cell of a notebook, which needs nothing but IPython; with the methods of rich's bars."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._title = ""
        self._shown = 0.0

    def start(self) -> None:
        """Show an empty line."""
        self._handle = import_module("IPython.display").display({"text/plain": ""}, raw=True, display_id=True)

    def add_task(self, title: str, total: None = None) -> int:
        """Set the title."""
        self._title = title
        return 0

    def update(self, task: int, *, completed: int, total: int) -> None:
        """Show how far it is, unless that has just been shown."""
        if completed < total and time.monotonic() - self._shown < MIN_WAIT:
            return
        self._shown = time.monotonic()
        self._show(f"{self._title}: {completed} of {total}")

    def stop(self) -> None:
        """Leave an empty line."""
        self._show("")

    def _show(self, text: str) -> None:
        self._handle.update({"text/plain": text}, raw=True)


def _bar() -> Any:
    """A bar on stderr, or in a notebook a line, since rich's bars there would need ipywidgets."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    console = Console(stderr=True)
    if console.is_jupyter:
        return NotebookLine()
    return RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("time left"),
        TimeRemainingColumn(),
        console=console,
        speed_estimate_period=float("inf"),  # of 30 s, as it comes, nothing is left when a step takes longer
        transient=True,
    )
