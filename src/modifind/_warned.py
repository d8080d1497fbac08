"""Warnings: attributed to the user's line of code, or collected for a record or another process."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

PACKAGE = f"{Path(__file__).parent}{os.sep}"


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn as if from the line outside this package that called it.

    If this package is called from code that it calls itself, such as a worker or a user's statistic, the outermost such
    line counts.
    """
    frame = _users_frame()
    name = frame.f_globals.get("__name__", "__main__")
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, module=name)


def _users_frame() -> FrameType:
    """The frame that called the outermost frame of this package."""
    frames = list(_frames())
    inside = [place for place, frame in enumerate(frames) if frame.f_code.co_filename.startswith(PACKAGE)]
    return frames[min(inside[-1] + 1, len(frames) - 1)]


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def warn_once(messages: Iterable[str]) -> None:
    """Issue every message once as a warning, such as those collected from workers."""
    for message in dict.fromkeys(messages):
        warn(message)


@contextmanager
def collected() -> Iterator[list[str]]:
    """Collect warning messages, which would be lost in a worker process; the list is filled on exit."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield messages
        finally:
            messages += _texts(caught)


@contextmanager
def recorded(before: Iterable[str] = ()) -> Iterator[list[str]]:
    """Collect warning messages for the record and issue each once on exit, even after an error.

    Messages in `before` are not issued again.
    """
    messages: list[str] = []
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            yield messages
    finally:
        messages += _texts(caught)
        shown = set(before)
        for warning in caught:
            if str(warning.message) not in shown:
                shown.add(str(warning.message))
                warn(warning.message, warning.category)


def _texts(caught: Iterable[warnings.WarningMessage]) -> list[str]:
    """Distinct messages of the warnings meant for users."""
    return list(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, UserWarning)))
