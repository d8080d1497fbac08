"""Placebo treatments: the same analysis of the same table with a treatment that has no effect.

The treatment is redrawn as it was assigned: with a known probability, the shares within strata, by clusters if whole
clusters were treated, or with the fitted scores. Everything is refitted, and every discovery is false. Under chance
alone at most a share alpha of such runs selects anything at level alpha (with "bh", "by", "holm" and "bonferroni"; with
"none" as many as under single tests of all features).
"""

from __future__ import annotations

import warnings
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from modifind._typing import Array, Ints
from modifind._warned import warn
from modifind._workers import WORKER_DIED, ProgressBar, survivors
from modifind.data.clusters import is_within
from modifind.data.features import MIN_ARM_ROWS
from modifind.data.sources import Piece
from modifind.data.treatment import Design
from modifind.data.words import counted
from modifind.engine.checkpoint import UNSAVED, Checkpoint
from modifind.engine.fitting import fit_table
from modifind.engine.preparation import PreparedTable, design_of, fit_scores, read_for
from modifind.engine.reading import Data, FirstPass, Reading
from modifind.engine.settings import RunSettings
from modifind.inference import adjust_p_values
from modifind.result.placebo_result import PlaceboResult

STREAM = 8  # of the seed: apart from what the fit itself draws
MAX_DRAWS = 100


@dataclass(frozen=True)
class PlaceboRun:
    """P-values of one placebo run, in feature order."""

    p_values: Array


@dataclass(frozen=True)
class Assignment:
    """How treatment was assigned: to which units, and with what probability.

    Attributes
    ----------
    arms : int array of shape (n,)
        0 or 1 for every row.
    scores : array of shape (n,)
        Chance of every row to be treated.
    units : int array of shape (n,)
        What is treated as a whole: the row itself, or its cluster.
    strata : int array of shape (n,), optional
        Where the number of treated units is kept.
    described : str
        The same in words.
    """

    arms: Ints
    scores: Array
    units: Ints
    strata: Ints | None
    described: str

    @classmethod
    def of(cls, data: Data, scores: Array, design: Design) -> Assignment:
        """Infer the assignment from the table, its scores and its design."""
        units, of_what, clusters, strata = np.arange(data.arms.size), "row", data.block.clusters, data.strata
        if not clusters.of_rows and is_within(data.arms, clusters.codes):
            units, of_what = clusters.codes.astype(np.int64), "cluster"
        if strata is not None and not is_within(strata, units):
            strata = None  # clusters that lie in several strata
        if strata is not None and design.chance != "known":
            return cls(data.arms, scores, units, strata, f"the treated {of_what}s of every stratum were drawn anew")
        if design.chance == "observed":
            everyone = np.zeros(units.size, dtype=np.int64)
            return cls(data.arms, scores, units, everyone, f"as many {of_what}s as were treated were drawn anew")
        by = "the known probability" if design.chance == "known" else "the fitted propensity score"
        return cls(data.arms, scores, units, None, f"every {of_what} was assigned by {by}")

    def draw(self, rng: np.random.Generator) -> Ints:
        """Draw a placebo treatment in which both arms have enough rows."""
        first = np.unique(self.units, return_index=True)[1]
        sizes = np.bincount(self.units)
        chances = np.bincount(self.units, self.scores) / sizes
        for _ in range(MAX_DRAWS):
            if self.strata is None:
                of_units = (rng.random(first.size) < chances).astype(np.int64)
            else:
                of_units = self.arms[first].copy()
                for stratum in np.unique(self.strata):
                    inside = np.flatnonzero(self.strata[first] == stratum)
                    of_units[inside] = rng.permutation(of_units[inside])
            drawn = of_units[self.units]
            if min(drawn.sum(), drawn.size - drawn.sum()) >= MIN_ARM_ROWS:
                return drawn
        raise ValueError(
            f"a placebo treatment by these scores leaves fewer than {MIN_ARM_ROWS} rows in an arm in each of "
            f"{MAX_DRAWS} draws; scores nearer to one half are needed"
        )


def run_placebos(
    fit: RunSettings, reading: Reading, first_pass: FirstPass, n: int, checkpoint: Checkpoint = UNSAVED
) -> tuple[PlaceboResult, bool]:
    """Analyse a table with placebo treatments.

    Parameters
    ----------
    fit : RunSettings
        The analysis; runs are spread over its processes, and its progress is told by runs.
    reading : Reading
        How the table is read.
    first_pass : FirstPass
        The table with its own treatment, all of its rows at hand.
    n : int
        Number of runs. Run k is the same whatever their number.
    checkpoint : Checkpoint
        Where runs are saved as soon as they are done.

    Returns
    -------
    result : PlaceboResult
        What was found.
    interrupted : bool
        Whether Ctrl-C came before all runs were done.
    """
    seed = np.random.SeedSequence(fit.seed, spawn_key=(STREAM,))
    score_seed, *seeds = seed.spawn(n + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the fit itself has said it
        table = PreparedTable.of(fit, read_for(fit, reading, first_pass))
        scores = fit_scores(fit, table, score_seed)
    assignment = Assignment.of(table.data, scores.scores, design_of(fit, table.data))
    quiet = replace(fit, n_jobs=1, progress=False, explain=False)
    labels = tuple(f"placebo {k + 1}" for k in range(n)) if checkpoint.folder else ()
    saved = replace(checkpoint, names=labels, kind="placebo", holds=PlaceboRun)
    runs: dict[int, PlaceboRun] = saved.load()
    left = {k: run_seed for k, run_seed in enumerate(seeds) if k not in runs}
    failures: dict[int, str] = {}
    interrupted = False
    results = survivors(_run_some, (quiet, reading, first_pass.sample, assignment), left, fit.n_jobs, most_tasks=n)
    try:
        with ProgressBar(fit.progress, "Placebo treatments") as advance, closing(results):
            advance(len(runs), n)
            for k, run in results:
                if isinstance(run, PlaceboRun):
                    runs[k] = run
                    saved.save(k, run)
                else:
                    failures[k] = run or WORKER_DIED
                advance(len(runs) + len(failures), n)
    except KeyboardInterrupt:
        interrupted = True
    reasons = list(failures.values())
    if reasons and not (runs or interrupted):
        raise ValueError(reasons[0])
    if reasons:
        failed = f"{len(reasons)} of {counted(n, 'placebo treatment')} could not be analysed"
        warn(f"{failed}: {'; '.join(dict.fromkeys(reasons))}")
    names = tuple(unit.name for unit in table.units)
    return _result(fit, names, n, runs, assignment.described), interrupted


def _result(
    fit: RunSettings, names: tuple[str, ...], n: int, found: dict[int, PlaceboRun], described: str
) -> PlaceboResult:
    """Result of the completed runs, of `n` requested."""
    runs = sorted(found)
    p_values = np.array([found[k].p_values for k in runs], dtype=np.float64).reshape(len(runs), len(names))
    selected = [adjust_p_values(of_run, fit.adjust) <= fit.alpha for of_run in p_values]
    table = pd.DataFrame(
        {
            "run": np.repeat(np.array(runs, dtype=np.int64) + 1, len(names)),
            "feature": np.tile(np.array(names, dtype=object), len(runs)),
            "p_value": p_values.ravel(),
            "selected": np.array(selected, dtype=bool).ravel(),
        }
    )
    chance = fit.alpha if fit.adjust != "none" else 1.0 - (1.0 - fit.alpha) ** len(names)
    return PlaceboResult(table, n, chance, described)


def _run_some(
    fit: RunSettings,
    reading: Reading,
    sample: Piece,
    assignment: Assignment,
    pairs: list[tuple[int, np.random.SeedSequence]],
) -> list[tuple[int, PlaceboRun | str]]:
    return [(k, _run_one(fit, reading, sample, assignment, seed)) for k, seed in pairs]


def _run_one(
    fit: RunSettings, reading: Reading, sample: Piece, assignment: Assignment, seed: np.random.SeedSequence
) -> PlaceboRun | str:
    """One placebo run, or the reason why the table cannot be analysed with the drawn treatment."""
    draw_seed, fit_seed = seed.spawn(2)
    arms = assignment.draw(np.random.default_rng(draw_seed))
    drawn = replace(sample, treatment=pd.Series(arms, index=sample.X.index, name=sample.treatment.name))
    refit = replace(fit, seed=int(fit_seed.generate_state(1, np.uint64)[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            data = read_for(refit, replace(reading, treated=1), reading.at_once(drawn))
            result = fit_table(refit, PreparedTable.of(refit, data))
        except (ValueError, np.linalg.LinAlgError) as error:
            return str(error)
    if result.interrupted:
        raise KeyboardInterrupt
    return PlaceboRun(np.array([finding.p_value for finding in result.findings]))
