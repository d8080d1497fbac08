"""Tables that commands read and write."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from modifind.data.files.opening import open_file, open_matching, refuse_folder
from modifind.data.files.text import Dialect
from modifind.data.sources import refuse_more_columns
from modifind.result.writing import write_bytes


@contextmanager
def open_table(
    data: str, *, dialect: Dialect | None = None, stream: bool = False, dask: str = "", jobs: int = 1
) -> Iterator[Any]:
    """Open a table: a DataFrame, a Dask DataFrame, or files that are read in batches.

    Parameters
    ----------
    data : str
        A file of text or Parquet; with `stream` or `dask` also a pattern of several.
    dialect : Dialect, optional
        How text is read.
    stream : bool, default=False
        Read the files in batches.
    dask : str, default=""
        Address of a Dask scheduler, or "local" for a cluster of `jobs` processes that is started and stopped again.
    jobs : int, default=1
        Processes of a local cluster.
    """
    if stream and dask:
        raise ValueError("--stream and --dask exclude each other")
    refuse_folder(Path(data))
    if dask:
        from modifind.data.files.distributed import read_table
        from modifind.engine.dask import connect, errors_told, silence_logs

        silence_logs()
        with connect(None if dask == "local" else dask, jobs) as client, errors_told(client):
            yield read_table(data, dialect)
    elif stream:
        files = open_matching(data, dialect)
        refuse_more_columns(files)
        yield files
    else:
        frame = open_file(Path(data), dialect).read()
        if frame.empty:
            raise ValueError(f"{data} has no rows")
        yield frame


def write_file(frame: pd.DataFrame, path: Path) -> None:
    """Write a DataFrame as CSV or Parquet, whole or not at all."""
    buffer = io.BytesIO()
    if path.suffix.lower() == ".csv":
        frame.to_csv(buffer, index=False, lineterminator="\n")
    else:
        try:
            frame.to_parquet(buffer, index=False)
        except ImportError:
            raise ValueError('writing Parquet needs pyarrow: pip install "modifind[parquet]"') from None
    write_bytes(path, buffer.getvalue())
