"""From a selector's settings and data to the checkpoint that its run continues."""

from __future__ import annotations

import os
import warnings
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd

from modifind.data.feature_groups import arrange
from modifind.data.sources import has_row_scores
from modifind.engine.assemble import Finding
from modifind.engine.checkpoint import Checkpoint, PassCheckpoint, Run, open_folder, saved_seed
from modifind.engine.fingerprint import row_digests, table_digests
from modifind.engine.parts import Statistic, agreeing_sampler, recorded_settings
from modifind.engine.reading import Data
from modifind.engine.record import entropy_of, readable
from modifind.inference import ConditionalRandomizationTest
from modifind.nuisance.propensity.scores import resolve_propensity


def seed_of(random_state: Any, checkpoint: str | os.PathLike[str] | None) -> int:
    """The seed; where none is given, that of the run to be continued."""
    known = saved_seed(checkpoint) if random_state is None else None
    return entropy_of(random_state) if known is None else known


def continued_tests(
    params: dict[str, Any],
    data: Data,
    groups: dict[str, tuple[str, ...]],
    statistic: Statistic,
    test: ConditionalRandomizationTest,
    seed: int,
) -> tuple[Checkpoint | None, dict[int, Finding]]:
    """Where features are saved, and those that are.

    Parameters
    ----------
    params : dict
        Arguments of the selector.
    data : Data
        The table.
    groups : dict
        Columns that are tested together, by the name of their group.
    statistic, test : objects
        As they are used.
    seed : int
        The seed.

    Raises
    ------
    ValueError
        The folder holds a run with other data or settings.
    """
    if params["checkpoint"] is None:
        return None, {}
    settings = _settings(params, statistic, test)
    settings["feature_groups"] = {name: list(columns) for name, columns in groups.items()}
    settings["adjust_for"] = list(data.adjusted)
    names = tuple(unit.name for unit in arrange(data.table, groups, data.adjusted)[1])
    if statistic.resamples:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of too few resamples, which the test says itself
            settings["n_resamples_used"] = test.resolve_resamples(
                params["n_resamples"], len(names), params["alpha"], params["adjust"]
            )
    more = {field.name: getattr(data, field.name) for field in fields(data) if field.name not in ("table", "treatment")}
    per_row = {name: value for name, value in more.items() if isinstance(value, np.ndarray | pd.Series)}
    if data.strata is not None:
        per_row["strata"] = data.strata.codes
    rows = row_digests(treatment=data.arms, propensity=_row_scores(params["propensity"]), **per_row)
    run = Run.of("whole", settings, seed, table_digests(data.table), rows)
    checkpoint = Checkpoint(*open_folder(params["checkpoint"], run), names)
    return checkpoint, checkpoint.load()


def continued_pass(
    params: dict[str, Any],
    statistic: Statistic,
    test: ConditionalRandomizationTest,
    treated: Any,
    adjust_for: Any,
    seed: int,
) -> PassCheckpoint:
    """Where the sums over a table in pieces are saved; the data are compared when they are first read."""
    settings = _settings(params, statistic, test)
    adjusted = [] if adjust_for is None else readable(list(adjust_for))
    return PassCheckpoint(
        params["checkpoint"], {**settings, "treated": readable(treated), "adjust_for": adjusted}, seed
    )


def _settings(params: dict[str, Any], statistic: Statistic, test: ConditionalRandomizationTest) -> dict[str, Any]:
    """The settings that a continued run must share."""
    used = dict(params)
    if not statistic.resamples:
        used.pop("test")
    model = resolve_propensity(params["propensity"])
    known = _row_scores(params["propensity"]) is not None
    used["propensity"] = "one known score per row" if known else model.estimator
    if isinstance(used["discrete_features"], np.ndarray | pd.Series):
        used["discrete_features"] = list(used["discrete_features"])  # arrays are recorded in short
    sampler = agreeing_sampler(params["sampler"], statistic, params["device"])
    settings = recorded_settings(used, statistic, sampler, test)
    return {**settings, "propensity_clip": list(model.clip), "propensity_cross_fit": model.cross_fit}


def _row_scores(propensity: Any) -> Any:
    """Known propensity scores, one per row, if that is what they are."""
    return getattr(propensity, "estimator", propensity) if has_row_scores(propensity) else None
