"""More cross-fits for features near the cut: what is decided there should not be the draw of the folds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import norm

from modifind._threads import one_thread
from modifind._typing import Array
from modifind.engine.analysis import Analysis, ChangeRows
from modifind.engine.assemble import Examined
from modifind.engine.table import draw_folds
from modifind.inference import AnalyticOutcome, adjust_p_values

LOW, HIGH = 0.2, 4.0  # times alpha, between which adjusted p-values are near the cut
RAW, FEW_ROWS = 0.25, 500
STEADY = 0.3  # standard error of z over cross-fits
ROWS = 2000  # over the number of rows is the number of cross-fits that there may be
LEAST, MOST = 3, 8
LARGEST_P = 0.95


def steadied(analysis: Analysis, examined: dict[int, Examined]) -> dict[int, Examined]:
    """Tests in which features near the cut are judged by several cross-fits.

    With few rows the draw of the folds moves p-values: at n = 300 the same true modifier can have p = 0.02 or p = 0.4.
    Each further cross-fit tests the features anew, and the mean of their z is compared with the normal distribution of
    a single one. It varies at most as much, so that the level holds. It ends when the mean is steady to 0.3, after
    three cross-fits at least, or after 2,000 / n of them, eight at most: with 1,000 rows two, and with more rows none
    is added. Near the cut are adjusted p-values between a fifth of alpha and four times alpha, and with at most 500
    rows raw ones up to 0.25, which other folds may carry there.

    Parameters
    ----------
    analysis : Analysis
        What features were tested with.
    examined : dict of Examined
        What the first cross-fit found of every unit.
    """
    run, table, models = analysis.run, analysis.table, analysis.models
    most, statistic = min(ROWS // table.block.y.size, MOST), run.statistic.refitted(models.prepared)
    outcomes = {} if most < 2 or statistic is None else _near_the_cut(analysis, examined)
    if not outcomes or statistic is None:
        return examined
    quiet, seeds = replace(run, statistic=statistic, explain=False), analysis.seeds
    fold_seeds = table.stream(run, "repeats").spawn(most - 1)
    for number, seed in enumerate(fold_seeds, start=2):
        folds = (draw_folds(table.data, table.block, run.n_folds, *seed.spawn(1)),)
        prepared = statistic.prepare(replace(models.nuisances, folds=folds))
        again = replace(models, prepared=prepared, explaining=None)
        refitted = replace(table, folds=folds)
        other = Analysis(
            quiet, refitted, again, analysis.explainer, ChangeRows.of(refitted, again, np.arange(table.block.y.size))
        )
        with one_thread():
            for place in outcomes:
                outcome = other.examine(table.units[place], seeds[place]).outcome
                assert isinstance(outcome, AnalyticOutcome)
                outcomes[place].append(outcome)
        if number >= LEAST and max(map(_spread, outcomes.values())) < STEADY:
            break
    return examined | {place: replace(examined[place], outcome=_mean(each)) for place, each in outcomes.items()}


def _near_the_cut(analysis: Analysis, examined: dict[int, Examined]) -> dict[int, list[AnalyticOutcome]]:
    """First outcomes of the single features that other folds may decide otherwise, by their places."""
    run, n_rows = analysis.run, analysis.table.block.y.size
    outcomes = [examined[place].outcome for place in range(len(examined))]
    p_values = np.array([1.0 if outcome is None else outcome.p_value for outcome in outcomes])
    adjusted = adjust_p_values(p_values, run.adjust)
    close = (adjusted <= HIGH * run.alpha) | ((p_values <= RAW) & (n_rows <= FEW_ROWS))
    close &= adjusted >= LOW * run.alpha
    single = np.array([len(unit.members) == 1 for unit in analysis.table.units])
    first = ((int(place), outcomes[place]) for place in np.flatnonzero(close & single))
    return {place: [outcome] for place, outcome in first if isinstance(outcome, AnalyticOutcome)}


def _z(p_values: list[float]) -> Array:
    """Normal scores; a cross-fit that sees nothing at all must not outweigh the others."""
    return norm.isf(np.clip(p_values, 1e-300, LARGEST_P))


def _spread(outcomes: list[AnalyticOutcome]) -> float:
    """Standard error of the mean z over cross-fits."""
    return float(_z([own.p_value for own in outcomes]).std(ddof=1) / np.sqrt(len(outcomes)))


def _mean(outcomes: list[AnalyticOutcome]) -> AnalyticOutcome:
    """What several cross-fits say together."""

    def mean(name: str) -> float:
        return float(np.mean([getattr(own, name) for own in outcomes]))

    def p_value(name: str) -> float:
        return float(norm.sf(_z([getattr(own, name) for own in outcomes]).mean()))

    likelihood, direct = p_value("likelihood_p_value"), p_value("direct_p_value")
    means: dict[str, Any] = {name: mean(name) for name in ("statistic", "gain", "gain_low", "gain_high")}
    found = replace(
        outcomes[0],
        p_value=likelihood,
        likelihood_p_value=likelihood,
        normal_p_value=p_value("normal_p_value"),
        n_repeats=len(outcomes),
        z_spread=_spread(outcomes),
        **means,
    )
    return found if np.isnan(direct) else found.with_direct(direct)
