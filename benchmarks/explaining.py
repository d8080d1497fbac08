"""What explanations and the report cost beyond the tests.

    python benchmarks/explaining.py --rows 1000 10000

fits a table of 30 features with and without explanations in one process, writes the report, and prints seconds of
processor time and of the clock, and the size of the files.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from modifind import ModifierSelector
from modifind.datasets import make_modifiers


def timed(what: Callable[[], Any]) -> tuple[Any, float, float]:
    clock, processor = time.perf_counter(), time.process_time()
    found = what()
    return found, time.process_time() - processor, time.perf_counter() - clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--features", type=int, default=30)
    parser.add_argument("--kind", default="LinVar")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| rows | what | processor, s | clock, s | ratio | size |\n|---|---|---|---|---|---|")
    for n_rows in options.rows:
        data = make_modifiers(options.kind, n_samples=n_rows, n_features=options.features, random_state=options.seed)

        def fit(explain: bool, data: Any = data) -> Any:
            selector = ModifierSelector(random_state=options.seed, n_jobs=options.jobs, explain=explain)
            return selector.fit(data.X, data.y, treatment=data.treatment).result_

        fit(False)  # imports and caches
        _, plain, clock = timed(lambda: fit(False))
        print(f"| {n_rows} | fit, explain=False | {plain:.1f} | {clock:.1f} | 1.00 | |")
        result, whole, clock = timed(lambda: fit(True))
        print(f"| {n_rows} | fit | {whole:.1f} | {clock:.1f} | {whole / plain:.2f} | |")
        with tempfile.TemporaryDirectory() as folder:
            for name, write in (("report", result.report), ("JSON", result.to_json)):
                path = Path(folder) / name
                _, seconds, clock = timed(lambda write=write, path=path: write(path))
                size = f"{path.stat().st_size / 1e6:.1f} MB"
                print(f"| {n_rows} | {name} | {seconds:.1f} | {clock:.1f} | {seconds / plain:.2f} | {size} |")


if __name__ == "__main__":
    main()
