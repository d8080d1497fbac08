"""Coverage of the bands around bounds, and error rates of the tests of whether bounds change along a feature.

    python benchmarks/bounds_study.py --n 1000 --runs 100

simulates a randomised treatment and a feature of four categories that has no influence, and prints for each design the
share of 95% intervals that hold the true bound, and the share of p-values of at most 0.05.

    python benchmarks/bounds_study.py --slopes --n 1000 --runs 60

does the first along a normal feature that raises the outcome of the control by 1 and of the treated by 2 per unit, with
the default bandwidth, with one that shrinks with n^(-1/5), and with the median distance between rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.stats import expon, norm

from modifind.explain.bounds import BoundDraws, effect_bounds
from modifind.explain.couplings import benefit_bounds, correlation_bounds, variance_bounds
from modifind.explain.local import local_bandwidth
from modifind.explain.local_distributions import ENDS
from modifind.explain.rows import GivenRows
from modifind.statistics.wcmmd import median_bandwidth

Quantiles = Callable[[np.ndarray], np.ndarray]
SAME_VALUES = 1e-9


def steps(*probabilities: float) -> Quantiles:
    """Quantile function of the values 0, 1, 2, ... with the given probabilities."""
    ends = np.cumsum(probabilities)[:-1]
    return lambda u: np.searchsorted(ends, u).astype(float)


# Control and treated.
DESIGNS: dict[str, tuple[Quantiles, Quantiles]] = {
    "normal, other spread": (norm.ppf, lambda u: 1 + 2 * norm.ppf(u)),
    "normal and exponential": (norm.ppf, expon.ppf),
    "normal, no effect": (norm.ppf, norm.ppf),
    "four grades": (steps(0.4, 0.3, 0.2, 0.1), steps(0.2, 0.2, 0.3, 0.3)),
    "four grades, no effect": (steps(0.4, 0.3, 0.2, 0.1), steps(0.4, 0.3, 0.2, 0.1)),
    "binary": (steps(0.7, 0.3), steps(0.5, 0.5)),
}


def truth(control: Quantiles, treated: Quantiles) -> np.ndarray:
    """The bounds of the true distributions, from quantiles; rows of one place are a tie in discrete ones only."""
    u = (np.arange(400_000) + 0.5) / 400_000
    y0, y1 = control(u), treated(u)
    moments = (*variance_bounds(y1, y0), *correlation_bounds(y1, y0))
    strict, weak = benefit_bounds(y1, y0), benefit_bounds(y1, y0, ties=True)
    if np.unique(y0).size == u.size:  # distributions without atoms have no ties
        strict, weak = (strict[0], weak[1]), (strict[0], weak[1])
    return np.array([*moments, *strict, *weak])


BANDWIDTHS: dict[str, Callable[[np.ndarray], float]] = {
    "local": local_bandwidth,
    "n^(-1/5)": lambda x: local_bandwidth(x) * x.size**0.05,
    "median distance": lambda x: float(median_bandwidth(x)),
}
SPREAD = 1.5
AT = norm.ppf(np.linspace(0.05, 0.95, 9))


def slopes(options: argparse.Namespace) -> None:
    """Coverage along a feature with slopes, by bandwidth."""
    shown = [ENDS.index(f"{name}_{end}") for name in ("var", "benefit") for end in ("low", "high")]
    true = np.array([truth(norm.ppf, lambda u, x=x: x + SPREAD * norm.ppf(u))[shown] for x in AT])
    covered = {}
    for name, bandwidth in BANDWIDTHS.items():
        inside = []
        for seed in range(options.seed, options.seed + options.runs):
            data, draws = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
            x, a, noise = data.normal(size=options.n), data.integers(0, 2, size=options.n), data.normal(size=options.n)
            y = np.where(a == 1, 2 * x + SPREAD * noise, x + noise)
            table = effect_bounds(x, y, a, 0.5, points=AT, bandwidth=bandwidth(x), random_state=draws)
            low, high = (table[[f"{ENDS[k]}_ci_{side}" for k in shown]].to_numpy() for side in ("low", "high"))
            inside.append((low <= true) & (true <= high))
        for points, average in (
            ("all points", np.mean(inside, axis=(0, 1))),
            ("worst point", np.mean(inside, axis=0).min(axis=0)),
        ):
            covered[name, points] = average
    print("share of 95% intervals that hold the bound")
    print(pd.DataFrame(covered, index=[ENDS[k] for k in shown]).T.round(2).to_string())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="first seed; 1000 and above are for final figures")
    parser.add_argument("--designs", nargs="+", default=list(DESIGNS), choices=list(DESIGNS))
    parser.add_argument("--slopes", action="store_true", help="a continuous feature with slopes, by bandwidth")
    options = parser.parse_args()
    if options.slopes:
        slopes(options)
        return
    covered, rejected = {}, {}
    for name in options.designs:
        control, treated = DESIGNS[name]
        true = truth(control, treated)
        inside, p_values = [], []
        for seed in range(options.seed, options.seed + options.runs):
            data, draws = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
            x, a = data.integers(0, 4, size=options.n), data.integers(0, 2, size=options.n)
            u = data.random(options.n)
            rows = GivenRows(x, np.where(a == 1, treated(u), control(u)), a, 0.5, discrete=True)
            found = BoundDraws.of(rows, random_state=draws)
            table, tests = found.table(), found.test()
            low, high = (table[[f"{end}_ci_{side}" for end in ENDS]].to_numpy() for side in ("low", "high"))
            inside.append(((low <= true + SAME_VALUES) & (true <= high + SAME_VALUES)).mean(axis=0))
            p_values.append(tests["p_value"].to_numpy())
        covered[name] = np.mean(inside, axis=0)
        rejected[name] = (np.array(p_values) <= 0.05).mean(axis=0)
        parts = tests["quantity"] + " " + tests["part"]
    with pd.option_context("display.width", 200, "display.max_columns", None):
        print("share of 95% intervals that hold the bound")
        print(pd.DataFrame(covered, index=list(ENDS)).T.round(2).to_string())
        print("\nshare of p-values of at most 0.05 under no variation")
        print(pd.DataFrame(rejected, index=parts).T.round(2).to_string())


if __name__ == "__main__":
    main()
