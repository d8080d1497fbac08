"""Checkpoints: results of an unfinished run, in a folder from which the same run continues.

The folder holds `run.json`, which identifies the run, and one file for every feature tested so far. All are written
atomically, so that a file is complete or absent. File names carry a digest of `run.json`; files of another run, and any
other file, are left alone.
"""

from __future__ import annotations

import json
import os
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from modifind._system import make_folder
from modifind._warned import warn
from modifind.data.containers import row_scores
from modifind.data.words import counted
from modifind.engine.findings import Examination
from modifind.engine.passes import NullCheckpoint, digest, joined_digests, row_digests, table_digests
from modifind.engine.reading import Data, Given
from modifind.engine.record import entropy_of, installed_versions, readable, recorded_settings
from modifind.engine.settings import RunSettings, Statistic, agreeing_sampler
from modifind.engine.sums import Sums
from modifind.inference import ConditionalRandomizationTest
from modifind.nuisance.propensity.scores import resolve_propensity
from modifind.result.files import decode, encode, parse_json, write_text

Record = TypeVar("Record")
FORMAT = 4
RUN_FILE = "run.json"
VERSIONS = ("modifind", "numpy", "scipy", "scikit-learn", "torch")
# They change how a result is put together, not what is found of a feature. Of a table taken at once the digests show
# what is discrete, and `n_resamples_used` is what the number of resamples comes to.
IGNORED_SETTINGS = ("alpha", "adjust", "n_resamples", "better", "unit")
IGNORED_SETTINGS_IF_WHOLE = ("discrete_features", "max_train_rows")
SHOWN_DIFFERENCES = 5
DAMAGED = (ValueError, OSError, TypeError, RecursionError, OverflowError)  # what reading a file of another kind raises
STALE_SECONDS = 600.0  # a temporary file lives for milliseconds
SAVE_SECONDS = 10.0  # sums over rows are saved as often as this
READING_WORDS = {"whole": "at once"}
WORDS = {
    "y": "the outcome",
    "treatment": "the treatment",
    "scores": "propensity",
    "weights": "sample_weight",
    "kept": "which rows are left out",
}


@dataclass(frozen=True)
class SavedRun:
    """The identity of a run, as stored in `run.json`.

    Attributes
    ----------
    format : int
        Of the files of the folder.
    versions : dict
        Of what results depend on.
    table : {"whole", "pieces"}
        How its rows are taken.
    settings : dict
        Every setting that can change what is found of a feature.
    seed : int
        The seed.
    columns : tuple of pairs
        Names and digests of the features; their order counts.
    rows : dict
        Digests of the arguments that have one value per row.
    """

    format: int
    versions: dict[str, str]
    table: str
    settings: dict[str, Any]
    seed: int
    columns: tuple[tuple[str, str], ...]
    rows: dict[str, str]

    @classmethod
    def from_settings(
        cls, table: str, settings: dict[str, Any], seed: int, columns: dict[str, str], rows: dict[str, str]
    ) -> SavedRun:
        """A run of this version, identified by all its settings as a result records them."""
        left_out = IGNORED_SETTINGS + (IGNORED_SETTINGS_IF_WHOLE if table == "whole" else ())
        kept = {name: value for name, value in settings.items() if name not in left_out}
        versions = {name: number for name, number in installed_versions().items() if name in VERSIONS}
        # An object that shows its address in memory would never be the same again.
        kept = json.loads(re.sub(r" at 0x[0-9a-fA-F]+", "", json.dumps(encode(kept, Any))))
        return cls(FORMAT, versions, table, kept, seed, tuple(columns.items()), rows)

    @property
    def token(self) -> str:
        """Digest in the names of this run's files."""
        return _check(encode(self, SavedRun))[:12]


def differences(old: SavedRun, new: SavedRun) -> list[str]:
    """Description of how two runs differ.

    Examples
    --------
    >>> one = SavedRun.from_settings("whole", {"cv": 5}, 1, {"age": "a1"}, {"y": "b1"})
    >>> differences(one, SavedRun.from_settings("whole", {"cv": 4}, 2, {"age": "a2"}, {"y": "b1"}))
    ['cv was 5 and is now 4', 'the seed was 1 and is now 2', "column 'age' differs"]
    """
    if old.format != new.format:
        return [f"its format is {old.format}, not {new.format}"]
    versions = sorted(_changed(old.versions, new.versions, "not installed"))
    made = {"modifind": "by"}
    lines = [f"it was made {made.get(name, 'with')} {name} {was}, this is {now}" for name, was, now in versions]
    if old.table != new.table:
        lines.append(f"the rows were read {READING_WORDS.get(old.table, 'in pieces')} before")
    settings = _changed(_flat(old.settings), _flat(new.settings))
    lines += [f"{name} was {was!r} and is now {now!r}" for name, was, now in settings]
    if old.seed != new.seed:
        lines.append(f"the seed was {old.seed} and is now {new.seed}")
    columns = _changed(dict(old.columns), dict(new.columns))
    words = {(True, False): "is new", (False, True): "is gone", (False, False): "differs"}
    lines += [f"column {name!r} {words[was is None, now is None]}" for name, was, now in columns]
    if not columns and old.columns != new.columns:
        lines.append("the columns come in another order")
    return lines + [f"{WORDS.get(name, name)} differs" for name, *_ in _changed(old.rows, new.rows)]


def _changed(old: dict[str, Any], new: dict[str, Any], absent: Any = None) -> list[tuple[str, Any, Any]]:
    """Description of what differs, with values before and now."""
    pairs = ((name, old.get(name, absent), new.get(name, absent)) for name in dict.fromkeys([*old, *new]))
    return [(name, was, now) for name, was, now in pairs if was != now]


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings with dotted names."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def saved_seed(folder: str | os.PathLike[str] | None) -> int | None:
    """Seed of the run stored in a folder, if any."""
    if folder is None or not (Path(folder) / RUN_FILE).exists():
        return None
    return _read_run(Path(folder)).seed


def _read_run(folder: Path) -> SavedRun:
    path = folder / RUN_FILE
    try:
        run: SavedRun = decode(parse_json(path.read_bytes()), SavedRun)
        if run.seed < 0:
            raise ValueError("its seed is negative")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"{path} is not a readable run of modifind ({reason}); use another folder") from None
    return run


def open_folder(folder: str | os.PathLike[str], run: SavedRun) -> tuple[Path, str]:
    """Start a checkpoint in a folder, or continue the same run from it.

    Returns
    -------
    folder, token : Path, str
        The folder, and the part of file names that belongs to the run.

    Raises
    ------
    ValueError
        The folder holds results of another run; the message says how that differs.
    """
    path = Path(folder).absolute()
    make_folder(path)
    _remove_stale(path)
    text = json.dumps(encode(run, SavedRun), indent=1, allow_nan=False) + "\n"
    if not (path / RUN_FILE).exists():
        _write(path / RUN_FILE, text, keep=True)
    saved = _read_run(path)
    lines = differences(saved, run)
    if lines and any(path.glob(f"*-{saved.token}*.json")):
        more = len(lines) - SHOWN_DIFFERENCES
        shown = "; ".join(lines[:SHOWN_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")
        raise ValueError(f"checkpoint {folder} belongs to another run: {shown}. Use another folder or empty this one.")
    if lines:  # of a run that has saved nothing
        _write(path / RUN_FILE, text)
    return path, run.token


def _remove_stale(folder: Path) -> None:
    """Remove temporary files left by a killed process."""
    for path in folder.glob(".*.json.*"):
        with suppress(OSError):
            stale = time.time() - path.stat().st_mtime > STALE_SECONDS
            if stale and path.name.startswith((".feature-", ".placebo-", ".sums-", f".{RUN_FILE}.")):
                path.unlink()


def _write(path: Path, text: str, *, keep: bool = False) -> None:
    try:
        write_text(path, text, keep=keep)
    except (OSError, ValueError) as error:
        reason = getattr(error.__cause__, "strerror", None) or error
        raise OSError(
            f"cannot save to the checkpoint {path.parent}: {reason}. What was saved before is kept; make room and "
            "start again to continue"
        ) from None


def _save_record(path: Path, owner: str, value: Any, hint: Any) -> None:
    record = {"of": owner, "value": encode(value, hint)}
    _write(path, json.dumps({"check": _check(record), "record": record}, allow_nan=False) + "\n")


def _load_record(path: Path, owner: str, hint: type[Record]) -> Record:
    """Load what `_save_record` saved; raises a ValueError if the file is damaged."""
    content = parse_json(path.read_bytes())
    if not isinstance(content, dict) or set(content) != {"check", "record"}:
        raise ValueError("it has no check sum")
    record = content["record"]
    if content["check"] != _check(record):
        raise ValueError("its check sum is wrong")
    if set(record) != {"of", "value"} or record["of"] != owner:
        raise ValueError("it is of something else")
    return decode(record["value"], hint)


def _check(record: Any) -> str:
    return digest(json.dumps(record, sort_keys=True).encode())


@dataclass(frozen=True)
class Checkpoint:
    """Features tested, or placebo runs done, so far; workers save each one when it is done.

    Attributes
    ----------
    folder : Path or None
        Where they are kept; None keeps nothing.
    token : str
        What marks the files of this run.
    names : tuple of str
        All features, or runs.
    kind : str
        What files are called.
    holds : type
        What is in them.
    """

    folder: Path | None
    token: str
    names: tuple[str, ...]
    kind: str = "feature"
    holds: Any = Examination

    def _path(self, feature: int) -> Path:
        return (self.folder or Path()) / f"{self.kind}-{self.token}-{feature:05d}.json"

    def save(self, feature: int, finding: Any) -> None:
        """Save one feature, atomically."""
        if self.folder is not None:
            _save_record(self._path(feature), self.names[feature], finding, self.holds)

    def save_here(self, feature: int, finding: Any) -> None:
        """Save from a worker, unless it cannot see the folder."""
        if self.folder is not None and (self.folder / RUN_FILE).exists():
            self.save(feature, finding)

    def save_missing(self, feature: int, finding: Any) -> None:
        """Save a feature that the worker could not save."""
        if not self._path(feature).exists():
            self.save(feature, finding)

    def load(self) -> dict[int, Any]:
        """Load the saved features, with a warning for unusable files."""
        records: dict[int, Any] = {}
        damaged = []
        for feature, name in enumerate(self.names):
            path = self._path(feature)
            if path.exists():
                try:
                    records[feature] = _load_record(path, name, self.holds)
                except DAMAGED:
                    damaged.append(name)
        if damaged:
            warn(
                f"checkpoint {self.folder}: {counted(len(damaged), 'damaged file')} ignored and recomputed: "
                f"{', '.join(map(repr, damaged))}"
            )
        return records


UNSAVED = Checkpoint(None, "", ())


@dataclass(frozen=True)
class SavedSums:
    """Sums over the first pieces of a table."""

    n_pieces: int
    sums: Sums


class PassCheckpoint(NullCheckpoint):
    """Sums over the pieces of a table so far, saved from time to time.

    Parameters
    ----------
    folder : path
        Where they are kept.
    settings : dict
        Every setting, as a result records them.
    seed : int
        The seed.

    """

    wants_digests = True

    def __init__(self, folder: str | os.PathLike[str], settings: dict[str, Any], seed: int) -> None:
        super().__init__()
        self._given = folder
        self._settings = settings
        self._seed = seed
        self._path = Path()
        self._last = time.monotonic()

    def open(self, pieces: Sequence[Mapping[str, Mapping[str, str]]]) -> None:
        """Continue from the saved sums, given the digests of all pieces; refuse those of another table."""
        columns, rows = (joined_digests([digests[what] for digests in pieces]) for what in ("columns", "rows"))
        folder, token = open_folder(
            self._given, SavedRun.from_settings("pieces", self._settings, self._seed, columns, rows)
        )
        self._path = folder / f"sums-{token}.json"

    def load(self) -> SavedSums | None:
        """Load the saved sums."""
        if not self._path.exists():
            return None
        try:
            return _load_record(self._path, "sums", SavedSums)
        except DAMAGED:
            self.notes.append(f"checkpoint {self._path.parent}: {self._path.name} is damaged and not used")
            return None

    def save(self, n_pieces: int, sums: Sums, *, now: bool = False) -> None:
        """Save the sums so far, unless that was done a moment ago."""
        if now or time.monotonic() - self._last >= SAVE_SECONDS:
            _save_record(self._path, "sums", SavedSums(n_pieces, sums), SavedSums)
            self._last = time.monotonic()


def seed_of(random_state: Any, checkpoint: str | os.PathLike[str] | None) -> int:
    """The seed; without a given one, that of the run to continue."""
    known = saved_seed(checkpoint) if random_state is None else None
    return entropy_of(random_state) if known is None else known


def continued_tests(
    params: dict[str, Any], data: Data, run: RunSettings, seed: int
) -> tuple[Checkpoint, dict[int, Examination]]:
    """Checkpoint of the features, and the features it already holds.

    Parameters
    ----------
    params : dict
        Arguments of the selector.
    data : Data
        The table.
    run : RunSettings
        What is to be done with it.
    seed : int
        The seed.

    Raises
    ------
    ValueError
        The folder holds a run with other data or settings.
    """
    if params["checkpoint"] is None:
        return UNSAVED, {}
    settings = _settings(params, run.statistic, run.test)
    settings["feature_groups"] = {name: list(columns) for name, columns in run.feature_groups.items()}
    settings["adjust_for"] = list(data.adjusted)
    names = tuple(unit.name for unit in data.units)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of too few resamples, which the test says itself
        n_resamples = run.max_resamples(len(names))
    settings |= {"n_resamples_used": n_resamples} if n_resamples else {}
    block = data.block
    rows = row_digests(
        treatment=block.treatment,
        y=block.y,
        propensity=data.first_pass.sample.propensity,
        weights=block.weights.given,
        clusters=block.clusters.given,
        strata=data.strata,
    )
    same = SavedRun.from_settings("whole", settings, seed, table_digests(block.table), rows)
    checkpoint = Checkpoint(*open_folder(params["checkpoint"], same), names)
    return checkpoint, checkpoint.load()


def continued_pass(
    params: dict[str, Any], statistic: Statistic, test: ConditionalRandomizationTest, given: Given, seed: int
) -> NullCheckpoint:
    """Checkpoint of the sums over a longer table; its data are compared when they are first read."""
    if params["checkpoint"] is None:
        return NullCheckpoint()
    settings = _settings(params, statistic, test)
    adjusted = [] if given.adjust_for is None else readable(list(given.adjust_for))
    return PassCheckpoint(
        params["checkpoint"], {**settings, "treated": readable(given.treated), "adjust_for": adjusted}, seed
    )


def _settings(params: dict[str, Any], statistic: Statistic, test: ConditionalRandomizationTest) -> dict[str, Any]:
    """Settings that a continued run must share."""
    used = dict(params)
    if not statistic.resamples:
        used.pop("test")
    model = resolve_propensity(params["propensity"])
    known = row_scores(params["propensity"]) is not None
    used["propensity"] = "one known score per row" if known else model.estimator
    if isinstance(used["discrete_features"], np.ndarray | pd.Series):
        used["discrete_features"] = list(used["discrete_features"])  # arrays are recorded in short
    sampler = agreeing_sampler(params["sampler"], statistic, params["device"])
    settings = recorded_settings(used, statistic, sampler, test)
    return {**settings, "propensity_clip": list(model.clip), "propensity_cross_fit": model.cross_fit}
