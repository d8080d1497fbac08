"""Work spread over the workers of whatever backend joblib is set to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from joblib import Parallel


def results_of(jobs: Iterable[Any], n_jobs: int | None, *, shared: bool = True) -> Iterator[Any]:
    """Results of joblib's delayed calls in their order, as they come where the backend can do so.

    Loky, threads and Dask hand each result on when it is there; processes of multiprocessing and Ray all at the end.

    Parameters
    ----------
    jobs : iterable
        The calls.
    n_jobs : int, optional
        Processes.
    shared : bool, default=True
        Whether the calls have large arrays in common. Joblib puts those into files that all workers map, and keeps
        every one until the last call has ended, so arrays that differ from call to call would pile up.

    Examples
    --------
    >>> from joblib import delayed
    >>> list(results_of((delayed(abs)(number) for number in (-1, 2)), 1))
    [1, 2]
    """
    mapped = {} if shared else {"max_nbytes": None}
    try:
        workers = Parallel(n_jobs=n_jobs, return_as="generator", **mapped)
    except ValueError:
        workers = Parallel(n_jobs=n_jobs, **mapped)
    yield from workers(jobs)
