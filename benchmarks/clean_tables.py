"""Tables without a fault, of many kinds: none of them may be refused or fail a check of what the table is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from atlas import read_experiments, some_rows
from planted_columns import declared_words
from planted_tables import PERSONS, Case, Drawn, Rng, a_file, draw, number_column, permuted_arms, standard

COMPLETE_TIMES = (
    *("reaction_time", "Reaktionszeit_ms", "rt", "commute_min", "screen_time", "sleep_hours", "operation_minutes"),
    *("temps_de_réponse", "time", "duration", "tiempo_de_espera", "Wartezeit", "minutes"),
)
TITLES = ("Herz", "Nordkap", "Sainte-Anne", "San José", "Sint-Jan", "Lakeview", "Ørsted", "Bielany")


def _with_outcome(table: Drawn, y: Any) -> Drawn:
    table.frame[table.outcome] = y
    return table


def _risk(table: Drawn) -> np.ndarray:
    first = standard(table.frame[table.numbers[0]])
    return 1 / (1 + np.exp(-(-0.6 + 0.6 * first + 0.5 * table.a)))


def trial(rng: Rng) -> Case:
    table = draw(rng)
    known: dict[str, Any] = {"propensity": round(float(table.a.mean()), 2)} if rng.random() < 0.5 else {}
    return table.case(a_file(rng), settings=known)


def binary(rng: Rng) -> Case:
    table = draw(rng)
    return _with_outcome(table, (rng.random(len(table.frame)) < _risk(table)).astype(int)).case(a_file(rng))


def counts(rng: Rng) -> Case:
    table = draw(rng)
    kind: dict[str, Any] = {"outcome_kind": "count"} if rng.random() < 0.5 else {}
    return _with_outcome(table, rng.poisson(6 * _risk(table))).case(a_file(rng), settings=kind)


def ordinal(rng: Rng) -> Case:
    table = draw(rng)
    cuts = np.quantile(table.y, [0.2, 0.5, 0.75, 0.9])
    kind: dict[str, Any] = {"outcome_kind": "ordinal", "effect_scale": "odds_ratio"} if rng.random() < 0.7 else {}
    return _with_outcome(table, 1 + np.searchsorted(cuts, table.y)).case(a_file(rng), settings=kind)


def amount(rng: Rng) -> Case:
    table = draw(rng)
    n = len(table.frame)
    spent = np.round(np.exp(rng.normal(3, 0.8, n)) * (rng.random(n) < _risk(table)), 2)
    kind: dict[str, Any] = {"outcome_kind": "amount"} if rng.random() < 0.5 else {}
    return _with_outcome(table, spent).case(a_file(rng), settings=kind)


def cells(rng: Rng) -> Case:
    """A dozen cells or so: people who agree in all that is known of them."""
    n = int(rng.integers(400, 2000))
    columns = {"sex": rng.integers(0, 2, n), "agegroup": rng.choice(["18-39", "40-64", "65+"], n)}
    columns["stage"] = rng.integers(1, int(rng.integers(3, 5)), n)
    frame = pd.DataFrame(columns).assign(arm=permuted_arms(rng, n, 0.5))
    if rng.random() < 0.5:
        frame["cured"] = (rng.random(n) < 0.3 + 0.1 * frame["arm"]).astype(int)
        return Case(frame, "arm", "cured", a_file(rng))
    frame["score"] = np.round(50 + 3 * frame["arm"] + 4 * frame["sex"] + rng.normal(0, 8, n), 1)
    return Case(frame, "arm", "score", a_file(rng))


def survey(rng: Rng) -> Case:
    """Answers on scales and ages in years: many people agree in all of them."""
    table = draw(rng, int(rng.integers(800, 3001)), 4)
    n = len(table.frame)
    items = {f"q{k + 1}": rng.binomial(4, rng.uniform(0.3, 0.7), n) + 1 for k in range(int(rng.integers(3, 8)))}
    kept = table.frame[[table.treatment, table.outcome]].assign(**items, Alter=rng.integers(18, 75, n))
    return Case(kept, table.treatment, table.outcome, a_file(rng))


def declared(rng: Rng) -> Case:
    """A trial or an observational table whose design is declared."""
    if rng.random() < 0.5:
        case = observational(rng)
        case.settings = {"design": "observational"}
        return case
    return draw(rng).case(a_file(rng), settings={"design": "randomised"})


def filtered(rng: Rng) -> Case:
    """Rows of a longer frame, the outcome and the treatment with the same labels or none."""
    table = draw(rng)
    n = len(table.frame)
    table.frame.index = pd.Index(np.sort(rng.choice(3 * n, n, replace=False)))
    X = table.frame.drop(columns=[table.treatment, table.outcome])
    y, a = table.frame[table.outcome], table.frame[table.treatment]
    y, a = (y, a) if rng.random() < 0.5 else (y.to_numpy(), a.to_numpy())
    return table.case("", call=lambda selector: selector.fit(X, y, treatment=a).result_)


def strong_baseline(rng: Rng) -> Case:
    """What was measured before goes with the outcome at r = .9."""
    table = draw(rng)
    before = standard(rng.normal(size=len(table.frame)))
    y = np.round(50 + 10 * (0.9 * before + 0.44 * rng.normal(size=len(before)) + 0.2 * table.a), 1)
    table = _with_outcome(table, y)
    name = table.outcome.split("_")[0] + str(rng.choice(["_baseline", "_bl", "_t0", "_pre"]))
    return table.with_column(rng, name, np.round(50 + 10 * before, 1)).case(a_file(rng))


def rounded(rng: Rng) -> Case:
    """Ages in years and scores of a few items, the outcome too."""
    table = draw(rng)
    n = len(table.frame)
    for name in table.numbers:
        table.frame[name] = rng.integers(20, 70, n) if rng.random() < 0.5 else rng.binomial(20, 0.4, n)
    latent = standard(table.frame[table.numbers[0]]) + rng.normal(size=n) + 0.3 * table.a
    return _with_outcome(table, np.clip(np.round(10 + 4 * latent), 0, 27).astype(int)).case(a_file(rng))


def ties(rng: Rng) -> Case:
    table = draw(rng)
    n = len(table.frame)
    for name in table.numbers[::2]:
        table.frame[name] = np.where(rng.random(n) < 0.6, 0, np.round(np.exp(rng.normal(2, 1, n)), 1))
    return table.case(a_file(rng))


def many_levels(rng: Rng) -> Case:
    """Sixty schools or so, with names or codes as ids have."""
    table = draw(rng, int(rng.integers(800, 2500)), 5)
    n, levels = len(table.frame), int(rng.integers(20, 61))
    codes = [f"S{k:03d}" for k in rng.permutation(999)[:levels]]
    names = [f"{TITLES[k % 8]} {k}" for k in range(levels)]
    values = rng.choice(codes if rng.random() < 0.5 else names, n)
    return table.with_column(rng, str(rng.choice(["school", "Klinik", "hôpital", "site_code"])), values).case(
        a_file(rng)
    )


def real_times(rng: Rng) -> Case:
    """Times that everybody has: reactions, commutes, a duration named time."""
    table = draw(rng)
    n, old = len(table.frame), table.outcome
    table.outcome = str(rng.choice(COMPLETE_TIMES))
    table.frame = table.frame.rename(columns={old: table.outcome})
    mean = 6 + 0.2 * standard(table.frame[table.numbers[0]]) + 0.1 * table.a
    return _with_outcome(table, np.round(np.exp(mean + 0.3 * rng.normal(size=n)), 1)).case(a_file(rng))


def feature_times(rng: Rng) -> Case:
    """Durations among the features, with flags of what was before."""
    table = draw(rng)
    n = len(table.frame)
    time = str(rng.choice(["time", "duration", "days_since_diagnosis", "tenure"]))
    table = table.with_column(rng, time, rng.integers(1, 900, n))
    flag = str(rng.choice(["prior_event", "history_of_relapse", "marital_status", "family_death", "previous_failure"]))
    return table.with_column(rng, flag, rng.integers(0, 2, n)).case(a_file(rng))


def clusters(rng: Rng) -> Case:
    """Visits of people or pupils of classes, said so."""
    size = int(rng.integers(3, 12))
    groups = int(rng.integers(45, max(46, 1500 // size)))
    table, name = (
        draw(rng, groups * size, int(rng.integers(4, 9))),
        str(rng.choice([*PERSONS, "class", "clinic", "Dorf"])),
    )
    group = np.repeat(np.arange(groups), size)
    table.frame[table.numbers[0]] = number_column(rng, groups)[group]
    table = _with_outcome(table, np.round(table.y + rng.normal(0, 3, groups)[group], 2))
    return table.with_column(rng, name, group + 101).case(a_file(rng), settings={"clusters": name})


def strata(rng: Rng) -> Case:
    table = draw(rng, int(rng.integers(400, 2000)))
    n = len(table.frame)
    site = rng.choice(["Bern", "Lyon", "Gent", "Porto"], n)
    share = pd.Series(site).map({"Bern": 0.5, "Lyon": 0.5, "Gent": 0.4, "Porto": 0.6}).to_numpy()
    table.frame[table.treatment] = (rng.random(n) < share).astype(int)
    return table.with_column(rng, "centre", site).case(a_file(rng), settings={"strata": "centre"})


def weights(rng: Rng) -> Case:
    table = draw(rng)
    name = str(rng.choice(["weight", "Gewichtung", "poids_sondage", "survey_w"]))
    table = table.with_column(rng, name, np.round(np.exp(rng.normal(0, 0.5, len(table.frame))), 3))
    return table.case(a_file(rng), settings={"sample_weight": name})


def several_arms(rng: Rng) -> Case:
    table = draw(rng, int(rng.integers(450, 1500)), int(rng.integers(4, 9)))
    arms = ["placebo", "low dose", "high dose", "rescue"][: int(rng.integers(3, 5))]
    values = rng.permutation(np.resize(arms, len(table.frame)))
    table.frame[table.treatment] = values
    return table.case(a_file(rng), settings={"reference": "placebo"})


def missing(rng: Rng) -> Case:
    table = draw(rng)
    for name in table.features[:: int(rng.integers(2, 4))]:
        table.frame[name] = table.frame[name].mask(rng.random(len(table.frame)) < rng.uniform(0.02, 0.2))
    return table.case(a_file(rng), settings={"missing": str(rng.choice(["category", "drop"], p=[0.8, 0.2]))})


def observational(rng: Rng) -> Case:
    """Several confounders, some of them strong."""
    table = draw(rng, int(rng.integers(500, 2500)), int(rng.integers(5, 12)))
    slopes = rng.uniform(0.2, 0.7, 3) * rng.choice([-1, 1], 3)
    columns = [standard(table.frame[name]) for name in table.numbers[:3]]
    logit = sum(slope * column for slope, column in zip(slopes, columns, strict=False))
    n = len(table.frame)
    a = (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int)
    table.frame[table.treatment] = a
    y = np.round(50 + 10 * (0.5 * columns[0] + 0.3 * columns[1] + 0.3 * a + rng.normal(size=n)), 1)
    return _with_outcome(table, y).case(a_file(rng))


def unbalanced(rng: Rng) -> Case:
    return draw(rng, int(rng.integers(600, 2500)), share=float(rng.choice([0.1, 0.15, 0.85]))).case(a_file(rng))


def decimal_commas(rng: Rng) -> Case:
    """As Excel writes in most of Europe, said so."""
    table = draw(rng)
    case = table.case(".ssv", options=["--decimal", ","])
    case.text = table.frame.to_csv(index=False, sep=";", decimal=",")
    return case


def semicolons(rng: Rng) -> Case:
    """Semicolons with decimal points, and numbers of three decimals among them."""
    table = draw(rng)
    table.frame[table.numbers[0]] = np.round(rng.normal(3, 1, len(table.frame)), 3)
    return table.case(".ssv")


def integer_codes(rng: Rng) -> Case:
    table = draw(rng)
    name = str(rng.choice(["ethnicity", "Beruf", "canton", "education"]))
    table = table.with_column(rng, name, rng.integers(1, int(rng.integers(4, 9)), len(table.frame)))
    return table.case(a_file(rng), settings={"discrete_features": [name]} if rng.random() < 0.7 else {})


def excluded_ids(rng: Rng) -> Case:
    table, name = draw(rng), str(rng.choice(PERSONS))
    table = table.with_column(rng, name, rng.permutation(len(table.frame)) + 1)
    return table.case(a_file(rng), settings={"exclude": [name]})


def words(rng: Rng) -> Case:
    table, treated = declared_words(rng)
    return table.case(a_file(rng), settings={"treated": treated})


def later_named(rng: Rng) -> Case:
    """A column that differs between the arms, excluded or adjusted for by name."""
    table = draw(rng)
    name = str(rng.choice(["adherence", "visit2_bp", "Dosis_Woche4"]))
    table = table.with_column(rng, name, np.round(table.a * 6 + rng.normal(50, 8, len(table.frame)), 1))
    return table.case(a_file(rng), settings={str(rng.choice(["exclude", "adjust_for"], p=[0.7, 0.3])): [name]})


def correlated(rng: Rng) -> Case:
    """Repeated measures before the treatment, at r = .8: nothing else is wrong with them."""
    table = draw(rng, d=6)
    base = rng.normal(size=len(table.frame))
    for k in range(3):
        values = np.round(120 + 12 * (0.9 * base + 0.44 * rng.normal(size=len(base))), 1)
        table = table.with_column(rng, f"sbp_pre{k + 1}", values)
    return table.case(a_file(rng))


KINDS = {
    "trial, numeric": trial, "binary": binary, "count": counts, "ordered levels": ordinal, "amount": amount,
    "a dozen cells": cells, "answers of a survey": survey, "design declared": declared, "filtered rows": filtered,
    "strong baseline": strong_baseline, "rounded ages and scores": rounded,
    "heavy ties": ties, "up to 60 levels": many_levels, "times without censoring": real_times,
    "durations as features": feature_times, "clusters declared": clusters, "strata": strata, "weights": weights,
    "several arms": several_arms, "missing values": missing, "observational": observational,
    "unbalanced arms": unbalanced, "decimal commas": decimal_commas, "semicolons": semicolons,
    "integer codes": integer_codes, "ids excluded": excluded_ids, "a treatment with words": words,
    "later column, named": later_named, "correlated features": correlated,
}  # fmt: skip


def real_tables(rng: Rng) -> Iterator[tuple[str, Case]]:
    """Parts of the experiments of the atlas, as their codebook declares them; skipped with a line where absent."""
    for one in read_experiments():
        some = some_rows(one, 1500, rng)
        frame = some.X.assign(**{"the treatment": some.treatment, some.outcome: some.y})
        settings: dict[str, Any] = {"outcome_kind": some.kind, "effect_scale": some.scale, "missing": "category"}
        if some.share is not None:
            settings["propensity"] = some.share
        if some.adjust:
            settings["adjust_for"] = some.adjust
        for role, labels in (("clusters", some.clusters), ("strata", some.strata)):
            if labels is not None:
                frame[f"the {role}"] = labels
                settings[role] = f"the {role}"
        yield some.name, Case(frame, "the treatment", some.outcome, settings=settings)
