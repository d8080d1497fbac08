"""One thread for linear algebra, where threads of small models would wait for each other."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any


def one_thread() -> AbstractContextManager[Any]:
    """A context in which BLAS and OpenMP take one thread.

    Libraries are looked for again only when modules have been imported since: to find them takes longer than the fit of
    a small model.
    """
    return _controller(len(sys.modules)).limit(limits=1)


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
