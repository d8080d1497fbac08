"""Level and power of the tests of a whole table, beside peers that ask the same; `validity.py` prints them.

A table of `designs.WHOLE_NULL` or `designs.WHOLE_POWER` has four features, two of them prognostic, and no effect or
one of some kind.
Peers look at the outcome alone (t-test, Mann-Whitney, Kolmogorov-Smirnov, maximum mean discrepancy with 199
permutations), or at all interactions of the treatment with a feature (Wald test of a least squares fit, HC3 errors).
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
from scipy import stats

import designs
from modifind import EffectLikelihood, ModifierSelector
from modifind.statistics.kernels import gaussian_gram
from modifind.statistics.wcmmd import median_bandwidth

PERMUTATIONS = 199
QUARTERS = stats.norm.ppf([0.25, 0.5, 0.75])
QUARTER_MEANS = -4 * np.diff(stats.norm.pdf([-np.inf, *QUARTERS, np.inf]))  # of a normal variable


def whole_run(
    design: designs.Design, n: int, seed: int, peers: bool = False, *, quick: bool = True
) -> dict[str, float]:
    """P-values of whether there is an effect at all, and whether anything modifies it; with those of peers.

    Models are linear and Gaussian if it is to be `quick`, else the default ones.
    """
    table = design(seed, n)
    tests = _fitted(table, seed, quick).tests
    found = {name: float(tests.loc[name, "p_value"]) for name in ("mean", "distribution", "modification")}
    if peers:
        treated, control = (table.y[table.treatment == arm] for arm in (1, 0))
        found["t-test"] = float(stats.ttest_ind(treated, control, equal_var=False).pvalue)
        found["Mann-Whitney"] = float(stats.mannwhitneyu(treated, control).pvalue)
        found["Kolmogorov-Smirnov"] = float(stats.ks_2samp(treated, control).pvalue)
        found["MMD"] = mmd_p_value(table.y, table.treatment, np.random.default_rng([seed, 71]))
        found["interactions"] = interactions_p_value(table.X.to_numpy(float), table.treatment, table.y)
    return found


def coverage_run(n: int, seed: int, scale: str = "difference", *, quick: bool = True) -> list[bool]:
    """Whether the limits of the effects in four quarters of X1 and on both sides of X2 hold the truth."""
    rng = np.random.default_rng([seed, 73])
    x = rng.standard_normal((n, 4))
    a = (rng.random(n) < designs.expit(0.8 * x[:, 0] - 0.5 * x[:, 1])).astype(np.int64)
    y = a * (1 + x[:, 0]) + x[:, 0] + x[:, 1] + rng.standard_normal(n)
    truth = {**{str(k): 1 + mean for k, mean in enumerate(QUARTER_MEANS)}, "over": 1.0, "under": 1.0}
    if scale != "difference":
        y, truth = (rng.random(n) < np.choose(a, _risks(x))).astype(float), _true_ratios(scale)
    table = designs.Table(_with_subgroups(x), a, y, [], [])
    found = _fitted(table, seed, quick, adjust_for=["X1", "X2", "X3", "X4"], effect_scale=scale).subgroups
    return [bool(row.low <= truth[row.level] <= row.high) for row in found.itertuples()]


def _with_subgroups(x: Any) -> Any:
    frame = designs.as_frame(x)
    frame["quarter"] = np.digitize(x[:, 0], QUARTERS).astype(str)
    frame["side"] = np.where(x[:, 1] > 0, "over", "under")
    return frame


def _risks(x: Any) -> tuple[Any, Any]:
    """Risks of both arms, whose ratio rises with X1."""
    control = designs.expit(-1.2 + 0.5 * x[:, 0] + 0.5 * x[:, 1])
    return control, control * (1 - 0.5 * designs.expit(-x[:, 0]))


@cache
def _true_ratios(scale: str) -> dict[str, float]:
    """Ratios of average risks, or of their odds, in the subgroups of a million rows."""
    x = np.random.default_rng(0).standard_normal((1_000_000, 4))
    frame, risks = _with_subgroups(x), np.column_stack(_risks(x))
    found = {}
    for level in (*map(str, range(4)), "over", "under"):
        control, treated = risks[(frame["quarter"] == level) | (frame["side"] == level)].mean(axis=0)
        odds = (1 - control) / (1 - treated) if scale == "odds_ratio" else 1.0
        found[level] = float(treated / control * odds)
    return found


def _fitted(table: designs.Table, seed: int, quick: bool, adjust_for: list[str] | None = None, **settings: Any) -> Any:
    warnings.simplefilter("ignore")
    rows = {"sample_weight": table.weights, "clusters": table.clusters, "strata": table.strata}
    if quick:
        settings |= {"statistic": EffectLikelihood("linear"), "sampler": "gaussian"}
    selector = ModifierSelector(random_state=seed, **settings)
    return selector.fit(table.X, table.y, treatment=table.treatment, adjust_for=adjust_for, **rows).result_


def mmd_p_value(y: Any, arms: Any, rng: np.random.Generator) -> float:
    """Permutation test of the maximum mean discrepancy between the arms' outcomes."""
    gram = gaussian_gram(y, y, median_bandwidth(y))
    labels = np.array([arms, *(rng.permutation(arms) for _ in range(PERMUTATIONS))], dtype=float)
    signs = labels / arms.sum() - (1 - labels) / (1 - arms).sum()
    found = np.einsum("ij,ij->i", signs @ gram, signs)
    return float(np.mean(found >= found[0]))


def interactions_p_value(x: Any, arms: Any, y: Any) -> float:
    """Wald test of all interactions of the treatment in a linear model, with HC3 errors."""
    design = np.column_stack((np.ones(y.size), x, arms, x * arms[:, None]))
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ design.T @ y
    leverage = np.einsum("ij,jk,ik->i", design, inverse, design)
    residuals = (y - design @ coefficients) / (1 - leverage)
    half = inverse @ (design * residuals[:, None]).T
    last = slice(-x.shape[1], None)
    wald = coefficients[last] @ np.linalg.solve((half @ half.T)[last, last], coefficients[last])
    return float(stats.f.sf(wald / x.shape[1], x.shape[1], y.size - design.shape[1]))
