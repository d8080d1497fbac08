"""Simulated outcomes of every family, whose effect is none, constant on a scale, or modified by X1 and X2 on it.

A wild outcome is one row of 10,000 in a table without an effect.

Features are those of `designs`: 30, of which X26 to X30 move the outcome of both arms. They differ between the arms
where nothing modifies the effect, and are alike in them, as in a trial, where something does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import designs
from designs import Array, Table, expit

MODIFIERS = ["X1", "X2"]
WILD_KINDS, WILD = ("count", "numeric", "amount"), 10_000.0


class Outcome(NamedTuple):
    """How an outcome is drawn: from features' common part, arm and effect; and what the effect is where it is constant.

    `unit` is how much of the modifiers' score there is.
    """

    draw: Callable[[np.random.Generator, Array, NDArray[np.int64], Array], Array]
    constant: float
    unit: float


def common(x: Array) -> Array:
    """What five features do to both arms, of mean about zero and standard deviation about one."""
    parts = (0.6 * x[:, 25], 0.6 * np.abs(x[:, 26]), 0.8 * (x[:, 27] > 0), 0.6 * np.sin(2 * x[:, 28]), 0.4 * x[:, 29])
    return np.sum(parts, axis=0) - 0.9


def coin(rng: np.random.Generator, chance: Array) -> Array:
    return (rng.random(chance.size) < np.clip(chance, 0.0, 1.0)).astype(np.float64)


def risk_difference(rng: np.random.Generator, h: Array, a: NDArray[np.int64], effect: Array) -> Array:
    return coin(rng, 0.25 + 0.4 * expit(2 * h) + a * effect)


def risk_ratio(rng: np.random.Generator, h: Array, a: NDArray[np.int64], effect: Array) -> Array:
    return coin(rng, (0.05 + 0.25 * expit(2 * h - 1)) * np.exp(a * np.minimum(effect, 1.1)))


def odds_ratio(rng: np.random.Generator, h: Array, a: NDArray[np.int64], effect: Array) -> Array:
    return coin(rng, expit(1.5 * h - 0.5 + a * effect))


def counts(rng: np.random.Generator, mean: Array) -> Array:
    """Overdispersed: the variance is mean + 0.6 mean^2."""
    return rng.poisson(mean * rng.gamma(1 / 0.6, 0.6, mean.size)).astype(np.float64)


def rate_ratio(rng: np.random.Generator, h: Array, a: NDArray[np.int64], effect: Array) -> Array:
    return counts(rng, np.exp(0.5 + h + a * effect))


def rate_difference(rng: np.random.Generator, h: Array, a: NDArray[np.int64], effect: Array) -> Array:
    return counts(rng, np.maximum(1.5 + np.exp(h) + a * effect, 0.1))


def mean_ratio(rng: np.random.Generator, h: Array, a: NDArray[np.int64], effect: Array) -> Array:
    """Amounts that are never zero, gamma of shape 4."""
    return np.exp(1 + 0.7 * h + a * effect) * rng.gamma(4.0, 0.25, h.size)


def levels(rng: np.random.Generator, h: Array, a: NDArray[np.int64], effect: Array) -> Array:
    """Five ordered levels by a logistic variable."""
    return np.digitize(1.5 * h + a * effect + rng.logistic(size=h.size), [-2.0, -0.5, 0.5, 2.0]).astype(np.float64)


def amount_ratio(rng: np.random.Generator, h: Array, a: NDArray[np.int64], effect: Array) -> Array:
    """Both the chance of any and the amount are multiplied."""
    has_any = risk_ratio(rng, h, a, effect)
    return has_any * np.exp(2 + 0.7 * h + a * effect + 0.7 * rng.standard_normal(h.size))


def amount_difference(rng: np.random.Generator, h: Array, a: NDArray[np.int64], effect: Array) -> Array:
    """The chance of any is raised, and the amount multiplied."""
    has_any = risk_difference(rng, h, a, effect)
    return has_any * np.exp(2 + 0.7 * h + 2 * a * effect + 0.7 * rng.standard_normal(h.size))


# By the family and the scale that they are of.
OUTCOMES: dict[tuple[str, str], Outcome] = {
    ("binary", "difference"): Outcome(risk_difference, 0.15, 0.13),
    ("binary", "ratio"): Outcome(risk_ratio, 0.5, 0.60),
    ("binary", "odds_ratio"): Outcome(odds_ratio, 1.0, 0.75),
    ("count", "difference"): Outcome(rate_difference, 0.8, 1.00),
    ("count", "ratio"): Outcome(rate_ratio, 0.5, 0.35),
    ("numeric", "ratio"): Outcome(mean_ratio, 0.5, 0.22),
    ("ordinal", "odds_ratio"): Outcome(levels, 1.0, 0.60),
    ("amount", "difference"): Outcome(amount_difference, 0.15, 0.11),
    ("amount", "ratio"): Outcome(amount_ratio, 0.5, 0.40),
}


def score(x: Array, shape: str) -> Array:
    """What X1 and X2 modify the effect by, of standard deviation about one each."""
    if shape == "linear":
        return x[:, 0] - x[:, 1]
    return 2.0 * (x[:, 0] > 0.5) - 2.0 * (np.abs(x[:, 1]) > 1.0)


def design(kind: str, scale: str, shape: str) -> designs.Design:
    """Tables of one family and scale; `shape` is none, wild, constant, linear or threshold."""
    outcome = OUTCOMES[kind, scale]

    def simulate(seed: int, n: int) -> Table:
        modified = shape in ("linear", "threshold")
        rng, x, a = (designs.randomised_features if modified else designs.features)(seed, n)
        effect = np.full(n, 0.0 if shape in ("none", "wild") else outcome.constant)
        if modified:
            effect = 0.3 * outcome.constant + outcome.unit * score(x, shape)
        y = outcome.draw(rng, common(x), a, effect)
        if shape == "wild":
            y[rng.integers(n)] = WILD
        settings = {"outcome": kind, "effect_scale": scale}
        frame = designs.as_frame(x)
        return Table(frame, a, y, MODIFIERS if modified else [], designs.PROGNOSTIC, settings=settings)

    return simulate
