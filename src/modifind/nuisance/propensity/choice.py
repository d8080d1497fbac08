"""Which model of the treatment: logistic lines, splines and products, trees, or a mixture of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from modifind._typing import Array, Ints
from modifind.data.clusters import Clusters, cluster_folds, treated_as_one
from modifind.data.weights import Weights
from modifind.nuisance.propensity.models import EDGE, CalledTrees, StackedScores
from modifind.nuisance.regression.chances import predict_chances
from modifind.nuisance.regression.convex import convex_weights
from modifind.nuisance.regression.leftover import Leftover, Trace
from modifind.nuisance.regression.misfit import Misfit
from modifind.nuisance.regression.screening import ScreenedLogistic, has_many_columns
from modifind.nuisance.regression.smooth import SmoothClassifier

PENALTY_STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 1.0, 10.0)
SMOOTH_STRENGTHS = (0.1, 1.0, 10.0)
TREES = ((30, 8), (100, 16))  # rounds and leaves; the larger where a grid or a product of three calls for them
MISFIT_LEVEL = 0.01
CHOICE_ROWS = 20_000
MIN_ARM_ROWS = 500  # of an arm, where it has so many
NEGLIGIBLE = 0.05


def described(model: Any) -> str:
    """A model in words."""
    if isinstance(model, StackedScores):
        members = zip(model.members, model.weights, strict=True)
        names = ", ".join(f"{described(member)} ({weight:.2f})" for member, weight in members)
        return f"mean log-odds of {names}" if len(model.members) > 1 else described(model.members[0])
    if isinstance(model, CalledTrees):
        return "boosted trees"
    kind = "splines and products" if isinstance(model, SmoothClassifier) else "logistic regression"
    screened = " on the columns most associated with the treatment" * isinstance(model, ScreenedLogistic)
    return f"{kind}, ridge penalty C = {model.C:g}{screened}"


def held_out_scores(model: Any, design: Array, treatment: Ints, folds: Ints, weights: Weights) -> Array:
    """Scores of every row by a model of the other folds."""
    scores = np.empty(treatment.size)
    for fold in np.unique(folds):
        out = folds == fold
        fitted = clone(model).fit(design[~out], treatment[~out], **weights[~out].argument())
        scores[out] = predict_chances(fitted, design[out])[:, 1]
    return scores


def arm_folds(treatment: Ints, n_folds: int, seed: int, clusters: Clusters | None = None) -> Ints:
    """Fold of each row; every fold holds both arms, also where this makes fewer, and rows of a cluster share one."""
    clusters = Clusters.of(clusters, treatment.size)
    if not clusters.of_rows and n_folds > 1:
        return cluster_folds(treatment, clusters.codes, n_folds, seed)
    folds = np.zeros(treatment.size, dtype=np.int64)
    if n_folds > 1:
        splits = StratifiedKFold(min(n_folds, int(np.bincount(treatment).min())), shuffle=True, random_state=seed)
        for fold, (_, out) in enumerate(splits.split(treatment[:, None], treatment)):
            folds[out] = fold
    return folds


def chosen_model(
    design: Array, treatment: Ints, seed: int, weights: Weights, clusters: Clusters, encoded: Sequence[int] = ()
) -> Any:
    """The model of least held-out log-loss, not fitted yet.

    Logistic regression on lines comes first. Where its held-out residuals follow bins or products of columns, products
    of three or grids of two, splines and products are tried, and trees. The candidates are mixed on the scale of
    log-odds as held-out rows have it. The mixture is taken where it is better than lines alone by more than one
    standard error. Where whole clusters were treated, lines are all that is tried: rows are too few for more, however
    many. Columns that are `encoded` by the treatment of other rows have no part in grids and products of three.

    A penalty is a normal prior with variance C of every coefficient. The best C tells how large the coefficients are,
    whatever the number of rows: it is chosen on at most 20,000 of them and used on all as it is.
    """
    if treatment.size > CHOICE_ROWS:
        drawn = np.random.default_rng(seed).permutation(treatment.size)
        arms = [drawn[treatment[drawn] == arm] for arm in (0, 1)]  # a small arm is taken as a whole
        rows = np.concatenate([r[: max(CHOICE_ROWS * r.size // treatment.size, MIN_ARM_ROWS)] for r in arms])
        design, treatment, weights, clusters = design[rows], treatment[rows], weights[rows], clusters[rows]
    folds = arm_folds(treatment, 4, seed, clusters)

    def held_out(model: Any) -> Array:
        return held_out_scores(model, design, treatment, folds, weights)

    def loss(chances: Array) -> Array:
        chances = np.clip(chances, EDGE, 1.0 - EDGE)
        return -np.where(treatment == 1, np.log(chances), np.log1p(-chances))

    def best(kind: Any, strengths: tuple[float, ...]) -> tuple[Any, Array]:
        models = [kind(C=strength) for strength in strengths]
        candidates = [(model, held_out(model)) for model in models]
        return min(candidates, key=lambda candidate: weights.mean(loss(candidate[1])))

    def logistic(C: float) -> Any:
        return (ScreenedLogistic if has_many_columns(*design.shape) else LogisticRegression)(C=C, max_iter=1000)

    lines, chances = best(logistic, PENALTY_STRENGTHS)
    if not treated_as_one(treatment, clusters).of_rows or has_many_columns(*design.shape):
        return lines
    residual, variance = treatment - chances, chances * (1.0 - chances)
    called = _crossed(design, weights.times(residual), weights.times(weights.times(variance)), encoded)
    tests = Misfit(design, weights)
    strays = min(tests.curve(residual, variance, chances), tests.product(residual, variance)) < MISFIT_LEVEL
    if not strays and not called:
        return lines
    smooth, by_smooth = best(SmoothClassifier, SMOOTH_STRENGTHS)
    trees = [CalledTrees(lines.C, called, *size) for size in TREES[: 1 + bool(called)]]
    candidates = [lines, smooth, *trees]
    predicted = np.stack((chances, by_smooth, *map(held_out, trees)))
    index = logit(np.clip(predicted, EDGE, 1.0 - EDGE))
    mixed = convex_weights(lambda shares: float(weights.mean(loss(expit(shares @ index)))), len(index), NEGLIGIBLE)
    gain = loss(chances) - loss(expit(mixed @ index))
    error = float(gain.std() / np.sqrt(gain.size))
    if weights.mean(gain) <= error:
        return lines
    kept = np.flatnonzero(mixed)
    return StackedScores([candidates[k] for k in kept], [float(mixed[k]) for k in kept])


def _crossed(design: Array, residual: Array, variance: Array, encoded: Sequence[int]) -> tuple[int, ...]:
    """Columns whose grid, or product of three, residuals follow."""
    leftover = Leftover(design, np.setdiff1d(np.arange(design.shape[1]), np.asarray(encoded, dtype=np.int64)))
    trace = Trace.clearest([leftover.triple(residual, variance), leftover.grid(residual, variance)])
    return trace.columns if trace.p_value < MISFIT_LEVEL else ()
