"""Parallel work with any joblib backend: progress, interruption, and recovery when workers die."""

from __future__ import annotations

import inspect
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from importlib import import_module
from multiprocessing import resource_tracker
from typing import Any, TypeAlias, TypeVar

from joblib import Parallel, delayed, effective_n_jobs
from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import TerminatedWorkerError
from joblib.parallel import get_active_backend

from modifind._system import REMEDIES
from modifind._warned import warn

Found = TypeVar("Found")
WORKER_DIED = "its worker process died three times (out of memory?)"
RETRY_WARNING = (
    "a worker process died (out of memory?), and what it had in hand was done again; the results are the same. If it "
    "happens often, use fewer processes (n_jobs)"
)
MAX_DEATHS = 3  # over the same piece of work
DEAD = object()
WATCH_SECONDS = 0.5
# Earlier releases of joblib tell their workers nothing; those then end when they have been idle for five minutes, or on
# Windows by Ctrl-C.
HAS_INITIALIZER = "backend_kwargs" in inspect.signature(Parallel.__init__).parameters


class WorkerError(RuntimeError):
    """Raised when work cannot be done because its worker processes died."""


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Defer Ctrl-C while workers are started.

    Workers inherit this and ignore Ctrl-C, so that only the process that started them responds to it.
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


def exit_with_parent(parent: int) -> None:
    """Make a worker ignore Ctrl-C and exit when its parent process has exited, for whatever reason.

    The operating system's own signal for that is tied to the thread that started the worker, which may end earlier.
    """
    if os.getpid() == parent:
        return
    if not hasattr(signal, "pthread_sigmask"):  # where `deferred_interrupts` holds nothing back
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.name != "posix":
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def results_of(
    jobs: Iterable[Any], n_jobs: int | None, *, shared: bool = True, ordered: bool = True, doing: str = "working"
) -> Generator[Any, None, None]:
    """Results of joblib's delayed calls in order, as they arrive where the backend supports it.

    Loky, threads and Dask return each result when it is ready; multiprocessing and Ray return all at the end. When a
    worker dies, the calls that may have been running are repeated one at a time, each in a worker of its own; then the
    others continue in parallel. One warning is raised.

    Parameters
    ----------
    jobs : iterable
        The calls. There are no more workers than calls in a list; any other iterable is read as calls are made.
    n_jobs : int, optional
        Processes.
    shared : bool, default=True
        Whether the calls have large arrays in common. Joblib puts those into files that all workers map, and keeps
        every one until the last call has ended, so arrays that differ from call to call would pile up.
    ordered : bool, default=True
        Whether a result waits for those before it.
    doing : str, default="working"
        What the calls do, for the message when workers die over one of them.

    Raises
    ------
    WorkerError
        Worker processes died over the same call again and again.

    Examples
    --------
    >>> from joblib import delayed
    >>> list(results_of((delayed(abs)(number) for number in (-1, 2)), 1))
    [1, 2]
    """
    most = len(jobs) if isinstance(jobs, list) else None
    for _, result in _rounds(_Calls(jobs), n_jobs, most, shared=shared, ordered=ordered):
        if result is DEAD:
            raise WorkerError(
                f"a worker process died while {doing}, {MAX_DEATHS} times in a row and most likely for lack of memory; "
                f"{REMEDIES}"
            )
        yield result


class _Calls:
    """Numbered calls, read as they are handed out and kept until they are done."""

    def __init__(self, jobs: Iterable[Any]) -> None:
        self._jobs = enumerate(jobs)
        self._kept: dict[int, Any] = {}
        self._lock = threading.Lock()  # joblib reads from threads, also from those of a round that has failed
        self.n_done = 0

    def hand_out(self) -> Iterator[Any]:
        """Hand out all calls that are not done, in order."""
        for number, job in self.unfinished():
            yield delayed(_numbered)(number, job)
        while True:
            with self._lock:
                number, job = next(self._jobs, (-1, None))
                if job is None:
                    return
                self._kept[number] = job
            yield delayed(_numbered)(number, job)

    def unfinished(self) -> list[tuple[int, Any]]:
        """Calls that were handed out but are not done, in order."""
        with self._lock:
            return sorted(self._kept.items(), key=lambda pair: pair[0])

    def done(self, number: int) -> None:
        """Record that a call is done."""
        with self._lock:
            del self._kept[number]
        self.n_done += 1


def _rounds(
    calls: _Calls,
    n_jobs: int | None,
    most: int | None,
    split: Callable[[int, Any], list[tuple[int, Any]]] = lambda number, job: [(number, job)],
    **options: bool,
) -> Generator[tuple[int, Any], None, None]:
    """Numbered results of up to `most` calls, in as many rounds as dying workers make necessary.

    Calls that may have been running when a worker died are made one at a time, as `split` divides them; the result of a
    call that killed several workers is `DEAD`.
    """
    left = most
    while True:
        try:
            with closing(_results(calls.hand_out(), n_jobs, left, **options)) as results:
                for number, result in results:
                    calls.done(number)
                    yield number, result
            return
        except WorkerError:
            warn(RETRY_WARNING)
        # Calls are handed out in order, so those in work were among the first that are left.
        unfinished = calls.unfinished()[: effective_n_jobs(n_jobs)]
        for number, _ in unfinished:
            calls.done(number)
        with closing(_one_by_one([single for call in unfinished for single in split(*call)])) as alone:
            yield from alone
        left = None if most is None else max(most - calls.n_done, 2)  # a single worker would be this process


def _numbered(number: int, job: Any) -> tuple[int, Any]:
    function, arguments, options = job
    return number, function(*arguments, **options)


def _one_by_one(jobs: list[tuple[int, Any]]) -> Generator[tuple[int, Any], None, None]:
    """Results of numbered calls by a single worker, replaced when it dies; `DEAD` for calls that killed too many."""
    deaths = 1  # that of the worker that had it before
    while jobs:
        with _single_worker() as submit:
            try:
                while jobs:
                    yield submit(_numbered, *jobs[0])
                    jobs, deaths = jobs[1:], 1
            except TerminatedWorkerError:
                deaths += 1
        if deaths == MAX_DEATHS:
            yield jobs[0][0], DEAD
            jobs, deaths = jobs[1:], 1


@contextmanager
def _single_worker() -> Iterator[Callable[..., Any]]:
    """Start a worker for one call at a time; return a function that makes a call and waits for its result."""
    with deferred_interrupts():
        worker = ProcessPoolExecutor(max_workers=1, initializer=exit_with_parent, initargs=(os.getpid(),))

    def submit(*call: Any, **options: Any) -> Any:
        with deferred_interrupts():
            future = worker.submit(*call, **options)
        return future.result()

    try:
        yield submit
    finally:
        worker.shutdown(wait=True, kill_workers=True)


def _results(
    jobs: Iterable[Any],
    n_jobs: int | None,
    most: int | None,
    *,
    shared: bool = True,
    ordered: bool = True,
    singly: bool = False,
) -> Generator[Any, None, None]:
    """Results of up to `most` delayed calls; raises a WorkerError when a worker dies."""
    if most is not None and effective_n_jobs(n_jobs) > most:
        n_jobs = max(1, most)
    workers = _workers(n_jobs, shared, ordered, singly)
    results: Any = ()
    try:
        with deferred_interrupts() if workers.return_generator and effective_n_jobs(n_jobs) > 1 else nullcontext():
            results = workers(jobs)
        for result in results:  # noqa: UP028 (yield from would hand `close` on, past `_stop`)
            yield result
    except TerminatedWorkerError:
        raise WorkerError from None
    finally:
        _stop(results)


def _workers(n_jobs: int | None, shared: bool, ordered: bool, singly: bool) -> Parallel:
    options: dict[str, Any] = {} if shared else {"max_nbytes": None}
    options |= {"batch_size": 1} if singly else {}
    if HAS_INITIALIZER and type(get_active_backend()[0]).__name__ == "LokyBackend":
        options |= {"initializer": exit_with_parent, "initargs": (os.getpid(),)}
    try:
        return Parallel(n_jobs=n_jobs, return_as="generator" if ordered else "generator_unordered", **options)
    except ValueError:  # of a backend that has its results at the end
        return Parallel(n_jobs=n_jobs, **options)


def _stop(results: Any) -> None:
    """Cancel the remaining calls without joblib's warning about them."""
    if hasattr(results, "close"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.close()


def survivors(
    call: Callable[..., list[tuple[int, Found]]],
    shared: tuple[Any, ...],
    items: Mapping[int, Any],
    n_jobs: int | None,
    *,
    most_tasks: int,
) -> Generator[tuple[int, Found | None], None, None]:
    """Results of all items in any order, even if workers die while processing some of them.

    When a worker dies, the items that may have been running are repeated one at a time, each in a worker of its own; an
    item that killed three workers has no result. Then the others continue in parallel.

    Parameters
    ----------
    call : callable
        ``call(*shared, items)`` gives pairs of a number and a result, one for each of the pairs (number, item) that it
        is handed.
    shared : tuple
        Arguments that all calls have in common.
    items : mapping
        Items by number.
    n_jobs : int, optional
        Processes.
    most_tasks : int
        Every task carries the shared arguments, so many items come in about as many tasks as this.

    Yields
    ------
    number, result
        The result is None where three workers died.

    Examples
    --------
    >>> def roots(digits, pairs):
    ...     return [(k, round(number**0.5, digits)) for k, number in pairs]
    >>> sorted(survivors(roots, (2,), {0: 4, 1: 2}, 1, most_tasks=100))
    [(0, 2.0), (1, 1.41)]
    """
    pairs, step = list(items.items()), max(1, len(items) // most_tasks)
    tasks = [pairs[start : start + step] for start in range(0, len(pairs), step)]

    def split(number: int, _: Any) -> list[tuple[int, Any]]:
        return [(pair[0], delayed(call)(*shared, [pair])) for pair in tasks[number]]

    jobs = _Calls(delayed(call)(*shared, task) for task in tasks)
    for number, result in _rounds(jobs, n_jobs, len(tasks), split, ordered=False, singly=True):
        if result is DEAD:
            yield number, None
        else:
            yield from result


Progress: TypeAlias = Callable[[int, int], None]
MIN_WAIT = 0.5  # seconds between two lines of a notebook


class ProgressBar:
    """Context manager that shows progress: a bar on stderr, a line in a notebook, a user's callable, or nothing."""

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
    """A progress line below a notebook cell, with the interface of rich's progress bars; needs IPython only."""

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
        """Show the progress unless it is already shown."""
        if completed < total and time.monotonic() - self._shown < MIN_WAIT:
            return
        self._shown = time.monotonic()
        self._show(f"{self._title}: {completed} of {total}")

    def stop(self) -> None:
        """Clear the line."""
        self._show("")

    def _show(self, text: str) -> None:
        self._handle.update({"text/plain": text}, raw=True)


def _bar() -> Any:
    """A bar on stderr, or a line in a notebook, where rich's bars would need ipywidgets."""
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
