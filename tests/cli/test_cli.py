"""The command line as a user has it: in an empty folder, some commands in a process of their own."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from modifind.cli.app import _counts, _with_defaults, main
from modifind.datasets import make_modifiers
from modifind.paper import runs
from modifind.result.selection_result import SelectionResult

RUN = [sys.executable, "-c", "from modifind.cli.app import main; main()"]


def modifind(*arguments, folder):
    command = [*RUN, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)


def here(monkeypatch, capsys, *arguments):
    """The same command without a process of its own, whose start takes seconds."""
    monkeypatch.setattr(sys, "argv", ["modifind", *map(str, arguments)])
    with pytest.raises(SystemExit) as done:
        main()
    return done.value.code, capsys.readouterr()


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory):
    """A folder with one good table and the bad ones."""
    folder = tmp_path_factory.mktemp("data")
    data = make_modifiers("NonlinMean", n_samples=200, n_features=5, random_state=0)
    good = data.X.round(4)
    good.insert(0, "arm", np.where(data.treatment == 1, "drug", "placebo"))
    good.insert(1, "score", data.y)
    good.to_csv(folder / "good.csv", index=False)
    good.to_parquet(folder / "good.parquet")
    holes = good.copy()
    holes.loc[:6, "X2"] = np.nan
    holes.loc[3, "X4"] = np.inf
    holes.to_csv(folder / "holes.csv", index=False)
    good.assign(arm=["a", "b", "c", "d"] * 50).to_csv(folder / "four_arms.csv", index=False)
    good.assign(score="high").to_csv(folder / "text_outcome.csv", index=False)
    good.assign(score=1.0).to_csv(folder / "flat_outcome.csv", index=False)
    good.assign(pi=np.linspace(0.0, 0.9, 200)).to_csv(folder / "bad_scores.csv", index=False)
    good.head(0).to_csv(folder / "no_rows.csv", index=False)
    (folder / "empty.csv").write_text("", encoding="utf-8")
    (folder / "ragged.csv").write_text("a,b\n1,2\n1,2,3,4\n", encoding="utf-8")
    (folder / "noise.parquet").write_bytes(b"not a parquet file")
    return folder


GOOD = ("--treatment", "arm", "--outcome", "score", "--sampler", "gaussian")


def test_demo_finds_the_truth_and_leaves_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, said = here(monkeypatch, capsys, "demo")
    assert code == 0, said.err
    result = SelectionResult.from_json(tmp_path / "modifind-demo" / "result.json")
    assert set(result.selected) == {"age", "smoker", "diabetes"}
    assert "average" in said.out
    assert "★" in said.out
    names = {path.name for path in (tmp_path / "modifind-demo").iterdir()}
    assert names == {"result.json", "result.csv", "report.html", "forest.png", "trial.csv"}
    assert "smoker" in (tmp_path / "modifind-demo" / "report.html").read_text(encoding="utf-8")


def test_simulate_then_select(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = ("--n", 300, "--d", 6, "--seed", 4, "--out", "data.csv")
    code, said = here(monkeypatch, capsys, "simulate", "nonlinmean", *table)
    assert code == 0, said.err
    assert len(pd.read_csv(tmp_path / "data.csv")) == 300
    arguments = ("data.csv", "--treatment", "treatment", "--outcome", "outcome", "--seed", 3, "--out", "result.json")
    code, said = here(monkeypatch, capsys, "select", *arguments, "--report", "report.html")
    assert code == 0, said.err
    result = SelectionResult.from_json(tmp_path / "result.json")
    assert result.settings["seed"] == 3
    assert list(result.table.index) == [f"X{j}" for j in range(1, 7)]
    assert {"X1", "X2"} <= set(result.selected)
    assert said.out.count("★") >= 2
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.csv", "report.html", "result.json"]


def test_same_seed_gives_the_same_file_for_csv_and_parquet_and_any_number_of_jobs(
    data_folder, tmp_path, monkeypatch, capsys
):
    quick = (*GOOD, "--learner", "linear", "--no-explain")
    for table, *rest in (
        ("good.csv", "--out", tmp_path / "a.csv"),
        ("good.parquet", "--jobs", 2, "--out", tmp_path / "b.csv"),
    ):
        code, said = here(monkeypatch, capsys, "select", data_folder / table, *quick, *rest)
        assert code == 0, said.err
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_columns_can_be_chosen_excluded_and_declared_discrete(data_folder, tmp_path, monkeypatch, capsys):
    chosen = ("--features", "X1, X2,X3", "--exclude", "X3", "--treated", "placebo", "--adjust-for", "X4,X5")
    settings = ("--alpha", "0.2", "--adjust", "holm", "--resamples", "99", "--out", tmp_path / "r.json")
    table = (data_folder / "good.csv", *GOOD, "--statistic", "wcmmd")
    code, said = here(monkeypatch, capsys, "select", *table, *chosen, *settings)
    assert code == 0, said.err
    data = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert data["table"]["index"] == ["X1", "X2"]
    assert (data["settings"]["treated_label"], data["settings"]["adjust"]) == ("placebo", "holm")
    assert (data["settings"]["alpha"], data["settings"]["n_resamples_used"]) == (0.2, 99)


def test_options_of_the_likelihood_reach_the_result(data_folder, tmp_path, monkeypatch, capsys):
    own = ("--learner", "linear", "--repeats", 2, "--check", 200, "--observational", "--device", "cpu")
    files = ("--out", tmp_path / "r.json", "--report", tmp_path / "r.html")
    code, said = here(monkeypatch, capsys, "select", data_folder / "good.csv", *GOOD, *own, *files)
    assert code == 0, said.err
    result = SelectionResult.from_json(tmp_path / "r.json")
    expected = {"learner": "linear", "cv_repeats": 2, "check_resamples": 200, "device": "cpu"}
    assert result.settings["statistic"] == {"class": "EffectLikelihood", **expected}
    assert result.settings["device"] == "cpu"
    assert result.settings["model"]["stack"] == "linear 1.00"
    assert (result.diagnostics["n_resamples"] == 200).all()
    assert result.diagnostics["check_p_value"].between(1 / 201, 1).all()
    assert {"likelihood_gain", "gain_low", "gain_high"} <= set(result.table)
    report = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "effect-likelihood test" in report
    assert "repeated 2 times" in report


def test_outcome_can_be_analysed_on_the_log_scale(data_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pd.read_csv(data_folder / "good.csv").assign(score=lambda t: np.exp(t["score"])).to_csv(
        tmp_path / "exp.csv", index=False
    )
    settings = (*GOOD, "--learner", "linear", "--observational", "--no-explain", "--out")
    for line in (
        ("exp.csv", "--log-outcome", *settings, "logged.json"),
        (data_folder / "good.csv", *settings, "plain.json"),
    ):
        code, said = here(monkeypatch, capsys, "select", *line)
        assert code == 0, said.err
    first, second = (SelectionResult.from_json(tmp_path / name) for name in ("logged.json", "plain.json"))
    assert (first.settings["outcome_transform"], second.settings["outcome_transform"]) == ("log", None)
    # Equal but for the rounding of exp and log, which the iterations of the fit magnify.
    np.testing.assert_allclose(first.table["p_value"], second.table["p_value"], rtol=1e-6)


def test_skewed_outcome_is_one_line_of_warning(data_folder, tmp_path, monkeypatch, capsys):
    pd.read_csv(data_folder / "good.csv").assign(score=lambda t: np.exp(t["score"])).to_csv(
        tmp_path / "exp.csv", index=False
    )
    settings = (*GOOD, "--learner", "linear", "--observational", "--no-explain")
    code, said = here(monkeypatch, capsys, "select", tmp_path / "exp.csv", *settings)
    assert code == 0, said.err
    warned = [line for line in said.err.splitlines() if line.startswith("modifind: warning: ")]
    assert sum("strongly skewed" in line and "--log-outcome" in line for line in warned) == 1


def test_progress_goes_to_stderr_and_the_table_to_stdout(data_folder, tmp_path):
    done = modifind("select", data_folder / "good.csv", *GOOD, "--learner", "linear", "--no-explain", folder=tmp_path)
    assert "adjusted p" in done.stdout
    assert "adjusted p" not in done.stderr
    assert "Testing features" not in done.stdout
    assert not list(tmp_path.iterdir())


BAD = {
    "no such file": (("select", "nowhere.csv", *GOOD), "no file nowhere.csv"),
    "unknown suffix": (("select", "data.xlsx", *GOOD), "must end in .csv, .tsv"),
    "empty file": (("select", "{d}/empty.csv", *GOOD), "cannot read"),
    "ragged rows": (("select", "{d}/ragged.csv", *GOOD), "ragged.csv has 4 fields and its header 2"),
    "not parquet": (("select", "{d}/noise.parquet", *GOOD), "cannot read"),
    "no rows": (("select", "{d}/no_rows.csv", *GOOD), "has no rows"),
    "unknown treatment": (("select", "{d}/good.csv", "--treatment", "drug", "--outcome", "score"), "'drug'"),
    "unknown outcome": (("select", "{d}/good.csv", "--treatment", "arm", "--outcome", "y"), "--outcome: no column 'y'"),
    "same column twice": (("select", "{d}/good.csv", "--treatment", "arm", "--outcome", "arm"), "both name 'arm'"),
    "unknown feature": (("select", "{d}/good.csv", *GOOD, "--features", "X1,X99"), "--features: no column 'X99'"),
    "treatment as a feature": (
        ("select", "{d}/good.csv", *GOOD, "--features", "X1,arm"),
        "--treatment and --features both name 'arm'",
    ),
    "nothing left": (("select", "{d}/good.csv", *GOOD, "--exclude", "X1,X2,X3,X4,X5"), "no feature is left"),
    "missing values": (("select", "{d}/holes.csv", *GOOD), "'X2' (7 missing), 'X4' (1 infinite)"),
    "four arms": (("select", "{d}/four_arms.csv", *GOOD), "has 4 labels"),
    "text outcome": (("select", "{d}/text_outcome.csv", *GOOD), "must be numeric"),
    "flat outcome": (("select", "{d}/flat_outcome.csv", *GOOD), "the outcome 'score' is constant"),
    "unknown label": (("select", "{d}/good.csv", *GOOD, "--treated", "pill"), "--treated pill is not a value"),
    "unknown sampler": (("select", "{d}/good.csv", *GOOD[:4], "--sampler", "gibbs"), "sampler must be one of"),
    "unknown statistic": (("select", "{d}/good.csv", *GOOD, "--statistic", "mean"), "statistic must be"),
    "unknown preset": (("select", "{d}/good.csv", *GOOD[:4], "--preset", "uai1999"), "--preset must be"),
    "alpha too large": (("select", "{d}/good.csv", *GOOD, "--alpha", "5"), "alpha must lie"),
    "alpha no number": (("select", "{d}/good.csv", *GOOD, "--alpha", "small"), "--alpha"),
    "propensity of 2": (("select", "{d}/good.csv", *GOOD, "--propensity", "2"), "strictly between 0 and 1"),
    "scores of 0": (("select", "{d}/bad_scores.csv", *GOOD, "--propensity", "pi"), "strictly between 0 and 1; 1"),
    "unknown propensity": (("select", "{d}/good.csv", *GOOD, "--propensity", "forest"), "'forest' is none of them"),
    "result suffix": (("select", "{d}/good.csv", *GOOD, "--out", "result.txt"), "--out must end in"),
    "result folder": (
        ("select", "{d}/good.csv", *GOOD, "--out", "{d}/good.csv/r.json"),
        "good.csv is a file",
    ),
    "unknown learner": (("select", "{d}/good.csv", *GOOD, "--learner", "forest"), "learner for a numeric outcome"),
    "learner of wcmmd": (
        ("select", "{d}/good.csv", *GOOD, "--statistic", "wcmmd", "--learner", "linear"),
        "--learner, --repeats and --check belong to --statistic effect_likelihood",
    ),
    "repeats of wcmmd": (("select", "{d}/good.csv", *GOOD, "--statistic", "wcmmd", "--repeats", "2"), "belong to"),
    "check of a preset": (("select", "{d}/good.csv", *GOOD[:4], "--preset", "uai2022", "--check", "9"), "belong to"),
    "repeats of 0": (("select", "{d}/good.csv", *GOOD, "--repeats", "0"), "--repeats"),
    "check below 0": (("select", "{d}/good.csv", *GOOD, "--check", "-1"), "--check"),
    "log of a negative": (("select", "{d}/good.csv", *GOOD, "--log-outcome"), "needs a positive outcome"),
    "resamples": (("select", "{d}/good.csv", *GOOD, "--resamples", "many"), "--resamples must be"),
    "no arguments": (("select",), "Missing"),
    "unknown command": (("choose",), "choose"),
    "unknown kind": (("simulate", "LinSkew", "--out", "a.csv"), "kind must be one of"),
    "too few features": (("simulate", "LinMean", "--d", "3", "--out", "a.csv"), "--d"),
    "unknown study": (("reproduce", "fig-9"), "no study 'fig-9'; studies are fig-synthetic"),
    "runs no number": (("reproduce", "all", "--runs", "many"), "--runs must be a number"),
    "runs twice": (("reproduce", "all", "--runs", "3,4"), "two numbers for all methods"),
    "runs of nobody": (("reproduce", "all", "--runs", "50,nobody=3"), "no method nobody"),
    "no runs": (("reproduce", "all", "--runs", "0"), "at least 1"),
    "method of another study": (("reproduce", "table-cvae-neurons", "--methods", "naive"), "has no method naive"),
    "impossible folder": (("reproduce", "all", "--out", "{d}/good.csv/here"), "good.csv is a file"),
    "no such device": (("select", "{d}/good.csv", *GOOD, "--device", "abacus"), "device must be 'cpu', 'cuda' or"),
    "unknown device": (("reproduce", "all", "--device", "abacus"), "device must be 'cpu' or 'cuda'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_exit_two_and_leaves_nothing(case, data_folder, tmp_path, monkeypatch, capsys):
    arguments, expected = BAD[case]
    monkeypatch.chdir(tmp_path)
    code, said = here(monkeypatch, capsys, *(a.format(d=data_folder) for a in arguments))
    assert code == 2, said.err
    assert said.err.count("\n") == 1, said.err
    assert said.err.startswith("modifind: error: ")
    assert expected in said.err
    assert "Traceback" not in said.out + said.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("case", ["missing values", "no arguments"])
def test_a_process_ends_with_the_same_line_and_code(case, data_folder, tmp_path):
    arguments, expected = BAD[case]
    done = modifind(*(a.format(d=data_folder) for a in arguments), folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("modifind: error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert expected in done.stderr
    assert not list(tmp_path.iterdir())


def test_reproduce_leaves_table_figure_and_text(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runs, "N_FEATURES", 6)
    command = ("reproduce", "table-counterexamples", "--quick", "--methods", "si-em", "--seed", "0", "--out", "here")
    code, said = here(monkeypatch, capsys, *command)
    assert code == 0, said.err
    made = Path("here", "quick", "table-counterexamples")
    assert said.out.split() == [f"{made}.{suffix}" for suffix in ("csv", "png", "md")]
    table = pd.read_csv(tmp_path / "here" / "quick" / "table-counterexamples.csv")
    assert table[["data", "n", "method", "runs"]].to_dict("records") == [
        {"data": kind, "n": 500, "method": "si-em", "runs": 1} for kind in ("LinCovar", "NonlinCovar")
    ]
    kept = sorted(path.name for path in (tmp_path / "here" / "quick" / "runs").iterdir())
    assert [name.rsplit("_", 1)[0] for name in kept] == [
        f"{kind}_n500_si-em_seed0" for kind in ("LinCovar", "NonlinCovar")
    ]


@pytest.mark.parametrize(("text", "counts"), [("", None), ("50", {"": 50}), ("50, preset=8", {"": 50, "preset": 8})])
def test_runs_by_method(text, counts):
    assert _counts(text) == counts


def test_reproduce_nhanes_offline_says_what_to_download(tmp_path, monkeypatch, capsys):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # nothing listens there
    command = ("reproduce", "table-nhanes", "--quick", "--data", "empty", "--out", "here")
    code, said = here(monkeypatch, capsys, *command)
    assert code == 2
    assert said.err.startswith("modifind: error: NHANES tables are missing")
    assert "DEMO_E" in said.err
    assert "Put these files into empty/nhanes" in said.err
    assert "Traceback" not in said.err


def test_help_and_version(tmp_path):
    assert "Find the features" in modifind("--help", folder=tmp_path).stdout
    assert modifind("--version", folder=tmp_path).stdout.strip() == "0.1.0"
    line = [sys.executable, "-m", "modifind", "--version"]  # where the folder of commands is not searched
    assert subprocess.run(line, cwd=tmp_path, capture_output=True, text=True).stdout.strip() == "0.1.0"


def test_import_is_light_and_leaves_torch_alone(tmp_path):
    code = "import sys, modifind; print([m for m in ('torch', 'sklearn', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
    code = "import sys; from modifind import ModifierSelector; import modifind.presets; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


@pytest.fixture(scope="module")
def long_folder(tmp_path_factory):
    """A table of more rows than models are to be fitted to, whole and in parts."""
    folder = tmp_path_factory.mktemp("long")
    data = make_modifiers("LinMean", n_samples=700, n_features=5, random_state=1)
    table = data.X.round(4)
    table.insert(0, "arm", np.where(data.treatment == 1, "drug", "placebo"))
    table.insert(1, "score", data.y.round(4))
    table["pi"] = data.propensity.round(4)
    table.to_csv(folder / "all.csv", index=False)
    table.to_csv(folder / "indexed.csv")
    table.to_parquet(folder / "all.parquet")
    table[:300].to_csv(folder / "part-1.csv", index=False)
    table[300:].to_csv(folder / "part-2.csv", index=False)
    return folder


STREAM = (*GOOD, "--learner", "linear", "--train-rows", "300", "--exclude", "pi", "--observational")


def test_stream_gives_the_same_file_as_the_table_in_memory(long_folder, tmp_path, monkeypatch, capsys):
    found = {}
    for name, stream in (("all.csv", ()), ("all.csv", ("--stream",)), ("all.parquet", ("--stream",))):
        arguments = (long_folder / name, *STREAM, *stream, "--out", tmp_path / "r.json")
        code, said = here(monkeypatch, capsys, "select", *arguments)
        assert code == 0, said.err
        assert "700 rows" in said.out
        found[name, *stream] = (tmp_path / "r.json").read_bytes()
    assert len(set(found.values())) == 1
    settings = json.loads(found["all.csv", "--stream"])["settings"]
    assert (settings["n_train_rows"], settings["max_train_rows"], settings["n_rows"]) == (300, 300, 700)


def test_stream_reads_a_pattern(long_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = (long_folder / "part-*.csv", *STREAM, "--stream", "--out", "r.json", "--report", "r.html")
    code, said = here(monkeypatch, capsys, "select", *arguments)
    assert code == 0, said.err
    result = SelectionResult.from_json(tmp_path / "r.json")
    assert result.settings["n_rows"] == 700
    assert {"X1", "X5"} <= set(result.selected)
    assert "adjusted p" in said.out
    assert (tmp_path / "r.html").stat().st_size > 10_000


def test_stream_leaves_out_a_saved_index(long_folder, tmp_path, monkeypatch, capsys):
    arguments = (long_folder / "indexed.csv", *STREAM, "--stream", "--out", tmp_path / "r.json")
    code, said = here(monkeypatch, capsys, "select", *arguments)
    assert code == 0, said.err
    assert "modifind: warning: the first column has no name and is left out" in said.err
    result = SelectionResult.from_json(tmp_path / "r.json")
    assert result.table.index.tolist() == ["X1", "X2", "X3", "X4", "X5"]


def test_stream_reads_scores_from_their_column(long_folder, tmp_path, monkeypatch, capsys):
    given = (*GOOD, "--learner", "linear", "--train-rows", "300", "--propensity", "pi", "--no-explain")
    tables = []
    for stream in ((), ("--stream",)):
        arguments = (long_folder / "all.csv", *given, *stream, "--out", tmp_path / "r.json")
        code, said = here(monkeypatch, capsys, "select", *arguments)
        assert code == 0, said.err
        result = SelectionResult.from_json(tmp_path / "r.json")
        assert "known per row" in result.settings["propensity_model"]
        tables.append(result.table)
    pd.testing.assert_frame_equal(*tables, check_exact=True)


BAD_STREAM = {
    "both": (("{d}/all.csv", *STREAM, "--stream", "--dask"), "--stream and --dask exclude each other"),
    "both with an address": (
        ("{d}/all.csv", *STREAM, "--dask", "tcp://10.0.0.1:8786", "--stream"),
        "--stream and --dask exclude each other",
    ),
    "no file": (("{d}/nothing-*.csv", *STREAM, "--stream"), "no file"),
    "unknown column": (("{d}/all.csv", *STREAM, "--stream", "--features", "X9"), "--features: no column 'X9'"),
    "too few train rows": (("{d}/all.csv", *GOOD, "--stream", "--train-rows", "10"), "--train-rows"),
    "text outcome": (("{d}/all.csv", "--treatment", "score", "--outcome", "arm", "--stream"), "must be numeric"),
}


@pytest.mark.parametrize("case", BAD_STREAM)
def test_bad_input_of_a_stream_is_one_line_and_exit_two(case, long_folder, tmp_path, monkeypatch, capsys):
    arguments, expected = BAD_STREAM[case]
    monkeypatch.chdir(tmp_path)
    code, said = here(monkeypatch, capsys, "select", *(str(a).format(d=long_folder) for a in arguments))
    assert code == 2
    assert said.err.startswith("modifind: error: ")
    assert said.err.count("\n") == 1, said.err
    assert expected in said.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "filled"),
    [
        (["a.csv", "--dask"], ["a.csv", "--dask", "local"]),
        (["--dask", "--jobs", "2"], ["--dask", "local", "--jobs", "2"]),
        (["--dask", "tcp://h:1", "--jobs", "2"], ["--dask", "tcp://h:1", "--jobs", "2"]),
        (["--jobs", "2"], ["--jobs", "2"]),
        ([], []),
    ],
)
def test_dask_without_an_address_is_a_local_cluster(given, filled):
    assert _with_defaults(given) == filled


def test_a_column_called_auto_is_a_feature(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"auto": rng.integers(0, 2, 200), "age": rng.normal(size=200)})
    frame = frame.assign(arm=rng.integers(0, 2, 200), y=rng.normal(size=200))
    frame.to_csv(tmp_path / "cars.csv", index=False)
    path, out = str(tmp_path / "cars.csv"), str(tmp_path / "result.csv")
    code, _ = here(
        monkeypatch, capsys, "select", path, "--treatment", "arm", "--outcome", "y", "--learner", "linear", "--out", out
    )
    assert code == 0
    assert pd.read_csv(out)["feature"].tolist() == ["auto", "age"]
