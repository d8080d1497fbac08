"""Progress of a long run: a bar on stderr, a user's callable, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Progress: TypeAlias = Callable[[int, int], None]


class ProgressBar:
    """Context of a progress bar on stderr, a user's callable, or nothing."""

    def __init__(self, progress: bool | Progress, title: str = "Testing features") -> None:
        self._callable = progress if callable(progress) else None
        self._bar: Any = None
        self._title = title
        if progress is True:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("time left"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                speed_estimate_period=float("inf"),  # of 30 s, as it comes, nothing is left when a step takes longer
                transient=True,
            )

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=None)
            return lambda done, total: self._bar.update(self._task, completed=done, total=total)
        return self._callable or (lambda done, total: None)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
