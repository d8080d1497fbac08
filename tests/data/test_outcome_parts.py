"""What determines the outcome: a few columns together, one in any form, the treatment itself; and few events."""

import numpy as np
import pandas as pd
import pytest

from conftest import quiet_fit
from modifind import EffectLikelihood
from modifind.data.outcome import OutcomeRanks, few_events, outcome_parts, refuse_treatment_as_outcome
from modifind.data.schema import read_features

N = 400
QUICK = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "random_state": 0}


def trial(seed, n=N):
    rng = np.random.default_rng(seed)
    before = rng.normal(50, 9, n)
    after = 0.8 * before + rng.normal(10, 5, n)
    others = pd.DataFrame(rng.normal(size=(n, 6)), columns=list("uvwxyz"))
    return rng, others, before, after


COMPUTED = {
    "a change": lambda b, a: (a - b, {"before": b, "after": a}),
    "a change of rounded values": lambda b, a: ((a - b).round(), {"before": b.round(), "after": a.round()}),
    "a change in per cent": lambda b, a: (100 * (a - b) / b, {"before": b, "after": a}),
    "a ratio": lambda b, a: (a / b, {"before": b, "after": a}),
    "an index": lambda b, a: (a / b**2, {"height": b, "weight": a.round(1)}),
    "a mean with weights": lambda b, a: (0.7 * a + 0.3 * b, {"before": b, "after": a}),
}


@pytest.mark.parametrize("kind", COMPUTED)
@pytest.mark.parametrize("seed", range(5))
def test_two_columns_that_the_outcome_is_computed_from_are_named(kind, seed):
    _, others, before, after = trial(seed)
    y, columns = COMPUTED[kind](before, np.abs(after))
    assert set(outcome_parts(read_features(others.assign(**columns)), y).names) == set(columns)


def test_three_items_that_add_up_to_the_outcome_are_named():
    rng, others, _, _ = trial(1)
    items = rng.integers(0, 12, (3, N))
    parts = outcome_parts(read_features(others.assign(i=items[0], j=items[1], k=items[2])), items.sum(axis=0) * 1.0)
    assert parts.names == ("i", "j", "k")
    assert parts.exact


def test_parts_of_a_composite_event_are_named():
    rng, others, _, _ = trial(2)
    kind = rng.choice(["none", "death", "stroke"], N, p=[0.6, 0.2, 0.2])
    events = {"death": kind == "death", "stroke": np.where(kind == "stroke", "yes", "no")}
    assert outcome_parts(read_features(others.assign(**events)), (kind != "none") * 1.0).names == ("death", "stroke")


@pytest.mark.parametrize("seed", range(40))
def test_strong_predictors_measured_before_are_no_parts(seed):
    rng, others, _, _ = trial(seed, int(np.random.default_rng(seed).integers(60, 1500)))
    n, r = len(others), rng.uniform(0.9, 0.97)
    y = rng.normal(size=n)
    earlier = r * y + np.sqrt(1 - r**2) * rng.normal(size=(2, n))
    table = read_features(others.assign(screening=earlier[0], baseline=earlier[1]))
    ranks = OutcomeRanks.of(y, rng.integers(0, 2, n))
    assert outcome_parts(table, y) is None
    assert max(ranks.shared(table, m) for m in range(table.n_features)) <= 0.975


@pytest.mark.parametrize("seed", range(10))
def test_outcomes_that_columns_explain_by_95_per_cent_are_not_accused(seed):
    rng, others, _, _ = trial(seed)
    signal = others[["u", "v", "w"]].sum(axis=1).to_numpy()
    y = signal + signal.std() * np.sqrt(0.05 / 0.95) * rng.normal(size=N)
    assert outcome_parts(read_features(others), y) is None
    result = quiet_fit(others, y, rng.integers(0, 2, N), **QUICK).result_
    assert not set(result.checks.loc[~result.checks["passed"], "name"]) & {"outcome_parts", "outcome_given"}


def test_one_extreme_row_makes_no_parts():
    rng, others, _, _ = trial(3)
    y = rng.normal(size=N)
    y[0] = others.loc[0, "u"] = 1e5
    others.loc[1, "v"] = 1e5
    assert outcome_parts(read_features(others), y) is None


@pytest.mark.parametrize("form", [np.square, np.abs, lambda y: np.cos(1.5 * y), lambda y: np.round(y**2, 2)])
@pytest.mark.parametrize("n", [200, 800])
def test_a_column_that_is_a_function_of_the_outcome_is_seen_though_not_monotone(form, n):
    rng = np.random.default_rng(4)
    arms = rng.integers(0, 2, n)
    y = rng.normal(size=n) + 0.5 * arms
    assert OutcomeRanks.of(y, arms).shared(read_features({"x": form(y), "z": rng.normal(size=n)}), 0) > 0.95
    assert OutcomeRanks.of(form(y), arms).shared(read_features({"x": y}), 0) > 0.95


def test_neighbours_tell_nothing_where_values_are_equal_in_a_sorted_table():
    rng = np.random.default_rng(5)
    y = np.sort(rng.normal(size=N))
    table = read_features({"x": rng.integers(0, 15, N)}, [])
    assert table.n_levels(0) == 0
    assert OutcomeRanks.of(y, rng.integers(0, 2, N)).shared(table, 0) < 0.2


def test_exact_parts_are_refused_and_near_ones_fail_a_check():
    rng, others, before, after = trial(6)
    arms = rng.integers(0, 2, N)
    with pytest.raises(ValueError, match=r"^before, after: the outcome is computed from these columns"):
        quiet_fit(others.assign(before=before, after=after), after - before, arms, **QUICK)
    rounded = others.assign(before=before.round(), after=after.round())
    result = quiet_fit(rounded, (after - before).round(), arms, **QUICK).result_
    failed = result.checks[~result.checks["passed"] & (result.checks["name"] == "outcome_parts")]
    assert failed["text"].item().startswith("before, after together give the outcome")
    assert not result.ok


def test_an_outcome_that_is_the_treatment_is_refused():
    arms = np.arange(N) % 2
    for y in (arms, 5.0 - 2 * arms):
        with pytest.raises(ValueError, match="is the treatment under another name"):
            refuse_treatment_as_outcome(y * 1.0, arms)
    refuse_treatment_as_outcome(arms + 0.1 * (np.arange(N) == 3), arms)


def test_few_events_are_counted_by_arm():
    arms, y = np.arange(N) % 2, np.zeros(N)
    y[:3] = 1
    assert {arm: own["events"] for arm, own in few_events(y, arms).items()} == {"control": 2, "treated": 1}
    assert not few_events(np.arange(N) * 1.0, arms)
    assert not few_events((np.arange(N) % 20 < 2) * 1.0, arms)


def test_few_events_are_a_note_and_an_arm_without_any_amount_is_not_valid():
    rng, others, _, _ = trial(7)
    arms = rng.integers(0, 2, N)
    result = quiet_fit(others, (np.arange(N) < 3).astype(int), arms, **QUICK).result_
    notes = result.checks.set_index("name").loc["few_events", "text"].tolist()
    assert [text.split(" have ")[0].split(" has ")[0] for text in notes]
    assert not result.checks.set_index("name").loc["few_events", "validity"].any()
    dose = np.where(arms == 1, rng.exponential(size=N), 0.0)
    result = quiet_fit(others, dose, arms, **QUICK).result_
    assert "constant_arm" in set(result.checks.loc[~result.checks["passed"], "name"])
    assert not result.ok
