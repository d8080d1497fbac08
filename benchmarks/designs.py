"""Simulated tables with a known truth: which features modify the effect, which only move both arms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modifind.datasets import make_modifiers, make_trial

Array = NDArray[np.float64]
N_FEATURES = 30
TEN_FEATURES = 10
FEW_FEATURES = 8
N_CLUSTERS = 60
PAPER = ("LinMean", "NonlinMean", "LinVar", "NonlinVar")
PROGNOSTIC = [f"X{j}" for j in range(26, 31)]


NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})


class Table(NamedTuple):
    """One simulated table."""

    X: pd.DataFrame
    treatment: NDArray[np.int64]
    y: Array
    modifiers: list[str]
    prognostic: list[str]
    weights: Array | None = None
    clusters: NDArray[np.int64] | None = None
    strata: NDArray[Any] | None = None
    settings: Mapping[str, Any] = NO_SETTINGS  # of the selector


Design = Callable[[int, int], Table]


def expit(z: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-z))


def prognosis(x: Array) -> Array:
    """Five strong effects on both arms: linear, absolute value, square, sine, step."""
    parts = (2 * x[:, 0], 2 * np.abs(x[:, 1]), x[:, 2] ** 2, 2 * np.sin(2 * x[:, 3]), 2.0 * (x[:, 4] > 0))
    return np.sum(parts, axis=0)


def as_frame(x: Array) -> pd.DataFrame:
    return pd.DataFrame(x, columns=[f"X{j + 1}" for j in range(x.shape[1])])


def features(
    seed: int, n: int, correlation: float = 0.2, n_features: int = N_FEATURES
) -> tuple[np.random.Generator, Array, NDArray[np.int64]]:
    """A ~ Bernoulli(1/2) and X given A normal with mean -0.2 or 0.2, as in the paper."""
    rng = np.random.default_rng([seed, 17])
    place = np.arange(n_features)
    root = np.linalg.cholesky(correlation ** np.abs(np.subtract.outer(place, place)))
    a = rng.integers(0, 2, n)
    return rng, np.where(a == 1, 0.2, -0.2)[:, None] + rng.standard_normal((n, n_features)) @ root.T, a


def paper(kind: str, *, prognostic: bool = False) -> Design:
    def simulate(seed: int, n: int) -> Table:
        data = make_modifiers(kind, n_samples=n, n_features=N_FEATURES, random_state=seed)
        moved = PROGNOSTIC if prognostic else []
        y = data.y + prognosis(data.X[moved].to_numpy()) if moved else data.y
        return Table(data.X, data.treatment, y, list(data.modifiers), moved)

    return simulate


def effect_of_size(size: float, *, spread: bool) -> Design:
    """The paper's linear score times `size`, as a difference of means or as a spread of the treated."""

    def simulate(seed: int, n: int) -> Table:
        rng, x, a = features(seed, n)
        score = size * (x[:, :5] @ np.array([4.0, 2.0, 1.0, 2.0, 4.0]))
        noise = rng.standard_normal(n)
        y = a * np.exp(score) * noise + (1 - a) * noise if spread else (2 * a - 1) * score + noise
        return Table(as_frame(x), a, y, [f"X{j}" for j in range(1, 6)], [])

    return simulate


def square(seed: int, n: int) -> Table:
    rng, x, a = features(seed, n)
    return Table(as_frame(x), a, 0.7 * a * (x[:, 0] ** 2 + x[:, 1] ** 2) + rng.standard_normal(n), ["X1", "X2"], [])


def absolute(seed: int, n: int) -> Table:
    rng, x, a = features(seed, n)
    return Table(as_frame(x), a, a * (np.abs(x[:, 0]) + np.abs(x[:, 1])) + rng.standard_normal(n), ["X1", "X2"], [])


def interaction(seed: int, n: int) -> Table:
    rng, x, a = features(seed, n)
    return Table(as_frame(x), a, 1.5 * a * x[:, 0] * x[:, 1] + rng.standard_normal(n), ["X1", "X2"], [])


def discrete(seed: int, n: int) -> Table:
    rng, x, a = features(seed, n)
    frame = as_frame(x)
    group, half = np.digitize(x[:, 0], [-0.5, 0.5]), (x[:, 1] > 0).astype(int)
    frame["X1"] = np.array(["low", "middle", "high"])[group]
    frame["X2"] = half
    frame["X3"] = np.digitize(x[:, 2], [-1, 0, 1])
    frame["X4"] = (x[:, 3] > 1).astype(int)
    effect = np.array([0.0, 0.8, -0.3])[group] + 0.6 * half
    return Table(frame, a, a * effect + rng.standard_normal(n), ["X1", "X2"], [])


def tail_only(seed: int, n: int) -> Table:
    """Treated rows with positive X1 have t(2.2) noise of variance 1; mean and variance never change."""
    rng, x, a = features(seed, n)
    heavy = rng.standard_t(2.2, n) / np.sqrt(11.0)
    return Table(as_frame(x), a, a + np.where((a == 1) & (x[:, 0] > 0), heavy, rng.standard_normal(n)), ["X1"], [])


def skewness_only(seed: int, n: int) -> Table:
    """The skewness of treated rows turns with the sign of X1; mean and variance never change."""
    rng, x, a = features(seed, n)
    skewed = rng.gamma(2.0, size=n) / np.sqrt(2.0) - np.sqrt(2.0)
    return Table(as_frame(x), a, a + np.where(a == 1, np.sign(x[:, 0]) * skewed, rng.standard_normal(n)), ["X1"], [])


def randomised_features(
    seed: int, n: int, n_features: int = N_FEATURES
) -> tuple[np.random.Generator, Array, NDArray[np.int64]]:
    """The same features, alike in both arms."""
    rng, x, a = features(seed, n, n_features=n_features)
    return rng, x - np.where(a == 1, 0.2, -0.2)[:, None], a


def rare_events(share: float, *, randomised: bool = True) -> Design:
    """A share of the treated rows with positive X1 falls by six standard deviations."""

    def simulate(seed: int, n: int) -> Table:
        rng, x, a = (randomised_features if randomised else features)(seed, n)
        fallen = (a == 1) & (x[:, 0] > 0) & (rng.random(n) < share)
        return Table(as_frame(x), a, a + rng.standard_normal(n) - 6.0 * fallen, ["X1"], [])

    return simulate


def gamma_noise(*, randomised: bool = True) -> Design:
    """Noise of treated rows with positive X1 is gamma of mean 0 and variance 1, that of all others normal."""

    def simulate(seed: int, n: int) -> Table:
        rng, x, a = (randomised_features if randomised else features)(seed, n)
        skewed = rng.gamma(2.0, size=n) / np.sqrt(2.0) - np.sqrt(2.0)
        noise = np.where((a == 1) & (x[:, 0] > 0), skewed, rng.standard_normal(n))
        return Table(as_frame(x), a, a + noise, ["X1"], [])

    return simulate


def noisy(outcome: Callable[[np.random.Generator, Array], Array]) -> Design:
    """No effect at all; the outcome is drawn given X30, in both arms alike."""

    def simulate(seed: int, n: int) -> Table:
        rng, x, a = features(seed, n)
        return Table(as_frame(x), a, outcome(rng, x[:, 29]).astype(np.float64), [], ["X30"])

    return simulate


def no_effect(seed: int, n: int) -> Table:
    rng, x, a = features(seed, n)
    return Table(as_frame(x), a, rng.standard_normal(n), [], [])


def constant_effect(seed: int, n: int) -> Table:
    rng, x, a = features(seed, n)
    return Table(as_frame(x), a, prognosis(x[:, 25:]) + 2 * a + rng.standard_normal(n), [], PROGNOSTIC)


def heavy_tails(seed: int, n: int) -> Table:
    rng, x, a = features(seed, n)
    return Table(as_frame(x), a, x[:, 29] + a + rng.standard_t(3, n), [], ["X30"])


def log_normal(seed: int, n: int) -> Table:
    rng, x, a = features(seed, n)
    return Table(as_frame(x), a, np.exp(0.5 * a + rng.standard_normal(n)), [], [])


def poor_overlap(seed: int, n: int) -> Table:
    """Assignment by a logistic score of six features; the AUC of the true score is about 0.9."""
    rng, _, _ = features(seed, n)
    place = np.arange(N_FEATURES)
    x = rng.standard_normal((n, N_FEATURES)) @ np.linalg.cholesky(0.2 ** np.abs(np.subtract.outer(place, place))).T
    a = (rng.random(n) < expit(x[:, :6].sum(axis=1))).astype(np.int64)
    return Table(as_frame(x), a, a + rng.standard_normal(n), [], [])


def strong_correlation(seed: int, n: int) -> Table:
    rng, x, a = features(seed, n, correlation=0.9)
    return Table(as_frame(x), a, 1.5 * a * x[:, 0] + rng.standard_normal(n), ["X1"], [])


def mixed_columns(seed: int, n: int) -> Table:
    """Log-normal, zero-inflated and discrete columns, and one that is a noisy square of another."""
    rng, x, a = features(seed, n)
    frame = as_frame(x)
    frame["X2"] = np.exp(x[:, 1])
    frame["X6"] = 1.5 * x[:, 1] ** 2 + x[:, 5]
    for j in (2, *range(14, 20)):
        frame[f"X{j + 1}"] = np.where(x[:, j] < 0.3, 0.0, np.exp(x[:, j]))
    for j in (3, 4, *range(6, 14)):
        frame[f"X{j + 1}"] = np.digitize(x[:, j], [-1.0, 0.0, 0.8]) if j % 2 else (x[:, j] > 0.5).astype(int)
    return Table(frame, a, 1.5 * a * x[:, 0] + rng.standard_normal(n), ["X1"], [])


def small_table(seed: int, n: int) -> Table:
    return no_effect(seed, 300)


def embedded_trial(seed: int, n: int) -> Table:
    frame = make_trial(n, np.random.default_rng([seed, 17]))
    features = frame.drop(columns=["drug", "pressure_change"])
    a = (frame["drug"] == "drug").to_numpy().astype(np.int64)
    y = frame["pressure_change"].to_numpy()
    return Table(features, a, y, ["age", "smoker", "diabetes"], ["cholesterol", "baseline_pressure"])


def redundant_columns(seed: int, n: int) -> Table:
    rng = np.random.default_rng([seed, 17])
    weight, height = rng.normal(80, 15, n), rng.normal(1.7, 0.1, n)
    frame = pd.DataFrame({"kilograms": weight, "height": height, "bmi": weight / height**2})
    frame["level"] = np.exp(rng.standard_normal(n))
    frame["log_level"] = np.log(frame["level"])
    length = rng.standard_normal(n)
    frame["centimetres"], frame["inches"] = length, length / 2.54
    return Table(frame, rng.integers(0, 2, n), rng.standard_normal(n), [], [])


def survey(by: str) -> Design:
    """A sample from a population in which X1 modifies and X2 is prognostic; the weights' coefficient of variation is 1.

    Rows are sampled by X5, by X2 and X7, or by X5 and the outcome, which makes the two dependent in the sample.
    """

    def simulate(seed: int, n: int) -> Table:
        rng = np.random.default_rng([seed, 23])
        size = 30 * n
        place = np.arange(FEW_FEATURES)
        root = np.linalg.cholesky(0.4 ** np.abs(np.subtract.outer(place, place)))
        x = rng.standard_normal((size, FEW_FEATURES)) @ root.T
        a = (rng.random(size) < expit(0.5 * x[:, 2])).astype(np.int64)
        noise = rng.standard_normal(size)
        y = a + a * x[:, 0] + x[:, 1] + noise
        score = {"X5": x[:, 4], "others": (x[:, 1] + x[:, 6]) / np.sqrt(2), "outcome": (x[:, 4] + noise) / np.sqrt(2)}[
            by
        ]
        score = np.sqrt(np.log(2)) * score
        rows = np.argsort(-(score + rng.gumbel(size=size)))[:n]  # n draws in proportion to exp(score)
        frame = as_frame(x[rows])
        frame["X8"] = np.digitize(x[rows, 7], [-0.7, 0.4])
        return Table(frame, a[rows], y[rows], ["X1"], ["X2"], weights=np.exp(-score[rows]))

    return simulate


def clustered(by_cluster: bool) -> Design:
    """Sixty clusters with random intercepts; features share half their variance within a cluster, C1 and C2 all of it.

    X1 modifies and X2 is prognostic. The treatment is given by row, more often where X2 is large, or to whole clusters.
    """

    def simulate(seed: int, n: int) -> Table:
        rng = np.random.default_rng([seed, 29])
        clusters = rng.permutation(np.arange(n) % N_CLUSTERS)
        shared, own = rng.standard_normal((N_CLUSTERS, FEW_FEATURES)), rng.standard_normal((n, FEW_FEATURES))
        frame = as_frame((shared[clusters] + own) / np.sqrt(2))
        frame["C1"] = rng.standard_normal(N_CLUSTERS)[clusters]
        frame["C2"] = (rng.random(N_CLUSTERS) < 0.4).astype(int)[clusters]
        a = (rng.random(n) < expit(0.5 * frame["X2"].to_numpy())).astype(np.int64)
        if by_cluster:
            a = rng.permutation(np.arange(N_CLUSTERS) % 2)[clusters]
        y = a + a * frame["X1"] + frame["X2"] + rng.standard_normal(N_CLUSTERS)[clusters] + rng.standard_normal(n)
        return Table(frame, a, y.to_numpy(), ["X1"], ["X2"], clusters=clusters)

    return simulate


def cluster_level(size: int, by_cluster: bool) -> Design:
    """Clusters of some size with random intercepts; C1, which has one value in each cluster, modifies.

    C2 and X2 are prognostic; C3, D1 (two levels) and the X are null. The treatment is given by a coin, to rows or to
    whole clusters.
    """

    def simulate(seed: int, n: int) -> Table:
        rng = np.random.default_rng([seed, 47])
        n_clusters = n // size
        clusters = np.repeat(np.arange(n_clusters), size)
        shared, own = rng.standard_normal((n_clusters, 5)), rng.standard_normal((n, 5))
        frame = as_frame((shared[clusters] + own) / np.sqrt(2))
        for name in ("C1", "C2", "C3"):
            frame[name] = rng.standard_normal(n_clusters)[clusters]
        frame["D1"] = rng.permutation(np.arange(n_clusters) % 5 < 2).astype(int)[clusters]
        a = rng.permutation(np.arange(n_clusters) % 2)[clusters] if by_cluster else rng.integers(0, 2, n)
        noise = 0.5 * rng.standard_normal(n_clusters)[clusters] + rng.standard_normal(n)
        y = a * (1 + frame["C1"]) + 0.5 * frame["C2"] + frame["X2"] + noise
        return Table(frame, a, y.to_numpy(), ["C1"], ["C2", "X2"], clusters=clusters)

    return simulate


def with_null_outcome(X: pd.DataFrame) -> Design:
    """Real features, of which two decide both treatment and outcome, and an effect that nothing modifies."""

    def simulate(seed: int, n: int) -> Table:
        rng = np.random.default_rng([seed, 53])
        frame = X.iloc[np.sort(rng.choice(len(X), min(n, len(X)), replace=False))].reset_index(drop=True)
        names = [str(name) for name in rng.choice(frame.columns, 2, replace=False)]
        ranks = [frame[name].rank().to_numpy() for name in names]
        first, second = (np.nan_to_num((own - np.nanmean(own)) / (np.nanstd(own) or 1.0)) for own in ranks)
        a = (rng.random(len(frame)) < expit(0.7 * first - 0.5 * second)).astype(np.int64)
        y = a + first + 0.5 * second**2 + rng.standard_normal(len(frame))
        return Table(frame, a, y, [], names)

    return simulate


def grouped_columns(seed: int, n: int) -> Table:
    """Two modifiers that say nearly the same, and null columns, many of them correlated with these, for `GROUPS`."""
    rng = np.random.default_rng([seed, 17])
    z = rng.standard_normal((n, 20))
    a = (rng.random(n) < expit(0.4 * z[:, 0] - 0.4 * z[:, 2])).astype(np.int64)
    near = 0.98 * z[:, 0] + np.sqrt(1 - 0.98**2) * z[:, 1]
    frame = pd.DataFrame({"m1": z[:, 0], "p1": 0.7 * z[:, 0] + z[:, 3], "m2": near, "p2": 0.5 * z[:, 0] - z[:, 4]})
    frame["t1"] = 0.5 * z[:, 0] + z[:, 5]
    frame["t2"] = (0.5 * z[:, 0] + 0.8 * z[:, 5] + z[:, 6] > 0).astype(int)
    frame["t3"] = np.array(["low", "middle", "high"])[np.digitize(z[:, 2] + z[:, 7], [-0.6, 0.7])]
    frame["f1"], frame["f2"] = np.exp(0.6 * (z[:, 2] + z[:, 8])), z[:, 8] + 0.5 * z[:, 9]
    frame["f3"] = np.where(z[:, 9] + 0.6 * z[:, 0] < 0.2, 0.0, np.exp(0.5 * z[:, 10]))
    frame["f4"] = np.digitize(z[:, 10] + 0.5 * z[:, 0], [-0.7, 0.0, 0.8])
    level = np.digitize(0.7 * z[:, 0] + z[:, 11], [-0.5, 0.5])
    for k in range(3):
        frame[f"d{k + 1}"] = (level == k).astype(int)
    frame["s1"] = 0.6 * z[:, 0] + z[:, 12]
    frame["s2"] = frame["s1"] ** 2
    frame["c1"] = 0.5 * z[:, 0] + z[:, 13]
    frame["c2"] = 0.98 * frame["c1"] + 0.2 * z[:, 14]
    frame["other"], frame["lone"] = z[:, 2], 0.5 * z[:, 2] + z[:, 15]
    y = a * (0.5 * (z[:, 0] + near) + 0.5 * z[:, 2]) + z[:, 16]
    return Table(frame, a, y, ["both", "other"], [])


GROUPS = {
    "both": ["m1", "m2"],
    "two": ["p1", "p2"],
    "three": ["t1", "t2", "t3"],
    "four": ["f1", "f2", "f3", "f4"],
    "dummies": ["d1", "d2", "d3"],
    "square": ["s1", "s2"],
    "pair": ["c1", "c2"],
}


def with_gaps(*, informative: bool) -> Design:
    """Eight features, four of them with about 20% missing values given the others.

    X1 modifies by its value and X2 by being missing. X1 is independent of the rest, since otherwise the rest would
    speak for it where it is missing. X8 is prognostic, and so is that X3 is missing where `informative`.
    """

    def simulate(seed: int, n: int) -> Table:
        rng = np.random.default_rng([seed, 23])
        place = np.arange(8)
        root = np.linalg.cholesky(0.3 ** np.abs(np.subtract.outer(place, place)))
        x = rng.standard_normal((n, 8)) @ root.T
        x[:, 0] = rng.standard_normal(n)
        a = rng.integers(0, 2, n)
        gaps = rng.random((n, 4)) < expit(x[:, 4:] - 1.6)
        y = a * (x[:, 0] + 1.2 * gaps[:, 1]) + x[:, 7] + 2.0 * informative * gaps[:, 2] + rng.standard_normal(n)
        x[:, :4] = np.where(gaps, np.nan, x[:, :4])
        return Table(as_frame(x), a, y, ["X1", "X2"], ["X3", "X8"] if informative else ["X8"])

    return simulate


def pair(seed: int, n: int) -> Table:
    """Two pressures of correlation 0.98 that modify the effect together, an age that goes with them, a lab value."""
    rng = np.random.default_rng([seed, 41])
    z = rng.standard_normal((n, 4))
    frame = pd.DataFrame({"sbp": z[:, 0], "dbp": 0.98 * z[:, 0] + np.sqrt(1 - 0.98**2) * z[:, 1]})
    frame["age"], frame["lab"] = 0.5 * z[:, 0] + z[:, 2], z[:, 3]
    a = rng.integers(0, 2, n)
    y = a * 0.3 * (frame["sbp"] + frame["dbp"]).to_numpy() + rng.standard_normal(n)
    return Table(frame, a, y, ["sbp", "dbp"], [])


def stratified(seed: int, n: int) -> Table:
    """A trial in five sites that differ in ratio, baseline and features; X1 modifies and X2 is prognostic."""
    rng = np.random.default_rng([seed, 37])
    site = rng.integers(0, 5, n)
    x = rng.standard_normal((n, FEW_FEATURES))
    x[:, 2:5] += 0.5 * np.array([-1.0, -0.5, 0.0, 0.5, 1.0])[site][:, None]
    a = (rng.random(n) < np.array([0.25, 0.4, 0.5, 0.65, 0.8])[site]).astype(np.int64)
    baseline = np.array([-1.5, 0.0, 1.0, 0.5, 2.0])[site]
    y = baseline + a * (0.5 + x[:, 0]) + x[:, 1] + rng.standard_normal(n)
    return Table(as_frame(x), a, y, ["X1"], ["X2"], strata=np.array([*"ABCDE"])[site])


def rare_levels(seed: int, n: int) -> Table:
    """Eight features, five of them with levels of few rows, of which some are pooled; X1 modifies and X2 is prognostic.

    The treatment depends on two of the features with rare levels.
    """
    rng = np.random.default_rng([seed, 31])
    x = rng.standard_normal((n, FEW_FEATURES))
    frame = as_frame(x)
    shares = np.array([0.55, 0.3, 0.1, 0.03, 0.012, 0.008])
    for k in range(3, FEW_FEATURES):
        frame[f"X{k + 1}"] = np.array([*"abcdef"])[rng.choice(6, n, p=shares)]
    logit = 0.4 * x[:, 1] + 0.8 * (frame["X4"] > "b") - 0.8 * (frame["X5"] > "c")
    a = (rng.random(n) < expit(logit)).astype(np.int64)
    y = a * (1.0 + x[:, 0]) + x[:, 1] + rng.standard_normal(n)
    return Table(frame, a, y, ["X1"], ["X2"])


def many_levels(n_levels: int, *, modify: float = 0.0, coin: bool = False) -> Design:
    """A category of many levels that differ in X1, in sex, in the outcome and in how often they are treated.

    Levels have unequal numbers of rows. X1 modifies, and by `modify` (the standard deviation over levels) so does the
    category; X4 goes with X1. With a `coin` in place of the treatment nothing modifies.
    """

    def design(seed: int, n: int) -> Table:
        rng = np.random.default_rng([seed, 23])
        level = rng.choice(n_levels, size=n, p=rng.dirichlet(np.full(n_levels, 10.0)))
        trait = rng.normal(size=(n_levels, 4))[level]
        x = rng.normal(size=(n, 6))
        x[:, 0] += trait[:, 0]
        x[:, 3] += 0.5 * x[:, 0]
        sex = np.where(rng.random(n) < expit(trait[:, 1]), "f", "m")
        chance = np.full(n, 0.5) if coin else expit(0.5 * x[:, 0] + 0.5 * trait[:, 2])
        a = (rng.random(n) < chance).astype(np.int64)
        effect = 0.0 if coin else 0.5 + 0.5 * x[:, 0] + modify * trait[:, 3]
        y = x[:, 1] + trait[:, 2] + a * effect + rng.normal(size=n)
        frame = as_frame(x).assign(sex=sex, site=np.char.add("s", level.astype(str)))
        modifiers = [] if coin else ["X1", "site"] if modify else ["X1"]
        return Table(frame, a, y, modifiers, ["X2"])

    return design


def zero_effect(outcome: Callable[[np.random.Generator, Array], Array]) -> Design:
    """Ten features; the treatment does nothing, and the outcome is drawn given X1, in both arms alike."""

    def simulate(seed: int, n: int) -> Table:
        rng, x, a = features(seed, n, n_features=TEN_FEATURES)
        return Table(as_frame(x), a, outcome(rng, x[:, 0]).astype(np.float64), [], ["X1"])

    return simulate


def _negative_binomial(rng: np.random.Generator, x: Array) -> Array:
    """Counts of mean exp(0.5 + 0.5 x) and size 2."""
    return rng.negative_binomial(2, 2 / (2 + np.exp(0.5 + 0.5 * x)))


def _costs(rng: np.random.Generator, x: Array) -> Array:
    """Zero or gamma; both the chance of a cost and its size grow with x."""
    some = rng.random(x.size) >= expit(0.3 - 0.8 * x)
    return some * 500 * np.exp(0.6 * x) * rng.gamma(1.5, size=x.size)


def unfollowed(function: Callable[[Array], Array], *names: str) -> Design:
    """Ten features, a constant effect of 1, and a function of the features named, in both arms alike."""

    def simulate(seed: int, n: int) -> Table:
        rng, x, a = features(seed, n, n_features=TEN_FEATURES)
        return Table(as_frame(x), a, function(x) + a + rng.standard_normal(n), [], list(names))

    return simulate


def one_arm_spread(seed: int, n: int) -> Table:
    """The standard deviation of treated rows is exp(0.35 X1), that of the others 1."""
    rng, x, a = features(seed, n)
    return Table(as_frame(x), a, np.exp(0.35 * a * x[:, 0]) * rng.standard_normal(n), ["X1"], [])


def related(function: Callable[[Array], Array], *modifiers: str, step: bool, spread: bool = False) -> Design:
    """Ten features; X2 is a function of modifiers plus noise, or noise of that spread, and modifies nothing itself.

    The effect is a step at the median of the function, or in proportion to it.
    """

    def simulate(seed: int, n: int) -> Table:
        rng, x, a = randomised_features(seed, n, n_features=TEN_FEATURES)
        signal = function(x)
        noise = rng.standard_normal(n)
        x[:, 1] = signal * noise if spread else signal + signal.std() * noise
        centred = signal - np.median(signal)
        effect = np.sign(centred) if step else centred / signal.std()
        return Table(as_frame(x), a, 2.0 * a * effect + rng.standard_normal(n), list(modifiers), [])

    return simulate


def rounded(*, step: bool) -> Design:
    """The same where X2 is X1 plus noise, rounded to whole numbers."""

    def simulate(seed: int, n: int) -> Table:
        table = related(lambda x: x[:, 0], "X1", step=step)(seed, n)
        return table._replace(X=table.X.assign(X2=(2 * table.X["X2"]).round()))

    return simulate


def assigned(function: Callable[[Array], Array], chance: Callable[[Array], Array], effect: float) -> Design:
    """Ten features; a function of X2 and X3 decides the chance to be treated and moves the outcome of both arms."""

    def simulate(seed: int, n: int) -> Table:
        rng, x, _ = randomised_features(seed, n, n_features=TEN_FEATURES)
        signal = function(x)
        a = (rng.random(n) < chance(signal)).astype(np.int64)
        return Table(as_frame(x), a, 2.0 * signal + effect * a + rng.standard_normal(n), [], ["X2", "X3"])

    return simulate


def placebo(X: pd.DataFrame, y: Array, settings: Mapping[str, Any] = NO_SETTINGS) -> Design:
    """A coin flip for the treatment of n rows of a table as it is, so that no feature modifies anything."""

    def simulate(seed: int, n: int) -> Table:
        rng = np.random.default_rng([seed, 43])
        flips = rng.integers(0, 2, len(X))
        rows = np.arange(len(X)) if n >= len(X) else np.sort(rng.choice(len(X), n, replace=False))
        return Table(X.iloc[rows].reset_index(drop=True), flips[rows], y[rows], [], [], settings=settings)

    return simulate


def whole(effect: str = "", rows: str = "coin", noise: str = "normal") -> Design:
    """Four features of which X1 and X2 are prognostic, and an effect on the whole table: none, or of some kind.

    Rows are treated by a coin, more often where X1 is large ("confounded"), or in 60 clusters with random intercepts,
    by row or whole; "weights" is a sample in which rows with a large outcome are rarer. Noise is normal, log-normal, or
    normal with a spread that grows along X1 in both arms.
    """

    def simulate(seed: int, n: int) -> Table:
        rng = np.random.default_rng([seed, 67])
        size = 4 * n if rows == "weights" else n
        x, clusters = rng.standard_normal((size, 4)), None
        a = (rng.random(size) < expit(0.8 * x[:, 0] * (rows == "confounded"))).astype(np.int64)
        own = np.exp(rng.standard_normal(size)) if noise == "log-normal" else rng.standard_normal(size)
        own = own * np.exp(0.5 * x[:, 0]) if noise == "spread" else own
        if rows.startswith("clusters"):
            clusters = rng.permutation(np.arange(size) % N_CLUSTERS)
            own += 0.7 * rng.standard_normal(N_CLUSTERS)[clusters]
            if rows == "clusters, whole":
                a = rng.permutation(np.arange(N_CLUSTERS) % 2)[clusters]
        own = own * np.where(a == 1, 1.35, 1.0) if effect == "spread" else own
        y = x[:, 0] + 0.5 * x[:, 1] + own
        if effect == "tail":
            y -= 4.0 * a * (rng.random(size) < 0.06)
        y += a * {"mean": 0.25, "modified": 0.3 * x[:, 2], "weak": 0.13 * x.sum(axis=1)}.get(effect, 0.0)
        frame, modifiers = as_frame(x), {"modified": ["X3"], "weak": ["X1", "X2", "X3", "X4"]}.get(effect, [])
        if rows != "weights":
            return Table(frame, a, y, modifiers, ["X1", "X2"], clusters=clusters)
        chance = expit(-0.8 * y)
        kept = np.argsort(-(np.log(chance) + rng.gumbel(size=size)))[:n]
        found = Table(frame.iloc[kept].reset_index(drop=True), a[kept], y[kept], modifiers, ["X1", "X2"])
        return found._replace(weights=1.0 / chance[kept])

    return simulate


WHOLE_NULL: dict[str, Design] = {
    "trial, no effect": whole(),
    "log-normal noise": whole(noise="log-normal"),
    "confounded": whole(rows="confounded"),
    "confounded, spread in both arms": whole(rows="confounded", noise="spread"),
    "clusters, rows treated": whole(rows="clusters"),
    "clusters treated whole": whole(rows="clusters, whole"),
    "sampled by the outcome, weights": whole(rows="weights"),
}
WHOLE_POWER: dict[str, Design] = {
    "shift of 0.25": whole("mean"),
    "shift of 0.25, log-normal noise": whole("mean", noise="log-normal"),
    "spread of the treated 1.35 times": whole("spread"),
    "6% severe events among the treated": whole("tail"),
    "effect 0.3 X3, none on average": whole("modified"),
    "effect 0.13 of each feature": whole("weak"),
}
POWER: dict[str, Design] = {kind: paper(kind) for kind in PAPER}
WITH_PROGNOSTIC: dict[str, Design] = {f"{kind} + prognostic": paper(kind, prognostic=True) for kind in PAPER}
SHAPES: dict[str, Design] = {
    "square": square,
    "absolute value": absolute,
    "interaction only": interaction,
    "discrete": discrete,
    "tails only": tail_only,
}
TAILS: dict[str, tuple[Design, int]] = {
    "rare events 8%": (rare_events(0.08), 1000),
    "rare events 15%": (rare_events(0.15), 1000),
    "rare events 8%, confounded": (rare_events(0.08, randomised=False), 1000),
    "rare events 15%, confounded": (rare_events(0.15, randomised=False), 1000),
    "skewness turns with X1": (skewness_only, 1500),
    "gamma noise": (gamma_noise(), 1500),
    "gamma noise, confounded": (gamma_noise(randomised=False), 1500),
}
NOISE: dict[str, Design] = {
    "t(2.5)": noisy(lambda rng, x: x + rng.standard_t(2.5, x.size)),
    "log-normal": noisy(lambda rng, x: np.exp(x / 2 + rng.standard_normal(x.size))),
    "2% contaminated": noisy(
        lambda rng, x: x + rng.standard_normal(x.size) * np.where(rng.random(x.size) < 0.02, 10, 1)
    ),
    "counts": noisy(lambda rng, x: rng.poisson(np.exp(0.5 + 0.4 * x))),
}
# Where neither mean nor variance of an arm changes.
SHAPE_ONLY: dict[str, Design] = {"skewness only": skewness_only, "tails only": tail_only}
NULL: dict[str, Design] = {
    "no effect at all": no_effect,
    "constant effect, five prognostic features": constant_effect,
    "t(3) noise": heavy_tails,
    "log-normal outcome": log_normal,
    "poor overlap": poor_overlap,
    "AR(0.9) features, X1 modifies": strong_correlation,
    "discrete, zero-inflated and skewed features, X1 modifies": mixed_columns,
    "n = 300, no effect": small_table,
    "embedded trial's design": embedded_trial,
    "columns that are functions of others, no effect": redundant_columns,
}
# What real tables have and simulated ones have not; a few features each, so that many runs are quick.
MESS: dict[str, Design] = {
    "survey weights, sampled by X5": survey("X5"),
    "survey weights, sampled by X2 and X7": survey("others"),
    "survey weights, sampled by X5 and the outcome": survey("outcome"),
    "clusters, treatment by row": clustered(False),
    "clusters, treatment by cluster": clustered(True),
    "trial randomised within five sites": stratified,
    "rare levels": rare_levels,
    "missing at random": with_gaps(informative=False),
    "missing, informative": with_gaps(informative=True),
}


def of_rows(design: Design) -> Design:
    """The same without features of clusters, which a table in pieces does not take."""

    def simulate(seed: int, n: int) -> Table:
        table = design(seed, n)
        return table._replace(X=table.X.drop(columns=["C1", "C2"]))

    return simulate


# What a table in pieces must know of its rows.
PIECES: dict[str, Design] = {
    "survey weights, sampled by X5": survey("X5"),
    "survey weights, sampled by X5 and the outcome": survey("outcome"),
    "clusters, treatment by row": of_rows(clustered(False)),
    "clusters, treatment by cluster": of_rows(clustered(True)),
    "trial randomised within five sites": stratified,
}
# Features measured once per cluster: number of rows, and the design.
CLUSTER_LEVEL: dict[str, tuple[int, Design]] = {
    f"{count} clusters of {size}, treatment by {'cluster' if by_cluster else 'row'}": (
        count * size,
        cluster_level(size, by_cluster),
    )
    for count, size in ((80, 25), (30, 40))
    for by_cluster in (False, True)
}
# The treatment does nothing, and the noise is not Student-t of one spread.
ZERO: dict[str, Design] = {
    "spread exp(x/2) in both arms": zero_effect(lambda rng, x: np.exp(x / 2) * rng.standard_normal(x.size)),
    "spread exp(x/5) in both arms": zero_effect(lambda rng, x: np.exp(x / 5) * rng.standard_normal(x.size)),
    "Poisson": zero_effect(lambda rng, x: rng.poisson(np.exp(0.5 + 0.5 * x))),
    "negative binomial": zero_effect(_negative_binomial),
    "log-normal": zero_effect(lambda rng, x: np.exp(0.7 * x + rng.standard_normal(x.size))),
    "detection limit": zero_effect(lambda rng, x: np.maximum(x + rng.standard_normal(x.size), -0.3)),
    "ceiling at 100": zero_effect(
        lambda rng, x: np.minimum(85 + 12 * x + 12 * rng.standard_normal(x.size), 100).round()
    ),
    "ordinal, 5 levels": zero_effect(
        lambda rng, x: np.digitize(x + rng.standard_normal(x.size), [-1.0, -0.2, 0.5, 1.3])
    ),
    "gamma costs with zeros": zero_effect(_costs),
    "time piled up at its maximum": zero_effect(lambda rng, x: np.minimum(rng.exponential(10 * np.exp(0.6 * x)), 24)),
}
# Prognostic functions that learners hardly follow.
UNFOLLOWED: dict[str, Design] = {
    "three-way product": unfollowed(lambda x: 2 * x[:, 0] * x[:, 1] * x[:, 2], "X1", "X2", "X3"),
    "5 sd step": unfollowed(lambda x: 5.0 * (x[:, 0] > 0), "X1"),
    "threshold AND": unfollowed(lambda x: 4.0 * ((x[:, 0] > 0) & (x[:, 1] > 0)), "X1", "X2"),
    "fast sine": unfollowed(lambda x: 2 * np.sin(6 * x[:, 0]), "X1"),
}
ONE_ARM: dict[str, Design] = {"spread exp(0.35 x) in one arm": one_arm_spread}
RELATED: dict[str, Design] = {
    f"X2 {name}, {'a step' if step else 'in proportion'}": design
    for step in (True, False)
    for name, design in {
        "near X1 X3": related(lambda x: x[:, 0] * x[:, 2], "X1", "X3", step=step),
        "near X1^2": related(lambda x: x[:, 0] ** 2, "X1", step=step),
        "near sin 3 X1": related(lambda x: np.sin(3 * x[:, 0]), "X1", step=step),
        "near |X1|": related(lambda x: np.abs(x[:, 0]), "X1", step=step),
        "near X1 / (0.5 + |X3|)": related(
            lambda x: x[:, 0] / (0.5 + np.abs(x[:, 2])), "X1", *([] if step else ["X3"]), step=step
        ),
        "near X1, rounded": rounded(step=step),
        "of spread exp(0.7 X1)": related(lambda x: np.exp(0.7 * x[:, 0]), "X1", step=step, spread=True),
    }.items()
}
LEVELS = {
    "levels differ in a modifier, 200 levels": many_levels(200),
    "levels differ in a modifier, 500 levels": many_levels(500),
    "coin flips, 200 levels": many_levels(200, coin=True),
    "levels modify (sd 0.5), 200 levels": many_levels(200, modify=0.5),
    "levels modify (sd 1), 200 levels": many_levels(200, modify=1.0),
}
ASSIGNED: dict[str, Design] = {
    f"{name}, {'an effect of 1' if effect else 'no effect'}": assigned(function, chance, effect)
    for effect in (0.0, 1.0)
    for name, (function, chance) in {
        "X2 > 0 or X3 > 0, not both": (
            lambda x: ((x[:, 1] > 0) ^ (x[:, 2] > 0)).astype(np.float64),
            lambda g: 0.2 + 0.6 * g,
        ),
        "X2 above 0.5": (lambda x: (x[:, 1] > 0.5).astype(np.float64), lambda g: 0.25 + 0.5 * g),
        "X2 X3": (lambda x: x[:, 1] * x[:, 2], lambda g: expit(1.2 * g)),
    }.items()
}
