"""The walk of a row: what a table becomes on its way from `fit` to a result, stage by stage.

    python tools/walk.py            # prints the stages, and writes docs/images/walk.svg

Two small fits of the same table are traced, one in memory and one in pieces. A line of the picture is a function, with
the kinds of what it was given and of what it returned, in the order in which the functions were called.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from modifind import EffectLikelihood, ModifierSelector
from modifind.data.roles import assign_roles
from modifind.data.schema import Schema
from modifind.data.summary import Summary
from modifind.datasets import make_modifiers
from modifind.engine.contrasts import fit_arms
from modifind.engine.features import Analysis
from modifind.engine.findings import assemble
from modifind.engine.fitting import fit_table
from modifind.engine.job import Job
from modifind.engine.passes import FirstPassSums
from modifind.engine.preparation import Models, PreparedTable, fit_scores
from modifind.engine.reading import Reading
from modifind.engine.sums import Plan, UnitSums, outcome_of
from modifind.nuisance.conditional.gaussian import GaussianSampler
from modifind.result.checks import run_checks
from modifind.statistics.prepared_likelihood import PreparedEffectLikelihood

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "walk.svg"
ROWS, SAMPLE_ROWS = 300, 200
MAX_GIVEN = 3  # things that a line names
STAGES: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("the call", ModifierSelector.fit),
    ("columns get their roles", assign_roles),
    ("two arms, or each of several with the reference", fit_arms),
    ("one analysis of two arms", Job.fit),
    ("all rows are looked at", FirstPassSums.of_piece),
    ("what the columns hold", Summary.of),
    ("odd tables are refused, columns encoded", Reading.read),
    ("how every row is read", Schema.of),
    ("rows as numbers", Schema.read),
    ("folds, clusters, copies of columns", PreparedTable.of),
    ("the walk of a run", fit_table),
    ("models of the rows at hand", Models.fit),
    ("scores", fit_scores),
    ("models of the outcome", EffectLikelihood.prepare),
    ("one feature is examined", Analysis.examine),
    ("its distribution given the others", GaussianSampler.rule),
    ("all rows, piece by piece", Plan.sums),
    ("what rows add to its test", PreparedEffectLikelihood.terms),
    ("sums over rows", UnitSums.of),
    ("its test", outcome_of),
    ("curves, bounds, what changes", Analysis.explained),
    ("one result of all features", assemble),
    ("checks of the result", run_checks),
)


@dataclass
class Call:
    """The first call of a stage: its number among all first calls, and the kinds of what went in and came out."""

    order: int
    given: str
    returned: str = ""


def place(function: Callable[..., Any]) -> str:
    """Module and name of a function."""
    return f"{function.__module__.removeprefix('modifind.')}:{function.__qualname__}"


def kind(value: Any) -> str:
    """The class of a value; empty for plain settings."""
    if type(value) in (tuple, list):
        return ", ".join(dict.fromkeys(filter(None, map(kind, value))))
    plain = value is None or callable(value) or isinstance(value, str | int | float | np.random.SeedSequence)
    return "" if plain else type(value).__name__


def watched(**settings: Any) -> dict[int, Call]:
    """The first call of every stage of one fit, by the number of the stage."""
    codes: dict[CodeType, int] = {inspect.unwrap(function).__code__: k for k, (_, function) in enumerate(STAGES)}
    calls: dict[int, Call] = {}
    under_way: dict[FrameType, Call] = {}

    def watch(frame: FrameType, event: str, value: Any) -> None:
        k = codes.get(frame.f_code)
        if event == "call" and k is not None and k not in calls:
            code = frame.f_code
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            kinds = filter(None, (kind(frame.f_locals[name]) for name in names if name not in ("self", "cls")))
            words = list(dict.fromkeys(kinds))[:MAX_GIVEN] or names[1:]
            calls[k] = under_way[frame] = Call(len(calls), ", ".join(words))
        elif event == "return" and frame in under_way:
            under_way.pop(frame).returned = kind(value)

    data = make_modifiers("LinMean", n_samples=ROWS, n_features=5, random_state=0)
    selector = ModifierSelector(EffectLikelihood("linear"), "gaussian", random_state=0, **settings)
    before = sys.getprofile()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.setprofile(watch)
        try:
            selector.fit(data.X, data.y, data.treatment)
        finally:
            sys.setprofile(before)
    return calls


def walk() -> list[tuple[str, str, str, str]]:
    """For every stage what it is, its function, what goes in and comes out, and who passes it."""
    memory, pieces = watched(), watched(max_train_rows=SAMPLE_ROWS)
    for calls in (memory, pieces):
        order = sorted(calls, key=lambda k: calls[k].order)
        if order != sorted(calls):
            raise ValueError(f"the stages are passed in another order: {[place(STAGES[k][1]) for k in order]}")
    lines = []
    for k, (what, function) in enumerate(STAGES):
        call = memory.get(k) or pieces.get(k)
        if call is None:
            raise ValueError(f"no row passes {place(function)}")
        passed = "" if k in memory and k in pieces else "in memory only" if k in memory else "in pieces only"
        lines.append((what, place(function), f"{call.given} \N{RIGHTWARDS ARROW} {call.returned}", passed))
    return lines


def draw(lines: Sequence[tuple[str, str, str, str]]) -> str:
    """The picture."""
    step, top, columns = 26, 34, (40, 375, 850)
    height = top + step * len(lines) + 6
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1290 {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="1290" height="{height}" fill="#ffffff"/>',
        f'<path d="M20 {top} V{height - 20}" stroke="#33507a" stroke-width="2"/>',
    ]
    for x, title in zip(columns, ("stage", "function", "what goes in, and what comes out"), strict=True):
        drawn.append(f'<text x="{x}" y="18" fill="#33507a" font-weight="bold">{title}</text>')
    for k, (what, function, passage, passed) in enumerate(lines):
        y = top + step * k + 12
        fill = "#ffffff" if passed else "#33507a"
        drawn.append(f'<circle cx="20" cy="{y - 4}" r="5" fill="{fill}" stroke="#33507a" stroke-width="2"/>')
        note = f" ({passed})" if passed else ""
        for x, text in zip(columns, (what + note, function, passage), strict=True):
            font = ' font-family="monospace" font-size="12"' if text == function else ""
            drawn.append(f'<text x="{x}" y="{y}" fill="#222222"{font}>{escape(text)}</text>')
    return "\n".join([*drawn, "</svg>", ""])


if __name__ == "__main__":
    stages = walk()
    PICTURE.write_text(draw(stages), encoding="utf-8")
    for line in stages:
        print(" | ".join(filter(None, line)))
