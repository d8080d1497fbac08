"""Real outcomes for placebo runs, from the folder named by the environment variable `MODIFIND_DATA`.

The folder has `nhanes_crp.csv` and the tables of `SOURCES`; what is absent is skipped. The embedded trial is always
there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind.datasets import load_trial
from modifind.datasets.nhanes import CONTINUOUS, DISCRETE


class Outcome(NamedTuple):
    """An outcome of a real table, with the features that go with it."""

    name: str
    X: pd.DataFrame
    y: NDArray[np.float64]


class Source(NamedTuple):
    """A file, its outcomes, the columns that are no features, and those whose numbers are names."""

    name: str
    file: str
    outcomes: tuple[str, ...]
    left_out: tuple[str, ...]
    nominal: tuple[str, ...] = ()


# Left out: the treatment and what follows it, identifiers, clusters, and copies of other columns.
SOURCES = (
    Source("hillstrom", "real/hillstrom.csv.xz", ("visit", "conversion", "spend"), ("segment", "history_segment")),
    Source("randhie", "real/randhie.csv.xz", ("mdvis",), ("lncoins", "idp")),
    Source("star", "real/Ecdat_Star.csv", ("tmathssk", "treadssk"), ("classk", "rownames", "schidkn")),
    Source("thornton", "real/thornton_hiv.csv", ("got",), ("any", "tinc", "villnum")),
    Source("gbsg", "real/survival_gbsg.csv", ("rfstime",), ("hormon", "status", "rownames", "pid")),
    Source(
        "cattaneo2",
        "real/cattaneo2.csv.xz",
        ("bweight",),
        ("mbsmoke", "lbweight", "msmoke", "mbsmoke_", "mmarried_", "fbaby_", "prenatal1_", "mage2"),
        nominal=("birthmonth",),
    ),
)


def read_outcomes(prefix: str = "") -> list[Outcome]:
    """Every outcome whose name begins with `prefix`; prints why a table is skipped."""
    return [outcome for outcome in _outcomes() if outcome.name.startswith(prefix)]


def _outcomes() -> Iterator[Outcome]:
    trial = load_trial()
    yield Outcome("embedded trial pressure_change", trial.X, trial.y.to_numpy(np.float64))
    if not os.environ.get("MODIFIND_DATA"):
        print("Skipped all real tables: MODIFIND_DATA names no folder.\n")
        return
    folder = Path(os.environ["MODIFIND_DATA"]).expanduser()
    for source in SOURCES:
        if _is_there(folder, source.file):
            frame = pd.read_csv(folder / source.file)
            for outcome in source.outcomes:
                yield _outcome(source, frame, outcome)
    if _is_there(folder, "nhanes_crp.csv"):
        frame = pd.read_csv(folder / "nhanes_crp.csv")
        X, crp = frame[[*CONTINUOUS, *DISCRETE]], frame["Y"].to_numpy(np.float64)
        yield Outcome("nhanes CRP", X, crp)
        yield Outcome("nhanes log CRP", X, np.log(crp))


def _is_there(folder: Path, file: str) -> bool:
    found = (folder / file).is_file()
    if not found:
        print(f"Skipped {file}: not in the folder that MODIFIND_DATA names.\n")
    return found


def _outcome(source: Source, frame: pd.DataFrame, outcome: str) -> Outcome:
    """Rows whose outcome is known; the source's other outcomes are no features."""
    known = frame.dropna(subset=[outcome]).reset_index(drop=True)
    X = known.drop(columns=[*source.outcomes, *source.left_out])
    X = X.astype(dict.fromkeys(source.nominal, "category"))
    return Outcome(f"{source.name} {outcome}", X, known[outcome].to_numpy(np.float64))
