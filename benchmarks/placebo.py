"""Coin flips for the treatment of real tables, so that no feature modifies: the `placebo` study of `by_hand.py`.

Coins are flipped for whole clusters where the trial did so, and for rows elsewhere; rows that belong together are
declared in both cases. Tables are cut to random rows, anew for every flip.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import atlas
import designs
import real_tables
from by_hand_peers import Answer, by_default, by_peer, wald
from by_hand_studies import Case, marks
from by_hand_tables import LEVEL, OURS, level_table
from interaction_tests import joint_tests

ROWS = 3_000
PEER = "joint Wald"
table = partial(level_table, pooled=True)


def cases(args: Any) -> list[Case]:
    n = args.rows or ROWS
    listed = [
        Case(f"real: {one.name}", min(n, len(one.y)), partial(flip_real, one, n), LEVEL, one.name.split()[0])
        for one in real_tables.read_outcomes()
    ]
    for one in atlas.read_experiments(args.outcomes):
        listed.append(Case(f"atlas: {one.name}", min(n, len(one.y)), partial(flip, one, n), LEVEL, one.table))
    return listed


def flip_real(outcome: real_tables.Outcome, n: int, seed: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    settings = {"propensity": 0.5, "missing": "category"}
    table = designs.placebo(outcome.X, outcome.y, settings)(seed, n)
    answer = by_default(table, seed)
    peer = by_peer(wald, table, seed)
    return shown(answer, peer, table)


def flip(experiment: atlas.Experiment, n: int, seed: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    rng = np.random.default_rng([seed, 97])
    part = atlas.some_rows(experiment, n, rng)
    part = part._replace(treatment=coins(part, rng))
    answer = test(part, seed, coin=True)
    peer = by_peer(lambda table, seed: by_model(part)["p_value"].to_numpy(), as_table(part, coin=True), seed)
    return shown(answer, peer, as_table(part, coin=True))


def coins(experiment: atlas.Experiment, rng: np.random.Generator) -> Any:
    if not experiment.by_cluster:
        return rng.integers(0, 2, len(experiment.y))
    code, names = pd.factorize(experiment.clusters)
    return rng.permutation(np.arange(len(names)) % 2)[code]


def as_table(experiment: atlas.Experiment, *, coin: bool) -> designs.Table:
    """Features alone, for what looks at a table of features."""
    X = experiment.X[experiment.features]
    settings = experiment.settings(coin=coin)
    return designs.Table(X, experiment.treatment, experiment.y, [], [], settings=settings)


def test(experiment: atlas.Experiment, seed: int, *, coin: bool) -> Answer:
    """The default test of an experiment, whose design is declared."""
    rows = {"clusters": experiment.clusters, "strata": None if coin else experiment.strata}
    table = as_table(experiment, coin=coin)._replace(X=experiment.X)
    return by_default(table, seed, adjust_for=experiment.adjust or None, **rows)


def by_model(experiment: atlas.Experiment) -> pd.DataFrame:
    """Interactions in a linear model, or one of cumulative logits for ordered levels."""
    model = "ordinal" if experiment.kind == "ordinal" else "numeric"
    adjust = experiment.X[experiment.adjust] if experiment.adjust else None
    X = experiment.X[experiment.features]
    how = {"adjust": adjust, "clusters": experiment.clusters}
    return joint_tests(X, experiment.treatment, experiment.y, model, experiment.scale, **how)


def shown(answer: Answer, peer: Answer, table: designs.Table) -> dict[str, Any]:
    methods = {OURS: marks(answer, table, "bh", None), PEER: marks(peer, table, "bh", None)}
    return {"methods": methods, "seconds": round(answer.seconds, 3)}
