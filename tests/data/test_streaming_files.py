"""Tables of more rows than models are fitted to: files."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from modifind import EffectLikelihood, ModifierSelector
from modifind.data.sources import Piece, open_files
from modifind.engine.passes import FirstPassSums
from streams import SMALL, close, cut, fit, fit_source, logistic_scores, row_plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory, few):
    """One table as CSV, as Parquet, and in parts."""
    path = tmp_path_factory.mktemp("files")
    table = few.X.assign(y=few.y, arm=np.where(few.treatment == 1, "drug", "placebo"), pi=logistic_scores(few))
    table[["age", "dose", "y", "pi"]] = table[["age", "dose", "y", "pi"]].round(6)
    table["stage"] = table["stage"].astype(str)
    table.to_csv(path / "all.csv", index=False)
    table.to_parquet(path / "all.parquet", row_group_size=333)
    for number, (start, stop) in {"10": (700, 900), "02": (0, 250), "03": (250, 700)}.items():
        table[start:stop].to_csv(path / f"part-{number}.csv", index=False)
        table[start:stop].to_parquet(path / f"piece-{number}.parquet")
    table.to_csv(path / "notes.txt", index=False)
    table.head(0).to_csv(path / "none.csv", index=False)
    table.drop(columns="dose").to_csv(path / "short.csv", index=False)
    (path / "broken.parquet").write_bytes(b"no parquet")
    (path / "open.csv").write_text('age,y,arm\n1,2,a\n1,3,"b\n', encoding="utf-8")
    return path


def open_all(folder, name, features=("age", "dose", "site", "stage", "smoker", "visits"), **rest):
    return open_files(str(folder / name), features, "y", "arm", **rest)


@pytest.fixture(scope="module")
def from_csv(folder):
    return fit_source(open_all(folder, "all.csv"), **SMALL)


@pytest.mark.parametrize("name", ["all.parquet", "part-*.csv", "piece-*.parquet"])
def test_files_of_any_kind_give_the_same_result(folder, from_csv, name):
    found = fit_source(open_all(folder, name), **SMALL)
    if name == "all.parquet":
        assert json.dumps(found.to_dict()) == json.dumps(from_csv.to_dict())
    else:  # the cuts differ
        close(found, from_csv)
    assert found.settings["n_rows"] == 900


def test_files_say_what_the_same_table_says_in_memory(folder, from_csv):
    table = pd.read_csv(folder / "all.csv")
    features = ["age", "dose", "site", "stage", "smoker", "visits"]
    assert fit(table[features], table["y"], table["arm"], **SMALL) == from_csv


@pytest.mark.parametrize("name", ["all.csv", "all.parquet"])
def test_small_batches_change_nothing(folder, from_csv, name):
    close(fit_source(dataclasses.replace(open_all(folder, name), piece_rows=111), **SMALL), from_csv)


def test_files_of_a_pattern_follow_in_the_order_of_their_names(folder):
    source = open_all(folder, "part-*.csv")
    assert [file.path.name for file in source.files] == ["part-02.csv", "part-03.csv", "part-10.csv"]
    pieces = list(source.pieces())
    assert [piece.start for piece in pieces] == [0, 250, 700]
    read = pd.concat([piece.y for piece in pieces]).to_numpy()
    np.testing.assert_array_equal(read, pd.read_csv(folder / "all.csv")["y"])


def test_parquet_files_tell_their_rows(folder):
    assert open_all(folder, "piece-*.parquet").n_rows == 900
    assert open_all(folder, "all.csv").n_rows is None


def test_scores_are_read_from_their_column(folder, few):
    found = fit_source(open_all(folder, "all.parquet", more={"propensity": "pi"}), **SMALL, propensity="auto")
    table = pd.read_parquet(folder / "all.parquet")
    features = ["age", "dose", "site", "stage", "smoker", "visits"]
    expected = fit(table[features], table["y"], table["arm"], **SMALL, propensity=table["pi"].to_numpy())
    assert_frame_equal(found.table, expected.table, check_exact=True)
    assert "known per row" in found.settings["propensity_model"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing-*.csv", "no file .*nothing-"),
        ("nothing.parquet", "no file .*nothing.parquet"),
        ("notes.txt", "must end in .csv, .tsv .*or .parquet .*; found .*notes.txt"),
        ("*", "must end in .csv, .tsv .*or .parquet .*; found .*notes.txt"),
        ("short.csv", "short.csv has no column 'dose'"),
        ("broken.parquet", "cannot read .*broken.parquet"),
    ],
)
def test_files_that_cannot_be_read_are_named(folder, name, message):
    with pytest.raises(ValueError, match=message):
        open_all(folder, name)


def test_rows_count_once_and_all_files_have_the_same_columns(folder, tmp_path):
    frame = pd.read_csv(folder / "part-03.csv")
    frame.assign(extra=1.5).to_csv(tmp_path / "more.csv", index=False)
    first, more = folder / "part-02.csv", tmp_path / "more.csv"
    selector = ModifierSelector()
    with pytest.raises(ValueError, match=r"part-02\.csv' is named twice; its rows would count twice"):
        selector.fit([str(folder / "part-*.csv"), first], "y", "arm")
    with pytest.raises(ValueError, match=r"more\.csv has a column 'extra' that .*part-02\.csv lacks"):
        selector.fit([first, more], "y", "arm")
    with pytest.raises(ValueError, match=r"part-02\.csv has no column 'extra'"):
        selector.fit([more, first], "y", "arm")


def test_labels_are_the_same_whether_or_not_a_part_of_the_file_has_numbers_alone(folder, tmp_path):
    frame = pd.read_csv(folder / "all.csv").drop(columns="pi")
    rng = np.random.default_rng(0)
    frame["ward"] = np.array([f"{k:03d}" for k in rng.integers(0, 40, 900)], dtype=object)
    frame.loc[899, "ward"] = "A40"
    for start in (0, 450):
        frame[start : start + 450].to_csv(tmp_path / f"part-{start}.csv", index=False)
    given = {
        "statistic": EffectLikelihood("linear"),
        "sampler": "gaussian",
        "random_state": 0,
        "explain": False,
        **SMALL,
    }
    whole = ModifierSelector(**given).fit(
        frame.drop(columns=["y", "arm", "ward"]), frame["y"], frame["arm"], clusters=frame["ward"]
    )
    parts = ModifierSelector(**given).fit(str(tmp_path / "part-*.csv"), "y", "arm", clusters="ward")
    assert parts.result_.settings["clusters"] == whole.result_.settings["clusters"]
    np.testing.assert_allclose(parts.result_.table["p_value"], whole.result_.table["p_value"], rtol=1e-9)


def test_file_that_is_cut_off_is_named_when_it_is_read(folder):
    source = open_files(str(folder / "open.csv"), ["age"], "y", "arm")
    with pytest.raises(ValueError, match=r"cannot read .*open\.csv"):
        fit_source(source)


def test_files_of_no_rows_are_refused_alone_and_harmless_among_others(folder, from_csv, tmp_path):
    with pytest.raises(ValueError, match="no rows"):
        fit_source(open_all(folder, "none.csv"))
    for start, stop in ((0, 400), (400, 400), (400, 900)):
        frame = pd.read_csv(folder / "all.csv")[start:stop]
        frame.to_csv(tmp_path / f"part-{start}-{stop}.csv", index=False)
    close(fit_source(open_all(tmp_path, "*.csv"), **SMALL), from_csv)


def test_empty_pieces_are_harmless(few, base):
    class Gaps:
        n_rows = 900

        def pieces(self):
            for piece in cut(few.X, few.y, few.treatment, 450).pieces():
                yield piece.take(slice(0, 0))
                yield piece

    close(fit_source(Gaps(), **SMALL), base)


@pytest.mark.parametrize("change", [-100, 100])
def test_table_that_changes_while_it_is_read_is_refused(few, change):
    class Changing:
        n_rows = None
        passes = 0

        def pieces(self):
            self.passes += 1
            n = 700 + (change if self.passes > 1 else 0)
            yield from cut(few.X[:n], few.y[:n], few.treatment[:n], 100).pieces()

    with pytest.raises(ValueError, match=f"had 700 rows at first and {700 + change} when read again"):
        fit_source(Changing(), **SMALL)


def test_source_without_rows_is_refused():
    with pytest.raises(ValueError, match="the table has no rows"):
        fit_source(SimpleNamespace(n_rows=None, pieces=lambda: iter(())))


def test_look_adds_up(few):
    pieces = list(cut(few.X, few.y, few.treatment, 300).pieces())
    rows = row_plan(9).limited(2**62)
    whole = FirstPassSums.of_piece(
        Piece(0, few.X, pd.Series(few.y), pd.Series(few.treatment)), rows, "auto", digests=False
    )
    parts = [FirstPassSums.of_piece(piece, rows, "auto", digests=False) for piece in pieces]
    total = parts[0] + parts[1] + parts[2]
    assert total.summary == whole.summary
    assert total.n_sampled == whole.n_sampled
    np.testing.assert_array_equal(total.sample()[0], whole.sample()[0])
    np.testing.assert_array_equal(total.sample()[1].y, whole.sample()[1].y)
