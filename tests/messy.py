"""Random tables as bad as people's tables are, and worse."""

from __future__ import annotations

import bz2
import datetime
import gzip
import lzma
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

# Most parts are sound or odd and few are refused, so that more tables are analysed than not.
NAMES = (
    *("age", "sex", "weight", "blood pressure", "x,y", "é ü 名", "<script>alert(1)</script>", "=1+1", "@cmd"),
    *("-x", "+x", "$x_1$", "$", "[red]b[/red]", "{{7*7}}", "a\nb", 'quo"te', "it's", "", " ", "nan", "None", "x" * 300),
    *("\x1b[31mred", "a\u202eb", "x;=cmd|' /C calc'!A0", "\0=1+1", "\ufeff=1+1", " blank ", "tab\there", "a|b;c"),
    *(0, 7, -1, 1.5, True, None, ("a", "b"), datetime.date(2020, 1, 1)),
)
SOUND = ("normal", "skewed", "rounded", "zero-inflated", "small integers", "two texts", "boolean", "categorical")
ODD = (
    *("constant", "all missing", "some missing", "text with missing", "copy", "relabelled", "sum", "identifier"),
    *("row number", "sentinel", "rare level", "heavy tails", "nullable", "nullable boolean", "decimal"),
    *("unused category", "one odd row", "bytes", "unicode"),
)
REFUSED = (
    *("infinite", "dates", "date text", "mixed", "numbers with a word", "huge", "tiny", "big integers", "nested"),
    *("complex", "timedelta", "treatment", "treatment shifted", "outcome", "outcome cubed"),
)
TREATMENTS = ("numbers", "texts", "booleans", "category", "one level", "three levels", "small arm", "missing", "floats")
OUTCOMES = (
    *(
        "normal",
        "binary",
        "counts",
        "zero-inflated",
        "skewed",
        "heavy tails",
        "constant",
        "text",
        "missing",
        "infinite",
    ),
    *("huge", "tiny", "nullable", "boolean", "constant in an arm", "separated"),
)
NONSENSE = (
    *({"statistic": "nonsense"}, {"sampler": "nonsense"}, {"missing": "nonsense"}, {"adjust": "nonsense"}),
    *({"alpha": 0.0}, {"alpha": -1.0}, {"alpha": "a"}, {"cv": 1}, {"cv": 2.5}, {"outcome_transform": "root"}),
    *({"propensity": "short"}, {"propensity": 0.0}, {"propensity": "nonsense"}, {"discrete_features": ["no column"]}),
)


@dataclass(frozen=True)
class MessyTable:
    """A table and the settings to analyse it with."""

    X: Any
    y: Any
    treatment: Any
    names: tuple[str, ...]
    fit: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def frame(self) -> pd.DataFrame:
        """The table as pandas has it."""
        return self.X if isinstance(self.X, pd.DataFrame) else pd.DataFrame(self.X)


def feature(kind: str, rng: np.random.Generator, n: int, arms: Any, y: Any, before: list[Any]) -> Any:
    """One column of a kind; `before` are the columns to the left of it."""
    normal = rng.normal(size=n)
    numeric = [column for column in before if getattr(column, "dtype", None) == np.float64]
    earlier = numeric[0] if numeric else normal
    words = np.array(["low", "middle", "high", "=SUM(A1)", "<b>"], dtype=object)[rng.integers(0, 3, n)]
    some = rng.random(n) < rng.choice([0.02, 0.2, 0.9])
    made: dict[str, Any] = {
        "normal": lambda: normal,
        "skewed": lambda: np.exp(2 * normal),
        "rounded": lambda: np.round(50 + 10 * normal),
        "zero-inflated": lambda: np.where(normal > 0, normal, 0.0),
        "small integers": lambda: rng.integers(0, 5, n),
        "two texts": lambda: np.where(normal > 0, "yes", "no").astype(object),
        "boolean": lambda: normal > 0,
        "categorical": lambda: pd.Categorical(words, categories=["high", "middle", "low"], ordered=bool(n % 2)),
        "constant": lambda: np.full(n, 3.0),
        "all missing": lambda: np.full(n, np.nan),
        "some missing": lambda: np.where(some, np.nan, normal),
        "text with missing": lambda: np.where(some, None, words),
        "infinite": lambda: np.where(some, np.inf, normal),
        "copy": lambda: 2.0 * earlier + 1.0,
        "relabelled": lambda: np.where(np.asarray(earlier, dtype=float) > 0, "b", "a").astype(object),
        "sum": lambda: earlier + (numeric[1] if len(numeric) > 1 else 0.0),
        "identifier": lambda: np.array([f"id-{k:05d}" for k in rng.permutation(n)], dtype=object),
        "row number": lambda: np.arange(1, n + 1),
        "dates": lambda: pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")),
        "date text": lambda: np.array([f"20{k % 20:02d}-0{k % 9 + 1}-1{k % 8}" for k in range(n)], dtype=object),
        "mixed": lambda: np.array([k if k % 2 else str(k) for k in range(n)], dtype=object),
        "numbers with a word": lambda: np.array(
            ["unknown" if k == n // 2 else f"{normal[k]:.3f}" for k in range(n)], dtype=object
        ),
        "sentinel": lambda: np.where(some, 999, rng.integers(0, 40, n)),
        "rare level": lambda: np.where(np.arange(n) < 2, "rare", np.where(normal > 0, "a", "b")).astype(object),
        "huge": lambda: normal * 1e200,
        "tiny": lambda: normal * 1e-200,
        "heavy tails": lambda: rng.standard_cauchy(n) ** 3,
        "big integers": lambda: 2**60 + rng.integers(0, 1000, n),
        "nullable": lambda: pd.Series(rng.integers(0, 50, n), dtype="Int64").mask(pd.Series(some)),
        "nullable boolean": lambda: pd.Series(normal > 0, dtype="boolean"),
        "decimal": lambda: np.array([Decimal(f"{v:.2f}") for v in normal], dtype=object),
        "nested": lambda: pd.Series([[k] for k in range(n)], dtype=object),
        "complex": lambda: normal + 1j,
        "timedelta": lambda: pd.Series(pd.to_timedelta(rng.integers(0, 99, n), unit="h")),
        "treatment": lambda: np.where(arms == 1, "x", "y").astype(object),
        "treatment shifted": lambda: arms * 10.0 + rng.random(n),
        "outcome": lambda: y,
        "outcome cubed": lambda: np.asarray(y, dtype=float) ** 3,
        "unused category": lambda: pd.Categorical(np.where(normal > 0, "a", "b"), categories=["a", "b", "c"]),
        "one odd row": lambda: np.where(np.arange(n) == 0, 1e9, np.round(normal)),
        "bytes": lambda: np.array([b"a" if v > 0 else b"b" for v in normal], dtype=object),
        "unicode": lambda: np.array(["ä\u202e" if v > 0 else "\x00" for v in normal], dtype=object),
    }
    try:
        return made[kind]()
    except (TypeError, ValueError):  # what it is made from is no number
        return normal


def treatment(kind: str, rng: np.random.Generator, n: int) -> tuple[np.ndarray, Any]:
    """Arms, and the column that says so."""
    arms = (rng.random(n) < 0.5).astype(int)
    if kind == "one level":
        return np.zeros(n, dtype=int), np.zeros(n)
    if kind == "small arm":
        arms = (np.arange(n) < 6).astype(int)
    texts = np.where(arms == 1, "drug", "placebo").astype(object)
    columns: dict[str, Any] = {
        "texts": texts,
        "booleans": arms == 1,
        "category": pd.Categorical(texts),
        "three levels": arms + (rng.random(n) < 0.3),
        "missing": np.where(rng.random(n) < 0.1, np.nan, arms.astype(float)),
        "floats": arms * 0.5,
    }
    return arms, columns.get(kind, arms)


def outcome(kind: str, rng: np.random.Generator, n: int, arms: np.ndarray) -> Any:
    """An outcome of a kind."""
    normal = rng.normal(size=n) + arms
    columns: dict[str, Any] = {
        "binary": (normal > 0).astype(int),
        "counts": rng.poisson(2, n),
        "zero-inflated": np.where(normal > 0.5, normal, 0.0),
        "skewed": np.exp(2 * normal),
        "heavy tails": rng.standard_cauchy(n),
        "constant": np.full(n, 2.5),
        "text": np.where(normal > 0, "well", "ill").astype(object),
        "missing": np.where(rng.random(n) < 0.1, np.nan, normal),
        "infinite": np.where(np.arange(n) == 1, -np.inf, normal),
        "huge": normal * 1e200,
        "tiny": normal * 1e-200,
        "nullable": pd.Series(np.round(normal * 10), dtype="Int64"),
        "boolean": normal > 0,
        "constant in an arm": np.where(arms == 1, normal, 0.0),
        "separated": normal + 1000.0 * arms,
    }
    return columns.get(kind, normal)


PACKED = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zip": lambda content: content,  # which is no archive
}


@dataclass(frozen=True)
class Written:
    """How a table is written as text, and the options that read it."""

    separator: str
    decimal: str
    encoding: str
    ending: str
    options: tuple[str, ...]

    def content(self, frame: pd.DataFrame) -> bytes:
        """The file's bytes."""
        text = frame.to_csv(index=False, sep=self.separator, decimal=self.decimal)
        packed = PACKED["." + self.ending.rsplit(".", 1)[-1] if self.ending.count(".") > 1 else ""]
        return packed(text.encode(self.encoding, errors="replace"))


@st.composite
def ways_of_writing(draw: Any) -> Written:
    """Dialects, encodings and compressions; one in eight files is read without the options that it needs."""
    separator, decimal = draw(mostly(((",", "."), (";", ","), ("\t", "."), ("|", ".")), ((" ", "."), (";", ".")), 3))
    encoding = draw(mostly(("utf-8", "utf-8-sig", "utf-16"), ("latin-1", "utf-16-le", "utf-32"), 3))
    ending = (".tsv" if separator == "\t" else ".csv") + draw(mostly(("", "", ".gz"), (".bz2", ".xz", ".zip"), 4))
    options = ["--separator", separator] if separator not in ",\t" else []
    options += ["--decimal", decimal] if separator == ";" else []
    options += ["--encoding", encoding] if encoding in ("latin-1", "utf-16-le") else []
    wrong = ([], ["--row-names"], ["--separator", "::"], ["--decimal", ","], ["--encoding", "latin-1"])
    options = draw(mostly((options,), wrong, 8)) + draw(mostly(([],), (["--stream"],), 3))
    return Written(separator, decimal, encoding, ending, tuple(options))


def mostly(sound: Any, unsound: Any, share: int) -> st.SearchStrategy[Any]:
    """One of the sound values, or once in `share` one of the others."""
    sound, unsound = list(sound), list(unsound)
    return st.sampled_from(sound * ((share - 1) * len(unsound)) + unsound * len(sound))


@st.composite
def messy_tables(draw: Any) -> MessyTable:
    """Tables with what makes them hard, and settings to analyse them with."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(mostly((60, 80, 100, 120, 139), (0, 1, 12, 49, 50), 15))
    n_columns = draw(mostly((1, 2, 3, 4, 5), (0,), 40))
    columns = st.sampled_from([*SOUND * 8, *ODD * 4, *REFUSED])
    kinds = draw(st.lists(columns, min_size=n_columns, max_size=n_columns))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=len(kinds), max_size=len(kinds), unique_by=str))
    if len(names) > 1 and draw(mostly((False,), (True,), 40)):
        names[1] = names[0]
    arms, column = treatment(draw(mostly(("numbers", "texts", "booleans", "category"), TREATMENTS, 12)), rng, n)
    y = outcome(draw(mostly(("normal", "binary", "counts", "skewed", "heavy tails"), OUTCOMES, 8)), rng, n, arms)
    made: list[Any] = []
    for kind in kinds:
        made.append(feature(kind, rng, n, arms, y, made))
    X: Any = pd.concat([pd.Series(c) for c in made], axis=1) if made else pd.DataFrame(index=range(n))
    X.columns = pd.Index(names, dtype=object)
    fit, settings = draw(fit_arguments(rng, n, X)), draw(selector_settings(rng, n, list(X.columns)))
    shown = tuple(map(str, names))
    container = draw(mostly(("frame",), ("array", "lists", "polars", "index"), 3))
    if container in ("array", "lists"):
        shown = tuple(f"x{k}" for k in range(len(names)))
        settings.pop("feature_groups", None)
        X = X.to_numpy() if container == "array" else X.to_numpy(dtype=object).tolist()
    elif container == "polars":
        X = as_polars(X)
    elif container == "index":
        X.index = rng.permutation(n)
    return MessyTable(X, y, column, shown, fit, settings)


def as_polars(X: pd.DataFrame) -> Any:
    """The table in polars where polars takes it."""
    try:
        import polars

        return polars.DataFrame({str(name): X.iloc[:, k].tolist() for k, name in enumerate(X.columns)}, strict=False)
    except Exception:
        return X


@st.composite
def fit_arguments(draw: Any, rng: np.random.Generator, n: int, X: pd.DataFrame) -> dict[str, Any]:
    """Arguments of `fit` beyond the data."""
    weights = {
        "positive": rng.gamma(2.0, size=n),
        "with zeros": np.where(rng.random(n) < 0.1, 0.0, 1.0),
        "negative": -np.ones(n),
        "short": np.ones(max(n - 1, 0)),
        "missing": np.full(n, np.nan),
    }
    labels = {
        "families": np.arange(n) // 3,
        "few": np.arange(n) % 3,
        "texts": np.array([f"g{k % 17}" for k in range(n)], dtype=object),
        "missing": np.where(np.arange(n) == 0, None, "a"),
    }
    sites = {"two": np.where(np.arange(n) % 2, "north", "south"), "many": np.arange(n) // 2, "one": np.zeros(n)}
    chosen: dict[str, Any] = {}
    for name, values, sound in (
        ("sample_weight", weights, "positive"),
        ("clusters", labels, "families"),
        ("strata", sites, "two"),
    ):
        kind = draw(mostly((None,), [sound] * 12 + list(values), 5))
        if kind is not None:
            chosen[name] = values[kind]
    return chosen


@st.composite
def selector_settings(draw: Any, rng: np.random.Generator, n: int, names: list[Any]) -> dict[str, Any]:
    """Settings of the selector, most of them meaningful."""
    settings: dict[str, Any] = {
        "statistic": draw(mostly(("linear",), ("splines", "wcmmd", "wcmmd"), 3)),
        "sampler": draw(mostly(("gaussian", "marginal"), ("auto", "boosting"), 5)),
        "missing": draw(mostly(("category", "drop"), ("error",), 6)),
        "adjust": draw(st.sampled_from(("bh", "by", "holm", "bonferroni", "none"))),
        "alpha": draw(mostly((0.05,), (0.5,), 4)),
        "cv": draw(mostly((2, 5), (30,), 6)),
        "outcome_transform": draw(mostly((None,), ("log",), 12)),
        "propensity": draw(mostly(("auto", 0.5), ("array", "mlp"), 6)),
        "discrete_features": draw(mostly(("auto",), ([], [0]), 6)),
    }
    settings |= draw(mostly(({},), NONSENSE, 12))
    arrays = {"array": rng.uniform(0.2, 0.8, n), "short": rng.uniform(0.2, 0.8, max(n - 1, 0))}
    settings["propensity"] = arrays.get(settings["propensity"], settings["propensity"])
    if len(names) > 1 and settings["statistic"] != "wcmmd" and draw(mostly((False,), (True,), 6)):
        good, bad = ({"both": names[:2]}, {"one": names[:1]}), ({"none": []}, {"a": ["no column"]}, ["a"])
        settings["feature_groups"] = draw(mostly(good, bad, 6))
    return settings
