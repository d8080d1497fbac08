"""Cross-fitted stacks of learners: out-of-fold predictions, weighted by held-out log-likelihood."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from joblib import delayed
from numpy.typing import NDArray
from sklearn.base import clone

from modifind._system import one_thread
from modifind._typing import Array, Ints
from modifind._workers import results_of
from modifind.data.weights import Weights
from modifind.nuisance.outcome.additive import BoostingLearner
from modifind.nuisance.outcome.columns import (
    Filling,
    LevelEffects,
    Recast,
    SubsetLearner,
    is_screened,
    screened_columns,
)
from modifind.nuisance.outcome.contract import (
    Likelihood,
    OutcomeLearner,
    ScreenedLearner,
    check_along,
    index_of,
    looks_at,
    observed_arm,
    predict_along,
    predict_arms,
    without_rows,
)
from modifind.nuisance.regression.levels import Coded
from modifind.nuisance.regression.penalised import convex_weights, random_rows

MIN_STACK_WEIGHT = 0.1
WEIGHT_STEP = 0.01
N_CHECKED_ROWS = 20
MIN_GAIN = 0.01  # gain in nats per row that makes up for the cost of networks
MIN_TOTAL_GAIN = 100.0  # gain in nats of all rows that makes up for the cost of trees
TRIAL_ROWS = 10_000  # from which the first fold alone decides what is not worth fitting to the others
WEIGHED_ROWS = 50_000  # at most, which decide the weights
MIN_SCALE_RATIO = 1e-3  # of the outcome's interquartile range
COSTLY_LEARNERS = ("boosting", "neural")


@dataclass(frozen=True)
class StackedModel:
    """Weighted mean of several learners' locations and of the logarithms of their scales.

    No scale is below `least_scale`: if the outcome of an arm is constant, rounding would decide otherwise. With
    `chances`, locations must be probabilities. All learners see columns as transformed by `recast`.
    """

    models: tuple[OutcomeLearner, ...]
    weights: tuple[float, ...]
    least_scale: float = 0.0
    chances: bool = False
    recast: Recast = field(default_factory=Recast)

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Location and scale of every row in both arms, shape (n, 2) each."""
        X = self.recast(X)
        return self.combine([predict_arms(model, X, chances=self.chances) for model in self.models])

    def index(self, X: Array) -> tuple[Any, ...]:
        """Values that each learner can reuse for every feature."""
        X = self.recast(X)
        return tuple(index_of(model, X) for model in self.models)

    def looks_at(self, columns: slice) -> bool:
        """Whether the predictions of any learner can depend on any of the columns."""
        return any(looks_at(model, self.recast.place(columns)) for model in self.models)

    def alike(self, columns: slice) -> NDArray[np.intp] | None:
        """Groups of levels that no learner can distinguish; None if one can, and for other features."""
        return self.recast.effects.alike(columns)

    def along(
        self, X: Array, columns: slice, points: Array, index: tuple[Any, ...] | None = None
    ) -> tuple[Array, Array]:
        """The same, shape (n, g, 2) each, when some columns take the values `points`, (n, g, width)."""
        where = self.recast(X), self.recast.place(columns), self.recast(points, columns.start)
        pairs = zip(self.models, index or (None,) * len(self.models), strict=True)
        return self.combine([predict_along(model, *where, known, chances=self.chances) for model, known in pairs])

    def combine(self, predicted: list[tuple[Array, Array]]) -> tuple[Array, Array]:
        """Location and scale of the stack from those of its learners."""
        if len(predicted) == 1:
            return predicted[0][0], np.maximum(predicted[0][1], self.least_scale)
        location = sum(w * each[0] for w, each in zip(self.weights, predicted, strict=True))
        log_scale = sum(w * np.log(each[1]) for w, each in zip(self.weights, predicted, strict=True))
        return np.asarray(location), np.maximum(np.exp(log_scale), self.least_scale)


@dataclass(frozen=True)
class CrossFit:
    """One model per fold, fitted to the other folds, and its predictions for its own fold.

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
        """Predictions for other rows by the same models, each row by that of its fold."""
        location, scale = np.empty((folds.size, 2)), np.empty((folds.size, 2))
        for fold, model in enumerate(self.models):
            rows = np.flatnonzero(folds == fold)
            if rows.size:
                location[rows], scale[rows] = model.predict(X[rows])
        return replace(self, folds=folds, location=location, scale=scale)


@dataclass(frozen=True)
class OutcomeRows:
    """Rows to which outcome models are cross-fitted.

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

    def at(self, rows: Ints) -> OutcomeRows:
        """A subset of the rows."""
        arrays = {name: getattr(self, name)[rows] for name in ("X", "a", "y", "folds", "weights")}
        return replace(self, **arrays)


def cross_fit(
    candidates: dict[str, OutcomeLearner], rows: OutcomeRows, family: Likelihood, n_jobs: int | None = None
) -> CrossFit:
    """Fit every candidate to the complement of every fold and stack them.

    The weights of a fold's stack maximise the held-out log-likelihood of the other folds' rows. Evaluating trees and
    networks along a feature takes many times as long as evaluating additive models. Trees join the stack if they raise
    its held-out log-likelihood by more than 0.01 nats per row, or by more than 100 nats in total; what additive models
    miss determines the level of subsequent tests, however small its share of the outcome. Networks join for 0.01 nats
    per row, and are tried only if trees gained as much. In a large table, a candidate that gains less than half of that
    in the first fold is not fitted to the others.

    With many columns, the learners of this package get those chosen by `screened_columns`, separately for every fold
    and without its rows. Other learners get all columns. Missing values are imputed by the mean of the rows outside the
    fold. Learners see categories with many levels as the effects of the levels in the rows outside the fold.
    """
    fits = _Fits(candidates, rows, family, n_jobs)
    taken, best = _choose(fits)
    low, high = np.quantile(rows.y, (0.25, 0.75))
    min_scale = MIN_SCALE_RATIO * float((high - low) or rows.y.std())
    models = []
    location, scale = np.empty((rows.y.size, 2)), np.empty((rows.y.size, 2))
    for fold, weights in enumerate(best.weights):
        members = [(fits.done[name], float(weight)) for name, weight in zip(taken, weights, strict=True) if weight > 0]
        learners = tuple(without_rows(fit.models[fold]) for fit, _ in members)
        shares = tuple(weight for _, weight in members)
        models.append(StackedModel(learners, shares, min_scale, family.chances, fits.starts[fold].recast))
        inside = rows.folds == fold
        held_out = [(fit.location[inside], fit.scale[inside]) for fit, _ in members]
        location[inside], scale[inside] = models[fold].combine(held_out)
    mean_weights = dict(zip(taken, best.weights.mean(axis=0).tolist(), strict=True))
    return CrossFit(tuple(models), rows.folds, location, scale, mean_weights, dict(zip(taken, best.alone, strict=True)))


def _choose(fits: _Fits) -> tuple[list[str], _Stack]:
    """Fit the candidates that are worth their cost, and stack them."""
    costly = [name for name in COSTLY_LEARNERS if name in fits.candidates]
    taken = [name for name in fits.candidates if name not in COSTLY_LEARNERS]
    trials = fits.rows.y.size >= TRIAL_ROWS
    fits.fit(taken, beside=[name for name in costly if name == COSTLY_LEARNERS[0] and trials])
    best = fits.stack(taken) if taken else _Stack(np.empty((0, 0)), -np.inf, [])
    for name in costly:
        worthwhile = min(MIN_GAIN, MIN_TOTAL_GAIN / fits.rows.y.size) if name == COSTLY_LEARNERS[0] else MIN_GAIN
        if taken and trials:
            fits.fit([name], folds=[0])
            before, after = (fits.stack_of_first_fold(names).log_score for names in (taken, [*taken, name]))
            if after < before + worthwhile / 2:
                break
        fits.fit([name])
        richer = fits.stack([*taken, name])
        gain = richer.log_score - best.log_score
        if gain >= worthwhile:
            taken, best = [*taken, name], richer
        if gain < MIN_GAIN:
            break  # and what is costlier still is not tried
    return taken, best


@dataclass(frozen=True)
class _Fit:
    """A candidate's models, None for a fold until it is fitted, and its out-of-fold predictions in both arms."""

    models: list[Any]
    location: Array
    scale: Array


@dataclass
class _Fits:
    """The candidates for a stack, and which of them are fitted so far.

    Attributes
    ----------
    done : dict
        Candidates that have been fitted for at least one fold.
    starts : list
        What the learners of each fold share, once one has been fitted.
    """

    candidates: dict[str, OutcomeLearner]
    rows: OutcomeRows
    family: Likelihood
    n_jobs: int | None
    done: dict[str, _Fit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.starts: list[Any] = [None] * self.rows.n_folds

    def fit(self, names: list[str], folds: Iterable[int] | None = None, beside: Sequence[str] = ()) -> None:
        """Fit candidates for all or some folds, unless already fitted.

        Those `beside` them are fitted for the first fold alone, starting from its splines.
        """
        rows, n = self.rows, self.rows.y.size
        for name in (*names, *beside):
            self.done.setdefault(name, _Fit([None] * rows.n_folds, np.empty((n, 2)), np.empty((n, 2))))
        # Every candidate of every fold is a job, the richer candidates first: plain ones fill the gaps at the end.
        # Where columns are screened, or levels have effects, the candidates of a fold share these.
        together = bool(rows.coded) or is_screened(*rows.X.shape)
        groups = [names[::-1]] if together else [[name] for name in reversed(names)]
        tasks = []
        for group, fold in product(groups, range(rows.n_folds) if folds is None else folds):
            wanted = [*group, *beside] if fold == 0 and "splines" in group else group
            tasks.append(([name for name in wanted if self.done[name].models[fold] is None], fold))
        tasks = [task for task in tasks if task[0]]
        screen = any(isinstance(candidate, ScreenedLearner) for candidate in self.candidates.values())
        jobs = []
        for group, fold in tasks:
            chosen = {name: self.candidates[name] for name in group}
            jobs.append(delayed(_fit_fold)(chosen, rows, fold, self.starts[fold], self.family, screen))
        results = results_of(jobs, self.n_jobs, doing="fitting models of the outcome") if jobs else ()
        for (group, fold), (fits, start) in zip(tasks, results, strict=True):
            inside = rows.folds == fold
            if self.starts[fold] is None or start.base is not None:
                self.starts[fold] = start
            for name, (model, location, scale) in zip(group, fits, strict=True):
                fit = self.done[name]
                fit.models[fold], fit.location[inside], fit.scale[inside] = model, location, scale

    def stack(self, names: list[str]) -> _Stack:
        """Stack candidates that have been fitted for all folds."""
        return _stack([self.done[name] for name in names], self.rows, self.family)

    def stack_of_first_fold(self, names: list[str]) -> _Stack:
        """Stack candidates by the rows of the first fold alone, with weights of each half from the other."""
        inside = np.flatnonzero(self.rows.folds == 0)
        fits = (self.done[name] for name in names)
        held_out = [_Fit([], fit.location[inside], fit.scale[inside]) for fit in fits]
        return _stack(held_out, replace(self.rows.at(inside), folds=np.arange(inside.size) % 2), self.family)


@dataclass(frozen=True)
class _Start:
    """Preparation shared by the learners of one fold.

    Attributes
    ----------
    recast : Recast
        How columns change on their way to every learner.
    kept : array of int, optional
        The recast columns that learners of this package are given; None for all.
    training : array, optional
        The recast columns of the training rows, where levels have effects.
    base : AdditiveLearner, optional
        Splines that trees start from.
    """

    recast: Recast
    kept: Ints | None
    training: Array | None
    base: Any = None

    @classmethod
    def from_rows(cls, rows: OutcomeRows, family: Likelihood, *, screen: bool) -> _Start:
        """Learn from the training rows; `screen` the columns only if a learner requires it."""
        filling, number, binary = (
            Filling.from_rows(rows.X, rows.gaps),
            family.as_number(rows.y),
            family.kind == "binary",
        )
        effects, X = LevelEffects.from_rows(
            rows.coded, filling(rows.X), rows.a, number, binary=binary, weights=rows.weights
        )
        kept = screened_columns(X, rows.a, number, binary=binary, weights=rows.weights) if screen else None
        return cls(Recast(filling, effects), kept, X if rows.coded else None)


def _fit_fold(
    candidates: dict[str, OutcomeLearner],
    rows: OutcomeRows,
    fold: int,
    start: _Start | None,
    family: Likelihood,
    screen: bool,
) -> tuple[list[tuple[Any, Array, Array]], _Start]:
    """Fit the candidates outside a fold and predict inside it; also return what later candidates share."""
    training = rows.at(np.flatnonzero(rows.folds != fold))
    with one_thread():
        start = start or _Start.from_rows(training, family, screen=screen)
        X = start.recast(training.X) if start.training is None else start.training
        held_out, fits = start.recast(rows.X[rows.folds == fold]), []
        for name, candidate in candidates.items():
            model = _fitted(candidate, start, X, training)
            if name == "splines":
                start = replace(start, base=model.model if isinstance(model, SubsetLearner) else model)
            if hasattr(model, "along"):
                check_along(model, held_out[:N_CHECKED_ROWS])
            fits.append((model, *predict_arms(model, held_out, chances=family.chances)))
    return fits, start


def _fitted(candidate: Any, start: _Start, X: Array, rows: OutcomeRows) -> Any:
    """A fitted copy of a learner; this package's learners see the kept columns, and trees start from the splines."""
    model, arguments = clone(candidate, safe=False), rows.weights.argument()
    if isinstance(model, BoostingLearner) and model.base is None:
        arguments["fitted_base"] = start.base
    if start.kept is not None and isinstance(model, ScreenedLearner):
        model = SubsetLearner(model, start.kept)
    model.fit(X, rows.a, rows.y, **arguments)
    return model


def arm_shapes(y: Array, a: Ints, location: Array, scale: Array, *, family: Likelihood, weights: Weights) -> Array:
    """Shape of each row's arm, from out-of-fold residuals."""
    shape = np.empty(y.size)
    residual = family.residual(y, observed_arm(location, a), observed_arm(scale, a))
    for arm in (0, 1):
        shape[a == arm] = family.best_shape(residual[a == arm], weights[a == arm])
    return shape


@dataclass(frozen=True)
class _Stack:
    """Weights, one row per fold, and held-out log-likelihoods of the stack and of each candidate alone."""

    weights: Array
    log_score: float
    alone: list[float]


def _stack(fits: list[_Fit], rows: OutcomeRows, family: Likelihood) -> _Stack:
    y, a = rows.y, rows.a
    location = np.stack([observed_arm(fit.location, a) for fit in fits])
    scale = np.stack([observed_arm(fit.scale, a) for fit in fits])
    shapes = [arm_shapes(y, a, fit.location, fit.scale, family=family, weights=rows.weights) for fit in fits]
    families = [family.fitted(y, *predicted, rows.weights) for predicted in zip(location, scale, strict=True)]
    densities = [each.log_density(y, *at) for each, *at in zip(families, location, scale, shapes, strict=True)]
    alone = [float(rows.weights.mean(density)) for density in densities]
    if len(fits) == 1:
        return _Stack(np.ones((rows.n_folds, 1)), alone[0], alone)
    shape, family = shapes[int(np.argmax(alone))], families[int(np.argmax(alone))]
    weights = np.empty((rows.n_folds, len(fits)))
    # Weights do not depend on the outcome's unit and origin, and the search for them should not.
    centre, unit = family.origin(y)
    y, location, log_scale = (y - centre) / unit, (location - centre) / unit, np.log(scale) - np.log(unit)
    for fold in range(rows.n_folds):
        others = np.flatnonzero(rows.folds != fold)
        others = others[random_rows(others.size, WEIGHED_ROWS)]
        seen = y[others], location[:, others], log_scale[:, others], shape[others]
        weights[fold] = _best_weights(*seen, family, rows.weights[others])
    mixed = weights[rows.folds].T
    scale = np.exp((mixed * log_scale).sum(axis=0))
    score = rows.weights.mean(family.log_density(y, (mixed * location).sum(axis=0), scale, shape))
    return _Stack(weights, float(score - np.log(unit)), alone)


def _best_weights(
    y: Array, location: Array, log_scale: Array, shape: Array, family: Likelihood, counts: Weights
) -> Array:
    """Weights that maximise the log-likelihood."""

    def loss(weights: Array) -> float:
        scale = np.exp(weights @ log_scale)
        return -float(counts.mean(family.log_density(y, weights @ location, scale, shape)))

    # Rounded: where the search ends depends on the last digits of the outcome, and so on its unit and origin.
    return convex_weights(loss, len(location), MIN_STACK_WEIGHT, step=WEIGHT_STEP, ftol=1e-12)


def describe(weights: dict[str, float]) -> str:
    """Description of the stack, largest weight first."""
    ordered: Sequence[tuple[str, float]] = sorted(weights.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {weight:.2f}" for name, weight in ordered if weight > 0)
