"""Three ways to combine the directions of the default test, on the same fits of development tables.

    python benchmarks/combinations.py --runs 20
    python benchmarks/combinations.py --runs 5 --only line LinVar

prints Markdown: the share of modifiers found (Bonferroni at 0.05 for one modifier of eight features,
Benjamini-Hochberg elsewhere) and the share of null features with p <= 0.05. All three give directions the same
weights, and join the likelihood to them by the Cauchy combination with its weight.

- cauchy: the weighted Cauchy combination, which the test uses.
- largest: the smallest weighted p-value, by the normal law of all standardised sums together (20,000 draws).
- quadratic: the sum of weighted squares of the standardised sums.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.stats import false_discovery_control, norm, t
from threadpoolctl import threadpool_limits

import by_hand_designs as tables
import designs
from by_hand_peers import ALPHA, by_default
from modifind.inference.direct_sums import MIN_FREEDOM, DirectSums, quadratic_tail
from modifind.inference.sums import AnalyticOutcome, cauchy_combination
from validity import header, row

Array = NDArray[np.float64]
N_DRAWS = 20_000
WAYS = ("cauchy", "largest", "quadratic")
CASES: dict[str, tuple[designs.Design, int]] = {
    **{name: (design, n) for name, (design, n, _) in tables.TRIAL.items()},
    "three lines": (tables.SEVERAL, 600),
    "product x1 x2": (tables.wide(lambda x: x[:, 0] * x[:, 1], ["X1", "X2"], 10), 300),
    "three lines, confounded": (tables.SEVERAL_CONFOUNDED, 1000),
    "gamma noise": designs.TAILS["gamma noise"],
    "two modes": (tables.bimodal, 1000),
    "LinVar": (designs.paper("LinVar"), 1000),
    "NonlinVar": (designs.paper("NonlinVar"), 1000),
    "log-normal noise": tables.LEVEL["log-normal noise"],
    "poor overlap, t(3), spread in both arms": tables.LEVEL["HARD: poor overlap, t(3), spread exp(x/2)"],
    "skewed features": tables.LEVEL["skewed features"],
}


class Sums(NamedTuple):
    """Standardised sums of the directions of a feature, what is known of them, and the p-value of the likelihood."""

    z: Array
    freedoms: Array
    correlation: Array
    weights: Array
    weight: float
    likelihood: float


@contextmanager
def recorded() -> Iterator[dict[float, Sums]]:
    """Sums of all features that are tested meanwhile, by the p-values that the test gives them."""
    found: dict[float, Sums] = {}
    last: list[DirectSums] = []
    p_value, with_direct = DirectSums.p_value, AnalyticOutcome.with_direct

    def note_sums(sums: DirectSums, freedom: float = np.inf) -> float:
        last[:] = [sums]
        return p_value(sums, freedom)

    def note_outcome(outcome: AnalyticOutcome, direct: float, weight: float) -> AnalyticOutcome:
        both = with_direct(outcome, direct, weight)
        found[both.p_value] = standardised(last[0], outcome.likelihood_p_value)
        return both

    with patch.object(DirectSums, "p_value", note_sums), patch.object(AnalyticOutcome, "with_direct", note_outcome):
        yield found


def standardised(sums: DirectSums, likelihood: float) -> Sums:
    deviation = np.sqrt(np.diag(sums.covariance))
    freedoms = sums.effective_rows - 1.0
    kept = (freedoms >= MIN_FREEDOM) & (deviation > 0)
    deviation = deviation[kept]
    correlation = sums.covariance[np.ix_(kept, kept)] / np.outer(deviation, deviation)
    weights = np.array(sums.weights)[kept]
    z = sums.total[: kept.size][kept] / deviation
    return Sums(z, freedoms[kept], correlation, weights / weights.sum(), sums.weight, likelihood)


def directions_p(way: str, sums: Sums) -> float:
    """P-value of all directions by one of the `WAYS`."""
    each = 2 * t.sf(np.abs(sums.z), sums.freedoms)
    if way == "cauchy":
        return float(cauchy_combination(list(each), list(sums.weights)))
    if way == "quadratic":
        root = np.sqrt(sums.weights)
        variances = np.linalg.eigvalsh(sums.correlation * np.outer(root, root))
        return quadratic_tail(float(((sums.z * root) ** 2).sum()), variances, sums.freedoms.min())
    values, vectors = np.linalg.eigh(sums.correlation)
    normal = np.random.default_rng(0).standard_normal((N_DRAWS, values.size))
    drawn = 2 * norm.sf(np.abs(normal @ (vectors * np.sqrt(np.maximum(values, 0.0))).T)) / sums.weights
    smaller = np.count_nonzero(drawn.min(axis=1) <= (each / sums.weights).min())
    return (1 + smaller) / (1 + N_DRAWS)


def one_run(design: designs.Design, n: int, single: bool, seed: int) -> dict[str, tuple[float, int, int]]:
    """For every way the share of modifiers found, null p-values at most 0.05, and their number."""
    warnings.simplefilter("ignore")
    table = design(seed, n)
    with threadpool_limits(limits=1), recorded() as found:
        p_values = by_default(table, seed).p
    true, answers = table.X.columns.isin(table.modifiers), {}
    for way in WAYS:
        p = np.array([combined(way, found[own]) if own in found else own for own in p_values])
        chosen = p <= ALPHA / p.size if single else false_discovery_control(p) <= ALPHA
        share = float(chosen[true].mean()) if true.any() else np.nan
        answers[way] = (share, int((p[~true] <= ALPHA).sum()), int((~true).sum()))
    return answers


def combined(way: str, sums: Sums) -> float:
    direct = directions_p(way, sums)
    return float(cauchy_combination((sums.likelihood, direct), (1 - sums.weight, sums.weight)))


def shown(answers: list[tuple[float, int, int]]) -> str:
    shares, small, many = np.array(answers, dtype=Any).T
    power = "" if np.isnan(float(shares[0])) else f"{np.mean(shares.astype(float)):.2f}; "
    return f"{power}{small.sum() / many.sum():.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[""], help="designs whose names begin with one of these")
    args = parser.parse_args()
    header("found; null p <= 0.05", "n", "runs", *WAYS)
    for name, (design, n) in CASES.items():
        if name.startswith(tuple(args.only)):
            seeds = range(args.seed, args.seed + args.runs)
            runs = Parallel(n_jobs=args.jobs)(delayed(one_run)(design, n, name in tables.TRIAL, s) for s in seeds)
            row(name, n, args.runs, *(shown([run[way] for run in runs]) for way in WAYS))


if __name__ == "__main__":
    main()
