"""Columns by their names: the same fit from frames of any library, files and Dask tables."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal

from modifind import EffectLikelihood, ModifierSelector
from modifind.baselines import SIEM
from modifind.data.files.opening import open_matching
from modifind.data.files.text import Dialect
from modifind.data.roles import assign_roles
from modifind.data.sources import FrameSource

N = 300
FAST = {
    **{"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "random_state": 0, "cv": 2, "explain": False},
    "propensity": 0.5,
}
PER_ROW = {"clusters": "site", "strata": "block", "sample_weight": "w"}
ROLES = {"outcome": "y", "treatment": "drug", **PER_ROW, "features": ["age", "sex"], "adjust_for": ["bmi"]}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": rng.normal(size=N),
            "drug": rng.choice(["no", "yes"], N),
            "bmi": rng.normal(size=N),
            "site": np.arange(N) % 60,
            "w": rng.uniform(0.5, 2, N),
            "sex": rng.choice(["f", "m"], N),
            "block": rng.choice(["a", "b"], N),
            "pi": rng.uniform(0.4, 0.6, N),
            "y": rng.normal(size=N),
        }
    )
    return table.assign(y=table["y"] + 2 * table["age"] * (table["drug"] == "yes"))


def fit(*table, settings=None, **columns):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return ModifierSelector(**FAST | (settings or {})).fit(*table, **columns)


@pytest.fixture(scope="module")
def by_arrays(frame):
    rows = {argument: frame[name].to_numpy() for argument, name in PER_ROW.items()}
    X = frame[["age", "bmi", "sex"]]
    return fit(X, frame["y"], frame["drug"], **rows, adjust_for=["bmi"]).result_


@pytest.mark.parametrize(
    "make",
    [
        lambda frame: frame,
        lambda frame: frame.set_index(np.arange(N)[::-1]),
        lambda frame: {name: frame[name].tolist() for name in frame},
        pl.DataFrame,
        lambda frame: pl.DataFrame(frame).lazy(),
        pa.Table.from_pandas,
        lambda frame: frame.drop(columns=["drug", "sex", "block"]).to_records(index=False),
    ],
    ids=["pandas", "other index", "dict", "polars", "lazy", "pyarrow", "records"],
)
def test_names_of_columns_give_the_result_of_arrays(frame, by_arrays, make, request):
    table, roles = make(frame), ROLES
    if "records" in request.node.name:
        roles = {"outcome": "y", "treatment": frame["drug"], "features": ["age"], "adjust_for": ["bmi"]}
        by_arrays = fit(frame[["age", "bmi"]], frame["y"], frame["drug"], adjust_for=["bmi"]).result_
    found = fit(table, **roles).result_
    assert_frame_equal(found.table, by_arrays.table, check_exact=True)
    assert found.selected == ["age"]
    assert found.settings == by_arrays.settings


@pytest.mark.parametrize("kind", ["csv", "parquet", "list", "opened"])
def test_names_of_columns_of_files_give_the_result_of_arrays(frame, by_arrays, tmp_path, kind):
    frame.to_csv(tmp_path / "all.csv", index=False)
    frame.to_parquet(tmp_path / "all.parquet")
    frame[:100].to_csv(tmp_path / "part-1.csv", index=False, sep=";")
    frame[100:].to_csv(tmp_path / "part-2.csv", index=False, sep=";")
    parts = open_matching(str(tmp_path / "part-*.csv"), Dialect(separator=";"))
    paths = {"list": [tmp_path / "all.csv"], "opened": parts}
    found = fit(paths.get(kind, str(tmp_path / f"all.{kind}")), **ROLES).result_
    assert_frame_equal(found.table, by_arrays.table, rtol=1e-9)


def test_names_of_columns_of_dask_tables_give_the_result_of_arrays(frame, by_arrays):
    dd, distributed = pytest.importorskip("dask.dataframe"), pytest.importorskip("distributed")
    with distributed.Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None):
        table = dd.from_pandas(frame, npartitions=3)
        assert_frame_equal(fit(table, **ROLES).result_.table, by_arrays.table, rtol=1e-9)
        mixed = ROLES | {"outcome": None, "clusters": table["site"]}
        assert_frame_equal(fit(table, "y", **mixed).result_.table, by_arrays.table, rtol=1e-9)


def test_names_and_arrays_can_be_mixed(frame, by_arrays):
    table = frame.drop(columns=["y", "w"])
    rows = ROLES | {"outcome": None, "sample_weight": frame["w"].to_list()}
    assert_frame_equal(fit(table, frame["y"], **rows).result_.table, by_arrays.table, check_exact=True)
    assert_frame_equal(fit(frame, "y", **ROLES | {"outcome": None}).result_.table, by_arrays.table, check_exact=True)


def test_long_frames_take_names_too(frame):
    settings = {"max_train_rows": 200}
    expected = fit(frame[["age", "bmi"]], frame["y"], frame["drug"], settings=settings).result_
    found = fit(frame[["bmi", "y", "age", "drug"]][["age", "y", "bmi", "drug"]], "y", "drug", settings=settings).result_
    assert_frame_equal(found.table, expected.table, check_exact=True)


def test_known_scores_may_be_the_name_of_a_column(frame, tmp_path):
    columns = ["age", "sex", "drug", "y", "pi"]
    frame[columns].to_parquet(tmp_path / "all.parquet")
    scores = {"propensity": frame["pi"].to_numpy()}
    expected = fit(frame[["age", "sex"]], frame["y"], frame["drug"], settings=scores).result_
    for table in (frame[columns], tmp_path / "all.parquet"):
        found = fit(table, "y", "drug", settings={"propensity": "pi"}).result_
        assert_frame_equal(found.table, expected.table, rtol=1e-9)
        assert found.settings["propensity_known"]


def test_columns_in_no_role_are_adjusted_for_unless_adjust_for_says_which(frame):
    rest = {"outcome": "y", "treatment": "drug"}
    few = frame[["age", "drug", "bmi", "sex", "y"]]
    every = fit(few, **rest).result_
    assert every.table.index.tolist() == ["age", "bmi", "sex"]
    some = fit(few, **rest, features=["sex", "age"]).result_
    assert some.table.index.tolist() == ["age", "sex"]
    assert some.settings["adjust_for"] == ["bmi"]
    np.testing.assert_array_equal(some.table["p_value"], every.table.loc[["age", "sex"], "p_value"])
    alone = fit(few, **rest, features=["age"], adjust_for=["sex"])
    assert alone.feature_names_in_.tolist() == ["age", "sex"]
    none = fit(few, **rest, features=[0], adjust_for=[])
    assert none.feature_names_in_.tolist() == ["age"]
    masked = fit(few, **rest, features=[True, False, False, True, False])
    assert masked.result_.settings["adjust_for"] == ["bmi"]


def test_dates_and_identifiers_in_no_role_are_not_adjusted_for(frame):
    dated = frame[["age", "bmi", "drug", "y"]].assign(visit="2020-01-31", id=np.arange(N))
    with pytest.warns(UserWarning, match=r"not adjusted for: visit \(dates\), id \(identifier\)"):
        found = assign_roles(dated, outcome="y", treatment="drug", features=["age"])
    assert list(found["X"]) == ["age", "bmi"]


def test_names_may_be_numbers(frame):
    found = assign_roles(frame[["age", "bmi", "y"]].set_axis([7, 0, "y"], axis=1), "y", frame["drug"], features=[0])
    assert list(found["X"].columns) == [7, 0]
    assert found["adjust_for"] == ["7"]


def test_transform_leaves_columns_with_a_role_out(frame):
    selector = fit(frame, **ROLES)
    assert selector.feature_names_in_.tolist() == ["age", "bmi", "sex"]
    assert selector.transform(frame).columns.tolist() == ["age"]
    assert selector.transform(pl.DataFrame(frame)).columns == ["age"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert ModifierSelector(**FAST).fit_transform(frame, **ROLES).columns.tolist() == ["age"]


def test_placebo_takes_what_fit_takes(frame, tmp_path):
    few = frame[["age", "sex", "drug", "y"]]
    few.to_csv(tmp_path / "all.csv", index=False)
    expected = ModifierSelector(**FAST).placebo(few[["age", "sex"]], few["y"], few["drug"], n=2).table
    for table in (few, tmp_path / "all.csv"):
        found = ModifierSelector(**FAST).placebo(table, outcome="y", treatment="drug", n=2).table
        assert_frame_equal(found, expected, rtol=1e-9)


def test_sources_are_tables_too(frame):
    X, settings = frame[["age", "sex"]], {"max_train_rows": 200}
    source = FrameSource.of(X, frame["y"], frame["drug"])
    expected = fit(X, frame["y"], frame["drug"], settings=settings).result_
    assert_frame_equal(fit(source, settings=settings).result_.table, expected.table, rtol=1e-9)
    table = frame[["age", "drug", "y"]].assign(pieces=frame["bmi"], batches=frame["sex"])
    assert fit(table, "y", "drug").result_.table.index.tolist() == ["age", "pieces", "batches"]


def test_baselines_take_names(frame):
    settings = {"propensity": 0.5, "outcome_model": np.zeros(N), "random_state": 0}
    expected = SIEM(**settings).fit(frame[["age", "bmi", "sex"]], frame["y"], frame["drug"], adjust_for=["bmi"])
    columns = {"outcome": "y", "treatment": "drug", "features": ["age", "sex"], "adjust_for": ["bmi"]}
    assert_frame_equal(SIEM(**settings).fit(frame, **columns).result_.table, expected.result_.table)
    with pytest.raises(ValueError, match="SIEM needs the table in memory"):
        SIEM().fit(FrameSource.of(frame[["age"]], frame["y"], frame["drug"]))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"y": "y", "outcome": "y"}, "y and outcome are both given"),
        ({"outcome": [1, 2]}, "outcome must be the name of a column of X, not list; pass values as y"),
        ({"outcome": "Y"}, "outcome names 'Y', which is not a column of X; did you mean 'y'?"),
        ({"y": "yy"}, "y names 'yy', which is not a column of X"),
        ({"outcome": "y", "treatment": "drag"}, "treatment names 'drag', .*; did you mean 'drug'?"),
        ({"outcome": "y", "treatment": "y"}, "outcome and treatment both name 'y'; a column has one role"),
        ({"outcome": "y", "features": ["age", "y"]}, "outcome and features both name 'y'"),
        ({"outcome": "y", "adjust_for": ["y"]}, "outcome and adjust_for both name 'y'"),
        ({"clusters": "site", "features": ["site"]}, "clusters and features both name 'site'"),
        ({"features": ["age"], "adjust_for": ["age"]}, "features and adjust_for both name 'age'"),
        ({"features": ["age", "age"]}, "features names 'age' twice"),
        ({"features": ["agee"]}, "features names 'agee', which is not a column of X; did you mean 'age'?"),
        ({"features": []}, "features names no column; name some or leave it out"),
        ({"features": "age"}, "features must be a list of columns, not 'age'"),
        ({"outcome": "y", "adjust_for": ["age", "bmi"]}, "no column of X is left to test"),
    ],
)
def test_roles_that_make_no_sense_are_refused(frame, columns, message):
    table = frame[["age", "bmi", "drug", "site", "y"]] if "adjust_for" not in columns else frame[["age", "bmi", "y"]]
    with pytest.raises(ValueError, match=message):
        assign_roles(table, **columns)


def test_names_of_an_array_and_roles_beside_a_source_are_refused(frame):
    with pytest.raises(ValueError, match="y='y' names a column, but those of X have no names; pass one value per row"):
        ModifierSelector().fit(frame[["age", "y"]].to_numpy(), "y", frame["drug"])
    source = FrameSource.of(frame[["age"]], frame["y"], frame["drug"])
    with pytest.raises(ValueError, match=r"X is a source, .* leave out y, features"):
        ModifierSelector().fit(source, frame["y"], features=["age"])
    twice = frame[["age", "bmi", "y"]].set_axis(["age", "age", "y"], axis=1)
    with pytest.raises(ValueError, match="column names must be unique"):
        ModifierSelector().fit(twice, "y", frame["drug"])
