"""Faults of columns, designs and files: numbers as people write them, columns after the treatment, results, folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from modifind import EffectLikelihood, ModifierSelector, SelectionResult
from planted_tables import LABELS, PERSONS, Case, Drawn, Reply, Rng, a_file, commanded, draw, named, replied, says

CODES = ("Plz-Kreis", "icd_chapter", "code_postal", "estrato", "postcode", "dept", "ward_code", "Kostenstelle")
AMOUNTS = ("Einkommen", "Umsatz", "Einwohner", "Miete_jährlich", "leukocytes", "steps", "revenu_annuel", "ingresos_tot")
LATER = ("cd496", "visit2_bp", "adherence", "side_effects", "Dosis_Woche4", "poids_m3", "peso_6m", "crp_day7")
# Pairs that look alike: capitals, blanks at an end, a blank that does not break, composed or not, two blanks.
ALIKE = (
    *(("Basel", "basel"), ("north", "north "), ("New York", "New\u00a0York"), ("Zürich", "Zu\u0308rich")),
    *(("Île de France", "I\u0302le de France"), ("São Paulo", "São  Paulo"), ("MALE", "male"), (" urban", "urban")),
)


def _integers(rng: Rng, n: int, low: int, high: int) -> np.ndarray:
    """Whole numbers, skewed, some below a thousand."""
    return np.exp(rng.uniform(np.log(low), np.log(high), n)).astype(np.int64)


def _marked(values: np.ndarray, mark: str) -> list[str]:
    return [f"{value:,}".replace(",", mark) for value in values]


def _with_thousands(rng: Rng, mark: str) -> tuple[Drawn, str]:
    table, name = draw(rng, d=int(rng.integers(4, 10))), str(rng.choice(AMOUNTS))
    for other in table.numbers:  # without decimals, which would give the marks away
        table.frame[other] = np.round(10 * table.frame[other]).astype(np.int64) % 900
    table.frame[table.outcome] = np.round(table.frame[table.outcome]).astype(np.int64)
    low = int(rng.choice([100, 300, 1_100]))
    values = _integers(rng, len(table.frame), low, int(rng.choice([9_000, 90_000, 2_500_000])))
    if rng.random() < 0.3:
        table.frame[table.outcome] = _marked(values, mark)
        return table, table.outcome
    return table.with_column(rng, name, _marked(values, mark)), name


def points_in_thousands(rng: Rng) -> Case:
    table, name = _with_thousands(rng, ".")
    return table.case(".ssv", words=[named(name), r"--decimal|thousand"])


def apostrophes(rng: Rng) -> Case:
    table, name = _with_thousands(rng, str(rng.choice(["'", "\u2019"])))
    return table.case(a_file(rng, 0.8), words=[named(name)])


def mixed_codes(rng: Rng) -> Case:
    """Codes of digits, and of letters far below: read as in a short file, whatever the length, whole or in pieces."""
    n, streamed = 150_000 if rng.random() < 0.1 else 25_000, bool(rng.random() < 0.5)
    table, name = draw(rng, n, 2), str(rng.choice(CODES))
    late = np.arange(n) > n * rng.uniform(0.5, 0.9)
    values = np.where(late & (rng.random(n) < 0.6), rng.choice(["A", "B", "X9"]), rng.integers(1, 4, n).astype(str))
    table = table.with_column(rng, name, values.astype(object))
    options = ["--stream", "--train-rows", "500"] if streamed else ["--dry-run"]
    settings = {"discrete_features": [name]} if rng.random() < 0.5 else {}
    short, long = (table.case(".csv", options=options, settings=settings) for _ in range(2))
    short.frame = table.frame.sample(1000, random_state=1)
    long.proof = lambda reply: _as_short(short_reply[0], reply, name)
    short_reply: list[Reply] = []

    def call(folder: Path) -> Reply:
        short_reply.append(short.run(folder))
        return long.run(folder)

    return Case(table.frame, "", "", "folder", options=options, settings=settings, call=call, proof=long.proof)


def _as_short(short: Reply, reply: Reply, name: str) -> str:
    """Whether a long file was read as a short one is: as text of four levels, or refused in the same words."""
    if reply.refused:
        return "refused" if short.refused and says(reply.refused, [named(name), "^(?!.*pandas)"]) else ""
    if reply.result is not None:
        return "read as text" if reply.result.table.loc[name, "kind"] == "discrete" else ""
    return "read as text" if says(reply.printed, [rf"{named(name)}.*\(4 levels\)"]) and not reply.crashed else ""


def alike_levels(rng: Rng) -> Case:
    one, other = ALIKE[int(rng.integers(len(ALIKE)))]
    table, name = draw(rng), str(rng.choice(["city", "Wohnort", "région", "sexo", "woonplaats", "ort"]))
    levels = rng.choice([one, other, "elsewhere", "Rest"], len(table.frame), p=[0.4, 0.2, 0.2, 0.2])
    words = [named(name), r"differ|alike|same but|case|capital|blank|space|Unicode"]
    return table.with_column(rng, name, levels.astype(object)).case(a_file(rng), words=words, note=True)


def _kept_as_text(rng: Rng, levels: list[str], name: str) -> Case:
    table = draw(rng, int(rng.integers(200, 500)), 4)
    table = table.with_column(rng, name, rng.choice(levels, len(table.frame)))

    def proof(reply: Reply) -> str:
        if reply.refused or reply.crashed:
            return "refused" if says(reply.refused, [named(name), "text|code|discrete"]) else ""
        groups = reply.result.subgroups if reply.result is not None else pd.DataFrame()
        shown = groups[groups["feature"] == name] if "feature" in groups else groups.loc[groups.index == name]
        found = set(shown.astype(str).to_numpy().ravel())
        return "kept as text" if set(levels) <= found else ""

    return table.case(str(rng.choice([".csv", ".ssv"])), proof=proof, explain=True)


def leading_zeros(rng: Rng) -> Case:
    width = int(rng.integers(2, 6))
    levels = sorted({f"{code:0{width}d}" for code in rng.choice(10 ** (width - 1), int(rng.integers(2, 5)))})
    return _kept_as_text(rng, [*levels, "9" * width], str(rng.choice(CODES)))


def exponents(rng: Rng) -> Case:
    codes = {f"{a}e{b}" for a, b in zip(rng.integers(1, 99, 6), rng.integers(1, 9, 6), strict=True)}
    return _kept_as_text(rng, sorted(codes)[: int(rng.integers(2, 5))], str(rng.choice(CODES)))


def shuffled_id(rng: Rng) -> Case:
    table = draw(rng)
    n, name = len(table.frame), str(rng.choice([*PERSONS, "Fallnummer", "record", "numero", "hospital_no", "Lfd_Nr"]))
    start = int(rng.choice([1, 1000, 100_001]))
    span = n if rng.random() < 0.5 else 20 * n
    values = start + rng.permutation(span)[:n]
    return table.with_column(rng, name, values).case(a_file(rng), words=[named(name)], note=True)


def named_and_unfit(rng: Rng) -> Case:
    """A column that the user named and that is constant, an identifier, dates or free text."""
    table = draw(rng)
    n, kind = len(table.frame), int(rng.integers(0, 4))
    names = (("country", "Land", "pays"), PERSONS, ("visit_date", "Datum", "fecha"), ("remark", "Notiz", "nota"))
    name = str(rng.choice(names[kind]))
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    values = (
        np.full(n, "CH"),
        np.array([f"P{k:06d}" for k in rng.permutation(n)]),
        days.strftime("%Y-%m-%d").to_numpy(),
        np.array([f"came {k} times, {rng.choice(['well', 'tired'])}" for k in range(n)]),
    )[kind]
    table = table.with_column(rng, name, values)
    role = str(rng.choice(["features", "adjust_for"]))
    settings = {role: [*table.features[:2], name]}
    if role == "adjust_for":
        settings["features"] = table.features[2:]
    return table.case(a_file(rng), settings=settings, words=[named(name)])


def nines(rng: Rng) -> Case:
    table, code = draw(rng), int(rng.choice([-9, -9, -99, -1, -999]))
    name = str(rng.choice(["weight_kg", "Kinder", "durée", "ingreso_mes", "lab_value", "visits_before"]))
    n = len(table.frame)
    values = rng.integers(0, 40, n) if rng.random() < 0.5 else np.round(np.exp(rng.normal(3, 0.4, n)), 1)
    values[rng.choice(n, int(rng.integers(2, 5)), replace=False)] = code
    return table.with_column(rng, name, values).case(a_file(rng), words=[named(name), rf"{code}(?!\d)"], note=True)


def _with_later(rng: Rng) -> tuple[Drawn, str]:
    """A column that the treatment has moved, by seven standard errors at least."""
    table, name = draw(rng, share=0.5), str(rng.choice(LATER))
    n = len(table.frame)
    size = max(float(rng.uniform(8, 12)) / np.sqrt(n / 4), 0.35)
    if rng.random() < 0.7:
        values = np.round(50 + 8 * (size * table.a + rng.normal(size=n)), 1)
    else:
        values = (rng.random(n) < np.clip(0.25 + 0.5 * size * table.a, 0, 0.9)).astype(np.int64)
    return table.with_column(rng, name, values), name


AFTER = (r"exclude|drop|leave it out|leave out", r"adjust.for")


def later_declared(rng: Rng) -> Case:
    table, name = _with_later(rng)
    settings = {"propensity": 0.5} if rng.random() < 0.5 else {"design": "randomised"}
    return table.case(a_file(rng), settings=settings, words=[named(name), *AFTER])


def later_undeclared(rng: Rng) -> Case:
    table, name = _with_later(rng)
    return table.case(a_file(rng), words=[named(name), *AFTER])


def two_designs(rng: Rng) -> Case:
    table = draw(rng, d=4)
    share = [f"{rng.uniform(0.3, 0.6):.2f}"] * bool(rng.random() < 0.5)
    options = ["--randomised", *share, "--propensity", str(rng.choice(["0.5", "0.4", "auto", table.numbers[0]]))]
    if rng.random() < 0.3:
        options = ["--randomised", "--observational"]
    other = options[-2] if options[-2] == "--propensity" else "--observational"
    return table.case(a_file(rng, 1.0), options=options, words=[other, "--randomised", "not|leave|either|one of"])


def _told(word: str) -> Callable[[Reply], str]:
    """Page one, or the result, says which design was taken."""

    def proof(reply: Reply) -> str:
        if reply.result is None or reply.refused or reply.crashed:
            return ""
        page = reply.printed or json.dumps(reply.result.to_dict(), default=str)
        return "page one" if says(page, [word]) else ""

    return proof


def design_told(rng: Rng) -> Case:
    """A declared design is accepted and told: randomised with and without a share, several arms, observational."""
    table = draw(rng, int(rng.integers(250, 600)), 4, 0.5)
    kind, file = int(rng.integers(0, 4)), a_file(rng, 0.7)
    if kind == 3 and file:
        table.frame[table.treatment] = rng.permutation(np.resize(["a", "b", "a", "c"], len(table.frame)))
        options = ["--randomised", "a=.5,b=.25,c=.25", "--reference", "a"]
        return table.case(file, options=options, proof=_told("randomi[sz]ed"))
    design = "observational" if kind == 0 else "randomised"
    if kind == 2 and file:
        return table.case(file, options=["--randomised", "0.5"], proof=_told("randomi[sz]ed"))
    return table.case(file, settings={"design": design}, proof=_told(design.replace("ised", "i[sz]ed")))


def _saved(rng: Rng, folder: Path) -> dict[str, Any]:
    table = draw(rng, 200, 4)
    selector = ModifierSelector(EffectLikelihood("linear"), sampler="gaussian", explain=False, random_state=0)
    table.frame[table.outcome] += (
        30 * table.a * (table.frame[table.numbers[0]] > table.frame[table.numbers[0]].median())
    )
    replied(lambda: selector.fit(table.frame, outcome=table.outcome, treatment=table.treatment))
    path = folder / "kept.json"
    selector.result_.to_json(path)
    return json.loads(path.read_text(encoding="utf-8"))


def _read(rng: Rng, change: Callable[[dict[str, Any]], None], words: list[str]) -> Case:
    """A result that was changed is read, in Python or by `modifind report`."""

    def call(folder: Path) -> Reply:
        content, path = _saved(rng, folder), folder / "kept.json"
        change(content)
        path.write_text(json.dumps(content), encoding="utf-8")
        if rng.random() < 0.5:
            return replied(lambda: SelectionResult.from_json(path) and None)
        return commanded(["report", str(path)], folder / "none.json")

    return Case(pd.DataFrame(), "", "", "folder", call=call, words=words)


def another_version(rng: Rng) -> Case:
    tag = f"modifind-result-{int(rng.choice([0, 2, 3, 7, 12]))}"

    def change(content: dict[str, Any]) -> None:
        content["format"] = tag
        if rng.random() < 0.5:
            content["more"] = content.pop(str(rng.choice([name for name in content if name != "format"])))

    return _read(
        rng,
        change,
        [tag, r"version"],
    )


def nan_selected(rng: Rng) -> Case:
    def change(content: dict[str, Any]) -> None:
        columns = content["table"]["columns"]
        columns["p_adjusted"][columns["selected"].index(True)] = "NaN"

    return _read(rng, change, [r"p_adjusted"])


def no_such_folder(rng: Rng) -> Case:
    """An output below a file, beside a column that is refused when work begins: the folder comes first."""
    table = draw(rng, d=4)
    table = table.with_column(rng, "leak", table.a * 2.5 + 1)
    option, ending = [("--out", "r.json"), ("--report", "r.html"), ("--figures", "plots"), ("--checkpoint", "kept")][
        int(rng.integers(4))
    ]
    case = table.case("folder", words=[rf"{option}|blocked-by-file"], proof=None)

    def call(folder: Path) -> Reply:
        (folder / "blocked-by-file").write_text("a file", encoding="utf-8")
        target = folder / "blocked-by-file" / str(rng.choice(["", "a", "a/b"])) / ending
        return table.case(".csv", options=[option, str(target)]).run(folder)

    case.call = call
    return case


def users_line(rng: Rng) -> Case:
    """Warnings of a call in Python have the user's file, and come once."""
    table = draw(rng, d=5)
    n = len(table.frame)
    kind = int(rng.integers(0, 3))
    values = (np.full(n, 3), np.arange(n) + 100, np.where(np.arange(n) % 40 == 0, 999, rng.integers(20, 60, n)))[kind]
    table = table.with_column(rng, "planted", values)

    def proof(reply: Reply) -> str:
        files = [Path(one.filename).name for one in reply.caught]
        once = len(set(reply.notes[: len(files)])) == len(files)
        return "at the user's line" if files and once and set(files) == {"planted_tables.py"} else ""

    return table.case("", proof=proof)


def declared_words(rng: Rng) -> tuple[Drawn, str]:
    """A trial whose arms have words for labels, and the one that means treated."""
    table = draw(rng)
    control, treated = LABELS[int(rng.integers(len(LABELS)))]
    table.frame[table.treatment] = np.where(table.a == 1, treated, control)
    return table, treated


FAULTS = {
    "3.478;713: points in thousands": points_in_thousands,
    "5'432: apostrophes": apostrophes,
    "mixed codes in a long file": mixed_codes,
    "levels that look alike": alike_levels,
    "codes with leading zeros": leading_zeros,
    "codes such as 12e3": exponents,
    "a shuffled numeric id": shuffled_id,
    "a named column that is unfit": named_and_unfit,
    "-9 in a positive column": nines,
    "later column, declared trial": later_declared,
    "later column, undeclared": later_undeclared,
    "--propensity beside --randomised": two_designs,
    "a declared design is told": design_told,
    "a result of another version": another_version,
    "p_adjusted NaN of a selected": nan_selected,
    "an output folder in the way": no_such_folder,
    "warnings at the user's line": users_line,
}
