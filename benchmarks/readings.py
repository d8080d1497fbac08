"""Which reading of the paper gives its figures: what it leaves open, tried on the tables of its experiments.

    python benchmarks/readings.py --device cuda                        # every reading, four kinds, n = 1000, 50 runs
    python benchmarks/readings.py --n 500 2000 --only "30 epochs"      # readings whose name has these words
    python benchmarks/readings.py --sampler marginal                   # the paper's Naive
    python benchmarks/readings.py --kinds LinCovar NonlinCovar --n 2000
    python benchmarks/readings.py --data nhanes                        # adjusted p-values of three features

The paper has a propensity network of two layers of 50 units and autoencoders of two layers of 128, and says neither
how they were trained nor whether inverse probability weights follow the resampled feature. A reading is one choice of
both. Each line has TPR / FPR after Benjamini-Hochberg at 0.05 and, in brackets, the share of null features with raw
p <= 0.05; `off` is the mean distance from the paper's figures, TPR in units of 0.1 and FPR in units of 0.04. Seeds
0-99 are for choosing; seeds from 1000 on are for the figures of what was chosen.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from batched import (
    ALPHA,
    Autoencoder,
    Autoencoders,
    Network,
    Tables,
    Trained,
    adjusted,
    evaluate,
    fit_networks,
    gaussian_draws,
    held_out_scores,
    marginal_draws,
    signed_weights,
)
from modifind.datasets import fetch_nhanes_crp, make_modifiers

KINDS = ("LinMean", "NonlinMean", "LinVar", "NonlinVar")
PAPER = {"LinMean": (0.79, 0.06), "NonlinMean": (0.94, 0.04), "LinVar": (0.73, 0.07), "NonlinVar": (0.62, 0.04)}
PAPER |= {"LinCovar": (0.02, 0.02), "NonlinCovar": (0.04, 0.02)}
N_MODIFIERS = 5
SAMPLERS: dict[str, Any] = {
    "cvae": Autoencoder(),
    "cvae-patient": Autoencoder(patience=25),
    "cvae-16": Autoencoder(hidden=16),
    "cvae-64": Autoencoder(hidden=64),
    "cvae-256": Autoencoder(hidden=256),
    "cvae-20-epochs": Autoencoder(epochs=20),
    "cvae-100-epochs": Autoencoder(epochs=100),
    "cvae-300-epochs": Autoencoder(epochs=300),
    "cvae-squared-error": Autoencoder(variance="unit"),
    "cvae-mean": Autoencoder(noise=False),
    "cvae-squared-error-mean": Autoencoder(variance="unit", noise=False),
    "gaussian": gaussian_draws,
    "marginal": marginal_draws,
}


@dataclass(frozen=True)
class Reading:
    """A choice of what the paper leaves open.

    Attributes
    ----------
    name : str
    net : Network or None
        How the propensity network is trained; None for a score of 1/2 everywhere.
    cap : float
        Scores are moved into (cap, 1 - cap).
    fixed : bool
        Whether weights are computed once, on the observed rows, or at every resample.
    hajek : bool
        Whether each arm is divided by the sum of its own weights.
    truncate : float
        Largest weight, 0 for any.
    quantile : float
        Largest weight as a quantile of the weights of the same arm.
    """

    name: str
    net: Network | None
    cap: float = 0.01
    fixed: bool = True
    hajek: bool = False
    truncate: float = 0.0
    quantile: float = 1.0

    @property
    def label(self) -> str:
        """The name, with what becomes of the weights."""
        extra = ", Hajek" * self.hajek
        extra += f", weights at most {self.truncate:g}" if self.truncate else ""
        extra += f", weights at most the {self.quantile:g} quantile of their arm" if self.quantile < 1 else ""
        return f"{'fixed' if self.fixed else 're-evaluated'}, {self.name}{extra}"

    def weights(self, scores: torch.Tensor, arms: torch.Tensor) -> torch.Tensor:
        """Signed weights."""
        signed = signed_weights(scores.clamp(self.cap, 1 - self.cap), arms, self.quantile)
        return signed.clamp(-self.truncate, self.truncate) if self.truncate else signed


def _epochs(words: str, net: Network, numbers: Sequence[int]) -> list[Reading]:
    return [Reading(f"{n} epochs{words}", replace(net, epochs=n)) for n in numbers]


def every_reading() -> list[Reading]:
    """The grid."""
    plain, shallow = Network(), Network(layers=1)
    torch_like = Network(init="torch", batch=64)
    grid = [Reading("all scores 1/2", None), Reading("best held-out loss", plain)]
    grid += _epochs("", plain, (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100, 200))
    caps = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.31, 0.32, 1 / 3, 0.35, 0.4, 0.45)
    grid += [Reading(f"best held-out loss, scores within [{c:.2f}, {1 - c:.2f}]", plain, c) for c in caps]
    grid += [
        Reading(f"200 epochs, scores within [{c:.2f}, {1 - c:.2f}]", replace(plain, epochs=200), c)
        for c in (0.1, 0.2, 0.3, 0.4)
    ]
    grid += [Reading("early_stopping of scikit-learn", replace(plain, stop="accuracy"))]
    for decay in (0.003, 0.01, 0.03, 0.1, 0.12, 0.15, 0.2, 0.3, 1.0):
        grid += _epochs(f", weight decay {decay:g}", replace(plain, decay=decay), (20, 200))
    for dropout in (0.2, 0.5, 0.8):
        grid += _epochs(f", dropout {dropout:g}", replace(plain, dropout=dropout), (10, 30, 100, 200))
    for smoothing in (0.1, 0.2, 0.4, 0.6, 0.8):
        grid += _epochs(f", label smoothing {smoothing:g}", replace(plain, smoothing=smoothing), (20, 200))
    grid += _epochs(", raw features", replace(plain, standardise=False), (3, 6, 10, 30, 200))
    grid += _epochs(", one hidden layer", shallow, (3, 6, 10, 20, 50, 100, 200))
    grid += _epochs(", torch's initial weights", replace(plain, init="torch"), (3, 6, 10, 20, 50, 100, 200))
    grid += _epochs(", torch's initial weights, batches of 64", torch_like, (1, 2, 3, 5, 10, 20, 100))
    shallow_torch = replace(torch_like, layers=1)
    grid += _epochs(", torch's initial weights, batches of 64, one hidden layer", shallow_torch, (2, 5, 10, 20, 100))
    whole = replace(plain, init="torch", batch=10**9)
    grid += _epochs(", torch's initial weights, whole batches", whole, (10, 20, 25, 28, 30, 35, 50, 100, 200))
    flat = replace(whole, layers=1)
    grid += _epochs(", torch's initial weights, whole batches, one hidden layer", flat, (20, 30, 40, 50, 70, 100, 200))
    for rate in (1e-2, 1e-1):
        sgd = replace(whole, optimiser="sgd", rate=rate)
        grid += _epochs(f", torch's initial weights, whole batches, SGD {rate:g}", sgd, (20, 50, 100, 200))
    grid += _epochs(", initial weights of a tenth", replace(plain, scale=0.1), (3, 6, 10, 20, 50, 200))
    grid += _epochs(", learning rate 1e-4", replace(plain, rate=1e-4), (10, 30, 60, 100, 200))
    grid += _epochs(", learning rate 1e-2", replace(plain, rate=1e-2), (1, 2, 5, 20, 200))
    for folds in (2, 5):
        for own in (Network(folds=folds), Network(folds=folds, epochs=6), Network(folds=folds, epochs=20)):
            words = f"{own.epochs} epochs" if own.epochs else "best held-out loss"
            name = f"{words}, scores held out in {folds} folds"
            grid += [Reading(name, own), Reading(f"{name}, within [0.30, 0.70]", own, 0.3)]
    follow = [
        *_epochs("", plain, (1, 2, 3, 4, 5, 6, 8, 10, 20, 200)),
        *(Reading(f"best held-out loss, scores within [{c:.2f}, {1 - c:.2f}]", plain, c) for c in (0.01, *caps[1:])),
        *(r for d in (0.1, 0.3, 1.0) for r in _epochs(f", weight decay {d:g}", replace(plain, decay=d), (200,))),
        *(r for s in (0.4, 0.6, 0.8) for r in _epochs(f", label smoothing {s:g}", replace(plain, smoothing=s), (20,))),
        *_epochs(", one hidden layer", shallow, (3, 6, 10, 20, 200)),
        *_epochs(", torch's initial weights, batches of 64", torch_like, (2, 3, 5, 100)),
    ]
    grid += [replace(reading, fixed=False) for reading in follow]
    for net, words in (
        (plain, "best held-out loss"),
        *((replace(plain, epochs=n), f"{n} epochs") for n in (4, 8, 20, 100)),
    ):
        own = Reading(words, net)
        grid += [replace(own, truncate=c) for c in (1.5, 2.0, 2.5, 3.0, 5.0)]
        grid += [replace(own, quantile=q) for q in (0.75, 0.8, 0.81, 0.82, 0.83, 0.84, 0.85, 0.86, 0.88, 0.9, 0.95)]
        for cap in (0.01, 0.1, 0.2, 0.3):
            name = words if cap == 0.01 else f"{words}, scores within [{cap:.2f}, {1 - cap:.2f}]"
            grid += [Reading(name, net, cap, fixed, True) for fixed in (True, False)]
    return grid


def synthetic(kinds: Sequence[str], n: int, seeds: Sequence[int], device: str) -> Tables:
    """The paper's data: one table per seed, whose features and treatment are the same for every kind."""
    data = [[make_modifiers(kind, n_samples=n, random_state=seed) for seed in seeds] for kind in kinds]
    x = np.stack([table.X.to_numpy() for table in data[0]])
    arms = np.stack([table.treatment for table in data[0]])
    y = np.array([[table.y for table in row] for row in data])
    return Tables.of(x, arms, y, (0,) * x.shape[2], device)


def nhanes(seeds: Sequence[int], device: str) -> tuple[Tables, list[str]]:
    """NHANES once per seed, with three outcomes: CRP, its logarithm, and its values in another order."""
    data = fetch_nhanes_crp()
    x, levels = data.X.to_numpy(dtype=float).copy(), []
    for m, name in enumerate(data.X.columns):
        discrete = name in data.discrete_features
        if discrete:
            x[:, m] = np.unique(x[:, m], return_inverse=True)[1]
        levels.append(int(x[:, m].max()) + 1 if discrete else 0)
    y, arms = data.y.to_numpy(dtype=float), data.treatment.to_numpy()
    times = len(seeds)
    permuted = np.stack([np.random.default_rng(seed).permutation(y) for seed in seeds])
    outcomes = np.stack((np.tile(y, (times, 1)), np.tile(np.log(y), (times, 1)), permuted))
    tables = Tables.of(np.tile(x, (times, 1, 1)), np.tile(arms, (times, 1)), outcomes, levels, device)
    return tables, list(data.X.columns)


def make_draws(sampler: str, tables: Tables, seed: int) -> torch.Tensor:
    """Resampled features of all tables."""
    how = SAMPLERS[sampler]
    if not isinstance(how, Autoencoder):
        return how(tables, seed)
    torch.set_float32_matmul_precision("high")
    draws = Autoencoders(tables, how, seed).train().draws()
    torch.set_float32_matmul_precision("highest")
    return draws


def weights_of(
    readings: Sequence[Reading], tables: Tables, seed: int
) -> tuple[torch.Tensor, list[tuple[Trained, float]]]:
    """Signed weights of the fixed readings, and the networks of the others; each network is trained once."""
    wanted: dict[Network, set[int]] = {}
    for reading in readings:
        if reading.net is not None and reading.net.folds == 1:
            wanted.setdefault(replace(reading.net, epochs=0), set()).add(reading.net.epochs)
    trained = {}
    for net, epochs in wanted.items():
        for some in ({0} & epochs, epochs - {0}):
            if some:
                trained.update({(net, n): own for n, own in fit_networks(tables, net, some, seed).items()})
    fixed, followed = [], []
    for reading in readings:
        if reading.net is None:
            scores = torch.full_like(tables.arms, 0.5)
        elif reading.net.folds > 1:
            scores = held_out_scores(tables, replace(reading.net, epochs=0), reading.net.epochs, seed)
        else:
            own = trained[replace(reading.net, epochs=0), reading.net.epochs]
            if not reading.fixed:
                followed.append((own, reading.cap))
                continue
            scores = own.scores()
        fixed.append(reading.weights(scores, tables.arms))
    empty = tables.arms.new_empty((*tables.arms.shape, 0))
    return (torch.stack(fixed, -1) if fixed else empty), followed


def study(tables: Tables, readings: list[Reading], sampler: str, seed: int, **kernels: Any) -> np.ndarray:
    """P-values, shape (T, d, kinds, readings); `readings` have the fixed ones first."""
    start = time.perf_counter()
    draws = make_draws(sampler, tables, seed)
    drawn = time.perf_counter()
    fixed, followed = weights_of(readings, tables, seed)
    scored = time.perf_counter()
    hajek = [reading.hajek for reading in readings]
    found = np.stack(list(evaluate(tables, draws, fixed, followed=followed, hajek=hajek, **kernels)))
    parts = (drawn - start, scored - drawn, time.perf_counter() - scored)
    print("<!-- draws {:.0f} s, scores {:.0f} s, tests {:.0f} s -->".format(*parts), flush=True)
    return found


def selected(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares of modifiers and of other features that each table selects, from p-values of shape (T, d, ...)."""
    chosen = adjusted(np.moveaxis(p, 1, -1)) <= ALPHA
    return chosen[..., :N_MODIFIERS].mean(-1), chosen[..., N_MODIFIERS:].mean(-1)


def rates(p: np.ndarray) -> np.ndarray:
    """TPR, FPR, raw null share and the deviation of TPR over tables, each of shape (kinds, readings).

    P-values have shape (T, d, kinds, readings).
    """
    found, false = selected(p)
    raw = (p[:, N_MODIFIERS:] <= ALPHA).mean((0, 1))
    return np.stack((found.mean(0), false.mean(0), raw, found.std(0)))


def distance(kinds: Sequence[str], tpr: np.ndarray, fpr: np.ndarray) -> float:
    """How far from the paper."""
    off = [
        (abs(t - PAPER[k][0]) / 0.1 + abs(f - PAPER[k][1]) / 0.04) / 2 for k, t, f in zip(kinds, tpr, fpr, strict=True)
    ]
    return float(np.mean(off))


def report_rates(args: argparse.Namespace, readings: list[Reading], say: Callable[[dict[str, Any]], None]) -> None:
    """One line per sampler, size, kernel and reading."""
    seeds = range(args.seed, args.seed + args.runs)
    for n in args.n:
        tables = synthetic(args.kinds, n, seeds, args.device)
        for sampler in args.sampler:
            start = time.perf_counter()
            p = study(tables, readings, sampler, args.seed, gammas=args.gammas, x_gamma=args.x_gamma)
            p = p.reshape(*p.shape[:2], len(args.kinds), len(args.gammas), len(readings))
            print(f"<!-- {sampler}, n = {n}: {time.perf_counter() - start:.0f} s -->", flush=True)
            for g, gamma in enumerate(args.gammas):
                tpr, fpr, raw, sd = rates(p[:, :, :, g])
                off = [distance(args.kinds, tpr[:, r], fpr[:, r]) for r in range(len(readings))]
                for r in np.argsort(off):
                    cells = {
                        kind: f"{tpr[k, r]:.2f} ({sd[k, r]:.2f}) / {fpr[k, r]:.3f} ({raw[k, r]:.2f})"
                        for k, kind in enumerate(args.kinds)
                    }
                    place = {"reading": readings[r].label, "sampler": sampler, "n": n, "gamma": gamma}
                    say({**place, **cells, "off": f"{off[r]:.2f}"})


def report_nhanes(args: argparse.Namespace, readings: list[Reading], say: Callable[[dict[str, Any]], None]) -> None:
    """Mean adjusted p-value by outcome; the other features that are selected on average."""
    seeds = range(args.seed, args.seed + args.runs)
    tables, names = nhanes(seeds, args.device)
    shown = ("age", "female", "cigarettes_month")
    for sampler in args.sampler:
        found = adjusted(np.moveaxis(study(tables, readings, sampler, args.seed), 1, -1))
        for r, reading in enumerate(readings):
            for k, outcome in enumerate(("CRP", "log CRP", "permuted CRP")):
                mean, sd = found[:, k, r].mean(0), found[:, k, r].std(0)
                cells = {f: f"{mean[names.index(f)]:.4f} ({sd[names.index(f)]:.4f})" for f in shown}
                others = [f for f, p in zip(names, mean, strict=True) if p <= ALPHA and f not in shown]
                place = {"reading": reading.label, "sampler": sampler, "outcome": outcome}
                say({**place, **cells, "others": ", ".join(others) or "none"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=("synthetic", "nhanes"), default="synthetic")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--n", nargs="+", type=int, default=[1000])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sampler", nargs="+", default=["cvae"], choices=list(SAMPLERS))
    parser.add_argument("--only", nargs="+", default=[""], help="words of the readings to try")
    parser.add_argument("--units", type=int, help="of each layer of the propensity network, in place of 50")
    parser.add_argument(
        "--gammas", nargs="+", type=float, default=[1.0], help="of the outcome's kernel, see batched.evaluate"
    )
    parser.add_argument("--x-gamma", type=float, default=1.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--csv", help="file for the lines")
    args = parser.parse_args()
    readings = [own for own in every_reading() if any(words in own.label for words in args.only)]
    readings = [own for own in readings if own.fixed] + [own for own in readings if not own.fixed]
    if args.units:
        readings = [
            own if own.net is None else replace(own, net=replace(own.net, units=args.units)) for own in readings
        ]
    lines: list[dict[str, Any]] = []

    def say(line: dict[str, Any]) -> None:
        if not lines:
            print("| " + " | ".join(line) + " |\n" + "|---" * len(line) + "|")
        lines.append(line)
        print("| " + " | ".join(map(str, line.values())) + " |", flush=True)

    if args.data == "nhanes":
        report_nhanes(args, [own for own in readings if own.fixed], say)
    else:
        report_rates(args, readings, say)
    if args.csv:
        with open(args.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(lines[0]))
            writer.writeheader()
            writer.writerows(lines)


if __name__ == "__main__":
    main()
