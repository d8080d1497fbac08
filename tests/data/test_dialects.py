"""A table in any dialect, compression and encoding is the same table, at once and in batches, or refused alike."""

import bz2
import gzip
import io
import lzma
import sys
import warnings
import zipfile
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from modifind import SelectionResult
from modifind.cli.app import main
from modifind.cli.table import _columns, open_table, read_groups
from modifind.data.files.opening import open_file
from modifind.data.files.text import Dialect

N = 120
QUICK = ("--learner", "linear", "--sampler", "gaussian", "--propensity", "0.5", "--no-explain")
SELECT = ("--treatment", "arm", "--outcome", "change", *QUICK)
DIALECTS = {
    "comma": ({}, ".csv", Dialect()),
    "tab": ({"sep": "\t"}, ".tsv", Dialect()),
    "semicolon": ({"sep": ";"}, ".csv", Dialect(separator=";")),
    "decimal comma": ({"sep": ";", "decimal": ","}, ".csv", Dialect(separator=";", decimal=",")),
    "blank": ({"sep": " "}, ".txt", Dialect(separator="space")),
    "bar": ({"sep": "|", "lineterminator": "\r\n"}, ".csv", Dialect(separator="|")),
}
ENCODINGS = {"utf-8": None, "utf-8-sig": None, "utf-16": None, "utf-32": None, "latin-1": "latin-1", "cp1252": "cp1252"}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(50, 9, N).round(3), "größe, cm": rng.normal(170, 8, N).round(2)})
    frame["ort"] = rng.choice(["Köln; Süd", 'the "old" town', "a\tb|c"], N)
    frame["note"] = rng.choice(["two\nlines", "1,5 mg", "x y"], N)
    frame["arm"] = np.where(rng.integers(0, 2, N) == 1, "drug", "placebo")
    return frame.assign(change=(rng.normal(size=N) + frame["age"] / 9).round(3))


def zipped(content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("t.csv", content)
    return buffer.getvalue()


PACKED = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zip": zipped}


def read_both(path, dialect):
    """A file read at once and in batches of 50 rows, or what is said to it both times."""
    found = []
    for stream in (False, True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with open_table(str(path), dialect=dialect, stream=stream) as opened:
                    frame = opened
                    if stream:
                        frame = pd.concat(opened[0].batches(opened[0].names, 50), ignore_index=True)
            except ValueError as error:
                frame = str(error)
        found.append((frame, [str(w.message) for w in caught]))
    (whole, said), (pieces, said_too) = found
    assert said == said_too
    if isinstance(whole, str):
        assert whole == pieces
    else:
        assert_frame_equal(whole, pieces)
    return whole, said


def refusal(path, dialect=None):
    message, _ = read_both(path, dialect)
    assert isinstance(message, str), "it was read"
    assert "\n" not in message
    return message


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("compression", PACKED)
@pytest.mark.parametrize("kind", DIALECTS)
def test_every_dialect_compression_and_encoding_gives_the_same_table(table, tmp_path, kind, compression, encoding):
    options, ending, dialect = DIALECTS[kind]
    path = tmp_path / f"t{ending}{compression}"
    path.write_bytes(PACKED[compression](table.to_csv(index=False, **options).encode(encoding)))
    named = Dialect(dialect.separator, dialect.decimal, ENCODINGS[encoding])
    found, said = read_both(path, named)
    assert_frame_equal(found, table)
    assert said == []


def test_result_is_the_same_in_another_dialect(table, tmp_path, monkeypatch, capsys):
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_csv(tmp_path / "b.csv.gz", index=False, sep=";", decimal=",", encoding="utf-16")
    for name, more in (("a.csv", ()), ("b.csv.gz", ("--separator", ";", "--decimal", ","))):
        for stream in ((), ("--stream",)):
            out = tmp_path / f"{name}{len(stream)}.json"
            arguments = ("select", str(tmp_path / name), *SELECT, *more, *stream, "--out", str(out))
            assert run(monkeypatch, *arguments) == 0, capsys.readouterr().err
    for stream in (0, 1):
        assert (tmp_path / f"a.csv{stream}.json").read_bytes() == (tmp_path / f"b.csv.gz{stream}.json").read_bytes()


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["modifind", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code


def written(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


ROWS = "".join(f"{k},{k % 3},{k % 2},0\n" for k in range(60))


def test_lines_of_one_field_more_than_the_header_are_refused(tmp_path):
    message = refusal(written(tmp_path, f"age,arm,y\n{ROWS}"))
    assert "line 2 of" in message
    assert "has 4 fields and its header 3; add --row-names if" in message


@pytest.mark.parametrize("field", ["", "0,0,"])
@pytest.mark.parametrize("place", [0, 30, 59])
def test_one_line_of_another_length_is_refused(tmp_path, field, place):
    lines = ROWS.splitlines()
    lines[place] = f"{field}7,0,1"
    message = refusal(written(tmp_path, "\n".join(["a,age,arm,y", *lines])))
    assert f"line {place + 2} of" in message
    assert f"has {5 if field else 3} fields and its header 4; " in message


def test_lines_of_one_field_less_are_refused(tmp_path):
    assert "line 2 of" in (message := refusal(written(tmp_path, f"a,b,age,arm,y\n{ROWS}")))
    assert "has 4 fields and its header 5; give every line as many" in message


def test_line_is_counted_with_line_ends_in_quotation_marks_and_blank_lines(tmp_path):
    message = refusal(written(tmp_path, '\n\na,b\n1,"x\ny"\n  \n2,3\n4,5,6\n'))
    assert "line 8 of" in message


def test_row_names_of_r_are_left_out(tmp_path):
    text = '"age" "arm" "y"\n' + "".join(f'"{k + 1}" {k} "drug" 0.5\n' for k in range(60))
    found, said = read_both(written(tmp_path, text, "t.txt"), Dialect(separator=" ", row_names=True))
    assert (list(found.columns), found["age"].tolist(), said) == (["age", "arm", "y"], list(range(60)), [])
    blank, said = read_both(written(tmp_path, f",age,arm,y\n{ROWS}"), Dialect(row_names=True))
    assert (list(blank.columns), said) == (["age", "arm", "y"], [])
    message = refusal(written(tmp_path, f"id,age,arm,y\n{ROWS}"), Dialect(row_names=True))
    assert "names all 4 fields, the first 'id'; leave --row-names out" in message


def test_blanks_around_names_are_left_out_with_a_note(tmp_path):
    found, said = read_both(written(tmp_path, f" age,arm\t, y ,z\n{ROWS}"), None)
    assert list(found.columns) == ["age", "arm", "y", "z"]
    assert said == ["blanks around column names are removed: ' age', 'arm\\t', ' y '"]
    assert "several columns called 'age'" in refusal(written(tmp_path, f"age, age,y,z\n{ROWS}"))


def test_saved_index_is_left_out_with_a_note(tmp_path):
    found, said = read_both(written(tmp_path, f",age,arm,y\n{ROWS}"), None)
    assert list(found.columns) == ["age", "arm", "y"]
    assert said == ["the first column has no name and is left out (a saved index?)"]


def test_columns_without_a_name_are_told(tmp_path):
    found, said = read_both(written(tmp_path, f"age,,arm,y\n{ROWS}"), None)
    assert list(found.columns) == ["age", "Unnamed: 1", "arm", "y"]
    assert said == ["columns without a name are called 'Unnamed: 1'; name them, or leave them out (--exclude)"]


ZSTANDARD = ("compression.zstd", "zstandard")


def test_zst_is_read_by_python_or_zstandard(table, tmp_path):
    module = next((name for name in ZSTANDARD if find_spec(name.split(".")[0]) and find_spec(name)), None)
    if module is None:
        pytest.skip("neither Python 3.14 nor zstandard is here")
    content = table.to_csv(index=False).encode()
    found, said = read_both(written(tmp_path, import_module(module).compress(content), "t.csv.zst"), None)
    assert_frame_equal(found, table)
    assert said == []
    assert "cannot read" in refusal(written(tmp_path, content, "plain.csv.zst"))


@pytest.mark.parametrize("module", ZSTANDARD)
def test_either_module_opens_zst(table, tmp_path, monkeypatch, module):
    """The modules are stood in for, so that this runs without them."""
    for name in ZSTANDARD:
        monkeypatch.setitem(sys.modules, name, None)
    path = written(tmp_path, gzip.compress(table.to_csv(index=False).encode()), "t.csv.zst")
    assert refusal(path) == f"reading {path} needs zstandard: pip install zstandard"
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(open=gzip.open))
    assert_frame_equal(read_both(path, None)[0], table)


@pytest.mark.parametrize("header", ["age,arm,y", "age,arm,y,"])
def test_separators_at_the_end_of_every_line_are_left_out_with_a_note(tmp_path, header):
    rows = "".join(f'{k},"drug",0.5,{" " * (k % 2)}\n' for k in range(60))
    found, said = read_both(path := written(tmp_path, f"{header}\n{rows}"), None)
    assert (list(found.columns), found["age"].tolist()) == (["age", "arm", "y"], list(range(60)))
    assert said == [f"every line of {path} ends in a separator; the empty field after it is left out"]
    message = refusal(written(tmp_path, f"{header}\n{rows}60,drug,0.5,7\n"))
    assert "line 62 of" in message
    assert "this one has a value after it: name all fields in the header" in message
    message = refusal(written(tmp_path, f"{header}\n{rows}60,drug,0.5\n"))
    assert "line 2 ends in a separator and has 4; give every line as many" in message


REMEDIES = {
    "semicolons": ("a;b;c\n1;2;3\n", "has one column, 'a;b;c'; add --separator ';' (its"),
    "semicolons and decimal commas": ("a;b;c\n1,5;2;3\n", "add --separator ';' --decimal , (its"),
    "tabs": ("a\tb\n1\t2\n", "add --separator tab (its"),
    "blanks": ("a b c\n1 2 3\n", "add --separator space (its"),
    "semicolons, and a comma in a name": ("a;b, mg;c\n1;2;3\n", "add --separator ';' (its"),
    "decimal commas between commas": ("a,b\n1,5,2,5\n", "line 2 of"),
    "one column": ("a\n1\n", "fields must be separated by ',', or by what --separator says"),
    "latin-1": ("größe,b\n1,2\n".encode("latin-1"), "not UTF-8 text (byte 0xf6); add --encoding, such as"),
    "latin-1 far below": (b"a,b\n" + b"1,2\n" * 50_000 + b"\xe4,3\n", "not UTF-8 text (byte 0xe4)"),
    "UTF-16 without a mark": ("a,b\n1,2\n".encode("utf-16-le"), "add --encoding utf-16-le"),
    "nothing": ("", "it is empty"),
    "blank lines only": ("\n \n", "it is empty"),
}


@pytest.mark.parametrize("case", REMEDIES)
def test_files_that_cannot_be_told_are_refused_with_the_option_to_type(tmp_path, case):
    text, message = REMEDIES[case]
    assert message in refusal(written(tmp_path, text))


def test_decimal_commas_that_would_be_words_are_refused(tmp_path):
    path = written(tmp_path, "age;y;arm\n" + "".join(f"{k},5;{k};a\n" for k in range(60)))
    assert "column 'age' has values such as '0,5'; add --decimal ," in refusal(path, Dialect(separator=";"))
    as_words, _ = read_both(path, Dialect(separator=";", decimal="."))
    assert as_words["age"].tolist()[:2] == ["0,5", "1,5"]
    numbers, _ = read_both(path, Dialect(separator=";", decimal=","))
    assert numbers["age"].tolist()[:2] == [0.5, 1.5]


def test_damaged_and_odd_archives_are_refused(tmp_path):
    whole = gzip.compress(f"age,b,arm,y\n{ROWS * 50}".encode())
    assert "cannot read" in refusal(written(tmp_path, whole[: len(whole) // 2], "half.csv.gz"))
    assert "cannot read" in refusal(written(tmp_path, ROWS, "plain.csv.gz"))
    assert "cannot read" in refusal(written(tmp_path, ROWS, "plain.csv.xz"))
    assert "cannot read" in refusal(written(tmp_path, ROWS, "plain.csv.zip"))
    with zipfile.ZipFile(tmp_path / "two.csv.zip", "w") as archive:
        archive.writestr("a.csv", ROWS)
        archive.writestr("b.csv", ROWS)
    assert "holds 2 files; put one table into it" in refusal(tmp_path / "two.csv.zip")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"separator": ";;"}, "--separator must be one character"),
        ({"separator": "x"}, "--separator must be one character"),
        ({"separator": ""}, "--separator must be one character"),
        ({"decimal": "x"}, "--decimal must be"),
        ({"separator": ",", "decimal": ","}, "both between fields and in decimals; add --separator"),
        ({"decimal": ","}, "both between fields and in decimals; add --separator"),
        ({"encoding": "klingon"}, "--encoding must be"),
        ({"encoding": "base64"}, "--encoding must be"),
    ],
)
def test_dialects_that_no_file_has_are_refused(tmp_path, given, message):
    with pytest.raises(ValueError, match=message):
        open_file(written(tmp_path, f"age,b,arm,y\n{ROWS}"), Dialect(**given))


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["age,dose, mg"], ["age", "dose, mg"]),
        (["dose, mg"], ["dose, mg"]),
        (["age", "dose, mg,sex"], ["age", "dose, mg", "sex"]),
        (["a,b"], ["a,b"]),
        (["b,a, age"], ["b", "a", "age"]),
        ([" x ,age,,age"], [" x ", "age"]),
        ([], []),
    ],
)
def test_columns_may_have_commas_in_their_names(texts, names):
    columns = ["age", "dose, mg", "sex", "a", "b", "a,b", " x "]
    assert _columns(texts, columns, "--features") == names
    with pytest.raises(ValueError, match="--features: no column 'mg'"):
        _columns(["age, mg"], columns, "--features")
    with pytest.raises(ValueError, match="--features names no column"):
        _columns([""], columns, "--features")
    assert read_groups(["both=age,dose, mg"], columns) == {"both": ["age", "dose, mg"]}


def test_none_is_a_label(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    arm = np.where(np.arange(120) % 2, "Drug", "None")
    frame = pd.DataFrame({"age": rng.normal(size=120), "arm": arm, "y": rng.normal(size=120)})
    frame.to_csv(tmp_path / "a.csv", index=False)
    own = ("--treatment", "arm", "--outcome", "y", "--learner", "linear", "--sampler", "gaussian", "--no-explain")
    out = tmp_path / "r.json"
    for stream in ((), ("--stream",)):
        assert run(monkeypatch, "select", str(tmp_path / "a.csv"), *own, *stream, "--out", str(out)) == 0
        settings = SelectionResult.from_json(out).settings
        assert (settings["treated_label"], settings["control_label"]) == ("Drug", "None")


def test_columns_with_commas_are_chosen_on_the_command_line(table, tmp_path, monkeypatch):
    table.to_csv(tmp_path / "a.csv", index=False)
    chosen = ("--features", "größe, cm", "--features", "age", "--exclude", "ort")
    out = tmp_path / "r.csv"
    assert run(monkeypatch, "select", str(tmp_path / "a.csv"), *SELECT, *chosen, "--out", str(out)) == 0
    assert pd.read_csv(out)["feature"].tolist() == ["age", "größe, cm"]
