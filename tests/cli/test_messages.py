"""Bad inputs and what is said to them, as docs/messages.md shows it.

Another case is one more line of `table(...)`, `command(...)` or `saved(...)`. With MODIFIND_WRITE_DOCS=1 the page is
written anew.
"""

import ast
import copy
import errno
import functools
import gzip
import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

import modifind
from conftest import ROOT
from modifind import WCMMD, EffectLikelihood, ModifierSelector, SelectionResult
from modifind._system import LOCK_FILE
from modifind.cli.app import main
from modifind.cli.messages import as_typed
from modifind.cli.options import Roles
from modifind.cli.output import complain, print_dry_run
from modifind.data.sources import FrameSource
from modifind.statistics.families import Family, StudentT

PAGE = ROOT / "docs" / "messages.md"
HEAD = """# Messages

How modifind responds to wrong or unusual input. An error is a `ValueError` in Python and one line with exit code 2 on
the command line; a warning is a `UserWarning`, or a line on stderr or among the checks, and is kept in the result. The
example table has 120 rows, the features age, dose and sex, the outcome change and the treatment arm; in Python the last
two have no names unless the message shows one. A dash means that the input cannot occur or is not a mistake.
`MODIFIND_WRITE_DOCS=1 pytest tests/cli/test_messages.py -k page_has` writes this page.

| | input | what happens | in Python | on the command line |
|---|---|---|---|---|
"""
WRITE = os.environ.get("MODIFIND_WRITE_DOCS") == "1"
N = 120
NOTHING = "—"
FAST = {
    "statistic": EffectLikelihood("linear"),
    "sampler": "gaussian",
    "propensity": 0.5,
    "random_state": 0,
    "explain": False,
}
# Settings of Python as options, and arguments of `fit` as columns of the file.
TYPED = {
    **{"random_state": "--seed", "discrete_features": "--discrete", "missing_outcome": "--missing-outcome"},
    **{"n_resamples": "--resamples", "outcome": "--outcome-kind", "effect_scale": "--effect-scale"},
}
COLUMNS = {"sample_weight": ("--weight", "w"), "clusters": ("--clusters", "clinic"), "strata": ("--strata", "site")}


def base():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.normal(50, 9, N).round(3), "dose": rng.normal(size=N).round(3)})
    X["sex"] = rng.choice(["f", "m"], N)
    treatment = rng.integers(0, 2, N)
    return X, (rng.normal(size=N) + treatment * (X["age"].to_numpy() - 50) / 9).round(3), treatment


@dataclass(frozen=True)
class Case:
    """What is wrong, and how to do that in Python and on the command line, in a folder of its own."""

    what: str
    python: Callable[[], object] | None
    command: Callable[[], list] | None
    patch: Callable[[pytest.MonkeyPatch], object] = lambda patch: None

    def raised(self):
        """What happens in Python, and the message: each warning once."""
        with warnings.catch_warnings(record=True) as caught, pytest.MonkeyPatch.context() as patch:
            warnings.simplefilter("always", UserWarning)
            self.patch(patch)
            try:
                self.python()
            except (ValueError, OSError) as error:
                return "error", _local(str(error))
        return "warning", _local(" / ".join(dict.fromkeys(str(w.message) for w in caught)))

    def printed(self, capsys):
        """What happens on the command line, and what is said on stderr and by the checks."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["modifind", *map(str, self.command())])
            self.patch(patch)
            with pytest.raises(SystemExit) as stopped:
                main()
        said = capsys.readouterr()
        lines = [line for line in said.err.splitlines() if line.startswith("modifind: ")]
        told = [line.removeprefix("modifind: ").split(": ", 1)[1] for line in lines]
        told += [line.strip() for line in said.out.splitlines() if line.startswith(("  caution: ", "  note: "))]
        return "error" if stopped.value.code == 2 else "warning", _local(" / ".join(told))


def _local(text):
    """Paths as they are from here, and as POSIX writes them."""
    return re.sub(rf"(?<=\w){re.escape(os.sep)}(?=[\w*])", "/", text.replace(f"{Path.cwd()}{os.sep}", ""))


CASES: list[Case] = []


def table(what, change=None, rows=None, typed=(), file=True, prepare=lambda: None, patch=None, **settings):
    """A call of `fit` and the command that does the same.

    `change` gives the table, outcome and treatment, `rows` other arguments of `fit`, `typed` what is typed instead of
    the settings, `prepare` makes files, and `patch` makes the machine another one. Without `file` no command line has
    such an input.
    """

    def given():
        prepare()
        return base() if change is None else change(*base())

    def python():
        X, y, treatment = given()
        ModifierSelector(**FAST | settings).fit(X, y, treatment=treatment, **rows or {})

    def command():
        X, y, treatment = given()
        arms = np.where(treatment == 1, "drug", "placebo") if set(np.unique(treatment)) == {0, 1} else treatment
        frame = pd.DataFrame(X).assign(change=np.asarray(y), arm=np.asarray(arms))
        options = {"--learner": "linear", "--sampler": "gaussian", "--propensity": 0.5}
        for name, value in (rows or {}).items():
            if name in COLUMNS:
                option, column = COLUMNS[name]
                frame[column] = value
                options[option] = column
            else:
                options[f"--{name.replace('_', '-')}"] = ",".join(value) if isinstance(value, list) else value
        for name, value in () if typed else settings.items():
            if name == "statistic":
                del options["--learner"]
            if name == "propensity" and np.ndim(value):
                frame["score"], value = value, "score"
            options[TYPED.get(name, f"--{name}")] = np.ravel(value)[0]
        frame.to_csv("table.csv", index=False)
        line = [word for option in options.items() for word in option]
        return ["select", "table.csv", "--treatment", "arm", "--outcome", "change", "--no-explain", *line, *typed]

    CASES.append(Case(what, python, command if file else None, *[patch] * (patch is not None)))


def column(what, values, name="extra", **settings):
    """One more column; `values` may be a function of features, outcome and treatment."""
    table(
        what,
        lambda X, y, a: (X.assign(**{name: values(X, y, a) if callable(values) else values}), y, a),
        **settings,
    )


def outcome(what, values, **settings):
    """Another outcome."""
    table(what, lambda X, y, a: (X, values(y), a), **settings)


def arms(what, values, **settings):
    """Another treatment."""
    table(what, lambda X, y, a: (X, y, values(a)), **settings)


def command(
    what, *arguments, file="table.csv", change=lambda frame: frame, write=None, prepare=lambda: None, patch=None
):
    """A call of ``modifind select`` alone; `change` gives the table that is written to the file, `write` its content.

    `patch` makes the machine another one.
    """

    def call():
        prepare()
        X, y, treatment = base()
        frame = X.assign(change=y, arm=np.where(treatment == 1, "drug", "placebo"))
        if file == "table.parquet":
            change(frame).to_parquet(file)
        elif file.startswith("table.csv"):
            text = change(frame).to_csv(index=False) if write is None else write(frame)
            Path(file).write_bytes(text if isinstance(text, bytes) else text.encode())
        quick = ["--learner", "linear", "--sampler", "gaussian", "--propensity", "0.5", "--no-explain"]
        return ["select", file, "--treatment", "arm", "--outcome", "change", *quick, *arguments]

    CASES.append(Case(what, None, call, *[patch] * (patch is not None)))


def names(what, change=lambda frame: frame, **columns):
    """A call of `fit` with names of columns; `change` gives the table, or a file of it."""

    def python():
        X, y, treatment = base()
        frame = X.assign(change=y, arm=np.where(treatment == 1, "drug", "placebo"))
        ModifierSelector(**FAST).fit(change(frame), **{"outcome": "change", "treatment": "arm"} | columns)

    CASES.append(Case(what, python, None))


def written(frame):
    """A file of a table."""
    frame.to_csv("table.csv", index=False)
    return "table.csv"


def other(what, *arguments, patch=None):
    """Another command, on a table that is as it should be."""

    def call():
        X, y, treatment = base()
        X.assign(change=y, arm=treatment).to_csv("table.csv", index=False)
        return list(arguments)

    CASES.append(Case(what, None, call, *[patch] * (patch is not None)))


def in_a_folder():
    """A folder where a file is expected, in Python and on the command line."""

    def made():
        Path("folder.csv").mkdir(exist_ok=True)
        return "folder.csv"

    def python():
        ModifierSelector().fit(made(), "change", treatment="arm")

    return python, lambda: ["select", made(), "--treatment", "arm", "--outcome", "change"]


def lines_of(frame):
    """A table as text whose lines end alike on every system."""
    return frame.to_csv(index=False, lineterminator="\n")


class OwnSampler:
    """A sampler of the user's that knows neither weights nor clusters."""

    def fit(self, table):
        """Nothing that is asked for."""

    def rule(self, feature):
        """Nothing that is asked for."""


@functools.cache
def result():
    X, y, treatment = base()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return ModifierSelector(**FAST).fit(X, y, treatment=treatment).result_.to_dict()


def saved(what, change):
    """A file of a result: `change` is its content, or changes it."""

    def write():
        data = change
        if callable(change):
            data = copy.deepcopy(result())
            data = change(data) or data
        Path("result.json").write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())

    def python():
        write()
        SelectionResult.from_json("result.json")

    def call():
        write()
        return ["report", "result.json"]

    CASES.append(Case(what, python, call))


def untested_selection(data):
    """A result whose first feature is selected without an adjusted p-value."""
    data["table"]["columns"]["selected"][0] = True
    data["table"]["columns"]["p_adjusted"][0] = "NaN"
    return data


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
DOLLARS = np.random.default_rng(2).integers(200, 9000, N)
PARTS = {"format": 1, "versions": {}, "table": "", "settings": {}, "columns": [], "rows": {}}
EVEN = np.arange(N) // 2
BEDS, STAFF = rng.normal(size=(2, 20)).round(2)
OTHER_RUN = {"checkpoint": "saved", "prepare": lambda: kept_run(random_state=7)}


def kept_run(**settings):
    """A folder that holds a run."""
    X, y, treatment = base()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        ModifierSelector(**FAST | {"checkpoint": "saved"} | settings).fit(X, y, treatment=treatment)


def changed_family(**attributes):
    """A family of one's own that has something else."""
    return type("OwnFamily", (StudentT,), attributes)()


def damaged_run(content):
    """A folder whose description of the run is something else."""
    Path("saved").mkdir(exist_ok=True)
    Path("saved/run.json").write_text(content, encoding="utf-8")


def without_the_lock(path, *arguments, really=os.open, **options):
    """Files are opened, but for the lock of a folder."""
    if Path(path).name == LOCK_FILE:
        raise PermissionError(errno.EACCES, "Permission denied")
    return really(path, *arguments, **options)


def damaged_feature():
    """A folder that holds a run, and a feature that nobody can read."""
    kept_run()
    min(Path("saved").glob("feature-*")).write_text("{}", encoding="utf-8")  # of the first feature


def part_of(result, **changed):
    """A result as a part of one of several arms."""
    return {name: part for name, part in result.items() if name != "format"} | changed


def without(frame, column):
    """A table of a result that lacks a column."""
    del frame["columns"][column], frame["types"][column]


def renamed(frame, column, name):
    """A table of a result with one more column."""
    for part in ("columns", "types"):
        frame[part][name] = frame[part][column]


def no_rows():
    """A table of a result that has no rows."""
    names = ("value", "outcome", "treated", "control", "witness")
    return {"index": [], "index_name": None, "types": dict.fromkeys(names, "float"), "columns": {n: [] for n in names}}


# Tables.
table("no treatment", lambda X, y, a: (X, y, None), file=False)
table("no outcome", lambda X, y, a: (X, None, a), file=False)
table("49 rows", lambda X, y, a: (X[:49], y[:49], a[:49]))
table("an empty table", lambda X, y, a: (X[:0], y[:0], a[:0]))
table("an array of one dimension", lambda X, y, a: (y, y, a), file=False)
table("a sparse matrix", lambda X, y, a: (csr_array(X[["age", "dose"]]), y, a), file=False)
table("rows of unequal length", lambda X, y, a: ([[1, 2], [3]] * 60, y, a), file=False)
table("columns of unequal length", lambda X, y, a: ({"age": X["age"], "dose": y[1:]}, y, a), file=False)
table("an outcome of two columns", lambda X, y, a: (X, X[["age", "dose"]], a), file=False)
table("an outcome of two dimensions", lambda X, y, a: (X, np.ones((N, 2)), a), file=False)
table("an outcome with another number of rows", lambda X, y, a: (X, y[1:], a), file=False)
table("an outcome in another order", lambda X, y, a: (X, pd.Series(y)[::-1], a), file=False)
table("an outcome of other rows", lambda X, y, a: (X, pd.Series(y).set_axis(np.arange(N) + 5), a), file=False)
table("two columns of the same name", lambda X, y, a: (X.set_axis(["age", "age", "sex"], axis=1), y, a))
table("columns 1 and '1'", lambda X, y, a: (X.set_axis([1, "1", "sex"], axis=1), y, a))
# Treatments.
arms("a treatment with one level", lambda a: 0 * a)
arms("a treatment with three levels", lambda a: np.array(["low", "mid", "high"] * 40))
arms("a numeric treatment", lambda a: np.linspace(0, 1, N))
arms("a treatment with missing values", lambda a: first(a.astype(float), 2, np.nan))
arms("labels that do not say which is treated", lambda a: pd.Series(np.where(a, "new", "old"), name="arm"))
table("an unknown label", rows={"treated": "pill"})
arms("labels of several types", lambda a: pd.Series(a).map({0: "no", 1: 1}).astype(object), file=False)
arms("19 treated rows", lambda a: (np.arange(N) < 19).astype(int))
# Several arms.
THREE = np.array(["low", "mid", "high"] * 40)
arms("labels that differ in capitals", lambda a: np.where(a, "drug", first(THREE, 60, "Drug")))
arms("a reference that is not there", lambda a: THREE, rows={"reference": "none"}, propensity="auto")
arms("one arm to compare", lambda a: THREE, rows={"arms": ["low"]}, propensity="auto")
arms("an arm that is not there", lambda a: THREE, rows={"arms": ["low", "none"]}, propensity="auto")
arms("the same arm twice", lambda a: THREE, rows={"arms": ["low", "LOW"]}, propensity="auto")
arms("a reference that is not compared", lambda a: THREE, rows={"arms": ["low", "mid"], "reference": "high"})
arms("a treated arm of several", lambda a: THREE, rows={"reference": "low", "treated": "high"}, propensity="auto")
arms("the reference as treated", lambda a: np.where(a, "drug", "none"), rows={"reference": "drug", "treated": "drug"})
arms("an arm of a few rows", lambda a: first(THREE, 12, "none"), rows={"reference": "low"}, propensity="auto")
arms("one probability for several arms", lambda a: THREE, rows={"reference": "low"})
SHARED = {"rows": {"reference": "low"}, "propensity": {"low": 0.5, "mid": 0.25, "high": 0.2}}
arms("shares that do not add up", lambda a: THREE, **SHARED, typed=["--propensity", "low=0.5,mid=0.25,high=0.2"])
SHARED = {"rows": {"reference": "low"}, "propensity": {"low": 0.5, "mid": 0.5}}
arms("an arm without a share", lambda a: THREE, **SHARED, typed=["--propensity", "low=0.5,mid=0.5"])
SHARED = {"rows": {"reference": "low"}, "propensity": {"low": 1.5, "mid": 0.25, "high": -0.75}}
arms("invalid shares", lambda a: THREE, **SHARED, typed=["--propensity", "low=1.5,mid=0.25,high=-0.75"])
SHARED = {"rows": {"reference": "low"}, "propensity": {"low": 0.5, "none": 0.5}}
arms("a share of no arm", lambda a: THREE, **SHARED, typed=["--propensity", "low=0.5,none=0.5"])
command("a share that is not a number", "--propensity", "drug=half,placebo=half")
# The design.
table("an unknown design", design="trial", file=False)
table("an observational study with a known share", design="observational", typed=["--observational"])
table(
    "an observational study with strata", rows={"strata": EVEN}, design="observational", propensity="auto", file=False
)
table("a trial with fitted scores", design="randomised", propensity="mlp", file=False)
command("a share beside a propensity", "--randomised", "0.5")
command("a share of 50", "--propensity", "auto", "--randomised", "50")
command("both designs", "--propensity", "auto", "--randomised", "--observational")
# Outcomes.
outcome("a constant outcome", lambda y: 0 * y + 2)
outcome("an outcome of words", lambda y: np.where(y > 0, "good", "bad"))
outcome("an outcome of numbers and words", lambda y: first(y, 2, "unknown"))
outcome("an outcome with a unit", lambda y: [f"{value} mg" for value in y])
outcome("an outcome of percentages", lambda y: [f"{value}%" for value in y])
outcome("an outcome with decimal commas", lambda y: [f"{value}".replace(".", ",") for value in y])
outcome("an outcome of dates", lambda y: pd.Series(DAYS))
outcome("an outcome of durations", lambda y: pd.Series(DAYS - DAYS[0]), file=False)
outcome("an outcome beyond 1e150", lambda y: 1e200 * y)
outcome("a missing and an infinite outcome", lambda y: np.r_[np.nan, np.inf, y[2:]])
outcome("missing outcomes", lambda y: pd.Series(np.where(np.arange(N) < 30, np.nan, y), name="change"))
outcome("one missing outcome", lambda y: pd.Series(np.r_[np.nan, y[1:]], name="change"))
outcome("missing outcomes left out", lambda y: np.where(np.arange(N) < 30, np.nan, y), missing_outcome="drop")
outcome("missing outcomes reweighted", lambda y: np.where(np.arange(N) < 30, np.nan, y), missing_outcome="weight")
outcome("too few missing outcomes to reweight", lambda y: np.r_[np.nan, y[1:]], missing_outcome="weight")
outcome("the logarithm of a negative outcome", lambda y: y, outcome_transform="log", typed=["--log-outcome"])
outcome("a skewed positive outcome", lambda y: np.exp(1.5 * y))
outcome("an outcome with many zeros", lambda y: np.where(y < 0, 0.0, y))
outcome("a count", lambda y: np.random.default_rng(0).poisson(2.5, N))
outcome("a count without zeros", lambda y: 1 + np.random.default_rng(0).poisson(2.5, N))
outcome(
    "a count in which one row has nearly all",
    lambda y: np.append(np.random.default_rng(0).poisson(1.0, N - 1), 10_000),
    outcome="count",
    effect_scale="ratio",
)
outcome("a count with fractions", lambda y: np.abs(y), outcome="count")
outcome("a count below zero", lambda y: np.rint(3 * y), outcome="count")
outcome("a binary outcome of three values", lambda y: np.arange(N) % 3, outcome="binary")
outcome("ratios of a negative outcome", lambda y: y, effect_scale="ratio")
table("ratios where an arm has no outcome", lambda X, y, a: (X, a * (np.arange(N) % 3 == 0), a), effect_scale="ratio")
table(
    "odds where an arm has nothing else",
    lambda X, y, a: (X, np.maximum(a, np.arange(N) % 3 == 0), a),
    effect_scale="odds_ratio",
)
outcome("odds of a number", lambda y: y, effect_scale="odds_ratio")
outcome("ordered levels on another scale", lambda y: np.arange(N) % 5, outcome="ordinal")
outcome("eleven ordered levels", lambda y: np.arange(N) % 11, outcome="ordinal", effect_scale="odds_ratio")
outcome("amounts below zero", lambda y: y, outcome="amount")
outcome("amounts without a zero", lambda y: np.abs(y) + 1, outcome="amount")
outcome("an unknown kind of outcome", lambda y: y, outcome="survival")
outcome("an unknown effect scale", lambda y: y, effect_scale="log")
outcome(
    *("ratios of logarithms", lambda y: np.exp(y)),
    **{"outcome_transform": "log", "effect_scale": "ratio", "typed": ["--log-outcome", "--effect-scale", "ratio"]},
)
outcome("ratios of a statistic without a scale", lambda y: np.exp(y / 9), statistic="wcmmd", effect_scale="ratio")
outcome("an outcome with a code for missing", lambda y: np.r_[-999.0, y[1:]])
table("the treatment under the name of an outcome", lambda X, y, a: (X, 3 - 2 * a, a))
outcome("three events", lambda y: (np.arange(N) < 3).astype(int))
table("an outcome that one arm has alone", lambda X, y, a: (X, np.where(a == 1, np.abs(y), 0.0), a))
outcome("an outcome with apostrophes between thousands", lambda y: [f"{k:,}".replace(",", "'") for k in DOLLARS])
# Columns that are no features.
column("missing values", first(NUMBERS.astype(float), 3, np.nan))
column("an infinite value", first(NUMBERS.astype(float), 1, np.inf))
column("a category that is infinite", pd.Categorical(first(NUMBERS % 3 + 0.5, 30, np.inf)), file=False)
column("missing values left out", first(NUMBERS.astype(float), 30, np.nan), missing="drop")
column("a missing value in every row", np.nan, missing="drop")
column("hardly any value", first(NUMBERS.astype(float), 105, np.nan), missing="category")
column(
    "levels that are called missing",
    first(first(WORDS, 40, "missing"), 20, "missing (no value)").where(np.arange(N) > 9),
    missing="category",
)
column("dates", DAYS)
column("durations", DAYS - DAYS[0], file=False)
column("dates as text", DAYS.strftime("%d.%m.%Y"))
column("complex numbers", NUMBERS + 1j, file=False)
column("lists", pd.Series([[1, 2]] * N), file=False)
column("mixed types", pd.Series([True, "no", 3] * 40), file=False)
column("numbers and a word, as text", first(NUMBERS.astype(str), 3, "unknown"))
column("numbers and a word, as objects", first(NUMBERS, 3, "unknown"), file=False)
column("numbers with decimal commas", [f"{k},5" for k in NUMBERS])
column("numbers as text", NUMBERS.astype(str), file=False)
column("identifiers beyond 2^53", 2**60 + np.arange(N))
column("an identifier in no order", np.random.default_rng(3).permutation(N))
column("numbers with apostrophes between thousands", [f"{k:,}".replace(",", "'") for k in DOLLARS])
column("values beyond 1e150", 1e200 * NUMBERS)
# Leaks.
column("the treatment under another name", lambda X, y, a: np.where(a == 1, "given", "not given"))
column("a dose that only treated rows have", lambda X, y, a: np.where(a == 1, 5 + X["dose"].abs(), 0.0))
column("the outcome in other units", lambda X, y, a: 2.54 * y + 1)
column("the outcome with its sign lost", lambda X, y, a: y**2)
table("a column that makes a difference of the outcome", lambda X, y, a: (X.assign(later=X["age"] + y), y, a))
table(
    "a column that makes nearly a difference of the outcome",
    lambda X, y, a: (X.assign(later=(X["age"] + 4 * y).round()), 4 * y, a),
)
column(
    "two features that together give the treatment",
    lambda X, y, a: np.where(a == 1, 9.0, -9.0) - X["dose"] * 5 + X["age"] / 10,
    propensity="auto",
    rows={"features": ["age", "dose", "sex", "extra"]},
)
# Columns that are warned of.
column("a constant column", 1.0)
column("the same column in other units", lambda X, y, a: X["age"] * 12)
column("a relabelled column", lambda X, y, a: X["sex"].map({"f": 1, "m": 0}))
column("a sum of two columns", lambda X, y, a: X["age"] + X["dose"])
column("nearly a function of others", lambda X, y, a: (X["age"] + X["dose"]).round(1))
column("999 among ages", first(NUMBERS, 6, 999))
column("-9 in two rows of ages", first(NUMBERS, 2, -9))
column("levels that look alike", np.array(["male", "Male ", "female"] * 40))
column("7 and 9 after 1 and 2", first(rng.integers(1, 3, N), 6, [7, 9, 9, 7, 9, 9]))
column("row numbers", np.arange(N))
column("an identifier of every row", [f"p{k}" for k in range(N)])
column("rare levels", first(first(WORDS, 6, "rare"), 2, "rarer"))
column("a level that hardly any row has", first(np.full(N, "no"), 3, "yes"))
table(
    "columns with one value per clinic",
    lambda X, y, a: (X.assign(beds=BEDS[EVEN // 3], staff=STAFF[EVEN // 3]), y, a),
)
# Rows that belong together.
table("the same features twice", lambda X, y, a: (X.iloc[EVEN].reset_index(drop=True), y, a))
table("two rows per patient", lambda X, y, a: (X.iloc[EVEN].reset_index(drop=True).assign(patient=EVEN), y, a))
command("an identifier left out", "--exclude", "key", change=lambda frame: frame.iloc[EVEN].assign(key=EVEN))
# Weights, clusters and strata.
table("weights as text", rows={"sample_weight": np.full(N, "heavy")})
table("weights as objects", rows={"sample_weight": pd.Series([1, "heavy"] * 60, dtype=object)}, file=False)
table("a missing weight", rows={"sample_weight": first(NUMBERS.astype(float), 1, np.nan)})
table("a negative weight", rows={"sample_weight": first(NUMBERS, 1, -1)})
table("weights of zero", rows={"sample_weight": np.zeros(N)})
table("some weights of zero", rows={"sample_weight": first(NUMBERS, 10, 0)})
table("weights beyond 1e100", rows={"sample_weight": 1e120 * NUMBERS})
table("weights of resampled features", rows={"sample_weight": NUMBERS}, statistic="wcmmd", n_resamples=20)
table("a missing cluster", rows={"clusters": first(EVEN.astype(float), 2, np.nan)})
table("five clusters", rows={"clusters": np.arange(N) % 5})
table("twenty clusters", rows={"clusters": np.arange(N) % 20})
table(
    "an arm in one cluster",
    lambda X, y, a: (X, y, (np.arange(N) < 60).astype(int)),
    rows={"clusters": np.r_[np.zeros(60), np.arange(60)]},
)
table("a sampler that knows no clusters", rows={"clusters": np.arange(N) % 20}, file=False, sampler=OwnSampler())
table("a sampler that knows no weights", rows={"sample_weight": NUMBERS}, file=False, sampler=OwnSampler())
table(
    "a classifier that knows no weights",
    rows={"sample_weight": NUMBERS},
    file=False,
    propensity=KNeighborsClassifier(),
)
table(
    "a learner that knows no weights",
    rows={"sample_weight": NUMBERS},
    file=False,
    statistic=EffectLikelihood(KNeighborsRegressor()),
)
table("a missing stratum", rows={"strata": first(WORDS, 1, "").replace("", None)})
table("one stratum", rows={"strata": np.full(N, "north")})
table("a stratum of a few rows", rows={"strata": first(WORDS, 4, "w")})
table("the strata as a feature", lambda X, y, a: (X.assign(extra=WORDS), y, a), rows={"strata": WORDS})
# Settings.
table("alpha out of range", alpha=1.5)
table("an unknown adjustment", adjust="fdr")
table("an unknown statistic", statistic="mmd")
table("a misspelt sampler", sampler="gausian")
table("a class in place of a sampler", file=False, sampler=OwnSampler)
table("a sampler without its methods", file=False, sampler=KNeighborsRegressor())
table("an unknown treatment of missing values", missing="fill")
table("an unknown treatment of missing outcomes", missing_outcome="fill")
table("one fold", cv=1, file=False)
table("a negative seed", random_state=-1)
table("an unknown column in discrete_features", discrete_features=["weight"])
table("discrete_features as one name", discrete_features="sex", file=False)
table("a mask of another length", discrete_features=[True, False], file=False)
table("adjust_for as one name", rows={"adjust_for": "sex"}, file=False)
table("a propensity of 1", propensity=1.0)
table(
    "scores for other rows than those kept",
    lambda X, y, a: (X, np.r_[np.nan, y[1:]], a),
    missing_outcome="drop",
    propensity=np.full(50, 0.5),
    file=False,
)
table("a known probability that does not fit the arms", propensity=0.8)
SHARED = lambda X, y, a: X["dose"] + 2 * a + np.sin(np.arange(N))  # noqa: E731
column("a column that the treatment moved", SHARED, "week20")
column("the same where no design is declared", SHARED, "week20", propensity="auto")
column("the same where it is named", SHARED, "week20", rows={"adjust_for": ["week20"]})
column("a column that nearly equals the outcome", lambda X, y, a: (y + 0.1 * np.sin(np.arange(N))).round(3), "later")
table(
    "a time and the flag of its event",
    lambda X, y, a: (X.assign(status=np.arange(N) % 3 // 2), pd.Series(np.abs(y) + 0.1, name="survival"), a),
    file=False,
)
command(
    "an event beside the time that is analysed, though it is excluded",
    "--outcome=tijd",
    "--exclude=overleden",
    change=lambda frame: frame.assign(tijd=frame["change"].abs() + 0.1, overleden=np.arange(N) % 3 // 2),
)
command(
    "a time beside the event that is analysed",
    "--outcome=died",
    "--exclude=futime",
    change=lambda frame: frame.assign(futime=frame["change"].abs() + 0.1, died=np.arange(N) % 3 // 2),
)
command(
    "an event indicator as the outcome",
    "--outcome=censored",
    change=lambda frame: frame.assign(censored=np.arange(N) % 3 // 2),
)
table(
    "an outcome that is named like a time to an event",
    lambda X, y, a: (X, pd.Series(np.abs(y) + 0.1, name="time_to_relapse"), a),
    file=False,
)
table(
    "what may be an event flag beside a time",
    lambda X, y, a: (X.assign(heart_failure=np.arange(N) % 3 // 2), pd.Series(np.abs(y) + 0.1, name="survival"), a),
    file=False,
)
table(
    "the outcome before the treatment",
    lambda X, y, a: (X.assign(change_0=y + 2 * rng.normal(size=N)), pd.Series(y, name="change"), a),
)
table("a sampler that ignores the other features", sampler="marginal")
table("nothing left to test", rows={"adjust_for": ["age", "dose", "sex"]})
table("an unknown population", population="treated")
table("an unknown direction of better outcomes", better="more")
table("a unit that is not text", unit=5, file=False)
# Checkpoints.
table("a checkpoint without a name", checkpoint="")
table("a checkpoint of another run", **OTHER_RUN)
table("a checkpoint where no folder can be", checkpoint="table.csv/saved", prepare=lambda: Path("table.csv").touch())
for what, content in (
    ("a run that is not JSON", "{"),
    ("a run that is not an object", "[]"),
    ("a run without its parts", "{}"),
    ("a run with a negative seed", json.dumps(PARTS | {"seed": -1})),
):
    table(what, checkpoint="saved", prepare=functools.partial(damaged_run, content))
table(
    "a checkpoint that cannot be written",
    checkpoint="saved",
    patch=lambda machine: machine.setattr(os, "open", without_the_lock),
)
table("a damaged feature of a run", checkpoint="saved", prepare=damaged_feature, file=False)
# A family of one's own.
table("a family as a class", file=False, outcome=StudentT)
table("a family that is none", file=False, outcome=SimpleNamespace(**dict.fromkeys(Family.__abstractmethods__, print)))
table("a family without its methods", file=False, outcome=OwnSampler())
table("a family of an unknown kind", file=False, outcome=changed_family(kind="times"))
table("a family without a name", file=False, outcome=changed_family(name=None))
table("a family on another scale", file=False, outcome=StudentT(), effect_scale="ratio")
# Names of columns.
names("an outcome that is no column", outcome="Change")
names("outcome as values", outcome=[1.0, 2.0])
names("both y and outcome", y="change")
names("the treatment as outcome", outcome="arm")
names("the outcome among the features", features=["age", "change"])
names("a column named both to test and to adjust for", features=["age"], adjust_for=["age"])
names("features as one name", features="age")
names("no features", features=[])
names("a feature that is no column", features=["aeg"])
names("a feature twice", features=["age", "age"])
names("all columns adjusted for", adjust_for=["age", "dose", "sex"])
names("names of an array", change=lambda frame: frame.to_numpy())
names("dates in no role", change=lambda frame: frame.assign(visit=DAYS), features=["age"])
names("an identifier as a feature", lambda frame: frame.assign(id=[f"p{k}" for k in range(N)]), features=["age", "id"])
names("a file and values", change=written, treatment=[0, 1])
names("a source and names", change=lambda frame: FrameSource.of(frame[["age"]], frame["change"], frame["arm"]))
# Files of results.
saved("a file that is not JSON", b"{")
saved("a file that is not UTF-8", b"\xff\xfe")
saved("a file nested too deeply", b"[" * 100_000)
saved("a number that JSON lacks", b'{"format": NaN}')
saved("a file of something else", {"name": "trial"})
saved("a result of a later version", {"format": "modifind-result-7"})
saved("a selected feature without a p-value", untested_selection)
saved("half a result", {"format": "modifind-result-1"})
saved("a result with a feature twice", lambda data: data["table"].update(index=["age", "age", "sex"]))
saved("a result with features in another order", lambda data: data["diagnostics"]["index"].reverse())
saved("a result without a curve", lambda data: data["curves"].pop("age") and None)
saved("a result with a group of unknown columns", lambda data: data["table"]["columns"]["kind"].__setitem__(0, "group"))
saved("a result with a curve of nothing", lambda data: data["curves"].update(height=data["curves"]["age"]))
saved("a result with text as a p-value", lambda data: data["table"]["columns"]["p_value"].__setitem__(0, "small"))
saved("a result without a column", lambda data: data["table"]["columns"].pop("p_value") and None)
saved("a result with a column too short", lambda data: data["table"]["columns"]["p_value"].pop() and None)
saved("a result without p-values", lambda data: without(data["table"], "p_value"))
saved("a result with a curve without values", lambda data: without(data["curves"]["age"], "value"))
saved("a result with half an interval", lambda data: renamed(data["curves"]["age"], "d2", "d2_low"))
saved("a result with checks of nothing", lambda data: without(data["checks"], "feature"))
saved("a result with densities of nothing", lambda data: data["densities"].update(height=no_rows()))
saved("a result with densities of no rows", lambda data: data["densities"].update(age=no_rows()))
saved("a result with a test of nothing", lambda data: data["tests"]["index"].__setitem__(0, "median"))
saved("a result with half a placebo", lambda data: data.update(placebo={}))
saved("a result whose contrast has contrasts", lambda r: r.update(by_arm={"drug": part_of(r, by_arm={})}))
saved("a result whose contrast is damaged", lambda r: r.update(by_arm={"drug": part_of(r, settings={})}))
saved("a result with a part of another kind", lambda data: data.update(plots=[]))
saved("a result with a number too large", lambda data: data["diagnostics"]["columns"].update(n_repeats=[2**64] * 3))
# Options.
command("no such file", file="nothing.parquet")
command("no such files", "--stream", file="part-*.csv")
CASES.append(Case("a folder in place of a file", *in_a_folder()))
command("a file of another kind", file="table.xlsx")
command("an unknown column", "--features", "weight")
command("an unknown treatment", "--treatment", "group")
command("a misspelt outcome", "--outcome", "Change")
command("an option without a column", "--features", "")
command("the outcome as treatment", "--treatment", "change")
command("the outcome as a feature", "--features", "age,change")
command("a column tested and adjusted for", "--features", "age", "--adjust-for", "age")
command("a column adjusted for and left out", "--adjust-for", "age", "--exclude", "age")
command("an excluded column as categories", "--exclude", "age", "--discrete", "age")
command("dates that nobody named", "--features", "age", change=lambda frame: frame.assign(visit=DAYS))
command(
    "an identifier to test",
    "--features",
    "age,id",
    change=lambda frame: frame.assign(id=np.random.default_rng(3).permutation(N)),
)
command("labels 1 and 2", change=lambda frame: frame.assign(arm=np.where(frame["arm"] == "drug", 1, 2)))
command("an invalid propensity", "--propensity", "dos")
command("a group without columns", "--feature-group", "size")
command("two groups of one name", "--feature-group", "size=age,dose", "--feature-group", "size=age,sex")
command("a group of an unknown column", "--feature-group", "size=age,dos")
command("resamples that are not a number", "--resamples", "many")
command("a learner of another statistic", "--statistic", "wcmmd")
command("an unknown preset", "--preset", "uai2023", "--learner", "auto")
command("a preset and a sampler", "--preset", "uai2022", "--learner", "auto")
command(
    *("a preset and known scores", "--preset", "uai2022", "--learner", "auto", "--propensity", "score"),
    change=lambda frame: frame.assign(score=0.5),
)
command("a stream on a cluster", "--stream", "--dask", "local")
command("a dry run of a stream", "--stream", "--dry-run")
command("weights of a stream", "--stream", "--weight", "w", change=lambda frame: frame.assign(w=-1.0))
command("streamed: the outcome as text", "--stream", change=lambda frame: frame.assign(change="high"))
command("streamed: an identifier", "--stream", change=lambda frame: frame.assign(id=[f"p{k}" for k in range(N)]))
command("a wrong ending of the result", "--out", "result.txt")
command("figures in an unknown format", "--figures", "figures", "--figure-format", "bmp")
command("figures where a file is", "--figures", "table.csv")
command("the table as the result", "--out", "table.csv")
command("a folder as the result", "--out", "folder.csv", prepare=lambda: Path("folder.csv").mkdir())
command("a result that ends in a slash", "--out", "result.json/")
command("a result where no folder can be", "--out", "table.csv/result.json")
command(
    *("a result that is write-protected", "--out", "result.json"),
    prepare=lambda: Path("result.json").touch(),
    patch=lambda machine: machine.setattr(os, "access", lambda path, mode: mode != os.W_OK),
)
command(
    *("a result on a disk that is full", "--out", "result.json"),
    patch=lambda machine: machine.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=8192)),
)
other(
    *("Parquet without pyarrow, written", "simulate", "LinMean", "--out", "data.parquet"),
    patch=lambda machine: machine.setitem(sys.modules, "pyarrow", None),
)
other("no placebo treatments", "placebo", "table.csv", "--treatment", "arm", "--outcome", "change", "--n", "0")
other("a report of no file", "report", "nothing.json")
other("runs that are not a number", "reproduce", "fig-runtime", "--runs", "few")
other("no runs", "reproduce", "fig-runtime", "--runs", "0")
other("runs that are given twice", "reproduce", "fig-runtime", "--runs", "5,8")
# Files of text.
command("lines of one field more than the header", write=lambda frame: frame.to_csv().removeprefix(","))
command("streamed: the same", "--stream", write=lambda frame: frame.to_csv().removeprefix(","))
command("separators at the end of lines", write=lambda frame: lines_of(frame).replace("\n", ",\n"))
command("a separator at the end of a line", write=lambda frame: lines_of(frame).replace("drug\n", "drug,\n", 1))
command(
    "one value behind separators at the end of lines",
    write=lambda frame: lines_of(frame).replace("\n", ",\n")[:-1] + "7\n",
)
command("a line of one field less", write=lambda frame: frame.to_csv(index=False).replace(",drug", "", 1))
command("row names that are not there", "--row-names")
command("an empty file", write=lambda frame: "")
command("an index without a name", write=lambda frame: frame.to_csv())
command("a column without a name", write=lambda frame: frame.to_csv(index=False).replace("dose", "", 1))
command("a column twice", write=lambda frame: frame.rename(columns={"dose": "age"}).to_csv(index=False))
command("a column twice, in Parquet", file="table.parquet", change=lambda frame: frame.rename_axis("age"))
command("blanks around names", change=lambda frame: frame.rename(columns={"age": " age"}))
command("semicolons and decimal commas", write=lambda frame: frame.to_csv(index=False, sep=";", decimal=","))
command(
    "decimal commas",
    "--separator",
    ";",
    write=lambda frame: frame.to_csv(index=False, sep=";", decimal=","),
)
command("decimal commas between commas", "--decimal", ",")
command(
    "points instead of decimal commas",
    "--separator",
    ";",
    "--decimal",
    ",",
    write=lambda f: f.to_csv(index=False, sep=";"),
)
command(
    "points between thousands",
    "--separator",
    ";",
    write=lambda frame: lines_of(frame.assign(cost=[f"{k:,}".replace(",", ".") for k in DOLLARS])).replace(",", ";"),
)
command("a line for a spreadsheet", write=lambda frame: "sep=;\n" + frame.to_csv(index=False, sep=";"))
command("Parquet in a file of text", write=lambda frame: frame.to_parquet())
command("gzip in a file of text", write=lambda frame: gzip.compress(frame.to_csv().encode()))
command("Latin-1", write=lambda frame: frame.rename(columns={"dose": "Größe"}).to_csv(index=False).encode("latin-1"))
command("UTF-16 without a mark", write=lambda frame: frame.to_csv(index=False).encode("utf-16-le"))
command("a separator of two characters", "--separator", "::")
command("an invalid decimal mark", "--decimal", "comma")
command("an unknown encoding", "--encoding", "ebcdic")
command(
    "Parquet without pyarrow, read",
    file="table.parquet",
    patch=lambda machine: machine.setitem(sys.modules, "pyarrow.parquet", None),
)
command(
    "zst without zstandard",
    file="table.csv.zst",
    patch=lambda machine: [machine.setitem(sys.modules, name, None) for name in ("compression.zstd", "zstandard")],
)
command("an archive of nothing", file="table.csv.zip", write=lambda frame: b"PK\5\6" + bytes(18))
table("groups with a sampler of one's own", file=False, sampler=OwnSampler(), feature_groups={"both": ["age", "dose"]})


def twice(X, y, treatment):
    return pd.concat((X, X), ignore_index=True), np.tile(y, 2), np.tile(treatment, 2)


LONG = {"change": twice, "max_train_rows": 200, "file": False}
table("an estimator that needs all rows at once", statistic=WCMMD("exact"), **LONG)
table("a device that needs all rows at once", statistic=WCMMD(device="torch:cpu"), **LONG)
table("an invalid quantile of weights", file=False, statistic=WCMMD(weight_quantile=86.0))


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def cells(case, capsys):
    """What happens, and the messages; nothing in place of one that there is none of."""
    kind, raised = case.raised() if case.python else (None, NOTHING)
    typed_kind, printed = case.printed(capsys) if case.command else (None, NOTHING)
    kinds = [own for own in (kind, typed_kind) if own is not None]
    return [" / ".join(dict.fromkeys(kinds)), raised, printed]


def row(number, case, capsys):
    found = [text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*") for text in cells(case, capsys)]
    return f"| {number} | {case.what} | {' | '.join(found)} |"


def shown():
    return [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ") and line[2].isdigit()
    ]


@pytest.mark.parametrize("case", [case for case in CASES if case.python], ids=lambda case: case.what)
def test_messages_obey_nothing_that_is_in_a_name(case, monkeypatch):
    """Escape codes and changes of direction in the names of columns are written out in every message."""
    result()  # of plain names
    fit, codes = ModifierSelector.fit, "\x1b[31m\u202e\x07"

    def hostile(self, X, y=None, treatment=None, **rows):
        X = X.rename(columns=lambda name: f"{name}{codes}") if isinstance(X, pd.DataFrame) else X
        y = pd.Series(y, name=f"y{codes}") if y is not None and np.ndim(y) == 1 else y
        if isinstance(treatment, str):
            treatment = f"{treatment}{codes}"
        elif treatment is not None:
            treatment = pd.Series(treatment, name=f"arm{codes}")
        for argument, named in rows.items():
            if isinstance(named, str):
                rows[argument] = f"{named}{codes}"
            elif argument in ("features", "adjust_for"):
                rows[argument] = [f"{own}{codes}" for own in named]
        return fit(self, X, y, treatment=treatment, **rows)

    monkeypatch.setattr(ModifierSelector, "fit", hostile)
    assert case.raised()[1].isprintable()


# Words of Python that nobody can type.
ARGUMENTS = (
    *("sample_weight", "max_train_rows", "feature_groups", "discrete_features", "n_resamples", "n_jobs"),
    *("random_state", "outcome_transform", "check_resamples", "cv_repeats", "placebo_runs"),
    *("effect_scale", "ModifierSelector", "EffectLikelihood", "WCMMD", "DataFrame", "command line"),
    *(r"(?<!['\w])(?:X|y)(?!['\w])", r"\b(?!pressure|preset|label|placebo|drug)[a-z_]+=(?:['\"\w]|$)"),
)


@pytest.mark.skipif(WRITE, reason="the page is being written")
@pytest.mark.parametrize("number", range(1, len(CASES) + 1))
def test_message_is_the_one_in_the_docs(number, capsys):
    case = CASES[number - 1]
    found = row(number, case, capsys)
    assert found == shown()[number - 1]
    assert "|  |" not in found, "nothing was said"
    typed = found.split(" | ")[-1]
    assert not [argument for argument in ARGUMENTS if re.search(argument, typed)], typed


def test_page_has_every_case(tmp_path, capsys):
    if WRITE:
        rows = []
        for number, case in enumerate(CASES, start=1):
            (own := tmp_path / str(number)).mkdir()
            os.chdir(own)
            rows.append(row(number, case, capsys))
        PAGE.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8", newline="\n")
    assert len(shown()) == len(CASES)
    assert PAGE.read_text(encoding="utf-8").startswith(HEAD)


# Where users are told what is wrong with their tables, files and options.
READING = (
    *("data/*.py", "data/files/*.py", "engine/reading.py", "engine/preparation.py", "engine/checkpoint.py"),
    *("_system.py", "result/files.py", "result/settings.py", "result/presentation.py"),
    "statistics/families/*.py",
    "cli/*.py",
)
# Files and functions that tell of tables in pieces and on clusters, and of arguments.
OTHERS = (
    *("sources.py", "summary.py", "has_groups", "read_feature_groups", "refuse_adjusted", "check_population"),
    *("import_dask", "read_table", "_read_text", "_read_parquet", "_check_alike"),
    *("PreparedTable", "_within_clusters", "write_bytes", "warn_of_memory", "out_of_memory"),
)
# Messages of these that no case makes, each by how it begins in the source, and why.
UNSHOWN = {
    "--dry-run needs the table in memory; leave --dask out": "a cluster is slow to start; the next test",
    "checkpoint .* is in use by another run": "needs two processes; tests/engine/test_checkpoint.py",
    "cannot save to the checkpoint": "needs a disk that is full; tests/engine/test_checkpoint.py",
    "its check sum is wrong": "shown as a damaged file",
    "it has no check sum": "shown as a damaged file",
    "it is of something else": "shown as a damaged file",
    "no record can hold": "tells of a mistake in modifind",
    "expected .* items, found": "shown as a damaged file",
    "an array cannot be read": "shown as a damaged file",
    "y has a level, ": "needs a table in pieces; tests/statistics/test_families.py",
    "propensity must lie strictly between 0 and 1; ": "scores of a table in pieces; test_streaming_refusals.py",
    "column .* has values that it did not have": "needs a file that changes; tests/data/test_streaming_rows.py",
}


def said_in_source():
    """The messages of errors and warnings, by their place: patterns in which anything may stand for an expression."""
    source = Path(modifind.__file__).parent
    for path in sorted(found for pattern in READING for found in source.glob(pattern) if found.name not in OTHERS):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in (node for part in tree.body if getattr(part, "name", "") not in OTHERS for node in ast.walk(part)):
            call = node.exc if isinstance(node, ast.Raise) else node
            if isinstance(call, ast.Call) and call.args and re.search(r"Error$|warn$", ast.unparse(call.func)):
                yield f"{path.relative_to(source)}:{call.lineno}", _pattern(call.args[0])
            elif isinstance(call, ast.Call) and ast.unparse(call.func) in ("refuse_any", "warn_of_any"):
                yield f"{path.relative_to(source)}:{call.lineno}", _pattern(call.args[1]).replace(r"\{\}", ".*")


def _pattern(text):
    if isinstance(text, ast.Constant):
        return re.escape(text.value)
    if isinstance(text, ast.JoinedStr):
        return "".join(_pattern(part) for part in text.values)
    return _pattern(text.left) if isinstance(text, ast.BinOp) else ".*"


def test_every_refusal_and_warning_has_a_case():
    page = [re.sub(r"\\([|*])", r"\1", line).replace("&lt;", "<") for line in shown()]
    said = {place: re.sub(r"^(\.\*)+", "", pattern) for place, pattern in said_in_source()}
    unshown = {place: pattern for place, pattern in said.items() if not any(re.search(pattern, line) for line in page)}
    plain = {place: re.sub(r"\\(.)", r"\1", pattern) for place, pattern in unshown.items()}
    missing = {place: text for place, text in plain.items() if not text.startswith(tuple(UNSHOWN))}
    assert not missing, "a case in this file shows users what they will read"
    stale = [text for text in UNSHOWN if not any(own.startswith(text) for own in plain.values())]
    assert not stale, "these are shown, or gone"


def test_dry_runs_are_refused_on_a_cluster():
    roles = Roles(["age"], "change", "arm", [])
    with pytest.raises(ValueError, match=r"^--dry-run needs the table in memory; leave --dask out$"):
        print_dry_run(ModifierSelector(), SimpleNamespace(dask=None, npartitions=2), roles)


@pytest.mark.parametrize(
    ("message", "typed"),
    [
        ("y is constant (2); there is no effect to find", "the outcome 'change' is constant (2); there is no"),
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
