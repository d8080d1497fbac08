"""More cross-fits for features near the cut: what is decided there should not be the draw of the folds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import norm

from modifind._threads import one_thread
from modifind._typing import Array
from modifind.engine.assemble import Finding
from modifind.engine.features import Analysis, with_bounds
from modifind.engine.testers import AnalyticTester
from modifind.inference import adjust_p_values
from modifind.inference.tails import AnalyticOutcome
from modifind.nuisance.conditional import Conditional
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood

LOW, HIGH = 0.2, 4.0  # times alpha, between which adjusted p-values are near the cut
RAW, FEW_ROWS = 0.25, 500
STEADY = 0.3  # standard error of z over cross-fits
ROWS = 2000  # over the number of rows is the number of cross-fits that there may be
LEAST, MOST = 3, 8
LARGEST_P = 0.95


def steadied(
    plan: Analysis,
    findings: list[Finding],
    adjust: str,
    seed: np.random.SeedSequence,
    model: Callable[[np.random.SeedSequence], PreparedEffectLikelihood],
) -> list[Finding]:
    """Findings in which features near the cut are judged by several cross-fits.

    With few rows the draw of the folds moves p-values: at n = 300 the same true modifier can have p = 0.02 or p = 0.4.
    Each further cross-fit tests the features anew, and the mean of their z is compared with the normal distribution of
    a single one. It varies at most as much, so that the level holds. It ends when the mean is steady to 0.3, after
    three cross-fits at least, or after 2,000 / n of them, eight at most: with 1,000 rows two, and with more rows none
    is added. Near the cut are adjusted p-values between a fifth of alpha and four times alpha, and with at most 500
    rows raw ones up to 0.25, which other folds may carry there.

    Parameters
    ----------
    plan : Analysis
        What features were tested with.
    findings : list of Finding
        What the first cross-fit found, in the order of the plan's units.
    adjust : str
        How p-values are adjusted.
    seed : SeedSequence
        Where further folds are drawn from.
    model : callable
        Fits the outcome models anew.
    """
    tester, most = plan.tester, min(ROWS // plan.y.size, MOST)
    outcomes = _near_the_cut(plan, findings, adjust)
    if most < 2 or not outcomes or not isinstance(tester, AnalyticTester):
        return findings
    with one_thread():
        conditionals = {place: plan.conditional(plan.units[place].members[0]) for place in outcomes}
    *fold_seeds, bound_seed = seed.spawn(most)
    bound_seeds = bound_seed.spawn(1 + plan.units[-1].place)
    for number, own in enumerate(fold_seeds, start=2):
        again = replace(tester, prepared=model(own), explain=False, n_resamples=0)
        for place, conditional in conditionals.items():
            outcomes[place].append(_tested_again(again, plan.units[place].members[0], conditional))
        if number >= LEAST and max(map(_spread, outcomes.values())) < STEADY:
            break
    found = list(findings)
    for place, each in outcomes.items():
        unit = plan.units[place]
        finding = replace(findings[place], outcome=_mean(each))
        found[place] = with_bounds(plan, unit, finding, bound_seeds[unit.place])
    return found


def _near_the_cut(plan: Analysis, findings: list[Finding], adjust: str) -> dict[int, list[AnalyticOutcome]]:
    """First outcomes of the single features that other folds may decide otherwise, by their places."""
    p_values = np.array([1.0 if f.outcome is None else f.outcome.p_value for f in findings])
    adjusted = adjust_p_values(p_values, adjust)
    close = (adjusted <= HIGH * plan.alpha) | ((p_values <= RAW) & (plan.y.size <= FEW_ROWS))
    close &= adjusted >= LOW * plan.alpha
    single = np.array([len(unit.members) == 1 for unit in plan.units])
    first = ((int(place), findings[place].outcome) for place in np.flatnonzero(close & single))
    return {place: [outcome] for place, outcome in first if isinstance(outcome, AnalyticOutcome)}


def _tested_again(tester: AnalyticTester, feature: int, conditional: Conditional) -> AnalyticOutcome:
    with one_thread():
        known = tester.without_conditional(feature)
        found = known[0] if known else tester.examine(feature, conditional, 0.0, np.random.default_rng(0))[0]
    assert isinstance(found, AnalyticOutcome)
    return found


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
