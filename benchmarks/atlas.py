"""Public randomised experiments with their designs, from `atlas/atlas.json` in the folder named by `$MODIFIND_DATA`.

What is absent is skipped, with a line that says so. Censored times are left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray


class Experiment(NamedTuple):
    """One outcome of one experiment: rows of the two compared arms whose outcome is known."""

    table: str
    outcome: str
    kind: str  # numeric, binary, count, ordinal or amount
    X: pd.DataFrame  # features, and what is only adjusted for
    treatment: NDArray[np.int64]
    y: NDArray[np.float64]
    adjust: list[str]
    clusters: NDArray[Any] | None
    strata: NDArray[Any] | None
    share: float | None  # of treated rows by design, where there is one share for all
    by_cluster: bool
    is_trial: bool

    @property
    def name(self) -> str:
        return f"{self.table} {self.outcome}"

    @property
    def features(self) -> list[str]:
        return [str(name) for name in self.X if name not in self.adjust]

    @property
    def scale(self) -> str:
        return "odds_ratio" if self.kind == "ordinal" else "difference"

    def settings(self, *, coin: bool) -> dict[str, Any]:
        """What the selector is to know; a coin replaces the share of the design."""
        known: dict[str, Any] = {"outcome": self.kind, "effect_scale": self.scale, "missing": "category"}
        share = 0.5 if coin else self.share
        return known if share is None else {**known, "propensity": share}

    def part(self, rows: NDArray[np.intp]) -> Experiment:
        return self._replace(
            X=self.X.iloc[rows].reset_index(drop=True),
            treatment=self.treatment[rows],
            y=self.y[rows],
            clusters=None if self.clusters is None else self.clusters[rows],
            strata=None if self.strata is None else self.strata[rows],
        )


def read_experiments(outcomes: str = "first") -> Iterator[Experiment]:
    """Every table without censoring, its first outcome or all."""
    data = os.environ.get("MODIFIND_DATA")
    file = Path(data).expanduser() / "atlas" / "atlas.json" if data else None
    if file is None or not file.is_file():
        reason = "is not in the folder that MODIFIND_DATA names" if data else "MODIFIND_DATA names no folder"
        print(f"Skipped the atlas: {'atlas/atlas.json ' if data else ''}{reason}.\n")
        return
    for entry in json.loads(file.read_text(encoding="utf-8"))["tables"]:
        if any(outcome["kind"] == "time" for outcome in entry["outcomes"]):
            continue
        path = file.parent / entry["file"]
        if not path.is_file():
            print(f"Skipped {entry['name']}: no file {entry['file']} in the atlas.\n")
            continue
        for outcome in entry["outcomes"][: 1 if outcomes == "first" else None]:
            yield _experiment(entry, outcome, _frame(path))


@cache
def _frame(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, low_memory=False)


def _experiment(entry: dict[str, Any], outcome: dict[str, Any], frame: pd.DataFrame) -> Experiment:
    treatment = entry["treatment"]
    labels = frame[treatment["column"]].map(_label)
    compared = labels.isin([_label(treatment["reference"]), _label(treatment["treated"])])
    rows = frame[compared & frame[outcome["column"]].notna()].reset_index(drop=True)
    a = (rows[treatment["column"]].map(_label) == _label(treatment["treated"])).to_numpy().astype(np.int64)
    X = rows[[*entry["features"], *entry["adjust"]]].copy()
    for name in X:
        if name in entry["discrete"] or not pd.api.types.is_numeric_dtype(X[name]):
            X[name] = X[name].map(_label, na_action="ignore").astype("category")
    sure = entry["quality"] == "good" and entry["propensity"] is not None
    return Experiment(
        entry["name"],
        outcome["column"],
        outcome["kind"],
        X,
        a,
        _numbers(rows[outcome["column"]]),
        list(entry["adjust"]),
        rows[entry["clusters"]].to_numpy() if entry["clusters"] else None,
        rows[entry["strata"]].to_numpy() if entry["strata"] else None,
        float(entry["propensity"]) if sure else None,
        entry["randomised"] == "cluster",
        entry["randomised"] != "no",
    )


def _label(value: Any) -> str:
    """Labels as the codebook writes them: whole numbers without a point, truth values in lower case where so there."""
    return f"{value:g}" if isinstance(value, (float, np.floating)) else str(value)


def _numbers(outcome: pd.Series) -> NDArray[np.float64]:
    """Outcomes are numbers; a word of a binary one is one where it comes second by the alphabet."""
    if pd.api.types.is_numeric_dtype(outcome) or pd.api.types.is_bool_dtype(outcome):
        return outcome.to_numpy(np.float64)
    return pd.Categorical(outcome).codes.astype(np.float64)


def some_rows(experiment: Experiment, n: int, rng: np.random.Generator) -> Experiment:
    """At most n rows at random, clusters whole."""
    if len(experiment.y) <= n:
        return experiment
    if experiment.clusters is None:
        return experiment.part(np.sort(rng.choice(len(experiment.y), n, replace=False)))
    code, names = pd.factorize(experiment.clusters)
    order = rng.permutation(len(names))
    size = np.bincount(code)[order].cumsum()
    return experiment.part(np.flatnonzero(np.isin(code, order[size <= n])))
