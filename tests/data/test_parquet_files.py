"""Parquet files as pandas leaves them: an index with a name is a column, another is none, at once and in batches."""

import sys

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from modifind.cli.app import main
from modifind.data.files.opening import open_parquet
from modifind.data.sources import open_files

N = 300


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(size=N), "site": rng.choice(["n", "s"], N)})
    frame["stage"] = pd.Categorical(rng.choice(["mild", "bad"], N), ["mild", "bad"], ordered=True)
    frame["visits"] = pd.Series(rng.integers(0, 30, N), dtype="Int64").mask(rng.random(N) < 0.1)
    frame["big"] = 2**60 + rng.integers(0, 9, N)
    frame["seen"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 99, N), unit="D")
    return frame.assign(arm=rng.integers(0, 2, N), y=rng.normal(size=N))


def with_index(frame, kind):
    """The table with an index of a kind, and what is to be read."""
    years = np.random.default_rng(1).permutation(N) + 0.5
    counted = pd.RangeIndex(5, 5 + 2 * N, 2, name="step")
    made = {
        "none": lambda: (frame, frame),
        "filtered": lambda: (frame[frame["age"] > 0], frame[frame["age"] > 0].reset_index(drop=True)),
        "shuffled": lambda: (frame.sample(frac=1, random_state=0), frame.sample(frac=1, random_state=0)),
        "a range": lambda: (frame[::2], frame[::2]),
        "named": lambda: (frame.set_index(pd.Index(years, name="year")), frame.assign(year=years)),
        "set_index": lambda: (frame.set_index("age"), frame[[*frame.columns[1:], "age"]]),
        "a named range": lambda: (frame.set_index(counted), frame.assign(step=counted)),
        "text": lambda: (frame.set_index(pd.Index([f"p{k}" for k in range(N)])), frame),
        "two levels": lambda: (
            frame.set_index(["site", "arm"]),
            frame[["age", "stage", "visits", "big", "seen", "y", "site", "arm"]],
        ),
        "one level of two named": lambda: (
            frame.set_index(pd.MultiIndex.from_arrays([years, range(N)], names=["year", None])),
            frame.assign(year=years),
        ),
        "numbers as names": lambda: (frame.set_axis(range(8), axis=1), frame.set_axis(list("01234567"), axis=1)),
    }
    stored, read = made[kind]()
    return stored, read.reset_index(drop=True)


KINDS = (
    *("none", "filtered", "shuffled", "a range", "named", "set_index", "a named range", "text", "two levels"),
    *("one level of two named", "numbers as names"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_index_is_a_column_where_it_has_a_name(table, tmp_path, kind):
    stored, expected = with_index(table, kind)
    stored.to_parquet(tmp_path / "t.parquet", row_group_size=90)
    file = open_parquet(tmp_path / "t.parquet")
    assert file.names == list(expected.columns)
    assert_frame_equal(file.read(), expected, check_column_type=False)
    assert_frame_equal(
        pd.concat(file.batches(file.names, 70), ignore_index=True), expected, check_column_type=False, check_dtype=True
    )
    last = file.names[-1:]
    assert_frame_equal(
        pd.concat(file.batches(last, 70), ignore_index=True), expected[last], check_column_type=False, check_dtype=True
    )


def test_table_without_an_index_is_read_as_pandas_reads_it(table, tmp_path):
    table.to_parquet(tmp_path / "t.parquet")
    assert_frame_equal(open_parquet(tmp_path / "t.parquet").read(), pd.read_parquet(tmp_path / "t.parquet"))


def test_index_named_like_a_column_is_refused(table, tmp_path):
    table.set_index(pd.Index(range(1, N + 1), name="age", dtype=float)).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"t\.parquet has several columns called 'age', or an index; rename"):
        open_parquet(tmp_path / "t.parquet")


@pytest.mark.parametrize("stream", [(), ("--stream",)])
@pytest.mark.parametrize("kind", ["filtered", "named"])
def test_command_line_reads_what_pandas_saved(table, tmp_path, monkeypatch, capsys, kind, stream):
    table = table.drop(columns=["visits", "big", "seen"])
    stored, _ = with_index(table, kind)
    stored.to_parquet(tmp_path / "t.parquet")
    quick = ("--learner", "linear", "--sampler", "gaussian", "--propensity", "0.5", "--no-explain")
    arguments = ("--treatment", "arm", "--outcome", "y", *quick, *stream, "--out", str(tmp_path / "r.csv"))
    monkeypatch.setattr(sys, "argv", ["modifind", "select", str(tmp_path / "t.parquet"), *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 0, capsys.readouterr().err
    found = pd.read_csv(tmp_path / "r.csv")["feature"].tolist()
    assert found == ["age", "site", "stage", *["year"] * (kind == "named")]


def test_source_of_filtered_files_has_all_rows(table, tmp_path):
    table[table["age"] > 0].to_parquet(tmp_path / "a.parquet")
    table[table["age"] <= 0].to_parquet(tmp_path / "b.parquet")
    source = open_files(str(tmp_path / "*.parquet"), ["age", "site"], "y", "arm")
    assert source.n_rows == N
    assert sum(len(piece.X) for piece in source.pieces()) == N
