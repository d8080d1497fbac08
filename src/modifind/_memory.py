"""The memory that a fit needs, the memory that is free, and remedies where that is not enough."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from modifind._warned import warn

REMEDIES = (
    "read the table in batches (from a file), fit models to fewer rows (max_train_rows), leave explanations out "
    "(explain=False) or use fewer processes (n_jobs)"
)
# Measured with the default settings: 267 MB at 5,000 rows and 20 columns, 374 MB at 20,000, one process each; 1568 MB
# at 100,000 rows and 30 columns with two workers.
BYTES_OF_A_PROCESS = 220 * 2**20
COPIES = 48  # of the table, in models, distributions and their bases; workers share them


def estimated_memory(n_rows: int, n_columns: int, n_processes: int = 1) -> int:
    """Bytes that a fit with the default statistic needs at its peak, all processes together, within about a fifth.

    Parameters
    ----------
    n_rows, n_columns : int
        Size of the table.
    n_processes : int, default=1
        Processes; more than one work for another that waits.

    Examples
    --------
    >>> round(estimated_memory(20_000, 20) / 2**20)
    366
    """
    n_all = n_processes + (n_processes > 1)
    return n_all * BYTES_OF_A_PROCESS + COPIES * 8 * n_rows * n_columns


def free_memory(where: str = "/proc/meminfo") -> int | None:
    """Bytes that can be had without swapping; None where the system does not say."""
    try:
        lines = Path(where).read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


def warn_of_memory(n_rows: int, n_columns: int, n_processes: int) -> None:
    """Warn of a fit that probably needs more memory than there is."""
    needed, free = estimated_memory(n_rows, n_columns, n_processes), free_memory()
    if free is not None and needed > free:
        warn(
            f"this fit needs about {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free; {REMEDIES}",
        )


@contextmanager
def remedies_told() -> Iterator[None]:
    """Let a MemoryError say what to do."""
    try:
        yield
    except MemoryError as error:
        raise out_of_memory(error) from error


def out_of_memory(error: MemoryError) -> MemoryError:
    """The same error with what to do, once.

    Examples
    --------
    >>> print(out_of_memory(MemoryError("no 8 GB")))
    out of memory (no 8 GB); read the table in batches (from a file), fit models to fewer rows (max_train_rows), leave \
explanations out (explain=False) or use fewer processes (n_jobs)
    """
    if REMEDIES in str(error):
        return error
    return MemoryError(f"out of memory{f' ({error})' if str(error) else ''}; {REMEDIES}")
