"""Faults of rows and outcomes: repeated people, censored times, presets that are not valid, outcomes that follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from modifind import WCMMD, ModifierSelector
from modifind.inference import ConditionalRandomizationTest
from modifind.presets import naive, uai2022
from planted_tables import PERSONS, Case, Drawn, Rng, a_file, draw, named, standard

# Times and their events as trials, registries and shops write them.
TIMES_AND_EVENTS = (
    *(("time", "status"), ("survtime", "death"), ("futime", "fustat"), ("stop", "event"), ("rectime", "censrec")),
    *(("duration", "churned"), ("tenure", "churn"), ("_t", "_d"), ("os_months", "os_event"), ("OS", "OS_status")),
    *(("days", "died"), ("pfs_days", "progression"), ("Überlebenszeit", "verstorben"), ("Zeit", "Ereignis")),
    *(("temps", "evenement"), ("délai_jours", "décès"), ("survie_mois", "décédé"), ("tiempo", "evento")),
    *(("meses_seguimiento", "fallecido"), ("tijd", "overleden"), ("tempo", "evento"), ("durata", "morto")),
    *(("time_to_relapse", "relapsed"), ("followup_years", "cens"), ("tid", "død"), ("failtime", "failcens")),
)
TIMES = (
    *(
        "time_to_event",
        "survival_months",
        "os_months",
        "Überlebenszeit",
        "tte",
        "futime",
        "time_to_relapse",
        "survtime",
    ),
    *("days_to_death", "temps_de_survie", "tiempo_hasta_evento", "Zeit_bis_Ereignis", "pfs_days", "survie_mois"),
    *("tempo_di_sopravvivenza", "overlevingsduur", "time_to_death", "SurvivalTime", "rfs_time", "supervivencia"),
)
CLUSTERS = r"clusters"


def _people(rng: Rng, visits: int, *, constant: bool) -> tuple[Drawn, np.ndarray]:
    """Several rows for every person, whose outcomes go together; who each row is of."""
    people = int(rng.integers(max(60, 200 // visits), max(61, min(400, 3000 // visits))))
    table = draw(rng, people, int(rng.integers(4, 13)))
    person = np.repeat(np.arange(people), visits)
    frame = table.frame.iloc[person].reset_index(drop=True)
    noise = np.repeat(rng.normal(0, 8, people), visits) + rng.normal(0, 3, len(person))
    frame[table.outcome] = np.round(frame[table.outcome] + noise, 2)
    if not constant:
        for name in table.numbers[2 : 2 + int(rng.integers(1, 4))]:
            frame[name] = np.round(frame[name] + rng.normal(0, frame[name].std() / 2, len(frame)), 3)
    order = rng.permutation(len(frame)) if rng.random() < 0.3 else np.arange(len(frame))
    table.frame = frame.iloc[order].reset_index(drop=True)
    return table, person[order]


def _labels(rng: Rng, person: np.ndarray) -> np.ndarray:
    """What an id column holds: numbers from somewhere, or texts."""
    code = rng.permutation(9 * (person.max() + 1))[person] + 10_000
    return code if rng.random() < 0.5 else np.array([f"P-{one}" for one in code], dtype=object)


def visits(rng: Rng) -> Case:
    table, _ = _people(rng, int(rng.integers(2, 7)), constant=True)
    return table.case(a_file(rng), words=[CLUSTERS])


def visits_some_constant(rng: Rng) -> Case:
    table, _ = _people(rng, int(rng.integers(3, 7)), constant=False)
    return table.case(a_file(rng), words=[CLUSTERS], note=True)


def visits_with_id(rng: Rng) -> Case:
    table, person = _people(rng, int(rng.integers(2, 7)), constant=bool(rng.random() < 0.5))
    name = str(rng.choice(PERSONS))
    return table.with_column(rng, name, _labels(rng, person)).case(a_file(rng), words=[CLUSTERS, named(name)])


def copied_rows(rng: Rng) -> Case:
    table, copies = draw(rng, int(rng.integers(100, 700))), int(rng.integers(2, 5))
    frame = pd.concat([table.frame] * copies, ignore_index=rng.random() < 0.7).reset_index(drop=True)
    table.frame = frame.sample(frac=1, random_state=int(rng.integers(1e6)), ignore_index=True)
    return table.case(a_file(rng), words=[r"clusters|duplicat|cop(y|ies)|repeat|identical rows"])


def two_rows_per_patient(rng: Rng) -> Case:
    """Eyes or knees: what was measured differs between the two rows, as treatments may."""
    n = 2 * int(rng.integers(100, 700))
    table, person, name = draw(rng, n, int(rng.integers(4, 11))), np.arange(n) // 2, str(rng.choice(PERSONS))
    shared = table.features[: int(rng.integers(0, 3))]
    table.frame[shared] = table.frame[shared].iloc[2 * person].to_numpy()
    table.frame[table.outcome] += np.round(rng.normal(0, 8, n // 2)[person], 2)
    return table.with_column(rng, name, _labels(rng, person)).case(a_file(rng), words=[CLUSTERS, named(name)])


def _times(rng: Rng, name: str, event: str = "") -> Drawn:
    table = draw(rng, d=int(rng.integers(4, 11)))
    n = len(table.frame)
    died = rng.exponential(np.exp(0.4 * standard(table.frame[table.numbers[0]]) + 0.3 * table.a))
    lost = rng.uniform(0.2, rng.uniform(2, 5), n)
    z = np.ceil(365 * np.minimum(died, lost)) if rng.random() < 0.5 else np.round(12 * np.minimum(died, lost) + 0.01, 2)
    table.frame = table.frame.drop(columns=table.outcome).assign(**{name: z})
    table.outcome = name
    if not event:
        return table
    codes = ((0, 1), (0, 1), (1, 2), (False, True), (1, 0))[int(rng.integers(5))]
    return table.with_column(rng, event, np.where(died <= lost, codes[1], codes[0]))


def time_with_event(rng: Rng) -> Case:
    name, event = TIMES_AND_EVENTS[int(rng.integers(len(TIMES_AND_EVENTS)))]
    return _times(rng, name, event).case(a_file(rng), words=[named(event), r"censor|survival"])


def time_with_event_excluded(rng: Rng) -> Case:
    name, event = TIMES_AND_EVENTS[int(rng.integers(len(TIMES_AND_EVENTS)))]
    settings = {"exclude": [event]}
    return _times(rng, name, event).case(
        a_file(rng, 1.0), settings=settings, words=[named(event), r"censor|survival|horizon"]
    )


def time_without_event(rng: Rng) -> Case:
    name = str(rng.choice(TIMES))
    return _times(rng, name).case(a_file(rng, 0.5), words=[named(name), r"censor|survival|event"], note=True)


def invalid_presets(rng: Rng) -> Case:
    """A preset or a statistic that reproduces a paper, or a sampler that ignores the other features."""
    table = draw(rng, int(rng.integers(200, 301)), 4)
    words = [r"valid|reproduc|not control|marginal|fixed weights"]
    kind = int(rng.integers(0, 6))
    small: dict[str, Any] = {"n_resamples": 20, "explain": False, "random_state": 0}
    if kind == 0:
        return table.case("", selector=uai2022(epochs=2, **small, sampler="gaussian"), words=words)
    if kind == 1:
        return table.case("", selector=naive(epochs=2, **small), words=words)
    if kind == 2:
        selector = ModifierSelector(WCMMD(resample_weights="fixed"), sampler="gaussian", **small)
        return table.case("", selector=selector, words=words)
    if kind == 3:
        test = ConditionalRandomizationTest("count", stop_after=None)
        return table.case("", selector=ModifierSelector("wcmmd", "gaussian", test=test, **small), words=words)
    file = a_file(rng, 1.0 if kind == 4 else 0.0)
    return table.case(file, settings={"sampler": "marginal"}, words=words)


def preset_command(rng: Rng) -> Case:
    """The paper's preset on the command line, with its networks: the smallest tables."""
    table = draw(rng, 200, 2)
    return table.case(".csv", options=["--preset", "uai2022", "--resamples", "20"], words=[r"valid|reproduc|uai2022"])


def _with_baseline(rng: Rng) -> tuple[Drawn, str, str]:
    table = draw(rng)
    first, last = (("baseline", "final"), ("bl", "w12"), ("pre", "post"), ("t0", "t1"), ("visit1", "visit4"))[
        int(rng.integers(5))
    ]
    stem = str(rng.choice(["sbp", "phq9", "weight", "Schmerzwert", "poids", "dolor", "cd4", "score"]))
    before, after = f"{stem}_{first}", f"{stem}_{last}"
    start = np.round(rng.normal(60, 12, len(table.frame)), 1)
    end = np.round(np.maximum(0.7 * start + 10 + 0.5 * (table.y - 50), 1), 1)
    start = np.maximum(start, 5.0)
    table = table.with_column(rng, before, start).with_column(rng, after, end)
    return table, before, after


def change_of_both(rng: Rng) -> Case:
    table, before, after = _with_baseline(rng)
    start, end = table.frame[before], table.frame[after]
    table.frame[table.outcome] = np.round((end - start) * rng.choice([1, -1]), 1)
    return table.case(a_file(rng), words=[named(after)])


def ratio_of_both(rng: Rng) -> Case:
    table, before, after = _with_baseline(rng)
    ratio = table.frame[after] / table.frame[before]
    table.frame[table.outcome] = 100 * (ratio - 1) if rng.random() < 0.5 else np.round(ratio, 4)
    return table.case(a_file(rng), words=[named(after)])


def folded_outcome(rng: Rng) -> Case:
    """A function of the outcome that first falls and then rises, or waves."""
    table, name = (
        draw(rng),
        str(rng.choice(["severity", "Abweichung", "écart", "loss", "residuo", "y2", "quality_cost"])),
    )
    z = standard(table.y)
    kind = int(rng.integers(0, 4))
    values = (z**2, np.abs(z - 0.3), np.cos(2 * z), (z - 0.5) ** 2)[kind]
    return table.with_column(rng, name, values * rng.uniform(0.5, 20) + rng.normal()).case(
        a_file(rng), words=[named(name)]
    )


def outcome_is_treatment(rng: Rng) -> Case:
    table = draw(rng)
    a = table.a
    labels = ((0, 1), (1, 0), (1, 2), (10.5, 3.5))[int(rng.integers(4))]
    table.frame[table.outcome] = np.where(a == 1, labels[1], labels[0])
    return table.case(a_file(rng), words=[named(table.outcome) + "|outcome", named(table.treatment) + "|treatment"])


def few_events(rng: Rng) -> Case:
    table = draw(rng, int(rng.integers(300, 600)))
    events = int(rng.integers(2, 5))
    y = np.zeros(len(table.frame), dtype=np.int64)
    for arm in (0, 1):  # each arm has one, so that it is not constant
        y[rng.choice(np.flatnonzero(table.a == arm), 1 + (events > 2) * (arm == 0), replace=False)] = 1
    table.frame[table.outcome] = 1 - y if rng.random() < 0.3 else y
    return table.case(a_file(rng), words=[named(table.outcome) + "|outcome", r"events?\b|few|only \d|rare"], note=True)


def constant_in_an_arm(rng: Rng) -> Case:
    table, arm = draw(rng), int(rng.integers(0, 2))
    y = table.y
    if rng.random() < 0.5:
        y = (rng.random(y.size) < rng.uniform(0.2, 0.6)).astype(np.float64)
        y[table.a == arm] = float(rng.integers(0, 2))
    else:
        y[table.a == arm] = np.round(np.median(y))
    table.frame[table.outcome] = y
    words = [
        named(table.outcome) + "|outcome",
        r"constant|same|one value|only value|vary|varies|all .*(are|rows)|alike",
    ]
    return table.case(a_file(rng), words=words, note=True)


def _moved(rng: Rng, *, disjoint: bool) -> Case:
    table = draw(rng)
    n = len(table.frame)
    X = table.frame.drop(columns=[table.treatment, table.outcome])
    y, a = table.frame[table.outcome], table.frame[table.treatment]
    if rng.random() < 0.4:  # labels are texts
        table.frame.index = X.index = pd.Index([f"p{k}" for k in range(n)])
        other = pd.Index([f"{'q' if disjoint else 'p'}{k}" for k in range(n // 3, n // 3 + n)])
    else:
        shift = n + 5 if disjoint else int(rng.integers(1, n // 2))
        other = pd.RangeIndex(shift, shift + n)
        if not disjoint and rng.random() < 0.4:  # some rows were left out of X only
            other = pd.Index(np.sort(rng.choice(2 * n, n, replace=False)))
    wrong = int(rng.integers(0, 3))
    y = y.set_axis(other if wrong != 1 else X.index)
    a = a.set_axis(other if wrong != 0 else X.index)

    def call(selector: ModifierSelector) -> Any:
        return selector.fit(X, y, treatment=a).result_

    return table.case("", call=call, words=[r"index|labels", r"position|\.loc|to_numpy|reset_index|match"])


def disjoint_labels(rng: Rng) -> Case:
    return _moved(rng, disjoint=True)


def overlapping_labels(rng: Rng) -> Case:
    return _moved(rng, disjoint=False)


FAULTS = {
    "visits, all features constant": visits,
    "visits, some features constant": visits_some_constant,
    "visits with an id column": visits_with_id,
    "copied rows": copied_rows,
    "two rows per patient, id column": two_rows_per_patient,
    "a time beside its event": time_with_event,
    "a time, event excluded": time_with_event_excluded,
    "a time without its event": time_without_event,
    "settings that are not valid": invalid_presets,
    "--preset uai2022": preset_command,
    "change = final - baseline": change_of_both,
    "ratio = final / baseline": ratio_of_both,
    "a folded outcome as feature": folded_outcome,
    "the outcome is the treatment": outcome_is_treatment,
    "two to four events": few_events,
    "outcome constant in an arm": constant_in_an_arm,
    "disjoint index labels": disjoint_labels,
    "overlapping index labels": overlapping_labels,
}
