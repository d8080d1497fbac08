"""Work spread over the workers of whatever backend joblib is set to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from joblib import Parallel


def results_of(jobs: Iterable[Any], n_jobs: int | None) -> Iterator[Any]:
    """Results of joblib's delayed calls in their order, as they come where the backend can do so.

    Loky, threads and Dask hand each result on when it is there; processes of multiprocessing and Ray all at the end.

    Examples
    --------
    >>> from joblib import delayed
    >>> list(results_of((delayed(abs)(number) for number in (-1, 2)), 1))
    [1, 2]
    """
    try:
        workers = Parallel(n_jobs=n_jobs, return_as="generator")
    except ValueError:
        workers = Parallel(n_jobs=n_jobs)
    yield from workers(jobs)
