"""Numbers, codes and labels as people write them, read alike by every reader or refused."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from conftest import quiet_fit
from modifind import EffectLikelihood, ModifierSelector
from modifind.data.column_types import feature_column
from modifind.data.files.opening import open_file, open_matching
from modifind.data.files.text import Dialect
from modifind.data.guards import identifies_rows, missing_codes
from modifind.data.levels import alike
from modifind.data.sources import open_files
from modifind.data.summary import ColumnSummary

N = 200
QUICK = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5, "random_state": 0}


def trial(seed=0, n=N):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.normal(50, 9, n).round(2), "arm": rng.choice(["drug", "placebo"], n)})
    return rng, frame.assign(out=rng.normal(size=n).round(3))


def grouped(numbers):
    """As thousands are written with points."""
    return [f"{number:,}".replace(",", ".") for number in numbers]


def write(frame, path, **options):
    frame.to_csv(path, index=False, **options)
    return path


SEMICOLON = Dialect(separator=";")


@pytest.mark.parametrize("seed", range(10))
def test_thousands_with_points_are_refused_unless_points_are_decimal(tmp_path, seed):
    rng, frame = trial(seed)
    path = write(frame.assign(cost=grouped(rng.integers(200, 9000, N))), tmp_path / "t.csv", sep=";")
    with pytest.raises(ValueError, match=r"column 'cost' has values such as .* add --decimal . if"):
        open_file(path, SEMICOLON)
    assert open_file(path, Dialect(separator=";", decimal=".")).read()["cost"].dtype == np.float64


@pytest.mark.parametrize(
    "values",
    [
        lambda rng: rng.normal(50, 9, N).round(3),
        lambda rng: [f"{value:.3f}" for value in rng.normal(50, 9, N)],
        lambda rng: rng.integers(0, 999, N),
        lambda rng: rng.integers(0, 5000, N),
        lambda rng: rng.integers(8, 400, N) / 8,
        lambda rng: rng.choice(["1.5", "2", "3"], N),
        lambda rng: rng.choice(["2.125", "2", "3", "word"], N),
        lambda rng: rng.uniform(0, 1, N).round(3),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_decimals_in_files_with_semicolons_are_no_thousands(tmp_path, values, seed):
    rng, frame = trial(seed)
    frame = frame.assign(x=values(rng))
    assert open_file(write(frame, tmp_path / "t.csv", sep=";"), SEMICOLON).names == list(frame)


CODES = {
    "leading zeros": ["007", "7", "010", "12"],
    "an e among digits": ["12e3", "12000", "77e1", "5"],
    "quoted": ['"01"', '"1"', '"2"', '"3"'],
}


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("batch", [50, N])
def test_codes_that_look_like_numbers_stay_text_in_every_reader(tmp_path, kind, batch):
    rng, frame = trial()
    codes = rng.choice(CODES[kind], N)
    lines = [f"{a},{b},{c},{d}" for a, b, c, d in zip(*frame.to_numpy().T, codes, strict=True)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["age,arm,out,code", *lines]) + "\n", encoding="utf-8")
    file = open_file(path)
    whole, pieces = file.read(), pd.concat(list(file.batches(file.names, batch)), ignore_index=True)
    pd.testing.assert_frame_equal(whole, pieces)
    assert set(whole["code"]) == {code.strip('"') for code in CODES[kind]}
    assert whole["age"].dtype == np.float64


def test_codes_in_one_of_several_files_are_text_in_all(tmp_path):
    _, frame = trial()
    write(frame.assign(code=["01", "2"] * (N // 2)), tmp_path / "a-1.csv")
    write(frame.assign(code=["1", "2"] * (N // 2)), tmp_path / "a-2.csv")
    files = open_matching(str(tmp_path / "a-*.csv"))
    assert [set(file.read()["code"]) for file in files] == [{"01", "2"}, {"1", "2"}]


def with_late_letters(n):
    """A table whose codes have letters in its last third only."""
    rng, frame = trial(n=n)
    codes = rng.choice(["1", "2", "3"], n)
    codes[2 * n // 3 :] = rng.choice(["1", "2", "A"], n - 2 * n // 3)
    return frame.assign(code=codes)


def test_a_long_file_is_read_in_whole_columns(tmp_path):
    path = write(with_late_letters(140_000)[["age", "code"]], tmp_path / "t.csv")
    assert set(open_file(path).read()["code"]) == {"1", "2", "3", "A"}


def test_codes_with_letters_in_the_last_piece_only_are_read_alike(tmp_path):
    path = write(with_late_letters(1500), tmp_path / "t.csv")
    source = replace(open_files(str(path), ["age", "code"], "out", "arm"), piece_rows=500)
    selector = ModifierSelector(**QUICK | {"max_train_rows": 600, "explain": False})
    by_file = selector.fit(source).result_.table["p_value"]
    by_frame = selector.fit(open_file(path).read(), outcome="out", treatment="arm").result_.table["p_value"]
    pd.testing.assert_series_equal(by_frame, by_file)


def test_whole_numbers_join_text_of_other_rows_and_fractions_do_not():
    numbers = ColumnSummary.of(pd.Series([1.0, 2.0, np.nan]), "code", 10)
    text = ColumnSummary.of(pd.Series(["A", "2"]), "code", 10)
    joined = numbers.merged(text, "code", 10)
    assert (joined.kind, joined.levels, joined.n_missing) == ("text", {"1": 1, "2": 2, "A": 1}, 1)
    with pytest.raises(ValueError, match="number values in some rows and text values in others"):
        ColumnSummary.of(pd.Series([1.5, 2.0]), "code", 10).merged(text, "code", 10)


@pytest.mark.parametrize("sign", ["'", "\u2019"])
def test_apostrophes_between_thousands_are_named(sign):
    rng, _ = trial()
    values = pd.Series([f"{number:,}".replace(",", sign) for number in rng.integers(1, 9000, N)])
    with pytest.raises(ValueError, match=r"numbers with apostrophes between thousands.*Remove the apostrophes"):
        feature_column(values, "cost")
    _, frame = trial()
    with pytest.raises(ValueError, match="must be numeric; found numbers with apostrophes"):
        quiet_fit(frame[["age"]], values, frame["arm"], **QUICK)


def test_text_with_leading_zeros_is_no_number_in_memory_either():
    column, numeric = feature_column(pd.Series([f"{k:03d}" for k in range(N)]), "code")
    assert not numeric
    assert column.nunique() == N


@pytest.mark.parametrize("other", ["Male", " male", "male\u00a0", "m\u200bale", "\uff4dale", "MALE "])
def test_levels_that_look_alike_are_named_once(other):
    rng, frame = trial()
    assert alike(["male", other, "female"]) == [["male", other]]
    X = frame[["age"]].assign(sex=rng.choice(["male", other, "female"], N), site=rng.choice(["a", "b"], N))
    with pytest.warns(UserWarning, match="levels that differ only in capitals") as caught:
        quiet_fit(X, frame["out"], frame["arm"], **QUICK)
    assert sum("differ only in capitals" in str(w.message) for w in caught) == 1
    with pytest.raises(ValueError, match="Some differ only in capitals, blanks or the form of letters"):
        quiet_fit(frame[["age"]], frame["out"], rng.choice(["male", other], N), **QUICK)


@pytest.mark.parametrize("labels", [["a", "b"], ["1", "01", "1.0"], [1, 2, True], ["e", "\u00e9"], ["a-b", "ab"]])
def test_other_levels_are_not_alike(labels):
    assert not alike(labels)


IDENTIFIERS = {
    "shuffled": lambda rng: rng.permutation(N) + 1.0,
    "shuffled from 10,000 on": lambda rng: rng.permutation(N) + 1e4,
    "sampled from some hundred": lambda rng: rng.choice(900, N, replace=False) * 1.0,
}


@pytest.mark.parametrize("kind", IDENTIFIERS)
@pytest.mark.parametrize("seed", range(10))
def test_shuffled_identifiers_are_refused(kind, seed):
    rng, frame = trial(seed)
    values = IDENTIFIERS[kind](rng)
    assert identifies_rows(values, "x7")
    if seed == 0:
        with pytest.raises(ValueError, match=r"^x7: looks like an identifier"):
            quiet_fit(frame[["age"]].assign(x7=values), frame["out"], frame["arm"], **QUICK)


@pytest.mark.parametrize(
    "values",
    [
        lambda rng: rng.normal(size=N),
        lambda rng: rng.integers(18, 90, N),
        lambda rng: rng.integers(0, 2000, N),
        lambda rng: rng.integers(0, 10**6, N),  # differ by chance
        lambda rng: np.rint(rng.lognormal(10, 1, N)),
        lambda rng: np.rint(rng.normal(250_000, 60_000, N)),
        lambda rng: np.arange(N),  # time, perhaps
        lambda rng: rng.permutation(N) / N,
    ],
)
@pytest.mark.parametrize("seed", range(25))
def test_measured_whole_numbers_are_no_identifiers(values, seed):
    assert not identifies_rows(np.asarray(values(np.random.default_rng(seed)), dtype=float), "x7")


@pytest.mark.parametrize("argument", ["features", "adjust_for", "feature_groups"])
@pytest.mark.parametrize("column", ["code", "number"])
def test_identifiers_that_the_user_named_are_refused(argument, column):
    rng, frame = trial()
    frame = frame.assign(code=[f"p{k}" for k in range(N)], number=rng.permutation(N))
    frame = frame[["age", column, "arm", "out"]]
    named = {"features": ["age", column]} if argument == "features" else {}
    named |= {"features": ["age"], "adjust_for": [column]} if argument == "adjust_for" else {}
    groups = {"both": ["age", column]} if argument == "feature_groups" else None
    selector = ModifierSelector(**QUICK, explain=False, feature_groups=groups)
    with pytest.raises(ValueError, match=rf"^{argument} names '{column}', which cannot be a feature"):
        selector.fit(frame, outcome="out", treatment="arm", **named)


def test_minus_nine_in_two_rows_of_a_positive_column_is_a_code():
    rng, _ = trial()
    values = rng.integers(3, 90, N) * 1.0
    values[[5, 60]] = -9
    assert missing_codes(values) == [-9.0]
    assert not missing_codes(np.r_[values[values > 0], -9.0, 0.0])
    assert not missing_codes(np.r_[values, -4.0])
