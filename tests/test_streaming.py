"""Tables of more rows than models are fitted to: rows, schema, views, whole fits and files."""

import dataclasses
import decimal
import functools
import json
import operator
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from conftest import confounded_table, four_sd, seed_of
from modifind import EffectLikelihood, ModifierSelector, PropensityModel
from modifind.datasets import make_modifiers
from modifind.explain.marginal import marginal_view
from modifind.features import AlsoDiscrete, read_features, read_treatment
from modifind.propensity import FittedPropensity
from modifind.result import SelectionResult
from modifind.statistics import WCMMD
from modifind.streaming import FrameSource, LocalPieces, Piece, open_files, plan
from modifind.streaming.engine import Look
from modifind.streaming.plan import OverlapSums
from modifind.streaming.rows import LAST_WORD, RowPlan, generous_limit
from modifind.streaming.schema import Summary
from modifind.streaming.views import BinnedRows, FeatureView, OutcomeBins

FAST = {
    "statistic": EffectLikelihood("linear"),
    "sampler": "gaussian",
    "propensity": 0.5,
    "random_state": 0,
    "max_train_rows": 1500,
}


def fit(X, y, treatment, *, treated=None, **settings):
    return ModifierSelector(**FAST | settings).fit(X, y, treatment=treatment, treated=treated).result_


def fit_source(source, *, treated=None, **settings):
    return ModifierSelector(**FAST | settings).fit_source(source, treated=treated).result_


def cut(X, y, treatment, piece_rows, scores=None):
    return dataclasses.replace(FrameSource.of(X, y, treatment, scores), piece_rows=piece_rows)


@pytest.fixture(scope="module")
def data():
    return make_modifiers("NonlinMean", n_samples=4000, n_features=6, random_state=0)


@pytest.fixture(scope="module")
def streamed(data):
    return fit(data.X, data.y, data.treatment)


@pytest.fixture(scope="module")
def few():
    """A small table of many kinds of columns: few rows, quick fits."""
    rng = np.random.default_rng(1)
    n = 900
    X, treatment = confounded_table(rng, n, 2)
    frame = pd.DataFrame({"age": X[:, 0], "dose": X[:, 1]})
    frame["site"] = np.array(["north", "south", "west"])[rng.integers(0, 3, size=n)]
    frame["stage"] = pd.Categorical(np.array(["mild", "bad"])[rng.integers(0, 2, size=n)], ["mild", "bad", "worst"])
    frame["smoker"] = rng.random(n) < 0.4
    frame["visits"] = rng.integers(0, 5, size=n)
    y = 2 * treatment * (X[:, 0] + (frame["site"] == "west")) + X[:, 1] + rng.normal(size=n)
    return SimpleNamespace(X=frame, y=y.to_numpy(), treatment=treatment)


SMALL = {"max_train_rows": 400}


@pytest.fixture(scope="module")
def base(few):
    return fit(few.X, few.y, few.treatment, **SMALL)


@pytest.fixture(scope="module")
def two(few):
    """Two columns of the same table: quicker still."""
    return SimpleNamespace(X=few.X[["age", "dose"]], y=few.y, treatment=few.treatment)


# Rows: sample and folds.


def row_plan(seed=0, n_folds=5, n_repeats=2):
    return RowPlan.of(seed_of(seed), n_folds, n_repeats)


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
    return summary_of(piece_of(X, **rest), cuts, discrete).schema(treated, transform)


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


@pytest.mark.parametrize("discrete", ["auto", [], ["count"], [1, 3], AlsoDiscrete(("count",))], ids=str)
@pytest.mark.parametrize("cuts", CUTS, ids=len)
def test_pieces_are_read_as_the_whole_table_would_be(discrete, cuts):
    frame = mixed_frame()
    whole = piece_of(frame)
    schema = summary_of(whole, cuts, discrete).schema(None, None)
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
    first = pd.DataFrame({"c": pd.Categorical(["b", "a"] * 10, ["b", "a"])})
    second = pd.DataFrame({"c": pd.Categorical(["c", "a"] * 10, ["c", "a"])})
    schema = (Summary.of(piece_of(first), "auto") + Summary.of(piece_of(second), "auto")).schema(None, None)
    assert schema.categories == (("a", "b", "c"),)
    np.testing.assert_array_equal(schema.read(piece_of(first)).table.values[:4, 0], [1, 0, 1, 0])
    np.testing.assert_array_equal(schema.read(piece_of(second)).table.values[:4, 0], [2, 0, 2, 0])


def test_column_of_ten_values_in_every_piece_and_more_overall_is_continuous():
    frame = pd.DataFrame({"x": np.repeat(np.arange(20), 3)})
    assert schema_of(frame, (30,)).categories == (None,)
    assert schema_of(frame.iloc[:30], (15,)).categories == (tuple(range(10)),)


@pytest.mark.parametrize(
    ("treatment", "treated"),
    [
        ([0, 1], None),
        ([2.0, 1.0], None),
        ([False, True], None),
        (["drug", "placebo"], None),
        (["a", "b"], "a"),
        (["0", "1"], 0),
        ([1, 2], "1"),
        (pd.Categorical(["new", "old"], ["old", "new"]), None),
    ],
    ids=str,
)
def test_arms_are_those_of_the_whole_table(treatment, treated):
    column = pd.Series(treatment).iloc[np.arange(60) * 7 % 11 % 2].reset_index(drop=True)
    expected = read_treatment(column, 60, treated)
    whole = piece_of(pd.DataFrame({"x": np.arange(60.0)}), treatment=column)
    schema = summary_of(whole, (1, 20)).schema(treated, None)
    assert schema.arm_labels == (expected.control, expected.treated)
    assert schema.n_treated == expected.arms.sum()
    np.testing.assert_array_equal(schema.read(whole).treatment, expected.arms)


def test_schema_knows_binary_outcomes_constants_and_the_log():
    frame = pd.DataFrame({"x": np.arange(40.0), "flat": 1.5, "word": "same"})
    schema = schema_of(frame, (15,), y=np.arange(40) % 2 + 1.0, transform="log")
    assert schema.binary
    assert schema.constant == (False, True, True)
    block = schema.read(piece_of(frame, y=np.arange(40) % 2 + 1.0))
    np.testing.assert_allclose(block.y, np.log(np.arange(40) % 2 + 1.0))
    assert not schema_of(frame, y=np.arange(40) % 3).binary


def holes(values, rows, what):
    values = np.array(values, dtype=float)
    values[rows] = what
    return values


X40 = pd.DataFrame({"good": np.arange(40.0), "bad": np.arange(40.0)})
IDS = [f"id{k}" for k in range(1500)]
BAD = {
    "missing": ({"X": X40.assign(bad=holes(range(40), [3, 25, 26], np.nan))}, r"'bad' \(3 missing\)"),
    "infinite": ({"X": X40.assign(bad=holes(range(40), [3, 25], np.inf))}, r"'bad' \(2 infinite\)"),
    "missing text": ({"X": X40.assign(bad=["a", None] * 20)}, r"'bad' \(20 missing\)"),
    "missing category": ({"X": X40.assign(bad=pd.Categorical(["a", None] * 20))}, r"'bad' \(20 missing\)"),
    "later text": (
        {"X": X40.assign(bad=pd.Series([*range(30), *(["x"] * 10)], dtype=object))},
        "column 'bad' holds number values in some rows and text values in others",
    ),
    "identifier": ({"X": pd.DataFrame({"bad": IDS})}, "column 'bad' has more than 1000 distinct values"),
    "date": ({"X": X40.assign(bad=pd.date_range("2020", periods=40))}, "column 'bad' has type datetime64"),
    "complex": ({"X": X40.assign(bad=1j)}, "column 'bad' has type complex128"),
    "huge": ({"X": X40.assign(bad=np.arange(40) * 1e200)}, "column 'bad' has values beyond"),
    "mixed": ({"X": X40.assign(bad=pd.Series([1, "a"] * 20, dtype=object))}, "column 'bad' mixes types"),
    "repeated": ({"X": X40.set_axis(["same", "same"], axis=1)}, "repeated: same"),
    "unknown discrete": ({"X": X40, "discrete": ["nobody"]}, "names 'nobody'"),
    "one arm": ({"X": X40, "treatment": np.ones(40)}, "exactly two values; found 1"),
    "three arms": ({"X": X40, "treatment": np.arange(40) % 3}, "exactly two values; found more"),
    "third arm late": ({"X": X40, "treatment": [*([0, 1] * 19), 2, 2]}, "exactly two values"),
    "rare arm": ({"X": X40, "treatment": [1, 1, 1, 1, *([0] * 36)]}, "at least 5 rows; the smaller has 4"),
    "missing arm": ({"X": X40, "treatment": [*([0.0, 1.0] * 19), np.nan, 1.0]}, "treatment has 1 missing"),
    "unknown label": ({"X": X40, "treated": "pill"}, "treated='pill' is not a value"),
    "constant y": ({"X": X40, "y": np.full(40, 2.0)}, r"y is constant \(2\)"),
    "text y": ({"X": X40, "y": ["high"] * 40}, "outcome y must be numeric"),
    "date y": ({"X": X40, "y": pd.date_range("2020", periods=40)}, "outcome y must be numeric"),
    "complex y": ({"X": X40, "y": np.arange(40) + 1j}, "outcome y must be numeric"),
    "missing y": ({"X": X40, "y": holes(range(40), [1, 30], np.nan)}, "y has 2 missing and 0 infinite values"),
    "infinite y": ({"X": X40, "y": holes(range(40), [30], -np.inf)}, "y has 0 missing and 1 infinite values"),
    "huge y": ({"X": X40, "y": np.arange(40) * 1e200}, "y has values beyond"),
    "log of zero": ({"X": X40, "y": np.arange(40.0), "transform": "log"}, "needs a positive outcome"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_what_is_wrong_with_a_table_is_said_of_all_its_pieces(case):
    settings, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        schema_of(cuts=(10, 30), **settings)


def test_pieces_with_other_columns_are_refused():
    first, second = piece_of(X40), piece_of(X40[["bad", "good"]])
    with pytest.raises(ValueError, match="differ in their columns or their order"):
        Summary.of(first, "auto") + Summary.of(second, "auto")


def test_many_values_of_a_column_declared_discrete_are_refused_and_not_taken_as_numbers():
    frame = pd.DataFrame({"code": np.arange(2400) % 1200})
    with pytest.raises(ValueError, match="column 'code' has more than 1000 distinct values"):
        schema_of(frame, (1000,), discrete=["code"])


# Views: importance and curve from sums.


def view_inputs(kind, n=3000, seed=3):
    rng = np.random.default_rng(seed)
    X, treatment = confounded_table(rng, n, 2)
    scores = 1 / (1 + np.exp(-0.4 * X[:, 0]))
    noise = rng.standard_t(2.2, size=n) if kind == "heavy" else rng.normal(size=n)
    frame = pd.DataFrame({"x": X[:, 0], "rest": X[:, 1]})
    if kind == "discrete":
        frame["x"] = np.array(list("abcd"))[np.digitize(X[:, 0], [-1, 0.2, 1.1])]
    if kind == "skewed":
        frame["x"] = np.exp(0.3 * X[:, 0])
    y = 1.5 * treatment * np.tanh(X[:, 0]) + (1 + 0.6 * treatment * (X[:, 0] > 0)) * noise
    if kind == "rounded":
        y = np.maximum(np.round(y), 0.0)
    return read_features(frame), y, treatment, scores


def sums_view(table, y, treatment, scores, cuts=(), looked_at=None):
    """Importance and curve from the sums of pieces; the sample is all rows, or `looked_at`."""
    sample, outcome = looked_at or (table, y)
    bins, view = OutcomeBins.of(outcome, seed_of(0)), FeatureView.of(sample, 0, seed_of(1))
    total = None
    for start, stop in zip([0, *cuts], [*cuts, y.size], strict=True):
        rows = slice(start, stop)
        arms = BinnedRows.of(bins, y[rows], treatment[rows], scores[rows])
        own = view.sums(table.values[rows, 0], arms, bins.centre.size)
        total = own if total is None else total + own
    return view.view(total, bins, table.categories[0]), total


def rows_view(table, y, treatment, scores):
    return marginal_view(table, 0, y, scores, WCMMD().prepare(y, treatment, seed_of(0)), seed_of(1))


@pytest.mark.parametrize("kind", ["smooth", "skewed", "discrete", "rounded", "heavy"])
def test_view_from_sums_is_that_of_the_rows(kind):
    inputs = view_inputs(kind)
    found, expected = sums_view(*inputs)[0], rows_view(*inputs)
    assert found.importance == pytest.approx(expected.importance, rel=0.05)
    assert found.bandwidth == pytest.approx(expected.bandwidth, rel=1e-9)
    assert found.curve.columns.tolist() == expected.curve.columns.tolist()
    if kind == "discrete":
        assert found.curve["value"].tolist() == list("abcd")
    else:
        np.testing.assert_allclose(found.curve["value"], expected.curve["value"])
    np.testing.assert_allclose(found.curve["d2"], expected.curve["d2"], atol=0.02 * expected.curve["d2"].max())
    # Sums of their own: exact whatever the bins.
    np.testing.assert_allclose(found.curve["mean_effect"], expected.curve["mean_effect"], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.curve["sd_ratio"], expected.curve["sd_ratio"], rtol=1e-6)
    spread = np.quantile(inputs[1], 0.75) - np.quantile(inputs[1], 0.25)
    for name in ("q10_effect", "q25_effect", "q50_effect", "q75_effect", "q90_effect"):
        # Two quantiles, each within a bin of 1/256 of the rows; bins in the tails are wider.
        gap = np.abs(found.curve[name] - expected.curve[name])
        assert gap.max() < 0.1 * spread, name


@pytest.mark.parametrize("kind", ["smooth", "discrete"])
def test_view_is_additive_over_cuts_of_the_rows(kind):
    inputs = view_inputs(kind)
    whole, parts = sums_view(*inputs)[1], sums_view(*inputs, cuts=(1, 700, 2999))[1]
    for name in ("histogram", "powers", "cells"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-9, atol=1e-9)
    assert whole.cells[0].sum() == 3000


def test_pieces_of_one_arm_only_are_fine():
    table, y, treatment, scores = view_inputs("smooth")
    order = np.argsort(treatment, kind="stable")
    by_arm = (dataclasses.replace(table, values=table.values[order]), y[order], treatment[order], scores[order])
    first = sums_view(table, y, treatment, scores)[0]
    second = sums_view(*by_arm, cuts=(int((treatment == 0).sum()),), looked_at=(table, y))[0]
    assert first.importance == pytest.approx(second.importance, rel=1e-9)
    assert_frame_equal(first.curve, second.curve, rtol=1e-9)


def test_category_without_treated_rows_has_no_effect_and_the_others_keep_theirs():
    table, y, treatment, scores = view_inputs("discrete")
    treatment = np.where(table.values[:, 0] == 2, 0, treatment)
    found = sums_view(table, y, treatment, scores)[0]
    expected = rows_view(table, y, treatment, scores)
    assert found.curve.iloc[2].drop("value").isna().all()
    assert found.curve.drop(index=2).notna().all().all()
    assert expected.curve.loc[2, "mean_effect":].isna().all()
    np.testing.assert_allclose(found.curve["mean_effect"], expected.curve["mean_effect"], rtol=1e-6)
    assert found.importance == pytest.approx(expected.importance, rel=0.05)


def test_outcome_beyond_the_range_of_the_sample_falls_into_the_outer_bins():
    table, y, treatment, scores = view_inputs("smooth")
    sample = (dataclasses.replace(table, values=table.values[:400]), y[:400])
    near, near_sums = sums_view(table, y, treatment, scores, looked_at=sample)
    far, far_sums = sums_view(table, 50 * y, treatment, scores, looked_at=sample)
    np.testing.assert_allclose(far_sums.histogram.sum(axis=2), near_sums.histogram.sum(axis=2))  # no row is lost
    np.testing.assert_allclose(far.curve["mean_effect"], 50 * near.curve["mean_effect"], rtol=1e-6)
    np.testing.assert_allclose(far.curve["sd_ratio"], near.curve["sd_ratio"], rtol=1e-6)
    low, high = y[:400].min(), y[:400].max()
    assert far.curve["q50_effect"].abs().max() <= high - low


def test_view_of_a_sample_is_that_of_all_rows():
    table, y, treatment, scores = view_inputs("smooth", n=6000)
    sample = (dataclasses.replace(table, values=table.values[:2000]), y[:2000])
    found, expected = (
        sums_view(table, y, treatment, scores, looked_at=sample)[0],
        rows_view(table, y, treatment, scores),
    )
    # Bandwidths of 2000 rows are within a few per cent of those of all, and importance moves with them.
    assert found.importance == pytest.approx(expected.importance, rel=0.15)
    at = np.interp(expected.curve["value"], found.curve["value"], found.curve["mean_effect"])
    np.testing.assert_allclose(at[1:-1], expected.curve["mean_effect"][1:-1], atol=0.1)


def test_binary_outcome_has_two_bins():
    bins = OutcomeBins.of(np.array([0.0, 1.0, 1.0, 0.0, 0.0]), seed_of(0))
    np.testing.assert_array_equal(bins.low, [0.0, 1.0])
    np.testing.assert_array_equal(bins.centre, [0.0, 1.0])
    assert bins.edges.tolist() == [0.0]


def test_overlap_sums_are_the_overlap_of_all_rows():
    rng = np.random.default_rng(4)
    table = read_features(rng.normal(size=(500, 1)))
    raw, arms = rng.beta(1, 1, size=500), rng.integers(0, 2, size=500)

    def rows(chosen):
        return FittedPropensity(
            raw[chosen], (0.02, 0.98), arms[chosen], dataclasses.replace(table, values=table.values[chosen]), "", 0.7
        )

    total = OverlapSums.of(rows(slice(0, 120))) + OverlapSums.of(rows(slice(120, 500)))
    expected = rows(slice(None)).overlap()
    assert total.overlap(0.7) == pytest.approx(expected, rel=1e-9)
    assert expected["n_clipped"] > 0


# Whole fits.


@pytest.mark.parametrize("kind", ["NonlinMean", "LinVar"])
def test_streamed_fit_finds_what_all_rows_in_memory_tell(kind):
    data = make_modifiers(kind, n_samples=4000, n_features=6, random_state=0)
    found = fit(data.X, data.y, data.treatment)
    whole = fit(data.X, data.y, data.treatment, max_train_rows=4000)
    assert set(found.selected) == set(whole.selected) == set(data.modifiers)
    # Importance and curves are of all rows in both, up to bins and bandwidths from a sample of the rows.
    np.testing.assert_allclose(found.table["importance"], whole.table["importance"], rtol=0.25, atol=2e-4)
    for name in data.modifiers[:2]:
        one, two = found.curve(name), whole.curve(name)
        at = np.interp(two["value"], one["value"], one["mean_effect"])
        assert np.abs(at - two["mean_effect"]).max() < 0.1 * np.ptp(two["mean_effect"]) + 0.1
    # The models have seen less than half of the rows; log-likelihood gains are alike.
    np.testing.assert_allclose(found.table["effect_size"][:5], whole.table["effect_size"][:5], rtol=0.4)


def test_defaults_work_above_the_limit():
    data = make_modifiers("LinMean", n_samples=1500, n_features=5, random_state=2)
    found = ModifierSelector(max_train_rows=700, random_state=0).fit(data.X, data.y, treatment=data.treatment).result_
    assert set(found.selected) == set(data.modifiers)
    assert found.settings["n_train_rows"] == 700
    assert found.settings["model"]["n_folds"] == 5
    assert found.diagnostics["sampler"].isin(["gaussian", "boosting"]).all()


def test_result_records_rows_and_sample(data, streamed):
    settings = streamed.settings
    assert (settings["n_rows"], settings["n_train_rows"], settings["max_train_rows"]) == (4000, 1500, 1500)
    assert settings["n_treated"] == int(data.treatment.sum())
    assert settings["n_control"] == 4000 - settings["n_treated"]
    assert settings["n_resamples_used"] == 0
    assert settings["seed"] == 0
    assert settings["model"]["stack"] == "linear 1.00"
    assert streamed.table.index.tolist() == [f"X{j}" for j in range(1, 7)]
    assert streamed.overlap["effective_rows_treated"] == pytest.approx(settings["n_treated"])
    assert (streamed.diagnostics["n_resamples"] == 0).all()


def test_table_in_memory_does_not_record_a_sample(data):
    result = fit(data.X[:300], data.y[:300], data.treatment[:300])
    assert "n_train_rows" not in result.settings


def test_report_and_json_hold_a_streamed_result(base, streamed, tmp_path):
    base.to_json(tmp_path / "r.json")
    assert SelectionResult.from_json(tmp_path / "r.json") == base
    streamed.to_json(tmp_path / "r.json")
    assert SelectionResult.from_json(tmp_path / "r.json") == streamed
    streamed.report(tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "X1" in text
    assert "4000" in text or "4,000" in text


def test_result_is_the_same_for_one_job_and_two(few):
    source = cut(few.X, few.y, few.treatment, 250)
    one, two = (fit_source(source, **SMALL, sampler="auto", n_jobs=n_jobs) for n_jobs in (1, 2))
    assert one == two
    assert one.table["p_value"].between(0, 1).all()


def test_same_seed_same_answer_and_other_seed_other_sample(two):
    first, again, other = (fit(two.X, two.y, two.treatment, **SMALL, random_state=seed) for seed in (7, 7, 8))
    assert first == again
    assert (first.table["p_value"] != other.table["p_value"]).any()
    drawn = fit(two.X, two.y, two.treatment, **SMALL, random_state=None)
    assert fit(two.X, two.y, two.treatment, **SMALL, random_state=drawn.settings["seed"]) == drawn


def close(one, two, tolerance=1e-10):
    """Equal but for the order in which numbers were added up."""
    assert_frame_equal(one.table, two.table, rtol=tolerance, atol=tolerance)
    assert_frame_equal(one.diagnostics, two.diagnostics, rtol=tolerance, atol=tolerance)
    for name in one.curves:
        assert_frame_equal(one.curve(name), two.curve(name), rtol=1e-7, atol=1e-8)
    assert one.overlap == pytest.approx(two.overlap, rel=1e-10)
    assert one.settings == two.settings


@pytest.mark.parametrize("piece_rows", [133, 899])
def test_size_of_the_pieces_does_not_matter(few, base, piece_rows):
    close(fit_source(cut(few.X, few.y, few.treatment, piece_rows), **SMALL), base)


def test_size_of_the_blocks_does_not_matter(few, base, monkeypatch):
    monkeypatch.setattr(plan, "BLOCK_ROWS", 97)
    close(fit(few.X, few.y, few.treatment, **SMALL), base)


def test_repeated_cross_fits_are_streamed_too(two):
    statistic = EffectLikelihood("linear", cv_repeats=2)
    one = fit(two.X, two.y, two.treatment, **SMALL, statistic=statistic)
    close(fit_source(cut(two.X, two.y, two.treatment, 250), **SMALL, statistic=statistic), one)
    once = fit(two.X, two.y, two.treatment, **SMALL)
    assert (one.table["p_value"] != once.table["p_value"]).any()
    assert one.selected[0] == once.selected[0] == "age"


@pytest.fixture
def spied(two, monkeypatch):
    """The plan that workers get in a fit, and the sums that they return."""
    seen = SimpleNamespace()
    add_up = LocalPieces.sums

    def spy(self, plan, n_rows, advance):
        seen.plan, seen.sums = plan, add_up(self, plan, n_rows, advance)
        return seen.sums

    monkeypatch.setattr(LocalPieces, "sums", spy)
    fit(two.X, two.y, two.treatment, **SMALL)
    return seen


def test_variance_that_folds_share_is_of_the_sample_alone(spied, two):
    everyone = dataclasses.replace(spied.plan, rows=spied.plan.rows.limited(LAST_WORD))
    whole = everyone.sums(Piece(0, two.X, pd.Series(two.y), pd.Series(two.treatment)))
    for found, all_rows in zip(spied.sums.features, whole.features, strict=True):
        assert all_rows.per_fold.sum() == pytest.approx(all_rows.test.second, rel=1e-9)
        # 400 of 900 rows, whose variances differ.
        assert found.per_fold.sum() / found.test.second == pytest.approx(400 / 900, abs=0.1)
        assert found.per_fold.shape == (1, 5)


def test_plan_of_the_workers_is_small_and_has_no_rows(spied):
    assert len(pickle.dumps(spied.plan)) < 100_000
    assert spied.plan.outcome.y.size == spied.plan.propensity.raw.size == 1


def test_index_and_container_of_the_table_do_not_matter(few):
    X = few.X[["age", "dose", "visits"]]
    expected = fit(X, few.y, few.treatment, **SMALL)
    odd = X.set_axis(np.arange(900)[::-1] * 3, axis=0)
    shuffled = np.random.default_rng(0).permutation(900)
    found = fit(odd, pd.Series(few.y, index=shuffled), pd.Series(few.treatment, index=shuffled), **SMALL)
    assert found == expected
    assert fit(X.set_axis(["same"] * 900, axis=0), list(few.y), few.treatment.tolist(), **SMALL) == expected
    array = fit(X.to_numpy(), few.y[:, None], few.treatment, **SMALL)
    assert array.table.index.tolist() == ["x0", "x1", "x2"]
    np.testing.assert_array_equal(array.table["p_value"], expected.table["p_value"])


@pytest.mark.parametrize(
    ("labels", "treated", "shown"),
    [([False, True], None, (False, True)), (["new", "old"], "old", ("new", "old")), (["usual care", "x"], None, None)],
)
def test_treatment_of_any_two_labels(few, base, labels, treated, shown):
    found = fit(few.X, few.y, np.array(labels)[few.treatment], treated=treated, **SMALL)
    assert_frame_equal(found.table, base.table, check_exact=True)
    assert (found.settings["control_label"], found.settings["treated_label"]) == (shown or tuple(labels))


def test_other_label_as_treated_swaps_the_arms(few, base):
    found = fit(few.X, few.y, few.treatment, treated=0, **SMALL)
    assert found.settings["treated_label"] == 0
    one, two = found.curve("age"), base.curve("age")
    np.testing.assert_allclose(one["mean_effect"], -two["mean_effect"], rtol=1e-8)


def test_binary_outcome_is_streamed():
    rng = np.random.default_rng(8)
    X, treatment = confounded_table(rng, 2500, 3)
    chance = 1 / (1 + np.exp(-(0.3 * X[:, 1] + 2.0 * treatment * X[:, 0])))
    y = np.where(rng.random(2500) < chance, 7.0, 3.0)
    result = fit(X, y, treatment, max_train_rows=1000)
    assert result.selected == ["x0"]
    assert result.settings["model"]["likelihood"] == "bernoulli"
    coded = fit(X, y == 7.0, treatment, max_train_rows=1000)
    np.testing.assert_allclose(coded.table["p_value"], result.table["p_value"], rtol=1e-9)


def test_logarithm_of_the_outcome_is_that_of_a_logged_outcome(two):
    y = two.y / 4
    plain = fit(two.X, y, two.treatment, **SMALL)
    logged = fit(two.X, np.exp(y), two.treatment, **SMALL, outcome_transform="log")
    assert logged.settings["outcome_transform"] == "log"
    np.testing.assert_allclose(logged.table["p_value"], plain.table["p_value"], rtol=1e-6)
    np.testing.assert_allclose(logged.table["importance"], plain.table["importance"], rtol=1e-6)


def test_skewed_outcome_is_warned_of(few):
    with pytest.warns(UserWarning, match="strongly skewed"):
        result = fit(few.X[["age", "dose"]], np.exp(few.y / 2), few.treatment, **SMALL)
    assert any("strongly skewed" in message for message in result.warnings)


def logistic_scores(few):
    return 1 / (1 + np.exp(-0.4 * few.X["age"].to_numpy()))


@pytest.mark.parametrize("wrap", [False, True], ids=["array", "model"])
def test_known_scores_are_cut_with_the_rows(two, wrap):
    scores = logistic_scores(two)
    propensity = PropensityModel(scores, clip=(0.35, 0.9)) if wrap else scores
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*clipped")
        expected = fit(two.X, two.y, two.treatment, **SMALL, propensity=propensity)
        source = cut(two.X, two.y, two.treatment, 170, propensity)
        found = fit_source(source, **SMALL, propensity=propensity)
        whole = fit(two.X, two.y, two.treatment, propensity=propensity)
    close(found, expected)
    # Each row has its own score: the sums over rows are those of the table in memory.
    for name in ("effective_rows_treated", "effective_rows_control", "n_clipped", "extreme_share"):
        assert found.overlap[name] == pytest.approx(whole.overlap[name], rel=1e-9), name
    if wrap:
        assert found.overlap["n_clipped"] == ((scores < 0.35) | (scores > 0.9)).sum()
        assert any(f"{found.overlap['n_clipped']:.0f} of 900 propensity scores" in text for text in found.warnings)


def test_scores_as_a_list_or_series_with_an_odd_index_follow_the_rows(two):
    scores = logistic_scores(two)
    expected = fit(two.X, two.y, two.treatment, **SMALL, propensity=scores)
    series = pd.Series(scores, index=np.arange(900)[::-1])
    np.testing.assert_array_equal(
        fit(two.X, two.y, two.treatment, **SMALL, propensity=series).table["p_value"], expected.table["p_value"]
    )


def outside_the_sample(few, **settings):
    """Numbers of rows that models are not fitted to."""
    seeds = np.random.SeedSequence(FAST["random_state"]).spawn(6)
    words = RowPlan.of(seeds[0], 5, 1).words(np.arange(len(few.X)))
    return np.argsort(words)[settings.get("max_train_rows", 400) :]


@pytest.mark.parametrize("wrong", [np.nan, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("inside", [True, False], ids=["sample", "rest"])
def test_impossible_scores_are_refused_wherever_they_are(few, wrong, inside):
    scores = logistic_scores(few)
    rest = outside_the_sample(few)
    row = np.setdiff1d(np.arange(900), rest)[0] if inside else rest[0]
    scores[row] = wrong
    with pytest.raises(ValueError, match="propensity must lie strictly between 0 and 1"):
        fit(few.X[["age", "dose"]], few.y, few.treatment, **SMALL, propensity=scores)


def test_fitted_propensity_scores_every_row(two):
    result = fit(two.X, two.y, two.treatment, **SMALL, propensity="auto")
    assert "logistic regression" in result.settings["propensity_model"]
    assert 0.5 < result.overlap["auc"] < 0.75
    assert 700 < result.overlap["effective_rows_treated"] + result.overlap["effective_rows_control"] < 900


def test_text_and_categories_are_tested(base):
    result = base
    assert result.table["kind"].tolist() == ["continuous"] * 2 + ["discrete"] * 4
    assert {"age", "site"} <= set(result.selected)
    assert result.curve("stage")["value"].tolist() == ["mild", "bad"]
    assert result.curve("site")["value"].tolist() == ["north", "south", "west"]
    assert result.curve("smoker")["value"].tolist() == [False, True]
    assert result.curve("visits")["value"].tolist() == [0, 1, 2, 3, 4]
    west = result.curve("site").set_index("value")["mean_effect"]
    assert west["west"] - west["north"] == pytest.approx(2.0, abs=1.0)


def test_columns_declared_discrete(few):
    chosen = fit(few.X, few.y, few.treatment, **SMALL, discrete_features=["smoker"])
    assert chosen.table.loc["visits", "kind"] == "continuous"
    also = fit(
        few.X.assign(age=few.X["age"].round()), few.y, few.treatment, **SMALL, discrete_features=AlsoDiscrete(("age",))
    )
    assert also.table.loc[["age", "visits"], "kind"].tolist() == ["discrete", "discrete"]


@pytest.mark.parametrize("flat", [2.5, "same"])
def test_constant_column_warns_and_has_p_value_one(few, flat):
    with pytest.warns(UserWarning, match="constant columns cannot modify anything: flat"):
        result = fit(few.X[["age", "dose"]].assign(flat=flat), few.y, few.treatment, **SMALL)
    row = result.table.loc["flat"]
    assert (row["importance"], row["p_value"], row["selected"]) == (0.0, 1.0, False)
    assert any("flat" in message for message in result.warnings)
    assert "age" in result.selected


def test_monotone_copies_are_named_and_not_tested(few):
    frame = few.X[["age", "dose"]].assign(log_age=np.exp(few.X["age"]))
    with pytest.warns(UserWarning, match="age, log_age: so nearly a function"):
        result = fit(frame, few.y, few.treatment, **SMALL)
    assert result.table.loc[["age", "log_age"], "p_value"].tolist() == [1.0, 1.0]
    assert result.table.loc["dose", "p_value"] < 1


def test_column_that_is_constant_in_the_sample_only_is_not_called_a_function_of_the_others(few):
    rare = np.zeros(900)
    rare[outside_the_sample(few)[:6]] = 1.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = fit(few.X[["age", "dose"]].assign(rare=rare), few.y, few.treatment, **SMALL)
    texts = [str(own.message) for own in caught]
    assert result.table.loc["rare", "p_value"] == 1.0
    assert any("rare" in text for text in texts)
    assert not any("so nearly a function of the other features" in text for text in texts)


def test_category_that_the_sample_lacks_is_shown_and_harms_nothing(few):
    site = few.X["site"].to_numpy(dtype=object)
    site[outside_the_sample(few)[:12]] = "atlantis"
    result = fit(few.X.assign(site=site), few.y, few.treatment, **SMALL, sampler="auto")
    assert result.curve("site")["value"].tolist() == ["atlantis", "north", "south", "west"]
    assert {"age", "site"} <= set(result.selected)
    assert np.isfinite(result.table[["statistic", "p_value", "importance"]]).all().all()


def test_outcome_that_is_binary_in_the_sample_only_is_refused(few):
    y = np.round(few.y > 0).astype(float)
    y[outside_the_sample(few)[0]] = -99.0
    with pytest.raises(ValueError, match="codes that stand for missing values"):
        fit(few.X, y, few.treatment, **SMALL)


def test_arm_that_is_rare_in_the_sample_is_refused(few):
    treatment = np.zeros(900, dtype=int)
    treatment[:40] = 1
    with pytest.raises(ValueError, match="raise max_train_rows"):
        fit(few.X, few.y, treatment, **SMALL)


def test_object_outcome_of_numbers_is_read_as_in_memory(few, base):
    y = pd.Series(few.y.astype(object))
    assert_frame_equal(fit(few.X, y, few.treatment, **SMALL).table, base.table, check_exact=True)


@pytest.mark.parametrize("rows", [10, 199, 1e6, "all", None, 400.0])
def test_number_of_training_rows_is_checked(few, rows):
    with pytest.raises(ValueError, match="max_train_rows must be an integer of at least 200"):
        fit(few.X, few.y, few.treatment, max_train_rows=rows)


@pytest.mark.parametrize("repeats", [0, 1.5, "two"])
def test_repeats_are_checked_as_in_memory(few, repeats):
    for rows in (900, 400):
        with pytest.raises(ValueError, match="cv_repeats must be an integer of at least 1"):
            fit(few.X, few.y, few.treatment, max_train_rows=rows, statistic=EffectLikelihood(cv_repeats=repeats))


def test_wcmmd_takes_all_rows_of_a_table_in_memory_and_refuses_pieces(few):
    settings = {"statistic": "wcmmd", "n_resamples": 99, "max_train_rows": 200}
    X, y, treatment = few.X[["age", "dose"]][:300], few.y[:300], few.treatment[:300]
    result = fit(X, y, treatment, **settings)
    assert "n_train_rows" not in result.settings
    assert result.settings["statistic"]["class"] == "WCMMD"
    with pytest.raises(ValueError, match="'wcmmd' needs the table in memory"):
        fit_source(FrameSource.of(X, y, treatment), **settings)


def test_table_of_few_rows_in_pieces_is_fitted_as_in_memory(two):
    for settings in ({}, {"propensity": "auto", "n_resamples": 99}):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            expected = fit(two.X, two.y, two.treatment, **settings)
            n_warnings = len(caught)
            found = fit_source(cut(two.X, two.y, two.treatment, 100), **settings)
        assert found == expected
        assert len(caught) == 2 * n_warnings


def test_table_of_few_rows_in_pieces_keeps_its_scores(two):
    scores = logistic_scores(two)
    expected = fit(two.X, two.y, two.treatment, propensity=scores)
    found = fit_source(cut(two.X, two.y, two.treatment, 100, scores))
    assert_frame_equal(found.table, expected.table, check_exact=True)
    assert found.overlap == expected.overlap


def test_fit_leaves_the_selector_as_it_was(two):
    selector = ModifierSelector(**FAST | SMALL)
    before = selector.get_params()
    selector.fit(two.X, two.y, treatment=two.treatment)
    assert selector.get_params() == before
    assert selector.feature_names_in_.tolist() == ["age", "dose"]
    assert selector.transform(two.X).columns.tolist() == ["age"]


def test_progress_counts_features_and_then_rows(two):
    calls = []
    source = cut(two.X, two.y, two.treatment, 300)
    fit_source(source, **SMALL, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(k, 2) for k in range(3)] + [(0, 900), (300, 900), (600, 900), (900, 900)]


def test_check_by_resampling_is_said_to_have_no_effect(two):
    with pytest.warns(UserWarning, match="check_resamples has no effect"):
        result = fit(two.X, two.y, two.treatment, **SMALL, statistic=EffectLikelihood("linear", check_resamples=50))
    assert result.diagnostics["check_p_value"].isna().all()
    assert any("check_resamples" in message for message in result.warnings)


def test_resamples_are_said_to_have_no_effect(two):
    with pytest.warns(UserWarning, match="n_resamples has no effect"):
        fit(two.X, two.y, two.treatment, **SMALL, n_resamples=99)


def test_lengths_must_agree(few):
    with pytest.raises(ValueError, match="y has 899 rows but X has 900"):
        fit(few.X, few.y[:-1], few.treatment, **SMALL)
    with pytest.raises(ValueError, match="treatment has 3 rows but X has 900"):
        fit(few.X, few.y, few.treatment[:3], **SMALL)
    with pytest.raises(ValueError, match="propensity has 5 rows but X has 900"):
        fit(few.X, few.y, few.treatment, **SMALL, propensity=np.full(5, 0.5))
    with pytest.raises(ValueError, match="required"):
        fit(few.X, None, few.treatment, **SMALL)


def test_null_features_are_selected_no_more_often_than_they_should_be():
    p_values = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, treatment = confounded_table(rng, 1000, 6)
        y = (2 * treatment - 1) * X[:, 0] + X[:, 1] + rng.normal(size=1000)
        result = fit(X, y, treatment, max_train_rows=500, propensity="auto", random_state=seed)
        assert result.table.loc["x0", "p_value"] < 1e-6
        p_values.append(result.table["p_value"].to_numpy()[2:])
    # 24 p-values: four standard deviations above 0.05 are 0.23.
    assert np.mean(np.concatenate(p_values) <= 0.05) <= 0.2


# Files.


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
    (path / "open.csv").write_text('age,y,arm\n1,2,a\n1,3,"b\n')
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
    assert [path.name for path in source.paths] == ["part-02.csv", "part-03.csv", "part-10.csv"]
    pieces = list(source.pieces())
    assert [piece.start for piece in pieces] == [0, 250, 700]
    read = pd.concat([piece.y for piece in pieces]).to_numpy()
    np.testing.assert_array_equal(read, pd.read_csv(folder / "all.csv")["y"])


def test_parquet_files_tell_their_rows(folder):
    assert open_all(folder, "piece-*.parquet").n_rows == 900
    assert open_all(folder, "all.csv").n_rows is None


def test_scores_are_read_from_their_column(folder, few):
    found = fit_source(open_all(folder, "all.parquet", scores="pi"), **SMALL, propensity="auto")
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
        ("notes.txt", "must end in .csv or .parquet; found .*notes.txt"),
        ("*", "must end in .csv or .parquet; found .*notes.txt"),
        ("short.csv", "short.csv has no column 'dose'"),
        ("broken.parquet", "cannot read .*broken.parquet"),
    ],
)
def test_files_that_cannot_be_read_are_named(folder, name, message):
    with pytest.raises(ValueError, match=message):
        open_all(folder, name)


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
    whole = Look.of(Piece(0, few.X, pd.Series(few.y), pd.Series(few.treatment)), rows, "auto")
    parts = [Look.of(piece, rows, "auto") for piece in pieces]
    total = parts[0] + parts[1] + parts[2]
    assert total.summary == whole.summary
    assert total.n_sampled == whole.n_sampled
    np.testing.assert_array_equal(total.sample()[0], whole.sample()[0])
    np.testing.assert_array_equal(total.sample()[1].y, whole.sample()[1].y)
