"""Good and bad tables for the study of checks: those that thresholds were chosen on, and others that were not.

A good table gives right p-values and effects, whatever there is to note of it; a bad one does not, and should say so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """A table, and what the analysis is told of it."""

    X: pd.DataFrame
    y: Any
    treatment: NDArray[np.int64]
    settings: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, Any] = field(default_factory=dict)


CaseOf = Callable[[np.random.Generator], Case]


def expit(z: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-z))


def _frame(rng: np.random.Generator, n: int, d: int = 6) -> pd.DataFrame:
    """Correlated numbers and a category."""
    x = rng.standard_normal((n, d)) + 0.5 * rng.standard_normal((n, 1))
    frame = pd.DataFrame(x, columns=[f"x{j + 1}" for j in range(d)])
    frame["sex"] = np.where(rng.random(n) < 0.5, "f", "m")
    return frame


def _coin(rng: np.random.Generator, n: int, share: float = 0.5) -> NDArray[np.int64]:
    return (rng.random(n) < share).astype(np.int64)


def _outcome(rng: np.random.Generator, frame: pd.DataFrame, a: NDArray[np.int64], modifier: float = 0.0) -> Array:
    x1, x2 = frame["x1"].to_numpy(), frame["x2"].to_numpy()
    return np.asarray(x1 + 0.5 * a + modifier * a * x2 + rng.standard_normal(a.size))


HALF = {"propensity": 0.5}


# Tables that thresholds were chosen on.


def null_trial(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 500), _coin(rng, 500)
    return Case(frame, _outcome(rng, frame, a), a, HALF)


def trial_with_modifier(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 500), _coin(rng, 500)
    return Case(frame, _outcome(rng, frame, a, 0.8), a, HALF)


def pooled_levels(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 500), _coin(rng, 500)
    frame["centre"] = [f"c{int(k)}" for k in np.minimum(rng.exponential(6.0, 500), 40)]
    return Case(frame, _outcome(rng, frame, a), a, HALF)


def missing_values(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 600), _coin(rng, 600)
    y = _outcome(rng, frame, a)
    for name in ("x1", "x3"):
        frame.loc[rng.random(600) < expit(frame["x2"].to_numpy() - 1.5), name] = np.nan
    return Case(frame, y, a, {**HALF, "missing": "category"})


def moderate_confounding(rng: np.random.Generator) -> Case:
    frame = _frame(rng, 800)
    a = (rng.random(800) < expit(0.6 * frame["x1"].to_numpy() - 0.4 * frame["x3"].to_numpy())).astype(np.int64)
    return Case(frame, _outcome(rng, frame, a, 0.8), a)


def skewed_outcome(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 500), _coin(rng, 500)
    return Case(frame, np.exp(_outcome(rng, frame, a)), a, HALF)


def told_clusters(rng: np.random.Generator) -> Case:
    clusters = np.repeat(np.arange(60), 10)
    frame, a = _frame(rng, 600), _coin(rng, 600)
    frame["size"] = rng.standard_normal(60)[clusters]
    y = _outcome(rng, frame, a) + rng.standard_normal(60)[clusters]
    return Case(frame, y, a, HALF, {"clusters": clusters})


def free_plan(rng: np.random.Generator) -> Case:
    """The RAND table: who has the free plan has no deductible."""
    path = Path(os.environ.get("MODIFIND_DATA", "")) / "real" / "randhie.csv.xz"
    table = pd.read_csv(path).sample(1500, random_state=int(rng.integers(2**31))).reset_index(drop=True)
    a = (table["lncoins"] == 0).to_numpy().astype(np.int64)
    return Case(table.drop(columns=["lncoins", "mdvis"]), table["mdvis"], a)


def sharp_score(rng: np.random.Generator) -> Case:
    frame = _frame(rng, 800)
    a = (rng.random(800) < expit(5.0 * (frame["x1"] + frame["x2"]).to_numpy())).astype(np.int64)
    return Case(frame, _outcome(rng, frame, a), a)


def event_flag(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 600), _coin(rng, 600)
    event = rng.exponential(np.exp(0.3 * frame["x1"].to_numpy() + 0.3 * a))
    end = rng.uniform(0.5, 2.0, 600)
    return Case(frame.assign(status=(event < end).astype(int)), np.minimum(event, end), a, HALF)


def mediator(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 500), _coin(rng, 500)
    frame["week20"] = 0.7 * a + rng.standard_normal(500)
    return Case(frame, _outcome(rng, frame, a) + frame["week20"].to_numpy(), a, HALF)


def outcome_again(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 500), _coin(rng, 500)
    y = _outcome(rng, frame, a)
    return Case(frame.assign(again=y + 0.1 * rng.standard_normal(500)), y, a)


def wrong_chance(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 500), _coin(rng, 500, 0.65)
    return Case(frame, _outcome(rng, frame, a), a, HALF)


def wrong_law(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 800), _coin(rng, 800)
    y = _outcome(rng, frame, a)
    frame["costs"] = np.where(rng.random(800) < 0.4, 0.0, np.exp(1.5 * frame["x3"].to_numpy()))
    return Case(frame, y, a, {**HALF, "sampler": "gaussian"})


# Tables that were not looked at when thresholds were chosen.


def two_to_one_binary(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 450, 10), _coin(rng, 450, 2 / 3)
    y = (rng.random(450) < expit(frame["x1"].to_numpy() + 0.4 * a - 0.5)).astype(float)
    return Case(frame, y, a, {"propensity": 2 / 3})


def spread_and_whole_years(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 700), _coin(rng, 700)
    frame["age"] = np.round(50 + 12 * frame["x4"])
    y = frame["x1"] + rng.standard_t(5, 700) * np.exp(0.4 * a * frame["x2"])
    return Case(frame, y, a, HALF)


def strata_with_rare_levels(rng: np.random.Generator) -> Case:
    site = rng.integers(0, 5, 600)
    chance = np.array([0.3, 0.4, 0.5, 0.6, 0.7])[site]
    frame, a = _frame(rng, 600), (rng.random(600) < chance).astype(np.int64)
    frame["ward"] = [f"w{k}" for k in rng.geometric(0.25, 600)]
    y = _outcome(rng, frame, a) + 0.5 * site
    return Case(frame, y, a, {}, {"strata": site})


def dropped_rows(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 700), _coin(rng, 700)
    y = _outcome(rng, frame, a, 0.6)
    frame.loc[rng.random(700) < 0.15, "x5"] = np.nan
    return Case(frame, y, a, {**HALF, "missing": "drop"})


def register(rng: np.random.Generator) -> Case:
    """Assignment by four columns, one of them a category; the outcome follows them strongly."""
    frame = _frame(rng, 1000)
    frame["region"] = rng.choice(["north", "south", "west"], 1000)
    score = 0.4 * (frame["x1"] + frame["x2"] - frame["x4"]) + np.where(frame["region"] == "west", 0.7, -0.2)
    a = (rng.random(1000) < expit(score.to_numpy())).astype(np.int64)
    y = 2 * frame["x1"] - frame["x4"] + np.where(frame["region"] == "west", 1.0, 0.0) + 0.5 * a
    return Case(frame, y + rng.standard_normal(1000), a)


def counts(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 600), _coin(rng, 600)
    rate = np.exp(0.4 * frame["x1"].to_numpy() + 0.3 * a) * rng.gamma(1.5, 1 / 1.5, 600)
    return Case(frame, rng.poisson(rate).astype(float), a, HALF)


def treated_clusters(rng: np.random.Generator) -> Case:
    """Whole villages were treated, and villages differ."""
    village = np.repeat(np.arange(80), 9)
    frame, a = _frame(rng, 720), rng.permutation(np.arange(80) % 2)[village]
    frame["wealth"] = 0.8 * rng.standard_normal(80)[village] + 0.6 * rng.standard_normal(720)
    y = _outcome(rng, frame, a) + 0.7 * rng.standard_normal(80)[village]
    return Case(frame, y, a, HALF, {"clusters": village})


def measured_before(rng: np.random.Generator) -> Case:
    """The outcome was also measured before the treatment, with a correlation of 0.9."""
    frame, a = _frame(rng, 500), _coin(rng, 500)
    frame["baseline"] = 2.0 * rng.standard_normal(500)
    return Case(frame, frame["baseline"] + 0.5 * a + rng.standard_normal(500), a, HALF)


def times_without_a_flag(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 500), _coin(rng, 500)
    frame["stage"] = (rng.random(500) < 0.3).astype(int)
    time = rng.weibull(1.5, 500) * np.exp(0.3 * frame["x1"] - 0.7 * frame["stage"] + 0.2 * a)
    return Case(frame, time.rename("survival_months"), a, HALF)


def small_rare_treatment(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 1500), _coin(rng, 1500, 0.06)
    return Case(frame, _outcome(rng, frame, a), a, {"propensity": 0.06})


def age_limit(rng: np.random.Generator) -> Case:
    """From 65 on everybody is treated."""
    frame = _frame(rng, 800)
    frame["age"] = rng.uniform(30, 80, 800)
    a = np.where(frame["age"] >= 65, 1, _coin(rng, 800, 0.4))
    return Case(frame, _outcome(rng, frame, a) + 0.03 * frame["age"].to_numpy(), a)


def one_arm_sites(rng: np.random.Generator) -> Case:
    """Two of five sites have no control."""
    frame, a = _frame(rng, 800), _coin(rng, 800)
    site = rng.integers(0, 5, 800)
    frame["site"] = [f"site {k}" for k in site]
    return Case(frame, _outcome(rng, frame, a), np.where(site >= 3, 1, a))


def cut_off(rng: np.random.Generator) -> Case:
    """Treated above a cut-off, but for 3%."""
    frame = _frame(rng, 700)
    above = (frame["x1"] > 0.2).to_numpy()
    a = np.where(rng.random(700) < 0.03, ~above, above).astype(np.int64)
    return Case(frame, _outcome(rng, frame, a), a)


def died(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 500), _coin(rng, 500)
    event = 3.0 * rng.weibull(1.3, 500) * np.exp(0.2 * frame["x2"].to_numpy())
    end = rng.uniform(1.0, 5.0, 500)
    return Case(frame.assign(died=np.where(event < end, "yes", "no")), np.minimum(event, end), a, HALF)


def unnamed_flag(rng: np.random.Generator) -> Case:
    """The flag has no telling name, and the outcome has."""
    case = died(rng)
    return replace(case, X=case.X.rename(columns={"died": "v7"}), y=pd.Series(case.y, name="followup_days"))


def side_effect(rng: np.random.Generator) -> Case:
    """A side effect, in a trial with two treated for each control."""
    frame, a = _frame(rng, 600), _coin(rng, 600, 2 / 3)
    frame["nausea"] = np.where(rng.random(600) < 0.1 + 0.25 * a, "yes", "no")
    y = _outcome(rng, frame, a) - 0.8 * (frame["nausea"] == "yes")
    return Case(frame, y, a, {"propensity": 2 / 3})


def weak_mediator(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 600), _coin(rng, 600)
    frame["pressure"] = np.exp(0.5 * (0.5 * a + rng.standard_normal(600)))
    return Case(frame, _outcome(rng, frame, a) + np.log(frame["pressure"]), a, HALF)


def responder(rng: np.random.Generator) -> Case:
    """Who responded, by the outcome itself."""
    frame, a = _frame(rng, 600), _coin(rng, 600)
    y = _outcome(rng, frame, a)
    return Case(frame.assign(responder=np.where(y > 0.7, "yes", "no")), y, a)


def other_units(rng: np.random.Generator) -> Case:
    """The outcome in other units, rounded."""
    frame, a = _frame(rng, 500), _coin(rng, 500)
    y = _outcome(rng, frame, a)
    return Case(frame.assign(score=np.round(40 - 6 * y)), y, a)


def swapped_arms(rng: np.random.Generator) -> Case:
    frame, a = _frame(rng, 500), _coin(rng, 500, 0.4)
    return Case(frame, _outcome(rng, frame, a), a, {"propensity": 0.6})


def not_randomised(rng: np.random.Generator) -> Case:
    """Said to be a coin, and the sicker were treated more often."""
    frame = _frame(rng, 600)
    a = (rng.random(600) < expit(0.8 * frame["x1"].to_numpy())).astype(np.int64)
    return Case(frame, _outcome(rng, frame, a), a, HALF)


CHOSEN_ON: dict[str, dict[str, CaseOf]] = {
    "good": {
        "trial, no modifier": null_trial,
        "trial with a modifier": trial_with_modifier,
        "trial, levels are pooled": pooled_levels,
        "trial, missing values as a category": missing_values,
        "moderate confounding": moderate_confounding,
        "trial, skewed outcome": skewed_outcome,
        "trial, clusters told": told_clusters,
    },
    "bad": {
        "RAND, free plan": free_plan,
        "near-deterministic treatment": sharp_score,
        "event flag beside its time": event_flag,
        "mediator in a trial": mediator,
        "column that nearly is the outcome": outcome_again,
        "known chance 0.5, share 0.65": wrong_chance,
        "gaussian distribution of zero-heavy costs": wrong_law,
    },
}
HELD_OUT: dict[str, dict[str, CaseOf]] = {
    "good": {
        "trial 2:1, outcome of 0 and 1": two_to_one_binary,
        "trial, spread changes, whole years": spread_and_whole_years,
        "trial in strata, levels are pooled": strata_with_rare_levels,
        "trial, rows with missing values dropped": dropped_rows,
        "register, four confounders": register,
        "trial, counts": counts,
        "trial of villages, told": treated_clusters,
        "trial, outcome also measured before (r = 0.9)": measured_before,
        "trial, times and a strong predictor of them": times_without_a_flag,
        "trial, 6% treated": small_rare_treatment,
    },
    "bad": {
        "everybody treated from 65 on": age_limit,
        "two of five sites without a control": one_arm_sites,
        "treated above a cut-off, but for 3%": cut_off,
        "died, beside a time": died,
        "the same, named v7, beside followup_days": unnamed_flag,
        "side effect in a trial 2:1 (10% against 35%)": side_effect,
        "mediator in a trial (0.5 standard deviations)": weak_mediator,
        "responder, by the outcome": responder,
        "outcome in other units, rounded": other_units,
        "known chance of the other arm (0.6, share 0.4)": swapped_arms,
        "known chance 0.5, and the sicker were treated": not_randomised,
    },
}
