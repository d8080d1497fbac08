"""Tables for `by_hand.py`: small trials and confounded tables on which a test by hand is strong, and hard nulls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import chi2, ncx2

from designs import NO_SETTINGS, Array, Design, Table, as_frame, expit

Rng = np.random.Generator
COIN = MappingProxyType({"propensity": 0.5})
EIGHT = 8
BASELINE = 0.3  # the effect where all modifiers are zero
SLOPES = (0.45, 0.25, 0.15)


def prognosis(x: Array) -> Array:
    """Lines and squares, which the test by hand has in its model as well."""
    lines = x[:, :4] @ np.array([0.5, 0.5, -0.4, 0.3])
    return lines + 0.3 * (x[:, 1] ** 2 - 1) + 0.2 * (x[:, 4] ** 2 - 1)


def confounded(x: Array) -> Array:
    return expit(0.6 * x[:, 0] - 0.5 * x[:, 1] + 0.4 * x[:, 2])


def treated(rng: Rng, x: Array, chance: Callable[[Array], Array] | None) -> NDArray[np.int64]:
    return (rng.random(len(x)) < (0.5 if chance is None else chance(x))).astype(np.int64)


def modified(
    effect: Callable[[Array], Array],
    modifiers: Sequence[str],
    chance: Callable[[Array], Array] | None = None,
    d: int = EIGHT,
) -> Design:
    """Independent normal features, an effect that is a function of them, and a coin unless there is a `chance`."""

    def simulate(seed: int, n: int) -> Table:
        rng = np.random.default_rng([seed, 71])
        x = rng.standard_normal((n, d))
        a = treated(rng, x, chance)
        y = prognosis(x) + a * (BASELINE + effect(x)) + rng.standard_normal(n)
        return Table(as_frame(x), a, y, list(modifiers), [], settings=NO_SETTINGS if chance else COIN)

    return simulate


def line(slope: float) -> Callable[[Array], Array]:
    return lambda x: slope * x[:, 0]


def three_lines(x: Array) -> Array:
    return x[:, :3] @ np.array(SLOPES)


THREE = ("X1", "X2", "X3")
# One modifier or three: the design, its rows, and whether the target is to be above the test by hand.
TRIAL: dict[str, tuple[Design, int, bool]] = {
    "line 0.34 x1": (modified(line(0.34), ["X1"]), 400, False),
    "threshold, 0.7 where x1 > 0": (modified(lambda x: 0.7 * (x[:, 0] > 0), ["X1"]), 400, True),
    "U-shape, 0.35 x1^2": (modified(lambda x: 0.35 * x[:, 0] ** 2, ["X1"]), 400, True),
    "U-shape, 0.7 abs x1": (modified(lambda x: 0.7 * np.abs(x[:, 0]), ["X1"]), 400, True),
    "2 in the upper 5% of x1": (modified(lambda x: 2.0 * (x[:, 0] > 1.645), ["X1"]), 400, True),
}
SEVERAL = modified(three_lines, THREE)
CONFOUNDED: dict[str, Design] = {
    "line 0.34 x1": modified(line(0.34), ["X1"], confounded),
    "line 0.2 x1": modified(line(0.2), ["X1"], confounded),
}
SEVERAL_CONFOUNDED = modified(three_lines, THREE, confounded)


def shares(n_levels: int) -> Array:
    """Of levels, the rarest about a third or less of the most frequent."""
    share = 1 / np.sqrt(np.arange(1, n_levels + 1))
    return share / share.sum()


@cache
def spread_of_effects(n_levels: int, n: int) -> float:
    """Standard deviation of effects over levels, in units of the noise, at which a joint test finds about half."""
    share = shares(n_levels)
    effects = np.random.default_rng(0).standard_normal((4000, n_levels))
    variance = (effects**2) @ share - (effects @ share) ** 2
    cut, low, high = chi2.isf(0.05, n_levels - 1), 0.0, 3.0
    for _ in range(30):
        middle = (low + high) / 2
        power = ncx2.sf(cut, n_levels - 1, n / 4 * middle**2 * variance).mean()
        low, high = (middle, high) if power < 0.5 else (low, middle)
    return low


def levels_modify(n_levels: int, *, binary: bool) -> Design:
    """A category whose levels differ in effect, five null numbers, and a null category of eight levels."""

    def simulate(seed: int, n: int) -> Table:
        rng = np.random.default_rng([seed, 73])
        x = rng.standard_normal((n, 5))
        level, other = rng.choice(n_levels, n, p=shares(n_levels)), rng.choice(8, n, p=shares(8))
        a = treated(rng, x, None)
        effect = spread_of_effects(n_levels, n) * rng.standard_normal(n_levels)[level]
        common = 0.3 * rng.standard_normal(n_levels)[level] + 0.3 * rng.standard_normal(8)[other] + 0.3 * x[:, 0]
        y = common + a * (BASELINE + effect) + rng.standard_normal(n)
        if binary:  # a risk of 0.45 to 0.55 and a noise of standard deviation 0.5
            y = (rng.random(n) < np.clip(0.45 + 0.2 * common + 0.5 * a * (0.2 + effect), 0.01, 0.99)).astype(float)
        frame = as_frame(x).assign(group=np.array([*"abcdefghijkl"])[level], other=np.array([*"ABCDEFGH"])[other])
        return Table(frame, a, y, ["group"], [], settings=COIN)

    return simulate


def wide(effect: Callable[[Array], Array], modifiers: Sequence[str], d: int) -> Design:
    """Many features, of which few modify, in a trial without much prognosis."""

    def simulate(seed: int, n: int) -> Table:
        rng = np.random.default_rng([seed, 79])
        x = rng.standard_normal((n, d))
        a = treated(rng, x, None)
        y = 0.5 * x[:, 3] + a * (BASELINE + effect(x)) + rng.standard_normal(n)
        return Table(as_frame(x), a, y, list(modifiers), [], settings=COIN)

    return simulate


def bimodal(seed: int, n: int) -> Table:
    """Treated rows with positive X1 have two modes; mean and variance never change."""
    rng = np.random.default_rng([seed, 83])
    x = rng.standard_normal((n, EIGHT))
    a = treated(rng, x, None)
    modes = 0.9 * rng.choice([-1.0, 1.0], n) + np.sqrt(1 - 0.9**2) * rng.standard_normal(n)
    noise = np.where((a == 1) & (x[:, 0] > 0), modes, rng.standard_normal(n))
    return Table(as_frame(x), a, 0.5 * x[:, 1] + a + noise, ["X1"], [], settings=COIN)


def never_modified(
    outcome: Callable[[Rng, Array, NDArray[np.int64]], Array],
    *,
    chance: Callable[[Array], Array] | None = None,
    columns: Callable[[Rng, int], Array] = lambda rng, n: rng.standard_normal((n, EIGHT)),
    frame: Callable[[Array], pd.DataFrame] = as_frame,
    settings: dict[str, Any] | None = None,
) -> Design:
    """No feature modifies the effect; the outcome is drawn given features and treatment."""

    def simulate(seed: int, n: int) -> Table:
        rng = np.random.default_rng([seed, 89])
        x = columns(rng, n)
        a = treated(rng, x, chance)
        known = {} if chance else dict(COIN)
        y = outcome(rng, x, a).astype(np.float64)
        return Table(frame(x), a, y, [], [], settings={**known, **(settings or {})})

    return simulate


def little_overlap(x: Array) -> Array:
    """The AUC of the true score is about 0.9."""
    return expit(x[:, :6].sum(axis=1))


def correlated(rng: Rng, n: int) -> Array:
    place = np.arange(EIGHT)
    return rng.standard_normal((n, EIGHT)) @ np.linalg.cholesky(0.9 ** np.abs(np.subtract.outer(place, place))).T


def skewed(rng: Rng, n: int) -> Array:
    return np.exp(rng.standard_normal((n, EIGHT)))


def product_beside(rng: Rng, n: int) -> Array:
    """X2 is X1 times X3 plus noise, and X4 has a spread that follows X1."""
    x = rng.standard_normal((n, EIGHT))
    x[:, 1] = x[:, 0] * x[:, 2] + 0.5 * x[:, 1]
    x[:, 3] *= np.exp(0.7 * x[:, 0])
    return x


def half_categories(x: Array) -> pd.DataFrame:
    """Every second feature is cut into two to five levels, which have names."""
    frame = as_frame(x)
    for j in range(0, EIGHT, 2):
        cuts = np.linspace(-0.8, 0.8, j // 2 + 1)
        frame[f"X{j + 1}"] = np.array([*"vwxyz"])[np.digitize(x[:, j], cuts)]
    return frame


def curved(x: Array) -> Array:
    return x[:, 0] ** 2 + np.abs(x[:, 1]) + np.sin(2 * x[:, 2])


LEVEL: dict[str, tuple[Design, int]] = {
    "no effect": (never_modified(lambda rng, x, a: rng.standard_normal(a.size)), 400),
    "constant effect, prognosis": (
        never_modified(lambda rng, x, a: prognosis(x) + curved(x) + a + rng.standard_normal(a.size)),
        600,
    ),
    "t(3) noise": (never_modified(lambda rng, x, a: x[:, 0] + a + rng.standard_t(3, a.size)), 600),
    "log-normal noise": (never_modified(lambda rng, x, a: 0.5 * a + np.exp(rng.standard_normal(a.size))), 600),
    "poor overlap": (
        never_modified(lambda rng, x, a: prognosis(x) + a + rng.standard_normal(a.size), chance=little_overlap),
        1000,
    ),
    "spread exp(x/2) in both arms": (
        never_modified(lambda rng, x, a: a + np.exp(x[:, 0] / 2) * rng.standard_normal(a.size)),
        1000,
    ),
    "counts": (never_modified(lambda rng, x, a: rng.poisson(np.exp(0.5 + 0.4 * x[:, 0]))), 600),
    "skewed features": (
        never_modified(lambda rng, x, a: np.log(x[:, 0]) + a + rng.standard_normal(a.size), columns=skewed),
        600,
    ),
    "categories": (
        never_modified(lambda rng, x, a: prognosis(x) + a + rng.standard_normal(a.size), frame=half_categories),
        600,
    ),
    "features of correlation 0.9": (
        never_modified(lambda rng, x, a: x[:, 0] + a + rng.standard_normal(a.size), columns=correlated),
        600,
    ),
    "HARD: poor overlap, t(3), spread exp(x/2)": (
        never_modified(
            lambda rng, x, a: a + np.exp(x[:, 0] / 2) * rng.standard_t(3, a.size),
            chance=little_overlap,
        ),
        1000,
    ),
    "HARD: confounding, nonlinear prognosis": (
        never_modified(lambda rng, x, a: curved(x) + a + rng.standard_normal(a.size), chance=confounded),
        1000,
    ),
    "HARD: X2 near X1 X3, features of unequal spread": (
        never_modified(
            lambda rng, x, a: x[:, 0] * x[:, 2] + x[:, 4] + a + rng.standard_normal(a.size), columns=product_beside
        ),
        1000,
    ),
}
