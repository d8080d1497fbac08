"""More cross-fits for features near the cut: what is decided there should not be the draw of the folds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from modifind._threads import one_thread
from modifind.engine.analysis import Analysis, ChangeRows
from modifind.engine.assemble import Examined
from modifind.engine.table import draw_folds
from modifind.inference import AnalyticOutcome, adjust_p_values

LOW, HIGH = 0.2, 4.0  # times alpha, between which adjusted p-values are near the cut
MAX_P, FEW_ROWS = 0.25, 500
ROWS = 2000  # over the number of rows is the number of cross-fits
MAX_FITS = 5


def steadied(analysis: Analysis, examined: dict[int, Examined]) -> dict[int, Examined]:
    """Tests in which features near the cut are judged by several cross-fits together.

    With few rows the draw of the folds moves p-values: at n = 300 the same true modifier can have p = 0.02 or p = 0.4.
    What rows add to the test is averaged over 2,000 / n cross-fits, five at most, as with ``cv_repeats``; with 1,000
    rows there are two, and with more rows one. Near the cut are adjusted p-values between a fifth of alpha and four
    times alpha, and with at most 500 rows raw ones up to 0.25, which other folds may carry there.

    Parameters
    ----------
    analysis : Analysis
        What features were tested with.
    examined : dict of Examined
        What the first cross-fit found of every unit.
    """
    run, table, models = analysis.run, analysis.table, analysis.models
    n_fits, near = min(ROWS // table.block.y.size, MAX_FITS), _near_the_cut(analysis, examined)
    if n_fits < 2 or not near:
        return examined
    fold_seeds = table.stream(run, "repeats").spawn(n_fits - 1)
    folds = tuple(draw_folds(table.data, table.block, run.n_folds, *seed.spawn(1)) for seed in fold_seeds)
    prepared = run.statistic.repeated(models.prepared, replace(models.nuisances, folds=folds))
    if prepared is None:
        return examined
    table = replace(table, folds=(*table.folds, *folds))
    models = replace(models, prepared=prepared, explaining=None)
    changing = ChangeRows.of(table, models, np.arange(table.block.y.size))
    together = Analysis(replace(run, explain=False), table, models, analysis.explainer, changing)
    seeds, steady = analysis.seeds, dict(examined)
    with one_thread():
        for place in near:
            outcome = together.examine(table.units[place], seeds[place]).outcome
            assert isinstance(outcome, AnalyticOutcome)
            steady[place] = replace(examined[place], outcome=replace(outcome, n_repeats=n_fits))
    return steady


def _near_the_cut(analysis: Analysis, examined: dict[int, Examined]) -> list[int]:
    """Places of the single features that other folds may decide otherwise."""
    run, n_rows = analysis.run, analysis.table.block.y.size
    outcomes = [examined[place].outcome for place in range(len(examined))]
    p_values = np.array([1.0 if outcome is None else outcome.p_value for outcome in outcomes])
    adjusted = adjust_p_values(p_values, run.adjust)
    close = (adjusted <= HIGH * run.alpha) | ((p_values <= MAX_P) & (n_rows <= FEW_ROWS))
    close &= adjusted >= LOW * run.alpha
    single = np.array([len(unit.members) == 1 for unit in analysis.table.units])
    analytic = np.array([isinstance(outcome, AnalyticOutcome) for outcome in outcomes])
    return np.flatnonzero(close & single & analytic).tolist()
