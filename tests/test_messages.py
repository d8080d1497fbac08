"""Bad inputs and what is said to them, as docs/messages.md shows it.

Another case is one more line of `python(...)` or `command(...)`. With MODIFIND_WRITE_DOCS=1 the page is written anew.
"""

import os
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from modifind import EffectLikelihood, ModifierSelector
from modifind.cli.app import main
from modifind.cli.tables import Roles
from modifind.cli.terminal import complain
from modifind.cli.typed import as_typed

PAGE = Path(__file__).parents[1] / "docs" / "messages.md"
HEAD = """# Messages

What a wrong or odd input gets. An error is a `ValueError` in Python and one line with exit code 2 on the command line;
a warning is a `UserWarning`, or one line on stderr, and is kept in the result. In these examples the table has 120
rows, the features age, dose and sex, the outcome y (change on the command line) and the treatment arm.
`MODIFIND_WRITE_DOCS=1 pytest tests/test_messages.py` writes this page.

| | input | where | what happens | message |
|---|---|---|---|---|
"""
WRITE = os.environ.get("MODIFIND_WRITE_DOCS") == "1"
N = 120
FAST = {
    "statistic": EffectLikelihood("linear"),
    "sampler": "gaussian",
    "propensity": 0.5,
    "random_state": 0,
    "explain": False,
}


def base():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.normal(50, 9, N).round(3), "dose": rng.normal(size=N).round(3)})
    X["sex"] = rng.choice(["f", "m"], N)
    treatment = rng.integers(0, 2, N)
    return X, (rng.normal(size=N) + treatment * (X["age"].to_numpy() - 50) / 9).round(3), treatment


@dataclass(frozen=True)
class Case:
    what: str
    where: str
    call: object
    change: object = None
    settings: tuple = ()

    def said(self, folder, capsys):
        """What happens and the message, each message once."""
        if self.where == "Python":
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                try:
                    self.call(*base())
                except ValueError as error:
                    return "error", str(error)
            return "warning", " / ".join(dict.fromkeys(str(w.message) for w in caught))
        X, y, treatment = base()
        arguments = self.call(X.assign(change=y, arm=np.where(treatment == 1, "drug", "placebo")))
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(sys, "argv", ["modifind", *map(str, arguments)])
            with pytest.raises(SystemExit) as stopped:
                main()
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("modifind: ")]
        kind = "error, exit code 2" if stopped.value.code == 2 else "warning"
        return kind, " / ".join(line.removeprefix("modifind: ").split(": ", 1)[1] for line in lines)


CASES: list[Case] = []


def python(what, change=None, rows=None, **settings):
    """A call of `fit`: `change` gives the table, outcome and treatment that are passed, `rows` other arguments."""

    def call(X, y, treatment):
        X, y, treatment = (X, y, treatment) if change is None else change(X, y, treatment)
        ModifierSelector(**FAST | settings).fit(X, y, treatment=treatment, **rows or {})

    CASES.append(Case(what, "Python", call, change, tuple(settings.items())))


def column(what, values, name="extra", **settings):
    """A call of `fit` with one more column; `values` may be a function of features, outcome and treatment."""
    python(
        what,
        lambda X, y, a: (X.assign(**{name: values(X, y, a) if callable(values) else values}), y, a),
        **settings,
    )


def outcome(what, values, **settings):
    """A call of `fit` with another outcome."""
    python(what, lambda X, y, a: (X, values(y), a), **settings)


def arms(what, values, **settings):
    """A call of `fit` with another treatment."""
    python(what, lambda X, y, a: (X, y, values(a)), **settings)


def command(what, *arguments, file="table.csv", change=lambda frame: frame, write=None):
    """A call of ``modifind select``; `change` gives the table that is written to the file, `write` its text."""

    def call(frame):
        if file.endswith(".csv"):
            text = change(frame).to_csv(index=False) if write is None else write(frame)
            (file_folder() / file).write_bytes(text if isinstance(text, bytes) else text.encode())
        quick = ("--learner", "linear", "--sampler", "gaussian", "--propensity", "0.5")
        return ("select", file, "--treatment", "arm", "--outcome", "change", *quick, *arguments)

    CASES.append(Case(what, "command line", call))


FOLDER: list[Path] = []


def file_folder():
    return FOLDER[-1]


def first(values, rows, new):
    """The column with something else in its first rows."""
    values = pd.Series(values).copy()
    values = values.astype(object) if isinstance(new, str) else values
    values[:rows] = new
    return values


rng = np.random.default_rng(1)
DAYS = pd.date_range("2020-01-01", periods=N).astype("datetime64[ns]")
NUMBERS = rng.integers(18, 90, N)
WORDS = rng.choice(["u", "v"], N)

# Tables.
python("no treatment", lambda X, y, a: (X, y, None))
python("no outcome", lambda X, y, a: (X, None, a))
python("49 rows", lambda X, y, a: (X[:49], y[:49], a[:49]))
python("an empty table", lambda X, y, a: (X[:0], y[:0], a[:0]))
python("an array of one dimension", lambda X, y, a: (y, y, a))
python("rows of unequal length", lambda X, y, a: ([[1, 2], [3]] * 60, y, a))
python("an outcome with another number of rows", lambda X, y, a: (X, y[1:], a))
python("an outcome in another order", lambda X, y, a: (X, pd.Series(y)[::-1], a))
python("two columns of the same name", lambda X, y, a: (X.set_axis(["age", "age", "sex"], axis=1), y, a))
python("columns 1 and '1'", lambda X, y, a: (X.set_axis([1, "1", "sex"], axis=1), y, a))
# Treatments.
arms("a treatment with one level", lambda a: 0 * a)
arms("a treatment with three levels", lambda a: np.array(["low", "mid", "high"] * 40))
arms("a numeric treatment", lambda a: np.linspace(0, 1, N))
arms("a treatment with missing values", lambda a: first(a.astype(float), 2, np.nan))
arms("labels that do not say which is treated", lambda a: pd.Series(np.where(a, "new", "old"), name="arm"))
arms("19 treated rows", lambda a: np.arange(N) < 19)
# Outcomes.
outcome("a constant outcome", lambda y: 0 * y + 2)
outcome("an outcome of words", lambda y: np.where(y > 0, "good", "bad"))
outcome("an outcome of numbers and words", lambda y: first(y, 2, "unknown"))
outcome("an outcome with a unit", lambda y: [f"{value} mg" for value in y])
outcome("an outcome of percentages", lambda y: [f"{value}%" for value in y])
outcome("an outcome with decimal commas", lambda y: [f"{value}".replace(".", ",") for value in y])
outcome("an outcome of dates", lambda y: pd.Series(DAYS))
outcome("a missing and an infinite outcome", lambda y: np.r_[np.nan, np.inf, y[2:]])
outcome("missing outcomes", lambda y: pd.Series(np.where(np.arange(N) < 30, np.nan, y), name="change"))
outcome("missing outcomes left out", lambda y: np.where(np.arange(N) < 30, np.nan, y), missing_outcome="drop")
outcome("too few missing outcomes to weigh", lambda y: np.r_[np.nan, y[1:]], missing_outcome="weight")
outcome("the logarithm of a negative outcome", lambda y: y, outcome_transform="log")
outcome("a skewed positive outcome", lambda y: np.exp(1.5 * y))
outcome("an outcome with many zeros", lambda y: np.where(y < 0, 0.0, y))
outcome("a count", lambda y: np.random.default_rng(0).poisson(2.5, N))
outcome("an outcome with a code for missing", lambda y: np.r_[-999.0, y[1:]])
# Columns that are no features.
column("missing values", first(NUMBERS.astype(float), 3, np.nan))
column("an infinite value", first(NUMBERS.astype(float), 1, np.inf))
column("a category that is infinite", pd.Categorical(first(NUMBERS % 3 + 0.5, 30, np.inf)))
column("dates", DAYS)
column("dates as text", DAYS.strftime("%d.%m.%Y"))
column("complex numbers", NUMBERS + 1j)
column("lists", pd.Series([[1, 2]] * N))
column("mixed types", pd.Series([True, "no", 3] * 40))
column("numbers and a word, as text", first(NUMBERS.astype(str), 3, "unknown"))
column("numbers and a word, as objects", first(NUMBERS, 3, "unknown"))
column("numbers with decimal commas", [f"{k},5" for k in NUMBERS])
column("numbers as text", NUMBERS.astype(str))
column("identifiers beyond 2^53", 2**60 + np.arange(N))
column("values beyond 1e150", 1e200 * NUMBERS)
# Leaks.
column("the treatment under another name", lambda X, y, a: np.where(a == 1, "given", "not given"))
column("a dose that only treated rows have", lambda X, y, a: np.where(a == 1, 5 + X["dose"].abs(), 0.0))
column("the outcome in other units", lambda X, y, a: 2.54 * y + 1)
column(
    "two features that together give the treatment",
    lambda X, y, a: np.where(a == 1, 9.0, -9.0) - X["dose"] * 5 + X["age"] / 10,
    propensity="auto",
)
# Columns that are warned of.
column("a constant column", 1.0)
column("the same column in other units", lambda X, y, a: X["age"] * 12)
column("a relabelled column", lambda X, y, a: X["sex"].map({"f": 1, "m": 0}))
column("a sum of two columns", lambda X, y, a: X["age"] + X["dose"])
column("nearly a function of others", lambda X, y, a: (X["age"] + X["dose"]).round(1))
column("999 among ages", first(NUMBERS, 6, 999))
column("7 and 9 after 1 and 2", first(rng.integers(1, 3, N), 6, [7, 9, 9, 7, 9, 9]))
column("row numbers", np.arange(N))
column("an identifier of every row", [f"p{k}" for k in range(N)])
column("rare levels", first(first(WORDS, 6, "rare"), 2, "rarer"))
column("a level that hardly any row has", first(np.full(N, "no"), 3, "yes"))
# Settings.
python("alpha out of range", alpha=1.5)
python("an unknown adjustment", adjust="fdr")
python("an unknown statistic", statistic="mmd")
python("an unknown sampler", sampler="copula")
python("one fold", cv=1)
python("a negative seed", random_state=-1)
python("an unknown column in discrete_features", discrete_features=["weight"])
python("a propensity of 1", propensity=1.0)
python("a known chance that does not fit the arms", propensity=0.8)
column("a column that the treatment moved", lambda X, y, a: X["dose"] + 2 * a + np.sin(np.arange(N)), "week20")
column("a column that nearly is the outcome", lambda X, y, a: (y + 0.1 * np.sin(np.arange(N))).round(3), "later")
python(
    "an event flag beside a time",
    lambda X, y, a: (X.assign(status=np.arange(N) % 3 // 2), pd.Series(np.abs(y) + 0.1, name="survival"), a),
)
python("nothing left to test", rows={"adjust_for": ["age", "dose", "sex"]})
python("effects in a population that is none", population="treated")
python("a checkpoint without a name", checkpoint="")
# The command line.
command("no such file", file="nothing.parquet")
command("a file of another kind", file="table.xlsx")
command("an unknown column", "--features", "weight")
command("an unknown treatment", "--treatment", "group")
command("a misspelt outcome", "--outcome", "Change")
command("a misspelt sampler", "--sampler", "gausian")
command("a missing weight", "--weight", "w", change=lambda frame: frame.assign(w=first(frame["age"], 1, np.nan)))
command("the outcome as treatment", "--treatment", "change")
command("a column tested and adjusted for", "--features", "age", "--adjust-for", "age")
command("dates that nobody named", "--features", "age", change=lambda frame: frame.assign(visit=DAYS))
command("alpha out of range", "--alpha", "2")
command("an unknown label", "--treated", "pill")
command("labels 1 and 2", change=lambda frame: frame.assign(arm=np.where(frame["arm"] == "drug", 1, 2)))
command("a file without rows", change=lambda frame: frame[:0])
command("missing values", change=lambda frame: frame.assign(age=first(frame["age"], 3, np.nan)))
command("dates", change=lambda frame: frame.assign(visit=DAYS))
command("a number column with a word", change=lambda frame: frame.assign(age=first(frame["age"], 2, "unknown")))
command("a treatment with three levels", change=lambda frame: frame.assign(arm=["a", "b", "c"] * 40))
command("the treatment twice", change=lambda frame: frame.assign(pill=frame["arm"] == "drug"))
command("a wrong ending of the result", "--out", "result.txt")
command("the table as the result", "--out", "table.csv")
command("a result where no folder can be", "--out", "/dev/null/result.json")
command("streamed: the outcome as text", "--stream", change=lambda frame: frame.assign(change="high"))
command("streamed: an identifier", "--stream", change=lambda frame: frame.assign(id=[f"p{k}" for k in range(N)]))
# Files of text.
command("lines of one field more than the header", write=lambda frame: frame.to_csv().removeprefix(","))
command("streamed: the same", "--stream", write=lambda frame: frame.to_csv().removeprefix(","))
command("a line of one field less", write=lambda frame: frame.to_csv(index=False).replace(",drug", "", 1))
command("row names that are none", "--row-names")
command("blanks around names", change=lambda frame: frame.rename(columns={"age": " age"}))
command("semicolons and decimal commas", write=lambda frame: frame.to_csv(index=False, sep=";", decimal=","))
command(
    "decimal commas",
    "--separator",
    ";",
    write=lambda frame: frame.to_csv(index=False, sep=";", decimal=","),
)
command("decimal commas between commas", "--decimal", ",")
command("Latin-1", write=lambda frame: frame.rename(columns={"dose": "Größe"}).to_csv(index=False).encode("latin-1"))
command("UTF-16 without a mark", write=lambda frame: frame.to_csv(index=False).encode("utf-16-le"))
command("a separator of two characters", "--separator", "::")
command("a decimal that is none", "--decimal", "comma")
command("an unknown encoding", "--encoding", "ebcdic")


@pytest.fixture(autouse=True)
def own_folder(tmp_path):
    FOLDER.append(tmp_path)
    yield
    FOLDER.pop()


def row(number, case, folder, capsys):
    kind, message = case.said(folder, capsys)
    text = message.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    return f"| {number} | {case.what} | {case.where} | {kind} | {text} |"


def shown():
    return [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ") and line[2].isdigit()
    ]


@pytest.mark.parametrize("case", [case for case in CASES if case.where == "Python"], ids=lambda case: case.what)
def test_messages_obey_nothing_that_is_in_a_name(case, tmp_path, capsys, monkeypatch):
    """Escape codes and changes of direction in the names of columns are written out in every message."""
    fit, codes = ModifierSelector.fit, "\x1b[31m\u202e\x07"

    def hostile(self, X, y, treatment=None, **rows):
        X = X.rename(columns=lambda name: f"{name}{codes}") if isinstance(X, pd.DataFrame) else X
        y = None if y is None else pd.Series(y, name=f"y{codes}")
        treatment = None if treatment is None else pd.Series(treatment, name=f"arm{codes}")
        rows = {name: [f"{own}{codes}" for own in given] for name, given in rows.items() if name == "adjust_for"}
        return fit(self, X, y, treatment=treatment, **rows)

    monkeypatch.setattr(ModifierSelector, "fit", hostile)
    assert case.said(tmp_path, capsys)[1].isprintable()


@pytest.mark.skipif(WRITE, reason="the page is being written")
@pytest.mark.parametrize("number", range(1, len(CASES) + 1))
def test_message_is_the_one_in_the_docs(number, tmp_path, capsys):
    found = row(number, CASES[number - 1], tmp_path, capsys)
    assert found == shown()[number - 1]
    assert not found.endswith("|  |"), "nothing was said"


def test_page_has_every_case(tmp_path, capsys):
    if WRITE:
        rows = [row(k, case, tmp_path, capsys) for k, case in enumerate(CASES, start=1)]
        PAGE.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")
    assert len(shown()) == len(CASES) >= 40
    assert PAGE.read_text(encoding="utf-8").startswith(HEAD)


ARGUMENTS = (
    *(
        "sample_weight",
        "max_train_rows",
        "feature_groups",
        "discrete_features",
        "n_resamples",
        "n_jobs",
        "random_state",
    ),
    *("outcome_transform", "check_resamples", "cv_repeats", "placebo_runs", "fit_source", "ModifierSelector"),
    *("EffectLikelihood", "WCMMD", "DataFrame", r"(?<!['\w])(?:X|y)(?!['\w])", r"\w+=(?:['\"\w]|$)", "command line"),
)
TYPED = {
    **{name: f"--{name}" for name in ("alpha", "adjust", "statistic", "sampler", "propensity", "population")},
    **{"random_state": "--seed", "discrete_features": "--discrete"},
}


def typed_cases():
    """Those of Python's cases that the command line can be given too."""
    for case in CASES:
        if case.where == "Python" and all(name in TYPED or name == "outcome_transform" for name, _ in case.settings):
            yield pytest.param(case, id=case.what)


@pytest.mark.parametrize("case", list(typed_cases()))
def test_no_argument_of_python_is_named_on_the_command_line(case, tmp_path, monkeypatch, capsys):
    X, y, treatment = base() if case.change is None else case.change(*base())
    try:
        frame = pd.DataFrame(X).assign(change=np.asarray(y), arm=np.asarray(treatment))
    except (ValueError, TypeError):
        pytest.skip("no file has such a table")
    frame.to_csv(tmp_path / "table.csv", index=False)
    options = ["--learner", "linear", "--sampler", "gaussian", "--propensity", "0.5", "--no-explain"]
    for name, value in case.settings:
        if name in ("statistic", "sampler"):
            options = ["--propensity", "0.5", "--no-explain"]
        options += ["--log-outcome"] if name == "outcome_transform" else [TYPED[name], str(np.ravel(value)[0])]
    line = ["modifind", "select", "table.csv", "--treatment", "arm", "--outcome", "change", *options]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", line)
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr()
    checks = [line for line in said.out.splitlines() if line.startswith(("  caution: ", "  note: "))]
    for line in [*said.err.splitlines(), *checks]:
        named = [argument for argument in ARGUMENTS if re.search(argument, line)]
        assert not named, line


@pytest.mark.parametrize(
    ("message", "typed"),
    [
        ("y is constant (2); there is no effect to look for", "the outcome 'change' is constant (2); there is no"),
        ("treatment must have exactly two values", "--treatment arm must have exactly two values"),
        ("sample_weight has 1 missing", "--weight w has 1 missing"),
        ("say so with clusters=", "say so with --clusters"),
        ("sampler must be one of 'auto', 'gaussian', not 'gausian'", "not 'gausian'; did you mean 'gaussian'?"),
        ("checkpoint saved is in use by another run", "--checkpoint saved is in use"),
        ("take explain=False or raise max_train_rows=200", "take --no-explain or raise --train-rows 200"),
        ("identical up to relabelling: dose = y", "dose = y"),
    ],
)
def test_messages_are_told_in_the_words_of_the_command_line(message, typed):
    columns = ["age", "dose", "change", "arm", "w", *(["y"] if message.endswith("= y") else [])]
    roles = Roles(["age", "dose"], "change", "arm", [], weight="w")
    assert typed in as_typed(message, columns, roles)


def test_lines_wrap_between_words_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    complain("modifind: error: " + "several words of a message that is long " * 4)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 2
    assert all(len(line) <= 60 for line in lines)
    assert " ".join(line.strip() for line in lines).count("several words of a message that is long") == 4
