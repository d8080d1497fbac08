import re

import numpy as np
import pandas as pd
import pytest

from modifind.data.schema import read_features
from tables import read_outcome, read_treatment

N = 40


def test_kinds_are_told_from_types_and_number_of_distinct_values():
    frame = pd.DataFrame(
        {
            "real": np.linspace(0, 1, N),
            "count_of_ten": np.arange(N) % 10,
            "count_of_eleven": np.arange(N) % 11,
            "flag": np.arange(N) % 2 == 0,
            "text": ["a", "b", "c", "d"] * (N // 4),
            "category": pd.Categorical(["low", "high"] * (N // 2), categories=["low", "high"]),
        }
    )
    table = read_features(frame)
    kinds = [table.kind(m) for m in range(table.n_features)]
    assert kinds == ["continuous", "discrete", "continuous", "discrete", "discrete", "discrete"]
    assert table.names == tuple(frame.columns)
    assert [table.n_levels(m) for m in range(6)] == [0, 10, 0, 2, 4, 2]


def test_category_labels_keep_their_declared_order_and_codes_follow_it():
    sizes = pd.Categorical(["L", "S", "M", "S"] * 10, categories=["S", "M", "L"])
    table = read_features(pd.DataFrame({"size": sizes}))
    assert table.categories[0] == ("S", "M", "L")
    assert table.values[:4, 0].tolist() == [2, 0, 1, 0]


def test_unused_category_level_is_dropped():
    column = pd.Categorical(["a", "c"] * 20, categories=["a", "b", "c"])
    table = read_features(pd.DataFrame({"x": column}))
    assert table.categories[0] == ("a", "c")
    assert set(table.values[:, 0]) == {0.0, 1.0}


def test_text_and_number_labels_are_sorted_and_plain():
    table = read_features(pd.DataFrame({"t": ["z", "a"] * 20, "k": [7, 3] * 20, "b": [True, False] * 20}))
    assert table.categories == (("a", "z"), (3, 7), (False, True))
    assert [type(labels[0]) for labels in table.categories] == [str, int, bool]


def test_nullable_and_string_types_read_like_their_plain_kinds():
    frame = pd.DataFrame(
        {
            "i": pd.array(range(N), dtype="Int64"),
            "f": pd.array(np.linspace(0, 1, N), dtype="Float64"),
            "b": pd.array([True, False] * (N // 2), dtype="boolean"),
            "s": pd.array(["u", "v"] * (N // 2), dtype="string"),
        }
    )
    table = read_features(frame)
    assert [table.kind(m) for m in range(4)] == ["continuous", "continuous", "discrete", "discrete"]
    assert table.values[:, 0].tolist() == list(range(N))
    assert table.categories[2:] == ((False, True), ("u", "v"))


def test_array_columns_are_named_by_position():
    assert read_features(np.random.default_rng(0).normal(size=(N, 3))).names == ("x0", "x1", "x2")


def test_object_array_of_numbers_and_text_is_read_column_by_column():
    array = np.array([[float(i), "ab"[i % 2]] for i in range(N)], dtype=object)
    table = read_features(array)
    assert [table.kind(m) for m in range(2)] == ["continuous", "discrete"]


def test_object_column_of_many_numbers_is_continuous_in_a_frame_too():
    table = read_features(pd.DataFrame({"x": pd.Series(np.linspace(0, 1, N), dtype=object)}))
    assert table.kind(0) == "continuous"


@pytest.mark.parametrize("chosen", [["b"], [1], [-1], [False, True], np.array([False, True])])
def test_named_columns_are_discrete_and_all_other_numbers_continuous(chosen):
    frame = pd.DataFrame({"a": [0, 1] * 20, "b": np.arange(N)})
    table = read_features(frame, chosen)
    assert table.kind(0) == "continuous"
    assert table.kind(1) == "discrete"
    assert table.n_levels(1) == N


def test_empty_list_makes_all_numbers_continuous_but_leaves_text_discrete():
    table = read_features(pd.DataFrame({"a": [0, 1] * 20, "t": ["u", "v"] * 20}), [])
    assert [table.kind(m) for m in range(2)] == ["continuous", "discrete"]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (["c"], "'c', which is not a column"),
        ([5], "5, which is not a column"),
        ([True], "mask needs 2 entries, found 1"),
        ("a", "must be 'auto' or a list"),
    ],
)
def test_unknown_discrete_features_are_refused(chosen, message):
    with pytest.raises(ValueError, match=message):
        read_features(pd.DataFrame({"a": range(N), "b": range(N)}), chosen)


def test_missing_and_infinite_values_are_refused_by_column_and_count():
    frame = pd.DataFrame({"ok": np.arange(N, dtype=float), "gap": np.arange(N, dtype=float), "big": np.arange(N) / 2})
    frame.loc[[1, 5, 7], "gap"] = np.nan
    frame.loc[3, "big"] = -np.inf
    with pytest.raises(ValueError, match=r"'gap' \(3 missing\), 'big' \(1 infinite\)") as caught:
        read_features(frame)
    assert "'ok'" not in str(caught.value)


@pytest.mark.parametrize(
    "column",
    [
        ["a", None] * 20,
        pd.array([1, None] * 20, dtype="Int64"),
        pd.array([True, None] * 20, dtype="boolean"),
        pd.Categorical(["a", None] * 20),
        pd.array(["a", None] * 20, dtype="string"),
    ],
    ids=["object", "Int64", "boolean", "category", "string"],
)
def test_missing_values_of_every_type_are_counted(column):
    with pytest.raises(ValueError, match=r"'x' \(20 missing\)"):
        read_features(pd.DataFrame({"x": column}))


def test_infinite_value_in_a_nullable_column_is_refused():
    with pytest.raises(ValueError, match=r"'x' \(1 infinite\)"):
        read_features(pd.DataFrame({"x": pd.array([np.inf, *range(N - 1)], dtype="Float64")}))


@pytest.mark.parametrize(
    "column",
    [
        pd.date_range("2020-01-01", periods=N),
        pd.date_range("2020-01-01", periods=N, tz="UTC"),
        pd.timedelta_range("1h", periods=N),
        pd.period_range("2020-01", periods=N, freq="M"),
        np.arange(N) * 1j,
    ],
    ids=["datetime", "datetime with zone", "timedelta", "period", "complex"],
)
def test_columns_that_are_no_features_are_refused_by_name(column):
    with pytest.raises(ValueError, match="'when' holds"):
        read_features(pd.DataFrame({"when": column}))


def test_repeated_names_and_empty_tables_are_refused():
    with pytest.raises(ValueError, match="repeated: a"):
        read_features(pd.DataFrame(np.zeros((N, 2)), columns=["a", "a"]))
    with pytest.raises(ValueError, match="rows and columns"):
        read_features(pd.DataFrame({"a": []}))
    with pytest.raises(ValueError, match="two dimensions"):
        read_features(np.arange(N))


def test_design_standardises_numbers_and_leaves_out_the_first_category():
    frame = pd.DataFrame({"x": np.arange(N) * 3.0, "t": ["a", "b", "c", "d"] * 10})
    table = read_features(frame)
    assert table.design.shape == (N, 4)
    assert table.design[:, 0].mean() == pytest.approx(0.0, abs=1e-12)
    assert table.design[:, 0].std() == pytest.approx(1.0)
    np.testing.assert_array_equal(table.design[:4, 1:], [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    assert table.encoding == (slice(0, 1), slice(1, 4))
    np.testing.assert_array_equal(table.design_without(1), table.design[:, :1])
    extra = np.arange(N)
    np.testing.assert_array_equal(table.design_without(0, extra), np.column_stack([table.design[:, 1:], extra]))


def test_constant_column_encodes_as_zeros():
    for chosen in ("auto", []):
        table = read_features(pd.DataFrame({"x": np.full(N, 7.0), "z": np.arange(N)}), chosen)
        assert table.is_constant(0)
        assert not table.is_constant(1)
        np.testing.assert_array_equal(table.design[:, 0], np.zeros(N))


def test_one_true_and_yes_are_treated():
    pairs = ([0, 1], [False, True], [0.0, 1.0], ["0", "1"], ["No", "Yes"], ["n", "y"], ["FALSE", "TRUE"], ["C", "T"])
    for labels in pairs:
        shown, arms = read_treatment(labels * 30)
        assert arms.tolist() == [0, 1] * 30
        assert shown == tuple(labels)


@pytest.mark.parametrize("control", ["placebo", "Control", "no", " untreated "])
def test_control_words_are_control_whatever_the_alphabet_says(control):
    for drug in ("aspirin", "zinc"):
        shown, arms = read_treatment([drug, control] * 30)
        assert arms.tolist() == [1, 0] * 30
        assert shown == (control, drug)


@pytest.mark.parametrize(
    ("treated", "control"),
    [
        ("exposed", "unexposed"),
        ("statin", "no statin"),
        ("Smoker", "non-smoker"),
        ("Drug A 20 mg", "Standard of care"),
        ("vaccine", "No  Treatment"),
        ("on", "off"),
    ],
)
def test_control_is_what_negates_the_other_label(treated, control):
    for labels in ([treated, control], [control, treated]):
        assert read_treatment(labels * 30)[0] == (control, treated)


@pytest.mark.parametrize(
    "labels",
    [
        ("aspirin", "warfarin"),
        ("new", "old"),
        ("surgery", "watchful waiting"),
        ("1 = treated", "2 = control"),
        (1, 2),
        (0, 2),
        ("placebo", "usual care"),
        ("a", "c"),
    ],
)
def test_labels_that_do_not_say_which_is_treated_are_refused(labels):
    column = pd.Series(list(labels) * 30, name="arm")
    shown = f"the treatment 'arm' has the labels {labels[0]!r} and {labels[1]!r}, and nothing says which"
    with pytest.raises(ValueError, match=re.escape(shown) + ".*name it with treated=$"):
        read_treatment(column)
    for label, other in (labels, labels[::-1]):
        shown, arms = read_treatment(column, treated=label)
        assert shown == (other, label)
        assert (arms == (column == label)).all()


@pytest.mark.parametrize(
    ("labels", "treated"),
    [
        (["drug", "placebo"], "placebo"),
        ([1, 0], 0),
        ([1, 0], "0"),
        ([True, False], False),
        ([1.0, 0.0], 0),
        ([1.0, 0.0], "0"),
        ([True, False], "false"),
        (["1", "0"], False),
        (["1.0", "0.0"], 0),
        (["B", "Arm A"], " arm a "),
        (["a", "A"], "A"),
    ],
)
def test_treated_overrides(labels, treated):
    shown, arms = read_treatment(labels * 30, treated=treated)
    assert arms.tolist() == [0, 1] * 30
    assert shown == tuple(labels)


def test_categorical_and_indexed_series_treatments_are_read_by_position():
    column = pd.Series(pd.Categorical(["low", "high"] * 30, categories=["low", "high"]), index=range(50, 110))
    shown, arms = read_treatment(column, treated="high")
    assert arms.tolist() == [0, 1] * 30
    assert shown == ("low", "high")


@pytest.mark.parametrize("labels", [(b"placebo", b"drug"), (np.float16(0), np.float16(1)), ("31.01.2020", "1.2.2020")])
def test_labels_of_any_kind_are_read(labels):
    column = np.array(labels * 30)
    shown, arms = read_treatment(column, treated=labels[1].decode() if isinstance(labels[1], bytes) else labels[1])
    assert arms.tolist() == [0, 1] * 30
    assert shown == tuple(label.decode() if isinstance(label, bytes) else label for label in labels)


def test_half_precision_is_read_as_other_numbers_are():
    frame = pd.DataFrame({"few": np.arange(N) % 3 / 2, "many": np.arange(N) / 4})
    half, full = read_features(frame.astype(np.float16)), read_features(frame)
    assert half.categories == full.categories == ((0.0, 0.5, 1.0), None)
    np.testing.assert_array_equal(half.values, full.values)


@pytest.mark.parametrize(
    ("treatment", "settings", "message"),
    [
        (None, {}, "treatment is required"),
        ([0, 1, 2, 1] * 15, {}, "treatment has 3 labels: 0, 1, 2; name the one"),
        ([1] * 60, {}, "at least two values; found 1"),
        (
            ["drug", "placebo", "Placebo ", "drug"] * 15,
            {},
            "Some differ only in capitals, blanks or the form of letters",
        ),
        ([0, 1] * 18, {}, "treatment has 36 rows but X has 60"),
        ([0.0, np.nan] * 30, {}, "30 missing"),
        ([0] * 41 + [1] * 19, {}, "at least 20 rows; the smaller has 19"),
        ([0, 1] * 30, {"treated": "drug"}, "treated='drug' is not a value of treatment: 0, 1"),
        (["a", "A"] * 30, {"treated": " a"}, "treated=' a' is not a value of treatment: 'A', 'a'"),
    ],
)
def test_unusable_treatments_are_refused(treatment, settings, message):
    with pytest.raises(ValueError, match=message):
        read_treatment(treatment, **settings)


def test_outcome_is_read_as_floats():
    np.testing.assert_array_equal(read_outcome([1, 2, 3] * 20), [1.0, 2.0, 3.0] * 20)
    np.testing.assert_array_equal(read_outcome([True, False, True] * 20), [1.0, 0.0, 1.0] * 20)
    np.testing.assert_array_equal(read_outcome(pd.Series(pd.array([1, 2] * 30, dtype="Int64"))), [1.0, 2.0] * 30)
    assert read_outcome([1, 2, 3] * 20).dtype == np.float64


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "y is required"),
        (["good", "bad", "good"] * 20, "must be numeric; found text"),
        ([2.0] * 60, r"y is constant \(2\)"),
        ([*range(58), np.nan, np.inf], "1 missing value and 1 infinite value in 60 rows"),
        (pd.Series(pd.array([1, None, *range(58)], dtype="Int64")), "missing in 1 of 60 rows"),
        ([1.0, 2.0], "y has 2 rows but X has 60"),
        (pd.Series(pd.date_range("2020-01-01", periods=60)), "must be numeric"),
    ],
)
def test_unusable_outcomes_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        read_outcome(y)


def test_discrete_columns_are_found_by_name_before_position():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)), columns=[0, 2, 1])
    table = read_features(frame, [1])
    assert [table.kind(m) for m in range(3)] == ["continuous", "continuous", "discrete"]


def test_list_of_lists_keeps_numbers_as_numbers():
    rows = [[0.1 * i, i, "u" if i % 2 else "v"] for i in range(20)]
    table = read_features(rows)
    assert table.names == ("x0", "x1", "x2")
    assert [table.kind(m) for m in range(3)] == ["continuous", "continuous", "discrete"]


def test_infinite_treatment_is_counted():
    with pytest.raises(ValueError, match="treatment has 30 infinite values"):
        read_treatment(np.tile([0.0, np.inf], 30))


def test_dates_and_decimals_as_objects():
    import datetime
    import decimal

    days = [datetime.date(2020, 1, 1 + i) for i in range(20)]
    with pytest.raises(ValueError, match="column 'day'"):
        read_features(pd.DataFrame({"day": pd.Series(days, dtype=object)}))
    money = pd.Series([decimal.Decimal(i) for i in range(20)], dtype=object)
    assert read_features(pd.DataFrame({"money": money})).kind(0) == "continuous"


def test_tiny_spread_is_refused():
    with pytest.raises(ValueError, match=r"column 'x' .*rescale"):
        read_features(pd.DataFrame({"x": 1e-200 * np.arange(20.0)}))
