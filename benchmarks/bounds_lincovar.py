"""What bounds say where selection is impossible: the paper's LinCovar data.

    python benchmarks/bounds_lincovar.py --n 10000 --seed 0

prints, along the modifier X1, the bounds on the variance of the effect with their 95% limits beside the true variance,
which only a simulation knows, and the tests of whether the bounds change.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd

from modifind.datasets import make_modifiers
from modifind.explain.bounds import bounds_test, effect_bounds
from modifind.explain.local import local_bandwidth
from modifind.statistics.kernels import gaussian_gram


def true_variance(column: np.ndarray, effect: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Variance of the simulated effects of the rows around each point, with the weights that the bounds use."""
    near = gaussian_gram(points, column, local_bandwidth(column))
    near /= near.sum(axis=1, keepdims=True)
    centred = effect - effect.mean()
    return near @ centred**2 - (near @ centred) ** 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--feature", default="X1")
    options = parser.parse_args()
    data = make_modifiers("LinCovar", n_samples=options.n, random_state=options.seed)
    x = data.X[options.feature].to_numpy()
    start = time.process_time()
    table = effect_bounds(x, data.y, data.treatment, data.propensity, random_state=options.seed)
    seconds = time.process_time() - start
    table.insert(1, "true_var", true_variance(x, data.y1 - data.y0, table["value"].to_numpy()))
    shown = ["value", "true_var", "var_low", "var_low_ci_low", "var_low_ci_high"]
    shown += ["var_high", "var_high_ci_low", "var_high_ci_high", "support_treated", "support_control"]
    inside = table["true_var"].between(table["var_low_ci_low"], table["var_high_ci_high"])
    with pd.option_context("display.width", 200, "display.max_columns", None):
        print(table[shown].round({"support_treated": 0, "support_control": 0}).round(3).to_string(index=False))
        print(
            f"\ntrue variance inside the bounds at {inside.sum()} of {len(table)} points; {seconds:.1f} s of CPU time"
        )
        tests = bounds_test(x, data.y, data.treatment, data.propensity, random_state=options.seed)
        print("\ndo the bounds change along the feature?")
        print(tests[tests["quantity"] == "var"].round(3).to_string(index=False))


if __name__ == "__main__":
    main()
