"""Placebo treatments: drawn as the real one was given, the same for any number of processes, and told in a sentence."""

import os
import sys
import warnings
from dataclasses import replace
from inspect import signature

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pandas.testing import assert_frame_equal

import modifind.result.placebo_result
from conftest import runs
from modifind import EffectLikelihood, ModifierSelector, SelectionResult
from modifind.cli.app import main
from modifind.cli.output import print_result
from modifind.data.treatment import Design
from modifind.engine.placebo import Assignment
from modifind.engine.reading import Given, Reading
from modifind.result.placebo_result import PlaceboResult

QUICK = {
    "statistic": EffectLikelihood("linear"),
    "sampler": "gaussian",
    "propensity": 0.5,
    "random_state": 0,
    "explain": False,
    "cv": 2,
}
N = 240


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(N, 3)), columns=["moves", "predicts", "noise"])
    treatment = rng.integers(0, 2, size=N)
    return X, 2 * treatment * X["moves"] + X["predicts"] + rng.normal(size=N), treatment


@pytest.fixture(scope="module")
def plain(table):
    return fit(table).result_


@pytest.fixture(scope="module")
def four(table):
    return placebo(table, n=4)


def placebo(table, *, n, settings=None, **rest):
    return ModifierSelector(**QUICK | (settings or {})).placebo(*table, n=n, **rest)


def fit(table, **settings):
    return ModifierSelector(**QUICK | settings).fit(*table)


def assigned(treatment, scores=0.5, known=True, **rest):
    """How the treatment of a table was given, as it is read."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(len(treatment), 2)), rng.normal(size=len(treatment))
    reading = Reading()
    data = reading.read(reading.at_once(Given(X, y, treatment, **rest).source().whole))
    design = Design.of(None, 0.5, strata=False) if known else Design.of(None, "auto", strata="strata" in rest)
    return Assignment.of(data, np.broadcast_to(scores, len(treatment)), design)


def draws(assignment, count=20, seed=0):
    rng = np.random.default_rng(seed)
    return [assignment.draw(rng) for _ in range(count)]


# How a placebo is drawn.


def test_a_known_number_is_the_chance_of_every_row():
    assignment = assigned(np.arange(N) % 2, scores=0.3)
    found = np.array(draws(assignment, 200))
    assert set(np.unique(found)) == {0, 1}
    assert found.mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / found.size))
    assert len({row.sum() for row in found}) > 1  # not a fixed number of rows
    assert assignment.described == "every row was assigned by the known probability"


def test_scores_of_rows_are_followed():
    scores = np.where(np.arange(N) < N // 2, 0.2, 0.8)
    assignment = assigned(np.arange(N) % 2, scores=scores, known=False)
    found = np.mean(draws(assignment, 400), axis=0)
    assert_allclose(found, scores, atol=5 * np.sqrt(0.16 / 400))
    assert assignment.described == "every row was assigned by the fitted propensity score"


def test_strata_keep_their_number_of_treated_rows():
    rng = np.random.default_rng(2)
    strata = rng.choice(["a", "b", "c"], size=N)
    treatment = (rng.random(N) < pd.Series(strata).map({"a": 0.2, "b": 0.5, "c": 0.8})).to_numpy().astype(int)
    assignment = assigned(treatment, strata=strata, known=False)
    found = draws(assignment)
    for stratum in "abc":
        inside = strata == stratum
        assert {row[inside].sum() for row in found} == {treatment[inside].sum()}
        assert len({tuple(row[inside]) for row in found}) == len(found)
    assert assignment.described == "the treated rows of every stratum were drawn anew"


def test_known_scores_are_followed_also_within_strata():
    strata = np.tile(["a", "b"], N // 2)
    scores = np.where(np.arange(N) < N // 2, 0.2, 0.8)
    assignment = assigned(np.arange(N) // 2 % 2, scores=scores, strata=strata)
    assert_allclose(np.mean(draws(assignment, 400), axis=0), scores, atol=5 * np.sqrt(0.16 / 400))


def clustered(sizes):
    return np.repeat(np.arange(len(sizes)), sizes)


def test_clusters_that_were_treated_whole_stay_whole():
    rng = np.random.default_rng(3)
    clusters = clustered(rng.integers(2, 12, size=60))
    order = rng.permutation(clusters.size)  # rows of a cluster need not stand together
    treatment = rng.integers(0, 2, size=60)[clusters]
    assignment = assigned(treatment[order], clusters=clusters[order])
    found = draws(assignment)
    for row in found:
        assert (pd.Series(row).groupby(clusters[order]).nunique() == 1).all()
    assert len({tuple(row) for row in found}) == len(found)
    assert assignment.described == "every cluster was assigned by the known probability"


def test_rows_of_clusters_with_both_arms_are_drawn_one_by_one():
    clusters = clustered([6] * 40)
    assignment = assigned(np.arange(N) % 2, clusters=clusters)
    for row in draws(assignment):
        assert (pd.Series(row).groupby(clusters).nunique() == 2).any()
    assert assignment.described == "every row was assigned by the known probability"


def test_strata_keep_their_number_of_treated_clusters():
    clusters = clustered([4] * 60)
    strata = np.where(clusters < 24, "north", "south")
    treatment = ((clusters % 3 == 0) | (clusters > 50)).astype(int)
    assignment = assigned(treatment, clusters=clusters, strata=strata, known=False)
    assert assignment.described == "the treated clusters of every stratum were drawn anew"
    first = np.arange(0, N, 4)
    for row in draws(assignment):
        assert_array_equal(row, np.repeat(row[first], 4))
        for stratum in ("north", "south"):
            inside = first[strata[first] == stratum]
            assert row[inside].sum() == treatment[inside].sum()


def test_clusters_that_lie_in_several_strata_are_drawn_whole_by_their_scores():
    clusters = clustered([4] * 60)
    assignment = assigned(clusters % 2, clusters=clusters, strata=np.where(np.arange(N) % 2, "north", "south"))
    assert assignment.strata is None
    for row in draws(assignment):
        assert_array_equal(row, np.repeat(row[::4], 4))
    assert assignment.described == "every cluster was assigned by the known probability"


def test_a_treatment_that_would_have_too_few_rows_is_drawn_again():
    assignment = assigned(np.arange(60) % 2, scores=0.4)
    sizes = {int(row.sum()) for row in draws(assignment, 300)}
    assert min(sizes) >= 20
    assert max(sizes) <= 40
    assert 20 in sizes


def test_scores_that_always_leave_an_arm_too_small_are_refused():
    assignment = assigned(np.arange(N) % 2, scores=0.01)
    with pytest.raises(ValueError, match="leaves fewer than 20 rows in an arm in each of 100 draws") as error:
        assignment.draw(np.random.default_rng(0))
    assert "\n" not in str(error.value)


def test_drawing_leaves_the_treatment_as_it_is():
    treatment = np.arange(N) % 2
    assignment = assigned(treatment, strata=np.where(np.arange(N) < 100, "a", "b"))
    draws(assignment, 3)
    assert_array_equal(assignment.arms, treatment)


# Runs.


def test_runs_are_the_same_for_any_number_of_processes(table, four):
    both = placebo(table, n=2, settings={"n_jobs": 2})
    assert_frame_equal(both.table, four.table[four.table["run"] <= 2], check_exact=True)


def test_a_run_is_the_same_whatever_their_number(table, four):
    two = placebo(table, n=2)
    assert_frame_equal(two.table, four.table[four.table["run"] <= 2], check_exact=True)
    assert (two.n_asked, four.n_asked) == (2, 4)


def test_runs_depend_on_the_seed_alone(table):
    np.random.seed(1)  # noqa: NPY002
    first = placebo(table, n=1)
    np.random.seed(2)  # noqa: NPY002
    again = placebo(table, n=1)
    assert_frame_equal(first.table, again.table, check_exact=True)
    other = placebo(table, n=1, settings={"random_state": 1})
    assert (other.table["p_value"] != first.table["p_value"]).any()


def test_the_table_has_a_row_for_every_run_and_feature(four):
    assert list(four.table.columns) == ["run", "feature", "p_value", "selected"]
    assert four.table["run"].tolist() == np.repeat([1, 2, 3, 4], 3).tolist()
    assert four.table["feature"].tolist() == ["moves", "predicts", "noise"] * 4
    assert four.table["p_value"].between(0, 1).all()
    assert four.table.groupby("run")["p_value"].nunique().eq(3).all()
    assert (four.n_runs, four.chance, four.ok) == (4, 0.05, True)
    assert repr(four) == f"PlaceboResult({four.text})"


@pytest.mark.study
def test_a_placebo_moves_nothing(table, plain):
    # The same feature that the real treatment goes with is found in hardly any run.
    found = placebo(table, n=runs(10, 5)).table
    assert plain.selected == ["moves"]
    assert found["selected"].mean() <= 0.2
    assert found.loc[found["feature"] == "moves", "p_value"].median() > 0.1


def test_clusters_strata_and_weights_reach_the_runs(table):
    X, y, _ = table
    clusters = clustered([4] * 60)
    treatment = (clusters % 2).astype(int)
    found = placebo((X, y, treatment), n=1, clusters=clusters)
    assert found.drawn == "every cluster was assigned by the known probability"
    untold = placebo((X, y, treatment), n=1)
    assert (untold.table["p_value"] != found.table["p_value"]).all()
    strata = np.where(np.arange(N) % 3, "a", "b")
    found = placebo(table, n=1, strata=strata, sample_weight=np.linspace(1, 2, N), settings={"propensity": "auto"})
    assert found.drawn == "the treated rows of every stratum were drawn anew"
    assert found.table["feature"].tolist() == ["moves", "predicts", "noise"]


def test_feature_groups_are_tested_as_one(table):
    found = placebo(table, n=1, settings={"feature_groups": {"pair": ["moves", "noise"]}})
    assert found.table["feature"].tolist() == ["pair", "predicts"]


@pytest.mark.filterwarnings("ignore:levels with fewer")
def test_categories_are_pooled_for_every_draw(table):
    X, y, treatment = table
    # Few enough rows for some draws to leave a level with fewer than five in an arm.
    site = np.where(np.arange(N) < 11, "rare", np.where(np.arange(N) % 2, "north", "south"))
    found = placebo((X.assign(site=site), y, treatment), n=4)
    assert found.n_runs == 4
    assert found.table["feature"].tolist() == ["moves", "predicts", "noise", "site"] * 4


def test_placebo_names_the_arguments_of_fit(table):
    fit, placebo_ = (signature(method).parameters for method in (ModifierSelector.fit, ModifierSelector.placebo))
    assert placebo_["n"].default == 20
    assert [argument for argument in placebo_.values() if argument.name != "n"] == list(fit.values())
    with pytest.raises(TypeError, match=r"placebo\(\) got an unexpected keyword argument 'weights'"):
        placebo(table, n=1, weights=None)


def test_runs_say_nothing(table):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        placebo(table, n=1)


# With a fit.


@pytest.fixture(scope="module")
def with_runs(table):
    return fit(table, placebo_runs=3).result_


def test_placebo_runs_do_not_change_the_fit(plain, with_runs, four):
    assert plain.placebo is None
    assert_frame_equal(with_runs.table, plain.table, check_exact=True)
    assert_frame_equal(with_runs.diagnostics, plain.diagnostics, check_exact=True)
    assert replace(with_runs, placebo=None) == plain
    # They are those of the method.
    assert_frame_equal(with_runs.placebo.table, four.table[four.table["run"] <= 3], check_exact=True)


def test_results_keep_placebo_runs_on_file(with_runs, tmp_path):
    with_runs.to_json(tmp_path / "result.json")
    found = SelectionResult.from_json(tmp_path / "result.json")
    assert found == with_runs
    assert_frame_equal(found.placebo.table, with_runs.placebo.table, check_exact=True)
    assert (found.placebo.drawn, found.placebo.n_asked) == (with_runs.placebo.drawn, 3)


def test_report_and_terminal_say_what_placebos_found(with_runs, tmp_path, capsys):
    sentence = "of 3 placebo treatments found"
    assert sentence in with_runs.placebo.text
    with_runs.report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert with_runs.placebo.text in text
    assert with_runs.placebo.drawn in text
    assert "Histogram of 9 p-values of placebo treatments" in text
    print_result(with_runs)
    assert f"{'placebo':<21}{with_runs.placebo.text}" in capsys.readouterr().out.splitlines()
    replace(with_runs, placebo=None).report(tmp_path / "without.html")
    assert sentence not in (tmp_path / "without.html").read_text(encoding="utf-8")


def test_too_many_finds_of_a_fit_are_a_warning(table, monkeypatch):
    # At a level of 0.9 most placebos find something; here that is to be remarkable.
    monkeypatch.setattr(modifind.result.placebo_result, "UNLIKELY", 0.99)
    with pytest.warns(UserWarning, match="P-values of this table are too small"):
        result = fit(table, placebo_runs=2, alpha=0.9).result_
    assert result.placebo.warning in result.warnings
    assert not result.ok


# Stopped, and continued.


def stop_at(done_runs, n):
    """Ctrl-C when so many of n runs are done; `n` is not the number of features."""

    def progress(done, total):
        if total == n and done >= done_runs:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("done", [0, 1])
def test_an_interrupted_fit_keeps_its_result(table, plain, four, done):
    selector = ModifierSelector(**QUICK, placebo_runs=5, progress=stop_at(done, 5))
    with pytest.raises(KeyboardInterrupt):
        selector.fit(*table)
    result = selector.result_
    assert replace(result, placebo=None) == plain
    if done == 0:
        assert result.placebo is None
    else:
        assert_frame_equal(result.placebo.table, four.table[four.table["run"] == 1], check_exact=True)
        assert result.placebo.text == "0 of 1 placebo treatment found anything (5 were asked for)."


def test_interrupted_runs_are_kept_in_the_checkpoint(table, four, tmp_path):
    selector = ModifierSelector(**QUICK, checkpoint=tmp_path, progress=stop_at(3, 4))
    with pytest.raises(KeyboardInterrupt):
        selector.placebo(*table, n=4)
    assert_frame_equal(selector.placebo_.table, four.table[four.table["run"] <= 3], check_exact=True)
    assert selector.placebo_.text.endswith("(4 were asked for).")
    assert len(runs_on_file(tmp_path)) == 3
    calls = []
    found = placebo(
        table, n=4, settings={"checkpoint": tmp_path, "progress": lambda done, total: calls.append((done, total))}
    )
    assert calls == [(3, 4), (4, 4)]
    assert_frame_equal(found.table, four.table, check_exact=True)


def runs_on_file(folder):
    return sorted(path for path in folder.iterdir() if path.name.startswith("placebo-"))


def test_more_runs_take_those_on_file(table, four, tmp_path):
    placebo(table, n=2, settings={"checkpoint": tmp_path})
    first = runs_on_file(tmp_path)
    assert len(first) == 2
    for path in first:
        os.utime(path, (1, 1))
    # Neither the level nor the adjustment changes what is found of a feature.
    found = placebo(table, n=4, settings={"checkpoint": tmp_path, "n_jobs": 2})
    assert_frame_equal(found.table, four.table, check_exact=True)
    files = runs_on_file(tmp_path)
    assert [path.stat().st_mtime == 1 for path in files] == [True, True, False, False]
    strict = placebo(table, n=4, settings={"checkpoint": tmp_path, "alpha": 0.9, "adjust": "none"})
    assert_array_equal(strict.table["p_value"], four.table["p_value"])
    assert_array_equal(strict.table["selected"], four.table["p_value"] <= 0.9)


def test_a_fit_and_its_placebos_share_a_folder(table, with_runs, tmp_path):
    fit(table, checkpoint=tmp_path, placebo_runs=2)
    kept = sorted(tmp_path.glob("feature-*.json")) + runs_on_file(tmp_path)
    assert len(kept) == 5
    for path in kept:
        os.utime(path, (1, 1))
    assert fit(table, checkpoint=tmp_path, placebo_runs=3).result_ == with_runs
    assert all(path.stat().st_mtime == 1 for path in kept)
    assert len(runs_on_file(tmp_path)) == 3


def test_a_damaged_run_is_done_again(table, four, tmp_path):
    placebo(table, n=2, settings={"checkpoint": tmp_path})
    runs_on_file(tmp_path)[1].write_text("{", encoding="utf-8")
    with pytest.warns(UserWarning, match="1 damaged file ignored and recomputed: 'placebo 2'"):
        found = placebo(table, n=2, settings={"checkpoint": tmp_path})
    assert_frame_equal(found.table, four.table[four.table["run"] <= 2], check_exact=True)


def test_placebos_of_another_table_are_refused(table, tmp_path):
    placebo(table, n=1, settings={"checkpoint": tmp_path})
    X, y, treatment = table
    with pytest.raises(ValueError, match=r"belongs to another run.*the treatment differs"):
        placebo((X, y, np.roll(treatment, 1)), n=1, settings={"checkpoint": tmp_path})


# What is refused.

COUNTS = "n must be a whole number of at least 1, not "
RUNS = "placebo_runs must be a whole number of at least 0, not "


@pytest.mark.parametrize("n", [0, -3, 1.5, True, "5", None])
def test_no_number_of_runs_is_refused(table, n):
    with pytest.raises(ValueError, match=f"^{COUNTS}{n!r}$"):
        placebo(table, n=n)


@pytest.mark.parametrize("n", [-1, 1.5, True, None])
def test_no_number_of_runs_of_a_fit_is_refused(table, n):
    with pytest.raises(ValueError, match=f"^{RUNS}{n!r}$"):
        fit(table, placebo_runs=n)


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_scores_without_a_chance_are_refused(table, score):
    with pytest.raises(ValueError, match=r"^propensity must lie strictly between 0 and 1; 1 value does not$"):
        placebo(table, n=1, settings={"propensity": score})
    scores = np.full(N, 0.5)
    scores[3] = score
    with pytest.raises(ValueError, match=r"^propensity must lie strictly between 0 and 1; 1 value does not$"):
        placebo(table, n=1, settings={"propensity": scores})


def test_a_stratum_with_one_arm_is_refused(table):
    treatment = table[2]
    strata = np.where((treatment == 1) & (np.arange(N) < 60), "all treated", "mixed")
    with pytest.raises(ValueError, match=r"every stratum needs at least 5 rows of each arm; .*'all treated'") as error:
        placebo(table, n=1, strata=strata)
    assert "\n" not in str(error.value)


def test_clusters_of_a_resampling_statistic_are_refused(table):
    with pytest.raises(ValueError, match="clusters needs statistic='effect_likelihood'"):
        placebo(table, n=1, clusters=np.arange(N) // 2, settings={"statistic": "wcmmd", "n_resamples": 19})


def test_placebo_runs_of_tables_in_pieces_are_those_of_the_sample(table, tmp_path):
    alone = placebo(table, n=2, settings={"max_train_rows": 200})
    assert alone.n_runs == 2
    assert alone.drawn == "every row was assigned by the known probability in a sample of 200 rows"
    beside = fit(table, placebo_runs=2, max_train_rows=200).result_.placebo
    pd.testing.assert_frame_equal(alone.table, beside.table)
    assert beside.drawn == alone.drawn
    X, y, treatment = table
    X.assign(y=y, arm=treatment).to_csv(tmp_path / "table.csv", index=False)
    pd.testing.assert_frame_equal(
        placebo((tmp_path / "table.csv", "y", "arm"), n=2, settings={"max_train_rows": 200}).table, alone.table
    )
    saved = {"max_train_rows": 200, "checkpoint": tmp_path / "saved"}
    placebo(table, n=1, settings=saved)
    assert len(runs_on_file(tmp_path / "saved")) == 1
    pd.testing.assert_frame_equal(placebo(table, n=2, settings=saved).table, alone.table)


def test_placebo_runs_of_files_are_those_of_their_frame_on_the_command_line(table, tmp_path, monkeypatch, capsys):
    X, y, treatment = table
    X.assign(y=y, arm=treatment).to_csv(tmp_path / "table.csv", index=False)
    monkeypatch.chdir(tmp_path)
    line = [
        "modifind",
        "placebo",
        "table.csv",
        "--treatment",
        "arm",
        "--outcome",
        "y",
        "--n",
        "2",
        "--learner",
        "linear",
    ]
    line += ["--sampler", "gaussian", "--propensity", "0.5", "--train-rows", "200"]
    for name, more in (("frame.csv", []), ("stream.csv", ["--stream"])):
        monkeypatch.setattr(sys, "argv", [*line, *more, "--out", name])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
    assert "in a sample of 200 rows" in capsys.readouterr().out
    assert (tmp_path / "frame.csv").read_bytes() == (tmp_path / "stream.csv").read_bytes()


def test_placebo_runs_of_dask_tables(table):
    dask = pytest.importorskip("dask.dataframe")
    X, y, treatment = table
    frame = dask.from_pandas(X.assign(y=y, arm=treatment), npartitions=2)
    distributed = pytest.importorskip("distributed")
    with distributed.Client(processes=False, n_workers=1, dashboard_address=":0"):
        few = placebo((frame, "y", "arm"), n=1)
    pd.testing.assert_frame_equal(few.table, placebo(table, n=1).table)


# What is said of them.


def found(n_found, n_runs=20, n_asked=20, chance=0.05):
    """Of so many runs one feature of two was selected."""
    table = pd.DataFrame({"run": np.repeat(np.arange(n_runs) + 1, 2), "feature": ["age", "sex"] * n_runs})
    chosen = (table["run"] <= n_found) & (table["feature"] == "age")
    table = table.assign(p_value=np.where(chosen, 0.001, 0.6), selected=chosen)
    return PlaceboResult(table, n_asked, chance, "a coin was thrown")


@pytest.mark.parametrize(("n_found", "ok"), [(0, True), (1, True), (3, True), (4, False), (20, False)])
def test_more_finds_than_chance_allows_are_not_ok(n_found, ok):
    result = found(n_found)
    assert (result.n_runs, result.n_found, result.ok) == (20, n_found, ok)
    if ok:
        assert result.warning == ""
    else:
        assert result.warning.startswith(
            f"{n_found} of 20 placebo treatments, which do nothing, found something; by chance it would be at most 3."
        )
        assert "too small" in result.warning
        assert "\n" not in result.warning


def test_the_level_decides_what_is_too_many():
    assert found(4, chance=0.2).ok
    assert not found(2, chance=0.001).ok
    assert found(1, n_runs=1, chance=0.049).ok is False


@pytest.mark.parametrize(
    ("n_found", "n_runs", "expected"),
    [
        (0, 20, "0 of 20 placebo treatments found anything."),
        (3, 20, "3 of 20 placebo treatments found something."),
        (0, 7, "0 of 7 placebo treatments found anything (20 were asked for)."),
        (2, 7, "2 of 7 placebo treatments found something (20 were asked for)."),
    ],
)
def test_sentences(n_found, n_runs, expected):
    assert found(n_found, n_runs).text == expected


BROKEN = {
    "nothing in it": ({}, "placebo: missing table, n_asked"),
    "no object": ([], "placebo: expected an object"),
    "no table": ({"table": None}, "placebo.table: expected"),
    "half a run": ({"n_asked": 1.5}, "placebo.n_asked: expected"),
    "no level": ({"chance": 5.0}, "placebo.chance: expected"),
    "no words": ({"drawn": 3}, "placebo.drawn: expected"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_placebos_of_a_file_are_named(with_runs, case):
    change, expected = BROKEN[case]
    data = with_runs.to_dict()
    data["placebo"] = data["placebo"] | change if change else change
    with pytest.raises(ValueError, match=f"^{expected}"):
        SelectionResult.from_dict(data)


@pytest.mark.parametrize(("column", "value"), [("p_value", "small"), ("p_value", 2.0), ("selected", 1), ("run", "one")])
def test_broken_tables_of_placebos_are_named(with_runs, column, value):
    data = with_runs.to_dict()
    data["placebo"]["table"]["columns"][column][4] = value
    with pytest.raises(ValueError, match=rf"placebo\.table\.columns\.{column}\[4\]"):
        SelectionResult.from_dict(data)


def test_reports_tell_the_warning(with_runs, tmp_path):
    bad = replace(with_runs, placebo=found(6))
    bad.report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert bad.placebo.warning in text
    assert "6 of 20 placebo treatments found something." in text
    bad.to_json(tmp_path / "bad.json")
    assert SelectionResult.from_json(tmp_path / "bad.json") == bad


def test_without_adjustment_more_runs_may_find_something(table):
    plain = placebo(table, n=1, settings={"adjust": "none"})
    assert plain.chance == pytest.approx(1 - 0.95 ** plain.table["feature"].nunique())


def test_what_no_run_can_analyse_is_an_error_and_not_a_success(table):
    with pytest.raises(ValueError, match="outcome_transform='log' needs a positive outcome"):
        placebo(table, n=2, settings={"outcome_transform": "log"})
