"""Plant faults in random tables and count how many are reported; count clean tables that are accused of one.

    python benchmarks/planted_faults.py                                # 30 variants of every fault, 200 clean tables
    python benchmarks/planted_faults.py --only visits --variants 5     # faults and kinds with this in their names
    python benchmarks/planted_faults.py --only clean --show            # clean tables, and what was said of each accused

A fault is reported by a refusal, by a failing validity check or, where that is enough, by a note: each has to name the
planted column or the remedy, so that a refusal for another reason does not count. A clean table is accused by a
refusal, or by a failing validity check other than those of models and overlap. Prints one Markdown table of each. With
`MODIFIND_DATA` the experiments of its atlas are clean tables as well.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

import clean_tables
import planted_columns
import planted_rows
from planted_tables import Case, Reply, Rng, reported

FAULTS: dict[str, Callable[[Rng], Case]] = planted_rows.FAULTS | planted_columns.FAULTS
SLOW = {"--preset uai2022": 6}  # variants at most, of faults whose commands train networks
VARIANTS, CLEAN = 30, 200


def stream(name: str, seed: int, k: int) -> Rng:
    """Random numbers of one variant, the same whatever else is run."""
    return np.random.default_rng([seed, zlib.crc32(name.encode()), k])


def run(case: Case) -> Reply:
    with tempfile.TemporaryDirectory() as folder:
        return case.run(Path(folder))


def replies(name: str, variants: int, seed: int = 0) -> Iterator[tuple[Case, Reply, str]]:
    """Every variant of a fault, what came of it, and how it was reported; "" where it was not."""
    for k in range(min(variants, SLOW.get(name, variants))):
        case = FAULTS[name](stream(name, seed, k))
        reply = run(case)
        yield case, reply, reported(case, reply)


def clean_replies(kind: str, tables: int, seed: int = 0) -> Iterator[tuple[Case, Reply]]:
    for k in range(tables):
        case = clean_tables.KINDS[kind](stream(kind, seed, k))
        yield case, run(case)


def described(case: Case, reply: Reply) -> str:
    """One line about a case that went wrong."""
    said = reply.accusations or [f"{name}: {text}" for name, text in reply.failing] or reply.notes or ["nothing"]
    size = "{} x {}".format(*case.frame.shape)
    where = f"{case.file or 'Python'}, {size}, {case.settings or ''} {case.options or ''}"
    return f"    {where}: {' / '.join(' '.join(one.split())[:300] for one in said)}"


def count_faults(names: Sequence[str], variants: int, seed: int, *, show: bool) -> tuple[int, int]:
    """Print the table of faults; how many were planted and reported."""
    print("| fault | variants | reported | how | share |\n|---|---|---|---|---|", flush=True)
    planted = caught = 0
    for name in names:
        ways: Counter[str] = Counter()
        missed = []
        for case, reply, way in replies(name, variants, seed):
            ways[way] += 1
            missed += [described(case, reply)] * (not way)
        total, seen = ways.total(), ways.total() - ways[""]
        how = ", ".join(f"{way} {count}" for way, count in ways.most_common() if way)
        print(f"| {name} | {total} | {seen} | {how or '-'} | {seen / total:.0%} |", flush=True)
        print(*missed * show, sep="\n", end="\n" * show * bool(missed), flush=True)
        planted, caught = planted + total, caught + seen
    return planted, caught


def count_clean(kinds: Sequence[str], tables: int, seed: int, *, real: bool, show: bool) -> tuple[int, int]:
    """Print the table of clean tables; how many there were and how many were accused."""
    print("\n| clean tables | tables | accused | by what |\n|---|---|---|---|", flush=True)
    each = [(kind, tables // len(kinds) + (k < tables % len(kinds))) for k, kind in enumerate(kinds)]
    sets: list[tuple[str, Iterator[tuple[Case, Reply]]]] = [
        (kind, clean_replies(kind, number, seed)) for kind, number in each
    ]
    if real:
        experiments = clean_tables.real_tables(stream("real", seed, 0))
        sets.append(("experiments of the atlas", ((case, run(case)) for _, case in experiments)))
    n_tables = n_accused = 0
    for kind, some in sets:
        accused, number, texts = [], 0, []
        for case, reply in some:
            number += 1
            if reply.accusations:
                accused.append(reply.accusations[0].partition(":")[0])
                texts.append(described(case, reply))
        if not number:
            continue
        by = ", ".join(f"{what} {count}" for what, count in Counter(accused).most_common())
        print(f"| {kind} | {number} | {len(accused)} | {by or '-'} |", flush=True)
        print(*texts * show, sep="\n", end="\n" * show * bool(texts), flush=True)
        n_tables, n_accused = n_tables + number, n_accused + len(accused)
    return n_tables, n_accused


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of the names of faults or kinds; 'faults' or 'clean' for all")
    parser.add_argument("--variants", type=int, default=VARIANTS)
    parser.add_argument("--tables", type=int, default=CLEAN, help="clean tables in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="also print what was said of every miss and accusation")
    options = parser.parse_args(arguments)
    start, part = time.monotonic(), options.only
    faults = [name for name in FAULTS if part == "faults" or part in name]
    kinds = [kind for kind in clean_tables.KINDS if part == "clean" or part in kind]
    if faults:
        planted, caught = count_faults(faults, options.variants, options.seed, show=options.show)
        print(f"\n{caught} of {planted} faults reported ({caught / planted:.1%}).")
    if kinds:
        tables = options.tables if part in ("", "clean") else options.variants * len(kinds)
        n, accused = count_clean(kinds, tables, options.seed, real=part in ("", "clean"), show=options.show)
        print(f"\n{accused} of {n} clean tables accused ({accused / n:.1%}).")
    print(f"\nSeed {options.seed}, {(time.monotonic() - start) / 60:.0f} minutes.")


if __name__ == "__main__":
    main()
