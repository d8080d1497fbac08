"""Odd tables: what is read, what is refused, what is warned of."""

import re
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from modifind import EffectLikelihood, ModifierSelector
from modifind.data.clusters import Clusters
from modifind.data.column_types import feature_column
from modifind.data.containers import as_column, as_frame
from modifind.data.determined import find_determined, refuse_leaks
from modifind.data.guards import missing_codes, warn_of_codes, warn_of_row_numbers
from modifind.data.levels import pool
from modifind.data.roles import assign_roles
from modifind.data.schema import Schema, read_features
from modifind.data.sources import Piece
from modifind.data.summary import Summary
from modifind.data.weights import WeightSums
from modifind.engine.preparation import refuse_separation
from modifind.engine.reading import Given
from modifind.nuisance.propensity.scores import PropensityModel
from tables import read, read_outcome, read_rows, read_treatment

N = 120
FAST = {
    "statistic": EffectLikelihood("linear"),
    "sampler": "gaussian",
    "propensity": 0.5,
    "random_state": 0,
    "explain": False,
}


@pytest.fixture(scope="module")
def plain():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.normal(size=N), "sex": rng.choice(["f", "m"], N), "visits": rng.integers(0, 40, N)})
    treatment = rng.integers(0, 2, N)
    return SimpleNamespace(X=X, y=rng.normal(size=N) + 3 * treatment * X["age"].to_numpy(), treatment=treatment)


def messages(call, *args):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = call(*args)
    assert all(w.category is UserWarning for w in caught)
    return found, [str(w.message) for w in caught]


# Inputs.


def records(X):
    return np.rec.fromarrays([X["age"], X["sex"].to_numpy(dtype="S1"), X["visits"]], names=list(X.columns))


SAME = {
    "polars": pl.from_pandas,
    "lazy polars": lambda X: pl.from_pandas(X).lazy(),
    "pyarrow": lambda X: pa.Table.from_pandas(X, preserve_index=False),
    "dict": lambda X: {name: X[name].tolist() for name in X},
    "dict of polars": lambda X: {name: pl.Series(X[name].tolist()) for name in X},
    "objects": lambda X: X.astype(object),
    "nullable": lambda X: X.convert_dtypes(),
    "arrow types": lambda X: X.convert_dtypes(dtype_backend="pyarrow"),
    "records": records,
}


@pytest.mark.parametrize("kind", SAME)
def test_the_same_table_in_any_container_is_read_alike(plain, kind):
    expected, found = read_features(plain.X), read_features(SAME[kind](plain.X))
    assert found.names == expected.names
    assert found.categories == expected.categories
    np.testing.assert_array_equal(found.values, expected.values)


@pytest.mark.parametrize("kind", [list, pl.Series, pa.array, np.ma.asarray, "Float64", "double[pyarrow]", pd.DataFrame])
def test_outcomes_and_treatments_in_any_container_are_read_alike(plain, kind):
    def column(values):
        return pd.Series(values).astype(kind) if isinstance(kind, str) else kind(values)

    np.testing.assert_array_equal(read_outcome(column(plain.y), N), plain.y)
    np.testing.assert_array_equal(read_treatment(column(plain.treatment), N)[1], plain.treatment)


def test_polars_needs_no_pyarrow(plain, monkeypatch):
    def refuse(*_, **__):
        raise ImportError

    monkeypatch.setattr(pl.DataFrame, "to_pandas", refuse)
    monkeypatch.setattr(pl.DataFrame, "to_arrow", refuse)
    monkeypatch.setattr(pl.Series, "to_arrow", refuse)
    frame = pl.DataFrame({"i": [1, None, 3], "b": [True, None, False], "s": ["u", None, "v"], "f": [0.5, None, 1.5]})
    frame = frame.with_columns(pl.Series("e", ["lo", "hi", None], dtype=pl.Enum(["lo", "hi"])))
    found = as_frame(frame)
    assert found.isna().sum().tolist() == [1] * 5
    assert found["i"].dtype == "Int64"
    assert found["e"].cat.categories.tolist() == ["lo", "hi"]
    assert list(as_column(frame["s"], "y").dropna()) == ["u", "v"]


def test_selected_columns_of_a_polars_frame_stay_polars(plain):
    frame = pl.from_pandas(plain.X)
    selector = ModifierSelector(**FAST).fit(frame, pl.Series(plain.y), treatment=pl.Series(plain.treatment))
    assert selector.transform(frame).columns == ["age"]
    plainly = ModifierSelector(**FAST).fit(plain.X, plain.y, treatment=plain.treatment)
    assert selector.result_.table.equals(plainly.result_.table)
    assert selector.transform({name: plain.X[name] for name in plain.X}).columns.tolist() == ["age"]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[1, 2], [3]], "rows of X have between 1 and 2 values"),
        ({"a": [1, 2], "b": [1]}, "columns of X have between 1 and 2 values"),
        (pd.DataFrame([[1, 2]] * 60, columns=[1, "1"]), "unique; repeated: 1"),
    ],
)
def test_tables_that_do_not_fit_together_are_refused(X, message):
    with pytest.raises(ValueError, match=message):
        read_features(X)


def test_masked_values_are_missing():
    values = np.ma.masked_array(np.arange(6.0).reshape(3, 2), mask=[[0, 1], [0, 0], [0, 0]])
    with pytest.raises(ValueError, match=r"'x1' \(1 missing\)"):
        read_features(values)
    with pytest.raises(ValueError, match="y must be one column"):
        read_outcome(np.zeros((60, 2)))


@pytest.mark.parametrize("kind", ["int64", "float64", "object"])
def test_rows_that_are_labelled_in_another_order_are_refused(plain, kind):
    y = pd.Series(plain.y, index=np.arange(len(plain.y)) + 5).sample(frac=1.0, random_state=0)
    y.index = y.index.astype(kind)
    with pytest.raises(ValueError, match=r"index of y has the labels of X in another order.*y.loc\[X.index\]"):
        assign_roles(pd.DataFrame(plain.X).set_index(np.arange(len(plain.y)) + 5), y, plain.treatment)


@pytest.mark.parametrize("kind", ["int64", "float64", "object"])
def test_labels_that_may_have_been_reset_are_not_asked_for(plain, kind):
    y = pd.Series(plain.y).sample(frac=1.0, random_state=0)
    y.index = y.index.astype(kind)
    with pytest.raises(ValueError, match=r"index of y has the labels of X in another order.*take both"):
        assign_roles(plain.X, y, plain.treatment)


@pytest.mark.parametrize("shift", [3, 1000])
@pytest.mark.parametrize("argument", ["y", "treatment", "sample_weight", "propensity"])
def test_rows_with_other_labels_are_refused(plain, argument, shift):
    given = {"y": plain.y, "treatment": plain.treatment}
    column = pd.Series(np.full(len(plain.X), 0.5)).set_axis(np.arange(len(plain.X)) + shift)
    with pytest.raises(ValueError, match=f"index of {argument} has .* not in X.*{argument}.to_numpy"):
        assign_roles(plain.X, **given | {argument: column})


def test_outcome_and_treatment_of_other_rows_are_refused_beside_an_array(plain):
    y, treatment = pd.Series(plain.y), pd.Series(plain.treatment).set_axis(np.arange(len(plain.y)) + 1)
    with pytest.raises(ValueError, match="index of treatment has 1 label not in y"):
        assign_roles(plain.X.to_numpy(), y, treatment)


@pytest.mark.parametrize("labels", [[f"p{k}" for k in range(600)], pd.date_range("2020-01-01", periods=600)])
def test_row_numbers_go_with_labels_that_are_none(plain, labels):
    n_rows = len(plain.X)
    y = pd.Series(plain.y).set_axis(labels[:n_rows])
    assert assign_roles(plain.X.reset_index(drop=True), y, plain.treatment)["y"] is y
    assert assign_roles(plain.X.to_numpy(), y.sample(frac=1.0, random_state=0), plain.treatment)["y"].size == n_rows


# Types.

DATES = ["2020-01-31", "2020-01-31T10:15:00Z", "31.01.2020", "1/31/20", "31-Jan-2020", "January 31, 2020", "10:15"]


@pytest.mark.parametrize("date", DATES)
def test_text_that_holds_dates_is_refused(date):
    with pytest.raises(ValueError, match="'when' holds dates or times as text"):
        feature_column(
            pd.Series([date, date, None, "unknown", date.replace("31", "30").replace("10:15", "11:30")]), "when"
        )


@pytest.mark.parametrize("text", ["1.2.3", "120/80", "A-12", "north", "2020", "12-13", "may be", "3rd"])
def test_other_text_is_no_date(text):
    assert not feature_column(pd.Series([text, "other", None] * 9), "x")[1]


NUMBERS = [str(k) for k in range(20, 40)]
NOT_NUMBERS = {
    "a word": ([*NUMBERS, "unknown"], "20 of 21 values of 'age' are numbers, the others are 'unknown'; write"),
    "all": (NUMBERS, "the 20 values of 'age' are numbers written as text"),
    "commas": ([f"{k},5" for k in range(20)], "column 'age' holds numbers with a decimal comma, such as '0,5'. Read"),
    "limits": ([*NUMBERS, "<20", ">90"], "20 of 22 values of 'age' are numbers, the others are '<20', '>90'"),
    "objects": ([*range(20), "unknown"], "20 of 21 values of 'age' are numbers, the others are 'unknown'"),
}


@pytest.mark.parametrize("case", NOT_NUMBERS)
def test_numbers_with_other_things_among_them_are_refused(case):
    values, message = NOT_NUMBERS[case]
    with pytest.raises(ValueError, match=message):
        feature_column(pd.Series(values, dtype=object), "age")


def test_codes_as_text_stay_categories():
    assert read_features({"code": ["1", "2", "10", "unknown"] * 20}).categories[0] == ("1", "10", "2", "unknown")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1], [2, 3]], "'x' holds nested values"),
        ([{"a": 1}], "'x' holds nested values"),
        (["a", 1, True], "'x' mixes types that cannot be compared"),
        ([1j, 2j], "'x' holds complex numbers"),
        (
            [pd.Timedelta("1h")],
            "'x' holds durations, which cannot be a feature; convert them to numbers .the days",
        ),
    ],
)
def test_values_that_are_no_feature_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        feature_column(pd.Series(values * 3, dtype=object), "x")


def test_integers_that_floats_cannot_tell_apart_are_refused_unless_they_are_codes():
    ids = 2**60 + np.arange(N)
    for column in (ids, pd.array(ids, dtype="Int64"), ids.astype(object) * 2**10):
        with pytest.raises(ValueError, match="column 'id' has integers beyond 2\\^53"):
            read_features(pd.DataFrame({"id": column}))
    assert read_features({"code": 2**60 + np.arange(N) % 3}).categories[0] == (2**60, 2**60 + 1, 2**60 + 2)
    assert read_features({"even": 2**53 + 2 * np.arange(N)}).kind(0) == "continuous"


# Leaks.


def leaks(x, y, arms):
    refuse_leaks(read_features({"x": x, "age": np.random.default_rng(1).normal(size=N)}), y, np.asarray(arms))


def test_a_number_per_cluster_does_not_determine_which_clusters_chance_has_treated():
    rng = np.random.default_rng(0)
    for _ in range(40):
        clusters, arms = np.repeat(np.arange(10), 30), np.repeat(rng.permutation(np.arange(10) % 2), 30)
        columns = {"size": rng.normal(size=10)[clusters], "age": rng.normal(size=300)}
        refuse_leaks(read_features(columns), rng.normal(size=300), arms, Clusters.of(clusters, 300))
        cut_off = {"size": (arms + 0.1 * rng.random(10)[clusters]), "age": columns["age"]}
        with pytest.raises(ValueError, match="size: determines the treatment"):
            refuse_leaks(read_features(cut_off), rng.normal(size=300), arms)


def test_a_feature_that_determines_the_treatment_is_named(plain):
    arms = plain.treatment
    rng = np.random.default_rng(0)
    sites = np.where(arms == 1, rng.choice(["a", "b"], N), rng.choice(["c", "d"], N))
    for x in (np.where(arms, "drug", "none"), sites, arms + rng.random(N) * 0.5, np.where(arms, 2.0, 5.0)):
        with pytest.raises(ValueError, match="x: determines the treatment"):
            leaks(x, plain.y, arms)
    middle = np.where(arms == 1, rng.random(N), rng.choice([-3.0, 3.0], N) + rng.random(N))
    with pytest.raises(ValueError, match="x: determines the treatment"):
        leaks(middle, plain.y, arms)


def test_features_that_only_tell_much_of_the_treatment_are_no_leak(plain):
    arms = plain.treatment
    rng = np.random.default_rng(0)
    one = arms + rng.random(N) * 0.5
    one[0] = one[np.flatnonzero(arms != arms[0])[0]]
    for x in (one, [f"id{k}" for k in range(N)], rng.permutation(N), rng.normal(size=N), np.where(one > 1, "u", "v")):
        leaks(x, plain.y, arms)


def test_the_outcome_among_the_features_is_named(plain):
    y, grade = plain.y, np.digitize(plain.y, [-1, 0, 1]).astype(float)
    binary = (y > 0).astype(float)
    for x, outcome in (
        (y, y),
        (np.exp(-y), y),
        (np.where(binary == 1, "no", "yes"), binary),
        (np.array(["c", "a", "d", "b"])[grade.astype(int)], grade),
    ):
        with pytest.raises(ValueError, match="x: the outcome itself"):
            leaks(x, outcome, plain.treatment)
    leaks(np.where(np.arange(N) == 0, 9.0, y), y, plain.treatment)
    leaks(grade, y, plain.treatment)


def test_features_that_together_determine_the_treatment_are_refused():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    x = x[np.abs(x[:, 0] + x[:, 1]) > 0.7]
    arms = (x[:, 0] + x[:, 1] > 0).astype(np.int64)
    scores = PropensityModel().fit(read_features(x), arms, seed=np.random.SeedSequence(0))
    with pytest.raises(ValueError, match=r"held-out AUC 1\).*x[01] is the most informative \(AUC 0\.\d+ alone\)"):
        refuse_separation(scores)
    known = PropensityModel(np.where(arms == 1, 0.9, 0.1)).fit(read_features(x), arms)
    refuse_separation(known)


# Copies and combinations.


def test_copies_and_combinations_are_found_exactly_once():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4))
    frame = pd.DataFrame(x, columns=list("abcd")).assign(
        a_inch=lambda f: -f.a / 2.54,
        site=rng.choice(["u", "v", "w"], 200),
        total=lambda f: f.b + 2 * f.c - 7,
        flag=rng.integers(0, 2, 200),
        items=rng.integers(0, 4, 200),
    )
    frame["city"] = frame["site"].map({"u": "Z", "v": "X", "w": "Y"})
    frame["score"] = 3 * frame["items"] + 10 * frame["flag"]
    found = find_determined(read_features(frame))
    names = [tuple(frame.columns[m] for m in some) for some in (*found.twins, *found.combinations)]
    assert names == [("a", "a_inch"), ("site", "city"), ("total", "b", "c"), ("score", "flag", "items")]
    assert "d" not in {frame.columns[m] for m in found.features}
    _, texts = messages(found.warn)
    assert len(texts) == 2
    assert texts[0].startswith("identical, or nearly so, up to relabelling or units: a = a_inch; site = city. ")
    assert texts[1].startswith("exact linear combinations: total of b, c; score of flag, items. ")


@pytest.mark.parametrize("shape", [(60, 59), (60, 80), (20_000, 3)])
def test_independent_columns_are_no_combinations(shape):
    assert not find_determined(read_features(np.random.default_rng(0).normal(size=shape))).features


def test_combinations_of_many_rows_are_found_in_blocks():
    x = np.random.default_rng(0).normal(size=(40_000, 3))
    found = find_determined(read_features(np.column_stack((x, x @ [1.0, 0.0, -3.0])).astype(np.float32)))
    assert found.combinations == ((3, 0, 2),)


def test_untestable_features_are_named_in_one_warning_each(plain):
    frame = plain.X.assign(months=12 * plain.X["age"], flat=1.0, sum=plain.X["age"] + plain.X["visits"])
    frame["patient"] = [f"p{k}" for k in range(N)]
    selector, texts = messages(lambda: ModifierSelector(**FAST).fit(frame, plain.y, treatment=plain.treatment))
    for name in ("months", "flat", "sum", "patient"):
        assert sum(name in text for text in texts) == 1, name
    assert selector.result_.warnings == tuple(texts)
    table = selector.result_.table
    assert (table.loc[["age", "visits", "months", "flat", "sum", "patient"], "p_value"] == 1).all()


# Codes.

AGES = np.random.default_rng(0).integers(18, 90, 300)
CODED = {
    "999 among ages": (np.where(np.arange(300) < 9, 999, AGES), [999]),
    "-9 among ages": (np.where(np.arange(300) < 9, -9, AGES), [-9]),
    "-999 in reals": (np.where(np.arange(300) < 2, -999.0, AGES / 7), [-999]),
    "7 and 9 after 1 and 2": (np.r_[[1, 2] * 100, [7] * 3, [9] * 4], [7, 9]),
    "7 and 9 after 1 to 5": (np.r_[[1, 2, 3, 4, 5] * 30, [7] * 3, [9] * 4], [7, 9]),
    "9 after 0 and 1": (np.r_[[0, 1] * 100, 9], [9]),
    "77 and 99 in counts": (np.r_[AGES % 20, 77, 99, 99], [77, 99]),
    "999 above 88": (np.r_[AGES, 88, 999], [999]),
    "9999 in pounds": (np.r_[AGES * 3, [9999] * 7], [9999]),
}
MEASURED = {
    "ages to 99": np.r_[np.arange(100), np.arange(100)],
    "ages with an old man": np.r_[AGES, 99],
    "rounded": np.round(np.random.default_rng(0).normal(0, 30, 500)),
    "rounded positive": np.round(np.random.default_rng(0).lognormal(3, 1, 500)),
    "ids": np.arange(1000, 2000),
    "0 and 1": np.array([0, 1] * 50),
    "0 and 9": np.array([0, 9] * 50),
    "odd numbers": np.array([1, 3, 5, 7, 9] * 20),
    "doses": np.array([1, 3, 9] * 20),
    "powers": np.array([1, 2, 4, 8] * 20),
    "ratings": np.array([1, 2, 3, 4, 5, 6, 7] * 20),
    "cold days": np.r_[np.arange(25), -9],
    "mostly 99": np.r_[[1, 2], [99] * 50],
}


@pytest.mark.parametrize("case", CODED)
def test_codes_for_missing_are_found(case):
    column, codes = CODED[case]
    assert missing_codes(column.astype(float)) == codes


@pytest.mark.parametrize("case", MEASURED)
def test_measured_values_are_no_codes(case):
    assert missing_codes(MEASURED[case].astype(float)) == []


def test_codes_and_row_numbers_share_a_warning_each():
    rng = np.random.default_rng(0)
    columns = {"smoker": np.r_[[1, 2] * 58, [9] * 4], "row": np.arange(N), "free": rng.normal(size=N)}
    columns["age"] = np.where(np.arange(N) < 6, 999, rng.integers(18, 90, N))
    table = read_features(columns)
    _, texts = messages(warn_of_codes, table, np.where(np.arange(N) == 5, -99.0, rng.random(N)))
    _, row_numbers = messages(warn_of_row_numbers, table)
    assert (len(texts), len(row_numbers)) == (1, 1)
    assert (
        "9 in 'smoker' (4 of 120 rows); 999 in 'age' (6 of 120 rows); -99 in the outcome y (1 of 120 rows)" in texts[0]
    )
    assert "row number (whole numbers in row order, all distinct): row." in row_numbers[0]


# Weights.


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e99])
def test_only_ratios_of_weights_matter(plain, scale):
    weights = 1.0 + np.arange(N) % 3
    data = read(Given(plain.X, plain.y, plain.treatment, sample_weight=scale * weights))
    np.testing.assert_allclose(data.block.weights.values, weights / 2, rtol=1e-12)
    assert data.recorded["sample_weight"]["effective_rows"] == pytest.approx(N * 4 / (14 / 3))
    pieces = [WeightSums.of(scale * weights[start:stop]) for start, stop in ((0, 1), (1, 50), (50, N))]
    assert (pieces[0] + pieces[1] + pieces[2]).effective_size == pytest.approx(N * 4 / (14 / 3))


def test_negative_weights_are_told_of_before_few_rows(plain):
    weights = np.where(np.arange(40) == 3, -1.0, 1.0)
    with pytest.raises(ValueError, match="sample_weight has 1 negative value"):
        read(Given(plain.X[:40], plain.y[:40], plain.treatment[:40], sample_weight=weights))


# Rare levels.


def test_the_next_rarest_level_joins_a_pool_that_is_too_small():
    found = pool("abcd", np.array([[50, 50], [9, 8], [1, 2], [20, 20]]))
    assert (found.labels, found.rare) == (("a", "d", "other"), ("c", "b"))
    assert pool("ab", np.array([[50, 50], [5, 5]])) is None
    assert pool("ab", np.array([[50, 50], [9, 4]])).left_out
    assert pool(["other", "b", "c"], np.array([[50, 50], [4, 4], [4, 4]])).labels == ("other", "other (pooled)")
    assert pool([1, 2, 3], np.array([[50, 50], [4, 4], [4, 4]])).labels == (1, "other")


def test_pooled_levels_are_named_and_shown_in_the_curve(plain):
    town = np.random.default_rng(0).choice(["north", "south"], N).astype(object)
    town[:8], town[8:16] = "east", "west"
    frame = plain.X.assign(town=town)
    selector, texts = messages(lambda: ModifierSelector(**FAST).fit(frame, plain.y, treatment=plain.treatment))
    assert len(texts) == 1
    assert "pooled as 'other' (town: " in texts[0]
    assert selector.result_.curve("town")["value"].tolist() == ["north", "south", "other"]


def test_identifiers_are_left_out_quickly():
    n = 100_000
    arms = np.arange(n) % 2
    X = {"id": [f"p{k}" for k in range(n)], "x": np.sin(np.arange(n))}
    schema, _ = read_rows(Given(X, np.cos(np.arange(n)), arms))
    pooled, texts = messages(schema.pooled)
    assert pooled.left_out == {0}
    assert pooled.categories[0] == ("other",)
    assert texts == ["looks like an identifier and is left out: id (100000 distinct values in 100000 rows)"]


def test_pieces_pool_as_tables_in_memory_do():
    rng = np.random.default_rng(0)
    n = 600
    X = pd.DataFrame({"town": rng.choice(list("abcdefg"), n, p=[0.4, 0.3, 0.28, 0.006, 0.006, 0.004, 0.004])})
    X["stage"] = pd.Categorical(rng.choice([3, 2, 1], n, p=[0.6, 0.395, 0.005]), [3, 2, 1])
    X["flag"] = rng.random(n) < 0.005
    X["x"] = rng.normal(size=n)
    arms, y = rng.integers(0, 2, n), rng.normal(size=n)
    whole = Piece(0, X, pd.Series(y), pd.Series(arms))
    expected, texts = messages(Schema.of(Summary.of(whole, "auto", whole=True), None, None).pooled)
    assert any("town: " in text for text in texts)
    assert any("stage: " in text for text in texts)
    pieces = [Piece(k, X[k : k + 250], pd.Series(y[k : k + 250]), pd.Series(arms[k : k + 250])) for k in (0, 250, 500)]
    first, second, third = (Summary.of(piece, "auto") for piece in pieces)
    schema, found = messages(Schema.of(first + second + third, None, None).pooled)
    assert found == texts
    assert schema.categories == expected.categories
    assert schema.categories[0] == ("a", "b", "c", "other")
    assert schema.left_out == expected.left_out == {2}
    values = np.concatenate([schema.read(piece).table.values for piece in pieces])
    np.testing.assert_array_equal(values, expected.read(whole).table.values)


def test_streamed_tables_are_checked_too(plain):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=600), "z": rng.normal(size=600)})
    arms, y = rng.integers(0, 2, 600), rng.normal(size=600)
    selector = ModifierSelector(**FAST, max_train_rows=300)
    with pytest.raises(ValueError, match="leak: determines the treatment"):
        selector.fit(X.assign(leak=np.where(arms, "u", "v")), y, treatment=arms)
    with pytest.raises(ValueError, match="leak: the outcome itself"):
        selector.fit(X.assign(leak=y**3), y, treatment=arms)
    with pytest.raises(ValueError, match="at least 20 rows; the smaller has 19"):
        selector.fit(X, y, treatment=np.arange(600) < 19)
    odd = X.assign(sum=X["x"] - X["z"], town=np.where(np.arange(600) < 4, "w", np.where(X["x"] * 0 + arms, "u", "v")))
    odd["town"] = rng.permutation(odd["town"])
    selector, texts = messages(lambda: selector.fit(odd, y, treatment=arms))
    assert [text.split(":")[0] for text in texts] == [
        "levels with fewer than 5 rows in an arm are pooled as 'other' (town",
        "exact linear combinations",
    ]
    assert (selector.result_.table.loc[["x", "z", "sum"], "p_value"] == 1).all()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["3.2 mg", "4 mg", "11.75 mg"], "found numbers with a unit, such as '3.2 mg'. Strip the unit"),
        (["$ 3.2", "$4", "€5"], "found numbers with a sign of currency, such as '$ 3.2'. Strip the sign"),
        (["3.2%", "4 %", "5%"], "found percentages as text, such as '3.2%'. Strip the sign"),
        (
            ["3,2", "4,755", "-0,123"],
            "found numbers with a decimal comma, such as '3,2'. Read the file with pandas.read_csv(decimal=',')",
        ),
        (["1,200", "34,000", "1,000,000"], "found numbers with commas between thousands, such as '1,200'"),
        (["<0.5", "< 1", ">20"], "found numbers with a sign of comparison, such as '<0.5'"),
        (["good", "bad", "good"], "found text, 'bad', 'good'. Code the two labels as 0 and 1"),
        (["mild", "bad", "good"], "found text, such as 'mild', 'bad', 'good'. Code ordered labels as numbers"),
    ],
)
def test_text_outcomes_are_told_what_they_hold(texts, message):
    with pytest.raises(ValueError, match="the outcome 'change' must be numeric; " + re.escape(message)):
        read_outcome(pd.Series(texts * 20, name="change"))
