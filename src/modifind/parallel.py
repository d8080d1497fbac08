"""Work spread over the workers of whatever backend joblib is set to, and what becomes of it when workers die."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from joblib import Parallel, delayed, effective_n_jobs
from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import TerminatedWorkerError

Found = TypeVar("Found")
WORKER_DIED = "its worker process died twice (out of memory?)"


class WorkerError(RuntimeError):
    """Work that could not be done because the processes that did it died."""


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Keep Ctrl-C waiting while workers are started.

    Workers inherit that and never hear of it, so that the process that started them is the only one to answer.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # to start it later, with the first worker, would let Ctrl-C through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def results_of(
    jobs: Iterable[Any],
    n_jobs: int | None,
    *,
    shared: bool = True,
    ordered: bool = True,
    singly: bool = False,
    doing: str = "working",
) -> Generator[Any, None, None]:
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
    ordered : bool, default=True
        Whether a result waits for those before it.
    singly : bool, default=False
        Whether every call is handed out by itself, however short it is.
    doing : str, default="working"
        What the calls do, for the message when a worker dies.

    Raises
    ------
    WorkerError
        A worker process died.

    Examples
    --------
    >>> from joblib import delayed
    >>> list(results_of((delayed(abs)(number) for number in (-1, 2)), 1))
    [1, 2]
    """
    options: dict[str, Any] = {} if shared else {"max_nbytes": None}
    options |= {"batch_size": 1} if singly else {}
    kind = "generator" if ordered else "generator_unordered"
    try:
        workers = Parallel(n_jobs=n_jobs, return_as=kind, **options)
    except ValueError:
        workers = Parallel(n_jobs=n_jobs, **options)
    results: Any = ()
    try:
        if workers.return_generator and effective_n_jobs(n_jobs) > 1:
            with interrupts_held():
                results = workers(jobs)
        else:
            results = workers(jobs)
        for result in results:  # noqa: UP028 (yield from would hand `close` on, past `_stop`)
            yield result
    except TerminatedWorkerError:
        raise WorkerError(
            f"a worker process died while {doing}, most likely for want of memory; use fewer processes, fewer rows or "
            "a machine with more memory"
        ) from None
    finally:
        _stop(results)


def _stop(results: Any) -> None:
    """End what is still under way, without joblib's warning that it was."""
    if hasattr(results, "close"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.close()


def survivors(
    call: Callable[..., list[Found]],
    shared: tuple[Any, ...],
    items: Mapping[int, Any],
    n_jobs: int | None,
    *,
    most_tasks: int,
    doing: str,
) -> Generator[tuple[int, Found | None], None, None]:
    """Results of all items in no order, whoever dies over one of them.

    When a worker dies, the items that may have been in work are done again, one at a time by a worker of their own,
    until it dies again. That item has no result; the others go on together.

    Parameters
    ----------
    call : callable
        ``call(*shared, items)`` gives a list of results, one for each of the pairs (number, item) it is handed.
    shared : tuple
        Arguments that all calls have in common.
    items : mapping
        Items by number.
    n_jobs : int, optional
        Processes.
    most_tasks : int
        Every task carries the shared arguments, so many items come in about as many tasks as this.
    doing : str
        What the calls do, for messages.

    Yields
    ------
    number, result
        The result is None where the worker died twice.

    Examples
    --------
    >>> def roots(digits, pairs):
    ...     return [round(number**0.5, digits) for _, number in pairs]
    >>> sorted(survivors(roots, (2,), {0: 4, 1: 2}, 1, most_tasks=100, doing="taking roots"))
    [(0, 2.0), (1, 1.41)]
    """
    left = dict(items)
    while left:
        pairs = list(left.items())
        step = max(1, len(pairs) // most_tasks)
        tasks = [pairs[start : start + step] for start in range(0, len(pairs), step)]
        jobs = (delayed(_numbered)(call, *shared, task) for task in tasks)
        try:
            with closing(results_of(jobs, n_jobs, ordered=False, singly=True, doing=doing)) as results:
                for found in results:
                    for number, own in found:
                        del left[number]
                        yield number, own
        except WorkerError:
            # Tasks are handed out in order, so those in work were among the first that are left.
            unfinished = [task for task in tasks if task[0][0] in left]
            suspects = [pair for task in unfinished[: effective_n_jobs(n_jobs)] for pair in task]
        else:
            return
        alone: Generator[tuple[int, Any], None, None] = _one_at_a_time(call, shared, suspects)
        with closing(alone):
            for number, result in alone:
                del left[number]
                yield number, result


def _numbered(call: Callable[..., list[Found]], *arguments: Any) -> list[tuple[int, Found]]:
    return [(number, result) for (number, _), result in zip(arguments[-1], call(*arguments), strict=True)]


def _one_at_a_time(
    call: Callable[..., list[Found]], shared: tuple[Any, ...], pairs: list[tuple[int, Any]]
) -> Generator[tuple[int, Found | None], None, None]:
    """Results by a single worker, up to the item that it dies over."""
    with interrupts_held():
        worker = ProcessPoolExecutor(max_workers=1)
    try:
        for number, item in pairs:
            with interrupts_held():
                future = worker.submit(call, *shared, [(number, item)])
            try:
                (result,) = future.result()
            except TerminatedWorkerError:
                yield number, None
                return
            yield number, result
    finally:
        worker.shutdown(wait=True, kill_workers=True)
