"""How the treatment was given, declared or not, and columns that were measured after it."""

import sys

import numpy as np
import pandas as pd
import pytest

from modifind import EffectLikelihood, ModifierSelector, SelectionResult
from modifind.cli.app import main
from modifind.data.balance import refuse_after_treatment
from modifind.datasets import make_modifiers
from modifind.engine.reading import Given, Reading
from modifind.report.content import design_sentence, methods

FAST = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "random_state": 0, "explain": False}


def trial(seed=0, n=300, share=0.4):
    """Four columns from before the treatment, and `later`, a measurement of `marker` that the treatment raises."""
    rng = np.random.default_rng(seed)
    arms = (rng.random(n) < share).astype(int)
    frame = pd.DataFrame({"age": rng.normal(size=n), "marker": rng.normal(size=n), "sex": rng.choice(["f", "m"], n)})
    frame["site"] = rng.choice(list("abc"), n)
    frame["later"] = 0.7 * frame["marker"] + 0.9 * arms + 0.6 * rng.normal(size=n)
    return frame, frame["later"].to_numpy() + rng.normal(size=n), arms


def fit(frame, y, arms, settings=None, **columns):
    return ModifierSelector(**FAST, **(settings or {})).fit(frame, y, treatment=arms, **columns).result_


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["modifind", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code


def refusal(frame, arms, *, declared):
    y = np.random.default_rng(0).normal(size=len(frame))
    reading = Reading(treated=1, missing="category")
    data = reading.read(reading.at_once(Given(frame, y, arms).source().whole))
    try:
        refuse_after_treatment(data.block, data.columns_in, (), None, declared=declared)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("settings", [{}, {"design": "randomised"}, {"propensity": 0.4}])
def test_a_column_that_the_treatment_has_changed_is_refused_unless_it_is_named(settings):
    frame, y, arms = trial()
    with pytest.raises(ValueError, match=r"^later: differs between the arms .* out of X .* adjust_for"):
        fit(frame, y, arms, settings)
    assert "later" not in fit(frame, y, arms, settings, adjust_for=["later"]).table.index
    assert "later" in fit(frame, y, arms, settings, features=list(frame)).table.index
    assert fit(frame.drop(columns="later"), y, arms, settings).ok


def test_columns_that_nobody_named_are_looked_at_where_they_are_adjusted_for():
    frame, y, arms = trial()
    with pytest.raises(ValueError, match=r"^later: "):
        fit(frame, y, arms, features=["age", "marker"])


def test_tables_in_pieces_are_looked_at_as_well():
    frame, y, arms = trial(n=600)
    with pytest.raises(ValueError, match=r"^later: "):
        fit(frame, y, arms, {"design": "randomised", "max_train_rows": 300})


@pytest.mark.parametrize("part", ["level", "share", "missing"])
def test_levels_and_gaps_count(part):
    frame, _, arms = trial(n=600)
    rng = np.random.default_rng(1)
    frame["more"] = rng.normal(size=600)
    frame["later"] = {
        "level": rng.choice(list("xyz"), 600),
        "share": np.where(rng.random(600) < 0.2 + 0.4 * arms, "yes", "no"),
        "missing": np.where(rng.random(600) < 0.05 + 0.3 * arms, np.nan, rng.normal(size=600)),
    }[part]
    for declared in (False, True):
        assert refusal(frame, arms, declared=declared).startswith("later: ") == (part != "level")


def test_several_columns_that_nothing_else_is_related_to_may_be_causes_of_the_treatment():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(rng.normal(size=(1000, 12))).add_prefix("x")
    arms = (rng.random(1000) < 1 / (1 + np.exp(-0.7 * frame["x0"] + 0.7 * frame["x1"]))).astype(int).to_numpy()
    assert refusal(frame, arms, declared=True).startswith("x0, x1: ")
    assert not refusal(frame, arms, declared=False)


def test_trials_are_not_accused_and_later_columns_are():
    accused = caught = 0
    for seed in range(60):
        frame, _, arms = trial(seed, n=200, share=0.3)
        accused += any(
            refusal(frame.drop(columns="later"), arms, declared=declared) != "" for declared in (True, False)
        )
        caught += refusal(frame, arms, declared=False).startswith("later: ")
    assert accused == 0  # the chance of any is below 60 * 2e-4
    assert caught >= 54


def test_rare_levels_of_an_unequal_trial_are_no_evidence():
    # In 20 rows none is treated with chance 0.12, which is far from 1e-4.
    rng = np.random.default_rng(2)
    arms = np.arange(400) % 10 == 0
    frame = pd.DataFrame({"rare": np.where(np.isin(np.arange(400), np.flatnonzero(~arms)[:20]), "yes", "no")})
    frame["age"] = rng.normal(size=400)
    assert not refusal(frame, arms.astype(int), declared=True)


def test_tables_of_several_confounders_are_not_accused():
    for seed in range(6):
        data = make_modifiers("LinMean", n_samples=400, n_features=8, random_state=seed)
        assert not refusal(data.X, data.treatment, declared=False)


def test_the_cause_of_a_treatment_is_told_from_its_effect_by_what_other_columns_say_of_it():
    rng = np.random.default_rng(3)
    core = rng.normal(size=(1000, 1))
    frame = pd.DataFrame(core + rng.normal(size=(1000, 6)), columns=list("abcdef"))
    arms = (rng.random(1000) < 1 / (1 + np.exp(-0.4 * frame["a"]))).astype(int)
    assert not refusal(frame, arms, declared=False)
    tossed = rng.integers(0, 2, 1000)
    assert refusal(frame.assign(a=frame["a"] + 0.5 * tossed), tossed, declared=False).startswith("a: ")


def test_an_observational_study_is_not_looked_at():
    frame, y, arms = trial()
    found = fit(frame, y, arms, {"design": "observational"})
    assert design_sentence(found.settings).startswith(
        "The treatment was not randomised (observational); the probability"
    )


def test_the_share_of_all_rows_is_the_score_where_a_trial_has_none():
    frame, y, arms = trial()
    frame = frame.drop(columns="later")
    found = fit(frame, y, arms, {"design": "randomised"})
    known = fit(frame, y, arms, {"propensity": arms.mean()})
    pd.testing.assert_frame_equal(found.table, known.table)
    assert found.settings["design"] == {
        "randomised": True,
        "said": True,
        "chance": "observed",
        "share": pytest.approx(arms.mean()),
    }
    assert "known_share" not in set(found.checks["name"])
    assert "taken as the observed share, 0.34" in design_sentence(found.settings)
    assert "The treatment was randomised; the probability of treatment was taken as the observed share" in methods(
        found
    )
    in_pieces = fit(frame, y, arms, {"design": "randomised", "max_train_rows": 200})
    assert in_pieces.settings["design"]["share"] == pytest.approx(arms.mean())
    weights = np.where(arms == 1, 2.0, 1.0)
    weighted = fit(frame, y, arms, {"design": "randomised", "max_train_rows": 200}, sample_weight=weights)
    assert weighted.settings["design"]["share"] == pytest.approx(weights @ arms / weights.sum())


def test_placebo_treatments_of_a_trial_keep_the_number_of_treated_rows():
    frame, y, arms = trial()
    selector = ModifierSelector(**FAST, design="randomised")
    found = selector.placebo(frame.drop(columns="later"), y, treatment=arms, n=1)
    assert found.drawn == "as many rows as were treated were drawn anew"


def test_several_arms_have_the_shares_of_their_contrasts():
    frame, y, _ = trial()
    arm = np.array(["none", "low", "high"])[np.arange(300) % 3]
    selector = ModifierSelector(**FAST, design="randomised")
    found = selector.fit(frame.drop(columns="later"), y, treatment=arm, reference="none").result_
    assert design_sentence(found.settings).endswith("was taken as the observed shares.")
    assert found.by_arm["low"].settings["design"]["share"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("settings", "columns", "message"),
    [
        ({"design": "trial"}, {}, "design must be 'randomised' or 'observational', not 'trial'"),
        ({"design": "observational", "propensity": 0.5}, {}, "contradict each other"),
        ({"design": "observational"}, {"strata": "site"}, "design='observational' and strata contradict each other"),
        ({"design": "randomised", "propensity": "mlp"}, {}, "fitted to the features contradict each other"),
    ],
)
def test_contradictions_are_refused(settings, columns, message):
    frame, y, arms = trial()
    with pytest.raises(ValueError, match=message):
        fit(frame, y, arms, settings, **columns)


def test_a_result_keeps_its_design(tmp_path):
    frame, y, arms = trial()
    found = fit(frame.drop(columns="later"), y, arms)
    assert "Taken as observational" in design_sentence(found.settings)
    found.to_json(tmp_path / "result.json")
    assert SelectionResult.from_json(tmp_path / "result.json").settings["design"] == found.settings["design"]


def test_the_design_on_the_command_line(tmp_path, monkeypatch, capsys):
    frame, y, arms = trial()
    frame.assign(y=y, arm=arms).to_csv(tmp_path / "t.csv", index=False)
    fast = ("--learner", "linear", "--sampler", "gaussian", "--no-explain", "--out", str(tmp_path / "r.json"))
    command = ("select", str(tmp_path / "t.csv"), "--treatment", "arm", "--outcome", "y", *fast)
    assert run(monkeypatch, *command, "--randomised") == 2
    told = capsys.readouterr().err
    assert "later: differs between the arms" in told
    assert "--exclude" in told
    assert "--adjust-for" in told
    assert run(monkeypatch, *command, "--randomised", "--features", "age") == 2
    for options in (("--randomised", "--exclude", "later"), ("--randomised", "0.4", "--adjust-for", "later")):
        assert run(monkeypatch, *command, *options) == 0
        assert "The treatment was randomised; the probability of treatment" in capsys.readouterr().out
    assert run(monkeypatch, *command, "--randomised", "0=0.6,1=0.4", "--exclude", "later") == 0
    assert SelectionResult.from_json(tmp_path / "r.json").settings["design"]["share"] == pytest.approx(0.4)
    assert run(monkeypatch, *command, "--observational") == 0
    capsys.readouterr()
    for options, message in (
        (("--randomised", "--propensity", "0.4"), "--propensity and --randomised both say"),
        (("--randomised", "--observational"), "contradict each other"),
        (("--randomised", "40"), "a share between 0 and 1"),
        (("--observational", "--propensity", "0.4"), "--observational and --propensity 0.4 contradict each other"),
    ):
        assert run(monkeypatch, *command, *options) == 2
        assert message in capsys.readouterr().err
