"""Random tables with the names, sizes and columns that people's tables have, and cases of them to run.

A `Case` is one call in Python or one command on a file that is written to a temporary folder; a `Reply` is what came
of it. `planted_faults.py` plants faults in such tables, `clean_tables.py` leaves them as they are.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind import EffectLikelihood, ModifierSelector, SelectionResult
from modifind.cli.app import main

Rng = np.random.Generator
SIZES, OFTEN = (200, 300, 500, 800, 1500, 3000), (0.3, 0.3, 0.22, 0.1, 0.05, 0.03)
MAX_FEATURES, MAX_FEATURES_LONG = 20, 8  # of short tables, and of those of more than 500 rows
NUMBERS = (
    *("age", "bmi", "systolic_bp", "cholesterol", "HbA1c", "ferritin", "egfr", "crp", "haemoglobin", "heart_rate"),
    *("Alter", "Gewicht", "Größe", "Blutdruck", "Kreatinin", "Bildungsjahre", "Haushaltsgröße", "Einkommen_Tsd"),
    *("âge", "poids", "taille", "glycémie", "tension", "revenu", "edad", "peso", "altura", "ingresos", "colesterol"),
    *("leeftijd", "gewicht_kg", "lengte", "età", "pressione", "reddito", "ålder", "vikt", "wiek", "masa", "rooms"),
    *("distance km", "household size", "years.education", "prior-purchases", "income (k)", "test_a", "test_b"),
)
FLAGS = ("smoker", "diabetes", "Raucher", "fumeur", "diabético", "verheiratet", "urban", "hypertension", "roker")
CLASSES = ("region", "Bundesland", "profession", "Schulart", "estado civil", "regio", "blood_group", "tribu", "sector")
LEVELS = ("north", "south", "east", "west", "Köln", "Zürich", "île", "other", "A", "B", "AB", "rural", "alto", "bajo")
OUTCOMES = (
    *("pain", "wellbeing", "score_w12", "Schmerz", "Lebensqualität", "douleur", "qualité", "dolor", "wage", "Lohn"),
    *("salaire", "salario", "depression_6m", "reading", "maths_grade", "spending", "welzijn", "dolore", "smärta"),
)
TREATMENTS = ("treat", "arm", "drug", "Behandlung", "traitement", "tratamiento", "interventie", "grupp", "terapia")
LABELS = (("placebo", "drug"), ("control", "treated"), ("no", "yes"), ("usual care", "training"), ("control", "nudge"))
PERSONS = ("id", "patient_id", "PatID", "subject", "Patientennummer", "identifiant", "id_paciente", "usubjid", "pid")
CHEAP = {"sampler": "gaussian", "explain": False, "random_state": 0}
OPTIONS = {
    **{"clusters": "--clusters", "strata": "--strata", "sample_weight": "--weight", "propensity": "--propensity"},
    **{"features": "--features", "adjust_for": "--adjust-for", "exclude": "--exclude", "treated": "--treated"},
    **{"discrete_features": "--discrete", "missing": "--missing", "outcome_kind": "--outcome-kind"},
    **{"reference": "--reference", "effect_scale": "--effect-scale", "sampler": "--sampler"},
    **{"missing_outcome": "--missing-outcome"},
}
FIT = ("clusters", "strata", "sample_weight", "features", "adjust_for", "treated", "reference")
# Checks of models and of overlap: they judge fits, whatever the table, and accuse no column of being a fault.
OF_MODELS = frozenset(
    (
        *("common_support", "support_along", "effective_rows", "largest_weight", "outcome_weights", "clipped_scores"),
        *("conditional_along", "scores_fit", "conditional_fit", "conditional_gain", "tail", "resampled_p", "failed"),
    )
)


@dataclass
class Reply:
    """What came of a case: a refusal, or failing checks, notes and what was printed."""

    refused: str = ""
    failing: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    printed: str = ""
    crashed: str = ""
    result: SelectionResult | None = None
    caught: list[warnings.WarningMessage] = field(default_factory=list)

    @property
    def accusations(self) -> list[str]:
        """A refusal, or the failing validity checks that are not about models."""
        refused = [f"refused: {self.refused}"] if self.refused else []
        crashed = [f"crashed: {self.crashed}"] if self.crashed else []
        return crashed + refused + [f"{name}: {text}" for name, text in self.failing if name not in OF_MODELS]


@dataclass
class Case:
    """A table and what to do with it.

    Attributes
    ----------
    frame : DataFrame
        The table, with treatment and outcome.
    treatment, outcome : str
        Their columns.
    file : str
        "" for a call in Python, otherwise the ending of the file that a command reads: .csv, .ssv (semicolons) or
        .parquet.
    settings : dict
        Arguments of selector and fit, which `OPTIONS` translates for commands.
    options : sequence of str
        More of the command line.
    words : sequence of str
        Regular expressions that a message about the fault satisfies, all of them.
    note : bool
        Whether a note or a warning is enough.
    proof : callable, optional
        What else counts as reported, given the reply; the name of it, or "".
    call : callable, optional
        In place of a fit: a function of the selector, or of a folder where `file` is "folder".
    explain : bool
        Whether effects are estimated, where a proof looks at levels.
    """

    frame: pd.DataFrame
    treatment: str
    outcome: str
    file: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    options: Sequence[str] = ()
    words: Sequence[str] = ()
    note: bool = False
    proof: Callable[[Reply], str] | None = None
    call: Callable[[Any], Any] | None = None
    selector: Any = None
    explain: bool = False
    text: str | None = None

    def run(self, folder: Path) -> Reply:
        if self.file == "folder":
            assert self.call is not None
            return self.call(folder)
        return self._command(folder) if self.file else self._python()

    def _python(self) -> Reply:
        settings = dict(self.settings)
        frame = self.frame.drop(columns=settings.pop("exclude", []))
        fit = {name: settings.pop(name) for name in FIT if name in settings}
        if "outcome_kind" in settings:
            settings["outcome"] = settings.pop("outcome_kind")
        return replied(lambda: self._fitted(frame, settings, fit))

    def _fitted(self, frame: pd.DataFrame, settings: dict[str, Any], fit: dict[str, Any]) -> SelectionResult:
        cheap = {**CHEAP, "explain": self.explain, **settings}
        selector = self.selector or ModifierSelector(EffectLikelihood("linear"), **cheap)
        if self.call is not None:
            return self.call(selector)
        return selector.fit(frame, outcome=self.outcome, treatment=self.treatment, **fit).result_

    def _command(self, folder: Path) -> Reply:
        path = folder / f"table{self.file.replace('ssv', 'csv')}"
        if self.text is not None:
            path.write_text(self.text, encoding="utf-8")
        elif self.file == ".parquet":
            self.frame.to_parquet(path)
        else:
            self.frame.to_csv(path, index=False, sep=";" if self.file == ".ssv" else ",")
        cheap = ["--learner", "linear"] * ("--preset" not in self.options)
        cheap += ["--sampler", "gaussian"] * ("sampler" not in self.settings and "--preset" not in self.options)
        line = ["select", str(path), "--treatment", self.treatment, "--outcome", self.outcome, *cheap]
        line += ["--no-explain"] * (not self.explain) + ["--out", str(folder / "result.json")] * (
            "--out" not in self.options
        )
        line += ["--separator", ";"] * (self.file == ".ssv")
        for name, value in self.settings.items():
            line += _option(name, value)
        return commanded([*line, *self.options], folder / "result.json")


def _option(name: str, value: Any) -> list[str]:
    if name == "design":
        return [f"--{value}"]
    return [OPTIONS[name], ",".join(map(str, value)) if isinstance(value, list) else str(value)]


def replied(call: Callable[[], Any]) -> Reply:
    """What a call in Python came to; `call` gives a result or None."""
    reply = Reply()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            reply.result = call()
        except ValueError as error:
            reply.refused = str(error) or repr(error)
        except Exception as error:
            reply.crashed = f"{type(error).__name__}: {error}"
    reply.caught = [one for one in caught if issubclass(one.category, UserWarning)]
    reply.notes = [str(one.message) for one in reply.caught]
    return _with_checks(reply)


def commanded(line: list[str], out: Path) -> Reply:
    """What a command came to; `out` is the result that it writes, if it does."""
    out.unlink(missing_ok=True)
    reply, streams, arguments = Reply(), (io.StringIO(), io.StringIO()), sys.argv
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]), warnings.catch_warnings():
        sys.argv = ["modifind", *line]
        try:
            main()
        except SystemExit as end:
            code = end.code
        except Exception as error:
            code, reply.crashed = 1, f"{type(error).__name__}: {error}"
        finally:
            sys.argv = arguments
    reply.printed, said = streams[0].getvalue(), streams[1].getvalue()
    lines = [one.strip() for one in re.split(r"[\n\r]", said) if one.strip()]
    if code == 2:
        reply.refused = lines[-1].removeprefix("modifind: error: ") if lines else "exit code 2"
    reply.notes = [one for one in lines if one.startswith("modifind: warning: ")]
    if not code and out.is_file() and out.suffix == ".json":
        reply.result = SelectionResult.from_json(out)
    return _with_checks(reply)


def _with_checks(reply: Reply) -> Reply:
    if isinstance(reply.result, SelectionResult):
        failed = reply.result.checks[~reply.result.checks["passed"]]
        for row in failed.itertuples():
            text = f"{row.feature or ''} {row.text} {row.remedy}"
            reply.failing += [(row.name, text)] * bool(row.validity)
            reply.notes += [text] * (not row.validity)
        reply.notes += list(map(str, reply.result.warnings))
    return reply


@dataclass
class Drawn:
    """A random table without a fault: names of features, one of them at least with many values."""

    frame: pd.DataFrame
    treatment: str
    outcome: str
    numbers: list[str]
    others: list[str]

    @property
    def a(self) -> NDArray[np.int64]:
        return self.frame[self.treatment].to_numpy()

    @property
    def y(self) -> NDArray[np.float64]:
        return self.frame[self.outcome].to_numpy(np.float64, copy=True)

    @property
    def features(self) -> list[str]:
        return self.numbers + self.others

    def with_column(self, rng: Rng, name: str, values: Any) -> Drawn:
        """The same with a column at a random place."""
        frame = self.frame.copy()
        frame.insert(int(rng.integers(0, frame.shape[1] + 1)), name, values)
        return replace(self, frame=frame)

    def case(self, file: str, **more: Any) -> Case:
        return Case(self.frame, self.treatment, self.outcome, file, **more)


def draw(rng: Rng, n: int | None = None, d: int | None = None, share: float | None = None) -> Drawn:
    """A trial with a numeric outcome, or with the sizes that are given."""
    n = n or int(rng.choice(SIZES, p=OFTEN))
    d = d or int(rng.integers(4, 1 + (MAX_FEATURES if n <= 500 else MAX_FEATURES_LONG)))
    share = share or float(rng.choice([0.5, 0.5, 0.4, 0.67, 0.3]))
    n_numbers = max(2, d - int(rng.integers(0, min(d - 1, 5))))
    numbers = rng.choice(NUMBERS, min(n_numbers, len(NUMBERS)), replace=False).tolist()
    others = rng.choice([*FLAGS, *CLASSES], d - len(numbers), replace=False).tolist()
    columns = {name: number_column(rng, n) for name in numbers}
    columns |= {name: class_column(rng, n, name in FLAGS) for name in others}
    frame = pd.DataFrame(columns)[rng.permutation([*numbers, *others])]
    treatment, outcome = str(rng.choice(TREATMENTS)), str(rng.choice(OUTCOMES))
    a = permuted_arms(rng, n, share)
    first, second = (standard(frame[name]) for name in numbers[:2])
    y = 0.5 * first + 0.3 * second + 0.3 * a * (1 + 0.5 * second) + rng.normal(size=n)
    frame.insert(0, treatment, a)
    frame[outcome] = np.round(10 * y + 50, 2)
    return Drawn(frame, treatment, outcome, numbers, others)


def permuted_arms(rng: Rng, n: int, share: float) -> NDArray[np.int64]:
    return rng.permutation((np.arange(n) < round(share * n)).astype(np.int64))


def number_column(rng: Rng, n: int) -> NDArray[Any]:
    """Normal, skewed, rounded to years or tenths."""
    kind = int(rng.integers(0, 4))
    if kind == 0:
        return rng.normal(rng.uniform(2, 50), rng.uniform(0.5, 5), n)
    if kind == 1:
        return np.round(np.exp(rng.normal(rng.uniform(0, 3), 0.5, n)), 3)
    if kind == 2:
        return rng.integers(18, rng.integers(60, 90), n)
    return np.round(rng.normal(120, 15, n), 1)


def class_column(rng: Rng, n: int, flag: bool) -> NDArray[Any]:
    if flag:
        return (rng.random(n) < rng.uniform(0.2, 0.6)).astype(np.int64)
    levels = rng.choice(LEVELS, int(rng.integers(3, 6)), replace=False)
    return rng.choice(levels, n)


def standard(values: Any) -> NDArray[np.float64]:
    values = np.asarray(values, dtype=np.float64)
    return (values - values.mean()) / max(values.std(), 1e-12)


def a_file(rng: Rng, share: float = 0.6) -> str:
    """How a case is run: by a command on one of three kinds of files, or in Python."""
    return str(rng.choice([".csv", ".ssv", ".parquet"])) if rng.random() < share else ""


def named(*names: str) -> str:
    """A regular expression of a message that names all of these columns, by whole words."""
    flat = (unicodedata.normalize("NFC", name) for name in names)
    return "".join(rf"(?=.*(?<!\w){re.escape(name)}(?!\w))" for name in flat)


def says(text: str, words: Sequence[str]) -> bool:
    flat = unicodedata.normalize("NFC", " ".join(text.split()))
    return all(re.search(word, flat, re.IGNORECASE) for word in words)


def reported(case: Case, reply: Reply) -> str:
    """How the fault was reported: refused, check, note or the proof's name; "" where it was not."""
    if case.proof is not None:
        return case.proof(reply)
    if reply.refused:
        return "refused" if says(reply.refused, case.words) else ""
    if any(name not in OF_MODELS and says(text, case.words) for name, text in reply.failing):
        return "check"
    return "note" if case.note and any(says(text, case.words) for text in reply.notes) else ""
