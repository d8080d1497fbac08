"""Why the paper selects the number of cigarettes on NHANES: p-values of three features under every choice that matters.

    python benchmarks/nhanes_cigarettes.py --data FOLDER --runs 3

prints the mean raw p-value (the paper's count / B, B = 100) of age, female and cigarettes_month by weighting, by the
number of epochs of the propensity network, by sampler, and with the outcome permuted, where every small p-value is
false.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from modifind.data.features import FeatureTable
from modifind.data.schema import read_features
from modifind.datasets import fetch_nhanes_crp
from modifind.engine.resampling import ResamplingTest
from modifind.inference import ConditionalRandomizationTest
from modifind.nuisance.conditional import BoostingSampler, Conditional, CVAESampler, GaussianSampler, MarginalSampler
from modifind.nuisance.propensity.scores import EarlyStoppedMLP, PropensityModel
from modifind.statistics import WCMMD
from modifind.statistics.wcmmd import median_bandwidth

FEATURES = ("age", "female", "cigarettes_month")
SAMPLERS = {
    "cvae": CVAESampler,
    "gaussian": GaussianSampler,
    "boosting": BoostingSampler,
    "marginal": MarginalSampler,
}
EPOCHS = (1, 3, 10, 0)  # 0: stopped at the best held-out loss
WEIGHTINGS = ("horvitz_thompson", "hajek")
OUTCOMES = ("CRP", "permuted CRP")
B = 100


def fitted_conditionals(
    name: str, table: FeatureTable, arms: np.ndarray, seed: int, places: list[int]
) -> list[Conditional]:
    sampler = SAMPLERS[name](condition_on_treatment=False).fit(table, arms, np.random.SeedSequence(seed))
    return [sampler.conditional(m) for m in places]


def one_run(data_home: str | None, seed: int, samplers: list[str]) -> list[dict[str, object]]:
    warnings.simplefilter("ignore")
    data = fetch_nhanes_crp(data_home)
    table = read_features(data.X, data.discrete_features)
    arms = data.treatment.to_numpy()
    crt = ConditionalRandomizationTest("count", stop_after=None)
    rows = []
    with threadpool_limits(limits=1):
        places = [table.names.index(feature) for feature in FEATURES]
        conditionals = {name: fitted_conditionals(name, table, arms, seed, places) for name in samplers}
        for epochs in EPOCHS:
            network = EarlyStoppedMLP(epochs=epochs or None, random_state=seed)
            scores = PropensityModel(network, cross_fit=False).fit(table, arms, seed=np.random.SeedSequence(seed))
            for outcome in OUTCOMES:
                y = data.y.to_numpy(dtype=float)
                y = np.random.default_rng(seed).permutation(y) if outcome == "permuted CRP" else y
                for weighting in WEIGHTINGS:
                    statistic = WCMMD("spectral", weighting, weight_cap=None)
                    prepared = statistic.for_rows(y, arms, np.random.SeedSequence(seed))
                    test = ResamplingTest(statistic, prepared, crt, B, scores, table)
                    for name in samplers:
                        found = {"sampler": name, "epochs": epochs, "outcome": outcome, "weighting": weighting}
                        for feature, m, conditional in zip(FEATURES, places, conditionals[name], strict=True):
                            width = 1.0 if table.n_levels(m) else median_bandwidth(table.values[:, m])
                            rng = np.random.default_rng(seed)
                            found[feature] = test(m, conditional, width, rng).p_value
                        rows.append(found)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the NHANES tables; default: download them")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="first seed; 1000 and above are for final figures")
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS), choices=list(SAMPLERS))
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    seeds = range(args.seed, args.seed + args.runs)
    runs = Parallel(n_jobs=args.jobs)(delayed(one_run)(args.data, seed, args.samplers) for seed in seeds)
    print(f"mean raw p-value over {args.runs} runs, seeds {seeds.start}-{seeds.stop - 1}, B = {B}")
    print("| outcome | weighting | epochs | sampler | " + " | ".join(FEATURES) + " |")
    print("|" + "---|" * (4 + len(FEATURES)))
    for rows in sorted(zip(*runs, strict=True), key=lambda r: [r[0][k] for k in ("outcome", "weighting")]):
        first = rows[0]
        epochs = first["epochs"] or "best held-out loss"
        means = [f"{np.mean([row[feature] for row in rows]):.2f}" for feature in FEATURES]
        place = (first["outcome"], first["weighting"], epochs, first["sampler"])
        print("| " + " | ".join([*map(str, place), *means]) + " |")


if __name__ == "__main__":
    main()
