"""The checkpoint that a run continues, found by its settings and data."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import pandas as pd

from modifind.data.containers import row_scores
from modifind.engine.assemble import Examined
from modifind.engine.checkpoint import UNSAVED, Checkpoint, PassCheckpoint, SavedRun, open_folder, saved_seed
from modifind.engine.fingerprint import row_digests, table_digests
from modifind.engine.parts import Statistic, agreeing_sampler
from modifind.engine.passes import NullCheckpoint
from modifind.engine.reading import Data, Given
from modifind.engine.record import entropy_of, readable, recorded_settings
from modifind.engine.run import RunSettings
from modifind.inference import ConditionalRandomizationTest
from modifind.nuisance.propensity.scores import resolve_propensity


def seed_of(random_state: Any, checkpoint: str | os.PathLike[str] | None) -> int:
    """The seed; where none is given, that of the run to be continued."""
    known = saved_seed(checkpoint) if random_state is None else None
    return entropy_of(random_state) if known is None else known


def continued_tests(
    params: dict[str, Any], data: Data, run: RunSettings, seed: int
) -> tuple[Checkpoint, dict[int, Examined]]:
    """The checkpoint of the features, and those that it holds.

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
    """The checkpoint of the sums over a longer table; its data are compared when they are first read."""
    if params["checkpoint"] is None:
        return NullCheckpoint()
    settings = _settings(params, statistic, test)
    adjusted = [] if given.adjust_for is None else readable(list(given.adjust_for))
    return PassCheckpoint(
        params["checkpoint"], {**settings, "treated": readable(given.treated), "adjust_for": adjusted}, seed
    )


def _settings(params: dict[str, Any], statistic: Statistic, test: ConditionalRandomizationTest) -> dict[str, Any]:
    """The settings that a continued run must share."""
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
