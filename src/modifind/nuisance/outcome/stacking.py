"""Cross-fitted stacks of learners: out-of-fold predictions, weights by held-out log-likelihood."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
from joblib import delayed
from numpy.typing import NDArray
from sklearn.base import clone

from modifind._threads import one_thread
from modifind._typing import Array, Ints
from modifind._workers import results_of
from modifind.data.weights import Weights
from modifind.nuisance.outcome.additive import AdditiveLearner
from modifind.nuisance.outcome.boosting import BoostingLearner
from modifind.nuisance.outcome.contract import (
    Likelihood,
    OutcomeLearner,
    check_along,
    looks_at,
    predict_along,
    predict_arms,
)
from modifind.nuisance.outcome.filling import Filling
from modifind.nuisance.outcome.learners import OWN
from modifind.nuisance.outcome.level_effects import LevelEffects
from modifind.nuisance.outcome.recast import RecastLearner
from modifind.nuisance.outcome.screening import KeptColumns, is_screened, screened_columns
from modifind.nuisance.regression.blocks import random_rows
from modifind.nuisance.regression.convex import convex_weights
from modifind.nuisance.regression.level_sums import Coded

NEGLIGIBLE = 0.1
WEIGHT_STEP = 0.01
CHECKED_ROWS = 20
WORTHWHILE = 0.01  # nats per row, of networks and of what is tried after them
WORTHWHILE_TOTAL = 100.0  # nats of all rows: what trees gain is worth their cost however many rows share it
TRIED_ROWS = 10_000  # of a table whose first fold alone tells what gains nothing
WEIGHED_ROWS = 50_000  # at most so many decide a few weights
LEAST_SCALE = 1e-3  # of the outcome's interquartile range
COSTLY = ("boosting", "neural")


@dataclass(frozen=True)
class StackedModel:
    """Weighted mean of several learners' locations and of the logarithms of their scales.

    No scale is below `least_scale`: in an arm whose outcome is constant, rounding would decide otherwise. Locations may
    have to be `chances`.
    """

    models: tuple[OutcomeLearner, ...]
    weights: tuple[float, ...]
    least_scale: float = 0.0
    chances: bool = False

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Location and scale of every row in both arms, shape (n, 2) each."""
        return self.combine([predict_arms(model, X, chances=self.chances) for model in self.models])

    def index(self, X: Array) -> tuple[Array | None, ...]:
        """What each learner can reuse from feature to feature."""
        return tuple(model.index(X) if hasattr(model, "index") else None for model in self.models)

    def looks_at(self, columns: slice) -> bool:
        """Whether any learner looks at any of some columns."""
        return any(looks_at(model, columns) for model in self.models)

    def alike(self, columns: slice) -> NDArray[np.intp] | None:
        """Groups of levels of a category that no learner can tell apart; None where it can, and for other features."""
        first = self.models[0]  # learners of a fold share what they know of levels
        return first.alike(columns) if hasattr(first, "alike") else None

    def along(
        self, X: Array, columns: slice, points: Array, index: tuple[Array | None, ...] | None = None
    ) -> tuple[Array, Array]:
        """The same, shape (n, g, 2) each, when some columns take the values `points`, (n, g, width)."""
        pairs = zip(self.models, index or (None,) * len(self.models), strict=True)
        where = X, columns, points
        return self.combine([predict_along(model, *where, part, chances=self.chances) for model, part in pairs])

    def combine(self, parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
        """The stack's location and scale from those of its learners."""
        if len(parts) == 1:
            return parts[0][0], np.maximum(parts[0][1], self.least_scale)
        location = sum(w * part[0] for w, part in zip(self.weights, parts, strict=True))
        log_scale = sum(w * np.log(part[1]) for w, part in zip(self.weights, parts, strict=True))
        return np.asarray(location), np.maximum(np.exp(log_scale), self.least_scale)


@dataclass(frozen=True)
class CrossFit:
    """A model per fold, fitted to the other folds, and its predictions of the rows of its own fold.

    Attributes
    ----------
    models : tuple
        One stack per fold.
    folds : array of int
        Fold of each row.
    location, scale : array of shape (n, 2)
        Out-of-fold predictions in both arms.
    weights : dict
        Mean weight of each candidate over folds.
    log_scores : dict
        Mean held-out log-likelihood of each candidate alone, in nats per row.
    """

    models: tuple[StackedModel, ...]
    folds: Ints
    location: Array
    scale: Array
    weights: dict[str, float]
    log_scores: dict[str, float]

    def at(self, X: Array, folds: Ints) -> CrossFit:
        """The same models for other rows, whose folds say which of them predicts a row."""
        location, scale = np.empty((folds.size, 2)), np.empty((folds.size, 2))
        for fold, model in enumerate(self.models):
            rows = np.flatnonzero(folds == fold)
            if rows.size:
                location[rows], scale[rows] = model.predict(X[rows])
        return replace(self, folds=folds, location=location, scale=scale)


@dataclass(frozen=True)
class OutcomeRows:
    """Rows that models of the outcome are cross-fitted to.

    Attributes
    ----------
    X : array of shape (n, p)
        Features as a numeric matrix.
    a, y, folds : arrays of shape (n,)
        Arm, outcome and fold.
    weights : Weights, optional
        How much each row counts, in fits and in log-likelihoods.
    gaps : tuple of int
        Columns with missing values, each followed by their indicator.
    coded : tuple
        Columns of categories of many levels, and the number of their levels.
    """

    X: Array
    a: Ints
    y: Array
    folds: Ints
    weights: Weights = None  # type: ignore[assignment]
    gaps: tuple[int, ...] = ()
    coded: Coded = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", Weights.of(self.weights, self.y.size))

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        return int(self.folds.max()) + 1


def cross_fit(
    candidates: dict[str, OutcomeLearner], rows: OutcomeRows, family: Likelihood, n_jobs: int | None = None
) -> CrossFit:
    """Fit every candidate to the complement of every fold and stack them.

    The weights of a fold's stack maximise the held-out log-likelihood of the other folds' rows. Trees and networks take
    many times as long to follow along a feature as additive models. Trees join the stack where they raise its held-out
    log-likelihood by more than 0.01 nats per row, or by more than 100 nats in all; what additive models miss decides
    the level of tests that follow, whatever its share of the outcome. Networks join for 0.01 nats per row, and are
    tried only where trees gained as much. In a table of many rows, what gains less than half of that in the first fold
    is not fitted to the others.

    Where columns are many, the learners of this package are given those that `screened_columns` chooses, anew for every
    fold and without its rows. Other learners get all columns. Missing values are filled in by the mean of the rows
    outside the fold. Learners see categories of many levels as effects that the levels have in the rows outside the
    fold.
    """
    fitted, best = _taken(candidates, rows, family, n_jobs)
    low, high = np.quantile(rows.y, (0.25, 0.75))
    least = LEAST_SCALE * float((high - low) or rows.y.std())
    models = []
    location, scale = np.empty((rows.y.size, 2)), np.empty((rows.y.size, 2))
    for fold, own in enumerate(best.weights):
        parts = [(part, float(weight)) for part, weight in zip(fitted.values(), own, strict=True) if weight > 0]
        chosen = tuple(_without_rows(part.models[fold]) for part, _ in parts)
        models.append(StackedModel(chosen, tuple(weight for _, weight in parts), least, family.chances))
        inside = rows.folds == fold
        held = [(part.location[inside], part.scale[inside]) for part, _ in parts]
        location[inside], scale[inside] = models[fold].combine(held)
    shares = dict(zip(fitted, best.weights.mean(axis=0).tolist(), strict=True))
    return CrossFit(tuple(models), rows.folds, location, scale, shares, dict(zip(fitted, best.alone, strict=True)))


def _taken(
    candidates: dict[str, OutcomeLearner], rows: OutcomeRows, family: Likelihood, n_jobs: int | None
) -> tuple[dict[str, _Fitted], _Stack]:
    """The candidates that are worth their cost, fitted, and their stack."""
    plain = {n: c for n, c in candidates.items() if n not in COSTLY}
    trials = rows.y.size >= TRIED_ROWS
    beside = {n: candidates[n] for n in COSTLY[:1] if n in candidates and trials and "splines" in plain}
    fitted = _fit_all(plain, rows, family, n_jobs, beside=beside)
    tried = {n: {n: fitted.pop(n)} for n in beside}
    best = _stack(fitted, rows, family) if fitted else _Stack(np.empty((0, 0)), -np.inf, [])
    for name in (name for name in COSTLY if name in candidates):
        bases = fitted["splines"].models if "splines" in fitted else None
        own, found = {name: candidates[name]}, tried.get(name)
        worthwhile = _worthwhile(name, rows.y.size)
        if fitted and trials:
            found = found or _fit_all(own, rows, family, n_jobs, bases, folds=range(1))
            scores = [_stack(*_first_fold(parts, rows), family).log_score for parts in (fitted, {**fitted, **found})]
            if scores[1] < scores[0] + worthwhile / 2:
                break
        more = {**fitted, **_fit_all(own, rows, family, n_jobs, bases, found)}
        richer = _stack(more, rows, family)
        gain = richer.log_score - best.log_score
        if gain >= worthwhile:
            fitted, best = more, richer
        if gain < WORTHWHILE:
            break  # and what is costlier still is not tried
    return fitted, best


def _worthwhile(name: str, n_rows: int) -> float:
    """Gain in held-out log-likelihood, in nats per row, that makes up for a learner's cost."""
    return min(WORTHWHILE, WORTHWHILE_TOTAL / n_rows) if name == COSTLY[0] else WORTHWHILE


@dataclass(frozen=True)
class _Fitted:
    models: list[Any]
    location: Array
    scale: Array


def _fit_all(
    candidates: dict[str, OutcomeLearner],
    rows: OutcomeRows,
    family: Likelihood,
    n_jobs: int | None,
    bases: list[Any] | None = None,
    found: dict[str, _Fitted] | None = None,
    folds: Iterable[int] | None = None,
    beside: dict[str, OutcomeLearner] | None = None,
) -> dict[str, _Fitted]:
    """Candidates fitted to the complements of all folds, or of some; those of the first fold may have been `found`.

    Those `beside` them start from the splines of the first fold and are fitted to its complement alone.
    """
    if not candidates:
        return {}
    n, n_folds = rows.y.size, rows.n_folds
    folds = range(0 if found is None else 1, n_folds) if folds is None else folds
    # Every candidate of every fold is a job, the richer candidates first: plain ones fill the gaps at the end. Where
    # columns are screened, or levels have effects, the candidates of a fold share these.
    ordered = dict(reversed(candidates.items()))
    together = rows.coded or is_screened(*rows.X.shape)
    tasks = list(product([ordered] if together else [{name: own} for name, own in ordered.items()], folds))
    beside = beside or {}
    tasks = [({**group, **beside} if fold == 0 and "splines" in group else group, fold) for group, fold in tasks]
    starts = bases or [None] * n_folds
    jobs = [delayed(_fit_fold)(group, rows, fold, starts[fold], family) for group, fold in tasks]
    if found is None:
        names = [*candidates, *beside]
        found = {name: _Fitted([None] * n_folds, np.empty((n, 2)), np.empty((n, 2))) for name in names}
    results = results_of(jobs, n_jobs, doing="fitting models of the outcome")
    for (group, fold), fits in zip(tasks, results, strict=True):
        inside = rows.folds == fold
        for name, fit in zip(group, fits, strict=True):
            own = found[name]
            own.models[fold], own.location[inside], own.scale[inside] = fit
    return found


def _first_fold(fitted: dict[str, _Fitted], rows: OutcomeRows) -> tuple[dict[str, _Fitted], OutcomeRows]:
    """What was predicted of the rows of the first fold, and these rows in two folds of their own."""
    own = np.flatnonzero(rows.folds == 0)
    parts = {name: _Fitted([], part.location[own], part.scale[own]) for name, part in fitted.items()}
    halves = np.arange(own.size) % 2
    return parts, OutcomeRows(rows.X[own], rows.a[own], rows.y[own], halves, rows.weights[own])


def _fit_fold(
    candidates: dict[str, OutcomeLearner], rows: OutcomeRows, fold: int, base: Any, family: Likelihood
) -> list[tuple[Any, Array, Array]]:
    """Fit the candidates to the rows outside and predict those inside; trees start from splines already fitted."""
    out = rows.folds == fold
    a, y, weights = rows.a[~out], rows.y[~out], rows.weights[~out]
    known: dict[type, Any] = {}  # what stands before the splines
    number, binary = family.as_number(y), family.kind == "binary"
    while isinstance(base, RecastLearner):
        known[type(base.recast)], base = (base.recast, base.training), base.model
    with one_thread():
        filling = Filling.of(rows.X[~out], rows.gaps)
        inside, outside = filling(rows.X[~out]), filling(rows.X[out])
        before: list[tuple[Any, Array | None]] = [(filling, None)] if rows.gaps else []
        if rows.coded:
            learned = known.get(LevelEffects)
            if learned is None:
                learned = LevelEffects.of(rows.coded, inside, a, number, binary=binary, weights=weights)
            before.insert(0, learned)
            inside, outside = learned[1], learned[0](outside)
        kept, _ = known.get(KeptColumns, (None, None))
        if kept is None and any(isinstance(candidate, OWN) for candidate in candidates.values()):
            kept = screened_columns(inside, a, number, binary=binary, weights=weights)
        found = []
        for name, candidate in candidates.items():
            model = _fitted(candidate, kept, base, inside, a, y, weights)
            if name == "splines":
                base = model.model if isinstance(model, RecastLearner) else model
            if hasattr(model, "along"):
                check_along(model, outside[:CHECKED_ROWS])
            predicted = predict_arms(model, outside, chances=family.chances)
            found.append((reduce(lambda own, part: RecastLearner(own, *part), before, model), *predicted))
    return found


def _fitted(candidate: Any, kept: KeptColumns | None, base: Any, X: Array, a: Ints, y: Array, weights: Weights) -> Any:
    """A copy of a learner, fitted; those of this package see the kept columns, and trees start from `base`."""
    model = clone(candidate, safe=False)
    start = {"fitted_base": base} if isinstance(model, BoostingLearner) and model.base is None else {}
    if kept is not None and isinstance(model, OWN):
        model = RecastLearner(model, kept)
    model.fit(X, a, y, **start, **weights.argument())
    return model


def _without_rows(model: Any) -> Any:
    """The learner without what it has kept of its training rows for others to start from."""
    if isinstance(model, RecastLearner):
        return RecastLearner(_without_rows(model.model), model.recast)
    if not isinstance(model, AdditiveLearner | BoostingLearner):
        return model
    model = copy.copy(model)
    if isinstance(model, BoostingLearner):
        model.base_ = _without_rows(model.base_)
    else:
        del model.residual_, model.weight_
    return model


def own_arm(both: Array, a: Ints) -> Array:
    """The column of each row's own arm."""
    return both[np.arange(a.size), a]


def arm_shapes(y: Array, a: Ints, location: Array, scale: Array, *, family: Likelihood, weights: Weights) -> Array:
    """Shape of each row's arm, from out-of-fold residuals."""
    shape = np.empty(y.size)
    residual = family.residual(y, own_arm(location, a), own_arm(scale, a))
    for arm in (0, 1):
        shape[a == arm] = family.best_shape(residual[a == arm], weights[a == arm])
    return shape


@dataclass(frozen=True)
class _Stack:
    """Weights, one row per fold; held-out log-likelihood of the stack and of each candidate alone."""

    weights: Array
    log_score: float
    alone: list[float]


def _stack(fitted: dict[str, _Fitted], rows: OutcomeRows, family: Likelihood) -> _Stack:
    parts, y, a, folds = list(fitted.values()), rows.y, rows.a, rows.folds
    location = np.stack([own_arm(part.location, a) for part in parts])
    log_scale = np.log(np.stack([own_arm(part.scale, a) for part in parts]))
    shapes = [arm_shapes(y, a, part.location, part.scale, family=family, weights=rows.weights) for part in parts]
    own_scale = np.exp(log_scale)
    families = [family.fitted(y, location[k], own_scale[k], rows.weights) for k in range(len(parts))]
    alone = [
        float(rows.weights.mean(own.log_density(y, location[k], own_scale[k], shapes[k])))
        for k, own in enumerate(families)
    ]
    if len(parts) == 1:
        return _Stack(np.ones((rows.n_folds, 1)), alone[0], alone)
    shape, family = shapes[int(np.argmax(alone))], families[int(np.argmax(alone))]
    weights = np.empty((rows.n_folds, len(parts)))
    # Weights do not depend on the outcome's unit and origin, and the search for them should not.
    centre, unit = family.origin(y)
    y, location, log_scale = (y - centre) / unit, (location - centre) / unit, log_scale - np.log(unit)
    for fold in range(rows.n_folds):
        own = np.flatnonzero(folds != fold)
        own = own[random_rows(own.size, WEIGHED_ROWS)]
        seen = (y[own], location[:, own], log_scale[:, own], shape[own])
        weights[fold] = _best_weights(*seen, family, rows.weights[own])
    mixed = weights[folds].T
    scale = np.exp((mixed * log_scale).sum(axis=0))
    score = rows.weights.mean(family.log_density(y, (mixed * location).sum(axis=0), scale, shape))
    return _Stack(weights, float(score - np.log(unit)), alone)


def _best_weights(
    y: Array, location: Array, log_scale: Array, shape: Array, family: Likelihood, counts: Weights
) -> Array:
    """Weights with the largest log-likelihood."""

    def loss(weights: Array) -> float:
        scale = np.exp(weights @ log_scale)
        return -float(counts.mean(family.log_density(y, weights @ location, scale, shape)))

    # Rounded: where the search ends depends on the last digits of the outcome, and so on its unit and origin.
    return convex_weights(loss, len(location), NEGLIGIBLE, step=WEIGHT_STEP, ftol=1e-12)


def describe(weights: dict[str, float]) -> str:
    """The stack in words, largest weight first."""
    ordered: Sequence[tuple[str, float]] = sorted(weights.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {weight:.2f}" for name, weight in ordered if weight > 0)
