"""All runs of the paper's preset and of Naive, 50 of each cell, many tables at a time: minutes on a GPU.

    python benchmarks/full_runs.py --device cuda --lines runs.jsonl     # the runs, one line each
    python benchmarks/full_runs.py --file runs.jsonl --out reproduction # kept where `modifind reproduce` finds them

The second command needs no GPU, and `modifind reproduce fig-synthetic --out reproduction` then makes the table and the
figure. Networks, autoencoders and statistic are those of `presets.uai2022()` in batches (`batched.py`): other random
numbers, the same distributions. ``--compare --file runs.jsonl --runs 2 --n 500`` runs the preset itself on the tables
of two seeds and prints the rates of both.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from batched import Autoencoder, Network, Tables, adjusted, evaluate, fit_networks, marginal_draws, signed_weights
from modifind.presets import WEIGHT_QUANTILE
from readings import KINDS, SAMPLERS, make_draws, nhanes, rates, selected, synthetic

SIZES = (500, 750, 1000, 1250, 1500, 1750, 2000)
COUNTEREXAMPLES = ("LinCovar", "NonlinCovar")
PROPENSITY_UNITS, SAMPLER_UNITS = (25, 100, 200), (16, 64, 256)
Options = list[tuple[str, int]]


def preset_weights(tables: Tables, seed: int, units: Sequence[int] = (50,)) -> torch.Tensor:
    """Signed weights of the preset, shape (T, n, units)."""
    nets = (fit_networks(tables, Network(units=own), [0], seed)[0] for own in units)
    weights = [signed_weights(net.scores().clamp(0.01, 0.99), tables.arms, WEIGHT_QUANTILE) for net in nets]
    return torch.stack(weights, -1)


def p_values(tables: Tables, draws: torch.Tensor, weights: torch.Tensor) -> np.ndarray:
    """P-values of the preset, shape (T, d, kinds, units)."""
    return np.stack(list(evaluate(tables, draws, weights, fourier=True)))


def cells(
    n: int, seeds: Sequence[int], device: str, neurons: bool = True
) -> Iterator[tuple[str, Options, Sequence[str], np.ndarray]]:
    """Method, its options, kinds of data and p-values of shape (T, d, kinds), of all runs with n rows."""
    kinds = (*KINDS, *COUNTEREXAMPLES) if n == SIZES[-1] else KINDS
    tables = synthetic(kinds, n, seeds, device)
    by_neurons = neurons and n == 1000
    units = (50, *PROPENSITY_UNITS) if by_neurons else (50,)
    weights = preset_weights(tables, seeds[0], units)
    found = p_values(tables, make_draws("cvae", tables, seeds[0]), weights)
    for k, own in enumerate(units):
        yield "preset", [("propensity_units", own)] if own != 50 else [], kinds, found[..., k]
    plain = replace(tables, y=tables.y[: len(KINDS)])
    yield "naive", [], KINDS, p_values(plain, marginal_draws(plain, seeds[0]), weights[..., :1])[..., 0]
    for own in SAMPLER_UNITS if by_neurons else ():
        draws = make_draws(f"cvae-{own}", tables, seeds[0])
        yield "preset", [("sampler_units", own)], kinds, p_values(tables, draws, weights[..., :1])[..., 0]


def nhanes_cells(
    seeds: Sequence[int], device: str, at_once: int = 25
) -> Iterator[tuple[Sequence[int], list[str], np.ndarray]]:
    """Seeds, features and p-values of shape (T, d, outcomes)."""
    for start in range(0, len(seeds), at_once):
        own = seeds[start : start + at_once]
        tables, names = nhanes(own, device)
        draws = make_draws("cvae", tables, own[0])
        yield own, names, p_values(tables, draws, preset_weights(tables, own[0]))[..., 0]


def lines_of(
    method: str,
    options: Options,
    n: int,
    seeds: Sequence[int],
    kinds: Sequence[str],
    p: np.ndarray,
    names: Sequence[str],
) -> Iterator[str]:
    """One line of JSON per run."""
    for t, seed in enumerate(seeds):
        for k, kind in enumerate(kinds):
            run = {"data": kind, "n": n, "method": method, "seed": seed, "options": options}
            yield json.dumps({"run": run, "features": names, "p_value": np.round(p[t, :, k].astype(float), 6).tolist()})


def make(args: argparse.Namespace) -> None:
    """All runs, into a file."""
    seeds = range(args.seed, args.seed + args.runs)
    with open(args.lines, "w", encoding="utf-8") as file:

        def write(*given: Any) -> None:
            file.writelines(line + "\n" for line in lines_of(*given))
            file.flush()

        for n in args.n:
            start = time.perf_counter()
            for method, options, kinds, p in cells(n, seeds, args.device):
                write(method, options, n, seeds, kinds, p, [f"X{m + 1}" for m in range(p.shape[1])])
                found = rates(p[..., None])[..., 0]
                shown = (f"{kind} {t:.2f} / {f:.3f} ({r:.2f})" for kind, t, f, r in zip(kinds, *found[:3], strict=True))
                print(f"n = {n}, {method} {dict(options) or ''}: " + ", ".join(shown), flush=True)
            print(f"n = {n}: {time.perf_counter() - start:.0f} s", flush=True)
        if args.nhanes:
            start = time.perf_counter()
            for own, names, p in nhanes_cells(seeds, args.device):
                write("preset", [], 0, own, ("CRP", "log CRP", "permuted CRP"), p, names)
                mean = adjusted(np.moveaxis(p, 1, -1)).mean(0)
                for outcome, values in zip(("CRP", "log CRP", "permuted CRP"), mean, strict=True):
                    chosen = [f"{name} {v:.4f}" for name, v in zip(names, values, strict=True) if v <= 0.05]
                    print(f"{outcome}, seeds {own[0]}-{own[-1]}: {', '.join(chosen) or 'none'}", flush=True)
            print(f"NHANES: {time.perf_counter() - start:.0f} s", flush=True)


def keep(args: argparse.Namespace) -> None:
    """Runs of a file as records of `modifind reproduce`."""
    from modifind.paper.runs import BATCHES, Archive, Record, StudyRun

    archive = Archive(Path(args.out) / "runs")
    for line in Path(args.file).read_text(encoding="utf-8").splitlines():
        given = json.loads(line)
        run = StudyRun(**{**given["run"], "options": tuple(map(tuple, given["run"]["options"]))})
        p = np.round(given["p_value"], 6)
        own = adjusted(p)
        truth = [run.n > 0 and name in ("X1", "X2", "X3", "X4", "X5") for name in given["features"]]
        found = (p.tolist(), own.tolist(), (own <= 0.05).tolist())
        archive.keep(Record(run, given["features"], *found, truth, 0.0, BATCHES))


def compare(args: argparse.Namespace) -> None:
    """Rates of the preset itself beside those of a file of runs, on the same tables."""
    from modifind.datasets import make_modifiers
    from modifind.presets import naive, uai2022

    seeds = range(args.seed, args.seed + args.runs)
    made = [json.loads(line) for line in Path(args.file).read_text(encoding="utf-8").splitlines()]
    p_by_run = {tuple(own["run"].values())[:4]: own["p_value"] for own in made if not own["run"]["options"]}
    for n in args.n:
        for method, preset in (("preset", uai2022), ("naive", naive)):
            found = np.empty((2, len(seeds), 30, len(KINDS)))
            for (t, seed), (k, kind) in itertools.product(enumerate(seeds), enumerate(KINDS)):
                data = make_modifiers(kind, n_samples=n, random_state=seed)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    fitted = preset(random_state=seed, explain=False).fit(data.X, data.y, treatment=data.treatment)
                found[0, t, :, k] = fitted.result_.table["p_value"]
                found[1, t, :, k] = np.round(p_by_run[kind, n, method, seed], 6)
            for name, p in zip((f"{method} itself", f"{method} in batches"), found, strict=True):
                shown = rates(p[..., None])[..., 0]
                cells = (f"{kind} {t:.2f} / {f:.3f} ({r:.2f})" for kind, t, f, r in zip(KINDS, *shown[:3], strict=True))
                print(f"n = {n}, {name}: " + ", ".join(cells), flush=True)
            more = (selected(found[0])[0] - selected(found[1])[0]).T
            error = more.std(axis=1, ddof=1) / np.sqrt(len(seeds))
            shown = (f"{kind} {d.mean():+.2f} (SE {e:.2f})" for kind, d, e in zip(KINDS, more, error, strict=True))
            print(f"n = {n}, {method}, TPR itself less that in batches, same tables: " + ", ".join(shown), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--n", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--nhanes", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--lines", default="runs.jsonl", help="file that the runs are written to")
    parser.add_argument("--file", help="file of runs to keep as records under --out")
    parser.add_argument("--out", default="reproduction")
    parser.add_argument("--compare", action="store_true")
    args = parser.parse_args()
    assert SAMPLERS["cvae"] == Autoencoder()
    (compare if args.compare else keep if args.file else make)(args)


if __name__ == "__main__":
    main()
