"""Resident memory of one process that fits again and again.

python benchmarks/memory.py --fits 50
"""

from __future__ import annotations

import argparse
import gc
import os
import warnings
from pathlib import Path

from modifind import EffectLikelihood, ModifierSelector
from modifind.datasets import make_modifiers

SHOWN = (1, 2, 5, 10, 20, 30, 40, 50, 75, 100)


def resident_megabytes() -> float:
    """What this process holds in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=50)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a linear learner, a gaussian sampler")
    options = parser.parse_args()
    quick = {"statistic": EffectLikelihood("linear"), "sampler": "gaussian", "propensity": 0.5}
    print("| fits | resident MB |\n|---|---|")
    for number in range(1, options.fits + 1):
        data = make_modifiers("LinMean", n_samples=options.rows, n_features=options.features, random_state=number % 100)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            selector = ModifierSelector(random_state=0, n_jobs=options.jobs, **(quick if options.quick else {}))
            selector.fit(data.X, data.y, treatment=data.treatment)
        del selector, data
        if number in SHOWN or number == options.fits:
            print(f"| {number} | {resident_megabytes():.1f} |", flush=True)


if __name__ == "__main__":
    main()
