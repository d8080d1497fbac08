"""Dask tables: the sums of partitions are those of one process, whatever happens to the workers."""

import os
import signal
import subprocess
import sys
import time
import warnings
from itertools import pairwise
from multiprocessing import resource_tracker

import joblib
import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from conftest import NEEDS_SIGNALS, confounded_table
from modifind import WCMMD, EffectLikelihood, ModifierSelector, PropensityModel
from modifind._workers import WorkerError
from modifind.cli.app import main
from modifind.data.files.opening import read_table
from modifind.data.files.text import Dialect
from modifind.engine.dask import FAN_IN, DaskPieces, connect
from modifind.result.selection_result import SelectionResult
from streams import close

distributed = pytest.importorskip("distributed")
dd = pytest.importorskip("dask.dataframe")
delayed = pytest.importorskip("dask").delayed
psutil = pytest.importorskip("psutil")

FAST = {
    "statistic": EffectLikelihood("linear"),
    "sampler": "gaussian",
    "propensity": 0.5,
    "random_state": 0,
    "max_train_rows": 400,
    "explain": False,
    "cv": 2,
}
FEATURES = ["age", "dose", "site", "stage"]
PATIENCE = 120  # seconds, for what ends at once unless the machine has other work


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as found:
        yield found


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as found:
        found.wait_for_workers(2, timeout=120)
        yield found


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(11)
    n = 1000
    X, treatment = confounded_table(rng, n, 2)
    frame = pd.DataFrame({"age": X[:, 0], "dose": X[:, 1]})
    frame["site"] = np.array(["north", "south", "west"])[rng.integers(0, 3, size=n)]
    frame["stage"] = pd.Categorical(np.array(["mild", "bad"])[rng.integers(0, 2, size=n)], ["mild", "bad", "worst"])
    frame["y"] = 0.4 * treatment * X[:, 0] + 0.3 * treatment * (frame["site"] == "west") + rng.normal(size=n)
    frame["arm"] = np.where(treatment == 1, "drug", "placebo")
    frame["pi"] = 1 / (1 + np.exp(-0.4 * X[:, 0]))
    return frame


@pytest.fixture(scope="module")
def expected(table):
    return fit(table[FEATURES], table["y"], table["arm"])


@pytest.fixture(scope="module")
def explained(table):
    return fit(table[FEATURES], table["y"], table["arm"], explain=True)


def fit(X, y, treatment, **settings):
    return ModifierSelector(**FAST | settings).fit(X, y, treatment=treatment).result_


def saved_bytes(result, folder):
    path = folder / "result.json"
    result.to_json(path)
    return path.read_bytes()


def partitions(frame, cuts, meta=None):
    parts = [frame[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(frame)], strict=True)]
    return dd.from_delayed(
        [delayed(part) for part in parts], meta=(frame if meta is None else meta)[:0], verify_meta=False
    )


def fit_parts(table, cuts, meta=None, **settings):
    frame = partitions(table, cuts, meta)
    return fit(frame[FEATURES], frame["y"], frame["arm"], **settings)


@pytest.mark.parametrize("cuts", [(), (0, 3, 3, 700, 1000), tuple(range(100, 1000, 100))], ids=len)
def test_partitions_of_any_size_give_the_result_of_one_process(client, table, explained, cuts):
    calls, expected = [], explained
    found = fit_parts(table, cuts, progress=lambda done, total: calls.append((done, total)), explain=True)
    assert 0 < expected.table["p_value"].min() < 1e-4 < expected.table["p_value"].max()
    close(found, expected)
    assert found.selected == expected.selected
    assert found.settings["n_train_rows"] == 400
    assert found.warnings == expected.warnings
    rows = [done for done, total in calls if total == 1000]
    n_runs = -(-len([1 for a, b in pairwise((0, *cuts, 1000)) if b > a]) // FAN_IN)
    passes = rows[: 1 + n_runs], rows[1 + n_runs :]  # that of the tests, and that of the importance
    for found_rows in passes:
        assert (found_rows[0], found_rows[-1], len(found_rows)) == (0, 1000, 1 + n_runs)
        assert found_rows == sorted(found_rows)


def test_rows_of_other_arms_are_left_out_of_every_partition(client, table):
    several = table.assign(arm=table["arm"].where(np.arange(1000) % 4 > 0, "both"))
    several.loc[300:449, "arm"] = "both"  # a whole partition, where only one of the arms is wanted
    frame = partitions(several, (300, 450, 700))
    selector = ModifierSelector(**FAST | {"propensity": "auto"})
    found = selector.fit(frame[FEATURES], frame["y"], frame["arm"], reference="placebo").result_
    assert list(found.contrasts) == ["both", "drug"]
    two = several[several["arm"] != "both"].reset_index(drop=True)
    alone = fit(two[FEATURES], two["y"], two["arm"], propensity="auto")
    parts = ["importance", "statistic", "p_value"]
    assert_frame_equal(found.contrasts["drug"][parts], alone.table[parts], rtol=1e-6)
    assert found.contrast("drug").settings["n_rows_other_arms"] == len(several) - len(two)


def test_missing_outcomes_are_weighed_alike(client, table):
    holes = table.assign(y=table["y"].where((table["age"] < 0.8) | (np.arange(1000) % 3 == 0)))
    holes.loc[200:320, "dose"] = np.nan
    given = {"missing_outcome": "weight", "missing": "drop"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        local = fit(holes[FEATURES], holes["y"], holes["arm"], **given)
        frame = partitions(holes, [210, 310, 700])
        found = fit(frame[FEATURES], frame["y"], frame["arm"], **given)
    close(local, found)
    assert found.settings["outcome_weights"]["n_missing"] > 50
    assert found.settings["n_rows_dropped"] == holes["dose"].isna().sum()


@pytest.mark.parametrize("missing", ["category", "drop"])
def test_missing_values_are_taken_alike(client, table, missing):
    holes = table.copy()
    holes.loc[holes.index % 6 == 1, "dose"] = np.nan
    holes.loc[200:320, "site"] = None  # a whole partition among them
    holes.loc[5, "y"] = np.nan if missing == "drop" else 0.0
    names = {"y": holes["y"], "treatment": holes["arm"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        local = fit(holes[FEATURES], **names, missing=missing)
        frame = partitions(holes, [210, 310, 700])
        found = fit(frame[FEATURES], frame["y"], frame["arm"], missing=missing)
    close(local, found)
    assert found.settings["n_rows"] == (1000 if missing == "category" else holes.notna().all(axis=1).sum())


def test_outcome_and_treatment_may_be_names_of_columns(client, table, expected):
    frame = dd.from_pandas(table.drop(columns="pi"), npartitions=4)
    close(fit(frame, "y", "arm"), expected)
    with pytest.raises(ValueError, match="y names 'nobody', which is not a column of X"):
        fit(frame, "nobody", "arm")


def test_known_scores_come_as_a_dask_series(client, table):
    frame = partitions(table, (300, 310))
    alone = fit(table[FEATURES], table["y"], table["arm"], propensity=table["pi"].to_numpy())
    for propensity in (PropensityModel(frame["pi"]), frame["pi"]):
        found = fit(frame[FEATURES], frame["y"], frame["arm"], propensity=propensity)
        assert_frame_equal(found.table, alone.table, rtol=1e-10)
        assert found.overlap == pytest.approx(alone.overlap)
        assert "known per row" in found.settings["propensity_model"]
    assert "Dask" not in str(found.settings["propensity"])  # of which only the name is recorded
    assert "\n" not in str(found.settings["propensity"])


@pytest.mark.parametrize("propensity", [0.5, "known"])
def test_few_rows_are_fitted_as_in_memory(client, table, propensity):
    few = table[:350]
    frame = partitions(few, (100, 100, 200))
    own, parts = (few["pi"].to_numpy(), frame["pi"]) if propensity == "known" else (propensity, propensity)
    found = fit(frame[FEATURES], frame["y"], frame["arm"], propensity=parts)
    alone = fit(few[FEATURES], few["y"], few["arm"], propensity=own)
    assert_frame_equal(found.table, alone.table, check_exact=True)
    assert found.overlap == alone.overlap
    assert "n_train_rows" not in found.settings


def bad_tables(table):
    holes = table.copy()
    holes.loc[[10, 600, 990], "dose"] = np.nan
    mixed = table.assign(dose=table["dose"].astype(object))
    mixed.loc[800:, "dose"] = "unknown"
    return {
        "missing": (holes, r"'dose' \(3 missing\)"),
        "text later": (mixed, "column 'dose' holds number values in some rows and text values in others"),
        "dates": (table.assign(dose=pd.Timestamp("2020-01-01")), "column 'dose' holds dates or times"),
        "three arms": (table.assign(arm=np.arange(1000) % 3), "has 3 labels"),
        "text outcome": (table.assign(y="high"), "outcome y must be numeric"),
        "no rows": (table[:0], "the table has no rows"),
    }


@pytest.mark.parametrize("case", ["missing", "text later", "dates", "three arms", "text outcome", "no rows"])
def test_what_is_wrong_with_a_table_arrives_as_the_same_error(client, table, case):
    frame, message = bad_tables(table)[case]
    with pytest.raises(ValueError, match=message):
        # Dask expects the types of the first rows.
        fit_parts(frame, (500, 800) if len(frame) else (0,), meta=table if case == "text later" else None)


def test_columns_must_be_partitioned_alike(client, table):
    frame = partitions(table, (500,))
    with pytest.raises(ValueError, match="y must be a Dask series of the same partitions"):
        fit(frame[FEATURES], table["y"].to_numpy(), frame["arm"])
    with pytest.raises(ValueError, match="treatment must be a Dask series"):
        fit(frame[FEATURES], frame["y"], None)
    with pytest.raises(ValueError, match="propensity must be a Dask series"):
        fit(frame[FEATURES], frame["y"], frame["arm"], propensity=table["pi"].to_numpy())
    with pytest.raises(ValueError, match="y has 3 partitions but X has 2"):
        fit(frame[FEATURES], partitions(table, (500, 600))["y"], frame["arm"])
    with pytest.raises(ValueError, match=r"a partition of treatment has [46]00 rows, that of X 500"):
        fit(frame[FEATURES], frame["y"], partitions(table, (400,))["arm"])
    with pytest.raises(ValueError, match="a partition of y has an index other than that of X"):
        fit(frame[FEATURES], frame["y"].map_partitions(lambda part: part.sort_values()), frame["arm"])
    with pytest.raises(ValueError, match=r"'exact'. needs the table in memory"):
        fit(frame[FEATURES], frame["y"], frame["arm"], statistic=WCMMD("exact"))


def test_resamples_are_the_same_on_a_cluster(client, table):
    settings = {"statistic": "wcmmd", "n_resamples": 40}
    frame = partitions(table, (137, 500))
    found = fit(frame[FEATURES], frame["y"], frame["arm"], **settings)
    close(found, fit(table[FEATURES], table["y"], table["arm"], **settings))
    assert set(found.table["p_value"].nsmallest(2).index) == {"age", "site"}


def test_joblib_spreads_a_table_in_memory_over_the_cluster(client, table, expected):
    with joblib.parallel_config(backend="dask"):
        found = fit(table[FEATURES], table["y"], table["arm"])
    assert found == expected


@NEEDS_SIGNALS
def test_worker_that_is_killed_costs_nothing_but_time(client, table, expected):
    pids = client.run(os.getpid)
    killed = []

    def kill(done, total):
        if total == 1000 and 0 < done < total and not killed:
            killed.append(next(iter(pids.values())))
            os.kill(killed[0], signal.SIGKILL)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        found = fit_parts(table, tuple(range(40, 1000, 40)), progress=kill)
    assert killed
    close(found, expected)
    lost = [str(own.message) for own in caught if "lost during the run" in str(own.message)]
    assert lost == [message for message in lost if message.startswith("1 of 2 workers were lost")]
    assert len(lost) == 1


def test_cluster_is_started_where_there_is_none_and_stopped_again(table, expected):
    with pytest.raises(ValueError, match="No global client"):
        distributed.get_client()
    resource_tracker.ensure_running()  # Python's own, which the first cluster starts and which lives as long as this
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    seen = set()

    def look(done, total):
        seen.update(child.pid for child in psutil.Process().children(recursive=True))

    close(fit_parts(table, (600,), n_jobs=1, progress=look), expected)
    assert seen - before
    with pytest.raises(ValueError, match="No global client"):
        distributed.get_client()
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit and any(psutil.pid_exists(pid) for pid in seen - before):
        time.sleep(0.1)
    left = {child.pid for child in psutil.Process().children(recursive=True)}
    assert not left & (seen - before)


def test_failed_fit_closes_the_client_it_opened(cluster, table, monkeypatch):
    opened = []

    def connect_here(address, n_workers):
        opened.append((distributed.Client(cluster), address, n_workers))
        return opened[0][0]

    monkeypatch.setattr("modifind.engine.dask.connect", connect_here)
    with pytest.raises(ValueError, match="at least two values"):
        fit_parts(table.assign(arm=1), (600,), n_jobs=3)
    ((client, address, n_workers),) = opened
    assert (client.status, address, n_workers) == ("closed", None, 3)


# The command line.


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["modifind", *map(str, arguments)])
    with pytest.raises(SystemExit) as done:
        main()
    return done.value.code, capsys.readouterr()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, table):
    path = tmp_path_factory.mktemp("parts")
    rounded = table.assign(stage=table["stage"].astype(str)).round(6)
    rounded[:600].to_csv(path / "part-0.csv", index=False)
    rounded[600:].to_csv(path / "part-1.csv", index=False)
    rounded.to_csv(path / "all.csv", index=False)
    rounded.to_csv(path / "indexed.csv")
    rounded.to_parquet(path / "all.parquet", row_group_size=400)
    return path


SELECT = ("--treatment", "arm", "--outcome", "y", "--sampler", "gaussian", "--learner", "linear", "--no-explain")
ROWS = ("--exclude", "pi", "--propensity", "0.5", "--train-rows", "400")


@pytest.fixture(scope="module")
def in_memory(folder):
    frame = pd.read_csv(folder / "all.csv")
    return fit(frame[FEATURES], frame["y"], frame["arm"], cv=5)  # as the command line has it


@pytest.mark.parametrize("name", ["part-*.csv", "all.parquet"])
def test_select_on_a_cluster(cluster, folder, in_memory, tmp_path, monkeypatch, capsys, name):
    out = tmp_path / "r.json"
    arguments = (folder / name, *SELECT, *ROWS, "--dask", cluster.scheduler_address, "--out", out)
    code, said = run(monkeypatch, capsys, "select", *arguments)
    assert code == 0, said.err
    assert "adjusted p" in said.out
    close(SelectionResult.from_json(out), in_memory)


def test_select_starts_a_cluster_without_an_address(folder, in_memory, tmp_path, monkeypatch, capsys):
    out = tmp_path / "r.json"
    line = (folder / "all.csv", *SELECT, *ROWS, "--jobs", 1, "--out", out, "--dask")
    code, said = run(monkeypatch, capsys, "select", *line)
    assert code == 0, said.err
    close(SelectionResult.from_json(out), in_memory)


def test_select_on_a_cluster_leaves_out_a_saved_index(cluster, folder, in_memory, tmp_path, monkeypatch, capsys):
    out = tmp_path / "r.json"
    arguments = (folder / "indexed.csv", *SELECT, *ROWS, "--dask", cluster.scheduler_address, "--out", out)
    code, said = run(monkeypatch, capsys, "select", *arguments)
    assert code == 0, said.err
    assert SelectionResult.from_json(out).table.index.tolist() == FEATURES
    assert "left out" in said.err


def test_select_on_a_cluster_reads_scores_from_their_column(cluster, folder, tmp_path, monkeypatch, capsys):
    frame = pd.read_csv(folder / "all.csv")
    alone = fit(frame[FEATURES], frame["y"], frame["arm"], propensity=frame["pi"].to_numpy(), cv=5)
    out = tmp_path / "r.json"
    arguments = (folder / "part-*.csv", *SELECT, "--propensity", "pi", "--train-rows", "400")
    code, said = run(monkeypatch, capsys, "select", *arguments, "--dask", cluster.scheduler_address, "--out", out)
    assert code == 0, said.err
    assert_frame_equal(SelectionResult.from_json(out).table, alone.table, rtol=1e-10)


@pytest.mark.parametrize(("name", "message"), [("notes.txt", "must end in .csv, .tsv"), ("nothing-*.csv", "nothing-")])
def test_tables_that_are_not_there_are_named(cluster, folder, monkeypatch, capsys, name, message):
    with pytest.raises(ValueError, match=message):
        read_table(str(folder / name))
    arguments = (folder / name, *SELECT, "--dask", cluster.scheduler_address)
    code, said = run(monkeypatch, capsys, "select", *arguments)
    assert code == 2
    assert message in said.err
    assert said.err.startswith("modifind: error: ")


def test_scheduler_that_does_not_answer_is_named(monkeypatch):
    slow = distributed.Client

    def impatient(address, timeout):
        return slow(address, timeout="0.3s")

    monkeypatch.setattr(distributed, "Client", impatient)
    with pytest.raises(ValueError, match=r"no Dask scheduler with workers answers at 'tcp://127.0.0.1:9'"):
        connect("tcp://127.0.0.1:9")


def test_columns_of_a_file_come_in_the_same_partitions(tmp_path):
    # Dask reads single columns of many small parts together, and wide ones part by part.
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(400, 40)), columns=[f"x{j}" for j in range(40)])
    frame.assign(y=0.0, arm=[0, 1] * 200).to_parquet(tmp_path / "wide.parquet", row_group_size=10)
    table = dd.read_parquet(tmp_path / "wide.parquet", split_row_groups=1)
    pieces = DaskPieces.of(table[list(frame.columns)], table["y"], table["arm"])
    assert {len(parts) for parts in pieces.columns.values()} == {40}


@pytest.mark.parametrize("lacking", ["dose", "y", "arm"])
@pytest.mark.parametrize("named", [True, False])
def test_partition_that_lacks_a_column_is_refused_by_its_name(client, table, lacking, named):
    parts = [delayed(table[:500]), delayed(table[500:].drop(columns=lacking))]
    X = dd.from_delayed(parts, meta=table.head(0), verify_meta=False)
    features, y, arm = (X, "y", "arm") if named else (X[["age", "dose"]], X["y"], X["arm"])
    with pytest.raises(ValueError, match=rf"lacks? column '{lacking}'; give all of them the same columns"):
        ModifierSelector(**FAST).fit(features, y, treatment=arm)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_file_that_lacks_a_column_is_refused_by_its_name(table, tmp_path, ending):
    for name, frame in (("a", table), ("b", table.drop(columns="dose"))):
        path = tmp_path / f"{name}.{ending}"
        frame.to_parquet(path) if ending == "parquet" else frame.to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"b\.\S+ has no column 'dose', which .*a\."):
        read_table(str(tmp_path / f"*.{ending}"))


def test_files_of_any_dialect_and_stored_indices_are_read_on_a_cluster_too(table, tmp_path):
    plain = table.drop(columns="stage").round(6)
    plain.to_csv(tmp_path / "t.csv", index=False, sep=";", decimal=",", encoding="utf-16")
    found = read_table(str(tmp_path / "t.csv"), Dialect(separator=";", decimal=",")).compute(scheduler="sync")
    assert_frame_equal(found, plain, check_dtype=False)
    plain[plain["age"] > 0].to_parquet(tmp_path / "filtered.parquet")
    filtered = read_table(str(tmp_path / "filtered.parquet")).compute(scheduler="sync")
    assert_frame_equal(filtered, plain[plain["age"] > 0].reset_index(drop=True), check_dtype=False)
    plain.set_index("site").to_parquet(tmp_path / "named.parquet")
    named = read_table(str(tmp_path / "named.parquet")).compute(scheduler="sync")
    assert_frame_equal(named, plain[[*plain.columns.drop("site"), "site"]], check_dtype=False)
    plain.rename_axis("row").to_parquet(tmp_path / "counted.parquet")
    with pytest.raises(ValueError, match="an index that only counts rows, 'row'; leave --dask out"):
        read_table(str(tmp_path / "counted.parquet"))


def test_a_cluster_whose_worker_dies_at_the_start_is_started_again(monkeypatch):
    real, deaths = distributed.Client, [1]

    def dying(*arguments, **settings):
        if deaths:
            deaths.pop()
            raise RuntimeError("Nanny failed to start.")
        return real(*arguments, **settings | {"processes": False})

    monkeypatch.setattr(distributed, "Client", dying)
    with connect(n_workers=1) as client:
        assert client.status == "running"
    deaths.extend([1] * 3)
    with pytest.raises(WorkerError, match=r"no Dask cluster could be started.*3 times over: Nanny failed"):
        connect(n_workers=1)


def test_partitions_of_other_types_give_the_same_result(client, table):
    whole = table.assign(visits=np.arange(1000) % 40)
    parts = [whole[start : start + 200] for start in range(0, 1000, 200)]
    parts[1] = parts[1].convert_dtypes(dtype_backend="pyarrow").assign(stage=parts[1]["stage"])
    parts[2] = parts[2][parts[2].columns[::-1]].assign(visits=parts[2]["visits"].astype(float), extra=1)
    parts[3] = parts[3].assign(stage=parts[3]["stage"].cat.set_categories(["mild", "bad"]))
    parts.insert(3, parts[3][:0].astype(object))
    frame = dd.from_delayed([delayed(part) for part in parts], meta=whole[:0], verify_meta=False)
    names = [*FEATURES, "visits"]
    found = fit(frame[names], frame["y"], frame["arm"])
    close(found, fit(whole[names], whole["y"], whole["arm"]))


@pytest.mark.parametrize("part", [np.zeros((5, 6)), None], ids=["array", "nothing"])
def test_partition_that_is_no_table_is_refused_in_a_line(client, table, part):
    frame = dd.from_delayed([delayed(table[:500]), delayed(part)], meta=table[:0], verify_meta=False)
    with pytest.raises(ValueError, match="a partition of the table is not a DataFrame of its columns"):
        fit(frame[FEATURES], frame["y"], frame["arm"])


@pytest.mark.parametrize(("later", "kind"), [("unknown", "str"), (0.5, "float64")])
def test_text_files_of_mixed_types_are_refused_by_the_column(client, table, tmp_path, later, kind):
    plain = table[["age", "dose", "y", "arm"]].assign(dose=np.arange(1000))
    plain[:500].to_csv(tmp_path / "a.csv", index=False)
    plain[500:].assign(dose=later).to_csv(tmp_path / "b.csv", index=False)
    frame = read_table(str(tmp_path / "*.csv"))
    with pytest.raises(ValueError, match=rf"^column 'dose' comes as {kind} in some rows and as int64 in the first"):
        fit(frame[["age", "dose"]], frame["y"], frame["arm"])


def test_partition_that_cannot_be_read_is_told_in_a_line(client, table):
    gone = dd.from_map(pd.read_parquet, ["no-such-folder/part.parquet"], meta=table[:0])
    with pytest.raises(ValueError, match=r"^a partition of the table cannot be read: .*no-such-folder/part.parquet"):
        fit(gone[FEATURES], gone["y"], gone["arm"])


def test_workers_are_counted_whatever_the_client_remembers(client, monkeypatch):
    monkeypatch.setattr(client, "scheduler_info", lambda **_: {"workers": {}})
    assert DaskPieces({}, client=client)._present() == set(client.nthreads())


@pytest.mark.parametrize("lost", ["scheduler", "workers"])
def test_cluster_that_is_lost_is_told_in_a_line(table, monkeypatch, lost):
    monkeypatch.setattr("modifind.engine.dask.WATCH_SECONDS", 0.1)
    monkeypatch.setattr("modifind.engine.dask.PATIENCE_SECONDS", 0.5)

    def lose(done, total):
        if total == 1000 and done:
            own.close() if lost == "scheduler" else own.scale(0)
            while lost == "workers" and own.scheduler.workers:  # those that are still there could finish the pass
                time.sleep(0.01)

    own = distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0")
    told = pytest.raises(WorkerError, match=r"^the Dask cluster was lost")
    with own, distributed.Client(own.scheduler_address), told:
        fit_parts(table, tuple(range(60, 1000, 60)), progress=lose)


def test_scheduler_without_workers_is_named(monkeypatch):
    monkeypatch.setattr("modifind.engine.dask.PATIENCE_SECONDS", 0.2)
    own = distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0")
    with own, pytest.raises(ValueError, match="no Dask scheduler with workers answers at"):
        connect(own.scheduler_address)
    distributed.get_client().close()


def test_a_pass_over_partitions_continues_to_the_same_bytes(client, table, tmp_path, monkeypatch):
    cuts = list(range(40, 1000, 40))  # 25 partitions, in four runs
    X, y, arm = (partitions(table[own], cuts) for own in (FEATURES, "y", "arm"))
    alone = fit(X, y, arm)

    def stop(done, total):
        if total == len(table) and done >= 320:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(X, y, arm, checkpoint=tmp_path, progress=stop)
    calls = []
    result = fit(X, y, arm, checkpoint=tmp_path, progress=lambda *call: calls.append(call))
    assert next(call for call in calls if call[1] == len(table)) == (320, len(table))
    assert saved_bytes(result, tmp_path) == saved_bytes(alone, tmp_path)
    with pytest.raises(ValueError, match="column 'age' differs"):
        fit(X.assign(age=X["age"] + 1), y, arm, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="belongs to another run"):  # the same rows in other partitions
        fit(*(partitions(table[own], [500]) for own in (FEATURES, "y", "arm")), checkpoint=tmp_path)


KILLED = """
import os, sys
import numpy as np, pandas as pd
import modifind.engine.checkpoint
from modifind import EffectLikelihood, ModifierSelector
from modifind.engine.dask import connect
import dask.dataframe as dd

modifind.engine.checkpoint.SAVE_SECONDS = 0.0
frame = pd.read_parquet(sys.argv[1])
with connect(sys.argv[2]):
    table = dd.from_pandas(frame, npartitions=24)
    progress = lambda done, total: os._exit(9) if total == len(frame) and done >= 300 else None
    ModifierSelector(
        EffectLikelihood("linear"), sampler="gaussian", propensity=0.5, random_state=0, max_train_rows=400,
        explain=False, cv=2, checkpoint=sys.argv[3], progress=progress,
    ).fit(table[["age", "dose", "site", "stage"]], table["y"], treatment=table["arm"])
"""


def test_a_killed_run_on_a_cluster_continues_to_the_same_bytes(client, cluster, table, tmp_path):
    table.to_parquet(tmp_path / "table.parquet")
    line = [sys.executable, "-c", KILLED, tmp_path / "table.parquet", cluster.scheduler_address, tmp_path / "saved"]
    assert subprocess.run(line, timeout=300).returncode == 9
    assert list((tmp_path / "saved").glob("sums-*.json"))
    frame = dd.from_pandas(pd.read_parquet(tmp_path / "table.parquet"), npartitions=24)
    alone = fit(frame[FEATURES], frame["y"], frame["arm"])
    calls = []
    note = {"progress": lambda *call: calls.append(call)}
    result = fit(frame[FEATURES], frame["y"], frame["arm"], checkpoint=tmp_path / "saved", **note)
    assert next(call for call in calls if call[1] == len(table))[0] >= 300
    assert saved_bytes(result, tmp_path) == saved_bytes(alone, tmp_path)


def test_few_rows_of_a_dask_table_are_saved_by_feature(client, table, tmp_path):
    X, y, arm = (partitions(table[own], [500]) for own in (FEATURES, "y", "arm"))
    settings = {"max_train_rows": 1000, "propensity": "auto", "checkpoint": tmp_path}
    result = fit(X, y, arm, **settings)
    assert len(list(tmp_path.glob("feature-*.json"))) == len(FEATURES)
    assert fit(X, y, arm, **settings) == result


def test_interrupted_run_leaves_nothing_on_the_cluster(client, table):
    def interrupt(done, total):
        if total == 1000 and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as kept:  # what is kept with the error, its futures among it, is not freed
        fit_parts(table, tuple(range(60, 1000, 60)), progress=interrupt)
    limit = time.monotonic() + PATIENCE
    while client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 0
    assert kept.tb is not None


def command_of(process):
    """The command line of a process, empty where it has ended by now."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@NEEDS_SIGNALS
def test_control_c_while_a_local_cluster_starts_leaves_nothing(folder, tmp_path):
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    line = [sys.executable, "-c", start + "from modifind.cli.app import main; main()", "select", folder / "all.csv"]
    process = subprocess.Popen(
        [*line, *SELECT, *ROWS, "--dask", "local"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    main_process = psutil.Process(process.pid)
    while not any("spawn_main" in command_of(child) for child in main_process.children()):
        assert process.poll() is None
        time.sleep(0.01)
    workers = main_process.children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    _, complaint = process.communicate(timeout=120)
    assert process.returncode == 130
    assert len(complaint.splitlines()) <= 1, complaint
    assert not psutil.wait_procs(workers, timeout=PATIENCE)[1]
