"""What `by_hand.py` compares: the default test, and tests that take a few lines of numpy, from a table to p-values.

- `by_hand`: least squares of the outcome on treatment, all features, their squares and treatment times feature, HC3.
- `projection`: doubly robust scores (additive means, logistic propensity, five folds) regressed on all features, HC3.
- `marginal`: the interaction of the treatment with one feature at a time, HC3; of the outcome or of its spread.
- `pairs`: the treatment times every product of two features; a feature has its smallest p-value times their number.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import false_discovery_control, norm, t

import designs
from interaction_tests import interaction_p_values, joint_tests
from modifind import ModifierSelector
from peer_methods import aipw_outcomes, log_squares, slope

Array = NDArray[np.float64]
ALPHA = 0.05


class Answer(NamedTuple):
    """P-values of all features, which are selected at a false discovery rate of 0.05, and CPU seconds."""

    p: Array
    selected: NDArray[np.bool_]
    seconds: float


Peer = Callable[[designs.Table, int], Array]


def by_default(table: designs.Table, seed: int, **rows: Any) -> Answer:
    """The default test; what the design knows of itself is declared."""
    selector = ModifierSelector(random_state=seed, explain=False, n_jobs=1).set_params(**table.settings)
    start = time.process_time()
    result = selector.fit(table.X, table.y, treatment=table.treatment, **rows).result_
    seconds = time.process_time() - start
    shown = result.table.loc[[name for name in table.X if name not in (rows.get("adjust_for") or ())]]
    return Answer(shown["p_value"].to_numpy(float), shown["selected"].to_numpy(bool), seconds)


def by_peer(peer: Peer, table: designs.Table, seed: int) -> Answer:
    start = time.process_time()
    p = np.nan_to_num(peer(table, seed), nan=1.0)
    return Answer(p, false_discovery_control(p) <= ALPHA, time.process_time() - start)


def by_hand(table: designs.Table, seed: int) -> Array:
    return joint_tests(table.X, table.treatment, table.y, squares=True)["p_value"].to_numpy()


def wald(table: designs.Table, seed: int) -> Array:
    return joint_tests(table.X, table.treatment, table.y)["p_value"].to_numpy()


def family_model(kind: str, scale: str) -> Peer:
    """A generalised linear model on the scale on which effects are compared."""
    return lambda table, seed: interaction_p_values(table.X.to_numpy(float), table.treatment, table.y, kind, scale)


def least_squares(x: Array, outcome: Array) -> tuple[Array, Array]:
    """T-statistics of all columns together and their p-values, HC3 errors."""
    design = np.column_stack((np.ones(len(x)), x))
    bread = np.linalg.inv(design.T @ design)
    beta = bread @ (design.T @ outcome)
    leverage = np.einsum("ij,jk,ik->i", design, bread, design)
    scores = design * ((outcome - design @ beta) / (1 - leverage))[:, None]
    z = (beta / np.sqrt(np.diag(bread @ (scores.T @ scores) @ bread)))[1:]
    return z, 2 * t.sf(np.abs(z), len(x) - design.shape[1])


def projection(table: designs.Table, seed: int) -> Array:
    """Best linear projection of the effect on all features."""
    x = pd.get_dummies(table.X, drop_first=True).to_numpy(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = aipw_outcomes(x, table.y, table.treatment, seed)
    return least_squares(x, scores)[1]


def marginal(outcome: Callable[[designs.Table], Array]) -> Peer:
    def run(table: designs.Table, seed: int) -> Array:
        values, a = outcome(table), table.treatment
        return np.array(
            [joint_tests(table.X[[name]], a, values)["p_value"].iloc[0] for name in table.X],
        )

    return run


def marginal_log_squares(table: designs.Table) -> Array:
    """Log squared residuals of each arm's mean, as there are too few rows for a model of all features."""
    if table.X.shape[1] < len(table.y) / 10:
        return log_squares(table)
    means = np.array([table.y[table.treatment == arm].mean() for arm in (0, 1)])
    squares = (table.y - means[table.treatment]) ** 2
    return np.log(np.maximum(squares, 1e-8 * squares.mean()))


def univariate_slope(table: designs.Table, seed: int) -> Array:
    """Doubly robust scores against one feature at a time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return 2 * norm.sf(slope(table, seed).score)


def pairs(table: designs.Table, seed: int) -> Array:
    """Whether the effect follows a product of two features; of a coin flip with a known share of one half."""
    x, a = table.X.to_numpy(float), table.treatment
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    effect = 2.0 * (2 * a - 1) * (table.y - table.y.mean())
    effect = effect - effect.mean()
    mean = x.T @ x / len(x)
    square = effect**2
    variance = (x**2).T @ ((x**2) * square[:, None]) - 2 * mean * (x.T @ (x * square[:, None])) + mean**2 * square.sum()
    z = (x.T @ (x * effect[:, None])) / np.sqrt(variance)
    np.fill_diagonal(z, 0.0)
    smallest = 2 * norm.sf(np.abs(z).max(axis=1))
    return np.minimum(smallest * (x.shape[1] - 1), 1.0)
