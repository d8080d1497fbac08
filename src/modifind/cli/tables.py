"""Tables of the command line: a file read at once, files read in batches, or files on a cluster."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from modifind.data.files.opening import DataFile, open_file, open_matching, refuse_folder
from modifind.data.files.text import Dialect
from modifind.data.sources import FileSource, refuse_more_columns
from modifind.result.placebo_result import PlaceboResult
from modifind.result.selection_result import SelectionResult
from modifind.result.writing import write_bytes
from modifind.selector import ModifierSelector

FIRST_ROWS = 10_000


@dataclass(frozen=True)
class Roles:
    """What the columns of a table are.

    `features` are the columns of X, `adjusted` those of them that are not tested, `scores` known propensity scores, the
    next three arguments of `fit`; `treated`, `reference` and `arms` are labels of the treatment.
    """

    features: list[str]
    outcome: str
    treatment: str
    adjusted: list[str]
    scores: str | None = None
    strata: str | None = None
    weight: str | None = None
    clusters: str | None = None
    treated: str | None = None
    reference: str | None = None
    arms: tuple[str, ...] | None = None

    @property
    def labels(self) -> dict[str, Any]:
        """Arguments of `fit` that name arms, those that were given."""
        named = {"treated": self.treated, "reference": self.reference, "arms": self.arms}
        return {argument: label for argument, label in named.items() if label is not None}


class Table(Protocol):
    """A table that a selector can be fitted to."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""

    def rows(self, names: list[str]) -> pd.DataFrame:
        """Some columns, of all rows or of the first."""

    def fit(self, selector: ModifierSelector, roles: Roles) -> SelectionResult:
        """What a selector finds."""

    def placebo(self, selector: ModifierSelector, roles: Roles, n: int) -> PlaceboResult:
        """What a selector finds with treatments that do nothing."""

    def arguments(self, selector: ModifierSelector, roles: Roles) -> dict[str, Any]:
        """Arguments of the selector's `fit` for a dry run, which needs a table in memory."""


@dataclass(frozen=True)
class FrameTable:
    """A table in memory, or on a cluster: both are sliced by names."""

    frame: Any

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return [str(name) for name in self.frame.columns]

    def rows(self, names: list[str]) -> pd.DataFrame:
        """Some columns, of all rows or of the first."""
        some = self.frame[names]
        return some if isinstance(some, pd.DataFrame) else some.head(FIRST_ROWS, npartitions=-1)

    def fit(self, selector: ModifierSelector, roles: Roles) -> SelectionResult:
        """What a selector finds."""
        return selector.fit(**self._arguments(selector, roles)).result_

    def placebo(self, selector: ModifierSelector, roles: Roles, n: int) -> PlaceboResult:
        """What a selector finds with treatments that do nothing."""
        return selector.placebo(**self._arguments(selector, roles), n=n)

    def arguments(self, selector: ModifierSelector, roles: Roles) -> dict[str, Any]:
        """Arguments of the selector's `fit` for a dry run, which needs a table in memory."""
        if not isinstance(self.frame, pd.DataFrame):
            raise ValueError("--dry-run needs the table in memory; leave --dask out")
        return self._arguments(selector, roles)

    def _arguments(self, selector: ModifierSelector, roles: Roles) -> dict[str, Any]:
        frame = self.frame
        if roles.scores is not None:
            scores = frame[roles.scores]
            selector.set_params(propensity=scores.to_numpy() if isinstance(frame, pd.DataFrame) else scores)
        more = {argument: frame[name] for argument, name in _per_row(roles).items()}
        more |= {"adjust_for": roles.adjusted or None, **roles.labels}
        return {"X": frame[roles.features], "y": frame[roles.outcome], "treatment": frame[roles.treatment], **more}


@dataclass(frozen=True)
class FileTable:
    """Files that are read in batches."""

    files: tuple[DataFile, ...]

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return self.files[0].names

    def rows(self, names: list[str]) -> pd.DataFrame:
        """Some columns, of all rows or of the first."""
        return next(FileSource(self.files, tuple(names), names[0], names[0]).pieces()).X if names else pd.DataFrame()

    def fit(self, selector: ModifierSelector, roles: Roles) -> SelectionResult:
        """What a selector finds."""
        return selector.fit_source(**self._source(selector, roles)).result_

    def placebo(self, selector: ModifierSelector, roles: Roles, n: int) -> PlaceboResult:
        """What a selector finds with treatments that do nothing."""
        return selector.placebo_source(**self._source(selector, roles), n=n)

    def _source(self, selector: ModifierSelector, roles: Roles) -> dict[str, Any]:
        """Arguments of the selector's `fit_source`."""
        if roles.scores is not None:
            selector.set_params(propensity="auto")  # the source brings the scores
        more = _per_row(roles) | ({} if roles.scores is None else {"propensity": roles.scores})
        source = FileSource(self.files, tuple(roles.features), roles.outcome, roles.treatment, more)
        return {"source": source, **roles.labels, "adjust_for": roles.adjusted or None}

    def arguments(self, selector: ModifierSelector, roles: Roles) -> dict[str, Any]:
        """Arguments of the selector's `fit`, which a table in batches does not have."""
        raise ValueError("--dry-run needs the table in memory; leave --stream out")


def _per_row(roles: Roles) -> dict[str, str]:
    """Columns of weights, clusters and strata, by argument, those that there are."""
    given = {"sample_weight": roles.weight, "clusters": roles.clusters, "strata": roles.strata}
    return {argument: name for argument, name in given.items() if name is not None}


@contextmanager
def open_table(
    data: str, *, dialect: Dialect | None = None, stream: bool = False, dask: str = "", jobs: int = 1
) -> Iterator[Table]:
    """Open a table.

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
        from modifind.engine.dask import connect, errors_told, read_table, silence_logs

        silence_logs()
        with connect(None if dask == "local" else dask, jobs) as client, errors_told(client):
            yield FrameTable(read_table(data, dialect))
    elif stream:
        files = open_matching(data, dialect)
        refuse_more_columns(files)
        yield FileTable(files)
    else:
        frame = open_file(Path(data), dialect).read()
        if frame.empty:
            raise ValueError(f"{data} has no rows")
        yield FrameTable(frame)


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
