"""Several arms: each contrast is the analysis of two arms, in memory and in pieces, and they are put together."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from modifind import EffectLikelihood, ModifierSelector, SelectionResult
from modifind.data.sources import FrameSource
from modifind.data.treatment import compare_arms
from modifind.engine.contrasts import combined

N = 450
LABELS = ("none", "low", "high")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.standard_normal((N, 3)), columns=["age", "dose", "score"]).round(6)
    frame["arm"] = rng.choice(LABELS, N)
    high = (frame["arm"] == "high").to_numpy()
    frame["y"] = (frame["dose"] + high * (1 + frame["age"]) + rng.standard_normal(N)).round(6)
    frame["site"] = rng.choice(["east", "west"], N)
    frame["w"] = rng.uniform(0.5, 2.0, N).round(6)
    frame["clinic"] = rng.integers(0, 40, N)
    return frame


def selector(**settings):
    settings = {"random_state": 3, "explain": False, "cv": 2} | settings
    return ModifierSelector(EffectLikelihood("linear"), "gaussian", **settings)


def fit(table, chosen=None, **named):
    chosen = selector() if chosen is None else chosen
    return chosen.fit(table[["age", "dose", "score"]], table["y"], table["arm"], **named).result_


@pytest.fixture(scope="module")
def result(table):
    return fit(table, selector(explain=True), reference="none")


def same(one, other, **tolerance):
    tolerance = tolerance or {"check_exact": True}
    pd.testing.assert_series_equal(one.table["p_value"], other.table["p_value"], **tolerance)
    pd.testing.assert_series_equal(one.table["importance"], other.table["importance"], **tolerance)


def test_the_modified_contrast_is_named_and_the_others_are_not(result, table):
    assert result.selected == ["age"]
    assert result.table.loc["age", "arms"] == "high"
    assert list(result.contrasts) == ["high", "low"]
    assert result.contrasts["high"]["selected"].tolist() == [True, False, False]
    assert not result.contrasts["low"]["selected"].any()
    assert result.table.loc["dose", "role"] == "prognostic"
    assert result.settings["arms"] == table["arm"].value_counts().to_dict()
    assert repr(result) == "SelectionResult(2 contrasts, 3 features, selected: age)"


@pytest.mark.parametrize("short", ["high", "low"])
def test_the_reference_has_the_rows_of_the_contrast_that_used_most(result, table, short):
    """Rows of the reference may be left out in one contrast, as those of a stratum without the other arm are."""
    comparison = compare_arms(table["arm"].value_counts().to_dict(), reference="none")
    fewer = replace(result.by_arm[short], settings=result.by_arm[short].settings | {"n_control": 7})
    found = combined(result.by_arm | {short: fewer}, comparison, [], 0.05, "bh").settings
    counts = table["arm"].value_counts()
    assert found["arms"] == counts.to_dict()
    assert (found["n_control"], found["n_rows"]) == (counts["none"], N)


def test_a_contrast_is_the_analysis_of_its_two_arms(result, table):
    alone = fit(table, selector(explain=True), arms=("none", "high"), reference="none")
    own = result.contrast("high")
    same(own, alone)
    assert own.settings["n_rows_other_arms"] == alone.settings["n_rows_other_arms"] == (table["arm"] == "low").sum()
    assert own.curves.keys() == alone.curves.keys()
    by_hand = fit(table[table["arm"] != "low"], treated="high")
    same(own, by_hand)
    assert by_hand.contrasts == {}


def test_with_two_arms_the_reference_names_the_control(table):
    two = table[table["arm"] != "low"]
    named = fit(two, reference="none")
    same(named, fit(two, treated="high"))
    assert (named.settings["control_label"], named.by_arm) == ("none", None)
    assert fit(two, reference="high").settings["treated_label"] == "none"


def test_known_shares_become_the_chance_within_two_arms(table):
    shares = {"none": 0.5, "low": 0.25, "high": 0.25}
    found = fit(table, selector(propensity=shares), reference="none")
    same(found.contrast("low"), fit(table, selector(propensity=1 / 3), arms=("none", "low"), reference="none"))
    assert found.contrast("low").settings["propensity_known"]
    assert fit(table[table["arm"] != "low"], selector(propensity={"none": 0.4, "high": 0.6}), treated="high")


def test_the_verdict_of_a_contrast_follows_what_is_selected_over_arms(result):
    for own in result.by_arm.values():
        for name in own.table.index[~own.table["selected"]]:
            assert own.changes.loc[name, "verdict"] == "No change found."
    assert "the effect rises" in result.contrast("high").changes.loc["age", "verdict"]


def test_a_notebook_and_a_paper_say_which_arm(result):
    assert result.summary().loc["age", "what changes"].startswith("high: Changes the average: the effect rises")
    assert result.summary().loc["dose", "what changes"] == "No change found."
    assert "high: Changes the average" in result._repr_html_()


def test_parts_of_a_contrast_are_asked_of_the_contrast(result):
    assert len(result.contrast("high").curve("age"))
    for ask in (lambda: result.curve("age"), lambda: result.density("age"), lambda: result.plot.curve("age")):
        with pytest.raises(ValueError, match=r"those of a contrast; use contrast\('high'\)"):
            ask()
    with pytest.raises(ValueError, match="no contrast 'middle'; available: 'high', 'low'"):
        result.contrast("middle")


def test_everything_comes_back_from_a_file(result, tmp_path):
    result.to_json(tmp_path / "result.json")
    assert SelectionResult.from_json(tmp_path / "result.json") == result
    result.to_csv(tmp_path / "result.csv")
    columns = pd.read_csv(tmp_path / "result.csv").columns
    assert {"arms", "p_value (high)", "selected (low)"} <= set(columns)
    record = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    record["by_arm"]["low"]["table"]["index"][0] = "other"
    with pytest.raises(ValueError, match=r"by_arm.low: expected a result of two arms with the features of table.index"):
        SelectionResult.from_dict(record)
    record = result.to_dict()
    record["by_arm"]["low"] = {name: part for name, part in result.to_dict().items() if name != "format"}
    with pytest.raises(ValueError, match=r"by_arm.low: expected a result of two arms"):
        SelectionResult.from_dict(record)


def test_the_report_has_the_pictures_of_every_contrast(result, tmp_path):
    result.report(tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "The effect depends on age." in html
    assert html.count("high against none</h4>") == html.count("low against none</h4>") == 3
    assert "Checks: low against none" in html
    assert "Benjamini and Bogomolov" in html


@pytest.mark.parametrize("settings", [{"n_jobs": 2}, {"random_state": np.random.default_rng(0)}])
def test_workers_and_generators_change_nothing_but_the_seed(settings, table, result):
    found = fit(table, selector(**settings), reference="none")
    if "n_jobs" in settings:
        same(found, result)
    assert found.contrast("low").settings["seed"] == found.contrast("high").settings["seed"]


def test_weights_clusters_strata_and_missing_values_follow(table):
    holes = table.assign(score=table["score"].where(np.arange(N) % 9 > 0))
    X, named = holes[["age", "score"]], {"reference": "none", "adjust_for": ["score"]}
    rows = {"sample_weight": holes["w"], "clusters": holes["clinic"], "strata": holes["site"]}
    found = selector(missing="category").fit(X, holes["y"], holes["arm"], **rows, **named).result_
    two = holes["arm"] != "low"
    own = {name: column[two] for name, column in rows.items()}
    alone = selector(missing="category").fit(
        X[two], holes["y"][two], holes["arm"][two], **own, treated="high", adjust_for=["score"]
    )
    same(found.contrast("high"), alone.result_)
    assert found.contrast("high").settings["clusters"] == alone.result_.settings["clusters"]


def test_row_scores_are_those_of_the_rows_that_are_compared(table):
    scores = np.random.default_rng(0).uniform(0.3, 0.7, N)
    two = (table["arm"] != "low").to_numpy()
    found = fit(table, selector(propensity=scores), arms=("none", "high"), reference="none")
    same(found, fit(table[two], selector(propensity=scores[two]), treated="high"))


def test_pieces_of_other_arms_are_left_out(table, tmp_path):
    pieces = selector(max_train_rows=200)
    whole = fit(table, pieces, reference="none")
    alone = fit(table[table["arm"] != "low"].reset_index(drop=True), selector(max_train_rows=200), treated="high")
    same(whole.contrast("high"), alone)
    X, y, arm = table[["age", "dose", "score"]], table["y"], table["arm"]
    small = FrameSource(X, y, arm, piece_rows=100)
    same(selector(max_train_rows=200).fit(small, reference="none").result_, whole, rtol=1e-9)
    file = tmp_path / "table.csv"
    table[["age", "dose", "score", "y", "arm"]].to_csv(file, index=False)
    from_file = selector(max_train_rows=200).fit(str(file), "y", "arm", reference="none").result_
    same(from_file, whole, rtol=1e-9)
    assert from_file.contrast("high").settings["n_rows_other_arms"] == (table["arm"] == "low").sum()


def test_placebo_runs_of_all_contrasts_are_put_together(table):
    found = fit(table, selector(placebo_runs=2), reference="none")
    assert found.placebo.n_runs == 2
    assert len(found.placebo.table) == 6
    own = [found.contrast(label).placebo.table["p_value"].to_numpy() for label in ("high", "low")]
    simes = np.minimum(2 * np.minimum(*own), np.maximum(*own))
    np.testing.assert_allclose(found.placebo.table["p_value"], simes)
    chosen = selector()
    again = chosen.placebo(table[["age", "dose", "score"]], table["y"], table["arm"], reference="none", n=2)
    pd.testing.assert_frame_equal(again.table, found.placebo.table)


def test_progress_is_that_of_all_contrasts(table):
    seen = []
    fit(table, selector(progress=lambda done, total: seen.append((done, total))), reference="none")
    # The features of every contrast are tested, and then explained.
    assert seen == [(done, 6) for contrast in (range(4), range(3, 7)) for _ in range(2) for done in contrast]


def test_ctrl_c_keeps_the_contrasts_that_were_done_and_a_checkpoint_goes_on(table, tmp_path, monkeypatch):
    def stop(done, total):
        if done == 5:
            raise KeyboardInterrupt

    chosen = selector(progress=stop, checkpoint=tmp_path / "run", random_state=None)
    with pytest.warns(UserWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
        fit(table, chosen, reference="none")
    kept = chosen.result_
    assert kept.settings["interrupted"]
    assert kept.contrast("high").table["p_value"].notna().all()
    assert kept.contrast("low").table["p_value"].isna().any()
    assert {folder.name for folder in (tmp_path / "run").iterdir()} == {"arm-1-high", "arm-2-low"}
    chosen.set_params(progress=False)
    whole = fit(table, chosen, reference="none")
    assert whole.table["p_value"].notna().all()
    same(whole, fit(table, selector(random_state=whole.settings["seed"]), reference="none"))


def test_labels_may_be_numbers_and_missing_ones_are_told(table):
    coded = table.assign(arm=table["arm"].map({"none": 0, "low": 1, "high": 2}))
    assert fit(coded, reference=0).table.loc["age", "arms"] == "2"
    holes = table.assign(arm=table["arm"].where(np.arange(N) > 3))
    with pytest.raises(ValueError, match=r"has 4 missing values.*\(in the comparison of 'high' with 'none'\)"):
        fit(holes, reference="none")
    assert fit(holes, selector(missing="drop"), reference="none").settings["n_rows"] == N - 4
