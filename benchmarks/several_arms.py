"""Tables of three arms whose truth is known, and what a fit with a reference finds in them; for `validity.py`.

    python benchmarks/several_arms.py     # levels of tests that combine the contrasts of a feature, as Markdown

Features X1 to X10 are normal with correlation 0.3 to their neighbours, X2 and X3 move the outcome of all arms, and the
arms "a" and "b" are compared with "none".
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm

from modifind import ModifierSelector
from modifind.inference.adjust import simes_p_values

ROWS, FEATURES = 1500, 10
LABELS = np.array(["none", "a", "b"])


class ArmsTable(NamedTuple):
    """A table and the pairs of feature and arm whose contrast the feature modifies."""

    X: pd.DataFrame
    y: np.ndarray
    arm: np.ndarray
    true: frozenset[tuple[str, str]] = frozenset()


def _features(seed: int) -> tuple[np.random.Generator, pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng([seed, 22])
    noise = rng.standard_normal((ROWS, FEATURES))
    values = noise.copy()
    for m in range(1, FEATURES):
        values[:, m] = 0.3 * values[:, m - 1] + np.sqrt(1 - 0.09) * noise[:, m]
    return rng, pd.DataFrame(values, columns=[f"X{m + 1}" for m in range(FEATURES)]), rng.choice(LABELS, ROWS)


def modified(*arms: str, slope: float = 0.5, confounded: bool = False) -> Callable[[int], ArmsTable]:
    """X1 changes the average effect of some arms; the others have a constant effect."""

    def table(seed: int) -> ArmsTable:
        rng, X, arm = _features(seed)
        if confounded:  # arms follow X2 and X4
            scores = np.column_stack([np.zeros(ROWS), 0.5 * X["X2"], -0.5 * X["X4"]])
            chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            arm = LABELS[(rng.random(ROWS)[:, None] > chances.cumsum(axis=1)).sum(axis=1)]
        effect = np.where(arm == "none", 0.0, np.where(arm == "a", 0.5, 0.3))
        effect = effect + slope * X["X1"] * np.isin(arm, arms)
        y = X["X2"] + X["X3"] ** 2 / 2 + effect + rng.standard_normal(ROWS)
        return ArmsTable(X, y.to_numpy(), arm, frozenset(("X1", label) for label in arms))

    return table


def alike(effect: float) -> Callable[[int], ArmsTable]:
    """X1 moves location and spread of all arms alike; the arms differ by a constant or not at all."""

    def table(seed: int) -> ArmsTable:
        rng, X, arm = _features(seed)
        spread = np.exp(0.4 * X["X1"].to_numpy())
        y = X["X1"] + X["X2"] + effect * (arm != "none") + spread * rng.standard_normal(ROWS)
        return ArmsTable(X, y.to_numpy(), arm)

    return table


def without_effect(seed: int) -> ArmsTable:
    """No arm does anything."""
    rng, X, arm = _features(seed)
    return ArmsTable(X, (X["X2"] + X["X3"] ** 2 / 2 + rng.standard_normal(ROWS)).to_numpy(), arm)


DESIGNS: dict[str, Callable[[int], ArmsTable]] = {
    "one arm modified": modified("a"),
    "one arm modified, confounded": modified("a", confounded=True),
    "both arms modified": modified("a", "b"),
    "no effect": without_effect,
    "all arms alike, no effect": alike(0.0),
    "all arms alike, constant effects": alike(1.0),
}


def one_arms_run(design: str, seed: int) -> dict[str, Any]:
    """P-values and what is selected of one table."""
    warnings.simplefilter("ignore")
    table = DESIGNS[design](seed)
    selector = ModifierSelector(random_state=seed, explain=False)
    result = selector.fit(table.X, table.y, treatment=table.arm, reference="none").result_
    chosen = {(str(name), arm) for arm, own in result.contrasts.items() for name in own.index[own["selected"]]}
    features = {name for name, _ in table.true}
    null = ~result.table.index.isin(list(features))
    return {
        "selected": set(result.selected),
        "features": features,
        "chosen": chosen,
        "true": table.true,
        "null_p": result.table.loc[null, "p_value"].to_numpy(),
        "contrast_p": np.column_stack([own.loc[null, "p_value"] for own in result.contrasts.values()]),
    }


def cauchy_p_values(p: np.ndarray) -> np.ndarray:
    """The Cauchy combination of each row, to compare with."""
    return 0.5 - np.arctan(np.tan((0.5 - np.minimum(p, 1 - 1e-15)) * np.pi).mean(axis=1)) / np.pi


def main(draws: int = 1_000_000) -> None:
    """Share of p <= 0.05 and 0.01, in units of the level, where no contrast is modified."""
    print("| contrasts | correlation | Simes | Bonferroni | Cauchy |\n|---|---|---|---|---|")
    rng = np.random.default_rng(0)
    for k in (2, 3, 5):
        for correlation in (0.0, 0.5, 0.8):
            shared, own = rng.standard_normal((draws, 1)), rng.standard_normal((draws, k))
            p = norm.sf(np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own)
            combined = simes_p_values(p), p.min(axis=1) * k, cauchy_p_values(p)
            cells = (", ".join(f"{(each <= a).mean() / a:.2f}" for a in (0.05, 0.01)) for each in combined)
            print(f"| {k} | {correlation:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
