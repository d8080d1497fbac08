"""What of a half's finds the other half of a real trial repeats: the `halves` study of `by_hand.py`.

Trials of the atlas with at least 1,000 rows are halved at random, clusters whole. In one half features are selected by
the default test and by interactions in a model, both at a false discovery rate of 0.05. In the other half finds of both
are repeated by the same test, that of the model: one-sided at 0.05 in the direction of the first half for a feature
with one column, jointly at 0.05 for a category. It is kind to what a model sees: a find of spread or shape alone is
not repeated by it.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

import atlas
import placebo
from by_hand_studies import Case
from by_hand_tables import OURS, Target

LEAST_ROWS, ROWS = 1_000, 6_000
ALPHA = 0.05


def cases(args: Any) -> list[Case]:
    n = args.rows or ROWS
    return [
        Case(one.name, min(n, len(one.y) // 2), partial(halve, one, n), Target("peer"), one.table)
        for one in atlas.read_experiments(args.outcomes)
        if one.is_trial and len(one.y) >= LEAST_ROWS
    ]


def halve(experiment: atlas.Experiment, n: int, seed: int) -> dict[str, Any]:
    """Finds in one half of at most n rows, and which of them the other repeats."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng([seed, 101])
    some = atlas.some_rows(experiment, 2 * n, rng)
    first, second = (some.part(rows) for rows in split(some, rng))
    answer = placebo.test(first, seed, coin=False)
    models = [placebo.by_model(half) for half in (first, second)]
    again = repeated(*models)
    chosen = {OURS: answer.selected, "by hand": false_discovery_control(models[0]["p_value"]) <= ALPHA}
    return {
        "methods": {name: counts(selected, again, list(models[0].index)) for name, selected in chosen.items()},
        "seconds": round(answer.seconds, 3),
    }


def split(experiment: atlas.Experiment, rng: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    rows = len(experiment.y)
    unit = np.arange(rows) if experiment.clusters is None else pd.factorize(experiment.clusters)[0]
    order = rng.permutation(unit.max() + 1)
    size = np.bincount(unit)[order].cumsum()
    in_first = np.isin(unit, order[size <= rows / 2])
    return np.flatnonzero(in_first), np.flatnonzero(~in_first)


def repeated(first: pd.DataFrame, second: pd.DataFrame) -> NDArray[np.bool_]:
    """Whether the second half shows what the first one does: its direction, or, of a category, any difference."""
    one_column = (first["df"] == 1) & (second["df"] == 1)
    alike = np.sign(first["z"]) == np.sign(second["z"])
    one_sided = np.where(alike, second["p_value"] / 2, 1 - second["p_value"] / 2)
    return np.where(one_column, one_sided, second["p_value"]) <= ALPHA


def counts(selected: NDArray[np.bool_], again: NDArray[np.bool_], names: list[str]) -> dict[str, Any]:
    return {
        "finds": int(selected.sum()),
        "replicated": int((selected & again).sum()),
        "selected": [name for name, chosen in zip(names, selected, strict=True) if chosen],
    }
