"""Censored times are refused by the names of time and event, whichever of them is the outcome and what is left out."""

import warnings

import numpy as np
import pandas as pd
import pytest

from modifind import EffectLikelihood, ModifierSelector
from modifind.data.guards import refuse_censored, warn_of_time_name
from modifind.data.roles import assign_roles
from modifind.data.words import is_event_name, is_time_name


def test_flags_are_known_by_their_stems():
    assert all(map(is_event_name, ("failind", "deathstatus", "relapse_flag", "dead_ind", "censrec")))
    assert not any(map(is_event_name, ("kind", "maritalstatus", "behind", "census")))


def survival(time="time", event="status", n=600):
    """A table with an event that is seen in about half of the rows."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"age": rng.normal(size=n), "smoker": rng.integers(0, 2, n), "arm": rng.integers(0, 2, n)})
    happens, end = rng.exponential(2 * np.exp(-0.3 * frame["smoker"])), rng.uniform(1, 3, n)
    return frame.assign(**{time: np.minimum(happens, end), event: (happens < end).astype(int)})


PAIRS = [
    *[("time", "status"), ("os_months", "OSEvent"), ("survival", "died"), ("rectime", "censrec"), ("stop", "event")],
    *[
        ("duration", "churned"),
        ("tenure", "churn"),
        ("_t", "_d"),
        ("T", "E"),
        ("OS.time", "OS"),
        ("failtime", "failind"),
    ],
    *[("dayslink", "linkstatus"), ("time_to_relapse", "relapse"), ("lenfol", "fstat"), ("with_time", "with_status")],
    *[("Überlebenszeit", "gestorben"), ("dauer", "zensiert"), ("durée_suivi", "décès"), ("survie", "censure")],
    *[("tiempo", "muerte"), ("seguimiento", "fallecido"), ("sobrevida_meses", "óbito"), ("tempo", "evento")],
    *[("sopravvivenza", "deceduto"), ("overlevingsduur", "overleden"), ("tijd", "gebeurtenis")],
    *[("seizon_kikan", "shibou"), ("生存時間", "死亡"), ("время", "событие"), ("przezycie", "zgon")],
]


@pytest.mark.parametrize(("time", "event"), PAIRS)
def test_a_time_is_refused_beside_its_event_and_the_event_beside_its_time(time, event):
    frame = survival(time, event)
    with pytest.raises(ValueError, match="looks like the event indicator of the time") as error:
        refuse_censored(frame[["age", "smoker", event]], frame[time])
    assert str(error.value).startswith(f"{event}: ")
    assert "at most 2% of each arm" in str(error.value)
    if (time, event) not in [("_t", "_d"), ("T", "E")]:
        with pytest.raises(ValueError, match=r"time of the event|whether a time is censored"):
            refuse_censored(frame[["age", "smoker", time]], frame[event])


@pytest.mark.parametrize(
    ("flag", "outcome", "coded", "refused"),
    [
        ("status", "time", {0: 1, 1: 2}, True),
        ("status", "time", {0: False, 1: True}, True),
        ("status", "time", {0: "0:LIVING", 1: "1:DECEASED"}, True),
        ("status", "time", {0: "no", 1: "yes"}, True),
        ("patient", "time", {0: "alive", 1: "dead"}, True),  # its levels say it
        ("censored", "y", {0: 1, 1: 0}, True),  # whatever the outcome is called
        ("heart_failure", "time", {0: 0, 1: 1}, False),  # may well be a diagnosis
        ("marital_status", "time", {0: 0, 1: 1}, False),
        ("prior_event", "time", {0: 0, 1: 1}, False),
        ("mother", "time", {0: "alive", 1: "dead"}, False),
        ("status", "time", {0: "single", 1: "married"}, False),
        ("status", "pressure", {0: 0, 1: 1}, False),
        ("status", None, {0: 0, 1: 1}, False),
        ("d", "y", {0: 0, 1: 1}, False),
        ("delta", "gain", {0: 0, 1: 1}, False),
    ],
)
def test_a_flag_is_refused_only_where_names_and_values_leave_little_doubt(flag, outcome, coded, refused):
    frame = survival()
    columns, time = frame[["age"]].assign(**{flag: frame["status"].map(coded)}), frame["time"].rename(outcome)
    if not refused:
        return refuse_censored(columns, time)
    with pytest.raises(ValueError, match=rf"^{flag}: looks like the event indicator of the "):
        refuse_censored(columns, time)
    refuse_censored(columns, time - 1.0)  # no time is below zero
    refuse_censored(columns[:0], time[:0])
    return None


def test_competing_codes_are_a_flag_too_and_an_event_that_all_had_is_none():
    frame = survival()
    frame["status"] *= 1 + (np.arange(600) % 4 == 0)
    with pytest.raises(ValueError, match=r"^status"):
        refuse_censored(frame[["status"]], frame["time"])
    refuse_censored(frame[["status"]].assign(status=1), frame["time"])


def test_an_event_is_an_outcome_where_all_rows_were_followed_equally_long():
    frame = survival()
    for name in ("duration", "age_months"):  # how long something had lasted before
        refuse_censored(pd.DataFrame({name: np.random.default_rng(0).exponential(size=600)}), frame["status"])
    whole = frame.assign(status=frame["time"] < 0.8, time=frame["time"].clip(upper=0.8))
    refuse_censored(whole[["time"]], whole["status"])


@pytest.mark.parametrize(
    "name", ["visit_time_zone", "event_venue", "prevalence", "tempest", "census", "eventual", "mortar"]
)
def test_names_that_contain_other_words_say_nothing(name):
    assert not (is_event_name(name) and is_time_name(name))
    frame = survival().rename(columns={"status": name})
    refuse_censored(frame[[name]], frame["age"].abs().rename("pressure"))


@pytest.mark.parametrize("how", ["frame", "file", "dask"])
@pytest.mark.parametrize(("outcome", "left_out"), [("time", "status"), ("status", "time")])
def test_leaving_the_column_out_changes_nothing(how, outcome, left_out, tmp_path):
    table = survival()
    if how == "file":
        table.to_csv(tmp_path / "t.csv", index=False)
        table = tmp_path / "t.csv"
    elif how == "dask":
        table = pytest.importorskip("dask.dataframe").from_pandas(table, npartitions=2)
    with pytest.raises(ValueError, match=rf"^{left_out}: looks like the "):
        assign_roles(table, outcome=outcome, treatment="arm", features=["age"], adjust_for=["smoker"])


@pytest.mark.parametrize(
    ("name", "noted"),
    [
        *[("survival_time", True), ("futime", True), ("time_to_relapse", True), ("days_to_discharge", True)],
        *[("days", False), ("reaction_time", False), ("duration", False), ("pressure", False), (None, False)],
    ],
)
def test_a_name_that_says_time_to_event_is_noted(name, noted):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_time_name(pd.Series(np.arange(50.0), name=name))
        warn_of_time_name(pd.Series(np.arange(50.0) - 9.0, name=name))
    assert len(caught) == noted


def test_a_fit_keeps_the_note_and_stays_valid():
    frame = survival()
    selector = ModifierSelector(EffectLikelihood("linear"), "gaussian", random_state=0, explain=False, propensity=0.5)
    with pytest.warns(UserWarning, match="named like a time to an event"):
        result = selector.fit(frame[["age", "smoker"]], frame["time"], treatment=frame["arm"]).result_
    assert any("'time' is named like a time to an event" in note for note in result.notes)
    assert not any("named like" in caution for caution in result.cautions)
