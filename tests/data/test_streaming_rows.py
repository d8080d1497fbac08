"""Which rows are in the sample, and what pieces of a table hold."""

import dataclasses
import decimal
import functools
import operator
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from conftest import four_sd
from modifind.data.clusters import LAST_WORD, generous_limit
from modifind.data.features import AdditionalDiscrete
from modifind.data.schema import Schema, read_features
from modifind.data.sources import Piece
from modifind.data.summary import Summary
from modifind.engine.passes import LocalPieces
from streams import cut, row_plan
from tables import read_treatment


def test_words_folds_and_sample_do_not_depend_on_how_rows_are_cut():
    rows = row_plan().limited(2**62)
    whole = np.arange(5000)
    pieces = [np.arange(start, stop) for start, stop in ((0, 1), (1, 1700), (1700, 1700), (1700, 5000))]
    np.testing.assert_array_equal(np.concatenate([rows.words(own) for own in pieces]), rows.words(whole))
    np.testing.assert_array_equal(np.concatenate([rows.sampled(own) for own in pieces]), rows.sampled(whole))
    for repeat in range(2):
        parts = np.concatenate([rows.folds(own)[repeat] for own in pieces])
        np.testing.assert_array_equal(parts, rows.folds(whole)[repeat])


def test_words_are_distinct_and_spread_evenly():
    words = row_plan().words(np.arange(20_000))
    assert np.unique(words).size == 20_000
    counts = np.bincount((words >> np.uint64(60)).astype(int), minlength=16)
    assert np.abs(counts / 20_000 - 1 / 16).max() < four_sd(1 / 16, 20_000)
    # Neighbouring rows have nothing in common.
    low, high = words[:-1] < 2**63, words[1:] < 2**63
    assert np.mean(low == high) == pytest.approx(0.5, abs=four_sd(0.5, 19_999))


def test_folds_are_about_equal_and_independent_of_the_sample_and_of_each_other():
    rows = row_plan(3, n_folds=4).limited(2**63)
    numbers = np.arange(40_000)
    first, second = rows.folds(numbers)
    assert set(first) == {0, 1, 2, 3}
    for own in (first, second, first[rows.sampled(numbers)]):
        assert np.abs(np.bincount(own) / own.size - 0.25).max() < four_sd(0.25, own.size)
    assert np.mean(first == second) == pytest.approx(0.25, abs=four_sd(0.25, 40_000))
    assert rows.sampled(numbers).mean() == pytest.approx(0.5, abs=four_sd(0.5, 40_000))


def test_other_seeds_give_other_folds_and_another_sample():
    one, two = row_plan(0), row_plan(1)
    numbers = np.arange(1000)
    assert np.mean(one.words(numbers) == two.words(numbers)) == 0
    assert np.mean(one.folds(numbers)[0] == two.folds(numbers)[0]) < 0.3
    again = row_plan(0)
    np.testing.assert_array_equal(one.words(numbers), again.words(numbers))


@pytest.mark.parametrize(("n_rows", "n_sample"), [(10_000, 200), (100_000, 1000), (10**9, 200_000)])
def test_generous_limit_leaves_enough_rows_and_not_many_more(n_rows, n_sample):
    share = generous_limit(n_rows, n_sample) / 2**64
    # Six standard deviations above, so that a binomial number of rows is all but surely enough.
    assert n_rows * share - 5 * np.sqrt(n_rows * share) > n_sample
    assert n_rows * share < n_sample + 7 * np.sqrt(n_sample) + 11


def test_generous_limit_of_few_rows_is_all_of_them():
    assert generous_limit(1000, 1000) == generous_limit(1010, 1000) == LAST_WORD
    numbers = np.arange(20_000)
    kept = [row_plan(seed).limited(generous_limit(20_000, 500)).sampled(numbers).sum() for seed in range(20)]
    assert min(kept) >= 500


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("piece_rows", [137, 5000])
def test_sample_is_the_rows_of_the_smallest_words(data, known, piece_rows):
    source = cut(data.X, data.y, data.treatment, piece_rows)
    if not known:
        source = SimpleNamespace(n_rows=None, pieces=source.pieces)
    rows = row_plan(5)
    look, limited = LocalPieces(source).look(rows, "auto", 600)
    numbers, sample = look.sample()
    np.testing.assert_array_equal(numbers, np.sort(np.argsort(rows.words(np.arange(4000)))[:600]))
    np.testing.assert_array_equal(np.flatnonzero(limited.sampled(np.arange(4000))), numbers)
    np.testing.assert_array_equal(sample.X.to_numpy(), data.X.to_numpy()[numbers])
    np.testing.assert_array_equal(sample.y, data.y[numbers])
    np.testing.assert_array_equal(sample.treatment, data.treatment[numbers])
    assert look.summary.n_rows == 4000


# Schema: what pieces hold.


def piece_of(X, y=None, treatment=None, start=0):
    n = len(X)
    y = np.linspace(-1, 1, n) if y is None else y
    treatment = np.arange(n) % 2 if treatment is None else treatment
    return Piece(start, pd.DataFrame(X), pd.Series(y), pd.Series(treatment))


def summary_of(whole, cuts, discrete="auto"):
    parts = []
    for start, stop in zip([0, *cuts], [*cuts, len(whole.X)], strict=True):
        parts.append(Summary.of(dataclasses.replace(whole.take(slice(start, stop)), start=start), discrete))
    return functools.reduce(operator.add, parts)


def schema_of(X, cuts=(), discrete="auto", **rest):
    treated, transform = rest.pop("treated", None), rest.pop("transform", None)
    return Schema.of(summary_of(piece_of(X, **rest), cuts, discrete), treated, transform)


def mixed_frame(n=240, seed=2):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"number": rng.normal(size=n), "count": rng.integers(0, 60, size=n)})
    frame["few"] = rng.integers(-2, 4, size=n)
    frame["halves"] = rng.integers(0, 5, size=n) / 2
    frame["whole"] = rng.integers(1, 4, size=n).astype(float)
    frame["narrow"] = rng.integers(0, 3, size=n).astype(np.int8)
    frame["flag"] = rng.random(n) < 0.5
    frame["text"] = np.array(["b", "a", "ä", "C"])[rng.integers(0, 4, size=n)]
    late = np.where(np.arange(n) > 200, "late", "early")
    frame["late"] = late
    order = ["low", "mid", "high", "never"]
    frame["ordered"] = pd.Categorical(np.array(order[:3])[rng.integers(0, 3, size=n)], order, ordered=True)
    frame["seasons"] = pd.Categorical(np.where(np.arange(n) < 100, "winter", "autumn"), ["winter", "autumn"])
    frame["years"] = pd.Categorical(rng.integers(2000, 2003, size=n))
    frame["nullable"] = pd.array(rng.integers(0, 3, size=n), dtype="Int64")
    frame["truth"] = pd.array(rng.random(n) < 0.5, dtype="boolean")
    frame["real"] = pd.array(rng.normal(size=n), dtype="Float64")
    frame["single"] = rng.normal(size=n).astype(np.float32)
    return frame


CUTS = [(), (120,), (1, 2, 99, 200)]


@pytest.mark.parametrize("cuts", CUTS[1:], ids=len)
def test_summaries_of_pieces_add_up_to_that_of_the_whole(cuts):
    whole = piece_of(mixed_frame())
    assert summary_of(whole, cuts) == summary_of(whole, ())


def test_missing_and_infinite_values_add_up():
    frame = pd.DataFrame({"a": np.arange(40.0), "b": np.arange(40.0)})
    frame.loc[[3, 22, 39], "a"] = np.nan
    frame.loc[[5, 30], "b"] = [np.inf, -np.inf]
    found = summary_of(piece_of(frame), (10, 20)).columns
    assert [(own.n_missing, own.n_infinite) for own in found] == [(3, 0), (0, 2)]
    assert (found[1].low, found[1].high) == (0.0, 39.0)


@pytest.mark.parametrize("discrete", ["auto", [], ["count"], [1, 3], AdditionalDiscrete(("count",))], ids=str)
@pytest.mark.parametrize("cuts", CUTS, ids=len)
def test_pieces_are_read_as_the_whole_table_would_be(discrete, cuts):
    frame = mixed_frame()
    whole = piece_of(frame)
    schema = Schema.of(summary_of(whole, cuts, discrete), None, None)
    expected = read_features(frame, discrete)
    assert schema.names == expected.names
    assert schema.categories == expected.categories
    for start, stop in zip([0, *cuts], [*cuts, 240], strict=True):
        block = schema.read(dataclasses.replace(whole.take(slice(start, stop)), start=start))
        np.testing.assert_array_equal(block.table.values, expected.values[start:stop])
        np.testing.assert_array_equal(block.y, whole.y[start:stop])
        np.testing.assert_array_equal(block.treatment, whole.treatment[start:stop])
        assert block.start == start


@pytest.mark.parametrize("column", ["few", "halves", "whole", "narrow", "flag", "text", "years", "nullable", "truth"])
def test_labels_have_the_type_that_the_whole_table_gives_them(column):
    frame = mixed_frame()[[column]]
    found, expected = schema_of(frame).categories[0], read_features(frame).categories[0]
    assert [(type(label), label) for label in found] == [(type(label), label) for label in expected]


def test_decimals_are_numbers_or_categories_as_in_memory():
    values = [decimal.Decimal(k % 4) / 10 for k in range(80)]
    frame = pd.DataFrame({"dec": values, "long": [decimal.Decimal(k) / 7 for k in range(80)]})
    expected = read_features(frame)
    schema = schema_of(frame, (30,))
    assert schema.categories == expected.categories
    np.testing.assert_array_equal(schema.read(piece_of(frame)).table.values, expected.values)


def test_levels_that_some_pieces_lack_keep_their_declared_order():
    order = ["third", "first", "second"]
    frame = pd.DataFrame({"c": pd.Categorical(np.repeat(["first", "second", "third"], 20), order)})
    schema = schema_of(frame, (20, 40))
    assert schema.categories == (("third", "first", "second"),)
    block = schema.read(piece_of(frame.iloc[:20]))
    np.testing.assert_array_equal(block.table.values[:, 0], 1)


def test_categoricals_of_pieces_that_declare_other_levels_are_read_alike():
    # As files read one by one have them: each declares the levels it holds, in an order of its own.
    first = pd.DataFrame({"c": pd.Categorical(["b", "a"] * 30, ["b", "a"])})
    second = pd.DataFrame({"c": pd.Categorical(["c", "a"] * 30, ["c", "a"])})
    schema = Schema.of(Summary.of(piece_of(first), "auto") + Summary.of(piece_of(second), "auto"), None, None)
    assert schema.categories == (("a", "b", "c"),)
    np.testing.assert_array_equal(schema.read(piece_of(first)).table.values[:4, 0], [1, 0, 1, 0])
    np.testing.assert_array_equal(schema.read(piece_of(second)).table.values[:4, 0], [2, 0, 2, 0])


def test_column_of_ten_values_in_every_piece_and_more_overall_is_continuous():
    frame = pd.DataFrame({"x": np.repeat(np.arange(20), 6)})
    assert schema_of(frame, (60,)).categories == (None,)
    assert schema_of(frame.iloc[:60], (30,)).categories == (tuple(range(10)),)


@pytest.mark.parametrize(
    ("treatment", "treated"),
    [
        ([0, 1], None),
        ([2.0, 1.0], 2),
        ([False, True], None),
        (["drug", "placebo"], None),
        (["a", "b"], "a"),
        (["0", "1"], 0),
        ([1, 2], "1"),
        (pd.Categorical(["new", "old"], ["old", "new"]), "new"),
    ],
    ids=str,
)
def test_arms_are_those_of_the_whole_table(treatment, treated):
    column = pd.Series(treatment).iloc[np.arange(60) * 7 % 11 % 2].reset_index(drop=True)
    shown, arms = read_treatment(column, 60, treated)
    whole = piece_of(pd.DataFrame({"x": np.arange(60.0)}), treatment=column)
    schema = Schema.of(summary_of(whole, (1, 20)), treated, None)
    assert schema.arm_labels == shown
    assert schema.n_treated == arms.sum()
    np.testing.assert_array_equal(schema.read(whole).treatment, arms)
    assert (arms == (column == shown[1])).all()


def test_schema_knows_binary_outcomes_constants_and_the_log():
    frame = pd.DataFrame({"x": np.arange(60.0), "flat": 1.5, "word": "same"})
    schema = schema_of(frame, (15,), y=np.arange(60) % 2 + 1.0, transform="log")
    assert schema.binary
    assert schema.constant == (False, True, True)
    block = schema.read(piece_of(frame, y=np.arange(60) % 2 + 1.0))
    np.testing.assert_allclose(block.y, np.log(np.arange(60) % 2 + 1.0))
    assert not schema_of(frame, y=np.arange(60) % 3).binary


def holes(values, rows, what):
    values = np.array(values, dtype=float)
    values[rows] = what
    return values


X60 = pd.DataFrame({"good": np.arange(60.0), "bad": np.arange(60.0)})
IDS = [f"id{k}" for k in range(1500)]
BAD = {
    "few rows": ({"X": X60[:45]}, "X has 45 rows; at least 50 are needed"),
    "missing": ({"X": X60.assign(bad=holes(range(60), [3, 25, 26], np.nan))}, r"'bad' \(3 missing\)"),
    "infinite": ({"X": X60.assign(bad=holes(range(60), [3, 25], np.inf))}, r"'bad' \(2 infinite\)"),
    "missing text": ({"X": X60.assign(bad=["a", None] * 30)}, r"'bad' \(30 missing\)"),
    "missing category": ({"X": X60.assign(bad=pd.Categorical(["a", None] * 30))}, r"'bad' \(30 missing\)"),
    "later text": (
        {"X": X60.assign(bad=pd.Series([*range(30), *(["x"] * 30)], dtype=object))},
        "column 'bad' holds number values in some rows and text values in others",
    ),
    "identifier": ({"X": pd.DataFrame({"bad": IDS})}, "column 'bad' has more than 1000 distinct values"),
    "date": ({"X": X60.assign(bad=pd.date_range("2020", periods=60))}, "column 'bad' holds dates or times"),
    "complex": ({"X": X60.assign(bad=1j)}, "column 'bad' holds complex numbers"),
    "huge": ({"X": X60.assign(bad=np.arange(60) * 1e200)}, "column 'bad' has values beyond"),
    "mixed": ({"X": X60.assign(bad=pd.Series([1, "a"] * 30, dtype=object))}, "column 'bad' mixes types"),
    "repeated": ({"X": X60.set_axis(["same", "same"], axis=1)}, "repeated: same"),
    "unknown discrete": ({"X": X60, "discrete": ["nobody"]}, "names 'nobody'"),
    "one arm": ({"X": X60, "treatment": np.ones(60)}, "at least two values; found 1"),
    "three arms": ({"X": X60, "treatment": np.arange(60) % 3}, "has 3 labels: 0.*reference=.*arms="),
    "third arm late": ({"X": X60, "treatment": [*([0, 1] * 29), 2, 2]}, "has 3 labels: 0, 1, 2"),
    "rare arm": ({"X": X60, "treatment": [1, 1, 1, 1, *([0] * 56)]}, "at least 20 rows; the smaller has 4"),
    "missing arm": ({"X": X60, "treatment": [*([0.0, 1.0] * 29), np.nan, 1.0]}, "treatment has 1 missing"),
    "unknown label": ({"X": X60, "treated": "pill"}, "treated='pill' is not a value"),
    "constant y": ({"X": X60, "y": np.full(60, 2.0)}, r"y is constant \(2\)"),
    "text y": ({"X": X60, "y": ["high"] * 60}, "outcome y must be numeric"),
    "date y": ({"X": X60, "y": pd.date_range("2020", periods=60)}, "outcome y must be numeric"),
    "complex y": ({"X": X60, "y": np.arange(60) + 1j}, "outcome y must be numeric"),
    "missing y": ({"X": X60, "y": holes(range(60), [1, 30], np.nan)}, "the outcome y is missing in 2 of 60 rows"),
    "infinite y": (
        {"X": X60, "y": holes(range(60), [30], -np.inf)},
        "the outcome y has 1 infinite value in 60 rows",
    ),
    "huge y": ({"X": X60, "y": np.arange(60) * 1e200}, "y has values beyond"),
    "log of zero": (
        {"X": X60, "y": np.arange(60.0), "transform": "log"},
        "needs a positive outcome; 1 value of y is not",
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_what_is_wrong_with_a_table_is_said_of_all_its_pieces(case):
    settings, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        schema_of(cuts=(10, 30), **settings)


def test_pieces_with_other_columns_are_refused():
    first, second = piece_of(X60), piece_of(X60[["bad", "good"]])
    with pytest.raises(ValueError, match=r"the pieces of the table differ: .*column"):
        Summary.of(first, "auto") + Summary.of(second, "auto")


def test_many_values_of_a_column_declared_discrete_are_refused_and_not_taken_as_numbers():
    frame = pd.DataFrame({"code": np.arange(2400) % 1200})
    with pytest.raises(ValueError, match="column 'code' has more than 1000 distinct values"):
        schema_of(frame, (1000,), discrete=["code"])
