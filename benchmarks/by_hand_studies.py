"""The studies of `by_hand.py`: which tables, which tests, and what the default should reach."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import by_hand_designs as tables
import designs
import family_designs
from by_hand_peers import (
    ALPHA,
    Answer,
    Peer,
    by_default,
    by_hand,
    by_peer,
    family_model,
    marginal,
    marginal_log_squares,
    pairs,
    projection,
    univariate_slope,
    wald,
)
from by_hand_tables import ABOVE_PEER, AS_PEER, LEVEL, OURS, Target

Marks = dict[str, Any]
FAMILY_ROWS = (500, 1_500)  # of which the second finds nearly everything


class Case(NamedTuple):
    """One design of a study: its rows, what a seed gives, and what is wanted of it."""

    design: str
    n: int
    run: Callable[[int], dict[str, Any]]
    target: Target
    table: str = ""


def marks(answer: Answer, table: designs.Table, rule: str, null: Sequence[str] | None) -> Marks:
    """What a method finds of the modifiers by a rule, and what of the null features."""
    names = table.X.columns
    true = names.isin(table.modifiers)
    counted = names.isin(null) if null is not None else ~true
    cuts = {"raw": ALPHA, "bonferroni": ALPHA / len(names)}
    chosen = answer.selected if rule == "bh" else answer.p <= cuts[rule]
    return {
        "score": float(chosen[true].mean()) if true.any() else None,
        "null": [int((answer.p[counted] <= ALPHA).sum()), int(counted.sum())],
        "fdp": float(chosen[~true].sum() / max(chosen.sum(), 1)) if rule == "bh" else None,
        "any": int(answer.selected[~true].any()),
        "p": [float(f"{p:.4g}") for p in answer.p] if len(names) <= 60 else None,
    }


def run(
    design: designs.Design,
    n: int,
    peers: Mapping[str, Peer],
    rule: str,
    null: Sequence[str] | None,
    known: Mapping[str, Any],
    seed: int,
) -> dict[str, Any]:
    """A table of one seed by the default and by all peers."""
    warnings.simplefilter("ignore")
    table = design(seed, n)
    table = table._replace(settings={**table.settings, **known})
    answer = by_default(table, seed)
    methods = {OURS: marks(answer, table, rule, null)}
    for name, peer in peers.items():
        methods[name] = marks(by_peer(peer, table, seed), table, rule, null)
    return {"methods": methods, "seconds": round(answer.seconds, 3)}


def case(
    name: str,
    design: designs.Design,
    n: int,
    peers: Mapping[str, Peer],
    *,
    rule: str = "bonferroni",
    target: Target = AS_PEER,
    null: Sequence[str] | None = None,
    known: Mapping[str, Any] | None = None,
) -> Case:
    return Case(name, n, partial(run, design, n, peers, rule, null, known or {}), target)


BY_HAND = {"least squares": by_hand}
PROJECTION = {"linear projection": projection}
COIN = {"propensity": 0.5}


def trial(args: Any) -> list[Case]:
    """N = 400 and less: one modifier at 0.05/8, three by Benjamini-Hochberg."""
    cases = [
        case(name, design, n, BY_HAND, target=ABOVE_PEER if above else AS_PEER)
        for name, (design, n, above) in tables.TRIAL.items()
    ]
    return cases + [case(f"three lines, n = {n}", tables.SEVERAL, n, BY_HAND, rule="bh") for n in (300, 600)]


def confounded(args: Any) -> list[Case]:
    """N = 1000, the chance to be treated depends on three features."""
    cases = [case(name, design, 1000, PROJECTION) for name, design in tables.CONFOUNDED.items()]
    return [*cases, case("three lines", tables.SEVERAL_CONFOUNDED, 1000, PROJECTION, rule="bh")]


def families(args: Any) -> list[Case]:
    """Outcomes of every family with two modifiers, beside generalised linear models; the coin is declared."""
    return [
        case(
            f"{kind}, {scale}, n = {n}",
            family_designs.design(kind, scale, "linear"),
            n,
            {"interactions": family_model(kind, scale)},
            rule="bh",
            known=COIN,
        )
        for n in FAMILY_ROWS
        for kind, scale in family_designs.OUTCOMES
    ]


def categories(args: Any) -> list[Case]:
    """A category whose levels differ in effect, at 0.05; null features: a category of eight levels."""
    return [
        case(
            f"{levels} levels, {'binary' if binary else 'numeric'}, n = {n}",
            tables.levels_modify(levels, binary=binary),
            n,
            {"joint Wald": wald},
            rule="raw",
            null=["other"],
        )
        for n in (500, 3000)
        for binary in (False, True)
        for levels in (3, 5, 8, 12)
    ]


def pure(args: Any) -> list[Case]:
    """Products of two features, and few modifiers of many features, by Benjamini-Hochberg."""
    peers = {
        "marginal": marginal(lambda table: table.y),
        "marginal, log squares": marginal(marginal_log_squares),
        "doubly robust slope": univariate_slope,
        "products of pairs": pairs,
    }
    some = tables.wide(lambda x: x[:, 0] * x[:, 1], ["X1", "X2"], 10)
    wide = tables.wide(lambda x: 0.7 * x[:, :3].sum(axis=1), ["X1", "X2", "X3"], 200)
    mixed = tables.wide(lambda x: x[:, 0] * x[:, 1] + 0.7 * x[:, 2], ["X1", "X2", "X3"], 200)
    listed = [(f"product x1 x2, d = 10, n = {n}", some, n) for n in (200, 300)]
    listed += [(f"three lines, d = 200, n = {n}", wide, n) for n in (200, 300)]
    listed += [(f"product x1 x2 and a line, d = 200, n = {n}", mixed, n) for n in (200, 300)]
    return [case(name, design, n, peers, rule="bh") for name, design, n in listed]


def paper(args: Any) -> list[Case]:
    """The paper's data, by Benjamini-Hochberg."""
    shares = dict(zip(designs.PAPER, (1.0, 1.0, 0.87, 0.96), strict=True))
    return [
        case(kind, designs.paper(kind), 1000, {}, rule="bh", target=Target("least", share))
        for kind, share in shares.items()
    ]


def many_rows(args: Any) -> list[Case]:
    """A hundred thousand rows of the paper's data, where the smallest faults show: look at the FDP."""
    target = Target("least", 1.0)
    return [case(kind, designs.paper(kind), 100_000, {}, rule="bh", target=target) for kind in ("LinMean", "NonlinVar")]


def shapes(args: Any) -> list[Case]:
    """Distributions that change at the same mean and variance, and rare events: X1 selected."""
    cases = [
        case(f"two modes, n = {n}", tables.bimodal, n, {}, rule="bh", target=Target("least", share))
        for n, share in ((1000, 0.25), (2000, 0.6), (4000, 0.95))
    ]
    for name, share in (("gamma noise", 0.55), ("gamma noise, confounded", 0.55), ("rare events 8%, confounded", 0.4)):
        design, n = designs.TAILS[name]
        known = {} if "confounded" in name else COIN
        cases.append(case(name, design, n, {}, rule="bh", target=Target("least", share), known=known))
    return cases


def level(args: Any) -> list[Case]:
    """Nothing modifies: ten designs and three hard ones."""
    return [case(name, design, n, BY_HAND, target=LEVEL) for name, (design, n) in tables.LEVEL.items()]
