"""Runs that fit nothing, reports of saved results, and placebo treatments on the command line."""

import json
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from modifind import EffectLikelihood, ModifierSelector, SelectionResult
from modifind.cli.app import main
from modifind.engine.dry_run import describe
from modifind.nuisance.conditional import GaussianSampler
from modifind.nuisance.propensity.scores import PropensityModel
from modifind.statistics import WCMMD

N = 300


@pytest.fixture(scope="module")
def messy():
    """Categories of text with rare levels, gaps, a constant, and all that rows can have."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "age": rng.normal(60, 9, size=N).round(1),
            "sbp": rng.normal(130, 12, size=N),
            "dbp": rng.normal(80, 9, size=N),
            "site": rng.choice(["north", "south", "west"], size=N),
            "smoker": rng.choice(["no", "yes"], size=N),
            "flat": 1.0,
        }
    )
    X.loc[:13, "site"] = ["tiny", "lone"] * 7
    X.loc[10:50, "age"] = np.nan
    X.loc[100:130, "smoker"] = None
    y = pd.Series(rng.lognormal(size=N), name="cost")
    return X, y, pd.Series(rng.choice(["drug", "placebo"], size=N), name="arm")


def plain(n=N, d=2, seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=n), np.arange(n) % 2


def selector(**settings):
    return ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", random_state=0, **settings)


def told(table, settings=None, **rest):
    lines = describe(selector(**settings or {}).get_params(deep=False), *table, **rest)
    assert len({heading for heading, _ in lines}) == len(lines)
    assert not [line for _, line in lines if "\n" in line or not line]
    return dict(lines)


@pytest.fixture
def nothing_is_fitted(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("something was fitted")

    for owner, name in (
        (EffectLikelihood, "prepare"),
        (WCMMD, "prepare"),
        (GaussianSampler, "fit"),
        (LogisticRegression, "fit"),
    ):
        monkeypatch.setattr(owner, name, refuse)


@pytest.mark.usefixtures("nothing_is_fitted")
@pytest.mark.filterwarnings("ignore:constant columns")
def test_a_messy_table_is_told_line_by_line(messy):
    clusters = np.arange(N) // 3
    with pytest.warns(UserWarning, match=r"pooled as 'other' \(site: .*'tiny'"):
        found = told(
            messy,
            {"missing": "category", "outcome_transform": "log", "feature_groups": {"pressure": ["sbp", "dbp"]}},
            clusters=clusters,
            strata=np.where(np.arange(N) < 120, "A", "B"),
            sample_weight=np.where(np.arange(N) % 2, 1.0, 3.0),
        )
    treated = int((messy[2] == "drug").sum())
    assert list(found) == [
        "rows",
        "treatment",
        "outcome",
        "features, numbers",
        "features, categories",
        "not tested",
        "missing values",
        "tested as one",
        "strata",
        "weights",
        "clusters",
        "design",
        "propensity",
        "test",
        "time",
    ]
    assert found["rows"] == "300"
    assert found["treatment"] == f"arm: drug (treated) {treated} rows, placebo (control) {N - treated} rows"
    assert found["outcome"].startswith("cost: a number from 0.")
    assert found["outcome"].endswith(", 300 distinct values, taken as its logarithm")
    assert found["features, numbers"] == "3: age, sbp, dbp"
    # Rare levels are one; a missing value is one of its own.
    assert found["features, categories"] == "2: site (4 levels), smoker (3 levels)"
    assert found["not tested"] == "flat: the same in all rows"
    assert found["missing values"].startswith("age 41, smoker ")
    assert found["missing values"].endswith("; missing is a state of its own")
    assert found["tested as one"] == "pressure (sbp, dbp)"
    assert found["strata"].startswith("2; ")
    # 150 rows of weight 1 and 150 of weight 3: 600^2 / (150 + 1350).
    assert found["weights"] == "worth 240 rows that count alike"
    assert found["clusters"].startswith("100; ")
    assert found["propensity"] == "share of treated rows in each stratum"
    assert found["test"] == "effect_likelihood, sampler GaussianSampler; p-values adjusted (bh), level 0.05"
    assert found["time"].startswith("about 5 seconds, ")


@pytest.mark.usefixtures("nothing_is_fitted")
@pytest.mark.filterwarnings("ignore:looks like an identifier", "ignore:no two levels")
def test_columns_that_are_left_out_are_told_why():
    X, y, treatment = plain()
    X = pd.DataFrame(X, columns=["a", "b"]).assign(patient=[f"p{k}" for k in range(N)], flat=1)
    X["rare"] = np.where(np.arange(N) < 3, "yes", "no")
    found = told((X, y, treatment))["not tested"].split("; ")
    assert found == [
        "patient: looks like an identifier",
        "flat: the same in all rows",
        "rare: no two levels have rows enough in each arm",
    ]


def test_weights_for_missing_outcomes_are_not_fitted(monkeypatch):
    monkeypatch.setattr(PropensityModel, "fit", None)
    X, y, treatment = plain()
    y = np.where(np.arange(N) % 4, y, np.nan)
    found = told((X, y, treatment), {"missing_outcome": "weight"})
    assert found["rows"] == "225 of 300; the others are left out"
    assert found["outcomes"] == "missing in 75 rows (25%); models of who has one would weight the others for them"
    with pytest.raises(ValueError, match="needs at least 20 rows with an outcome"):
        told((X, np.r_[np.nan, np.ones(N - 1)], treatment), {"missing_outcome": "weight"})


@pytest.mark.usefixtures("nothing_is_fitted")
def test_binary_outcomes_are_counted():
    X, _, treatment = plain()
    y = np.arange(N) < 90
    assert told((X, y.astype(int), treatment))["outcome"] == "two values, 0 in 210 rows and 1 in 90"
    assert told((X, np.where(y, 5.5, 2), treatment))["outcome"] == "two values, 2 in 210 rows and 5.5 in 90"


@pytest.mark.usefixtures("nothing_is_fitted")
@pytest.mark.parametrize(
    ("propensity", "expected"),
    [
        (0.25, "known, 0.25 for every row"),
        (np.linspace(0.3, 0.7, N), "known, one score per row"),
        ("auto", "auto: fitted to the features"),
        ("mlp", "mlp: fitted to the features"),
        (LogisticRegression(), "LogisticRegression, fitted to the features"),
    ],
)
def test_where_scores_come_from(propensity, expected):
    assert told(plain(), {"propensity": propensity})["propensity"] == expected


@pytest.mark.usefixtures("nothing_is_fitted")
def test_settings_are_told():
    X, y, treatment = plain(d=14)
    found = told((X, y, treatment), {"alpha": 0.1, "adjust": "none", "placebo_runs": 8, "propensity": 0.5})
    assert found["test"].endswith("; unadjusted p-values, level 0.1")
    assert found["placebo treatments"] == "8; every row was assigned by the known probability"
    assert found["features, numbers"].startswith("14: x0, x1, ")
    assert found["features, numbers"].endswith(", x11 and 2 more")
    other = dict(describe(ModifierSelector("wcmmd", sampler="marginal").get_params(deep=False), X, y, treatment))
    assert other["test"].startswith("wcmmd, sampler MarginalSampler; ")
    assert "time" not in other
    assert "placebo treatments" not in other


@pytest.mark.usefixtures("nothing_is_fitted")
def test_placebos_are_drawn_as_they_will_be():
    X, y, _ = plain()
    clusters = np.arange(N) // 3
    found = told((X, y, clusters % 2), {"placebo_runs": 2}, clusters=clusters)
    assert found["placebo treatments"] == "2; every cluster was assigned by the fitted propensity score"
    found = told(plain(), {"placebo_runs": 2}, strata=np.where(np.arange(N) < 120, "A", "B"))
    assert found["placebo treatments"] == "2; the treated rows of every stratum were drawn anew"


def test_explanations_placebos_and_processes_are_part_of_the_time():
    table = plain(d=8)
    times = [
        told(table, settings)["time"].split(",")[0]
        for settings in (
            {"explain": False},
            {"placebo_runs": 20},
            {"placebo_runs": 200},
            {"placebo_runs": 200, "n_jobs": 4},
        )
    ]
    assert times == ["about 5 seconds", "about 30 seconds", "about 4 minutes", "about 60 seconds with 4 processes"]


@pytest.mark.usefixtures("nothing_is_fitted")
@pytest.mark.filterwarnings("ignore:levels with fewer")
def test_rows_that_are_left_out_are_counted(messy):
    with pytest.warns(UserWarning, match="72 of 300 rows"):
        found = told(messy, {"missing": "drop"})
    assert found["rows"] == "228 of 300; the others are left out"
    assert "missing values" not in found


@pytest.mark.usefixtures("nothing_is_fitted")
def test_what_is_wrong_is_told_as_fit_tells_it(messy):
    X, y, treatment = plain()
    cases = (
        ((X, y, np.arange(N) % 3), {}, {}, "has 3 labels"),
        (messy, {}, {}, "missing"),
        ((X, np.ones(N), treatment), {}, {}, "y is constant"),
        ((X, y, treatment), {"alpha": 7}, {}, "alpha must lie"),
        ((X, y, treatment), {"placebo_runs": -1}, {}, "placebo_runs must be"),
        ((X, y, treatment), {"feature_groups": {"g": ["x0", "x9"]}}, {}, "x9"),
        ((X, y, treatment), {}, {"clusters": [1, 2]}, "clusters has 2 rows"),
    )
    for table, settings, rest, message in cases:
        with pytest.raises(ValueError, match=message) as mine:
            told(table, settings, **rest)
        with pytest.raises(ValueError, match=message) as other:
            selector(**settings).fit(*table, **rest)
        assert str(mine.value) == str(other.value)


# The command line.


def here(monkeypatch, capsys, *arguments):
    """A command without a process of its own."""
    monkeypatch.setattr(sys, "argv", ["modifind", *map(str, arguments)])
    with pytest.raises(SystemExit) as done:
        main()
    return done.value.code, capsys.readouterr()


def refused(code, said, expected):
    assert code == 2
    assert said.err.startswith("modifind: error: ")
    assert said.err.count("\n") == 1, said.err
    assert expected in said.err
    assert said.out == ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(rng.normal(size=(N, 3)), columns=["moves", "other", "=noise"]).round(4)
    frame["patient"] = np.arange(N)
    frame["arm"] = np.where(rng.random(N) < 0.5, "drug", "placebo")
    frame["y"] = (2 * (frame["arm"] == "drug") * frame["moves"] + rng.normal(size=N)).round(4)
    frame.to_csv(folder / "data.csv", index=False)
    return folder


GOOD = ("--treatment", "arm", "--outcome", "y", "--exclude", "patient", "--propensity", "0.5")
QUICK = ("--learner", "linear", "--sampler", "gaussian")
FOUND_OF_TWO = ("0 of 2 placebo treatments found anything.", "1 of 2 placebo treatments found something.")


@pytest.mark.usefixtures("nothing_is_fitted")
def test_a_dry_run_fits_and_writes_nothing(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    files = ("--out", "r.json", "--report", "r.html", "--checkpoint", "saved")
    code, said = here(monkeypatch, capsys, "select", folder / "data.csv", *GOOD, *files, "--placebo", 5, "--dry-run")
    assert code == 0, said.err
    assert said.err == ""
    assert not list(tmp_path.iterdir())
    lines = said.out.splitlines()
    assert lines[-1] == "Nothing was fitted; leave --dry-run out to run it."
    found = dict(line.split("  ", 1) for line in lines if "  " in line)
    found = {heading: line.strip() for heading, line in found.items()}
    assert found["other columns"] == "patient, arm, y"
    assert found["features, numbers"] == "3: moves, other, =noise"
    assert found["placebo treatments"].startswith("5; every row was assigned by the known probability")
    assert found["test"].startswith("effect_likelihood, sampler AutoSampler")


@pytest.mark.usefixtures("nothing_is_fitted")
def test_a_dry_run_tells_warnings_as_lines(messy, tmp_path, monkeypatch, capsys):
    X, y, treatment = messy
    X.assign(arm=treatment, cost=y).to_csv(tmp_path / "messy.csv", index=False)
    arguments = (tmp_path / "messy.csv", "--treatment", "arm", "--outcome", "cost", "--missing", "category")
    code, said = here(monkeypatch, capsys, "select", *arguments, "--dry-run", "--log-outcome")
    assert code == 0, said.err
    warned = [line for line in said.err.splitlines() if line]
    assert all(line.startswith("modifind: warning: ") for line in warned)
    assert sum("are pooled as 'other'" in line for line in warned) == 1
    assert "taken as its logarithm" in said.out


def test_names_of_columns_are_no_commands_to_the_terminal(tmp_path, monkeypatch, capsys):
    X, y, treatment = plain()
    frame = pd.DataFrame(X, columns=["a\x1b[31m", "b"]).assign(arm=treatment, y=y)
    frame.to_csv(tmp_path / "data.csv", index=False)
    arguments = (tmp_path / "data.csv", "--treatment", "arm", "--outcome", "y", "--dry-run")
    code, said = here(monkeypatch, capsys, "select", *arguments)
    assert code == 0, said.err
    assert "\x1b" not in said.out
    assert r"a\x1b[31m" in said.out


def test_a_dry_run_of_a_stream_is_refused(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, said = here(monkeypatch, capsys, "select", folder / "data.csv", *GOOD, "--stream", "--dry-run")
    refused(code, said, "--dry-run needs the table in memory; leave --stream out")
    assert not list(tmp_path.iterdir())


def test_a_dry_run_of_a_bad_table_is_refused(folder, monkeypatch, capsys):
    bad = ("--treatment", "patient", "--outcome", "y", "--dry-run")
    refused(*here(monkeypatch, capsys, "select", folder / "data.csv", *bad), "like a dose")


@pytest.fixture(scope="module")
def saved(folder, tmp_path_factory):
    """A result with placebo runs, and the report that was written with it."""
    place = tmp_path_factory.mktemp("saved")
    with pytest.MonkeyPatch.context() as patch:
        files = ("--out", place / "result.json", "--report", place / "with.html")
        line = ("select", folder / "data.csv", *GOOD, *QUICK, *files, "--placebo", "3")
        patch.setattr(sys, "argv", ["modifind", *map(str, line)])
        with pytest.raises(SystemExit) as done:
            main()
    assert done.value.code == 0
    return place


def test_the_report_of_a_saved_result_is_that_of_the_run(saved, tmp_path, monkeypatch, capsys):
    code, said = here(monkeypatch, capsys, "report", saved / "result.json", "--out", tmp_path / "again.html")
    assert code == 0, said.err
    assert said.out.split() == [str(tmp_path / "again.html")]
    assert (tmp_path / "again.html").read_bytes() == (saved / "with.html").read_bytes()
    assert "of 3 placebo treatments found" in (tmp_path / "again.html").read_text(encoding="utf-8")


def test_a_report_lies_beside_its_result(saved, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.json").write_bytes((saved / "result.json").read_bytes())
    code, said = here(monkeypatch, capsys, "report", tmp_path / "mine.json")
    assert code == 0, said.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.html", "mine.json"]
    assert (tmp_path / "mine.html").read_bytes() == (saved / "with.html").read_bytes()


BAD_REPORTS = {
    "no file": (("report", "nothing.json"), "no file nothing.json"),
    "a folder": (("report", "."), "no file ."),
    "no JSON": (("report", "broken.json"), "broken.json: not valid JSON"),
    "cut off": (("report", "half.json"), "half.json: not valid JSON"),
    "other JSON": (("report", "other.json"), "other.json: this is not a modifind result"),
    "a table": (("report", "table.csv"), "table.csv: not valid JSON"),
    "broken placebo": (("report", "placebo.json"), "placebo.json: placebo: missing table, n_asked"),
    "wrong suffix": (("report", "result.json", "--out", "report.pdf"), "--out must end in .html; found 'report.pdf'"),
    "no folder": (("report", "result.json", "--out", "table.csv/r.html"), "r.html: table.csv is a file"),
    "no argument": (("report",), "Missing argument"),
}


@pytest.mark.parametrize("case", BAD_REPORTS)
def test_what_is_no_result_has_no_report(case, saved, tmp_path, monkeypatch, capsys):
    arguments, expected = BAD_REPORTS[case]
    whole = (saved / "result.json").read_bytes()
    (tmp_path / "result.json").write_bytes(whole)
    (tmp_path / "half.json").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    (tmp_path / "table.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    (tmp_path / "placebo.json").write_text(json.dumps(json.loads(whole) | {"placebo": {}}), encoding="utf-8")
    before = sorted(path.name for path in tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    refused(*here(monkeypatch, capsys, *arguments), expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_select_tells_its_placebos(folder, saved, tmp_path, monkeypatch, capsys):
    line = ("select", folder / "data.csv", *GOOD, *QUICK, "--no-explain", "--placebo", 2, "--out", tmp_path / "r.json")
    code, said = here(monkeypatch, capsys, *line)
    assert code == 0, said.err
    n_found = SelectionResult.from_json(tmp_path / "r.json").placebo.n_found
    assert f"{'placebo':<21}{FOUND_OF_TWO[n_found]}" in said.out.splitlines()
    result = SelectionResult.from_json(saved / "result.json")
    assert (result.placebo.n_runs, result.selected) == (3, ["moves"])


def test_placebos_of_a_long_stream_are_those_of_a_sample(folder, monkeypatch, capsys):
    line = ("select", folder / "data.csv", *GOOD, *QUICK, "--no-explain", "--placebo", 1, "--stream")
    code, said = here(monkeypatch, capsys, *line, "--train-rows", 200)
    assert code == 0, said.err
    assert "of 1 placebo treatment found" in said.out


def test_placebo_prints_a_sentence_and_writes_all_p_values(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = ("placebo", folder / "data.csv", *GOOD, *QUICK, "--n", 2, "--seed", 5, "--out", "p.csv", "--strict")
    code, said = here(monkeypatch, capsys, *line)
    assert code == 0, said.err
    lines = said.out.splitlines()
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]
    found = pd.read_csv("p.csv")
    n_found = int(found.groupby("run")["selected"].any().sum())
    assert lines[:2] == [FOUND_OF_TWO[n_found], "Every row was assigned by the known probability."]
    assert found.columns.tolist() == ["run", "feature", "p_value", "selected"]
    assert found["run"].tolist() == np.repeat([1, 2], 3).tolist()
    # What a spreadsheet would take for a formula is text.
    assert found["feature"].tolist() == ["moves", "other", "'=noise"] * 2
    smallest = found.nsmallest(3, "p_value")
    assert len(lines) == 5
    for line, row in zip(lines[2:], smallest.itertuples(), strict=True):
        mark = " (selected)" * row.selected
        assert line == f"  run {row.run}, {row.feature.lstrip(chr(39))}: p = {row.p_value:.2g}{mark}"
    frame = pd.read_csv(folder / "data.csv")
    own = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", propensity=0.5, random_state=5)
    again = own.placebo(frame[["moves", "other", "=noise"]], frame["y"], frame["arm"], n=2)
    np.testing.assert_array_equal(again.table["p_value"], found["p_value"])


def test_too_many_finds_are_one_line_and_an_exit_code_when_strict(folder, monkeypatch, capsys):
    # At a level of 0.9 every run finds something; here that is to be remarkable.
    monkeypatch.setattr("modifind.result.placebo_result.UNLIKELY", 0.99)
    line = ("placebo", folder / "data.csv", *GOOD, *QUICK, "--n", 2, "--alpha", 0.9)
    for strict, expected in (((), 0), (("--strict",), 3)):
        code, said = here(monkeypatch, capsys, *line, *strict)
        assert code == expected
        warned = [line for line in said.err.splitlines() if line]
        assert len(warned) == 1
        assert warned[0].startswith("modifind: warning: ")
        assert "P-values of this table are too small" in warned[0]
        assert "(selected)" in said.out


BAD_PLACEBOS = {
    "no runs": (("--n", "0"), "--n must be at least 1, not 0"),
    "runs below none": (("--n", "-2"), "--n must be at least 1, not -2"),
    "runs no number": (("--n", "many"), "--n"),
    "wrong suffix": (("--out", "p.json"), "--out must end in .csv"),
    "scores of 1": (("--propensity", "1"), "strictly between 0 and 1"),
    "unknown sampler": (("--sampler", "gibbs"), "sampler must be one of"),
}


@pytest.mark.parametrize("case", BAD_PLACEBOS)
def test_bad_input_of_placebo_is_one_line_and_leaves_nothing(case, folder, tmp_path, monkeypatch, capsys):
    more, expected = BAD_PLACEBOS[case]
    monkeypatch.chdir(tmp_path)
    code, said = here(monkeypatch, capsys, "placebo", folder / "data.csv", *GOOD, *QUICK, *more)
    refused(code, said, expected)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"propensity": 2.0}, "strictly between 0 and 1"),
        ({"outcome_transform": "log"}, "needs a positive outcome"),
        ({"statistic": EffectLikelihood("forest")}, "forest"),
    ],
)
def test_what_a_fit_would_refuse_is_refused(settings, message):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    with pytest.raises(ValueError, match=message):
        describe(ModifierSelector(**settings).get_params(), X, rng.normal(size=300), rng.integers(0, 2, 300))


def test_a_long_table_is_worked_on_in_pieces_and_processes_are_counted():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    selector = ModifierSelector(max_train_rows=200, n_jobs=-1)
    lines = dict(describe(selector.get_params(), X, rng.normal(size=300), rng.integers(0, 2, 300)))
    assert "random sample of 200 rows" in lines["in pieces"]
    assert "about 5 seconds" in lines["time"]
