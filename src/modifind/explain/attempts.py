"""Explanations that may fail: what is lost is the explanation, not the test that it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from modifind._warned import warn

Found = TypeVar("Found")


def attempt(what: str, function: Callable[..., Found], *args: Any, **settings: Any) -> Found | None:
    """What a function returns; None, and a warning that says what is missing, where it fails.

    Warnings that the user has made errors stay errors.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     attempt("feature 'age': its curve", float, "x")
    >>> print(caught[0].message)
    feature 'age': its curve could not be found (ValueError: could not convert string to float: 'x'); p-values stand
    """
    with attempting(what):
        return function(*args, **settings)
    return None


@contextmanager
def attempting(what: str) -> Iterator[None]:
    """Turn an error into a warning that says what is missing; warnings that the user has made errors stay errors."""
    try:
        yield
    except Warning:
        raise
    except Exception as error:
        warn(missing(what, described(error)))


def missing(what: str, why: str) -> str:
    """Message about an explanation that failed."""
    return f"{what} could not be found ({why}); p-values stand"


def described(error: Exception) -> str:
    """An error in one line.

    Examples
    --------
    >>> described(MemoryError("no 8 GB"))
    'MemoryError: no 8 GB'
    """
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text}"
