"""Warnings that point at the user's line."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

PACKAGE = f"{Path(__file__).parent}{os.sep}"


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn of something, as if the line outside this package that called it had done so.

    Where the package is called by something else that it calls, a worker or a user's own statistic, it is the outermost
    such line.
    """
    frame = _users_frame()
    name = frame.f_globals.get("__name__", "__main__")
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, module=name)


def _users_frame() -> FrameType:
    """The frame that called the outermost one of this package."""
    frames = list(_frames())
    inside = [place for place, frame in enumerate(frames) if frame.f_code.co_filename.startswith(PACKAGE)]
    return frames[min(inside[-1] + 1, len(frames) - 1)]


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
