"""Do the bands of effect curves cover the truth?

    python benchmarks/band_coverage.py --runs 40 --seed 0

The truth at a value of a feature is that of the population: rows are drawn given the value, and their means and spreads
averaged. Points flagged as low support are left out of the figures and counted.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from modifind import ModifierSelector
from modifind.datasets import make_modifiers
from modifind.datasets.made import ARM_MEAN, N_MODIFIERS, NEIGHBOUR_CORRELATION, _linear, _nonlinear

QUANTILES = (0.10, 0.25, 0.50, 0.75, 0.90)
DRAWN = 200_000
GRID = np.linspace(-3.0, 3.0, 41)
FEATURES = (0, 2)


def rows_given(value: float, feature: int, rng: np.random.Generator, drawn: int) -> np.ndarray:
    """The five modifiers of rows whose `feature` has a value, in a population of which half is treated."""
    sign = np.array([-1.0, 1.0])
    odds = np.exp(-0.5 * (value - sign * ARM_MEAN) ** 2)
    shift = np.where(rng.random(drawn) < odds[1] / odds.sum(), ARM_MEAN, -ARM_MEAN)[:, None]
    places = np.arange(N_MODIFIERS)
    covariance = NEIGHBOUR_CORRELATION ** np.abs(np.subtract.outer(places, places))
    along = NEIGHBOUR_CORRELATION ** np.abs(places - feature)
    rest = np.linalg.cholesky(covariance - np.outer(along, along) + 1e-12 * np.eye(N_MODIFIERS))
    return shift + along * (value - shift) + rng.standard_normal((drawn, N_MODIFIERS)) @ rest.T


def truth(kind: str, feature: int, value: float, rng: np.random.Generator, drawn: int) -> dict[str, float]:
    """Effects at one value."""
    rows = rows_given(value, feature, rng, drawn)
    score = _nonlinear(rows) if kind.startswith("Nonlin") else _linear(rows)
    noise = rng.standard_normal((2, drawn))
    if kind.endswith("Mean"):
        y0, y1 = -score + noise[0], score + noise[1]
    else:
        y0, y1 = -5.0 + noise[0], np.maximum(score, 1.0) * noise[1]
    found = {"mean_effect": y1.mean() - y0.mean(), "sd_ratio": y1.std() / y0.std()}
    shifts = np.quantile(y1, QUANTILES) - np.quantile(y0, QUANTILES)
    return found | {f"q{round(100 * q)}_effect": shift for q, shift in zip(QUANTILES, shifts, strict=True)}


def one_run(
    kind: str, n_rows: int, n_features: int, seed: int, truths: dict[int, pd.DataFrame], learner: str
) -> pd.DataFrame:
    data = make_modifiers(kind, n_samples=n_rows, n_features=n_features, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        statistic = {"none": "wcmmd"}.get(learner, "effect_likelihood")
        more = {"n_resamples": 9, "propensity": data.propensity} if learner == "none" else {}
        selector = ModifierSelector(statistic, sampler="gaussian", random_state=seed, **more)
        result = selector.fit(data.X, data.y, treatment=data.treatment).result_
    found = []
    for feature, true in truths.items():
        curve = result.curve(f"X{feature + 1}")
        for name in true.columns:
            at = np.interp(curve["value"], GRID, true[name])
            low, high = curve[f"{name}_low"], curve[f"{name}_high"]
            part = {"kind": kind, "rows": n_rows, "feature": f"X{feature + 1}", "what": name, "place": curve.index}
            part |= {"low_support": curve["low_support"], "inside": ((low <= at) & (at <= high)).astype(float)}
            found.append(pd.DataFrame(part | {"width": high - low, "error": curve[name] - at}))
    return pd.concat(found)


def truths_of(kind: str, drawn: int = DRAWN) -> dict[int, pd.DataFrame]:
    """Effects along two features: one that modifies much, one that modifies little."""
    rng = np.random.default_rng(0)
    return {
        feature: pd.DataFrame([truth(kind, feature, value, rng, drawn) for value in GRID], index=GRID)
        for feature in FEATURES
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0, help="first seed; development seeds are 0-99")
    parser.add_argument("--rows", type=int, nargs="+", default=[1000])
    parser.add_argument("--features", type=int, default=30)
    parser.add_argument("--kinds", nargs="+", default=["LinMean", "LinVar"])
    parser.add_argument("--learner", choices=["auto", "none"], default="auto")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    known = {kind: truths_of(kind) for kind in options.kinds}
    jobs = (
        delayed(one_run)(kind, n, options.features, seed, known[kind], options.learner)
        for kind in options.kinds
        for n in options.rows
        for seed in range(options.seed, options.seed + options.runs)
    )
    found = pd.concat(Parallel(n_jobs=options.jobs)(jobs), ignore_index=True)
    shown = found[~found["low_support"]]
    by = ["kind", "rows", "what"]
    table = shown.groupby(by)[["inside", "width"]].mean().rename(columns={"inside": "covered", "width": "mean width"})
    table["covered, X1"] = shown[shown["feature"] == "X1"].groupby(by)["inside"].mean()
    table["covered, outer points"] = shown[(shown["place"] < 5) | (shown["place"] > 19)].groupby(by)["inside"].mean()
    table["mean error"] = shown.groupby(by)["error"].mean()
    table["low support"] = found.groupby(by)["low_support"].mean()
    table["covered there"] = found[found["low_support"]].groupby(by)["inside"].mean()
    print(table.round(3).to_string())


if __name__ == "__main__":
    main()
