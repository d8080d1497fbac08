"""The same sums over the partitions of a Dask DataFrame.

Rows stay on the workers: apart from the sample that models are fitted to, only sums over several partitions are
transferred. When a worker is lost, the sums it had not yet delivered are recomputed.
"""

from __future__ import annotations

import logging
import operator
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import effective_n_jobs

from modifind._warned import warn
from modifind._workers import Progress, WorkerError, deferred_interrupts
from modifind.data.clusters import RowPlan, generous_limit
from modifind.data.containers import row_scores
from modifind.data.files.opening import import_dask
from modifind.data.missing import DroppedRows
from modifind.data.sources import ALL_ROWS, Piece, RowFilter
from modifind.data.words import listed
from modifind.engine.passes import FirstPassSums, NullCheckpoint, RowPass, add_up, check_unchanged
from modifind.explain.overview import described

if TYPE_CHECKING:
    from distributed import Client

WATCH_SECONDS = 10.0  # how often workers are looked for, and how long a scheduler may take to name them
PATIENCE_SECONDS = 300.0  # without a worker; clusters that grow when they are asked to need some minutes
CLUSTER_LOST = (
    "the Dask cluster was lost, and with it what was under way: its scheduler went away, or there was no worker for "
    f"{PATIENCE_SECONDS / 60:.0f} minutes; start again when it is back"
)
# What Dask says of text whose first rows have other types.
MISMATCH = r"Mismatched dtypes found(?:.|\n)*?Expected \|\n\S+\n\| (.+?) +\| (\S+) +\| (\S+) +\|"
STARTS = 3  # of a local cluster, whose workers may die while they start
FAN_IN = 8  # sums that a worker adds up at a time
MAX_RUNS = 256  # sums that come here, to be added up and saved
# Dask has its workers give memory back at once, which makes every array of a few hundred kilobytes a call to the system
# and sums much slower. Here freed memory is kept, up to 256 MB; one thread of BLAS and OpenMP each.
WORKER_ENVIRONMENT = {
    "MALLOC_TRIM_THRESHOLD_": 2**28,
    "MALLOC_MMAP_THRESHOLD_": 2**26,
    "OMP_NUM_THREADS": 1,
    "MKL_NUM_THREADS": 1,
    "OPENBLAS_NUM_THREADS": 1,
}


def silence_logs() -> None:
    """Silence Dask's logs on the command line, where an error is one line."""
    import_dask()
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    for handler in logging.getLogger("distributed").handlers:
        handler.setLevel(logging.CRITICAL)


def connect(address: str | None = None, n_workers: int | None = None) -> Client:
    """Client of the cluster at an address, or of a local one started here.

    Parameters
    ----------
    address : str, optional
        Address of a scheduler, such as ``tcp://10.0.0.1:8786``.
    n_workers : int, optional
        Processes of a cluster that is started here; all cores by default.

    Returns
    -------
    distributed.Client
        Closing it stops a cluster that was started here.
    """
    distributed = import_dask()
    if address:
        try:
            client = distributed.Client(address, timeout="30s")
            client.wait_for_workers(1, timeout=PATIENCE_SECONDS)
        except OSError as error:
            raise ValueError(f"no Dask scheduler with workers answers at {address!r}: {error}") from None
        return client
    from dask import config

    workers = effective_n_jobs(-1 if n_workers is None else n_workers)
    failure = None
    for _ in range(STARTS):
        try:
            with deferred_interrupts(), config.set({"distributed.nanny.pre-spawn-environ": WORKER_ENVIRONMENT}):
                return distributed.Client(
                    n_workers=workers,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address=":0",
                    silence_logs=logging.CRITICAL,  # what goes wrong is told once, by an error or a warning
                )
        except RuntimeError as error:  # a worker died while it was started
            failure = error
    raise WorkerError(f"no Dask cluster could be started on this machine, {STARTS} times over: {failure}")


@dataclass
class DaskPieces:
    """The partitions of a table as pieces, processed by a cluster.

    Use `of` to create it, and as a context manager that stops the cluster if it started one.

    Attributes
    ----------
    columns : dict
        Features, outcome, treatment and known scores as lists of delayed partitions.
    kept : RowFilter
        Which rows are kept.
    dropped : DroppedRows
        A count of the others, once they have been looked at.
    checkpoint : NullCheckpoint
        Where sums are saved now and then, for a pass that was stopped to go on from there.
    """

    columns: dict[str, list[Any]]
    n_workers: int | None = None
    client: Any = None
    lengths: list[int] = field(default_factory=list)
    kept: RowFilter = ALL_ROWS
    dropped: DroppedRows = field(default_factory=DroppedRows)
    checkpoint: NullCheckpoint = field(default_factory=NullCheckpoint)
    _started: bool = False
    _workers: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        treatment: Any,
        propensity: Any = None,
        n_workers: int | None = None,
        *,
        kept: RowFilter = ALL_ROWS,
        per_row: Mapping[str, Any] | None = None,
    ) -> DaskPieces:
        """Make pieces from identically partitioned Dask collections."""
        import_dask()
        parts = {"X": X, "y": y, "treatment": treatment}
        parts |= {name: column for name, column in (per_row or {}).items() if column is not None}
        if (scores := row_scores(propensity)) is not None:
            parts["propensity"] = scores
        _check_partitions(parts)
        # Optimised one by one, columns of the same files may be read in partitions of different sizes. As they are,
        # they share the task that reads them.
        delayed = {name: list(part.to_delayed(optimize_graph=False)) for name, part in parts.items()}
        return cls(delayed, n_workers, kept=kept)

    def __enter__(self) -> DaskPieces:
        """Find the current cluster, or start a local one."""
        try:
            self.client = import_dask().get_client()
        except ValueError:
            self.client, self._started = connect(None, self.n_workers), True
        self._workers = self._present()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the cluster if it was started here."""
        if self._started:
            self.client.close()

    def _warn_lost(self) -> None:
        present = self._present()
        lost = len(self._workers - present)
        if lost and present:
            warn(
                f"{lost} of {len(self._workers)} workers were lost during the run; what they had not handed on was "
                "computed again, and the result is the same",
            )
            self._workers = frozenset(present)  # each loss is told once, however many passes follow

    def look(self, rows: RowPlan, discrete_features: Any, n_sample: int) -> tuple[FirstPassSums, RowPlan]:
        """Count the rows of every partition, then summarise each; only its sampled rows are transferred."""
        try:
            with self._attended() as futures:
                futures += self.client.compute(self._each(_count))
                counts = self.client.gather(futures)
        except (AttributeError, IndexError, TypeError) as error:
            raise ValueError(
                f"a partition of the table is not a DataFrame of its columns ({described(error)})"
            ) from error
        self.lengths[:] = [n_kept for n_kept, _ in counts]
        self.dropped = reduce(operator.add, (dropped for _, dropped in counts), DroppedRows())
        self.dropped.refuse_all()
        n_rows = sum(self.lengths)
        if not n_rows:
            raise ValueError("the table has no rows")
        rows = rows.limited(generous_limit(n_rows, n_sample))
        with self._attended() as begun:
            parts = self._filled(self._each(_look, rows, discrete_features, self.checkpoint.wants_digests))
            begun += self.client.compute([_in_tree(parts)])
            first: FirstPassSums = self.client.gather(begun)[0]
        if n_rows > n_sample:
            self.checkpoint.open(first.digests)
        return first.pruned(rows, n_sample)

    def observed(self, rule: Callable[[Piece], Piece]) -> DaskPieces:
        """Apply a rule for rows to every partition, once they have been summarised."""
        parts = self._each(_observed, rule)
        columns = {name: [part[name] for part in parts] for name in [*self.columns, "sample_weight"]}
        return replace(self, columns=columns, kept=ALL_ROWS, lengths=[])

    def sums(self, work: RowPass, n_rows: int, advance: Progress, *, saved: bool = True) -> Any:
        """Sums over all rows, added on the workers for groups of partitions fixed by their number."""

        def runs(n_done: int) -> Generator[Any, None, None]:
            parts = self._filled(self._each(_sums, work))
            trees = [_in_tree(group) for group in _in_groups(parts, max(FAN_IN, -(-len(parts) // MAX_RUNS)))]
            with self._attended() as begun:
                begun += self.client.compute(trees[n_done:])
                for future in begun:
                    yield future.result()
                    future.release()

        total = add_up(runs, self.checkpoint if saved else NullCheckpoint(), n_rows, advance)
        self._warn_lost()
        check_unchanged(n_rows, total.n_rows)
        return total

    def _filled(self, parts: list[Any]) -> list[Any]:
        """The non-empty partitions among `parts`."""
        return [part for part, length in zip(parts, self.lengths, strict=True) if length]

    def _each(self, function: Callable[..., Any], *shared: Any) -> list[Any]:
        """A delayed call for every partition."""
        from dask import delayed

        call = delayed(function, pure=False)
        common = [delayed(item, pure=False, traverse=False) for item in (self.kept, *shared)]
        names, partitions = list(self.columns), list(zip(*self.columns.values(), strict=True))
        lengths = self.lengths or [0] * len(partitions)  # not counted yet
        starts = np.cumsum([0, *lengths[:-1]])
        return [
            call(int(start), dict(zip(names, parts, strict=True)), *common)
            for start, parts in zip(starts, partitions, strict=True)
        ]

    @contextmanager
    def _attended(self) -> Iterator[list[Any]]:
        """Wait as long as the cluster is alive, shorten errors to one line, and cancel what remains.

        Yields a list for the futures started.
        """
        futures: list[Any] = []
        ended = threading.Event()
        threading.Thread(target=self._watch, args=(futures, ended), daemon=True).start()
        try:
            with short_cluster_errors(self.client):
                yield futures
        except BaseException as error:
            with suppress(Exception):  # where there is no scheduler, nothing is under way
                self.client.cancel(futures)
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                raise ValueError(f"a partition of the table cannot be read: {error}") from None
            if not isinstance(error, KeyError):
                raise
            # pandas raises it for a column that is missing.
            named = re.fullmatch(r"\[(.*)\] not .*", str(error.args[0]), flags=re.DOTALL)
            lacking = named[1] if named else listed(error.args)
            raise ValueError(
                f"a partition of the table lacks column {lacking}; give all of them the same columns"
            ) from None
        finally:
            ended.set()

    def _watch(self, futures: list[Any], ended: threading.Event) -> None:
        """Cancel the futures when there has been no worker, or no response, for too long."""
        seen = time.monotonic()
        while not ended.wait(WATCH_SECONDS):
            if self._present():
                seen = time.monotonic()
            if time.monotonic() - seen > PATIENCE_SECONDS:
                with suppress(Exception):
                    self.client.cancel(futures)

    def _present(self) -> frozenset[str]:
        """Addresses of the workers; none if the scheduler does not respond."""
        # Not by `scheduler_info`: the client overwrites what that has asked for, now and then, with no workers at all.
        with suppress(Exception):
            return frozenset(self.client.sync(self.client.scheduler.ncores, callback_timeout=WATCH_SECONDS))
        return frozenset()


@contextmanager
def short_cluster_errors(client: Client) -> Iterator[None]:
    """Shorten errors of a cluster, which are long or uninformative, to one line."""
    distributed = import_dask()
    try:
        yield
    except distributed.KilledWorker as error:
        raise WorkerError(
            f"workers died again and again over the same rows, most likely for lack of memory; use smaller "
            f"partitions ({error})"
        ) from None
    except Exception as error:
        lost = isinstance(error, distributed.CancelledError | distributed.comm.CommClosedError)
        if lost or client.status != "running":
            raise WorkerError(CLUSTER_LOST) from None
        mixed = re.search(MISMATCH, str(error))
        if mixed is None:
            raise
        raise ValueError(
            f"column {mixed[1]!r} comes as {mixed[2]} in some rows and as {mixed[3]} in the first, which tell Dask how "
            "to read it; write it alike in all rows, or pass a DataFrame"
        ) from None


def _check_partitions(parts: Mapping[str, Any]) -> None:
    """Refuse columns that are not on the cluster, or not partitioned like X."""
    X = parts["X"]
    for name, part in parts.items():
        n_dimensions, kind = (2, "DataFrame") if name == "X" else (1, "series of the same partitions")
        if not hasattr(part, "divisions") or part.ndim != n_dimensions:
            raise ValueError(f"X is a Dask table, so {name} must be a Dask {kind}, not {type(part).__name__}")
        if part.npartitions != X.npartitions:
            raise ValueError(f"{name} has {part.npartitions} partitions but X has {X.npartitions}")
        if X.known_divisions and part.known_divisions and part.divisions != X.divisions:
            raise ValueError(f"{name} and X are divided differently; take them from the same Dask DataFrame")


def _piece(start: int, parts: dict[str, Any], kept: RowFilter) -> tuple[Piece, DroppedRows]:
    """Rows of one partition, and a count of those dropped."""
    n_rows = len(parts["X"])
    for name, part in parts.items():
        if len(part) != n_rows:
            raise ValueError(f"a partition of {name} has {len(part)} rows, that of X {n_rows}")
        if not part.index.equals(parts["X"].index):
            raise ValueError(
                f"a partition of {name} has an index other than that of X, so its rows may be others or in another "
                "order; take both from the same Dask DataFrame"
            )
    piece = Piece(start, **{name: part.reset_index(drop=True) for name, part in parts.items()})
    return kept.of(piece, start)


def _count(start: int, parts: dict[str, Any], kept: RowFilter) -> tuple[int, DroppedRows]:
    piece, dropped = _piece(start, parts, kept)
    return len(piece.X), dropped


def _look(
    start: int, parts: dict[str, Any], kept: RowFilter, rows: RowPlan, discrete_features: Any, digests: bool
) -> FirstPassSums:
    return FirstPassSums.of_piece(_piece(start, parts, kept)[0], rows, discrete_features, digests=digests)


def _observed(start: int, parts: dict[str, Any], kept: RowFilter, rule: Callable[[Piece], Piece]) -> dict[str, Any]:
    piece = rule(_piece(start, parts, kept)[0])
    return {"X": piece.X, "y": piece.y, "treatment": piece.treatment, **piece.more}


def _sums(start: int, parts: dict[str, Any], kept: RowFilter, work: RowPass) -> Any:
    return work.sums(_piece(start, parts, kept)[0])


def _in_tree(parts: list[Any]) -> Any:
    """Sum of delayed parts, added in order as a tree."""
    from dask import delayed

    add = delayed(_add, pure=False)
    while len(parts) > 1:
        parts = [add(group) for group in _in_groups(parts, FAN_IN)]
    return parts[0]


def _in_groups(items: list[Any], size: int) -> list[list[Any]]:
    return [items[k : k + size] for k in range(0, len(items), size)]


def _add(parts: list[Any]) -> Any:
    return reduce(operator.add, parts)
